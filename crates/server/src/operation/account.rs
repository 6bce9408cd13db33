//! Orders about users, virtual hosts and permissions.

use super::{text, vhost_ref};
use lepus_broker::directory::{HashingAlgorithm, PasswordHash, Request, VhostMetadata};
use serde_json::Value;

/// What there is of what an order names, by the shard that orders changes.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Whether there is the user.
    pub user: bool,
    /// Whether there is the virtual host that it adds or deletes.
    pub vhost: bool,
}

/// Names of the user and of the virtual host that an order may be about.
pub fn names(request: &Value) -> (String, String) {
    let text = |key: &str| request[key].as_str().unwrap_or("").to_owned();
    let user = if request["user"].is_string() { text("user") } else { text("name") };
    (user, text("name"))
}

/// The change that an order asks for.
pub fn change(known: Known, request: &Value) -> Result<Request, String> {
    let words = text(request, "order")?;
    match words {
        "user add" | "user set-password" | "user set-tags" => change_user(known, words, request),
        "user delete" => {
            let name = known_user(known, request, "name")?;
            Ok(Request::DeleteUser { name })
        }
        "vhost add" => {
            let name = text(request, "name")?.to_owned();
            if known.vhost {
                return Err(format!("virtual host {name:?} exists already"));
            }
            let metadata = VhostMetadata {
                description: request["description"].as_str().unwrap_or("").into(),
                ..VhostMetadata::default()
            };
            Ok(Request::CreateVhost { name, metadata })
        }
        "vhost delete" => {
            let name = text(request, "name")?.to_owned();
            if !known.vhost {
                return Err(format!("there is no virtual host {name:?}"));
            }
            Ok(Request::DeleteVhost { name })
        }
        "permission set" => Ok(Request::SetPermission {
            user: known_user(known, request, "user")?,
            vhost: vhost_ref(request),
            configure: text(request, "configure")?.to_owned(),
            write: text(request, "write")?.to_owned(),
            read: text(request, "read")?.to_owned(),
        }),
        "permission delete" => Ok(Request::ClearPermission {
            user: known_user(known, request, "user")?,
            vhost: vhost_ref(request),
        }),
        "permission set-topic" => Ok(Request::SetTopicPermission {
            user: known_user(known, request, "user")?,
            vhost: vhost_ref(request),
            exchange: text(request, "exchange")?.to_owned(),
            write: text(request, "write")?.to_owned(),
            read: text(request, "read")?.to_owned(),
        }),
        "permission delete-topic" => Ok(Request::ClearTopicPermission {
            user: known_user(known, request, "user")?,
            vhost: vhost_ref(request),
            exchange: request["exchange"].as_str().map(str::to_owned),
        }),
        words => Err(format!("this broker does not know the order {words:?}")),
    }
}

fn known_user(known: Known, request: &Value, key: &str) -> Result<String, String> {
    let name = text(request, key)?;
    if !known.user {
        return Err(format!("there is no user {name:?}"));
    }
    Ok(name.to_owned())
}

/// The broker decides by what is there when the change is ordered: changes of different fields that come
/// at the same time both stand.
fn change_user(known: Known, words: &str, request: &Value) -> Result<Request, String> {
    let name = text(request, "name")?.to_owned();
    if words == "user add" && known.user {
        return Err(format!(
            "user {name:?} exists already; `lepus user set-password` and `lepus user set-tags` change it"
        ));
    }
    let password = || {
        let hash = text(request, "password_hash")?;
        PasswordHash::from_base64(HashingAlgorithm::Sha256, hash)
    };
    let tags = request["tags"].as_str().unwrap_or("").split(',').map(str::trim);
    let tags = tags.filter(|tag| !tag.is_empty()).map(Box::from).collect();
    match words {
        "user add" => Ok(Request::AddUser { name, password: password()?, tags }),
        "user set-password" => {
            let name = known_user(known, request, "name")?;
            Ok(Request::SetPassword { name, password: password()? })
        }
        _ => Ok(Request::SetTags { name: known_user(known, request, "name")?, tags }),
    }
}
