//! The trace of orders in the log: who, what, and what came of it. No password, nor its hash.

use crate::audit::{Audit, Deed};
use crate::log::Level;
use crate::order;
use crate::secrets::{self, shortened};
use rustix::net::UCred;
use serde_json::Value;

/// The order that asks the management API.
const API: &str = "api";
/// Keys of a request that say nothing about what is wanted.
/// A body may hold a password.
const SILENT: [&str; 3] = ["order", "from", "body"];

/// Tells of an order and its outcome.
pub fn tell(audit: &Audit, caller: &UCred, request: &Value, outcome: Result<&Value, &str>) {
    let words = request["order"].as_str().unwrap_or("");
    // Programs look once a second.
    let is_look = order::only_looks(words) || (words == API && request["method"] == "GET");
    let level = if is_look { Level::Debug } else { Level::Info };
    let arguments = arguments(request);
    let result = match outcome {
        Ok(_) => "done".to_owned(),
        Err(why) => format!("refused: {}", shortened(why)),
    };
    let text = match arguments.is_empty() {
        true => result.clone(),
        false => format!("{arguments}: {result}"),
    };
    let mut fields = who(caller);
    fields.push(("order", shortened(words)));
    // What the management API is asked for it takes down itself.
    let deed = (!is_look && words != API).then(|| {
        let what = format!("{} {arguments}", shortened(words)).trim_end().to_owned();
        deed(Some(caller), what, result)
    });
    audit.note((level, "order"), text, fields, deed);
}

/// Tells of somebody who was not listened to.
pub fn tell_of_stranger(audit: &Audit, caller: Option<&UCred>) {
    let text = "only the user that the broker runs as, and root, may give orders";
    let fields = caller.map(who).unwrap_or_default();
    let deed = deed(caller, "connect".to_owned(), "refused".to_owned());
    audit.note((Level::Warning, "order-refused"), text.to_owned(), fields, Some(deed));
}

fn deed(caller: Option<&UCred>, what: String, result: String) -> Deed {
    let user = caller.map(|caller| format!("uid {}", caller.uid.as_raw())).unwrap_or_default();
    let from = caller.map(|caller| format!("pid {}", caller.pid.as_raw_nonzero()));
    Deed { user, from: from.unwrap_or_default(), face: "control", what, result }
}

fn who(caller: &UCred) -> Vec<(&'static str, String)> {
    let uid = caller.uid.as_raw().to_string();
    vec![("uid", uid), ("pid", caller.pid.as_raw_nonzero().to_string())]
}

fn arguments(request: &Value) -> String {
    let Some(entries) = request.as_object() else { return String::new() };
    let shown = |key: &str| !SILENT.contains(&key) && !key.starts_with("password");
    let shown = entries.iter().filter(|(key, _)| shown(key));
    let words: Vec<String> = shown
        .map(|(key, value)| match value.as_str() {
            Some(path) if key == "path" => format!("path={:?}", secrets::of_path(path)),
            Some(text) => format!("{}={:?}", shortened(key), shortened(text)),
            None => format!("{}={}", shortened(key), shortened(&value.to_string())),
        })
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::VALUE_CHARS_MAX;
    use serde_json::json;

    #[test]
    fn arguments_are_shown_without_secrets_and_not_endlessly() {
        let request = json!({
            "order": "user add", "name": "shop", "tags": "a,b", "password_hash": "c2VjcmV0",
            "password": "secret", "from": 7,
        });
        assert_eq!(arguments(&request), r#"name="shop" tags="a,b""#);
        let long = "x".repeat(VALUE_CHARS_MAX + 1);
        let text = arguments(&json!({ "name": long, "seconds": 5 }));
        assert_eq!(text, format!("name=\"{}…\" seconds=5", "x".repeat(VALUE_CHARS_MAX)));
        assert_eq!(arguments(&json!("user add")), "");
    }
}
