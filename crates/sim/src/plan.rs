//! What a seed decides before anything happens: shards, limits, queues, exchanges, clients.

use std::collections::BTreeSet;
use std::time::Duration;

use lepus_amqp::table::Table;
use lepus_base::Rng;
use lepus_broker::Limits;
use lepus_store::disk::DiskError;
use lepus_store::simulation::{Faults, Outage};

use crate::routing::{self, ExchangePlan};
use crate::shards::{Options, StoreOptions};

/// How a queue treats its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Keeps what it gets.
    Plain,
    /// Rejected messages go to its dead-letter queue.
    DeadLettering,
    /// The same when it is longer than so many messages.
    Short(u32),
    /// The same when a message is older than so many milliseconds.
    Brief(u32),
    /// Refuses publishes when it is longer than so many messages.
    Refusing(u32),
    /// Ordered by priority.
    Priorities,
    /// Counts returns; after so many the message goes to the dead-letter queue.
    Quorum(u32),
    /// Delivers to one consumer at a time.
    SingleActive,
    /// The dead-letter queue of another.
    Dead,
    /// May vanish with its messages at any time.
    Volatile(Volatility),
}

/// Why a volatile queue vanishes or loses messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volatility {
    /// Only when somebody deletes or purges it.
    Deleted,
    /// With its last consumer.
    AutoDelete,
    /// When unused for so many milliseconds.
    Expires(u32),
    /// With the connection that declared it.
    Exclusive,
    /// It drops its oldest messages beyond so many.
    DropsHead(u32),
    /// Its messages expire after so many milliseconds.
    Forgets(u32),
}

/// One queue.
#[derive(Clone, Debug)]
pub(crate) struct QueuePlan {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The queue that messages were published to before they came here; itself for all but
    /// dead-letter queues.
    pub(crate) root: usize,
    /// The shard on which the client that declares it starts.
    pub(crate) declared_on: u16,
    pub(crate) durable: bool,
    /// Whether its dead letters wait with it until their queue has them.
    pub(crate) must_arrive: bool,
}

impl QueuePlan {
    /// Whether it outlives the process.
    pub(crate) fn survives(&self) -> bool {
        self.durable && self.kind != Kind::Volatile(Volatility::Exclusive)
    }

    /// Whether each confirmed message must be somewhere until it is settled.
    pub(crate) fn is_stable(&self) -> bool {
        !matches!(self.kind, Kind::Volatile(_))
    }

    /// Whether first deliveries keep the order in which they were published.
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(self.kind, Kind::Priorities | Kind::Dead)
    }

    /// The dead-letter queue's name.
    pub(crate) fn dead_name(&self) -> String {
        format!("dead-{}", self.name)
    }

    /// Whether rejected messages go to a dead-letter queue.
    pub(crate) fn dead_letters(&self) -> bool {
        matches!(self.kind, Kind::DeadLettering | Kind::Short(_) | Kind::Brief(_) | Kind::Quorum(_))
    }

    /// The arguments to declare it with.
    pub(crate) fn arguments(&self) -> Table {
        let table = Table::new();
        let dead = |table: Table| {
            table
                .with("x-dead-letter-exchange", "")
                .with("x-dead-letter-routing-key", self.dead_name())
        };
        match self.kind {
            Kind::Plain | Kind::Dead => table,
            Kind::DeadLettering => dead(table),
            Kind::Short(length) => dead(table).with("x-max-length", i64::from(length)),
            // Time takes away what waits, or only what no consumer's filter matches.
            Kind::Brief(millis) if millis % 2 == 1 => {
                dead(table).with("x-unmatched-after", i64::from(millis))
            }
            Kind::Brief(millis) => dead(table).with("x-message-ttl", i64::from(millis)),
            Kind::Refusing(length) => {
                table.with("x-max-length", i64::from(length)).with("x-overflow", "reject-publish")
            }
            Kind::Priorities => table.with("x-max-priority", 5),
            Kind::Quorum(limit) => {
                let table = dead(table)
                    .with("x-queue-type", "quorum")
                    .with("x-delivery-limit", i64::from(limit));
                match self.must_arrive {
                    true => table
                        .with("x-dead-letter-strategy", "at-least-once")
                        .with("x-overflow", "reject-publish"),
                    false => table,
                }
            }
            Kind::SingleActive => table.with("x-single-active-consumer", true),
            Kind::Volatile(volatility) => match volatility {
                Volatility::Expires(millis) => table.with("x-expires", i64::from(millis)),
                Volatility::DropsHead(length) => table.with("x-max-length", i64::from(length)),
                Volatility::Forgets(millis) => table.with("x-message-ttl", i64::from(millis)),
                _ => table,
            },
        }
    }
}

