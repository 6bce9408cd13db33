//! Copies of what is published and delivered in a virtual host that is traced.

use lepus_amqp::properties::Properties;
use lepus_amqp::server::ServerOptions;
use lepus_amqp::table::{Table, Value};
use lepus_broker::directory::Request;
use lepus_sim::{Channel, Limits, Message, Options, World};

use crate::policies::{await_policies, clear, set_policy};
use crate::stage::{Stage, everywhere, on_disk};

const TRACE: &str = "amq.rabbitmq.trace";

fn trace(world: &World, vhost: &str, on: bool) {
    world.request(Request::SetTracing { vhost: vhost.into(), on }).unwrap();
}

/// A queue `trace` that gets all copies.
fn follow(channel: &Channel) {
    channel.declare("trace");
    channel.bind("trace", TRACE, "#");
}

fn drain(channel: &Channel, queue: &str) -> Vec<Message> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).collect()
}

fn keys(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.key.as_str()).collect()
}

fn headers(message: &Message) -> &Table {
    message.properties.headers.as_ref().expect("a copy has headers")
}

fn text<'a>(message: &'a Message, name: &str) -> &'a str {
    headers(message).get(name).and_then(Value::as_text).unwrap_or_else(|| panic!("no {name}"))
}

fn texts<'a>(message: &'a Message, name: &str) -> Vec<&'a str> {
    let list = headers(message).get(name).and_then(Value::as_array);
    let list = list.unwrap_or_else(|| panic!("no list {name}"));
    list.iter().map(|value| value.as_text().expect("a text")).collect()
}

/// The copies that came, those of deliveries behind the others: they come from another shard, perhaps.
fn copies(stage: &Stage, channel: &Channel) -> Vec<Message> {
    stage.world.settle();
    let mut copies = drain(channel, "trace");
    copies.sort_by_key(|copy| copy.key.starts_with("deliver."));
    copies
}

#[test]
fn a_copy_of_a_publish_tells_where_it_went_and_who_sent_it() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        follow(&near);
        for queue in ["a", "b"] {
            near.declare(queue);
            near.bind(queue, "amq.fanout", "");
        }
        trace(&stage.world, "/", true);
        let properties = Properties {
            content_type: Some("text/plain".into()),
            delivery_mode: Some(1),
            timestamp: Some(1_700_000_000),
            message_id: Some("m".into()),
            headers: Some(Table::new().with("h", 7i32)),
            ..Properties::default()
        };
        far.publish_with("amq.fanout", "key", &properties, "body");
        let copies = copies(stage, &near);
        let [copy] = &*copies else { panic!("one copy, not {}", copies.len()) };
        assert_eq!((copy.exchange.as_str(), copy.key.as_str()), (TRACE, "publish.amq.fanout"));
        assert_eq!(copy.text(), "body");
        assert_eq!(text(copy, "exchange_name"), "amq.fanout");
        assert_eq!(texts(copy, "routing_keys"), ["key"]);
        let mut queues = texts(copy, "routed_queues");
        queues.sort_unstable();
        assert_eq!(queues, ["a", "b"]);
        assert_eq!(text(copy, "node"), "rabbit@localhost");
        assert_eq!((text(copy, "vhost"), text(copy, "user")), ("/", "guest"));
        assert!(text(copy, "connection").contains(" -> "), "{}", text(copy, "connection"));
        let channel = i32::from(far.number());
        assert_eq!(headers(copy).get("channel"), Some(&Value::I32(channel)));
        assert_eq!(headers(copy).get("redelivered"), None);
        let told = headers(copy).get("properties").and_then(Value::as_table).unwrap();
        let expected = Table::new()
            .with("content_type", "text/plain")
            .with("message_id", "m")
            .with("delivery_mode", 1i32)
            .with("timestamp", 1_700_000_000i32)
            .with("headers", Table::new().with("h", 7i32));
        assert_eq!(told, &expected);
        let rest = Properties { headers: None, ..copy.properties.clone() };
        assert_eq!(rest, Properties::default());
    });
}

#[test]
fn deliveries_are_copied_however_they_are_asked_for() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        follow(&near);
        near.declare("q");
        trace(&stage.world, "/", true);
        far.publish("", "q", "1");
        let message = far.get("q").unwrap();
        far.reject(message.tag, true);
        far.consume("q", "c");
        let delivery = far.delivery();
        far.ack(delivery.tag);
        let copies = copies(stage, &near);
        assert_eq!(keys(&copies), ["publish.", "deliver.q", "deliver.q"]);
        assert_eq!(texts(&copies[0], "routed_queues"), ["q"]);
        let redelivered = |copy: &Message| headers(copy).get("redelivered").cloned();
        let all: Vec<_> = copies[1..].iter().map(redelivered).collect();
        assert_eq!(all, [Some(Value::I32(0)), Some(Value::I32(1))]);
        for copy in &copies[1..] {
            assert_eq!((copy.text().as_str(), text(copy, "exchange_name")), ("1", ""));
            assert_eq!(texts(copy, "routing_keys"), ["q"]);
            assert_eq!(headers(copy).get("routed_queues"), None);
        }
    });
}

