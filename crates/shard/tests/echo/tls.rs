//! TLS on the loopback, with certificates made here.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lepus_probe::Scratch;
use lepus_shard::{Listener, LoginFrom, Notice, TlsFiles, Transport};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::{Running, await_closed, config, finish, start_with, sum};
use crate::core::*;

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// An authority and a directory for files.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    scratch: Scratch,
}

impl Authority {
    fn new() -> Authority {
        let scratch = Scratch::new("tls");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        std::fs::write(scratch.path().join("authority.pem"), made.pem()).unwrap();
        Authority { certificate: made.der().clone(), issuer: Issuer::new(params, key), scratch }
    }

    /// A certificate and its key as PEM.
    fn issue(&self, common_name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let name = &mut params.distinguished_name;
        name.remove(DnType::CommonName);
        name.push(DnType::OrganizationName, "Warren");
        name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        (made.pem(), key.serialize_pem())
    }

    /// Writes the server's identity.
    fn write_identity(&self, common_name: &str) {
        let (certificate, key) = self.issue(common_name);
        std::fs::write(self.scratch.path().join("certificate.pem"), certificate).unwrap();
        std::fs::write(self.scratch.path().join("key.pem"), key).unwrap();
    }

    fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.scratch.path().join("certificate.pem"),
            key: self.scratch.path().join("key.pem"),
            client_authorities: Some(self.scratch.path().join("authority.pem")),
            client_certificate_required: false,
            revocations: None,
            login_from: LoginFrom::CommonName,
        }
    }

    fn client_config(&self, identity: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let (certificate, key) = self.issue(name);
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        })
    }
}

fn start_tls(authority: &Authority, shards: u16) -> Running {
    let (mut config, _log) = config(shards);
    config.listeners.push(Listener {
        address: "127.0.0.1:0".parse().unwrap(),
        transport: Transport::Tls,
        backlog: 1024,
    });
    config.tls = Some(authority.files());
    start_with(config)
}

fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> TlsClient {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    StreamOwned::new(connection, stream)
}

fn ask(client: &mut TlsClient, operation: u8, payload: &[u8], count: usize) -> Vec<u8> {
    client.write_all(&frame(operation, payload)).unwrap();
    read(client, count)
}

fn read(client: &mut TlsClient, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn bytes_travel_encrypted_both_ways_in_any_size() {
    let authority = Authority::new();
    authority.write_identity("server");
    let running = start_tls(&authority, 1);
    let config = authority.client_config(None);
    let mut client = connect(running.addresses()[1], &config);
    assert_eq!(ask(&mut client, ECHO, b"secret", 6), b"secret");
    for size in [1, 16_383, 16_384, 16_385, 65_535] {
        let payload = vec![size as u8; size];
        assert_eq!(ask(&mut client, ECHO, &payload, size), payload);
    }
    let size = 20_000 * 1024;
    let bulk = ask(&mut client, BULK, &20_000u16.to_be_bytes(), size);
    assert!(bulk.iter().all(|&byte| byte == b'b'));
    let peer = ask(&mut client, PEER, b"", 5 + 4 + 31);
    let peer = String::from_utf8(peer).unwrap();
    assert!(peer.starts_with("true|true|TLSv1.3 TLS13_"), "{peer}");
    finish(running);
}

#[test]
fn many_frames_before_any_answer_is_read() {
    let authority = Authority::new();
    authority.write_identity("server");
    let running = start_tls(&authority, 1);
    let mut client = connect(running.addresses()[1], &authority.client_config(None));
    let mut bytes = Vec::new();
    for _ in 0..2000 {
        bytes.extend(frame(ECHO, &[9; 100]));
    }
    client.write_all(&bytes).unwrap();
    assert_eq!(read(&mut client, 200_000), vec![9; 200_000]);
    finish(running);
}

#[test]
fn a_client_certificate_names_the_peer() {
    let authority = Authority::new();
    authority.write_identity("server");
    let running = start_tls(&authority, 1);
    let config = authority.client_config(Some("worker"));
    let mut client = connect(running.addresses()[1], &config);
    client.write_all(&frame(PEER, b"")).unwrap();
    client.write_all(&frame(CLOSE, b"")).unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("|worker|CN=worker,O=Warren"), "{text}");
    finish(running);
}

