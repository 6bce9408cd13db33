//! Random workloads on a disk that fails, against a small model.
//!
//! The model knows for every message of every lane what was written, whether it was confirmed,
//! and whether its settle is known to be synced. After each crash everything the store finds is
//! compared with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lepus_base::{Now, Position, QueueId, Rng};
use lepus_store::disk::{DiskError, File, LogId, Operations};
use lepus_store::inspect::{self, Content, Part};
use lepus_store::place::position;
use lepus_store::segment::BATCH_HEADER_BYTES;
use lepus_store::simulation::{Disk, Faults, Outage};
use lepus_store::{
    AppendError, Entry, Event, Fetch, Key, Keys, LEVEL_TRANSIENT, Lane, LaneSlot, Lookup, Message,
    Place, Refusal, SegmentCounts, Settings, Space, Store, SyncMode,
};

const LOG: LogId = LogId(7);
/// A settle that no flush has seen.
const UNSEEN: u64 = u64::MAX;
/// A message of so many bytes may be in several segments.
const LONG_BYTES: u32 = 8000;
/// In one of so many seeds the counts of segments are checked at each step; that takes most of its time.
const RECOUNTED_SEEDS: u64 = 4;

/// One message in one lane, as the model knows it.
#[derive(Clone, Debug)]
struct Known {
    /// Seed of its content.
    content: u64,
    /// Where the index has it, and the bytes of its body.
    position: Position,
    bytes: u32,
    /// Where the log ended behind it.
    end: Position,
    confirmed: bool,
    /// Settled by the workload.
    settled: bool,
    /// When a flush saw that first, and where the log ended once that was written.
    settled_at: u64,
    settle_end: Option<Position>,
    settle_synced: bool,
    /// Said to have been delivered, or it may have been before a crash.
    marked: bool,
}

#[derive(Default)]
struct KnownLane {
    messages: BTreeMap<u64, Known>,
    next: u64,
    /// Fetched and not settled.
    held: BTreeMap<u64, Entry>,
    dropped: bool,
}

struct World {
    seed: u64,
    rng: Rng,
    disk: Disk,
    out: Operations,
    settings: Settings,
    store: Store,
    millis: u64,
    lanes: BTreeMap<Lane, KnownLane>,
    slots: BTreeMap<Lane, LaneSlot>,
    queue_next: u64,
    stopped: bool,
    /// The disk has refused an operation.
    has_failed: bool,
    damages: usize,
    lost: usize,
    /// What fails for a while, now and then.
    outage: Outage,
    /// Damage is expected: bits were flipped. What was settled may come back.
    forgiving: bool,
    /// Messages that the damage may cost.
    damaged: BTreeSet<(Lane, u64)>,
    recovered: u64,
    /// The last run ended in order.
    is_clean: bool,
    full_seen: u64,
    moved: u64,
    checkpoints: u64,
}

fn settings(rng: &mut Rng) -> Settings {
    let segment_bytes = [8192, 16384, 65536][rng.below(3) as usize];
    Settings {
        segment_bytes,
        // A log keeps the one that it got first.
        key: [Key::NONE, Key::new(rng.next_u64())][rng.below(2) as usize],
        batch_bytes_max: 4096 << rng.below(3),
        fill_bytes_min: 3000,
        write_bytes_min: 2048 << rng.below(3),
        checkpoint_log_bytes: 20_000 + rng.below(200_000),
        checkpoint_factor: 1 + rng.below(4),
        index_pages_max: rng.below(3) as usize,
        cache_bytes: 30_000 + rng.below(100_000) as usize,
        read_ahead_bytes: 4096 << rng.below(3),
        compaction_percent: 20 + rng.below(30) as u32,
        checkpoint_messages: 50 + rng.below(2000),
        checkpoint_delta_bytes_min: [0, 3000, 1 << 20][rng.below(3) as usize],
        checkpoint_slice_bytes: [1, 100, 16 << 10][rng.below(3) as usize],
        relocations_kept: rng.below(20) as usize,
        lanes_kept: rng.below(8) as usize,
        compaction_rate: 1 << 30,
        compaction_slack_bytes: 0,
        free_segments_max: 3,
        ..Settings::new(LOG)
    }
}

