//! Reads that fail, for a time or for good: what could not be read is never dropped for that, and what is
//! damaged is kept.

use std::time::Duration;

use lepus_base::{Instant, Now, Position, QueueId};
use lepus_store::disk::{Action, Completion, DiskError, File, LogId, Operation, Operations};
use lepus_store::place::offset;
use lepus_store::simulation::Disk;
use lepus_store::{Entry, Event, Fetch, Lane, LaneSlot, Lookup, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);
const SEGMENT_BYTES: u32 = 64 << 10;

/// Says which operations fail.
type Which = Box<dyn Fn(&Action) -> bool>;

/// A store on a disk that takes no time, and of which some operations fail.
struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    now: Now,
    fails: Option<(Which, DiskError)>,
    /// Operations carried out, and those of them that failed.
    reads: u64,
    read_bytes: u64,
    failures: u64,
    /// Operations that are put off.
    held: Option<Which>,
    put_off: Vec<Operation>,
    events: Vec<Event>,
}

fn settings() -> Settings {
    Settings {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 64 << 10,
        read_ahead_bytes: 8 << 10,
        index_pages_max: 0,
        compaction_slack_bytes: u64::MAX,
        ..Settings::new(LOG)
    }
}

fn body(seq: u64) -> Vec<u8> {
    (0..20 + seq * 7919 % 200).map(|at| (at * 31 + seq) as u8).collect()
}

fn place(lane: LaneSlot, seq: u64) -> Place {
    // Deadlines that follow no rule take room in the index.
    Place { lane, seq, deadline_millis: 1_000_000_000 + seq * 7919 % 100_000 }
}

fn is_segment_read(action: &Action) -> bool {
    matches!(action, Action::Read { file: File::Segment(..), .. })
}

fn is_index_read(action: &Action) -> bool {
    matches!(action, Action::Read { file: File::Index(_), .. })
}

fn is_read(action: &Action) -> bool {
    matches!(action, Action::Read { .. })
}

impl World {
    fn empty() -> World {
        let mut out = Operations::default();
        let store = Store::open(settings(), &mut out);
        let mut world = World {
            store,
            disk: Disk::new(1),
            out,
            now: Now::from_millis(1),
            fails: None,
            reads: 0,
            read_bytes: 0,
            failures: 0,
            held: None,
            put_off: Vec::new(),
            events: Vec::new(),
        };
        world.rest();
        assert!(world.store.is_running());
        world
    }

    /// A log with `count` messages in one queue, opened again.
    fn filled(count: u64) -> World {
        let mut world = World::empty();
        world.append(0..count);
        world.restart();
        world
    }

    fn append(&mut self, numbers: std::ops::Range<u64>) {
        let lane = self.lane();
        for seq in numbers {
            let body = body(seq);
            let message = Message { routing_key: b"q", body: &body, ..Message::default() };
            while self.store.append(&message, &[place(lane, seq)]).is_err() {
                self.rest();
            }
            if seq % 16 == 0 {
                self.store.want_durable();
                self.rest();
            }
        }
    }

    fn lane(&mut self) -> LaneSlot {
        self.store.lane(Lane::of(QueueId(1)))
    }

    fn restart(&mut self) {
        self.store.close();
        while !self.store.is_closed() {
            self.pass(Duration::from_secs(1));
        }
        self.store = Store::open(settings(), &mut self.out);
        self.rest();
        assert!(self.store.is_running());
        self.events.clear();
    }

    fn fail(&mut self, which: impl Fn(&Action) -> bool + 'static, error: DiskError) {
        self.fails = Some((Box::new(which), error));
    }

    /// Carries out what is asked for, and lets the store go on, until it asks for nothing more.
    fn rest(&mut self) {
        loop {
            self.store.flush(self.now, &mut self.out);
            while self.store.work(self.now, &mut self.out) {}
            if self.out.list.is_empty() {
                break;
            }
            for operation in std::mem::take(&mut self.out.list) {
                self.carry_out(operation);
            }
        }
        self.store.take_events(&mut self.events);
    }

