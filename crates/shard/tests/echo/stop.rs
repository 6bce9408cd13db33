//! How the server ends, and how it does not begin.

use std::time::Duration;

use lepus_shard::{Listener, LoginFrom, Runtime, StartError, TlsFiles, Transport};

use crate::client::{Client, config, start, start_with};
use crate::core::*;

#[test]
fn clients_are_told_and_listeners_close() {
    let running = start(2);
    let address = running.addresses()[0];
    let mut clients = Client::one_per_shard(&running);
    running.stop();
    for client in &mut clients {
        assert_eq!(client.read_to_end(), b"bye");
    }
    drop(clients);
    assert_eq!(running.join().cut, 0);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_client_that_does_not_read_is_cut_at_the_end_of_the_time() {
    let (mut config, _log) = config(1);
    config.stop_timeout = Duration::from_millis(50);
    let running = start_with(config);
    let mut client = Client::connect(running.addresses()[0]);
    client.send(BULK, &40_000u16.to_be_bytes());
    // Begun to be sent, and too much for any socket buffer.
    client.read(1);
    running.stop();
    assert_eq!(running.join().cut, 1);
}

#[test]
fn nobody_is_heard_before_all_cores_are_made() {
    let (mut config, _log) = config(2);
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    config.listeners[0].address = address;
    let running = Runtime::start(config, move |shard, _| {
        let refused = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        Ok(EchoCore::new(shard, 2))
    });
    let running = running.unwrap();
    assert_eq!(Client::connect(address).ask(ECHO, b"x", 1), b"x");
    crate::client::finish(running);
}

#[test]
fn a_stop_from_elsewhere_ends_an_idle_server() {
    let running = start(2);
    let stopper = running.stopper();
    let thread = std::thread::spawn(move || stopper.stop());
    running.join();
    thread.join().unwrap();
}

#[test]
fn an_address_in_use_is_named() {
    let running = start(1);
    let taken = running.addresses()[0];
    let (mut second, _log) = config(1);
    second.listeners[0].address = taken;
    match Runtime::start(second, |shard, _| Ok(EchoCore::new(shard, 1))) {
        Err(error @ StartError::Listen { .. }) => {
            assert!(error.to_string().contains(&taken.to_string()), "{error}");
        }
        _ => panic!("two servers on one address"),
    }
    crate::client::finish(running);
}

#[test]
fn tls_without_or_with_missing_files_is_refused() {
    let (mut missing, _log) = config(1);
    missing.listeners.push(Listener {
        address: "127.0.0.1:0".parse().unwrap(),
        transport: Transport::Tls,
        backlog: 1,
    });
    let result = Runtime::start(missing.clone(), |shard, _| Ok(EchoCore::new(shard, 1)));
    assert!(matches!(result, Err(StartError::Tls(_))));
    missing.tls = Some(TlsFiles {
        certificate: "/nonexistent/certificate.pem".into(),
        key: "/nonexistent/key.pem".into(),
        client_authorities: None,
        client_certificate_required: false,
        revocations: None,
        login_from: LoginFrom::CommonName,
    });
    match Runtime::start(missing, |shard, _| Ok(EchoCore::new(shard, 1))) {
        Err(error) => assert!(error.to_string().contains("/nonexistent/certificate.pem")),
        Ok(_) => panic!("started without a certificate"),
    }
}

#[test]
fn accepting_can_be_suspended() {
    let running = start(1);
    let address = running.addresses()[0];
    let accepted = |running: &crate::client::Running| running.metrics()[0].snapshot().accepted;
    running.set_accepting(false);
    // The accepting thread follows soon; until then the system still takes who connects.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(std::time::Instant::now() < deadline, "who connects is not refused");
    }
    let before = accepted(&running);
    running.set_accepting(true);
    let mut client = loop {
        assert!(std::time::Instant::now() < deadline, "who connects is refused for ever");
        if std::net::TcpStream::connect(address).is_ok() {
            break Client::connect(address);
        }
    };
    client.send(ECHO, b"waited");
    assert_eq!(client.read(6), b"waited");
    assert!(accepted(&running) > before);
    crate::client::finish(running);
}

#[cfg(target_os = "linux")]
#[test]
fn who_has_listeners_hear_again_is_told_which_do_not() {
    let patience = std::time::Duration::from_secs(30);
    let running = start(1);
    let (address, stopper) = (running.addresses()[0], running.stopper());
    stopper.await_accepting(false, patience).unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
    let other = std::net::TcpListener::bind(address).unwrap();
    for _ in 0..2 {
        let why = stopper.await_accepting(true, patience).unwrap_err();
        assert!(why.starts_with(&format!("{address}: ")), "{why}");
    }
    drop(other);
    stopper.await_accepting(true, patience).unwrap();
    let mut client = Client::connect(address);
    client.send(ECHO, b"again");
    assert_eq!(client.read(5), b"again");
    crate::client::finish(running);
}
