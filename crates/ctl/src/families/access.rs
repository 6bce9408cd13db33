//! Permissions.

use crate::api::{Reply, path};
use crate::command::{Call, Column, Command, Group, LOOKING, listing_of, plain};
use crate::failure::{Failure, NO_USER, UNAVAILABLE};
use crate::output::Output;
use serde_json::{Value, json};

const OF_VHOST: &[Column] = &[plain("user"), plain("configure"), plain("write"), plain("read")];
const OF_USER: &[Column] = &[plain("vhost"), plain("configure"), plain("write"), plain("read")];
const TOPICS: &[Column] = &[plain("user"), plain("exchange"), plain("write"), plain("read")];
const USER_TOPICS: &[Column] = &[plain("vhost"), plain("exchange"), plain("write"), plain("read")];

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("clear_permissions", Group::Access, (1, 1), clear)
        .told("[--vhost <vhost>] <username>", "Revokes user permissions for a vhost")
        .banner("Clearing permissions for user \"{0}\" in vhost \"{vhost}\" ...")
        .calls("DELETE /api/permissions/{vhost}/{user}"),
    Command::new("clear_topic_permissions", Group::Access, (1, 2), clear_topic)
        .told(
            "[--vhost <vhost>] <username> [<exchange>]",
            "Clears user topic permissions for a vhost or exchange",
        )
        .calls("DELETE /api/topic-permissions/{vhost}/{user}[/{exchange}]"),
    Command::new("list_permissions", Group::Access, (0, 0), list)
        .told(
            "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
            "Lists user permissions in a virtual host",
        )
        .of(LOOKING)
        .banner("Listing permissions for vhost \"{vhost}\" ...")
        .calls("GET /api/vhosts/{vhost}/permissions")
        .table(OF_VHOST, &["user", "configure", "write", "read"]),
    Command::new("list_topic_permissions", Group::Access, (0, 0), list_topic)
        .told(
            "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
            "Lists topic permissions in a virtual host",
        )
        .of(LOOKING)
        .banner("Listing topic permissions for vhost \"{vhost}\" ...")
        .calls("GET /api/vhosts/{vhost}/topic-permissions")
        .table(TOPICS, &["user", "exchange", "write", "read"]),
    Command::new("list_user_permissions", Group::Access, (1, 1), list_of_user)
        .told(
            "[--no-table-headers] <username> [--timeout <timeout>]",
            "Lists permissions of a user across all virtual hosts",
        )
        .of(LOOKING)
        .banner("Listing permissions for user \"{0}\" ...")
        .calls("GET /api/users/{user}/permissions")
        .table(OF_USER, &["vhost", "configure", "write", "read"]),
    Command::new("list_user_topic_permissions", Group::Access, (1, 1), list_topic_of_user)
        .told(
            "[--no-table-headers] <username> [--timeout <timeout>]",
            "Lists user topic permissions",
        )
        .of(LOOKING)
        .banner("Listing topic permissions for user \"{0}\" ...")
        .calls("GET /api/users/{user}/topic-permissions")
        .table(USER_TOPICS, &["vhost", "exchange", "write", "read"]),
    Command::new("set_permissions", Group::Access, (4, 4), set)
        .told(
            "[--vhost <vhost>] <username> <conf> <write> <read>",
            "Sets user permissions for a vhost",
        )
        .banner("Setting permissions for user \"{0}\" in vhost \"{vhost}\" ...")
        .calls("PUT /api/permissions/{vhost}/{user}"),
    Command::new("set_topic_permissions", Group::Access, (4, 4), set_topic)
        .told(
            "[--vhost <vhost>] <username> <exchange> <write_pattern> <read_pattern>",
            "Sets user topic permissions for an exchange",
        )
        .banner("Setting topic permissions on \"{1}\" for user \"{0}\" in vhost \"{vhost}\" ...")
        .calls("PUT /api/topic-permissions/{vhost}/{user}"),
];

