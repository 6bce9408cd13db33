//! The node: is it there, has it started, does it stop.

use crate::command::{CHECKING, Call, Command, Group, LOOKING, Needs};
use crate::failure::{DATA, Failure, UNAVAILABLE, USAGE};
use crate::options::{Flag, Follows};
use crate::output::Output;
use crate::own::{LIFECYCLE, STATE};
use serde_json::{Value, json};
use std::path::Path;

const PATH: &str = "GET /api/lepus/ctl/state";
const LIFE: &str = "POST /api/lepus/ctl/lifecycle";
/// Seconds that waiting commands wait when nothing is said.
const AWAIT_SECONDS: u64 = 300;

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("await_online_nodes", Group::Cluster, (1, 1), await_nodes)
        .told("<count>", "Waits for <count> nodes to join the cluster")
        .calls("GET /api/nodes"),
    Command::new("await_startup", Group::Nodes, (0, 0), await_startup)
        .told("", "Waits for the RabbitMQ application to start on the target node")
        .calls(PATH)
        .needs(Needs::Nothing),
    Command::new("is_booting", Group::Monitoring, (0, 0), is_booting)
        .told("", "Checks if RabbitMQ is still booting on the target node")
        .of(CHECKING)
        .banner("Asking node {node} for its boot status ...")
        .calls(PATH)
        .needs(Needs::Reachable),
    Command::new("is_running", Group::Monitoring, (0, 0), is_running)
        .told("", "Checks if RabbitMQ is fully booted and running on the target node")
        .of(CHECKING)
        .banner("Asking node {node} for its status ...")
        .calls(PATH)
        .needs(Needs::Reachable),
    Command::new("check_running", Group::Monitoring, (0, 0), check_running)
        .told(
            "",
            "Health check that exits with a non-zero code if the RabbitMQ app on the target node is not running",
        )
        .of(CHECKING)
        .banner("Checking if RabbitMQ is running on node {node} ...")
        .calls(PATH)
        .needs(Needs::Reachable),
    Command::new("node_health_check", Group::Deprecated, (0, 0), health)
        .told("", "DEPRECATED. Asks whether the node runs without alarms")
        .of(LOOKING)
        .calls("GET /api/lepus/ctl/state, /api/health/checks/local-alarms")
        .needs(Needs::Reachable),
    Command::new("ping", Group::Monitoring, (0, 0), ping)
        .told("", "Checks that the node answers")
        .of(LOOKING)
        .calls(PATH)
        .needs(Needs::Nothing),
    Command::new("resume_listeners", Group::Operations, (0, 0), resume)
        .told(
            "",
            "Resumes client connection listeners making them accept client connections again",
        )
        .banner(
            "Will resume client connection listeners on node {node}. The node will now accept client connections",
        )
        .calls(LIFE),
    Command::new("shutdown", Group::Nodes, (0, 0), stop)
        .told("[--wait]", "Stops the broker")
        .flags(&[
            Flag {
                name: "wait",
                letter: None,
                value: Follows::Switch,
                default: "",
                about: "waits until it ended; this is the rule",
            },
            Flag {
                name: "no-wait",
                letter: None,
                value: Follows::Switch,
                default: "",
                about: "does not wait",
            },
        ])
        .calls(LIFE)
        .needs(Needs::Reachable),
    Command::new("start_app", Group::Nodes, (0, 0), start_app)
        .told("", "Starts to serve clients again after stop_app")
        .banner("Starting node {node} ...")
        .calls(LIFE)
        .needs(Needs::Reachable),
    Command::new("stop", Group::Nodes, (0, 1), stop)
        .told("[<pidfile>]", "Stops the broker")
        .banner("Stopping and halting node {node} ...")
        .calls(LIFE)
        .needs(Needs::Reachable),
    Command::new("stop_app", Group::Nodes, (0, 0), stop_app)
        .told("", "Closes all connections and listeners; the broker stays for start_app")
        .banner("Stopping rabbit application on node {node} ...")
        .calls(LIFE)
        .needs(Needs::Reachable),
    Command::new("suspend_listeners", Group::Operations, (0, 0), suspend)
        .told("", "Suspends client connection listeners so that no new client connections are accepted")
        .banner(
            "Will suspend client connection listeners on node {node}. The node will no longer accept client \
             connections!",
        )
        .calls(LIFE),
    Command::new("wait", Group::Nodes, (0, 1), wait)
        .told(
            "[<pidfile>] [--pid|-P <pid>] [--timeout <timeout>]",
            "Waits for RabbitMQ node startup by monitoring a local PID file. See also 'rabbitmqctl \
             await_online_nodes'",
        )
        .of(LOOKING)
        .flags(&[Flag {
            name: "pid",
            letter: Some('P'),
            value: Follows::Number,
            default: "",
            about: "operating system PID to monitor",
        }])
        .calls(PATH)
        .needs(Needs::Nothing),
];

