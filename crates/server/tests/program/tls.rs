//! TLS end to end, with certificates made here.

use crate::running::{Program, Scratch, Signal};
use crate::session::{Seen, Session, connect, tcp};
use lepus_amqp::client::ClientOptions;
use lepus_amqp::method::{basic, channel};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        Authority {
            certificate: made.der().clone(),
            pem: made.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate and its key as PEM.
    fn issue(&self, common_name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        (made.pem(), key.serialize_pem())
    }

    /// A certificate with this number and its key as PEM.
    fn issue_numbered(&self, common_name: &str, number: u64) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.serial_number = Some(SerialNumber::from(number));
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        (made.pem(), key.serialize_pem())
    }

    /// A list that revokes the certificates with these numbers, as PEM.
    fn revoke(&self, numbers: &[u64], next_update: i32) -> String {
        let revoke = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoke).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// A client that trusts this authority and shows a certificate.
    fn client(&self, identity: Option<(String, String)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        })
    }
}

/// A broker with TLS.
struct Encrypted {
    program: Program,
    scratch: Scratch,
    authority: Authority,
    address: SocketAddr,
}

impl Encrypted {
    fn start(verify: &str) -> Encrypted {
        Encrypted::start_with(verify, Authority::new(), None)
    }

    /// With a file of revocation lists.
    fn start_with(verify: &str, authority: Authority, crl: Option<&str>) -> Encrypted {
        let scratch = Scratch::new("tls");
        std::fs::write(scratch.path().join("ca.pem"), &authority.pem).unwrap();
        write_identity(&scratch, authority.issue("broker"));
        let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
        let (certificate, key, ca) = (path("certificate.pem"), path("key.pem"), path("ca.pem"));
        let crl_file = path("crl.pem");
        let mut words = vec![
            "--tls-listen=127.0.0.1:0",
            "--tls-certificate",
            &certificate,
            "--tls-key",
            &key,
            "--tls-ca",
            &ca,
            "--tls-verify",
            verify,
            "--shards=2",
            "--management-hsts-policy=max-age=60",
        ];
        if let Some(pem) = crl {
            std::fs::write(&crl_file, pem).unwrap();
            words.extend(["--tls-crl", &crl_file]);
        }
        let program = Program::start(&scratch, &words);
        let line = program.banner.lines().find_map(|line| line.trim().strip_prefix("amqps "));
        let address = line.unwrap().trim().parse().unwrap();
        Encrypted { program, scratch, authority, address }
    }

    fn log_in(
        &self,
        config: &Arc<ClientConfig>,
        options: ClientOptions,
    ) -> Result<Session<Stream>, Seen> {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        Session::log_in(StreamOwned::new(connection, tcp(self.address)), options)
    }
}

fn write_identity(scratch: &Scratch, (certificate, key): (String, String)) {
    let write = |name: &str, text| std::fs::write(Path::join(scratch.path(), name), text).unwrap();
    write("certificate.pem", certificate);
    write("key.pem", key);
}

fn external() -> ClientOptions {
    ClientOptions { mechanism: "EXTERNAL".into(), ..ClientOptions::default() }
}

fn certificate_of(session: &Session<Stream>) -> Vec<u8> {
    session.stream().conn.peer_certificates().unwrap()[0].to_vec()
}

/// Publishes to a queue of its own, consumes, acknowledges.
fn exchange_messages(session: &mut Session<Stream>, queue: &str) {
    assert_eq!(session.call(1, channel::Open::default()), Seen::Method("channel.open-ok"));
    session.declare(queue);
    session.consume(queue, false);
    for size in [0, 1, 16_384, 131_064, 131_065, 3_000_000] {
        let body = vec![size as u8; size];
        session.publish(1, queue, &body);
        session.flush();
        let Seen::Message { tag, body: found } = session.see() else { panic!("no message") };
        assert!(found == body, "{size} bytes");
        session.send(1, basic::Ack { delivery_tag: tag, multiple: false });
    }
    assert_eq!(session.call(1, channel::Close::default()), Seen::Method("channel.close-ok"));
}

