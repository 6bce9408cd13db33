//! A client that waits for each answer, over anything that carries bytes.

use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions, encode_publish};
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{Method, basic, channel, queue};
use lepus_amqp::properties::{EMPTY, PERSISTENT};
use lepus_base::Instant;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Properties that say no more than that the message is persistent.
const PERSISTENT_ONLY: [u8; 3] = [0x10, 0x00, PERSISTENT];

/// What a client sees next.
#[derive(Debug, PartialEq)]
pub enum Seen {
    Opened,
    Method(&'static str),
    Ack {
        tag: u64,
        multiple: bool,
    },
    Message {
        tag: u64,
        body: Vec<u8>,
    },
    Blocked(String),
    Unblocked,
    ChannelClosed(u16, String),
    Closed(u16, String),
    /// The stream ended without a word.
    End,
}

/// One connection. Channel numbers are up to the caller.
pub struct Session<S> {
    pub stream: S,
    machine: ClientConnection,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Connects without TLS as guest, with channel 1 open.
pub fn connect(address: SocketAddr) -> Session<TcpStream> {
    let mut session = Session::log_in(tcp(address), ClientOptions::default()).unwrap();
    assert_eq!(session.call(1, channel::Open::default()), Seen::Method("channel.open-ok"));
    session
}

/// A socket that does not wait for ever.
pub fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl<S: Read + Write> Session<S> {
    /// Logs in; what came instead of an open virtual host otherwise.
    pub fn log_in(stream: S, options: ClientOptions) -> Result<Session<S>, Seen> {
        let mut output = Vec::new();
        let machine = ClientConnection::new(options, Instant(1), &mut output);
        let mut session = Session { stream, machine, input: Vec::new(), output };
        if session.try_flush().is_err() {
            return Err(Seen::End);
        }
        match session.see() {
            Seen::Opened => Ok(session),
            other => Err(other),
        }
    }

    /// Puts a method behind what is to be sent.
    pub fn send<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        method.into().encode_frame(channel, &mut self.output);
    }

    /// Puts a message for a queue behind what is to be sent.
    pub fn publish(&mut self, channel: u16, queue: &str, body: &[u8]) {
        let frame_max = self.machine.frame_max();
        encode_publish(&mut self.output, channel, frame_max, "", queue, false, &EMPTY, body);
    }

    /// Puts a message that is to survive a restart behind what is to be sent.
    pub fn publish_persistent(&mut self, channel: u16, queue: &str, body: &[u8]) {
        let frame_max = self.machine.frame_max();
        let properties = PERSISTENT_ONLY;
        encode_publish(&mut self.output, channel, frame_max, "", queue, false, &properties, body);
    }

    /// Puts bytes behind what is to be sent.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// What is to be sent, taken from the session.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    pub fn flush(&mut self) {
        self.try_flush().unwrap();
    }

    /// Sends everything, unless the peer is gone.
    pub fn try_flush(&mut self) -> std::io::Result<()> {
        let result = self.stream.write_all(&self.output).and_then(|()| self.stream.flush());
        self.output.clear();
        result
    }

    /// Sends a method and waits for what comes.
    pub fn call<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) -> Seen {
        self.send(channel, method);
        self.flush();
        self.see()
    }

    pub fn declare(&mut self, queue: &str) {
        let declare = queue::Declare { queue, durable: true, ..Default::default() };
        assert_eq!(self.call(1, declare), Seen::Method("queue.declare-ok"));
    }

    pub fn consume(&mut self, queue: &str, no_ack: bool) {
        let consume = basic::Consume { queue, no_ack, ..Default::default() };
        assert_eq!(self.call(1, consume), Seen::Method("basic.consume-ok"));
    }

    /// Ends properly.
    pub fn close(mut self) {
        self.machine.close(Instant(1), ReplyCode::REPLY_SUCCESS, "bye", &mut self.output);
        self.flush();
        loop {
            match self.see() {
                Seen::Closed(200, _) => return,
                Seen::End => panic!("no close-ok"),
                _ => {}
            }
        }
    }

    /// The next event; waits for it.
    pub fn see(&mut self) -> Seen {
        loop {
            if let Some(seen) = self.take_seen() {
                return seen;
            }
            let mut buffer = [0; 65_536];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Seen::End,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer"),
                Err(_) => return Seen::End,
            }
        }
    }

    /// The next event among the bytes that came.
    fn take_seen(&mut self) -> Option<Seen> {
        let mut place = 0;
        let mut seen = None;
        while seen.is_none() {
            let before = self.output.len();
            let rest = &self.input[place..];
            let (used, event) = self.machine.receive(Instant(1), rest, &mut self.output);
            let waits = used == 0 && matches!(event, ClientEvent::None);
            let mut closed = None;
            seen = match event {
                ClientEvent::None => None,
                ClientEvent::Opened => Some(Seen::Opened),
                ClientEvent::Method { method: Method::BasicAck(ack), .. } => {
                    Some(Seen::Ack { tag: ack.delivery_tag, multiple: ack.multiple })
                }
                ClientEvent::Method { channel, method: Method::ChannelClose(close) } => {
                    closed = Some(channel);
                    Some(Seen::ChannelClosed(close.reply_code, close.reply_text.to_owned()))
                }
                ClientEvent::Method { method, .. } => Some(Seen::Method(method.name())),
                ClientEvent::Content { method: Method::BasicDeliver(deliver), body, .. } => {
                    Some(Seen::Message { tag: deliver.delivery_tag, body: body.to_vec() })
                }
                ClientEvent::Content { method, .. } => Some(Seen::Method(method.name())),
                ClientEvent::Blocked(reason) => Some(Seen::Blocked(reason.to_owned())),
                ClientEvent::Unblocked => Some(Seen::Unblocked),
                ClientEvent::Closed { code, text } => Some(Seen::Closed(code.0, text.to_owned())),
                ClientEvent::Error(error) => Some(Seen::Closed(error.code.0, error.text)),
            };
            place += used;
            if let Some(channel) = closed {
                self.send(channel, channel::CloseOk {});
            }
            if self.output.len() > before {
                // The broker may have closed its side already.
                let _ = self.try_flush();
            }
            if waits {
                break;
            }
        }
        self.input.drain(..place);
        seen
    }
}
