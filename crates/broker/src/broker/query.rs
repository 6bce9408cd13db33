//! What a shard answers to those who ask and order from outside.

use crate::broker::Broker;
use crate::held::Held;
use crate::journal::LogTroubles;
use crate::journal::OldestDelivery;
use crate::lists::Lists;
use crate::loan::Lender;
use crate::outbox::Outbox;
use crate::query::LogFigures;
use crate::query::{Answer, Figures, Holdings, Query};
use crate::traffic::{QueueTraffic, Talk};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use lepus_base::{Now, ShardId};

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

    /// Whether so much was done for what was received in this turn that no more is to be read before
    /// [`Broker::flush`]: what came already waits, and is asked for again then.
    #[must_use]
    pub fn has_read_enough(&self) -> bool {
        self.shard.effort.has_read_before()
    }

    /// Whether so much was done for mail of other shards, before anything was read in this turn, that the rest
    /// is to wait for the next one.
    #[must_use]
    pub fn has_taken_enough_mail(&self) -> bool {
        self.shard.effort.is_used_up()
    }

    /// How many queues were looked at, so far, to find out what room in the logs a message needs that found none at
    /// first. In a turn there are few of them, however many messages wait.
    #[must_use]
    pub fn looked_for_room(&self) -> u64 {
        self.shard.effort.looked_for_room()
    }

    /// What the logs that this shard drives are in trouble with.
    #[must_use]
    pub fn log_troubles(&self) -> LogTroubles {
        self.journal.troubles()
    }

    /// Figures of the logs that this shard drives.
    #[must_use]
    pub fn log_figures(&self) -> LogFigures {
        self.journal.figures()
    }

    /// Who lends memory; on shard 0 where there are several.
    #[must_use]
    pub fn lender(&self) -> Option<&Lender> {
        self.shard.lender.as_ref()
    }

    /// How many messages delayed exchanges hold back in memory on this shard.
    #[must_use]
    pub fn delayed_in_memory(&self) -> usize {
        self.homes.delayed.pooled()
    }

    /// Queues that got messages since they were looked at last: looks at up to `places_max`, those
    /// next that were not looked at this time. A queue is told from its second look on. If
    /// `with_idle`, all queues looked at are told.
    pub fn queue_traffic(
        &mut self,
        now: Now,
        places_max: usize,
        with_idle: bool,
    ) -> Vec<QueueTraffic> {
        let places = self.homes.queues.capacity();
        let mut found = Vec::new();
        for _ in 0..places_max.min(places) {
            let place = self.homes.queue_looks.next_place(places);
            let Some(home) = self.homes.queues.get(place) else {
                self.homes.queue_looks.forget(place);
                continue;
            };
            let (id, total) = (home.id, home.queue.totals().published);
            let messages = self.homes.queue_looks.look(now.instant, place, (id, total), with_idle);
            if let Some(messages) = messages {
                found.push(QueueTraffic {
                    queue: id,
                    movable: self.home().may_move(now, id),
                    messages,
                });
            }
        }
        found
    }

    /// What connections published since they were looked at last: looks at up to `slots_max`, those
    /// next that were not looked at this time. If `with_idle`, all connections looked at are told,
    /// and whether one may go is only known when it is sent.
    pub fn talks(&mut self, now: Now, slots_max: usize, with_idle: bool) -> Vec<Talk> {
        let own = self.shard.id;
        let slots = self.connections.all.capacity();
        let mut talks = Vec::new();
        for _ in 0..slots_max.min(slots) {
            self.connections.looked_at = if self.connections.looked_at + 1 < slots {
                self.connections.looked_at + 1
            } else {
                0
            };
            let Some(connection) = self.connections.all.get_mut(self.connections.looked_at) else {
                continue;
            };
            let to = connection.traffic.take(now.instant, own);
            if with_idle || !to.is_empty() {
                let most = to.iter().max_by_key(|(shard, count)| (*count, Reverse(*shard)));
                let movable = match most {
                    Some(&(shard, _)) if shard != own => connection.may_leave_to(shard),
                    _ => connection.may_leave(),
                };
                let movable = movable || with_idle;
                talks.push(Talk { connection: connection.id, movable, to });
            }
        }
        talks
    }
}
