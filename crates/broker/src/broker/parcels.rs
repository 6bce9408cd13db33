//! What waits here for a queue that is on its way, and how it goes on.

use alloc::collections::BTreeMap;

use lepus_base::{Now, QueueId};

use crate::broker::Broker;
use crate::mail::{Command, Mail};
use crate::migration::{Parcel, Rest};
use crate::outbox::Outbox;

impl Broker {
    /// A queue stays where it was, or is gone: what waited for it goes on.
    pub(crate) fn rest_over(&mut self, now: Now, queue: QueueId, out: &mut Outbox) {
        if let Some(rest) = self.homes.migrations.end_rest(queue) {
            self.send_rest_on(now, rest, queue, out);
        }
    }

    pub(crate) fn send_rest_on(&mut self, now: Now, rest: Rest, queue: QueueId, out: &mut Outbox) {
        let home = self.directory.queue_by_id(queue).map(|info| info.home);
        let is_here = home == Some(self.shard.id);
        // Of each channel, what found no room.
        let mut postponed = BTreeMap::new();
        for parcel in rest.into_parcels() {
            self.shard.resting_bytes -= parcel.bytes(&self.shard.pool);
            match parcel {
                Parcel::Message { body, bytes, terms } => {
                    let message = (body, bytes, terms);
                    self.home().send_message_on(now, (queue, home), message, &mut postponed, out);
                }
                Parcel::Mail(Mail::Command { from, mut command, .. }) => match home {
                    Some(home) if !is_here => {
                        if let Command::Subscribe { consumer, .. } = &mut command {
                            let limits = &self.shard.limits;
                            consumer.prefetch = limits.prefetch_elsewhere(consumer.prefetch);
                        }
                        let mail = Mail::Command { from, queue, command };
                        out.mail[home.index()].items.push(mail);
                    }
                    _ => self.command_mailed(now, from, queue, command, out),
                },
                Parcel::Mail(Mail::Govern { consumer, on, .. }) => {
                    self.home().govern(now, consumer, queue, on, out);
                }
                // Nothing else waits.
                Parcel::Mail(_) => {}
            }
        }
    }
}
