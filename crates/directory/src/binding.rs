//! Bindings of all exchanges: one compact record each, found by identity, by source and by target.
//!
//! A record is 48 bytes, its place in the identity table about 8, a long routing key one allocation
//! of its own; what the exchange's router keeps beside it is about 15 bytes in a direct exchange.

use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use lepus_amqp::table::{TableBytes, TableRef};
use lepus_base::{ChunkedSlab, HashState, LinearTable};

use crate::key::Key;

/// Stands for "no record" wherever a record's number is kept.
pub(crate) const NONE: u32 = u32::MAX;

const EXCHANGE_BIT: u32 = 1 << 31;

/// What a binding leads to: the place of a queue or of an exchange in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target(u32);

impl Target {
    pub(crate) fn queue(place: u32) -> Target {
        debug_assert!(place < EXCHANGE_BIT);
        Target(place)
    }

    pub(crate) fn exchange(place: u32) -> Target {
        debug_assert!(place < EXCHANGE_BIT);
        Target(place | EXCHANGE_BIT)
    }

    /// `Ok` with a queue's place, `Err` with an exchange's.
    pub(crate) fn split(self) -> Result<u32, u32> {
        if self.0 & EXCHANGE_BIT == 0 { Ok(self.0) } else { Err(self.0 & !EXCHANGE_BIT) }
    }
}

/// What a binding leads to, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A queue.
    Queue(String),
    /// An exchange.
    Exchange(String),
}

/// What a router keeps of a binding: enough to route without looking at the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) target: Target,
    pub(crate) binding: u32,
}

impl Link {
    /// It as a number: the binding in the lower half.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.target.0) << 32 | u64::from(self.binding)
    }

    /// The one that gave this number.
    pub(crate) fn from_bits(bits: u64) -> Link {
        Link { target: Target((bits >> 32) as u32), binding: bits as u32 }
    }
}

/// Stands for no link in [`Links`]; no exchange has this place.
const EMPTY: Target = Target(u32::MAX);
/// Stands for a list in [`Links`]; no exchange has this place.
const LIST: Target = Target(u32::MAX - 1);

/// Links in no particular order, in 8 bytes: none, the usual single one, or the number of a list
/// among the bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links(Link);

impl Links {
    pub(crate) const EMPTY: Links = Links(Link { target: EMPTY, binding: NONE });

    pub(crate) fn is_empty(self) -> bool {
        self.0.target == EMPTY
    }
}

/// The two chains that a record belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chain {
    /// All bindings of one source exchange.
    Source = 0,
    /// All bindings to one target.
    Target = 1,
}

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    previous: u32,
    next: u32,
}

/// One binding.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    /// With the arguments, sorted by name, where there are any.
    pub(crate) routing_key: Key,
    /// The source exchange's place.
    pub(crate) source: u32,
    pub(crate) target: Target,
    /// Where a topic router keeps the link: its node.
    pub(crate) node: u32,
    /// Position in the router's list of links.
    pub(crate) position: u32,
    chains: [Neighbours; 2],
}

/// All bindings.
#[derive(Clone, Debug)]
pub(crate) struct Bindings {
    records: ChunkedSlab<Binding>,
    by_identity: LinearTable<u32>,
    /// Where routers have more than one link.
    lists: ChunkedSlab<Vec<Link>>,
    hash: HashState,
}

impl Binding {
    /// Sorted by name; empty where there are none.
    pub(crate) fn arguments(&self) -> TableRef<'_> {
        self.routing_key.arguments()
    }
}

impl Bindings {
    /// Bytes of a record.
    pub(crate) const BINDING_BYTES: usize = ChunkedSlab::<Binding>::ENTRY_BYTES;

    pub(crate) fn new(hash: HashState) -> Bindings {
        let (records, lists) = (ChunkedSlab::new(), ChunkedSlab::new());
        Bindings { records, by_identity: LinearTable::new(), lists, hash }
    }

