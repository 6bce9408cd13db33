//! What mail from other shards means.

use core::ops::Range;

use lepus_base::{Body, ConnectionId, Now, ShardId};

use crate::broker::Broker;
use crate::mail::{ChannelRef, Mail, MailBatch};
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::queue::Enqueued;

impl Broker {
    /// Mail from another shard. The batch is left empty.
    pub fn mail(&mut self, now: Now, from: ShardId, batch: &mut MailBatch, out: &mut Outbox) {
        self.edge.now = now;
        let bytes = core::mem::take(&mut batch.bytes);
        let mut items = core::mem::take(&mut batch.items);
        let mut mails = items.drain(..).peekable();
        // The packed message that several queues of this shard get, once for all of them.
        let mut shared: Option<(Range<u32>, Body)> = None;
        while let Some(mail) = mails.next() {
            if let Mail::Enqueue { message, .. } = &mail {
                let goes_on = matches!(
                    mails.peek(),
                    Some(Mail::Enqueue { message: next, .. }) if next == message
                );
                self.share(&mut shared, message, goes_on, &bytes);
            }
            let body = shared.as_ref().map(|(_, body)| *body);
            self.on_mail(now, from, mail, &bytes, body, out);
        }
        drop(mails);
        if let Some((_, body)) = shared {
            self.edge.pool.release(body);
        }
        batch.items = items;
        batch.bytes = bytes;
        batch.clear();
        self.settle_down(now, out);
    }

    /// Stores a message if the next item of the batch is for the same one, unless it is stored.
    fn share(
        &mut self,
        shared: &mut Option<(Range<u32>, Body)>,
        message: &Range<u32>,
        goes_on: bool,
        bytes: &[u8],
    ) {
        if shared.as_ref().is_some_and(|(range, _)| range == message) {
            return;
        }
        if let Some((_, body)) = shared.take() {
            self.edge.pool.release(body);
        }
        if goes_on {
            let body = packed(bytes, message.clone()).pack(&mut self.edge.pool);
            *shared = Some((message.clone(), body));
        }
    }

    /// A direct reply for a channel of this shard: delivered, or returned to its publisher.
    fn reply_mailed(
        &mut self,
        to: ChannelRef,
        view: &MessageView<'_>,
        from: ChannelRef,
        number: Option<u64>,
        mandatory: bool,
        out: &mut Outbox,
    ) {
        let delivered = self.deliver_reply(to, view, out);
        let batch = &mut out.mail[from.shard.index()];
        if !delivered && mandatory {
            // Ahead of the report: a return precedes its confirm.
            let message = view.append_packed(&mut batch.bytes);
            batch.items.push(Mail::ReturnReply { to: from, message });
        }
        if let Some(number) = number {
            report(batch, from, number, false);
        }
    }

