//! The simulated disk: what waits, what is kept, what is lost.

use lepus_amqp::method::queue;
use lepus_amqp::properties::Properties;
use lepus_sim::{Channel, World};
use lepus_store::disk::LogId;

fn declare(channel: &Channel, name: &str) {
    channel.declare_method(queue::Declare { queue: name, durable: true, ..Default::default() });
}

fn persistent() -> Properties {
    Properties { delivery_mode: Some(2), ..Properties::default() }
}

/// Ends the process in each way and starts another one.
fn after_each_end(check: impl Fn(&World, &dyn Fn())) {
    let ends: [fn(&World); 3] = [World::stop, World::kill, World::crash];
    for shards in [1, 2, 3] {
        for end in ends {
            let world = World::on_disk(2);
            check(&world, &|| {
                end(&world);
                world.start_again(shards);
            });
        }
    }
}

#[test]
fn a_durable_queue_is_there_after_each_end_and_a_transient_one_is_not() {
    after_each_end(|world, end| {
        let alice = world.channel(1);
        declare(&alice, "durable");
        alice.declare("transient");
        end();
        assert!(alice.client().is_ended());
        assert!(world.find_queue("/", "durable").is_some());
        assert_eq!(world.find_queue("/", "transient"), None);
    });
}

#[test]
fn a_confirmed_message_is_there_after_each_end() {
    after_each_end(|world, end| {
        let alice = world.channel(1);
        declare(&alice, "q");
        alice.confirm_select();
        alice.publish_with("", "q", &persistent(), "kept");
        assert_eq!(alice.confirmed(), (vec![1], vec![]));
        end();
        assert_eq!(world.queue("q").ready, 1);
        let bob = world.channel(0);
        bob.consume("q", "c");
        assert_eq!(bob.bodies(), ["kept"]);
    });
}

#[test]
fn a_confirm_waits_while_the_disk_is_held() {
    let world = World::on_disk(1);
    let alice = world.channel(0);
    declare(&alice, "q");
    alice.confirm_select();
    world.hold_disk();
    alice.publish_with("", "q", &persistent(), "waits");
    assert_eq!(alice.confirmed(), (vec![], vec![]));
    assert!(world.disk_waiting() > 0);
    world.release_disk();
    assert_eq!(alice.confirmed(), (vec![1], vec![]));
    assert_eq!(world.disk_waiting(), 0);
}

#[test]
fn a_slow_disk_takes_its_time() {
    let world = World::on_disk(1);
    let alice = world.channel(0);
    declare(&alice, "q");
    alice.confirm_select();
    world.slow_disk(5);
    alice.publish_with("", "q", &persistent(), "slowly");
    world.advance(4);
    assert_eq!(alice.confirmed(), (vec![], vec![]));
    world.advance(100);
    assert_eq!(alice.confirmed(), (vec![1], vec![]));
}

#[test]
fn what_each_log_writes_is_counted() {
    let world = World::on_disk(2);
    let before = (world.log_figures(LogId(1)), world.log_figures(LogId(2)));
    let alice = world.channel(1);
    declare(&alice, "q");
    alice.confirm_select();
    alice.publish_with("", "q", &persistent(), [7; 1000]);
    let after = (world.log_figures(LogId(1)), world.log_figures(LogId(2)));
    assert_eq!(before.0.written_bytes, after.0.written_bytes);
    let written = after.1.written_bytes - before.1.written_bytes;
    assert!((1000..20_000).contains(&written), "{written} bytes");
    assert_eq!(after.1.syncs, before.1.syncs + 1);
    assert!(world.disk_figures().written_bytes >= written);
}

#[test]
fn the_wall_clock_goes_on_when_a_process_starts_again() {
    let world = World::on_disk(1);
    world.advance(5000);
    let before = world.now();
    world.crash();
    world.start_again(1);
    assert!(world.now().wall_millis > before.wall_millis);
    assert!(world.now().instant < before.instant);
}
