//! A client that waits for each answer, for measurements that are not about throughput.

use lepus_amqp::ReplyCode;
use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions};
use lepus_amqp::method::{Method, channel, queue};
use lepus_amqp::table::Value;
use lepus_base::Instant;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant as Moment;

/// One connection, over anything that carries bytes.
pub struct Peer<S> {
    stream: S,
    machine: ClientConnection,
    input: Vec<u8>,
    output: Vec<u8>,
    start: Moment,
}

/// What a peer may see next.
pub enum Seen {
    /// A method without content, by name.
    Method(&'static str),
    /// A message.
    Message,
}

impl<S: Read + Write> Peer<S> {
    /// Logs in with `options` over `stream`, which must block.
    ///
    /// # Errors
    /// When the broker refuses or the stream fails.
    pub fn open(stream: S, options: ClientOptions) -> io::Result<Peer<S>> {
        let mut output = Vec::new();
        let machine = ClientConnection::new(options, Instant(0), &mut output);
        let mut peer = Peer { stream, machine, input: Vec::new(), output, start: Moment::now() };
        peer.flush()?;
        peer.wait(|event| matches!(event, ClientEvent::Opened).then_some(()))?;
        Ok(peer)
    }

    /// What the broker calls itself: product and version, as far as it tells.
    pub fn product(&self) -> String {
        let properties = self.machine.server_properties();
        let text = |name: &str| match properties.get(name) {
            Some(Value::LongString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        format!("{} {}", text("product"), text("version")).trim().to_owned()
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Opens a channel.
    ///
    /// # Errors
    /// When the broker refuses or the stream fails.
    pub fn open_channel(&mut self, number: u16) -> io::Result<()> {
        self.send(number, channel::Open::default());
        self.expect("channel.open-ok")
    }

    /// Closes the connection in order.
    ///
    /// # Errors
    /// When the broker does not agree, or the stream fails.
    pub fn close(mut self) -> io::Result<()> {
        let now = self.now();
        self.machine.close(now, ReplyCode::REPLY_SUCCESS, "", &mut self.output);
        self.flush()?;
        self.wait(|event| match event {
            ClientEvent::Closed { code: ReplyCode::REPLY_SUCCESS, .. } => Some(()),
            _ => None,
        })
    }

    /// Puts a method behind what is to be sent.
    pub fn send<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        method.into().encode_frame(channel, &mut self.output);
    }

    /// What is to be sent next; whole frames may be added.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Sends everything, then waits for the method of this name.
    ///
    /// # Errors
    /// When something else comes or the stream fails.
    pub fn expect(&mut self, name: &str) -> io::Result<()> {
        self.flush()?;
        match self.see()? {
            Seen::Method(found) if found == name => Ok(()),
            Seen::Method(found) => Err(io::Error::other(format!("expected {name}, got {found}"))),
            Seen::Message => Err(io::Error::other(format!("expected {name}, got a message"))),
        }
    }

    /// Asks for a queue and returns how many messages stand ready in it.
    ///
    /// # Errors
    /// When it is not there, or the stream fails.
    pub fn count(&mut self, channel: u16, declare: queue::Declare<'_>) -> io::Result<u64> {
        self.send(channel, declare);
        self.flush()?;
        let count = self.wait(|event| match event {
            ClientEvent::Method { method: Method::QueueDeclareOk(ok), .. } => {
                Some(Ok(u64::from(ok.message_count)))
            }
            ClientEvent::Method { method, .. } => Some(Err(method.name())),
            _ => None,
        })?;
        count.map_err(|name| io::Error::other(format!("expected queue.declare-ok, got {name}")))
    }

    /// Waits for a method or a message.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn see(&mut self) -> io::Result<Seen> {
        self.wait(|event| match event {
            ClientEvent::Method { method, .. } => Some(Seen::Method(method.name())),
            ClientEvent::Content { .. } => Some(Seen::Message),
            _ => None,
        })
    }

    /// Sends everything.
    ///
    /// # Errors
    /// When the stream fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        self.stream.flush()
    }

    /// Keeps an idle connection alive: takes the broker's heartbeats and sends those that are due.
    /// The stream must not block.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn keep_alive(&mut self) -> io::Result<()> {
        let now = self.now();
        loop {
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while !self.input.is_empty() {
            let (used, event) = self.machine.receive(now, &self.input, &mut self.output);
            if let ClientEvent::Error(error) = event {
                return Err(io::Error::other(error.text));
            }
            if used == 0 {
                break;
            }
            self.input.drain(..used);
        }
        if self.machine.next_timeout() <= now {
            self.machine.on_timeout(now, &mut self.output);
        }
        if !self.output.is_empty() {
            self.machine.sent(now);
            self.flush()?;
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant(self.start.elapsed().as_nanos() as u64)
    }

    /// Takes what comes until `look` finds something in it.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn wait<T>(
        &mut self,
        mut look: impl FnMut(&ClientEvent<'_>) -> Option<T>,
    ) -> io::Result<T> {
        loop {
            let now = self.now();
            let (used, event) = self.machine.receive(now, &self.input, &mut self.output);
            let found = match (look(&event), &event) {
                (Some(found), _) => Some(found),
                (None, ClientEvent::Error(error)) => {
                    return Err(io::Error::other(error.text.clone()));
                }
                (None, ClientEvent::Closed { code, text }) => {
                    return Err(io::Error::other(format!("closed: {} {text}", code.0)));
                }
                (None, _) => None,
            };
            self.input.drain(..used);
            if !self.output.is_empty() {
                self.machine.sent(now);
                self.flush()?;
            }
            if let Some(found) = found {
                return Ok(found);
            }
            if used == 0 {
                let mut bytes = [0; 65_536];
                match self.stream.read(&mut bytes)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    count => self.input.extend_from_slice(&bytes[..count]),
                }
            }
        }
    }
}
