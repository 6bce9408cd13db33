//! `lepus serve`: brings everything up in order, waits for the end, takes everything down.

mod balancer;
mod brokers;
pub(crate) mod logs;
mod plan;

use crate::config::Config;
use crate::control::ControlServer;
use crate::data_dir::DataDir;
use crate::figures::{self, Figures};
use crate::initial::initial;
use crate::log::{Format, Level, Log};
use crate::notice;
use crate::operation::Operations;
use crate::signal::{self, Wish};
use crate::topology::Standpoint;
use brokers::Brokers;
use lepus_broker::Broker;
use lepus_management::http;
use lepus_shard::{Clock, Running, Runtime, StartError, Transport};
pub use plan::{Plan, Room, place, wishes};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long the end waits for the log to be written.
const LOG_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the broker until it is told to stop.
///
/// # Errors
/// Why it cannot start, in words for the operator.
pub fn serve(config: &Config) -> Result<(), String> {
    let format = match config.log_format.as_str() {
        "json" => Format::Json,
        _ => Format::Text,
    };
    let level = Level::from_name(&config.log_level);
    let plan = Plan::new(config)?;
    // Before the first thread is started, so that all begin there.
    plan.keep_house();
    let log = Log::start(level, format, std::io::stderr())
        .map_err(|error| format!("cannot start the log: {error}"))?;
    let result = run(config, &plan, &log);
    log.flush(LOG_FLUSH_TIMEOUT);
    result
}

fn run(config: &Config, plan: &Plan, log: &Log) -> Result<(), String> {
    let data_dir = DataDir::open(&config.data_dir()).map_err(|error| error.to_string())?;
    for caution in data_dir.cautions() {
        log.warning("data-directory", caution.clone());
    }
    let (wish, wishes) = channel();
    signal::send_wishes(wish.clone()).map_err(|error| format!("cannot take signals: {error}"))?;
    for note in &plan.notes {
        log.info("placement", note.clone());
    }
    let mut initial = initial(config, plan.shards, data_dir.path())?;
    for skipped in &initial.skipped {
        log.warning("definition-skipped", skipped.clone());
    }
    for differing in &initial.differing {
        log.warning("definition-differs", differing.clone());
    }
    for door in &initial.open_doors {
        log.warning("open-door", door.clone());
    }
    let files = raise_file_limit(log);
    let room = Room::new(config, files, plan.shards);
    if let Some(text) = room.complaint(config, files) {
        log.warning("few-files", text);
    }
    // Before clients come in: a port that is in use stops the start, it does not leave half a broker.
    let metrics = bind_metrics(config, log)?;
    let clock = Clock::start();
    let brokers = Arc::new(Brokers::new(config, plan, &mut initial, &data_dir, clock)?);
    let (running, transports) = start_runtime(config, plan, &brokers, room, wish, log)?;
    let running = Arc::new(running);
    let node = figures::node(config, plan.memory_budget_bytes);
    let figures = Arc::new(Figures::new(
        node,
        running.commands(),
        running.metrics().to_vec(),
        running.entrance(),
        clock,
        data_dir.path().to_owned(),
    ));
    let addresses = addresses(&transports, running.addresses(), &metrics);
    if !metrics.is_empty() {
        http::start(metrics, Arc::clone(&figures) as Arc<dyn http::Source>)
            .map_err(|error| format!("cannot start the metrics thread: {error}"))?;
    }
    balancer::start(config, &figures, clock, log)?;
    let control = start_control(config, plan, &figures, &addresses, &data_dir)?;
    let banner = plan.banner(config, &initial, &addresses, data_dir.path());
    // Without a standard output there is nobody to greet.
    let _ = std::io::stdout().write_all(banner.as_bytes());
    log.info("started", "Server startup complete");
    let failure = wait_for_stop(&wishes, &running, log);
    figures.stop();
    log.info("stopping", format!("clients get {} s to leave", config.stop_timeout.as_secs()));
    running.stop();
    drop(control);
    let running = Arc::into_inner(running).ok_or("the runtime is still in use")?;
    let report = running.join();
    let fields = vec![("connections_cut", report.cut.to_string())];
    if report.unclosed > 0 && failure.is_none() {
        let text = "the disk was not done in time; nothing confirmed is lost, the next start \
                    reads the logs again";
        log.warning("not-closed", text);
    }
    log.write(Level::Info, "stopped", "the end", fields);
    failure.map_or(Ok(()), Err)
}

