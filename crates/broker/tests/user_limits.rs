//! Limits of users, and of those who are not users yet.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{channel, connection, tx};
use lepus_amqp::sasl;
use lepus_amqp::server::ServerOptions;
use lepus_amqp::table::Table;
use lepus_base::{ConnectionId, HashState, Instant, Now, ShardId};
use lepus_broker::connection::PeerInfo;
use lepus_broker::directory::{Request, UserLimits};
use lepus_broker::{Broker, ConnectionSlot, Limits, Outbox, Settings};
use lepus_sim::{Client, Options, World};

use crate::stage::everywhere;
use crate::wire;

fn limit_channels(world: &World, channels_max: Option<i64>) {
    let limits = UserLimits { channels_max, ..UserLimits::default() };
    world.request(Request::SetUserLimits { name: "ann".into(), limits }).unwrap();
}

fn add_ann(world: &World) {
    world.add_user("ann", "secret");
    world.permit("ann", "/", ".*", ".*", ".*");
}

/// Opens a channel that is one too many.
fn expect_no_channel(client: &Client, number: u16, limit: u32) {
    let refused = client.unopened(number).refused(channel::Open {});
    assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_ALLOWED, true));
    assert_eq!(
        refused.text,
        format!(
            "NOT_ALLOWED - number of channels opened for user 'ann' has reached the maximum \
             allowed user limit of ({limit})"
        )
    );
}

#[test]
fn a_user_may_have_no_more_channels_than_the_limit() {
    everywhere(|stage| {
        let world = &stage.world;
        add_ann(world);
        limit_channels(world, Some(3));
        let last = world.shards() - 1;
        let (one, two) =
            (world.connect_as(0, "ann", "secret"), world.connect_as(last, "ann", "secret"));
        let first = one.channel();
        let (_second, _third) = (two.channel(), two.channel());
        expect_no_channel(&one, 9, 3);
        // That ended the connection, and its channel with it.
        assert!(!one.is_open() && !first.is_open());
        let _fourth = two.channel();
        let three = world.connect_as(0, "ann", "secret");
        expect_no_channel(&three, 1, 3);
        assert!(world.channel(0).is_open(), "other users do not count");
        two.reset();
        let four = world.connect_as(last, "ann", "secret");
        let channels: Vec<_> = (0..3).map(|_| four.channel()).collect();
        channels[1].close();
        let again = four.channel();
        assert!(again.is_open());
        expect_no_channel(&four, 99, 3);
    });
}

#[test]
fn a_limit_of_channels_counts_those_that_are_open_when_it_is_set() {
    everywhere(|stage| {
        let world = &stage.world;
        add_ann(world);
        let last = world.shards() - 1;
        let far = world.connect_as(last, "ann", "secret");
        let channels = [far.channel(), far.channel()];
        limit_channels(world, Some(2));
        expect_no_channel(&world.connect_as(0, "ann", "secret"), 1, 2);
        assert!(channels.iter().all(|channel| channel.is_open()));
        // What is opened and closed while there is no limit counts when there is one again.
        limit_channels(world, None);
        channels[0].close();
        let near = world.connect_as(0, "ann", "secret");
        let _own = near.channel();
        limit_channels(world, Some(2));
        expect_no_channel(&far, 7, 2);
        let _next = near.channel();
        limit_channels(world, Some(0));
        expect_no_channel(&near, 8, 0);
    });
}

#[test]
fn a_limit_of_channels_holds_within_one_read_and_across_moves() {
    let world = World::new(2);
    add_ann(&world);
    limit_channels(&world, Some(4));
    let client = world.connect_as(0, "ann", "secret");
    let _channels: Vec<_> = (0..3).map(|_| client.channel()).collect();
    client.send_to(1);
    assert_eq!(client.shard(), Some(1));
    let raw = world.connect_as(0, "ann", "secret");
    let mut bytes = Vec::new();
    (1..=3).for_each(|number| bytes.extend(wire::method(number, channel::Open {})));
    raw.send_bytes(&bytes);
    assert_eq!(raw.expect_closed(ReplyCode::NOT_ALLOWED).matches("limit of (4)").count(), 1);
    let last = client.channel();
    assert!(last.is_open());
    expect_no_channel(&client, 99, 4);
}

/// Goes on until nothing is left to do; the most that was counted in one turn.
fn most(world: &World, count: impl Fn(&World) -> u64) -> u64 {
    let (mut before, mut most) = (count(world), 0);
    let mut is_busy = true;
    while is_busy {
        is_busy = world.round();
        let now = count(world);
        most = most.max(now - core::mem::replace(&mut before, now));
    }
    most
}

#[test]
fn a_turn_opens_no_more_channels_than_are_work_for_it() {
    let world = World::new(1);
    let clients: Vec<_> = (0..8).map(|_| world.connect(0)).collect();
    world.quietly(|| {
        for client in &clients {
            let opens = (1..=2000).flat_map(|number| wire::method(number, channel::Open {}));
            client.send_bytes(&opens.collect::<Vec<_>>());
        }
    });
    let before = world.counters().channels_opened;
    let most = most(&world, |world| world.counters().channels_opened);
    assert!(most <= 2100, "{most} channels in one turn");
    assert_eq!(world.counters().channels_opened - before, 8 * 2000);
}

