//! `eval`: there is no Erlang here, but some texts stand in countless scripts, and what they mean can be done.

use super::settings::set;
use crate::command::{Call, Command, Group};
use crate::failure::{Failure, UNAVAILABLE};
use crate::output::Output;
use serde_json::json;

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("eval", Group::Operations, (0, 1), eval)
        .told("<expression>", "Does what some well-known Erlang expressions mean; see docs/ctl.md")
        .calls(
            "GET /api/lepus/ctl/state; PUT, DELETE /api/lepus/ctl/alarms/{resource}; GET, PUT \
             /api/lepus/ctl/settings/{name}",
        ),
    Command::new("force_gc", Group::Operations, (0, 0), nothing)
        .told("", "Does nothing: there is no garbage to collect")
        .banner("Will ask all processes on node {node} to schedule a full sweep GC"),
];

/// A text that is known, without white space, and what it means; for the documentation.
pub const KNOWN: &[(&str, &str)] = &[
    ("rabbit_nodes:reached_target_cluster_size().", "`true`"),
    (
        "rabbit:is_running(). / rabbit:is_booted(). (also with node())",
        "whether the broker serves clients",
    ),
    ("node().", "the node's name"),
    ("rabbit_alarm:set_alarm({{resource_limit,memory|disk,node()},[]}).", "raises that alarm"),
    ("rabbit_alarm:clear_alarm({resource_limit,memory|disk,node()}).", "clears it"),
    (
        "application:set_env(rabbit,channel_max,N). / application:get_env(rabbit,channel_max).",
        "the channels that connections may have from now on",
    ),
    (
        "application:set_env(rabbit,loopback_users,[<<\"NAME\">>,…]). / application:get_env(rabbit,loopback_users).",
        "the users who may log in from this machine only",
    ),
    (
        "application:set_env(rabbitmq_management,sample_retention_policies,…). and other set_env of rabbitmq_management, \
         rabbitmq_management_agent and of rabbit's collect_statistics*",
        "nothing: figures are sampled every second as it is",
    ),
    (
        "supervisor2:terminate_child(rabbit_mgmt_sup_sup,…), restart_child, rabbit_mgmt_*:reset…",
        "nothing",
    ),
];

fn nothing(_: &mut Call<'_>) -> Result<Output, Failure> {
    Ok(Output::Nothing)
}

fn raw(text: &str) -> Output {
    Output::Text(text.to_owned())
}

/// The resource of an alarm's text.
fn resource<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(before)?;
    ["memory", "disk"].into_iter().find(|name| rest.starts_with(&format!("{name},")))
}

/// Texts that mean settings of statistics, of which there are none here.
fn is_of_statistics(text: &str) -> bool {
    let settings =
        ["rabbitmq_management,", "rabbitmq_management_agent,", "rabbit,collect_statistics"];
    settings.iter().any(|name| text.starts_with(&format!("application:set_env({name}")))
        || text.starts_with("supervisor2:terminate_child(rabbit_mgmt")
        || text.starts_with("supervisor2:restart_child(rabbit_mgmt")
        || text.starts_with("rabbit_mgmt_")
}

fn eval(call: &mut Call<'_>) -> Result<Output, Failure> {
    let mut text = call.word(0);
    if call.words.is_empty() || text == "-" {
        text = String::from_utf8_lossy(&call.whole_input()?).into_owned();
    }
    let text = without_spaces(&text);
    let text = text.trim_end_matches(['.', ',']);
    let mut last = None;
    // Several in a row are separated by commas outside all brackets.
    for part in parts(text) {
        last = Some(one(call, part)?);
    }
    last.ok_or_else(|| unknown(call))
}

/// A text without white space outside quotes.
fn without_spaces(text: &str) -> String {
    let mut quoted = None;
    let mut keeps = |letter: char| {
        match (quoted, letter) {
            (Some(quote), letter) if letter == quote => quoted = None,
            (None, '"' | '\'') => quoted = Some(letter),
            _ => {}
        }
        quoted.is_some() || !letter.is_whitespace()
    };
    text.chars().filter(|letter| keeps(*letter)).collect()
}

