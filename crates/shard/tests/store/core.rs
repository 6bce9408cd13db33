//! A core that keeps what it is sent in a log: every byte is a message, answered once it is durable.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lepus_base::{ByShard, ConnectionId, Instant, Now, Position, QueueId, ShardId, Slab, Slices};
use lepus_reactor::files::Blocking;
use lepus_shard::{Core, Effects, PeerInfo};
use lepus_store::disk::{Completion, LogId, Operations};
use lepus_store::{
    AppendError, Event, Fetch, Lane, LaneSlot, Lookup, Message, Place, Settings, Store,
};

/// A byte that asks for the number of messages instead.
pub const COUNT: u8 = b'?';
/// A byte that is sent to the next shard and kept there, without an answer.
pub const FAR: u8 = b'>';
/// A byte after which the shard closes only when the next one has answered it, which it asks when
/// all others are closed.
pub const LATE: u8 = b'~';
/// A byte that goes to the next shard only some cycles after the server stops.
pub const OWED: u8 = b'^';
/// The cycles that it waits.
const OWED_CYCLES: u32 = 20;
/// The answer.
const ANSWER: u8 = b'!';

/// Shards of a run that are closed.
pub type Closed = Arc<AtomicUsize>;

#[derive(Default)]
pub struct Outbox {
    dirty: Vec<u32>,
    close: Vec<u32>,
    pause: Vec<u32>,
    resume: Vec<u32>,
    hand_over: Vec<(u32, ShardId)>,
    mail: ByShard<Vec<u8>>,
    disk: Operations,
    changes: Vec<Arc<()>>,
    events: Vec<()>,
    lost_events: u64,
    answers: Vec<(u64, StoreAnswer)>,
}

/// What a test asks.
#[derive(Clone)]
pub enum StoreQuery {
    /// All bytes kept, in order, as far as they are in memory.
    Kept,
    /// Whether the last run ended in order.
    WasClean,
}

#[derive(Debug, PartialEq)]
pub enum StoreAnswer {
    Kept(Option<Vec<u8>>),
    WasClean(bool),
}

#[derive(Default)]
struct Client {
    send: Vec<u8>,
    sent: usize,
}

pub struct StoreCore {
    log: LogId,
    next: ShardId,
    store: Store,
    /// Its last slice of work left more.
    has_work: bool,
    lane: LaneSlot,
    clients: Slab<Client>,
    /// Who waits for which position.
    waiting: VecDeque<(Position, u32, u8)>,
    /// Clients that wait for a segment, and mail that does.
    paused: Vec<u32>,
    backlog: VecDeque<u8>,
    events: Vec<Event>,
    /// Whether the last run ended in order.
    was_clean: bool,
    /// The store is to be closed once everything is in it.
    closing: bool,
    shards: usize,
    closed: Closed,
    is_counted: AtomicBool,
    /// An answer is needed before the end, and was asked for.
    is_late: bool,
    has_asked: bool,
    /// What goes to the next shard later, and the cycles until then.
    owed: Vec<u8>,
    owed_cycles: u32,
    stopping: bool,
}

impl StoreCore {
    /// Recovers the shard's log in `directory`.
    pub fn open(
        directory: &Path,
        shard: ShardId,
        shards: u16,
        now: Now,
        closed: Closed,
        out: &mut Outbox,
    ) -> Result<StoreCore, String> {
        let mut settings = Settings::new(LogId(1 + u32::from(shard.0)));
        settings.segment_bytes = 64 << 10;
        let mut files = Blocking::new(directory);
        let mut store = Store::open(settings, &mut out.disk);
        let mut events = Vec::new();
        // Until nothing is left to do: then segments are prepared, too.
        while !out.disk.list.is_empty() {
            let completion = files.run(out.disk.list.remove(0));
            store.complete(now, completion, &mut out.disk);
            store.take_events(&mut events);
        }
        let mut was_clean = false;
        for event in events.drain(..) {
            match event {
                Event::Ready { is_clean } => was_clean = is_clean,
                Event::Refused(refusal) => {
                    return Err(format!("{refusal:?} {:?}", files.failures()));
                }
                Event::Checkpointed(_)
                | Event::Found
                | Event::CheckpointWaits(_)
                | Event::CheckpointGoesOn => {}
                other => panic!("{other:?}"),
            }
        }
        let lane = store.lane(Lane::of(QueueId(1)));
        Ok(StoreCore {
            log: settings.log,
            next: ShardId((shard.0 + 1) % shards),
            store,
            has_work: false,
            lane,
            clients: Slab::new(),
            waiting: VecDeque::new(),
            paused: Vec::new(),
            backlog: VecDeque::new(),
            events,
            was_clean,
            closing: false,
            shards: shards.into(),
            closed,
            is_counted: AtomicBool::new(false),
            is_late: false,
            has_asked: false,
            owed: Vec::new(),
            owed_cycles: OWED_CYCLES,
            stopping: false,
        })
    }

