//! Queues that the balancer sends to another shard, while nothing is in them.
//!
//! A migration goes through these stages. All shards are told that the queue leaves: from then on
//! what they have for it, publishes and questions alike, waits where it is said; their answers come
//! behind everything that they said before. The queue delivers what it has until nothing is left,
//! unacknowledged or under way. All shards are asked once more, so that the last deliveries have
//! arrived. The log is synced: where its messages went, as dead letters or by a transaction, must be
//! on the disk before what the log says of the queue counts no more. Then the directory gives the
//! queue another home and another id, so that nothing that is still said or logged of the old one
//! can mean the new one. Every shard sends on what waited there when it hears of that; the old home
//! sends the queue itself, with its consumers, and the new one lets everything wait until it has
//! come.
//!
//! So messages of a publisher stay in order, nothing is lost and nothing comes twice. What waits is
//! bounded by time and, since publishers are not read while it is much, in bytes. A migration that
//! takes too long is given up.
//!
//! When the definitions log fails before it has synced the new id, the queue stays, and nobody can
//! say whether the next start will know it by the old id or the new one. Persistent messages would
//! be lost with the other one: they are refused from then on.

mod rest;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{Instant, Now, Position, QueueId, ShardId};
use lepus_store::disk::LogId;

pub(crate) use self::rest::{Parcel, Rest};
use crate::broker::Broker;
use crate::channel::{Subscriptions, Target};
use crate::directory::{QueueInfo, Request};
use crate::edge::RemoteConsumer;
use crate::home::Home;
use crate::journal::NO_LOG;
use crate::mail::{Mail, MovingQueue, Origin};
use crate::outbox::{Outbox, Severity};
use crate::owner::Owner;
use crate::queue::ConsumerKey;

/// How long a queue may take to become still: what is published meanwhile waits.
const PATIENCE: Duration = Duration::from_millis(50);
/// Queues on their way out of one shard at the same time.
const MIGRATIONS_MAX: usize = 8;
/// Messages in a queue, unacknowledged ones included, with which it is not asked to leave.
const MESSAGES_MAX: u64 = 1024;
/// How long a queue is left alone where it came to.
const STAY: Duration = Duration::from_secs(10);
/// How long one is left alone that did not become empty: each time publishers had to wait for it.
const STAY_BUSY: Duration = Duration::from_secs(60);
/// Queues of which that is remembered.
const STAYING_MAX: usize = 64;

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So many shards may still have something under way for the queue.
    Quieting(u32),
    /// The queue delivers what it has.
    Draining,
    /// To so many shards deliveries may still be under way.
    Passing(u32),
    /// The log has yet to be synced up to here.
    Syncing(Position),
    /// The directory is asked.
    Asked,
}

/// A queue on its way out.
#[derive(Debug)]
struct Leaving {
    slot: u32,
    id: QueueId,
    to: ShardId,
    why: Box<str>,
    /// Tells answers from those to earlier questions.
    number: u64,
    /// Until then it may take.
    until: Instant,
    stage: Stage,
}

/// All queues on their way out of a shard, and what waits here for those of any shard.
#[derive(Debug, Default)]
pub(crate) struct Migrations {
    resting: BTreeMap<QueueId, Rest>,
    leaving: Vec<Leaving>,
    /// Queues that are left alone, and until when.
    staying: VecDeque<(QueueId, Instant)>,
    count: u64,
}

