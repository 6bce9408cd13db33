//! The configuration: one table from which parsing, help and documentation follow.
//!
//! A setting has a key (`limits.frame_max`), which is its place in the TOML file. Its flag and its
//! environment variable follow from the key: `--limits-frame-max`, `LEPUS_LIMITS_FRAME_MAX`. A flag
//! wins over the environment, the environment over the file, the file over the default.

pub mod document;
pub mod error;
pub mod file;
pub mod kind;
pub mod load;
pub mod rabbitmq;

pub use error::{ConfigError, ConfigErrors, Place};
pub use kind::{Budget, Kind, Value};
pub use load::{Sources, load};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// One row of the table.
#[derive(Debug)]
pub struct Setting {
    /// Dotted path in the file.
    pub key: &'static str,
    /// What it may hold.
    pub kind: Kind,
    /// The value when nobody says otherwise, as text.
    pub default: &'static str,
    /// What it is for: sentences without a line break.
    pub help: &'static str,
    /// A shorter name of the flag, with its dashes.
    pub short: Option<&'static str>,
    /// The value is not shown by tools and logs.
    pub secret: bool,
    pub(crate) assign: fn(&mut Config, Value),
    pub(crate) value: fn(&Config) -> Value,
}

impl Setting {
    /// The command line flag, `--limits-frame-max`.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--{}", self.key.replace(['.', '_'], "-"))
    }

    /// All flags of the setting, with their dashes.
    pub fn flags(&self) -> impl Iterator<Item = String> + use<> {
        [Some(self.flag()), self.short.map(str::to_owned)].into_iter().flatten()
    }

    /// Whether `flag` (with its dashes) is one of the setting's flags.
    #[must_use]
    pub fn has_flag(&self, flag: &str) -> bool {
        self.short == Some(flag) || self.flag() == flag
    }

    /// The environment variable, `LEPUS_LIMITS_FRAME_MAX`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("LEPUS_{}", self.key.replace('.', "_").to_ascii_uppercase())
    }

    /// Whether `variable` is one of the setting's environment variables: a flag with a shorter name has
    /// one, too (`--port`: `LEPUS_PORT`).
    #[must_use]
    pub fn has_variable(&self, variable: &str) -> bool {
        self.short_variable().as_deref() == Some(variable) || self.variable() == variable
    }

    /// The environment variable of the shorter flag.
    #[must_use]
    pub fn short_variable(&self) -> Option<String> {
        let flag = self.short?.strip_prefix("--")?;
        Some(format!("LEPUS_{}", flag.replace('-', "_").to_ascii_uppercase()))
    }

    /// The section of the file, empty for keys at its top.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }
}

/// A type that a field of [`Config`] may have.
trait Field {
    fn from_value(value: Value) -> Self;
    fn to_value(&self) -> Value;
}

macro_rules! fields {
    ($($type:ty: $variant:ident);* $(;)?) => {$(
        impl Field for $type {
            fn from_value(value: Value) -> Self {
                match value {
                    Value::$variant(inner) => inner,
                    other => unreachable!("the table pairs kind and type, got {other:?}"),
                }
            }
            fn to_value(&self) -> Value {
                Value::$variant(self.clone())
            }
        }
    )*};
}

fields! {
    String: Text;
    Option<PathBuf>: Path;
    bool: Switch;
    u64: Number;
    Option<u64>: Auto;
    Duration: Time;
    Budget: Budget;
    Vec<SocketAddr>: Addresses;
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::Percent(0)
    }
}

macro_rules! settings {
    ($($key:literal $field:ident: $type:ty = $kind:expr, $default:literal $(, $mark:tt)?; $help:literal;)*) => {
        /// Everything that can be set, filled by `load`.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Config {
            $(#[doc = $help] pub $field: $type,)*
        }

        /// The table: every setting, in the order of the documentation.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            kind: $kind,
            default: $default,
            help: $help,
            short: settings!(@short $($mark)?),
            secret: settings!(@secret $($mark)?),
            assign: |config, value| config.$field = Field::from_value(value),
            value: |config| Field::to_value(&config.$field),
        },)*];
    };
    (@secret secret) => { true };
    (@secret $($other:tt)?) => { false };
    (@short) => { None };
    (@short secret) => { None };
    (@short $short:literal) => { Some($short) };
}

const HEARTBEAT_SECONDS_MAX: u64 = 65_535;

