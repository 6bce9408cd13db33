//! A shard's thread takes its place, and the kernel is asked whether it has it.

use std::io;

use lepus_base::ShardId;
use lepus_topology::{
    Ids, MemoryPolicy, Place, Plan, bind_current_memory, bind_current_thread, kernel, usable_cpus,
};

use crate::metrics::ShardMetrics;
use crate::notice::{Notice, Notices};

/// Binds the calling thread and its memory, before it allocates anything of its own, and compares
/// what the kernel says about it with the plan. Whatever differs is counted and told; the shard runs
/// where the system lets it.
pub(crate) fn settle<E>(
    shard: ShardId,
    place: Option<&Place>,
    is_numa: bool,
    metrics: &ShardMetrics,
    notices: &Notices<E>,
) {
    metrics.thread.set(kernel::current_thread_id().map_or(0, u64::from));
    let Some(place) = place else { return };
    let node = place.memory_node.filter(|_| is_numa);
    let bound = bind_current_thread(&place.cpus);
    let memory = match node {
        Some(node) => bind_current_memory(&MemoryPolicy::Prefer(node)),
        None => Ok(()),
    };
    if bound.is_ok() && place.cpus.len() == 1 {
        metrics.cpu.set(u64::from(place.cpu.id) + 1);
    }
    if let (Some(node), Ok(())) = (node, &memory) {
        metrics.memory_node.set(u64::from(node) + 1);
    }
    for reason in [cpu_differs(place, &bound), node.and_then(|node| memory_differs(node, &memory))]
        .into_iter()
        .flatten()
    {
        metrics.misplaced.set(1);
        notices.tell(Notice::Misplaced { shard, reason });
    }
}

/// What speaks against the thread being on its CPU.
fn cpu_differs(place: &Place, bound: &io::Result<()>) -> Option<String> {
    let wanted = &place.cpus;
    if let Err(error) = bound {
        return Some(format!("planned on CPU {wanted}, but the system does not bind it: {error}"));
    }
    let allowed = kernel::thread(kernel::current_thread_id()?)?.allowed;
    (allowed != *wanted)
        .then(|| format!("planned on CPU {wanted}, but the kernel lets it run on CPUs {allowed}"))
}

/// What speaks against the memory being on its node.
fn memory_differs(node: u32, bound: &io::Result<()>) -> Option<String> {
    if let Err(error) = bound {
        return Some(format!(
            "memory planned on node {node}, but the system does not bind it: {error}; it lies where \
             it is touched first"
        ));
    }
    let policy = kernel::memory_policy()?;
    (policy != format!("prefer:{node}")).then(|| {
        format!("memory planned on node {node}, but the kernel's policy for it is {policy}")
    })
}

/// The place of the calling thread, borrowed so that threads it starts begin there; given back when
/// it is dropped. What the system refuses is left as it is: shards tell about it, each its own.
pub(crate) struct Borrowed {
    before: Option<(Ids, MemoryPolicy)>,
}

impl Borrowed {
    /// For memory of all shards: spread over their nodes.
    pub(crate) fn shared(plan: &Plan) -> Borrowed {
        if plan.shared_memory.is_empty() {
            return Borrowed { before: None };
        }
        let _ = bind_current_memory(&MemoryPolicy::Interleave(plan.shared_memory.clone()));
        Borrowed { before: Some((Ids::new(), MemoryPolicy::FirstTouch)) }
    }

    /// For a shard's own thread: its place, so that even its stack lies there.
    pub(crate) fn at(plan: &Plan, shard: usize) -> Borrowed {
        Borrowed::take(plan, shard, |place| place.cpus.clone())
    }

    /// For the threads that serve a shard's files: near it.
    pub(crate) fn near(plan: &Plan, shard: usize) -> Borrowed {
        Borrowed::take(plan, shard, |place| place.file_cpus.clone())
    }

    fn take(plan: &Plan, shard: usize, cpus: impl FnOnce(&Place) -> Ids) -> Borrowed {
        let Some(place) = plan.places.get(shard).filter(|_| plan.binds_memory()) else {
            return Borrowed { before: None };
        };
        let before = usable_cpus().ids;
        let before = before.into_iter().filter_map(|cpu| u32::try_from(cpu).ok()).collect();
        let _ = bind_current_thread(&cpus(place));
        if let Some(node) = place.memory_node {
            let _ = bind_current_memory(&MemoryPolicy::Prefer(node));
        }
        Borrowed { before: Some((before, MemoryPolicy::Interleave(plan.shared_memory.clone()))) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some((cpus, memory)) = &self.before {
            if !cpus.is_empty() {
                let _ = bind_current_thread(cpus);
            }
            let _ = bind_current_memory(memory);
        }
    }
}
