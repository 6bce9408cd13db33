//! Processes that end and start again, and what happens to their disk meanwhile.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use lepus_base::Instant;
use lepus_store::simulation::{Faults, Outage};

use super::damage::Damage;
use super::{Figures, Run, into_shards, prepare, trace};
use crate::actor::{Standing, Verdict};
use crate::figures;
use crate::oracle::{Commit, End};
use crate::world::{State, World};

/// How long what has left a queue may come back, in milliseconds: as long as it takes until that
/// is on the disk.
const FORGETTING_MILLIS: u64 = 1000;
/// Within this time idle queues give spare room in their tables back, in milliseconds.
pub(super) const IDLE_MILLIS: u64 = 25_000;
/// The longest pause before dead letters that must arrive are tried again, in milliseconds.
const LETTERS_MILLIS: u64 = 31_000;
/// Longer than the longest pause before a read that failed is made again, in milliseconds.
const READS_MILLIS: u64 = 2500;
/// How long connections may take to leave when a process ends in order, and then its logs to
/// close, in milliseconds.
const STOP_MILLIS_MAX: u64 = 60_000;
/// Of so many things that the disk does one is followed by an outage.
const STEPS_PER_OUTAGE: u64 = 100;
/// During one time passes, on average, after so many of them, up to so many milliseconds.
const STEPS_PER_PAUSE: u64 = 3;
const PAUSE_MILLIS_MAX: u64 = 300;
/// How long an outage lasts, in milliseconds. Of so many one lasts for ever.
const OUTAGE_MILLIS: Range<u64> = 100..5000;
const OUTAGES_PER_ENDLESS: u64 = 6;
/// Of so many starts one meets an outage.
const STARTS_PER_OUTAGE: u64 = 3;

/// What a run knows about its processes.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// The disk lacks space for now.
    is_full: bool,
    /// A log has stopped: the process is about to end.
    has_stopped: bool,
    /// Damages that were reported.
    pub(super) reports: u64,
    /// Files in which bits have flipped.
    pub(super) damaged_files: BTreeSet<String>,
    /// How often the logs of this process did not take a message that is for a durable queue.
    unlogged: u64,
    pub(super) figures: Figures,
}

impl Run {
    /// Lets the disk misbehave as planned.
    pub(super) fn begin_life(&mut self) {
        let (Some(plan), Some(disk)) = (&self.plan.disk, &mut self.shards.disk) else { return };
        disk.disk.faults = plan.faults;
        disk.takes = (Duration::ZERO, plan.slow_max);
        if let Some(open_max) = plan.open_max {
            disk.disk.open_max = open_max;
        }
        self.lives.has_stopped = false;
        self.lives.unlogged = 0;
    }

    /// What fails for a while begins to fail, or time passes while it does, or it does so no more.
    fn toggle_outage(&mut self) {
        let now = self.shards.now().instant;
        let (Some(plan), Some(disk)) = (&self.plan.disk, &mut self.shards.disk) else { return };
        if plan.outage == Outage::default() {
            return;
        }
        let end = disk.outage_time.map_or(now, |(_, end)| end);
        if disk.disk.outage == Outage::default() {
            if self.strain.chance(1, STEPS_PER_OUTAGE) {
                let Range { start: least, end: most } = OUTAGE_MILLIS;
                let shorter = self.strain.below(4);
                let millis = least + self.strain.below((most - least) >> shorter);
                let end = now + Duration::from_millis(millis);
                let is_endless = self.strain.chance(1, OUTAGES_PER_ENDLESS);
                disk.outage_time = Some((now, if is_endless { Instant::NEVER } else { end }));
                disk.disk.outage = plan.outage;
                trace(format!("the disk fails until {:?}: {:?}", disk.outage_time, plan.outage));
            }
        } else if now >= end {
            disk.disk.outage = Outage::default();
            // Nobody has looked since.
            disk.outage_time = disk.outage_time.map(|(begin, _)| (begin, now));
            trace("the disk fails no more".into());
        } else if self.strain.chance(1, STEPS_PER_PAUSE) {
            let millis = self.strain.below(PAUSE_MILLIS_MAX);
            self.shards.set_time(end.min(now + Duration::from_millis(millis)));
            trace(format!("{millis} ms pass while the disk fails"));
        }
    }

    /// Whether the disk lacks space for now.
    pub(super) fn is_full(&self) -> bool {
        self.lives.is_full
    }

