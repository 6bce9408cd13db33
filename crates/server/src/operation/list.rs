//! Orders that list what the broker holds.
//!
//! A list is made in parts, and each part of questions that a shard answers one by one, serving others in
//! between. Queues, connections, exchanges and bindings come by place, not by name: so that a question costs
//! what it looks at, and no index by name is needed. Whoever asks puts the rows in order.

use crate::figures::Figures;
use lepus_base::ShardId;
use lepus_broker::query::{NAMES_MAX, Names, PLACES_MAX, Page, Part};
use lepus_broker::{Answer, Query};
use lepus_management::table::{Row, part};
use serde_json::{Value, json};

/// Rows after which an answer ends.
const ROWS_MAX: usize = 2_000;
/// Questions after which an answer ends, however few rows it has: the shard may hold much of others.
const STEPS_MAX: usize = 256;

/// One part of a list by place: rows from where `request` says to go on, and where the next part begins.
fn by_place<R: Row>(
    figures: &Figures,
    request: &Value,
    shards: u16,
    query: impl Fn(Page) -> Query,
    rows_of: fn(Answer) -> Option<Part<R, usize>>,
) -> Result<Value, String> {
    let from = |key: &str| request["from"][key].as_u64().unwrap_or(0);
    let mut shard = u16::try_from(from("shard")).unwrap_or(shards);
    let mut place = usize::try_from(from("place")).unwrap_or(usize::MAX);
    let mut rows: Vec<R> = Vec::new();
    for _ in 0..STEPS_MAX {
        if shard >= shards || rows.len() >= ROWS_MAX {
            break;
        }
        let answer =
            figures.ask_one(ShardId(shard), query(Page { from: place, limit: PLACES_MAX }))?;
        let found = told(request, answer, rows_of)?;
        rows.extend(found.rows);
        (shard, place) = match found.next {
            Some(next) => (shard, next),
            None => (shard + 1, 0),
        };
    }
    let next = (shard < shards).then(|| json!({"shard": shard, "place": place}));
    Ok(part(&rows, &json!(next)))
}

/// One part of a list by name, of those behind the name that `request` gives.
fn by_name<R: Row>(
    figures: &Figures,
    request: &Value,
    query: fn(Names) -> Query,
    rows_of: fn(Answer) -> Option<Part<R, String>>,
) -> Result<Value, String> {
    let mut after = request["from"].as_str().map(str::to_owned);
    let mut rows: Vec<R> = Vec::new();
    let mut is_complete = false;
    while !is_complete && rows.len() < ROWS_MAX {
        let names = Names { after: after.take(), limit: NAMES_MAX };
        let found = told(request, figures.ask_one(ShardId(0), query(names))?, rows_of)?;
        rows.extend(found.rows);
        after = found.next;
        is_complete = after.is_none();
    }
    Ok(part(&rows, &json!(after)))
}

/// The rows of an answer.
fn told<R, P>(
    request: &Value,
    answer: Answer,
    rows_of: fn(Answer) -> Option<Part<R, P>>,
) -> Result<Part<R, P>, String> {
    if answer == Answer::NoVhost {
        return Err(format!("there is no virtual host {:?}", super::vhost_name(request)));
    }
    Ok(rows_of(answer).unwrap_or_else(|| unreachable!("{request} is answered with something else")))
}

/// Queues of a virtual host with their messages and consumers.
pub fn queues(figures: &Figures, request: &Value) -> Result<Value, String> {
    let vhost = super::vhost_name(request);
    let query = |page| Query::Queues { vhost: vhost.clone(), page };
    by_place(figures, request, figures.commands.shards(), query, |answer| match answer {
        Answer::Queues(found) => Some(found),
        _ => None,
    })
}

/// Connections of all shards.
pub fn connections(figures: &Figures, request: &Value) -> Result<Value, String> {
    let shards = figures.commands.shards();
    by_place(figures, request, shards, Query::Connections, |answer| match answer {
        Answer::Connections(found) => Some(found),
        _ => None,
    })
}

/// Exchanges of a virtual host.
pub fn exchanges(figures: &Figures, request: &Value) -> Result<Value, String> {
    let vhost = super::vhost_name(request);
    let query = |page| Query::Exchanges { vhost: vhost.clone(), page };
    by_place(figures, request, 1, query, |answer| match answer {
        Answer::Exchanges(found) => Some(found),
        _ => None,
    })
}

/// Bindings of a virtual host without those of the default exchange.
pub fn bindings(figures: &Figures, request: &Value) -> Result<Value, String> {
    let vhost = super::vhost_name(request);
    let query = |page| Query::Bindings { vhost: vhost.clone(), page };
    by_place(figures, request, 1, query, |answer| match answer {
        Answer::Bindings(found) => Some(found),
        _ => None,
    })
}

/// Virtual hosts.
pub fn vhosts(figures: &Figures, request: &Value) -> Result<Value, String> {
    by_name(figures, request, Query::Vhosts, |answer| match answer {
        Answer::Vhosts(found) => Some(found),
        _ => None,
    })
}

/// Users.
pub fn users(figures: &Figures, request: &Value) -> Result<Value, String> {
    by_name(figures, request, Query::Users, |answer| match answer {
        Answer::Users(found) => Some(found),
        _ => None,
    })
}

/// Permissions.
pub fn permissions(figures: &Figures, request: &Value) -> Result<Value, String> {
    by_name(figures, request, Query::Permissions, |answer| match answer {
        Answer::Permissions(found) => Some(found),
        _ => None,
    })
}

/// Topic permissions.
pub fn topic_permissions(figures: &Figures, request: &Value) -> Result<Value, String> {
    by_name(figures, request, Query::TopicPermissions, |answer| match answer {
        Answer::TopicPermissions(found) => Some(found),
        _ => None,
    })
}