    /// Bytes of all records and tables; of keys only those that are no longer than 39 bytes.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        let is_middle = |key: &Key| (15..40).contains(&key.as_bytes().len());
        let middle = self.records.iter().filter(|(_, binding)| is_middle(&binding.routing_key));
        self.records.allocation_size() + self.by_identity.allocation_size() + middle.count() * 48
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Places of records, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.records.places()
    }

    /// The record at a place that may be free.
    pub(crate) fn try_get(&self, place: u32) -> Option<&Binding> {
        self.records.get(place as usize)
    }

    pub(crate) fn get(&self, binding: u32) -> &Binding {
        &self.records[binding as usize]
    }

    pub(crate) fn get_mut(&mut self, binding: u32) -> &mut Binding {
        &mut self.records[binding as usize]
    }

    /// The binding with exactly this identity; `arguments` sorted by name.
    pub(crate) fn find(
        &self,
        source: u32,
        target: Target,
        routing_key: &str,
        arguments: TableRef<'_>,
    ) -> Option<u32> {
        let hash = identity_hash(self.hash, source, target, routing_key.as_bytes(), arguments);
        let is_same = |&place: &u32| {
            let binding = &self.records[place as usize];
            binding.source == source
                && binding.target == target
                && lepus_base::is_same(binding.routing_key.as_bytes(), routing_key)
                && binding.arguments() == arguments
        };
        self.by_identity.find(hash, is_same).copied()
    }

    /// Adds a record that stands in no chain and no router yet.
    pub(crate) fn insert(
        &mut self,
        source: u32,
        target: Target,
        routing_key: &str,
        arguments: &TableBytes,
    ) -> u32 {
        let bytes = arguments.as_ref();
        let hash = identity_hash(self.hash, source, target, routing_key.as_bytes(), bytes);
        let alone = Neighbours { previous: NONE, next: NONE };
        let place = self.records.insert(Binding {
            routing_key: Key::with(routing_key, arguments),
            source,
            target,
            node: NONE,
            position: 0,
            chains: [alone; 2],
        }) as u32;
        let (records, state) = (&self.records, self.hash);
        self.by_identity.insert_unique(hash, place, |&place| record_hash(state, records, place));
        place
    }

    /// Removes a record that stands in no chain and no router any more.
    pub(crate) fn remove(&mut self, place: u32) -> Binding {
        let hash = record_hash(self.hash, &self.records, place);
        self.by_identity.remove(hash, |&other| other == place);
        self.records.remove(place as usize)
    }

    /// Puts the binding in front of the chain that starts at `head`.
    pub(crate) fn link(&mut self, chain: Chain, head: &mut u32, place: u32) {
        let next = *head;
        self.records[place as usize].chains[chain as usize] = Neighbours { previous: NONE, next };
        if next != NONE {
            self.records[next as usize].chains[chain as usize].previous = place;
        }
        *head = place;
    }

    /// Takes the binding out of the chain that starts at `head`.
    pub(crate) fn unlink(&mut self, chain: Chain, head: &mut u32, place: u32) {
        let Neighbours { previous, next } = self.records[place as usize].chains[chain as usize];
        if previous == NONE {
            *head = next;
        } else {
            self.records[previous as usize].chains[chain as usize].next = next;
        }
        if next != NONE {
            self.records[next as usize].chains[chain as usize].previous = previous;
        }
    }

    /// The bindings of a chain, the youngest first.
    pub(crate) fn chain(&self, chain: Chain, head: u32) -> impl Iterator<Item = u32> + '_ {
        let mut place = head;
        core::iter::from_fn(move || {
            let current = (place != NONE).then_some(place)?;
            place = self.records[current as usize].chains[chain as usize].next;
            Some(current)
        })
    }

    /// The links of a router's list.
    pub(crate) fn links<'a>(&'a self, links: &'a Links) -> &'a [Link] {
        match links.0.target {
            EMPTY => &[],
            LIST => &self.lists[links.0.binding as usize],
            _ => core::slice::from_ref(&links.0),
        }
    }

    /// Adds the binding to a router's list and notes its position.
    pub(crate) fn push_link(&mut self, links: &mut Links, place: u32) {
        let link = Link { target: self.records[place as usize].target, binding: place };
        let position = match links.0.target {
            EMPTY => {
                *links = Links(link);
                0
            }
            LIST => {
                let list = &mut self.lists[links.0.binding as usize];
                list.push(link);
                list.len() - 1
            }
            _ => {
                let number = self.lists.insert([links.0, link].to_vec());
                *links = Links(Link { target: LIST, binding: number as u32 });
                1
            }
        };
        self.records[place as usize].position = position as u32;
    }

    /// Takes the binding out of the router's list that it stands in.
    pub(crate) fn remove_link(&mut self, links: &mut Links, place: u32) {
        if links.0.target != LIST {
            *links = Links::EMPTY;
            return;
        }
        let number = links.0.binding as usize;
        let list = &mut self.lists[number];
        let position = self.records[place as usize].position;
        list.swap_remove(position as usize);
        if let Some(moved) = list.get(position as usize) {
            self.records[moved.binding as usize].position = position;
        }
        if let [last] = list[..] {
            *links = Links(last);
            self.lists.remove(number);
        } else if list.capacity() > 64 && list.len() < list.capacity() / 4 {
            let half = list.capacity() / 2;
            list.shrink_to(half);
        }
    }
}