#[test]
fn a_close_ends_the_session_properly() {
    let authority = Authority::new();
    authority.write_identity("server");
    let running = start_tls(&authority, 1);
    let mut client = connect(running.addresses()[1], &authority.client_config(None));
    client.write_all(&frame(CLOSE, b"farewell")).unwrap();
    let mut text = String::new();
    // Without the announced end this is an error.
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "farewell");
    let mut other = connect(running.addresses()[1], &authority.client_config(None));
    assert_eq!(ask(&mut other, ECHO, b"x", 1), b"x");
    other.conn.send_close_notify();
    other.flush().unwrap();
    await_closed(&running, 2);
    drop((client, other));
    finish(running);
}

/// Like one that asks for the end of its connection, says that nothing more comes, and waits for the answer.
#[test]
fn who_asked_for_the_end_and_ended_the_session_is_answered() {
    let authority = Authority::new();
    authority.write_identity("server");
    let running = start_tls(&authority, 1);
    let config = authority.client_config(None);
    for (operations, answer) in [(&[QUIT][..], "bye"), (&[PAUSE, QUIT], "pbye")] {
        for is_half_closed in [false, true] {
            let mut client = connect(running.addresses()[1], &config);
            assert_eq!(ask(&mut client, ECHO, b"x", 1), b"x");
            let bytes = operations.iter().flat_map(|operation| frame(*operation, b""));
            client.conn.writer().write_all(&bytes.collect::<Vec<_>>()).unwrap();
            client.conn.send_close_notify();
            client.flush().unwrap();
            if is_half_closed {
                client.sock.shutdown(Shutdown::Write).unwrap();
            }
            let mut text = String::new();
            // Without the announced end this is an error.
            client.read_to_string(&mut text).unwrap();
            assert_eq!(text, answer, "half closed: {is_half_closed}");
        }
    }
    finish(running);
}

/// Waits until what the TLS stage holds of all connections is as it should be.
fn await_held(running: &Running, is_right: impl Fn(usize) -> bool) {
    let held = || sum(running, &EchoQuery::Held) as usize;
    while !is_right(held()) {}
}

#[test]
fn what_the_tls_stage_holds_is_told() {
    let authority = Authority::new();
    authority.write_identity("server");
    let running = start_tls(&authority, 1);
    let mut client = connect(running.addresses()[1], &authority.client_config(None));
    assert_eq!(ask(&mut client, ECHO, b"x", 1), b"x");
    await_held(&running, |bytes| bytes > 0 && bytes < 15_000);
    // Most of a record.
    let mut record = Vec::new();
    client.conn.writer().write_all(&frame(ECHO, &[7; 16_000])).unwrap();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut record).unwrap();
    }
    client.sock.write_all(&record[..15_000]).unwrap();
    await_held(&running, |bytes| bytes >= 15_000);
    client.sock.write_all(&record[15_000..]).unwrap();
    assert_eq!(read(&mut client, 16_000), [7; 16_000]);
    await_held(&running, |bytes| bytes < 15_000);
    // Answers that the system does not take.
    client.write_all(&frame(BULK, &60_000u16.to_be_bytes())).unwrap();
    await_held(&running, |bytes| bytes >= 40_000);
    assert!(read(&mut client, 60_000 * 1024).iter().all(|&byte| byte == b'b'));
    await_held(&running, |bytes| bytes < 15_000);
    finish(running);
}

#[test]
fn a_session_moves_to_another_shard() {
    let authority = Authority::new();
    authority.write_identity("server");
    let running = start_tls(&authority, 2);
    let mut client = connect(running.addresses()[1], &authority.client_config(None));
    let from = ask(&mut client, WHERE, b"", 1)[0];
    for round in 1..20u8 {
        let to = (from + round) % 2;
        let mut bytes = frame(HAND_OVER, &[to]);
        bytes.extend(frame(WHERE, b""));
        client.write_all(&bytes).unwrap();
        assert_eq!(read(&mut client, 2), [b'h', to]);
    }
    finish(running);
}

