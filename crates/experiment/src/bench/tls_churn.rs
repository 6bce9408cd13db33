//! What TLS costs the others: clients that come and go over TLS while one client measures its round
//! trips, and the memory of TLS connections that stay.

use crate::bench::place::{Place, goes_on};
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::words::from_one;
use crate::cast::OWN_CLIENT;
use crate::report::{Block, Table};
use crate::stop::Stop;
use crate::subject::{Kind, Subject, free_port};
use clap::Args;
use lepus_amqp::client::{ClientOptions, encode_publish};
use lepus_amqp::method::{basic, queue};
use lepus_amqp::properties::EMPTY;
use lepus_probe::Client;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
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

const CONNECTIONS_MAX: u64 = 10_000_000;
/// Each is a thread.
const CLIENTS_MAX: u64 = 1_000;

/// How much of it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Churn {
    /// Connections that come and go
    #[arg(long, default_value_t = 2000, value_parser = from_one::<usize>(CONNECTIONS_MAX))]
    connects: usize,
    /// Clients that make them, at once
    #[arg(long, default_value_t = 4, value_parser = from_one::<usize>(CLIENTS_MAX))]
    clients: usize,
    /// Connections that are there all the time and say nothing
    #[arg(long, default_value_t = 500)]
    staying: usize,
}

const TITLE: &str = "What TLS costs the others";
const ASKS: &str = "How long do round trips of one client take while others come and go over TLS, and what do such connections cost?";
const LEGEND: [&str; 2] = [
    "round trips: of one client without TLS that publishes to itself, one a millisecond. connects: from the TCP connection \
     until the broker has taken the login.",
    "bytes each: the growth of the broker's resident memory over connections that stay, by their number.",
];

/// Measures and reports.
///
/// # Errors
/// When the broker does not start or refuses somebody, or the report cannot be written.
pub fn run(plan: Churn, place: &Place) -> io::Result<()> {
    let size = format!(
        "{} connections by {} clients, {} that stay",
        plan.connects, plan.clients, plan.staying
    );
    let cover = Cover { name: "tls-churn", title: TITLE, asks: ASKS, size: ("size", size) };
    let mut sheet = Sheet::new(cover, place)?;
    place.cast.load("tls-churn", || OWN_CLIENT.to_owned());
    let mut found = Found::default();
    if let Err(error) = measure(plan, place, &mut found) {
        sheet.fault(error.to_string());
    }
    let was_measured = !found.times.is_empty();
    sheet.add(found.blocks(), Some(found.json()))?;
    found.sentences().into_iter().for_each(|sentence| sheet.tell(sentence));
    sheet.finish(&LEGEND, was_measured)
}

fn measure(plan: Churn, place: &Place, found: &mut Found) -> io::Result<()> {
    let config = Arc::new(make_identity(&place.site.scratch)?);
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let file = |name: &str| place.site.scratch.join(name).display().to_string();
    let stop = &place.stop;
    let place = place.with_flags([
        format!("--tls-listen={address}"),
        format!("--tls-certificate={}", file("churn.pem")),
        format!("--tls-key={}", file("churn.key")),
    ]);
    let subject = place.start(Kind::Lepus)?;
    connect(&config, address)?;

    let before = subject.settled_bytes(stop)?;
    let staying: Vec<Client<Stream>> =
        (0..plan.staying).map(|_| connect(&config, address)).collect::<io::Result<_>>()?;
    let grown = subject.settled_bytes(stop)?.saturating_sub(before);
    found.bytes_each = (plan.staying > 0).then(|| grown as f64 / plan.staying as f64);

    let mut prober = Prober::open(&subject)?;
    let quiet = Instant::now() + QUIET;
    let alone = prober.measure(|| Instant::now() < quiet)?;
    place.goes_on()?;
    found.times.push(("round trips without churn", alone));

    let left = AtomicUsize::new(plan.connects);
    let running = AtomicBool::new(true);
    let cpu = subject.read()?.cpu_seconds;
    let start = Instant::now();
    let (times, others) = thread::scope(|scope| -> io::Result<_> {
        let clients: Vec<_> = (0..plan.clients)
            .map(|_| scope.spawn(|| churn(&config, address, &left, stop)))
            .collect();
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
    found.times.push(("round trips with churn", others));
    let connects = times.0.len() as f64;
    found.times.push(("connects over TLS", times));
    found.connects = (connects > 0.0).then(|| (connects / seconds, cpu * 1e3 / connects));
    drop(staying);
    Ok(())
}

/// What was found until now.
#[derive(Debug, Default)]
struct Found {
    /// Bytes of the broker's memory for each connection that stays.
    bytes_each: Option<f64>,
    times: Vec<(&'static str, Times)>,
    /// Connects a second, and milliseconds of the broker's CPU for each.
    connects: Option<(f64, f64)>,
}

impl Found {
    fn sentences(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(bytes) = self.bytes_each {
            out.push(format!("A TLS connection that stays takes {bytes:.0} bytes."));
        }
        if let Some((rate, millis)) = self.connects {
            out.push(format!(
                "{rate:.0} connects over TLS a second, {millis:.2} ms of the broker's CPU each."
            ));
        }
        out
    }

    fn blocks(&self) -> Vec<Block> {
        let mut table = Table::new(["what", "times", "median µs", "p99 µs", "longest µs"]);
        for (name, times) in &self.times {
            let [median, late, longest] = times.points();
            let mut row = vec![(*name).to_owned(), times.0.len().to_string()];
            row.extend([median, late, longest].map(|micros| format!("{micros:.0}")));
            table.rows.push(row);
        }
        vec![Block::Heading("Times".to_owned()), Block::Table(table)]
    }

    fn json(&self) -> Value {
        let times = |(name, times): &(&str, Times)| {
            let [median, late, longest] = times.points();
            json!({
                "what": name,
                "count": times.0.len(),
                "median_micros": median,
                "99th_micros": late,
                "longest_micros": longest,
            })
        };
        json!({
            "bytes_for_each_that_stays": self.bytes_each,
            "times": self.times.iter().map(times).collect::<Vec<_>>(),
            "connects_per_second": self.connects.map(|connects| connects.0),
            "cpu_millis_per_connect": self.connects.map(|connects| connects.1),
        })
    }
}

/// Connects, logs in and leaves again and again.
fn churn(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
    left: &AtomicUsize,
    stop: &Stop,
) -> io::Result<Times> {
    let mut times = Times::default();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
        goes_on(stop)?;
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
            self.0.expect_message()?;
            times.0.push(start.elapsed());
            sleep(Duration::from_millis(1));
        }
        Ok(times)
    }
}

#[derive(Debug, Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Median, 99th percentile and longest in microseconds; 0 where there are none.
    fn points(&self) -> [f64; 3] {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        [0.5, 0.99, 1.0].map(|share| {
            let place = (sorted.len() as f64 * share) as usize;
            let found = sorted.get(place.min(sorted.len().saturating_sub(1)));
            found.map_or(0.0, |time| time.as_secs_f64() * 1e6)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::text;

    #[test]
    fn times_are_told_by_their_middle_and_their_end() {
        let times = Times((1..=100).map(Duration::from_millis).collect());
        assert_eq!(times.points(), [51_000.0, 100_000.0, 100_000.0]);
        assert_eq!(Times::default().points(), [0.0; 3]);
        let found = Found { times: vec![("connects", times)], ..Found::default() };
        assert!(text(&found.blocks()).contains("51000"));
        assert_eq!(found.json()["times"][0]["count"], 100);
        assert_eq!(found.json()["connects_per_second"], Value::Null);
    }
}
