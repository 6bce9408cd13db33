//! What lies in the system's buffers of the broker's connections.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The system's lists of its TCP sockets, one in each line (`Documentation/networking/proc_net_tcp.rst` of Linux).
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The state of a socket that listens, whose figures mean something else.
const LISTENS: &str = "0A";

/// Bytes of all connections that came in at some addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Bytes that the broker has sent and that peers have not taken yet.
    pub send_bytes: u64,
    /// Bytes that came and that the broker has not read yet.
    pub receive_bytes: u64,
}

impl SocketBuffers {
    /// Adds up what lies in the buffers of the connections to these listeners; 0 where the system does not tell.
    /// Costs a look at each socket of the machine, or of the process's network namespace.
    #[must_use]
    pub fn read(listeners: &[SocketAddr]) -> SocketBuffers {
        let mut sum = SocketBuffers::default();
        if listeners.is_empty() {
            return sum;
        }
        for path in LISTS {
            let Ok(list) = File::open(path) else { continue };
            let lines = BufReader::new(list).lines().map_while(Result::ok);
            for socket in lines.filter_map(|line| Socket::parse(&line)) {
                if listeners.iter().any(|listener| socket.came_in_at(listener)) {
                    sum.send_bytes += u64::from(socket.send_bytes);
                    sum.receive_bytes += u64::from(socket.receive_bytes);
                }
            }
        }
        sum
    }
}

/// A line of a list.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    local: SocketAddr,
    send_bytes: u32,
    receive_bytes: u32,
}

impl Socket {
    /// `None` for the line of headings, for a socket that listens, and for what is not understood.
    fn parse(line: &str) -> Option<Socket> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state) = (words.next()?, words.next()?, words.next()?);
        if state == LISTENS {
            return None;
        }
        let (send, receive) = words.next()?.split_once(':')?;
        let hexadecimal = |digits| u32::from_str_radix(digits, 16).ok();
        Some(Socket {
            local: address(local)?,
            send_bytes: hexadecimal(send)?,
            receive_bytes: hexadecimal(receive)?,
        })
    }

    fn came_in_at(&self, listener: &SocketAddr) -> bool {
        let is_at = |ip: IpAddr| ip == self.local.ip() || ip.is_unspecified();
        listener.port() == self.local.port()
            && listener.is_ipv4() == self.local.is_ipv4()
            && is_at(listener.ip())
    }
}

/// An address as it stands there: words of 32 bits of the address as this machine has them, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let mut bytes = Vec::with_capacity(16);
    for word in ip.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_are_understood() {
        let line = "   1: 0100007F:1628 0100007F:D2F0 01 0003E8A0:0000000C 01:00000014 00000000     0        0 \
                    91 4 0000000000000000 20 4 30 10 -1";
        let socket = Socket::parse(line).unwrap();
        assert_eq!(socket.local, "127.0.0.1:5672".parse().unwrap());
        assert_eq!((socket.send_bytes, socket.receive_bytes), (0x3_e8a0, 12));
        for (listener, expected) in [
            ("127.0.0.1:5672", true),
            ("0.0.0.0:5672", true),
            ("127.0.0.2:5672", false),
            ("127.0.0.1:5673", false),
            ("[::]:5672", false),
        ] {
            assert_eq!(socket.came_in_at(&listener.parse().unwrap()), expected, "{listener}");
        }
        let six = line.replace("0100007F:1628", "00000000000000000000000001000000:1628");
        assert_eq!(Socket::parse(&six).unwrap().local, "[::1]:5672".parse().unwrap());
        let listening = line.replace(" 01 0003E8A0", " 0A 0003E8A0");
        let headings =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        for other in [&listening[..], headings, "", "1: x:1 y:2 01 0:0", "1: 0:1 0:2 01 zz:0"] {
            assert_eq!(Socket::parse(other), None, "{other}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_a_peer_does_not_take_is_counted() {
        for ip in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((ip, 0)) else { continue };
            let address = listener.local_addr().unwrap();
            let mut peer = TcpStream::connect(address).unwrap();
            let (mut accepted, _) = listener.accept().unwrap();
            accepted.set_nonblocking(true).unwrap();
            let mut sent = 0;
            while let Ok(bytes) = accepted.write(&[0; 65_536]) {
                sent += bytes as u64;
            }
            peer.write_all(b"unread").unwrap();
            let found = SocketBuffers::read(&[address]);
            // The peer's system has taken what fits its own buffer.
            assert!(found.send_bytes > 0 && found.send_bytes <= sent, "{found:?} of {sent}");
            assert_eq!(found.receive_bytes, 6);
            assert_eq!(SocketBuffers::read(&[]), SocketBuffers::default());
        }
    }
}