/// The names in a list of Erlang's binaries or strings: `[<<"guest">>,"other"]`.
fn names(list: &str) -> Option<Vec<String>> {
    let inside = list.strip_prefix('[')?.strip_suffix(']')?;
    let name = |item: &str| {
        let item = item.strip_prefix("<<").and_then(|item| item.strip_suffix(">>")).unwrap_or(item);
        let name = item.strip_prefix('"')?.strip_suffix('"')?;
        (!name.contains(['"', '\\'])).then(|| name.to_owned())
    };
    parts(inside).into_iter().map(name).collect()
}

fn unknown(call: &Call<'_>) -> Failure {
    let program = call.program.name();
    let text = format!(
        "This broker runs no Erlang and does not know this expression. See '{program} help' for commands, and \
         docs/ctl.md for the expressions that are known"
    );
    Failure::new(UNAVAILABLE, text)
}

/// The expressions between commas outside brackets and quotes.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut quoted, mut start) = (Vec::new(), 0_usize, None, 0);
    for (at, letter) in text.char_indices() {
        match (quoted, letter) {
            (Some(quote), letter) if letter == quote => quoted = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quoted = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

fn one(call: &mut Call<'_>, text: &str) -> Result<Output, Failure> {
    match text {
        "rabbit_nodes:reached_target_cluster_size()" => return Ok(raw("true")),
        "rabbit:is_running()"
        | "rabbit:is_running(node())"
        | "rabbit:is_booted()"
        | "rabbit:is_booted(node())" => {
            let runs = call.state["running"] != false;
            return Ok(raw(if runs { "true" } else { "false" }));
        }
        "node()" => return Ok(raw(&call.node.clone())),
        "ok" | "true" => return Ok(raw(text)),
        _ => {}
    }
    if let Some(resource) = resource(text, "rabbit_alarm:set_alarm({{resource_limit,") {
        call.send("PUT", &["lepus", "ctl", "alarms", resource], None)?;
        return Ok(raw("ok"));
    }
    if let Some(resource) = resource(text, "rabbit_alarm:clear_alarm({resource_limit,") {
        call.send("DELETE", &["lepus", "ctl", "alarms", resource], None)?;
        return Ok(raw("ok"));
    }
    let channel_max = text
        .strip_prefix("application:set_env(rabbit,channel_max,")
        .and_then(|rest| rest.strip_suffix(')'))
        .and_then(|number| number.parse::<u16>().ok());
    if let Some(number) = channel_max {
        set(call, "channel_max", &json!(number))?;
        return Ok(raw("ok"));
    }
    let users = text
        .strip_prefix("application:set_env(rabbit,loopback_users,")
        .and_then(|rest| names(rest.strip_suffix(')')?));
    if let Some(users) = users {
        set(call, "loopback_users", &json!(users))?;
        return Ok(raw("ok"));
    }
    match text {
        "application:get_env(rabbit,channel_max)" => {
            let value = &call.get(&["lepus", "ctl", "settings", "channel_max"])?["value"];
            return Ok(raw(&format!("{{ok,{value}}}")));
        }
        "application:get_env(rabbit,loopback_users)" => {
            let value = &call.get(&["lepus", "ctl", "settings", "loopback_users"])?["value"];
            let users = value.as_array().map_or(&[][..], Vec::as_slice).iter();
            let users = users.map(|name| format!("<<{name}>>"));
            return Ok(raw(&format!("{{ok,[{}]}}", users.collect::<Vec<_>>().join(","))));
        }
        _ => {}
    }
    match is_of_statistics(text) {
        true => Ok(raw("ok")),
        false => Err(unknown(call)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_list_are_read() {
        let read = |text: &str| names(&without_spaces(text));
        assert_eq!(read("[]"), Some(Vec::new()));
        let expected = ["guest", "a b,c"].map(str::to_owned).to_vec();
        assert_eq!(read("[ <<\"guest\">> , \"a b,c\" ]"), Some(expected));
        for wrong in ["guest", "[guest]", "[<<\"a\">>", "[<<\"a\\\"\">>]", "[1]"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn expressions_in_a_row_are_told_apart() {
        assert_eq!(parts("a(1,2),b({x,[y,z]}),'c,d'"), ["a(1,2)", "b({x,[y,z]})", "'c,d'"]);
        assert!(parts("").is_empty() && parts(",").is_empty());
        assert_eq!(parts("a)),b"), ["a))", "b"]);
    }
}
