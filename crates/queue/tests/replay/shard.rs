//! A shard that answers its queue by chance, with a log that is as simple as can be.

use lepus_base::{Instant, Pool, Position, Rng};
use lepus_queue::message::MessageView;
use lepus_queue::{
    Consumer, Content, Delivery, Entry, Found, NO_SLOT, Place, QueueLog, Reason, Selected,
    SelectorBits, Selectors, Sent, Sink, Ticket,
};
use lepus_store::{AppendError, Fetch, LaneSlot};

/// What a log has of a message.
#[derive(Clone, Copy)]
struct Logged {
    ticket: Ticket,
    position: Position,
    bytes: u32,
}

struct Lane {
    of: (u8, bool),
    messages: Vec<Logged>,
    /// The first one that was not fetched.
    next: usize,
}

pub struct Shard {
    pub pool: Pool,
    /// Unsettled deliveries: slot, message.
    pub out: Vec<(u32, u64)>,
    rng: Rng,
    log: Option<Log>,
}

pub struct Log {
    lanes: Vec<Lane>,
    rng: Rng,
    end: u64,
}

impl Shard {
    pub fn new(seed: u64, has_log: bool) -> Shard {
        let log = has_log.then(|| Log { lanes: Vec::new(), rng: Rng::new(seed + 1), end: 1 });
        Shard { pool: Pool::new(), out: Vec::new(), rng: Rng::new(seed), log }
    }

    /// Puts messages of an earlier run into a lane, with numbers below `end`. How many, with how many bytes.
    pub fn fill(&mut self, priority: u8, end: u64) -> (LaneSlot, u64, u64) {
        let log = self.log.as_mut().expect("it has a log");
        let lane = log.lane(priority, false);
        let (mut count, mut sum) = (0, 0);
        for seq in 0..end {
            // A number is in one lane.
            if seq % 3 == u64::from(priority) && self.rng.chance(1, 2) {
                let (deadline, bytes) = (Instant::NEVER, self.rng.below(10) as u32);
                let position = log.add(lane, &Ticket { seq, deadline, priority }, bytes);
                log.lanes[lane.0 as usize].next = 0;
                assert!(position.0 > 0);
                (count, sum) = (count + 1, sum + u64::from(bytes));
            }
        }
        (lane, count, sum)
    }

    /// Logs a message, or does not.
    pub fn log(&mut self, lane: LaneSlot, ticket: &Ticket, bytes: u32) -> Option<Position> {
        let log = self.log.as_mut().filter(|_| self.rng.chance(7, 8))?;
        Some(log.add(lane, ticket, bytes))
    }

    /// The queue left.
    pub fn forget_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.lanes.clear();
        }
    }
}

impl Log {
    fn add(&mut self, lane: LaneSlot, ticket: &Ticket, bytes: u32) -> Position {
        self.end += 1 + self.rng.below(9);
        let position = Position(self.end);
        let logged = Logged { ticket: *ticket, position, bytes };
        self.lanes[lane.0 as usize].messages.push(logged);
        position
    }

    fn end_of(&mut self, lane: LaneSlot) {
        let lane = &mut self.lanes[lane.0 as usize];
        lane.next = lane.messages.len();
    }
}

impl Sink for Shard {
    type Log<'a> = &'a mut Log;

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn may_deliver(&mut self, _: &Consumer, _: usize) -> bool {
        self.rng.chance(4, 5)
    }

    fn select(&mut self, selectors: &Selectors, asked: SelectorBits, entry: &Entry) -> Selected {
        if entry.place.body().is_none() {
            match self.rng.below(12) {
                0 | 1 => return Selected::Pending,
                2 => return Selected::Lost,
                _ => {}
            }
        }
        let _ = selectors;
        let selectors = self.rng.next_u64() & self.rng.next_u64() & asked;
        let dear = if self.rng.chance(1, 10) { self.rng.next_u64() & 0xff } else { 0 };
        Selected::Matches { selectors, steps: self.rng.below(500), dear }
    }

    fn deliver(&mut self, _: &Consumer, delivery: Delivery, content: Content<'_>) -> Sent {
        if let Content::Logged(..) = content {
            match self.rng.below(12) {
                0 | 1 => return Sent::Pending,
                2 => return Sent::Lost,
                _ => {}
            }
        }
        if delivery.slot != NO_SLOT {
            self.out.push((delivery.slot, delivery.seq));
        }
        Sent::Done
    }

    fn may_dead_letter(&mut self) -> bool {
        self.rng.chance(5, 6)
    }

    fn waits_for_letters(&mut self) -> bool {
        self.rng.chance(1, 2)
    }

    fn dead_letter(&mut self, entry: Entry, _: Option<LaneSlot>, _: Reason) {
        self.discard(entry);
    }

    fn discard(&mut self, entry: Entry) {
        if let Some(body) = entry.place.body() {
            self.pool.release(body);
        }
    }

    fn backlog(&mut self) -> Option<&mut Log> {
        self.log.as_mut()
    }