/// What happens to the disk and to the processes that use it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskPlan {
    /// Of so many things that happen one is the end of the process; 0 for never before the end.
    pub(crate) steps_per_life: u64,
    /// What goes wrong by chance.
    pub(crate) faults: Faults,
    /// The longest time that an operation takes.
    pub(crate) slow_max: Duration,
    /// Whether the disk is full for a while, now and then.
    pub(crate) fills: bool,
    /// Whether bits of bodies flip while no process runs.
    pub(crate) flips: bool,
    /// Whether bits of anything else flip while no process runs: headers, roots, checkpoints, the index, the
    /// definitions.
    pub(crate) damages: bool,
    /// What fails altogether for a while, now and then.
    pub(crate) outage: Outage,
    /// Files that a process has open at once, where it may lack more.
    pub(crate) open_max: Option<usize>,
}

/// Everything that a seed decides beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) options: Options,
    pub(crate) queues: Vec<QueuePlan>,
    pub(crate) exchanges: Vec<ExchangePlan>,
    pub(crate) actors: usize,
    /// Things that happen before the end begins.
    pub(crate) steps: usize,
    /// Whether connections break, clients read slowly, channels fail.
    pub(crate) faults: bool,
    /// Messages said in one go.
    pub(crate) burst_max: u64,
    /// The same in a transaction.
    pub(crate) commit_burst_max: u64,
    /// Bytes of a large body.
    pub(crate) large_bytes: u64,
    /// `None` in a run that keeps everything in memory.
    pub(crate) disk: Option<DiskPlan>,
    /// Whether deliveries that wait long for their acknowledgement close their channel.
    pub(crate) times_out: bool,
    /// Whether clients read a few bytes at a time, and answer late that a consumer is cancelled.
    pub(crate) trickles: bool,
}

