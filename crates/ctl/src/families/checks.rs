//! Health checks.

use super::status::{alarms, fetch};
use crate::api::{Reply, path};
use crate::command::{CHECKING, Call, Command, Group};
use crate::failure::{DATA, Failure, UNAVAILABLE};
use crate::options::{Flag, Follows};
use crate::output::Output;
use crate::program::Program;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const STATUS: &str = "GET /api/lepus/ctl/status";
const CRITICAL: &[Program] = &[Program::Diagnostics, Program::Queues];
const ALARMS: &str = "Asking node {node} to report any local resource alarms ...";

const fn text(name: &'static str, default: &'static str, about: &'static str) -> Flag {
    Flag { name, letter: None, value: Follows::Text, default, about }
}

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("alarms", Group::Monitoring, (0, 0), list_alarms)
        .told("", "Lists resource alarms (local or cluster-wide) in effect on the target node")
        .of(CHECKING)
        .banner("Asking node {node} to report any known resource alarms ...")
        .calls(STATUS),
    Command::new("check_alarms", Group::Monitoring, (0, 0), check_alarms)
        .told(
            "",
            "Health check that exits with a non-zero code if the target node reports any alarms, local or \
             cluster-wide.",
        )
        .of(CHECKING)
        .banner(ALARMS)
        .calls(STATUS),
    Command::new("check_certificate_expiration", Group::Monitoring, (0, 0), check_certificates)
        .told(
            "[--within <time>] [--unit <unit>]",
            "Checks the expiration date on the certificates for every listener configured to use TLS",
        )
        .of(CHECKING)
        .flags(&[
            text("within", "4", "period of time to check"),
            text("unit", "weeks", "days, weeks, months or years"),
        ])
        .banner("Checking certificate expiration on node {node} ...")
        .calls("GET /api/health/checks/certificate-expiration/{within}/{unit}"),
    Command::new("check_if_node_is_mirror_sync_critical", Group::Monitoring, (0, 0), not_applied)
        .told("", "Does not apply to a single node")
        .of(CRITICAL)
        .banner("Checking if node {node} is critical for data safety of any classic mirrored queues ..."),
    Command::new("check_if_node_is_quorum_critical", Group::Monitoring, (0, 0), not_applied)
        .told("", "Does not apply to a single node")
        .of(CRITICAL)
        .banner("Checking if node {node} is critical for quorum of any quorum queues ...")
        .calls("GET /api/health/checks/node-is-quorum-critical"),
    Command::new("check_local_alarms", Group::Monitoring, (0, 0), check_local_alarms)
        .told(
            "",
            "Health check that exits with a non-zero code if the target node reports any local alarms",
        )
        .of(CHECKING)
        .banner(ALARMS)
        .calls(STATUS),
    Command::new("check_port_connectivity", Group::Monitoring, (0, 0), check_connectivity)
        .told(
            "[--address <address>]",
            "Basic TCP connectivity health check for each listener's port on the target node",
        )
        .of(CHECKING)
        .flags(&[text("address", "", "connect to this address instead of the listener's")])
        .banner("Testing TCP connections to all active listeners on node {node} ...")
        .calls(STATUS),
    Command::new("check_port_listener", Group::Monitoring, (1, 1), check_port)
        .told(
            "<port> [--timeout <timeout>]",
            "Health check that exits with a non-zero code if target node does not have an active listener for given \
             port",
        )
        .of(CHECKING)
        .calls(STATUS),
    Command::new("check_protocol_listener", Group::Monitoring, (1, 1), check_protocol)
        .told(
            "<protocol> [--timeout <timeout>]",
            "Health check that exits with a non-zero code if target node does not have an active listener for given \
             protocol",
        )
        .of(CHECKING)
        .banner("Asking node {node} if there's an active listener for protocol {0} ...")
        .calls("GET /api/lepus/ctl/status, /api/health/checks/protocol-listener/{protocol}"),
    Command::new("check_virtual_hosts", Group::Monitoring, (0, 0), check_vhosts)
        .told("", "Health check that checks if all vhosts are running in the target node")
        .of(CHECKING)
        .banner("Checking if all vhosts are running on node {node} ...")
        .calls("GET /api/health/checks/virtual-hosts"),
    Command::new("metadata_store_status", Group::Monitoring, (0, 0), metadata_store)
        .told("", "Says that definitions are kept by the node itself")
        .of(CHECKING)
        .banner("Status of metadata store on node {node} ..."),
];

fn passed(text: String) -> Output {
    Output::Object(json!({"result": "ok"}), text)
}

fn list_alarms(call: &mut Call<'_>) -> Result<Output, Failure> {
    let status = fetch(call)?;
    let lines = alarms(&status);
    let node = &call.node;
    if lines.is_empty() {
        let text = format!("Node {node} reported no alarms, local or clusterwide");
        return Ok(Output::Object(json!({"alarms": [], "node": node, "result": "ok"}), text));
    }
    let answer = json!({
        "global": [], "local": lines, "message": format!("Node {node} reported alarms"), "result": "ok",
    });
    Ok(Output::Object(answer, lines.join("\n")))
}

fn check_alarms(call: &mut Call<'_>) -> Result<Output, Failure> {
    let lines = alarms(&fetch(call)?);
    match lines.is_empty() {
        true => {
            let text = format!("Node {} reported no alarms, local or clusterwide", call.node);
            Ok(passed(text))
        }
        false => Err(Failure::plain(UNAVAILABLE, lines.join("\n"))),
    }
}