/// What the broker does; none when it does not answer.
fn state(call: &mut Call<'_>) -> Option<Value> {
    let reply = call.api.call("GET", &crate::api::path(STATE), None).ok()?;
    if reply.is_success()
        && call.options.get("node").is_none()
        && let Some(node) = reply.body["node"].as_str()
    {
        call.node = node.to_owned();
    }
    reply.is_success().then_some(reply.body)
}

fn runs(state: Option<&Value>) -> bool {
    state.is_some_and(|state| state["running"] == true)
}

fn ping(call: &mut Call<'_>) -> Result<Output, Failure> {
    let millis = call.options.timeout().unwrap_or(60) * 1000;
    let state = state(call);
    call.say(&format!(
        "Will ping {}. This only checks if the OS process is running and registered with epmd. Timeout: {millis} ms.",
        call.node
    ));
    match state {
        Some(_) => Ok(Output::Text("Ping succeeded".to_owned())),
        None => {
            let text =
                format!("Failed to connect and authenticate to {} in {millis} ms", call.node);
            Err(Failure::new(UNAVAILABLE, text))
        }
    }
}

fn await_startup(call: &mut Call<'_>) -> Result<Output, Failure> {
    let seconds = call.options.timeout().unwrap_or(AWAIT_SECONDS);
    call.wait_until(seconds, |call| Ok(runs(state(call).as_ref())))?;
    Ok(Output::Nothing)
}

fn await_nodes(call: &mut Call<'_>) -> Result<Output, Failure> {
    let failure =
        || Failure::argument(DATA, "Bad argument: Target node count must be a positive integer");
    let wanted: usize = call.word(0).parse().map_err(|_| failure())?;
    let seconds = call.options.timeout().unwrap_or(AWAIT_SECONDS);
    call.say(&format!(
        "Will wait for at least {wanted} nodes to join the cluster of {}. Timeout: {seconds} seconds.",
        call.node
    ));
    call.wait_until(seconds, |call| {
        let nodes = call.get(&["nodes"])?;
        let nodes = nodes.as_array().map_or(&[][..], Vec::as_slice);
        Ok(nodes.iter().filter(|node| node["running"] == true).count() >= wanted)
    })?;
    Ok(Output::Nothing)
}

/// Whether the operating system runs a program of that number.
fn exists(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

/// The number in a file; what stands in Erlang's form of it comes first.
fn pid_in(file: &str) -> Option<String> {
    let text = crate::file::read(Path::new(file)).ok()?;
    let text = String::from_utf8(text).ok()?;
    let pid = text.trim();
    (!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())).then(|| pid.to_owned())
}

fn wait(call: &mut Call<'_>) -> Result<Output, Failure> {
    let seconds = call.options.timeout().unwrap_or(AWAIT_SECONDS);
    let pid = match (call.options.get("pid").map(str::to_owned), call.words.first().cloned()) {
        (Some(_), Some(_)) => {
            let text = "\"Cannot specify both pid and pidfile\"";
            return Err(Failure::argument(USAGE, text));
        }
        (Some(pid), None) => pid,
        (None, Some(file)) => {
            call.say(&format!("Waiting for pid file '{file}' to appear"));
            let mut found = None;
            call.wait_until(seconds, |_| {
                found = pid_in(&file);
                Ok(found.is_some())
            })?;
            let pid = found.unwrap_or_default();
            call.say(&format!("pid is {pid}"));
            pid
        }
        (None, None) => {
            return Err(Failure::argument(USAGE, "\"No pid or pidfile specified\""));
        }
    };
    call.say(&format!(
        "Waiting for erlang distribution on node '{}' while OS process '{pid}' is running",
        call.node
    ));
    let gone = || Failure::new(UNAVAILABLE, "process_not_running");
    call.wait_until(seconds, |call| match exists(&pid) {
        true => Ok(state(call).is_some()),
        false => Err(gone()),
    })?;
    call.say(&format!(
        "Waiting for applications 'rabbit_and_plugins' to start on node '{}'",
        call.node
    ));
    call.wait_until(seconds, |call| match exists(&pid) {
        true => Ok(runs(state(call).as_ref())),
        false => Err(gone()),
    })?;
    let text = format!("Applications 'rabbit_and_plugins' are running on node '{}'", call.node);
    Ok(Output::Note(text))
}

