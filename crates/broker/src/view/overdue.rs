//! Who waits for something that is over: asked by tests when nothing is left to be done.
//!
//! Somebody who is put on a list and forgotten there stops for ever, and nothing says so: a client sees silence. So
//! for everybody who waits this asks the cause itself whether it still holds.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{Now, ShardId};

use crate::backpressure::Cause;
use crate::channel::{Channel, Pending, WaitsFor};
use crate::connection::Connection;
use crate::home::Home;
use crate::journal::LETTERS;
use crate::outbox::Outbox;
use crate::queue::{Consumer, ConsumerKey};
use crate::view::View;

impl<'a> View<'a> {
    /// Everybody on this shard who waits although nothing is left of what they wait for, in words. To be asked when
    /// no shard has work and no mail is under way: before, whoever may go on may only not have had their turn.
    #[must_use]
    pub fn overdue(&self, now: Now, out: &Outbox) -> Vec<String> {
        let mut found = Vec::new();
        for (_, connection) in self.connections.iter() {
            // What is left of one that ends is cleaned up, and waits for other things.
            if !connection.gone && connection.end.is_none() {
                let name = format!("connection {}", connection.id.0);
                let causes = self.overdue_causes(connection, out).into_iter();
                found.extend(causes.map(|what| format!("{name} waits for {what}")));
                found.extend(self.overdue_channels(connection));
            }
        }
        for (slot, home) in self.homes.iter() {
            if !home.is_dying() {
                let what = self.overdue_queue(now, slot, home);
                found.extend(what.map(|what| format!("queue {} {what}", home.id.0)));
                found.extend(self.overdue_consumers(home));
            }
        }
        found.extend(self.overdue_lists());
        found
    }

