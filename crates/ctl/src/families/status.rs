//! What the broker is and has: status, cluster status, listeners, memory, log.

use crate::api::path;
use crate::command::{CHECKING, Call, Column, Command, Group, LOOKING, atom, listing_of, plain};
use crate::failure::{Failure, UNAVAILABLE};
use crate::options::{Flag, Follows};
use crate::output::{Output, bold};
use crate::own;
use serde_json::{Map, Value, json};
use std::time::Duration;

const STATUS: &str = "GET /api/lepus/ctl/status";
const UNIT: &[Flag] = &[Flag {
    name: "unit",
    letter: None,
    value: Follows::Text,
    default: "gb",
    about: "byte multiple (bytes, kb, mb, gb) to use",
}];
const ATTEMPTS: &[Column] = &[
    plain("protocol"),
    plain("remote_address"),
    plain("username"),
    plain("auth_attempts"),
    plain("auth_attempts_failed"),
    plain("auth_attempts_succeeded"),
];

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("cluster_status", Group::Cluster, (0, 0), cluster)
        .told(
            "",
            "Displays all the nodes in the cluster grouped by node type, together with the currently running nodes",
        )
        .of(LOOKING)
        .banner("Cluster status of node {node} ...")
        .calls("GET /api/lepus/ctl/status, /api/cluster-name, /api/feature-flags"),
    Command::new("consume_event_stream", Group::Monitoring, (0, 0), no_stream)
        .told("[--duration|-d <seconds>]", "Refused: events are not streamed")
        .of(CHECKING)
        .flags(&[Flag { name: "duration", letter: Some('d'), ..SECONDS }]),
    Command::new("erlang_version", Group::Monitoring, (0, 0), erlang_version)
        .told("", "Displays Erlang/OTP version on the target node")
        .of(CHECKING)
        .banner("Asking node {node} for its Erlang/OTP version...")
        .calls("GET /api/overview"),
    Command::new("list_node_auth_attempt_stats", Group::Monitoring, (0, 0), attempts)
        .told("[--by-source]", "Lists authentication attempts on the target node")
        .of(LOOKING)
        .flags(&[Flag {
            name: "by-source",
            letter: None,
            value: Follows::Switch,
            default: "",
            about: "list per remote address and username",
        }])
        .banner("Listing authentication\n attempts for node \"{node}\" ...")
        .calls("GET /api/auth/attempts/{node}[/source]")
        .table(ATTEMPTS, &["protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"]),
    Command::new("listeners", Group::Monitoring, (0, 0), listeners)
        .told(
            "",
            "Lists active connection listeners (bound interface, port, protocol) on the target node",
        )
        .of(CHECKING)
        .banner("Asking node {node} to report its protocol listeners ...")
        .calls(STATUS),
    Command::new("log_location", Group::Configuration, (0, 0), log_location)
        .told("[--all|-a]", "Shows log file location(s) on target node")
        .of(CHECKING)
        .flags(&[Flag {
            name: "all",
            letter: Some('a'),
            value: Follows::Switch,
            default: "",
            about: "return all log file locations",
        }])
        .banner("Log file location(s) on node {node} ...")
        .calls(STATUS),
    Command::new("log_tail", Group::Monitoring, (0, 0), log_tail)
        .told("[--number|-N <number>]", "Prints the last N lines of the log on the node")
        .of(CHECKING)
        .flags(&[Flag {
            name: "number",
            letter: Some('N'),
            value: Follows::Number,
            default: "50",
            about: "number of lines to print",
        }])
        .banner("Last {number} log lines on node {node} ...")
        .calls("GET /api/lepus/ctl/log?lines={number}"),
    Command::new("log_tail_stream", Group::Monitoring, (0, 0), log_stream)
        .told("[--duration|-d <seconds>]", "Prints lines of the log as they are written")
        .of(CHECKING)
        .flags(&[Flag { name: "duration", letter: Some('d'), ..SECONDS }])
        .banner("Streaming logs from node {node} ...")
        .calls("GET /api/lepus/ctl/log?lines=10000&after={end} again and again"),
    Command::new("memory_breakdown", Group::Monitoring, (0, 0), memory)
        .told("[--unit <unit>]", "Provides a memory usage breakdown on the target node.")
        .of(CHECKING)
        .flags(UNIT)
        .banner("Reporting memory breakdown on node {node}...")
        .calls(STATUS),
    Command::new("report", Group::Monitoring, (0, 0), report)
        .told("", "Generate a server status report for support purposes")
        .of(LOOKING)
        .banner("Reporting server status of node {node} ...\n")
        .calls("those of status, cluster_status and environment"),
    Command::new("reset_node_auth_attempt_metrics", Group::Configuration, (0, 0), reset_attempts)
        .told("", "Resets auth attempt metrics on the target node")
        .of(CHECKING)
        .banner("Reset auth attempt metrics on node {node} ...")
        .calls("DELETE /api/auth/attempts/{node}"),
    Command::new("schema_info", Group::Monitoring, (0, 0), schema)
        .told("", "Shows no tables: definitions are kept otherwise here")
        .of(LOOKING)
        .banner("Asking node {node} to report its schema...")
        .table(&[plain("name"), atom("state")], &["name"]),
    Command::new("server_version", Group::Monitoring, (0, 0), server_version)
        .told("", "Displays server version on the target node")
        .of(CHECKING)
        .banner("Asking node {node} for its RabbitMQ version...")
        .calls("GET /api/overview"),
    Command::new("status", Group::Monitoring, (0, 0), status)
        .told("[--unit <unit>] [--timeout <timeout>]", "Displays status of a node")
        .of(LOOKING)
        .flags(UNIT)
        .banner("Status of node {node} ...")
        .calls(STATUS),
    Command::new("tls_versions", Group::Monitoring, (0, 0), tls_versions)
        .told("", "Lists TLS versions supported (but not necessarily allowed) on the target node")
        .of(CHECKING)
        .banner("Listing all TLS versions supported by the runtime..."),
];

