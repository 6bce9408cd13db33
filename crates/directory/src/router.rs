//! From an exchange and a routing key to queues.
//!
//! Each exchange has a router that fits its type. It keeps links (target and binding), so that
//! routing touches no binding record except for headers; the list of routes is reused by the
//! caller, so that routing allocates nothing in the steady state.

mod filters;
mod hash;
mod headers;
mod keys;
mod meter;
mod outlet;
mod shares;
mod topic;

pub use filters::{
    DearFilter, FILTER, FORMAT, FilterCost, FilterFigures, FilterSample, Prepared, SELECTOR,
    consumer_filter,
};
pub(crate) use filters::{Dearest, FilterLimits, is_filtered, request_effort};
pub(crate) use headers::check_arguments as check_headers_arguments;
pub(crate) use outlet::Outlet;

use crate::binding::{Binding, Bindings, Destination, Link, Links, Target};

use crate::exchange::ExchangeKind;
use crate::routing_keys::RoutingKeys;
use alloc::boxed::Box;
use alloc::vec::Vec;
use filters::{FilterScan, Verdicts};
use hash::ConsistentHash;
use headers::{Headers, Scan};
use keys::Keys;
use lepus_amqp::properties::PropertiesRef;
use lepus_amqp::table::TableRef;
use lepus_base::{HashState, QueueId, Rng, ShardId};
use lepus_queue::refusal::Refusal;
use meter::Meter;
use topic::{Trie, Walk};

/// A queue that a message goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// The queue.
    pub queue: QueueId,
    /// The shard that keeps it.
    pub home: ShardId,
    /// Its place in the table of the shard whose directory this is, if that is its home: a hint, `u32::MAX` if
    /// not known.
    pub slot: u32,
}

/// What looking a routing key up costs, in steps of a [`Meter`].
const KEY_STEPS: u32 = 16;
/// Routes of which the memory is kept for the next message: one MiB.
const KEPT_ROUTES_MAX: usize = 1 << 16;
/// What visiting an exchange costs.
const EXCHANGE_STEPS: u32 = 32;

/// The queues that a message goes to: sorted by id, each once. Made once and reused.
#[derive(Debug)]
pub struct Routes {
    list: Vec<Route>,
    varies: bool,
    /// What it took to find them, and may take: see [`Routes::steps`].
    steps: u32,
    steps_max: u32,
    pending: Vec<u32>,
    /// Where the walk began, see [`Routes::exchange`].
    start: Option<u32>,
    /// By place of the exchange: the walk that visited it last.
    visited: Vec<u32>,
    walk: u32,
    topic: Walk,
    headers: Scan,
    filters: FilterScan,
}

impl Default for Routes {
    fn default() -> Routes {
        Routes::new(u32::MAX)
    }
}

impl Routes {
    /// An empty list for messages whose routing may take so many steps, see [`Routes::steps`].
    #[must_use]
    pub fn new(steps_max: u32) -> Routes {
        Routes {
            list: Vec::new(),
            varies: false,
            steps: 0,
            steps_max,
            pending: Vec::new(),
            start: None,
            visited: Vec::new(),
            walk: 0,
            topic: Walk::default(),
            headers: Scan::default(),
            filters: FilterScan::default(),
        }
    }

    /// Forgets the routes and keeps the memory, but for that of very many.
    pub fn clear(&mut self) {
        self.give_back();
        self.varies = false;
        self.steps = 0;
        self.start = None;
    }

    /// Forgets the routes, with the memory of very many.
    pub fn give_back(&mut self) {
        self.list.clear();
        self.list.shrink_to(KEPT_ROUTES_MAX);
    }

    /// What the routes since [`Routes::clear`] took to find: exchanges, patterns, headers and
    /// bindings that were looked at. A step is about what it takes to copy a binding's target, some
    /// nanoseconds; what takes longer counts as several.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Whether that are more than a message may take. Then no routes are there.
    #[must_use]
    pub fn are_too_far(&self) -> bool {
        self.steps > self.steps_max
    }

