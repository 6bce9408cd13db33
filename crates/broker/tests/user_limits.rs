//! Limits of users, and of those who are not users yet.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::channel;
use lepus_broker::directory::{Request, UserLimits};
use lepus_sim::{Client, Options, World};

use crate::stage::everywhere;
use crate::wire;

fn limit_channels(world: &World, channels_max: Option<u32>) {
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

#[test]
fn who_has_not_logged_in_takes_memory_from_nobody() {
    let mut options = Options::default();
    options.limits.memory_bytes = 8 << 20;
    let world = World::with(options);
    let healthy = world.channel(0);
    healthy.confirm_select();
    healthy.declare("q");
    let budget = world.broker(0, |broker| broker.edge.limits.entering_bytes_max());
    // One frame short of a byte each.
    let mut short = wire::HEADER.to_vec();
    short.extend([1, 0, 0, 0, 0, 32, 0]);
    short.extend([b'x'; 8191]);
    let before = world.broker(0, |broker| broker.edge.memory());
    let strangers: Vec<_> = (0..2000)
        .map(|_| {
            let stranger = world.dial(0);
            stranger.send_bytes(&short);
            stranger
        })
        .collect();
    let (after, entering) =
        world.broker(0, |broker| (broker.edge.memory(), broker.edge.entering_bytes));
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
    assert_eq!(world.broker(0, |broker| broker.edge.entering_bytes), 0);
}
