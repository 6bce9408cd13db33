//! Mail for the sessions: replies and deliveries of homes, answers of the directory, what shards tell of connections.

use lepus_base::{Now, QueueId, ShardId};

use crate::mail::{ChannelRef, Command, Mail};
use crate::message::packed;
use crate::migration::ParkedItem;
use crate::outbox::Outbox;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// Mail of the shard `from`, which may be this one; `bytes` are those of its batch.
    pub(crate) fn mail(
        &mut self,
        now: Now,
        from: ShardId,
        mail: Mail,
        bytes: &[u8],
        out: &mut Outbox,
    ) {
        match mail {
            Mail::ExpectReports { to, number, more } => self.expect_reports(to, number, more),
            Mail::Enqueued { to, first, last, queues, receipt } => {
                self.publish_reported(to, (first, last), queues, receipt);
            }
            Mail::Reply { to, queue, reply } => {
                self.on_mailed_reply(now, from, to, queue, reply, bytes, out);
            }
            Mail::PublishesWait { channel, on } => self.publishes_wait(channel, on),
            Mail::Deliver { .. } => self.on_delivery(now, from, &mail, bytes, out),
            Mail::DeliverReply { .. } => self.reply_mailed(&mail, bytes, out),
            Mail::ReturnReply { to, message } => {
                self.return_reply(to, &packed(bytes, message), out);
            }
            Mail::FindReplyConsumer { of, from } => self.find_reply_consumer(of, from, out),
            Mail::ConsumerCancelled { to, queue } => self.consumer_cancelled(to, queue, out),
            Mail::WantCredit { to, queue } => self.credit_wanted(now, to, queue, from, out),
            Mail::ReturnCredit { to } => self.credit_returned(now, to, out),
            Mail::Answer { origin, result } => self.on_answer(now, origin, result, out),
            Mail::MoveBarrier { connection, number } => {
                self.move_barrier(from, connection, number, out);
            }
            Mail::MovePassed { number, .. } => self.sessions.departures.passed(number),
            Mail::ConsumersDetached { number } => self.sessions.departures.detached(number),
            Mail::ConnectionCounted { connection, vhost, user, came } => {
                self.connection_counted(connection, vhost, user, came);
            }
            Mail::ChannelsCounted { user, channels } => {
                self.connections.user_channels().set_elsewhere(&user, from, channels);
            }
            Mail::Tapped(tapped) => self.publish_copy(now, &tapped, out),
            Mail::CloseConnection { connection, text } => {
                self.close_connection(now, connection, &text, out);
            }
            other => panic!("{other:?} is not for sessions"),
        }
    }

    /// A channel of this shard asks the home of a queue, wherever that is. The home whose queue is to deliver then,
    /// if that is here.
    pub(crate) fn pass_command(
        &mut self,
        now: Now,
        from: ChannelRef,
        queue: QueueId,
        command: Command,
        out: &mut Outbox,
    ) -> Option<u32> {
        let own = self.shard.id;
        let home = self.directory.queue_by_id(queue).map_or(own, |info| info.home);
        // A consumer that ends takes no more of what is to be gone before its queue leaves.
        let is_end = matches!(command, Command::Cancel(..));
        let rests = self.homes.parked_mail(queue).is_some_and(|rest| !is_end || rest.is_expected());
        if (rests || home != own)
            && let Some((_, connection)) = self.connections.connection(from.connection, u32::MAX)
        {
            connection.note_shard(home);
        }
        if rests {
            self.home().park_mail(queue, ParkedItem::Mail(Mail::Command { from, queue, command }));
        } else if home == own {
            return self.home().command(now, from, queue, command, out);
        } else {
            out.mail[home.index()].items.push(Mail::Command { from, queue, command });
        }
        None
    }
}
