//! Messages whose queue the definitions do not have: after an older copy of the definitions was
//! brought back, or a repair that could not read all of them.

use lepus_sim::World;
use lepus_store::disk::{File, LogId};

use crate::restart::{drain, durable, publish_confirmed};

const DEFINITIONS: LogId = LogId(0);

/// The files of the definitions.
fn definitions(world: &World) -> Vec<(File, Vec<u8>)> {
    world.disk(|disk| {
        let files = disk.files().filter(|(file, _)| file.log() == DEFINITIONS);
        let all = files.map(|(file, _)| (file, disk.data(file).unwrap_or_default().to_vec()));
        all.collect()
    })
}

/// Brings an older copy of the definitions back.
fn restore(world: &World, copy: &[(File, Vec<u8>)]) {
    for (file, _) in definitions(world) {
        world.disk(|disk| disk.put(file, Vec::new()));
    }
    for (file, bytes) in copy {
        world.disk(|disk| disk.put(*file, bytes.clone()));
    }
}

fn told(world: &World) -> Vec<String> {
    let events = world.events().into_iter();
    events.filter(|event| event.kind == "orphaned-messages").map(|event| event.text).collect()
}

fn orphaned(world: &World) -> u64 {
    (0..world.shards()).map(|at| world.broker(at, |broker| broker.journal.figures().orphaned)).sum()
}

#[test]
fn messages_of_a_queue_that_nobody_knows_are_kept_and_told_at_every_start() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        durable(&world.channel(0), "early");
        world.stop();
        let copy = definitions(&world);
        world.start_again(shards);
        let channel = world.channel(shards - 1);
        durable(&channel, "late");
        publish_confirmed(&channel, "late", 0..3);
        world.stop();
        restore(&world, &copy);
        for start in 0..3 {
            world.start_again(shards);
            let lines = told(&world);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains("3 messages of 1 queues"), "{lines:?}");
            assert_eq!(orphaned(&world), 3);
            let channel = world.channel(shards - 1);
            // A queue that comes later is another one, whatever it is called.
            let name = format!("other-{start}");
            for name in [&name, "late"] {
                durable(&channel, name);
                publish_confirmed(&channel, name, [7]);
                assert_eq!(drain(&world, name), [(7, false)]);
            }
            // What was taken is said on the disk.
            world.advance(2_000);
            if start == 1 {
                world.kill();
            } else {
                world.stop();
            }
        }
    }
}

/// The definitions have it that the queue is gone; its log, that the broker ended too early to say so.
#[test]
fn messages_of_a_queue_that_was_deleted_go_with_it() {
    for end in [World::kill, World::crash] {
        let world = World::on_disk(1);
        let channel = world.channel(0);
        for name in ["a", "b"] {
            durable(&channel, name);
            publish_confirmed(&channel, name, 0..10);
        }
        world.hold_log(LogId(1));
        channel.delete("a");
        end(&world);
        world.start_again(1);
        assert_eq!(told(&world), [""; 0]);
        assert_eq!(orphaned(&world), 0);
        assert_eq!(drain(&world, "b").len(), 10);
    }
}
