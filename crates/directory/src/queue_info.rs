//! What the directory knows of a queue.

use alloc::boxed::Box;
use alloc::string::String;
use core::num::NonZeroU64;
use lepus_amqp::table::{Table, TableBytes, TableRef};
use lepus_base::{ConnectionId, QueueId, ShardId, VhostId};
use lepus_queue::{QueueKind, QueueSettings};

/// Attributes of a queue, which all shards share: they do not change. There may be millions of them,
/// so they are kept small.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueInfo {
    /// Its identity, never used again.
    pub id: QueueId,
    /// The virtual host it belongs to.
    pub vhost: VhostId,
    /// The shard that keeps it.
    pub home: ShardId,
    /// The number of the log that it belongs to: as long as it does not move, its first home.
    pub log: u16,
    /// Whether it survives a restart; never for exclusive queues.
    pub durable: bool,
    /// Whether it goes with its last consumer.
    pub auto_delete: bool,
    /// Whether the broker gave it its name.
    pub server_named: bool,
    /// What kind of queue it is.
    pub kind: QueueKind,
    /// Bytes of the name at the start of `names`.
    name_bytes: u32,
    /// Its name, then the user who declared it.
    names: Box<str>,
    /// `None` for a queue of no connection.
    owner: Option<Owner>,
    /// `None` where no arguments were given, as with most queues.
    asked: Option<Box<Asked>>,
}

const _: () = assert!(size_of::<QueueInfo>() <= 56, "there are many of them");

/// The number of a connection and one: 0 is free for none.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Owner(NonZeroU64);

/// The arguments of a queue and what they mean.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    arguments: TableBytes,
    settings: QueueSettings,
}

/// What makes up a queue's attributes.
#[derive(Debug)]
pub struct Declared<'a> {
    /// [`QueueInfo::id`]
    pub id: QueueId,
    /// [`QueueInfo::vhost`]
    pub vhost: VhostId,
    /// [`QueueInfo::name`]
    pub name: &'a str,
    /// [`QueueInfo::user`]
    pub user: &'a str,
    /// [`QueueInfo::home`]
    pub home: ShardId,
    /// [`QueueInfo::log`]
    pub log: u16,
    /// [`QueueInfo::durable`]
    pub durable: bool,
    /// [`QueueInfo::auto_delete`]
    pub auto_delete: bool,
    /// [`QueueInfo::server_named`]
    pub server_named: bool,
    /// [`QueueInfo::kind`]
    pub kind: QueueKind,
    /// [`QueueInfo::exclusive`]
    pub exclusive: Option<ConnectionId>,
    /// [`QueueInfo::arguments`]
    pub arguments: &'a Table,
    /// [`QueueInfo::settings`]
    pub settings: QueueSettings,
}

impl QueueInfo {
    /// A queue as it was declared.
    #[must_use]
    pub fn new(declared: Declared<'_>) -> QueueInfo {
        let Declared { name, user, arguments, settings, .. } = declared;
        let mut names = String::with_capacity(name.len() + user.len());
        names.push_str(name);
        names.push_str(user);
        let is_plain = arguments.is_empty() && settings == QueueSettings::PLAIN;
        QueueInfo {
            id: declared.id,
            vhost: declared.vhost,
            home: declared.home,
            log: declared.log,
            durable: declared.durable,
            auto_delete: declared.auto_delete,
            server_named: declared.server_named,
            kind: declared.kind,
            name_bytes: name.len() as u32,
            names: names.into_boxed_str(),
            owner: declared.exclusive.and_then(Owner::new),
            asked: (!is_plain)
                .then(|| Box::new(Asked { arguments: arguments.to_bytes(), settings })),
        }
    }

    /// The same under another id on another shard.
    pub(crate) fn moved(&self, id: QueueId, home: ShardId, log: u16) -> QueueInfo {
        QueueInfo { id, home, log, ..self.clone() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.names[..self.name_bytes as usize]
    }

    /// Who declared it.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.names[self.name_bytes as usize..]
    }

    /// The connection that it belongs to and goes with.
    #[must_use]
    pub fn exclusive(&self) -> Option<ConnectionId> {
        self.owner.map(Owner::connection)
    }

    /// The arguments as declared, and the type where the virtual host's default gave one.
    #[must_use]
    pub fn arguments(&self) -> TableRef<'_> {
        self.asked.as_ref().map_or(TableRef::default(), |asked| asked.arguments.as_ref())
    }

    /// What the arguments mean.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        self.asked.as_ref().map_or(&QueueSettings::PLAIN, |asked| &asked.settings)
    }
}

impl Owner {
    /// `None` for a number that no connection has.
    fn new(connection: ConnectionId) -> Option<Owner> {
        NonZeroU64::new(connection.0.wrapping_add(1)).map(Owner)
    }

    fn connection(self) -> ConnectionId {
        ConnectionId(self.0.get() - 1)
    }
}
