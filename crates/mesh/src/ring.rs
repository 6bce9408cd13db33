//! One bounded ring per ordered pair of shards, with a second one that brings emptied items back. Both
//! are made when the pair is used first: of very many pairs most never are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lepus_base::ShardId;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::bell::{Bell, Signal};

/// The smallest capacity of a ring, in items.
pub const CAPACITY_MIN: usize = 2;

#[derive(Debug)]
struct Outgoing<T> {
    ring: Producer<T>,
    /// Items that the peer has emptied.
    spare: Consumer<T>,
}

#[derive(Debug)]
struct Incoming<T> {
    ring: Consumer<T>,
    spare: Producer<T>,
}

/// Emptied items on their way back to one shard; more are dropped.
const SPARES_MAX: usize = 4;

/// Where peers leave the ends of new rings for a shard.
#[derive(Debug)]
struct Door<T> {
    ends: Mutex<Vec<(ShardId, Incoming<T>)>>,
    /// Whether there are any; set before the first item of theirs is announced.
    has_ends: AtomicBool,
}

impl<T> Door<T> {
    fn new() -> Door<T> {
        Door { ends: Mutex::new(Vec::new()), has_ends: AtomicBool::new(false) }
    }

    fn ends(&self) -> MutexGuard<'_, Vec<(ShardId, Incoming<T>)>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One shard's ends of all its rings.
#[derive(Debug)]
pub struct Endpoint<T> {
    shard: ShardId,
    capacity: usize,
    bells: Vec<Arc<Bell>>,
    /// Every shard's door.
    doors: Arc<[Door<T>]>,
    outgoing: Vec<Option<Outgoing<T>>>,
    incoming: Vec<Option<Incoming<T>>>,
    /// Peers that got something since the last ring, each once.
    touched: Vec<ShardId>,
    is_touched: Vec<bool>,
}

/// Connects `bells.len()` shards with rings of `capacity` items (at least [`CAPACITY_MIN`]). The
/// endpoints come in the order of the shards; each belongs on its shard's thread.
///
/// # Panics
/// With more shards than a [`ShardId`] can number.
#[must_use]
pub fn connect<T: Send>(bells: &[Arc<Bell>], capacity: usize) -> Vec<Endpoint<T>> {
    let capacity = capacity.max(CAPACITY_MIN);
    let shards = u16::try_from(bells.len()).expect("a shard's number has 16 bits");
    let doors: Arc<[Door<T>]> = bells.iter().map(|_| Door::new()).collect();
    (0..shards)
        .map(|shard| Endpoint {
            shard: ShardId(shard),
            capacity,
            bells: bells.to_vec(),
            doors: Arc::clone(&doors),
            outgoing: bells.iter().map(|_| None).collect(),
            incoming: bells.iter().map(|_| None).collect(),
            touched: Vec::with_capacity(bells.len()),
            is_touched: vec![false; bells.len()],
        })
        .collect()
}

impl<T> Endpoint<T> {
    /// The shard that this end belongs to.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Number of shards, this one included.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.bells.len()
    }

