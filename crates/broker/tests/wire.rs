//! Frames by hand, for what no well-behaved client says.

use lepus_amqp::Method;
use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::{basic, connection};
use lepus_amqp::sasl;
use lepus_amqp::table::Table;
use lepus_sim::{Client, World};

/// The protocol header of AMQP 0-9-1.
pub const HEADER: &[u8] = b"AMQP\0\0\x09\x01";

/// A frame of any type, well-formed or not.
pub fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&channel.to_be_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes.push(frame::END);
    bytes
}

/// A method frame.
pub fn method<'a>(channel: u16, method: impl Into<Method<'a>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    method.into().encode_frame(channel, &mut bytes);
    bytes
}

/// A content header frame without properties.
pub fn header(channel: u16, class: u16, weight: u16, size: u64) -> Vec<u8> {
    let mut payload = class.to_be_bytes().to_vec();
    payload.extend_from_slice(&weight.to_be_bytes());
    payload.extend_from_slice(&size.to_be_bytes());
    payload.extend_from_slice(&[0, 0]);
    frame(2, channel, &payload)
}

/// A content body frame.
pub fn body(channel: u16, payload: &[u8]) -> Vec<u8> {
    frame(3, channel, payload)
}

/// The frame of `basic.publish` to the default exchange.
pub fn publish(channel: u16, routing_key: &str) -> Vec<u8> {
    method(channel, basic::Publish { routing_key, ..Default::default() })
}

/// Calls `look` with each method in the bytes; heartbeats and contents are passed over.
pub fn each_method(bytes: &[u8], mut look: impl FnMut(u16, Method<'_>)) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (found, used) = frame::decode(rest, u32::MAX)
            .expect("the broker sends well-formed frames")
            .expect("the broker sends whole frames");
        if found.kind == FrameKind::Method {
            look(found.channel, Method::decode(found.payload).expect("a known method"));
        }
        rest = &rest[used..];
    }
}

/// Names of the methods in the bytes.
pub fn names(bytes: &[u8]) -> Vec<&'static str> {
    let mut names = Vec::new();
    each_method(bytes, |_, method| names.push(method.name()));
    names
}

/// Code, text, class and method of the `connection.close` in the bytes.
pub fn close_in(bytes: &[u8]) -> (u16, String, (u16, u16)) {
    let mut found = None;
    each_method(bytes, |_, method| {
        if let Method::ConnectionClose(close) = method {
            let cause = (close.class_id, close.method_id);
            found = Some((close.reply_code, close.reply_text.to_owned(), cause));
        }
    });
    found.unwrap_or_else(|| panic!("no connection.close in {:?}", names(bytes)))
}

/// `connection.start-ok` with a mechanism's response and the capabilities named.
pub fn start_ok(mechanism: &str, response: &[u8], capabilities: &[&str]) -> Vec<u8> {
    let capabilities: Table = capabilities.iter().map(|name| (*name, true)).collect();
    let properties = Table::new().with("capabilities", capabilities).to_bytes();
    method(
        0,
        connection::StartOk {
            client_properties: properties.as_ref(),
            mechanism,
            response,
            locale: "en_US",
        },
    )
}

/// `connection.tune-ok`.
pub fn tune_ok(channel_max: u16, frame_max: u32, heartbeat: u16) -> Vec<u8> {
    method(0, connection::TuneOk { channel_max, frame_max, heartbeat })
}

/// `connection.open` of vhost `/`.
pub fn open() -> Vec<u8> {
    method(0, connection::Open { virtual_host: "/" })
}

/// A raw client that is logged in as `guest` and has been offered tune.
pub fn tuned(world: &World, shard: u16) -> Client {
    let client = world.dial(shard);
    client.send_bytes(HEADER);
    let response = sasl::response("PLAIN", "guest", "guest");
    client.send_bytes(&start_ok("PLAIN", &response, &["authentication_failure_close"]));
    assert_eq!(names(&client.take_bytes()), ["connection.start", "connection.tune"]);
    client
}

/// A raw client with an open connection and channel 1.
pub fn opened(world: &World, shard: u16, frame_max: u32) -> Client {
    let client = tuned(world, shard);
    client.send_bytes(&tune_ok(2047, frame_max, 0));
    client.send_bytes(&open());
    client.send_bytes(&method(1, lepus_amqp::method::channel::Open {}));
    assert_eq!(names(&client.take_bytes()), ["connection.open-ok", "channel.open-ok"]);
    client
}