    fn on_mail(
        &mut self,
        now: Now,
        from: ShardId,
        mail: Mail,
        bytes: &[u8],
        shared: Option<Body>,
        out: &mut Outbox,
    ) {
        match mail {
            Mail::Enqueue { queue, message, persistent, priority, expiration, confirm } => {
                let view = packed(bytes, message);
                let mut incoming = match shared {
                    None => Incoming::new(view),
                    Some(body) => {
                        self.edge.pool.retain(body);
                        Incoming::from_body(body, view.body.len() as u32)
                    }
                };
                incoming.persistent = persistent;
                incoming.priority = priority;
                incoming.expiration = expiration.map(core::time::Duration::from_millis);
                incoming.last = true;
                let mut refused = false;
                if let Some(slot) = self.home_slot(queue, u32::MAX) {
                    if persistent {
                        self.log.append(view.body.len());
                    }
                    refused = self.with_queue(now, slot, out, |queue, sink| {
                        queue.enqueue(now, &mut incoming, sink)
                    }) == Enqueued::Rejected;
                    self.pump(now, slot, out);
                }
                incoming.finish(&mut self.edge.pool);
                if let Some((to, number)) = confirm {
                    report(&mut out.mail[to.shard.index()], to, number, refused);
                }
            }
            Mail::Enqueued { to, first, last, refused } => {
                self.publish_reported(to, first, last, refused);
            }
            Mail::Command { from, queue, command } => self.command(now, from, queue, command, out),
            Mail::Reply { to, queue, reply } => {
                self.on_mailed_reply(now, from, to, queue, reply, bytes, out)
            }
            Mail::Settle { queue, slot, sequence, outcome } => {
                if let Some(home) =
                    self.settle_home(now, queue, u32::MAX, slot, sequence, outcome, out)
                {
                    self.pump(now, home, out);
                }
            }
            Mail::Hold { queue, on } => self.hold_home(now, queue, on, out),
            Mail::Deliver { .. } => self.on_delivery(from, &mail, bytes, out),
            Mail::DeliverReply { to, message, from, number, mandatory } => {
                let view = packed(bytes, message);
                self.reply_mailed(to, &view, from, number, mandatory, out);
            }
            Mail::ReturnReply { to, message } => {
                self.return_reply(to, &packed(bytes, message), out);
            }
            Mail::FindReplyConsumer { of, from } => self.find_reply_consumer(now, of, from, out),
            Mail::ConsumerCancelled { to, queue } => self.consumer_cancelled(now, to, queue, out),
            Mail::Window { connection, bytes } => self.window_returned(now, connection, bytes, out),
            Mail::WantCredit { to, queue } => self.credit_wanted(now, to, queue, from, out),
            Mail::GrantCredit { to, queue } => self.credit_granted(now, to, queue, from, out),
            Mail::ReturnCredit { to } => self.credit_returned(now, to, out),
            Mail::Govern { consumer, queue, on } => {
                if let Some(remote) = self.edge.remote_consumers.get_mut(&consumer) {
                    remote.governed = on;
                    remote.wanted = false;
                    self.resume_consumer(now, queue, u32::MAX, consumer, out);
                }
            }
            Mail::MemoryShort(true) => {
                if !self.edge.short_shards.contains(&from) {
                    self.edge.short_shards.push(from);
                }
            }
            Mail::MemoryShort(false) => self.edge.short_shards.retain(|&shard| shard != from),
            Mail::ConnectionCounted { vhost, user, came } => {
                self.census.count(vhost, &user, came);
            }
            Mail::ConnectionGone(id) => {
                self.edge.remote_windows.remove(&id);
            }
            Mail::Ask { origin, request } => self.sequence(now, origin, *request, out),
            Mail::Answer { origin, result } => self.on_answer(now, origin, result, out),
            Mail::CloseConnection { connection, text } => {
                self.close_connection(now, connection, &text, out);
            }
        }
    }

    fn window_returned(&mut self, now: Now, id: ConnectionId, bytes: u64, out: &mut Outbox) {
        let Some(window) = self.edge.remote_windows.get_mut(&id) else { return };
        window.room += bytes as i64;
        if window.room <= 0 {
            return;
        }
        for (queue, key) in core::mem::take(&mut window.stalled) {
            self.resume_consumer(now, queue, u32::MAX, key, out);
        }
    }
}

/// The message that an item's range points at.
pub(crate) fn packed(bytes: &[u8], range: core::ops::Range<u32>) -> MessageView<'_> {
    MessageView::unpack(bytes.get(range.start as usize..range.end as usize).unwrap_or_default())
}

/// Reports a publish; neighbours of one channel with the same outcome share an item.
fn report(batch: &mut MailBatch, to: ChannelRef, number: u64, refused: bool) {
    if let Some(Mail::Enqueued { to: same, last, refused: same_outcome, .. }) =
        batch.items.last_mut()
        && *same == to
        && *last + 1 == number
        && *same_outcome == refused
    {
        *last = number;
        return;
    }
    batch.items.push(Mail::Enqueued { to, first: number, last: number, refused });
}
