//! Which queues there are, who declares them and whose messages they get.

use super::{Flags, Sizes};
use crate::check::{Check, LaneId};
use crate::option::{OptionError, Options, wrong};
use crate::pairs;
use crate::pattern;
use crate::producer::random_key;
use crate::script::{ExchangeSpec, QueueSpec, Step, bind};
use lepus_base::Rng;
use std::collections::HashMap;

/// A queue as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Consumed {
    /// Empty: the channel's own.
    pub name: String,
    key: QueueKey,
}

/// What tells queues apart, those without a name too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum QueueKey {
    /// Place in the list of names.
    Named(usize),
    /// Number of the consumer whose own it is.
    Own(u32),
}

/// Exchange, queues and bindings of a run.
#[derive(Debug)]
pub(super) struct Topology {
    exchange: ExchangeSpec,
    /// A queue without its name.
    queue: QueueSpec,
    names: Vec<String>,
    /// Producers and consumers take one queue each, in turn; otherwise all take all.
    in_turn: bool,
    routing_key: String,
    binding: bool,
    /// Nobody consumes: the queues are made beforehand.
    unconsumed: bool,
    /// Numbers of consumed queues, those of the check where there is one.
    checked: HashMap<QueueKey, usize>,
    /// For producers in turn: the numbers of consumed queues by place.
    seen: Vec<(QueueKey, usize)>,
}

impl Topology {
    pub(super) fn read(
        options: &Options,
        flags: Flags,
        sizes: Sizes,
        rng: &mut Rng,
    ) -> Result<Topology, OptionError> {
        let pattern = names_by_pattern(options)?;
        let in_turn = pattern.is_some();
        let names = match pattern {
            Some(names) => names,
            None => names_by_list(options)?,
        };
        if names.iter().any(|name| name.len() > 255) {
            return wrong("a queue's name has at most 255 bytes");
        }
        let kind = options.text("type").unwrap_or("direct").to_owned();
        let exchange_name = match options.text("exchange") {
            Some("amq.default") => String::new(),
            Some(name) => name.to_owned(),
            None if options.has("exchange") => String::new(),
            None => kind.clone(),
        };
        let routing_key = match options.text("routing-key") {
            Some(key) if key.len() > 255 => {
                return wrong("--routing-key has at most 255 bytes");
            }
            Some(key) => key.to_owned(),
            None => String::from_utf8_lossy(&random_key(rng)).into_owned(),
        };
        let predeclared = options.has("predeclared");
        let mut arguments = pairs::table("queue-args", &options.list("queue-args"))?;
        if let Some(limit) = options.number::<i64>("max-length-bytes")?.filter(|limit| *limit > 0) {
            arguments.insert("x-max-length-bytes", limit);
        }
        if let Some(locator) = options.text("leader-locator") {
            arguments.insert("x-queue-leader-locator", locator);
        }
        let quorum = options.has("quorum-queue");
        if quorum {
            arguments.insert("x-queue-type", "quorum");
        }
        Ok(Topology {
            binding: !exchange_name.is_empty() && !options.has("skip-binding-queues"),
            exchange: ExchangeSpec { name: exchange_name, kind, auto_delete: false, predeclared },
            queue: QueueSpec {
                name: String::new(),
                durable: flags.persistent || quorum,
                exclusive: options.has("exclusive"),
                auto_delete: options.truth("auto-delete", !quorum)?,
                arguments,
                predeclared,
            },
            names,
            in_turn,
            routing_key,
            unconsumed: sizes.consumers == 0,
            checked: HashMap::new(),
            seen: Vec::new(),
        })
    }

    /// The exchange's name.
    pub(super) fn exchange(&self) -> &str {
        &self.exchange.name
    }

    /// What is declared before anybody connects: the exchange; queues that are taken in turn, or that nobody consumes.
    pub(super) fn setup(&self) -> Vec<Step> {
        let mut steps = vec![Step::open(1)];
        steps.extend(self.exchange.declare(1));
        if (self.in_turn || self.unconsumed) && !self.queue.exclusive {
            for place in 0..self.names.len() {
                self.make(place, 1, &mut steps);
            }
        }
        steps
    }

    fn make(&self, place: usize, channel: u16, steps: &mut Vec<Step>) {
        let name = &self.names[place];
        let queue = QueueSpec { name: name.clone(), ..self.queue.clone() };
        steps.extend(queue.declare(channel));
        if self.binding {
            let key = if self.in_turn { name } else { &self.routing_key };
            steps.extend(bind(channel, name, &self.exchange.name, key));
        }
    }

