//! An index that could not be opened to be synced is synced for the next checkpoint: a loss of power behind that one
//! damages no page.

use lepus_base::{Now, QueueId};
use lepus_store::disk::{Action, Completion, DiskError, File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Event, Lane, Message, Place, Settings, Store};

const MESSAGES: u64 = 20_000;

struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    millis: u64,
    /// So many syncs of the index find no descriptor.
    busy: u64,
}

impl World {
    fn pass(&mut self, millis: u64) {
        for _ in 0..=millis / 10 {
            self.millis += 10;
            let now = Now::from_millis(self.millis);
            self.store.work(now, &mut self.out);
            self.store.flush(now, &mut self.out);
            for operation in std::mem::take(&mut self.out.list) {
                let is_sync = matches!(operation.action, Action::Sync(File::Index(_)));
                let completion = if is_sync && self.busy > 0 {
                    self.busy -= 1;
                    Completion::failed(operation.id, DiskError::Busy)
                } else {
                    self.disk.submit(&mut vec![operation]);
                    self.disk.step().expect("it was submitted")
                };
                self.store.complete(now, completion, &mut self.out);
            }
        }
    }
}

#[test]
fn pages_are_synced_before_a_checkpoint_names_them_though_that_failed_once() {
    let settings =
        Settings { segment_bytes: 64 << 10, index_pages_max: 0, ..Settings::new(LogId(1)) };
    let mut out = Operations::default();
    let store = Store::open(settings, &mut out);
    let mut world = World { store, disk: Disk::new(3), out, millis: 1, busy: 0 };
    world.pass(100);
    let mut sent = 0;
    while sent < MESSAGES {
        let lane = world.store.lane(Lane::of(QueueId(1 + sent % 2)));
        let place = Place { lane, seq: world.store.next_seq(lane), deadline_millis: 0 };
        let body = vec![7; (sent % 50) as usize];
        match world.store.append(&Message { body: &body, ..Message::default() }, &[place]) {
            Ok(_) => sent += 1,
            Err(_) => world.pass(10),
        }
    }
    world.pass(3_000);
    world.busy = 1;
    let before = world.store.figures().checkpoints;
    world.store.request_checkpoint();
    world.pass(3_000);
    assert!(world.busy == 0 && world.store.figures().checkpoints > before);
    world.disk.crash();
    world.out = Operations::default();
    world.store = Store::open(settings, &mut world.out);
    world.pass(100);
    let lane = world.store.lane(Lane::of(QueueId(1)));
    let mut entries = Vec::new();
    for _ in 0..100 {
        let _ = world.store.fetch(lane, 1_000, &mut entries, &mut world.out);
        world.pass(10);
    }
    assert_eq!(entries.len() as u64, MESSAGES / 2);
    let mut events = Vec::new();
    world.store.take_events(&mut events);
    assert!(!events.iter().any(|event| matches!(event, Event::Damaged(_))), "{events:?}");
}