/// The parts of a message are a function of its content seed.
fn parts(content: u64) -> (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut rng = Rng::new(content);
    let size = match rng.below(40) {
        0 => rng.below(100_000),
        1..=4 => rng.below(5000),
        _ => rng.below(200),
    };
    let mut body = vec![0; size as usize];
    rng.fill(&mut body);
    let exchange = format!("exchange-{}", rng.below(3)).into_bytes();
    let key = match rng.below(3) {
        0 => format!("key-{content}").into_bytes(),
        _ => format!("key-{}", rng.below(4)).into_bytes(),
    };
    let properties = vec![1; rng.below(30) as usize];
    (exchange, key, properties, body)
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut world = World {
            seed,
            disk: Disk::new(rng.next_u64()),
            rng,
            out,
            settings,
            store,
            millis: 1,
            lanes: BTreeMap::new(),
            slots: BTreeMap::new(),
            queue_next: 3,
            stopped: false,
            has_failed: false,
            damages: 0,
            lost: 0,
            outage: Outage::default(),
            forgiving: false,
            damaged: BTreeSet::new(),
            recovered: 0,
            is_clean: false,
            full_seen: 0,
            moved: 0,
            checkpoints: 0,
        };
        world.run_until_ready();
        world
    }

    fn now(&self) -> Now {
        Now::from_millis(self.millis)
    }

    fn step_disk(&mut self) -> bool {
        self.disk.submit(&mut self.out.list);
        let Some(completion) = self.disk.step() else { return false };
        self.has_failed |= completion.result.is_err();
        self.store.complete(self.now(), completion, &mut self.out);
        self.events();
        true
    }

    fn events(&mut self) {
        let mut events = Vec::new();
        self.store.take_events(&mut events);
        for event in events {
            match event {
                Event::Damaged(damage) => {
                    let has_cause = self.forgiving || self.has_failed;
                    assert!(has_cause, "seed {}: {damage:?} without a cause", self.seed);
                    self.damages += 1;
                }
                Event::Refused(refusal) => panic!("seed {}: {refusal:?}", self.seed),
                Event::Stopped(..) => self.stopped = true,
                Event::Checkpointed(_) => self.checkpoints += 1,
                Event::Ready { is_clean } => self.is_clean = is_clean,
                _ => {}
            }
        }
    }

    fn run_until_ready(&mut self) {
        let faults = std::mem::take(&mut self.disk.faults);
        self.disk.outage = Outage::default();
        while !self.store.is_running() {
            assert!(self.step_disk(), "seed {}: recovery waits for nothing", self.seed);
        }
        self.disk.faults = faults;
        self.stopped = false;
    }

    /// Lets everything come to rest.
    fn settle_down(&mut self) {
        for _ in 0..2000 {
            self.store.want_durable();
            self.flush();
            let more = self.store.work(self.now(), &mut self.out);
            self.millis += 20;
            self.events();
            if !self.step_disk() && !more && self.store.synced() >= self.store.end() {
                return;
            }
        }
        let figures = self.store.figures();
        let full = self.disk.bytes_max < u64::MAX;
        assert!(self.stopped || full, "seed {}: no rest: {figures:?}", self.seed);
    }

    fn flush(&mut self) {
        self.store.flush(self.now(), &mut self.out);
        let (end, durable, synced) = (self.store.end(), self.store.durable(), self.store.synced());
        let interval = self.settings.write_interval.as_millis() as u64;
        for lane in self.lanes.values_mut() {
            for known in lane.messages.values_mut() {
                known.confirmed |= durable >= known.end;
                if known.settled && known.settle_end.is_none() {
                    if known.settled_at == UNSEEN {
                        known.settled_at = self.millis;
                    } else if known.settled_at + interval <= self.millis
                        && !self.store.has_unwritten_settles()
                    {
                        known.settle_end = Some(end);
                    }
                } else if known.settle_end.is_some_and(|end| synced >= end) {
                    known.settle_synced = true;
                }
            }
        }
        self.events();
    }

    fn any_lane(&mut self) -> Lane {
        let queue = QueueId(self.queue_next - self.rng.below(3) - 1);
        let level = match self.rng.below(8) {
            0 => 1,
            1 => LEVEL_TRANSIENT,
            _ => 0,
        };
        Lane { queue, level }
    }

    fn slot(&mut self, lane: Lane) -> LaneSlot {
        *self.slots.entry(lane).or_insert_with(|| self.store.lane(lane))
    }

    fn append(&mut self) {
        let first = self.any_lane();
        let mut lanes = BTreeSet::from([first]);
        for _ in 0..self.rng.below(3) {
            let lane = self.any_lane();
            if lane.is_transient() == first.is_transient() {
                lanes.insert(lane);
            }
        }
        let content = self.rng.next_u64();
        let (exchange, routing_key, properties, body) = parts(content);
        let mut places = Vec::new();
        for &lane in &lanes {
            let slot = self.slot(lane);
            let gap = if self.rng.chance(1, 10) { self.rng.below(5) } else { 0 };
            let known = self.lanes.entry(lane).or_default();
            let seq = known.next.max(self.store.next_seq(slot)) + gap;
            known.next = seq + 1;
            let deadline_millis = if content.is_multiple_of(3) { self.millis + 1000 } else { 0 };
            places.push(Place { lane: slot, seq, deadline_millis });
        }
        let message = Message {
            exchange: &exchange,
            routing_key: &routing_key,
            properties: &properties,
            body: &body,
        };
        let position = match self.store.append(&message, &places) {
            Ok(position) => position,
            Err(AppendError::Full) => {
                self.full_seen += u64::from(self.store.space() == Space::Full);
                return;
            }
            Err(AppendError::Stopped) => return,
            Err(error) => panic!("seed {}: {error:?}", self.seed),
        };
        let end = self.store.end();
        for (lane, place) in lanes.iter().zip(&places) {
            let known = Known {
                content,
                position,
                bytes: body.len() as u32,
                end,
                confirmed: false,
                settled: false,
                settled_at: 0,
                settle_end: None,
                settle_synced: false,
                marked: false,
            };
            self.lanes.get_mut(lane).unwrap().messages.insert(place.seq, known);
        }
    }

    /// Fetches some entries of a lane and looks at their messages.
    fn fetch(&mut self, lane: Lane, count: usize) -> bool {
        let slot = self.slot(lane);
        let mut entries = Vec::new();
        let fetched = self.store.fetch(slot, count, &mut entries, &mut self.out);
        let seed = self.seed;
        let known = self.lanes.entry(lane).or_default();
        for entry in entries {
            let found = known.messages.get(&entry.seq);
            let found = found.unwrap_or_else(|| panic!("seed {seed}: {lane:?} {entry:?} unknown"));
            assert!(!found.settled, "seed {seed}: {lane:?} {} came back", entry.seq);
            let is_marked = self.store.is_redelivered(slot, entry.seq);
            assert_eq!(is_marked, found.marked, "seed {seed}: {lane:?} {}", entry.seq);
            assert_eq!(found.content.is_multiple_of(3), entry.deadline_millis != 0);
            assert!(known.held.insert(entry.seq, entry).is_none(), "seed {seed}: twice");
        }
        fetched == Fetch::Pending
    }

    fn check_content(&mut self, lane: Lane, entry: Entry) -> bool {
        let content = self.lanes[&lane].messages[&entry.seq].content;
        let (exchange, routing_key, properties, body) = parts(content);
        let mut idle = 0;
        for _ in 0..1000 {
            match self.store.lookup(entry.position, &mut self.out) {
                Lookup::Found(message) => {
                    assert_eq!(message.exchange, exchange, "seed {}", self.seed);
                    assert_eq!(message.routing_key, routing_key, "seed {}", self.seed);
                    assert_eq!(message.properties, properties, "seed {}", self.seed);
                    assert!(message.body == body, "seed {}", self.seed);
                    assert_eq!(entry.bytes as usize, body.len());
                    return true;
                }
                Lookup::Lost => {
                    self.events();
                    self.lost += 1;
                    // A read that fails makes nobody believe that.
                    let is_damaged = self.damaged.contains(&(lane, entry.seq));
                    assert!(is_damaged, "seed {}: {lane:?} {entry:?} lost", self.seed);
                    return false;
                }
                Lookup::Pending => {
                    if self.step_disk() {
                        idle = 0;
                    } else {
                        // A read that failed is made again later; one of many that are long may begin
                        // when a cycle has ended in which nobody asked for those before.
                        let waits = self.store.figures().waiting_reads > 0;
                        assert!(waits || idle < 2, "seed {}: lookup waits for nothing", self.seed);
                        idle += 1;
                        self.millis += 100;
                        self.store.flush(self.now(), &mut self.out);
                    }
                    if self.stopped {
                        return false;
                    }
                }
            }
        }
        panic!("seed {}: lookup never ends: {lane:?} {entry:?} {:?}", self.seed, self.settings);
    }

    fn settle_some(&mut self) {
        let lane = self.any_lane();
        let slot = self.slot(lane);
        let Some(known) = self.lanes.get_mut(&lane) else { return };
        let all = known.held.len();
        let count = self.rng.below(all.min(60) as u64 + 1) as usize;
        let keep = self.rng.chance(1, 3);
        let chosen: Vec<Entry> = known.held.values().take(count).copied().collect();
        for entry in chosen {
            if keep && entry.seq % 7 == 0 {
                continue;
            }
            let known = self.lanes.get_mut(&lane).unwrap();
            known.held.remove(&entry.seq);
            let message = known.messages.get_mut(&entry.seq).unwrap();
            message.settled = true;
            message.settled_at = UNSEEN;
            let is_new = self.store.settle(slot, entry.seq, entry.position, entry.bytes);
            assert!(is_new, "seed {}: {lane:?} {} settled before", self.seed, entry.seq);
            assert!(!self.store.settle(slot, entry.seq, entry.position, entry.bytes));
        }
    }

    /// Some messages were delivered and come back.
    fn mark_some(&mut self) {
        let lane = self.any_lane();
        let slot = self.slot(lane);
        let Some(known) = self.lanes.get_mut(&lane) else { return };
        for seq in known.held.keys() {
            if self.rng.chance(1, 3) {
                self.store.mark_delivered(slot, *seq);
                known.messages.get_mut(seq).expect("it was fetched").marked = true;
            }
        }
    }

    fn purge(&mut self) {
        let lane = self.any_lane();
        let slot = self.slot(lane);
        let Some(known) = self.lanes.get_mut(&lane) else { return };
        let end = known.next;
        let kept: Vec<u64> = known.held.keys().copied().collect();
        for (seq, message) in &mut known.messages {
            if !known.held.contains_key(seq) && !message.settled {
                message.settled = true;
                message.settled_at = UNSEEN;
            }
        }
        self.store.purge(slot, end, &kept);
    }

    fn drop_queue(&mut self) {
        let queue = QueueId(self.queue_next - 3);
        self.queue_next += 1;
        self.store.drop_queue(queue);
        for (lane, known) in &mut self.lanes {
            if lane.queue == queue {
                known.dropped = true;
                known.held.clear();
                for message in known.messages.values_mut() {
                    message.settled = true;
                    message.settled_at = UNSEEN;
                }
                self.slots.remove(lane);
            }
        }
    }

    /// What fails for a while begins to fail, or does so no more.
    fn toggle_outage(&mut self) {
        let is_on = self.disk.outage != Outage::default();
        if self.rng.chance(1, if is_on { 40 } else { 150 }) {
            self.disk.outage = if is_on { Outage::default() } else { self.outage };
        }
    }

    /// The segment in a slot, as its header says it.
    fn generation_in(&self, file: File) -> u32 {
        let header = self.disk.data(file).and_then(|data| data.get(16..20));
        header.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    /// Notes what a damaged byte may cost: the message whose record has it, and those of its segment
    /// that may borrow the names of that one. Nothing elsewhere, and nothing at all where it is in
    /// another file; but the batch that was written last looks like the end of the log when it is
    /// damaged.
    fn expect_damage(&mut self, file: File, at: u64) {
        let (File::Segment(..), Some(bytes)) = (file, self.disk.data(file)) else { return };
        let files = self.disk.files().map(|(file, _)| file);
        let segments: Vec<_> = files.filter(|file| matches!(file, File::Segment(..))).collect();
        let named = segments.iter().filter_map(|file| self.disk.data(*file));
        let named =
            named.map(|bytes| inspect::segment(Keys::none(LOG), bytes, |_| ()).synced).max();
        let last = segments.iter().map(|file| self.generation_in(*file)).max().unwrap_or_default();
        let hit = self.generation_in(file);
        let mut batch_hit = None;
        let mut found = Vec::new();
        inspect::segment(Keys::none(LOG), bytes, |part| match part {
            Part::Record(offset, Content::Message(message)) => {
                let ids =
                    message.references.iter().map(|reference| (reference.lane, reference.seq));
                found.push((offset, ids.collect::<Vec<_>>(), message.names));
            }
            Part::Record(offset, _) => found.push((offset, Vec::new(), None)),
            Part::Batch(batch) => {
                let end = batch.offset + BATCH_HEADER_BYTES as u32 + batch.bytes;
                if u64::from(batch.offset) <= at && at < u64::from(end) {
                    batch_hit = Some(batch.offset);
                }
                found.push((batch.offset, Vec::new(), None));
            }
            Part::Gap(gap) => found.push((gap.offset, Vec::new(), None)),
        });
        let damaged = found.iter().rfind(|(offset, ..)| u64::from(*offset) <= at);
        let names = damaged.and_then(|(_, _, names)| *names);
        let mut lost = BTreeSet::new();
        // No other batch names what it is in: it may have been cut off.
        let is_unnamed =
            |batch: &u32| hit == last && named.is_none_or(|named| named <= position(hit, *batch));
        let torn_from = batch_hit.filter(is_unnamed);
        for (offset, ids, lent) in &found {
            if torn_from.is_some_and(|from| *offset >= from) || (names.is_some() && *lent == names)
            {
                lost.extend(ids);
            }
        }
        // A long message goes on in the segments behind its own.
        for (&lane, known) in &self.lanes {
            for (&seq, message) in &known.messages {
                let first = self.store.segment_of(message.position);
                let reaches = first + 1 + message.bytes / self.settings.segment_bytes;
                if message.bytes >= LONG_BYTES && (first..=reaches).contains(&hit) {
                    lost.insert((lane, seq));
                }
            }
        }
        self.damaged.append(&mut lost);
    }

    /// A start that meets an outage, by a process that does not live on. Whether it was refused.
    fn start_in_vain(&mut self, outage: Outage) -> bool {
        self.disk.outage = outage;
        let before: Vec<_> = self.disk.files().collect();
        let mut out = Operations::default();
        let mut store = Store::open(self.settings, &mut out);
        loop {
            self.disk.submit(&mut out.list);
            let Some(completion) = self.disk.step() else { break };
            store.complete(self.now(), completion, &mut out);
            assert!(!store.is_running(), "seed {}: it starts without reading", self.seed);
        }
        self.disk.outage = Outage::default();
        let after: Vec<_> = self.disk.files().collect();
        assert_eq!(before, after, "seed {}: what is refused changes nothing", self.seed);
        let mut events = Vec::new();
        store.take_events(&mut events);
        let error = if outage.opens { DiskError::Busy } else { DiskError::Failed };
        matches!(events[..], [Event::Refused(Refusal::Disk(_, found))] if found == error)
    }

    fn act(&mut self) {
        if self.outage != Outage::default() {
            self.toggle_outage();
        }
        match self.rng.below(100) {
            0..=39 => self.append(),
            40..=54 => {
                let lane = self.any_lane();
                let count = self.rng.below(50) as usize;
                self.fetch(lane, count);
                let held = self.lanes[&lane].held.values().next().copied();
                if let Some(entry) = held {
                    self.check_content(lane, entry);
                }
            }
            55..=69 => self.settle_some(),
            70..=71 => {
                let lane = self.any_lane();
                if let Some(known) = self.lanes.get_mut(&lane)
                    && let Some((&first, _)) = known.held.iter().next()
                {
                    // Drop the window, fetch it again.
                    known.held.clear();
                    let slot = self.slot(lane);
                    self.store.rewind(slot, first);
                }
            }
            72 if self.rng.chance(1, 4) => self.purge(),
            73 if self.rng.chance(1, 8) => self.drop_queue(),
            74 if self.rng.chance(1, 3) => self.store.request_checkpoint(),
            75..=76 => self.mark_some(),
            77..=79 => self.millis += self.rng.below(150),
            80..=84 => self.store.want_durable(),
            85..=92 => {
                self.store.work(self.now(), &mut self.out);
            }
            _ => {
                for _ in 0..self.rng.below(6) {
                    self.step_disk();
                }
            }
        }
        if self.rng.chance(1, 3) {
            self.flush();
        }
        self.recount();
    }

    /// Counts per segment what the model knows to live, and compares that with what the store has
    /// counted. What was purged or deleted in one go may still be in the store's counts.
    fn recount(&mut self) {
        let is_chosen = self.seed.is_multiple_of(RECOUNTED_SEEDS);
        if !is_chosen || self.forgiving || self.lost > 0 {
            return;
        }
        for (lane, known) in &mut self.lanes {
            let Some(&slot) = self.slots.get(lane) else { continue };
            self.store.each_in_memory(slot, |entry| {
                if let Some(message) = known.messages.get_mut(&entry.seq) {
                    message.position = entry.position;
                }
            });
        }
        let mut expected: BTreeMap<u32, SegmentCounts> = BTreeMap::new();
        for (lane, known) in &self.lanes {
            let kind = usize::from(lane.is_transient());
            for message in known.messages.values().filter(|message| !message.settled) {
                let counts = expected.entry(self.store.segment_of(message.position)).or_default();
                counts.references[kind] += 1;
                counts.bytes[kind] += u64::from(message.bytes);
            }
        }
        let is_exact = self.store.is_accounted();
        for (number, found) in self.store.segment_counts() {
            let wanted = expected.remove(&number).unwrap_or_default();
            let fits = |found: u64, wanted: u64| found == wanted || !is_exact && found > wanted;
            let pairs = [
                (found.references[0], wanted.references[0]),
                (found.references[1], wanted.references[1]),
                (found.bytes[0], wanted.bytes[0]),
                (found.bytes[1], wanted.bytes[1]),
                (found.pins, found.spans),
            ];
            assert!(
                pairs.iter().all(|(found, wanted)| fits(*found, *wanted)),
                "seed {}: segment {number} has {found:?} by the store, {wanted:?} lives in it",
                self.seed
            );
        }
        assert!(expected.is_empty(), "seed {}: segments are missing: {expected:?}", self.seed);
    }

    /// The store is gone; a new one opens the same files.
    fn restart(&mut self, kind: &str) {
        self.moved += self.store.figures().moved;
        match kind {
            "crash" | "unsure" => self.disk.crash(),
            "kill" => self.disk.kill(),
            _ => {}
        }
        self.out.list.clear();
        self.slots.clear();
        self.out = Operations::default();
        self.store = Store::open(self.settings, &mut self.out);
        self.run_until_ready();
        self.compare(kind);
    }

    /// Everything that was found against everything that is known.
    fn compare(&mut self, kind: &str) {
        let seed = self.seed;
        assert!(self.is_clean || kind != "clean", "seed {seed}: it was stopped in order");
        let lanes: Vec<Lane> = self.lanes.keys().copied().collect();
        for (lane, _) in self.store.lanes() {
            // Queues dropped at an earlier start may be there until that is written.
            let is_known = self.lanes.contains_key(&lane) || lane.queue.0 < self.queue_next - 3;
            assert!(is_known, "seed {seed}: {lane:?} out of nowhere");
        }
        for lane in lanes {
            let mut entries = Vec::new();
            let known_next = self.lanes[&lane].next;
            if !lane.is_transient() && self.store.lanes().any(|(found, _)| found == lane) {
                let slot = self.slot(lane);
                loop {
                    match self.store.fetch(slot, 100, &mut entries, &mut self.out) {
                        Fetch::Pending => assert!(self.step_disk(), "seed {seed}: fetch waits"),
                        Fetch::Done if self.store.is_fetched(slot) => break,
                        Fetch::Done => {}
                    }
                }
                let known = self.lanes.get_mut(&lane).unwrap();
                for entry in &entries {
                    let is_marked = self.store.is_redelivered(slot, entry.seq);
                    let Some(found) = known.messages.get_mut(&entry.seq) else { continue };
                    let is_right = match kind {
                        "clean" => is_marked == found.marked,
                        "unsure" => is_marked || !found.marked,
                        _ => is_marked,
                    };
                    let seq = entry.seq;
                    assert!(is_right, "seed {seed}: {lane:?} {seq}: {is_marked} after {kind}");
                    found.marked = is_marked;
                    found.position = entry.position;
                }
                assert!(self.store.next_seq(slot) <= known_next || self.forgiving);
            }
            assert!(entries.windows(2).all(|pair| pair[0].seq < pair[1].seq), "seed {seed}: order");
            let found: BTreeSet<u64> = entries.iter().map(|entry| entry.seq).collect();
            let known = self.lanes.get_mut(&lane).unwrap();
            for (seq, message) in &known.messages {
                let is_there = found.contains(seq);
                if message.confirmed && !message.settled && !lane.is_transient() {
                    assert!(
                        is_there || self.damaged.contains(&(lane, *seq)),
                        "seed {seed}: {lane:?} {seq} was confirmed and is lost after {kind}"
                    );
                }
                if message.settle_synced {
                    assert!(!is_there, "seed {seed}: {lane:?} {seq} came back after {kind}");
                }
            }
            known.held.clear();
            known.messages.retain(|seq, _| found.contains(seq));
            if self.forgiving {
                known.held.clear();
                entries.retain(|entry| known.messages.contains_key(&entry.seq));
            } else {
                assert_eq!(known.messages.len(), found.len(), "seed {seed}: {lane:?} unknown");
            }
            for message in known.messages.values_mut() {
                message.confirmed = true;
                message.settled = false;
                message.settle_end = None;
                message.settle_synced = false;
                message.end = Position(0);
            }
            self.recovered += found.len() as u64;
            for entry in entries {
                self.check_content(lane, entry);
                self.lanes.get_mut(&lane).unwrap().held.insert(entry.seq, entry);
            }
            if self.lanes[&lane].dropped && self.lanes[&lane].messages.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        // A dropped queue of which something came back is dropped again, as its owner would.
        let queue_first = self.queue_next - 3;
        self.store.retain_queues(|queue, _| queue.0 >= queue_first);
        self.lanes.retain(|lane, _| lane.queue.0 >= queue_first);
        self.slots.retain(|lane, _| lane.queue.0 >= queue_first);
    }

    /// Settles everything and sees the space come back.
    fn drain(&mut self) {
        self.disk.faults = Faults::default();
        self.disk.outage = Outage::default();
        self.disk.bytes_max = u64::MAX;
        let lanes: Vec<Lane> = self.lanes.keys().copied().collect();
        for &lane in &lanes {
            while self.fetch(lane, 1000) {
                assert!(self.step_disk());
            }
            let slot = self.slot(lane);
            let unsettled = self.lanes[&lane].messages.values().filter(|m| !m.settled).count();
            assert_eq!(self.lanes[&lane].held.len(), unsettled, "seed {}: {lane:?}", self.seed);
            let held = std::mem::take(&mut self.lanes.get_mut(&lane).unwrap().held);
            for entry in held.values() {
                assert!(self.store.settle(slot, entry.seq, entry.position, entry.bytes));
            }
            self.lanes.get_mut(&lane).unwrap().messages.clear();
        }
        self.settle_down();
        for _ in 0..3 {
            self.millis += 5000;
            self.store.request_checkpoint();
            self.settle_down();
        }
        let figures = self.store.figures();
        assert_eq!(figures.relocated, 0, "seed {}", self.seed);
        assert!(figures.segments <= 4, "seed {}: {figures:?}", self.seed);
        for lane in lanes {
            let slot = self.slot(lane);
            assert_eq!(self.store.count(slot), (0, 0), "seed {}", self.seed);
        }
    }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = read("SEED").unwrap_or(0);
    first..first + read("SEEDS").unwrap_or(default)
}

fn lives(world: &mut World, lives: u64, actions: u64) {
    for _ in 0..lives {
        for _ in 0..actions {
            world.act();
            if world.stopped {
                break;
            }
        }
        let kind = match world.rng.below(4) {
            0 => "kill",
            1 if !world.stopped => {
                world.store.close();
                world.settle_down();
                // Without the final checkpoint it may be either.
                if world.store.is_closed() { "clean" } else { "unsure" }
            }
            _ => "crash",
        };
        // What a failed sync left behind is seen by nobody: the system drops its pages too.
        let kind = match kind {
            // It failed after the checkpoint of the orderly stop.
            "clean" if world.stopped => "unsure",
            "kill" if world.stopped => "crash",
            kind => kind,
        };
        world.restart(kind);
    }
}

#[test]
fn what_is_confirmed_survives_any_crash_and_what_is_settled_stays_away() {
    let (mut recovered, mut moved, mut checkpoints) = (0, 0, 0);
    for seed in seeds(60) {
        let mut world = World::new(seed);
        lives(&mut world, 4, 700);
        world.drain();
        recovered += world.recovered;
        moved += world.moved;
        checkpoints += world.checkpoints;
    }
    assert!(recovered > 0 && checkpoints > 0);
    println!("recovered {recovered}, moved {moved}, checkpoints {checkpoints}");
}

#[test]
fn a_disk_that_fails_costs_nothing_that_was_confirmed() {
    for seed in seeds(40) {
        let mut world = World::new(seed);
        world.disk.faults = Faults {
            short_write: 100,
            write_error: world.rng.below(8),
            sync_error: world.rng.below(8),
            read_error: if seed % 2 == 0 { 20 } else { 0 },
        };
        let faults = world.disk.faults;
        for _ in 0..4 {
            world.disk.faults = faults;
            lives(&mut world, 1, 500);
        }
        if !world.stopped {
            world.drain();
        }
    }
}

/// Files cannot be made or removed for a while, or their names not be made durable.
#[test]
fn operations_beside_the_log_that_fail_for_a_while_cost_nothing() {
    let none = Outage::default();
    let outages = [
        Outage { creates: true, ..none },
        Outage { deletes: true, ..none },
        Outage { directory_syncs: true, ..none },
        Outage { creates: true, deletes: true, directory_syncs: true, ..none },
    ];
    let mut stopped = 0;
    for seed in seeds(40) {
        let mut world = World::new(seed);
        world.outage = outages[seed as usize % outages.len()];
        for _ in 0..4 {
            lives(&mut world, 1, 700);
            assert_eq!((world.damages, world.lost), (0, 0), "seed {seed}");
            stopped += u32::from(world.stopped);
        }
        world.outage = none;
        world.disk.outage = none;
        if !world.stopped {
            world.drain();
        }
    }
    println!("stopped {stopped} times");
}

#[test]
fn a_start_that_cannot_read_is_refused_and_changes_nothing() {
    let none = Outage::default();
    for seed in seeds(30) {
        let mut world = World::new(seed);
        lives(&mut world, 1, 500);
        world.settle_down();
        world.disk.kill();
        let outage = match seed % 2 {
            0 => Outage { reads: true, ..none },
            _ => Outage { opens: true, ..none },
        };
        assert!(world.start_in_vain(outage), "seed {seed}");
        world.restart("kill");
        assert_eq!((world.damages, world.lost), (0, 0), "seed {seed}");
        world.drain();
    }
}

#[test]
fn a_full_disk_refuses_messages_and_recovers_when_space_returns() {
    let mut full = 0;
    for seed in seeds(40) {
        let mut world = World::new(seed);
        world.disk.bytes_max = world.disk.bytes() + 150_000 + world.rng.below(200_000);
        lives(&mut world, 3, 1200);
        full += world.full_seen;
        world.drain();
        for _ in 0..20 {
            world.append();
            world.settle_down();
        }
        assert!(world.stopped || world.lanes.values().any(|lane| !lane.messages.is_empty()));
    }
    assert!(full > 0, "the disk was never full");
}

/// Bits of old segments, of the index and of checkpoints flip. What is intact is found; what is
/// not is reported, once at least; nothing false is delivered.
#[test]
fn flipped_bits_are_reported_and_cost_only_what_they_hit() {
    let (mut damages, mut lost) = (0, 0);
    for seed in seeds(400) {
        let mut world = World::new(seed);
        lives(&mut world, 1, 700);
        world.settle_down();
        // Where everything is now.
        world.restart("kill");
        world.settle_down();
        world.forgiving = true;
        let files: Vec<_> = world.disk.files().filter(|(_, length)| *length > 0).collect();
        for _ in 0..1 + world.rng.below(3) {
            let (file, length) = files[world.rng.below(files.len() as u64) as usize];
            let offset = world.rng.below(length);
            world.expect_damage(file, offset);
            world.disk.flip(file, offset as usize, world.rng.below(8) as u8);
        }
        for lane in world.lanes.values_mut() {
            // A rebuild from segments brings settled messages back: duplicates, no loss.
            lane.messages.values_mut().for_each(|message| message.settle_synced = false);
        }
        world.restart("crash");
        damages += world.damages;
        lost += world.lost;
        for _ in 0..200 {
            world.append();
            world.step_disk();
            world.flush();
        }
        world.restart("crash");
    }
    println!("{damages} damages reported, {lost} messages lost");
    assert!(damages > 0);
}

#[test]
fn other_modes_keep_what_was_written_when_only_the_broker_ends() {
    for seed in seeds(20) {
        let mut world = World::new(seed);
        let sync = if seed % 2 == 0 { SyncMode::Interval } else { SyncMode::Never };
        world.settings.sync = sync;
        world.settings.sync_interval = Duration::from_millis(300);
        world.restart("kill");
        for _ in 0..3 {
            for _ in 0..500 {
                world.act();
            }
            world.restart("kill");
        }
        world.drain();
    }
}
