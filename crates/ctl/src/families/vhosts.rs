//! Virtual hosts, their limits and tracing.

use super::parameters::object;
use crate::api::path;
use crate::command::{
    Call, Column, Command, Group, LOOKING, MANY, json, listing_of, plain, table, tags,
};
use crate::failure::Failure;
use crate::options::{Flag, Follows};
use crate::output::Output;
use serde_json::{Value, json};

const fn text(name: &'static str, about: &'static str) -> Flag {
    Flag { name, letter: None, value: Follows::Text, default: "", about }
}

const COLUMNS: &[Column] = &[
    table("cluster_state"),
    plain("default_queue_type"),
    plain("description"),
    plain("name"),
    plain("protected_from_deletion"),
    tags("tags"),
    plain("tracing"),
];

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("add_vhost", Group::Vhosts, (1, 1), add)
        .told(
            "<vhost> [--description <description> --tags \"<tag1>,<tag2>,<...>\" --default-queue-type \
             <quorum|classic|stream>]",
            "Creates a virtual host",
        )
        .flags(&[
            text("description", "virtual host description"),
            text("tags", "comma-separated tags"),
            text("default-queue-type", "queue type of queues that are declared without one"),
        ])
        .banner("Adding vhost \"{0}\" ...")
        .calls("GET, PUT /api/vhosts/{vhost}"),
    Command::new("clear_vhost_limits", Group::Vhosts, (0, 0), clear_limits)
        .told("[--vhost <vhost>]", "Clears virtual host limits")
        .banner("Clearing vhost \"{vhost}\" limits ...")
        .calls("GET, DELETE /api/vhost-limits/{vhost}/{name}"),
    Command::new("delete_vhost", Group::Vhosts, (1, 1), delete)
        .told("<vhost>", "Deletes a virtual host")
        .banner("Deleting vhost \"{0}\" ...")
        .calls("DELETE /api/vhosts/{vhost}"),
    Command::new("disable_vhost_deletion_protection", Group::Vhosts, (1, 1), unprotect)
        .told("<vhost>", "Removes a virtual host's protection from deletion")
        .banner("Removing deletion protection of virtual host \"{0}\" ...")
        .calls("DELETE /api/vhosts/{vhost}/deletion/protection"),
    Command::new("enable_vhost_deletion_protection", Group::Vhosts, (1, 1), protect)
        .told("<vhost>", "Protects a virtual host from deletion")
        .banner("Protecting virtual host \"{0}\" from deletion ...")
        .calls("POST /api/vhosts/{vhost}/deletion/protection"),
    Command::new("list_vhost_limits", Group::Vhosts, (0, 0), list_limits)
        .told(
            "[--vhost <vhost>] [--global] [--no-table-headers]",
            "Displays configured virtual host limits",
        )
        .of(LOOKING)
        .flags(&[Flag {
            name: "global",
            letter: None,
            value: Follows::Switch,
            default: "",
            about: "list limits of all virtual hosts",
        }])
        .calls("GET /api/vhost-limits[/{vhost}]")
        .table(&[plain("vhost"), json("limits").at("value")], &["vhost", "limits"]),
    Command::new("list_vhosts", Group::Access, (0, MANY), list)
        .told("[--no-table-headers] [<column> ...] [--timeout <timeout>]", "Lists virtual hosts")
        .of(LOOKING)
        .banner("Listing vhosts ...")
        .calls("GET /api/vhosts")
        .table(COLUMNS, &["name"]),
    Command::new("restart_vhost", Group::Vhosts, (0, 0), restart)
        .told("[--vhost <vhost>]", "Restarts a failed vhost data stores and queues")
        .banner("Trying to restart vhost '{vhost}' on node '{node}' ...")
        .calls("POST /api/vhosts/{vhost}/start/{node}"),
    Command::new("set_vhost_limits", Group::Vhosts, (1, 1), set_limits)
        .told("[--vhost <vhost>] <definition>", "Sets virtual host limits")
        .banner("Setting vhost limits to \"{0}\" for vhost \"{vhost}\" ...")
        .calls("GET /api/vhost-limits/{vhost}; PUT, DELETE /api/vhost-limits/{vhost}/{name}"),
    Command::new("set_vhost_tags", Group::Vhosts, (1, MANY), set_tags)
        .told("<vhost> <tag> [...]", "Sets virtual host tags")
        .banner("Setting tags for virtual host \"{0}\" to [{*}] ...")
        .calls("GET, PUT /api/vhosts/{vhost}"),
    Command::new("trace_off", Group::Vhosts, (0, 0), trace_off)
        .told("[--vhost <vhost>]", "Stops tracing of a virtual host")
        .banner("Stopping tracing for vhost \"{vhost}\" ...")
        .calls("GET, PUT /api/vhosts/{vhost}"),
    Command::new("trace_on", Group::Vhosts, (0, 0), trace_on)
        .told("[--vhost <vhost>]", "Starts tracing of a virtual host")
        .banner("Starting tracing for vhost \"{vhost}\" ...")
        .calls("GET, PUT /api/vhosts/{vhost}"),
    Command::new("update_vhost_metadata", Group::Vhosts, (1, 1), update)
        .told(
            "<vhost> [--description <description>] [--tags \"<tag1>,<tag2>,<...>\"] [--default-queue-type \
             <quorum|classic|stream>]",
            "Updates metadata (tags, description, default queue type) of a virtual host",
        )
        .flags(&[
            text("description", "virtual host description"),
            text("tags", "comma-separated tags"),
            text("default-queue-type", "queue type of queues that are declared without one"),
        ])
        .banner("Updating metadata of vhost \"{0}\" ...")
        .calls("GET, PUT /api/vhosts/{vhost}"),
];

