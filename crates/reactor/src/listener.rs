//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpListener;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::net::Shutdown;

/// How long nothing comes from a peer before the system asks whether it is still there, and how long it
/// waits before it asks again. One that vanished without a word is gone after a few of these, also where
/// it asked for no heartbeats, or is not read.
const SILENCE: Duration = Duration::from_secs(60);
const ASK_INTERVAL: Duration = Duration::from_secs(15);

/// The largest segment, in bytes. Those of the loopback have 65,483 otherwise: one that does not fit what is left of
/// a reader's window waits for a timer of 200 ms, although the reader takes what comes.
#[cfg(unix)]
const SEGMENT_BYTES_MAX: u32 = 16 << 10;

/// Bytes that wait in the system to be sent to a peer, about, before it takes no more: what a peer does not read
/// stays in the broker, where it is counted and bounded. Otherwise it would be 4 MiB for each of them.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// An address that is taken, and at which nobody is heard yet: who connects is refused.
#[derive(Debug)]
pub struct Bound(Socket);

/// Takes exactly this address. An IPv6 wildcard serves IPv6 alone, so that the IPv4 wildcard can be
/// bound beside it.
///
/// # Errors
/// When somebody listens at the address, or it is not local or not permitted.
pub fn bind(address: SocketAddr) -> io::Result<Bound> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // A restart must not wait for the old connections' TIME_WAIT.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    // Those that are accepted have it from here.
    let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(ASK_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)?;
    // Nobody depends on these two: where the system refuses, segments of the loopback may wait, and peers that do not
    // read take more of its memory.
    #[cfg(unix)]
    let _ = socket.set_tcp_mss(SEGMENT_BYTES_MAX);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(Bound(socket))
}

impl Bound {
    /// The address, with the port that the system chose where any was asked for.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.0.local_addr()?;
        address.as_socket().ok_or_else(|| io::Error::other("not an address of the internet"))
    }

    /// Hears who connects from now on; `backlog` of them may wait to be accepted. The listener is
    /// nonblocking.
    ///
    /// # Errors
    /// When somebody else has begun to listen at the address.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.0.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(TcpListener::from_std(self.0.into()))
    }
}

/// Hears nobody any more: who connects from now on is refused, and who waited to be accepted is cut off. The address stays
/// taken where its port was asked for by number. [`resume`] undoes it.
///
/// # Errors
/// When the system does not stop a listener in this way; it hears on then.
pub fn suspend(listener: &TcpListener) -> io::Result<()> {
    SockRef::from(listener).shutdown(Shutdown::Read)
}

/// Hears again at the address where a suspended listener did; `backlog` of those who connect may wait.
///
/// # Errors
/// When somebody else listens there by now, or the system refuses for another reason.
pub fn resume(listener: &TcpListener, address: SocketAddr, backlog: u32) -> io::Result<()> {
    let socket = SockRef::from(listener);
    // A port that the system chose was given back, and the address with it: the socket would listen at all of them. One
    // that was asked for is held, and is not taken twice.
    let _ = socket.bind(&address.into());
    let bound = listener.local_addr()?;
    if (bound.ip(), bound.port()) != (address.ip(), address.port()) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_asks_peers_that_are_accepted_whether_they_are_still_there() {
        let bound = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = bound.local_addr().unwrap();
        let listener = bound.listen(1).unwrap();
        let _peer = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(SockRef::from(&accepted).keepalive().unwrap());
        #[cfg(target_os = "linux")]
        assert_eq!(rustix::net::sockopt::tcp_keepidle(&accepted).unwrap(), SILENCE);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_listener_that_is_suspended_refuses_and_hears_again_at_its_address() {
        use std::net::TcpStream;
        // A port that the system chose, and one that was asked for.
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        for _ in 0..2 {
            let bound = bind(address).unwrap();
            address = bound.local_addr().unwrap();
            let listener = bound.listen(4).unwrap();
            let mut waiting = TcpStream::connect(address).unwrap();
            suspend(&listener).unwrap();
            let error = TcpStream::connect(address).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            let cut = std::io::Read::read(&mut waiting, &mut [0]);
            assert!(cut.is_err() || cut.is_ok_and(|bytes| bytes == 0));
            resume(&listener, address, 4).unwrap();
            let peer = TcpStream::connect(address).unwrap();
            let (_, from) = listener.accept().unwrap();
            assert_eq!(from, peer.local_addr().unwrap());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_suspended_listener_does_not_hear_again_where_another_one_does() {
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        for _ in 0..2 {
            let bound = bind(address).unwrap();
            address = bound.local_addr().unwrap();
            let listener = bound.listen(4).unwrap();
            suspend(&listener).unwrap();
            let other = bind(address).unwrap().listen(4).unwrap();
            let error = resume(&listener, address, 4).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            drop(other);
            resume(&listener, address, 4).unwrap();
            assert_eq!(listener.local_addr().unwrap(), address);
            assert!(std::net::TcpStream::connect(address).is_ok());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_takes_little_for_a_peer_that_does_not_read() {
        use std::io::Write;
        let bound = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = bound.local_addr().unwrap();
        let listener = bound.listen(1).unwrap();
        let peer = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        // What the peer's side holds is little, and known.
        peer.set_recv_buffer_size(64 << 10).unwrap();
        peer.connect(&address.into()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let (mut taken, chunk) = (0, [0; 32 << 10]);
        while let Ok(bytes) = accepted.write(&chunk) {
            taken += bytes;
            assert!(taken < 1 << 20, "{taken} bytes");
        }
        assert!(taken >= UNSENT_BYTES_MAX as usize, "{taken} bytes");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn segments_of_the_loopback_fit_a_window_that_is_nearly_full() {
        let bound = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = bound.local_addr().unwrap();
        let listener = bound.listen(1).unwrap();
        let peer = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        // Both sides keep to it, whatever the peer asked for.
        for mss in [SockRef::from(&accepted).tcp_mss(), SockRef::from(&peer).tcp_mss()] {
            let mss = mss.unwrap();
            assert!((1..=SEGMENT_BYTES_MAX).contains(&mss), "{mss}");
        }
    }
}
