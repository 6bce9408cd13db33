use super::*;
use crate::snapshot::Node;
use lepus_broker::query::Oldest;
use std::collections::{BTreeMap, HashSet};

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot {
        node: Node { name: "rabbit@\"host\"".to_owned(), ..Node::default() },
        shards: vec![Shard::default(); 2],
        ..Snapshot::default()
    };
    for (number, shard) in snapshot.shards.iter_mut().enumerate() {
        shard.figures.counters.received = 10 + number as u64;
        shard.figures.counters.enqueued_local = 4;
        shard.figures.counters.filter_bodies_unreadable = 3 * number as u64;
        shard.figures.counters.enqueued_remote = 4;
        shard.figures.counters.enqueued_near = 1;
        for bytes in [50, 5_000, 200_000_000] {
            shard.figures.counters.count_size(bytes);
        }
        shard.figures.holdings.ready = 4;
        shard.figures.holdings.unacked = 1;
        shard.turns.busy_nanos = 1_500_000_000;
        shard.turns.turn_nanos_max = 21_000_000;
        shard.turns.long_turns = 1;
        shard.figures.logs.syncs = 100;
        shard.figures.logs.segments = 3 + number;
        shard.figures.logs.is_low = number == 1;
    }
    snapshot
}

/// Samples by name with labels; panics where the page is not valid.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut families = HashSet::new();
    let mut family = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone()), "{family} stands twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            // Erlang's name for a gauge.
            let is_total = name.ends_with("_total") && name != "erlang_vm_memory_bytes_total";
            assert_eq!(kind == "counter", is_total, "{name} is a {kind}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            assert!(name.starts_with(&family), "{name} in {family}");
            assert!(samples.insert(name.to_owned(), value).is_none(), "{name} stands twice");
        }
    }
    samples
}

#[test]
fn the_page_is_valid_and_sums_the_shards() {
    let page = encode(&snapshot());
    assert!(page.ends_with('\n'));
    let samples = parse(&page);
    let value = |name: &str| samples.get(name).copied().unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(value("rabbitmq_global_messages_received_total{protocol=\"amqp091\"}"), 21.0);
    assert_eq!(value("rabbitmq_queue_messages"), 10.0);
    assert_eq!(value("rabbitmq_channel_messages_published_total"), 21.0);
    assert_eq!(value("rabbitmq_channel_messages_unacked"), 2.0);
    assert_eq!(value("lepus_shard_seconds_total{shard=\"1\",state=\"busy\"}"), 1.5);
    assert_eq!(value("lepus_shard_longest_turn_seconds{shard=\"1\"}"), 0.021);
    assert_eq!(value("lepus_shard_long_turns_total{shard=\"1\"}"), 1.0);
    assert_eq!(value("lepus_shard_filter_bodies_unreadable_total{shard=\"1\"}"), 3.0);
    let crossed = "lepus_shard_messages_total{shard=\"0\",step=\"enqueue\",path=\"crossed\"}";
    assert_eq!(value(crossed), 3.0);
    let node = "lepus_shard_messages_total{shard=\"0\",step=\"enqueue\",path=\"node\"}";
    assert_eq!(value(node), 1.0);
    assert_eq!(value("lepus_messages_stayed_ratio"), 0.5);
}

#[test]
fn a_shards_place_is_told_where_it_is_bound() {
    let mut snapshot = snapshot();
    snapshot.shards[1].turns.cpu = Some(12);
    snapshot.shards[1].turns.memory_node = Some(0);
    snapshot.shards[1].turns.misplaced = 1;
    let samples = parse(&encode(&snapshot));
    assert_eq!(samples["lepus_shard_cpu{shard=\"1\"}"], 12.0);
    assert_eq!(samples["lepus_shard_memory_node{shard=\"1\"}"], 0.0);
    assert_eq!(samples["lepus_shard_misplaced{shard=\"1\"}"], 1.0);
    assert_eq!(samples["lepus_shard_misplaced{shard=\"0\"}"], 0.0);
    assert!(!samples.contains_key("lepus_shard_cpu{shard=\"0\"}"));
}

#[test]
fn the_logs_are_told_by_shard_and_name_what_pins_them() {
    let mut snapshot = snapshot();
    let oldest = Oldest { vhost: "/".into(), queue: "a \"b\"".into(), segments: 7 };
    snapshot.shards[1].figures.oldest = Some(oldest);
    let samples = parse(&encode(&snapshot));
    let value = |name: &str| samples.get(name).copied().unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(value("rabbitmq_io_sync_ops_total"), 200.0);
    assert_eq!(value("lepus_store_segments{shard=\"1\"}"), 4.0);
    assert_eq!(value("rabbitmq_alarms_free_disk_space_watermark"), 1.0);
    let name = r#"lepus_store_oldest_delivery_segments{shard="1",vhost="/",queue="a \"b\""}"#;
    assert_eq!(value(name), 7.0);
    snapshot.shards[1].figures.logs.is_low = false;
    let samples = parse(&encode(&snapshot));
    assert_eq!(samples["rabbitmq_alarms_free_disk_space_watermark"], 0.0);
}

