//! What exchanges, channels and virtual hosts tell of the messages that passed them.

use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_base::VhostId;
use lepus_broker::directory::Request;
use lepus_broker::query::{ChannelRow, Nested, VhostFigures};
use lepus_broker::{Answer, ExchangeCounts, MessageCounts, Query};
use lepus_sim::{Channel, Options, World};

use crate::stage::everywhere;

fn vhost_id(world: &World, name: &str) -> VhostId {
    world.broker(0, |broker| broker.directory.vhost(name)).expect("the virtual host is there")
}

/// The counts of an exchange of all shards, and how many of them have any.
fn of_exchange(world: &World, name: &str) -> (ExchangeCounts, usize) {
    let vhost = vhost_id(world, "/");
    let (mut sum, mut rows) = (ExchangeCounts::default(), 0);
    for shard in 0..world.shards() {
        match world.ask(shard, Query::ExchangeFigures(vec![(vhost, name.into())])) {
            Answer::ExchangeFigures(found) => {
                for row in found {
                    assert_eq!((row.vhost, &*row.name), (vhost, name));
                    sum.published += row.counts.published;
                    sum.routed += row.counts.routed;
                    sum.returned += row.counts.returned;
                    sum.dropped += row.counts.dropped;
                    rows += 1;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    (sum, rows)
}

/// Messages published to an exchange, and queues that these reached.
fn in_and_out(world: &World, name: &str) -> (u64, u64) {
    let (counts, _) = of_exchange(world, name);
    (counts.published, counts.routed)
}

fn channels(world: &World) -> Vec<ChannelRow> {
    let mut rows = Vec::new();
    for shard in 0..world.shards() {
        match world.ask(shard, Query::Channels(Nested::default())) {
            Answer::Channels(part) => rows.extend(part.rows),
            other => panic!("{other:?}"),
        }
    }
    rows
}

/// The counts of the only channel with this number.
fn of_channel(world: &World, number: u16) -> MessageCounts {
    let rows = channels(world);
    let mut found = rows.iter().filter(|row| row.number == number);
    let row = found.next().expect("the channel is open");
    assert!(found.next().is_none(), "there is one channel {number}");
    row.counts
}

/// The figures of a virtual host on all shards, which are asked again until they have everything.
fn of_vhost(world: &World, name: &str) -> VhostFigures {
    let vhost = vhost_id(world, name);
    let mut sum = VhostFigures { vhost, ..VhostFigures::default() };
    for shard in 0..world.shards() {
        loop {
            let answer = world.ask(shard, Query::VhostFigures(vec![vhost]));
            let Answer::VhostFigures { rows, is_whole } = answer else { panic!("{answer:?}") };
            if !is_whole {
                continue;
            }
            for row in rows {
                assert_eq!(row.vhost, vhost);
                sum.counts.add(&row.counts);
                sum.received_bytes += row.received_bytes;
                sum.sent_bytes += row.sent_bytes;
                sum.ready += row.ready;
                sum.unacked += row.unacked;
            }
            break;
        }
    }
    sum
}

#[test]
fn an_exchange_counts_what_is_published_to_it_and_the_queues_that_this_reaches() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for queue in ["a", "b", "c"] {
            near.declare(queue);
        }
        near.exchange("direct", "direct");
        near.bind("a", "direct", "one");
        near.bind("a", "direct", "two");
        near.exchange("fanout", "fanout");
        near.exchange("topic", "topic");
        near.bind("a", "topic", "#");
        near.bind("a", "topic", "x.*");
        near.bind("b", "topic", "x.#");
        for queue in ["a", "b", "c"] {
            near.bind(queue, "fanout", "");
        }
        for channel in [&near, &far] {
            for _ in 0..3 {
                channel.publish("direct", "one", "x");
                channel.publish("fanout", "", "x");
            }
            channel.publish("direct", "none", "x");
            // Each queue is reached once by a message.
            channel.publish("topic", "x.y", "x");
            channel.publish("topic", "y", "x");
            channel.publish("", "a", "x");
            channel.publish("", "nowhere", "x");
            channel.publish_mandatory("", "nowhere", "x");
        }
        assert_eq!(in_and_out(&stage.world, "direct"), (8, 6));
        assert_eq!(in_and_out(&stage.world, "fanout"), (6, 18));
        assert_eq!(in_and_out(&stage.world, "topic"), (4, 6));
        let (default, _) = of_exchange(&stage.world, "");
        assert_eq!(default, ExchangeCounts { published: 6, routed: 2, returned: 2, dropped: 2 });
        assert_eq!(of_exchange(&stage.world, "direct").0.dropped, 2);
        assert_eq!(of_exchange(&stage.world, "amq.direct"), (ExchangeCounts::default(), 0));
        assert_eq!(of_exchange(&stage.world, "none"), (ExchangeCounts::default(), 0));
    });
}

/// As with RabbitMQ: where a message goes behind the exchange that it was published to is a part of that one's way.
#[test]
fn exchanges_behind_the_first_one_count_nothing_of_its_messages() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for queue in ["a", "b", "lost"] {
            near.declare(queue);
        }
        near.exchange("first", "fanout");
        near.exchange("second", "fanout");
        near.bind_exchange("second", "first", "");
        near.bind("a", "first", "");
        near.bind("a", "second", "");
        near.bind("b", "second", "");
        near.exchange("rest", "fanout");
        near.bind("lost", "rest", "");
        let alternate = Table::new().with("alternate-exchange", "rest");
        near.exchange_with("picky", "direct", alternate);
        near.bind("a", "picky", "known");
        for channel in [&near, &far] {
            channel.publish("first", "", "x");
            channel.publish("first", "", "x");
            channel.publish("second", "", "x");
            channel.publish("picky", "known", "x");
            channel.publish("picky", "unknown", "x");
        }
        assert_eq!(in_and_out(&stage.world, "first"), (4, 8));
        assert_eq!(in_and_out(&stage.world, "second"), (2, 4));
        assert_eq!(in_and_out(&stage.world, "picky"), (4, 4));
        assert_eq!(of_exchange(&stage.world, "rest"), (ExchangeCounts::default(), 0));
    });
}

