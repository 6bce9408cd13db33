//! Queues on their way to other shards, and what waits for them.

use crate::broker::Broker;
use crate::channel::Target;
use crate::directory::QueueInfo;
use crate::mail::Command;
use crate::mail::Mail;
use crate::migration::{Parcel, Rest};
use crate::outbox::Outbox;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use lepus_base::{Now, QueueId};

impl Broker {
    /// The directory gave a queue another home and another id.
    pub(crate) fn queue_moved(
        &mut self,
        now: Now,
        info: &Arc<QueueInfo>,
        id: QueueId,
        out: &mut Outbox,
    ) {
        let Some(to) = self.directory.queue_by_id(id).map(|info| info.home) else { return };
        let target = Target { queue: id, home: to, slot: u32::MAX };
        self.shard.jobs.redirect(info.id, target, self.shard.id);
        self.session().redirect_consumers(info, (id, to), out);
        if let Some(rest) = self.home().queue_moved(now, info, (id, to), out) {
            self.send_rest_on(now, rest, id, out);
        }
    }

    /// A queue stays where it was, or is gone: what waited for it goes on.
    pub(crate) fn end_rest(&mut self, now: Now, queue: QueueId, out: &mut Outbox) {
        if let Some(rest) = self.homes.end_rest(queue) {
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
                    _ => {
                        if let Some(home) =
                            self.home().command_mailed(now, from, queue, command, out)
                        {
                            self.carry_own_mail(now, out);
                            self.home().dispatch_ready(now, home, out);
                        }
                    }
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