    /// Causes for which a connection is not read, and that are over.
    fn overdue_causes(&self, connection: &Connection, out: &Outbox) -> Vec<&'static str> {
        let (limits, waiting) = (&self.shard.limits, &self.shard.backpressure);
        let has = |cause| connection.paused.has(cause);
        let mut found = Vec::new();
        if has(Cause::Turn) {
            found.push("a turn that has ended");
        }
        if has(Cause::Mail) && self.shard.conditions(self.journal, out).may_read_again() {
            found.push("mail, which has room");
        }
        let is_log_late =
            waiting.is_log_late() || waiting.is_log_late_among(&connection.known_shards);
        if has(Cause::Log) && !is_log_late {
            found.push("logs that have caught up");
        }
        if (has(Cause::Shortage) || connection.blocked) && !waiting.is_anything_short() {
            found.push("memory or the disk, of which there is enough");
        }
        if has(Cause::Shortage) && !connection.blocked {
            found.push("the end of a shortage without being listed");
        }
        if has(Cause::Unread) && connection.has_read(limits.unread_bytes_max) {
            found.push("its client, which has read");
        }
        if has(Cause::Parked) && connection.parked_bytes <= limits.parked_bytes_max / 2 {
            found.push("parked frames, of which few are left");
        }
        if has(Cause::Move) && !self.sessions.is_departing(connection.id) {
            found.push("its departure, which is over");
        }
        if !connection.debts.is_empty() && connection.send.len() <= limits.send_window_bytes / 2 {
            found.push("room for what other shards send, which there is");
        }
        found
    }

    /// Channels of a connection with something that waits for nothing.
    fn overdue_channels(&self, connection: &Connection) -> Vec<String> {
        let limits = &self.shard.limits;
        let mut found = Vec::new();
        for channel in connection.open_channels().filter(|channel| channel.ending.is_none()) {
            let mut note = |what: &str| {
                let id = connection.id.0;
                found.push(format!("channel {} of connection {id}: {what}", channel.key as u16));
            };
            let is_asking = channel.pending.is_some() || connection.paused.has(Cause::Unread);
            if !channel.parked.is_empty() && !is_asking {
                note("frames are parked behind no question");
            }
            // What a transaction is to settle makes room when it does.
            let held = channel.tx.as_ref().map_or(0, |tx| tx.settles.len());
            let is_committing = matches!(channel.pending.as_deref(), Some(Pending::Commit));
            let has_room = connection.send.len() <= limits.send_window_bytes / 2
                && channel.unacked.len() + held < limits.unacked_per_channel_max as usize;
            if channel.waiting(WaitsFor::Room) > 0 {
                if has_room && !is_committing {
                    note("consumers wait for room, which there is");
                }
                if !connection.stalled.contains(&channel.key) {
                    note("consumers wait for room without being listed");
                }
            }
            let has_credit = channel.global.as_ref().is_none_or(|global| global.has_room());
            if channel.waiting(WaitsFor::Credit) > 0 && has_credit && has_room {
                note("consumers wait for credit, which there is");
            }
        }
        found
    }

    /// What a queue waits for that is over, or what it should do.
    fn overdue_queue(&self, now: Now, slot: u32, home: &Home) -> Option<&'static str> {
        let reader = (slot, home.id);
        let queue = &home.queue;
        if queue.is_held() {
            // Whoever holds it is asked for elsewhere.
            return None;
        }
        let is_read = self.journal.has_reader(reader.1);
        let (does_filter_wait, does_dropping_wait) = queue.filters_waiting();
        if queue.is_waiting() || does_dropping_wait {
            let is_listed = is_read
                || self.shard.backpressure.is_behind_dead_letters(reader.1)
                || self.homes.dead_letters().is_behind_lines(reader.1);
            if !is_listed {
                return Some("waits for something to be read that nobody reads");
            }
        }
        if queue.is_waiting() {
            return None;
        }
        if does_filter_wait && !is_read {
            return Some("has a filter that waits for something to be read that nobody reads");
        }
        match home.is_listed() {
            true => None,
            false if queue.wants_dispatch() => Some("has a message and a consumer that takes it"),
            // The time of what is in one that leaves comes again where it goes to, or when it stays.
            false if self.homes.leaves(home.id) => None,
            false => queue.has_work(now).then_some("has messages to drop"),
        }
    }

    /// Consumers of a queue that get nothing, and for which nobody says when they may.
    fn overdue_consumers(&self, home: &Home) -> Vec<String> {
        let mut found = Vec::new();
        for consumer in home.queue.parked_consumers() {
            let is_waiting = match consumer.shard == self.shard.id {
                true => self.waits_here(consumer),
                false => self.waits_elsewhere(consumer),
            };
            if !is_waiting {
                let (queue, tag) = (home.id.0, &consumer.tag);
                found.push(format!(
                    "consumer {tag} of queue {queue} gets nothing, and waits for nothing"
                ));
            }
        }
        found
    }

    /// Whether a consumer of this shard that gets nothing waits for something, or ends.
    fn waits_here(&self, consumer: &Consumer) -> bool {
        let key = consumer.key;
        self.living_channel(key).is_none_or(|channel| {
            let subscriptions = channel.subscriptions.as_ref();
            subscriptions.is_some_and(|all| all.is_waiting(key.consumer))
        })
    }

    /// The channel of a consumer of this shard, unless it or its connection ends.
    fn living_channel(&self, key: ConsumerKey) -> Option<&Channel> {
        let slot = self.connections.slot_of(key.connection)?;
        let connection = self.connections.get(slot)?;
        let mut channels = connection.open_channels().filter(|_| connection.end.is_none());
        let channel = channels.find(|channel| channel.key == key.channel)?;
        channel.ending.is_none().then_some(channel)
    }

    /// The same of one on another shard.
    fn waits_elsewhere(&self, consumer: &Consumer) -> bool {
        let key = consumer.key;
        let remote = self.homes.remote();
        remote.detached.contains(&key.connection)
            || remote
                .consumers
                .get(&key)
                .is_none_or(|remote| remote.place.is_some() || remote.wanted)
    }

    /// Consumers of other shards that asked for credit, which their shard has yet to grant, and their shards.
    pub fn credit_asked(self) -> impl Iterator<Item = (ConsumerKey, ShardId)> + 'a {
        let asked = self.homes.remote().consumers.iter().filter(|(_, remote)| remote.wanted);
        asked.map(|(key, remote)| (*key, remote.shard))
    }

    /// Whether this shard knows that a consumer of its own waits for credit, or it ends.
    #[must_use]
    pub fn knows_wish(&self, key: ConsumerKey) -> bool {
        let channel = self.living_channel(key);
        channel.and_then(|channel| channel.subscriptions.as_ref()).is_none_or(|all| {
            all.is_waiting(key.consumer) || !all.by_number.contains(key.consumer as usize)
        })
    }

    /// Those on other lists who wait for what is over.
    fn overdue_lists(&self) -> Vec<String> {
        let (backpressure, mut found) = (&self.shard.backpressure, Vec::new());
        for (id, window) in self.homes.remote().windows.iter().filter(|(_, window)| window.room > 0)
        {
            if backpressure.first_behind(*id).is_some() {
                let room = window.room;
                found.push(format!(
                    "a consumer waits for connection {}, which has {room} bytes of room",
                    id.0
                ));
            }
        }
        for id in backpressure.queues_with_commands() {
            if !self.homes.find(id).is_some_and(|home| home.queue.is_waiting()) {
                found.push(format!(
                    "a command waits for a read of queue {}, which reads nothing",
                    id.0
                ));
            }
        }
        let letters = self.homes.dead_letters();
        if letters.is_waiting() && !self.journal.has_reader(LETTERS.1) {
            found.push("dead letters wait for a read that nobody makes".into());
        }
        if backpressure.waits_for_dead_letters()
            && !letters.has_any_to_send()
            && !letters.is_waiting()
            && !self.journal.closes()
        {
            found.push("queues wait for dead letters, of which none is left".into());
        }
        for id in letters.behind_set_aside() {
            if !self.homes.has_postponed_letters_of(self.shard.id, id) {
                found.push(format!("dead letters of queue {} wait for some that have gone", id.0));
            }
        }
        if self.homes.awaits_arrivals_in_vain() {
            found.push("mail waits for queues that have come".into());
        }
        for channel in self.shard.jobs.commits_behind_publishes() {
            if !self.shard.jobs.has_fanout_of(channel) && !self.homes.has_postponed_from(channel) {
                found.push(format!("a commit waits for a publish of {channel:?}, which is over"));
            }
        }
        if self.sessions.has_waiting_departures() && self.has_applied_mail() {
            found.push("connections wait for mail that is applied".into());
        }
        found
    }
}
