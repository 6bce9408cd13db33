//! The way to a broker: a socket, or a connection inside the process.

use super::super::Running;
use super::super::path;
use lepus_amqp::client::ClientOptions;
use lepus_amqp::table::Table;
use lepus_client::Client;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a connection may take to be made, and an answer to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be silent before the system asks whether the other end is there.
const IDLE: Duration = Duration::from_secs(15);
/// How long a read waits before it is looked whether the shovel is to stop.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Bytes to and from a broker.
#[derive(Debug)]
pub(super) enum Stream {
    Inside(UnixStream),
    Socket(TcpStream),
}

impl Stream {
    pub(super) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        match self {
            Stream::Inside(stream) => stream.set_read_timeout(Some(patience)),
            Stream::Socket(stream) => stream.set_read_timeout(Some(patience)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Inside(stream) => stream.read(buffer),
            Stream::Socket(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Inside(stream) => stream.write(bytes),
            Stream::Socket(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A broker's address.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    /// Host and port; `None` for the broker itself.
    host: Option<(String, u16)>,
    /// Name and password.
    login: Option<(String, String)>,
    /// `None` for that of the shovel.
    vhost: Option<String>,
}

impl Address {
    fn read(uri: &str) -> Result<Address, String> {
        let wrong =
            || format!("{} is no address of AMQP", super::definition::without_password(uri));
        let rest = match uri.split_once("://") {
            Some(("amqp", rest)) => rest,
            Some(("amqps", _)) => return Err("shovels over TLS are not carried out yet".to_owned()),
            _ => return Err(wrong()),
        };
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let (authority, vhost) = match rest.split_once('/') {
            Some((authority, vhost)) => (authority, Some(vhost)),
            None => (rest, None),
        };
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        let decode = |text: &str| path::decode(text).map_err(|_| wrong());
        let login = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => Some((decode(user)?, decode(password)?)),
            None => None,
        };
        let host = match host.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                Some((host.to_owned(), port.parse().map_err(|_| wrong())?))
            }
            _ if host.is_empty() => None,
            _ => Some((host.to_owned(), 5672)),
        };
        let vhost = vhost.filter(|vhost| !vhost.is_empty()).map(decode).transpose()?;
        Ok(Address { host, login, vhost })
    }
}

/// The virtual host that an address means where it means this broker; `own` is the shovel's.
pub(super) fn vhost_inside(uri: &str, own: &str) -> Option<String> {
    let address = Address::read(uri).ok().filter(|address| address.host.is_none())?;
    Some(address.vhost.unwrap_or_else(|| own.to_owned()))
}

/// A connection of a shovel.
pub(super) fn open(
    uri: &str,
    own_vhost: &str,
    name: &str,
    broker: &dyn Running,
) -> Result<Client<Stream>, String> {
    let address = Address::read(uri)?;
    let vhost = address.vhost.unwrap_or_else(|| match address.host {
        Some(_) => "/".to_owned(),
        None => own_vhost.to_owned(),
    });
    let base = ClientOptions::default();
    let capabilities = base.properties.get("capabilities").cloned();
    let mut properties = Table::new().with("connection_name", name);
    if let Some(capabilities) = capabilities {
        properties.insert("capabilities", capabilities);
    }
    let options = ClientOptions { vhost: vhost.clone(), heartbeat: 0, properties, ..base };
    let failed = |error: io::Error| error.to_string();
    let (stream, options) = match address.host {
        None => {
            let user = broker.user_in(&vhost)?;
            let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let stream = broker.connect(&user, local).map_err(failed)?;
            stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
            let mechanism = "EXTERNAL".to_owned();
            (Stream::Inside(stream), ClientOptions { user, mechanism, ..options })
        }
        Some((host, port)) => {
            let plain = host.trim_start_matches('[').trim_end_matches(']');
            let found = (plain, port).to_socket_addrs().map_err(failed)?;
            let connect = |address: SocketAddr| TcpStream::connect_timeout(&address, PATIENCE).ok();
            let stream = found.into_iter().find_map(connect);
            let stream = stream.ok_or_else(|| format!("{host}:{port} does not answer"))?;
            stream.set_nodelay(true).map_err(failed)?;
            // A host that is gone says nothing.
            let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(IDLE / 3);
            let socket = SockRef::from(&stream);
            socket.set_tcp_keepalive(&keepalive).map_err(failed)?;
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(IDLE * 2)).map_err(failed)?;
            stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
            let (user, password) =
                address.login.unwrap_or_else(|| ("guest".to_owned(), "guest".to_owned()));
            (Stream::Socket(stream), ClientOptions { user, password, ..options })
        }
    };
    stream.set_patience(PATIENCE).map_err(failed)?;
    let mut client = Client::open(stream, options).map_err(failed)?;
    client.open_channel(1).map_err(failed)?;
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_clients_read_them() {
        let read = |uri| Address::read(uri).unwrap();
        let own = Address { host: None, login: None, vhost: None };
        assert_eq!(read("amqp://"), own);
        assert_eq!(read("amqp:///v%2fw"), Address { vhost: Some("v/w".to_owned()), ..own });
        let address = read("amqp://u%40x:p@host:5673/%2f?heartbeat=5");
        assert_eq!(address.host, Some(("host".to_owned(), 5673)));
        assert_eq!(address.login, Some(("u@x".to_owned(), "p".to_owned())));
        assert_eq!(address.vhost.as_deref(), Some("/"));
        assert_eq!(read("amqp://[::1]").host, Some(("[::1]".to_owned(), 5672)));
        assert!(Address::read("http://host").is_err());
        assert!(Address::read("amqps://host").unwrap_err().contains("TLS"));
    }
}
