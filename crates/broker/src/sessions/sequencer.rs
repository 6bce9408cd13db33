//! The directory's changes: shard 0 orders them, every shard applies them.

use lepus_base::QueueId;

use crate::channel::At;
use crate::mail::{Command, Mail};
use crate::outbox::Outbox;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// Asks the home of a queue; the channel's pending question must be set before.
    pub(crate) fn ask_home(&self, at: At, queue: QueueId, command: Command, out: &mut Outbox) {
        out.own.push(Mail::Command { from: at.channel, queue, command });
    }
}
