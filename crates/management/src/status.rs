//! What `lepus status` shows.

use crate::snapshot::Snapshot;
use lepus_broker::query::Holdings;
use serde_json::{Map, Value, json};

/// `facts` that do not change while the broker runs, and the figures of a moment, in the order in which they are
/// shown.
#[must_use]
pub fn answer(facts: &[(&'static str, Value)], snapshot: &Snapshot) -> Value {
    let held = |part: fn(&Holdings) -> u64| json!(snapshot.held(part));
    let figures = [
        ("uptime_seconds", json!(snapshot.uptime_seconds)),
        ("shards", json!(snapshot.shards.len())),
        ("connections", held(|h| h.connections)),
        ("channels", held(|h| h.channels)),
        ("queues", held(|h| h.queues)),
        ("consumers", held(|h| h.consumers)),
        ("messages_ready", held(|h| h.ready)),
        ("messages_unacked", held(|h| h.unacked)),
        ("memory_used_bytes", held(|h| h.memory_bytes)),
        ("memory_budget_bytes", json!(snapshot.node.memory_budget_bytes)),
        ("memory_alarm", json!(snapshot.memory_alarm())),
        ("disk_alarm", json!(snapshot.disk_alarm())),
        ("resident_bytes", json!(snapshot.own.resident_bytes)),
    ];
    let mut status = Map::new();
    for (key, value) in facts.iter().chain(&figures) {
        status.insert((*key).to_owned(), value.clone());
    }
    status.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Shard;

    #[test]
    fn facts_come_first_and_shards_are_added_up() {
        let mut snapshot = Snapshot { shards: vec![Shard::default(); 3], ..Snapshot::default() };
        for shard in &mut snapshot.shards {
            shard.figures.holdings.queues = 5;
        }
        snapshot.shards[1].figures.logs.is_low = true;
        let status = answer(&[("node", json!("rabbit@host"))], &snapshot);
        assert_eq!(status["node"], "rabbit@host");
        assert_eq!((&status["queues"], &status["shards"]), (&json!(15), &json!(3)));
        assert_eq!((&status["disk_alarm"], &status["memory_alarm"]), (&json!(true), &json!(false)));
    }
}
