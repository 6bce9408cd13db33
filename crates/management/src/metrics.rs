//! The broker's figures as metrics: RabbitMQ's names, so that its dashboards and alerts go on
//! working, and `lepus_…` for what only lepus has.

mod erlang;
mod logs;
pub mod objects;

use crate::exposition::{Exposition, Kind};
use crate::snapshot::{LoopFigures, Shard, Snapshot, Waiting};
use lepus_broker::counters::{Counters, SIZE_BOUNDS};
use lepus_broker::query::Holdings;

/// The label of everything that comes in over AMQP 0-9-1.
const PROTOCOL: &[(&str, &str)] = &[("protocol", "amqp091")];

/// A metric of one number: name or the part of it that differs, help, and where the number is found.
type Row<T> = (&'static str, &'static str, fn(&T) -> u64);

const GLOBAL_TOTALS: &[Row<Counters>] = &[
    ("messages_received", "Messages received from publishers.", |c| c.received),
    ("messages_received_confirm", "Messages received on channels in confirm mode.", |c| {
        c.received_confirm
    }),
    ("messages_routed", "Messages that reached a queue.", |c| c.routed),
    ("messages_confirmed", "Messages confirmed to publishers.", |c| c.confirmed),
    ("messages_unroutable_dropped", "Messages without a queue that were dropped.", |c| {
        c.unroutable_dropped
    }),
    ("messages_unroutable_returned", "Messages without a queue that were returned.", |c| {
        c.unroutable_returned
    }),
    ("messages_delivered", "Messages delivered, by consumers and by basic.get.", |c| {
        c.delivered_manual_ack + c.delivered_auto_ack + c.got_manual_ack + c.got_auto_ack
    }),
    (
        "messages_delivered_consume_manual_ack",
        "Messages delivered to consumers that acknowledge.",
        |c| c.delivered_manual_ack,
    ),
    (
        "messages_delivered_consume_auto_ack",
        "Messages delivered to consumers that do not acknowledge.",
        |c| c.delivered_auto_ack,
    ),
    (
        "messages_delivered_get_manual_ack",
        "Messages taken with basic.get to be acknowledged.",
        |c| c.got_manual_ack,
    ),
    (
        "messages_delivered_get_auto_ack",
        "Messages taken with basic.get without acknowledgement.",
        |c| c.got_auto_ack,
    ),
    ("messages_get_empty", "basic.get on an empty queue.", |c| c.got_empty),
    ("messages_redelivered", "Messages delivered that had been delivered before.", |c| {
        c.redelivered
    }),
    ("messages_acknowledged", "Messages acknowledged by clients.", |c| c.acknowledged),
];

const NODE_TOTALS: &[Row<Counters>] = &[
    ("connections_opened", "Connections opened.", |c| c.connections_opened),
    ("connections_closed", "Connections closed.", |c| c.connections_closed),
    ("channels_opened", "Channels opened.", |c| c.channels_opened),
    ("channels_closed", "Channels closed.", |c| c.channels_closed),
    ("queues_declared", "Queue declarations answered.", |c| c.queues_declared),
    ("queues_created", "Queues created.", |c| c.queues_created),
    ("queues_deleted", "Queues deleted.", |c| c.queues_deleted),
];

const DEAD_LETTERED: &[Row<Counters>] = &[
    ("rejected", "Messages dead-lettered because they were rejected.", |c| {
        c.dead_lettered_rejected
    }),
    ("expired", "Messages dead-lettered because they expired.", |c| c.dead_lettered_expired),
    ("maxlen", "Messages dead-lettered because a queue was full.", |c| c.dead_lettered_maxlen),
    ("delivery_limit", "Messages dead-lettered because they were delivered too often.", |c| {
        c.dead_lettered_delivery_limit
    }),
    ("unmatched", "Messages dead-lettered because no consumer's filter matched.", |c| {
        c.dead_lettered_unmatched
    }),
];

const SHARD_TOTALS: &[Row<LoopFigures>] = &[
    ("cycles", "Turns of the shard's loop.", |t| t.cycles),
    ("long_turns", "Turns of 20 ms or longer.", |t| t.long_turns),
    ("sleeps", "Times the shard fell asleep.", |t| t.sleeps),
    ("naps", "Times the shard let something gather before its next turn.", |t| t.naps),
    ("wakes_sent", "Sleeping shards that this one woke.", |t| t.wakes_sent),
    ("received_bytes", "Bytes read from sockets.", |t| t.bytes_in),
    ("sent_bytes", "Bytes written to sockets.", |t| t.bytes_out),
    ("reads", "Read calls on sockets.", |t| t.reads),
    ("writes", "Write calls on sockets.", |t| t.writes),
    ("mail_received", "Batches of mail from other shards.", |t| t.mail_in),
    ("mail_sent", "Batches of mail to other shards.", |t| t.mail_out),
];