    /// Notes whether the disk explains that a log refuses what is under way.
    pub(super) fn look_at_disk(&mut self) {
        if self.shards.may_refuse() {
            self.oracle.trouble();
        }
    }

    /// What a log did not take is told, and has a cause: what only lacks room waits.
    fn look_at_unlogged(&mut self) -> Verdict {
        let counters = self.shards.brokers().map(|broker| broker.shard.counters.unlogged);
        let unlogged = counters.sum();
        if unlogged == self.lives.unlogged {
            return Ok(());
        }
        self.lives.unlogged = unlogged;
        trace(format!("logs have not taken {unlogged} messages so far"));
        if self.shards.has_stopped_log() {
            return Ok(());
        }
        Err(format!("{unlogged} messages were not logged, though no log has stopped"))
    }

    /// The disk does something, or something happens to it.
    pub(super) fn disk_step(&mut self) -> Verdict {
        let Some(plan) = &self.plan.disk else { return Ok(()) };
        let (steps, fills) = (plan.steps_per_life, plan.fills);
        self.listen_to_log()?;
        self.look_at_unlogged()?;
        if self.lives.has_stopped || steps > 0 && self.rng.chance(1, steps) {
            return self.next_life(None);
        }
        if self.rng.chance(1, 25) {
            return self.operate();
        }
        let now = self.shards.now().instant;
        let Some(disk) = &mut self.shards.disk else { return Ok(()) };
        if fills && self.rng.chance(1, 60) {
            self.lives.is_full = !self.lives.is_full;
            let room = self.rng.below(40_000);
            disk.disk.bytes_max =
                if self.lives.is_full { disk.disk.bytes() + room } else { u64::MAX };
            trace(format!("the disk takes {} bytes", disk.disk.bytes_max));
            return Ok(());
        }
        disk.carry_out_one(now);
        self.toggle_outage();
        Ok(())
    }

    /// Whether something explains that a log has stopped, of which this text tells: a write, or what is
    /// to be made beside the log, has failed in it; or its reads have, for as long as they are tried.
    fn may_stop(&self, text: &str) -> bool {
        let Some(disk) = &self.shards.disk else { return false };
        let mut troubled = disk.failed.union(&disk.hindered);
        troubled.any(|log| text.contains(&format!("{log}/"))) || self.is_unread(text)
    }

    /// Whether this text tells of a log whose reads have failed for as long as they are tried.
    fn is_unread(&self, text: &str) -> bool {
        let Some(disk) = &self.shards.disk else { return false };
        let now = self.shards.now().instant;
        let limit = self.plan.options.store.as_ref().map(|store| store.template.read_retry_limit);
        let mut unread = limit.into_iter().flat_map(|limit| disk.unread(now, limit));
        unread.any(|log| text.contains(&format!("{log}/")))
    }

    /// Reads what the broker logs.
    fn listen_to_log(&mut self) -> Verdict {
        for event in self.shards.events() {
            if event.severity == lepus_broker::outbox::Severity::Info {
                continue;
            }
            trace(format!("log: {} {}", event.kind, event.text));
            if event.kind.ends_with("stopped") {
                self.lives.has_stopped = true;
                if !self.may_stop(&event.text) {
                    return Err(format!("a log stops without a cause: {}", event.text));
                }
            }
            if is_damage(event.kind) {
                if self.oracle.damaged.is_empty() && self.is_unread(&event.text) {
                    // What others could read and this could not is kept, and read by the next run.
                    self.lives.has_stopped = true;
                    continue;
                }
                self.lives.reports += 1;
                if !self.lives.damaged_files.iter().any(|file| event.text.contains(file)) {
                    return Err(format!("damage without a cause: {} {}", event.kind, event.text));
                }
            }
        }
        Ok(())
    }

    /// Time passes without a word from clients, and everything that becomes due happens. What had
    /// left a queue before that does not come back.
    pub(super) fn rest(&mut self) -> Verdict {
        trace(format!("{FORGETTING_MILLIS} ms pass in peace"));
        self.shards.run_to_rest()?;
        let gone = self.oracle.gone();
        self.pass_quietly(FORGETTING_MILLIS)?;
        self.listen_to_log()?;
        self.check_excess()?;
        let is_slow = self.plan.disk.as_ref().is_some_and(|disk| disk.slow_max > Duration::ZERO);
        let lacks_files = self.has_little_room() && self.shards.has_disk_trouble();
        if !is_slow && !lacks_files && !self.lives.is_full && !self.lives.has_stopped {
            self.oracle.gone_for_good(&gone);
        }
        Ok(())
    }

