//! What is decided, sent to all shards and applied there.

use crate::binding::Destination;
use crate::exchange::ExchangeInfo;
use crate::policy::{Policy, PolicyScope};
use crate::queue_info::QueueInfo;
use crate::router::Prepared;
use crate::user::{PasswordHash, UserLimits};
use crate::vhost::{VhostLimits, VhostMetadata};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_amqp::table::TableBytes;
use lepus_base::{QueueId, VhostId};

/// The answer to a request that is not refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// Everything is as wished; the queue that was to be declared.
    Already(Option<QueueId>),
    /// This has to be applied.
    Change(Change),
}

/// A decided change. Applying it cannot fail; where its object is gone it does nothing.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the requests")]
pub enum Change {
    /// Ids below these were used, by what is gone too.
    IdsUsed { vhosts: u32, queues: u64 },
    /// An exchange appears; or one that is there and lacks it gets the id of what it holds back.
    ExchangeDeclared(Box<ExchangeInfo>),
    /// An exchange goes, and its bindings with it: very many of them in slices.
    ExchangeDeleted { vhost: VhostId, name: Box<str> },
    /// A queue appears.
    QueueDeclared(Arc<QueueInfo>),
    /// A queue goes, and its bindings with it: very many of them in slices.
    QueueDeleted { id: QueueId },
    /// A queue goes to the shard and the log of that number, under another id: what is still said of
    /// the old one means the queue that was.
    QueueMoved { id: QueueId, new_id: QueueId, log: u16 },
    /// A binding appears.
    Bound(Box<BindingChange>),
    /// A binding goes.
    Unbound(Box<BindingChange>),
    /// A virtual host appears, with the exchanges that all have.
    VhostCreated { id: VhostId, name: Box<str>, metadata: VhostMetadata },
    /// A virtual host is described anew.
    VhostDescribed { id: VhostId, metadata: VhostMetadata },
    /// A virtual host is limited.
    VhostLimited { id: VhostId, limits: VhostLimits },
    /// A virtual host goes with all that is in it: at once for everybody who asks, its memory in slices.
    VhostDeleted { id: VhostId },
    /// A slice is gone of what was in a virtual host, or bound to a queue or an exchange, that was
    /// deleted.
    Cleared,
    /// In a log only: what deletes itself by the next change stands in records that follow.
    InParts,
    /// A user appears or changes.
    UserPut { name: Box<str>, password: PasswordHash, tags: Vec<Box<str>> },
    /// A user goes with all permissions.
    UserDeleted { name: Box<str> },
    /// A user is limited.
    UserLimited { name: Box<str>, limits: UserLimits },
    /// A user gets rights. The patterns were compiled by the check.
    PermissionSet {
        user: Box<str>,
        vhost: VhostId,
        configure: Box<str>,
        write: Box<str>,
        read: Box<str>,
    },
    /// A user loses rights.
    PermissionCleared { user: Box<str>, vhost: VhostId },
    /// A user's routing keys are restricted. The patterns were compiled by the check.
    TopicPermissionSet {
        user: Box<str>,
        vhost: VhostId,
        exchange: Box<str>,
        write: Box<str>,
        read: Box<str>,
    },
    /// Restrictions of a user's routing keys go.
    TopicPermissionCleared { user: Box<str>, vhost: VhostId, exchange: Option<Box<str>> },
    /// A policy appears or changes. What it means for queues and exchanges that are there the shards find out in
    /// slices.
    PolicySet { vhost: VhostId, scope: PolicyScope, policy: Arc<Policy> },
    /// A policy goes.
    PolicyCleared { vhost: VhostId, scope: PolicyScope, name: Box<str> },
    /// A parameter of a part of the broker appears or changes: JSON text.
    ParameterSet { vhost: VhostId, component: Box<str>, name: Box<str>, value: Arc<str> },
    /// A parameter of a part of the broker goes.
    ParameterCleared { vhost: VhostId, component: Box<str>, name: Box<str> },
    /// A parameter of the whole broker appears or changes: JSON text.
    GlobalParameterSet { name: Box<str>, value: Arc<str> },
    /// A parameter of the whole broker goes.
    GlobalParameterCleared { name: Box<str> },
}

