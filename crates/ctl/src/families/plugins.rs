//! Plugins: what is built in is enabled, and nothing can be added.

use crate::command::{Call, Command, Group, MANY};
use crate::failure::{Failure, SOFTWARE, UNAVAILABLE, USAGE};
use crate::options::{Flag, Follows};
use crate::output::Output;
use crate::program::Program;
use serde_json::{Value, json};

const PLUGINS: &[Program] = &[Program::Plugins];
const NODES: &str = "GET /api/nodes";

/// Plugins that RabbitMQ comes with: scripts that enable one of them go on.
const KNOWN: &[&str] = &[
    "rabbitmq_amqp1_0",
    "rabbitmq_auth_backend_cache",
    "rabbitmq_auth_backend_http",
    "rabbitmq_auth_backend_internal_loopback",
    "rabbitmq_auth_backend_ldap",
    "rabbitmq_auth_backend_oauth2",
    "rabbitmq_auth_mechanism_ssl",
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_delayed_message_exchange",
    "rabbitmq_event_exchange",
    "rabbitmq_federation",
    "rabbitmq_federation_management",
    "rabbitmq_federation_prometheus",
    "rabbitmq_jms_topic_exchange",
    "rabbitmq_management",
    "rabbitmq_management_agent",
    "rabbitmq_mqtt",
    "rabbitmq_peer_discovery_aws",
    "rabbitmq_peer_discovery_common",
    "rabbitmq_peer_discovery_consul",
    "rabbitmq_peer_discovery_etcd",
    "rabbitmq_peer_discovery_k8s",
    "rabbitmq_prometheus",
    "rabbitmq_random_exchange",
    "rabbitmq_recent_history_exchange",
    "rabbitmq_sharding",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
    "rabbitmq_shovel_prometheus",
    "rabbitmq_stomp",
    "rabbitmq_stream",
    "rabbitmq_stream_management",
    "rabbitmq_top",
    "rabbitmq_tracing",
    "rabbitmq_trust_store",
    "rabbitmq_web_dispatch",
    "rabbitmq_web_mqtt",
    "rabbitmq_web_mqtt_examples",
    "rabbitmq_web_stomp",
    "rabbitmq_web_stomp_examples",
];

const fn switch(name: &'static str, letter: Option<char>, about: &'static str) -> Flag {
    Flag { name, letter, value: Follows::Switch, default: "", about }
}

const ONLINE: &[Flag] = &[
    switch("online", None, "fail unless the node runs"),
    switch("offline", None, "accepted: there is no file to change"),
    switch("all", None, "all plugins"),
];

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("directories", Group::Monitoring, (0, 0), directories)
        .told("[--offline] [--online]", "Says that there are no plugin directories")
        .of(PLUGINS)
        .flags(ONLINE)
        .banner("Listing plugin directories used by node {node}"),
    Command::new("disable", Group::Plugins, (0, MANY), disable)
        .told(
            "<plugin1> [ <plugin2>] | --all [--offline] [--online]",
            "Changes nothing: what is built in stays enabled",
        )
        .of(PLUGINS)
        .flags(ONLINE)
        .calls(NODES),
    Command::new("enable", Group::Plugins, (0, MANY), enable)
        .told(
            "<plugin1> [ <plugin2>] | --all [--offline] [--online]",
            "Changes nothing: what is built in is enabled",
        )
        .of(PLUGINS)
        .flags(ONLINE)
        .calls(NODES),
    Command::new("is_enabled", Group::Monitoring, (1, MANY), is_enabled)
        .told(
            "<plugin1> [ <plugin2>] [--offline] [--online]",
            "Health check that exits with a non-zero code if provided plugins are not enabled on target node",
        )
        .of(PLUGINS)
        .flags(ONLINE)
        .calls(NODES),
    Command::new("list", Group::Plugins, (0, 1), list)
        .told(
            "[pattern] [--verbose] [--minimal] [--enabled] [--implicitly-enabled]",
            "Lists plugins and their state",
        )
        .of(PLUGINS)
        .flags(&[
            switch("verbose", Some('v'), "output more information"),
            switch("minimal", Some('m'), "only print plugin names"),
            switch("enabled", Some('E'), "only list enabled plugins"),
            switch(
                "implicitly-enabled",
                Some('e'),
                "include plugins enabled as dependencies of other plugins",
            ),
        ])
        .calls(NODES),
    Command::new("set", Group::Plugins, (0, MANY), set)
        .told("<plugin1> [ <plugin2>] [--offline] [--online]", "Changes nothing")
        .of(PLUGINS)
        .flags(ONLINE)
        .calls(NODES),
];

