//! The paths that RabbitMQ's API has not: one table, from which the documentation is made as well.

use crate::api::Reply;

/// One path of our own.
pub struct Own {
    /// The method.
    pub method: &'static str,
    /// The path; names in braces stand for one segment each.
    pub path: &'static str,
    /// The body of the request.
    pub body: &'static str,
    /// The body of the answer; empty for 204.
    pub answer: &'static str,
    /// What it does.
    pub about: &'static str,
}

const fn own(
    method: &'static str,
    path: &'static str,
    body: &'static str,
    answer: &'static str,
    about: &'static str,
) -> Own {
    Own { method, path, body, answer, about }
}

/// All of them.
pub const PATHS: &[Own] = &[
    own(
        "GET",
        "/api/lepus/ctl/state",
        "",
        "`{\"node\":\"rabbit@host\",\"running\":true,\"booting\":false,\"maintenance\":false,\"pid\":123}`",
        "What the broker is doing. It and `lifecycle` answer in every state; with `running` false all other paths \
         answer 503 `{\"error\":\"app_stopped\",\"reason\":…}`.",
    ),
    own(
        "POST",
        "/api/lepus/ctl/lifecycle",
        "`{\"action\":A}`, A one of `stop_app`, `start_app`, `stop`, `drain`, `revive`, `suspend_listeners`, \
         `resume_listeners`",
        "",
        "Changes that state. `stop_app` closes connections with 320 and the listeners, `drain` too, but keeps the API; \
         `stop` answers before the broker ends.",
    ),
    own(
        "GET",
        "/api/lepus/ctl/status",
        "",
        "the object that `status --formatter json` prints; its keys stand below",
        "All that `status`, `listeners`, `alarms`, `memory_breakdown`, `log_location` show.",
    ),
    own(
        "GET",
        "/api/lepus/ctl/settings/{name}",
        "",
        "`{\"value\":V}`",
        "What `vm_memory_high_watermark`, `channel_max` or `loopback_users` is now; 404 for other names.",
    ),
    own(
        "PUT",
        "/api/lepus/ctl/settings/{name}",
        "`{\"value\":V}`: `vm_memory_high_watermark` `{\"relative\":0.4}` or `{\"absolute\":bytes}`; `disk_free_limit` \
         `{\"absolute\":bytes}` or `{\"mem_relative\":0.1}`; `log_level` a word; `channel_max` a number; `loopback_users` a \
         list of names; `auth_attempt_source_tracking` a truth value",
        "",
        "Changes a setting of the running broker until it ends. 400 for a name or value that it does not take.",
    ),
    own(
        "PUT",
        "/api/lepus/ctl/alarms/{memory|disk}",
        "",
        "",
        "Raises an alarm as if the resource were short, until it is cleared.",
    ),
    own("DELETE", "/api/lepus/ctl/alarms/{memory|disk}", "", "", "Clears that alarm."),
    own(
        "POST",
        "/api/lepus/ctl/authenticate",
        "`{\"name\":…,\"password\":…}`",
        "`{\"ok\":true}`, or `{\"ok\":false}` with 200",
        "Whether the password is the user's. A user who is not there is `false`.",
    ),
    own(
        "POST",
        "/api/lepus/ctl/connections/close",
        "`{\"reason\":…}` and one of `\"name\"`, `\"user\"`, `\"vhost\"`, or none for all; `\"limit\"` at most so \
         many, `\"delay\"` milliseconds between two",
        "`{\"closed\":n}`",
        "Closes connections with 320 and `CONNECTION_FORCED - ` + reason.",
    ),
    own(
        "GET",
        "/api/lepus/ctl/log?lines=N&after=M",
        "",
        "`{\"lines\":[…],\"end\":E}`",
        "The last lines of the log, oldest first, at most 10,000 or 2 MiB, and without the first M that there ever were. E is how \
         many there ever were.",
    ),
    own(
        "GET",
        "/api/lepus/ctl/policies/{vhost}/{queue|exchange}/{name}",
        "",
        "policies as `/api/policies` shows them, the one in force first; 404 when the object is not there",
        "The policies whose pattern and kind match an object.",
    ),
];

/// Segments of the path that tells the broker's state.
pub const STATE: &[&str] = &["lepus", "ctl", "state"];
/// Of the one that changes it.
pub const LIFECYCLE: &[&str] = &["lepus", "ctl", "lifecycle"];
/// Of the broker's status.
pub const STATUS: &[&str] = &["lepus", "ctl", "status"];

/// Whether the API refused because `stop_app` stopped the broker.
#[must_use]
pub fn is_stopped(reply: &Reply) -> bool {
    reply.body["error"] == "app_stopped"
}