    fn spills(&self, taken_bytes: u64) -> bool {
        self.log.is_some() && taken_bytes > 250
    }

    fn letters(&self) -> Vec<(LaneSlot, u64)> {
        vec![(LaneSlot(0), 3), (LaneSlot(1), 1)]
    }
}

impl QueueLog for &mut Log {
    fn lane(&mut self, priority: u8, spilled: bool) -> LaneSlot {
        Log::lane(self, priority, spilled)
    }

    fn next_seq(&self) -> u64 {
        let tickets = self.lanes.iter().flat_map(|lane| &lane.messages);
        tickets.map(|logged| logged.ticket.seq + 1).max().unwrap_or(0)
    }

    fn has_window_room(&self) -> bool {
        !self.end.is_multiple_of(5)
    }

    fn window(&mut self, lane: LaneSlot) {
        self.end_of(lane);
    }

    fn pass(&mut self, lane: LaneSlot) {
        self.end_of(lane);
    }

    fn add_to_windows(&mut self, _: usize) {}

    fn forget(&mut self, _: usize) {}

    fn fetch(
        &mut self,
        (priority, spilled): (u8, bool),
        lane: LaneSlot,
        mut each: impl FnMut(Entry),
    ) -> (usize, Fetch, bool) {
        let count = 1 + self.rng.below(4) as usize;
        let (is_pending, is_marked) = (self.rng.chance(1, 6), self.rng.chance(1, 4));
        if is_pending && self.rng.chance(1, 2) {
            return (0, Fetch::Pending, false);
        }
        let lane = &mut self.lanes[lane.0 as usize];
        let found: Vec<Logged> = lane.messages[lane.next..].iter().take(count).copied().collect();
        lane.next += found.len();
        for logged in &found {
            each(Entry {
                seq: logged.ticket.seq,
                deadline: logged.ticket.deadline,
                place: Place::logged(logged.position, spilled),
                bytes: logged.bytes,
                delivery_count: 0,
                priority,
                redelivered: is_marked,
            });
        }
        let is_whole = lane.next == lane.messages.len();
        let result = if is_pending && !is_whole { Fetch::Pending } else { Fetch::Done };
        (found.len(), result, is_whole)
    }

    fn fetch_at(
        &mut self,
        (priority, spilled): (u8, bool),
        lane: LaneSlot,
        from: u64,
        count: usize,
        mut each: impl FnMut(Entry),
    ) -> (usize, Fetch, u64) {
        if self.rng.chance(1, 6) {
            return (0, Fetch::Pending, from);
        }
        let count = count.min(1 + self.rng.below(4) as usize);
        let lane = &self.lanes[lane.0 as usize];
        let found = lane.messages.iter().filter(|logged| logged.ticket.seq >= from);
        let found: Vec<Logged> = found.take(count).copied().collect();
        for logged in &found {
            each(Entry {
                seq: logged.ticket.seq,
                deadline: logged.ticket.deadline,
                place: Place::logged(logged.position, spilled),
                bytes: logged.bytes,
                delivery_count: 0,
                priority,
                redelivered: false,
            });
        }
        let end = match found.len() < count {
            true => u64::MAX,
            false => found[found.len() - 1].ticket.seq + 1,
        };
        (found.len(), Fetch::Done, end)
    }

    fn announce<'e>(&mut self, entries: impl Iterator<Item = &'e Entry>) -> usize {
        let most = self.rng.below(200) as usize;
        entries.take(most).count()
    }

    fn lookup(&mut self, _: Position, _: u32) -> Found {
        match self.rng.below(12) {
            0 | 1 => Found::Pending,
            2 => Found::Lost,
            _ => Found::Ready,
        }
    }

    fn settle(&mut self, _: LaneSlot, _: &Entry) {}

    fn set_aside(&mut self, _: LaneSlot, _: &Entry) {}

    fn mark_delivered(&mut self, _: LaneSlot, _: u64) {}

    fn purge(&mut self, lane: LaneSlot, _: u64, _: &[u64]) {
        self.end_of(lane);
    }

    fn purge_unfetched(&mut self, lane: LaneSlot, _: u64) -> bool {
        let is_apart = self.rng.chance(1, 2);
        if is_apart {
            self.end_of(lane);
        }
        is_apart
    }

    fn append(
        &mut self,
        view: &MessageView<'_>,
        lane: LaneSlot,
        ticket: &Ticket,
    ) -> Result<Position, AppendError> {
        match self.rng.below(8) {
            0 => Err(AppendError::Full),
            _ => Ok(self.add(lane, ticket, view.body.len() as u32)),
        }
    }
}

impl Log {
    fn lane(&mut self, priority: u8, spilled: bool) -> LaneSlot {
        let of = (priority, spilled);
        let place = self.lanes.iter().position(|lane| lane.of == of).unwrap_or_else(|| {
            self.lanes.push(Lane { of, messages: Vec::new(), next: 0 });
            self.lanes.len() - 1
        });
        LaneSlot(place as u32)
    }
}
