//! What must be true of messages when a process ends and another one starts on the same disk.

use std::collections::{BTreeMap, BTreeSet};

use super::{Copy, CopyId, Fate, Gone, MessageId, Oracle};
use crate::plan::{Kind, QueuePlan};

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
        self.forgetful.clear();
        self.uncertain.clear();
        self.transactional.clear();
        self.presumed_closed.clear();
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
                // What was held back may come to its queue twice, like a dead letter.
                copy.split |= root.dead_letters() || message.delayed;
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

    /// Bytes that messages take together in one log at most.
    pub(crate) fn logged_bytes_max(&self, messages: impl Iterator<Item = MessageId>) -> usize {
        let bytes = |message: &super::Message| {
            let logged = lepus_store::Message {
                exchange: message.exchange.as_bytes(),
                routing_key: message.key.as_bytes(),
                properties: &message.properties,
                body: &[],
            };
            let copies = message.copies.len();
            lepus_store::Store::record_bytes_max(&logged, copies) + message.body_bytes
        };
        messages.map(|message| bytes(&self.messages[message])).sum()
    }

    /// Each commit that was under way at the crash is there or not, log by log.
    pub(crate) fn check_commits(
        &self,
        queues: &[QueuePlan],
        log_of: &BTreeMap<usize, u32>,
    ) -> Result<(), String> {
        for commit in &self.commits {
            // Per log: a message that is there, or one that is not.
            let mut found: BTreeMap<u32, [Option<String>; 2]> = BTreeMap::new();
            for &message in &commit.publishes {
                let record = &self.messages[message];
                for copy in &record.copies {
                    let is_certain = record.persistent
                        && !record.loose
                        && !record.delayed
                        && !record.is_one_of_several(copy.root)
                        && !copy.out_of_root
                        && !self.damaged.contains(&message);
                    let Some(log) = log_of.get(&copy.root).filter(|_| is_certain) else { continue };
                    let is_there = copy.seen_in[0] == self.life;
                    let letters = queues
                        .iter()
                        .position(|queue| queue.kind == Kind::Dead && queue.root == copy.root);
                    // The log of its dead-letter queue may have it before that of its own.
                    let has_left = copy.seen_in[1] == self.life;
                    let is_elsewhere = letters.and_then(|queue| log_of.get(&queue)) != Some(log);
                    let is_there = is_there || has_left && !is_elsewhere;
                    if !is_there && (has_left || self.may_lack(copy, queues)) {
                        continue;
                    }
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
                    && !self.damaged.contains(&id.message);
                let Some(log) = log_of.get(&copy.root).filter(|_| is_certain) else { continue };
                let is_settled = !copy.seen_in.contains(&self.life);
                let text = format!("the settlement of message {}", id.message);
                found.entry(*log).or_default()[usize::from(is_settled)] = Some(text);
            }
            for (log, sides) in found {
                if self.forgetful.contains(&log) {
                    continue;
                }
                if let [Some(missing), Some(there)] = sides {
                    return Err(format!(
                        "a commit is half there in log {log}: {there} is, {missing} is not"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether a message may be missing although its commit is on the disk: its queue was full and
    /// refused it, it was taken before the crash, or a connection broke to which it may have been
    /// on its way. A consumer that acknowledges nothing gets what comes to an empty queue without
    /// its ever being logged.
    fn may_lack(&self, copy: &Copy, queues: &[QueuePlan]) -> bool {
        matches!(queues[copy.root].kind, Kind::Refusing(_)) || copy.gone != Gone::No || self.lossy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Arrival, Taking, body_of};

    const PERSISTENT: &[u8] = &[0x10, 0, 2];

    fn queue(root: usize, kind: Kind) -> QueuePlan {
        QueuePlan {
            name: format!("q{root}"),
            kind,
            root,
            declared_on: 0,
            durable: true,
            must_arrive: false,
        }
    }

    fn arrive(oracle: &mut Oracle, queues: &[QueuePlan], message: MessageId, taking: Taking) {
        let arrival = Arrival {
            queue: message,
            redelivered: true,
            exchange: "",
            key: &queues[message].name,
            properties: PERSISTENT,
            body: &body_of(message, 8),
        };
        oracle.receive(queues, arrival, taking).unwrap();
    }

    /// The process ends by a signal before the commit of two messages, one to each queue of one
    /// log, is answered. The first is there afterwards, the second is not.
    fn with_the_second_missing(
        second: Kind,
        careless: bool,
        before: impl FnOnce(&mut Oracle, &[QueuePlan]),
    ) -> Result<(), String> {
        let queues = [queue(0, Kind::Plain), queue(1, second)];
        let mut oracle = Oracle::default();
        let publishes: Vec<MessageId> = (queues.iter())
            .map(|queue| oracle.publish(1, "", &queue.name, &[queue.root], PERSISTENT, 8))
            .collect();
        before(&mut oracle, &queues);
        let careless = careless.then_some(1).into_iter().collect();
        let commits = vec![Commit { publishes, settled: Vec::new() }];
        oracle.end_life(&queues, End::Kill, &careless, commits);
        arrive(&mut oracle, &queues, 0, Taking::Drains);
        oracle.check_commits(&queues, &BTreeMap::from([(0, 1), (1, 1)]))
    }

    #[test]
    fn a_commit_that_is_half_there_is_told() {
        let told = with_the_second_missing(Kind::Plain, false, |_, _| ());
        let text = "a commit is half there in log 1: message 0 to queue 0 is, \
                    message 1 to queue 1 is not";
        assert_eq!(told, Err(text.into()));
        // Who holds a message and has not settled it gets it again.
        let holds = |oracle: &mut Oracle, queues: &[QueuePlan]| {
            arrive(oracle, queues, 1, Taking::Holds(2));
        };
        assert!(with_the_second_missing(Kind::Plain, false, holds).is_err());
    }

    // A dead letter may be on the disk before the commit that it came with.
    #[test]
    fn a_dead_letter_in_another_log_shows_nothing_of_its_commit() {
        let dead = QueuePlan { name: "dead-q0".into(), ..queue(0, Kind::Dead) };
        let queues = [queue(0, Kind::Short(1)), dead, queue(2, Kind::Plain)];
        let half_there_with = |log_of_letters| {
            let mut oracle = Oracle::default();
            let publishes: Vec<MessageId> = [0, 2]
                .map(|place: usize| {
                    let queue = &queues[place];
                    oracle.publish(1, "", &queue.name, &[queue.root], PERSISTENT, 8)
                })
                .to_vec();
            let commits = vec![Commit { publishes, settled: Vec::new() }];
            oracle.end_life(&queues, End::Kill, &BTreeSet::new(), commits);
            let arrival = Arrival {
                queue: 1,
                redelivered: true,
                exchange: "",
                key: "dead-q0",
                properties: PERSISTENT,
                body: &body_of(0, 8),
            };
            oracle.receive(&queues, arrival, Taking::Drains).unwrap();
            oracle.check_commits(&queues, &BTreeMap::from([(0, 1), (1, log_of_letters), (2, 1)]))
        };
        assert_eq!(half_there_with(2), Ok(()));
        assert!(half_there_with(1).is_err());
    }

    // What goes straight to a consumer without acknowledgements is not logged.
    #[test]
    fn a_commit_may_lack_what_was_on_its_way_to_a_consumer_that_acknowledges_nothing() {
        assert_eq!(with_the_second_missing(Kind::Plain, true, |_, _| ()), Ok(()));
    }

    #[test]
    fn a_commit_may_lack_what_was_taken_before_it_was_answered() {
        let takes = |oracle: &mut Oracle, queues: &[QueuePlan]| {
            arrive(oracle, queues, 1, Taking::ForGood);
        };
        assert_eq!(with_the_second_missing(Kind::Plain, false, takes), Ok(()));
    }

    // Nobody is told: a transaction has no confirms.
    #[test]
    fn a_commit_may_lack_what_a_full_queue_refused() {
        assert_eq!(with_the_second_missing(Kind::Refusing(1), false, |_, _| ()), Ok(()));
    }
}
