//! The running broker's figures, asked from its shards.

use crate::config::{Budget, Config};
use lepus_base::{Instant, ShardId};
use lepus_broker::{Answer, Broker, Query};
use lepus_management::api::Amount;
use lepus_management::machine::OwnFigures;
use lepus_management::snapshot::{LoopFigures, Node, Shard, Snapshot, Waiting};
use lepus_shard::{Clock, Commands, EntranceMetrics, MetricsSnapshot, ShardMetrics};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a shard may take to answer before it counts as stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How many times as long as it took to collect figures they are given to others who ask.
const REST_FACTOR: u32 = 20;
/// The smallest memory budget that a share comes to.
const BUDGET_BYTES_MIN: u64 = 16 << 20;
/// How long they are at most.
const HOLDS_MAX: Duration = Duration::from_secs(1);

/// Collects figures; shared by the metrics page and by `lepus status`.
pub struct Figures {
    /// Who tells, as it was at the start.
    pub node: Node,
    /// What an operator may change of that: bytes of the memory budget, and of the disk that are to stay free.
    limits: [AtomicU64; 2],
    /// Entries that are not in the audit file.
    audit_left_out: OnceLock<Arc<AtomicU64>>,
    /// The shards.
    pub commands: Commands<Broker>,
    turns: Vec<Arc<ShardMetrics>>,
    entrance: Arc<EntranceMetrics>,
    clock: Clock,
    started: Instant,
    data_dir: PathBuf,
    /// Addresses at which connections come in.
    listeners: Vec<SocketAddr>,
    /// What was collected last, and how long it is given to others who ask.
    last: Mutex<Option<(Instant, Snapshot)>>,
}

impl std::fmt::Debug for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figures").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Figures {
    /// Figures of a broker that serves from now on.
    #[must_use]
    pub fn new(
        node: Node,
        commands: Commands<Broker>,
        turns: Vec<Arc<ShardMetrics>>,
        entrance: Arc<EntranceMetrics>,
        clock: Clock,
        data_dir: PathBuf,
        listeners: Vec<SocketAddr>,
    ) -> Figures {
        Figures {
            limits: [node.memory_budget_bytes, node.disk_free_bytes_min].map(AtomicU64::new),
            audit_left_out: OnceLock::new(),
            node,
            commands,
            turns,
            entrance,
            clock,
            started: clock.instant(),
            data_dir,
            listeners,
            last: Mutex::new(None),
        }
    }

    /// Tells another memory budget from now on, in bytes.
    pub fn set_memory_budget(&self, bytes: u64) {
        self.limits[0].store(bytes, Ordering::Relaxed);
        self.forget();
    }

    /// Tells from now on that other bytes of the disk are to stay free.
    pub fn set_disk_free_min(&self, bytes: u64) {
        self.limits[1].store(bytes, Ordering::Relaxed);
        self.forget();
    }

    /// Where entries are counted that are not in the audit file.
    pub fn count_left_out(&self, count: Arc<AtomicU64>) {
        // Told once, by the only one who starts the audit.
        let _ = self.audit_left_out.set(count);
    }

    /// Seconds since the start.
    #[must_use]
    pub fn uptime_seconds(&self) -> u64 {
        self.clock.instant().since(self.started).as_secs()
    }

    /// Where the data is.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The shards' own counters, in their order.
    #[must_use]
    pub fn turns(&self) -> Vec<MetricsSnapshot> {
        self.turns.iter().map(|metrics| metrics.snapshot()).collect()
    }

    /// The counters of a shard.
    #[must_use]
    pub fn shard_metrics(&self, shard: usize) -> Option<&ShardMetrics> {
        self.turns.get(shard).map(Arc::as_ref)
    }

    /// Asks every shard at the same time and gives the answers in the shards' order.
    ///
    /// # Errors
    /// When a shard does not answer within some seconds or the broker stops.
    pub fn ask_all(&self, query: &Query) -> Result<Vec<Answer>, String> {
        self.commands.wait_all(query, ANSWER_TIMEOUT).map_err(|error| error.to_string())
    }

    /// Asks one shard.
    ///
    /// # Errors
    /// As with [`Figures::ask_all`].
    pub fn ask_one(&self, shard: ShardId, query: Query) -> Result<Answer, String> {
        self.commands.wait(shard, query, ANSWER_TIMEOUT).map_err(|error| error.to_string())
    }

    /// Addresses in the memory of each shard: of its broker, of what it allocates now and of its stack.
    ///
    /// # Errors
    /// As with [`Figures::ask_all`].
    pub fn locate_all(&self) -> Result<Vec<[u64; 3]>, String> {
        let locate = |shard| self.commands.locate(ShardId(shard));
        let answers = (0..self.commands.shards()).map(locate).collect::<Result<Vec<_>, _>>();
        let answers = answers.map_err(|stopped| stopped.to_string())?;
        (0..).zip(answers).map(|(shard, answer)| receive(shard, &answer)).collect()
    }

    fn collect_anew(&self) -> Result<Snapshot, String> {
        let told = self.ask_all(&Query::Figures)?.into_iter().map(|answer| match answer {
            Answer::Figures(figures) => Shard { figures: *figures, ..Shard::default() },
            other => unreachable!("a question for figures is answered with {other:?}"),
        });
        let mut shards: Vec<Shard> = told.collect();
        let entrance = self.entrance.snapshot();
        let mut waiting = Waiting {
            silent: entrance.silent,
            expired: entrance.expired,
            gave_way: entrance.gave_way,
            entering: 0,
        };
        for (shard, metrics) in shards.iter_mut().zip(&self.turns) {
            let snapshot = metrics.snapshot();
            shard.turns = loop_figures(&snapshot);
            waiting.entering += snapshot.entering;
            waiting.gave_way += snapshot.gave_way;
        }
        let [memory, disk] = self.limits.each_ref().map(|limit| limit.load(Ordering::Relaxed));
        let left_out = self.audit_left_out.get().map_or(0, |count| count.load(Ordering::Relaxed));
        Ok(Snapshot {
            node: Node {
                memory_budget_bytes: memory,
                disk_free_bytes_min: disk,
                ..self.node.clone()
            },
            audit_left_out: left_out,
            uptime_seconds: self.uptime_seconds(),
            shards,
            waiting,
            own: OwnFigures::read(&self.data_dir, &self.listeners),
        })
    }

    /// Figures of this moment; where it takes long to collect them, those of a moment ago, so that
    /// the shards collect for a small part of their time, whoever asks.
    ///
    /// # Errors
    /// As with [`Figures::ask_all`].
    pub fn collect(&self) -> Result<Snapshot, String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = self.clock.instant();
        if let Some((until, snapshot)) = &*last
            && begun < *until
        {
            return Ok(snapshot.clone());
        }
        let snapshot = self.collect_anew()?;
        let ended = self.clock.instant();
        let holds_for = (ended.since(begun) * REST_FACTOR).min(HOLDS_MAX);
        *last = Some((ended + holds_for, snapshot.clone()));
        Ok(snapshot)
    }

    /// What was collected does not hold any more.
    pub fn forget(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it was ever collected.
    #[cfg(test)]
    pub(crate) fn was_collected(&self) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether every shard answers.
    ///
    /// # Errors
    /// As with [`Figures::ask_all`].
    pub fn answer(&self) -> Result<(), String> {
        self.ask_all(&Query::Alive).map(drop)
    }
}

