//! A connection that waits for each answer, for what is measured call by call.

use crate::script::Step;
use crate::uri::Uri;
use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions};
use lepus_amqp::{Method, ReplyCode, Table};
use lepus_base::Instant;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
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
    stream: TcpStream,
    client: ClientConnection,
    input: Vec<u8>,
    output: Vec<u8>,
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
        let mut output = Vec::new();
        let client = ClientConnection::new(options, Instant(0), &mut output);
        let mut peer = Peer { stream, client, input: Vec::new(), output, place };
        peer.wait("the connect", |event| matches!(event, ClientEvent::Opened).then_some(()))?;
        Ok(peer)
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
            self.output.extend_from_slice(&step.frame);
        }
        // Answers are in order on each channel, but not from one channel to another.
        let mut left: Vec<&Step> = steps.iter().rev().collect();
        while let Some(&next) = left.last() {
            let found = self.wait(&next.about, |event| match event {
                ClientEvent::Method { channel, method } => left
                    .iter()
                    .rposition(|step| *channel == step.channel && method.ids() == step.answer),
                _ => None,
            })?;
            left.remove(found);
        }
        Ok(())
    }

    /// Closes the connection and waits for the broker's agreement.
    ///
    /// # Errors
    /// A text for the user.
    pub(crate) fn close(mut self) -> Result<(), String> {
        self.client.close(Instant(0), ReplyCode::REPLY_SUCCESS, "bye", &mut self.output);
        self.wait("connection.close", |event| {
            matches!(event, ClientEvent::Closed { code: ReplyCode::REPLY_SUCCESS, .. })
                .then_some(())
        })
    }

    /// Sends what is to be sent and takes what comes until `look` finds something in it.
    fn wait<T>(
        &mut self,
        about: &str,
        mut look: impl FnMut(&ClientEvent<'_>) -> Option<T>,
    ) -> Result<T, String> {
        loop {
            let (used, event) = self.client.receive(Instant(0), &self.input, &mut self.output);
            let found = look(&event);
            let complaint = match (&found, &event) {
                (Some(_), _) => None,
                (None, ClientEvent::Error(error)) => Some(error.to_string()),
                (None, ClientEvent::Closed { code, text }) => {
                    Some(format!("the broker closed the connection: {} {text}", code.0))
                }
                (None, ClientEvent::Method { method: Method::ChannelClose(close), .. }) => {
                    Some(format!("the broker refused {about}: {}", close.reply_text))
                }
                _ => None,
            };
            self.input.drain(..used);
            if let Some(found) = found {
                return Ok(found);
            }
            if let Some(complaint) = complaint {
                return Err(format!("{}: {complaint}", self.place));
            }
            if used == 0 {
                self.exchange().map_err(|error| match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("{}: no answer to {about}", self.place)
                    }
                    _ => format!("{}: {error}", self.place),
                })?;
            }
        }
    }

    /// Sends everything, then reads once.
    fn exchange(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes)? {
            0 => Err(io::Error::other("the broker closed the socket")),
            count => {
                self.input.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}
