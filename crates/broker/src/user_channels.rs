//! How many channels each user has open, on all shards together, for the operator's limit.
//!
//! Every shard counts the channels of its own connections. It tells the others how many a user has
//! here, once per cycle in which that changed, as long as the user has a limit. So an open needs no
//! question; channels that open on several shards within one cycle do not see each other yet, and
//! may pass the limit by those.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{HashMap, HashState, ShardId};

use crate::connection::Connection;
use crate::directory::Directory;

/// Channels of one user.
#[derive(Debug, Default)]
struct Counts {
    here: u64,
    /// Of other shards, as far as they told; none is 0.
    elsewhere: Vec<(ShardId, u64)>,
    /// Whether the user is in the list of changes.
    is_listed: bool,
}

/// Channels by user.
#[derive(Debug)]
pub struct UserChannels {
    users: HashMap<Box<str>, Counts>,
    /// Users of whom the other shards may have to be told, each once.
    changed: Vec<Box<str>>,
}

impl UserChannels {
    /// Nobody has any.
    #[must_use]
    pub fn new(hash: HashState) -> UserChannels {
        UserChannels { users: HashMap::with_hasher(hash), changed: Vec::new() }
    }

    /// A connection of the user that had `before` channels here has `after`.
    pub(crate) fn adjust(&mut self, user: &str, before: usize, after: usize) {
        let counts = self.listed(user);
        counts.here = counts.here + after as u64 - before as u64;
    }

    /// Has the other shards told how many channels the user has here.
    pub(crate) fn note(&mut self, user: &str) {
        self.listed(user);
    }

    fn listed(&mut self, user: &str) -> &mut Counts {
        let counts = self.users.entry(user.into()).or_default();
        if !counts.is_listed {
            counts.is_listed = true;
            self.changed.push(user.into());
        }
        counts
    }

    /// Another shard has so many channels of the user.
    pub(crate) fn set_elsewhere(&mut self, user: &str, shard: ShardId, channels: u64) {
        let counts = self.users.entry(user.into()).or_default();
        counts.elsewhere.retain(|(other, _)| *other != shard);
        if channels > 0 {
            counts.elsewhere.push((shard, channels));
        }
        self.forget_if_none(user);
    }

    fn forget_if_none(&mut self, user: &str) {
        let is_none =
            |counts: &Counts| counts.here == 0 && counts.elsewhere.is_empty() && !counts.is_listed;
        if self.users.get(user).is_some_and(is_none) {
            self.users.remove(user);
        }
    }

    /// Whether the other shards may have to be told of anybody.
    #[inline]
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Channels of a user on all shards, as far as it is known here.
    #[must_use]
    pub fn of(&self, user: &str) -> u64 {
        self.users.get(user).map_or(0, |counts| {
            counts.here + counts.elsewhere.iter().map(|(_, channels)| channels).sum::<u64>()
        })
    }

    /// Why the user may not open one more channel on this connection, if so.
    pub(crate) fn over_limit(
        &self,
        directory: &Directory,
        connection: &Connection,
    ) -> Option<String> {
        let user = &*connection.user;
        let limit = directory.user(user)?.limits.channels()?;
        // Of this connection those count that are open now.
        let open =
            self.of(user) + connection.channels.len() as u64 - connection.counted_channels as u64;
        (open >= limit).then(|| {
            format!(
                "number of channels opened for user '{user}' has reached the maximum allowed user \
                 limit of ({limit})"
            )
        })
    }

    /// Users of whom something changed here, and how many channels they have here now.
    pub(crate) fn take_changed(&mut self) -> Vec<(Box<str>, u64)> {
        let changed = core::mem::take(&mut self.changed);
        let tell = |user: Box<str>| {
            let counts = self.users.get_mut(&*user)?;
            counts.is_listed = false;
            let here = counts.here;
            self.forget_if_none(&user);
            Some((user, here))
        };
        changed.into_iter().filter_map(tell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_told_is_replaced_and_forgotten() {
        let mut channels = UserChannels::new(HashState::new(1));
        channels.adjust("ann", 0, 3);
        channels.set_elsewhere("ann", ShardId(1), 4);
        channels.set_elsewhere("ann", ShardId(2), 5);
        channels.set_elsewhere("ann", ShardId(1), 1);
        assert_eq!((channels.of("ann"), channels.of("bob")), (9, 0));
        assert_eq!(channels.take_changed(), [("ann".into(), 3)]);
        channels.adjust("ann", 3, 1);
        channels.adjust("ann", 0, 1);
        assert_eq!(channels.take_changed(), [("ann".into(), 2)], "once");
        channels.adjust("ann", 2, 0);
        channels.set_elsewhere("ann", ShardId(1), 0);
        channels.set_elsewhere("ann", ShardId(2), 0);
        assert_eq!(channels.take_changed(), [("ann".into(), 0)], "the others have to know");
        assert!(channels.users.is_empty());
    }
}