/// Sections of the file and what they are about, in the order of the documentation.
pub const SECTIONS: &[(&str, &str)] = &[
    ("", "General"),
    ("tls", "TLS"),
    ("login", "Logging in"),
    ("balancer", "Balancer"),
    ("metrics", "Metrics and health"),
    ("management", "Management API"),
    ("limits", "Limits"),
    ("memory", "Memory"),
    ("store", "Messages on disk"),
    ("identity", "What clients are told"),
    ("default", "First user and virtual host"),
    ("log", "Logs"),
];

settings! {
    "data_dir" data_dir: Option<PathBuf> = Kind::Path, "data", "--data";
        "Directory of everything that lepus keeps; created when it is missing. One process at a time may use it.";
    "listen" listen: Vec<SocketAddr> = Kind::Addresses, "5672", "--port";
        "Addresses for AMQP without TLS.";
    "shards" shards: Option<u64> = Kind::CountOrAuto { min: 1, max: 256 }, "auto";
        "Number of shards, each one thread with its own queues. auto takes one per CPU that placement leaves of those that this process may use, but not more than the CPU quota grants, one for each 64 MiB of memory.budget, and one for each 256 MiB of disk that logs may take; the log says at the start which of them decides. A number is taken as it is.";
    "placement" placement: String = Kind::Placement, "auto";
        "On which CPUs shards are, with their memory near them. auto takes cores before sibling threads and CPUs near the network card before those far from it; compact fills a memory node before it begins the next, spread takes nodes in turn, one-per-core leaves sibling threads free, cpus and nodes name some. `lepus topology --plan` shows what a placement means here. Under auto a shard has a CPU for itself only if there is one for each CPU; any other placement always binds to CPUs.";
    "pin" pin: bool = Kind::Switch, "true";
        "Bind each shard to a CPU, or to a memory node where CPUs are not set apart for this process, and its memory to that node. Switch it off where another program decides about CPUs; placement then only decides how many shards there are.";
    "latency" latency: bool = Kind::Switch, "false";
        "Look around up to 400 instead of 40 microseconds before a shard without work sleeps, where that has paid lately, and never let messages gather for a moment: less latency for more CPU while there is some work, none while there is none.";
    "economy" economy: bool = Kind::Switch, "false";
        "Sleep as soon as there is nothing to do, instead of looking around for a moment first: a little latency for less CPU. Wins over latency.";
    "definitions" definitions: Option<PathBuf> = Kind::Path, "";
        "Definitions file (JSON as exported by RabbitMQ) that is imported at start. When it has users the default one is not created, when it has virtual hosts the default one is not.";
    "control_socket" control_socket: Option<PathBuf> = Kind::Path, "";
        "Socket for the operator's commands; when empty it is control.sock in data_dir.";
    "stop_timeout" stop_timeout: Duration = Kind::Seconds { min: 0, max: 3600 }, "2";
        "How long clients may take at a stop to answer that their connection is closed; then it is cut.";

    "tls.listen" tls_listen: Vec<SocketAddr> = Kind::Addresses, "5671";
        "Addresses for AMQP over TLS; used once tls.certificate and tls.key are set.";
    "tls.certificate" tls_certificate: Option<PathBuf> = Kind::Path, "";
        "File with the server's certificate and its chain, PEM. Read again on SIGHUP.";
    "tls.key" tls_key: Option<PathBuf> = Kind::Path, "";
        "File with the private key of the certificate, PEM. Read again on SIGHUP.";
    "tls.ca" tls_ca: Option<PathBuf> = Kind::Path, "";
        "File with the authorities that may sign client certificates, PEM.";
    "tls.verify" tls_verify: String = Kind::Choice(&["none", "optional", "required"]), "none";
        "Client certificates: not asked for, checked when there is one, or required. The latter two need tls.ca, and judge the certificate at every connection: no TLS session is resumed.";
    "tls.crl" tls_crl: Option<PathBuf> = Kind::Path, "";
        "File with the revocation lists of these authorities, PEM, one behind the other. Client certificates on them are refused. Read again on SIGHUP.";
    "tls.crl_check" tls_crl_check: String = Kind::Choice(&["chain", "peer", "best_effort"]), "chain";
        "What is looked for in tls.crl: the client's certificate and those of its issuers, or the client's own alone. For each there must be a list that is not past its next update. best_effort looks for all of them in the lists there are, whatever their age.";
    "tls.login_from" tls_login_from: String = Kind::Choice(&["distinguished_name", "common_name", "dns", "email", "uri"]), "distinguished_name";
        "What of a client's certificate is the name of its user (SASL EXTERNAL): the whole subject, most specific part first (CN=worker,O=Lepus), its common name, or the first of its alternative names of that kind.";

    "login.anonymous_user" anonymous_user: String = Kind::Text, "guest";
        "User for clients that give no name (SASL ANONYMOUS). What holds for that user holds for them: guest from this machine only. When it is empty they are not let in.";
    "login.anonymous_password" anonymous_password: String = Kind::Text, "guest", secret;
        "Password of that user. Clients without a name are refused when it is not right, so that a new password shuts them out.";
    "login.loopback_users" loopback_users: String = Kind::Text, "guest";
        "Users that may only log in from this machine, separated by commas; default.loopback_only decides about default.user.";

    "balancer.enabled" balancer_enabled: bool = Kind::Switch, "true";
        "Move connections between shards: to the shard of their queues while it has room; and queues, or publishers of a single one, away from a shard that is saturated while others idle. Each move is a line in the log.";
    "balancer.restless" balancer_restless: bool = Kind::Switch, "false";
        "For tests of clients: instead, move what may move at random, a hundred times a second. No client should see a difference but in speed.";

    "metrics.listen" metrics_listen: Vec<SocketAddr> = Kind::Addresses, "15692";
        "Addresses for /metrics (Prometheus), /health and /ready over HTTP.";

    "management.listen" management_listen: Vec<SocketAddr> = Kind::Addresses, "15672";
        "Addresses of the management API over HTTP, as RabbitMQ's tools know it; none switches it off.";
    "management.tls_listen" management_tls_listen: Vec<SocketAddr> = Kind::Addresses, "15671";
        "Addresses of the management API over HTTPS; used once tls.certificate and tls.key are set.";
    "management.path_prefix" management_path_prefix: String = Kind::Text, "";
        "What stands before /api in every path of the API, such as /broker, where a proxy passes it on.";
    "management.body_bytes_max" management_body_bytes_max: u64 = Kind::Bytes { min: 1024, max: 1 << 30, zero_is_unlimited: false }, "20MB";
        "Bytes of the body of a request that publishes a message. Policies and parameters have 1 MiB, other bodies 64 KiB, if that is less; a file of definitions may have 200 MiB.";
    "management.allowed_origins" management_allowed_origins: String = Kind::Text, "";
        "Web sites whose scripts may use the API, separated by commas (https://example.com). With * those of all sites may, with a login that the script sends itself: what changes something needs the header X-Lepus-Request, or Content-Type: application/json, and users that may only log in from this machine are not let in.";
    "management.hsts_policy" management_hsts_policy: String = Kind::HeaderText, "";
        "The header Strict-Transport-Security of answers over HTTPS (max-age=31536000; includeSubDomains): browsers that got it do not ask over HTTP any more. None when it is empty.";
    "management.audit_file" management_audit_file: Option<PathBuf> = Kind::Path, "";
        "File that gets a line of JSON for each request that may change something, each login to the API that failed, each export of definitions and each order by the control socket: who, from where, by what, what, and the result; no bodies and no passwords. None when it is empty.";
    "management.audit_bytes_max" management_audit_bytes_max: u64 = Kind::Bytes { min: 4096, max: 1 << 40, zero_is_unlimited: false }, "64MiB";
        "Bytes of the audit file; then another one is begun. The last four are kept beside it, as .1 to .4.";

    "limits.connections_max" connections_max: u64 = Kind::Count { min: 1, max: 10_000_000 }, "100000";
        "Connections of the whole broker. With one more, one that has not logged in gives way, or one that was closed and whose client has not ended its socket; where there is none, the new one is closed at once. Those that have said nothing yet are not counted. The process's limit of open files (ulimit -n) lowers it: a part of them is kept for the logs, for those without a login and for those that are closed and not yet gone. A line in the log says so at the start.";
    "limits.channel_max" channel_max: u64 = Kind::Count { min: 1, max: 65_535 }, "2047";
        "Channels per connection that are offered to clients.";
    "limits.consumers_per_channel_max" consumers_per_channel_max: u64 = Kind::Count { min: 1, max: 1_000_000 }, "65535";
        "Consumers per channel.";
    "limits.unacked_per_channel_max" unacked_per_channel_max: u64 = Kind::Count { min: 1, max: 100_000_000 }, "2000000";
        "Unacknowledged deliveries per channel; then the channel gets no more until it acknowledges. A consumer of a queue that is on another shard has the limit for itself: what its channel holds otherwise is not known there.";
    "limits.consumer_timeout" consumer_timeout: Duration = Kind::Seconds { min: 0, max: 315_360_000 }, "1800";
        "How long a delivery may wait for its acknowledgement; then its channel is closed with 406 and what it held goes back to its queues. A queue's own x-consumer-timeout, in milliseconds, wins; 0 is for ever, in both. Noticed within a minute, or a sixtieth of a longer wait.";
    "limits.queues_max" queues_max: u64 = Kind::Count { min: 1, max: 100_000_000 }, "1000000";
        "Queues of the whole broker; declaring one more closes the channel with 406. A virtual host may have a limit of its own below that. A tenth is kept for the virtual hosts in equal shares, whatever the others take.";
    "limits.exchanges_max" exchanges_max: u64 = Kind::Count { min: 7, max: 100_000_000 }, "100000";
        "Exchanges of the whole broker, the seven that each virtual host begins with included. A tenth is kept as that of the queues is.";
    "limits.bindings_max" bindings_max: u64 = Kind::Count { min: 1, max: 1_000_000_000 }, "5000000";
        "Bindings of the whole broker; each takes about 100 bytes of memory per shard, and what its arguments and a long routing key take. A tenth is kept as that of the queues is.";
    "limits.binding_arguments_max" binding_arguments_max: u64 = Kind::Count { min: 1, max: 65_535 }, "256";
        "Arguments of one binding, each of which a headers exchange compares; with more it is refused with 406.";
    "limits.exchange_filters_max" exchange_filters_max: u64 = Kind::Count { min: 0, max: 1_000_000 }, "10000";
        "Bindings of one exchange that may have a filter (x-filter); with one more it is refused with 406. All of an exchange's filters are asked together, for each message that comes to a binding with one. Beside that they take 32 MiB of memory per shard at most and name 1,000 fields. 0 refuses filters on bindings.";
    "limits.vhost_filters_max" vhost_filters_max: u64 = Kind::Count { min: 0, max: 100_000_000 }, "100000";
        "The same for all exchanges of a virtual host together. A filter takes some hundred bytes of memory per shard and about three times what its text takes, which counts as memory of the shard.";
    "limits.exchange_filter_micros_max" exchange_filter_micros_max: u64 = Kind::Count { min: 1, max: 1_000_000 }, "200";
        "Microseconds that the filters of one exchange's bindings may take of a message, reading it left out. Where they take more, further ones are taken only if they can be looked up (a field = or IN values, LIKE 'text%'); others are refused with 406. 100 of the steps that asking them takes count as one microsecond. It has a say only below what a message may take of limits.routing_steps_max: filters that take more than a sixteenth of that match nothing.";
    "limits.connection_filters_max" connection_filters_max: u64 = Kind::Count { min: 0, max: 1_000_000 }, "1000";
        "Consumers of one connection that may have a filter (x-filter); one more is refused with 406. A queue takes 63 different ones. 0 refuses filters on consumers.";
    "limits.arguments_bytes_max" arguments_bytes_max: u64 = Kind::Bytes { min: 1024, max: 1 << 27, zero_is_unlimited: false }, "16KiB";
        "Bytes that the arguments of one queue, exchange or binding may take as they are sent; with more it is refused with 406.";
    "limits.vhost_arguments_bytes_max" vhost_arguments_bytes_max: u64 = Kind::Bytes { min: 1024, max: 1 << 40, zero_is_unlimited: false }, "256MiB";
        "Bytes that the arguments of all queues, exchanges and bindings of a virtual host may take together; each shard keeps those of exchanges and bindings.";
    "limits.frame_max" frame_max: u64 = Kind::Bytes { min: 4096, max: 1 << 27, zero_is_unlimited: false }, "128KiB";
        "Largest frame that is offered to clients.";
    "limits.body_bytes_max" body_bytes_max: u64 = Kind::Bytes { min: 1, max: 1 << 30, zero_is_unlimited: false }, "128MiB";
        "Largest message body; a larger one closes the channel with 406.";
    "limits.copy_keys_max" copy_keys_max: u64 = Kind::Count { min: 1, max: 10_000_000 }, "1000";
        "Different routing keys that a message may have in its headers CC and BCC; one with more closes the channel with 406. A topic exchange compares its patterns with each of them.";
    "limits.routing_steps_max" routing_steps_max: u64 = Kind::Count { min: 10_000, max: 1_000_000_000 }, "2000000";
        "Steps that routing one message may take; one that takes more reaches no queue and closes the channel with 406. A step is some nanoseconds: there is one for each binding that fits, about fifty for each exchange, header or routing key, four for each word of a pattern that is looked at; filters of bindings count with what asking them takes, a REGEXP with 54 for each byte that it looks at and each KiB that it is compiled to. The shard serves nobody else meanwhile. Trees of exchanges that people make have some dozens of them and take thousands of steps.";
    "limits.transaction_bytes_max" transaction_bytes_max: u64 = Kind::Bytes { min: 4096, max: 1 << 30, zero_is_unlimited: false }, "128MiB";
        "Bytes that one channel's open transaction may hold; a larger one closes the channel with 406.";
    "limits.unread_bytes_max" unread_bytes_max: u64 = Kind::Bytes { min: 65_536, max: 1 << 32, zero_is_unlimited: false }, "16MiB";
        "Bytes of answers (messages fetched, returned messages, confirms) that may wait for a client to read them; with more it is not listened to until it has read some.";
    "limits.heartbeat" heartbeat: Duration = Kind::Seconds { min: 0, max: HEARTBEAT_SECONDS_MAX }, "60";
        "Heartbeat that is offered to clients; 0 offers none.";
    "limits.handshake_timeout" handshake_timeout: Duration = Kind::Seconds { min: 1, max: 600 }, "10";
        "How long a client may take from its first words to an open connection; the TLS handshake before that may take as long.";
    "limits.silence_timeout" silence_timeout: Duration = Kind::Seconds { min: 1, max: 600 }, "3";
        "How long a client may take to say its first words: AMQP's protocol header, or the greeting of TLS.";
    "limits.waiting_max" waiting_max: u64 = Kind::Count { min: 16, max: 10_000_000 }, "10000";
        "Connections that may wait at once without having said anything, and as many on their way to a login: those that no TLS handshake and no shard has begun with yet, handshakes, and those that have not logged in, or were closed and whose clients have not ended their sockets. With one more, one gives way: silent ones before others (but for few of them, where more of one address are not silent), those of the address (IPv4 address, IPv6 network of 64 bits) with the most before others, and of these the oldest. Those that wait go on by turns of their addresses. So new clients get in. As many as may be on their way to a login may be closed and wait for their peers to end their sides: with one more, the one that has waited longest goes. It is never more than an eighth of the files that the process may open (ulimit -n). The same rule holds when those on their way to a login take more than a twentieth of memory.budget, which comes on top of it.";

    "memory.budget" memory_budget: Budget = Kind::Budget, "50%";
        "Memory for messages and connections; publishers are slowed down before it is used up. A share is one of the memory that this process may use (the container's limit, or the machine's).";

    "store.sync" store_sync: String = Kind::Choice(&["always", "interval", "never"]), "always", "--sync";
        "What a confirm of a persistent message waits for. always: that it is synced to the disk, so that it survives loss of power. interval: that it is written, so that it survives the end of the broker; loss of power takes at most what was written within the last sync_interval. never: as interval, but only full segments and checkpoints are synced.";
    "store.sync_interval" store_sync_interval: Duration = Kind::Seconds { min: 1, max: 3600 }, "1", "--sync-interval";
        "After what time at most everything that is written is synced, in the modes always and interval.";
    "store.read_retry_limit" store_read_retry_limit: Duration = Kind::Seconds { min: 1, max: 86_400 }, "60";
        "How long a read that fails is made again before it is given up. If other reads of the log worked meanwhile, what it was to bring is kept as damaged; otherwise the broker ends. Reads that fail for lack of file descriptors or memory are never given up.";
    "store.segment_bytes" store_segment_bytes: u64 = Kind::Bytes { min: 1 << 20, max: 1 << 28, zero_is_unlimited: false }, "16MiB", "--segment-size";
        "Length of the files that a log is cut into; space comes back in units of them. Existing ones keep their length.";
    "store.disk_free_limit" store_disk_free_limit: u64 = Kind::Bytes { min: 1 << 20, max: 1 << 50, zero_is_unlimited: true }, "50MiB", "--disk-free-limit";
        "Publishers are blocked before less of the disk of data_dir is free than this; consumers go on.";
    "store.bytes_max" store_bytes_max: u64 = Kind::Bytes { min: 1 << 24, max: 1 << 50, zero_is_unlimited: true }, "0";
        "Bytes on disk that the logs of messages may take, all shards and all files together; publishers are blocked when they are used up. Each shard has an equal part, of 8 MiB at least, and shorter segments where that is little.";

    "identity.product" product: String = Kind::Text, "RabbitMQ";
        "Product name in the server properties. Some client libraries look for RabbitMQ here.";
    "identity.version" version: String = Kind::Version, "4.2.1";
        "Version in the server properties. Client libraries and tools choose features by it.";
    "identity.cluster_name" cluster_name: String = Kind::Text, "lepus";
        "Name of the cluster in the server properties and in the metrics.";
    "identity.node" node: String = Kind::Text, "";
        "Name of this node in the management API and in the metrics; when empty it is rabbit@ and the host's name. Without an @ the host's name is added.";

    "default.user" default_user: String = Kind::Text, "guest";
        "Administrator that exists from the first start.";
    "default.password" default_password: String = Kind::Text, "guest", secret;
        "Password of that user. Better not as a flag: other users of this machine can read a command line.";
    "default.loopback_only" default_loopback_only: bool = Kind::Switch, "true";
        "Whether that user may only log in from this machine.";
    "default.vhost" default_vhost: String = Kind::Text, "/";
        "Virtual host that exists from the first start, with all permissions for that user.";

    "log.level" log_level: String = Kind::Choice(&["error", "warning", "info", "debug"]), "info";
        "Least important level that is written.";
    "log.format" log_format: String = Kind::Choice(&["text", "json"]), "text";
        "Lines as key=value text or as one JSON object each, on standard error.";
}

