//! A server machine with its buffers, and its events in a form that outlives the bytes.

use lepus_amqp::frame::{FrameKind, write_frame};
use lepus_amqp::method::connection;
use lepus_amqp::server::{Event, Publish, PublishRef, ServerConnection, ServerOptions, State};
use lepus_amqp::{Method, ProtocolError, Table, sasl};
use lepus_base::Instant;

pub const HEADER: &[u8] = b"AMQP\0\0\x09\x01";

/// What a server told, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Authenticate(String, Vec<u8>),
    Open(String),
    Method(u16, String),
    Publish(Box<Message>),
    BodyTooLarge(u16, u64),
    Close(u16, String),
    CloseOk,
    Error(ProtocolError),
    Disconnect,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub channel: u16,
    pub exchange: String,
    pub routing_key: String,
    pub mandatory: bool,
    pub properties: Vec<u8>,
    pub body: Vec<u8>,
}

pub struct Server {
    pub machine: ServerConnection,
    pub now: Instant,
    /// What the machine wrote.
    pub out: Vec<u8>,
    /// What it has not taken yet.
    pub rest: Vec<u8>,
    /// Messages that were borrowed from the bytes.
    pub borrowed: usize,
}

impl Server {
    pub fn new(options: &ServerOptions) -> Server {
        let now = Instant::from_millis(1000);
        Server {
            machine: ServerConnection::new(options, now),
            now,
            out: Vec::new(),
            rest: Vec::new(),
            borrowed: 0,
        }
    }

    /// A server past the handshake with this frame_max; what it wrote is dropped.
    pub fn running(options: &ServerOptions, frame_max: u32) -> Server {
        let mut server = Server::new(options);
        server.feed(HEADER);
        server.feed(&start_ok(&Table::new(), "PLAIN"));
        server.machine.authenticated(server.now, Ok(()), &mut server.out);
        server.feed(&tune_ok(options.channel_max, frame_max, 0));
        server.feed(&open("/"));
        server.machine.opened(server.now, Ok(()), &mut server.out);
        assert_eq!(server.machine.state(), State::Running);
        server.out.clear();
        server
    }

    /// Gives the machine bytes behind those it has not taken, until it wants more.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Seen> {
        let mut input = std::mem::take(&mut self.rest);
        input.extend_from_slice(bytes);
        let mut seen = Vec::new();
        let mut start = 0;
        loop {
            let (consumed, event) = self.machine.receive(self.now, &input[start..], &mut self.out);
            let was_none = matches!(event, Event::None);
            if let Event::Publish { publish: Publish::Borrowed(_), .. } = event {
                self.borrowed += 1;
            }
            seen.extend(owned(event));
            start += consumed;
            assert!(start <= input.len());
            if consumed == 0 && was_none {
                break;
            }
        }
        self.rest = input.split_off(start);
        seen
    }

    /// Feeds bytes that must cause exactly one error and closes with it.
    pub fn fails(&mut self, bytes: &[u8]) -> ProtocolError {
        let seen = self.feed(bytes);
        match &seen[..] {
            [Seen::Error(error)] => {
                self.machine.close(self.now, error, &mut self.out);
                error.clone()
            }
            other => panic!("{other:?}"),
        }
    }

    /// The methods in what was written, and forgets them.
    pub fn written(&mut self) -> Vec<String> {
        let names = method_names(&self.out);
        self.out.clear();
        names
    }
}

fn owned(event: Event<'_>) -> Option<Seen> {
    Some(match event {
        Event::None => return None,
        Event::Authenticate { mechanism, response } => {
            Seen::Authenticate(mechanism.into(), response.into())
        }
        Event::Open { vhost } => Seen::Open(vhost.into()),
        Event::Method { channel, method } => Seen::Method(channel, method.name().into()),
        Event::Publish { channel, publish } => {
            let publish = publish.as_ref();
            if let Some(packed) = publish.packed {
                assert_eq!(&packed.bytes[packed.start..], laid_out(&publish));
            }
            Seen::Publish(Box::new(Message {
                channel,
                exchange: publish.exchange.into(),
                routing_key: publish.routing_key.into(),
                mandatory: publish.mandatory,
                properties: publish.properties.into(),
                body: publish.body.into(),
            }))
        }
        Event::BodyTooLarge { channel, size, .. } => Seen::BodyTooLarge(channel, size),
        Event::Close { code, text, .. } => Seen::Close(code.0, text.into()),
        Event::CloseOk => Seen::CloseOk,
        Event::Error(error) => Seen::Error(error),
        Event::Disconnect => Seen::Disconnect,
    })
}

/// The bytes of a message in an allocation of its own.
fn laid_out(publish: &PublishRef<'_>) -> Vec<u8> {
    let lengths = [publish.exchange.len() as u8, publish.routing_key.len() as u8];
    let properties = (publish.properties.len() as u32).to_le_bytes();
    let names = [publish.exchange.as_bytes(), publish.routing_key.as_bytes()].concat();
    [&lengths[..], &properties, &names, publish.properties, publish.body].concat()
}

/// Names of the methods in whole frames.
pub fn method_names(mut bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while let Some((frame, consumed)) = lepus_amqp::frame::decode(bytes, u32::MAX).unwrap() {
        if frame.kind == FrameKind::Method {
            names.push(Method::decode(frame.payload).unwrap().name().into());
        } else {
            names.push(format!("{:?}", frame.kind));
        }
        bytes = &bytes[consumed..];
    }
    assert!(bytes.is_empty());
    names
}

pub fn method<'a>(channel: u16, method: impl Into<Method<'a>>) -> Vec<u8> {
    let mut out = Vec::new();
    method.into().encode_frame(channel, &mut out);
    out
}

pub fn frame(kind: FrameKind, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, kind, channel, payload);
    out
}

/// A content header frame.
pub fn header(channel: u16, class: u16, weight: u16, size: u64, properties: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend_from_slice(&class.to_be_bytes());
    payload.extend_from_slice(&weight.to_be_bytes());
    payload.extend_from_slice(&size.to_be_bytes());
    payload.extend_from_slice(properties);
    frame(FrameKind::Header, channel, &payload)
}

pub fn start_ok(capabilities: &Table, mechanism: &str) -> Vec<u8> {
    let properties = Table::new().with("capabilities", capabilities.clone()).to_bytes();
    let response = sasl::response(mechanism, "guest", "secret");
    method(
        0,
        connection::StartOk {
            client_properties: properties.as_ref(),
            mechanism,
            response: &response,
            locale: "de_DE",
        },
    )
}

pub fn tune_ok(channel_max: u16, frame_max: u32, heartbeat: u16) -> Vec<u8> {
    method(0, connection::TuneOk { channel_max, frame_max, heartbeat })
}

pub fn open(vhost: &str) -> Vec<u8> {
    method(0, connection::Open { virtual_host: vhost })
}
