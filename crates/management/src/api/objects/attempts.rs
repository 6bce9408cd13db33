//! Logins.

use super::super::attempts::Count;
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use lepus_broker::{Answer, Query};
use serde_json::json;

/// Logins over AMQP that the shards have counted up to now.
fn counted(context: &Context<'_>) -> Result<Count, Failure> {
    let mut count = Count::default();
    for answer in context.api.broker.ask_all(&Query::Figures).map_err(Failure::unavailable)? {
        let Answer::Figures(figures) = answer else {
            unreachable!("a question for figures is answered with {answer:?}")
        };
        count.succeeded += figures.counters.logins_accepted;
        count.failed += figures.counters.logins_refused;
    }
    Ok(count)
}

/// # Errors
/// 404 where the path names another node.
fn check_node(context: &Context<'_>) -> Result<(), Failure> {
    let is_own = context.name(0) == context.api.node_name();
    is_own.then_some(()).ok_or_else(Failure::not_found)
}

/// `GET /auth/attempts/{n}`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    check_node(context)?;
    let told = context.api.attempts.told(counted(context)?).into_iter();
    let row = |(protocol, count): (&str, Count)| {
        json!({
            "protocol": protocol,
            "auth_attempts": count.succeeded + count.failed,
            "auth_attempts_failed": count.failed,
            "auth_attempts_succeeded": count.succeeded,
        })
    };
    context.list_rows(told.map(row).collect())
}

/// `GET /auth/attempts/{n}/source`: who tries from where is not kept, as with RabbitMQ unless that is switched on.
pub(crate) fn by_source(context: &Context<'_>) -> Result<Reply, Failure> {
    check_node(context)?;
    context.list_rows(Vec::new())
}

/// `DELETE /auth/attempts/{n}`
pub(crate) fn reset(context: &Context<'_>) -> Result<Reply, Failure> {
    check_node(context)?;
    context.api.attempts.reset(counted(context)?);
    Ok(Reply::done())
}

/// `DELETE /auth/attempts/{n}/source`
pub(crate) fn reset_sources(context: &Context<'_>) -> Result<Reply, Failure> {
    check_node(context)?;
    Ok(Reply::done())
}
