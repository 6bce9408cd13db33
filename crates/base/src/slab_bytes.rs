//! What a slab allocates.

use crate::Slab;

/// A slab's entry has this form.
#[expect(dead_code, reason = "only its size matters")]
enum Entry<T> {
    Vacant(usize),
    Occupied(T),
}

/// Bytes that a slab takes for each of its values.
#[must_use]
pub const fn slab_entry_bytes<T>() -> usize {
    size_of::<Entry<T>>()
}

/// Bytes that a slab has allocated.
#[must_use]
pub fn slab_bytes<T>(slab: &Slab<T>) -> usize {
    slab.capacity() * slab_entry_bytes::<T>()
}