#[test]
fn the_histogram_is_cumulative() {
    let samples = parse(&encode(&snapshot()));
    let bucket = |bound: &str| {
        samples
            [&format!("rabbitmq_message_size_bytes_bucket{{protocol=\"amqp091\",le=\"{bound}\"}}")]
    };
    assert_eq!(bucket("100"), 2.0);
    assert_eq!(bucket("1000"), 2.0);
    assert_eq!(bucket("10000"), 4.0);
    assert_eq!(bucket("100000000"), 4.0);
    assert_eq!(bucket("+Inf"), 6.0);
    let count = samples["rabbitmq_message_size_bytes_count{protocol=\"amqp091\"}"];
    assert_eq!(count, bucket("+Inf"));
}

/// RabbitMQ counts channels under this name: whoever compares is told.
#[test]
fn the_help_of_publishers_says_that_connections_are_counted() {
    let page = encode(&snapshot());
    let help = page.lines().find(|line| line.starts_with("# HELP rabbitmq_global_publishers "));
    assert!(help.is_some_and(|help| help.contains(" Open connections ")), "{help:?}");
}

#[test]
fn dashboards_find_what_they_join_on() {
    let page = encode(&snapshot());
    assert!(page.contains("rabbitmq_identity_info{rabbitmq_node=\"rabbit@\\\"host\\\"\""));
    for name in [
        "rabbitmq_build_info{",
        "rabbitmq_connections_opened_total ",
        "rabbitmq_resident_memory_limit_bytes ",
        "rabbitmq_global_messages_dead_lettered_maxlen_total{",
        "rabbitmq_global_publishers{",
    ] {
        assert!(page.contains(&format!("\n{name}")), "{name}");
    }
}

/// The families that panels of RabbitMQ's boards and the usual alerts ask for.
const ASKED: &str = "identity_info build_info queues queue_messages_ready queue_messages_unacked queue_messages \
    queue_consumers connections channels consumers global_publishers global_consumers \
    global_messages_received_total global_messages_received_confirm_total global_messages_routed_total \
    global_messages_confirmed_total global_messages_unroutable_dropped_total \
    global_messages_unroutable_returned_total global_messages_delivered_total \
    global_messages_delivered_consume_manual_ack_total global_messages_delivered_consume_auto_ack_total \
    global_messages_delivered_get_manual_ack_total global_messages_delivered_get_auto_ack_total \
    global_messages_redelivered_total global_messages_acknowledged_total global_messages_get_empty_total \
    global_messages_dead_lettered_expired_total global_messages_dead_lettered_maxlen_total \
    global_messages_dead_lettered_rejected_total global_messages_dead_lettered_delivery_limit_total \
    global_messages_dead_lettered_confirmed_total message_size_bytes_bucket message_size_bytes_sum \
    message_size_bytes_count connections_opened_total connections_closed_total channels_opened_total \
    channels_closed_total queues_declared_total queues_created_total queues_deleted_total \
    process_resident_memory_bytes resident_memory_limit_bytes disk_space_available_bytes \
    disk_space_available_limit_bytes process_open_fds process_max_fds erlang_uptime_seconds \
    alarms_memory_used_watermark alarms_free_disk_space_watermark alarms_file_descriptor_limit \
    raft_term_total raft_log_commit_index raft_log_last_written_index raft_log_snapshot_index \
    raft_entry_commit_latency_seconds stream_error channel_consumers channel_messages_unacked \
    channel_messages_published_total channel_messages_confirmed_total channel_messages_unroutable_dropped_total \
    channel_messages_unroutable_returned_total channel_messages_delivered_total \
    channel_messages_delivered_ack_total channel_messages_redelivered_total channel_messages_acked_total \
    channel_get_total channel_get_ack_total channel_get_empty_total queue_messages_published_total";

/// Whatever a board asks for is there, or `docs/metrics.md` says why it is not.
#[test]
fn what_boards_ask_for_is_told_or_said_to_be_left_out() {
    let page = encode(&snapshot());
    let documentation = include_str!("../../../../docs/metrics.md");
    let (_, left_out) = documentation.split_once("## Left out").unwrap();
    for name in ASKED.split_whitespace() {
        let is_sample = |line: &str| {
            let rest = line.strip_prefix("rabbitmq_").and_then(|line| line.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        let is_told = page.lines().any(is_sample);
        let family = ["raft_", "stream_error"].into_iter().find(|family| name.starts_with(family));
        let is_named = left_out.contains(&format!("rabbitmq_{}", family.unwrap_or(name)));
        assert!(is_told != is_named, "{name}: told {is_told}, left out {is_named}");
    }
}