#[test]
fn rows_and_publishes_in_turns_are_counted_one_by_one() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "direct");
        for queue in ["a", "b"] {
            near.declare(queue);
            near.bind(queue, "x", queue);
        }
        for channel in [&near, &far] {
            channel.client().together(|| {
                (0..300).for_each(|_| channel.publish("x", "a", "row"));
                (0..50).for_each(|turn| channel.publish("x", ["a", "b"][turn % 2], "turn"));
                (0..50).for_each(|_| channel.publish("", "b", "row"));
            });
        }
        assert_eq!(in_and_out(&stage.world, "x"), (700, 700));
        assert_eq!(in_and_out(&stage.world, ""), (100, 100));
        assert_eq!(of_vhost(&stage.world, "/").counts.published, 800);
        let sum: u64 = channels(&stage.world).iter().map(|row| row.counts.published).sum();
        assert_eq!(sum, 800);
    });
}

#[test]
fn a_transaction_counts_when_it_is_committed() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.exchange("x", "fanout");
        near.bind("q", "x", "");
        far.tx_select();
        far.publish("x", "", "no");
        far.publish("", "q", "no");
        far.tx_rollback();
        for _ in 0..3 {
            far.publish("x", "", "yes");
        }
        far.publish("", "q", "yes");
        assert_eq!(in_and_out(&stage.world, "x"), (0, 0));
        far.tx_commit();
        assert_eq!(in_and_out(&stage.world, "x"), (3, 3));
        assert_eq!(in_and_out(&stage.world, ""), (1, 1));
        let message = far.get("q").expect("a message");
        far.ack(message.tag);
        let counts = of_vhost(&stage.world, "/").counts;
        assert_eq!((counts.published, counts.got_manual_ack, counts.acknowledged), (4, 1, 0));
        far.tx_rollback();
        assert_eq!(of_vhost(&stage.world, "/").counts.acknowledged, 0);
        far.ack(message.tag);
        far.tx_commit();
        assert_eq!(of_vhost(&stage.world, "/").counts.acknowledged, 1);
    });
}

