//! `lepus serve`: brings everything up in order, waits for the end, takes everything down.

mod balancer;
mod brokers;
mod entrance;
mod grip;
mod lifecycle;
mod logs;
mod plan;
mod progress;
mod reload;
mod start;

use crate::api::{RunningBroker, SaidService};
use crate::audit::Audit;
use crate::changed::Changed;
use crate::config::Config;
use crate::control::ControlServer;
use crate::data_dir::{DataDir, DataDirError};
use crate::figures::Figures;
use crate::last_words;
use crate::log::{Format, Level, Log};
use crate::notice;
use crate::operation::Operations;
use crate::signal::{self, Wish};
use crate::topology::Standpoint;
use entrance::Entrance;
use lepus_management::api::{Api, Listener, Mirror, Running};
use lepus_management::http;
use lepus_management::metrics::objects::Objects;
use lepus_shard::{Clock, StopReport, Transport};
use lifecycle::Lifecycle;
pub use plan::{Plan, Room};
use reload::Reload;
use serde_json::{Value, json};
use start::{Start, Started};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the end waits for the log to be written.
const LOG_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);
/// The same for the audit file.
const AUDIT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end waits for what shards told to be handed to the log.
const NOTICES_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a notice may take from a shard that has ended.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(100);

/// Runs the broker until it is told to stop.
///
/// # Errors
/// Why it cannot start, in words for the operator.
pub fn serve(config: &Config) -> Result<(), String> {
    last_words::take_panics();
    let format = match config.log_format.as_str() {
        "json" => Format::Json,
        _ => Format::Text,
    };
    let level = Level::from_name(&config.log_level);
    let plan = Arc::new(Plan::new(config)?);
    // Before the first thread is started, so that all begin there.
    plan.keep_house();
    let log = Log::start(level, format, std::io::stderr())
        .map_err(|error| format!("cannot start the log: {error}"))?;
    let result = run(&Arc::new(config.clone()), &plan, &log);
    log.flush(LOG_FLUSH_TIMEOUT);
    result
}

/// Takes hold of the data directory.
fn hold(config: &Config) -> Result<DataDir, String> {
    DataDir::open(&config.data_dir()).map_err(|error| match error {
        DataDirError::InUse(..) => format!("{error} with --data-dir"),
        error => error.to_string(),
    })
}

