//! Orders that list what the broker holds.
//!
//! A list is made in parts, and each part of questions that a shard answers one by one, serving others in
//! between. Queues, connections, exchanges and bindings come by place, not by name: so that a question costs
//! what it looks at, and no index by name is needed. Whoever asks puts the rows in order.

use crate::figures::Figures;
use lepus_base::{ShardId, VhostId};
use lepus_broker::query::{NAMES_MAX, Names, PLACES_MAX, Page, Part, Rights, RightsPlace};
use lepus_broker::{Answer, Query};
use lepus_management::api::{self, Api};
use lepus_management::table::{Row, part};
use serde_json::{Value, json};

/// Rows after which an answer ends.
const ROWS_MAX: usize = 2_000;
/// Questions after which an answer ends, however few rows it has: the shard may hold much of others.
const STEPS_MAX: usize = 256;

/// Asks for part after part, from `at` on: until there is no more, or enough rows are found, or enough was asked.
/// The rows, and where to go on.
fn in_steps<R, P>(
    mut at: Option<P>,
    mut ask: impl FnMut(P) -> Result<(Vec<R>, Option<P>), String>,
) -> Result<(Vec<R>, Option<P>), String> {
    let mut rows = Vec::new();
    for _ in 0..STEPS_MAX {
        if rows.len() >= ROWS_MAX {
            break;
        }
        let Some(from) = at.take() else { break };
        let (found, next) = ask(from)?;
        rows.extend(found);
        at = next;
    }
    Ok((rows, at))
}

/// One part of a list by place: rows from where `request` says to go on, and where the next part begins.
fn by_place<R: Row>(
    figures: &Figures,
    request: &Value,
    shards: u16,
    query: impl Fn(Page) -> Query,
    rows_of: fn(Answer) -> Option<Part<R, usize>>,
) -> Result<Value, String> {
    let from = |key: &str| request["from"][key].as_u64().unwrap_or(0);
    let shard = u16::try_from(from("shard")).unwrap_or(shards);
    let place = usize::try_from(from("place")).unwrap_or(usize::MAX);
    let is_there = |shard: u16| shard < shards;
    let (rows, next) = in_steps(is_there(shard).then_some((shard, place)), |(shard, place)| {
        let page = Page { from: place, limit: PLACES_MAX };
        let found = told(request, figures.ask_one(ShardId(shard), query(page))?, rows_of)?;
        let next = match found.next {
            Some(next) => Some((shard, next)),
            None => is_there(shard + 1).then_some((shard + 1, 0)),
        };
        Ok((found.rows, next))
    })?;
    let next = next.map(|(shard, place)| json!({"shard": shard, "place": place}));
    Ok(part(&rows, &json!(next)))
}