impl Migrations {
    /// Whether no queue is on its way, as far as is known here.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.resting.is_empty()
    }

    /// The same, with those that are only about to leave this shard.
    fn is_any_on_its_way(&self) -> bool {
        !self.is_idle() || !self.leaving.is_empty()
    }

    /// What waits here for a queue that is on its way.
    pub(crate) fn rests(&self, queue: QueueId) -> Option<&Rest> {
        self.resting.get(&queue)
    }

    /// Whether some queue is on its way to this shard.
    pub(crate) fn expects_any(&self) -> bool {
        self.resting.values().any(Rest::is_expected)
    }

    /// Whether a queue is on its way out of this shard.
    pub(crate) fn leaves(&self, queue: QueueId) -> bool {
        self.leaving.iter().any(|leaving| leaving.id == queue)
    }

    /// The earliest moment at which a migration is to be given up.
    pub(crate) fn next_timeout(&self) -> Instant {
        let open = self.leaving.iter().filter(|leaving| leaving.stage != Stage::Asked);
        open.map(|leaving| leaving.until).min().unwrap_or(Instant::NEVER)
    }

    /// A queue is left alone for some time.
    fn let_stay(&mut self, queue: QueueId, until: Instant) {
        if self.staying.len() == STAYING_MAX {
            self.staying.pop_front();
        }
        self.staying.push_back((queue, until));
    }

    /// A shard has nothing under way any more.
    pub(crate) fn is_quiet(&mut self, number: u64) {
        let found = self.leaving.iter_mut().find(|leaving| leaving.number == number);
        if let Some(Leaving { stage: Stage::Quieting(left) | Stage::Passing(left), .. }) = found {
            *left = left.saturating_sub(1);
        }
    }
}

impl Owner for Migrations {
    fn owes(&self) -> bool {
        self.is_any_on_its_way()
    }

    fn changes_logs(&self) -> bool {
        !self.is_idle()
    }

    fn holds_mail(&self) -> bool {
        !self.is_idle()
    }
}

impl Broker {
    /// Has a queue go to another shard, for the reason `why`, which the log tells. False if it is
    /// not here or does not go: it belongs to a connection, has many messages, is on its way or
    /// about to be deleted, too many others are on their way, or the broker stops.
    pub fn move_queue(
        &mut self,
        now: Now,
        id: QueueId,
        to: ShardId,
        why: &str,
        out: &mut Outbox,
    ) -> bool {
        self.edge.now = now;
        let is_full = self.migrations.leaving.len() >= MIGRATIONS_MAX;
        let Some(slot) = self.home_slot(id, u32::MAX) else { return false };
        if self.stopping || !self.may_send_to(to) || is_full || !self.is_free(id, slot) {
            return false;
        }
        self.migrations.resting.insert(id, Rest::default());
        let (number, left) = self.tell_leaving(id, out);
        self.migrations.leaving.push(Leaving {
            slot,
            id,
            to,
            why: why.into(),
            number,
            until: now.instant + PATIENCE,
            stage: Stage::Quieting(left),
        });
        true
    }

    /// Whether nothing speaks against an order to a queue to go to another shard: it could, and
    /// neither came nor failed to go lately.
    pub(crate) fn may_move(&self, now: Now, id: QueueId) -> bool {
        let stays = |(queue, until): &(QueueId, Instant)| *queue == id && *until > now.instant;
        let is_free = |slot| self.is_free(id, slot);
        !self.migrations.staying.iter().any(stays)
            && self.home_slot(id, u32::MAX).is_some_and(is_free)
    }

    fn is_free(&self, id: QueueId, slot: u32) -> bool {
        let home = &self.homes[slot as usize];
        self.directory.queue_by_id(id).is_some_and(|info| info.exclusive().is_none())
            && !home.is_dying()
            && self.migrations.rests(id).is_none()
            && home.queue.ready() + home.queue.unacked() <= MESSAGES_MAX
    }

    /// Whether some queue is on its way, as far as is known here.
    #[must_use]
    pub fn has_migrations(&self) -> bool {
        self.migrations.is_any_on_its_way()
    }

    /// Tells all other shards that a queue is about to leave. The number of the question, and how
    /// many have to answer it.
    fn tell_leaving(&mut self, queue: QueueId, out: &mut Outbox) -> (u64, u32) {
        self.migrations.count += 1;
        let number = self.migrations.count;
        self.tell_others(|| Mail::QueueLeaves { queue, number }, out);
        (number, u32::from(self.settings.shards) - 1)
    }

