//! How many connections each vhost and each user has, on all shards together, for the operator's
//! limits.
//!
//! Every shard counts for itself what all shards tell it, so that an open needs no question.
//! Connections that open on different shards at the same moment do not see each other yet. Shard 0
//! sees all of them in one order, and closes those that were too many.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, HashMap, HashState, VhostId};

use crate::directory::Directory;

/// Connections by vhost and by user.
#[derive(Debug)]
pub struct ConnectionCounts {
    vhosts: HashMap<VhostId, u64>,
    users: HashMap<Box<str>, u64>,
    /// On shard 0: connections of other shards that came in this cycle and have a limit to keep, in
    /// the order in which they came.
    newcomers: Vec<Newcomer>,
    /// On shard 0: those of them that are to be closed and still count.
    surplus: Vec<Newcomer>,
}

/// A connection that opened its vhost on another shard.
#[derive(Debug)]
struct Newcomer {
    connection: ConnectionId,
    vhost: VhostId,
    user: Box<str>,
}

impl ConnectionCounts {
    /// Nobody is there.
    #[must_use]
    pub fn new(hash: HashState) -> ConnectionCounts {
        ConnectionCounts {
            vhosts: HashMap::with_hasher(hash),
            users: HashMap::with_hasher(hash),
            newcomers: Vec::new(),
            surplus: Vec::new(),
        }
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

    /// Why one more connection of the user may not open the vhost, if so.
    pub(crate) fn over_limit(
        &self,
        directory: &Directory,
        vhost: VhostId,
        user: &str,
    ) -> Option<String> {
        self.passed_limit(directory, vhost, user, 1)
    }

    /// Which limit `more` connections of the user in the vhost would pass, beside those there are.
    fn passed_limit(
        &self,
        directory: &Directory,
        vhost: VhostId,
        user: &str,
        more: u64,
    ) -> Option<String> {
        let surplus = |is_meant: &dyn Fn(&Newcomer) -> bool| {
            self.surplus.iter().filter(|one| is_meant(one)).count() as u64
        };
        let info = directory.vhost_info(vhost)?;
        if let Some(limit) = info.limits.connections() {
            let left = self.of_vhost(vhost).saturating_sub(surplus(&|one| one.vhost == vhost));
            if left + more > limit {
                return Some(format!(
                    "access to vhost '{}' refused for user '{user}': connection limit ({limit}) is \
                     reached",
                    info.name
                ));
            }
        }
        let limit = directory.user(user)?.limits.connections()?;
        let left = self.of_user(user).saturating_sub(surplus(&|one| *one.user == *user));
        (left + more > limit).then(|| {
            format!(
                "connection refused for user '{user}': user connection limit ({limit}) is reached"
            )
        })
    }

    /// Counts a connection of this shard that opened its vhost, or one that ends.
    pub(crate) fn count_own(
        &mut self,
        connection: ConnectionId,
        (vhost, user): (VhostId, &str),
        came: bool,
    ) {
        self.count(vhost, user, came);
        self.surplus.retain(|one| came || one.connection != connection);
    }

    /// Counts a connection that opened its vhost on another shard, or ends there. Shard 0 knows by the directory
    /// whether it came for one too many.
    pub(crate) fn count_other(
        &mut self,
        connection: ConnectionId,
        (vhost, user): (VhostId, Box<str>),
        came: bool,
        of_shard_0: Option<&Directory>,
    ) {
        self.count(vhost, &user, came);
        let Some(directory) = of_shard_0 else { return };
        if came && self.passed_limit(directory, vhost, &user, 0).is_some() {
            self.newcomers.push(Newcomer { connection, vhost, user });
        } else if !came {
            self.surplus.retain(|one| one.connection != connection);
            self.newcomers.retain(|one| one.connection != connection);
        }
    }

    /// The newest of the connections that opened on several shards at once and are too many, and why it is closed. To be
    /// asked at the end of a cycle, when all is counted that was said: one that ended may have been told behind one
    /// that came for it.
    pub(crate) fn next_surplus(&mut self, directory: &Directory) -> Option<(ConnectionId, String)> {
        while let Some(newcomer) = self.newcomers.pop() {
            let passed = self.passed_limit(directory, newcomer.vhost, &newcomer.user, 0);
            let Some(text) = passed else { continue };
            let connection = newcomer.connection;
            self.surplus.push(newcomer);
            return Some((connection, text));
        }
        None
    }

    /// A connection came or went.
    fn count(&mut self, vhost: VhostId, user: &str, came: bool) {
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
