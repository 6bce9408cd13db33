//! One item of a definitions file as one request.

use super::DefinitionsError;
use super::field::Place;
use lepus_base::ShardId;
use lepus_broker::binding::Destination;
use lepus_broker::directory::{
    HashingAlgorithm, PasswordHash, Request, UserLimits, VhostLimits, VhostMetadata, VhostRef,
};
use lepus_broker::queue::QueueKind;

type Read<T> = Result<T, DefinitionsError>;

/// The virtual host an item belongs to; `single` is that of the whole file.
pub fn vhost_of<'a>(place: &'a Place<'a>, single: Option<&'a str>) -> Read<&'a str> {
    match single {
        Some(vhost) => Ok(vhost),
        None => place.text("vhost"),
    }
}

/// Name, hash and tags of a user. An empty or missing hash is a user who cannot log in with a password.
pub fn user(place: &Place<'_>) -> Read<Request> {
    let name = place.text("name")?.to_owned();
    let hash = place.text_or("password_hash", "")?;
    let default = HashingAlgorithm::Sha256.name();
    let algorithm = place.text_or("hashing_algorithm", default)?;
    let wrong = |key: &str, text: String| DefinitionsError {
        path: format!("{}.{key}", place.path()),
        text,
    };
    let algorithm = HashingAlgorithm::from_name(algorithm).ok_or_else(|| {
        let text = format!(
            "{algorithm:?} is not known; there are rabbit_password_hashing_sha256, \
             rabbit_password_hashing_sha512 and rabbit_password_hashing_md5"
        );
        wrong("hashing_algorithm", text)
    })?;
    let password = if hash.is_empty() {
        if place.get("password").is_some() {
            let text =
                "plain passwords are not imported; `lepus hash-password` makes a password_hash";
            return Err(wrong("password", text.to_owned()));
        }
        PasswordHash::none()
    } else {
        PasswordHash::from_base64(algorithm, hash).map_err(|_| {
            let text = format!("not base64 of a salt and a hash as {} makes it", algorithm.name());
            wrong("password_hash", text)
        })?
    };
    let tags = place.words("tags")?;
    Ok(Request::PutUser { name, password, tags })
}

/// A virtual host with its metadata.
pub fn vhost(place: &Place<'_>) -> Read<Request> {
    Ok(create_vhost(place.text("name")?, metadata(place)?))
}

/// The request for a virtual host.
pub fn create_vhost(name: &str, metadata: VhostMetadata) -> Request {
    Request::CreateVhost { name: name.to_owned(), metadata }
}

/// Description, tags and default queue type; newer exports have them in `metadata`, older ones in the
/// item itself.
pub fn metadata(place: &Place<'_>) -> Read<VhostMetadata> {
    let inner = place.get("metadata");
    let inner = inner.as_ref().unwrap_or(place);
    let description = inner.text_or("description", place.text_or("description", "")?)?;
    let mut tags = inner.words("tags")?;
    if tags.is_empty() {
        tags = place.words("tags")?;
    }
    let kind = inner.text_or("default_queue_type", place.text_or("default_queue_type", "")?)?;
    let default_queue_type = match kind {
        "" | "undefined" => None,
        "classic" => Some(QueueKind::Classic),
        "quorum" => Some(QueueKind::Quorum),
        other => {
            let text = format!(
                "default_queue_type {other:?} is not supported; there are classic and quorum"
            );
            return Err(inner.wrong(text));
        }
    };
    Ok(VhostMetadata {
        description: description.into(),
        tags,
        default_queue_type,
        protected: inner.switch("protected_from_deletion", false)?,
    })
}

/// What a user may do in a virtual host.
pub fn permission(place: &Place<'_>, single: Option<&str>) -> Read<Request> {
    Ok(Request::SetPermission {
        user: place.text("user")?.to_owned(),
        vhost: VhostRef::from(vhost_of(place, single)?),
        configure: place.text("configure")?.to_owned(),
        write: place.text("write")?.to_owned(),
        read: place.text("read")?.to_owned(),
    })
}

