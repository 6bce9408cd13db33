//! What was done, and by whom.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use serde_json::json;

/// `GET /lepus/audit`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = context.api.broker.audited().into_iter().map(|entry| {
        json!({
            "timestamp": entry.at_millis,
            "user": entry.user,
            "from": entry.from,
            "face": entry.face,
            "what": entry.what,
            "result": entry.result,
            "count": entry.count,
        })
    });
    context.list_rows(rows.collect())
}