impl Change {
    /// The id that the change uses up, for a queue or for what an exchange holds back.
    #[must_use]
    pub fn used_id(&self) -> Option<QueueId> {
        match self {
            Change::ExchangeDeclared(info) => info.holding,
            _ => self.queue_id(),
        }
    }

    /// The queue that the change gives an id to.
    #[must_use]
    pub fn queue_id(&self) -> Option<QueueId> {
        match self {
            Change::QueueDeclared(info) => Some(info.id),
            Change::QueueMoved { new_id, .. } => Some(*new_id),
            _ => None,
        }
    }
}

impl Change {
    /// Whether it carries a filter that was read, which may take a megabyte.
    #[must_use]
    pub fn carries_filter(&self) -> bool {
        match self {
            Change::Bound(binding) | Change::Unbound(binding) => binding.filter.is_some(),
            _ => false,
        }
    }

    /// Whether what appears by the change survives a restart. What goes has to be looked at in the
    /// directory: see [`Directory::durable_part`].
    ///
    /// [`Directory::durable_part`]: crate::Directory::durable_part
    #[must_use]
    pub fn is_durable(&self) -> bool {
        match self {
            Change::ExchangeDeclared(info) => info.durable,
            Change::QueueDeclared(info) => info.durable,
            // Who reads of the deletion takes everything out at once.
            Change::Cleared => false,
            _ => true,
        }
    }
}

/// A binding that comes or goes.
#[derive(Clone, Debug, PartialEq)]
pub struct BindingChange {
    /// Where.
    pub vhost: VhostId,
    /// The exchange that messages come from.
    pub source: Box<str>,
    /// What they go to.
    pub destination: Destination,
    /// The key, pattern or weight.
    pub routing_key: Box<str>,
    /// The arguments, sorted by name.
    pub arguments: TableBytes,
    /// The filter in the arguments, where it was read already.
    pub filter: Prepared,
}

/// What followed from a change, beyond the directory itself.
#[derive(Debug, Default, PartialEq)]
pub struct Applied {
    /// Queues that appeared.
    pub queues_created: Vec<QueueId>,
    /// Queues that went.
    pub queues_deleted: Vec<Arc<QueueInfo>>,
    /// The queue that went to another shard, as it was, and its id there.
    pub queue_moved: Option<(Arc<QueueInfo>, QueueId)>,
    /// Exchanges that went, those that deleted themselves among them.
    pub exchanges_deleted: Vec<(VhostId, Box<str>)>,
    /// Places that exchanges had which are quite gone: others may have them from now on.
    pub exchange_places_freed: Vec<u32>,
    /// What was in the deleted virtual host, or bound to the deleted queue or exchange, goes in slices:
    /// [`Directory::clearing`] has grown by one.
    ///
    /// [`Directory::clearing`]: crate::Directory::clearing
    pub goes_in_slices: bool,
    /// What a slice cost, in looks at places.
    pub looks: usize,
    /// Exchanges that lost their last binding and delete themselves, but have to be deleted by a
    /// request each, before any other request.
    pub exchanges_left: Vec<(VhostId, Box<str>)>,
    /// Ids of what exchanges that went had held back.
    pub holdings_dropped: Vec<QueueId>,
    /// The virtual host that went: its connections have to be closed.
    pub vhost_deleted: Option<VhostId>,
    /// The user that went: the user's connections have to be closed.
    pub user_deleted: Option<Box<str>>,
    /// The virtual host whose policies changed.
    pub policies_changed: Option<VhostId>,
    /// Somebody's rights changed.
    pub permissions_changed: bool,
}
