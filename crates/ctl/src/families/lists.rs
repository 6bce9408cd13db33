//! Lists of queues, exchanges, bindings, connections, channels and consumers.

use crate::command::{
    Call, Column, Command, Group, Kind, LOOKING, MANY, all_pages, atom, listing, listing_of, plain,
    table,
};
use crate::failure::Failure;
use crate::options::{Flag, Follows};
use crate::output::Output;

const fn pid(name: &'static str, at: &'static str) -> Column {
    plain(name).at(at).is(Kind::Pid)
}

const QUEUES: &[Column] = &[
    table("arguments"),
    plain("auto_delete"),
    plain("consumer_capacity"),
    plain("consumer_utilisation"),
    plain("consumers"),
    plain("disk_reads").at("message_stats.disk_reads"),
    plain("disk_writes").at("message_stats.disk_writes"),
    plain("durable"),
    table("effective_policy_definition"),
    plain("exclusive"),
    pid("exclusive_consumer_pid", "exclusive_consumer_pid"),
    plain("exclusive_consumer_tag"),
    plain("head_message_timestamp"),
    plain("leader"),
    plain("members"),
    plain("memory"),
    plain("message_bytes"),
    plain("message_bytes_persistent"),
    plain("message_bytes_ram"),
    plain("message_bytes_ready"),
    plain("message_bytes_unacknowledged"),
    plain("messages"),
    plain("messages_passed_over"),
    plain("messages_persistent"),
    plain("messages_ram"),
    plain("messages_ready"),
    plain("messages_ready_ram"),
    plain("messages_unacknowledged"),
    plain("messages_unacknowledged_ram"),
    plain("name"),
    plain("online"),
    plain("operator_policy"),
    pid("owner_pid", "owner_pid_details.name"),
    pid("pid", "name"),
    plain("policy"),
    plain("single_active_consumer_tag"),
    plain("slave_pids"),
    atom("state"),
    plain("storage_version"),
    plain("synchronised_slave_pids"),
    plain("type"),
];
const EXCHANGES: &[Column] = &[
    table("arguments"),
    plain("auto_delete"),
    plain("durable"),
    plain("internal"),
    plain("name"),
    plain("policy"),
    atom("type"),
];
const BINDINGS: &[Column] = &[
    plain("source_name").at("source"),
    plain("source_kind").at("exchange").is(Kind::Word),
    plain("destination_name").at("destination"),
    atom("destination_kind").at("destination_type"),
    plain("routing_key"),
    table("arguments"),
    plain("vhost"),
];
const CONNECTIONS: &[Column] = &[
    plain("auth_mechanism"),
    plain("channel_max"),
    plain("channels"),
    table("client_properties"),
    plain("connected_at"),
    plain("frame_max"),
    plain("host"),
    plain("name"),
    plain("node"),
    plain("peer_cert_issuer"),
    plain("peer_cert_subject"),
    plain("peer_cert_validity"),
    plain("peer_host"),
    plain("peer_port"),
    pid("pid", "name"),
    plain("port"),
    plain("protocol").is(Kind::Protocol),
    plain("recv_cnt"),
    plain("recv_oct"),
    plain("send_cnt"),
    plain("send_oct"),
    plain("send_pend"),
    plain("ssl"),
    plain("ssl_cipher"),
    plain("ssl_hash"),
    plain("ssl_key_exchange"),
    plain("ssl_protocol"),
    atom("state"),
    plain("timeout"),
    plain("user"),
    plain("user_provided_name"),
    plain("vhost"),
];
const CHANNELS: &[Column] = &[
    plain("acks_uncommitted"),
    plain("confirm"),
    pid("connection", "connection_details.name"),
    plain("consumer_count"),
    plain("global_prefetch_count"),
    plain("messages_unacknowledged"),
    plain("messages_uncommitted"),
    plain("messages_unconfirmed"),
    plain("name"),
    plain("number"),
    pid("pid", "name"),
    plain("prefetch_count"),
    plain("transactional"),
    plain("user"),
    plain("vhost"),
];
const CONSUMERS: &[Column] = &[
    plain("queue_name").at("queue.name"),
    pid("channel_pid", "channel_details.name"),
    plain("consumer_tag"),
    plain("ack_required"),
    plain("prefetch_count"),
    plain("active"),
    atom("activity_status"),
    table("arguments"),
];

const fn switch(name: &'static str, about: &'static str) -> Flag {
    Flag { name, letter: None, value: Follows::Switch, default: "", about }
}

