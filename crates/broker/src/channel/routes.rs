//! The routes that a channel remembers, by exchange and routing key.
//!
//! A channel that publishes to one queue remembers one. Where others push each other out, there are more: sets of
//! [`WAYS`], in which the key says the set.

use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::is_same;

use super::Target;
use crate::exchange_counts::Record;

/// Routes that keys with the same mark may have at once, once there are several.
const WAYS: usize = 4;
/// Routes of a channel at most: some 250 KB. A publish whose route is not remembered takes twice the instructions.
const ROUTES_MAX: usize = 1_024;
/// Targets of a route that take little.
const TARGETS_FEW: usize = 4;
/// There are more of them when so many were pushed out for each that there is.
const PUSHED_OUT: usize = 2;
/// Once there may be no more, one in sixteen, two to the power of this, pushes another out: more keys than are
/// remembered, in turn, would push out each route before it is used again.
const ADMITTED_BITS: u32 = 4;

/// Where messages go that name this exchange and this key. It holds while the directory's version does.
#[derive(Debug, Default)]
pub struct Route {
    /// Directory version; 0 is never one.
    version: u64,
    exchange: String,
    routing_key: String,
    targets: Vec<Target>,
    /// Where its exchange is counted.
    record: Record,
    /// The method frame that names exchange and key, where publishes with the same one may be taken
    /// in a row; empty if not known.
    frame: Vec<u8>,
}

impl Route {
    /// Exchange and key.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.exchange, &self.routing_key)
    }

    /// The queues.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Where its exchange is counted.
    #[inline]
    pub(crate) fn record(&self) -> Record {
        self.record
    }

    /// The method frame that says it; empty if not known.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    #[inline]
    fn is_of(&self, exchange: &str, routing_key: &str) -> bool {
        is_same(&self.exchange, exchange) && is_same(&self.routing_key, routing_key)
    }

    /// Allocated bytes, this value included.
    fn memory_bytes(&self) -> usize {
        size_of::<Route>()
            + self.exchange.capacity()
            + self.routing_key.capacity()
            + self.targets.capacity() * size_of::<Target>()
            + self.frame.capacity()
    }
}

/// What was found when a publish to an exchange was allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// Whether the exchange delays messages.
    pub(crate) is_delayed: bool,
    /// Whether routing keys are to be checked too: the client's user may not use all.
    pub(crate) has_topic_rules: bool,
}

/// The exchange to which a publish was allowed last. It holds while the directory's version does.
#[derive(Debug, Default)]
struct AllowedExchange {
    /// Directory version; 0 is never one.
    version: u64,
    name: String,
    allowed: Allowed,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Routes {
    /// One, or sets of [`WAYS`], as many as a power of two.
    list: Vec<Route>,
    /// Routes that held and were pushed out since there are as many.
    pushed_out: usize,
    /// The way whose route goes next.
    next: usize,
    /// Allocated bytes, the list's own not counted.
    bytes: usize,
    /// Where the last publish was allowed of which the route was not known.
    exchange: AllowedExchange,
    /// Whether the next publish may go in a row: the last one could.
    pub(crate) may_be_row: bool,
    /// Whether the way of the last publish is remembered.
    pub(crate) is_known: bool,
}

/// Spreads what it is multiplied with over all bits.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// What tells keys apart, mostly: their ends, where the numbers are.
#[inline]
fn mark(exchange: &[u8], routing_key: &[u8]) -> usize {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let first = word(&routing_key[..routing_key.len().min(8)]);
    let last = word(&routing_key[routing_key.len().saturating_sub(8)..]);
    let lengths = (exchange.len() as u64) << 32 ^ routing_key.len() as u64;
    // The end of the key is in the upper bits: they come down before they go up.
    let mixed = (first.rotate_left(29) ^ last ^ lengths).wrapping_mul(FACTOR);
    ((mixed ^ mixed >> 32).wrapping_mul(FACTOR) >> 48) as usize
}

impl Routes {
    /// Places of the routes that a key with this mark may have.
    #[inline]
    fn places(&self, mark: usize) -> core::ops::Range<usize> {
        let ways = self.list.len().min(WAYS);
        let sets = self.list.len().checked_div(ways).unwrap_or(1);
        let start = (mark & (sets - 1)) * ways;
        start..start + ways
    }

    /// The route of this exchange and key, if it is known and holds.
    #[inline]
    pub(crate) fn find(&self, version: u64, exchange: &str, routing_key: &str) -> Option<&Route> {
        let places = self.places(mark(exchange.as_bytes(), routing_key.as_bytes()));
        self.list[places]
            .iter()
            .find(|route| route.version == version && route.is_of(exchange, routing_key))
    }

