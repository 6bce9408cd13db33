//! The reactor against real sockets on the loopback interface.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lepus_reactor::{Poller, Reactor, Readiness, Socket, TcpStream, Token, bind};

const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// A registered server side and a blocking client side.
fn pair(poller: &mut Poller, token: Token) -> (TcpStream, std::net::TcpStream) {
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap().listen(16).unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut server = loop {
        match listener.accept() {
            Ok((server, _)) => break server,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        std::thread::yield_now();
    };
    poller.register(&mut server, token).unwrap();
    (server, client)
}

/// Polls until `wanted` holds for a report about `token`.
fn poll_until(poller: &mut Poller, token: Token, wanted: impl Fn(&Readiness) -> bool) -> Readiness {
    let mut ready = Vec::new();
    loop {
        ready.clear();
        poller.poll(LONG, &mut ready).unwrap();
        assert!(!ready.is_empty(), "nothing was reported");
        if let Some(found) = ready.iter().find(|r| r.token == token && wanted(r)) {
            return *found;
        }
    }
}

#[test]
fn bytes_and_the_end_of_the_stream_are_reported() {
    let mut poller = Poller::new().unwrap();
    let (mut server, mut client) = pair(&mut poller, Token(7));
    client.write_all(b"hello").unwrap();
    poll_until(&mut poller, Token(7), |r| r.readable);
    let mut buffer = [0; 64];
    assert_eq!(Socket::read(&mut server, &mut buffer).unwrap(), 5);
    assert_eq!(&buffer[..5], b"hello");
    let blocked = Socket::read(&mut server, &mut buffer).unwrap_err();
    assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let end = poll_until(&mut poller, Token(7), |r| r.ending);
    assert!(end.readable && !end.dead);
    assert_eq!(Socket::read(&mut server, &mut buffer).unwrap(), 0);
}

#[test]
fn what_is_ready_before_the_registration_is_reported() {
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap().listen(16).unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"early").unwrap();
    let mut server = loop {
        if let Ok((server, _)) = listener.accept() {
            break server;
        }
    };
    // Moved to a second poller with the bytes still unread.
    let mut first = Poller::new().unwrap();
    first.register(&mut server, Token(1)).unwrap();
    poll_until(&mut first, Token(1), |r| r.readable);
    first.deregister(&mut server).unwrap();
    let mut second = Poller::new().unwrap();
    second.register(&mut server, Token(2)).unwrap();
    poll_until(&mut second, Token(2), |r| r.readable);
    let mut buffer = [0; 64];
    assert_eq!(Socket::read(&mut server, &mut buffer).unwrap(), 5);
}

#[test]
fn a_full_socket_becomes_writable_when_the_peer_reads() {
    let mut poller = Poller::new().unwrap();
    let (mut server, mut client) = pair(&mut poller, Token(0));
    let chunk = vec![1u8; 1 << 20];
    let mut written = 0u64;
    loop {
        match Socket::write(&mut server, &chunk) {
            Ok(n) => written += n as u64,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    // The edge of the empty socket is consumed here.
    let mut ready = Vec::new();
    poller.poll(Some(Duration::ZERO), &mut ready).unwrap();
    let reader = std::thread::spawn(move || {
        let mut sink = vec![0; 1 << 16];
        let mut left = written;
        while left > 0 {
            left = left.saturating_sub(client.read(&mut sink).unwrap() as u64);
        }
    });
    poll_until(&mut poller, Token(0), |r| r.writable);
    assert!(Socket::write(&mut server, b"more").unwrap() > 0);
    reader.join().unwrap();
}

#[test]
fn an_alarm_ends_a_poll_before_and_during_it() {
    let mut poller = Poller::new().unwrap();
    let alarm = poller.alarm();
    alarm.ring();
    let mut ready = Vec::new();
    assert!(poller.poll(None, &mut ready).unwrap());
    assert!(!poller.poll(Some(Duration::ZERO), &mut ready).unwrap());
    let thread = std::thread::spawn(move || alarm.ring());
    assert!(poller.poll(None, &mut ready).unwrap());
    thread.join().unwrap();
    assert!(ready.is_empty());
}

#[test]
fn a_reset_is_reported_as_dead_and_reading_fails_softly() {
    let mut poller = Poller::new().unwrap();
    let (mut server, client) = pair(&mut poller, Token(3));
    // Closing with unread bytes makes the client's system answer with a reset.
    Socket::write(&mut server, b"unread").unwrap();
    let mut peeked = [0; 6];
    while client.peek(&mut peeked).unwrap() < 6 {}
    drop(client);
    poll_until(&mut poller, Token(3), |r| r.dead);
    let mut buffer = [0; 8];
    let error = Socket::read(&mut server, &mut buffer).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let mut failed = false;
    for _ in 0..2 {
        failed |= Socket::write(&mut server, b"x").is_err();
    }
    assert!(failed);
}

#[test]
fn both_address_families_share_a_port_number() {
    let four = bind("0.0.0.0:0".parse().unwrap()).unwrap().listen(16).unwrap();
    let port = four.local_addr().unwrap().port();
    match bind(format!("[::]:{port}").parse().unwrap()) {
        Ok(six) => assert_eq!(six.local_addr().unwrap().port(), port),
        // A machine without IPv6.
        Err(error) => assert_ne!(error.kind(), io::ErrorKind::AddrInUse),
    }
}