#[test]
fn what_goes_to_very_many_queues_is_one_message_in_and_as_many_out() {
    let world = World::new(2);
    let channel = world.channel(0);
    channel.exchange("x", "fanout");
    for number in 0..3_000 {
        channel.declare(&format!("q{number}"));
        channel.bind(&format!("q{number}"), "x", "");
    }
    channel.publish("x", "", "1");
    channel.publish("x", "", "2");
    world.settle();
    assert_eq!(channel.passive("q2999").messages, 2);
    assert_eq!(in_and_out(&world, "x"), (2, 6_000));
    assert_eq!(of_vhost(&world, "/").ready, 6_000);
}

#[test]
fn what_is_held_back_and_direct_replies_come_in_and_reach_no_queue() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let kind = Table::new().with("x-delayed-type", "fanout");
        near.exchange_with("later", "x-delayed-message", kind);
        near.bind("q", "later", "");
        let headers = Some(Table::new().with("x-delay", 1_000));
        far.publish_with("later", "", &Properties { headers, ..Properties::default() }, "x");
        far.publish("later", "", "at once");
        assert_eq!(in_and_out(&stage.world, "later"), (2, 1));
        stage.world.advance(2_000);
        assert_eq!(near.purge("q"), 2);
        assert_eq!(in_and_out(&stage.world, "later"), (2, 1));
        far.consume_no_ack("amq.rabbitmq.reply-to", "replies");
        let reply_to = Some("amq.rabbitmq.reply-to".into());
        far.publish_with("", "q", &Properties { reply_to, ..Properties::default() }, "?");
        let asked = near.get_no_ack("q").expect("a question");
        // What was published before, and to where, is nothing to it.
        near.publish("amq.fanout", "", "x");
        near.publish("", asked.properties.reply_to.as_deref().expect("an address"), "!");
        assert_eq!(far.delivery().text(), "!");
        let (default, _) = of_exchange(&stage.world, "");
        assert_eq!(default, ExchangeCounts { published: 2, routed: 1, returned: 0, dropped: 0 });
        assert_eq!(in_and_out(&stage.world, "amq.fanout"), (1, 0));
    });
}

/// Another one of that name begins at nothing, however the first one went.
#[test]
fn an_exchange_that_goes_takes_its_counts_along() {
    everywhere(|stage| {
        let near = stage.near();
        near.declare("q");
        for round in 0..3 {
            near.exchange("x", "fanout");
            near.bind("q", "x", "");
            assert_eq!(of_exchange(&stage.world, "x").1, 0, "{round}");
            near.publish("x", "", "1");
            near.publish("x", "", "2");
            assert_eq!(in_and_out(&stage.world, "x"), (2, 2), "{round}");
            near.delete_exchange("x");
            assert_eq!(of_exchange(&stage.world, "x").1, 0, "{round}");
        }
        assert_eq!(near.purge("q"), 6);
    });
}

/// A sample of exchanges costs what was used, however many there are.
#[test]
fn idle_exchanges_are_not_copied() {
    let world = World::new(1);
    let vhost = vhost_id(&world, "/");
    let changes: Vec<Request> = (0..99_000)
        .map(|number| Request::DeclareExchange {
            vhost: vhost.into(),
            name: format!("x{number}"),
            kind: "fanout".to_owned(),
            durable: false,
            auto_delete: false,
            internal: false,
            arguments: Table::new(),
        })
        .collect();
    changes.into_iter().for_each(|request| world.request(request).expect("it can be declared"));
    let copied = || -> usize {
        let names: Vec<(VhostId, Box<str>)> =
            (0..99_000).map(|number| (vhost, format!("x{number}").into())).collect();
        let asked = names.chunks(256).map(|names| {
            match world.ask(0, Query::ExchangeFigures(names.to_vec())) {
                Answer::ExchangeFigures(found) => found.len(),
                other => panic!("{other:?}"),
            }
        });
        asked.sum()
    };
    assert_eq!(copied(), 0);
    let channel = world.channel(0);
    channel.publish("x77777", "", "x");
    assert_eq!(copied(), 1);
}

