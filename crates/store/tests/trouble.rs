//! What the disk refuses is tried again after a pause, and not for ever unless the disk is full.

use lepus_base::{Now, QueueId};
use lepus_store::disk::{Action, Completion, DiskError, File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Event, Fetch, Lane, LaneSlot, Message, Place, Settings, Store, SyncMode};

const LOG: LogId = LogId(1);
/// A message comes every so many milliseconds, and is of one of these lengths.
const MESSAGE_INTERVAL_MILLIS: u64 = 2;
const LENGTHS: [usize; 3] = [1, 30, 60];

/// A store whose disk takes a millisecond for whatever it is asked for at one time.
struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    now: Now,
    millis: u64,
    lane: LaneSlot,
    appended: u64,
    /// No message comes.
    is_idle: bool,
    stopped: Option<(File, DiskError)>,
    /// Operations that were refused.
    refused: u64,
    settings: Settings,
    /// The number of the checkpoint that is valid.
    valid: u64,
}

impl World {
    fn new() -> World {
        World::with(SyncMode::Always)
    }

    fn with(sync: SyncMode) -> World {
        World::open(Settings { sync, ..settings() })
    }

    fn open(settings: Settings) -> World {
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        let now = Now::from_millis(1);
        let (mut disk, stopped) = (Disk::new(3), None);
        while !store.is_running() {
            disk.submit(&mut out.list);
            let completion = disk.step().expect("recovery goes on");
            store.complete(now, completion, &mut out);
        }
        let lane = store.lane(Lane::of(QueueId(1)));
        let (millis, appended, refused) = (1, 0, 0);
        let (is_idle, valid) = (false, 0);
        World {
            store,
            disk,
            out,
            now,
            millis,
            lane,
            appended,
            is_idle,
            stopped,
            refused,
            settings,
            valid,
        }
    }

    /// The run ends as by a kill when all is synced that was appended, and another one begins.
    fn restart(&mut self) {
        assert_eq!(self.store.synced(), self.store.end());
        self.disk.kill();
        self.out.list.clear();
        self.store = Store::open(self.settings, &mut self.out);
        while !self.store.is_running() {
            self.disk.submit(&mut self.out.list);
            let completion = self.disk.step().expect("recovery goes on");
            self.store.complete(self.now, completion, &mut self.out);
        }
        self.lane = self.store.lane(Lane::of(QueueId(1)));
    }

    /// Lets time pass, with messages, while the disk refuses `which` so.
    fn pass(&mut self, millis: u64, which: impl Fn(&Action) -> bool, error: DiskError) {
        for _ in 0..millis {
            self.millis += 1;
            self.now = Now::from_millis(self.millis);
            if !self.is_idle && self.millis.is_multiple_of(MESSAGE_INTERVAL_MILLIS) {
                self.append();
            }
            self.store.flush(self.now, &mut self.out);
            self.store.work(self.now, &mut self.out);
            for operation in std::mem::take(&mut self.out.list) {
                let completion = if which(&operation.action) {
                    self.refused += 1;
                    Completion::failed(operation.id, error)
                } else {
                    self.disk.submit(&mut vec![operation]);
                    self.disk.step().expect("it was submitted")
                };
                self.store.complete(self.now, completion, &mut self.out);
            }
            let mut events = Vec::new();
            self.store.take_events(&mut events);
            for event in events {
                match event {
                    Event::Stopped(file, error) => {
                        self.stopped.get_or_insert((file, error));
                    }
                    Event::Checkpointed(number) => self.valid = number,
                    _ => {}
                }
            }
        }
    }

    fn append(&mut self) {
        let body = [7; 60];
        let message = Message {
            body: &body[..LENGTHS[self.appended as usize % LENGTHS.len()]],
            ..Message::default()
        };
        // An expiry that changes takes room in the index.
        let deadline_millis = 1 + self.millis * (self.appended % 1000);
        let place = Place { lane: self.lane, seq: self.appended, deadline_millis };
        if self.store.append(&message, &[place]).is_ok() {
            self.appended += 1;
        }
        self.store.want_durable();
    }

    /// Files that are there and that the store does not count, and checkpoints.
    fn files(&self) -> (usize, usize) {
        let figures = self.store.figures();
        let known = figures.segments + figures.spare_segments;
        let count =
            |which: fn(&File) -> bool| self.disk.files().filter(|(file, _)| which(file)).count();
        let segments = count(|file| matches!(file, File::Segment(..)));
        (segments.saturating_sub(known), count(|file| matches!(file, File::Checkpoint(..))))
    }

    /// The messages that are found, once the disk is well.
    fn count(&mut self) -> u64 {
        self.store.rewind(self.lane, 0);
        let mut entries = Vec::new();
        while self.store.fetch(self.lane, usize::MAX, &mut entries, &mut self.out) == Fetch::Pending
        {
            self.pass(1, |_| false, DiskError::Failed);
        }
        entries.len() as u64
    }
}