const SECONDS: Flag =
    Flag { name: "", letter: None, value: Follows::Number, default: "", about: "for how long" };

/// The broker's status.
///
/// # Errors
/// When it does not tell.
pub fn fetch(call: &mut Call<'_>) -> Result<Value, Failure> {
    call.get(own::STATUS)
}

fn list<'a>(status: &'a Value, key: &str) -> &'a [Value] {
    status[key].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The line about a listener.
fn listener(listener: &Value) -> String {
    format!(
        "Interface: {}, port: {}, protocol: {}, purpose: {}",
        text(&listener["interface"]),
        text(&listener["port"]),
        text(&listener["protocol"]),
        text(&listener["purpose"])
    )
}

/// The lines about alarms, as the checks say them: each alarm has a resource and a node.
#[must_use]
pub fn alarms(status: &Value) -> Vec<String> {
    let line = |alarm: &Value| match alarm["resource"].as_str() {
        Some("memory") => format!("Memory alarm on node {}", text(&alarm["node"])),
        Some("disk") => format!("Free disk space alarm on node {}", text(&alarm["node"])),
        _ => text(alarm),
    };
    list(status, "alarms").iter().map(line).collect()
}

/// A number of bytes in a unit, with at most four digits behind the point.
fn in_unit(bytes: &Value, unit: &str) -> String {
    let factor = match unit {
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return format!("{} bytes", text(bytes)),
    };
    let number = bytes.as_f64().unwrap_or(0.0) / factor;
    format!("{:?} {unit}", (number * 1e4).round() / 1e4)
}

/// Kinds of memory with their bytes and their part in percent, the greatest first.
fn kinds(status: &Value) -> Vec<(String, u64, f64)> {
    let empty = Map::new();
    let memory = status["memory"].as_object().unwrap_or(&empty);
    let strategy = memory.get("strategy").and_then(Value::as_str).unwrap_or("rss");
    let total = memory.get("total").and_then(|total| total[strategy].as_f64()).unwrap_or(0.0);
    let mut kinds: Vec<(String, u64, f64)> = memory
        .iter()
        .filter_map(|(kind, bytes)| Some((kind.clone(), bytes.as_u64()?)))
        .map(|(kind, bytes)| {
            let percent = if total > 0.0 { bytes as f64 * 100.0 / total } else { 0.0 };
            (kind, bytes, (percent * 100.0).round() / 100.0)
        })
        .collect();
    kinds.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
    kinds
}