    /// Whether [`Routes::take_filters_given_up`], [`Routes::take_bodies_unreadable`] or [`Routes::take_filter_samples`] has
    /// something to tell.
    #[inline]
    #[must_use]
    pub fn has_filter_notes(&self) -> bool {
        self.filters.has_notes()
    }

    /// What asking filters took, of the messages that were drawn since this was asked last: one in sixteen for each
    /// exchange on its way that has filters, 64 at most.
    pub fn take_filter_samples(&mut self) -> impl Iterator<Item = FilterSample> {
        self.filters.take_samples()
    }

    /// How many exchanges since this was asked last had filters that took more than their share of the steps, so that
    /// none of these matched.
    #[must_use]
    pub fn take_filters_given_up(&mut self) -> u32 {
        self.filters.take_given_up()
    }

    /// How many exchanges since this was asked last had filters that asked for a body that could not be read: one that is
    /// malformed, too long or encoded.
    #[must_use]
    pub fn take_bodies_unreadable(&mut self) -> u32 {
        self.filters.take_unreadable()
    }

    /// The steps that a message may take.
    #[must_use]
    pub fn steps_max(&self) -> u32 {
        self.steps_max
    }

    /// Counts routing keys that are looked up.
    pub(crate) fn count_keys(&mut self, keys: usize) {
        self.steps = self.steps.saturating_add((keys as u32).saturating_mul(KEY_STEPS));
    }

    /// The routes.
    #[must_use]
    pub fn as_slice(&self) -> &[Route] {
        &self.list
    }

    /// Number of queues.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the message reaches no queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The place of the exchange to which the message was published, see
    /// [`Directory::exchange_place`](crate::Directory::exchange_place). None since [`Routes::clear`] for the default
    /// exchange, and where it does not exist.
    #[must_use]
    pub fn exchange(&self) -> Option<u32> {
        self.start
    }

    /// Whether all routes since [`Routes::clear`] follow from virtual host, exchange and routing
    /// keys alone, so that they hold while the directory's version stays. False where a headers,
    /// random, hashing-by-header or delayed exchange or a binding with a filter took part.
    #[must_use]
    pub fn is_cacheable(&self) -> bool {
        !self.varies
    }

    /// Adds one route; [`Routes::settle`] restores the order.
    pub(crate) fn push(&mut self, route: Route) {
        self.list.push(route);
    }

    /// Sorts and drops duplicates.
    pub(crate) fn settle(&mut self) {
        if !self.list.is_sorted_by(|one, two| one.queue < two.queue) {
            self.list.sort_unstable();
            self.list.dedup();
        }
    }

    /// Starts a walk over exchanges at the one in `start`; `exchanges` bounds all places.
    pub(crate) fn begin(&mut self, start: u32, exchanges: usize) {
        if self.visited.len() < exchanges {
            self.visited.resize(exchanges, 0);
        }
        self.walk = self.walk.wrapping_add(1);
        if self.walk == 0 {
            self.visited.fill(0);
            self.walk = 1;
        }
        self.pending.clear();
        self.start = Some(start);
        self.headers.begin();
        self.visit(start);
    }

    /// The next exchange of the walk; none when the message has taken more steps than it may.
    pub(crate) fn next_exchange(&mut self) -> Option<u32> {
        let next = self.pending.pop()?;
        self.steps = self.steps.saturating_add(EXCHANGE_STEPS);
        (!self.are_too_far()).then_some(next)
    }

    /// Forgets the routes of a message that has taken more steps than it may. Whether that is so.
    pub(crate) fn give_up(&mut self) -> bool {
        let is_too_far = self.are_too_far();
        if is_too_far {
            self.list.clear();
        }
        is_too_far
    }

    /// Notes an exchange for the walk, unless the walk has seen it.
    pub(crate) fn visit(&mut self, exchange: u32) {
        if core::mem::replace(&mut self.visited[exchange as usize], self.walk) != self.walk {
            self.pending.push(exchange);
        }
    }

    /// Notes that the routes depend on more than the routing key.
    pub(crate) fn vary(&mut self) {
        self.varies = true;
    }

