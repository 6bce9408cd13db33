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

use lepus_base::{ConnectionId, HashMap, HashState, Now, ShardId, VhostId};

use crate::broker::Broker;
use crate::mail::Mail;
use crate::outbox::Outbox;

/// Connections by vhost and by user.
#[derive(Debug)]
pub struct Census {
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

impl Census {
    /// Nobody is there.
    #[must_use]
    pub fn new(hash: HashState) -> Census {
        Census {
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
        self.passed_limit(vhost, user, 1)
    }

    /// Which limit `more` connections of the user in the vhost would pass, beside those there are.
    fn passed_limit(&self, vhost: VhostId, user: &str, more: u64) -> Option<String> {
        let surplus = |is_meant: &dyn Fn(&Newcomer) -> bool| {
            self.census.surplus.iter().filter(|one| is_meant(one)).count() as u64
        };
        let info = self.directory.vhost_info(vhost)?;
        if let Some(limit) = info.limits.connections_max {
            let left =
                self.census.of_vhost(vhost).saturating_sub(surplus(&|one| one.vhost == vhost));
            if left + more > limit {
                return Some(format!(
                    "access to vhost '{}' refused for user '{user}': connection limit ({limit}) is \
                     reached",
                    info.name
                ));
            }
        }
        let limit = u64::from(self.directory.user(user)?.limits.connections_max?);
        let left = self.census.of_user(user).saturating_sub(surplus(&|one| *one.user == *user));
        (left + more > limit).then(|| {
            format!(
                "connection refused for user '{user}': user connection limit ({limit}) is reached"
            )
        })
    }

    /// Counts a connection that opened its vhost, or one that ends, here and on all other shards.
    pub(crate) fn count_connection(
        &mut self,
        connection: ConnectionId,
        (vhost, user): (VhostId, &str),
        came: bool,
        out: &mut Outbox,
    ) {
        self.census.count(vhost, user, came);
        self.census.surplus.retain(|one| came || one.connection != connection);
        let others = (0..self.settings.shards).map(ShardId);
        for shard in others.filter(|&shard| shard != self.edge.shard) {
            let mail = Mail::ConnectionCounted { connection, vhost, user: user.into(), came };
            out.mail[shard.index()].items.push(mail);
        }
    }

    /// A connection opened its vhost on another shard, or ends there.
    pub(crate) fn connection_counted(
        &mut self,
        connection: ConnectionId,
        vhost: VhostId,
        user: Box<str>,
        came: bool,
    ) {
        self.census.count(vhost, &user, came);
        if self.edge.shard != ShardId(0) {
            return;
        }
        if came && self.passed_limit(vhost, &user, 0).is_some() {
            self.census.newcomers.push(Newcomer { connection, vhost, user });
        } else if !came {
            self.census.surplus.retain(|one| one.connection != connection);
            self.census.newcomers.retain(|one| one.connection != connection);
        }
    }

    /// Closes connections that opened on several shards at once and are too many, the newest first.
    /// At the end of a cycle, when all is counted that was said: one that ended may have been told
    /// behind one that came for it.
    pub(crate) fn close_surplus(&mut self, now: Now, out: &mut Outbox) {
        while let Some(newcomer) = self.census.newcomers.pop() {
            let passed = self.passed_limit(newcomer.vhost, &newcomer.user, 0);
            let Some(text) = passed else { continue };
            let connection = newcomer.connection;
            self.census.surplus.push(newcomer);
            // It may be between two shards.
            for shard in (1..self.settings.shards).map(ShardId) {
                let text = text.as_str().into();
                out.mail[shard.index()].items.push(Mail::CloseConnection { connection, text });
            }
            self.close_connection(now, connection, &text, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Directory, Request, VhostLimits, VhostRef};
    use crate::settings::{Limits, Settings};

    const NOW: Now = Now { instant: lepus_base::Instant(1), wall_millis: 1 };

    /// Shard 0 of three, with room for two connections.
    fn shard_0(out: &mut Outbox) -> (Broker, VhostId) {
        let mut broker = Broker::new(Settings {
            shard: ShardId(0),
            shards: 3,
            nodes: Vec::new(),
            hash: lepus_base::HashState::new(1),
            secret: [3; 32],
            server: Default::default(),
            limits: Limits::default(),
            store: None,
        });
        broker.preset(NOW, &Directory::preset("guest", b"guest", [7; 4], "/"), out);
        let limits = VhostLimits { connections_max: Some(2), ..VhostLimits::default() };
        let vhost = VhostRef::Name("/".into());
        broker.request(NOW, 1, &Request::SetVhostLimits { vhost, limits }, out);
        let vhost = broker.directory.vhost("/").expect("it is preset");
        (broker, vhost)
    }

    /// Connections that shard 2 is to close, at the end of a cycle.
    fn closed(broker: &mut Broker, out: &mut Outbox) -> Vec<u64> {
        broker.flush(NOW, out);
        let closed = out.mail[2].items.iter().filter_map(|mail| match mail {
            Mail::CloseConnection { connection, .. } => Some(connection.0),
            _ => None,
        });
        let closed = closed.collect();
        out.mail[2].items.clear();
        closed
    }

    #[test]
    fn the_newest_of_those_that_did_not_see_each_other_are_closed() {
        let mut out = Outbox::new(3);
        let (mut broker, vhost) = shard_0(&mut out);
        let tell = |broker: &mut Broker, id, came| {
            broker.connection_counted(ConnectionId(id), vhost, "guest".into(), came);
        };
        (1..=4).for_each(|id| tell(&mut broker, id, true));
        assert_eq!(closed(&mut broker, &mut out), [4, 3]);
        // While these are about to end, another one may take the place of one that has.
        tell(&mut broker, 1, false);
        tell(&mut broker, 5, true);
        assert_eq!(closed(&mut broker, &mut out), [0; 0]);
        [3, 4].into_iter().for_each(|id| tell(&mut broker, id, false));
        tell(&mut broker, 6, true);
        assert_eq!(closed(&mut broker, &mut out), [6]);
    }

    #[test]
    fn one_that_ended_may_be_told_behind_the_one_that_came_for_it() {
        let mut out = Outbox::new(3);
        let (mut broker, vhost) = shard_0(&mut out);
        for (id, came) in [(1, true), (2, true), (3, true), (1, false)] {
            broker.connection_counted(ConnectionId(id), vhost, "guest".into(), came);
        }
        assert_eq!(closed(&mut broker, &mut out), [0; 0]);
    }
}