impl Config {
    /// The configuration when nothing is set.
    #[must_use]
    pub fn preset() -> Config {
        let mut config = Config::default();
        for setting in SETTINGS {
            let value = setting.kind.read(setting.default);
            (setting.assign)(&mut config, value.expect("defaults are accepted values"));
        }
        config
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| PathBuf::from("."))
    }

    /// Where the control socket is.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        let inside = || self.data_dir().join("control.sock");
        self.control_socket.clone().unwrap_or_else(inside)
    }

    /// Every setting with its value as a file has it; secrets are not told.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, String)> {
        SETTINGS.iter().map(|setting| match setting.secret {
            true => (setting.key, "<redacted>".to_owned()),
            false => (setting.key, (setting.value)(self).to_toml()),
        })
    }

    /// The configuration as a file, every key with its value; secrets are left out.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let mut section = "";
        for setting in SETTINGS {
            if setting.section() != section {
                section = setting.section();
                out.push_str(&format!("\n[{section}]\n"));
            }
            let name = setting.key.rsplit('.').next().unwrap_or(setting.key);
            if setting.secret {
                out.push_str(&format!("# {name} is not shown\n"));
            } else {
                let value = (setting.value)(self).to_toml();
                out.push_str(&format!("{name} = {value}\n"));
            }
        }
        out
    }
}

/// The setting with this key.
#[must_use]
pub fn setting(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_table_is_in_order() {
        let config = Config::preset();
        assert_eq!(config.channel_max, 2047);
        assert_eq!(config.listen.len(), 2);
        let mut flags = HashSet::new();
        let mut variables = HashSet::new();
        let mut sections: Vec<&str> = Vec::new();
        for setting in SETTINGS {
            assert!(flags.insert(setting.flag()), "{}", setting.key);
            assert!(variables.insert(setting.variable()), "{}", setting.key);
            assert!(setting.help.ends_with('.'), "{}", setting.key);
            assert!(!load::is_foreign(&setting.variable(), "1"), "{}", setting.key);
            if sections.last() != Some(&setting.section()) {
                sections.push(setting.section());
            }
        }
        let listed: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(sections, listed);
    }

    #[test]
    fn the_shown_file_is_read_back_to_the_same() {
        let text = Config::preset().to_toml();
        let sources = Sources { file: Some(("shown.toml".into(), text)), ..Sources::default() };
        assert_eq!(load(&sources).unwrap(), Config::preset());
    }
}