    fn carry_out(&mut self, operation: Operation) {
        if self.held.as_ref().is_some_and(|held| held(&operation.action)) {
            return self.put_off.push(operation);
        }
        let fails = self.fails.as_ref().filter(|(which, _)| which(&operation.action));
        let is_a_read = is_read(&operation.action);
        let completion = match fails {
            Some((_, error)) => Completion::failed(operation.id, *error),
            None => {
                self.disk.submit(&mut vec![operation]);
                self.disk.step().expect("it was submitted")
            }
        };
        self.failures += u64::from(fails.is_some());
        self.reads += u64::from(is_a_read);
        self.read_bytes += completion.bytes.len() as u64;
        self.store.complete(self.now, completion, &mut self.out);
    }

    /// Lets time pass, from one timeout to the next.
    fn pass(&mut self, time: Duration) {
        let end = self.now.instant + time;
        loop {
            self.rest();
            let next = self.store.next_timeout().max(Instant(self.now.instant.0 + 1_000_000));
            let millis = (next.min(end).0 - self.now.instant.0).div_ceil(1_000_000);
            self.now = Now::from_millis(self.now.instant.0 / 1_000_000 + millis);
            if self.now.instant >= end {
                break;
            }
        }
        self.rest();
    }

    /// All entries of the queue that are there now.
    fn entries(&mut self) -> Vec<Entry> {
        let lane = self.lane();
        self.store.rewind(lane, 0);
        let mut entries = Vec::new();
        for _ in 0..1000 {
            if self.store.fetch(lane, usize::MAX, &mut entries, &mut self.out) == Fetch::Done {
                return entries;
            }
            self.rest();
        }
        panic!("the rest of {} entries never comes", entries.len());
    }

    fn is_there(&mut self, at: Position) -> bool {
        for _ in 0..20 {
            match self.store.lookup(at, &mut self.out) {
                Lookup::Found(_) => return true,
                Lookup::Lost => panic!("{at:?} is lost"),
                Lookup::Pending => self.rest(),
            }
        }
        false
    }

    /// Events since the last call that a shard has to act upon, or an operator has to know.
    fn told(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.events);
        events.retain(|event| {
            !matches!(event, Event::MessageReady(_) | Event::LaneReady(_) | Event::Checkpointed(_))
        });
        events
    }
}

#[test]
fn a_message_is_waited_for_while_reads_fail_with_pauses_and_told_at_both_ends() {
    for error in [DiskError::Failed, DiskError::Busy] {
        let mut world = World::filled(2000);
        let entries = world.entries();
        let (first, last) = (entries[0].position, entries[1999].position);
        world.fail(is_segment_read, error);
        assert!(!world.is_there(first) && !world.is_there(last));
        world.told();
        let before = world.failures;
        world.pass(Duration::from_secs(50));
        let tries = world.failures - before;
        assert!((2 * 20..2 * 60).contains(&tries), "{tries} tries for two messages in 50 s");
        assert_eq!(world.told(), [], "nothing new, and no damage");
        assert_eq!(world.store.figures().waiting_reads, 2);
        // Who waits is told only when there is something.
        let mut asked_again = Vec::new();
        world.store.take_events(&mut asked_again);
        assert_eq!(asked_again, []);
        world.fails = None;
        world.pass(Duration::from_secs(3));
        let told = world.told();
        assert!(
            matches!(told[..], [Event::ReadsWork { failures, time }]
                if failures >= tries && time >= Duration::from_secs(50)),
            "{told:?}"
        );
        assert!(world.is_there(first) && world.is_there(last));
        assert_eq!(world.store.figures().waiting_reads, 0);
        assert_eq!(world.entries().len(), 2000);
    }
}

#[test]
fn a_disk_of_which_nothing_can_be_read_for_the_limit_stops_the_store_and_nothing_is_damaged() {
    let mut world = World::filled(2000);
    let first = world.entries()[0].position;
    world.fail(is_segment_read, DiskError::Failed);
    assert!(!world.is_there(first));
    world.pass(Duration::from_secs(58));
    let told = world.told();
    assert!(matches!(told[..], [Event::ReadsFail(..)]), "{told:?}");
    world.pass(Duration::from_secs(5));
    let told = world.told();
    assert!(matches!(told[..], [Event::Stopped(File::Segment(..), DiskError::Failed)]), "{told:?}");
    let failures = world.failures;
    world.pass(Duration::from_secs(60));
    assert_eq!(world.failures, failures, "it is not tried any more");
}