#[test]
fn a_new_certificate_is_used_after_a_reload_and_a_bad_one_is_not() {
    let authority = Authority::new();
    authority.write_identity("server");
    let running = start_tls(&authority, 1);
    let config = authority.client_config(None);
    let served = |client: &TlsClient| client.conn.peer_certificates().unwrap()[0].to_vec();
    let mut before = connect(running.addresses()[1], &config);
    assert_eq!(ask(&mut before, ECHO, b"x", 1), b"x");
    authority.write_identity("renewed");
    running.identity().unwrap().reload().unwrap();
    let mut after = connect(running.addresses()[1], &config);
    assert_eq!(ask(&mut after, ECHO, b"x", 1), b"x");
    assert_ne!(served(&before), served(&after));
    let key = authority.scratch.path().join("key.pem");
    std::fs::write(&key, "not a key").unwrap();
    let error = running.identity().unwrap().reload().unwrap_err();
    assert!(error.to_string().contains("key.pem"), "{error}");
    // A key that belongs to another certificate.
    std::fs::write(&key, authority.issue("other").1).unwrap();
    assert!(running.identity().unwrap().reload().is_err());
    let mut still = connect(running.addresses()[1], &config);
    assert_eq!(ask(&mut still, ECHO, b"x", 1), b"x");
    assert_eq!(served(&after), served(&still));
    assert_eq!(ask(&mut before, ECHO, b"old", 3), b"old");
    finish(running);
}

#[test]
fn a_required_certificate_is_required() {
    let authority = Authority::new();
    authority.write_identity("server");
    let (mut config, log) = config(1);
    config.listeners[0].transport = Transport::Tls;
    config.tls = Some(TlsFiles { client_certificate_required: true, ..authority.files() });
    let running = start_with(config);
    let mut client = connect(running.addresses()[0], &authority.client_config(None));
    // In TLS 1.3 the client learns of it with the first answer.
    let refused = client.write_all(&frame(ECHO, b"x")).and_then(|()| client.read_exact(&mut [0]));
    assert!(refused.is_err());
    let notice = log.iter().find(|n| matches!(n, Notice::TlsFailed { .. }));
    assert!(notice.is_some());
    let mut known = connect(running.addresses()[0], &authority.client_config(Some("known")));
    assert_eq!(ask(&mut known, ECHO, b"x", 1), b"x");
    finish(running);
}

#[test]
fn garbage_in_place_of_a_handshake_is_refused_and_told() {
    let authority = Authority::new();
    authority.write_identity("server");
    let (mut config, log) = config(1);
    config.listeners[0].transport = Transport::Tls;
    config.tls = Some(authority.files());
    let running = start_with(config);
    let mut stream = TcpStream::connect(running.addresses()[0]).unwrap();
    stream.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
    let mut answer = Vec::new();
    // An alert or a reset; in any case the end.
    let _ = stream.read_to_end(&mut answer);
    let notice = log.iter().find(|n| matches!(n, Notice::TlsFailed { .. }));
    assert!(notice.is_some());
    // Somebody who says nothing keeps nobody else waiting.
    let silent = TcpStream::connect(running.addresses()[0]).unwrap();
    let mut client = connect(running.addresses()[0], &authority.client_config(None));
    assert_eq!(ask(&mut client, ECHO, b"x", 1), b"x");
    drop(silent);
    finish(running);
}

#[test]
fn more_silent_connections_than_handshakes_hold_up_no_client() {
    let authority = Authority::new();
    authority.write_identity("server");
    let (mut config, _log) = config(1);
    config.admission.silence_timeout = Duration::from_secs(600);
    config.admission.handshake_timeout = Duration::from_secs(600);
    config.listeners[0].transport = Transport::Tls;
    config.tls = Some(authority.files());
    let running = start_with(config);
    let address = running.addresses()[0];
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(address).unwrap()).collect();
    // They say the first byte of a greeting, which is worth a little more, and no more.
    for mut talker in &silent[300..] {
        talker.write_all(&[22]).unwrap();
    }
    let mut client = connect(address, &authority.client_config(None));
    assert_eq!(ask(&mut client, ECHO, b"x", 1), b"x");
    for stream in &silent {
        stream.set_nonblocking(true).unwrap();
        let still = stream.peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(still, Err(std::io::ErrorKind::WouldBlock));
    }
    drop(silent);
    finish(running);
}
