//! Queues: deleting, purging, and what concerns replicas.

use crate::api::{escape, path};
use crate::command::{CTL, Call, Command, Group, MANY};
use crate::failure::{Failure, UNAVAILABLE, USAGE};
use crate::options::{Flag, Follows};
use crate::output::{Output, Rows};
use crate::program::Program;
use crate::term::Term;
use serde_json::Value;

const QUEUES: &[Program] = &[Program::Queues];
const STREAMS: &[Program] = &[Program::Streams];
const SHOWING: &[Program] = &[Program::Diagnostics, Program::Queues];
const SHOWING_STREAMS: &[Program] = &[Program::Diagnostics, Program::Queues, Program::Streams];

const fn flag(
    name: &'static str,
    letter: Option<char>,
    value: Follows,
    about: &'static str,
) -> Flag {
    Flag { name, letter, value, default: "", about }
}

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("delete_queue", Group::Queues, (1, 1), delete)
        .told(
            "[--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u]",
            "Deletes a queue",
        )
        .flags(&[
            flag("if-empty", Some('e'), Follows::Switch, "delete the queue if it is empty"),
            flag("if-unused", Some('u'), Follows::Switch, "delete the queue only if it has no consumers"),
        ])
        .calls("GET, DELETE /api/queues/{vhost}/{queue}"),
    Command::new("purge_queue", Group::Queues, (1, 1), purge)
        .told(
            "<queue> [--timeout <timeout>]",
            "Purges a queue (removes all messages in it)",
        )
        .banner("Purging queue '{0}' in vhost '{vhost}' ...")
        .calls("DELETE /api/queues/{vhost}/{queue}/contents"),
    Command::new("sync_queue", Group::Replication, (1, 1), found_only)
        .told("[--vhost <vhost>] <queue>", "Does nothing: there are no mirrored queues")
        .of(CTL)
        .banner("Synchronising queue '{0}' in vhost '{vhost}' ...")
        .calls("GET /api/queues/{vhost}/{queue}"),
    Command::new("cancel_sync_queue", Group::Replication, (1, 1), found_only)
        .told("[--vhost <vhost>] <queue>", "Does nothing: there are no mirrored queues")
        .banner("Stopping synchronising queue '{0}' in vhost '{vhost}' ...")
        .calls("GET /api/queues/{vhost}/{queue}"),
    Command::new("rebalance", Group::Cluster, (1, 1), rebalance)
        .told(
            "< all | classic | quorum > [--vhost-pattern <pattern>] [--queue-pattern <pattern>]",
            "Re-balances queues: here between the shards of the node",
        )
        .of(QUEUES)
        .flags(&[
            flag("vhost-pattern", None, Follows::Text, "accepted; all virtual hosts are looked at"),
            flag("queue-pattern", None, Follows::Text, "accepted; all queues are looked at"),
        ])
        .calls("POST /api/rebalance/queues"),
    Command::new("grow", Group::Cluster, (2, 2), no_replicas)
        .told(
            "<node> < all | even > [--vhost-pattern <pattern>] [--queue-pattern <pattern>] [--errors-only]",
            "Refused: queues have one replica",
        )
        .of(QUEUES)
        .flags(&[
            flag("vhost-pattern", None, Follows::Text, "virtual hosts"),
            flag("queue-pattern", None, Follows::Text, "queues"),
            flag("errors-only", None, Follows::Switch, "only failures are shown"),
        ])
        .banner("Growing {1} quorum queues on {0}..."),
    Command::new("shrink", Group::Cluster, (1, 1), no_replicas)
        .told("<node> [--errors-only]", "Refused: queues have one replica")
        .of(QUEUES)
        .flags(&[flag("errors-only", None, Follows::Switch, "only failures are shown")])
        .banner("Shrinking quorum queues on {0}..."),
    Command::new("add_member", Group::Replication, (2, 2), no_replicas_of)
        .told("[--vhost <vhost>] <queue> <node>", "Refused: queues have one replica")
        .of(QUEUES)
        .banner("Adding a replica for queue {0} on node {1}...")
        .calls("GET /api/queues/{vhost}/{queue}"),
    Command::new("delete_member", Group::Replication, (2, 2), no_replicas_of)
        .told("[--vhost <vhost>] <queue> <node>", "Refused: queues have one replica")
        .of(QUEUES)
        .banner("Removing a replica of queue {0} on node {1}...")
        .calls("GET /api/queues/{vhost}/{queue}"),
    Command::new("quorum_status", Group::Monitoring, (1, 1), quorum_status)
        .told("[--vhost <vhost>] <queue>", "Displays quorum status of a quorum queue")
        .of(SHOWING)
        .banner("Status of quorum queue {0} on node {node} ...")
        .calls("GET /api/queues/quorum/{vhost}/{queue}/status"),
    Command::new("reclaim_quorum_memory", Group::Operations, (1, 1), found_only)
        .told("[--vhost <vhost>] <quorum queue>", "Does nothing: no memory waits to be reclaimed")
        .of(SHOWING)
        .banner("Will flush Raft WAL of quorum queue {0} ...")
        .calls("GET /api/queues/{vhost}/{queue}"),
    Command::new("stream_status", Group::Monitoring, (1, 1), no_replicas_of)
        .told("[--vhost <vhost>] <queue> [--tracking]", "Refused: there are no streams")
        .of(SHOWING_STREAMS)
        .flags(&[flag("tracking", None, Follows::Switch, "shows tracking")])
        .banner("Status of stream {0} on node {node} ...")
        .calls("GET /api/queues/{vhost}/{queue}"),
    Command::new("add_replica", Group::Replication, (2, 2), no_replicas_of)
        .told("[--vhost <vhost>] <queue> <node>", "Refused: there are no streams")
        .of(STREAMS)
        .banner("Adding a replica for queue {0} on node {1}...")
        .calls("GET /api/queues/{vhost}/{queue}"),
    Command::new("delete_replica", Group::Replication, (2, 2), no_replicas_of)
        .told("[--vhost <vhost>] <queue> <node>", "Refused: there are no streams")
        .of(STREAMS)
        .banner("Removing a replica of queue {0} on node {1}...")
        .calls("GET /api/queues/{vhost}/{queue}"),
    Command::new("set_stream_retention_policy", Group::Policies, (2, MANY), no_replicas_of)
        .told("[--vhost <vhost>] <name> <policy>", "Refused: there are no streams")
        .of(STREAMS)
        .banner("Setting retention policy of stream queue {0} to {1} ...")
        .calls("GET /api/queues/{vhost}/{queue}"),
];