fn status(call: &mut Call<'_>) -> Result<Output, Failure> {
    let status = fetch(call)?;
    let words = in_words(&status, &call.flag("unit"), &call.node);
    Ok(Output::Object(status, words))
}

/// Lines, or that there are none.
fn or_none(lines: Vec<String>) -> Vec<String> {
    if lines.is_empty() { vec!["(none)".to_owned()] } else { lines }
}

fn in_words(status: &Value, unit: &str, node: &str) -> String {
    let of = |key: &str| text(&status[key]);
    let stars = |key: &str| -> Vec<String> {
        list(status, key).iter().map(|item| format!(" * {}", text(item))).collect()
    };
    let mut runtime = vec![
        format!("OS PID: {}", of("pid")),
        format!("OS: {}", of("os")),
        format!("Uptime (seconds): {}", of("uptime")),
        format!("Is under maintenance?: {}", of("is_under_maintenance")),
        format!("RabbitMQ version: {}", of("rabbitmq_version")),
    ];
    if !of("product_version").is_empty() {
        runtime.push(format!("Product version: {}", of("product_version")));
    }
    let used = |key: &str| text(&status["processes"][key]);
    runtime.extend([
        format!("Node name: {node}"),
        format!("Erlang configuration: {}", of("erlang_version")),
        format!("Crypto library: {}", of("crypto_lib_version")),
        format!("Erlang processes: {} used, {} limit", used("used"), used("limit")),
        format!("Scheduler run queue: {}", of("run_queue")),
        format!("Cluster heartbeat timeout (net_ticktime): {}", of("net_ticktime")),
    ]);
    let mut plugins = vec![
        format!("Enabled plugin file: {}", of("enabled_plugin_file")),
        "Enabled plugins:".to_owned(),
        String::new(),
    ];
    plugins.extend(stars("active_plugins"));
    let descriptors = |key: &str| text(&status["file_descriptors"][key]);
    let totals = |key: &str| text(&status["totals"][key]);
    let sections = [
        ("Runtime", runtime),
        ("Plugins", plugins),
        ("Data directory", vec![format!("Node data directory: {}", of("data_directory"))]),
        ("Config files", stars("config_files")),
        ("Log file(s)", stars("log_files")),
        ("Alarms", or_none(alarms(status))),
        ("Tags", or_none(list(status, "tags").iter().map(text).collect())),
        ("Memory", memory_words(status, unit)),
        (
            "File Descriptors",
            vec![
                format!(
                    "Total: {}, limit: {}",
                    descriptors("total_used"),
                    descriptors("total_limit")
                ),
                format!(
                    "Sockets: {}, limit: {}",
                    descriptors("sockets_used"),
                    descriptors("sockets_limit")
                ),
            ],
        ),
        (
            "Free Disk Space",
            vec![
                format!(
                    "Low free disk space watermark: {}",
                    in_unit(&status["disk_free_limit"], unit)
                ),
                format!("Free disk space: {}", in_unit(&status["disk_free"], unit)),
            ],
        ),
        (
            "Totals",
            vec![
                format!("Connection count: {}", totals("connection_count")),
                format!("Queue count: {}", totals("queue_count")),
                format!("Virtual host count: {}", totals("virtual_host_count")),
            ],
        ),
        ("Listeners", list(status, "listeners").iter().map(listener).collect()),
    ];
    sectioned(&sections)
}