#[test]
fn a_password_and_messages_travel_encrypted() {
    let broker = Encrypted::start("none");
    let config = broker.authority.client(None);
    let mut session = broker.log_in(&config, ClientOptions::default()).unwrap();
    exchange_messages(&mut session, "plain");
    let wrong = ClientOptions { password: "wrong".into(), ..ClientOptions::default() };
    let refused = broker.log_in(&config, wrong).err().unwrap();
    assert!(matches!(refused, Seen::Closed(403, _)), "{refused:?}");
    // Without a client's certificate nobody is named by TLS.
    let refused = broker.log_in(&config, external()).err().unwrap();
    assert!(matches!(refused, Seen::Closed(503, _)), "{refused:?}");
    session.close();
}

#[test]
fn the_management_api_answers_over_tls() {
    let broker = Encrypted::start("none");
    let mut lines = broker.program.banner.lines();
    let line = lines.find_map(|line| line.trim().strip_prefix("API      https://")).unwrap();
    let address: SocketAddr = line.split('/').next().unwrap().parse().unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(broker.authority.client(None), name).unwrap();
    let mut stream = StreamOwned::new(connection, tcp(address));
    stream.write_all(b"GET /api/version HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // The end may come without a word of TLS.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    // A browser that got that would not ask without TLS any more, which it may do there.
    assert!(answer.contains("strict-transport-security: max-age=60\r\n"), "{answer}");
    let mut plain = TcpStream::connect(broker.program.management).unwrap();
    plain.write_all(b"GET /api/version HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    assert!(!answer.contains("strict-transport-security"), "{answer}");
}

#[test]
fn a_certificate_takes_the_place_of_a_password() {
    let broker = Encrypted::start("optional");
    // The user's name is the whole subject of the certificate.
    let name = "CN=worker";
    broker.program.order(&["user", "add", name, "--password", "unused"]).unwrap();
    broker.program.order(&["permission", "set", name, ".*", ".*", ".*"]).unwrap();
    let worker = broker.authority.client(Some(broker.authority.issue("worker")));
    let mut session = broker.log_in(&worker, external()).unwrap();
    exchange_messages(&mut session, "external");
    let connections = broker.program.order(&["list", "connections"]).unwrap();
    assert!(connections.contains("worker"), "{connections}");
    session.close();
    // Nobody by that name.
    let stranger = broker.authority.client(Some(broker.authority.issue("stranger")));
    let refused = broker.log_in(&stranger, external()).err().unwrap();
    assert!(matches!(refused, Seen::Closed(403, _)), "{refused:?}");
    broker.program.wait_for_log("event=login-refused");
    // A password does as well, with a certificate and without.
    broker.log_in(&stranger, ClientOptions::default()).unwrap().close();
    let nobody = broker.authority.client(None);
    broker.log_in(&nobody, ClientOptions::default()).unwrap().close();
}

#[test]
fn strangers_certificates_are_refused_on_both_sides() {
    let broker = Encrypted::start("required");
    let stranger = Authority::new();
    // The broker does not trust the client's authority, and says so in its log.
    let config = broker.authority.client(Some(stranger.issue("worker")));
    assert_eq!(broker.log_in(&config, external()).err(), Some(Seen::End));
    let line = broker.program.wait_for_log("event=tls-failed");
    assert!(line.contains("peer=127.0.0.1:"), "{line}");
    // A certificate is required.
    let config = broker.authority.client(None);
    assert_eq!(broker.log_in(&config, ClientOptions::default()).err(), Some(Seen::End));
    broker.program.wait_for_log("event=tls-failed");
    // The client does not trust the broker's authority.
    let config = stranger.client(Some(broker.authority.issue("worker")));
    assert_eq!(broker.log_in(&config, ClientOptions::default()).err(), Some(Seen::End));
    broker.program.wait_for_log("event=tls-failed");
    // AMQP in place of TLS.
    let refused = Session::log_in(tcp(broker.address), ClientOptions::default());
    assert!(refused.is_err());
    broker.program.wait_for_log("event=tls-failed");
    // Others are served on.
    let known = broker.authority.client(Some(broker.authority.issue("known")));
    broker.log_in(&known, ClientOptions::default()).unwrap().close();
    connect(broker.program.amqp).close();
}

#[test]
fn a_new_certificate_is_for_new_connections() {
    let broker = Encrypted::start("none");
    let config = broker.authority.client(None);
    let mut before = broker.log_in(&config, ClientOptions::default()).unwrap();
    let renewed = broker.authority.issue("renewed");
    let expected = CertificateDer::from_pem_slice(renewed.0.as_bytes()).unwrap().to_vec();
    write_identity(&broker.scratch, renewed);
    // Nothing changes until it is said.
    let still = broker.log_in(&config, ClientOptions::default()).unwrap();
    assert_eq!(certificate_of(&before), certificate_of(&still));
    broker.program.signal(Signal::HUP);
    broker.program.wait_for_log("event=tls-reloaded");
    let mut after = broker.log_in(&config, ClientOptions::default()).unwrap();
    assert_eq!(certificate_of(&after), expected);
    exchange_messages(&mut before, "before");
    exchange_messages(&mut after, "after");
    // A certificate that does not fit its key changes nothing.
    write_identity(&broker.scratch, (broker.authority.issue("a").0, broker.authority.issue("b").1));
    broker.program.signal(Signal::HUP);
    broker.program.wait_for_log("event=tls-reload-failed");
    let last = broker.log_in(&config, ClientOptions::default()).unwrap();
    assert_eq!(certificate_of(&last), expected);
    for session in [before, still, after, last] {
        session.close();
    }
}

/// How the second of two connections with the same client began.
fn second_handshake(broker: &Encrypted, config: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    broker.log_in(config, ClientOptions::default()).unwrap().close();
    let session = broker.log_in(config, ClientOptions::default()).unwrap();
    let kind = session.stream().conn.handshake_kind();
    session.close();
    kind
}

#[test]
fn a_client_certificate_is_judged_at_every_connection() {
    for verify in ["optional", "required"] {
        let broker = Encrypted::start(verify);
        let worker = broker.authority.client(Some(broker.authority.issue("worker")));
        assert_eq!(second_handshake(&broker, &worker), Some(HandshakeKind::Full), "TLS 1.3");
        let older = Arc::new(only_tls12(&broker.authority, broker.authority.issue("worker")));
        assert_eq!(second_handshake(&broker, &older), Some(HandshakeKind::Full), "TLS 1.2");
    }
    // Where none is asked for, a session may be resumed.
    let broker = Encrypted::start("none");
    let anybody = broker.authority.client(None);
    assert_eq!(second_handshake(&broker, &anybody), Some(HandshakeKind::Resumed));
}

fn only_tls12(authority: &Authority, (certificate, key): (String, String)) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).unwrap();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)
        .unwrap()
}

