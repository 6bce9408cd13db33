//! What a shard answers to those who ask and order from outside.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use lepus_base::{Now, ShardId};

use crate::broker::Broker;
use crate::held::Held;
use crate::journal::OldestDelivery;
use crate::lists::Lists;
use crate::outbox::Outbox;
use crate::query::{Answer, Figures, Holdings, Query};

impl Broker {
    /// Somebody outside asks or orders something. The answer comes in `out.answers` under `number`: with a
    /// change of the directory later, with everything else at once.
    ///
    /// # Panics
    /// When another shard than 0 is to change the directory.
    pub fn query(&mut self, now: Now, number: u64, query: Query, out: &mut Outbox) {
        let answer = match query {
            Query::Change(request) => {
                assert!(self.shard.id == ShardId(0), "shard 0 orders the directory's changes");
                return self.request(now, number, &request, out);
            }
            Query::CloseConnection { connection, why } => {
                Answer::Ordered(self.close_connection(now, connection, &why, out))
            }
            Query::MoveConnection { connection, to, why } => {
                Answer::Ordered(self.move_connection(now, connection, to, &why, out))
            }
            Query::MoveQueue { queue, to, why } => {
                Answer::Ordered(self.move_queue(now, queue, to, &why, out))
            }
            Query::Traffic { connections_max, queues_max, with_idle } => Answer::Traffic {
                queues: self.queue_traffic(now, queues_max, with_idle),
                connections: self.talks(now, connections_max, with_idle),
            },
            Query::Alive => Answer::Alive,
            Query::Figures => Answer::Figures(Box::new(self.figures(now))),
            list @ (Query::Queues { .. }
            | Query::Connections(_)
            | Query::Exchanges { .. }
            | Query::Bindings { .. }
            | Query::Vhosts(_)
            | Query::Users(_)
            | Query::Permissions(_)
            | Query::TopicPermissions(_)
            | Query::Known { .. }) => self.lists().answer(list),
        };
        out.answers.push((number, answer));
        self.carry_own_mail(now, out);
    }

    fn lists(&self) -> Lists<'_> {
        Lists {
            shard: self.shard.id,
            homes: &self.homes.queues,
            connections: &self.connections.all,
            directory: &self.directory,
        }
    }

    /// The totals of this shard.
    #[must_use]
    pub fn figures(&self, now: Now) -> Figures {
        let oldest = self.oldest_delivery(now);
        Figures {
            counters: self.shard.counters,
            holdings: self.holdings(),
            logs: self.log_figures(),
            oldest: oldest.and_then(|delivery| self.lists().oldest(delivery)),
        }
    }

    /// The part of them that tells what there is.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let Held { channels, publishers, ready, unacked, consumers } = self.shard.held;
        Holdings {
            connections: self.connections.all.len() as u64,
            channels,
            consumers,
            publishers,
            queues: self.homes.queues.len() as u64,
            ready,
            unacked,
            delayed: self.homes.delayed.len() as u64,
            memory_bytes: self.shard.memory() as u64,
            memory_lent_bytes: self.shard.loan.bytes as u64,
            memory_alarm: self.is_short_of_memory(),
        }
    }

    /// The unacknowledged delivery that pins the oldest segment, as it was found last.
    #[must_use]
    pub fn oldest_delivery(&self, now: Now) -> Option<OldestDelivery> {
        let (position, queue) =
            self.homes.oldest.found().filter(|_| self.shard.held.unacked > 0)?;
        let home = self.homes.queues.get(self.homes.slot_of(queue, u32::MAX)? as usize)?;
        self.journal.delivery_at(now, home.log, position, queue)
    }

    /// A slice of the search for it.
    pub(crate) fn work_on_oldest(&mut self) {
        let homes = &self.homes.queues;
        let queue_at = |place| homes.get(place).map(|home| (home.id, &home.queue));
        self.homes.oldest.work(homes.capacity(), queue_at);
    }

    /// What differs between the sums that are kept and what a walk over everything finds, in words; for
    /// tests. To be called between two cycles.
    #[must_use]
    pub fn miscounted(&self) -> Option<String> {
        let (held, walked) = (self.shard.held, self.lists().held());
        (held != walked).then(|| format!("{held:?} is counted, there is {walked:?}"))
    }
}
