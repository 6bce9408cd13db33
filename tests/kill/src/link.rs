//! One connection of the load, blocking, on the project's own client machine.

use lepus_amqp::Method;
use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions};
use lepus_amqp::method::{basic, channel, queue};
use lepus_base::Instant;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant as Moment};

/// How long an answer may take before the run is given up.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
const READ_BYTES_MAX: usize = 64 * 1024;

/// What came in.
pub enum Seen<'a> {
    /// A method without content.
    Method(u16, Method<'a>),
    /// A message for a consumer.
    Message(u16, basic::Deliver<'a>, &'a [u8]),
    /// A message that no queue took.
    Returned,
}

/// One connection.
pub struct Link {
    stream: TcpStream,
    machine: ClientConnection,
    input: Vec<u8>,
    /// What is to be sent; whole frames may be added.
    pub output: Vec<u8>,
    start: Moment,
}

impl Link {
    /// Connects, logs in as the guest and opens the channels from 1 to `channels`.
    ///
    /// # Errors
    /// When the broker refuses, or the connection ends.
    pub fn open(port: u16, channels: u16) -> io::Result<Link> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        let mut output = Vec::new();
        let options = ClientOptions { heartbeat: 0, ..ClientOptions::default() };
        let machine = ClientConnection::new(options, Instant(0), &mut output);
        let mut link = Link { stream, machine, input: Vec::new(), output, start: Moment::now() };
        link.flush()?;
        let mut opened = false;
        while !opened {
            link.read()?;
            link.take(&mut |event, _| {
                opened |= matches!(event, ClientEvent::Opened);
                Ok(())
            })?;
            link.flush()?;
        }
        for number in 1..=channels {
            link.call(number, channel::Open::default(), "channel.open-ok")?;
        }
        Ok(link)
    }

    /// Largest frame in bytes that the broker takes.
    pub fn frame_max(&self) -> u32 {
        self.machine.frame_max()
    }

    /// Puts a method behind what is to be sent.
    pub fn send<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        method.into().encode_frame(channel, &mut self.output);
    }

    /// Sends everything.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// Sends a method and waits for the answer of this name; nothing else may come before it.
    ///
    /// # Errors
    /// When something else comes, or the connection ends.
    pub fn call<'a>(
        &mut self,
        channel: u16,
        method: impl Into<Method<'a>>,
        answer: &str,
    ) -> io::Result<()> {
        self.ask(channel, method, &mut |method| match method.name() == answer {
            true => Ok(()),
            false => Err(unexpected(answer, &method)),
        })
    }

    /// Asks for a queue and returns how many messages stand ready in it.
    ///
    /// # Errors
    /// When it is not there, or the connection ends.
    pub fn count(&mut self, channel: u16, declare: queue::Declare<'_>) -> io::Result<u64> {
        let mut count = 0;
        self.ask(channel, declare, &mut |method| match method {
            Method::QueueDeclareOk(ok) => {
                count = u64::from(ok.message_count);
                Ok(())
            }
            other => Err(unexpected("queue.declare-ok", &other)),
        })?;
        Ok(count)
    }

    fn ask<'a>(
        &mut self,
        channel: u16,
        method: impl Into<Method<'a>>,
        answer: &mut dyn FnMut(Method<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.send(channel, method);
        self.flush()?;
        let mut answered = false;
        while !answered {
            self.read()?;
            self.see(&mut |seen, _| match seen {
                Seen::Method(_, method) => {
                    answered = true;
                    answer(method)
                }
                _ => Err(io::Error::other("a message instead of an answer")),
            })?;
        }
        Ok(())
    }

    /// Waits up to `time` for bytes and shows what is whole; `look` may add to what is to be sent.
    /// The result is whether any bytes came.
    ///
    /// # Errors
    /// When the connection ends, or `look` fails.
    pub fn receive(
        &mut self,
        time: Duration,
        look: &mut dyn FnMut(Seen<'_>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(time))?;
        match self.read() {
            Ok(()) => {
                self.see(look)?;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let kept = self.input.len();
        self.input.resize(kept + READ_BYTES_MAX, 0);
        let read = self.stream.read(&mut self.input[kept..]);
        let count = *read.as_ref().unwrap_or(&0);
        self.input.truncate(kept + count);
        match read? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn see(
        &mut self,
        look: &mut dyn FnMut(Seen<'_>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.take(&mut |event, output| match event {
            ClientEvent::Method { channel, method } => look(Seen::Method(channel, method), output),
            ClientEvent::Content {
                channel, method: Method::BasicDeliver(deliver), body, ..
            } => look(Seen::Message(channel, deliver, body), output),
            ClientEvent::Content { .. } => look(Seen::Returned, output),
            _ => Ok(()),
        })
    }

    fn take(
        &mut self,
        look: &mut dyn FnMut(ClientEvent<'_>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let now = Instant(self.start.elapsed().as_nanos() as u64);
        let mut used = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let (count, event) = self.machine.receive(now, &self.input[used..], &mut self.output);
            outcome = match event {
                ClientEvent::Error(error) => Err(io::Error::other(error.text)),
                ClientEvent::Closed { code, text } => {
                    Err(io::Error::other(format!("closed by the broker: {} {text}", code.0)))
                }
                event => look(event, &mut self.output),
            };
            used += count;
            if count == 0 {
                break;
            }
        }
        self.input.drain(..used);
        outcome
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
