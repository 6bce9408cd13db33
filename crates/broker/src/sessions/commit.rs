//! `tx.commit`: what a transaction held is published and settled, whole or in slices.

use lepus_base::Now;

use crate::channel::unacked::Unacked;
use crate::channel::{At, Pending};
use crate::jobs::Commit;
use crate::mail::{COMMIT_NUMBER, Receipt};
use crate::outbox::Outbox;
use crate::refusal::Refusal;
use crate::session::Asked;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// Nothing more of a commit is done.
    pub(crate) fn refuse_commit(
        &mut self,
        now: Now,
        commit: Commit,
        refusal: &Refusal,
        out: &mut Outbox,
    ) {
        let at = commit.at();
        self.undo(commit);
        self.fail_channel(now, at, refusal, Asked::Commit, out);
    }

    /// A channel ends: its commit does not happen unless it has begun. Then the end waits for it.
    pub(crate) fn give_commit_up(&mut self, at: At) {
        if let Some(commit) = self.shard.jobs.take_unbegun(at.channel) {
            self.undo(*commit);
        }
    }

    /// Nothing more of a commit will be done.
    pub(crate) fn undo(&mut self, commit: Commit) {
        let at = commit.at();
        let settles = self.shard.jobs.undo_commit(commit);
        let connection = &mut self.sessions.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        channel.pending = None;
        channel.committing = None;
        // The channel ends, with what its transaction was to settle.
        let tx = channel.tx.get_or_insert_default();
        let bytes = settles.len() * size_of::<Unacked>();
        (tx.settles, tx.bytes) = (settles, tx.bytes + bytes);
        connection.tx_bytes += bytes;
    }

    /// All of a commit is done; it is answered when all reports are there.
    pub(crate) fn finish_commit(&mut self, now: Now, at: At, out: &mut Outbox) {
        let connection = &mut self.sessions.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        if channel.ending.is_some() {
            channel.pending = None;
            return self.go_on(now, at, out);
        }
        self.set_pending(at, Pending::Committed);
        let number = (COMMIT_NUMBER, COMMIT_NUMBER);
        self.publish_reported(at.channel, number, 1, Receipt::Taken);
    }
}
