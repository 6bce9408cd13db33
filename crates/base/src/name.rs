//! Names that may be empty.

/// Whether two names, or other short byte strings, are the same; empty ones without a look at their bytes.
///
/// `==` of byte strings of the same length calls `memcmp`, whatever the length is. An empty string that owns
/// nothing points to address 1, and where `memcmp` is made of masked loads, as on CPUs with AVX-512, a load
/// from there costs some 40 ns though it loads nothing. The default exchange has an empty name, and a fanout
/// exchange's messages have empty keys.
///
/// ```
/// assert!(lepus_base::is_same("", String::new()));
/// assert!(lepus_base::is_same(b"orders", "orders"));
/// assert!(!lepus_base::is_same("orders", "order"));
/// ```
#[inline]
pub fn is_same(one: impl AsRef<[u8]>, other: impl AsRef<[u8]>) -> bool {
    let (one, other) = (one.as_ref(), other.as_ref());
    one.len() == other.len() && (one.is_empty() || one == other)
}