/// The plugins that are built in, and their version.
fn enabled(call: &mut Call<'_>) -> Result<(Vec<String>, String), Failure> {
    let nodes = call.get(&["nodes"])?;
    let node = nodes.get(0).cloned().unwrap_or(Value::Null);
    let names = node["enabled_plugins"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> =
        names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    names.sort();
    let version = node["rabbitmq_version"].as_str().unwrap_or("").to_owned();
    Ok((names, version))
}

/// Whether the name fits a pattern: a text that is anywhere in it, with `^`, `$` and `.*` at the ends.
fn fits(pattern: &str, name: &str) -> bool {
    let (at_start, pattern) = match pattern.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let (at_end, pattern) = match pattern.strip_suffix('$') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let (open_start, pattern) = match pattern.strip_prefix(".*") {
        Some(rest) => (true, rest),
        None => (!at_start, pattern),
    };
    let (open_end, pattern) = match pattern.strip_suffix(".*") {
        Some(rest) => (true, rest),
        None => (!at_end, pattern),
    };
    match (open_start, open_end) {
        (true, true) => name.contains(pattern),
        (true, false) => name.ends_with(pattern),
        (false, true) => name.starts_with(pattern),
        (false, false) => name == pattern,
    }
}

fn list(call: &mut Call<'_>) -> Result<Output, Failure> {
    let pattern = call.words.first().cloned().unwrap_or_else(|| ".*".to_owned());
    let (enabled, version) = enabled(call)?;
    let only_enabled = call.options.has("enabled") || call.options.has("implicitly-enabled");
    let mut names: Vec<String> = KNOWN.iter().map(|name| (*name).to_owned()).collect();
    names.extend(enabled.iter().cloned());
    names.sort();
    names.dedup();
    names.retain(|name| fits(&pattern, name) && (!only_enabled || enabled.contains(name)));
    let node = call.node.clone();
    call.say(&format!("Listing plugins with pattern \"{pattern}\" ..."));
    if call.options.has("minimal") {
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        return Ok(Output::Raw(lines));
    }
    let plugin = |name: &String| {
        let is_on = enabled.contains(name);
        json!({
            "enabled": if is_on { "enabled" } else { "not_enabled" }, "name": name, "running": is_on,
            "running_version": if is_on { json!(version) } else { Value::Null }, "version": version,
        })
    };
    let answer = json!({
        "format": if call.options.has("verbose") { "verbose" } else { "normal" },
        "plugins": names.iter().map(plugin).collect::<Vec<_>>(), "status": "running",
    });
    call.say(&format!(
        " Configured: E = explicitly enabled; e = implicitly enabled\n | Status: * = running on {node}\n |/"
    ));
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let line = |name: &String| {
        let mark = if enabled.contains(name) { "[E*]" } else { "[  ]" };
        match call.options.has("verbose") {
            true => format!(
                "{mark} {name}\n     Version:     \t{version}\n     Dependencies:\t[]\n     Description: \tbuilt in"
            ),
            false => format!("{mark} {name:width$} {version}"),
        }
    };
    let lines: Vec<String> = names.iter().map(line).collect();
    match lines.is_empty() {
        true => Ok(Output::Raw(String::new())),
        false => Ok(Output::Object(answer, lines.join("\n"))),
    }
}

/// Goes through the motions of a change that changes nothing, and says so of what is not built in.
fn pretend(call: &mut Call<'_>, verb: &str) -> Result<Output, Failure> {
    let wanted = call.words.clone();
    if wanted.is_empty() && !call.options.has("all") && verb != "set" {
        return Err(Failure::argument(USAGE, "not enough arguments."));
    }
    let word = if verb == "disable" { "Disabling" } else { "Enabling" };
    let node = call.node.clone();
    if !wanted.is_empty() {
        call.say(&format!("{word} plugins on node {node}:\n{}", wanted.join("\n")));
    }
    let (enabled, _) = enabled(call)?;
    let unknown: Vec<String> = wanted
        .iter()
        .filter(|name| !KNOWN.contains(&name.as_str()) && !enabled.contains(name))
        .map(|name| format!(":{name}"))
        .collect();
    if !unknown.is_empty() && verb != "disable" {
        let text = format!("{{:plugins_not_found, [{}]}}", unknown.join(", "));
        return Err(Failure::new(SOFTWARE, text));
    }
    let mut text = String::from("The following plugins have been configured:\n");
    for name in &enabled {
        text.push_str(&format!("  {name}\n"));
    }
    text.push_str(&format!("Applying plugin configuration to {node}...\n"));
    let missing: Vec<&str> =
        wanted.iter().filter(|name| !enabled.contains(name)).map(String::as_str).collect();
    if !missing.is_empty() && verb != "disable" {
        text.push_str(&format!("This broker has nothing like {}.\n", missing.join(", ")));
    }
    text.push_str("Plugin configuration unchanged.");
    let answer = json!({"enabled": [], "mode": "online", "set": enabled});
    Ok(Output::Object(answer, text))
}

fn enable(call: &mut Call<'_>) -> Result<Output, Failure> {
    pretend(call, "enable")
}

fn disable(call: &mut Call<'_>) -> Result<Output, Failure> {
    pretend(call, "disable")
}

fn set(call: &mut Call<'_>) -> Result<Output, Failure> {
    pretend(call, "set")
}

fn is_enabled(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (wanted, node) = (call.words.clone(), call.node.clone());
    let (noun, verb) = if wanted.len() == 1 { ("plugin", "is") } else { ("plugins", "are") };
    let names = wanted.join(", ");
    call.say(&format!("Asking node {node} if {noun} {names} {verb} enabled..."));
    let (enabled, _) = enabled(call)?;
    let missing: Vec<&str> =
        wanted.iter().filter(|name| !enabled.contains(name)).map(String::as_str).collect();
    if missing.is_empty() {
        let noun = if wanted.len() == 1 { "Plugin" } else { "Plugins" };
        return Ok(Output::Text(format!("{noun} {names} {verb} enabled on node {node}")));
    }
    let (noun, verb) = if missing.len() == 1 { ("Plugin", "is") } else { ("Plugins", "are") };
    let text = format!(
        "{noun} {} {verb} not enabled on node {node}. Enabled plugins and dependencies: {}",
        missing.join(", "),
        enabled.join(", ")
    );
    Err(Failure::new(UNAVAILABLE, text))
}

fn directories(_: &mut Call<'_>) -> Result<Output, Failure> {
    Ok(Output::Text("Plugins are built in: there are no directories of them".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_anywhere_unless_they_are_anchored() {
        for (pattern, is_so) in [
            ("shovel", true),
            ("^rabbitmq_shovel$", true),
            (".*", true),
            ("^rabbitmq", true),
            ("rabbitmq$", false),
            ("^shovel", false),
            ("^.*shovel$", true),
            ("", true),
        ] {
            assert_eq!(fits(pattern, "rabbitmq_shovel"), is_so, "{pattern}");
        }
    }
}
