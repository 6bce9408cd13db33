//! Both machines against each other.

use crate::driver::{Seen, Server, method_names};
use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions, ClientState};
use lepus_amqp::client::{encode_ack, encode_publish};
use lepus_amqp::method::{basic, channel, connection};
use lepus_amqp::properties::EMPTY;
use lepus_amqp::server::{ServerOptions, TimeoutOutcome, encode_delivery, encode_return};
use lepus_amqp::{Method, ProtocolError, ReplyCode};
use lepus_base::Instant;

struct Client {
    machine: ClientConnection,
    out: Vec<u8>,
    rest: Vec<u8>,
}

impl Client {
    fn new(options: ClientOptions) -> Client {
        let mut out = Vec::new();
        let machine = ClientConnection::new(options, Instant::from_millis(0), &mut out);
        let rest = Vec::new();
        Client { machine, out, rest }
    }

    /// Feeds bytes and describes the events.
    fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut input = std::mem::take(&mut self.rest);
        input.extend_from_slice(bytes);
        let mut seen = Vec::new();
        let mut start = 0;
        loop {
            let now = Instant::from_millis(0);
            let (consumed, event) = self.machine.receive(now, &input[start..], &mut self.out);
            start += consumed;
            match event {
                ClientEvent::None if consumed == 0 => break,
                ClientEvent::None => {}
                ClientEvent::Opened => seen.push("opened".into()),
                ClientEvent::Method { channel, method } => {
                    seen.push(format!("{} on {channel}", method.name()));
                }
                ClientEvent::Content { channel, method, properties, body } => {
                    let what = match method {
                        Method::BasicDeliver(deliver) => {
                            format!("deliver {} {}", deliver.consumer_tag, deliver.delivery_tag)
                        }
                        other => other.name().into(),
                    };
                    let (properties, body) = (properties.len(), body.len());
                    seen.push(format!("{what} on {channel}: {properties}+{body}"));
                }
                ClientEvent::Blocked(reason) => seen.push(format!("blocked {reason}")),
                ClientEvent::Unblocked => seen.push("unblocked".into()),
                ClientEvent::Closed { code, text } => {
                    seen.push(format!("closed {} {text}", code.0))
                }
                ClientEvent::Error(error) => seen.push(error.text),
            }
        }
        self.rest = input.split_off(start);
        seen
    }

    fn sends(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Both past the handshake.
fn pair(options: ClientOptions) -> (Client, Server) {
    let mut client = Client::new(options);
    let mut server = Server::new(&ServerOptions::default());
    let seen = server.feed(&client.sends());
    assert_eq!(seen, []);
    assert_eq!(client.feed(&std::mem::take(&mut server.out)), [""; 0]);
    let seen = server.feed(&client.sends());
    assert!(matches!(&seen[..], [Seen::Authenticate(..)]));
    server.machine.authenticated(server.now, Ok(()), &mut server.out);
    assert_eq!(client.feed(&std::mem::take(&mut server.out)), [""; 0]);
    let seen = server.feed(&client.sends());
    assert_eq!(seen, [Seen::Open("/".into())]);
    server.machine.opened(server.now, Ok(()), &mut server.out);
    assert_eq!(client.feed(&std::mem::take(&mut server.out)), ["opened"]);
    (client, server)
}

#[test]
fn the_smaller_limits_hold_on_both_sides() {
    let options = ClientOptions {
        channel_max: 7,
        frame_max: 5000,
        heartbeat: 3,
        mechanism: "AMQPLAIN".into(),
        ..ClientOptions::default()
    };
    let (client, server) = pair(options);
    for (channel_max, frame_max) in [
        (client.machine.channel_max(), client.machine.frame_max()),
        (server.machine.channel_max(), server.machine.frame_max()),
    ] {
        assert_eq!((channel_max, frame_max), (7, 5000));
    }
    assert_eq!(server.machine.heartbeat(), 3);
    assert!(server.machine.has_client_capability("basic.nack"));
    let (client, _) = pair(ClientOptions::default());
    assert_eq!(client.machine.channel_max(), 2047);
    assert_eq!(client.machine.frame_max(), 131_072);
}

#[test]
fn messages_go_both_ways() {
    let (mut client, mut server) = pair(ClientOptions::default());
    Method::from(channel::Open {}).encode_frame(1, &mut client.out);
    let frame_max = client.machine.frame_max();
    let body = vec![1; 300_000];
    encode_publish(&mut client.out, 1, frame_max, "e", "k", true, &EMPTY, &body);
    encode_ack(&mut client.out, 1, 4, true);
    let seen = server.feed(&client.sends());
    assert_eq!(seen.len(), 3);
    assert!(matches!(&seen[1], Seen::Publish(message) if message.body == body));

    let mut out = Vec::new();
    Method::from(channel::OpenOk {}).encode_frame(1, &mut out);
    for (tag, size) in [(1, 0), (2, 16), (3, 300_000)] {
        encode_delivery(
            &mut out,
            1,
            frame_max,
            "tag",
            tag,
            false,
            b"e",
            b"k",
            &EMPTY,
            &vec![0; size],
        );
    }
    let code = ReplyCode::NO_ROUTE;
    encode_return(&mut out, 1, frame_max, code, "NO_ROUTE", b"e", b"k", &EMPTY, b"x");
    Method::from(connection::Blocked { reason: "memory" }).encode_frame(0, &mut out);
    Method::from(connection::Unblocked {}).encode_frame(0, &mut out);
    let expected = [
        "channel.open-ok on 1",
        "deliver tag 1 on 1: 2+0",
        "deliver tag 2 on 1: 2+16",
        "deliver tag 3 on 1: 2+300000",
        "basic.return on 1: 2+1",
        "blocked memory",
        "unblocked",
    ];
    for size in [1, 1000, out.len()] {
        let (mut client, _) = pair(ClientOptions::default());
        let seen: Vec<String> = out.chunks(size).flat_map(|piece| client.feed(piece)).collect();
        assert_eq!(seen, expected, "pieces of {size}");
    }
}

#[test]
fn either_side_may_close() {
    let (mut client, mut server) = pair(ClientOptions::default());
    client.machine.close(server.now, ReplyCode::REPLY_SUCCESS, "bye", &mut client.out);
    let seen = server.feed(&client.sends());
    assert_eq!(seen, [Seen::Close(200, "bye".into())]);
    server.machine.close_ok(server.now, &mut server.out);
    assert_eq!(client.feed(&server.out), ["closed 200 "]);
    assert_eq!(client.machine.state(), ClientState::Closed);

    let (mut client, mut server) = pair(ClientOptions::default());
    let error = ProtocolError::new(ReplyCode::CONNECTION_FORCED, "going down");
    server.machine.close(server.now, &error, &mut server.out);
    let seen = client.feed(&server.out);
    assert_eq!(seen, ["closed 320 CONNECTION_FORCED - going down"]);
    assert_eq!(server.feed(&client.sends()), [Seen::CloseOk]);
}

#[test]
fn a_client_knows_a_server_that_speaks_something_else() {
    let mut client = Client::new(ClientOptions::default());
    assert_eq!(client.feed(b"AM"), [""; 0]);
    let seen = client.feed(b"QP\0\x01\0\0");
    assert_eq!(seen.len(), 1);
    assert!(seen[0].starts_with("NOT_IMPLEMENTED"));
    let late = Instant::from_millis(40_000);
    let outcome = client.machine.on_timeout(late, &mut Vec::new());
    assert_eq!(outcome, TimeoutOutcome::Disconnect);
}

#[test]
fn a_client_names_a_servers_faults() {
    let (mut client, _) = pair(ClientOptions::default());
    let bytes = crate::driver::method(1, basic::Publish::default());
    assert!(client.feed(&bytes)[0].starts_with("COMMAND_INVALID"));
    let (mut client, _) = pair(ClientOptions::default());
    assert!(client.feed(b"\x09")[0].starts_with("FRAME_ERROR"));
    let (mut client, _) = pair(ClientOptions::default());
    let mut out = Vec::new();
    encode_delivery(&mut out, 1, 4096, "tag", 1, false, b"e", b"k", b"\0\x01", b"body");
    assert!(client.feed(&out)[0].starts_with("SYNTAX_ERROR"));
    let mut client =
        Client::new(ClientOptions { mechanism: "EXTERNAL".into(), ..ClientOptions::default() });
    let mut server = Server::new(&ServerOptions::default());
    server.feed(&client.sends());
    assert!(client.feed(&server.out)[0].contains("EXTERNAL"));
}

#[test]
fn a_handshake_that_takes_too_long_expires_for_the_client_too() {
    let mut client = Client::new(ClientOptions::default());
    assert_eq!(method_names(b""), [""; 0]);
    let due = client.machine.next_timeout();
    let outcome = client.machine.on_timeout(due, &mut Vec::new());
    assert_eq!(outcome, TimeoutOutcome::HandshakeExpired);
}
