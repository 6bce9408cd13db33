//! What panels about Erlang's virtual machine can be told of a broker that has none.

use crate::exposition::{Exposition, Kind};
use crate::snapshot::Snapshot;

/// The few families that have something behind them: shards are the schedulers, and memory and traffic are memory and
/// traffic.
pub(super) fn write(snapshot: &Snapshot, page: &mut Exposition) {
    let shards = snapshot.shards.len();
    page.single("erlang_vm_schedulers", Kind::Gauge, "Shards.", shards);
    page.single("erlang_vm_schedulers_online", Kind::Gauge, "Shards.", shards);
    let name = "erlang_vm_memory_bytes_total";
    page.family(
        name,
        Kind::Gauge,
        "Bytes of memory: of messages, connections and tables, and the rest.",
    );
    let used = snapshot.held(|h| h.memory_bytes).min(snapshot.own.resident_bytes);
    page.sample(name, &[("kind", "processes")], used);
    page.sample(name, &[("kind", "system")], snapshot.own.resident_bytes - used);
    let turns = || snapshot.shards.iter().map(|shard| &shard.turns);
    for (name, help, bytes) in [
        (
            "erlang_vm_statistics_bytes_received_total",
            "Bytes read from sockets.",
            turns().map(|turns| turns.bytes_in).sum::<u64>(),
        ),
        (
            "erlang_vm_statistics_bytes_output_total",
            "Bytes written to sockets.",
            turns().map(|turns| turns.bytes_out).sum::<u64>(),
        ),
    ] {
        page.single(name, Kind::Counter, help, bytes);
    }
}