/// Of all queues together; told of each for itself elsewhere under the same names.
const QUEUES: &[Row<Holdings>] = &[
    ("rabbitmq_queue_consumers", "Consumers of queues.", |h| h.consumers),
    ("rabbitmq_queue_messages_ready", "Messages ready to be delivered.", |h| h.ready),
    ("rabbitmq_queue_messages_unacked", "Messages delivered and not acknowledged.", |h| h.unacked),
    ("rabbitmq_queue_messages", "Messages in queues, ready and unacknowledged.", |h| {
        h.ready + h.unacked
    }),
];

/// Of all channels together, under the names that boards before RabbitMQ 3.9 and many alerts ask for. What is counted is
/// what the families `rabbitmq_global_…` count.
const CHANNELS: &[Row<Counters>] = &[
    ("channel_messages_published", "Messages received from publishers.", |c| c.received),
    ("channel_messages_confirmed", "Messages confirmed to publishers.", |c| c.confirmed),
    ("channel_messages_unroutable_dropped", "Messages without a queue that were dropped.", |c| {
        c.unroutable_dropped
    }),
    ("channel_messages_unroutable_returned", "Messages without a queue that were returned.", |c| {
        c.unroutable_returned
    }),
    (
        "channel_messages_delivered",
        "Messages delivered to consumers that do not acknowledge.",
        |c| c.delivered_auto_ack,
    ),
    ("channel_messages_delivered_ack", "Messages delivered to consumers that acknowledge.", |c| {
        c.delivered_manual_ack
    }),
    ("channel_messages_redelivered", "Messages delivered that had been delivered before.", |c| {
        c.redelivered
    }),
    ("channel_messages_acked", "Messages acknowledged by clients.", |c| c.acknowledged),
    ("channel_get", "Messages taken with basic.get without acknowledgement.", |c| c.got_auto_ack),
    ("channel_get_ack", "Messages taken with basic.get to be acknowledged.", |c| c.got_manual_ack),
    ("channel_get_empty", "basic.get on an empty queue.", |c| c.got_empty),
    ("queue_messages_published", "Messages that reached a queue.", |c| c.routed),
];

/// Of all channels together, what there is at the moment; told of each for itself elsewhere under the same names.
const CHANNELS_NOW: &[Row<Holdings>] = &[
    ("rabbitmq_channel_consumers", "Consumers of channels.", |h| h.consumers),
    ("rabbitmq_channel_messages_unacked", "Messages delivered and not acknowledged.", |h| {
        h.unacked
    }),
];

/// The whole page.
#[must_use]
pub fn encode(snapshot: &Snapshot) -> String {
    let mut page = Exposition::new();
    identity(snapshot, "aggregated", &mut page);
    write(snapshot, &mut page);
    for (name, help, part) in QUEUES.iter().chain(CHANNELS_NOW) {
        page.single(name, Kind::Gauge, help, snapshot.held(*part));
    }
    for (name, help, total) in CHANNELS {
        page.single(
            &format!("rabbitmq_{name}_total"),
            Kind::Counter,
            help,
            snapshot.counted(*total),
        );
    }
    page.into_text()
}

/// The page without what is told of every queue for itself.
fn beside_objects(snapshot: &Snapshot, page: &mut Exposition) {
    identity(snapshot, "per-object", page);
    write(snapshot, page);
}

fn write(snapshot: &Snapshot, page: &mut Exposition) {
    page.single(
        "rabbitmq_erlang_uptime_seconds",
        Kind::Gauge,
        "Seconds since the start.",
        snapshot.uptime_seconds,
    );
    holdings(snapshot, page);
    waiting(snapshot, page);
    totals(snapshot, page);
    sizes(snapshot, page);
    own(snapshot, page);
    logs::write(snapshot, page);
    shards(snapshot, page);
    erlang::write(snapshot, page);
}