#[test]
fn a_copy_of_what_nobody_gets_says_so_and_none_is_of_what_was_refused() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        follow(&near);
        trace(&stage.world, "/", true);
        far.publish_mandatory("", "missing", "x");
        assert_eq!(far.returns().len(), 1);
        let found = copies(stage, &near);
        assert_eq!(keys(&found), ["publish."]);
        assert_eq!(texts(&found[0], "routed_queues"), [""; 0]);
        far.publish(TRACE, "publish.x", "made up");
        far.expect_refused();
        assert_eq!(copies(stage, &near), []);
    });
}

#[test]
fn further_keys_are_told_and_hidden_ones_stand_in_no_header() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        follow(&near);
        for queue in ["to", "cc", "bcc"] {
            near.declare(queue);
        }
        trace(&stage.world, "/", true);
        let list = |key: &str| vec![Value::from(key)];
        let keys = Table::new().with("CC", list("cc")).with("BCC", list("bcc"));
        let properties = Properties { headers: Some(keys), ..Properties::default() };
        far.publish_with("", "to", &properties, "x");
        assert_eq!(far.get_no_ack("bcc").unwrap().text(), "x");
        let copies = copies(stage, &near);
        assert_eq!(copies.len(), 2);
        for copy in &copies {
            assert_eq!(texts(copy, "routing_keys"), ["to", "cc", "bcc"]);
            let told = headers(copy).get("properties").and_then(Value::as_table).unwrap();
            let shown = told.get("headers").and_then(Value::as_table).unwrap();
            assert_eq!(shown, &Table::new().with("CC", list("cc")));
        }
    });
}

#[test]
fn copies_are_not_copied_and_none_comes_once_tracing_is_off() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("published");
        near.bind("published", TRACE, "publish.#");
        near.declare("q");
        follow(&near);
        far.consume_no_ack("trace", "copies");
        // A way that is remembered from before.
        far.publish_all("q", ["1", "2", "3"]);
        trace(&stage.world, "/", true);
        far.publish_all("q", ["4", "5"]);
        stage.world.settle();
        assert_eq!(keys(&far.deliveries()), ["publish.", "publish."]);
        assert_eq!(drain(&near, "published").len(), 2);
        trace(&stage.world, "/", false);
        far.publish_all("q", ["6", "7"]);
        assert_eq!(near.purge("q"), 7);
        stage.world.settle();
        far.expect_none();
        assert_eq!(drain(&near, "published"), []);
    });
}

/// Where copies go nowhere none is made; ways that are remembered from then hide no message once they do.
#[test]
fn copies_come_as_soon_as_they_may_go_somewhere() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("trace");
        near.declare("q");
        near.declare("taken");
        near.consume_no_ack("taken", "c");
        trace(&stage.world, "/", true);
        let publish = |copies: u32| {
            far.client().together(|| {
                for number in 0..10 {
                    far.publish("", ["q", "taken"][number % 2], "x");
                }
            });
            stage.world.settle();
            assert_eq!((near.purge("q"), near.deliveries().len()), (5, 5));
            assert_eq!(near.purge("trace"), copies);
        };
        publish(0);
        near.bind("trace", TRACE, "publish.#");
        publish(10);
        near.unbind("trace", TRACE, "publish.#");
        publish(0);
        let alternate = Table::new().with("alternate-exchange", "amq.fanout");
        set_policy(&stage.world, "p", "^amq.rabbitmq.trace$", alternate);
        publish(0);
        near.bind("trace", "amq.fanout", "");
        publish(15);
        stage.world.request(clear("p")).unwrap();
        await_policies(&stage.world);
        publish(0);
        near.bind("trace", TRACE, "deliver.#");
        publish(5);
        near.delete("trace");
        near.declare("trace");
        publish(0);
    });
}

#[test]
fn every_message_of_a_row_is_copied() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        follow(&near);
        near.declare("q");
        near.consume_no_ack("q", "c");
        for (is_on, more) in [(false, 0), (true, 100), (false, 0)] {
            trace(&stage.world, "/", is_on);
            far.client().together(|| {
                for number in 0..50 {
                    far.publish("", "q", number.to_string());
                }
            });
            stage.world.settle();
            assert_eq!(near.deliveries().len(), 50);
            assert_eq!(near.purge("trace"), more);
        }
    });
}