#[test]
fn a_lack_of_means_is_waited_for_without_end() {
    let mut world = World::filled(2000);
    let first = world.entries()[0].position;
    world.fail(|_| true, DiskError::Busy);
    assert!(!world.is_there(first));
    world.append(2000..2001);
    world.store.want_synced();
    world.pass(Duration::from_secs(600));
    let told = world.told();
    assert!(matches!(told[..], [Event::ReadsFail(..)]), "{told:?}");
    world.fails = None;
    world.pass(Duration::from_secs(5));
    assert!(world.is_there(first));
    assert_eq!(world.store.synced(), world.store.end());
    assert_eq!(world.entries().len(), 2001);
}

/// How long means were lacking says nothing of the place that cannot be read afterwards.
#[test]
fn a_failure_after_a_long_lack_of_means_is_the_first_of_its_own() {
    for which in [is_segment_read, is_read] {
        let mut world = World::filled(2000);
        let first = world.entries()[0].position;
        world.fail(which, DiskError::Busy);
        assert!(!world.is_there(first));
        world.pass(Duration::from_secs(100));
        world.fail(which, DiskError::Failed);
        world.pass(Duration::from_secs(50));
        let told = world.told();
        assert!(matches!(told[..], [Event::ReadsFail(..)]), "{told:?}");
        world.fails = None;
        world.pass(Duration::from_secs(3));
        assert!(world.is_there(first));
        assert_eq!(world.entries().len(), 2000);
    }
}

/// Whether this reads a byte of a segment that lies `at` there.
fn reads_at(action: &Action, at: u64) -> bool {
    match action {
        Action::Read { file: File::Segment(..), offset, length } => {
            (*offset..*offset + *length as u64).contains(&at)
        }
        _ => false,
    }
}

