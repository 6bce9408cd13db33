//! Direct reply-to: answers without a queue.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::stage::everywhere;

const REPLY_TO: &str = "amq.rabbitmq.reply-to";

fn listen(channel: &Channel) {
    channel.consume_no_ack(REPLY_TO, "replies");
}

fn request(channel: &Channel, queue: &str, body: &str) {
    let properties = Properties {
        reply_to: Some(REPLY_TO.into()),
        correlation_id: Some(body.into()),
        ..Properties::default()
    };
    channel.publish_with("", queue, &properties, body);
}

/// Takes a request and returns the address for its reply.
fn take(channel: &Channel, queue: &str) -> String {
    let message = channel.get_no_ack(queue).expect("a request");
    message.properties.reply_to.expect("an address")
}

#[test]
fn a_reply_reaches_the_requester_without_a_queue() {
    everywhere(|stage| {
        let (server, client) = stage.pair();
        server.declare("rpc");
        listen(&client);
        for round in 0..10 {
            request(&client, "rpc", &format!("question {round}"));
            let address = take(&server, "rpc");
            assert!(address.starts_with("amq.rabbitmq.reply-to."), "{address}");
            let properties =
                Properties { correlation_id: Some(round.to_string()), ..Properties::default() };
            server.publish_with("", &address, &properties, format!("answer {round}"));
            let reply = client.delivery();
            assert_eq!(reply.text(), format!("answer {round}"));
            assert_eq!(reply.consumer, "replies");
            assert_eq!(reply.properties.correlation_id, Some(round.to_string()));
            assert_eq!((reply.exchange.as_str(), reply.key), ("", address));
        }
    });
}

#[test]
fn a_request_needs_a_consumer_of_replies_on_its_channel() {
    everywhere(|stage| {
        let client = stage.far_client();
        listen(&client.channel());
        let other = client.channel();
        request(&other, "rpc", "x");
        let refused = other.expect_refused();
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (60, 40)));
        assert_eq!(refused.text, "PRECONDITION_FAILED - fast reply consumer does not exist");
    });
}

#[test]
fn a_reply_consumer_does_not_acknowledge_and_is_alone_on_its_channel() {
    everywhere(|stage| {
        let client = stage.far_client();
        let acks = basic::Consume { queue: REPLY_TO, ..Default::default() };
        let refused = client.channel().refused(acks);
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (60, 20)));
        assert_eq!(refused.text, "PRECONDITION_FAILED - reply consumer cannot acknowledge");
        let channel = client.channel();
        listen(&channel);
        let refused = channel.refused(basic::Consume { no_ack: true, ..acks });
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
        assert_eq!(refused.text, "PRECONDITION_FAILED - reply consumer already set");
    });
}

#[test]
fn a_cancelled_reply_consumer_gets_nothing_and_can_be_started_again() {
    everywhere(|stage| {
        let (server, client) = stage.pair();
        server.declare("rpc");
        listen(&client);
        request(&client, "rpc", "1");
        let address = take(&server, "rpc");
        client.cancel("replies");
        server.publish("", &address, "too late");
        client.expect_none();
        let channel = client.client().channel();
        listen(&channel);
        listen(&client);
        server.publish("", &address, "listening again");
        assert_eq!(client.bodies(), ["listening again"]);
        channel.expect_none();
    });
}

#[test]
fn the_address_can_be_asked_for_from_anywhere() {
    everywhere(|stage| {
        let (server, client) = stage.pair();
        server.declare("rpc");
        listen(&client);
        request(&client, "rpc", "x");
        let address = take(&server, "rpc");
        let third = stage.far();
        for channel in [&server, &third] {
            let declared = channel.passive(&address);
            assert_eq!((declared.messages, declared.consumers), (0, 1));
            assert_eq!(declared.queue, address);
        }
        client.client().close();
        let passive = queue::Declare { queue: &address, passive: true, ..Default::default() };
        for channel in [&server, &third] {
            let refused = channel.refused(passive);
            assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (50, 10)));
        }
    });
}

#[test]
fn an_address_that_was_tampered_with_is_not_found() {
    everywhere(|stage| {
        let (server, client) = stage.pair();
        server.declare("rpc");
        listen(&client);
        request(&client, "rpc", "x");
        let address = take(&server, "rpc");
        let mut tampered = address.clone().into_bytes();
        let place = tampered.len() - 10;
        tampered[place] = if tampered[place] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(tampered).unwrap();
        for name in [tampered.as_str(), "amq.rabbitmq.reply-to.", "amq.rabbitmq.reply-to.g1h2"] {
            let passive = queue::Declare { queue: name, passive: true, ..Default::default() };
            let refused = server.client().channel().refused(passive);
            assert_eq!(refused.code, ReplyCode::NOT_FOUND, "{name}");
            server.publish_mandatory("", name, "x");
            assert_eq!(server.returns().len(), 1);
        }
        client.expect_none();
        server.publish("", &address, "the right one");
        assert_eq!(client.bodies(), ["the right one"]);
    });
}