#[test]
fn a_transaction_is_copied_when_it_is_committed() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        follow(&near);
        near.declare("q");
        trace(&stage.world, "/", true);
        far.tx_select();
        far.publish("", "q", "no");
        far.tx_rollback();
        far.publish("", "q", "yes");
        assert_eq!(copies(stage, &near), []);
        far.tx_commit();
        let copies = copies(stage, &near);
        assert_eq!(keys(&copies), ["publish."]);
        assert_eq!(copies[0].text(), "yes");
    });
}

#[test]
fn one_virtual_host_is_traced_and_another_is_not() {
    let world = World::new(2);
    world.add_vhost("v");
    world.permit("guest", "v", ".*", ".*", ".*");
    let login = || World::login("guest", "guest", "v");
    let (here, there) = (world.connect(0).channel(), world.connect_with(1, login()).channel());
    for channel in [&here, &there] {
        follow(channel);
    }
    trace(&world, "v", true);
    for channel in [&here, &there] {
        channel.publish("", "nowhere", "x");
    }
    world.settle();
    assert_eq!((here.purge("trace"), there.purge("trace")), (0, 1));
    // What is deleted leaves nothing behind.
    world.request(Request::DeleteVhost { name: "v".into() }).unwrap();
    here.publish("", "nowhere", "x");
    world.settle();
    assert_eq!(here.purge("trace"), 0);
}

#[test]
fn the_flag_survives_a_restart() {
    on_disk(|world, ending| {
        trace(world, "/", true);
        ending.now(world);
        let channel = world.connect(0).channel();
        follow(&channel);
        channel.publish("", "nowhere", "x");
        world.settle();
        assert_eq!(channel.purge("trace"), 1);
    });
}

#[test]
fn a_full_queue_of_copies_holds_nobody_up() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let limits = Table::new().with("x-max-length", 2i32).with("x-overflow", "reject-publish");
        near.declare_with("trace", limits);
        near.bind("trace", TRACE, "#");
        near.declare("q");
        trace(&stage.world, "/", true);
        far.confirm_select();
        far.publish_all("q", ["1", "2", "3", "4", "5"]);
        stage.world.settle();
        assert_eq!(far.confirmed(), (vec![1, 2, 3, 4, 5], vec![]));
        assert_eq!((near.purge("q"), near.purge("trace")), (5, 2));
    });
}

/// What is traced takes the broker's memory as all messages do: who publishes waits for it, wherever the copies are.
#[test]
fn publishers_wait_for_memory_that_copies_take() {
    for (publisher, queue) in [(0, 0), (0, 1), (1, 0)] {
        let limits =
            Limits { memory_bytes: 1 << 20, memory_floor_bytes: 1 << 20, ..Limits::default() };
        let world = World::with(Options { shards: 2, limits, ..Options::default() });
        let keeper = world.connect(queue).channel();
        let _ = keeper.declare_exclusive("");
        follow(&keeper);
        trace(&world, "/", true);
        let channel = world.connect(publisher).channel();
        let _ = channel.declare_exclusive("");
        for _ in 0..1000 {
            channel.publish("", "nowhere", vec![7; 10_000]);
        }
        world.settle();
        let kept = world.queue("trace").ready;
        assert!((50..900).contains(&kept), "{kept} copies with publisher {publisher}");
        assert_eq!(keeper.purge("trace"), kept as u32);
        world.advance(1_000);
        assert!(world.queue("trace").ready > 0, "the publisher goes on");
    }
}

/// A queue may be bound to the exchange of copies and to others: each delivery out of it puts a copy into it, which comes
/// out without one.
#[test]
fn copies_of_deliveries_come_to_an_end_in_the_queue_that_they_are_of() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        follow(&near);
        trace(&stage.world, "/", true);
        far.publish("", "trace", "x");
        far.consume_no_ack("trace", "c");
        stage.world.settle();
        let mut found: Vec<String> = far.deliveries().into_iter().map(|found| found.key).collect();
        found.sort();
        assert_eq!(found, ["deliver.trace", "publish.", "trace"]);
    });
}

