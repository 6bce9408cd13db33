//! Configure, write and read, and routing keys on topic exchanges.

use lepus_amqp::Method;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, exchange, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_broker::directory::{Request, VhostRef};
use lepus_sim::{Channel, World};

/// A world with user `ann`, who may configure `c…`, write `w…` and read `r…`.
fn world_of_ann() -> (World, Channel) {
    let world = World::new(2);
    world.add_user("ann", "secret");
    world.permit("ann", "/", "^c", "^w", "^r");
    let guest = world.channel(0);
    for name in ["c1", "w1", "r1"] {
        guest.declare(name);
        guest.exchange(name, "direct");
    }
    (world, guest)
}

/// What ann gets for a method on a fresh connection: the text of a 403, or `None`.
fn refusal<'a>(world: &World, method: impl Into<Method<'a>>) -> Option<String> {
    let ann = world.connect_as(1, "ann", "secret").channel();
    ann.send(method.into());
    if ann.is_open() {
        return None;
    }
    let refused = ann.expect_refused();
    assert_eq!((refused.code, refused.hard), (ReplyCode::ACCESS_REFUSED, false));
    Some(refused.text)
}

fn declare(queue: &str) -> queue::Declare<'_> {
    queue::Declare { queue, ..Default::default() }
}

#[test]
fn declaring_and_deleting_needs_configure() {
    let (world, _guest) = world_of_ann();
    assert_eq!(refusal(&world, declare("c2")), None);
    assert_eq!(
        refusal(&world, declare("w2")).as_deref(),
        Some("ACCESS_REFUSED - configure access to queue 'w2' in vhost '/' refused for user 'ann'")
    );
    assert_eq!(refusal(&world, queue::Delete { queue: "c1", ..Default::default() }), None);
    assert!(refusal(&world, queue::Delete { queue: "w1", ..Default::default() }).is_some());
    let exchange =
        |exchange| exchange::Declare { exchange, r#type: "fanout", ..Default::default() };
    assert_eq!(refusal(&world, exchange("c3")), None);
    assert!(refusal(&world, exchange("r3")).unwrap().contains("exchange 'r3'"));
    let delete = |exchange| exchange::Delete { exchange, ..Default::default() };
    assert_eq!(refusal(&world, delete("c1")), None);
    assert!(refusal(&world, delete("r1")).is_some());
}

#[test]
fn a_passive_declare_needs_any_one_permission() {
    let (world, guest) = world_of_ann();
    guest.declare("x");
    guest.exchange("x", "direct");
    for name in ["c1", "w1", "r1"] {
        assert_eq!(refusal(&world, queue::Declare { passive: true, ..declare(name) }), None);
        let passive = exchange::Declare { exchange: name, passive: true, ..Default::default() };
        assert_eq!(refusal(&world, passive), None);
    }
    assert!(refusal(&world, queue::Declare { passive: true, ..declare("x") }).is_some());
    let passive = exchange::Declare { exchange: "x", passive: true, ..Default::default() };
    assert!(refusal(&world, passive).is_some());
}

#[test]
fn publishing_needs_write_on_the_exchange() {
    let (world, _guest) = world_of_ann();
    let refused = |exchange: &str| {
        let ann = world.connect_as(1, "ann", "secret").channel();
        ann.publish(exchange, "k", "x");
        (!ann.is_open()).then(|| ann.expect_refused())
    };
    assert_eq!(refused("w1"), None);
    let refusal = refused("r1").unwrap();
    assert_eq!((refusal.code, refusal.method), (ReplyCode::ACCESS_REFUSED, (60, 40)));
    assert_eq!(
        refusal.text,
        "ACCESS_REFUSED - write access to exchange 'r1' in vhost '/' refused for user 'ann'"
    );
}

#[test]
fn the_default_exchange_is_checked_as_amq_default() {
    let world = World::new(1);
    world.add_user("ann", "secret");
    world.permit("ann", "/", "", "^amq\\.default$", "");
    let ann = world.connect_as(0, "ann", "secret").channel();
    ann.publish("", "nowhere", "x");
    assert!(ann.is_open());
    world.permit("ann", "/", ".*", "^amq\\.direct$", ".*");
    ann.publish("", "nowhere", "x");
    let refused = ann.expect_refused();
    assert!(refused.text.contains("exchange 'amq.default'"), "{}", refused.text);
}

#[test]
fn permissions_that_change_hold_for_connections_that_are_there() {
    let (world, _guest) = world_of_ann();
    let ann = world.connect_as(1, "ann", "secret").channel();
    ann.publish("w1", "k", "x");
    ann.publish("w1", "k", "x");
    assert!(ann.is_open());
    world.permit("ann", "/", "", "", "");
    ann.publish("w1", "k", "x");
    assert_eq!(ann.expect_refused().code, ReplyCode::ACCESS_REFUSED);
}

#[test]
fn consuming_getting_and_purging_needs_read() {
    let (world, _guest) = world_of_ann();
    for (queue, allowed) in [("r1", true), ("w1", false), ("c1", false)] {
        let consume = basic::Consume { queue, ..Default::default() };
        assert_eq!(refusal(&world, consume).is_none(), allowed);
        assert_eq!(refusal(&world, basic::Get { queue, no_ack: true }).is_none(), allowed);
        assert_eq!(refusal(&world, queue::Purge { queue, no_wait: false }).is_none(), allowed);
    }
}

#[test]
fn binding_needs_write_on_the_target_and_read_on_the_source() {
    let (world, _guest) = world_of_ann();
    for (target, source, allowed) in
        [("w1", "r1", true), ("w1", "w1", false), ("r1", "r1", false), ("c1", "c1", false)]
    {
        let bind = queue::Bind { queue: target, exchange: source, ..Default::default() };
        assert_eq!(refusal(&world, bind).is_none(), allowed, "bind {target} {source}");
        let unbind = queue::Unbind { queue: target, exchange: source, ..Default::default() };
        assert_eq!(refusal(&world, unbind).is_none(), allowed, "unbind {target} {source}");
        let bind = exchange::Bind { destination: target, source, ..Default::default() };
        assert_eq!(refusal(&world, bind).is_none(), allowed, "e2e bind {target} {source}");
        let unbind = exchange::Unbind { destination: target, source, ..Default::default() };
        assert_eq!(refusal(&world, unbind).is_none(), allowed, "e2e unbind {target} {source}");
    }
}

#[test]
fn an_alternate_exchange_needs_read_on_the_exchange_and_write_on_the_alternate() {
    let world = World::new(1);
    world.add_user("ann", "secret");
    for (configure, write, read, allowed) in [
        ("^x$", "^alternate$", "^x$", true),
        ("^x$", "", "^x$", false),
        ("^x$", "^alternate$", "", false),
    ] {
        world.permit("ann", "/", configure, write, read);
        let arguments = Table::new().with("alternate-exchange", "alternate").to_bytes();
        let declare = exchange::Declare {
            exchange: "x",
            r#type: "direct",
            arguments: arguments.as_ref(),
            ..Default::default()
        };
        let ann = world.connect_as(0, "ann", "secret").channel();
        ann.send(declare);
        assert_eq!(ann.is_open(), allowed, "{write} {read}");
        world.channel(0).delete_exchange("x");
    }
}

#[test]
fn a_dead_letter_exchange_needs_read_on_the_queue_and_write_on_the_exchange() {
    let world = World::new(1);
    world.add_user("ann", "secret");
    for (write, read, allowed) in [("^dlx$", "^q$", true), ("", "^q$", false), ("^dlx$", "", false)]
    {
        world.permit("ann", "/", "^q$", write, read);
        let arguments = Table::new().with("x-dead-letter-exchange", "dlx").to_bytes();
        let ann = world.connect_as(0, "ann", "secret").channel();
        ann.send(queue::Declare { arguments: arguments.as_ref(), ..declare("q") });
        assert_eq!(ann.is_open(), allowed, "{write} {read}");
        world.channel(0).delete("q");
    }
}

fn restrict(world: &World, write: &str, read: &str) {
    let request = Request::SetTopicPermission {
        user: "ann".into(),
        vhost: VhostRef::Name("/".into()),
        exchange: "topics".into(),
        write: write.into(),
        read: read.into(),
    };
    world.request(request).unwrap();
}

#[test]
fn topic_permissions_restrict_the_routing_keys_of_publishes_and_bindings() {
    let world = World::new(2);
    world.add_user("ann", "secret");
    world.permit("ann", "/", ".*", ".*", ".*");
    let guest = world.channel(0);
    guest.exchange("topics", "topic");
    guest.exchange("plain", "direct");
    guest.declare("q");
    restrict(&world, "^{username}\\.", "^news\\.");
    let publish = |exchange: &str, key: &str| {
        let ann = world.connect_as(1, "ann", "secret").channel();
        ann.publish(exchange, key, "x");
        ann.is_open()
    };
    assert!(publish("topics", "ann.hello") && !publish("topics", "bob.hello"));
    assert!(publish("plain", "bob.hello") && publish("amq.topic", "bob.hello"));
    let bind = |exchange, routing_key| queue::Bind {
        queue: "q",
        exchange,
        routing_key,
        ..Default::default()
    };
    assert_eq!(refusal(&world, bind("topics", "news.#")), None);
    assert!(refusal(&world, bind("topics", "#")).is_some());
    assert_eq!(refusal(&world, bind("plain", "anything")), None);
    let request = Request::ClearTopicPermission {
        user: "ann".into(),
        vhost: VhostRef::Name("/".into()),
        exchange: None,
    };
    world.request(request).unwrap();
    assert!(publish("topics", "bob.hello"));
}

#[test]
fn rules_of_routing_keys_that_change_hold_for_the_next_publish() {
    let world = World::new(2);
    world.add_user("ann", "secret");
    world.permit("ann", "/", ".*", ".*", ".*");
    let guest = world.channel(0);
    guest.exchange("topics", "topic");
    guest.declare("q");
    guest.bind("q", "topics", "#");
    let ann = world.connect_as(1, "ann", "secret").channel();
    // Keys that no route is remembered of: what is remembered is that the exchange may be used.
    ann.publish("topics", "bob.1", "1");
    ann.publish("topics", "bob.2", "2");
    restrict(&world, "^ann\\.", ".*");
    ann.publish("topics", "ann.3", "3");
    ann.publish("topics", "ann.4", "4");
    assert!(ann.is_open());
    ann.publish("topics", "bob.5", "5");
    assert_eq!(ann.expect_refused().code, ReplyCode::ACCESS_REFUSED);
    let ann = world.connect_as(1, "ann", "secret").channel();
    ann.publish("topics", "ann.6", "6");
    guest.delete_exchange("topics");
    ann.publish("topics", "ann.7", "7");
    assert_eq!(ann.expect_refused().code, ReplyCode::NOT_FOUND);
    assert_eq!(world.queue("q").ready, 5);
}

#[test]
fn copies_need_the_right_routing_keys_too() {
    let world = World::new(1);
    world.add_user("ann", "secret");
    world.permit("ann", "/", ".*", ".*", ".*");
    world.channel(0).exchange("topics", "topic");
    restrict(&world, "^a", ".*");
    let ann = world.connect_as(0, "ann", "secret").channel();
    let headers = Table::new().with("CC", vec![Value::from("b")]);
    let properties = Properties { headers: Some(headers), ..Default::default() };
    ann.publish_with("topics", "a", &properties, "x");
    assert_eq!(ann.expect_refused().code, ReplyCode::ACCESS_REFUSED);
}
