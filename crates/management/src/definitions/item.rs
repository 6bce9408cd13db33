//! The items of a definitions file, each of which becomes a request. What may be left out is an `Option`, which
//! `null` leaves out as well.

use super::field::{Algorithm, Arguments, MaybeEmpty, Words, list};
use super::parameter::{empty, is_known, parameter_request};
use super::policy::{Body, policy_request};
use crate::json::Bounded;
use lepus_base::ShardId;
use lepus_broker::binding::Destination;
use lepus_broker::directory::{
    HashingAlgorithm, PasswordHash, PolicyScope, Request, UserLimits, VhostLimits, VhostMetadata,
    VhostRef,
};
use lepus_broker::queue::QueueKind;
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};

/// The whole file.
#[derive(Debug, Deserialize)]
pub struct File {
    pub rabbitmq_definition_format: Option<String>,
    description: Option<String>,
    #[serde(default)]
    tags: Words,
    default_queue_type: Option<DefaultQueueType>,
    protected_from_deletion: Option<bool>,
    metadata: Option<MaybeEmpty<Metadata>>,
    #[serde(default, deserialize_with = "list")]
    pub users: Vec<User>,
    #[serde(default, deserialize_with = "list")]
    pub vhosts: Vec<Vhost>,
    #[serde(default, deserialize_with = "list")]
    pub permissions: Vec<Permission>,
    #[serde(default, deserialize_with = "list")]
    pub topic_permissions: Vec<TopicPermission>,
    #[serde(default, deserialize_with = "list")]
    pub parameters: Vec<Parameter>,
    #[serde(default, deserialize_with = "list")]
    pub queues: Vec<Queue>,
    #[serde(default, deserialize_with = "list")]
    pub exchanges: Vec<Exchange>,
    #[serde(default, deserialize_with = "list")]
    pub bindings: Vec<Binding>,
    #[serde(default, deserialize_with = "list")]
    pub policies: Vec<Policy>,
    #[serde(default, deserialize_with = "list")]
    pub global_parameters: Vec<GlobalParameter>,
}

impl File {
    /// What a file of a single virtual host says of it.
    pub fn metadata(&mut self) -> VhostMetadata {
        let outer = Metadata {
            description: self.description.take(),
            tags: std::mem::take(&mut self.tags),
            default_queue_type: self.default_queue_type,
            protected_from_deletion: self.protected_from_deletion,
        };
        merged(outer, self.metadata.take())
    }
}

/// The virtual host of an item; `single` is that of the whole file.
fn vhost(own: Option<String>, single: Option<&str>) -> Result<VhostRef, String> {
    let name = single.or(own.as_deref()).ok_or("missing field `vhost`")?;
    Ok(VhostRef::from(name))
}

/// A user.
#[derive(Debug, Deserialize)]
pub struct User {
    name: String,
    password_hash: Option<String>,
    hashing_algorithm: Option<Algorithm>,
    password: Option<IgnoredAny>,
    #[serde(default)]
    tags: Words,
    #[serde(default)]
    limits: MaybeEmpty<OfUser>,
}

/// Limits of a user.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OfUser {
    #[serde(rename = "max-connections")]
    connections: Option<i64>,
    #[serde(rename = "max-channels")]
    channels: Option<i64>,
}

impl User {
    /// Name, hash and tags, then the limits where there are any. An empty or missing hash is a user who cannot log in
    /// with a password. The error comes with the field.
    pub fn requests(self) -> Result<Vec<Request>, (&'static str, String)> {
        let algorithm = self.hashing_algorithm.map_or(HashingAlgorithm::Sha256, |one| one.0);
        let password = match self.password_hash.as_deref().unwrap_or("") {
            "" if self.password.is_some() => {
                let text =
                    "plain passwords are not imported; `lepus hash-password` makes a password_hash";
                return Err(("password", text.to_owned()));
            }
            "" => PasswordHash::none(),
            hash => PasswordHash::from_base64(algorithm, hash).map_err(|_| {
                let name = algorithm.name();
                let text = format!("not base64 of a salt and a hash as {name} makes it");
                ("password_hash", text)
            })?,
        };
        let (name, limits) = (self.name, self.limits.0);
        let put = Request::PutUser { name: name.clone(), password, tags: self.tags.0 };
        if limits.connections.is_none() && limits.channels.is_none() {
            return Ok(vec![put]);
        }
        let limits =
            UserLimits { connections_max: limits.connections, channels_max: limits.channels };
        Ok(vec![put, Request::SetUserLimits { name, limits }])
    }
}

/// A virtual host.
#[derive(Debug, Deserialize)]
pub struct Vhost {
    name: String,
    description: Option<String>,
    #[serde(default)]
    tags: Words,
    default_queue_type: Option<DefaultQueueType>,
    protected_from_deletion: Option<bool>,
    metadata: Option<MaybeEmpty<Metadata>>,
    #[serde(default)]
    limits: MaybeEmpty<OfVhost>,
}

