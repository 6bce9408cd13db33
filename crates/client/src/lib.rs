//! A client that waits for each answer: for what the broker's own parts do with messages, for tests, and for measurements
//! that are not about throughput.
#![forbid(unsafe_code)]

use lepus_amqp::ReplyCode;
use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions};
use lepus_amqp::method::{Method, channel, queue};
use lepus_amqp::table::Value;
use lepus_base::Instant;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant as Moment;

/// Bytes that one read takes at most.
const READ_BYTES_MAX: usize = 64 * 1024;

/// One connection, over anything that carries bytes.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    machine: ClientConnection,
    input: Vec<u8>,
    /// Bytes at the start of the input that are taken.
    taken: usize,
    output: Vec<u8>,
    start: Moment,
}

/// What a client may see next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The virtual host is open.
    Opened,
    /// A method that is not among those below, by name.
    Method(&'static str),
    /// Messages that the broker has taken.
    Ack {
        /// The last one's number.
        tag: u64,
        /// Whether all before it are meant.
        multiple: bool,
    },
    /// A message for a consumer.
    Message {
        /// Its number, for an acknowledgement.
        tag: u64,
        /// Its body.
        body: Vec<u8>,
    },
    /// The broker takes no messages, for this reason.
    Blocked(String),
    /// It takes messages again.
    Unblocked,
    /// The broker has closed the channel, which is answered.
    ChannelClosed(u16, String),
    /// The connection is closed, by either side.
    Closed(u16, String),
    /// The stream ended without a word.
    End,
}

impl Seen {
    /// An event, and the channel that was closed by it.
    fn of(event: &ClientEvent<'_>) -> Option<(Seen, Option<u16>)> {
        let mut closed = None;
        let seen = match event {
            ClientEvent::None => return None,
            ClientEvent::Opened => Seen::Opened,
            ClientEvent::Method { method: Method::BasicAck(ack), .. } => {
                Seen::Ack { tag: ack.delivery_tag, multiple: ack.multiple }
            }
            ClientEvent::Method { channel, method: Method::ChannelClose(close) } => {
                closed = Some(*channel);
                Seen::ChannelClosed(close.reply_code, close.reply_text.to_owned())
            }
            ClientEvent::Content { method: Method::BasicDeliver(deliver), body, .. } => {
                Seen::Message { tag: deliver.delivery_tag, body: body.to_vec() }
            }
            ClientEvent::Method { method, .. } | ClientEvent::Content { method, .. } => {
                Seen::Method(method.name())
            }
            ClientEvent::Blocked(reason) => Seen::Blocked((*reason).to_owned()),
            ClientEvent::Unblocked => Seen::Unblocked,
            ClientEvent::Closed { code, text } => Seen::Closed(code.0, (*text).to_owned()),
            ClientEvent::Error(error) => Seen::Closed(error.code.0, error.text.clone()),
        };
        Some((seen, closed))
    }
}

impl<S: Read + Write> Client<S> {
    /// Logs in with `options` over `stream`, which must block.
    ///
    /// # Errors
    /// When the broker refuses or the stream fails.
    pub fn open(stream: S, options: ClientOptions) -> io::Result<Client<S>> {
        let mut client = Client::begin(stream, options)?;
        client.wait(|event| matches!(event, ClientEvent::Opened).then_some(()))?;
        Ok(client)
    }

    /// Begins to log in; what comes of it is seen next.
    ///
    /// # Errors
    /// When the stream fails.
    pub fn begin(stream: S, options: ClientOptions) -> io::Result<Client<S>> {
        let mut output = Vec::new();
        let machine = ClientConnection::new(options, Instant(0), &mut output);
        let (input, start) = (Vec::new(), Moment::now());
        let mut client = Client { stream, machine, input, taken: 0, output, start };
        client.flush()?;
        Ok(client)
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

    /// The stream, on which the connection stays open.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Largest frame in bytes that the broker takes.
    pub fn frame_max(&self) -> u32 {
        self.machine.frame_max()
    }

    /// The most channels that the connection may have.
    pub fn channel_max(&self) -> u16 {
        self.machine.channel_max()
    }

    /// Opens a channel.
    ///
    /// # Errors
    /// When the broker refuses or the stream fails.
    pub fn open_channel(&mut self, number: u16) -> io::Result<()> {
        self.call(number, channel::Open::default(), "channel.open-ok")
    }

    /// Closes the connection in order.
    ///
    /// # Errors
    /// When the broker does not agree, or the stream fails.
    pub fn close(mut self) -> io::Result<()> {
        self.begin_close()?;
        self.wait(|event| match event {
            ClientEvent::Closed { code: ReplyCode::REPLY_SUCCESS, .. } => Some(()),
            _ => None,
        })
    }

    /// Begins to close the connection; what comes of it is seen next.
    ///
    /// # Errors
    /// When the stream fails.
    pub fn begin_close(&mut self) -> io::Result<()> {
        let now = self.now();
        self.machine.close(now, ReplyCode::REPLY_SUCCESS, "", &mut self.output);
        self.flush()
    }

    /// Puts a method behind what is to be sent.
    pub fn send<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        method.into().encode_frame(channel, &mut self.output);
    }

