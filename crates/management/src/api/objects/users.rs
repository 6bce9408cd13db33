//! Users.

use super::super::body::Fields;
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use lepus_broker::directory::{HashingAlgorithm, PasswordHash, Request, User};
use serde_json::{Value, json};

fn row(user: &User) -> Value {
    json!({
        "name": user.name,
        "password_hash": user.password.to_base64(),
        "hashing_algorithm": user.password.algorithm().name(),
        "tags": user.tags,
        "limits": super::limits::of_user(user),
    })
}

/// `GET /users`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = context.directory().accounts().users().map(row).collect();
    context.list_rows(rows)
}

/// `GET /users/without-permissions`
pub(crate) fn without_permissions(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = {
        let directory = context.directory();
        let accounts = directory.accounts();
        let has_none = |user: &&User| accounts.permissions_of(user).next().is_none();
        accounts.users().filter(has_none).map(row).collect()
    };
    context.list_rows(rows)
}

/// `GET /users/{u}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let directory = context.directory();
    let user = directory.user(context.name(0)).ok_or_else(Failure::not_found)?;
    Ok(context.object(row(user)))
}

/// A hash of a password, with a salt of its own.
fn hashed(context: &Context<'_>, password: &str) -> Result<PasswordHash, Failure> {
    let random = context.api.broker.random().map_err(Failure::unavailable)?;
    let salt = [random[0], random[1], random[2], random[3]];
    Ok(PasswordHash::new(HashingAlgorithm::Sha256, password.as_bytes(), salt))
}

fn password(context: &Context<'_>, fields: &Fields) -> Result<PasswordHash, Failure> {
    match (fields.text("password")?, fields.text("password_hash")?) {
        (Some(_), Some(_)) => {
            Err(Failure::bad_request("Cannot set both password and password_hash"))
        }
        (Some(password), None) => hashed(context, &password),
        (None, Some(hash)) => {
            let algorithm = match fields.text("hashing_algorithm")? {
                None => HashingAlgorithm::Sha256,
                Some(name) => HashingAlgorithm::from_name(&name).ok_or_else(|| {
                    Failure::bad_request(format!("hashing_algorithm {name:?} is not known"))
                })?,
            };
            PasswordHash::from_base64_of_any_length(algorithm, &hash).map_err(Failure::bad_request)
        }
        (None, None) => Ok(PasswordHash::none()),
    }
}

/// `PUT /users/{u}`
pub(crate) fn put(context: &Context<'_>) -> Result<Reply, Failure> {
    let name = context.name(0).to_owned();
    let fields = context.fields()?;
    let words = fields.words("tags")?.ok_or_else(|| Failure::bad_request("tags_not_present"))?;
    let tags = words.into_iter().filter(|tag| !tag.is_empty()).collect();
    let password = password(context, &fields)?;
    let is_new = context.directory().user(&name).is_none();
    let permissions = fields.get("permissions").and_then(Value::as_object);
    let vhosts: Vec<String> =
        permissions.into_iter().flatten().map(|(vhost, _)| vhost.clone()).collect();
    let permissions: Vec<Request> = permissions
        .into_iter()
        .flatten()
        .map(|(vhost, rights)| super::permissions::request(&name, vhost, &Fields::of(rights)))
        .collect::<Result<_, _>>()?;
    if let Some(missing) = vhosts.iter().find(|vhost| context.directory().vhost(vhost).is_none()) {
        return Err(Failure::bad_request(format!("there is no vhost '{missing}'")));
    }
    context.administer(Request::PutUser { name, password, tags })?;
    for request in permissions {
        context.administer(request)?;
    }
    Ok(Reply::put(is_new))
}

fn delete_one(context: &Context<'_>, name: &str) -> Result<(), Failure> {
    context.administer(Request::DeleteUser { name: name.to_owned() })
}

/// `DELETE /users/{u}`
pub(crate) fn delete(context: &Context<'_>) -> Result<Reply, Failure> {
    delete_one(context, context.name(0))?;
    Ok(Reply::done())
}

/// `POST /users/bulk-delete`
pub(crate) fn delete_several(context: &Context<'_>) -> Result<Reply, Failure> {
    let names = context.fields()?.words("users")?.ok_or_else(|| Failure::key_missing("users"))?;
    for name in names {
        let is_there = context.directory().user(&name).is_some();
        if is_there {
            delete_one(context, &name)?;
        }
    }
    Ok(Reply::done())
}

/// `GET /auth/hash_password/{p}`
pub(crate) fn hash(context: &Context<'_>) -> Result<Reply, Failure> {
    let hash = hashed(context, context.name(0))?;
    Ok(Reply::json(json!({"ok": hash.to_base64()})))
}
