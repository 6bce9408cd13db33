//! A client for tests: where a broker does not do what is expected the test ends.

use lepus_amqp::client::{ClientOptions, encode_publish};
use lepus_amqp::method::{Method, basic, channel, queue};
use lepus_amqp::properties::{EMPTY, PERSISTENT};
use lepus_client::Client;
pub use lepus_client::Seen;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Properties that say no more than that the message is persistent.
const PERSISTENT_ONLY: [u8; 3] = [0x10, 0x00, PERSISTENT];

/// One connection. Channel numbers are up to the caller.
#[derive(Debug)]
pub struct Session<S>(Client<S>);

/// Connects without TLS as guest, with channel 1 open.
pub fn connect(address: SocketAddr) -> Session<TcpStream> {
    let mut session = Session::log_in(tcp(address), ClientOptions::default()).unwrap();
    assert_eq!(session.call(1, channel::Open::default()), Seen::Method("channel.open-ok"));
    session
}

/// A socket that does not wait for ever, also for what a client would never say: broken bytes, half a login.
pub fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl<S: Read + Write> Session<S> {
    /// Logs in; what came instead of an open virtual host otherwise.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn log_in(stream: S, options: ClientOptions) -> Result<Session<S>, Seen> {
        let mut session = Session(Client::begin(stream, options).map_err(|_| Seen::End)?);
        match session.see() {
            Seen::Opened => Ok(session),
            other => Err(other),
        }
    }

    /// The stream, for what the client is not to know of.
    pub fn stream(&self) -> &S {
        self.0.stream()
    }

    /// The stream, on which the connection stays open.
    pub fn into_stream(self) -> S {
        self.0.into_stream()
    }

    /// Puts a method behind what is to be sent.
    pub fn send<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        self.0.send(channel, method);
    }

    /// Puts a message for a queue behind what is to be sent.
    pub fn publish(&mut self, channel: u16, queue: &str, body: &[u8]) {
        self.publish_with(channel, queue, &EMPTY, body);
    }

    /// Puts a message that is to survive a restart behind what is to be sent.
    pub fn publish_persistent(&mut self, channel: u16, queue: &str, body: &[u8]) {
        self.publish_with(channel, queue, &PERSISTENT_ONLY, body);
    }

    fn publish_with(&mut self, channel: u16, queue: &str, properties: &[u8], body: &[u8]) {
        let frame_max = self.0.frame_max();
        encode_publish(self.0.output(), channel, frame_max, "", queue, false, properties, body);
    }

    /// Puts bytes behind what is to be sent.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.0.output().extend_from_slice(bytes);
    }

    /// What is to be sent, taken from the session.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(self.0.output())
    }

    /// Sends everything.
    pub fn flush(&mut self) {
        self.try_flush().unwrap();
    }

    /// Sends everything, unless the peer is gone.
    ///
    /// # Errors
    /// When it is.
    pub fn try_flush(&mut self) -> io::Result<()> {
        let result = self.0.flush();
        self.0.output().clear();
        result
    }

    /// Sends a method and waits for what comes.
    pub fn call<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) -> Seen {
        self.send(channel, method);
        self.flush();
        self.see()
    }

    /// Declares a durable queue on channel 1.
    pub fn declare(&mut self, queue: &str) {
        let declare = queue::Declare { queue, durable: true, ..Default::default() };
        assert_eq!(self.call(1, declare), Seen::Method("queue.declare-ok"));
    }

    /// Consumes from a queue on channel 1.
    pub fn consume(&mut self, queue: &str, no_ack: bool) {
        let consume = basic::Consume { queue, no_ack, ..Default::default() };
        assert_eq!(self.call(1, consume), Seen::Method("basic.consume-ok"));
    }

    /// Begins to close the connection; what comes of it is seen next.
    pub fn begin_close(&mut self) {
        self.0.begin_close().unwrap();
    }

    /// Ends properly.
    pub fn close(self) {
        self.0.close().unwrap();
    }

    /// The next event; waits for it.
    pub fn see(&mut self) -> Seen {
        self.0.see().expect("an answer")
    }
}