    fn tell_others(&self, mail: impl Fn() -> Mail, out: &mut Outbox) {
        let shards = (0..self.settings.shards).map(ShardId);
        for shard in shards.filter(|&shard| shard != self.edge.shard) {
            out.mail[shard.index()].items.push(mail());
        }
    }

    /// A queue of another shard is about to leave it.
    pub(crate) fn queue_leaves(
        &mut self,
        from: ShardId,
        queue: QueueId,
        number: u64,
        out: &mut Outbox,
    ) {
        if self.directory.queue_by_id(queue).is_some_and(|info| info.home == from) {
            self.migrations.resting.entry(queue).or_default();
        }
        out.mail[from.index()].items.push(Mail::QueueQuiet { number });
    }

    /// Brings migrations forward, at the end of a cycle.
    pub(crate) fn migrate(&mut self, now: Now, out: &mut Outbox) {
        for mut leaving in core::mem::take(&mut self.migrations.leaving) {
            let home = self.homes.get(leaving.slot as usize);
            let Some(home) = home.filter(|home| home.id == leaving.id) else { continue };
            let is_late = now.instant >= leaving.until || self.stopping || home.is_dying();
            if leaving.stage != Stage::Asked && is_late {
                self.give_migration_up(now, &leaving, out);
                continue;
            }
            if leaving.stage == Stage::Quieting(0) {
                leaving.stage = Stage::Draining;
            }
            if leaving.stage == Stage::Draining && self.is_still(&leaving) {
                let (number, left) = self.tell_leaving(leaving.id, out);
                (leaving.number, leaving.stage) = (number, Stage::Passing(left));
            }
            let log = self.homes[leaving.slot as usize].log;
            if leaving.stage == Stage::Passing(0) {
                leaving.stage = match self.journal.want_synced(log) {
                    _ if !self.is_still(&leaving) => Stage::Draining,
                    Some(end) => Stage::Syncing(end),
                    None => Stage::Syncing(Position(0)),
                };
            }
            let is_synced = match leaving.stage {
                Stage::Syncing(end) => self.journal.is_synced(log, end),
                _ => false,
            };
            if is_synced {
                leaving.stage = Stage::Asked;
            }
            let (id, to) = (leaving.id, leaving.to);
            self.migrations.leaving.push(leaving);
            if is_synced {
                let origin = Origin::Migration { shard: self.edge.shard, queue: id };
                self.ask_directory(now, origin, Request::MoveQueue { id, to }, out);
            }
        }
    }

    /// Whether nothing of a queue is here but itself and its consumers.
    fn is_still(&self, leaving: &Leaving) -> bool {
        let id = leaving.id;
        let queue = &self.homes[leaving.slot as usize].queue;
        let detached = &self.edge.detached;
        let is_detached = |key: &ConsumerKey| detached.contains(&key.connection);
        queue.is_still()
            // A connection is about to come to it.
            && (detached.is_empty() || !queue.consumers().any(|(_, one, _)| is_detached(&one.key)))
            && !self.has_of(id)
    }

    fn give_migration_up(&mut self, now: Now, leaving: &Leaving, out: &mut Outbox) {
        let (own, queue) = (self.edge.shard, leaving.id);
        let name = self.describe_queue(queue);
        let text =
            format!("{name}: stays on shard {own}, was to go to {} ({})", leaving.to, leaving.why);
        out.log(Severity::Info, "queue-stays", text);
        self.edge.counters.moves_given_up += 1;
        self.migrations.let_stay(queue, now.instant + STAY_BUSY);
        self.tell_others(|| Mail::QueueStays { queue }, out);
        self.rest_over(now, queue, out);
        if let Some(slot) = self.home_slot(queue, leaving.slot) {
            self.pump(now, slot, out);
        }
    }