fn settings() -> Settings {
    Settings {
        segment_bytes: 8192,
        batch_bytes_max: 4096,
        index_pages_max: 0,
        checkpoint_log_bytes: 20_000,
        ..Settings::new(LOG)
    }
}

fn is_index_write(action: &Action) -> bool {
    matches!(action, Action::Write { file: File::Index(_), .. })
}

fn is_checkpoint_write(action: &Action) -> bool {
    matches!(action, Action::Write { file: File::Checkpoint(..), .. })
}

fn is_root_write(action: &Action) -> bool {
    matches!(action, Action::Write { file: File::Root(_), .. })
}

fn is_new_segment(action: &Action) -> bool {
    matches!(action, Action::Create { .. })
}

fn is_reserve(action: &Action) -> bool {
    matches!(action, Action::Reserve { .. })
}

fn is_checkpoint_sync(action: &Action) -> bool {
    matches!(action, Action::Sync(File::Checkpoint(..)))
}

fn is_directory_sync(action: &Action) -> bool {
    matches!(action, Action::SyncDirectory(_))
}

/// Says which operations are meant.
type Which = fn(&Action) -> bool;

const KINDS: [(&str, Which); 5] = [
    ("index pages", is_index_write),
    ("checkpoints", is_checkpoint_write),
    ("the root", is_root_write),
    ("new segments", is_new_segment),
    ("the directory", is_directory_sync),
];

#[test]
fn what_finds_the_disk_full_is_tried_again_once_a_second_until_it_has_room() {
    for (name, which) in KINDS {
        let mut world = World::new();
        world.pass(60_000, which, DiskError::Full);
        // More kinds of files than one may need a name in the directory.
        assert!(
            (30..=130).contains(&world.refused),
            "{name}: {} operations in 60 s",
            world.refused
        );
        assert_eq!(world.stopped, None, "{name}");
        let before = world.appended;
        world.pass(5_000, |_| false, DiskError::Full);
        assert!(world.appended > before, "{name}: no message is taken");
        assert_eq!(world.store.end(), world.store.synced(), "{name}");
        assert_eq!(world.count(), world.appended, "{name}");
    }
}

/// What is made for a try is used for the next one, or goes before that.
#[test]
fn what_is_tried_again_and_again_leaves_no_files() {
    // Each checkpoint has a file of its own.
    let settings = Settings { checkpoint_delta_bytes_min: 0, ..settings() };
    for error in [DiskError::Full, DiskError::Busy] {
        for (name, which) in KINDS {
            for before in [0, 5_000] {
                let mut world = World::open(settings);
                world.pass(before, |_| false, error);
                for second in 0..20 {
                    world.pass(1_000, which, error);
                    let (unknown, checkpoints) = world.files();
                    let what = format!("{name}, {error:?}, {second} s after {before} ms");
                    assert!(unknown <= 1, "{what}: {unknown} segments that nobody knows");
                    assert!(checkpoints <= 2, "{what}: {checkpoints} checkpoints");
                }
                assert!(world.refused >= 10, "{name}, {error:?}: {} refused", world.refused);
                world.is_idle = true;
                world.pass(15_000, |_| false, error);
                let (unknown, checkpoints) = world.files();
                assert!(unknown == 0 && checkpoints <= 2, "{name}, {error:?}: in the end");
                assert_eq!((world.stopped, world.count()), (None, world.appended), "{name}");
            }
        }
    }
}

#[test]
fn what_fails_otherwise_is_given_up_and_the_log_stops_with_the_file() {
    for (name, which) in KINDS {
        let mut world = World::new();
        world.pass(60_000, which, DiskError::Failed);
        // Several may be under way together.
        assert!(world.refused <= 20, "{name}: {} operations", world.refused);
        assert!(matches!(world.stopped, Some((_, DiskError::Failed))), "{name}: it goes on");
    }
}

#[test]
fn a_log_that_has_stopped_is_due_for_nothing() {
    for (name, which) in KINDS {
        // It wants room for a checkpoint when it stops, which nobody gives.
        let mut world = World::new();
        world.pass(20_000, is_reserve, DiskError::Full);
        assert!(world.refused > 0, "{name}: it asks for room");
        world.pass(60_000, which, DiskError::Failed);
        assert!(world.stopped.is_some(), "{name}: it goes on");
        let (now, due) = (world.now.instant, world.store.next_timeout());
        assert!(due > now, "{name}: due at {due:?}, and it is {now:?}");
        let before = world.refused;
        world.pass(10_000, |_| true, DiskError::Failed);
        assert_eq!(world.refused, before, "{name}: operations after it has stopped");
    }
}

#[test]
fn a_place_in_the_index_that_cannot_be_written_is_left() {
    let mut world = World::new();
    let is_first_page =
        |action: &Action| matches!(action, Action::Write { file: File::Index(_), offset: 0, .. });
    world.pass(20_000, is_first_page, DiskError::Failed);
    assert_eq!((world.refused, world.stopped), (1, None));
    assert_eq!(world.count(), world.appended);
}

