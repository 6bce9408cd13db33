//! The way to a broker: a socket, or a connection inside the process.

use super::super::path;
use super::super::{Listener, Mirror, Running};
use lepus_amqp::client::ClientOptions;
use lepus_amqp::table::Table;
use lepus_client::Client;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a connection may take to be made, and an answer to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be silent before the system asks whether the other end is there.
const IDLE: Duration = Duration::from_secs(15);
/// How long a read waits before it is looked whether the shovel is to stop.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// Why an address is not used.
pub(super) const NEEDS_ADMINISTRATOR: &str =
    "it leads to another program of this machine, for which the tag administrator is needed";

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

    /// The virtual host, where `own` is the shovel's.
    fn vhost_for(&self, own: &str) -> String {
        let default = if self.host.is_some() { "/" } else { own };
        self.vhost.clone().unwrap_or_else(|| default.to_owned())
    }
}

/// Where an address leads.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// To this broker, whether by its name or not.
    Inside,
    /// To another program of this machine, or to one beside it by an address that no other network knows.
    Here(Vec<SocketAddr>),
    /// To another machine.
    Away(Vec<SocketAddr>),
}

impl Way {
    /// Looks a host and port up, and compares what is found with where the broker listens: `None` is the broker itself.
    /// Waits for whoever knows names.
    fn find(host: Option<&(String, u16)>, listeners: &[Listener]) -> io::Result<Way> {
        let Some((host, port)) = host else { return Ok(Way::Inside) };
        let plain = host.trim_start_matches('[').trim_end_matches(']');
        let found = (plain, *port).to_socket_addrs()?.collect::<Vec<_>>();
        let is_own_port = listeners
            .iter()
            .any(|one| one.protocol.starts_with("amqp") && one.address.port() == *port);
        let (mut is_own, mut is_near) = (false, false);
        for &address in &found {
            let is_of_machine = is_of_this_machine(address);
            is_own |= is_of_machine && is_own_port;
            is_near |= is_of_machine || is_link_local(address.ip());
        }
        Ok(match (is_own, is_near) {
            (true, _) => Way::Inside,
            (false, true) => Way::Here(found),
            (false, false) => Way::Away(found),
        })
    }
}

/// Whether an address leads to this machine: only its own can be listened at.
fn is_of_this_machine(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    // With the number of the interface, which an address of the link needs.
    let mut address = address;
    address.set_port(0);
    UdpSocket::bind(address).is_ok() || UdpSocket::bind((ip, 0)).is_ok()
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// What somebody who sets an address needs for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing beside what the other broker wants.
    Nothing,
    /// Permissions in a virtual host of this broker.
    Vhost(String),
    /// The tag `administrator`: other programs of this machine may trust whoever is on it.
    Administrator,
}

/// What is needed for an address as it is now, where `own` is the shovel's virtual host. What cannot be read or is not
/// found needs nothing: it leads nowhere, and it is looked up again before it is used.
pub(super) fn need(uri: &str, own: &str, listeners: &[Listener]) -> Need {
    let Ok(address) = Address::read(uri) else { return Need::Nothing };
    match Way::find(address.host.as_ref(), listeners) {
        Ok(Way::Inside) => Need::Vhost(address.vhost_for(own)),
        Ok(Way::Here(_)) => Need::Administrator,
        Ok(Way::Away(_)) | Err(_) => Need::Nothing,
    }
}

/// In whose name a shovel does what it does on this broker and this machine.
#[derive(Clone, Copy)]
pub(super) struct Agent<'a> {
    pub(super) broker: &'a dyn Running,
    pub(super) mirror: &'a Mirror,
    /// The user who set it; `None` where that was an administrator or the operator.
    pub(super) set_by: Option<&'a str>,
}

