//! Policies and operator policies.

use super::parameters::{parsed, put, remove};
use crate::command::{Call, Column, Command, Group, LOOKING, json, listing_of, plain};
use crate::failure::Failure;
use crate::options::{Flag, Follows};
use crate::output::Output;
use serde_json::json;

const COLUMNS: &[Column] = &[
    plain("vhost"),
    plain("name"),
    plain("pattern"),
    plain("apply-to"),
    json("definition"),
    plain("priority"),
];
const ALL: &[&str] = &["vhost", "name", "pattern", "apply-to", "definition", "priority"];
const FLAGS: &[Flag] = &[
    Flag {
        name: "priority",
        letter: None,
        value: Follows::Number,
        default: "0",
        about: "policy priority",
    },
    Flag {
        name: "apply-to",
        letter: None,
        value: Follows::Text,
        default: "all",
        about: "policy should only apply to queues, classic_queues, quorum_queues, streams, exchanges, or all",
    },
];
const SET_USAGE: &str = "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] <name> <pattern> <definition>";
const LIST_USAGE: &str = "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]";

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("clear_operator_policy", Group::Policies, (1, 1), clear_operator)
        .told("[--vhost <vhost>] <name>", "Clears an operator policy")
        .banner("Clearing operator policy \"{0}\" on vhost \"{vhost}\" ...")
        .calls("DELETE /api/operator-policies/{vhost}/{name}"),
    Command::new("clear_policy", Group::Policies, (1, 1), clear)
        .told("[--vhost <vhost>] <name>", "Clears (removes) a policy")
        .banner("Clearing policy \"{0}\" on vhost \"{vhost}\" ...")
        .calls("DELETE /api/policies/{vhost}/{name}"),
    Command::new("list_operator_policies", Group::Policies, (0, 0), list_operator)
        .told(LIST_USAGE, "Lists operator policy overrides for a virtual host")
        .of(LOOKING)
        .banner("Listing operator policy overrides for vhost \"{vhost}\" ...")
        .calls("GET /api/operator-policies/{vhost}")
        .table(COLUMNS, ALL),
    Command::new("list_policies", Group::Policies, (0, 0), list)
        .told(LIST_USAGE, "Lists all policies in a virtual host")
        .of(LOOKING)
        .banner("Listing policies for vhost \"{vhost}\" ...")
        .calls("GET /api/policies/{vhost}")
        .table(COLUMNS, ALL),
    Command::new("list_policies_that_match", Group::Policies, (1, 1), list_matching)
        .told(
            "[--vhost <vhost>] [--object-type <type>] [--no-table-headers] <name>",
            "Lists all policies matching a queue or exchange",
        )
        .of(LOOKING)
        .flags(&[Flag {
            name: "object-type",
            letter: None,
            value: Follows::Text,
            default: "queue",
            about: "the type of object to match policies against: queue or exchange",
        }])
        .banner("Listing policies that match {object-type} '{0}' in vhost '{vhost}' ...")
        .calls("GET /api/lepus/ctl/policies/{vhost}/{queue|exchange}/{name}")
        .table(COLUMNS, ALL),
    Command::new("set_operator_policy", Group::Policies, (3, 3), set_operator)
        .told(SET_USAGE, "Sets an operator policy that overrides a subset of arguments in user policies")
        .flags(FLAGS)
        .banner(
            "Setting operator policy override \"{0}\" for pattern \"{1}\" to \"{2}\" with priority \"{priority}\" for \
             vhost \"{vhost}\" ...",
        )
        .calls("PUT /api/operator-policies/{vhost}/{name}"),
    Command::new("set_policy", Group::Policies, (3, 3), set)
        .told(SET_USAGE, "Sets or updates a policy")
        .flags(FLAGS)
        .banner(
            "Setting policy \"{0}\" for pattern \"{1}\" to \"{2}\" with priority \"{priority}\" for vhost \"{vhost}\" \
             ...",
        )
        .calls("PUT /api/policies/{vhost}/{name}"),
];

fn put_policy(call: &mut Call<'_>, kind: &str) -> Result<Output, Failure> {
    let (name, vhost) = (call.word(0), call.vhost());
    let body = json!({
        "pattern": call.word(1),
        "definition": parsed(&call.word(2))?,
        "priority": call.flag("priority").parse::<i64>().unwrap_or(0),
        "apply-to": call.flag("apply-to"),
    });
    put(call, &[kind, &vhost, &name], &body)
}

fn set(call: &mut Call<'_>) -> Result<Output, Failure> {
    put_policy(call, "policies")
}

fn set_operator(call: &mut Call<'_>) -> Result<Output, Failure> {
    put_policy(call, "operator-policies")
}

fn clear(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (name, vhost) = (call.word(0), call.vhost());
    remove(call, &["policies", &vhost, &name])
}

fn clear_operator(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (name, vhost) = (call.word(0), call.vhost());
    remove(call, &["operator-policies", &vhost, &name])
}

fn show(call: &mut Call<'_>, kind: &str) -> Result<Output, Failure> {
    let vhost = call.vhost();
    let items = call.find(&[kind, &vhost])?.ok_or_else(|| Call::no_vhost(&vhost))?;
    listing_of(call, items.as_array().map_or(&[][..], Vec::as_slice))
}

fn list(call: &mut Call<'_>) -> Result<Output, Failure> {
    show(call, "policies")
}

fn list_operator(call: &mut Call<'_>) -> Result<Output, Failure> {
    show(call, "operator-policies")
}

fn list_matching(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (vhost, kind, name) = (call.vhost(), call.flag("object-type"), call.word(0));
    let kind = match kind.trim_end_matches('s') {
        "exchange" => "exchange",
        _ => "queue",
    };
    let items = call.get(&["lepus", "ctl", "policies", &vhost, kind, &name])?;
    listing_of(call, items.as_array().map_or(&[][..], Vec::as_slice))
}