/// Which of user and virtual host is missing, when a request that names both was refused.
fn missing(call: &mut Call<'_>, user: &str, reply: &Reply) -> Result<Failure, Failure> {
    if matches!(reply.status, 400 | 404) {
        if call.find(&["users", user])?.is_none() {
            return Ok(Failure::new(NO_USER, format!("User {user} does not exist")));
        }
        let vhost = call.vhost();
        if call.find(&["vhosts", &vhost])?.is_none() {
            let text = format!("Virtual host {vhost} does not exist");
            return Ok(Failure::new(UNAVAILABLE, text));
        }
    }
    Ok(call.refusal(reply))
}

fn put(call: &mut Call<'_>, kind: &str, body: &Value) -> Result<Output, Failure> {
    let (user, vhost) = (call.word(0), call.vhost());
    let reply = call.ask("PUT", &path(&[kind, &vhost, &user]), Some(body))?;
    match reply.is_success() {
        true => Ok(Output::Nothing),
        false => Err(missing(call, &user, &reply)?),
    }
}

/// Deletes; what is not there is gone already, unless user or virtual host are missing.
fn remove(call: &mut Call<'_>, segments: &[&str]) -> Result<Output, Failure> {
    let user = call.word(0);
    let reply = call.ask("DELETE", &path(segments), None)?;
    if reply.is_success() {
        return Ok(Output::Nothing);
    }
    let failure = missing(call, &user, &reply)?;
    match reply.status == 404 && failure == call.refusal(&reply) {
        true => Ok(Output::Nothing),
        false => Err(failure),
    }
}

fn set(call: &mut Call<'_>) -> Result<Output, Failure> {
    let body = json!({"configure": call.word(1), "write": call.word(2), "read": call.word(3)});
    put(call, "permissions", &body)
}

fn set_topic(call: &mut Call<'_>) -> Result<Output, Failure> {
    let body = json!({"exchange": call.word(1), "write": call.word(2), "read": call.word(3)});
    put(call, "topic-permissions", &body)
}

fn clear(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (user, vhost) = (call.word(0), call.vhost());
    remove(call, &["permissions", &vhost, &user])
}

fn clear_topic(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (user, vhost) = (call.word(0), call.vhost());
    let place = format!("for user \"{user}\" in vhost \"{vhost}\" ...");
    match call.words.get(1).cloned() {
        Some(exchange) => {
            call.say(&format!("Clearing topic permissions on \"{exchange}\" {place}"));
            remove(call, &["topic-permissions", &vhost, &user, &exchange])
        }
        None => {
            call.say(&format!("Clearing topic permissions {place}"));
            remove(call, &["topic-permissions", &vhost, &user])
        }
    }
}

fn show(call: &mut Call<'_>, segments: &[&str], failure: Failure) -> Result<Output, Failure> {
    let items = call.find(segments)?.ok_or(failure)?;
    let mut output = listing_of(call, items.as_array().map_or(&[][..], Vec::as_slice))?;
    if let Output::Rows(rows) = &mut output {
        rows.ends_empty = true;
    }
    Ok(output)
}

fn list(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhost = call.vhost();
    show(call, &["vhosts", &vhost, "permissions"], Call::no_vhost(&vhost))
}

fn list_topic(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhost = call.vhost();
    show(call, &["vhosts", &vhost, "topic-permissions"], Call::no_vhost(&vhost))
}

fn no_such_user(user: &str) -> Failure {
    Failure::new(UNAVAILABLE, format!("{{:no_such_user, \"{user}\"}}"))
}

fn list_of_user(call: &mut Call<'_>) -> Result<Output, Failure> {
    let user = call.word(0);
    show(call, &["users", &user, "permissions"], no_such_user(&user))
}

fn list_topic_of_user(call: &mut Call<'_>) -> Result<Output, Failure> {
    let user = call.word(0);
    let mut output = show(call, &["users", &user, "topic-permissions"], no_such_user(&user))?;
    if let Output::Rows(rows) = &mut output {
        rows.is_bare = true;
    }
    Ok(output)
}