#[test]
fn the_pseudo_queue_cannot_be_bound() {
    everywhere(|stage| {
        let client = stage.far();
        let bind = queue::Bind { queue: REPLY_TO, exchange: "amq.direct", ..Default::default() };
        let refused = client.refused(bind);
        assert_eq!((refused.code, refused.method), (ReplyCode::ACCESS_REFUSED, (50, 20)));
    });
}

#[test]
fn a_reply_to_a_lost_client_is_dropped() {
    everywhere(|stage| {
        let (server, client) = stage.pair();
        server.declare("rpc");
        listen(&client);
        request(&client, "rpc", "x");
        let address = take(&server, "rpc");
        client.client().reset();
        server.confirm_select();
        server.publish("", &address, "nobody hears");
        assert_eq!(server.confirmed().0, [1]);
    });
}

#[test]
fn an_address_is_not_inherited_by_the_next_channel_of_that_number() {
    everywhere(|stage| {
        let (server, client) = stage.pair();
        server.declare("rpc");
        listen(&client);
        request(&client, "rpc", "x");
        let address = take(&server, "rpc");
        let connection = client.client();
        client.close();
        let next = connection.channel_number(client.number());
        listen(&next);
        server.publish("", &address, "for the old one");
        next.expect_none();
    });
}

#[test]
fn replies_need_no_permission_to_create_queues() {
    let world = World::new(2);
    world.add_user("ann", "secret");
    world.permit("ann", "/", "", "^(amq\\.default)$", "^(amq\\.rabbitmq\\.reply-to.*|rpc)$");
    world.channel(0).declare("rpc");
    let ann = world.connect_as(1, "ann", "secret").channel();
    listen(&ann);
    request(&ann, "rpc", "x");
    let server = world.channel(0);
    server.publish("", &take(&server, "rpc"), "answer");
    assert_eq!(ann.bodies(), ["answer"]);
}

#[test]
fn an_address_may_be_one_key_of_several() {
    everywhere(|stage| {
        let (server, client) = stage.pair();
        server.declare("rpc");
        server.declare("log");
        listen(&client);
        request(&client, "rpc", "x");
        let address = take(&server, "rpc");
        let copies = |name: &str, keys: &[&str]| {
            let keys: Vec<Value> = keys.iter().map(|&key| key.into()).collect();
            let headers = Some(Table::new().with(name, keys));
            Properties { headers, ..Properties::default() }
        };
        server.confirm_select();
        server.publish_with("", "nowhere", &copies("CC", &[&address, &address]), "1");
        server.publish_with("", "log", &copies("BCC", &[&address]), "2");
        server.publish_with("", &address, &copies("CC", &["log"]), "3");
        assert_eq!(server.confirmed().0.len(), 3);
        let replies = client.deliveries();
        let seen: Vec<_> = replies.iter().map(|reply| (reply.text(), reply.key.clone())).collect();
        let expected = [("1", "nowhere"), ("2", "log"), ("3", address.as_str())];
        assert_eq!(seen, expected.map(|(body, key)| (body.to_owned(), key.to_owned())));
        assert!(replies.iter().all(|reply| reply.header("BCC").is_none()));
        assert_eq!(server.purge("log"), 2);
    });
}

#[test]
fn an_address_among_several_keys_at_which_nobody_listens_is_no_route() {
    for shards in [1, 3] {
        let world = World::new(shards);
        let server = world.channel(0);
        server.declare("rpc");
        let clients: Vec<Channel> = (0..4).map(|index| world.channel(index % shards)).collect();
        let addresses: Vec<String> = clients
            .iter()
            .map(|client| {
                // Something that keeps it on its shard.
                client.declare_exclusive("");
                listen(client);
                request(client, "rpc", "x");
                take(&server, "rpc")
            })
            .collect();
        server.confirm_select();
        let to = |keys: &[&str]| {
            let keys: Vec<Value> = keys.iter().map(|&key| key.into()).collect();
            let headers = Some(Table::new().with("CC", keys));
            let properties = Properties { headers, ..Properties::default() }.to_bytes();
            server.publish_raw("", "nowhere", true, &properties, b"x");
            let confirmed = server.confirmed();
            assert_eq!((confirmed.0.len(), confirmed.1.len()), (1, 0), "with {shards} shards");
            server.returns().len()
        };
        let all: Vec<&str> = addresses.iter().map(String::as_str).collect();
        assert_eq!(to(&all), 0);
        assert!(clients.iter().all(|client| client.bodies() == ["x"]));
        for (gone, client) in clients.iter().enumerate() {
            client.cancel("replies");
            // Those that are left get it, and one is enough.
            assert_eq!(to(&all), usize::from(gone + 1 == clients.len()));
            assert_eq!(to(&all[gone..=gone]), 1);
            for (index, client) in clients.iter().enumerate() {
                assert_eq!(client.bodies().len(), usize::from(index > gone));
            }
        }
        server.declare("takes");
        assert_eq!(to(&[&addresses[0], "takes"]), 0);
        assert_eq!(server.purge("takes"), 1);
    }
}