fn list(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhosts = call.get(&["vhosts"])?;
    listing_of(call, vhosts.as_array().map_or(&[][..], Vec::as_slice))
}

/// What the flags say, over what is so already.
fn described(call: &Call<'_>, vhost: &Value) -> Value {
    let mut body = json!({});
    for (flag, key) in [
        ("description", "description"),
        ("tags", "tags"),
        ("default-queue-type", "default_queue_type"),
    ] {
        match (call.options.get(flag), &vhost[key]) {
            (Some(given), _) => body[key] = json!(given),
            (None, Value::Null) => {}
            (None, Value::String(kept)) if kept == "undefined" => {}
            (None, kept) => body[key] = kept.clone(),
        }
    }
    body
}

fn add(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = call.word(0);
    // The API would replace the description and tags of one that is there.
    if call.find(&["vhosts", &name])?.is_none() {
        let body = described(call, &Value::Null);
        call.send("PUT", &["vhosts", &name], Some(&body))?;
    }
    Ok(Output::Nothing)
}

fn delete(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = call.word(0);
    let reply = call.ask("DELETE", &path(&["vhosts", &name]), None)?;
    match reply.status {
        404 => Err(Call::no_vhost(&name)),
        _ if reply.is_success() => Ok(Output::Nothing),
        _ => Err(call.refusal(&reply)),
    }
}

/// Sets one key of a virtual host and keeps its other metadata.
fn change(call: &mut Call<'_>, name: &str, key: &str, value: Value) -> Result<(), Failure> {
    let vhost = call.find(&["vhosts", name])?.ok_or_else(|| Call::no_vhost(name))?;
    let mut body = described(call, &vhost);
    body[key] = value;
    call.send("PUT", &["vhosts", name], Some(&body)).map(|_| ())
}

fn set_tags(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (name, tags) = (call.word(0), call.words[1..].to_vec());
    change(call, &name, "tags", json!(tags))?;
    Ok(Output::Nothing)
}

fn update(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = call.word(0);
    let vhost = call.find(&["vhosts", &name])?.ok_or_else(|| Call::no_vhost(&name))?;
    let body = described(call, &vhost);
    call.send("PUT", &["vhosts", &name], Some(&body))?;
    Ok(Output::Nothing)
}

fn protection(call: &mut Call<'_>, method: &str) -> Result<Output, Failure> {
    let name = call.word(0);
    let reply = call.ask(method, &path(&["vhosts", &name, "deletion", "protection"]), None)?;
    match reply.status {
        404 => Err(Call::no_vhost(&name)),
        _ if reply.is_success() => Ok(Output::Nothing),
        _ => Err(call.refusal(&reply)),
    }
}

fn protect(call: &mut Call<'_>) -> Result<Output, Failure> {
    protection(call, "POST")
}

fn unprotect(call: &mut Call<'_>) -> Result<Output, Failure> {
    protection(call, "DELETE")
}

fn trace_on(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhost = call.vhost();
    change(call, &vhost, "tracing", json!(true))?;
    Ok(Output::Text(format!("Trace enabled for vhost {vhost}")))
}

fn trace_off(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhost = call.vhost();
    change(call, &vhost, "tracing", json!(false))?;
    Ok(Output::Text(format!("Trace disabled for vhost {vhost}")))
}

fn restart(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (vhost, node) = (call.vhost(), call.node.clone());
    call.check_vhost()?;
    call.send("POST", &["vhosts", &vhost, "start", &node], None)?;
    Ok(Output::Text(format!("Vhost '{vhost}' is already running on node '{node}'")))
}

/// The limits of the virtual host that is meant.
fn limits(call: &mut Call<'_>) -> Result<Value, Failure> {
    let vhost = call.vhost();
    let found = call.find(&["vhost-limits", &vhost])?.ok_or_else(|| Call::no_vhost(&vhost))?;
    let value = found.get(0).and_then(|limits| limits.get("value"));
    Ok(value.cloned().unwrap_or_else(|| json!({})))
}

fn list_limits(call: &mut Call<'_>) -> Result<Output, Failure> {
    if call.options.has("global") {
        call.say("Listing limits for all vhosts ...");
        let all = call.get(&["vhost-limits"])?;
        let mut output = listing_of(call, all.as_array().map_or(&[][..], Vec::as_slice))?;
        if let Output::Rows(rows) = &mut output {
            rows.ends_empty = true;
        }
        return Ok(output);
    }
    let vhost = call.vhost();
    call.say(&format!("Listing limits for vhost \"{vhost}\" ..."));
    let limits = limits(call)?;
    let is_empty = limits.as_object().is_none_or(serde_json::Map::is_empty);
    let answer = match is_empty {
        true => json!([]),
        false => json!({"node": call.node, "result": "ok", "value": limits.to_string()}),
    };
    let shown = if is_empty { String::new() } else { limits.to_string() };
    Ok(Output::Object(answer, shown))
}

fn set_limits(call: &mut Call<'_>) -> Result<Output, Failure> {
    let wanted = object(&call.word(0))?;
    let (vhost, present) = (call.vhost(), limits(call)?);
    for (name, value) in &wanted {
        call.send("PUT", &["vhost-limits", &vhost, name], Some(&json!({ "value": value })))?;
    }
    let present = present.as_object().cloned().unwrap_or_default();
    for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
        call.send("DELETE", &["vhost-limits", &vhost, name], None)?;
    }
    Ok(Output::Nothing)
}

fn clear_limits(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (vhost, present) = (call.vhost(), limits(call)?);
    let present = present.as_object().cloned().unwrap_or_default();
    for name in present.keys() {
        call.send("DELETE", &["vhost-limits", &vhost, name], None)?;
    }
    Ok(Output::Nothing)
}
