//! What the logs of messages on disk tell.

use super::Row;
use crate::exposition::{Exposition, Kind};
use crate::snapshot::{Shard, Snapshot};
use lepus_broker::query::LogFigures;

/// Totals of the whole node under RabbitMQ's names.
const NODE_TOTALS: &[Row<LogFigures>] = &[
    ("rabbitmq_io_write_bytes_total", "Bytes written to logs and indexes.", |f| {
        f.log_bytes + f.index_bytes
    }),
    ("rabbitmq_io_read_bytes_total", "Bytes of messages read from disk.", |f| f.read_bytes),
    ("rabbitmq_io_sync_ops_total", "Syncs of logs.", |f| f.syncs),
];

/// Totals of each shard.
const TOTALS: &[Row<LogFigures>] = &[
    ("lepus_store_log_bytes_total", "Bytes written to the logs of the shard.", |f| f.log_bytes),
    ("lepus_store_index_bytes_total", "Bytes written to index and checkpoints.", |f| f.index_bytes),
    ("lepus_store_read_bytes_total", "Bytes of messages read from disk.", |f| f.read_bytes),
    ("lepus_store_syncs_total", "Syncs of the logs.", |f| f.syncs),
    ("lepus_store_checkpoints_total", "Checkpoints written.", |f| f.checkpoints),
    ("lepus_store_moved_messages_total", "Messages that were copied to free a segment.", |f| {
        f.moved
    }),
    ("lepus_store_failed_reads_total", "Reads of logs and indexes that failed.", |f| {
        f.failed_reads
    }),
];

/// The state of each shard.
const GAUGES: &[Row<LogFigures>] = &[
    ("lepus_store_segments", "Segments that hold something.", |f| f.segments as u64),
    ("lepus_store_dead_segments", "Segments that the next checkpoint frees.", |f| {
        f.dead_segments as u64
    }),
    ("lepus_store_spare_segments", "Segments ready for use.", |f| f.spare_segments as u64),
    ("lepus_store_unwritten_bytes", "Bytes that wait to be written.", |f| f.unwritten_bytes as u64),
    ("lepus_store_memory_bytes", "Memory of write buffers, index and read-ahead.", |f| {
        f.memory_bytes as u64
    }),
    ("lepus_store_window_entries", "Places of messages that queues hold in memory.", |f| {
        f.window_entries as u64
    }),
    ("lepus_store_waiting_confirms", "Runs of confirms that wait for the disk.", |f| {
        f.waiting_reports as u64
    }),
    ("lepus_store_waiting_reads", "Reads that fail, are waited for and made again.", |f| {
        f.waiting_reads as u64
    }),
    ("lepus_store_damaged_messages", "Damaged messages met so far, which are kept.", |f| f.damaged),
    (
        "lepus_store_damaged_segments",
        "Segments kept for damage that a start met in them, and that no queue knows of.",
        |f| f.damaged_segments as u64,
    ),
    (
        "lepus_store_orphaned_messages",
        "Messages of queues that nobody knows, which are kept.",
        |f| f.orphaned,
    ),
    ("lepus_store_stopped", "1 once the disk has failed for good.", |f| u64::from(f.is_stopped)),
];

/// The store's part of the page.
pub(super) fn write(snapshot: &Snapshot, page: &mut Exposition) {
    for (name, help, part) in NODE_TOTALS {
        let total: u64 = snapshot.shards.iter().map(|shard| part(&shard.figures.logs)).sum();
        page.single(name, Kind::Counter, help, total);
    }
    let limit = snapshot.node.disk_free_bytes_min;
    let name = "rabbitmq_disk_space_available_limit_bytes";
    page.single(name, Kind::Gauge, "Free bytes below which publishers are held back.", limit);
    let shards: Vec<(String, &Shard)> = (snapshot.shards.iter().enumerate())
        .map(|(number, shard)| (number.to_string(), shard))
        .collect();
    for (kind, rows) in [(Kind::Counter, TOTALS), (Kind::Gauge, GAUGES)] {
        for (name, help, part) in rows {
            page.family(name, kind, help);
            for (number, shard) in &shards {
                page.sample(name, &[("shard", number)], part(&shard.figures.logs));
            }
        }
    }
    let name = "lepus_store_oldest_delivery_segments";
    let help = "Segments that the oldest unacknowledged delivery keeps from being freed as a whole, \
                and its queue.";
    page.family(name, Kind::Gauge, help);
    for (number, shard) in &shards {
        if let Some(oldest) = &shard.figures.oldest {
            let labels = [
                ("shard", number.as_str()),
                ("vhost", oldest.vhost.as_str()),
                ("queue", oldest.queue.as_str()),
            ];
            page.sample(name, &labels, oldest.segments);
        }
    }
}