    /// Where the route is whose method frame `bytes` begin with, which names this exchange and key. It stays there until
    /// another one is learnt.
    #[inline]
    pub(crate) fn find_frame(
        &self,
        version: u64,
        (exchange, routing_key): (&[u8], &[u8]),
        bytes: &[u8],
    ) -> Option<usize> {
        let places = self.places(mark(exchange, routing_key));
        let first = places.start;
        let found = self.list[places].iter().position(|route| {
            route.version == version && !route.frame.is_empty() && bytes.starts_with(&route.frame)
        });
        found.map(|place| first + place)
    }

    /// The route at a place that [`Routes::find_frame`] gave.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> &Route {
        &self.list[place]
    }

    /// What was found when a publish to this exchange was allowed, if that was the last one and holds.
    #[inline]
    pub(crate) fn allowed(&self, version: u64, exchange: &str) -> Option<Allowed> {
        let last = &self.exchange;
        (last.version == version && is_same(&last.name, exchange)).then_some(last.allowed)
    }

    /// A publish to this exchange is allowed.
    pub(crate) fn allow(&mut self, version: u64, exchange: &str, allowed: Allowed) {
        let last = &mut self.exchange;
        last.name.clear();
        last.name.push_str(exchange);
        (last.version, last.allowed) = (version, allowed);
    }

    /// Remembers a route, or sees to it that most others stay. There are more routes for it, and several with many targets, only where `may_grow` says so.
    pub(crate) fn learn(
        &mut self,
        version: u64,
        (exchange, routing_key): (&str, &str),
        (record, targets): (Record, &[Target]),
        may_grow: bool,
    ) {
        if !may_grow && self.list.len() > 1 && targets.len() > TARGETS_FEW {
            // One is remembered in any case.
            (self.list, self.bytes) = (Vec::new(), 0);
        }
        let place = self.place_for(version, exchange, routing_key, may_grow);
        self.is_known = place.is_some();
        let Some(place) = place else { return };
        let is_only = self.list.len() == 1;
        let route = &mut self.list[place];
        let is_known = route.is_of(exchange, routing_key);
        let has_room = exchange.len() <= route.exchange.capacity()
            && routing_key.len() <= route.routing_key.capacity();
        if !(may_grow || is_only || is_known || has_room) {
            self.is_known = false;
            return;
        }
        self.bytes -= route.memory_bytes();
        if !is_known {
            route.frame.clear();
            route.exchange.clear();
            route.exchange.push_str(exchange);
            route.routing_key.clear();
            route.routing_key.push_str(routing_key);
        }
        (route.version, route.record) = (version, record);
        route.targets.clear();
        // The route before may have had many.
        route.targets.shrink_to(targets.len().max(TARGETS_FEW));
        route.targets.extend_from_slice(targets);
        self.bytes += route.memory_bytes();
    }

    /// Where a route is, or is to be; none where others have all places for it, mostly.
    fn place_for(
        &mut self,
        version: u64,
        exchange: &str,
        routing_key: &str,
        may_grow: bool,
    ) -> Option<usize> {
        if self.list.is_empty() {
            self.grow(1);
        }
        let mark = mark(exchange.as_bytes(), routing_key.as_bytes());
        let places = self.places(mark);
        let is_its = |route: &Route| route.is_of(exchange, routing_key);
        let is_over = |route: &Route| route.version != version;
        let (routes, start) = (&self.list[places.clone()], places.start);
        if let Some(way) =
            routes.iter().position(is_its).or_else(|| routes.iter().position(is_over))
        {
            return Some(start + way);
        }
        self.pushed_out += 1;
        let is_short = self.pushed_out > PUSHED_OUT * self.list.len();
        if is_short && may_grow && self.list.len() < ROUTES_MAX {
            self.grow(self.list.len() * WAYS);
            return self.place_for(version, exchange, routing_key, true);
        }
        let is_full = self.list.len() == ROUTES_MAX || (self.list.len() > 1 && !may_grow);
        // Every sixteenth would be the same keys always, and others never, where keys come in a fixed step.
        let lot = (self.pushed_out as u64).wrapping_mul(FACTOR) >> (u64::BITS - ADMITTED_BITS);
        if is_full && lot != 0 {
            return None;
        }
        self.next = (self.next + 1) % WAYS;
        Some(start + self.next % places.len())
    }

