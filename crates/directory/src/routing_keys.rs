//! The routing keys of one message: the one it was published with, and copies by header.

use alloc::string::String;

/// The header whose keys everybody sees.
pub const CC: &str = "CC";
/// The header whose keys nobody sees. Stored, it holds all further keys, those of [`CC`] too.
pub const BCC: &str = "BCC";

/// All keys of one message: its routing key first, then those of its headers `CC` and `BCC`.
///
/// A message is routed once, with all of them.
#[derive(Clone, Copy, Debug)]
pub struct RoutingKeys<'a> {
    /// The routing key, by which exchanges choose that look at one key only.
    pub first: &'a str,
    /// The keys of the headers `CC` and `BCC`, in their order.
    pub further: &'a [String],
}

impl<'a> RoutingKeys<'a> {
    /// All keys, the routing key first.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        core::iter::once(self.first).chain(self.further.iter().map(String::as_str))
    }
}

impl<'a> From<&'a str> for RoutingKeys<'a> {
    fn from(first: &'a str) -> RoutingKeys<'a> {
        RoutingKeys { first, further: &[] }
    }
}