/// Which routing keys a user may use.
pub fn topic_permission(place: &Place<'_>, single: Option<&str>) -> Read<Request> {
    Ok(Request::SetTopicPermission {
        user: place.text("user")?.to_owned(),
        vhost: VhostRef::from(vhost_of(place, single)?),
        exchange: place.text("exchange")?.to_owned(),
        write: place.text("write")?.to_owned(),
        read: place.text("read")?.to_owned(),
    })
}

/// A queue, at home on `shard` where balance allows.
pub fn queue(place: &Place<'_>, single: Option<&str>, shard: ShardId, user: &str) -> Read<Request> {
    let mut arguments = place.table("arguments")?;
    let kind = place.text_or("type", "classic")?;
    if kind != "classic" && arguments.get("x-queue-type").is_none() {
        arguments.insert("x-queue-type", kind);
    }
    Ok(Request::DeclareQueue {
        vhost: VhostRef::from(vhost_of(place, single)?),
        name: place.text("name")?.to_owned(),
        server_named: false,
        durable: place.switch("durable", true)?,
        exclusive: None,
        auto_delete: place.switch("auto_delete", false)?,
        arguments,
        declared_on: shard,
        user: user.to_owned(),
    })
}

/// An exchange.
pub fn exchange(place: &Place<'_>, single: Option<&str>) -> Read<Request> {
    Ok(Request::DeclareExchange {
        vhost: VhostRef::from(vhost_of(place, single)?),
        name: place.text("name")?.to_owned(),
        kind: place.text_or("type", "direct")?.to_owned(),
        durable: place.switch("durable", true)?,
        auto_delete: place.switch("auto_delete", false)?,
        internal: place.switch("internal", false)?,
        arguments: place.table("arguments")?,
    })
}

/// A binding to a queue or an exchange.
pub fn binding(place: &Place<'_>, single: Option<&str>) -> Read<Request> {
    let destination = place.text("destination")?.to_owned();
    let destination = match place.text_or("destination_type", "queue")? {
        "queue" => Destination::Queue(destination),
        "exchange" => Destination::Exchange(destination),
        other => {
            let text = format!("destination_type {other:?} is neither queue nor exchange");
            return Err(place.wrong(text));
        }
    };
    Ok(Request::Bind {
        vhost: VhostRef::from(vhost_of(place, single)?),
        source: place.text("source")?.to_owned(),
        destination,
        routing_key: place.text_or("routing_key", "")?.to_owned(),
        arguments: place.table("arguments")?,
        connection: None,
    })
}

/// The limits in the item of a user, where there are any.
pub fn user_limits(place: &Place<'_>) -> Read<Option<Request>> {
    let Some(limits) = limits_of(place) else {
        return Ok(None);
    };
    Ok(Some(Request::SetUserLimits {
        name: place.text("name")?.to_owned(),
        limits: UserLimits {
            connections_max: limit(&limits, "max-connections")?,
            channels_max: limit(&limits, "max-channels")?,
        },
    }))
}

/// The limits in the item of a virtual host, where there are any.
pub fn vhost_limits(place: &Place<'_>) -> Read<Option<Request>> {
    match limits_of(place) {
        Some(limits) => Ok(Some(set_vhost_limits(&limits, place.text("name")?)?)),
        None => Ok(None),
    }
}

/// The request of an object with limits.
pub fn set_vhost_limits(limits: &Place<'_>, vhost: &str) -> Read<Request> {
    Ok(Request::SetVhostLimits {
        vhost: VhostRef::from(vhost),
        limits: VhostLimits {
            connections_max: limit(limits, "max-connections")?,
            queues_max: limit(limits, "max-queues")?,
        },
    })
}

fn limits_of<'a>(place: &'a Place<'a>) -> Option<Place<'a>> {
    let limits = place.get("limits")?;
    let some = limits.value().as_object().is_some_and(|object| !object.is_empty());
    some.then_some(limits)
}

/// A limit; a negative number stands for none.
fn limit<T: TryFrom<u64>>(limits: &Place<'_>, key: &str) -> Read<Option<T>> {
    let Some(place) = limits.get(key) else {
        return Ok(None);
    };
    if place.value().as_i64().is_some_and(|number| number < 0) {
        return Ok(None);
    }
    let number = place.value().as_u64().and_then(|number| T::try_from(number).ok());
    number.map_or_else(|| Err(place.wrong("expected a whole number")), |number| Ok(Some(number)))
}