fn record_hash(state: HashState, records: &ChunkedSlab<Binding>, place: u32) -> u64 {
    let binding = &records[place as usize];
    identity_hash(
        state,
        binding.source,
        binding.target,
        binding.routing_key.as_bytes(),
        binding.arguments(),
    )
}

fn identity_hash(
    state: HashState,
    source: u32,
    target: Target,
    routing_key: &[u8],
    arguments: TableRef<'_>,
) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write_u64(u64::from(source) << 32 | u64::from(target.0));
    hasher.write(routing_key);
    if !arguments.is_empty() {
        hasher.write(arguments.bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_small() {
        assert_eq!(Bindings::BINDING_BYTES, 48);
        assert_eq!(size_of::<Links>(), 8);
    }

    #[test]
    fn links_keep_their_positions_when_others_go() {
        let mut bindings = Bindings::new(HashState::new(1));
        let mut links = Links::EMPTY;
        let places: Vec<u32> = (0..5)
            .map(|queue| bindings.insert(0, Target::queue(queue), "k", &TableBytes::default()))
            .collect();
        for &place in &places {
            bindings.push_link(&mut links, place);
        }
        for &place in &[places[1], places[4], places[0]] {
            bindings.remove_link(&mut links, place);
        }
        for link in bindings.links(&links) {
            let position = bindings.get(link.binding).position as usize;
            assert_eq!(bindings.links(&links)[position], *link);
        }
        assert_eq!(bindings.links(&links).len(), 2);
        bindings.remove_link(&mut links, places[2]);
        bindings.remove_link(&mut links, places[3]);
        assert!(links.is_empty() && bindings.lists.is_empty());
    }

    #[test]
    fn chains_lose_and_gain_members_anywhere() {
        let mut bindings = Bindings::new(HashState::new(1));
        let mut head = NONE;
        let places: Vec<u32> = (0..4)
            .map(|queue| bindings.insert(0, Target::queue(queue), "k", &TableBytes::default()))
            .collect();
        for &place in &places {
            bindings.link(Chain::Source, &mut head, place);
        }
        bindings.unlink(Chain::Source, &mut head, places[3]);
        bindings.unlink(Chain::Source, &mut head, places[1]);
        let left: Vec<u32> = bindings.chain(Chain::Source, head).collect();
        assert_eq!(left, [places[2], places[0]]);
        bindings.unlink(Chain::Source, &mut head, places[0]);
        bindings.unlink(Chain::Source, &mut head, places[2]);
        assert_eq!(head, NONE);
    }
}