    /// Adds what an exchange finds among bindings to what is living; `places` are the routes of all queues by place.
    /// False: nothing.
    pub(crate) fn select(
        &mut self,
        outlet: &Outlet,
        bindings: &Bindings,
        message: Message<'_>,
        rng: &mut Rng,
        places: &[Route],
        is_living: impl Fn(Target) -> bool,
    ) -> bool {
        let meter = Meter::new(self.steps, self.steps_max);
        let Routes { list, varies, pending, visited, walk, topic, headers: scan, .. } = self;
        let mut found = false;
        let Outlet { router, filters, .. } = outlet;
        let mut verdicts = Verdicts::new(filters.as_deref(), message, &mut self.filters, &meter);
        // These have no place in such a router: the filters say which they are.
        let (matched, is_asked) = match router {
            Router::All(_) => (verdicts.find_all(), true),
            _ => (Vec::new(), false),
        };
        let mut emit = |links: &[Link]| {
            if !meter.spend(links.len() as u32) {
                return;
            }
            list.reserve(links.len());
            for link in links {
                if !is_living(link.target) || !(is_asked || verdicts.pass(link.binding)) {
                    continue;
                }
                found = true;
                match link.target.split() {
                    Ok(queue) => list.push(places[queue as usize]),
                    Err(exchange) => {
                        let stamp = &mut visited[exchange as usize];
                        if core::mem::replace(stamp, *walk) != *walk {
                            pending.push(exchange);
                        }
                    }
                }
            }
        };
        match router {
            Router::All(links) => {
                emit(bindings.links(links));
                emit(&matched);
            }
            Router::Keys(keys) => {
                for key in message.keys.iter() {
                    if !meter.spend(KEY_STEPS) {
                        break;
                    }
                    emit(keys.get(key, bindings));
                }
            }
            Router::Topic(trie) => trie.walk(message.keys.iter(), bindings, topic, &meter, emit),
            Router::Headers(headers) => {
                *varies = true;
                headers.select(bindings, message.properties, scan, &meter, emit);
            }
            Router::Hash(hash) => {
                *varies |= hash.looks_beyond_key();
                emit(hash.select(message, &is_living));
            }
            Router::Modulus(links) => {
                emit(hash::modulus(bindings.links(links), message.keys, &is_living));
            }
            Router::Random(links) => {
                *varies = true;
                let links = bindings.links(links);
                emit(choose(links, || rng.below(links.len() as u64), &is_living));
            }
        }
        *varies |= verdicts.end(matched);
        self.steps = meter.used();
        found
    }
}

/// How often a choice is made again that fell on what is not living, before the links are gone through.
const CHOICES_MAX: usize = 64;

/// The one link that a number modulo their number names. One that leads to what is not living is not
/// taken: then another number decides, and if that does not help the next one in line.
fn choose<'a>(
    links: &'a [Link],
    mut number: impl FnMut() -> u64,
    is_living: &impl Fn(Target) -> bool,
) -> &'a [Link] {
    if links.is_empty() {
        return &[];
    }
    let mut index = 0;
    for _ in 0..CHOICES_MAX {
        index = (number() % links.len() as u64) as usize;
        if is_living(links[index].target) {
            return &links[index..=index];
        }
    }
    let behind = (index..links.len()).chain(0..index);
    let found = behind.into_iter().find(|&index| is_living(links[index].target));
    found.map_or(&[], |index| &links[index..=index])
}

/// What of a message routing may look at.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The exchange that it is published to; empty for the default exchange.
    pub exchange: &'a str,
    /// Its routing keys.
    pub keys: RoutingKeys<'a>,
    /// Its properties, as on the wire: headers and hashing exchanges and filters look at them.
    pub properties: PropertiesRef<'a>,
    /// Its body: filters look at it.
    pub body: &'a [u8],
    /// Milliseconds since 1970-01-01 UTC when it was accepted, or when it died.
    pub millis: u64,
}

#[cfg(test)]
impl<'a> Message<'a> {
    /// One without a body.
    fn of(keys: RoutingKeys<'a>, properties: PropertiesRef<'a>) -> Message<'a> {
        Message { exchange: "", keys, properties, body: b"", millis: 0 }
    }
}

