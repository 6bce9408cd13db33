//! Runtime parameters.

use crate::api::path;
use crate::command::{Call, Command, Group, LOOKING, json, listing_of, plain};
use crate::failure::{Failure, UNAVAILABLE};
use crate::output::Output;
use serde_json::{Map, Value, json};

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("clear_global_parameter", Group::Parameters, (1, 1), clear_global)
        .told("<name>", "Clears a global runtime parameter")
        .banner("Clearing global runtime parameter \"{0}\" ...")
        .calls("DELETE /api/global-parameters/{name}"),
    Command::new("clear_parameter", Group::Parameters, (2, 2), clear)
        .told("[--vhost <vhost>] <component_name> <name>", "Clears a runtime parameter.")
        .banner("Clearing runtime parameter \"{1}\" for component \"{0}\" on vhost \"{vhost}\" ...")
        .calls("DELETE /api/parameters/{component}/{vhost}/{name}"),
    Command::new("list_global_parameters", Group::Parameters, (0, 0), list_global)
        .told("[--no-table-headers] [--timeout <timeout>]", "Lists global runtime parameters")
        .of(LOOKING)
        .banner("Listing global runtime parameters ...")
        .calls("GET /api/global-parameters")
        .table(&[plain("name"), json("value")], &["name", "value"]),
    Command::new("list_parameters", Group::Parameters, (0, 0), list)
        .told(
            "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
            "Lists runtime parameters for a virtual host",
        )
        .of(LOOKING)
        .banner("Listing runtime parameters for vhost \"{vhost}\" ...")
        .calls("GET /api/parameters, /api/vhosts/{vhost}")
        .table(&[plain("component"), plain("name"), json("value")], &["component", "name", "value"]),
    Command::new("set_global_parameter", Group::Parameters, (2, 2), set_global)
        .told("<name> <value>", "Sets a runtime parameter.")
        .banner("Setting global runtime parameter \"{0}\" to \"{1}\" ...")
        .calls("PUT /api/global-parameters/{name}"),
    Command::new("set_parameter", Group::Parameters, (3, 3), set)
        .told("[--vhost <vhost>] <component_name> <name> <value>", "Sets a runtime parameter.")
        .banner("Setting runtime parameter \"{1}\" for component \"{0}\" to \"{2}\" in vhost \"{vhost}\" ...")
        .calls("PUT /api/parameters/{component}/{vhost}/{name}"),
];

/// JSON of a word.
///
/// # Errors
/// When it is none.
pub fn parsed(text: &str) -> Result<Value, Failure> {
    let failure = Failure::new(UNAVAILABLE, "JSON decoding error. Reason: badarg");
    serde_json::from_str(text).map_err(|_| failure)
}

/// A JSON object of a word.
///
/// # Errors
/// When it is none.
pub fn object(text: &str) -> Result<Map<String, Value>, Failure> {
    match parsed(text)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Failure::new(UNAVAILABLE, "JSON decoding error. Reason: an object is expected")),
    }
}

/// What is said when something to be cleared is not there.
pub const NOT_THERE: &str = "Parameter does not exist";

/// Deletes a thing that must be there.
///
/// # Errors
/// When it is not.
pub fn remove(call: &mut Call<'_>, segments: &[&str]) -> Result<Output, Failure> {
    let reply = call.ask("DELETE", &path(segments), None)?;
    match reply.status {
        404 => Err(Failure::new(UNAVAILABLE, NOT_THERE)),
        _ if reply.is_success() => Ok(Output::Nothing),
        _ => Err(call.refusal(&reply)),
    }
}

/// Puts a thing into the virtual host that is meant, which must be there.
///
/// # Errors
/// When it is not, or the API refuses.
pub fn put(call: &mut Call<'_>, segments: &[&str], body: &Value) -> Result<Output, Failure> {
    let reply = call.ask("PUT", &path(segments), Some(body))?;
    if reply.is_success() {
        return Ok(Output::Nothing);
    }
    if matches!(reply.status, 400 | 404) {
        call.check_vhost()?;
    }
    Err(call.refusal(&reply))
}

fn clear_global(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = call.word(0);
    remove(call, &["global-parameters", &name])
}

fn clear(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (component, name, vhost) = (call.word(0), call.word(1), call.vhost());
    remove(call, &["parameters", &component, &vhost, &name])
}

fn list_global(call: &mut Call<'_>) -> Result<Output, Failure> {
    let items = call.get(&["global-parameters"])?;
    listing_of(call, items.as_array().map_or(&[][..], Vec::as_slice))
}

fn list(call: &mut Call<'_>) -> Result<Output, Failure> {
    call.check_vhost()?;
    let (vhost, items) = (call.vhost(), call.get(&["parameters"])?);
    let items = items.as_array().map_or(&[][..], Vec::as_slice);
    let own = items.iter().filter(|item| item["vhost"] == vhost.as_str());
    let mut output = listing_of(call, &own.cloned().collect::<Vec<_>>())?;
    if let Output::Rows(rows) = &mut output {
        rows.ends_empty = true;
    }
    Ok(output)
}

fn set_global(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (name, value) = (call.word(0), parsed(&call.word(1))?);
    call.send("PUT", &["global-parameters", &name], Some(&json!({"name": name, "value": value})))?;
    Ok(Output::Nothing)
}

fn set(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (component, name, vhost) = (call.word(0), call.word(1), call.vhost());
    let value = parsed(&call.word(2))?;
    let body = json!({"component": component, "vhost": vhost, "name": name, "value": value});
    put(call, &["parameters", &component, &vhost, &name], &body)
}
