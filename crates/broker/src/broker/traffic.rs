//! What queues and connections had to do since they were looked at last.

use alloc::vec::Vec;
use core::cmp::Reverse;

use lepus_base::Now;

use crate::broker::Broker;
use crate::traffic::{QueueTraffic, Talk};

impl Broker {
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
