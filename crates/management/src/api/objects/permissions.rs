//! What users may do: with names of queues and exchanges, and with routing keys.

use super::super::body::Fields;
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use lepus_broker::directory::{Directory, Permission, Request, TopicPermission};
use serde_json::{Value, json};

fn row(user: &str, vhost: &str, permission: &Permission) -> Value {
    json!({
        "user": user,
        "vhost": vhost,
        "configure": permission.configure.text(),
        "write": permission.write.text(),
        "read": permission.read.text(),
    })
}

fn topic_row(user: &str, vhost: &str, exchange: &str, permission: &TopicPermission) -> Value {
    json!({
        "user": user,
        "vhost": vhost,
        "exchange": exchange,
        "write": permission.write.text(),
        "read": permission.read.text(),
    })
}

pub(crate) fn all(directory: &Directory) -> Vec<Value> {
    let found = directory.accounts().permissions();
    let mut rows: Vec<Value> =
        found.map(|(user, vhost, permission)| row(user, &vhost.name, permission)).collect();
    sort(&mut rows);
    rows
}

pub(crate) fn all_topic(directory: &Directory) -> Vec<Value> {
    let found = directory.accounts().topic_permissions();
    let mut rows: Vec<Value> = found
        .map(|(user, vhost, exchange, permission)| {
            topic_row(user, &vhost.name, exchange, permission)
        })
        .collect();
    sort(&mut rows);
    rows
}

fn sort(rows: &mut [Value]) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.sort_by_cached_key(|row| {
        (text(&row["vhost"]), text(&row["user"]), text(&row["exchange"]))
    });
}

/// `GET /permissions`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = all(&context.directory());
    context.list_rows(rows)
}

/// `GET /topic-permissions`
pub(crate) fn topic_list(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = all_topic(&context.directory());
    context.list_rows(rows)
}

fn of(
    context: &Context<'_>,
    key: &str,
    list: fn(&Directory) -> Vec<Value>,
) -> Result<Reply, Failure> {
    let mut rows = {
        let directory = context.directory();
        let name = context.name(0);
        let is_there = match key {
            "vhost" => directory.vhost(name).is_some(),
            _ => directory.user(name).is_some(),
        };
        if !is_there {
            return Err(Failure::not_found());
        }
        list(&directory)
    };
    rows.retain(|row| row[key] == context.name(0));
    context.list_rows(rows)
}

/// `GET /vhosts/{v}/permissions`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    of(context, "vhost", all)
}

/// `GET /vhosts/{v}/topic-permissions`
pub(crate) fn topic_of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    of(context, "vhost", all_topic)
}

/// `GET /users/{u}/permissions`
pub(crate) fn of_user(context: &Context<'_>) -> Result<Reply, Failure> {
    of(context, "user", all)
}

/// `GET /users/{u}/topic-permissions`
pub(crate) fn topic_of_user(context: &Context<'_>) -> Result<Reply, Failure> {
    of(context, "user", all_topic)
}

/// The rows of the user and the virtual host of the path.
fn own(context: &Context<'_>, list: fn(&Directory) -> Vec<Value>) -> Result<Vec<Value>, Failure> {
    let directory = context.directory();
    let (vhost, user) = (context.name(0), context.name(1));
    if directory.vhost(vhost).is_none() || directory.user(user).is_none() {
        return Err(Failure::not_found());
    }
    let mut rows = list(&directory);
    rows.retain(|row| row["vhost"] == vhost && row["user"] == user);
    Ok(rows)
}

/// `GET /permissions/{v}/{u}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let row = own(context, all)?.pop().ok_or_else(Failure::not_found)?;
    Ok(context.object(row))
}

/// `GET /topic-permissions/{v}/{u}`
pub(crate) fn topic_one(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = own(context, all_topic)?;
    if rows.is_empty() { Err(Failure::not_found()) } else { context.list_rows(rows) }
}

/// What gives a user rights in a virtual host.
pub(crate) fn request(user: &str, vhost: &str, fields: &Fields) -> Result<Request, Failure> {
    Ok(Request::SetPermission {
        user: user.to_owned(),
        vhost: vhost.into(),
        configure: fields.required_text("configure")?,
        write: fields.required_text("write")?,
        read: fields.required_text("read")?,
    })
}

/// The user and the virtual host of the path are there: others are told with another code than by a look.
fn check_there(context: &Context<'_>) -> Result<(), Failure> {
    let directory = context.directory();
    match (directory.vhost(context.name(0)), directory.user(context.name(1))) {
        (Some(_), Some(_)) => Ok(()),
        _ => Err(Failure::bad_request("vhost_or_user_not_found")),
    }
}

/// `PUT /permissions/{v}/{u}`
pub(crate) fn put(context: &Context<'_>) -> Result<Reply, Failure> {
    check_there(context)?;
    let is_new = own(context, all)?.is_empty();
    context.administer(request(context.name(1), context.name(0), &context.fields()?)?)?;
    Ok(Reply::put(is_new))
}

/// `DELETE /permissions/{v}/{u}`
pub(crate) fn delete(context: &Context<'_>) -> Result<Reply, Failure> {
    own(context, all)?.pop().ok_or_else(Failure::not_found)?;
    context.administer(Request::ClearPermission {
        user: context.name(1).to_owned(),
        vhost: context.name(0).into(),
    })?;
    Ok(Reply::done())
}

/// `PUT /topic-permissions/{v}/{u}`
pub(crate) fn topic_put(context: &Context<'_>) -> Result<Reply, Failure> {
    check_there(context)?;
    let fields = context.fields()?;
    let exchange = fields.required_text("exchange")?;
    let is_new = own(context, all_topic)?.iter().all(|row| row["exchange"] != exchange.as_str());
    context.administer(Request::SetTopicPermission {
        user: context.name(1).to_owned(),
        vhost: context.name(0).into(),
        exchange,
        write: fields.required_text("write")?,
        read: fields.required_text("read")?,
    })?;
    Ok(Reply::put(is_new))
}

fn clear_topic(context: &Context<'_>, exchange: Option<&str>) -> Result<Reply, Failure> {
    let rows = own(context, all_topic)?;
    let is_there = match exchange {
        None => !rows.is_empty(),
        Some(exchange) => rows.iter().any(|row| row["exchange"] == exchange),
    };
    if !is_there {
        return Err(Failure::not_found());
    }
    context.administer(Request::ClearTopicPermission {
        user: context.name(1).to_owned(),
        vhost: context.name(0).into(),
        exchange: exchange.map(str::to_owned),
    })?;
    Ok(Reply::done())
}

/// `DELETE /topic-permissions/{v}/{u}`
pub(crate) fn topic_delete(context: &Context<'_>) -> Result<Reply, Failure> {
    clear_topic(context, None)
}

/// `DELETE /topic-permissions/{v}/{u}/{x}`
pub(crate) fn topic_delete_one(context: &Context<'_>) -> Result<Reply, Failure> {
    clear_topic(context, Some(context.name(2)))
}
