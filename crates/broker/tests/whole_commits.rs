//! What a transaction publishes and what it acknowledges: together on the disk, or in an order that loses nothing; and
//! transactions that are refused as a whole.

use lepus_amqp::client::ClientOptions;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::tx;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};

use crate::restart::{drain, durable, durable_with, persistent, publish_confirmed};
use crate::stage::on_disk;

/// Has a transaction take so many messages of a queue to another one.
fn take_over(channel: &Channel, from: &str, to: &str, count: u32) {
    channel.tx_select();
    for _ in 0..count {
        let message = channel.get(from).expect("a message");
        channel.publish_raw("", to, true, &persistent().to_bytes(), message.text().as_bytes());
        channel.ack(message.tag);
    }
}

fn numbers(world: &World, queue: &str) -> Vec<u32> {
    drain(world, queue).iter().map(|found| found.0).collect()
}

/// A channel of a client that has its transactions refused as a whole.
fn strict(world: &World, shard: u16) -> Channel {
    let capabilities = Table::new().with("lepus.whole_transactions", true);
    let properties = Table::new().with("capabilities", capabilities);
    let options = ClientOptions { heartbeat: 0, properties, ..ClientOptions::default() };
    world.connect_with(shard, options).open().channel()
}

#[test]
fn what_was_committed_is_gone_from_where_it_was_however_the_run_ends() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "from");
        durable(&channel, "to");
        publish_confirmed(&world.channel(0), "from", 0..50);
        take_over(&channel, "from", "to", 20);
        channel.tx_commit();
        end.now(world);
        assert_eq!(numbers(world, "to"), (0..20).collect::<Vec<_>>());
        assert_eq!(numbers(world, "from"), (20..50).collect::<Vec<_>>());
    });
}

