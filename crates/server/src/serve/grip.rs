//! Lets a shard go from its CPU where others keep it from running there.

use super::lifecycle::Lifecycle;
use super::plan::Plan;
use crate::figures::Figures;
use crate::log::Log;
use lepus_topology::{Binding, CpuTime, Grip, Ids, bind_thread, cpu_time, idle_times};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread that looks, where shards are bound to CPUs and could be elsewhere. It ends with
/// the broker.
///
/// # Errors
/// When the system has no thread.
pub(super) fn start(
    plan: &Plan,
    figures: &Arc<Figures>,
    lifecycle: &Arc<Lifecycle>,
    log: &Log,
) -> Result<(), String> {
    let usable = plan.machine.usable_cpus();
    if plan.placement.binding != Binding::Cpu || usable.len() < 2 {
        return Ok(());
    }
    let bound = |(shard, place): (usize, &lepus_topology::Place)| {
        let near = plan.machine.node(place.cpu.node).map(|node| node.cpus.and(&usable));
        // On one node alone there is nowhere else to go.
        let wider = near.filter(|near| near.len() > 1).unwrap_or_else(|| usable.clone());
        Held { shard, cpu: place.cpu.id, wider, grip: Grip::default(), time: None, is_gone: false }
    };
    let held: Vec<Held> = plan.placement.places.iter().enumerate().map(bound).collect();
    let (figures, lifecycle, log) = (Arc::clone(figures), Arc::clone(lifecycle), log.clone());
    let started = std::thread::Builder::new()
        .name("places".into())
        .spawn(move || watch(held, &figures, &lifecycle, &log));
    started.map(drop).map_err(|error| format!("cannot start the thread for places: {error}"))
}

/// A shard's thread on its CPU.
struct Held {
    shard: usize,
    cpu: u32,
    /// Where it may be instead.
    wider: Ids,
    grip: Grip,
    /// What it had at the last look.
    time: Option<CpuTime>,
    is_gone: bool,
}

fn watch(mut held: Vec<Held>, figures: &Figures, lifecycle: &Lifecycle, log: &Log) {
    let mut idle_before = idle_times();
    while !lifecycle.stops() && held.iter().any(|held| !held.is_gone) {
        std::thread::sleep(INTERVAL);
        let idle = idle_times();
        for held in held.iter_mut().filter(|held| !held.is_gone) {
            let Some(metrics) = figures.shard_metrics(held.shard) else { continue };
            let thread = u32::try_from(metrics.snapshot().thread).unwrap_or(0);
            let Some(time) = cpu_time(thread) else { continue };
            let Some(before) = held.time.replace(time) else { continue };
            let elsewhere = idle_elsewhere(held, &idle_before, &idle);
            if !held.grip.is_lost(time.since(before), elsewhere) {
                continue;
            }
            held.is_gone = true;
            let (shard, cpu, wider) = (held.shard, held.cpu, &held.wider);
            let text = match bind_thread(thread, wider) {
                Ok(()) => {
                    metrics.let_go();
                    format!(
                        "shard {shard} waits for CPU {cpu}, which others use, while another one is \
                         idle: it may run on CPUs {wider} from now on. Keep other programs away from \
                         CPU {cpu}, or leave it out by placement"
                    )
                }
                Err(error) => format!(
                    "shard {shard} waits for CPU {cpu}, which others use, and the system does not \
                     let it run on CPUs {wider}: {error}"
                ),
            };
            log.warning("misplaced", text);
        }
        idle_before = idle;
    }
}

/// The greatest share of the time between two looks, in thousandths, that another CPU which the
/// thread might use had nothing to do.
fn idle_elsewhere(held: &Held, before: &BTreeMap<u32, u64>, now: &BTreeMap<u32, u64>) -> u32 {
    let others = held.wider.iter().filter(|cpu| *cpu != held.cpu);
    let hundredths = others.filter_map(|cpu| now.get(&cpu)?.checked_sub(*before.get(&cpu)?));
    hundredths.max().map_or(0, |idle| u32::try_from(idle.saturating_mul(10)).unwrap_or(1000))
}