#[test]
fn a_revoked_certificate_is_refused() {
    let authority = Authority::new();
    let list = authority.revoke(&[7], 2090);
    let broker = Encrypted::start_with("required", authority, Some(&list));
    let client =
        |number| broker.authority.client(Some(broker.authority.issue_numbered("worker", number)));
    let comes_in = |config| match broker.log_in(config, ClientOptions::default()) {
        Ok(session) => {
            session.close();
            true
        }
        Err(_) => {
            broker.program.wait_for_log("event=tls-failed");
            false
        }
    };
    let (revoked, other) = (client(7), client(8));
    assert!(!comes_in(&revoked) && comes_in(&other));
    // A new list holds from SIGHUP on.
    let file = broker.scratch.path().join("crl.pem");
    let replace = |list: &str, said| {
        std::fs::write(&file, list).unwrap();
        broker.program.signal(Signal::HUP);
        broker.program.wait_for_log(said);
    };
    replace(&broker.authority.revoke(&[8], 2090), "event=tls-reloaded");
    assert!(comes_in(&revoked) && !comes_in(&other));
    replace("no list", "event=tls-reload-failed");
    assert!(comes_in(&revoked) && !comes_in(&other));
    // A list past its next update says nothing about anybody.
    replace(&broker.authority.revoke(&[8], 2021), "event=tls-reloaded");
    assert!(!comes_in(&revoked) && !comes_in(&other));
}