#[test]
fn a_commit_that_is_cut_off_has_taken_all_or_nothing() {
    let (mut went, mut stayed) = (0, 0);
    for seed in 0..60 {
        let store = StoreOptions { seed, ..StoreOptions::default() };
        let world = World::with(Options { store: Some(store), ..Options::default() });
        let channel = world.channel(0);
        durable(&channel, "from");
        durable(&channel, "to");
        publish_confirmed(&world.channel(0), "from", 0..30);
        take_over(&channel, "from", "to", 10);
        world.quietly(|| {
            channel.send(tx::Commit {});
            for _ in 0..seed % 6 {
                world.round();
            }
        });
        world.crash();
        world.start_again(1);
        match (numbers(&world, "from").len(), numbers(&world, "to").len()) {
            (30, 0) => stayed += 1,
            (20, 10) => went += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
        world.stop();
    }
    assert!(went > 5 && stayed > 5, "{went} went and {stayed} stayed");
}

/// A channel that has told its transaction to end, which takes three of five messages to a queue of another shard; the disk
/// does not answer yet.
fn committing_between_shards() -> (World, Channel) {
    let world = World::on_disk(2);
    let (near, far) = (world.channel(0), world.channel(1));
    near.declare_exclusive("anchor");
    far.declare_exclusive("other-anchor");
    durable(&near, "from");
    durable(&far, "to");
    publish_confirmed(&world.channel(0), "from", 0..5);
    take_over(&near, "from", "to", 3);
    world.hold_disk();
    near.send(tx::Commit {});
    (world, near)
}

#[test]
fn between_shards_nothing_is_acknowledged_before_it_is_on_the_disk_elsewhere() {
    let (world, near) = committing_between_shards();
    assert!(near.answer().is_none(), "the disk has not answered");
    assert_eq!(world.queue("from").unacked, 3);
    world.release_disk();
    near.expect("tx.commit-ok");
    assert_eq!(world.queue("from").unacked, 0);
    assert_eq!(numbers(&world, "to"), [0, 1, 2]);
    assert_eq!(numbers(&world, "from"), [3, 4]);
}

#[test]
fn a_client_that_goes_before_its_commit_is_done_elsewhere_loses_nothing() {
    let (world, near) = committing_between_shards();
    near.client().reset();
    world.release_disk();
    assert_eq!(numbers(&world, "to"), [0, 1, 2]);
    assert_eq!(numbers(&world, "from"), [0, 1, 2, 3, 4], "it never heard that they are there");
}

#[test]
fn a_transaction_of_acknowledgements_and_transient_messages_is_as_before() {
    let world = World::on_disk(2);
    let (near, far) = (world.channel(0), world.channel(1));
    far.declare_exclusive("anchor");
    durable(&near, "from");
    durable(&near, "to");
    publish_confirmed(&world.channel(0), "from", 0..3);
    far.tx_select();
    let message = far.get("from").expect("a message");
    far.publish("", "to", "9");
    far.ack(message.tag);
    far.tx_commit();
    let message = far.get("from").expect("a message");
    far.ack(message.tag);
    far.tx_commit();
    assert_eq!(numbers(&world, "to"), [9]);
    assert_eq!(numbers(&world, "from"), [2]);
}

#[test]
fn one_message_that_reaches_no_queue_has_the_whole_refused_for_those_who_want_it() {
    for world in [World::on_disk(1), World::new(1)] {
        refuse_what_goes_nowhere(&world);
    }
}

fn refuse_what_goes_nowhere(world: &World) {
    let channel = strict(world, 0);
    durable(&channel, "from");
    durable(&channel, "to");
    publish_confirmed(&world.channel(0), "from", 0..5);
    take_over(&channel, "from", "to", 2);
    channel.publish_raw("", "nowhere", true, &persistent().to_bytes(), b"9");
    let refused = channel.refused(tx::Commit {});
    assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
    assert!(refused.text.ends_with("a message reaches no queue"), "{}", refused.text);
    assert_eq!(world.queue("to").ready, 0);
    assert_eq!(numbers(world, "from"), [0, 1, 2, 3, 4]);
    // Others have it returned, as ever.
    let other = world.channel(0);
    other.tx_select();
    other.publish_raw("", "nowhere", true, &persistent().to_bytes(), b"9");
    other.tx_commit();
    assert_eq!(other.returns().len(), 1);
}

#[test]
fn a_queue_that_is_full_has_the_whole_refused_wherever_it_is() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        let channel = strict(&world, 0);
        channel.client().channel().declare_exclusive("anchor");
        let far = world.channel(shards - 1);
        durable(&channel, "from");
        let full = Table::new().with("x-max-length", 2).with("x-overflow", "reject-publish");
        durable_with(&far, "to", full);
        publish_confirmed(&world.channel(0), "from", 0..5);
        for (ready, count, is_taken) in
            [(1, 1, true), (1, 2, false), (2, 1, true), (2, 2, false), (2, 1, false)]
        {
            let channel = channel.client().channel();
            take_over(&channel, "from", "to", count);
            if is_taken {
                channel.tx_commit();
            } else {
                let refused = channel.refused(tx::Commit {});
                assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED, "{shards} shards");
            }
            assert_eq!(world.queue("to").ready, ready);
        }
        assert_eq!(numbers(&world, "from"), [2, 3, 4]);
    }
}

/// Who passes messages on in whole transactions has failed at none of those that it gives back.
#[test]
fn what_is_given_back_unchanged_is_no_failed_delivery() {
    let world = World::with(Options { shards: 2, ..Options::default() });
    for shard in 0..2 {
        let name = format!("limited-{shard}");
        let limited = Table::new().with("x-queue-type", "quorum").with("x-delivery-limit", 0);
        durable_with(&world.channel(0), &name, limited);
        publish_confirmed(&world.channel(0), &name, 0..10);
        for _ in 0..3 {
            let channel = strict(&world, shard);
            channel.tx_select();
            for _ in 0..5 {
                assert!(channel.get(&name).is_some());
            }
            channel.recover();
            assert_eq!(channel.get(&name).expect("a message").text(), "0");
            channel.close();
        }
        assert_eq!(numbers(&world, &name), (0..10).collect::<Vec<_>>());
    }
}
