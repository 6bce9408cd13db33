//! The options of `throughput`, and those of the reference tester that it does not have.

use super::super::{CONNECTION, OUTPUT};
use crate::option::{Choice, Foreign, Group, Takes};

pub(super) const GROUPS: &[Group] = &[CONNECTION, TOPOLOGY, PRODUCERS, CONSUMERS, OUTPUT];

const TOPOLOGY: Group = Group {
    title: "Exchange and queues",
    choices: &[
        Choice::value(
            "t",
            "type",
            "TYPE",
            "type of the exchange: direct (default), fanout, topic, headers",
        ),
        Choice {
            takes: Takes::Optional("NAME"),
            ..Choice::value(
                "e",
                "exchange",
                "NAME",
                "the exchange; default named like its type. Without a name, or as amq.default: the default exchange",
            )
        },
        Choice::value(
            "u",
            "queue",
            "NAME,…",
            "queues, each consumed by all; without it each consumer has one of its own, so that all get every message",
        ),
        Choice::value("qf", "queue-file", "FILE", "queue names from a file, one a line"),
        Choice::value(
            "qp",
            "queue-pattern",
            "PATTERN",
            "many queues, such as 'perf-test-%d': producers and consumers take them in turn",
        ),
        Choice::value("qpf", "queue-pattern-from", "N", "first number of the pattern"),
        Choice::value("qpt", "queue-pattern-to", "N", "last number of the pattern"),
        Choice::value(
            "k",
            "routing-key",
            "KEY",
            "routing key of bindings and messages; default random",
        ),
        Choice::switch("K", "random-routing-key", "another random key for each message"),
        Choice::value("rkcs", "routing-key-cache-size", "N", "choose random keys from N only"),
        Choice::switch("sb", "skip-binding-queues", "do not bind queues"),
        Choice::value(
            "ad",
            "auto-delete",
            "true|false",
            "queues go with their last consumer; default true",
        ),
        Choice::switch("E", "exclusive", "queues belong to the connection of their consumer"),
        Choice::switch("qq", "quorum-queue", "quorum queues"),
        Choice {
            takes: Takes::Words("KEY=VALUE,…"),
            ..Choice::value(
                "qa",
                "queue-args",
                "KEY=VALUE,…",
                "arguments of queues, such as x-max-length=10",
            )
        },
        Choice::value(
            "ll",
            "leader-locator",
            "NAME",
            "where quorum queues put their leader: client-local or balanced",
        ),
        Choice::value("mlb", "max-length-bytes", "BYTES", "most bytes in a queue"),
        Choice::switch(
            "p",
            "predeclared",
            "use the exchange and queues that are there; make what is missing",
        ),
    ],
};

const PRODUCERS: Group = Group {
    title: "Producers",
    choices: &[
        Choice::value("x", "producers", "N", "connections that publish; default 1"),
        super::super::CEILING,
        Choice::value("X", "producer-channel-count", "N", "publishing channels on each; default 1"),
        Choice::value(
            "s",
            "size",
            "BYTES",
            "size of a body; default 12, which holds a number and a time",
        ),
        Choice::value(
            "B",
            "body",
            "FILE,…",
            "bodies from files, in turn; their time travels in a header",
        ),
        Choice {
            takes: Takes::Words("BYTES:SECONDS …"),
            ..Choice::value(
                "vs",
                "variable-size",
                "BYTES:SECONDS",
                "sizes one after the other, over and over; at least 12 bytes",
            )
        },
        Choice::switch("jb", "json-body", "bodies are made-up JSON documents of --size bytes"),
        Choice::value("bc", "body-count", "N", "so many made-up bodies, in turn; default 100"),
        Choice::value(
            "bfc",
            "body-field-count",
            "N",
            "made-up bodies choose from so many fields; default 1000",
        ),
        Choice::value("T", "body-content-type", "TYPE", "content type of messages"),
        Choice {
            takes: Takes::Words("FLAG …"),
            ..Choice::value(
                "f",
                "flag",
                "FLAG",
                "persistent (queues become durable too), mandatory (unroutable messages come back), immediate",
            )
        },
        Choice::value(
            "mp",
            "message-properties",
            "KEY=VALUE,…",
            "properties such as priority=5; other names become headers",
        ),
        Choice {
            alias: "producer-rate",
            ..Choice::value(
                "r",
                "rate",
                "MSG/S",
                "messages a second of each producer; default as fast as possible",
            )
        },
        Choice {
            takes: Takes::Words("RATE:SECONDS …"),
            ..Choice::value(
                "vr",
                "variable-rate",
                "RATE:SECONDS",
                "rates one after the other, over and over; 0 is a pause",
            )
        },
        Choice::value(
            "",
            "latency-from",
            "plan|send",
            "with a rate, whether latencies count from when a message was to be sent (default) or was sent",
        ),
        Choice::value(
            "P",
            "publishing-interval",
            "SECONDS",
            "time between two messages of a producer",
        ),
        Choice::value(
            "C",
            "pmessages",
            "N",
            "messages of each producer; the run ends with the last",
        ),
        Choice::value("c", "confirm", "N", "confirms, with at most N outstanding for each channel"),
        Choice::value("ct", "confirm-timeout", "SECONDS", "longest wait for a confirm; default 30"),
        Choice::value("m", "ptxsize", "N", "transactions of N publishes"),
        Choice::value(
            "prsd",
            "producer-random-start-delay",
            "SECONDS",
            "producers start at random within this time",
        ),
    ],
};

