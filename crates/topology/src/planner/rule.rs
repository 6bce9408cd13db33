//! The rule that decides how many shards there are, what their threads are bound to, and whether they
//! may look around before they sleep.

/// Of the memory budget, what one shard more is worth: with less, what each shard has by itself
/// (connections, tables, buffers of its log) leaves too little for messages.
pub const BUDGET_BYTES_PER_SHARD: u64 = 64 << 20;
/// Of the disk, the same: a shard's log has prepared segments, and needs room to be compacted.
pub const DISK_BYTES_PER_SHARD: u64 = 256 << 20;

/// What there is for shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Means {
    /// CPUs that the placement leaves of those that may be used, at least 1.
    pub cpus: usize,
    /// CPU time per time that a control group grants, in CPUs.
    pub quota: Option<f64>,
    /// Whether memory lies on several nodes.
    pub is_numa: bool,
    /// Bytes for messages and connections, where that is known.
    pub budget_bytes: Option<u64>,
    /// Bytes of the disk that logs may take, where that is known.
    pub disk_bytes: Option<u64>,
}

/// What the operator asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// How many shards; none takes as many as there are means for.
    pub shards: Option<usize>,
    /// At most so many, whatever there is; 0 for no limit.
    pub shards_max: usize,
    /// Whether the placement says which CPUs, or in which order.
    pub is_placed: bool,
    /// Bind nothing.
    pub unbound: bool,
}

/// What a shard's thread is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// A CPU of its own.
    Cpu,
    /// All CPUs of a memory node: the system's scheduler chooses among them.
    Node,
    /// Nothing.
    Nothing,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// Number of shards, at least 1.
    pub shards: usize,
    /// Why so many, in words.
    pub reason: String,
    /// What their threads are bound to.
    pub binding: Binding,
    /// Whether each may look around before it sleeps.
    pub may_spin: bool,
    /// What the operator should know about the two.
    pub note: Option<String>,
}

/// Decides.
///
/// A thread is bound to a CPU only where that CPU can be taken to be its own: when a placement says
/// so, or when there is a shard for each CPU and time for all of them. With fewer shards, or a quota
/// that CPUs of the machine are not set apart for, every other broker on the machine would choose the
/// same CPUs. A shard spins only where the time of a whole CPU is left for its other threads: under a
/// quota what it spins is taken from everybody's time.
#[must_use]
pub fn rule(means: &Means, demand: &Demand) -> Ruling {
    let cpus = means.cpus.max(1);
    // One that is never reached is none.
    let quota = means.quota.filter(|quota| *quota < cpus as f64);
    // A float beyond the range saturates.
    let granted = quota.map_or(cpus, |quota| (quota.ceil() as usize).max(1));
    let (mut shards, mut reason) = match demand.shards {
        Some(shards) => (shards.max(1), "as configured".to_owned()),
        None => as_many_as_fit(means, quota, cpus),
    };
    if demand.shards_max > 0 && shards > demand.shards_max {
        reason = format!("at most {} shards are supported", demand.shards_max);
        shards = demand.shards_max;
    }
    let near = if means.is_numa { Binding::Node } else { Binding::Nothing };
    let instead = if means.is_numa { "to a memory node each" } else { "to nothing" };
    let fits = shards <= granted;
    let (binding, why) = match quota {
        _ if demand.unbound => (Binding::Nothing, None),
        _ if !fits => (
            Binding::Nothing,
            Some(format!(
                "{shards} shards, but {granted} CPUs for them: they are not bound to CPUs"
            )),
        ),
        _ if demand.is_placed => (Binding::Cpu, None),
        Some(quota) => (
            near,
            Some(format!(
                "the time of {quota} CPUs is granted, and no CPU set apart for it: shards are bound \
                 {instead}"
            )),
        ),
        None if shards < cpus => (
            near,
            Some(format!(
                "fewer shards than the {cpus} CPUs, and no placement: they are bound {instead}"
            )),
        ),
        None => (Binding::Cpu, None),
    };
    let may_spin = fits && quota.is_none_or(|quota| quota >= shards as f64 + 1.0);
    let note = match (why, may_spin) {
        (Some(why), false) => Some(format!("{why}, and do not spin")),
        (None, false) => Some("shards do not spin: others need the CPU time".to_owned()),
        (why, true) => why,
    };
    Ruling { shards, reason, binding, may_spin, note }
}