fn run(config: &Arc<Config>, plan: &Arc<Plan>, log: &Log) -> Result<(), String> {
    let data_dir = hold(config)?;
    for caution in data_dir.cautions() {
        log.warning("data-directory", caution.clone());
    }
    let data_path = data_dir.path().to_owned();
    let (wish, wishes) = channel();
    signal::send_wishes(wish.clone()).map_err(|error| format!("cannot take signals: {error}"))?;
    log.info("shards", plan.reason());
    for note in &plan.notes {
        log.info("placement", note.clone());
    }
    let clock = Clock::start();
    let lifecycle = Arc::new(Lifecycle::new(clock, plan.shards));
    // From now on probes and operators are told how far the start is.
    let metrics = bind_all(&config.metrics_listen, "--metrics-listen", log)?;
    let metrics_addresses = local_addresses(&metrics);
    if !metrics.is_empty() {
        http::start(metrics, Arc::clone(&lifecycle) as Arc<dyn http::Source>)
            .map_err(|error| format!("cannot start the metrics thread: {error}"))?;
    }
    let entrance = Entrance::open(config, log)?;
    let desk = Arc::new(OnceLock::new());
    let audit = start_audit(config, log)?;
    let _written = FlushAtEnd(audit.clone());
    let control = start_control(config, &lifecycle, &desk, &audit)?;
    let starting = Start {
        config: Arc::clone(config),
        plan: Arc::clone(plan),
        log: log.clone(),
        clock,
        lifecycle: Arc::clone(&lifecycle),
        data_dir,
    };
    let starting = starting.begin(wish.clone())?;
    let Some((started, reloads)) = wait_for_start(&wishes, &starting)? else {
        // Whatever the start is at may take long, and can be given up at any point as by a kill: the
        // end of the process ends it. It keeps the data directory locked until then.
        let at = lifecycle.progress.text();
        log.info("stopped", format!("told to stop while it {at}; nothing is lost"));
        return Ok(());
    };
    let Started { running, figures, initial, transports, mirror, notices_ended } = started;
    let mut addresses = addresses(&transports, running.addresses(), &metrics_addresses);
    addresses.extend(entrance.addresses.iter().copied());
    if let Some(identity) = running.identity() {
        // Set here alone.
        let _ = entrance.identity.set(identity);
    }
    balancer::start(config, plan, &figures, &lifecycle, clock, log)?;
    grip::start(plan, &figures, &lifecycle, log)?;
    let reload = Reload::start(running.identity(), log)?;
    figures.count_left_out(Arc::clone(audit.left_out()));
    let broker = RunningBroker {
        figures: Arc::clone(&figures),
        inside: running.inside(),
        listeners: addresses.iter().filter_map(listener).collect(),
        mirror: Arc::clone(&mirror),
        config: Arc::clone(config),
        changed: changed(config, plan, &figures, &mirror, log),
        log: log.clone(),
        data_dir: data_path.clone(),
        audit,
        identity: running.identity(),
        stopper: running.stopper(),
        wish: wish.clone(),
        service: SaidService::default(),
    };
    let broker: Arc<dyn Running> = Arc::new(broker);
    lifecycle.show(Objects { broker: Arc::clone(&broker), mirror: Arc::clone(&mirror) });
    let served = Api::start(broker, mirror)
        .map_err(|error| format!("cannot start the management API: {error}"))?;
    let served = Arc::new(served);
    let operations = operations(plan, &figures, &addresses, &data_path, &served);
    // Set here alone.
    let _ = entrance.api.set(served);
    // Set here alone.
    let _ = desk.set(operations);
    lifecycle.serve(figures);
    last_words::greet(plan.banner(config, &initial, &addresses, &data_path));
    log.info("started", "Server startup complete");
    if reloads {
        reload.ask();
    }
    let failure = wait_for_stop(&wishes, &reload);
    lifecycle.stop();
    log.info("stopping", format!("clients get {} s to leave", config.stop_timeout.as_secs()));
    running.stop();
    drop(control);
    let report = join(running, &notices_ended);
    let failure = failure.or_else(|| failure_of_stop(&wishes, report.unclosed));
    let fields = vec![("connections_cut", report.cut.to_string())];
    if report.unclosed > 0 && failure.is_none() {
        let text = "the disk was not done in time; nothing confirmed is lost, the next start \
                    reads the logs again";
        log.warning("not-closed", text);
    }
    log.write(Level::Info, "stopped", "the end", fields);
    failure.map_or(Ok(()), Err)
}

/// Waits for the shards. What they told comes before the end in the log; of one that hangs `StopReport` tells.
fn join(
    running: lepus_shard::Running<lepus_broker::broker::Broker>,
    notices: &notice::Ended,
) -> StopReport {
    let report = running.join();
    notices.wait(NOTICES_TIMEOUT);
    report
}

/// What an operator may change from now on.
fn changed(
    config: &Config,
    plan: &Plan,
    figures: &Arc<Figures>,
    mirror: &Arc<Mirror>,
    log: &Log,
) -> Arc<Changed> {
    let (figures, mirror) = (Arc::clone(figures), Arc::clone(mirror));
    Arc::new(Changed::new(config, figures, mirror, plan.free_limit.clone(), log.clone()))
}

/// Listens on `wanted`, for what `flag` names.
fn bind_all(wanted: &[SocketAddr], flag: &str, log: &Log) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    for address in wanted {
        match http::bind(*address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if plan::is_missing_ipv6(*address, &error, wanted) => {
                log.info(
                    "no-ipv6",
                    format!("not listening on {address}: this machine has no IPv6"),
                );
            }
            Err(error) => return Err(plan::listen_error(*address, &error, flag)),
        }
    }
    Ok(listeners)
}

fn local_addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}

/// Where the broker can be reached: what it is, and the address.
type Address = (&'static str, SocketAddr);

fn addresses(
    transports: &[Transport],
    amqp: &[SocketAddr],
    metrics: &[SocketAddr],
) -> Vec<Address> {
    let mut addresses: Vec<Address> = Vec::new();
    for (transport, address) in transports.iter().zip(amqp) {
        let name = match transport {
            Transport::Tls => "amqps",
            Transport::Plain => "amqp",
        };
        addresses.push((name, *address));
    }
    addresses.extend(metrics.iter().map(|address| ("metrics", *address)));
    addresses
}

/// A listener as the management API tells of it.
fn listener((name, address): &Address) -> Option<Listener> {
    let protocol = match *name {
        "amqp" => "amqp",
        "amqps" => "amqp/ssl",
        "management" => "http",
        "management-tls" => "https",
        "metrics" => "http/prometheus",
        _ => return None,
    };
    Some(Listener { protocol, address: *address })
}

/// Where what is done is taken down.
/// Gives what was taken down last a moment to reach its file, however this ends.
struct FlushAtEnd(Audit);

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        self.0.flush(AUDIT_FLUSH_TIMEOUT);
    }
}