    fn pass_quietly(&mut self, millis: u64) -> Verdict {
        let end = self.shards.now().instant + Duration::from_millis(millis);
        loop {
            self.shards.run_to_rest()?;
            let next = self.shards.next_timeout();
            if next > end {
                break;
            }
            self.shards.set_time(next);
        }
        self.shards.set_time(end);
        self.shards.run_to_rest()
    }

    /// Whether logs may lack segments although the disk has space for them.
    pub(super) fn has_little_room(&self) -> bool {
        let outage = self.plan.disk.as_ref().map(|disk| disk.outage);
        self.plan.segments_max().is_some()
            || outage.is_some_and(|outage| outage != Outage::default())
    }

    /// Whether logs are so small that nothing is kept in them for passing on what takes two segments: messages that all
    /// are to be passed on may wait for the room of each other for ever then.
    pub(super) fn is_log_small(&self) -> bool {
        self.plan.segments_max().is_some_and(|most| most < 12)
    }

    /// An operator allows the logs more and starts the process again.
    pub(super) fn give_logs_more(&mut self) -> Verdict {
        trace("an operator gives the logs more room".into());
        self.shards.allow_segments(40);
        self.next_life(Some(End::Stop))?;
        self.heal()
    }

    /// Logs that lacked space find that it is back.
    pub(super) fn recover_space(&mut self) -> Verdict {
        match self.has_little_room() || self.plan.disk.as_ref().is_some_and(|disk| disk.fills) {
            true => self.pass_quietly(super::ROOM_MILLIS),
            false => Ok(()),
        }
    }

    /// Reads that failed are made again within the longest pause, now that the disk is well.
    fn recover_reads(&mut self) -> Verdict {
        if !self.shards.waits_for_reads() {
            return Ok(());
        }
        self.pass_quietly(READS_MILLIS)?;
        self.listen_to_log()?;
        match self.shards.waits_for_reads() && !self.lives.has_stopped {
            true => Err("reads that failed are not made again on a disk that is well".into()),
            false => Ok(()),
        }
    }

    /// All is well with the disk from now on; a process that could not live with what happened is
    /// followed by another one.
    pub(super) fn heal(&mut self) -> Verdict {
        self.listen_to_log()?;
        self.lives.is_full = false;
        let now = self.shards.now().instant;
        let Some(disk) = &mut self.shards.disk else { return Ok(()) };
        disk.disk.faults = Faults::default();
        disk.end_outage(now);
        disk.disk.bytes_max = u64::MAX;
        disk.takes = (Duration::ZERO, Duration::ZERO);
        disk.hurry();
        if let Some(plan) = &mut self.plan.disk {
            plan.faults = Faults::default();
            plan.slow_max = Duration::ZERO;
        }
        self.shards.run_to_rest()?;
        self.recover_space()?;
        self.recover_reads()?;
        if let Some(plan) = &mut self.plan.disk {
            plan.outage = Outage::default();
        }
        self.listen_to_log()?;
        if self.lives.has_stopped { self.next_life(None) } else { Ok(()) }
    }

    /// Everything that exchanges hold back comes to its queues, and dead letters that must arrive
    /// are tried again.
    pub(super) fn release_delayed(&mut self) -> Verdict {
        if self.plan.queues.iter().any(|queue| queue.must_arrive) {
            self.pass_quietly(LETTERS_MILLIS)?;
        }
        match self.plan.exchanges.iter().any(|exchange| exchange.delays) {
            true => self.pass_quietly(crate::routing::DELAY_MILLIS_MAX),
            false => Ok(()),
        }
    }

    /// When nobody uses them for a while queues keep no room for their next messages.
    pub(super) fn leave_idle(&mut self) -> Verdict {
        self.pass_quietly(IDLE_MILLIS)?;
        figures::excess(&self.shards, figures::IDLE_QUEUE_BYTES_MAX).map_or(Ok(()), Err)
    }

    /// When all clients are gone: one more end, mostly.
    pub(super) fn last_life(&mut self) -> Verdict {
        if self.shards.disk.is_none() {
            return Ok(());
        }
        let end = match self.rng.below(4) {
            0 => return Ok(()),
            1 => End::Stop,
            2 => End::Kill,
            _ => End::Crash,
        };
        self.next_life(Some(end))?;
        self.heal()
    }

