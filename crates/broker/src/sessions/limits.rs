//! The operator's limits: what this shard tells the others of its connections and channels, and what they tell it.

use alloc::boxed::Box;
use alloc::string::String;

use lepus_base::{ConnectionId, ShardId, VhostId};

use crate::mail::Mail;
use crate::outbox::Outbox;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// Counts a connection that opened its vhost, or one that ends, here and on all other shards.
    pub(crate) fn count_connection(
        &mut self,
        connection: ConnectionId,
        (vhost, user): (VhostId, &str),
        came: bool,
        out: &mut Outbox,
    ) {
        self.sessions.connection_counts.count_own(connection, (vhost, user), came);
        out.tell_others(self.shard.id, || Mail::ConnectionCounted {
            connection,
            vhost,
            user: user.into(),
            came,
        });
    }

    /// A connection opened its vhost on another shard, or ends there.
    pub(crate) fn connection_counted(
        &mut self,
        connection: ConnectionId,
        vhost: VhostId,
        user: Box<str>,
        came: bool,
    ) {
        let of_shard_0 = (self.shard.id == ShardId(0)).then_some(&*self.directory);
        self.sessions.connection_counts.count_other(connection, (vhost, user), came, of_shard_0);
    }

    /// Why the user may not open one more channel on the connection in `slot`, if so.
    pub(crate) fn over_channel_limit(&mut self, slot: u32) -> Option<String> {
        self.connections.over_channel_limit(self.directory, slot)
    }

    /// Tells the other shards of users with a limit whose channels here have changed.
    #[cold]
    pub(crate) fn tell_channels(&mut self, out: &mut Outbox) {
        if !self.connections.user_channels().has_changed() {
            return;
        }
        for (user, channels) in self.connections.user_channels().take_changed() {
            let found = self.directory.user(&user);
            if found.is_some_and(|user| user.limits.channels().is_some()) {
                out.tell_others(self.shard.id, || Mail::ChannelsCounted {
                    user: user.clone(),
                    channels,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::query::Query;
    use alloc::vec::Vec;

    use lepus_base::{ConnectionId, Now, ShardId, VhostId};

    use crate::broker::Broker;
    use crate::directory::{Directory, Request, VhostLimits, VhostRef};
    use crate::mail::Mail;
    use crate::outbox::Outbox;
    use crate::settings::{Limits, Settings};

    const NOW: Now = Now { instant: lepus_base::Instant(1), wall_millis: 1 };

    /// Shard 0 of three, with room for two connections.
    fn shard_0(out: &mut Outbox) -> (Broker, VhostId) {
        let mut broker = Broker::new(Settings {
            shard: ShardId(0),
            shards: 3,
            nodes: Vec::new(),
            hash: lepus_base::HashState::new(1),
            node: "rabbit@localhost".into(),
            secret: [3; 32],
            server: Default::default(),
            limits: Limits::default(),
            store: None,
        });
        broker.preset(NOW, &Directory::preset("guest", b"guest", [7; 4], "/"), out);
        let limits = VhostLimits { connections_max: Some(2), ..VhostLimits::default() };
        let vhost = VhostRef::Name("/".into());
        let change = Query::Change(Request::SetVhostLimits { vhost, limits });
        broker.query(NOW, 1, change, out);
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
            broker.session().connection_counted(ConnectionId(id), vhost, "guest".into(), came);
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
            broker.session().connection_counted(ConnectionId(id), vhost, "guest".into(), came);
        }
        assert_eq!(closed(&mut broker, &mut out), [0; 0]);
    }
}