/// The number of shards that the scarcest of the means bears, and why.
fn as_many_as_fit(means: &Means, quota: Option<f64>, cpus: usize) -> (usize, String) {
    let parts = |bytes: u64, each: u64| usize::try_from(bytes / each).unwrap_or(usize::MAX);
    let mib = |bytes: u64| bytes >> 20;
    let quota = quota.map(|quota| {
        (quota.ceil() as usize, format!("a control group grants the time of {quota} CPUs"))
    });
    let budget = means.budget_bytes.map(|bytes| {
        let (all, each) = (mib(bytes), mib(BUDGET_BYTES_PER_SHARD));
        let why = format!("the memory budget of {all} MiB is enough for one per {each} MiB");
        (parts(bytes, BUDGET_BYTES_PER_SHARD), why)
    });
    let disk = means.disk_bytes.map(|bytes| {
        let (all, each) = (mib(bytes), mib(DISK_BYTES_PER_SHARD));
        let why = format!("logs may take {all} MiB of the disk, enough for one per {each} MiB");
        (parts(bytes, DISK_BYTES_PER_SHARD), why)
    });
    let bounds = [quota, budget, disk];
    let scarcest = bounds.into_iter().flatten().min_by_key(|(shards, _)| *shards);
    match scarcest.filter(|(shards, _)| *shards < cpus) {
        Some((shards, why)) => (shards.max(1), format!("{why}; the CPUs would bear {cpus}")),
        None => (cpus, "one per CPU".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn rich(cpus: usize) -> Means {
        let bytes = Some(1 << 50);
        Means { cpus, quota: None, is_numa: false, budget_bytes: bytes, disk_bytes: bytes }
    }

    #[test]
    fn the_scarcest_of_cpus_quota_memory_and_disk_decides_how_many_shards() {
        // CPUs, quota, budget and disk in MiB; shards and a word of the reason.
        for (cpus, quota, budget, disk, shards, word) in [
            (1, None, 1 << 20, 1 << 20, 1, "one per CPU"),
            (64, None, 1 << 20, 1 << 20, 64, "one per CPU"),
            (64, Some(2.0), 1 << 20, 1 << 20, 2, "time of 2 CPUs"),
            (64, Some(0.5), 1 << 20, 1 << 20, 1, "time of 0.5 CPUs"),
            (64, Some(1.5), 1 << 20, 1 << 20, 2, "time of 1.5 CPUs"),
            (4, Some(64.0), 1 << 20, 1 << 20, 4, "one per CPU"),
            (64, None, 256, 1 << 20, 4, "memory budget of 256 MiB"),
            (64, Some(0.5), 128, 1 << 20, 1, "time of 0.5 CPUs"),
            (64, None, 64, 1 << 20, 1, "memory budget of 64 MiB"),
            (64, None, 16, 1 << 20, 1, "memory budget of 16 MiB"),
            (64, None, 1 << 20, 4096, 16, "4096 MiB of the disk"),
            (64, None, 1 << 20, 100, 1, "100 MiB of the disk"),
            (64, None, 1024, 1024, 4, "1024 MiB of the disk"),
            (64, None, 4096, 16_384, 64, "one per CPU"),
        ] {
            let means = Means {
                quota,
                budget_bytes: Some(budget << 20),
                disk_bytes: Some(disk << 20),
                ..rich(cpus)
            };
            let ruling = rule(&means, &Demand { shards_max: 256, ..Demand::default() });
            assert_eq!(ruling.shards, shards, "{means:?}: {ruling:?}");
            assert!(ruling.reason.contains(word), "{means:?}: {ruling:?}");
        }
        let unknown = Means { cpus: 8, ..Means::default() };
        assert_eq!(rule(&unknown, &Demand::default()).shards, 8);
        let most = Demand { shards_max: 256, ..Demand::default() };
        assert_eq!(rule(&rich(1000), &most).shards, 256);
        let asked = Demand { shards: Some(64), ..Demand::default() };
        let poor = Means { budget_bytes: Some(GIB / 16), ..rich(4) };
        assert_eq!(rule(&poor, &asked).shards, 64, "what is asked for is done");
    }

    #[test]
    fn a_cpu_is_taken_only_where_it_is_the_shards_own() {
        use Binding::{Cpu, Node, Nothing};
        // CPUs, quota, several nodes, shards, placed; binding, and whether it spins.
        for (cpus, quota, is_numa, shards, is_placed, binding, may_spin) in [
            (4, None, false, None, false, Cpu, true),
            (64, None, true, None, false, Cpu, true),
            // Some shards of many CPUs: every other broker would take the same.
            (64, None, false, Some(1), false, Nothing, true),
            (64, None, true, Some(8), false, Node, true),
            (64, None, true, Some(8), true, Cpu, true),
            (2, None, false, Some(1), true, Cpu, true),
            // A quota without CPUs of its own.
            (64, Some(2.0), false, None, false, Nothing, false),
            (64, Some(2.0), true, None, false, Node, false),
            (64, Some(0.5), false, None, false, Nothing, false),
            (64, Some(0.5), false, None, true, Cpu, false),
            (64, Some(1.5), false, Some(1), false, Nothing, false),
            (64, Some(2.0), false, Some(1), false, Nothing, true),
            (64, Some(9.0), true, Some(8), true, Cpu, true),
            (64, Some(8.0), true, Some(8), true, Cpu, false),
            // CPUs set apart for it, and as much time.
            (4, Some(4.0), false, None, false, Cpu, true),
            (4, Some(8.0), true, None, false, Cpu, true),
            (4, Some(3.5), false, None, false, Nothing, false),
            // More shards than CPUs.
            (4, None, false, Some(5), false, Nothing, false),
            (4, None, true, Some(5), true, Nothing, false),
            (4, Some(2.0), true, Some(3), true, Nothing, false),
        ] {
            let means = Means { quota, is_numa, ..rich(cpus) };
            let demand = Demand { shards, is_placed, ..Demand::default() };
            let ruling = rule(&means, &demand);
            let about = format!("{means:?} {demand:?}: {ruling:?}");
            assert_eq!((ruling.binding, ruling.may_spin), (binding, may_spin), "{about}");
            let expected = binding == Cpu && may_spin;
            assert_eq!(ruling.note.is_none(), expected, "{about}");
            let unbound = rule(&means, &Demand { unbound: true, ..demand });
            assert_eq!((unbound.binding, unbound.may_spin), (Nothing, may_spin), "{about}");
        }
    }
}