    /// The process ends, and another one starts.
    fn next_life(&mut self, end: Option<End>) -> Verdict {
        let mut end = end.unwrap_or_else(|| {
            [End::Stop, End::Kill, End::Crash, End::Crash][self.rng.below(4) as usize]
        });
        if self.lives.has_stopped {
            // What a failed sync left behind is seen by nobody: the system drops its pages, too.
            end = End::Crash;
        }
        trace(format!("the process ends: {end:?}"));
        let mut careless = BTreeSet::new();
        let mut commits = Vec::new();
        for actor in self.actors.iter().filter(|actor| actor.standing != Standing::Gone) {
            careless.extend(actor.careless_queues().map(|queue| self.plan.queues[queue].root));
            commits.extend(actor.open_commits());
        }
        // One that no segment holds may be there in part.
        let segment = self.plan.options.store.as_ref().map(|store| &store.template);
        let bytes_max = segment.map_or(0, lepus_store::Settings::payload_bytes_max);
        let bytes =
            |commit: &Commit| self.oracle.logged_bytes_max(commit.publishes.iter().copied());
        commits.retain(|commit| bytes(commit) <= bytes_max);
        if end == End::Stop {
            self.stop()?;
            if self.lives.has_stopped {
                // The end was in order, and a log was not there for it any more.
                end = End::Crash;
            }
        }
        // Who is refused for the disk hears it in this life.
        self.hear_operator()?;
        self.operator.lose_answers();
        self.policies.lose_answers(&self.plan, &self.shards)?;
        for (peer, actor) in self.peers.iter_mut().zip(&mut self.actors) {
            peer.wire.cut();
            peer.ended = true;
            actor.gone(&mut self.oracle);
        }
        self.count();
        self.lives.figures.restarts += 1;
        let logs = self.logs();
        // After an orderly stop nothing is left that a failing power could take.
        let power_fails = end == End::Crash || end == End::Stop && self.rng.chance(1, 2);
        self.shards.end(power_fails);
        self.oracle.end_life(&self.plan.queues, end, &careless, commits);
        self.flip();
        let damage = self.damage();
        self.start(damage, &logs)
    }

    /// The process ends in order.
    fn stop(&mut self) -> Verdict {
        let now = self.shards.now().instant;
        if let Some(disk) = &mut self.shards.disk {
            disk.disk.bytes_max = u64::MAX;
            disk.disk.faults = Faults::default();
            disk.end_outage(now);
        }
        self.lives.is_full = false;
        for actor in self.actors.iter_mut().filter(|actor| actor.standing != Standing::Gone) {
            actor.expel(&mut self.oracle);
        }
        self.shards.shut_down();
        let mut end = self.shards.now().instant + Duration::from_millis(STOP_MILLIS_MAX);
        let mut is_closing = false;
        loop {
            self.settle()?;
            self.listen_to_log()?;
            if self.lives.has_stopped {
                // Nobody waits for a log that takes nothing any more.
                return Ok(());
            }
            let now = self.shards.now().instant;
            if !is_closing && (self.shards.may_close() || now >= end) {
                self.shards.cut_all();
                self.settle()?;
                self.shards.close();
                is_closing = true;
                end = now + Duration::from_millis(STOP_MILLIS_MAX);
                continue;
            }
            if is_closing && self.shards.is_closed() {
                return self.listen_to_log();
            }
            let clients = self.peers.iter().map(|peer| peer.next_timeout()).min();
            let next = self.shards.next_timeout().min(clients.unwrap_or(end));
            if next > end && now >= end {
                let open = self.shards.connections();
                return Err(format!("the logs do not close, {open} connections are left"));
            }
            self.shards.set_time(next.min(end));
        }
    }