fn identity(snapshot: &Snapshot, endpoint: &str, page: &mut Exposition) {
    let node = &snapshot.node;
    page.family("rabbitmq_identity_info", Kind::Gauge, "Who this node is.");
    page.sample(
        "rabbitmq_identity_info",
        &[
            ("rabbitmq_node", &node.name),
            ("rabbitmq_cluster", &node.cluster),
            ("rabbitmq_cluster_permanent_id", &node.cluster),
            ("rabbitmq_endpoint", endpoint),
        ],
        1,
    );
    page.family("rabbitmq_build_info", Kind::Gauge, "What this node runs.");
    page.sample(
        "rabbitmq_build_info",
        &[
            ("rabbitmq_version", &node.told_version),
            ("product_name", &node.told_product),
            ("product_version", &node.version),
            ("erlang_version", "none"),
        ],
        1,
    );
    page.family("lepus_build_info", Kind::Gauge, "The version of lepus.");
    page.sample("lepus_build_info", &[("version", &node.version)], 1);
}

fn holdings(snapshot: &Snapshot, page: &mut Exposition) {
    let gauges: &[Row<Holdings>] = &[
        ("rabbitmq_connections", "Open connections.", |h| h.connections),
        ("rabbitmq_channels", "Open channels.", |h| h.channels),
        ("rabbitmq_consumers", "Consumers.", |h| h.consumers),
        ("rabbitmq_queues", "Queues.", |h| h.queues),
        ("lepus_messages_delayed", "Messages that delayed exchanges hold back.", |h| h.delayed),
        (
            "lepus_memory_used_bytes",
            "Bytes of messages, connections, consumers, deliveries and tables, of the budget.",
            |h| h.memory_bytes,
        ),
    ];
    for (name, help, part) in gauges {
        page.single(name, Kind::Gauge, help, snapshot.held(*part));
    }
    let by_protocol: &[Row<Holdings>] = &[
        (
            "rabbitmq_global_publishers",
            "Open connections that have published, each once however many channels it publishes on.",
            |h| h.publishers,
        ),
        ("rabbitmq_global_consumers", "Consumers.", |h| h.consumers),
    ];
    for (name, help, part) in by_protocol {
        page.family(name, Kind::Gauge, help);
        page.sample(name, PROTOCOL, snapshot.held(*part));
    }
    page.single(
        "lepus_memory_budget_bytes",
        Kind::Gauge,
        "Bytes that messages and connections may take.",
        snapshot.node.memory_budget_bytes,
    );
}

fn waiting(snapshot: &Snapshot, page: &mut Exposition) {
    let Waiting { silent, entering, expired, gave_way } = snapshot.waiting;
    for (name, kind, help, value) in [
        ("silent", Kind::Gauge, "Connections that have said nothing yet.", silent),
        (
            "entering",
            Kind::Gauge,
            "Connections on their way to a login, or closed and not ended by their clients.",
            entering,
        ),
        ("silent_closed_total", Kind::Counter, "Connections closed for saying nothing.", expired),
        (
            "gave_way_total",
            Kind::Counter,
            "Connections that gave way to new ones before their login.",
            gave_way,
        ),
    ] {
        page.single(&format!("lepus_connections_{name}"), kind, help, value);
    }
    page.single(
        "lepus_audit_entries_left_out_total",
        Kind::Counter,
        "Requests and orders that are missing in the audit file.",
        snapshot.audit_left_out,
    );
}

fn totals(snapshot: &Snapshot, page: &mut Exposition) {
    for (name, help, total) in GLOBAL_TOTALS {
        let name = format!("rabbitmq_global_{name}_total");
        page.family(&name, Kind::Counter, help);
        page.sample(&name, PROTOCOL, snapshot.counted(*total));
    }
    for (reason, help, total) in DEAD_LETTERED {
        let name = format!("rabbitmq_global_messages_dead_lettered_{reason}_total");
        page.family(&name, Kind::Counter, help);
        let labels = [("queue_type", "rabbit_classic_queue")];
        page.sample(&name, &labels, snapshot.counted(*total));
    }
    for (name, help, total) in NODE_TOTALS {
        let name = format!("rabbitmq_{name}_total");
        page.single(&name, Kind::Counter, help, snapshot.counted(*total));
    }
    let (refused, accepted) =
        (snapshot.counted(|c| c.logins_refused), snapshot.counted(|c| c.logins_accepted));
    for (name, help, value) in [
        ("auth_attempts_total", "Logins, let in and refused.", accepted + refused),
        ("auth_attempts_succeeded_total", "Logins that were let in.", accepted),
        ("auth_attempts_failed_total", "Logins refused.", refused),
    ] {
        page.single(&format!("rabbitmq_{name}"), Kind::Counter, help, value);
    }
}