    /// Appends; false when there is no room yet.
    fn keep(&mut self, byte: u8) -> bool {
        let message = Message { body: &[byte], ..Message::default() };
        let seq = self.store.next_seq(self.lane);
        let place = Place { lane: self.lane, seq, deadline_millis: 0 };
        match self.store.append(&message, &[place]) {
            Ok(_) => true,
            Err(AppendError::Full) => false,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// All bytes kept, in order, as far as they are in memory.
    fn kept(&mut self, out: &mut Outbox) -> Option<Vec<u8>> {
        let mut entries = Vec::new();
        self.store.rewind(self.lane, 0);
        if self.store.fetch(self.lane, usize::MAX, &mut entries, &mut out.disk) == Fetch::Pending {
            return None;
        }
        let bodies =
            entries.iter().map(|entry| match self.store.lookup(entry.position, &mut out.disk) {
                Lookup::Found(message) => Some(message.body[0]),
                Lookup::Pending => None,
                Lookup::Lost => panic!("lost {entry:?}"),
            });
        bodies.collect()
    }

    fn catch_up(&mut self) {
        while let Some(&byte) = self.backlog.front()
            && self.keep(byte)
        {
            self.backlog.pop_front();
        }
    }

    fn reply(&mut self, slot: u32, byte: u8, out: &mut Outbox) {
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.send.push(byte);
            out.dirty.push(slot);
        }
    }

    fn confirm(&mut self, out: &mut Outbox) {
        let durable = self.store.durable();
        while let Some(&(position, slot, byte)) = self.waiting.front() {
            if position > durable {
                return;
            }
            self.waiting.pop_front();
            self.reply(slot, byte, out);
        }
    }
}

impl Core for StoreCore {
    type Slot = u32;
    type Outbox = Outbox;
    type Mail = Vec<u8>;
    type Change = ();
    type Traveller = ();
    type Event = ();
    type Query = StoreQuery;
    type Answer = StoreAnswer;

    fn outbox(shards: u16) -> Outbox {
        Outbox { mail: ByShard::new(shards), ..Outbox::default() }
    }

    fn effects(out: &mut Outbox) -> Effects<'_, StoreCore> {
        Effects {
            dirty: &mut out.dirty,
            close: &mut out.close,
            pause: &mut out.pause,
            resume: &mut out.resume,
            hand_over: &mut out.hand_over,
            mail: &mut out.mail,
            disk: &mut out.disk.list,
            changes: &mut out.changes,
            events: &mut out.events,
            lost_events: &mut out.lost_events,
            answers: &mut out.answers,
        }
    }

    fn mail_bytes(_: &Vec<u8>) -> usize {
        0
    }

    fn is_mail_empty(mail: &Vec<u8>) -> bool {
        mail.is_empty()
    }

    fn accept(&mut self, _: Now, _: ConnectionId, _: PeerInfo, _: &mut Outbox) -> u32 {
        self.clients.insert(Client::default()) as u32
    }

    fn received(&mut self, _: Now, slot: u32, bytes: &[u8], out: &mut Outbox) -> usize {
        for (index, &byte) in bytes.iter().enumerate() {
            match byte {
                COUNT => {
                    let count = self.store.count(self.lane).0;
                    self.reply(slot, count as u8, out);
                }
                FAR => out.mail[self.next.index()].push(byte),
                OWED => {
                    self.owed.push(byte);
                    self.reply(slot, byte, out);
                }
                LATE => {
                    self.is_late = true;
                    self.reply(slot, byte, out);
                }
                byte => {
                    if !self.keep(byte) {
                        self.paused.push(slot);
                        out.pause.push(slot);
                        return index;
                    }
                    self.waiting.push_back((self.store.end(), slot, byte));
                    self.store.want_durable();
                }
            }
        }
        bytes.len()
    }