    /// The directory does not let a queue move.
    pub(crate) fn migration_refused(&mut self, now: Now, queue: QueueId, out: &mut Outbox) {
        let found = self.migrations.leaving.iter().position(|leaving| leaving.id == queue);
        if let Some(place) = found {
            let leaving = self.migrations.leaving.swap_remove(place);
            self.give_migration_up(now, &leaving, out);
        }
    }

    /// Tells a queue's home that its move is in the failed definitions log, synced or not.
    pub(crate) fn tell_undecided(&mut self, home: ShardId, queue: QueueId, out: &mut Outbox) {
        if home == self.edge.shard {
            self.take_log_from(queue, out);
        } else {
            out.mail[home.index()].items.push(Mail::QueueUndecided { queue });
        }
    }

    /// Nobody knows under which of two ids the next start will find a queue, so nothing is logged
    /// for it any more. It is empty: what it had has left its log.
    pub(crate) fn take_log_from(&mut self, queue: QueueId, out: &mut Outbox) {
        let Some(slot) = self.home_slot(queue, u32::MAX) else { return };
        let home = &mut self.homes[slot as usize];
        if !home.queue.is_durable() {
            // Nothing of it is found again anyway.
            return;
        }
        home.log = NO_LOG;
        let name = self.describe_queue(queue);
        let text = format!(
            "{name}: takes no persistent messages until the next start, which finds out whether \
             the disk has its move to another shard"
        );
        out.log(Severity::Error, "queue-undecided", text);
    }

    /// A channel's global prefetch limit starts or ceases to govern a consumer of another shard.
    pub(crate) fn govern(
        &mut self,
        now: Now,
        consumer: ConsumerKey,
        queue: QueueId,
        on: bool,
        out: &mut Outbox,
    ) {
        if let Some(remote) = self.edge.remote_consumers.get_mut(&consumer) {
            remote.governed = on;
            remote.wanted = false;
            self.resume_consumer(now, queue, u32::MAX, consumer, out);
        }
    }

    /// The directory gave a queue another home and another id.
    pub(crate) fn queue_moved(
        &mut self,
        now: Now,
        info: &Arc<QueueInfo>,
        id: QueueId,
        out: &mut Outbox,
    ) {
        let Some(to) = self.directory.queue_by_id(id).map(|info| info.home) else { return };
        let target = Target { queue: id, home: to, slot: u32::MAX };
        self.jobs.redirect(info.id, target, self.edge.shard);
        self.edge.dead_letters.redirect(info.id, id);
        // What is passed on to another shard waits for room in the own log.
        self.queue_left(info.id, 0);
        self.redirect_consumers(info, (id, to), out);
        let own = self.edge.shard;
        let rest = self.migrations.resting.remove(&info.id);
        if own == to {
            let rest = rest.unwrap_or_default().expecting();
            self.migrations.resting.insert(id, rest);
            return;
        }
        if own == info.home {
            self.send_queue(now, info.id, (id, to), out);
        }
        if let Some(rest) = rest {
            self.send_rest_on(now, rest, id, out);
        }
    }

    /// Lets the consumers of this shard, and connections that published to the queue, know where it
    /// is now.
    fn redirect_consumers(
        &mut self,
        info: &QueueInfo,
        (id, to): (QueueId, ShardId),
        out: &mut Outbox,
    ) {
        let own = self.edge.shard;
        for (_, connection) in &mut self.edge.connections {
            let mut is_touched = connection.touched.contains(&info.home);
            let connection_id = connection.id;
            for channel in connection.channels.iter_mut() {
                let is_governed = channel.global.as_ref().is_some_and(|global| global.limit > 0);
                let key = channel.key;
                let Some(subscriptions) = &mut channel.subscriptions else { continue };
                let Subscriptions { by_number, ungoverned, .. } = &mut **subscriptions;
                for (number, subscription) in by_number {
                    if subscription.queue != info.id {
                        continue;
                    }
                    (subscription.queue, subscription.home) = (id, to);
                    subscription.queue_slot = u32::MAX;
                    is_touched = true;
                    ungoverned.remove(&(number as u32));
                    if to != own {
                        if !is_governed {
                            ungoverned.insert(number as u32);
                        }
                        let consumer = ConsumerKey {
                            connection: connection_id,
                            channel: key,
                            consumer: number as u32,
                        };
                        let mail = Mail::Govern { consumer, queue: id, on: is_governed };
                        out.mail[to.index()].items.push(mail);
                    }
                }
            }
            if is_touched {
                connection.touch(to);
            }
        }
    }