fn not_found() -> Failure {
    Failure::new(UNAVAILABLE, "not_found")
}

fn queue(call: &mut Call<'_>) -> Result<Option<Value>, Failure> {
    let (name, vhost) = (call.word(0), call.vhost());
    let asked = format!(
        "{}?columns=name,messages_ready,consumers,messages",
        path(&["queues", &vhost, &name])
    );
    let reply = call.ask("GET", &asked, None)?;
    match reply.status {
        404 => Ok(None),
        _ if reply.is_success() => Ok(Some(reply.body)),
        _ => Err(call.refusal(&reply)),
    }
}

fn delete(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (name, vhost) = (call.word(0), call.vhost());
    let (if_empty, if_unused) = (call.options.has("if-empty"), call.options.has("if-unused"));
    let condition = match (if_empty, if_unused) {
        (true, true) => " if queue is empty and if queue is unused",
        (true, false) => " if queue is empty",
        (false, true) => " if queue is unused",
        (false, false) => "",
    };
    call.say(&format!("Deleting queue '{name}' on vhost '{vhost}'{condition} ..."));
    let missing = Failure::new(USAGE, "Queue not found");
    let ready = queue(call)?.ok_or(missing.clone())?["messages_ready"].as_u64().unwrap_or(0);
    let mut asked = path(&["queues", &vhost, &name]);
    let conditions = [(if_empty, "if-empty=true"), (if_unused, "if-unused=true")];
    let conditions: Vec<&str> =
        conditions.iter().filter(|(is_so, _)| *is_so).map(|(_, text)| *text).collect();
    if !conditions.is_empty() {
        asked.push('?');
        asked.push_str(&conditions.join("&"));
    }
    let reply = call.ask("DELETE", &asked, None)?;
    match reply.status {
        404 => Err(missing),
        400 if !conditions.is_empty() => Err(Failure::new(UNAVAILABLE, reply.reason())),
        _ if reply.is_success() => {
            let text = format!("Queue was successfully deleted with {ready} ready messages");
            Ok(Output::Note(text))
        }
        _ => Err(call.refusal(&reply)),
    }
}

fn purge(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (name, vhost) = (call.word(0), call.vhost());
    let reply = call.ask("DELETE", &path(&["queues", &vhost, &name, "contents"]), None)?;
    match reply.status {
        404 => Err(not_found()),
        _ if reply.is_success() => Ok(Output::Nothing),
        _ => Err(call.refusal(&reply)),
    }
}

/// For commands that have nothing to do but must not hide a wrong name.
fn found_only(call: &mut Call<'_>) -> Result<Output, Failure> {
    queue(call)?.ok_or_else(not_found)?;
    Ok(Output::Nothing)
}

fn no_replicas(_: &mut Call<'_>) -> Result<Output, Failure> {
    let text = "This broker has one node: queues have one replica, and no streams are kept";
    Err(Failure::new(UNAVAILABLE, text))
}

fn no_replicas_of(call: &mut Call<'_>) -> Result<Output, Failure> {
    queue(call)?.ok_or_else(not_found)?;
    no_replicas(call)
}

fn rebalance(call: &mut Call<'_>) -> Result<Output, Failure> {
    let kind = call.word(0);
    if !["all", "classic", "quorum", "stream"].contains(&kind.as_str()) {
        return Err(Failure::argument(crate::failure::DATA, format!("{kind} is not a queue type")));
    }
    match kind.as_str() {
        "all" => call.say("Re-balancing leaders of all queues..."),
        kind => call.say(&format!("Re-balancing leaders of {kind} queues...")),
    }
    call.send("POST", &["rebalance", "queues"], None)?;
    Ok(Output::Nothing)
}

fn quorum_status(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (name, vhost) = (call.word(0), call.vhost());
    let asked = format!("/api/queues/quorum/{}/{}/status", escape(&vhost), escape(&name));
    let reply = call.ask("GET", &asked, None)?;
    if reply.status == 404 {
        return Err(not_found());
    }
    if !reply.is_success() {
        return Err(call.refusal(&reply));
    }
    let items = reply.body.as_array().cloned().unwrap_or_default();
    let columns: Vec<String> = match items.first() {
        Some(Value::Object(fields)) => fields.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let row =
        |item: &Value| columns.iter().map(|column| Term::of(&item[column.as_str()])).collect();
    let rows = items.iter().map(row).collect();
    Ok(Output::Rows(Rows { columns, rows, ..Rows::default() }))
}