fn pick(rng: &mut Rng, from: &[u64]) -> u64 {
    from[rng.below(from.len() as u64) as usize]
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn new(rng: &mut Rng) -> Plan {
        let shards = [1, 2, 2, 3, 3, 4, 5, 8][rng.below(8) as usize];
        let mut options = options(rng, shards);
        let disk = rng.chance(5, 6).then(|| {
            let store = store_options(rng);
            if (options.hash_seed >> 8).is_multiple_of(3) {
                // The log lags as soon as it has more than what it writes in one go.
                options.limits.unwritten_bytes_max = 2 * store.template.write_bytes_min + 4096;
            }
            options.store = Some(store);
            disk_plan(rng)
        });
        let mut queues = Vec::new();
        // So many queues that a message for all of them is handled in slices, and then in the half of
        // them mostly on one shard's disk.
        let wide = rng.chance(1, 80).then(|| pick(rng, &[120, 600, 700, 1100]));
        // What queues take that have nothing in them leaves room for messages.
        options.limits.memory_bytes += wide.map_or(0, |queues| queues as usize * EMPTY_QUEUE_BYTES);
        let is_dense = wide.is_some() && rng.chance(1, 2);
        if is_dense {
            options.shards = 1 + rng.below(2) as u16;
        }
        let shards = options.shards;
        for index in 0..wide.unwrap_or_else(|| 1 + rng.below(6)) {
            let kind =
                if wide.is_some() && !rng.chance(1, 8) { Kind::Plain } else { stable_kind(rng) };
            let root = queues.len();
            let queue = QueuePlan {
                name: format!("q{index}"),
                kind,
                root,
                declared_on: rng.below(u64::from(shards)) as u16,
                durable: is_dense || rng.chance(1, 2) || matches!(kind, Kind::Quorum(_)),
                must_arrive: false,
            };
            let dead = queue.dead_letters().then(|| QueuePlan {
                name: queue.dead_name(),
                kind: Kind::Dead,
                root,
                declared_on: rng.below(u64::from(shards)) as u16,
                durable: true,
                must_arrive: false,
            });
            queues.push(queue);
            queues.extend(dead);
        }
        let roots: Vec<usize> =
            (0..queues.len()).filter(|&queue| queues[queue].kind != Kind::Dead).collect();
        for index in 0..rng.below(4) as usize {
            let root = queues.len();
            queues.push(QueuePlan {
                name: format!("v{index}"),
                kind: Kind::Volatile(volatility(rng)),
                root,
                declared_on: rng.below(u64::from(shards)) as u16,
                durable: rng.chance(1, 2),
                must_arrive: false,
            });
        }
        let lasting: BTreeSet<usize> =
            roots.iter().copied().filter(|&root| queues[root].survives()).collect();
        let exchanges = routing::exchanges(rng, &roots, &lasting, wide.is_some());
        Plan {
            options,
            queues,
            exchanges,
            actors: 1 + rng.below(7) as usize,
            steps: if wide.is_some() { 400 } else { pick(rng, &[500, 2000, 5000]) as usize },
            faults: rng.chance(3, 4),
            burst_max: if rng.chance(1, 30) { 400 } else { 6 },
            commit_burst_max: if rng.chance(1, if wide.is_some() { 2 } else { 20 }) {
                150
            } else {
                6
            },
            large_bytes: if rng.chance(1, 100) { 200_000 } else { 10_000 },
            disk,
            times_out: false,
            trickles: false,
        }
    }

    /// What came later to the plans of all seeds. It is decided apart from the rest.
    pub(crate) fn extend(&mut self, rng: &mut Rng) {
        if rng.chance(1, 8) {
            self.times_out = true;
            self.options.limits.consumer_timeout = Duration::from_secs(1 + rng.below(60));
        }
        let must_arrive = rng.chance(1, 2);
        for queue in &mut self.queues {
            queue.must_arrive = must_arrive && matches!(queue.kind, Kind::Quorum(_));
        }
    }

    /// What only runs under strain have. It is decided apart, too.
    pub(crate) fn strain(&mut self, rng: &mut Rng) {
        self.trickles = rng.chance(1, 2);
        let is_bounded = rng.chance(1, 2);
        let segments_max = pick(rng, &[10, 16, 40]) as usize;
        let has_outages = rng.chance(1, 2);
        let outage = outage(rng);
        let read_retry_limit = Duration::from_secs(pick(rng, &[2, 10, 60]));
        let open_max = pick(rng, &[2, 5, 12]) as usize;
        // Not another draw: that would change the plans of all seeds.
        let damages = self.options.hash_seed % 3 == 1;
        let is_small = self.queues.len() < 50 && self.large_bytes < 100_000;
        if let Some(store) = self.options.store.as_mut().filter(|_| is_bounded && is_small) {
            store.template.segments_max = segments_max;
        }
        if let Some(disk) = self.disk.as_mut().filter(|disk| has_outages && !disk.fills) {
            disk.outage = outage;
            disk.open_max = outage.opens.then_some(open_max);
        }
        if let Some(disk) = &mut self.disk {
            disk.damages = damages;
        }
        if let Some(store) = self.options.store.as_mut() {
            store.template.read_retry_limit = read_retry_limit;
        }
    }

    /// Segments of a log at most, where there is a limit.
    pub(crate) fn segments_max(&self) -> Option<usize> {
        let store = self.options.store.as_ref()?;
        Some(store.template.segments_max).filter(|&most| most != usize::MAX)
    }
}

/// What an empty queue takes at most, with its places in the directory, in tables and in a log.
const EMPTY_QUEUE_BYTES: usize = 4096;

fn options(rng: &mut Rng, shards: u16) -> Options {
    let mut options = Options {
        shards,
        ring_capacity: pick(rng, &[2, 2, 3, 16]) as usize,
        socket_bytes_max: pick(rng, &[200, 5000, 65_536]) as usize,
        hash_seed: rng.next_u64(),
        ..Options::default()
    };
    options.limits = Limits {
        send_window_bytes: pick(rng, &[1, 500, 20_000, 262_144]) as usize,
        parked_bytes_max: pick(rng, &[1, 300, 1_048_576]) as usize,
        mail_batch_bytes_max: pick(rng, &[100, 3000, 524_288]) as usize,
        unacked_per_channel_max: pick(rng, &[3, 50, 1_000_000]) as u32,
        unread_bytes_max: pick(rng, &[1, 5000, 16 << 20]) as usize,
        // Less than what the pool keeps for reuse would never be enough again.
        memory_bytes: pick(rng, &[6_000_000, 1 << 30]) as usize,
        close_timeout: Duration::from_secs(10),
        ..Limits::default()
    };
    // Little of the budget is a shard's own, or there is so little in all that some wait for it.
    let limits = &mut options.limits;
    if options.hash_seed.is_multiple_of(2) {
        limits.memory_floor_bytes = 32 << 10;
        if limits.memory_bytes == 6_000_000 && options.hash_seed.is_multiple_of(4) {
            limits.memory_bytes = 1_500_000;
        }
    }
    options
}