fn sizes(snapshot: &Snapshot, page: &mut Exposition) {
    let name = "rabbitmq_message_size_bytes";
    page.family(name, Kind::Histogram, "Sizes of the bodies of received messages.");
    let bucket = format!("{name}_bucket");
    let mut below = 0;
    let count = |class: usize| {
        let shards = snapshot.shards.iter();
        shards.map(|shard| shard.figures.counters.sizes[class]).sum::<u64>()
    };
    for (class, bound) in SIZE_BOUNDS.iter().enumerate() {
        below += count(class);
        let bound = bound.to_string();
        page.sample(&bucket, &[PROTOCOL[0], ("le", &bound)], below);
    }
    below += count(SIZE_BOUNDS.len());
    page.sample(&bucket, &[PROTOCOL[0], ("le", "+Inf")], below);
    let bytes = snapshot.counted(|c| c.body_bytes_received);
    page.sample(&format!("{name}_sum"), PROTOCOL, bytes);
    page.sample(&format!("{name}_count"), PROTOCOL, below);
}

fn own(snapshot: &Snapshot, page: &mut Exposition) {
    let own = &snapshot.own;
    let budget = snapshot.node.memory_budget_bytes;
    let gauges: [(&str, &str, u64); 8] = [
        ("rabbitmq_process_resident_memory_bytes", "Bytes of memory held.", own.resident_bytes),
        (
            "rabbitmq_resident_memory_limit_bytes",
            "Bytes above which publishers are held back.",
            budget,
        ),
        ("rabbitmq_process_open_fds", "Open file descriptors.", own.open_files),
        ("rabbitmq_process_max_fds", "Most file descriptors that may be open.", own.open_files_max),
        (
            "rabbitmq_disk_space_available_bytes",
            "Bytes free on the disk of the data directory.",
            own.disk_free_bytes,
        ),
        (
            "rabbitmq_alarms_memory_used_watermark",
            "1 while publishers are held back because of memory.",
            u64::from(snapshot.memory_alarm()),
        ),
        (
            "rabbitmq_alarms_free_disk_space_watermark",
            "1 while publishers are held back because of the disk.",
            u64::from(snapshot.disk_alarm()),
        ),
        (
            "rabbitmq_alarms_file_descriptor_limit",
            "1 while no file descriptor is left.",
            u64::from(own.open_files_max > 0 && own.open_files >= own.open_files_max),
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Kind::Gauge, help, value);
    }
    let name = "lepus_socket_buffer_bytes";
    let help = "Bytes in the system's buffers of connections: sent and not taken by the peer, come and not read.";
    page.family(name, Kind::Gauge, help);
    for (direction, bytes) in
        [("send", own.sockets.send_bytes), ("receive", own.sockets.receive_bytes)]
    {
        page.sample(name, &[("direction", direction)], bytes);
    }
}