impl Agent<'_> {
    /// The user as whom it opens a virtual host of this broker.
    fn user_in(&self, vhost: &str) -> Result<String, String> {
        let Some(user) = self.set_by else { return self.broker.user_in(vhost) };
        self.mirror.catch_up();
        let directory = self.mirror.directory();
        let id = directory.vhost(vhost).ok_or_else(|| format!("there is no vhost '{vhost}'"))?;
        let accounts = directory.accounts();
        // A thread of the broker vouches for nobody's being at this machine.
        accounts.authenticate_external(user, false).map_err(|_| {
            format!("user '{user}', who set it, is gone or may log in from this machine only")
        })?;
        match accounts.may_open(user, id) {
            true => Ok(user.to_owned()),
            false => {
                Err(format!("user '{user}', who set it, has no permissions in vhost '{vhost}'"))
            }
        }
    }
}

fn connected(host: &(String, u16), found: Vec<SocketAddr>) -> Result<TcpStream, String> {
    let failed = |error: io::Error| error.to_string();
    let connect = |address: SocketAddr| TcpStream::connect_timeout(&address, PATIENCE).ok();
    let stream = found.into_iter().find_map(connect);
    let stream = stream.ok_or_else(|| format!("{}:{} does not answer", host.0, host.1))?;
    stream.set_nodelay(true).map_err(failed)?;
    // A host that is gone says nothing.
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(IDLE / 3);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive).map_err(failed)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(IDLE * 2)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    Ok(stream)
}

/// A connection of a shovel.
pub(super) fn open(
    uri: &str,
    own_vhost: &str,
    name: &str,
    agent: Agent<'_>,
) -> Result<Client<Stream>, String> {
    let address = Address::read(uri)?;
    let vhost = address.vhost_for(own_vhost);
    let base = ClientOptions::default();
    let capabilities = base.properties.get("capabilities").cloned();
    let mut properties = Table::new().with("connection_name", name);
    if let Some(capabilities) = capabilities {
        properties.insert("capabilities", capabilities);
    }
    let options = ClientOptions { vhost: vhost.clone(), heartbeat: 0, properties, ..base };
    let failed = |error: io::Error| error.to_string();
    // What is found now is what is connected to: a name may have led elsewhere when it was set.
    let way = Way::find(address.host.as_ref(), &agent.broker.listeners()).map_err(failed)?;
    let (stream, options) = match (way, address.host) {
        (Way::Inside, _) | (_, None) => {
            let user = agent.user_in(&vhost)?;
            let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let stream = agent.broker.connect(&user, local).map_err(failed)?;
            stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
            let mechanism = "EXTERNAL".to_owned();
            (Stream::Inside(stream), ClientOptions { user, mechanism, ..options })
        }
        (Way::Here(_), _) if agent.set_by.is_some() => return Err(NEEDS_ADMINISTRATOR.to_owned()),
        (Way::Here(found) | Way::Away(found), Some(host)) => {
            let Some((user, password)) = address.login else {
                return Err("a user is missing: write amqp://USER:PASSWORD@HOST".to_owned());
            };
            let stream = connected(&host, found)?;
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

    #[test]
    fn what_leads_to_a_port_of_the_broker_is_the_broker() {
        let listener =
            |protocol, address: &str| Listener { protocol, address: address.parse().unwrap() };
        let listeners = [listener("amqp", "0.0.0.0:5700"), listener("http", "0.0.0.0:5701")];
        let need = |uri: &str| need(uri, "own", &listeners);
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "localhost",
            "[::1]",
            "0.0.0.0",
            "[::]",
            "[::ffff:127.0.0.1]",
        ] {
            let slash = Need::Vhost("/".to_owned());
            assert_eq!(need(&format!("amqp://u:p@{host}:5700")), slash, "{host}");
            assert_eq!(need(&format!("amqp://{host}:5700/%2f")), slash, "{host}");
            assert_eq!(need(&format!("amqp://u:p@{host}:5701")), Need::Administrator, "{host}");
        }
        assert_eq!(need("amqp://"), Need::Vhost("own".to_owned()));
        for near in ["169.254.169.254:5700", "[fe80::1]:5700", "127.0.0.1"] {
            assert_eq!(need(&format!("amqp://u:p@{near}")), Need::Administrator, "{near}");
        }
        for away in ["192.0.2.1:5700", "[2001:db8::1]:5700"] {
            assert_eq!(need(&format!("amqp://u:p@{away}")), Need::Nothing, "{away}");
        }
    }
}