fn check_local_alarms(call: &mut Call<'_>) -> Result<Output, Failure> {
    let lines = alarms(&fetch(call)?);
    match lines.is_empty() {
        true => Ok(passed(format!("Node {} reported no local alarms", call.node))),
        false => Err(Failure::new(UNAVAILABLE, lines.join("\n"))),
    }
}

/// What a check of the API says: fine, or its reason.
fn checked(call: &mut Call<'_>, segments: &[&str]) -> Result<Reply, Failure> {
    let mut all = vec!["health", "checks"];
    all.extend(segments);
    let reply = call.ask("GET", &path(&all), None)?;
    match reply.is_success() {
        true => Ok(reply),
        false => Err(Failure { code: UNAVAILABLE, ..call.refusal(&reply) }),
    }
}

fn check_certificates(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (within, unit) = (call.flag("within"), call.flag("unit"));
    if within.parse::<u32>().is_err()
        || !["days", "weeks", "months", "years"].contains(&unit.as_str())
    {
        let text = "Bad argument: a period is a number and one of days, weeks, months, years";
        return Err(Failure::argument(DATA, text));
    }
    checked(call, &["certificate-expiration", &within, &unit])?;
    Ok(passed(format!("No certificates are expiring within {within} {unit}.")))
}

fn not_applied(call: &mut Call<'_>) -> Result<Output, Failure> {
    if call.command.name == "check_if_node_is_quorum_critical" {
        checked(call, &["node-is-quorum-critical"])?;
    }
    let text = format!(
        "Node {} seems to be the only one in a single node cluster, the check does not apply",
        call.node
    );
    Ok(passed(text))
}

fn listeners(status: &Value) -> &[Value] {
    status["listeners"].as_array().map_or(&[], Vec::as_slice)
}

fn ports(status: &Value) -> Vec<u16> {
    let port =
        |listener: &Value| listener["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let mut ports: Vec<u16> = listeners(status).iter().filter_map(port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn listed(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

fn check_port(call: &mut Call<'_>) -> Result<Output, Failure> {
    let failure = || Failure::argument(DATA, "Bad argument: Argument must be a positive integer");
    let port: u16 = call.word(0).parse().ok().filter(|port| *port > 0).ok_or_else(failure)?;
    let node = call.node.clone();
    call.say(&format!("Asking node {node} if there's an active listener on port {port} ..."));
    let ports = ports(&fetch(call)?);
    match ports.contains(&port) {
        true => Ok(passed(format!("A listener for port {port} is running on node {node}."))),
        false => {
            let text = format!(
                "No listener for port {port} is active on node {node}. Found listeners that use the following ports: \
                 {}",
                listed(&ports)
            );
            Err(Failure::plain(UNAVAILABLE, text))
        }
    }
}

/// Words that people use for protocols, and those of the listeners.
fn is_protocol(wanted: &str, listener: &str) -> bool {
    let wanted = wanted.to_ascii_lowercase();
    let named = match wanted.as_str() {
        "amqp091" | "amqp0.9.1" | "amqp0-9-1" | "amqp10" | "amqp1.0" | "amqp1-0" => "amqp",
        "amqps" | "amqp091s" | "amqp/tls" => "amqp/ssl",
        "management" => "http",
        "https/management" => "https",
        "prometheus" => "http/prometheus",
        other => other,
    };
    named == listener
}

fn check_protocol(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (wanted, node) = (call.word(0), call.node.clone());
    let status = fetch(call)?;
    let mut protocols: Vec<&str> =
        listeners(&status).iter().filter_map(|listener| listener["protocol"].as_str()).collect();
    protocols.sort_unstable();
    protocols.dedup();
    match protocols.iter().any(|protocol| is_protocol(&wanted, protocol)) {
        true => Ok(passed(format!("A listener for protocol {wanted} is running on node {node}."))),
        false => {
            let text = format!(
                "No listener for protocol {wanted} is active on node {node}. Found listeners for the following \
                 protocols: {}",
                protocols.join(", ")
            );
            Err(Failure::new(UNAVAILABLE, text))
        }
    }
}

/// The address at which a listener is reached from this machine.
fn reached_at(interface: &str) -> Option<IpAddr> {
    let address: IpAddr = interface.trim_matches(['[', ']']).parse().ok()?;
    match address.is_unspecified() {
        true => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        false => Some(address),
    }
}

fn check_connectivity(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (status, given) = (fetch(call)?, call.flag("address"));
    let patience = Duration::from_secs(call.options.timeout().unwrap_or(30).min(300));
    let mut failed = Vec::new();
    for listener in listeners(&status) {
        let interface = listener["interface"].as_str().unwrap_or("127.0.0.1");
        let address = if given.is_empty() { interface } else { given.as_str() };
        let port = listener["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let (Some(address), Some(port)) = (reached_at(address), port) else { continue };
        if TcpStream::connect_timeout(&SocketAddr::new(address, port), patience).is_err() {
            failed.push(port);
        }
    }
    let node = &call.node;
    match failed.is_empty() {
        true => {
            let ports = listed(&ports(&status));
            Ok(passed(format!("Successfully connected to ports {ports} on node {node}.")))
        }
        false => {
            let text = format!(
                "Connection to ports of the following listeners on node {node} failed: {}",
                listed(&failed)
            );
            Err(Failure::new(UNAVAILABLE, text))
        }
    }
}

fn check_vhosts(call: &mut Call<'_>) -> Result<Output, Failure> {
    checked(call, &["virtual-hosts"])?;
    Ok(passed(format!("Node {} reported all vhosts as running", call.node)))
}

fn metadata_store(call: &mut Call<'_>) -> Result<Output, Failure> {
    Ok(passed(format!("Node {} keeps definitions in its own log", call.node)))
}
