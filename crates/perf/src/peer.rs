//! A connection that waits for each answer, for what is measured call by call.

use crate::script::Step;
use crate::template::Message;
use crate::uri::Uri;
use lepus_amqp::client::{ClientEvent, ClientOptions, encode_publish};
use lepus_amqp::{Method, Table};
use lepus_probe::Client;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest segment, in bytes, in both directions: a larger one of the loopback does not fit a window that is
/// nearly full, and waits for a timer of 200 ms.
#[cfg(unix)]
const SEGMENT_BYTES_MAX: u32 = 16 << 10;

/// Connects to the first address of the host that answers.
pub(crate) fn connect(uri: &Uri) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host name has no address");
    for address in (uri.host.as_str(), uri.port).to_socket_addrs()? {
        match connect_to(address) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    #[cfg(unix)]
    socket.set_tcp_mss(SEGMENT_BYTES_MAX)?;
    socket.connect_timeout(&address.into(), Duration::from_secs(10))?;
    Ok(socket.into())
}

/// How the tester introduces itself to the broker at `uri`, under `name` in the broker's tools.
pub(crate) fn client_options(uri: &Uri, name: &str) -> ClientOptions {
    let defaults = ClientOptions::default();
    let capabilities = defaults.properties.get("capabilities").cloned();
    let mut properties = Table::new()
        .with("product", "lepus perf")
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("platform", "Rust")
        .with("connection_name", name);
    if let Some(capabilities) = capabilities {
        properties.insert("capabilities", capabilities);
    }
    ClientOptions {
        user: uri.user.clone(),
        password: uri.password.clone(),
        vhost: uri.vhost.clone(),
        properties,
        ..defaults
    }
}

/// One connection without heartbeats.
#[derive(Debug)]
pub(crate) struct Peer {
    client: Client<TcpStream>,
    place: String,
}

impl Peer {
    /// Connects and logs in.
    ///
    /// # Errors
    /// A text for the user.
    pub(crate) fn open(uri: &Uri, name: &str) -> Result<Peer, String> {
        let place = format!("{}:{}", uri.host, uri.port);
        let fail = |error: io::Error| format!("cannot connect to {place}: {error}");
        let stream = connect(uri).map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(fail)?;
        let options = ClientOptions { heartbeat: 0, ..client_options(uri, name) };
        let client = Client::open(stream, options);
        let client = client.map_err(|error| complaint(&place, "the connect", &error))?;
        Ok(Peer { client, place })
    }

    /// The most channels that it may have.
    pub(crate) fn channels_max(&self) -> u16 {
        self.client.channel_max()
    }

    /// Takes all steps, each as soon as the one before is sent, and waits for their answers.
    ///
    /// # Errors
    /// A text for the user.
    pub(crate) fn carry_out(&mut self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            self.client.output().extend_from_slice(&step.frame);
        }
        // Answers are in order on each channel, but not from one channel to another.
        let mut left: Vec<&Step> = steps.iter().rev().collect();
        while let Some(&next) = left.last() {
            let about = &next.about;
            let answer = self.client.flush().and_then(|()| {
                self.client.wait(|event| match event {
                    ClientEvent::Method { channel, method } => left
                        .iter()
                        .rposition(|step| *channel == step.channel && method.ids() == step.answer)
                        .map(Ok)
                        .or_else(|| refusal(about, method).map(Err)),
                    _ => None,
                })
            });
            let found = answer.flatten();
            left.remove(found.map_err(|error| complaint(&self.place, about, &error))?);
        }
        Ok(())
    }

    /// Publishes a message.
    ///
    /// # Errors
    /// A text for the user.
    pub(crate) fn publish(&mut self, channel: u16, message: &Message) -> Result<(), String> {
        let Message { exchange, routing_key, mandatory, properties, body, .. } = message;
        let frame_max = self.client.frame_max();
        let out = self.client.output();
        encode_publish(
            out,
            channel,
            frame_max,
            exchange,
            routing_key,
            *mandatory,
            properties,
            body,
        );
        self.client.flush().map_err(|error| complaint(&self.place, "basic.publish", &error))
    }

    /// Takes what comes within `time`, as soon as something does.
    ///
    /// # Errors
    /// A text for the user: the connection has ended, or the broker closed a channel.
    pub(crate) fn listen(
        &mut self,
        time: Duration,
        take: &mut dyn FnMut(&ClientEvent<'_>),
    ) -> Result<(), String> {
        let mut look = |event: ClientEvent<'_>, _: &mut Vec<u8>| match &event {
            ClientEvent::Method { method: Method::ChannelClose(close), .. } => {
                Err(io::Error::other(format!("the broker closed a channel: {}", close.reply_text)))
            }
            _ => {
                take(&event);
                Ok(())
            }
        };
        let timeout =
            |client: &Client<TcpStream>, time| client.stream().set_read_timeout(Some(time));
        let received = timeout(&self.client, time).and_then(|()| self.client.receive(&mut look));
        let restored = timeout(&self.client, ANSWER_TIMEOUT);
        match received {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            other => other.map_err(|error| complaint(&self.place, "what was sent", &error))?,
        }
        restored.map_err(|error| complaint(&self.place, "what was sent", &error))
    }

    /// Closes the connection and waits for the broker's agreement.
    ///
    /// # Errors
    /// A text for the user.
    pub(crate) fn close(self) -> Result<(), String> {
        let closed = self.client.close();
        closed.map_err(|error| complaint(&self.place, "connection.close", &error))
    }
}

/// What the broker says against a request, where it closes the channel for it.
fn refusal(about: &str, method: &Method<'_>) -> Option<io::Error> {
    let Method::ChannelClose(close) = method else { return None };
    Some(io::Error::other(format!("the broker refused {about}: {}", close.reply_text)))
}

fn complaint(place: &str, about: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("{place}: no answer to {about}")
        }
        _ => format!("{place}: {error}"),
    }
}