fn shards(snapshot: &Snapshot, page: &mut Exposition) {
    let numbered: Vec<(String, &Shard)> = snapshot
        .shards
        .iter()
        .enumerate()
        .map(|(number, shard)| (number.to_string(), shard))
        .collect();
    for (name, help, total) in SHARD_TOTALS {
        let name = format!("lepus_shard_{name}_total");
        page.family(&name, Kind::Counter, help);
        for (number, shard) in &numbered {
            page.sample(&name, &[("shard", number)], total(&shard.turns));
        }
    }
    let name = "lepus_shard_seconds_total";
    page.family(name, Kind::Counter, "What the shard's thread did with its time.");
    for (number, shard) in &numbered {
        let turns = &shard.turns;
        for (state, nanos) in
            [("busy", turns.busy_nanos), ("spin", turns.spin_nanos), ("sleep", turns.sleep_nanos)]
        {
            page.sample(name, &[("shard", number), ("state", state)], seconds(nanos));
        }
    }
    let name = "lepus_shard_longest_turn_seconds";
    page.family(name, Kind::Gauge, "The longest turn of the shard's loop since the start.");
    for (number, shard) in &numbered {
        page.sample(name, &[("shard", number)], seconds(shard.turns.turn_nanos_max));
    }
    let gauges: &[Row<Holdings>] = &[
        ("lepus_shard_connections", "Open connections of the shard.", |h| h.connections),
        ("lepus_shard_queues", "Queues whose home is the shard.", |h| h.queues),
        (
            "lepus_shard_messages_passed_over",
            "Ready messages of the shard's queues that consumers' filters have looked at and that nobody has.",
            |h| h.passed_over,
        ),
        (
            "lepus_shard_memory_used_bytes",
            "Bytes of the shard that count against its part of the budget.",
            |h| h.memory_bytes,
        ),
        (
            "lepus_shard_memory_lent_bytes",
            "Bytes of the budget that the shard may use; it gets more as it needs it.",
            |h| h.memory_lent_bytes,
        ),
    ];
    for (name, help, part) in gauges {
        page.family(name, Kind::Gauge, help);
        for (number, shard) in &numbered {
            page.sample(name, &[("shard", number)], part(&shard.figures.holdings));
        }
    }
    places(&numbered, page);
    locality(&numbered, page);
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// Where the shards are: only those that are bound have a CPU, and only those whose memory is bound
/// have a node.
fn places(shards: &[(String, &Shard)], page: &mut Exposition) {
    type Bound = fn(&LoopFigures) -> Option<u64>;
    let gauges: [(&str, &str, Bound); 3] = [
        ("lepus_shard_cpu", "The CPU that the shard is bound to.", |turns| turns.cpu),
        ("lepus_shard_memory_node", "The node that the shard's memory is bound to.", |turns| {
            turns.memory_node
        }),
        ("lepus_shard_misplaced", "1 if the shard is not where it was planned to be.", |turns| {
            Some(turns.misplaced)
        }),
    ];
    for (name, help, part) in gauges {
        let bound = shards.iter().filter_map(|(number, shard)| Some((number, part(&shard.turns)?)));
        let bound: Vec<(&String, u64)> = bound.collect();
        if !bound.is_empty() {
            page.family(name, Kind::Gauge, help);
        }
        for (number, value) in bound {
            page.sample(name, &[("shard", number)], value);
        }
    }
}

/// How many messages stayed on the shard they came in on, by step: the ratio says how well
/// connections and queues are placed.
fn locality(shards: &[(String, &Shard)], page: &mut Exposition) {
    let name = "lepus_shard_messages_total";
    page.family(
        name,
        Kind::Counter,
        "Messages by step (enqueue, deliver) and path: stayed on the shard, to another on its memory node, crossed to another node.",
    );
    for (number, shard) in shards {
        let counters = &shard.figures.counters;
        for (step, path, count) in [
            ("enqueue", "stayed", counters.enqueued_local),
            ("enqueue", "node", counters.enqueued_near),
            ("enqueue", "crossed", counters.enqueued_remote - counters.enqueued_near),
            ("deliver", "stayed", counters.delivered_local),
            ("deliver", "node", counters.delivered_near),
            ("deliver", "crossed", counters.delivered_remote - counters.delivered_near),
        ] {
            let labels = [("shard", number.as_str()), ("step", step), ("path", path)];
            page.sample(name, &labels, count);
        }
    }
    let sum = |part: fn(&Counters) -> u64| {
        shards.iter().map(|(_, s)| part(&s.figures.counters)).sum::<u64>()
    };
    let stayed = sum(|c| c.enqueued_local + c.delivered_local);
    let all = stayed + sum(|c| c.enqueued_remote + c.delivered_remote);
    page.single(
        "lepus_messages_stayed_ratio",
        Kind::Gauge,
        "Share of the steps of messages since the start that stayed on their shard; 1 without messages.",
        if all == 0 { 1.0 } else { stayed as f64 / all as f64 },
    );
    let totals: &[Row<Counters>] = &[
        (
            "connections_handed_over",
            "Connections that went to another shard, to their first queue or moved by the balancer.",
            |c| c.handed_over,
        ),
        (
            "filters_given_up",
            "Times that the filters of an exchange's bindings, or one of a queue's consumers, took too much for a message, so that none of them matched.",
            |c| c.filters_given_up,
        ),
        (
            "filter_bodies_unreadable",
            "Times that filters of bindings or consumers asked for a body that is malformed, too long or encoded.",
            |c| c.filter_bodies_unreadable,
        ),
        ("connections_moved", "Connections that the balancer moved to another shard.", |c| c.moved),
        ("queues_moved", "Queues that the balancer moved to another shard.", |c| c.queues_moved),
        ("moves_given_up", "Moves of the balancer that took too long and were given up.", |c| {
            c.moves_given_up
        }),
    ];
    for (name, help, total) in totals {
        let name = format!("lepus_shard_{name}_total");
        page.family(&name, Kind::Counter, help);
        for (number, shard) in shards {
            page.sample(&name, &[("shard", number)], total(&shard.figures.counters));
        }
    }
}

#[cfg(test)]
mod tests;