    fn is_open(&self, _slot: u32) -> bool {
        true
    }

    fn is_crowded(&self) -> bool {
        false
    }

    fn driver_holds(&mut self, _: u32, _: usize) {}

    fn owes_end(&self, _slot: u32) -> bool {
        false
    }

    fn gave_up(&self, _slot: u32) -> bool {
        false
    }

    fn bytes_to_send(&self, slot: u32) -> usize {
        self.clients.get(slot as usize).map_or(0, |client| client.send.len() - client.sent)
    }

    fn note_mail_on_its_way(&mut self, _: usize) {}

    fn has_taken_enough_mail(&self) -> bool {
        false
    }

    fn writable_slices(&mut self, slot: u32) -> Slices<'_> {
        let client = &self.clients[slot as usize];
        Slices::of(&client.send[client.sent..])
    }

    fn sent(&mut self, _: Now, slot: u32, bytes: usize, _: &mut Outbox) {
        self.clients[slot as usize].sent += bytes;
    }

    fn closed(&mut self, _: Now, slot: u32, _: &mut Outbox) {
        self.clients.remove(slot as usize);
    }

    fn release(&mut self, _: u32) -> Option<()> {
        None
    }

    fn adopt(&mut self, _: Now, (): (), _: &mut Outbox) -> u32 {
        unreachable!("nothing is handed over")
    }

    fn mail(&mut self, _: Now, from: ShardId, mail: &mut Vec<u8>, out: &mut Outbox) {
        for byte in mail.drain(..) {
            match byte {
                LATE => out.mail[from.index()].push(ANSWER),
                ANSWER => self.is_late = false,
                byte => self.backlog.push_back(byte),
            }
        }
        self.catch_up();
    }

    fn change(&mut self, _: Now, _: &Arc<()>, _: &mut Outbox) {}

    fn disk_done(&mut self, now: Now, log: LogId, completion: Completion, out: &mut Outbox) {
        assert_eq!(log, self.log);
        self.store.complete(now, completion, &mut out.disk);
        self.store.take_events(&mut self.events);
        self.confirm(out);
        self.catch_up();
        out.resume.append(&mut self.paused);
    }

    fn query(&mut self, _: Now, number: u64, query: StoreQuery, out: &mut Outbox) {
        let answer = match query {
            StoreQuery::Kept => StoreAnswer::Kept(self.kept(out)),
            StoreQuery::WasClean => StoreAnswer::WasClean(self.was_clean),
        };
        out.answers.push((number, answer));
    }

    fn timeout(&mut self, _: Now, _: &mut Outbox) {}

    fn next_timeout(&self) -> Instant {
        self.store.next_timeout()
    }

    fn work(&mut self, now: Now, out: &mut Outbox) {
        self.has_work = self.store.work(now, &mut out.disk);
    }

    fn has_work(&self, _: &Outbox) -> bool {
        self.has_work
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) {
        if self.stopping {
            self.owed_cycles = self.owed_cycles.saturating_sub(1);
        }
        if self.owed_cycles == 0 {
            out.mail[self.next.index()].append(&mut self.owed);
        }
        let are_others_closed = self.closed.load(Ordering::Acquire) + 1 == self.shards;
        if self.closing && self.is_late && are_others_closed && !self.has_asked {
            self.has_asked = true;
            out.mail[self.next.index()].push(LATE);
        }
        if self.backlog.is_empty() && !self.is_late && std::mem::take(&mut self.closing) {
            self.store.close();
        }
        self.store.flush(now, &mut out.disk);
    }

    fn shut_down(&mut self, _: Now, out: &mut Outbox) {
        self.stopping = true;
        out.close.extend(self.clients.iter().map(|(slot, _)| slot as u32));
    }

    fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    fn close(&mut self, _: Now, _: &mut Outbox) {
        self.closing = true;
    }

    fn is_closed(&self) -> bool {
        let is_closed = !self.closing && self.store.is_closed();
        if is_closed && !self.is_counted.swap(true, Ordering::AcqRel) {
            self.closed.fetch_add(1, Ordering::AcqRel);
        }
        is_closed
    }
}
