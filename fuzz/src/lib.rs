//! What the fuzz targets share.
#![forbid(unsafe_code)]

pub mod deed;

use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::{basic, channel, connection};
use lepus_amqp::{Method, TableRef, sasl};

/// Appends what a client says until its connection is open.
pub fn handshake(out: &mut Vec<u8>) {
    out.extend_from_slice(b"AMQP\0\0\x09\x01");
    let response = sasl::response("PLAIN", "guest", "guest");
    let start_ok = connection::StartOk {
        client_properties: TableRef::default(),
        mechanism: "PLAIN",
        response: &response,
        locale: "en_US",
    };
    Method::from(start_ok).encode_frame(0, out);
    let tune_ok = connection::TuneOk { channel_max: 100, frame_max: 131_072, heartbeat: 60 };
    Method::from(tune_ok).encode_frame(0, out);
    let open = connection::Open { virtual_host: "/" };
    Method::from(open).encode_frame(0, out);
}

/// Appends a channel that opens and publishes once to the default exchange.
pub fn publish(out: &mut Vec<u8>, number: u16, routing_key: &str, body: &[u8]) {
    Method::from(channel::Open {}).encode_frame(number, out);
    let publish = basic::Publish { exchange: "", routing_key, mandatory: true, immediate: false };
    Method::from(publish).encode_frame(number, out);
    let mut header = vec![0, 60, 0, 0];
    header.extend((body.len() as u64).to_be_bytes());
    header.extend([0, 0]);
    frame::write_frame(out, FrameKind::Header, number, &header);
    if !body.is_empty() {
        frame::write_frame(out, FrameKind::Body, number, body);
    }
}
