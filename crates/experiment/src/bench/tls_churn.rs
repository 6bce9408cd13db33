//! What TLS costs the others: clients that come and go over TLS while one client measures its round
//! trips, and the memory of TLS connections that stay.

use crate::bench::place::Place;
use crate::subject::{Kind, Subject, free_port};
use clap::Args;
use lepus_amqp::client::{ClientOptions, encode_publish};
use lepus_amqp::method::{basic, queue};
use lepus_amqp::properties::EMPTY;
use lepus_probe::client::{Client, Seen};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// How long round trips are measured while nobody else is there.
const QUIET: Duration = Duration::from_secs(3);

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// How much of it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Churn {
    /// Connections that come and go
    #[arg(long, default_value_t = 2000)]
    connects: usize,
    /// Clients that make them, at once
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Connections that are there all the time and say nothing
    #[arg(long, default_value_t = 500)]
    staying: usize,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start or refuses somebody.
pub fn run(plan: Churn, place: &Place) -> io::Result<()> {
    std::fs::create_dir_all(&place.site.scratch)?;
    let config = Arc::new(make_identity(&place.site.scratch)?);
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let file = |name: &str| place.site.scratch.join(name).display().to_string();
    let place = place.with_flags([
        format!("--tls-listen={address}"),
        format!("--tls-certificate={}", file("churn.pem")),
        format!("--tls-key={}", file("churn.key")),
    ]);
    let subject = place.start(Kind::Lepus)?;
    connect(&config, address)?;

    let before = subject.settled_bytes()?;
    let staying: Vec<Client<Stream>> =
        (0..plan.staying).map(|_| connect(&config, address)).collect::<io::Result<_>>()?;
    let each = subject.settled_bytes()?.saturating_sub(before) / plan.staying.max(1) as u64;
    println!("{} TLS connections that stay: {each} bytes each", plan.staying);

    let mut prober = Prober::open(&subject)?;
    let quiet = Instant::now() + QUIET;
    let alone = prober.measure(|| Instant::now() < quiet)?;
    println!("round trips without churn: {}", alone.describe());

    let left = AtomicUsize::new(plan.connects);
    let running = AtomicBool::new(true);
    let cpu = subject.read()?.cpu_seconds;
    let start = Instant::now();
    let (times, others) = thread::scope(|scope| -> io::Result<_> {
        let clients: Vec<_> =
            (0..plan.clients).map(|_| scope.spawn(|| churn(&config, address, &left))).collect();
        let others = scope.spawn(|| prober.measure(|| running.load(Ordering::Relaxed)));
        let joined: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        running.store(false, Ordering::Relaxed);
        let others = others.join().map_err(|_| io::Error::other("the prober failed"))??;
        let mut times = Times::default();
        for client in joined {
            times.0.extend(client.map_err(|_| io::Error::other("a client failed"))??.0);
        }
        Ok((times, others))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = subject.read()?.cpu_seconds - cpu;
    println!("round trips with churn:    {}", others.describe());
    println!("connects over TLS:         {}", times.describe());
    println!(
        "{:.0} connects a second, {:.2} ms of the broker's CPU each",
        plan.connects as f64 / seconds,
        cpu * 1e3 / plan.connects as f64
    );
    drop(staying);
    Ok(())
}

/// Connects, logs in and leaves again and again.
fn churn(config: &Arc<ClientConfig>, address: SocketAddr, left: &AtomicUsize) -> io::Result<Times> {
    let mut times = Times::default();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
        let start = Instant::now();
        drop(connect(config, address)?);
        times.0.push(start.elapsed());
    }
    Ok(times)
}

fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> io::Result<Client<Stream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    // Without resumption, as a client that has just been started.
    let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    Client::open(StreamOwned::new(connection, stream), ClientOptions::default())
}

/// Writes a certificate and its key for the broker, and gives what a client needs to trust it.
fn make_identity(scratch: &Path) -> io::Result<ClientConfig> {
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .map_err(io::Error::other)?;
    std::fs::write(scratch.join("churn.pem"), certificate.pem())?;
    std::fs::write(scratch.join("churn.key"), key.serialize_pem())?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::clone(certificate.der())).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Publishes a message a millisecond to itself and waits for each.
struct Prober(Client<TcpStream>);

impl Prober {
    fn open(subject: &Subject) -> io::Result<Prober> {
        let mut peer = subject.peer()?;
        peer.send(1, queue::Declare { queue: "probe", ..Default::default() });
        peer.expect("queue.declare-ok")?;
        peer.send(1, basic::Consume { queue: "probe", no_ack: true, ..Default::default() });
        peer.expect("basic.consume-ok")?;
        Ok(Prober(peer))
    }

    fn measure(&mut self, goes_on: impl Fn() -> bool) -> io::Result<Times> {
        let mut times = Times::default();
        while goes_on() {
            let start = Instant::now();
            let out = self.0.output();
            encode_publish(out, 1, 131_072, "", "probe", false, &EMPTY, b"sixteen bytes...");
            self.0.flush()?;
            match self.0.see()? {
                Seen::Message => times.0.push(start.elapsed()),
                Seen::Method(name) => return Err(io::Error::other(format!("unexpected {name}"))),
            }
            sleep(Duration::from_millis(1));
        }
        Ok(times)
    }
}

#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn describe(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let micros = |share: f64| {
            let place = (sorted.len() as f64 * share) as usize;
            sorted.get(place.min(sorted.len().saturating_sub(1))).map_or(0, Duration::as_micros)
        };
        format!(
            "{} times, median {} µs, p99 {} µs, longest {} µs",
            sorted.len(),
            micros(0.5),
            micros(0.99),
            micros(1.0)
        )
    }
}
