//! Publish sequence numbers, what queues and logs report of them, and the confirms that follow.

use crate::channel::At;
use crate::channel::confirm::Confirmation;
use crate::connections::mark_dirty;
use crate::mail::ChannelRef;
use crate::mail::{COMMIT_NUMBER, Receipt};
use crate::outbox::Outbox;
use crate::session::{Answer, Done};
use crate::sessions::SessionSide;
use lepus_base::Now;

impl SessionSide<'_> {
    /// Confirms and commits at the end of a cycle.
    pub(crate) fn flush_confirms(&mut self, now: Now, out: &mut Outbox) {
        let mut listed = self.connections.follow_ups().take_confirming();
        for (slot, key) in listed.drain(..) {
            let Some(connection) = self.connections.get_mut(slot) else {
                race!("the connection closed before its confirms were sent");
                continue;
            };
            let (number, is_silent) = (key as u16, connection.is_silent);
            let Some(channel) =
                connection.channels.get_mut(number).filter(|channel| channel.key == key)
            else {
                race!("the channel closed before its confirms were sent");
                continue;
            };
            let silent = channel.ending.is_some() || is_silent;
            if let Some(committing) = &mut channel.committing {
                if committing.is_committed() {
                    let channel = ChannelRef {
                        shard: self.shard.id,
                        connection: connection.id,
                        channel: key,
                    };
                    let at = At { slot, channel, vhost: connection.vhost };
                    if self.commit_settles(now, at, out) {
                        continue;
                    }
                    let Some(channel) = self.connections.channel_at(at) else {
                        invariant!("a channel that was just found is there")
                    };
                    channel.committing = None;
                    channel.pending = None;
                    self.say(at, &Answer::Done(Done::Committed), out);
                    self.go_on(now, at, out);
                }
                continue;
            }
            let Some(confirms) = &mut channel.confirms else {
                race!("the transaction is over, as its client heard before");
                continue;
            };
            confirms.listed = false;
            let (mut wrote, mut confirmed) = (false, 0);
            while let Some(confirmation) = confirms.pop() {
                if silent {
                    continue;
                }
                wrote = true;
                let (last, count, is_taken) = match confirmation {
                    Confirmation::Ack { number, count } => (number, count, true),
                    Confirmation::Nack(number) => (number, 1, false),
                };
                self.shard.counters.confirmed += count;
                confirmed += if is_taken { count } else { 0 };
                let bytes = &mut connection.send.bytes;
                connection.session.confirm(number, last, is_taken, count > 1, bytes);
            }
            let is_resized = confirms.take_resized();
            channel.counts.confirmed += confirmed;
            connection.unsummed.counts().confirmed += confirmed;
            if is_resized {
                connection.account_channel(key);
            }
            if wrote {
                mark_dirty(connection, slot, out);
            }
        }
        self.connections.follow_ups().give_back(listed);
    }

    /// Takes the next publish number of a channel that confirms; a commit has one for all.
    pub(crate) fn next_number(&mut self, at: At) -> Option<u64> {
        let connection = &mut self.connections[at.slot];
        let channel = connection.incarnation(at.channel.channel)?;
        if channel.committing.is_some() {
            return Some(COMMIT_NUMBER);
        }
        Some(channel.confirms.as_mut()?.take_number())
    }

    /// A publish that needs a number and waits for nobody.
    pub(crate) fn account(&mut self, at: At) {
        let number = self.next_number(at);
        self.open_number(at, number, 0, Receipt::Taken);
    }

    pub(crate) fn open_number(
        &mut self,
        at: At,
        number: Option<u64>,
        missing: u32,
        receipt: Receipt,
    ) {
        let Some(number) = number else { return };
        let slot = at.slot;
        let connection = &mut self.connections[slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays while it publishes")
        };
        if let Some(committing) = &mut channel.committing {
            committing.expect(number, missing);
            committing.report(number, number, 0, receipt);
            return;
        }
        let Some(confirms) = &mut channel.confirms else {
            invariant!("who was given a number waits for a confirm")
        };
        self.shard.counters.received_confirm += 1;
        confirms.open(number, missing, receipt);
        if !confirms.listed {
            confirms.listed = true;
            self.connections.follow_ups().confirm(slot, at.channel.channel);
        }
    }

    /// Queues on other shards, the last slice of a fan-out, or a log report publishes.
    pub(crate) fn publish_reported(
        &mut self,
        to: ChannelRef,
        (first, last): (u64, u64),
        queues: u32,
        receipt: Receipt,
    ) {
        let Some((slot, connection)) = self.connections.connection(to.connection, u32::MAX) else {
            return race!("the connection closed before its publish was reported");
        };
        let Some(channel) = connection.incarnation(to.channel) else {
            return race!("the channel closed before its publish was reported");
        };
        if let Some(committing) = &mut channel.committing {
            committing.report(first, last, queues, receipt);
        } else if let Some(confirms) = &mut channel.confirms {
            confirms.report(first, last, queues, receipt);
            if confirms.listed {
                return;
            }
            confirms.listed = true;
        } else {
            return race!("the transaction was given up before its publish was reported");
        }
        let key = channel.key;
        self.connections.follow_ups().confirm(slot, key);
    }

    /// More reports of a publish are to come than were counted.
    pub(crate) fn expect_reports(&mut self, to: ChannelRef, number: u64, more: u32) {
        let Some((_, connection)) = self.connections.connection(to.connection, u32::MAX) else {
            return race!("the connection closed while its publish was on its way");
        };
        let Some(channel) = connection.incarnation(to.channel) else {
            return race!("the channel closed while its publish was on its way");
        };
        let Some(confirms) = channel.committing.as_mut().or(channel.confirms.as_mut()) else {
            return race!("the transaction was given up while its publish was on its way");
        };
        confirms.expect(number, more);
    }

    /// Confirms that came up since [`SessionSide::flush_confirms`] in the same turn.
    pub(crate) fn flush_confirms_left(&mut self, now: Now, out: &mut Outbox) {
        if self.connections.follow_ups().has_confirms() {
            self.flush_confirms(now, out);
        }
    }
}