/// The bindings of one exchange in the form that its type asks for.
#[derive(Clone, Debug)]
pub(crate) enum Router {
    All(Links),
    Keys(Keys),
    Topic(Box<Trie>),
    Headers(Box<Headers>),
    Hash(Box<ConsistentHash>),
    Modulus(Links),
    Random(Links),
}

impl Router {
    /// The router of an exchange without bindings. `arguments` are the exchange's.
    pub(crate) fn new(kind: ExchangeKind, arguments: TableRef<'_>, state: HashState) -> Router {
        match kind {
            ExchangeKind::Direct => Router::Keys(Keys::new(state)),
            ExchangeKind::Fanout | ExchangeKind::Filter => Router::All(Links::EMPTY),
            ExchangeKind::Topic => Router::Topic(Box::new(Trie::new(state))),
            ExchangeKind::Headers => Router::Headers(Box::new(Headers::new(state))),
            ExchangeKind::ConsistentHash => Router::Hash(Box::new(ConsistentHash::new(arguments))),
            ExchangeKind::ModulusHash => Router::Modulus(Links::EMPTY),
            ExchangeKind::Random | ExchangeKind::LocalRandom => Router::Random(Links::EMPTY),
        }
    }

    /// Bytes of its tables.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Router::Keys(keys) => keys.memory_bytes(),
            Router::Topic(trie) => trie.memory_bytes(),
            _ => 0,
        }
    }

    /// About how many bytes a binding takes in here.
    pub(crate) fn bytes_of(&self, binding: &Binding) -> usize {
        match self {
            Router::All(_) | Router::Modulus(_) | Router::Random(_) => size_of::<Link>(),
            Router::Keys(_) => 2 * size_of::<Links>(),
            Router::Topic(_) => topic::bytes_of(binding.routing_key.as_str()),
            Router::Headers(_) => headers::bytes_of(binding.arguments()),
            Router::Hash(_) => hash::BINDING_BYTES,
        }
    }

    /// Whether every message comes to every binding: those with a filter are found by it then and not kept here.
    pub(crate) fn takes_everything(&self) -> bool {
        matches!(self, Router::All(_))
    }

    /// Adds a binding that was checked with [`check_binding`]; `to` is its target by name.
    pub(crate) fn insert(&mut self, bindings: &mut Bindings, place: u32, to: &Destination) {
        match self {
            Router::All(links) | Router::Modulus(links) | Router::Random(links) => {
                bindings.push_link(links, place)
            }
            Router::Keys(keys) => keys.insert(bindings, place),
            Router::Topic(trie) => trie.insert(bindings, place),
            Router::Headers(headers) => headers.insert(bindings, place),
            Router::Hash(hash) => hash.insert(bindings, place, to),
        }
    }

    /// Removes a binding.
    pub(crate) fn remove(&mut self, bindings: &mut Bindings, place: u32) {
        match self {
            Router::All(links) | Router::Modulus(links) | Router::Random(links) => {
                bindings.remove_link(links, place)
            }
            Router::Keys(keys) => keys.remove(bindings, place),
            Router::Topic(trie) => trie.remove(bindings, place),
            Router::Headers(headers) => headers.remove(bindings, place),
            Router::Hash(hash) => hash.remove(bindings, place),
        }
    }
}

/// Whether a binding with this key and these arguments makes sense for the exchange type.
///
/// # Errors
/// 406 for what the type cannot use.
///
/// Returns the filter in the arguments.
pub(crate) fn check_binding(
    kind: ExchangeKind,
    routing_key: &str,
    arguments: TableRef<'_>,
) -> Result<Prepared, Refusal> {
    let filter = filters::check(kind, arguments)?;
    match kind {
        ExchangeKind::Headers => check_headers_arguments(arguments)?,
        ExchangeKind::ConsistentHash => hash::check_weight(routing_key)?,
        ExchangeKind::LocalRandom => hash::check_empty_key(routing_key)?,
        _ => {}
    }
    Ok(filter)
}