fn start_audit(config: &Config, log: &Log) -> Result<Audit, String> {
    match &config.management_audit_file {
        Some(path) => Audit::in_file(log, path, config.management_audit_bytes_max),
        None => Ok(Audit::in_log(log)),
    }
}

/// The control socket, which answers from the first moment; orders are carried out once there is
/// somebody at the desk.
fn start_control(
    config: &Config,
    lifecycle: &Arc<Lifecycle>,
    desk: &Arc<OnceLock<Operations>>,
    audit: &Audit,
) -> Result<ControlServer, String> {
    let (lifecycle, desk) = (Arc::clone(lifecycle), Arc::clone(desk));
    let handler = move |request: &Value| match desk.get() {
        Some(operations) => operations.answer(request),
        None => {
            lifecycle.figures()?;
            Err("the broker has just started; ask again".to_owned())
        }
    };
    ControlServer::start(&config.control_socket(), Arc::new(handler), audit)
}

fn operations(
    plan: &Plan,
    figures: &Arc<Figures>,
    addresses: &[Address],
    data_dir: &Path,
    api: &Arc<Api>,
) -> Operations {
    let shown: Vec<String> =
        addresses.iter().map(|(name, address)| format!("{name}://{address}")).collect();
    let facts = vec![
        ("node", json!(figures.node.name)),
        ("version", json!(figures.node.version)),
        ("process_id", json!(std::process::id())),
        ("data_dir", json!(data_dir.display().to_string())),
        ("addresses", json!(shown)),
    ];
    let place = Standpoint::new(
        plan.machine.clone(),
        plan.wishes.clone(),
        plan.placement.clone(),
        Arc::clone(figures),
        data_dir,
    );
    Operations::new(Arc::clone(figures), facts, place, Arc::clone(api))
}

/// Waits until the broker is started: what it is then, and whether it was told meanwhile to read the
/// certificate again. `None` if it is to stop before.
fn wait_for_start(
    wishes: &Receiver<Wish>,
    starting: &Receiver<Result<Started, String>>,
) -> Result<Option<(Started, bool)>, String> {
    let mut reloads = false;
    for wish in wishes {
        match wish {
            Wish::Started => {
                let started = starting.recv().map_err(|_| "the start broke off".to_owned())?;
                return Ok(Some((started?, reloads)));
            }
            Wish::Stop => return Ok(None),
            Wish::Fail(reason) => return Err(reason),
            Wish::Reload => reloads = true,
        }
    }
    Ok(None)
}

/// Why a shard could not be closed, if that is more than too little time: its notice may be a moment behind
/// the shard's end.
fn failure_of_stop(wishes: &Receiver<Wish>, unclosed: usize) -> Option<String> {
    if unclosed == 0 {
        return None;
    }
    let mut meanwhile = std::iter::from_fn(|| wishes.recv_timeout(NOTICE_TIMEOUT).ok());
    meanwhile.find_map(|wish| match wish {
        Wish::Fail(reason) => Some(reason),
        _ => None,
    })
}

/// Waits until the broker is to stop; the reason, if it cannot go on.
fn wait_for_stop(wishes: &Receiver<Wish>, reload: &Reload) -> Option<String> {
    for wish in wishes {
        match wish {
            Wish::Stop => return None,
            Wish::Fail(reason) => return Some(reason),
            Wish::Reload => reload.ask(),
            Wish::Started => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fails_while_the_broker_stops_is_its_failure() {
        let (wish, wishes) = channel();
        wish.send(Wish::Reload).unwrap();
        wish.send(Wish::Fail("the disk fails".to_owned())).unwrap();
        assert_eq!(failure_of_stop(&wishes, 1), Some("the disk fails".to_owned()));
        // One that is too slow is none.
        assert_eq!(failure_of_stop(&wishes, 1), None);
        wish.send(Wish::Fail("it failed, and all was closed".to_owned())).unwrap();
        assert_eq!(failure_of_stop(&wishes, 0), None);
    }
}