/// Has one message counted as damaged, because its place of the disk cannot be read while others can.
fn with_one_bad_place(world: &mut World, number: usize) -> Entry {
    let entries = world.entries();
    let bad = entries[number];
    let at = u64::from(offset(bad.position));
    world.fail(move |action| reads_at(action, at), DiskError::Failed);
    assert!(!world.is_there(bad.position));
    // Its neighbours are not held up.
    assert!(world.is_there(entries[number + 1].position));
    world.pass(Duration::from_secs(30));
    assert!(world.is_there(entries[1000].position));
    world.pass(Duration::from_secs(32));
    assert_eq!(world.store.lookup(bad.position, &mut world.out), Lookup::Lost);
    world.rest();
    let told = world.told();
    assert!(told.iter().any(|event| matches!(event, Event::Damaged(_))), "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, Event::Stopped(..))), "{told:?}");
    let lane = world.lane();
    world.store.set_aside(lane, bad.seq, bad.bytes);
    bad
}

#[test]
fn one_place_that_cannot_be_read_is_stepped_over_and_kept_while_others_can() {
    let mut world = World::filled(2000);
    let lane = world.lane();
    let (count, bytes) = world.store.count(lane);
    let bad = with_one_bad_place(&mut world, 5);
    assert_eq!(world.store.count(lane), (count - 1, bytes - u64::from(bad.bytes)));
    assert_eq!(world.store.figures().damaged, 1);
    assert!(world.store.has_set_aside(QueueId(1)));
    let entries = world.entries();
    assert!(entries.len() == 1999 && entries.iter().all(|entry| entry.seq != bad.seq));
    // It is not settled: a later run has it again, whether this one ends in order or not.
    world.fails = None;
    world.restart();
    let lane = world.lane();
    assert_eq!(world.store.count(lane), (count, bytes));
    assert!(world.is_there(bad.position));
}

#[test]
fn what_was_set_aside_keeps_its_segment_and_goes_with_a_purge() {
    let mut world = World::filled(2000);
    let lane = world.lane();
    let bad = with_one_bad_place(&mut world, 5);
    for entry in world.entries() {
        world.store.settle(lane, entry.seq, entry.position, entry.bytes);
    }
    world.pass(Duration::from_secs(60));
    assert_eq!(world.store.count(lane), (0, 0));
    let held: u64 = world.store.segment_counts().map(|(_, counts)| counts.references[0]).sum();
    assert_eq!(held, 1);
    world.store.purge(lane, 2000, &[]);
    world.pass(Duration::from_secs(60));
    let held: u64 = world.store.segment_counts().map(|(_, counts)| counts.references[0]).sum();
    assert_eq!((held, world.store.figures().damaged), (0, 0), "{bad:?}");
}

#[test]
fn an_index_page_that_cannot_be_read_is_waited_for_and_not_put_together_from_the_log() {
    let mut world = World::filled(20_000);
    let lane = world.lane();
    world.fail(is_index_read, DiskError::Failed);
    let before = world.read_bytes;
    let mut entries = Vec::new();
    assert_eq!(world.store.fetch(lane, 1, &mut entries, &mut world.out), Fetch::Pending);
    world.pass(Duration::from_secs(50));
    assert_eq!(world.store.fetch(lane, 1, &mut entries, &mut world.out), Fetch::Pending);
    assert!(entries.is_empty());
    assert!(world.read_bytes < before + 4096, "the log is read");
    assert!(world.failures < 60, "{} tries", world.failures);
    world.fails = None;
    world.pass(Duration::from_secs(3));
    assert_eq!(world.entries().len(), 20_000);
    let told = world.told();
    assert!(matches!(told[..], [Event::ReadsFail(..), Event::ReadsWork { .. }]), "{told:?}");
}

#[test]
fn a_damaged_page_is_put_together_when_the_log_can_be_read_again_and_misses_nothing() {
    let mut world = World::filled(20_000);
    let lane = world.lane();
    world.disk.flip(File::Index(LOG), 100, 3);
    world.fail(is_segment_read, DiskError::Failed);
    let mut entries = Vec::new();
    assert_eq!(world.store.fetch(lane, 1, &mut entries, &mut world.out), Fetch::Pending);
    world.pass(Duration::from_secs(50));
    assert_eq!(world.store.fetch(lane, 1, &mut entries, &mut world.out), Fetch::Pending);
    assert!(entries.is_empty());
    world.fails = None;
    world.pass(Duration::from_secs(3));
    let numbers: Vec<u64> = world.entries().iter().map(|entry| entry.seq).collect();
    assert_eq!(numbers, (0..20_000).collect::<Vec<_>>());
    let told = world.told();
    assert!(!told.iter().any(|event| matches!(event, Event::Missing(..))), "{told:?}");
}

#[test]
fn an_index_that_is_lost_as_a_whole_is_put_together_in_few_passes_over_the_log() {
    let mut world = World::filled(20_000);
    let length = world.disk.data(File::Index(LOG)).expect("there is an index").len();
    let pages = length / 4096;
    assert!(pages > 20, "{pages}");
    world.disk.put(File::Index(LOG), Vec::new());
    let log_bytes: usize = world
        .disk
        .files()
        .filter(|(file, _)| matches!(file, File::Segment(..)))
        .map(|(_, length)| length as usize)
        .sum();
    let before = world.read_bytes;
    assert_eq!(world.entries().len(), 20_000);
    let read = (world.read_bytes - before) as usize;
    assert!(read <= (pages / 64 + 2) * log_bytes, "{read} bytes of a log of {log_bytes}");
}

#[test]
fn what_is_not_written_yet_counts_when_a_page_is_put_together() {
    let mut world = World::empty();
    world.append(0..16);
    let is_log_write =
        |action: &Action| matches!(action, Action::Write { file: File::Segment(..), .. });
    world.held = Some(Box::new(is_log_write));
    world.append(17..4000);
    world.rest();
    assert!(world.store.unwritten_bytes() > 100_000);
    let pages = world.disk.data(File::Index(LOG)).map_or(0, <[u8]>::len) / 4096;
    assert!(pages > 1, "{pages}");
    for page in 0..pages {
        world.disk.flip(File::Index(LOG), page * 4096 + 100, 3);
    }
    let lane = world.lane();
    let counted = world.store.count(lane).0;
    assert_eq!(world.entries().len() as u64, counted);
    let told = world.told();
    assert!(!told.iter().any(|event| matches!(event, Event::Missing(..))), "{told:?}");
}

#[test]
fn messages_that_a_damaged_page_had_and_no_segment_has_are_told() {
    let mut world = World::filled(20_000);
    world.disk.flip(File::Index(LOG), 100, 3);
    // The page has the first messages, which are in the first segment.
    let segments = world.disk.files().map(|(file, _)| file);
    let segments = segments.filter(|file| matches!(file, File::Segment(..)));
    let generation = |file: &File| {
        let bytes = world.disk.data(*file).expect("it is there");
        (bytes[..8] == *b"LEPUSSEG").then(|| u32::from_le_bytes(bytes[16..20].try_into().unwrap()))
    };
    let first = segments.filter(|file| generation(file).is_some()).min_by_key(generation);
    world.disk.put(first.expect("there are some"), vec![0; SEGMENT_BYTES as usize]);
    let count = world.entries().len() as u64;
    let told = world.told();
    let missing: u64 = told
        .iter()
        .map(|event| if let Event::Missing(_, count) = event { *count } else { 0 })
        .sum();
    assert!(missing > 0 && count + missing == 20_000, "{missing} missing, {count} there");
}

/// The only message that anybody asks for lies where the disk gives nothing.
#[test]
fn one_bad_place_stops_no_store_in_which_nobody_reads_anything_else() {
    let mut world = World::filled(2000);
    let bad = world.entries()[5];
    let at = u64::from(offset(bad.position));
    world.fail(move |action| reads_at(action, at), DiskError::Failed);
    assert!(!world.is_there(bad.position));
    world.pass(Duration::from_secs(62));
    assert_eq!(world.store.lookup(bad.position, &mut world.out), Lookup::Lost);
    world.rest();
    let told = world.told();
    assert!(told.iter().any(|event| matches!(event, Event::Damaged(_))), "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, Event::Stopped(..))), "{told:?}");
    assert!(world.failures < 100, "{}", world.failures);
}

/// Beside a sector that the disk does not give, everything counts.
#[test]
fn a_damaged_page_is_put_together_but_for_what_lies_in_the_sector_that_cannot_be_read() {
    let mut world = World::filled(20_000);
    let bad = world.entries()[1000];
    let sector = u64::from(offset(bad.position)) / 4096 * 4096;
    let (_, file, _) = world.store.record_place(bad.position).expect("it has a place");
    world.restart();
    world.disk.put(File::Index(LOG), Vec::new());
    world.fail(
        move |action| match action {
            Action::Read { file: read, offset, length } if *read == file => {
                *offset < sector + 4096 && *offset + *length as u64 > sector
            }
            _ => false,
        },
        DiskError::Failed,
    );
    let lane = world.lane();
    let mut entries = Vec::new();
    assert_eq!(world.store.fetch(lane, 1, &mut entries, &mut world.out), Fetch::Pending);
    world.pass(Duration::from_secs(130));
    let entries = world.entries();
    let missing = 20_000 - entries.len();
    let told = world.told();
    assert!((1..100).contains(&missing), "{missing} are missing: {told:?}");
    assert!(told.iter().any(|event| matches!(event, Event::Missing(..))), "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, Event::Stopped(..))), "{told:?}");
}

/// A log with so many queues, each of which has a page in the index file, opened again. Messages are in all of them.
fn with_pages(queues: u64) -> (World, Vec<LaneSlot>) {
    let mut world = World::empty();
    let lane = |world: &mut World, queue| world.store.lane(Lane::of(QueueId(queue + 1)));
    let lanes: Vec<LaneSlot> = (0..queues).map(|queue| lane(&mut world, queue)).collect();
    for seq in 0..1200 {
        let places: Vec<Place> = lanes.iter().map(|lane| place(*lane, seq)).collect();
        let message = Message { routing_key: b"q", body: &[7; 20], ..Message::default() };
        while world.store.append(&message, &places).is_err() {
            world.rest();
        }
        world.store.want_durable();
        world.rest();
    }
    world.restart();
    let lanes = (0..queues).map(|queue| lane(&mut world, queue)).collect();
    (world, lanes)
}

/// Where in the index file pages are read, of what was asked for.
fn pages_asked(world: &World) -> Vec<u64> {
    let at = |operation: &Operation| match operation.action {
        Action::Read { file: File::Index(_), offset, .. } => Some(offset),
        _ => None,
    };
    world.out.list.iter().filter_map(at).collect()
}

#[test]
fn pages_that_wait_are_asked_for_once_and_made_again_a_few_in_each_turn() {
    const QUEUES: u64 = 150;
    const TURN_MAX: usize = 64;
    let (mut world, lanes) = with_pages(QUEUES);
    world.fail(is_index_read, DiskError::Failed);
    let fetch = |world: &mut World| {
        for &lane in &lanes {
            let got = world.store.fetch(lane, 1, &mut Vec::new(), &mut world.out);
            assert_eq!(got, Fetch::Pending);
        }
        pages_asked(world).len()
    };
    assert_eq!(fetch(&mut world), lanes.len());
    assert_eq!(fetch(&mut world), lanes.len(), "they are being read");
    for operation in std::mem::take(&mut world.out.list) {
        world.carry_out(operation);
    }
    world.rest();
    assert_eq!(fetch(&mut world), 0, "they wait");
    assert!(world.store.next_timeout() > world.now.instant);
    for _ in 0..3 {
        world.now = Now::from_millis(world.now.instant.0 / 1_000_000 + 2000);
        let mut again = Vec::new();
        for _ in 0..lanes.len().div_ceil(TURN_MAX) {
            assert!(world.store.next_timeout() <= world.now.instant, "there is more to do");
            world.store.flush(world.now, &mut world.out);
            let asked = pages_asked(&world);
            assert!(asked.len() <= TURN_MAX, "{} reads in one turn", asked.len());
            again.extend(asked);
            assert_eq!(world.store.figures().waiting_reads, lanes.len(), "none is forgotten");
            for operation in std::mem::take(&mut world.out.list) {
                world.carry_out(operation);
            }
        }
        world.rest();
        assert!(world.store.next_timeout() > world.now.instant, "nothing more is to be done");
        assert_eq!(again.len(), lanes.len(), "each once");
        again.sort_unstable();
        again.dedup();
        assert_eq!(again.len(), lanes.len(), "each");
    }
    world.fails = None;
    world.pass(Duration::from_secs(3));
    assert_eq!(world.store.figures().waiting_reads, 0);
    for lane in lanes {
        let got = world.store.fetch(lane, 1, &mut Vec::new(), &mut world.out);
        assert_eq!(got, Fetch::Done);
    }
}

/// Who waited for a message has gone when it can be read again, so nobody looks at it then.
#[test]
fn a_failure_long_after_another_is_the_first_of_its_own() {
    let mut world = World::filled(2000);
    let entries = world.entries();
    let (first, other) = (entries[0].position, entries[1999].position);
    world.fail(is_segment_read, DiskError::Failed);
    assert!(!world.is_there(first));
    world.pass(Duration::from_secs(1));
    world.fails = None;
    world.pass(Duration::from_secs(120));
    let told = world.told();
    assert!(matches!(told[..], [Event::ReadsFail(..), Event::ReadsWork { .. }]), "{told:?}");
    assert!(world.is_there(other));
    world.fail(is_segment_read, DiskError::Failed);
    assert!(!world.is_there(first), "it waits");
    world.fails = None;
    world.pass(Duration::from_secs(1));
    assert!(world.is_there(first));
    let told = world.told();
    assert!(matches!(told[..], [Event::ReadsFail(..), Event::ReadsWork { .. }]), "{told:?}");
}

/// The bytes that say how long a record is can be read all the time.
#[test]
fn a_record_of_which_a_part_can_be_read_is_given_up_after_the_limit_all_the_same() {
    let mut world = World::filled(2000);
    let bad = world.entries()[5].position;
    let at = u64::from(offset(bad)) + 20;
    world.fail(move |action| reads_at(action, at), DiskError::Failed);
    let mut seconds = 0;
    while world.store.lookup(bad, &mut world.out) == Lookup::Pending {
        assert!(seconds < 100, "it is never given up");
        seconds += 1;
        world.pass(Duration::from_secs(1));
    }
    assert!((58..=66).contains(&seconds), "after {seconds} s");
    assert_eq!(world.store.lookup(bad, &mut world.out), Lookup::Lost);
}

#[test]
fn an_index_that_is_gone_when_its_read_is_made_again_fails_no_more() {
    let mut world = World::filled(20_000);
    let lane = world.lane();
    world.fail(is_index_read, DiskError::Failed);
    let got = world.store.fetch(lane, 1, &mut Vec::new(), &mut world.out);
    assert_eq!(got, Fetch::Pending);
    world.pass(Duration::from_secs(1));
    world.fail(is_index_read, DiskError::NotFound);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.store.figures().waiting_reads, 0);
    let told = world.told();
    assert!(told.iter().any(|event| matches!(event, Event::ReadsWork { .. })), "{told:?}");
    world.fails = None;
    assert_eq!(world.entries().len(), 20_000);
}