/// A queue of copies that is full passes them on to others, where they are consumed, or taken and published again.
#[test]
fn copies_that_have_died_are_not_copied_again() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let full = Table::new().with("x-max-length", 1i32);
        near.declare_with("trace", full.with("x-dead-letter-exchange", "amq.fanout"));
        near.bind("trace", TRACE, "#");
        for queue in ["dead", "second"] {
            near.declare_with(queue, Table::new().with("x-dead-letter-exchange", "amq.direct"));
        }
        near.bind("dead", "amq.fanout", "");
        near.bind("second", "amq.direct", "publish.");
        trace(&stage.world, "/", true);
        far.publish_all("nowhere", ["1", "2", "3"]);
        stage.world.settle();
        assert_eq!(near.get("dead").map(|first| reject(&near, &first)), Some("1".to_owned()));
        let died = near.get_no_ack("second").expect("it died twice");
        far.publish_with("", "nowhere", &died.properties, "again");
        let last = near.get_no_ack("dead").expect("another one");
        assert_eq!((last.text().as_str(), near.get_no_ack("dead")), ("2", None));
        // Another exchange's dead are copied as ever: where they are published and delivered.
        near.declare_with("q", Table::new().with("x-dead-letter-exchange", "amq.direct"));
        near.bind("second", "amq.direct", "q");
        far.publish("", "q", "x");
        let taken = near.get("q").expect("it is there");
        near.reject(taken.tag, false);
        assert_eq!(near.get_no_ack("second").map(|dead| dead.text()), Some("x".to_owned()));
        stage.world.settle();
        assert_eq!(keys(&drain(&near, "trace")), ["deliver.second"]);
    });
}

/// The text of a message, which is rejected.
fn reject(channel: &Channel, message: &Message) -> String {
    channel.reject(message.tag, false);
    message.text()
}

/// Whatever is long in a message, a client can read its copy, and finds something of each.
#[test]
fn headers_of_a_copy_fit_a_frame() {
    for frame_max in [131_072, 16_384] {
        let server = ServerOptions { frame_max, ..ServerOptions::default() };
        let world = World::with(Options { shards: 2, server, ..Options::default() });
        let channel = world.connect(1).channel();
        follow(&channel);
        // Many short names: most of what they take is not their own.
        for number in 0..5_000 {
            let name = format!("{number}");
            channel.declare(&name);
            channel.bind(&name, "amq.fanout", "");
        }
        trace(&world, "/", true);
        // Shares of a frame, in percent, that keys and headers take.
        for (keys, headers) in [(0, 0), (40, 10), (10, 80), (45, 45)] {
            let share = |percent: u32| (frame_max * percent / 100) as usize;
            let list: Vec<Value> = (0..share(keys) / 105)
                .map(|number| Value::from(format!("{number:>100}").as_str()))
                .collect();
            let mut table = Table::new().with("CC", list);
            for number in 0..share(headers) / 100 {
                table.insert(format!("{number:>6}"), "v".repeat(88).as_str());
            }
            let long = Some("t".repeat(255));
            let properties = Properties {
                headers: Some(table),
                message_id: long.clone(),
                reply_to: long,
                ..Properties::default()
            };
            channel.publish_with("amq.fanout", "key", &properties, "x");
            world.settle();
            let copies = drain(&channel, "trace");
            let [copy] = &*copies else { panic!("one copy, not {}", copies.len()) };
            let bytes = copy.properties.to_bytes().len();
            assert!(bytes < 65_536.min(frame_max as usize), "{bytes} bytes");
            assert!(texts(copy, "routed_queues").len() > 300);
            let told = headers_told(copy);
            assert!(told.0.len() >= share(headers).min(5_000) / 100, "{} headers", told.0.len());
            assert_eq!(text(copy, "user"), "guest");
        }
    }
}

/// The message's own headers that a copy tells.
fn headers_told(copy: &Message) -> &Table {
    let told = headers(copy).get("properties").and_then(Value::as_table).expect("properties");
    told.get("headers").and_then(Value::as_table).expect("headers")
}

#[test]
fn a_message_to_very_many_queues_is_copied_once_with_as_many_names_as_fit() {
    let world = World::new(2);
    let channel = world.connect(1).channel();
    follow(&channel);
    for number in 0..1_500 {
        let name = format!("a queue with a name that is rather long, and a number: {number}");
        channel.declare(&name);
        channel.bind(&name, "amq.fanout", "");
    }
    trace(&world, "/", true);
    channel.publish("amq.fanout", "", "x");
    world.settle();
    let copies = drain(&channel, "trace");
    assert_eq!(keys(&copies), ["publish.amq.fanout"]);
    let names = texts(&copies[0], "routed_queues").len();
    assert!((400..1_500).contains(&names), "{names} names");
}

#[test]
fn copies_that_no_memory_is_left_for_are_told_of() {
    let world = World::new(1);
    let channel = world.connect(0).channel();
    follow(&channel);
    channel.declare("q");
    trace(&world, "/", true);
    // More queues than a copy goes to.
    for number in 0..600 {
        let name = format!("{number}");
        channel.declare(&name);
        channel.bind(&name, TRACE, "publish.#");
    }
    channel.publish("", "q", "x");
    world.settle();
    assert_eq!(channel.purge("trace"), 0);
    let told = world.events().into_iter().filter(|event| event.kind == "trace-copies-dropped");
    assert_eq!(told.count(), 1);
    assert_eq!(channel.purge("q"), 1);
}