fn check_running(call: &mut Call<'_>) -> Result<Output, Failure> {
    let node = &call.node;
    match runs(Some(&call.state)) {
        true => {
            let text = format!("RabbitMQ on node {node} is fully booted and running");
            Ok(Output::Text(text))
        }
        false => {
            let text = format!(
                "RabbitMQ on node {node} is not running or has not fully booted yet (check with is_booting)"
            );
            Err(Failure::new(UNAVAILABLE, text))
        }
    }
}

/// An answer that is no failure either way.
fn told(is_so: bool, text: String) -> Output {
    Output::Object(json!({"message": text, "result": is_so}), text)
}

fn is_running(call: &mut Call<'_>) -> Result<Output, Failure> {
    let node = &call.node;
    let is_so = runs(Some(&call.state));
    Ok(told(
        is_so,
        match is_so {
            true => format!("RabbitMQ on node {node} is fully booted and running"),
            false => format!(
                "RabbitMQ on node {node} is not running or has not fully booted yet (check with is_booting)"
            ),
        },
    ))
}

fn is_booting(call: &mut Call<'_>) -> Result<Output, Failure> {
    let node = &call.node;
    let is_so = call.state["booting"] == true;
    Ok(told(
        is_so,
        match is_so {
            true => format!("RabbitMQ on node {node} is booting"),
            false => format!(
                "RabbitMQ on node {node} is fully booted (check with is_running), stopped or has not started booting yet"
            ),
        },
    ))
}

fn health(call: &mut Call<'_>) -> Result<Output, Failure> {
    call.say(
        "This command is DEPRECATED and will be removed in a future version.\nIt performs intrusive, opinionated \
         health checks and requires a fully booted node.\nUse one of the options covered in \
         https://www.rabbitmq.com/monitoring.html#health-checks instead.",
    );
    let seconds = call.options.timeout().unwrap_or(70);
    call.say(&format!("Timeout: {seconds} seconds ...\nChecking health of node {} ...", call.node));
    check_running(call)?;
    let checked = &crate::api::path(&["health", "checks", "local-alarms"]);
    let reply = call.ask("GET", checked, None)?;
    match reply.is_success() {
        true => Ok(Output::Text("Health check passed".to_owned())),
        false => {
            let text = format!("Node {} is healthy? No: {}", call.node, reply.reason());
            Err(Failure::new(UNAVAILABLE, text))
        }
    }
}

/// Tells the broker to change its state.
///
/// # Errors
/// When it cannot.
pub fn change(call: &mut Call<'_>, action: &str) -> Result<Output, Failure> {
    call.send("POST", LIFECYCLE, Some(&json!({ "action": action })))?;
    Ok(Output::Nothing)
}

fn start_app(call: &mut Call<'_>) -> Result<Output, Failure> {
    change(call, "start_app")
}

fn stop_app(call: &mut Call<'_>) -> Result<Output, Failure> {
    change(call, "stop_app")
}

fn suspend(call: &mut Call<'_>) -> Result<Output, Failure> {
    change(call, "suspend_listeners")
}

fn resume(call: &mut Call<'_>) -> Result<Output, Failure> {
    change(call, "resume_listeners")
}

/// Stops the broker and waits until the program has ended, as far as its number is known.
fn stop(call: &mut Call<'_>) -> Result<Output, Failure> {
    let pid = call.state["pid"].as_u64().map(|pid| pid.to_string());
    change(call, "stop")?;
    if let Some(pid) = pid.filter(|_| !call.options.has("no-wait")) {
        let seconds = call.options.timeout().unwrap_or(AWAIT_SECONDS);
        call.wait_until(seconds, |_| Ok(!exists(&pid)))?;
    }
    Ok(Output::Nothing)
}
