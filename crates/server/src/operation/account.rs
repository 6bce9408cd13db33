//! Orders about users, virtual hosts and permissions.

use super::{text, vhost_ref};
use lepus_broker::directory::{
    Directory, HashingAlgorithm, PasswordHash, Permission, Request, TopicPermission, User,
    VhostInfo, VhostMetadata,
};
use serde_json::{Value, json};

/// The change that an order asks for.
pub fn change(directory: &Directory, request: &Value) -> Result<Request, String> {
    let words = text(request, "order")?;
    match words {
        "user add" | "user set-password" | "user set-tags" => {
            change_user(directory, words, request)
        }
        "user delete" => {
            let name = known_user(directory, request, "name")?;
            Ok(Request::DeleteUser { name })
        }
        "vhost add" => {
            let name = text(request, "name")?.to_owned();
            if directory.vhost(&name).is_some() {
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
            if directory.vhost(&name).is_none() {
                return Err(format!("there is no virtual host {name:?}"));
            }
            Ok(Request::DeleteVhost { name })
        }
        "permission set" => Ok(Request::SetPermission {
            user: known_user(directory, request, "user")?,
            vhost: vhost_ref(request),
            configure: text(request, "configure")?.to_owned(),
            write: text(request, "write")?.to_owned(),
            read: text(request, "read")?.to_owned(),
        }),
        "permission delete" => Ok(Request::ClearPermission {
            user: known_user(directory, request, "user")?,
            vhost: vhost_ref(request),
        }),
        "permission set-topic" => Ok(Request::SetTopicPermission {
            user: known_user(directory, request, "user")?,
            vhost: vhost_ref(request),
            exchange: text(request, "exchange")?.to_owned(),
            write: text(request, "write")?.to_owned(),
            read: text(request, "read")?.to_owned(),
        }),
        "permission delete-topic" => Ok(Request::ClearTopicPermission {
            user: known_user(directory, request, "user")?,
            vhost: vhost_ref(request),
            exchange: request["exchange"].as_str().map(str::to_owned),
        }),
        words => Err(format!("this broker does not know the order {words:?}")),
    }
}

fn known_user(directory: &Directory, request: &Value, key: &str) -> Result<String, String> {
    let name = text(request, key)?;
    if directory.user(name).is_none() {
        return Err(format!("there is no user {name:?}"));
    }
    Ok(name.to_owned())
}

/// The broker decides by what is there when the change is ordered: changes of different fields that come
/// at the same time both stand.
fn change_user(directory: &Directory, words: &str, request: &Value) -> Result<Request, String> {
    let name = text(request, "name")?.to_owned();
    if words == "user add" && directory.user(&name).is_some() {
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
            let name = known_user(directory, request, "name")?;
            Ok(Request::SetPassword { name, password: password()? })
        }
        _ => Ok(Request::SetTags { name: known_user(directory, request, "name")?, tags }),
    }
}

/// What is listed of each user: the columns, and the rows of one.
pub struct List {
    /// Names of the columns.
    pub columns: &'static [&'static str],
    /// A user's rows.
    pub rows: fn(&Directory, &User) -> Vec<Value>,
}

/// Users.
pub const USERS: List = List {
    columns: &["name", "tags", "password"],
    rows: |_, user| vec![json!([user.name, user.tags.join(", "), !user.password.is_none()])],
};

/// Permissions.
pub const PERMISSIONS: List = List {
    columns: &["user", "vhost", "configure", "write", "read"],
    rows: |directory, user| {
        let row = |(vhost, permission): (&VhostInfo, &Permission)| {
            let Permission { configure, write, read } = permission;
            json!([user.name, vhost.name, configure.text(), write.text(), read.text()])
        };
        directory.accounts().permissions_of(user).map(row).collect()
    },
};

/// Topic permissions.
pub const TOPIC_PERMISSIONS: List = List {
    columns: &["user", "vhost", "exchange", "write", "read"],
    rows: |directory, user| {
        let row = |(vhost, exchange, permission): (&VhostInfo, &str, &TopicPermission)| {
            let (write, read) = (permission.write.text(), permission.read.text());
            json!([user.name, vhost.name, exchange, write, read])
        };
        directory.accounts().topic_permissions_of(user).map(row).collect()
    },
};

/// All virtual hosts.
pub fn vhosts(directory: &Directory) -> Value {
    let rows: Vec<Value> = directory
        .accounts()
        .vhosts()
        .map(|vhost| {
            let queues = directory.queue_count(vhost.id);
            json!([vhost.name, queues, vhost.metadata.description])
        })
        .collect();
    json!({"columns": ["name", "queues", "description"], "rows": rows})
}
