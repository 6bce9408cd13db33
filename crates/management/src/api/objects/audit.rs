//! What was done, and by whom.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use serde_json::json;

/// `GET /lepus/audit`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let broker = &context.api.broker;
    let rows = broker.audited().into_iter();
    let rows = rows.map(|entry| entry.to_json("timestamp", json!(entry.at_millis)));
    let reply = context.list_rows(rows.collect())?;
    Ok(reply.with("x-lepus-left-out", broker.audit_left_out().to_string()))
}
