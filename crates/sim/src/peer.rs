//! A simulated client's end of a connection: the protocol machine, what it wants to say and what
//! it has heard.

use std::collections::{BTreeMap, VecDeque};

use lepus_amqp::Method;
use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions, ClientState};
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::channel;
use lepus_amqp::server::TimeoutOutcome;
use lepus_base::{ConnectionId, Instant};

use crate::inbox::{Answer, Inbox};
use crate::wire::Wire;

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The server's reply code; `REPLY_SUCCESS` after the client's own close.
    pub code: ReplyCode,
    /// The server's reply text.
    pub text: String,
}

/// Something that a client heard, for those who need everything in its order.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The connection is open.
    Opened,
    /// A method on a channel.
    Method(u16, Answer),
    /// A method with its content: properties in wire form and body.
    Content(u16, Answer, Vec<u8>, Vec<u8>),
    /// The connection was closed with this code and text.
    Closed(ReplyCode, String),
}

/// One simulated client.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: ConnectionId,
    pub(crate) wire: Wire,
    /// `None` for a client that speaks in raw bytes.
    pub(crate) machine: Option<ClientConnection>,
    /// Bytes to be sent.
    pub(crate) output: Vec<u8>,
    /// Bytes received and not understood yet; for a raw client all of them.
    pub(crate) input: Vec<u8>,
    pub(crate) inboxes: BTreeMap<u16, Inbox>,
    /// Everything in its order instead of inboxes, for those who ask for it.
    pub(crate) heard: Option<VecDeque<Heard>>,
    /// Whether output is held back.
    pub(crate) corked: bool,
    pub(crate) reading: bool,
    pub(crate) opened: bool,
    pub(crate) closed: Option<Closed>,
    pub(crate) blocked: Option<String>,
    /// The stream from the server has ended.
    pub(crate) ended: bool,
    /// The client has ended its side of the socket after a close.
    hung_up: bool,
}

impl Peer {
    /// A client that has written its protocol header, or nothing if it speaks in raw bytes.
    pub(crate) fn new(
        id: ConnectionId,
        wire: Wire,
        options: Option<ClientOptions>,
        now: Instant,
    ) -> Peer {
        let mut output = Vec::new();
        let machine = options.map(|options| ClientConnection::new(options, now, &mut output));
        Peer {
            id,
            wire,
            machine,
            output,
            input: Vec::new(),
            inboxes: BTreeMap::new(),
            heard: None,
            corked: false,
            reading: true,
            opened: false,
            closed: None,
            blocked: None,
            ended: false,
            hung_up: false,
        }
    }

    /// Sends up to `limit` bytes of what waits; behind the last ones of a closed connection the
    /// client ends its side of the socket. Returns whether anything happened.
    pub(crate) fn send(&mut self, limit: usize, now: Instant) -> bool {
        let closed =
            self.machine.as_ref().is_some_and(|machine| machine.state() == ClientState::Closed);
        if closed && self.output.is_empty() && !self.hung_up {
            self.hung_up = true;
            self.wire.end();
            return true;
        }
        let count = self.output.len().min(limit);
        if self.corked || count == 0 {
            return false;
        }
        if !self.wire.arrive(&self.output[..count]) {
            self.output.clear();
            return false;
        }
        self.output.drain(..count);
        if let Some(machine) = &mut self.machine {
            machine.sent(now);
        }
        true
    }

    /// Receives up to `limit` bytes. Returns whether any came.
    pub(crate) fn receive(&mut self, limit: usize, now: Instant) -> bool {
        if !self.reading {
            return false;
        }
        let came = self.wire.take(limit, &mut self.input) > 0;
        if came {
            self.understand(now);
        }
        if !self.ended && self.wire.is_ended() {
            self.ended = true;
            return true;
        }
        came
    }

    fn understand(&mut self, now: Instant) {
        let Some(machine) = &mut self.machine else { return };
        let mut place = 0;
        loop {
            let (used, event) = machine.receive(now, &self.input[place..], &mut self.output);
            place += used;
            match event {
                ClientEvent::None if used == 0 => break,
                ClientEvent::None => {}
                ClientEvent::Opened => {
                    self.opened = true;
                    if let Some(heard) = &mut self.heard {
                        heard.push_back(Heard::Opened);
                    }
                }
                ClientEvent::Method { channel, method } => {
                    if let Some(heard) = &mut self.heard {
                        heard.push_back(Heard::Method(channel, Answer::new(&method)));
                        continue;
                    }
                    let inbox = self.inboxes.entry(channel).or_default();
                    if inbox.file(&method) {
                        Method::from(channel::CloseOk {}).encode_frame(channel, &mut self.output);
                    }
                }
                ClientEvent::Content { channel, method, properties, body } => {
                    if let Some(heard) = &mut self.heard {
                        let (properties, body) = (properties.to_vec(), body.to_vec());
                        let method = Answer::new(&method);
                        heard.push_back(Heard::Content(channel, method, properties, body));
                        continue;
                    }
                    let inbox = self.inboxes.entry(channel).or_default();
                    inbox.file_content(&method, properties, body);
                }
                ClientEvent::Blocked(reason) => self.blocked = Some(reason.to_owned()),
                ClientEvent::Unblocked => self.blocked = None,
                ClientEvent::Closed { code, text } => {
                    if let Some(heard) = &mut self.heard {
                        heard.push_back(Heard::Closed(code, text.to_owned()));
                    }
                    self.closed = Some(Closed { code, text: text.to_owned() });
                }
                ClientEvent::Error(error) => {
                    panic!("the broker breaks the protocol: {error}");
                }
            }
        }
        self.input.drain(..place);
    }

    /// When the client has something to do by itself.
    pub(crate) fn next_timeout(&self) -> Instant {
        match &self.machine {
            Some(machine) if !self.ended && machine.state() != ClientState::Closed => {
                machine.next_timeout()
            }
            _ => Instant::NEVER,
        }
    }

    /// Does what is due. Returns whether there was anything.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> bool {
        if self.next_timeout() > now {
            return false;
        }
        let Some(machine) = &mut self.machine else { return false };
        let before = self.output.len();
        let outcome = machine.on_timeout(now, &mut self.output);
        if outcome != TimeoutOutcome::Nothing {
            self.ended = true;
            self.wire.cut();
        }
        self.output.len() > before || outcome != TimeoutOutcome::Nothing
    }

    /// Whether the connection serves.
    pub(crate) fn is_open(&self) -> bool {
        self.opened && self.closed.is_none() && !self.ended
    }
}
