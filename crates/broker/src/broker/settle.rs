//! How deliveries end: ack, nack, reject, recover, and requeueing of many in slices; and how the end
//! that a transaction meant for them does not come.

use lepus_base::Now;

use crate::broker::Broker;
use crate::channel::{Subscription, WaitsFor};
use crate::mail::consumer_key;
use crate::mail::{ChannelRef, Mail};
use crate::outbox::Outbox;

impl Broker {
    /// Lets consumers that wait for the channel's global prefetch go on.
    pub(crate) fn grant_credit(&mut self, now: Now, slot: u32, to: ChannelRef, out: &mut Outbox) {
        // Each consumer that waits gets at most one turn per call: a fair round.
        let own = self.shard.id;
        let turns = self
            .sessions
            .connection_at(slot, to.connection)
            .and_then(|connection| connection.incarnation(to.channel))
            .map_or(0, |channel| channel.waiting(WaitsFor::Credit));
        for _ in 0..turns {
            let Some(connection) = self.sessions.connection_at(slot, to.connection) else { return };
            let Some(channel) = connection.incarnation(to.channel) else { return };
            let Some(global) = channel.global.as_mut().filter(|global| global.has_room()) else {
                return;
            };
            let Some(all) = &mut channel.subscriptions else { return };
            let Some(number) = all.next_waiting(WaitsFor::Credit) else { return };
            let Subscription { queue, queue_slot, home, .. } = all.by_number[number as usize];
            let key = consumer_key(to, to.channel, number);
            if home == own {
                self.resume_here(now, queue, queue_slot, key, out);
            } else if global.limit == 0 {
                // Nothing governs it any more.
                all.ungoverned.insert(number);
                let mail = Mail::Govern { consumer: key, queue, on: false };
                out.mail[home.index()].items.push(mail);
            } else {
                global.granted += 1;
                let mail = Mail::GrantCredit { to: key, queue };
                out.mail[home.index()].items.push(mail);
            }
        }
    }

    /// Lets consumers go on that wait for room on a connection or on their channels, until there is
    /// none left on the connection: it says when there is again.
    pub(crate) fn resume_stalled(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let window = self.shard.limits.send_window_bytes;
        let shard = self.shard.id;
        let Some(connection) = self.sessions.connections.get_mut(slot as usize) else { return };
        let id = connection.id;
        let mut stalled = core::mem::take(&mut connection.stalled).into_iter();
        while let Some(channel) = stalled.next() {
            let to = ChannelRef { shard, connection: id, channel };
            let Some(connection) = self.sessions.connection_at(slot, id) else { return };
            for _ in 0..connection.unlist(channel) {
                let Some(connection) = self.sessions.connection_at(slot, id) else { return };
                if connection.send.len() >= window {
                    connection.list(channel);
                    return connection.stalled.extend(stalled);
                }
                let all =
                    connection.incarnation(channel).and_then(|one| one.subscriptions.as_mut());
                let Some(all) = all else { break };
                let Some(number) = all.next_waiting(WaitsFor::Room) else { break };
                let Subscription { queue, queue_slot, .. } = all.by_number[number as usize];
                let key = consumer_key(to, channel, number);
                self.resume_here(now, queue, queue_slot, key, out);
            }
        }
    }
}