const CONSUMERS: Group = Group {
    title: "Consumers",
    choices: &[
        Choice::value("y", "consumers", "N", "connections that consume; default 1"),
        Choice::value("Y", "consumer-channel-count", "N", "consuming channels on each; default 1"),
        Choice::switch("a", "autoack", "no acknowledgements; without it each message has one"),
        Choice::value("A", "multi-ack-every", "N", "one acknowledgement for N messages"),
        Choice::value("", "keep-unacked", "N", "never acknowledge one message in N"),
        Choice::switch("na", "nack", "reject messages instead of acknowledging them"),
        Choice::value(
            "re",
            "requeue",
            "true|false",
            "rejected messages go back to their queue; default true",
        ),
        Choice::value("q", "qos", "N", "prefetch of each consumer; default unlimited"),
        Choice::value("Q", "global-qos", "N", "prefetch of each channel"),
        Choice {
            takes: Takes::Words("KEY=VALUE,…"),
            ..Choice::value(
                "ca",
                "consumer-args",
                "KEY=VALUE,…",
                "arguments of consumers, such as x-priority=10",
            )
        },
        Choice::value("R", "consumer-rate", "MSG/S", "most messages a second of each consumer"),
        Choice::value(
            "L",
            "consumer-latency",
            "MICROSECONDS",
            "time that each message takes a consumer",
        ),
        Choice {
            takes: Takes::Words("MICROSECONDS:SECONDS …"),
            ..Choice::value(
                "vl",
                "variable-latency",
                "MICROSECONDS:SECONDS",
                "such times one after the other, over and over",
            )
        },
        Choice::switch("po", "polling", "ask for each message (basic.get) instead of consuming"),
        Choice::value(
            "pi",
            "polling-interval",
            "MILLISECONDS",
            "time from an answer to the next question; default 0",
        ),
        Choice::value(
            "D",
            "cmessages",
            "N",
            "messages of each consumer; the run ends with the last",
        ),
        Choice::value("n", "ctxsize", "N", "transactions of N acknowledgements"),
        Choice::switch("S", "slow-start", "one second between the starts of consumers"),
        Choice::value(
            "csd",
            "consumer-start-delay",
            "SECONDS",
            "consumers start so long after the producers, so that messages pile up",
        ),
        Choice::value(
            "ew",
            "exit-when",
            "idle|empty",
            "stop when no message came for a second; both words mean this",
        ),
        Choice::switch(
            "ms",
            "use-millis",
            "times in bodies as wall clock in milliseconds, for producers and consumers on different hosts",
        ),
    ],
};

const fn skipped(short: &'static str, long: &'static str, takes_value: bool) -> Foreign {
    Foreign { short, long, takes_value, refusal: None }
}

const fn refused(short: &'static str, long: &'static str, refusal: &'static str) -> Foreign {
    Foreign { short, long, takes_value: false, refusal: Some(refusal) }
}

const NO_TLS: &str = "this tester speaks plain TCP only";
const NO_STREAMS: &str =
    "streams are not AMQP 0-9-1 queues; measure them with a tester of their own";

/// Options of the reference tester that this one skips (they tune its runtime) or refuses.
pub(super) const FOREIGN: &[Foreign] = &[
    skipped("hst", "heartbeat-sender-threads", true),
    skipped("pst", "producer-scheduler-threads", true),
    skipped("niot", "nio-threads", true),
    skipped("niotp", "nio-thread-pool", true),
    skipped("ctp", "consumers-thread-pools", true),
    skipped("nty", "netty", false),
    skipped("ntyt", "netty-threads", true),
    skipped("ntyep", "netty-epoll", false),
    skipped("ntykq", "netty-kqueue", false),
    skipped("dcr", "disable-connection-recovery", false),
    skipped("cal", "connection-allocation", true),
    refused(
        "cri",
        "connection-recovery-interval",
        "a lost connection ends the run and is reported",
    ),
    refused("udsc", "use-default-ssl-context", NO_TLS),
    refused("se", "sasl-external", NO_TLS),
    refused("sni", "server-name-indication", NO_TLS),
    refused("sq", "stream-queue", NO_STREAMS),
    refused("smssb", "stream-max-segment-size-bytes", NO_STREAMS),
    refused("ma", "max-age", NO_STREAMS),
    refused("sco", "stream-consumer-offset", NO_STREAMS),
    refused("l", "legacy-metrics", "latencies are always printed as quantiles"),
    refused("mf", "metrics-format", "say --output text, jsonl or csv instead"),
    refused("em", "exposed-metrics", "figures for programs come with --output jsonl"),
    refused("mh", "metrics-help", "figures for programs come with --output jsonl"),
    refused("env", "environment-variables", "options are only taken from the command line"),
    refused("ei", "expected-instances", "instances are not synchronised"),
    refused("isn", "instance-sync-namespace", "instances are not synchronised"),
    refused("ist", "instance-sync-timeout", "instances are not synchronised"),
    refused("o2uri", "oauth2-token-endpoint", "logins are by user and password"),
    refused("o2id", "oauth2-client-id", "logins are by user and password"),
    refused("o2sec", "oauth2-client-secret", "logins are by user and password"),
    refused("o2gr", "oauth2-grant-type", "logins are by user and password"),
    refused("o2p", "oauth2-parameters", "logins are by user and password"),
    refused("", "verbose", "single messages are not printed"),
    refused("", "verbose-full", "single messages are not printed"),
];
