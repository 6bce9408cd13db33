//! What all roles of a run share: clocks, counters, the order check.

use crate::body::Layout;
use crate::check::Check;
use crate::clock::Clock;
use crate::outstanding::Outstanding;
use crate::statistics::Statistics;

/// Bytes that a connection may have ready to send before its producers wait.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// The surroundings of a role.
#[derive(Debug)]
pub(crate) struct Scene {
    pub clock: Clock,
    pub statistics: Statistics,
    pub check: Option<Check>,
    pub outstanding: Outstanding,
    pub layout: Layout,
    /// The time of bodies that came from files stands in a header.
    pub time_in_header: bool,
    /// Load is (still) produced.
    pub producing: bool,
}

/// A message as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery<'a> {
    pub consumer_tag: &'a str,
    pub delivery_tag: u64,
    pub redelivered: bool,
    /// Encoded: flags and fields.
    pub properties: &'a [u8],
    pub body: &'a [u8],
}

#[cfg(test)]
impl Scene {
    /// Bodies of twelve bytes that nobody checks.
    pub(crate) fn for_test() -> Scene {
        Scene {
            clock: Clock::new(false),
            statistics: Statistics::new(lepus_base::Instant(0)),
            check: None,
            outstanding: Outstanding::default(),
            layout: Layout::new(12, false),
            time_in_header: false,
            producing: true,
        }
    }
}

impl Scene {
    /// The time that `delivery` carries.
    pub(crate) fn time_of(&self, delivery: &Delivery<'_>) -> Option<u64> {
        if !self.time_in_header {
            return self.layout.time(delivery.body);
        }
        let headers = lepus_amqp::PropertiesRef(delivery.properties).headers()?;
        u64::try_from(headers.get("timestamp")?.as_integer()?).ok()
    }
}