    /// The key that producer `number` publishes with.
    pub(super) fn routing_key(&self, number: u32) -> &str {
        if self.in_turn {
            &self.names[number as usize % self.names.len()]
        } else {
            &self.routing_key
        }
    }

    /// The queues of consumer `number` on `channel`; what must be declared for it first goes to `steps`.
    pub(super) fn consumed_by(
        &self,
        number: u32,
        channel: u16,
        steps: &mut Vec<Step>,
    ) -> Vec<Consumed> {
        if self.names.is_empty() {
            // With predeclared objects the own queue is made all the same: there is no name to consume from.
            steps.extend(self.queue.declare(channel));
            if self.binding {
                steps.extend(bind(channel, "", &self.exchange.name, &self.routing_key));
            }
            return vec![Consumed { name: String::new(), key: QueueKey::Own(number) }];
        }
        let places = if self.in_turn {
            let place = number as usize % self.names.len();
            place..place + 1
        } else {
            0..self.names.len()
        };
        let named = places.map(|place| {
            if !self.in_turn || self.queue.exclusive {
                self.make(place, channel, steps);
            }
            Consumed { name: self.names[place].clone(), key: QueueKey::Named(place) }
        });
        named.collect()
    }

    /// One more consumer of `queue`, without a check.
    pub(super) fn note(&mut self, queue: &Consumed) {
        if !self.checked.contains_key(&queue.key) {
            let number = self.seen.len();
            self.checked.insert(queue.key.clone(), number);
            self.seen.push((queue.key.clone(), number));
        }
    }

    /// The check's lane for one more consumer of `queue`.
    pub(super) fn lane(&mut self, check: &mut Check, queue: &Consumed) -> LaneId {
        let number = match self.checked.get(&queue.key) {
            Some(number) => *number,
            None => {
                let name = match queue.key {
                    QueueKey::Named(_) => queue.name.clone(),
                    QueueKey::Own(consumer) => format!("queue of consumer {consumer}"),
                };
                let number = check.add_queue(name);
                self.checked.insert(queue.key.clone(), number);
                self.seen.push((queue.key.clone(), number));
                number
            }
        };
        check.add_lane(number)
    }

    /// Which queue of the check gets which of `producers` producers' messages. Nothing where that depends on more than
    /// this topology: bindings that others made, exchanges that choose by other rules.
    pub(super) fn expected(&self, producers: u32) -> Vec<(usize, u32)> {
        let to_all = match (self.exchange.name.as_str(), self.exchange.kind.as_str()) {
            ("", _) | (_, "direct" | "topic") => false,
            (_, "fanout") => true,
            _ => return Vec::new(),
        };
        if !self.exchange.name.is_empty() && !self.binding {
            return Vec::new();
        }
        let mut expected = Vec::new();
        for (key, queue) in &self.seen {
            for producer in 0..producers {
                let gets = match key {
                    _ if to_all => true,
                    QueueKey::Named(place) if self.in_turn => {
                        producer as usize % self.names.len() == *place
                    }
                    QueueKey::Named(place) if self.exchange.name.is_empty() => {
                        self.names[*place] == self.routing_key
                    }
                    QueueKey::Own(_) if self.exchange.name.is_empty() => false,
                    QueueKey::Named(_) | QueueKey::Own(_) => true,
                };
                if gets {
                    expected.push((*queue, producer));
                }
            }
        }
        expected
    }
}

fn names_by_pattern(options: &Options) -> Result<Option<Vec<String>>, OptionError> {
    let pattern = options.text("queue-pattern");
    let from = options.number("queue-pattern-from")?;
    let to = options.number("queue-pattern-to")?;
    match (pattern, from, to) {
        (None, None, None) => Ok(None),
        (Some(_), Some(_), Some(_)) if options.has("queue") || options.has("queue-file") => {
            wrong("queues are named either by --queue, by --queue-file or by --queue-pattern")
        }
        (Some(pattern), Some(from), Some(to)) => {
            pattern::expand(pattern, from, to).map(Some).map_err(OptionError)
        }
        _ => wrong("--queue-pattern, --queue-pattern-from and --queue-pattern-to go together"),
    }
}

fn names_by_list(options: &Options) -> Result<Vec<String>, OptionError> {
    let mut names: Vec<String> = options.list("queue").into_iter().map(str::to_owned).collect();
    if let Some(path) = options.text("queue-file") {
        if !names.is_empty() {
            return wrong("queues are named either by --queue or by --queue-file");
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| OptionError(format!("--queue-file: cannot read {path}: {error}")))?;
        names = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() < names.len() {
        return wrong("a queue is named twice");
    }
    Ok(names)
}
