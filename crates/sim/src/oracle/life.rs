//! What must be true of messages when a process ends and another one starts on the same disk.

use std::collections::{BTreeMap, BTreeSet};

use super::{CopyId, Fate, Gone, MessageId, Oracle};
use crate::plan::QueuePlan;

/// A commit that was asked for and not answered when the process ended.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) publishes: Vec<MessageId>,
    pub(crate) settled: Vec<CopyId>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order.
    Stop,
    /// By a signal; the system keeps what was written.
    Kill,
    /// With the power.
    Crash,
}

impl Oracle {
    /// The broker has promised to keep a message.
    pub(crate) fn promise(&mut self, message: MessageId) {
        let record = &mut self.messages[message];
        if !record.loose && !record.returned {
            record.copies.iter_mut().for_each(|copy| copy.promised = true);
        }
    }

    /// A process has ended. `careless` are queues from which messages were on their way that need
    /// no acknowledgement.
    pub(crate) fn end_life(
        &mut self,
        queues: &[QueuePlan],
        end: End,
        careless: &BTreeSet<usize>,
        commits: Vec<Commit>,
    ) {
        self.life += 1;
        self.commits = if end == End::Stop { Vec::new() } else { commits };
        self.careless.clone_from(careless);
        self.uncertain.clear();
        for message in &mut self.messages {
            for copy in &mut message.copies {
                let root = &queues[copy.root];
                copy.holder = None;
                if !message.persistent || !root.survives() {
                    copy.out_of_root = true;
                    let is_elsewhere = message.persistent && root.dead_letters();
                    if copy.gone != Gone::Sure || !copy.gone_for_good {
                        copy.gone = if is_elsewhere { Gone::Maybe } else { Gone::Sure };
                    }
                    copy.gone_for_good |= !is_elsewhere;
                    copy.split |= is_elsewhere;
                    continue;
                }
                if careless.contains(&copy.root) && copy.gone == Gone::No {
                    copy.gone = Gone::Maybe;
                }
                if end == End::Stop {
                    continue;
                }
                if copy.fate == Fate::Sure && !copy.promised {
                    copy.fate = Fate::Unknown;
                }
                if copy.gone == Gone::Sure && !copy.gone_for_good {
                    copy.gone = Gone::Maybe;
                }
                copy.split |= root.dead_letters();
            }
        }
        for toggled in &mut self.toggled {
            toggled.lost |= !toggled.durable || toggled.pending > 0;
            toggled.bound.retain(|&queue| queues[queue].survives());
            toggled.published.clear();
        }
    }

    /// Copies that have left by now.
    pub(crate) fn gone(&self) -> Vec<CopyId> {
        let mut found = Vec::new();
        for (message, record) in self.messages.iter().enumerate() {
            for (place, copy) in record.copies.iter().enumerate() {
                if copy.gone == Gone::Sure && !copy.gone_for_good {
                    found.push(CopyId { message, copy: place });
                }
            }
        }
        found
    }

    /// That these copies have left is on the disk, unless they came again since.
    pub(crate) fn gone_for_good(&mut self, copies: &[CopyId]) {
        for &id in copies {
            let copy = self.copy(id);
            copy.gone_for_good |= copy.gone == Gone::Sure;
        }
    }

    /// Each commit that was under way at the crash is there or not, log by log.
    pub(crate) fn check_commits(&self, log_of: &BTreeMap<usize, u32>) -> Result<(), String> {
        for commit in &self.commits {
            // Per log: a message that is there, or one that is not.
            let mut found: BTreeMap<u32, [Option<String>; 2]> = BTreeMap::new();
            for &message in &commit.publishes {
                let record = &self.messages[message];
                for copy in &record.copies {
                    let is_certain = record.persistent
                        && !record.loose
                        && !copy.out_of_root
                        && !self.reads_fail
                        && !self.damaged.contains(&message);
                    let Some(log) = log_of.get(&copy.root).filter(|_| is_certain) else { continue };
                    let is_there = copy.seen_in == self.life;
                    let text = format!("message {message} to queue {}", copy.root);
                    found.entry(*log).or_default()[usize::from(is_there)] = Some(text);
                }
            }
            for &id in &commit.settled {
                let record = &self.messages[id.message];
                let copy = &record.copies[id.copy];
                let is_certain = record.persistent
                    && copy.promised
                    && !copy.split
                    && !copy.out_of_root
                    && !self.careless.contains(&copy.root)
                    && !self.reads_fail
                    && !self.damaged.contains(&id.message);
                let Some(log) = log_of.get(&copy.root).filter(|_| is_certain) else { continue };
                let is_settled = copy.seen_in != self.life;
                let text = format!("the settlement of message {}", id.message);
                found.entry(*log).or_default()[usize::from(is_settled)] = Some(text);
            }
            for (log, sides) in found {
                if let [Some(missing), Some(there)] = sides {
                    return Err(format!(
                        "a commit is half there in log {log}: {there} is, {missing} is not"
                    ));
                }
            }
        }
        Ok(())
    }
}