    /// This shard's bell.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.bells[self.shard.index()]
    }

    /// Whether the ring to `to` takes an item. False for the shard itself.
    #[must_use]
    pub fn has_room(&self, to: ShardId) -> bool {
        let is_full = |outgoing: &Outgoing<T>| outgoing.ring.is_full();
        to != self.shard && !self.outgoing[to.index()].as_ref().is_some_and(is_full)
    }

    /// Puts an item into the ring to `to` and announces it; the peer is not woken before
    /// [`Endpoint::ring`]. When the peer takes items out of a ring that was full, it posts
    /// [`Signal::Room`] here.
    ///
    /// # Errors
    /// Gives the item back when the ring is full (or `to` is this shard).
    pub fn send(&mut self, to: ShardId, item: T) -> Result<(), T> {
        if to == self.shard {
            return Err(item);
        }
        let (doors, from, capacity) = (&self.doors, self.shard, self.capacity);
        let outgoing = self.outgoing[to.index()]
            .get_or_insert_with(|| open_ring(&doors[to.index()], from, capacity));
        match outgoing.ring.push(item) {
            Ok(()) => {
                self.bells[to.index()].post_mail(self.shard);
                self.touch(to);
                Ok(())
            }
            Err(rtrb::PushError::Full(item)) => Err(item),
        }
    }

    /// An emptied item that came back from `to`.
    pub fn spare(&mut self, to: ShardId) -> Option<T> {
        self.outgoing[to.index()].as_mut()?.spare.pop().ok()
    }

    /// Takes what the peers have announced, in order per peer: at most two rings full of each peer,
    /// the rest stays announced.
    pub fn receive(&mut self, into: &mut Vec<(ShardId, T)>) {
        let announced = self.bell().take_mail();
        if announced == 0 {
            return;
        }
        let door = &self.doors[self.shard.index()];
        if door.has_ends.load(Ordering::Acquire) {
            door.has_ends.store(false, Ordering::Relaxed);
            for (from, end) in door.ends().drain(..) {
                self.incoming[from.index()] = Some(end);
            }
        }
        for block in (0..self.incoming.len()).step_by(64) {
            let mut left = announced;
            while left != 0 {
                let index = block + left.trailing_zeros() as usize;
                left &= left - 1;
                self.receive_from(index, into);
            }
        }
    }

    fn receive_from(&mut self, index: usize, into: &mut Vec<(ShardId, T)>) {
        let Some(Some(incoming)) = self.incoming.get_mut(index) else { return };
        let from = ShardId(index as u16);
        let capacity = incoming.ring.buffer().capacity();
        let mut taken = 0;
        while taken < 2 * capacity {
            let Ok(item) = incoming.ring.pop() else { break };
            into.push((from, item));
            taken += 1;
        }
        // A push can only have failed while a whole ring of items waited to be taken here.
        if taken >= capacity {
            self.bells[index].post(Signal::Room);
            self.touch(from);
        }
        if taken == 2 * capacity {
            self.bell().post_mail(from);
        }
    }

    /// Returns an emptied item to the shard that it came from.
    ///
    /// # Errors
    /// The item, when enough are on the way.
    pub fn give_back(&mut self, from: ShardId, item: T) -> Result<(), T> {
        match &mut self.incoming[from.index()] {
            Some(incoming) => incoming.spare.push(item).map_err(|rtrb::PushError::Full(item)| item),
            None => Err(item),
        }
    }

    /// Notes that `peer` was given something by another way than a ring, so that the next
    /// [`Endpoint::ring`] wakes it.
    pub fn touch(&mut self, peer: ShardId) {
        if !std::mem::replace(&mut self.is_touched[peer.index()], true) {
            self.touched.push(peer);
        }
    }

    /// Wakes those among the touched peers that sleep; how many.
    pub fn ring(&mut self) -> u64 {
        let mut wakes = 0;
        for peer in self.touched.drain(..) {
            self.is_touched[peer.index()] = false;
            wakes += u64::from(self.bells[peer.index()].ring());
        }
        wakes
    }
}

/// Makes the rings from one shard to another, and leaves the other one's ends at its door.
#[cold]
fn open_ring<T>(door: &Door<T>, from: ShardId, capacity: usize) -> Outgoing<T> {
    let (sending, receiving) = RingBuffer::new(capacity);
    let (giving, taking) = RingBuffer::new(capacity.min(SPARES_MAX));
    door.ends().push((from, Incoming { ring: receiving, spare: giving }));
    door.has_ends.store(true, Ordering::Release);
    Outgoing { ring: sending, spare: taking }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of rings that there are, of all shards.
    fn ends(endpoints: &[Endpoint<u64>]) -> (usize, usize) {
        let outgoing = endpoints.iter().flat_map(|endpoint| &endpoint.outgoing);
        let incoming = endpoints.iter().flat_map(|endpoint| &endpoint.incoming);
        (outgoing.flatten().count(), incoming.flatten().count())
    }

    #[test]
    fn rings_are_made_for_pairs_that_are_used() {
        let bells: Vec<_> = (0..256).map(|_| Arc::new(Bell::new(|| ()))).collect();
        let mut endpoints = connect(&bells, 16);
        assert!((0..256).all(|peer| endpoints[3].has_room(ShardId(peer)) == (peer != 3)));
        assert_eq!(ends(&endpoints), (0, 0));
        let mut got = Vec::new();
        for number in 0..3 {
            endpoints[3].send(ShardId(200), number).unwrap();
            endpoints[200].receive(&mut got);
        }
        assert_eq!(got, [0, 1, 2].map(|number| (ShardId(3), number)));
        assert_eq!(ends(&endpoints), (1, 1));
        endpoints[200].send(ShardId(3), 3).unwrap();
        endpoints[3].receive(&mut got);
        assert_eq!(ends(&endpoints), (2, 2));
    }
}