/// The answer of a shard, once it is there.
fn receive<T>(shard: u16, answer: &Receiver<T>) -> Result<T, String> {
    answer.recv_timeout(ANSWER_TIMEOUT).map_err(|_| format!("shard {shard} does not answer"))
}

fn loop_figures(metrics: &MetricsSnapshot) -> LoopFigures {
    LoopFigures {
        cycles: metrics.cycles,
        busy_nanos: metrics.busy_ns,
        turn_nanos_max: metrics.turn_ns_max,
        long_turns: metrics.long_turns,
        spin_nanos: metrics.spin_ns,
        sleep_nanos: metrics.sleep_ns,
        sleeps: metrics.sleeps,
        naps: metrics.naps,
        wakes_sent: metrics.wakes_sent,
        bytes_in: metrics.bytes_in,
        bytes_out: metrics.bytes_out,
        reads: metrics.reads,
        writes: metrics.writes,
        mail_in: metrics.mail_in,
        mail_out: metrics.mail_out,
        cpu: metrics.cpu.checked_sub(1),
        memory_node: metrics.memory_node.checked_sub(1),
        misplaced: metrics.misplaced,
    }
}

/// The node's name as tools of RabbitMQ want it.
#[must_use]
pub fn node_name(config: &Config) -> String {
    full_name(&config.node, &rustix::system::uname().nodename().to_string_lossy())
}

/// What is configured may leave out the host.
fn full_name(configured: &str, host: &str) -> String {
    match configured {
        "" => format!("rabbit@{host}"),
        name if name.contains('@') => name.to_owned(),
        name => format!("{name}@{host}"),
    }
}

/// Who this node is, for the API, metrics and `lepus status`.
#[must_use]
pub fn node(config: &Config, memory_budget_bytes: u64) -> Node {
    Node {
        name: node_name(config),
        cluster: config.cluster_name.clone(),
        told_version: config.version.clone(),
        told_product: config.product.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        memory_budget_bytes,
        disk_free_bytes_min: config.store_disk_free_limit,
    }
}

/// The memory budget in bytes; a share is one of the memory that this process may use.
#[must_use]
pub fn memory_budget_bytes(config: &Config) -> u64 {
    memory_budget_of(config, usable_memory())
}

/// Bytes of memory that this process may use.
#[must_use]
pub fn usable_memory() -> u64 {
    // A machine that does not tell its memory is taken for a small one.
    lepus_topology::usable_memory().map_or(1 << 30, |memory| memory.bytes)
}

/// The memory budget in bytes that an operator sets, of a process that may use `usable` bytes: a part of that is no less
/// than a part that is configured may be, but for none at all, which holds back everybody.
#[must_use]
pub fn memory_budget_for(amount: Amount, usable: u64) -> u64 {
    match amount {
        Amount::Share(share) if share > 0.0 => amount.bytes(usable).max(BUDGET_BYTES_MIN),
        _ => amount.bytes(usable),
    }
}

/// The memory budget in bytes of a process that may use `usable` bytes.
#[must_use]
pub fn memory_budget_of(config: &Config, usable: u64) -> u64 {
    match config.memory_budget {
        Budget::Bytes(bytes) => bytes,
        Budget::Percent(share) => {
            (usable / 100).saturating_mul(u64::from(share)).max(BUDGET_BYTES_MIN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::full_name;

    #[test]
    fn a_name_has_a_host() {
        for (configured, name) in [("", "rabbit@h"), ("hare", "hare@h"), ("hare@den", "hare@den")] {
            assert_eq!(full_name(configured, "h"), name);
        }
    }
}