const OF_VHOST: &str =
    "[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]";

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("list_bindings", Group::Monitoring, (0, MANY), bindings)
            .told(OF_VHOST, "Lists all bindings on a vhost")
            .of(LOOKING)
            .banner("Listing bindings for vhost {vhost}...")
            .calls("GET /api/bindings/{vhost}")
            .table(
                BINDINGS,
                &[
                    "source_name",
                    "source_kind",
                    "destination_name",
                    "destination_kind",
                    "routing_key",
                    "arguments",
                ],
            ),
    Command::new("list_channels", Group::Monitoring, (0, MANY), channels)
        .told("[--no-table-headers] [<column> ...]", "Lists all channels in the node")
        .of(LOOKING)
        .banner("Listing channels ...")
        .calls("GET /api/channels")
        .table(CHANNELS, &["pid", "user", "consumer_count", "messages_unacknowledged"]),
    Command::new("list_connections", Group::Monitoring, (0, MANY), connections)
        .told(
            "[--no-table-headers] [<column> ...] [--timeout <timeout>]",
            "Lists AMQP 0.9.1 connections for the node",
        )
        .of(LOOKING)
        .banner("Listing connections ...")
        .calls("GET /api/connections")
        .table(CONNECTIONS, &["user", "peer_host", "peer_port", "state"]),
    Command {
        sorts_columns: true,
        ..Command::new("list_consumers", Group::Monitoring, (0, MANY), consumers)
            .told(OF_VHOST, "Lists all consumers for a vhost")
            .of(LOOKING)
            .banner("Listing consumers in vhost {vhost} ...")
            .calls("GET /api/consumers/{vhost}")
            .table(
                CONSUMERS,
                &[
                    "queue_name",
                    "channel_pid",
                    "consumer_tag",
                    "ack_required",
                    "prefetch_count",
                    "active",
                    "arguments",
                ],
            )
    },
    Command::new("list_exchanges", Group::Monitoring, (0, MANY), exchanges)
        .told(OF_VHOST, "Lists exchanges")
        .of(LOOKING)
        .banner("Listing exchanges for vhost {vhost} ...")
        .calls("GET /api/exchanges/{vhost}")
        .table(EXCHANGES, &["name", "type"]),
    Command::new("list_queues", Group::Monitoring, (0, MANY), queues)
        .told(
            "[--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout \
             <timeout>]",
            "Lists queues and their properties",
        )
        .of(LOOKING)
        .flags(&[
            switch("online", "lists only queues on online (reachable) nodes"),
            switch("offline", "lists only queues on offline (unreachable) nodes"),
            switch("local", "only return queues hosted on the target node"),
        ])
        .banner("Timeout: {seconds}.0 seconds ...\nListing queues for vhost {vhost} ...")
        .calls("GET /api/queues/{vhost}")
        .table(QUEUES, &["name", "messages"]),
    Command::new("list_unresponsive_queues", Group::Monitoring, (0, MANY), unresponsive)
        .told(
            "[--local] [--queue-timeout <queue-timeout>] [<column> ...] [--no-table-headers]",
            "Tests queues to respond within timeout. Lists those which did not respond",
        )
        .of(LOOKING)
        .flags(&[
            switch("local", "only return queues hosted on the target node"),
            Flag {
                name: "queue-timeout",
                letter: None,
                value: Follows::Number,
                default: "15",
                about: "seconds for one queue to respond",
            },
        ])
        .banner("Listing unresponsive queues for vhost {vhost} ...")
        .calls("GET /api/queues/{vhost}")
        .table(QUEUES, &["name"]),
];

fn queues(call: &mut Call<'_>) -> Result<Output, Failure> {
    if call.options.has("offline") && !call.options.has("online") {
        return listing_of(call, &[]);
    }
    let vhost = call.vhost();
    listing(call, &["queues", &vhost])
}

/// A queue whose shard does not answer makes the whole list late: then the call ends with 75.
fn unresponsive(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhost = call.vhost();
    all_pages(call, &["queues", &vhost], "&columns=name,messages")?;
    listing_of(call, &[])
}

fn exchanges(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhost = call.vhost();
    listing(call, &["exchanges", &vhost])
}

fn bindings(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhost = call.vhost();
    listing(call, &["bindings", &vhost])
}

fn connections(call: &mut Call<'_>) -> Result<Output, Failure> {
    listing(call, &["connections"])
}

fn channels(call: &mut Call<'_>) -> Result<Output, Failure> {
    listing(call, &["channels"])
}

fn consumers(call: &mut Call<'_>) -> Result<Output, Failure> {
    let vhost = call.vhost();
    listing(call, &["consumers", &vhost])
}