/// Many connections need many file descriptors; systems start programs with few. How many there may
/// be; `None` is any number.
fn raise_file_limit(log: &Log) -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log.warning("file-limit", format!("the limit of open files stays as it is: {error}"));
    }
    getrlimit(Resource::Nofile).current
}

fn bind_metrics(config: &Config, log: &Log) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    for address in &config.metrics_listen {
        match http::bind(*address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if plan::is_missing_ipv6(*address, &error, &config.metrics_listen) => {
                log.info(
                    "no-ipv6",
                    format!("not listening on {address}: this machine has no IPv6"),
                );
            }
            Err(error) => return Err(plan::listen_error(*address, &error, "--metrics-listen")),
        }
    }
    Ok(listeners)
}

fn start_runtime(
    config: &Config,
    plan: &Plan,
    brokers: &Arc<Brokers>,
    room: Room,
    wish: Sender<Wish>,
    log: &Log,
) -> Result<(Running<Broker>, Vec<Transport>), String> {
    let notices = notice::start(log.clone(), wish)
        .map_err(|error| format!("cannot start the notices thread: {error}"))?;
    let clock = brokers.clock();
    let mut runtime = plan.runtime(config, clock, notices, room);
    loop {
        let of_shards = Arc::clone(brokers);
        let make = move |shard, out: &mut _| of_shards.make(shard, out);
        let listeners: Vec<SocketAddr> = runtime.listeners.iter().map(|one| one.address).collect();
        let before = clock.instant();
        match Runtime::start(runtime.clone(), make) {
            Ok(running) => {
                if let Some(found) = brokers.found() {
                    log.info("recovered", found.text(clock.instant().since(before)));
                }
                let transports = runtime.listeners.iter().map(|one| one.transport);
                return Ok((running, transports.collect()));
            }
            Err(StartError::Listen { address, error })
                if plan::is_missing_ipv6(address, &error, &listeners) =>
            {
                log.info(
                    "no-ipv6",
                    format!("not listening on {address}: this machine has no IPv6"),
                );
                runtime.listeners.retain(|one| one.address != address);
            }
            Err(StartError::Listen { address, error }) => {
                return Err(plan::listen_error(address, &error, "--listen or --tls-listen"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Where the broker can be reached: what it is, and the address.
type Address = (&'static str, SocketAddr);

fn addresses(
    transports: &[Transport],
    amqp: &[SocketAddr],
    metrics: &[TcpListener],
) -> Vec<Address> {
    let mut addresses: Vec<Address> = Vec::new();
    for (transport, address) in transports.iter().zip(amqp) {
        let name = match transport {
            Transport::Tls => "amqps",
            Transport::Plain => "amqp",
        };
        addresses.push((name, *address));
    }
    let metrics = metrics.iter().filter_map(|listener| listener.local_addr().ok());
    addresses.extend(metrics.map(|address| ("metrics", address)));
    addresses
}

fn start_control(
    config: &Config,
    plan: &Plan,
    figures: &Arc<Figures>,
    addresses: &[Address],
    data_dir: &DataDir,
) -> Result<ControlServer, String> {
    let shown: Vec<String> =
        addresses.iter().map(|(name, address)| format!("{name}://{address}")).collect();
    let facts = vec![
        ("node", json!(figures.node.name)),
        ("version", json!(figures.node.version)),
        ("process_id", json!(std::process::id())),
        ("data_dir", json!(data_dir.path().display().to_string())),
        ("addresses", json!(shown)),
    ];
    let place = Standpoint::new(config, plan, Arc::clone(figures), data_dir.path());
    let operations = Operations::new(Arc::clone(figures), facts, place);
    let handler = move |request: &Value| operations.answer(request);
    ControlServer::start(&config.control_socket(), Arc::new(handler))
}

/// Waits until the broker is to stop; the reason, if it cannot go on.
fn wait_for_stop(wishes: &Receiver<Wish>, running: &Running<Broker>, log: &Log) -> Option<String> {
    for wish in wishes {
        match wish {
            Wish::Stop => return None,
            Wish::Fail(reason) => return Some(reason),
            Wish::Reload => match running.reload_tls() {
                Ok(()) => {
                    log.info("tls-reloaded", "new connections use the certificate as it is now")
                }
                Err(error) => log.error(
                    "tls-reload-failed",
                    format!("the old certificate stays in use: {error}"),
                ),
            },
        }
    }
    None
}