    /// A process starts on the disk as it is, with queues in `logs` and perhaps a bit that has flipped.
    fn start(&mut self, mut damage: Option<Damage>, logs: &BTreeMap<usize, u32>) -> Verdict {
        let shards = match self.rng.chance(1, 2) {
            true => self.plan.options.shards,
            false => 1 + self.rng.below(5) as u16,
        };
        trace(format!("a process starts with {shards} shards"));
        let faults = self.shards.disk.as_ref().map(|disk| disk.disk.faults).unwrap_or_default();
        let outage = self.plan.disk.as_ref().map(|disk| disk.outage).unwrap_or_default();
        self.lives.is_full = false;
        self.lives.has_stopped = false;
        self.lives.unlogged = 0;
        let mut met_outage = false;
        for attempt in 0.. {
            let Some(disk) = &mut self.shards.disk else { return Ok(()) };
            disk.disk.bytes_max = u64::MAX;
            disk.takes = (Duration::ZERO, Duration::ZERO);
            let fails = attempt == 0 && self.rng.chance(1, 2) && damage.is_none();
            disk.disk.faults = if fails { faults } else { Faults::default() };
            let is_out = attempt == 0
                && outage != Outage::default()
                && damage.is_none()
                && self.strain.chance(1, STARTS_PER_OUTAGE);
            disk.disk.outage = if is_out { outage } else { Outage::default() };
            met_outage = is_out;
            match self.shards.start(shards) {
                Ok(()) => break,
                // What was written in vain is as if the power had failed.
                Err(reason) if fails || is_out => {
                    trace(format!("it does not start: {reason}"));
                    self.shards.end(true);
                }
                Err(reason) => match damage.take() {
                    Some(damage) => self.mend(&damage, &reason)?,
                    None => return Err(format!("the process does not start: {reason}")),
                },
            }
        }
        if let Some(damage) = damage {
            self.excuse(&damage, logs);
        }
        if let Some(disk) = &mut self.shards.disk {
            disk.disk.faults = Faults::default();
            disk.disk.outage = Outage::default();
        }
        self.shards.run_to_rest()?;
        if met_outage {
            // What could not be made is tried again after a while, and nobody is answered before.
            self.pass_quietly(super::ROOM_MILLIS)?;
        }
        self.listen_to_log()?;
        if self.lives.has_stopped {
            return self.next_life(Some(End::Crash));
        }
        self.check_definitions()?;
        self.begin_accounts()?;
        self.policies.begin_life(&self.plan, &self.shards)?;
        let shards = std::mem::replace(&mut self.shards, crate::shards::Shards::none());
        let world = World(Rc::new(RefCell::new(State::new(shards))));
        prepare(&world, &self.plan, |durable| !durable);
        self.shards = into_shards(world);
        self.begin_life();
        Ok(())
    }

    /// What is durable is there, what is transient is not.
    fn check_definitions(&self) -> Verdict {
        for broker in self.shards.brokers() {
            let directory = &broker.directory;
            let vhost = directory.vhost("/").ok_or("the vhost '/' is gone")?;
            for plan in &self.plan.queues {
                let is_there = directory.queue(vhost, &plan.name).is_some();
                if is_there && !plan.survives() {
                    return Err(format!("{} is there again after a restart", plan.name));
                }
                if !is_there && plan.survives() && plan.is_stable() {
                    return Err(format!("{} is gone after a restart", plan.name));
                }
            }
            let planned = self.plan.exchanges.iter().map(|plan| (&plan.name, plan.durable));
            let toggled = self.oracle.toggled.iter();
            let toggled = toggled.map(|toggled| (&toggled.exchange, toggled.durable, toggled.lost));
            for (name, durable, is_uncertain) in
                planned.map(|(name, durable)| (name, durable, false)).chain(toggled)
            {
                let is_there = directory.exchange(vhost, name).is_some();
                if is_there && !durable {
                    return Err(format!("exchange {name} is there again after a restart"));
                }
                if !is_there && durable && !is_uncertain {
                    return Err(format!("exchange {name} is gone after a restart"));
                }
            }
        }
        Ok(())
    }

    /// The log of each queue.
    pub(super) fn logs(&self) -> BTreeMap<usize, u32> {
        let directory = &self.shards.broker(0).directory;
        let Some(vhost) = directory.vhost("/") else { return BTreeMap::new() };
        let log = |name: &str| directory.queue(vhost, name).map(|info| u32::from(info.log));
        let found = self.plan.queues.iter().enumerate().filter(|(_, plan)| plan.is_stable());
        found.filter_map(|(place, plan)| Some((place, log(&plan.name)?))).collect()
    }

    /// Adds up what the process did.
    pub(super) fn count(&mut self) {
        let turns = (0..self.shards.len()).map(|shard| self.shards.metrics(shard).cycles);
        self.lives.figures.turns += turns.sum::<u64>();
        let counters = crate::figures::counters(&self.shards);
        self.lives.figures.handed_over += counters.handed_over;
        self.lives.figures.moved += counters.moved;
        self.lives.figures.queues_moved += counters.queues_moved;
    }
}

/// Whether a log event tells of bytes that cannot be read.
pub(super) fn is_damage(kind: &str) -> bool {
    kind.contains("damage") || kind.contains("lost")
}
