//! Answers to a channel's pending question, from a queue's home or from the directory, and what
//! else other shards tell a channel.

use lepus_base::{Now, QueueId};

use crate::broker::Broker;
use crate::mail::Origin;
use crate::outbox::Outbox;
use crate::refusal::Refusal;

impl Broker {
    /// The directory's answer to whoever asked it.
    pub(crate) fn pass_answer(
        &mut self,
        now: Now,
        origin: Origin,
        result: Result<Option<QueueId>, Refusal>,
        out: &mut Outbox,
    ) {
        match (origin, result) {
            (Origin::Home { queue, .. }, Ok(_)) => self.home().deletion_over(queue, out),
            (Origin::Home { queue, .. }, Err(refusal)) => {
                self.home().deletion_refused(now, queue, &refusal, out);
            }
            (Origin::Migration { .. }, Ok(_)) => {}
            (Origin::Migration { queue, .. }, Err(_)) => {
                self.home().migration_refused(now, queue, out)
            }
            (origin, result) => self.session().on_answer(now, origin, result, out),
        }
    }
}
