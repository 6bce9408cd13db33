//! Policies as JSON.

use super::ValueError;
use super::field::Arguments;
use lepus_broker::directory::{PolicyScope, Request, VhostRef};
use lepus_broker::policy;
use serde::Deserialize;
use serde_json::Value;

/// What a policy is beside its name.
#[derive(Debug, Deserialize)]
pub struct Body {
    pub(super) pattern: Option<String>,
    #[serde(rename = "apply-to")]
    pub(super) apply_to: Option<String>,
    pub(super) priority: Option<i64>,
    pub(super) definition: Option<Arguments>,
}

impl Body {
    /// Reads a body.
    ///
    /// # Errors
    /// What is wrong with it, with its path in the value.
    pub fn read(value: Value) -> Result<Body, ValueError> {
        serde_path_to_error::deserialize(value).map_err(|error| ValueError::of(&error))
    }
}

/// The request that sets a policy, which is checked as far as that needs no directory.
///
/// # Errors
/// What is wrong with it, in words: a key that is missing, or a text that begins with `Validation failed`.
pub fn policy_request(
    vhost: VhostRef,
    scope: PolicyScope,
    name: String,
    body: Body,
) -> Result<Request, String> {
    let pattern = body.pattern.ok_or("key_missing: pattern")?;
    let definition = body.definition.ok_or("key_missing: definition")?.0;
    let apply_to = body.apply_to.unwrap_or_else(|| "all".to_owned());
    let priority = body.priority.unwrap_or(0);
    policy::check(&name, &pattern, &apply_to, &definition, scope)?;
    Ok(Request::SetPolicy { vhost, scope, name, pattern, apply_to, priority, definition })
}
