//! What every owner of a part of a shard's state is asked.

use lepus_base::QueueId;

use crate::journal::Journal;
use crate::mail::MailBatch;
use crate::outbox::Outbox;
use crate::settings::Limits;

/// What decides whether owners get on with what they have.
pub(crate) struct Conditions<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) out: &'a Outbox,
    pub(crate) limits: &'a Limits,
    /// Bytes of what waits here for queues on their way to other shards.
    pub(crate) parked_mail_bytes: usize,
    /// Whether the answer to whether there is more memory is to come.
    pub(crate) awaits_loan: bool,
    /// Whether the broker is about to stop.
    pub(crate) is_stopping: bool,
}

impl Conditions<'_> {
    /// Whether the mail to no shard is longer than this, in bytes.
    fn mail_is_below(&self, bytes: usize) -> bool {
        self.out.mail.iter().map(MailBatch::weight).all(|weight| weight <= bytes)
    }

    /// Whether publishes and commits that are served in slices go on: neither the mail nor a log lags.
    pub(crate) fn jobs_go_on(&self) -> bool {
        !self.journal.is_behind() && self.mail_is_below(self.limits.mail_batch_bytes_max)
    }

    /// Whether so little mail waits that messages may be passed on: dead letters, and those that were delayed.
    pub(crate) fn may_pass_on(&self) -> bool {
        self.mail_is_below(2 * self.limits.mail_batch_bytes_max)
    }

    /// Whether so little mail waits that publishers may be read again, and no answer about memory.
    pub(crate) fn may_read_again(&self) -> bool {
        let low = self.limits.mail_batch_bytes_max / 2;
        self.parked_mail_bytes <= low && self.mail_is_below(low) && !self.awaits_loan
    }
}

/// One owner of a part of the shard's state.
pub(crate) trait Owner {
    /// Whether it would get on with something now, in [`crate::Broker::work`] or [`crate::Broker::flush`].
    fn has_work(&self, _conditions: &Conditions<'_>) -> bool {
        false
    }

    /// Whether it holds something that was taken and has yet to come into a queue, here or on another shard, and
    /// that is gone if the process ends now.
    fn owes(&self) -> bool {
        false
    }

    /// Whether it holds something that changes logs when it goes on: they are not closed before.
    fn changes_logs(&self) -> bool {
        self.owes()
    }

    /// Whether it holds mail of other shards that has yet to be applied.
    fn holds_mail(&self) -> bool {
        false
    }

    /// Whether something that it holds waits for room in a log.
    fn waits_for_room(&self) -> bool {
        false
    }

    /// Whether it holds something of this queue, or for it, with which the queue cannot go to another shard.
    fn has_of(&self, _queue: QueueId) -> bool {
        false
    }
}