/// One part of a list by name, of those behind the name that `request` gives.
fn by_name<R: Row>(
    figures: &Figures,
    request: &Value,
    query: fn(Names) -> Query,
    rows_of: fn(Answer) -> Option<Part<R, String>>,
) -> Result<Value, String> {
    let from = request["from"].as_str().map(str::to_owned);
    let (rows, next) = in_steps(Some(from), |after| {
        let names = Names { after, limit: NAMES_MAX };
        let found = told(request, figures.ask_one(ShardId(0), query(names))?, rows_of)?;
        Ok((found.rows, found.next.map(Some)))
    })?;
    Ok(part(&rows, &json!(next.flatten())))
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

/// Columns of the list of filters.
const FILTER_COLUMNS: [&str; 11] = [
    "kind",
    "name",
    "filters",
    "looked_up",
    "compared",
    "evaluated",
    "microseconds",
    "takes_looked_up_only",
    "evaluations_per_delivery",
    "dearest_format",
    "dearest",
];

/// Exchanges and queues with filters, by what these take of a message: rows of the management API's list, a page of it
/// for each part.
pub fn filters(api: &Api, request: &Value) -> Result<Value, String> {
    let vhost = super::vhost_name(request);
    let page = request["from"].as_u64().unwrap_or(1);
    let path =
        format!("/api/lepus/filters?sort=microseconds&sort_reverse=true&page_size=500&page={page}");
    let asked = api::Request::of_operator("GET", &path, Vec::new());
    let reply = api.answer(&api::Request { vhost: Some(vhost.clone()), ..asked });
    let body = reply.body.unwrap_or_default();
    let (items, count) = match (reply.status, body["items"].as_array()) {
        (200, Some(items)) => (items.as_slice(), body["page_count"].as_u64().unwrap_or(0)),
        // The list became shorter meanwhile.
        (400, _) if page > 1 => (&[][..], 0),
        (404, _) => return Err(format!("there is no virtual host {vhost:?}")),
        _ => return Err(body["reason"].as_str().unwrap_or("there is no list").to_owned()),
    };
    let row = |item: &Value| -> Value {
        let cell = |column: &&str| match *column {
            "dearest" => item["dearest"][0]["filter"].clone(),
            "dearest_format" => item["dearest"][0]["format"].clone(),
            "microseconds" | "evaluations_per_delivery" => {
                let value = item[*column].as_f64();
                value.map_or(Value::Null, |value| json!((value * 100.0).round() / 100.0))
            }
            column => item[column].clone(),
        };
        FILTER_COLUMNS.iter().map(cell).collect()
    };
    let rows: Vec<Value> = items.iter().map(row).collect();
    let next = (page < count).then_some(page + 1);
    // What came to another page meanwhile is told once.
    Ok(json!({"columns": FILTER_COLUMNS, "rows": rows, "next": next, "named_by": 2}))
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

/// One part of a list of what users may do, of what is behind the place that `request` gives.
fn by_right<R: Row>(
    figures: &Figures,
    request: &Value,
    query: fn(Rights) -> Query,
    rows_of: fn(Answer) -> Option<Part<R, RightsPlace>>,
) -> Result<Value, String> {
    let (rows, next) = in_steps(Some(rights_place(&request["from"])), |after| {
        let rights = Rights { after, limit: NAMES_MAX };
        let found = told(request, figures.ask_one(ShardId(0), query(rights))?, rows_of)?;
        Ok((found.rows, found.next.map(Some)))
    })?;
    Ok(part(&rows, &rights_json(next.flatten().as_ref())))
}

/// A place in a list of what users may do, as a list's next part is asked for.
fn rights_json(place: Option<&RightsPlace>) -> Value {
    let Some(RightsPlace { user, right }) = place else { return Value::Null };
    match right {
        Some((vhost, exchange)) => json!({"user": user, "vhost": vhost.0, "exchange": exchange}),
        None => json!({"user": user}),
    }
}

/// The opposite of [`rights_json`].
fn rights_place(from: &Value) -> Option<RightsPlace> {
    let vhost = from["vhost"].as_u64().and_then(|vhost| u32::try_from(vhost).ok()).map(VhostId);
    let exchange = from["exchange"].as_str().unwrap_or_default();
    let right = vhost.map(|vhost| (vhost, exchange.to_owned()));
    Some(RightsPlace { user: from["user"].as_str()?.to_owned(), right })
}

/// Permissions.
pub fn permissions(figures: &Figures, request: &Value) -> Result<Value, String> {
    by_right(figures, request, Query::Permissions, |answer| match answer {
        Answer::Permissions(found) => Some(found),
        _ => None,
    })
}

/// Topic permissions.
pub fn topic_permissions(figures: &Figures, request: &Value) -> Result<Value, String> {
    by_right(figures, request, Query::TopicPermissions, |answer| match answer {
        Answer::TopicPermissions(found) => Some(found),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of so many rows each, of a list with so many parts.
    fn parts(
        rows: usize,
        parts: usize,
    ) -> impl FnMut(usize) -> Result<(Vec<u8>, Option<usize>), String> {
        move |at| Ok((vec![0; rows], (at + 1 < parts).then_some(at + 1)))
    }

    #[test]
    fn an_answer_ends_after_so_many_questions_though_nothing_was_found_and_goes_on_from_there() {
        let (mut asked, mut answers) = (0, 0);
        let mut at = Some(0);
        while at.is_some() {
            let mut list = parts(0, 1_000);
            let before = asked;
            let (rows, next) = in_steps(at, |at| {
                assert_eq!(at, asked, "each part is asked for once, in order");
                asked += 1;
                list(at)
            })
            .unwrap();
            assert!(rows.is_empty() && asked - before <= STEPS_MAX);
            (at, answers) = (next, answers + 1);
        }
        assert_eq!((asked, answers), (1_000, 4));
    }

    #[test]
    fn a_place_among_rights_comes_back_as_it_was_told() {
        let user = || "u\"1".to_owned();
        let right = |exchange: &str| Some((VhostId(7), exchange.to_owned()));
        for right in [None, right(""), right("x")] {
            let place = RightsPlace { user: user(), right };
            assert_eq!(rights_place(&rights_json(Some(&place))), Some(place));
        }
        assert_eq!(rights_place(&rights_json(None)), None);
    }

    #[test]
    fn an_answer_ends_when_it_has_many_rows_and_with_the_list() {
        let (rows, next) = in_steps(Some(0), parts(ROWS_MAX / 2 + 1, 10)).unwrap();
        assert_eq!((rows.len(), next), (ROWS_MAX + 2, Some(2)));
        let (rows, next) = in_steps(Some(0), parts(3, 7)).unwrap();
        assert_eq!((rows.len(), next), (21, None));
        let nothing = in_steps(None, parts(3, 7)).unwrap();
        assert_eq!(nothing, (Vec::new(), None));
    }
}