/// Counts of a channel but for those that are 0.
fn counts(names: &[(&str, u64)]) -> MessageCounts {
    let mut counts = MessageCounts::default();
    for (name, count) in names {
        *match *name {
            "published" => &mut counts.published,
            "confirmed" => &mut counts.confirmed,
            "returned" => &mut counts.returned,
            "dropped" => &mut counts.dropped,
            "delivered_manual_ack" => &mut counts.delivered_manual_ack,
            "delivered_auto_ack" => &mut counts.delivered_auto_ack,
            "got_manual_ack" => &mut counts.got_manual_ack,
            "got_auto_ack" => &mut counts.got_auto_ack,
            "got_empty" => &mut counts.got_empty,
            "redelivered" => &mut counts.redelivered,
            "acknowledged" => &mut counts.acknowledged,
            other => panic!("{other}"),
        } = *count;
    }
    counts
}

#[test]
fn a_channel_counts_what_its_client_sees() {
    everywhere(|stage| {
        let near = stage.near();
        near.declare("q");
        near.declare_with(
            "full",
            Table::new().with("x-max-length", 1).with("x-overflow", "reject-publish"),
        );
        let client = stage.far_client();
        let publisher = client.channel_number(11);
        publisher.confirm_select();
        publisher.publish_all("q", (0..20).map(|number| number.to_string()));
        publisher.publish("", "nowhere", "x");
        publisher.publish_mandatory("", "nowhere", "x");
        for _ in 0..3 {
            publisher.publish("", "full", "x");
        }
        stage.world.settle();
        let (acked, nacked) = publisher.confirmed();
        assert_eq!((acked.len(), nacked.len()), (23, 2));
        assert_eq!(
            of_channel(&stage.world, 11),
            counts(&[("published", 25), ("confirmed", 23), ("returned", 1), ("dropped", 1)])
        );
    });
}

#[test]
fn a_channel_counts_how_messages_came_and_how_they_were_settled() {
    everywhere(|stage| {
        let near = stage.near();
        near.declare("q");
        near.declare("empty");
        near.publish_all("q", (0..20).map(|number| number.to_string()));
        let client = stage.far_client();
        let reader = client.channel_number(12);
        let first = reader.get("q").expect("a message");
        assert_eq!(reader.get_no_ack("q").expect("a message").text(), "1");
        assert_eq!(reader.get("empty"), None);
        reader.reject(first.tag, true);
        assert!(reader.get("q").expect("a message").redelivered);
        assert_eq!(
            of_channel(&stage.world, 12),
            counts(&[
                ("got_manual_ack", 2),
                ("got_auto_ack", 1),
                ("got_empty", 1),
                ("redelivered", 1)
            ])
        );
        let consumer = client.channel_number(13);
        consumer.consume("q", "c");
        let deliveries = consumer.deliveries();
        assert_eq!(deliveries.len(), 18);
        let tags: Vec<u64> = deliveries.iter().map(|message| message.tag).collect();
        // One, a row of single ones, several at once, and others that are none.
        consumer.ack(tags[0]);
        consumer.client().together(|| tags[1..6].iter().for_each(|tag| consumer.ack(*tag)));
        consumer.ack_up_to(tags[9]);
        consumer.reject(tags[10], false);
        consumer.nack(tags[11], false, true);
        stage.world.settle();
        assert!(consumer.delivery().redelivered);
        near.publish_all("q", ["more", "more", "more"]);
        stage.world.settle();
        assert_eq!(
            of_channel(&stage.world, 13),
            counts(&[("delivered_manual_ack", 22), ("redelivered", 1), ("acknowledged", 10)])
        );
        let silent = client.channel_number(14);
        near.declare("r");
        silent.consume_no_ack("r", "c");
        near.publish_all("r", ["1", "2", "3", "4"]);
        stage.world.settle();
        assert_eq!(of_channel(&stage.world, 14), counts(&[("delivered_auto_ack", 4)]));
    });
}

