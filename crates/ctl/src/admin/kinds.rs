//! What `rabbitmqadmin` can list, declare, delete, close, purge, publish and get, and with which arguments.

/// A list.
pub struct Listed {
    /// Its name in the command.
    pub name: &'static str,
    /// Whether `--vhost` narrows it.
    pub of_vhost: bool,
    /// Columns that are shown unasked; none: all.
    pub columns: &'static [&'static str],
    /// Columns that are shown as JSON.
    pub json: &'static [&'static str],
}

const fn listed(
    name: &'static str,
    of_vhost: bool,
    columns: &'static [&'static str],
    json: &'static [&'static str],
) -> Listed {
    Listed { name, of_vhost, columns, json }
}

/// What `list` shows.
pub const LISTS: &[Listed] = &[
    listed("connections", false, &["name", "user", "channels"], &[]),
    listed("channels", false, &["name", "user"], &[]),
    listed("consumers", true, &[], &[]),
    listed("exchanges", true, &["name", "type"], &[]),
    listed("queues", true, &["name", "messages"], &[]),
    listed("bindings", true, &["source", "destination", "routing_key"], &[]),
    listed("users", false, &[], &[]),
    listed("vhosts", false, &["name", "messages"], &[]),
    listed("permissions", false, &[], &[]),
    listed("nodes", false, &["name", "type", "mem_used"], &[]),
    listed("parameters", false, &[], &["value"]),
    listed("policies", false, &[], &["definition"]),
    listed("operator_policies", false, &[], &["definition"]),
    listed("vhost_limits", false, &[], &["value"]),
];

/// What `show` shows.
pub const SHOWN: &[Listed] = &[listed(
    "overview",
    false,
    &["rabbitmq_version", "cluster_name", "queue_totals.messages", "object_totals.queues"],
    &[],
)];

/// Something that arguments of the form `name=value` describe.
pub struct Kind {
    /// Its name in the command.
    pub name: &'static str,
    /// Arguments that must be given; `a|b` is one of both.
    pub needed: &'static [&'static str],
    /// Arguments that may be given, with what stands for them as JSON; empty: nothing.
    pub optional: &'static [(&'static str, &'static str)],
    /// Arguments whose values are JSON.
    pub json: &'static [&'static str],
    /// The path below `/api`.
    pub path: &'static str,
}

const BINDING: &str = "/bindings/{vhost}/e/{source}/{destination_char}/{destination}";

/// What `declare` declares.
pub const DECLARED: &[Kind] = &[
    Kind {
        name: "exchange",
        needed: &["name", "type"],
        optional: &[
            ("auto_delete", "\"false\""),
            ("durable", "\"true\""),
            ("internal", "\"false\""),
            ("arguments", "{}"),
        ],
        json: &["arguments"],
        path: "/exchanges/{vhost}/{name}",
    },
    Kind {
        name: "queue",
        needed: &["name"],
        optional: &[
            ("auto_delete", "\"false\""),
            ("durable", "\"true\""),
            ("arguments", "{}"),
            ("node", ""),
            ("queue_type", ""),
        ],
        json: &["arguments"],
        path: "/queues/{vhost}/{name}",
    },
    Kind {
        name: "binding",
        needed: &["source", "destination"],
        optional: &[
            ("destination_type", "\"queue\""),
            ("routing_key", "\"\""),
            ("arguments", "{}"),
        ],
        json: &["arguments"],
        path: BINDING,
    },
    Kind {
        name: "vhost",
        needed: &["name"],
        optional: &[("tracing", "")],
        json: &[],
        path: "/vhosts/{name}",
    },
    Kind {
        name: "user",
        needed: &["name", "password|password_hash", "tags"],
        optional: &[("hashing_algorithm", "")],
        json: &[],
        path: "/users/{name}",
    },
    Kind {
        name: "permission",
        needed: &["vhost", "user", "configure", "write", "read"],
        optional: &[],
        json: &[],
        path: "/permissions/{vhost}/{user}",
    },
    Kind {
        name: "parameter",
        needed: &["component", "name", "value"],
        optional: &[],
        json: &["value"],
        path: "/parameters/{component}/{vhost}/{name}",
    },
    Kind {
        name: "policy",
        needed: &["name", "pattern", "definition"],
        optional: &[("priority", "0"), ("apply-to", "")],
        json: &["definition", "priority"],
        path: "/policies/{vhost}/{name}",
    },
    Kind {
        name: "operator_policy",
        needed: &["name", "pattern", "definition"],
        optional: &[("priority", "0"), ("apply-to", "")],
        json: &["definition", "priority"],
        path: "/operator-policies/{vhost}/{name}",
    },
    Kind {
        name: "vhost_limit",
        needed: &["vhost", "name", "value"],
        optional: &[],
        json: &["value"],
        path: "/vhost-limits/{vhost}/{name}",
    },
];

const fn deleted(name: &'static str, needed: &'static [&'static str], path: &'static str) -> Kind {
    Kind { name, needed, optional: &[], json: &[], path }
}

/// What `delete` deletes.
pub const DELETED: &[Kind] = &[
    deleted("exchange", &["name"], "/exchanges/{vhost}/{name}"),
    deleted("queue", &["name"], "/queues/{vhost}/{name}"),
    Kind {
        optional: &[("properties_key", "\"~\"")],
        ..deleted(
            "binding",
            &["source", "destination_type", "destination"],
            "/bindings/{vhost}/e/{source}/{destination_char}/{destination}/{properties_key}",
        )
    },
    deleted("vhost", &["name"], "/vhosts/{name}"),
    deleted("user", &["name"], "/users/{name}"),
    deleted("permission", &["vhost", "user"], "/permissions/{vhost}/{user}"),
    deleted("parameter", &["component", "name"], "/parameters/{component}/{vhost}/{name}"),
    deleted("policy", &["name"], "/policies/{vhost}/{name}"),
    deleted("operator_policy", &["name"], "/operator-policies/{vhost}/{name}"),
    deleted("vhost_limit", &["vhost", "name"], "/vhost-limits/{vhost}/{name}"),
];

/// What `close` closes.
pub const CLOSED: &[Kind] = &[deleted("connection", &["name"], "/connections/{name}")];

/// What `purge` purges.
pub const PURGED: &[Kind] = &[deleted("queue", &["name"], "/queues/{vhost}/{name}/contents")];

/// `publish`.
pub const PUBLISH: Kind = Kind {
    name: "publish",
    needed: &["routing_key"],
    optional: &[
        ("payload", ""),
        ("properties", "{}"),
        ("exchange", "\"amq.default\""),
        ("payload_encoding", "\"string\""),
    ],
    json: &["properties"],
    path: "/exchanges/{vhost}/{exchange}/publish",
};

/// `get`.
pub const GET: Kind = Kind {
    name: "get",
    needed: &["queue"],
    optional: &[
        ("count", "\"1\""),
        ("ackmode", "\"ack_requeue_true\""),
        ("payload_file", ""),
        ("encoding", "\"auto\""),
    ],
    json: &[],
    path: "/queues/{vhost}/{queue}/get",
};