    /// Sends a queue of this shard to its new home.
    fn send_queue(
        &mut self,
        now: Now,
        old: QueueId,
        (id, to): (QueueId, ShardId),
        out: &mut Outbox,
    ) {
        let place = self.migrations.leaving.iter().position(|leaving| leaving.id == old);
        let why = place.map(|place| self.migrations.leaving.swap_remove(place).why);
        let homes = &self.homes;
        let Some(slot) = self.home_slots.remove(old, |slot| homes[slot as usize].id) else {
            return;
        };
        let mut home = self.homes.remove(slot as usize);
        home.forget_bytes(&mut self.edge);
        // Its last consumer left meanwhile, and its deletion is asked for already.
        for (to, reply) in home.take_answers() {
            self.reply(now, to, old, reply, out);
        }
        let Home { mut queue, log, .. } = home;
        self.journal.forget_windows(queue.windowed());
        self.journal.drop_queue(log, old);
        self.home_left(old, log, queue.is_durable());
        queue.uproot();
        let consumers: Vec<ConsumerKey> =
            queue.consumers().map(|(_, consumer, _)| consumer.key).collect();
        for key in consumers {
            self.forget_remote(key, old, out);
        }
        self.edge.counters.queues_moved += 1;
        let cargo = Box::new(MovingQueue { queue, why: why.unwrap_or_default() });
        out.mail[to.index()].items.push(Mail::QueueArrives { queue: id, cargo });
    }

    /// A queue comes to its new home.
    pub(crate) fn queue_arrives(
        &mut self,
        now: Now,
        from: ShardId,
        id: QueueId,
        cargo: MovingQueue,
        out: &mut Outbox,
    ) {
        let MovingQueue { mut queue, why } = cargo;
        let own = self.edge.shard;
        let Some(info) = self.directory.queue_by_id(id) else {
            // Deleted on the way.
            let deleted = queue.delete();
            return self.tell_cancelled(now, id, deleted.consumers, out);
        };
        let number = LogId(1 + u32::from(info.log));
        let log_place = if self.journal.is_on() { self.journal.place_of(number) } else { 0 };
        if info.durable {
            self.journal.name(log_place);
        }
        queue.settle_in(own, self.edge.limits.unacked_per_channel_max);
        for (handle, consumer, _) in queue.consumers() {
            if consumer.shard != own {
                let remote = RemoteConsumer {
                    queue: id,
                    handle,
                    shard: consumer.shard,
                    // Until its shard has told.
                    governed: true,
                    credit: 0,
                    wanted: false,
                    place: None,
                };
                self.edge.remote_consumers.insert(consumer.key, remote);
            }
        }
        let mut home = Home::arrived(id, queue, log_place);
        home.weigh(&mut self.edge);
        let slot = self.homes.insert(home) as u32;
        // What it brought may be more than it needs here.
        self.homes[slot as usize].note(slot, &mut self.edge);
        if let Some(place) = self.directory.queue_place_by_id(id) {
            self.directory.note_slot(place as usize, slot);
        }
        let homes = &self.homes;
        self.home_slots.insert(id, slot, |slot| homes[slot as usize].id);
        // What was to go to it waited for room in the own log.
        self.queue_left(id, 0);
        let text = format!("{}: from shard {from} to {own}; {why}", self.describe_queue(id));
        out.log(Severity::Info, "queue-moved", text);
        self.migrations.let_stay(id, now.instant + STAY);
        self.rest_over(now, id, out);
        self.pump(now, slot, out);
    }
}
