//! One connection of the load.

use lepus_amqp::Method;
use lepus_amqp::client::{ClientEvent, ClientOptions};
use lepus_amqp::method::basic;
use lepus_probe::Client;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take before the run is given up.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

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
pub type Link = Client<TcpStream>;

/// Connects, logs in as the guest and opens the channels from 1 to `channels`.
///
/// # Errors
/// When the broker refuses, or the connection ends.
pub fn open(port: u16, channels: u16) -> io::Result<Link> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let options = ClientOptions { heartbeat: 0, ..ClientOptions::default() };
    let mut link = Client::open(stream, options)?;
    for number in 1..=channels {
        link.open_channel(number)?;
    }
    Ok(link)
}

/// Waits up to `time` for bytes and shows what is whole. The result is whether any bytes came.
///
/// # Errors
/// When the connection ends, or `look` fails.
pub fn receive(
    link: &mut Link,
    time: Duration,
    look: &mut dyn FnMut(Seen<'_>) -> io::Result<()>,
) -> io::Result<bool> {
    link.stream().set_read_timeout(Some(time))?;
    let received = link.receive(&mut |event, _| match event {
        ClientEvent::Method { channel, method } => look(Seen::Method(channel, method)),
        ClientEvent::Content { channel, method: Method::BasicDeliver(deliver), body, .. } => {
            look(Seen::Message(channel, deliver, body))
        }
        ClientEvent::Content { .. } => look(Seen::Returned),
        _ => Ok(()),
    });
    match received {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