    /// What is to be sent next; whole frames may be added.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Sends a method and waits for the answer of this name.
    ///
    /// # Errors
    /// When something else comes before it or the stream fails.
    pub fn call<'a>(
        &mut self,
        channel: u16,
        method: impl Into<Method<'a>>,
        answer: &str,
    ) -> io::Result<()> {
        self.send(channel, method);
        self.expect(answer)
    }

    /// Sends everything, then waits for the method of this name.
    ///
    /// # Errors
    /// When something else comes or the stream fails.
    pub fn expect(&mut self, name: &str) -> io::Result<()> {
        self.flush()?;
        self.wait(|event| match event {
            ClientEvent::Method { method, .. } if method.name() == name => Some(Ok(())),
            ClientEvent::Method { method, .. } => Some(Err(unexpected(name, method))),
            ClientEvent::Content { .. } => {
                Some(Err(io::Error::other(format!("expected {name}, got a message"))))
            }
            _ => None,
        })?
    }

    /// Asks for a queue and returns how many messages stand ready in it.
    ///
    /// # Errors
    /// When it is not there, or the stream fails.
    pub fn count(&mut self, channel: u16, declare: queue::Declare<'_>) -> io::Result<u64> {
        self.send(channel, declare);
        self.flush()?;
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::QueueDeclareOk(ok), .. } => {
                Some(Ok(u64::from(ok.message_count)))
            }
            ClientEvent::Method { method, .. } => Some(Err(unexpected("queue.declare-ok", method))),
            _ => None,
        })?
    }

    /// Waits for whatever comes next.
    ///
    /// # Errors
    /// When nothing comes in the time that the stream waits.
    pub fn see(&mut self) -> io::Result<Seen> {
        let (seen, closed) = match self.wait(Seen::of) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(error);
            }
            Err(_) => return Ok(Seen::End),
            Ok(found) => found,
        };
        if let Some(channel) = closed {
            self.send(channel, channel::CloseOk {});
            // Who is gone already has no use for it.
            let _ = self.flush();
        }
        Ok(seen)
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// When a method comes before it, or the connection ends.
    pub fn expect_message(&mut self) -> io::Result<()> {
        self.wait(|event| match event {
            ClientEvent::Content { .. } => Some(Ok(())),
            ClientEvent::Method { method, .. } => Some(Err(unexpected("a message", method))),
            _ => None,
        })?
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
        loop {
            match self.read() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.take(&mut |_, _| Ok(()))?;
        let now = self.now();
        if self.machine.next_timeout() <= now {
            self.machine.on_timeout(now, &mut self.output);
        }
        if !self.output.is_empty() {
            self.machine.sent(now);
            self.flush()?;
        }
        Ok(())
    }

    /// Takes what comes until `look` finds something in it. What it makes due, such as an answer to a closed channel, is sent.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn wait<T>(
        &mut self,
        mut look: impl FnMut(&ClientEvent<'_>) -> Option<T>,
    ) -> io::Result<T> {
        loop {
            let now = self.now();
            let input = &self.input[self.taken..];
            let (used, event) = self.machine.receive(now, input, &mut self.output);
            let found = look(&event);
            let ended = if found.is_none() { end_of(&event) } else { None };
            self.taken += used;
            let mut sent = Ok(());
            if !self.output.is_empty() {
                self.machine.sent(now);
                sent = self.flush();
            }
            match (found, ended) {
                // The broker may have closed its side behind what it said.
                (Some(found), _) => return Ok(found),
                (None, Some(error)) => return Err(error),
                (None, None) => sent?,
            }
            if used == 0 {
                self.read()?;
            }
        }
    }

    /// Reads once and shows all that is whole; `look` may add to what is to be sent.
    ///
    /// # Errors
    /// When the connection ends, nothing comes in the time that the stream waits, or `look` fails.
    pub fn receive(
        &mut self,
        look: &mut dyn FnMut(ClientEvent<'_>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.read()?;
        self.take(look)
    }

    fn take(
        &mut self,
        look: &mut dyn FnMut(ClientEvent<'_>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let now = self.now();
        loop {
            let input = &self.input[self.taken..];
            let (used, event) = self.machine.receive(now, input, &mut self.output);
            let outcome = match end_of(&event) {
                Some(error) => Err(error),
                None => look(event, &mut self.output),
            };
            self.taken += used;
            outcome?;
            if used == 0 {
                return Ok(());
            }
        }
    }

    /// Reads once, behind what is not taken yet.
    fn read(&mut self) -> io::Result<()> {
        self.input.drain(..std::mem::take(&mut self.taken));
        let kept = self.input.len();
        self.input.resize(kept + READ_BYTES_MAX, 0);
        let read = loop {
            match self.stream.read(&mut self.input[kept..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.input.truncate(kept + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the broker closed the socket")),
            _ => Ok(()),
        }
    }

    fn now(&self) -> Instant {
        Instant(self.start.elapsed().as_nanos() as u64)
    }
}

/// How the connection has ended, if it has.
fn end_of(event: &ClientEvent<'_>) -> Option<io::Error> {
    match event {
        ClientEvent::Error(error) => Some(io::Error::other(error.to_string())),
        ClientEvent::Closed { code, text } => {
            let text = format!("the broker closed the connection: {} {text}", code.0);
            Some(io::Error::other(text))
        }
        _ => None,
    }
}

fn unexpected(wanted: &str, found: &Method<'_>) -> io::Error {
    match found {
        Method::ChannelClose(close) => {
            let (code, text) = (close.reply_code, close.reply_text);
            io::Error::other(format!("expected {wanted}, the channel was closed: {code} {text}"))
        }
        other => io::Error::other(format!("expected {wanted}, got {}", other.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::method::connection;

    /// Gives what a broker says a few bytes at a time, whatever it is told.
    struct Script {
        said: Vec<u8>,
        at: usize,
        heard: Vec<u8>,
    }

    impl Script {
        fn new(methods: &[(u16, Method<'_>)]) -> Script {
            let mut said = Vec::new();
            for (channel, method) in methods {
                method.clone().encode_frame(*channel, &mut said);
            }
            Script { said, at: 0, heard: Vec::new() }
        }
    }

    impl Read for Script {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let count = bytes.len().min(7).min(self.said.len() - self.at);
            bytes[..count].copy_from_slice(&self.said[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.heard.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn opened(rest: &[(u16, Method<'_>)]) -> Client<Script> {
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            mechanisms: b"PLAIN",
            locales: b"en_US",
            ..Default::default()
        };
        let tune = connection::Tune { channel_max: 5, frame_max: 4096, heartbeat: 0 };
        let mut methods =
            vec![(0, start.into()), (0, tune.into()), (0, connection::OpenOk::default().into())];
        methods.extend_from_slice(rest);
        Client::open(Script::new(&methods), ClientOptions::default()).unwrap()
    }

    #[test]
    fn answers_are_waited_for_and_others_are_named() {
        let ok = queue::DeclareOk { queue: "q", message_count: 3, consumer_count: 0 };
        let close =
            channel::Close { reply_code: 404, reply_text: "none", class_id: 50, method_id: 10 };
        let mut client = opened(&[
            (1, channel::OpenOk::default().into()),
            (1, ok.into()),
            (1, channel::OpenOk::default().into()),
            (1, close.into()),
        ]);
        assert_eq!((client.channel_max(), client.frame_max()), (5, 4096));
        client.open_channel(1).unwrap();
        assert_eq!(client.count(1, queue::Declare::default()).unwrap(), 3);
        let wrong = client.call(1, queue::Purge::default(), "queue.purge-ok").unwrap_err();
        assert!(wrong.to_string().contains("got channel.open-ok"), "{wrong}");
        let closed = client.call(1, queue::Purge::default(), "queue.purge-ok").unwrap_err();
        assert!(closed.to_string().contains("404 none"), "{closed}");
        assert_eq!(client.see().unwrap(), Seen::End);
    }

    #[test]
    fn a_connection_that_the_broker_closes_says_why() {
        let close =
            connection::Close { reply_code: 320, reply_text: "bye", class_id: 0, method_id: 0 };
        let mut client = opened(&[(0, close.into())]);
        let text = client.expect_message().unwrap_err().to_string();
        assert!(text.contains("320 bye"), "{text}");
    }
}
