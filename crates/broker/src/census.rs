//! How many connections each vhost and each user has, on all shards together, for the operator's
//! limits.
//!
//! Every shard counts for itself what all shards tell it, so that an open needs no question.
//! Connections that open on different shards at the same moment do not see each other yet: a
//! limit may be passed by as many.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use lepus_base::{HashMap, HashState, ShardId, VhostId};

use crate::broker::Broker;
use crate::mail::Mail;
use crate::outbox::Outbox;

/// Connections by vhost and by user.
#[derive(Debug)]
pub struct Census {
    vhosts: HashMap<VhostId, u64>,
    users: HashMap<Box<str>, u64>,
}

impl Census {
    /// Nobody is there.
    #[must_use]
    pub fn new(hash: HashState) -> Census {
        Census { vhosts: HashMap::with_hasher(hash), users: HashMap::with_hasher(hash) }
    }

    /// Connections of a vhost.
    #[must_use]
    pub fn of_vhost(&self, vhost: VhostId) -> u64 {
        self.vhosts.get(&vhost).copied().unwrap_or(0)
    }

    /// Connections of a user.
    #[must_use]
    pub fn of_user(&self, user: &str) -> u64 {
        self.users.get(user).copied().unwrap_or(0)
    }

    /// A connection came or went.
    pub(crate) fn count(&mut self, vhost: VhostId, user: &str, came: bool) {
        if came {
            *self.vhosts.entry(vhost).or_default() += 1;
            match self.users.get_mut(user) {
                Some(count) => *count += 1,
                None => {
                    self.users.insert(user.into(), 1);
                }
            }
            return;
        }
        if let Some(count) = self.vhosts.get_mut(&vhost) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.vhosts.remove(&vhost);
            }
        }
        if let Some(count) = self.users.get_mut(user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.users.remove(user);
            }
        }
    }
}

impl Broker {
    /// Why one more connection of the user may not open the vhost, if so.
    pub(crate) fn over_limit(&self, vhost: VhostId, user: &str) -> Option<String> {
        let info = self.directory.vhost_info(vhost)?;
        let limit = info.limits.connections_max;
        if let Some(limit) = limit.filter(|&limit| self.census.of_vhost(vhost) >= limit) {
            return Some(format!(
                "access to vhost '{}' refused for user '{user}': connection limit ({limit}) is \
                 reached",
                info.name
            ));
        }
        let limit = self.directory.user(user)?.limits.connections_max.map(u64::from);
        let limit = limit.filter(|&limit| self.census.of_user(user) >= limit)?;
        Some(format!(
            "connection refused for user '{user}': user connection limit ({limit}) is reached"
        ))
    }

    /// Counts a connection that opened its vhost, or one that ends, here and on all other shards.
    pub(crate) fn count_connection(
        &mut self,
        vhost: VhostId,
        user: &str,
        came: bool,
        out: &mut Outbox,
    ) {
        self.census.count(vhost, user, came);
        let others = (0..self.settings.shards).map(ShardId);
        for shard in others.filter(|&shard| shard != self.edge.shard) {
            let mail = Mail::ConnectionCounted { vhost, user: user.into(), came };
            out.mail[shard.index()].items.push(mail);
        }
    }
}