/// Whatever a virtual host's connections did is told, of those that are gone and those that moved, too.
#[test]
fn a_virtual_host_tells_what_its_connections_did_and_what_its_queues_hold() {
    everywhere(|stage| {
        let world = &stage.world;
        world.add_vhost("other");
        world.permit("guest", "other", ".*", ".*", ".*");
        let before = of_vhost(world, "/");
        let (near, far) = stage.pair();
        near.declare("q");
        far.confirm_select();
        far.publish_all("q", (0..10).map(|number| number.to_string()));
        world.settle();
        near.consume("q", "c");
        world.settle();
        let open = of_vhost(world, "/");
        assert_eq!((open.ready, open.unacked), (0, 10));
        assert_eq!(
            open.counts,
            counts(&[("published", 10), ("confirmed", 10), ("delivered_manual_ack", 10)])
        );
        assert!(open.received_bytes > before.received_bytes + 200);
        assert!(open.sent_bytes > before.sent_bytes + 200);
        near.client().close();
        far.client().close();
        let closed = of_vhost(world, "/");
        assert_eq!((closed.ready, closed.unacked, closed.counts), (10, 0, open.counts));
        assert!(closed.received_bytes > open.received_bytes);
        // The other one knows nothing of that.
        let other = of_vhost(world, "other");
        assert_eq!((other.ready, other.counts, other.sent_bytes), (0, counts(&[]), 0));
        let options = World::login("guest", "guest", "other");
        let guest = world.connect_with(0, options).channel();
        guest.declare("q");
        guest.publish("", "q", "x");
        assert_eq!(of_vhost(world, "other").counts, counts(&[("published", 1)]));
        assert_eq!(of_vhost(world, "other").ready, 1);
        assert_eq!(of_vhost(world, "/").counts, open.counts);
        for shard in 0..world.shards() {
            assert_eq!(world.broker(shard, |broker| broker.view().miscounted()), None);
        }
        assert!(guest.client().is_open());
        let id = vhost_id(world, "other");
        world.request(Request::DeleteVhost { name: "other".to_owned() }).expect("it is there");
        world.settle();
        for shard in 0..world.shards() {
            match world.ask(shard, Query::VhostFigures(vec![id])) {
                Answer::VhostFigures { rows, .. } => assert_eq!(rows, []),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_connection_that_moves_is_told_once() {
    let world = World::new(2);
    let near = world.channel(0);
    near.declare("q");
    let client = world.connect(1);
    let channel = client.channel();
    channel.publish_all("q", ["1", "2", "3"]);
    world.settle();
    client.send_to(0);
    world.settle();
    assert_eq!(client.shard(), Some(0));
    channel.publish_all("q", ["4", "5"]);
    world.settle();
    let first = of_vhost(&world, "/");
    assert_eq!((first.counts.published, first.ready), (5, 5));
    client.send_to(1);
    world.settle();
    let again = of_vhost(&world, "/");
    assert_eq!((again.counts, again.received_bytes), (first.counts, first.received_bytes));
    assert_eq!(channels(&world).iter().map(|row| row.counts.published).sum::<u64>(), 5);
}

/// A question looks at those connections only that did something, and at so many at most.
#[test]
fn connections_are_summed_up_in_parts() {
    let world = World::with(Options { shards: 1, ..Options::default() });
    let keeper = world.channel(0);
    keeper.declare("q");
    let id = vhost_id(&world, "/");
    let channels: Vec<Channel> = (0..1_500).map(|_| world.channel(0)).collect();
    channels.iter().for_each(|channel| channel.publish("", "q", "x"));
    let ask = || match world.ask(0, Query::VhostFigures(vec![id])) {
        Answer::VhostFigures { rows, is_whole } => (rows[0].counts.published, is_whole),
        other => panic!("{other:?}"),
    };
    let (some, is_whole) = ask();
    assert!(!is_whole && some < 1_500, "{some}");
    assert_eq!(ask(), (1_500, true));
    // One of them did something.
    channels[700].publish("", "q", "x");
    assert_eq!(ask(), (1_501, true));
}