/// What newer exports say of a virtual host in an object of its own, and older ones beside its name.
#[derive(Debug, Default, Deserialize)]
struct Metadata {
    description: Option<String>,
    #[serde(default)]
    tags: Words,
    default_queue_type: Option<DefaultQueueType>,
    protected_from_deletion: Option<bool>,
}

/// The kind of queues that are declared without one, if it is said.
#[derive(Clone, Copy, Debug)]
struct DefaultQueueType(Option<QueueKind>);

impl<'de> Deserialize<'de> for DefaultQueueType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DefaultQueueType, D::Error> {
        let name = String::deserialize(from)?;
        match name.as_str() {
            "" | "undefined" => Ok(DefaultQueueType(None)),
            "classic" => Ok(DefaultQueueType(Some(QueueKind::Classic))),
            "quorum" => Ok(DefaultQueueType(Some(QueueKind::Quorum))),
            _ => Err(Error::custom(format!(
                "{name:?} is not supported; there are classic and quorum"
            ))),
        }
    }
}

fn merged(outer: Metadata, inner: Option<MaybeEmpty<Metadata>>) -> VhostMetadata {
    let is_own = inner.is_none();
    let inner = inner.map_or_else(Metadata::default, |inner| inner.0);
    let tags = if inner.tags.0.is_empty() { outer.tags.0 } else { inner.tags.0 };
    let kind = inner.default_queue_type.or(outer.default_queue_type);
    let protected =
        inner.protected_from_deletion.or(outer.protected_from_deletion.filter(|_| is_own));
    VhostMetadata {
        description: inner.description.or(outer.description).unwrap_or_default().into(),
        tags,
        default_queue_type: kind.and_then(|kind| kind.0),
        protected: protected.unwrap_or(false),
        tracing: false,
    }
}

/// Limits of a virtual host.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OfVhost {
    #[serde(rename = "max-connections")]
    connections: Option<i64>,
    #[serde(rename = "max-queues")]
    queues: Option<i64>,
}

impl OfVhost {
    pub fn request(self, vhost: VhostRef) -> Request {
        let limits = VhostLimits { connections_max: self.connections, queues_max: self.queues };
        Request::SetVhostLimits { vhost, limits }
    }
}

impl Vhost {
    /// The virtual host, then its limits where there are any.
    pub fn requests(self) -> Vec<Request> {
        let limits = self.limits.0;
        let some = limits.connections.is_some() || limits.queues.is_some();
        let limits = some.then(|| limits.request(VhostRef::from(self.name.as_str())));
        let outer = Metadata {
            description: self.description,
            tags: self.tags,
            default_queue_type: self.default_queue_type,
            protected_from_deletion: self.protected_from_deletion,
        };
        let metadata = merged(outer, self.metadata);
        [Request::CreateVhost { name: self.name, metadata }].into_iter().chain(limits).collect()
    }
}

/// What a user may do in a virtual host.
#[derive(Debug, Deserialize)]
pub struct Permission {
    user: String,
    vhost: Option<String>,
    configure: String,
    write: String,
    read: String,
}

impl Permission {
    pub fn request(self, single: Option<&str>) -> Result<Request, String> {
        let Permission { user, configure, write, read, .. } = self;
        Ok(Request::SetPermission {
            user,
            vhost: vhost(self.vhost, single)?,
            configure,
            write,
            read,
        })
    }
}

/// Which routing keys a user may use.
#[derive(Debug, Deserialize)]
pub struct TopicPermission {
    user: String,
    vhost: Option<String>,
    exchange: String,
    write: String,
    read: String,
}

impl TopicPermission {
    pub fn request(self, single: Option<&str>) -> Result<Request, String> {
        let TopicPermission { user, exchange, write, read, .. } = self;
        Ok(Request::SetTopicPermission {
            user,
            vhost: vhost(self.vhost, single)?,
            exchange,
            write,
            read,
        })
    }
}

/// A parameter of a part of the broker.
#[derive(Debug, Deserialize)]
pub struct Parameter {
    pub component: String,
    pub name: String,
    vhost: Option<String>,
    value: Option<Bounded>,
}

impl Parameter {
    /// Whether it limits a virtual host.
    pub fn is_limit(&self) -> bool {
        self.component == LIMITS
    }

    /// Whether it is a policy or an operator policy.
    pub fn is_policy(&self) -> bool {
        [POLICY, OPERATOR_POLICY].contains(&self.component.as_str())
    }

    /// Whether some part of the broker knows it.
    pub fn is_known(&self) -> bool {
        self.is_limit() || self.is_policy() || is_known(&self.component)
    }

