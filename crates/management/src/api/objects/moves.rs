//! Moves of messages: begun, looked at and stopped.

use super::super::client::Account;
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::filter::parsed;
use super::super::moves::{Chosen, Death, NotBegun, Order, RUNNING_MAX, Target};
use super::super::request::Reply;
use lepus_broker::directory::{Access, Resource};
use serde_json::{Value, json};

/// The header that says that a message was moved.
const HEADER: &str = "x-lepus-moved";
/// Bytes of a name in AMQP.
const NAME_BYTES_MAX: usize = 255;

fn rows(context: &Context<'_>) -> Result<Vec<Value>, Failure> {
    let seen = context.vhost_names(None)?;
    Ok(context.api.moves.rows(|vhost| seen.contains(vhost)))
}

/// `GET /lepus/moves`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    Ok(Reply::json(Value::Array(rows(context)?)))
}

/// `GET /lepus/moves/{m}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let mut rows = rows(context)?.into_iter();
    rows.find(|row| row["id"] == context.name(0)).map(Reply::json).ok_or_else(Failure::not_found)
}

/// `DELETE /lepus/moves/{m}`
pub(crate) fn stop(context: &Context<'_>) -> Result<Reply, Failure> {
    let seen = context.vhost_names(None)?;
    let all = rows(context)?;
    let of_others =
        |row: &Value| row["id"] == context.name(0) && row["user"] != context.login.name();
    if !context.login.is_administrator() && all.iter().any(of_others) {
        return Err(Failure::not_authorised("User not authorised to access object"));
    }
    match context.api.moves.stop(context.name(0), |vhost| seen.contains(vhost)) {
        true => Ok(Reply::done()),
        false => Err(Failure::not_found()),
    }
}

/// `POST /lepus/moves`
pub(crate) fn begin(context: &Context<'_>) -> Result<Reply, Failure> {
    let order = order(context)?;
    check(context, &order)?;
    let account = Account::of(context, &order.vhost)?;
    match context.api.moves.begin(order, account, &context.api.broker, &context.api.mirror) {
        Ok(id) => {
            let reply = Reply { status: 201, headers: Vec::new(), body: Some(json!({ "id": id })) };
            Ok(reply.with("location", format!("/api/lepus/moves/{id}")))
        }
        Err(NotBegun::TooMany) => {
            let text = format!("{RUNNING_MAX} moves run, as many as may");
            Err(Failure::unavailable(text))
        }
        Err(NotBegun::Unavailable(text)) => Err(Failure::unavailable(text)),
    }
}

/// What the body asks for.
fn order(context: &Context<'_>) -> Result<Order, Failure> {
    let fields = context.fields()?;
    let wrong = |text: &str| Err(Failure::bad_request(text));
    let name = |key: &str| match fields.text(key)? {
        Some(name) if name.len() > NAME_BYTES_MAX => {
            Err(Failure::bad_request(format!("{key} is longer than {NAME_BYTES_MAX} bytes")))
        }
        name => Ok(name),
    };
    let routing_key = name("routing_key")?;
    let death = match fields.text("death")? {
        None => None,
        Some(word) => match Death::from_name(&word) {
            None => return wrong("death is to be first or last"),
            death => death,
        },
    };
    let target = match (name("to")?, name("exchange")?) {
        (Some(to), None) if to == "origin" => Target::Origin(death.unwrap_or_default()),
        (Some(to), None) if !to.is_empty() => Target::Queue(to),
        (None, Some(exchange)) => {
            let name = if exchange == "amq.default" { String::new() } else { exchange };
            Target::Exchange { name, routing_key: routing_key.clone() }
        }
        _ => return wrong("either to, a queue or origin, or exchange is to be given"),
    };
    if routing_key.is_some() && !matches!(target, Target::Exchange { .. }) {
        return wrong("routing_key goes with exchange");
    }
    if death.is_some() && !matches!(target, Target::Origin(_)) {
        return wrong("death goes with the origin");
    }
    let header = match fields.get("headers") {
        // What is sent back is to be told from what is new.
        None => matches!(target, Target::Origin(_)).then(|| HEADER.to_owned()),
        Some(Value::Bool(is_on)) => is_on.then(|| HEADER.to_owned()),
        Some(Value::String(name)) if (1..=NAME_BYTES_MAX).contains(&name.len()) => {
            Some(name.clone())
        }
        Some(_) => return wrong("headers is to be true, false or the name of a header"),
    };
    let positive = |key: &str| match fields.integer(key)?.map(u64::try_from) {
        None => Ok(None),
        Some(Ok(number)) if number > 0 => Ok(Some(number)),
        Some(_) => Err(Failure::bad_request(format!("{key} is to be above 0"))),
    };
    Ok(Order {
        vhost: fields.required_text("vhost")?,
        from: fields.required_text("from")?,
        target,
        chosen: parsed(&fields)?.map(|(text, filter, format)| Chosen { text, filter, format }),
        count: positive("count")?,
        per_second: positive("per_second")?,
        header,
    })
}

/// Whether the queues and exchanges are there, and the user may use them; the broker asks again for each message.
fn check(context: &Context<'_>, order: &Order) -> Result<(), Failure> {
    let vhost = context.vhost_to_change(&order.vhost)?;
    let directory = context.directory();
    let Some(from) = directory.queue(vhost, &order.from) else {
        return Err(Failure::missing("queue_not_found"));
    };
    if order.chosen.is_some() && from.settings().single_active_consumer {
        // A consumer chooses them, which would be the active one, or wait for its turn.
        let text = "filter: the queue has a single active consumer: move without a filter, or consume by yourself";
        return Err(Failure::bad_request(text));
    }
    let exchange = match &order.target {
        Target::Queue(queue) if *queue == order.from => {
            return Err(Failure::bad_request("from and to are the same queue"));
        }
        Target::Queue(queue) if directory.queue(vhost, queue).is_none() => {
            return Err(Failure::missing("queue_not_found"));
        }
        Target::Queue(_) => Some(""),
        Target::Exchange { name, .. } if directory.exchange(vhost, name).is_none() => {
            return Err(Failure::missing("exchange_not_found"));
        }
        Target::Exchange { name, .. } => Some(name.as_str()),
        // Each message says which.
        Target::Origin(_) => None,
    };
    let Some(user) = &context.login.user else { return Ok(()) };
    let accounts = directory.accounts();
    accounts.authorize(user, vhost, Access::Read, Resource::Queue(&order.from))?;
    if let Some(exchange) = exchange {
        accounts.authorize(user, vhost, Access::Write, Resource::Exchange(exchange))?;
    }
    Ok(())
}
