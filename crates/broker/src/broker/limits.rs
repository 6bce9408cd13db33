//! The operator's limits: what this shard tells the others of its connections and channels, and what they tell it.

use lepus_base::{Now, ShardId};

use crate::broker::Broker;
use crate::mail::Mail;
use crate::outbox::Outbox;

impl Broker {
    /// Closes connections that opened on several shards at once and are too many, the newest first.
    pub(crate) fn close_surplus(&mut self, now: Now, out: &mut Outbox) {
        while let Some((connection, text)) = self.connections.census.next_surplus(&self.directory) {
            // It may be between two shards.
            out.tell_others(ShardId(0), || Mail::CloseConnection {
                connection,
                text: text.as_str().into(),
            });
            self.close_connection(now, connection, &text, out);
        }
    }
}