    /// What it sets.
    pub fn request(self, single: Option<&str>) -> Result<Request, String> {
        let Parameter { component, name, vhost: own, value } = self;
        let vhost = vhost(own, single)?;
        let value = value.map_or_else(empty, |Bounded(value)| value);
        let request = parameter_request(vhost, component, name, value);
        request.map_err(|error| {
            let dot = if error.path.is_empty() { "" } else { "." };
            format!("value{dot}{}: {}", error.path, in_a_line(&error.text))
        })
    }
}

/// A refusal of a policy or a parameter, which has several lines for those who look for the first.
fn in_a_line(text: &str) -> &str {
    text.strip_prefix("Validation failed\n\n").unwrap_or(text).trim_end()
}

/// The component whose parameters are limits of virtual hosts.
pub const LIMITS: &str = "vhost-limits";
/// The component whose parameters are policies.
pub const POLICY: &str = "policy";
/// The component whose parameters are operator policies.
pub const OPERATOR_POLICY: &str = "operator_policy";

/// A queue.
#[derive(Debug, Deserialize)]
pub struct Queue {
    name: String,
    vhost: Option<String>,
    r#type: Option<String>,
    durable: Option<bool>,
    auto_delete: Option<bool>,
    #[serde(default)]
    arguments: Arguments,
}

impl Queue {
    /// At home on `shard` where balance allows.
    pub fn request(
        self,
        single: Option<&str>,
        shard: ShardId,
        user: &str,
    ) -> Result<Request, String> {
        let mut arguments = self.arguments.0;
        let kind = self.r#type.as_deref().unwrap_or("classic");
        if kind != "classic" && arguments.get("x-queue-type").is_none() {
            arguments.insert("x-queue-type", kind);
        }
        Ok(Request::DeclareQueue {
            vhost: vhost(self.vhost, single)?,
            name: self.name,
            server_named: false,
            durable: self.durable.unwrap_or(true),
            exclusive: None,
            auto_delete: self.auto_delete.unwrap_or(false),
            arguments,
            declared_on: shard,
            user: user.to_owned(),
        })
    }
}

/// An exchange.
#[derive(Debug, Deserialize)]
pub struct Exchange {
    name: String,
    vhost: Option<String>,
    r#type: Option<String>,
    durable: Option<bool>,
    auto_delete: Option<bool>,
    internal: Option<bool>,
    #[serde(default)]
    arguments: Arguments,
}

impl Exchange {
    pub fn request(self, single: Option<&str>) -> Result<Request, String> {
        Ok(Request::DeclareExchange {
            vhost: vhost(self.vhost, single)?,
            name: self.name,
            kind: self.r#type.unwrap_or_else(|| "direct".to_owned()),
            durable: self.durable.unwrap_or(true),
            auto_delete: self.auto_delete.unwrap_or(false),
            internal: self.internal.unwrap_or(false),
            arguments: self.arguments.0,
        })
    }
}

/// A binding to a queue or an exchange.
#[derive(Debug, Deserialize)]
pub struct Binding {
    source: String,
    vhost: Option<String>,
    destination: String,
    destination_type: Option<DestinationType>,
    routing_key: Option<String>,
    #[serde(default)]
    arguments: Arguments,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DestinationType {
    Queue,
    Exchange,
}

impl Binding {
    pub fn request(self, single: Option<&str>) -> Result<Request, String> {
        Ok(Request::Bind {
            vhost: vhost(self.vhost, single)?,
            source: self.source,
            destination: match self.destination_type {
                Some(DestinationType::Exchange) => Destination::Exchange(self.destination),
                _ => Destination::Queue(self.destination),
            },
            routing_key: self.routing_key.unwrap_or_default(),
            arguments: self.arguments.0,
            connection: None,
        })
    }
}

/// A policy.
#[derive(Debug, Deserialize)]
pub struct Policy {
    pub name: String,
    pub vhost: Option<String>,
    pattern: Option<String>,
    #[serde(rename = "apply-to")]
    apply_to: Option<String>,
    priority: Option<i64>,
    definition: Option<Arguments>,
}

impl Policy {
    pub fn request(self, single: Option<&str>) -> Result<Request, String> {
        let Policy { name, vhost: own, pattern, apply_to, priority, definition } = self;
        let body = Body { pattern, apply_to, priority, definition };
        let request = policy_request(vhost(own, single)?, PolicyScope::User, name, body);
        request.map_err(|text| in_a_line(&text).to_owned())
    }
}

/// A parameter of the whole broker.
#[derive(Debug, Deserialize)]
pub struct GlobalParameter {
    pub name: String,
    value: Option<Bounded>,
}

impl GlobalParameter {
    /// Whether it only says something of the broker that wrote the file.
    pub fn is_internal(&self) -> bool {
        self.name.starts_with("internal")
    }

    pub fn request(self) -> Request {
        let value = self.value.unwrap_or_default().0.to_string();
        Request::SetGlobalParameter { name: self.name, value }
    }
}