/// A file of a checkpoint takes nothing for ever, or nothing of it can be synced: the valid one's, which the run that
/// meets it leaves to another run, or that of the next one.
fn meet_a_bad_file(settings: Settings, is_valid_one: bool, is_sync: bool, error: DiskError) {
    let mut world = World::open(settings);
    world.pass(3_000, |_| false, error);
    let what = format!("valid one {is_valid_one}, sync {is_sync}, {error:?}");
    let bad = world.valid + u64::from(!is_valid_one);
    let fails = |action: &Action| match action {
        Action::Write { file, .. } => !is_sync && *file == File::Checkpoint(LOG, bad),
        Action::Sync(file) => is_sync && *file == File::Checkpoint(LOG, bad),
        _ => false,
    };
    if is_valid_one {
        while world.refused == 0 {
            world.pass(1, fails, error);
        }
        assert_eq!(world.valid, bad, "{what}");
        world.restart();
    }
    world.pass(20_000, fails, error);
    assert_eq!(world.stopped, None, "{what}");
    assert!(world.valid > bad, "{what}: {} is valid", world.valid);
    // Each run meets it once.
    assert_eq!(world.refused, 1 + u64::from(is_valid_one), "{what}");
    world.pass(10, |_| false, error);
    assert_eq!(world.count(), world.appended, "{what}");
}

#[test]
fn a_file_of_a_checkpoint_that_cannot_be_written_any_more_is_left_in_each_run() {
    // Most checkpoints go behind the valid one, or each has a file of its own.
    let anew = Settings { checkpoint_delta_bytes_min: 0, ..settings() };
    for is_sync in [false, true] {
        for error in [DiskError::Failed, DiskError::NotFound] {
            meet_a_bad_file(settings(), true, is_sync, error);
            meet_a_bad_file(anew, false, is_sync, error);
        }
    }
}

#[test]
fn a_file_in_which_no_room_can_be_taken_for_a_checkpoint_is_left() {
    let anew = Settings { checkpoint_delta_bytes_min: 0, ..settings() };
    let mut world = World::open(anew);
    world.pass(3_000, |_| false, DiskError::Failed);
    // The first one that is met, by its old name or its new one.
    let bad = std::cell::Cell::new(None);
    let fails = |action: &Action| match *action {
        Action::Reserve { from, file, .. } => {
            let (old, new) = bad.get().unwrap_or((from, file));
            bad.set(Some((old, new)));
            file == new || (from.is_some() && from == old)
        }
        _ => false,
    };
    let before = world.valid;
    world.pass(20_000, fails, DiskError::Failed);
    assert_eq!((world.refused, world.stopped), (1, None));
    assert!(world.valid > before);
    world.is_idle = true;
    world.pass(15_000, |_| false, DiskError::Failed);
    let (_, checkpoints) = world.files();
    assert!(checkpoints <= 2, "{checkpoints} checkpoints");
    assert_eq!(world.count(), world.appended);
}

#[test]
fn a_write_that_found_no_room_once_keeps_nobody_waiting_once_it_is_done() {
    let mut world = World::new();
    world.pass(100, |_| false, DiskError::Full);
    let is_write = |action: &Action| matches!(action, Action::Write { .. });
    world.pass(20, is_write, DiskError::Full);
    assert!(world.store.is_out_of_disk());
    world.is_idle = true;
    world.pass(3_000, |_| false, DiskError::Full);
    assert!(!world.store.is_out_of_disk());
}

#[test]
fn what_was_written_is_synced_in_time_also_while_a_write_waits_to_be_made_again() {
    let is_write = |action: &Action| matches!(action, Action::Write { .. });
    for error in [DiskError::Full, DiskError::Busy] {
        let mut world = World::with(SyncMode::Interval);
        world.pass(400, |_| false, error);
        for _ in 0..5_000 {
            world.pass(1, is_write, error);
            // At the end of a moment there is nothing left to do in it.
            let (due, now) = (world.store.next_timeout(), world.now.instant);
            assert!(due > now, "{error:?}: due at {due:?}, and it is {now:?}");
        }
    }
}

/// A lack of means may last: files of checkpoints that are not valid must not fill the disk meanwhile.
#[test]
fn checkpoints_that_lack_means_leave_no_files() {
    let kinds: [Which; 2] = [is_directory_sync, is_checkpoint_sync];
    for which in kinds {
        let mut world = World::new();
        world.pass(200, |_| false, DiskError::Busy);
        world.store.request_checkpoint();
        world.pass(30_000, which, DiskError::Busy);
        let is_checkpoint = |(file, _): &(File, u64)| matches!(file, File::Checkpoint(..));
        let files = world.disk.files().filter(is_checkpoint).count();
        assert!(world.refused >= 20 && files <= 3, "{files} files");
        world.pass(3_000, |_| false, DiskError::Busy);
        assert_eq!((world.count(), world.stopped), (world.appended, None));
    }
}