fn store_options(rng: &mut Rng) -> StoreOptions {
    let mut template = lepus_store::Settings {
        segment_bytes: pick(rng, &[8192, 16_384, 65_536]) as u32,
        batch_bytes_max: pick(rng, &[4096, 16_384]) as usize,
        fill_bytes_min: 3000,
        write_bytes_min: pick(rng, &[2048, 16_384]) as usize,
        spare_segments: pick(rng, &[2, 6]) as usize,
        free_segments_max: pick(rng, &[1, 4]) as usize,
        index_pages_max: pick(rng, &[0, 2, 16]) as usize,
        cache_bytes: pick(rng, &[16_384, 131_072]) as usize,
        read_ahead_bytes: pick(rng, &[4096, 16_384]) as usize,
        checkpoint_log_bytes: pick(rng, &[20_000, 100_000, 1 << 20]),
        checkpoint_factor: 1 + rng.below(4),
        compaction_percent: 20 + rng.below(50) as u32,
        ..StoreOptions::default().template
    };
    let seed = rng.next_u64();
    // Index pages are written anew for moved messages at once, soon, or never.
    template.relocations_kept = [0, 20, 4096][(seed % 3) as usize];
    StoreOptions { template, seed }
}

fn disk_plan(rng: &mut Rng) -> DiskPlan {
    let mut plan =
        DiskPlan { steps_per_life: pick(rng, &[0, 30, 100, 300]), ..DiskPlan::default() };
    if rng.chance(1, 2) {
        plan.faults.short_write = 50;
    }
    match rng.below(8) {
        0 => plan.faults.write_error = 1 + rng.below(4),
        1 => plan.faults.sync_error = 1 + rng.below(4),
        2 => plan.fills = true,
        3 => plan.flips = true,
        6 => plan.faults.read_error = 1 + rng.below(10),
        4 | 5 => plan.slow_max = Duration::from_millis(1 + rng.below(100)),
        _ => {}
    }
    plan
}

/// What fails altogether: one kind of operation, or several that one cause hits.
fn outage(rng: &mut Rng) -> Outage {
    let none = Outage::default();
    let names = Outage { creates: true, deletes: true, directory_syncs: true, ..none };
    let outage = match rng.below(9) {
        0 => Outage { creates: true, ..none },
        1 => Outage { deletes: true, ..none },
        2 => Outage { directory_syncs: true, ..none },
        3 => names,
        4 | 5 => Outage { reads: true, ..none },
        6 => Outage { opens: true, ..none },
        7 => Outage { writes: true, ..none },
        _ => Outage { reads: true, writes: true, opens: true, ..names },
    };
    let errors = match outage {
        // What became of a write that failed is not known, and its log stops: that is tried elsewhere.
        Outage { writes: true, reads: false, .. } => [DiskError::Busy, DiskError::Full],
        Outage { creates: true, .. } if !outage.reads => [DiskError::Full, DiskError::Busy],
        _ => [DiskError::Busy; 2],
    };
    let error = errors[rng.below(2) as usize];
    Outage { error: (outage.writes || rng.chance(1, 2)).then_some(error), ..outage }
}

fn stable_kind(rng: &mut Rng) -> Kind {
    match rng.below(10) {
        0 | 1 => Kind::Plain,
        2 => Kind::DeadLettering,
        3 => Kind::Short(1 + rng.below(20) as u32),
        4 => Kind::Brief(1 + rng.below(100) as u32),
        5 => Kind::Refusing(1 + rng.below(20) as u32),
        6 => Kind::Priorities,
        7 => Kind::Quorum(1 + rng.below(3) as u32),
        8 => Kind::SingleActive,
        _ => Kind::Plain,
    }
}

fn volatility(rng: &mut Rng) -> Volatility {
    match rng.below(6) {
        0 => Volatility::Deleted,
        1 => Volatility::AutoDelete,
        2 => Volatility::Expires(1 + rng.below(100) as u32),
        3 => Volatility::Exclusive,
        4 => Volatility::DropsHead(1 + rng.below(5) as u32),
        _ => Volatility::Forgets(rng.below(50) as u32),
    }
}
