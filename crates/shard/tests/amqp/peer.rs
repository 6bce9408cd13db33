//! A blocking AMQP client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions, encode_publish};
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{Method, channel};
use lepus_amqp::properties::EMPTY;
use lepus_base::Instant;

/// What a peer sees next.
#[derive(Debug, PartialEq)]
pub enum Seen {
    Opened,
    Method(&'static str),
    Ack { tag: u64, multiple: bool },
    Message { body: Vec<u8>, tag: u64 },
    Closed(u16),
    End,
}

pub struct Peer {
    stream: TcpStream,
    machine: ClientConnection,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Peer {
    /// A connection with channel 1 open.
    pub fn open(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut output = Vec::new();
        let machine = ClientConnection::new(ClientOptions::default(), Instant(1), &mut output);
        let mut peer = Peer { stream, machine, input: Vec::new(), output };
        peer.flush();
        assert_eq!(peer.see(), Seen::Opened);
        assert_eq!(peer.call(channel::Open::default()), Seen::Method("channel.open-ok"));
        peer
    }

    pub fn send<'a>(&mut self, method: impl Into<Method<'a>>) {
        method.into().encode_frame(1, &mut self.output);
    }

    pub fn publish(&mut self, key: &str, body: &[u8]) {
        let frame_max = self.machine.frame_max();
        encode_publish(&mut self.output, 1, frame_max, "", key, false, &EMPTY, body);
    }

    pub fn flush(&mut self) {
        self.stream.write_all(&self.output).unwrap();
        self.output.clear();
    }

    pub fn call<'a>(&mut self, method: impl Into<Method<'a>>) -> Seen {
        self.send(method);
        self.flush();
        self.see()
    }

    pub fn close(&mut self) {
        self.machine.close(Instant(1), ReplyCode::REPLY_SUCCESS, "bye", &mut self.output);
        self.flush();
    }

    /// The next event; waits for it.
    pub fn see(&mut self) -> Seen {
        loop {
            let before = self.output.len();
            let (used, event) = self.machine.receive(Instant(1), &self.input, &mut self.output);
            let seen = match event {
                ClientEvent::None => None,
                ClientEvent::Opened => Some(Seen::Opened),
                ClientEvent::Method { method: Method::BasicAck(ack), .. } => {
                    Some(Seen::Ack { tag: ack.delivery_tag, multiple: ack.multiple })
                }
                ClientEvent::Method { method, .. } => Some(Seen::Method(method.name())),
                ClientEvent::Content { method, body, .. } => {
                    let Method::BasicDeliver(deliver) = method else { panic!("{method:?}") };
                    Some(Seen::Message { body: body.to_vec(), tag: deliver.delivery_tag })
                }
                ClientEvent::Closed { code, .. } => Some(Seen::Closed(code.0)),
                other => panic!("{other:?}"),
            };
            self.input.drain(..used);
            if self.output.len() > before {
                self.flush();
            }
            if let Some(seen) = seen {
                return seen;
            }
            if used == 0 {
                let mut buffer = [0; 65_536];
                match self.stream.read(&mut buffer).unwrap() {
                    0 => return Seen::End,
                    count => self.input.extend_from_slice(&buffer[..count]),
                }
            }
        }
    }
}

/// How many are confirmed after this ack, where they come in order.
pub fn count_acked(before: u64, tag: u64, multiple: bool) -> u64 {
    assert!(tag > before, "{tag} after {before}");
    assert!(multiple || tag == before + 1, "{tag} after {before}");
    tag
}