    fn grow(&mut self, count: usize) {
        let before = core::mem::take(&mut self.list);
        self.list.resize_with(count, Route::default);
        (self.pushed_out, self.bytes) = (0, count * size_of::<Route>());
        for route in before {
            let places = self.places(mark(route.exchange.as_bytes(), route.routing_key.as_bytes()));
            // Each set has as many as before at most.
            if let Some(free) = self.list[places].iter_mut().find(|route| route.version == 0) {
                self.bytes += route.memory_bytes() - free.memory_bytes();
                *free = route;
            }
        }
    }

    /// Remembers the frame of a publish to one queue that goes the way that is known. Whether it was not known.
    pub(crate) fn learn_frame(
        &mut self,
        version: u64,
        (exchange, routing_key): (&str, &str),
        frame: &[u8],
    ) -> bool {
        let places = self.places(mark(exchange.as_bytes(), routing_key.as_bytes()));
        let found = self.list[places]
            .iter_mut()
            .find(|route| route.version == version && route.is_of(exchange, routing_key));
        let Some(route) = found.filter(|route| route.targets.len() == 1 && route.frame != frame)
        else {
            return false;
        };
        self.bytes -= route.frame.capacity();
        route.frame.clear();
        route.frame.extend_from_slice(frame);
        self.bytes += route.frame.capacity();
        true
    }

    /// Allocated bytes, this value included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let free = self.list.capacity() - self.list.len();
        size_of::<Routes>() + self.bytes + free * size_of::<Route>() + self.exchange.name.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use lepus_base::{QueueId, ShardId};

    /// Where messages go which are counted nowhere.
    fn to(targets: &[Target]) -> (Record, &[Target]) {
        (Record::default(), targets)
    }

    fn target(number: usize) -> Vec<Target> {
        alloc::vec![Target { queue: QueueId(number as u64), home: ShardId(0), slot: 0 }]
    }

    fn queue_of(routes: &Routes, version: u64, key: &str) -> Option<u64> {
        routes.find(version, "", key).map(|route| route.targets()[0].queue.0)
    }

    /// Publishes to `keys` keys in turn; how many were not known in the last of `rounds`.
    fn go_round(routes: &mut Routes, keys: usize, rounds: usize) -> usize {
        let mut missed = 0;
        for round in 0..rounds {
            for number in 0..keys {
                let key = format!("tenant.queue-{number}");
                match queue_of(routes, 1, &key) {
                    Some(found) => assert_eq!(found, number as u64),
                    None => {
                        missed += usize::from(round + 1 == rounds);
                        routes.learn(1, ("", &key), to(&target(number)), true);
                    }
                }
            }
        }
        missed
    }

    #[test]
    fn the_exchange_that_was_allowed_last_is_known_while_the_version_holds() {
        let mut routes = Routes::default();
        assert_eq!(routes.allowed(1, ""), None);
        let allowed = Allowed { is_delayed: false, has_topic_rules: true };
        routes.allow(1, "trades", allowed);
        assert_eq!(routes.allowed(1, "trades"), Some(allowed));
        assert_eq!(routes.allowed(1, "trade"), None);
        assert_eq!(routes.allowed(2, "trades"), None, "a right may have been taken away");
        routes.allow(2, "", Allowed::default());
        assert_eq!(routes.allowed(2, ""), Some(Allowed::default()));
        assert_eq!(routes.allowed(2, "trades"), None);
    }

    #[test]
    fn as_many_are_remembered_as_take_turns() {
        for (keys, most) in [(1, 1), (4, 4), (60, 256), (100, 256), (400, 1_024)] {
            let mut routes = Routes::default();
            let missed = go_round(&mut routes, keys, 40);
            assert!(missed * 8 <= keys, "{missed} of {keys} keys");
            assert!(routes.list.len() <= most, "{} routes for {keys} keys", routes.list.len());
        }
        let mut routes = Routes::default();
        go_round(&mut routes, 5_000, 3);
        assert_eq!(routes.list.len(), ROUTES_MAX);
        // As many as there may be find places for the most part.
        let mut routes = Routes::default();
        let missed = go_round(&mut routes, 1_000, 40);
        assert!(missed < 250, "{missed} of 1,000 keys");
        // One is remembered in any case.
        let mut routes = Routes::default();
        for number in 0..100 {
            let key = format!("{number}");
            routes.learn(1, ("", &key), to(&target(number)), false);
            assert_eq!(queue_of(&routes, 1, &key), Some(number as u64));
        }
        assert_eq!(routes.list.len(), 1);
    }

