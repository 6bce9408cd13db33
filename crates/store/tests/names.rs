//! Names of files: what was confirmed outlives a loss of power whichever run made the file it is in.

use lepus_base::{Now, QueueId};
use lepus_store::disk::{Action, LogId, Operation, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Event, Lane, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);

/// A store, its disk, and what it asked for that is not carried out.
struct Run {
    store: Store,
    out: Operations,
    held: Vec<Operation>,
    events: Vec<Event>,
}

impl Run {
    /// Opens the log and waits until the store is ready; what it asks for then is not carried out yet.
    fn start(settings: Settings, disk: &mut Disk) -> Run {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut run = Run { store, out, held: Vec::new(), events: Vec::new() };
        while !run.store.is_running() {
            assert!(run.turn(disk, |_| false), "the store waits for nothing and is not ready");
        }
        run
    }

    /// Carries out what was asked for, one after the other; what `holds` says of is kept back. False if
    /// there was nothing.
    fn turn(&mut self, disk: &mut Disk, holds: impl Fn(&Action) -> bool) -> bool {
        let asked = std::mem::take(&mut self.out.list);
        let is_busy = !asked.is_empty();
        for operation in asked {
            if holds(&operation.action) {
                self.held.push(operation);
                continue;
            }
            disk.submit(&mut vec![operation]);
            let completion = disk.step().expect("an operation was submitted");
            self.store.complete(Now::from_millis(1), completion, &mut self.out);
        }
        self.store.take_events(&mut self.events);
        is_busy
    }

    /// Flushes and carries out what is asked for until nothing is left.
    fn settle(&mut self, disk: &mut Disk, holds: impl Fn(&Action) -> bool) {
        loop {
            self.store.flush(Now::from_millis(1), &mut self.out);
            while self.store.work(Now::from_millis(1), &mut self.out) {}
            if !self.turn(disk, &holds) {
                return;
            }
        }
    }

    /// Appends a message and waits until it is durable. False if there is no room.
    fn confirm(&mut self, disk: &mut Disk, holds: impl Fn(&Action) -> bool) -> bool {
        let lane = self.store.lane(Lane::of(QueueId(1)));
        let seq = self.store.next_seq(lane);
        // Of many lengths, so that a page of the index is soon full.
        let body = vec![7; 100 + (seq * 37 % 900) as usize];
        let message = Message { exchange: b"", routing_key: b"q", properties: &[], body: &body };
        if self.store.append(&message, &[Place { lane, seq, deadline_millis: 0 }]).is_err() {
            return false;
        }
        self.store.want_durable();
        self.settle(disk, holds);
        self.store.durable() >= self.store.end()
    }

    fn count(&mut self) -> u64 {
        let lane = self.store.lane(Lane::of(QueueId(1)));
        self.store.count(lane).0
    }
}

fn names(action: &Action) -> bool {
    matches!(action, Action::SyncDirectory(_))
}

// A run is killed while the name of a segment is not on the disk yet. The next one finds the file,
// confirms a message in it, and the power fails before anything else is done.
#[test]
fn what_is_confirmed_in_a_file_of_the_run_before_outlives_a_loss_of_power() {
    for seed in 0..30 {
        let settings = Settings { segment_bytes: 8192, ..Settings::new(LOG) };
        let mut disk = Disk::new(seed);
        let mut run = Run::start(settings, &mut disk);
        run.settle(&mut disk, |_| false);
        // Of the files that are made from here on nobody knows the names after a loss of power.
        let mut confirmed = 0;
        while run.held.is_empty() {
            assert!(run.confirm(&mut disk, names), "a log on an empty disk has room");
            confirmed += 1;
        }
        disk.kill();

        let mut run = Run::start(settings, &mut disk);
        assert_eq!(run.count(), confirmed);
        assert!(run.confirm(&mut disk, names), "the file that was found has room");
        confirmed += 1;
        disk.crash();

        let mut run = Run::start(settings, &mut disk);
        assert_eq!(run.count(), confirmed, "seed {seed}");
        let is_damage = |event: &Event| matches!(event, Event::Damaged(_));
        assert!(!run.events.iter().any(is_damage), "seed {seed}: {:?}", run.events);
    }
}

// A checkpoint says of the first page of the index where it is; then the power fails.
#[test]
fn a_checkpoint_names_no_index_whose_name_is_not_on_the_disk() {
    for seed in 0..30 {
        // No page stays in memory, and segments are so long that none is made.
        let settings =
            Settings { index_pages_max: 0, segment_bytes: 8 << 20, ..Settings::new(LOG) };
        let mut disk = Disk::new(seed);
        let mut run = Run::start(settings, &mut disk);
        run.settle(&mut disk, |_| false);
        assert!(run.confirm(&mut disk, |_| false));
        let checkpoint = |run: &mut Run, disk: &mut Disk| {
            run.store.request_checkpoint();
            run.settle(disk, |_| false);
        };
        checkpoint(&mut run, &mut disk);
        let has_index = |disk: &Disk| {
            disk.files().any(|(file, _)| matches!(file, lepus_store::disk::File::Index(_)))
        };
        let mut confirmed = 1;
        while !has_index(&disk) {
            assert!(run.confirm(&mut disk, |_| false));
            confirmed += 1;
            assert!(confirmed < 10_000, "no page is ever written");
        }
        checkpoint(&mut run, &mut disk);
        disk.crash();

        let mut run = Run::start(settings, &mut disk);
        assert_eq!(run.count(), confirmed, "seed {seed}");
        run.settle(&mut disk, |_| false);
        let lane = run.store.lane(Lane::of(QueueId(1)));
        let mut entries = Vec::new();
        for _ in 0..1000 {
            let _ = run.store.fetch(lane, 100, &mut entries, &mut run.out);
            run.settle(&mut disk, |_| false);
        }
        let is_damage = |event: &Event| matches!(event, Event::Damaged(_));
        assert!(!run.events.iter().any(is_damage), "seed {seed}: {:?}", run.events);
    }
}
