//! Closing connections.

use crate::command::{Call, Command, Group, Kind, all_pages, plain};
use crate::failure::{Failure, UNAVAILABLE};
use crate::options::{Flag, Follows};
use crate::output::Output;
use serde_json::{Value, json};

const CLOSE: &[&str] = &["lepus", "ctl", "connections", "close"];

const fn number(name: &'static str, about: &'static str) -> Flag {
    Flag { name, letter: None, value: Follows::Number, default: "0", about }
}

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("close_all_connections", Group::Operations, (1, 1), close_all)
        .told(
            "[--vhost <vhost> --limit <limit>] [-n <node> --global] [--per-connection-delay <delay>] <explanation>",
            "Instructs the broker to close all connections for the specified vhost or entire RabbitMQ node",
        )
        .flags(&[
            Flag {
                name: "global",
                letter: None,
                value: Follows::Switch,
                default: "",
                about: "consider connections across all virtual hosts",
            },
            number("limit", "close up to this many connections"),
            number("per-connection-delay", "inject a delay between closures, in milliseconds"),
        ])
        .calls("POST /api/lepus/ctl/connections/close"),
    Command::new("close_all_user_connections", Group::Operations, (2, 2), close_of_user)
        .told(
            "<username> <explanation>",
            "Instructs the broker to close all connections of the specified user",
        )
        .banner("Closing connections of user {0}, reason: {1}...")
        .calls("POST /api/lepus/ctl/connections/close"),
    Command::new("close_connection", Group::Operations, (2, 2), close)
        .told(
            "<connection pid> <explanation>",
            "Instructs the broker to close the connection associated with the Erlang process id",
        )
        .banner("Closing connection {0}, reason: {1}...")
        .calls("GET /api/connections; POST /api/lepus/ctl/connections/close"),
];

fn number_of(call: &Call<'_>, flag: &str) -> u64 {
    call.flag(flag).parse().unwrap_or(0)
}

fn close_all(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (reason, limit) = (call.word(0), number_of(call, "limit"));
    let mut body = json!({"reason": reason, "delay": number_of(call, "per-connection-delay")});
    let how_many = if limit > 0 { limit.to_string() } else { "all".to_owned() };
    if limit > 0 {
        body["limit"] = json!(limit);
    }
    let place = if call.options.has("global") {
        format!("on node {}", call.node)
    } else {
        let vhost = call.vhost();
        body["vhost"] = json!(vhost);
        format!("in vhost {vhost}")
    };
    call.say(&format!("Closing {how_many} connections {place}, reason: {reason}..."));
    let answer = call.send("POST", CLOSE, Some(&body))?;
    let closed = answer["closed"].as_u64().unwrap_or(0);
    Ok(Output::Text(format!("Closed {closed} connections")))
}

fn close_of_user(call: &mut Call<'_>) -> Result<Output, Failure> {
    let body = json!({"user": call.word(0), "reason": call.word(1)});
    call.send("POST", CLOSE, Some(&body))?;
    Ok(Output::Nothing)
}

/// By its identifier as `list_connections pid` shows it, or by its name. One that is gone is closed.
fn close(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (wanted, reason) = (call.word(0), call.word(1));
    let connections = all_pages(call, &["connections"], "&columns=name,node")?;
    let pid = plain("pid").at("name").is(Kind::Pid);
    let is_meant =
        |item: &&Value| item["name"] == wanted.as_str() || pid.of(item).field() == wanted;
    match connections.iter().find(is_meant) {
        Some(connection) => {
            let body = json!({"name": connection["name"], "reason": reason});
            call.send("POST", CLOSE, Some(&body))?;
        }
        None if wanted.starts_with('<') && wanted.ends_with('>') => {}
        None => {
            let text = format!("Error:\n{{:invalid_pid_syntax, \"{wanted}\"}}");
            return Err(Failure::new(UNAVAILABLE, text));
        }
    }
    Ok(Output::Nothing)
}