    #[test]
    fn of_more_keys_in_turn_than_are_remembered_as_many_as_there_is_room_for_are_known() {
        let mut routes = Routes::default();
        let missed = go_round(&mut routes, 4_000, 20);
        assert!((2_800..3_400).contains(&missed), "{missed} of 4,000 keys");
        // Others that come instead are known after a while.
        for _ in 0..100 {
            for number in 8_000..8_400 {
                let key = format!("tenant.queue-{number}");
                if queue_of(&routes, 1, &key).is_none() {
                    routes.learn(1, ("", &key), to(&target(number)), true);
                }
            }
        }
        let known =
            |number: &usize| queue_of(&routes, 1, &format!("tenant.queue-{number}")).is_some();
        assert!((8_000..8_400).filter(known).count() > 360);
    }

    #[test]
    fn what_is_used_all_the_time_is_known_whatever_comes_between() {
        for once in [1, 2, 3, 7, 14, 15, 16, 31] {
            let mut routes = Routes::default();
            go_round(&mut routes, 4_000, 20);
            let (mut missed, mut number) = (0, 10_000);
            for _ in 0..10_000 {
                for _ in 0..once {
                    number += 1;
                    routes.learn(1, ("", &format!("reply.{number}")), to(&target(number)), true);
                }
                if queue_of(&routes, 1, "hot").is_none() {
                    missed += 1;
                    routes.learn(1, ("", "hot"), to(&target(1)), true);
                }
            }
            assert!(missed < 2_000, "{once} between: missed {missed} times");
        }
    }

    #[test]
    fn a_route_holds_while_the_version_does_and_so_does_its_frame() {
        let mut routes = Routes::default();
        assert_eq!(queue_of(&routes, 1, "q"), None);
        routes.learn(1, ("", "q"), to(&target(1)), false);
        assert!(routes.learn_frame(1, ("", "q"), b"frame of q"));
        assert!(!routes.learn_frame(1, ("", "q"), b"frame of q"), "it is known");
        assert!(!routes.learn_frame(2, ("", "q"), b"other"), "it does not hold");
        let names = (&b""[..], &b"q"[..]);
        assert!(routes.find_frame(1, names, b"frame of q and more").is_some());
        assert!(routes.find_frame(1, names, b"frame of").is_none());
        assert!(routes.find_frame(2, names, b"frame of q and more").is_none());
        // The same names go another way now: the frame says the same.
        routes.learn(2, ("", "q"), to(&target(2)), false);
        assert_eq!((queue_of(&routes, 1, "q"), queue_of(&routes, 2, "q")), (None, Some(2)));
        assert!(routes.find_frame(2, names, b"frame of q and more").is_some());
        // Another key in its place has none yet.
        routes.learn(2, ("", "r"), to(&target(3)), false);
        assert!(routes.find_frame(2, (b"", b"r"), b"frame of q and more").is_none());
    }

    #[test]
    fn a_route_keeps_no_memory_of_one_to_very_many_queues() {
        let mut routes = Routes::default();
        for round in 0..3 {
            for number in 0..4_000 {
                // What was resolved there before was long.
                let mut targets = Vec::with_capacity(100_000);
                targets.append(&mut target(number));
                routes.learn(1 + round, ("", &format!("{number}")), to(&targets), true);
            }
        }
        assert_eq!(routes.list.len(), ROUTES_MAX);
        assert!(routes.memory_bytes() < 256 << 10, "{}", routes.memory_bytes());
    }

    #[test]
    fn where_no_more_are_to_be_remembered_none_of_several_grows_to_many_queues() {
        let many = |number: usize| (0..500).flat_map(|_| target(number)).collect::<Vec<_>>();
        let mut routes = Routes::default();
        go_round(&mut routes, 4_000, 3);
        let before = routes.memory_bytes();
        for number in 0..4_000 {
            let key = format!("tenant.queue-{number}");
            routes.learn(2, ("", &key), to(&many(number)), false);
        }
        assert!(routes.memory_bytes() <= before, "{} bytes", routes.memory_bytes());
        // The only one may.
        let mut routes = Routes::default();
        routes.learn(1, ("", "q"), to(&many(7)), false);
        assert_eq!(queue_of(&routes, 1, "q"), Some(7));
    }

    #[test]
    fn what_they_take_is_counted() {
        let mut routes = Routes::default();
        for number in 0..3_000 {
            let key = format!("{:1$}", number % 700, number % 13);
            let version = 1 + number as u64 / 1_000;
            routes.learn(version, ("exchange", &key), to(&target(number)), number < 2_000);
            routes.learn_frame(version, ("exchange", &key), key.as_bytes());
            let walked: usize = routes.list.iter().map(Route::memory_bytes).sum();
            assert_eq!(routes.bytes, walked);
        }
    }
}
