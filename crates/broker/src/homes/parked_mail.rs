//! What waits here for a queue that is on its way, and how it goes on.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lepus_base::{Body, Now, QueueId, ShardId};

use crate::channel::Target;
use crate::homes::HomeSide;
use crate::mail::{ChannelRef, Command, Mail, Receipt, Terms};
use crate::message::{Incoming, MessageView};
use crate::migration::{ParkedItem, ParkedMail};
use crate::outbox::Outbox;
use crate::postponed::{Few, Part};

impl HomeSide<'_> {
    /// Keeps a message for those of the queues it is for that are on their way and wanted by
    /// `which`; the other queues.
    pub(crate) fn set_aside(
        &mut self,
        incoming: &mut Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        which: impl Fn(&ParkedMail) -> bool,
    ) -> Vec<Target> {
        let mut others = Vec::with_capacity(targets.len());
        incoming.last = false;
        for target in targets {
            if self.homes.migrations.parked_mail(target.queue).is_some_and(&which) {
                let body = incoming.keep(&mut self.shard.pool);
                let bytes = incoming.bytes();
                self.park_mail(target.queue, ParkedItem::Message { body, bytes, terms });
            } else {
                others.push(*target);
            }
        }
        others
    }

    /// Keeps something for a queue that is on its way.
    pub(crate) fn park_mail(&mut self, queue: QueueId, item: ParkedItem) {
        let bytes = item.bytes(&self.shard.pool);
        if self.homes.migrations.park_mail(queue, item) {
            self.shard.parked_mail_bytes += bytes;
        }
    }

    /// Sends what waited here for a queue on to where that is. The home whose queue is to deliver, if that is here.
    pub(crate) fn send_parked_item(
        &mut self,
        now: Now,
        queue: QueueId,
        item: ParkedItem,
        postponed: &mut BTreeMap<ChannelRef, usize>,
        out: &mut Outbox,
    ) -> Option<u32> {
        self.shard.parked_mail_bytes -= item.bytes(&self.shard.pool);
        let home = self.directory.queue_by_id(queue).map(|info| info.home);
        match item {
            ParkedItem::Message { body, bytes, terms } => {
                self.send_message_on(now, (queue, home), (body, bytes, terms), postponed, out);
            }
            ParkedItem::Mail(Mail::Command { from, mut command, .. }) => match home {
                Some(home) if home != self.shard.id => {
                    if let Command::Subscribe { consumer, .. } = &mut command {
                        let limits = &self.shard.limits;
                        consumer.prefetch = limits.prefetch_elsewhere(consumer.prefetch);
                    }
                    out.mail[home.index()].items.push(Mail::Command { from, queue, command });
                }
                _ => return self.command_mailed(now, from, queue, command, out),
            },
            ParkedItem::Mail(Mail::Govern { consumer, on, .. }) => {
                self.govern(now, consumer, queue, on, out);
            }
            ParkedItem::Mail(_) => invariant!("nothing else waits for a queue on its way"),
        }
        None
    }

    /// A message that waited for a queue goes to where that is.
    fn send_message_on(
        &mut self,
        now: Now,
        (queue, home): (QueueId, Option<ShardId>),
        (body, bytes, terms): (Body, u32, Terms),
        postponed: &mut BTreeMap<ChannelRef, usize>,
        out: &mut Outbox,
    ) {
        match home {
            Some(home) if home == self.shard.id => {
                let targets = [Target { queue, home, slot: u32::MAX }].into();
                let few = Few { body, bytes, targets, terms, part: Part::Alone };
                self.enqueue_or_postpone(now, few, postponed, out);
            }
            Some(home) => {
                let batch = &mut out.mail[home.index()];
                let view = MessageView::unpack(self.shard.pool.get(body));
                let message = view.append_packed(&mut batch.bytes);
                batch.items.push(terms.mail(queue, message));
                self.shard.pool.release(body);
            }
            None => {
                race!("the queue was deleted on its way to another shard");
                self.shard.pool.release(body);
                if let Some((to, number)) = terms.confirm() {
                    self.shard.report_enqueued(to, number, 1, Receipt::Taken, out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use lepus_base::{Now, ShardId};

    use crate::broker::Broker;
    use crate::mail::{ChannelRef, Terms};
    use crate::outbox::Outbox;
    use crate::postponed::{Few, Part};
    use crate::postponed::{Postponed, Waits};
    use crate::settings::{Limits, Settings};
    use lepus_base::{ConnectionId, HashState, Instant};

    const NOW: Now = Now { instant: Instant(1), wall_millis: 1 };

    /// What came before its queue did was sent before what came later and has no room.
    #[test]
    fn what_waited_for_its_queue_is_in_front_of_what_waits_for_room() {
        let mut out = Outbox::new(1);
        let mut broker = Broker::new(Settings {
            shard: ShardId(0),
            shards: 1,
            nodes: Vec::new(),
            hash: HashState::new(1),
            node: "rabbit@localhost".into(),
            secret: [3; 32],
            server: Default::default(),
            limits: Limits::default(),
            store: None,
        });
        let from = ChannelRef { shard: ShardId(1), connection: ConnectionId(1), channel: 1 };
        let mut few = |number| {
            let terms =
                Terms { persistent: true, priority: number, expiration: None, from, number: None };
            let body = broker.shard.pool.insert(&[b"body"]);
            Few { body, bytes: 4, targets: Vec::new(), terms, part: Part::Alone }
        };
        let [without, first, second, later] = [0, 1, 2, 3].map(&mut few);
        broker.homes.postponed.push(Postponed::Few(later), Waits::Turn);
        // There is room for the first. One of those behind it found none, and the second does not overtake that.
        let mut postponed = BTreeMap::new();
        broker.home().enqueue_or_postpone(NOW, first, &mut postponed, &mut out);
        assert!(postponed.is_empty());
        postponed.insert(from, 1);
        broker.homes.postponed.insert(0, Postponed::Few(without), Waits::Turn);
        broker.home().enqueue_or_postpone(NOW, second, &mut postponed, &mut out);
        let order =
            core::iter::from_fn(|| broker.homes.postponed.pop(from)).map(|found| match found {
                Postponed::Few(few) => few.terms.priority,
                _ => 0,
            });
        assert_eq!(order.collect::<Vec<_>>(), [0, 2, 3]);
    }
}