fn memory_words(status: &Value, unit: &str) -> Vec<String> {
    let memory = &status["memory"];
    let strategy = memory["strategy"].as_str().unwrap_or("rss");
    let setting = &status["vm_memory_high_watermark_setting"];
    let limit = in_unit(&status["vm_memory_high_watermark_limit"], unit);
    let setting = match (&setting["relative"], &setting["absolute"]) {
        (Value::Number(part), _) => format!("{part} of available memory, computed to: {limit}"),
        _ => limit,
    };
    let mut lines = vec![
        format!("Total memory used: {}", in_unit(&memory["total"][strategy], unit)),
        format!("Calculation strategy: {strategy}"),
        format!("Memory high watermark setting: {setting}"),
        String::new(),
    ];
    lines.extend(kinds(status).into_iter().map(|(kind, bytes, percent)| {
        format!("{kind}: {} ({percent:?} %)", in_unit(&json!(bytes), unit))
    }));
    lines
}

/// Sections under bold headings, an empty line between all parts.
fn sectioned(sections: &[(&str, Vec<String>)]) -> String {
    let section = |(name, lines): &(&str, Vec<String>)| {
        let lines: Vec<String> = lines.iter().map(|line| crate::term::safe(line)).collect();
        format!("{}\n\n{}", bold(name), lines.join("\n"))
    };
    sections.iter().map(section).collect::<Vec<_>>().join("\n\n")
}

fn listeners(call: &mut Call<'_>) -> Result<Output, Failure> {
    let status = fetch(call)?;
    let all = list(&status, "listeners");
    let lines: Vec<String> = all.iter().map(listener).collect();
    let answer = json!({"listeners": all, "node": call.node, "result": "ok"});
    Ok(Output::Object(answer, lines.join("\n")))
}

fn memory(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (status, unit) = (fetch(call)?, call.flag("unit"));
    let (mut answer, mut lines) = (Map::new(), Vec::new());
    for (kind, bytes, percent) in kinds(&status) {
        lines.push(format!("{kind}: {} ({percent:?}%)\n", in_unit(&json!(bytes), &unit)));
        answer.insert(kind, json!({"bytes": bytes, "percentage": percent}));
    }
    Ok(Output::Object(Value::Object(answer), lines.concat()))
}

fn cluster(call: &mut Call<'_>) -> Result<Output, Failure> {
    let status = fetch(call)?;
    let node = call.node.clone();
    let name = text(&call.get(&["cluster-name"])?["name"]);
    let flags = call.get(&["feature-flags"])?;
    let version = text(&status["rabbitmq_version"]);
    let erlang = text(&status["erlang_version"]);
    let maintenance = match status["is_under_maintenance"] == true {
        true => "marked for maintenance",
        false => "not under maintenance",
    };
    let all = list(&status, "listeners");
    let answer = json!({
        "alarms": status["alarms"],
        "cluster_name": name,
        "disk_nodes": [node],
        "feature_flags": flags,
        "listeners": {node.as_str(): all},
        "maintenance_status": {node.as_str(): maintenance},
        "partitions": {},
        "ram_nodes": [],
        "running_nodes": [node],
        "versions": {node.as_str(): {
            "erlang_version": erlang, "rabbitmq_name": "RabbitMQ", "rabbitmq_version": version,
        }},
    });
    let of_node = |item: &Value| {
        format!("Node: {node}, interface: {}", &listener(item)["Interface: ".len()..])
    };
    let flag =
        |flag: &Value| format!("Flag: {}, state: {}", text(&flag["name"]), text(&flag["state"]));
    let flags = flags.as_array().map_or(&[][..], Vec::as_slice);
    let words = sectioned(&[
        ("Basics", vec![format!("Cluster name: {name}")]),
        ("Disk Nodes", vec![node.clone()]),
        ("Running Nodes", vec![node.clone()]),
        ("Versions", vec![format!("{node}: RabbitMQ {version} on Erlang {erlang}")]),
        ("Maintenance status", vec![format!("Node: {node}, status: {maintenance}")]),
        ("Alarms", or_none(alarms(&status))),
        ("Network Partitions", or_none(Vec::new())),
        ("Listeners", all.iter().map(of_node).collect()),
        ("Feature flags", flags.iter().map(flag).collect()),
    ]);
    Ok(Output::Object(answer, words))
}

fn overview(call: &mut Call<'_>, key: &str) -> Result<String, Failure> {
    Ok(text(&call.get(&["overview"])?[key]))
}

fn server_version(call: &mut Call<'_>) -> Result<Output, Failure> {
    Ok(Output::Text(overview(call, "rabbitmq_version")?))
}