#[test]
fn a_turn_checks_no_more_long_passwords_than_are_work_for_it() {
    let world = World::new(1);
    let response = [b"\0guest\0".as_slice(), &[b'x'; 7_800]].concat();
    let start_ok = wire::start_ok("PLAIN", &response, &[]);
    let strangers: Vec<_> = (0..40)
        .map(|_| {
            let stranger = world.dial(0);
            stranger.send_bytes(wire::HEADER);
            stranger
        })
        .collect();
    world.quietly(|| strangers.iter().for_each(|stranger| stranger.send_bytes(&start_ok)));
    let most = most(&world, |world| world.counters().logins_refused);
    assert!((1..=9).contains(&most), "{most} logins in one turn");
    assert_eq!(world.counters().logins_refused, 40);
}

#[test]
fn what_the_driver_holds_for_a_connection_counts() {
    let now = Now { instant: Instant(1), wall_millis: 1 };
    let mut out = Outbox::new(1);
    let mut broker = Broker::new(Settings {
        shard: ShardId(0),
        shards: 1,
        nodes: Vec::new(),
        hash: HashState::new(1),
        node: "rabbit@localhost".into(),
        secret: [3; 32],
        server: ServerOptions::default(),
        limits: Limits { memory_bytes: 1 << 20, ..Limits::default() },
        store: None,
    });
    let slot = broker.accept(now, ConnectionId(1), PeerInfo::default(), None, &mut out);
    let before = broker.shard.entering_bytes;
    broker.connections.driver_holds(&mut broker.shard, slot, 300_000);
    assert_eq!(broker.shard.entering_bytes, before + 300_000);
    assert!(broker.shard.is_crowded());
    broker.connections.driver_holds(&mut broker.shard, slot, 1_000);
    assert!(!broker.shard.is_crowded());
    broker.connections.driver_holds(&mut broker.shard, slot, 2_000);
    broker.closed(now, slot, &mut out);
    assert_eq!(broker.shard.entering_bytes, 0);
}

#[test]
fn what_a_client_tells_about_itself_counts_from_its_login_on() {
    let world = World::new(1);
    let told = Table::new().with("platform", "x".repeat(7_000)).to_bytes();
    for password in ["guest", "wrong"] {
        let before = world.broker(0, |broker| broker.shard.memory());
        let response = sasl::response("PLAIN", "guest", password);
        let start_ok = connection::StartOk {
            client_properties: told.as_ref(),
            mechanism: "PLAIN",
            response: &response,
            locale: "en_US",
        };
        let client = world.dial(0);
        client.send_bytes(&[wire::HEADER, &wire::method(0, start_ok)].concat());
        let entering = world.broker(0, |broker| broker.shard.entering_bytes);
        assert!(entering > 7_000, "{entering}");
        if password == "guest" {
            client.send_bytes(&[wire::tune_ok(2047, 4096, 0), wire::open()].concat());
            let (after, entering) =
                world.broker(0, |broker| (broker.shard.memory(), broker.shard.entering_bytes));
            assert!(after > before + 7_000 && entering == 0, "{before} {after} {entering}");
        }
        client.reset();
        assert_eq!(world.broker(0, |broker| broker.shard.entering_bytes), 0);
    }
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_connection_that_is_closed_by_either_side_is_no_longer_open() {
    let world = World::new(1);
    let is_open = || {
        world.broker(0, |broker| {
            let slots = broker.connections.iter().map(|(slot, _)| slot);
            slots.map(|slot| broker.connections.is_open(ConnectionSlot(slot))).collect::<Vec<_>>()
        })
    };
    let close =
        connection::Close { reply_code: 200, reply_text: "bye", ..connection::Close::default() };
    // Neither ends its socket, and one does not even answer.
    for (words, answer) in [
        (wire::method(0, close), "connection.close-ok"),
        (wire::method(0, tx::Select {}), "connection.close"),
    ] {
        let client = wire::opened(&world, 0, 4096);
        assert_eq!(is_open(), [true]);
        assert_eq!(client.take_bytes(), b"");
        client.send_bytes(&words);
        assert_eq!(wire::names(&client.take_bytes()), [answer]);
        assert_eq!(is_open(), [false]);
        client.reset();
        assert_eq!(is_open(), [false; 0]);
    }
}

#[test]
fn who_has_not_logged_in_takes_memory_from_nobody() {
    let mut options = Options::default();
    options.limits.memory_bytes = 8 << 20;
    let world = World::with(options);
    let healthy = world.channel(0);
    healthy.confirm_select();
    healthy.declare("q");
    let budget = world.broker(0, |broker| broker.shard.limits.entering_bytes_max());
    // One frame short of a byte each.
    let mut short = wire::HEADER.to_vec();
    short.extend([1, 0, 0, 0, 0, 32, 0]);
    short.extend([b'x'; 8191]);
    let before = world.broker(0, |broker| broker.shard.memory());
    let strangers: Vec<_> = (0..2000)
        .map(|_| {
            let stranger = world.dial(0);
            stranger.send_bytes(&short);
            stranger
        })
        .collect();
    let (after, entering) =
        world.broker(0, |broker| (broker.shard.memory(), broker.shard.entering_bytes));
    assert!(after < before + (1 << 20), "{after} bytes are counted, {before} before");
    assert!(entering <= budget, "{entering} bytes of {budget}");
    healthy.publish("", "q", "still");
    assert_eq!(healthy.confirmed().0.len(), 1);
    assert!(healthy.client().blocked().is_none());
    // The newest are there, the oldest gave way, and who wants to log in does.
    assert!(strangers[0].is_ended() && !strangers[1999].is_ended());
    assert!(world.connect(0).is_open());
    drop(strangers);
    world.advance(20_000);
    assert_eq!(world.broker(0, |broker| broker.shard.entering_bytes), 0);
}