fn erlang_version(call: &mut Call<'_>) -> Result<Output, Failure> {
    Ok(Output::Text(format!("Erlang/OTP {}", overview(call, "erlang_version")?)))
}

fn log_location(call: &mut Call<'_>) -> Result<Output, Failure> {
    let status = fetch(call)?;
    let files: Vec<String> = list(&status, "log_files").iter().map(text).collect();
    let shown = if call.options.has("all") { files.len() } else { 1 };
    Ok(Output::Text(files.into_iter().take(shown).collect::<Vec<_>>().join("\n")))
}

fn log_tail(call: &mut Call<'_>) -> Result<Output, Failure> {
    let number = call.flag("number");
    let asked = format!("{}?lines={number}", path(&["lepus", "ctl", "log"]));
    let reply = call.ask("GET", &asked, None)?;
    match reply.is_success() {
        true => {
            let lines: Vec<String> = list(&reply.body, "lines").iter().map(text).collect();
            Ok(Output::Text(lines.join("\n")))
        }
        false => Err(call.refusal(&reply)),
    }
}

/// Prints lines as they come, until the time is over or nobody reads.
fn log_stream(call: &mut Call<'_>) -> Result<Output, Failure> {
    const STEP: Duration = Duration::from_millis(500);
    let seconds = call.flag("duration").parse::<u64>().ok();
    let of_log = path(&["lepus", "ctl", "log"]);
    let mut asked = format!("{of_log}?lines=0");
    let mut waited = Duration::ZERO;
    loop {
        let reply = call.ask("GET", &asked, None)?;
        if !reply.is_success() {
            return Err(call.refusal(&reply));
        }
        for line in list(&reply.body, "lines") {
            if writeln!(call.out, "{}", crate::term::safe(&text(line))).is_err() {
                return Ok(Output::Nothing);
            }
        }
        if call.out.flush().is_err()
            || seconds.is_some_and(|seconds| waited >= Duration::from_secs(seconds))
        {
            return Ok(Output::Nothing);
        }
        asked = format!("{of_log}?lines=10000&after={}", text(&reply.body["end"]));
        call.api.pause(STEP);
        waited += STEP;
    }
}

fn no_stream(_: &mut Call<'_>) -> Result<Output, Failure> {
    let text =
        "This broker does not stream events to command line tools: log_tail_stream shows the log";
    Err(Failure::new(UNAVAILABLE, text))
}

fn report(call: &mut Call<'_>) -> Result<Output, Failure> {
    let mut parts = Vec::new();
    let (status, unit) = (fetch(call)?, call.flag("unit"));
    parts.push(format!(
        "Status of node {} ...\n{}",
        call.node,
        in_words(&status, &unit, &call.node)
    ));
    if let Output::Object(_, words) = cluster(call)? {
        parts.push(format!("Cluster status of node {} ...\n{words}", call.node));
    }
    let settings = call.get(&["config", "effective"])?;
    let settings = serde_json::to_string_pretty(&settings).unwrap_or_default();
    parts.push(format!("Application environment of node {} ...\n{settings}", call.node));
    Ok(Output::Object(status, parts.join("\n\n")))
}

fn attempts(call: &mut Call<'_>) -> Result<Output, Failure> {
    let node = call.node.clone();
    let found = match call.options.has("by-source") {
        true => call.get(&["auth", "attempts", &node, "source"])?,
        false => call.get(&["auth", "attempts", &node])?,
    };
    listing_of(call, found.as_array().map_or(&[][..], Vec::as_slice))
}

fn reset_attempts(call: &mut Call<'_>) -> Result<Output, Failure> {
    let node = call.node.clone();
    call.send("DELETE", &["auth", "attempts", &node], None)?;
    Ok(Output::Nothing)
}

fn schema(call: &mut Call<'_>) -> Result<Output, Failure> {
    listing_of(call, &[])
}

fn tls_versions(_: &mut Call<'_>) -> Result<Output, Failure> {
    Ok(Output::Text("tlsv1.3\ntlsv1.2".to_owned()))
}
