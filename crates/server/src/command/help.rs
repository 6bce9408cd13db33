//! What `--help` prints. Commands are taught by examples that can be copied.

use super::group as orders_of;
use crate::config::document;
use crate::order::Order;

/// Columns of the help.
const WIDTH: usize = 96;

/// `lepus 0.1.0`
#[must_use]
pub fn version() -> String {
    format!("lepus {}\n", env!("CARGO_PKG_VERSION"))
}

/// The help of `lepus` alone.
#[must_use]
pub fn top() -> String {
    let mut out = format!(
        "lepus {}: a message broker for AMQP 0-9-1 that fits itself to the machine it runs on.\n\n",
        env!("CARGO_PKG_VERSION")
    );
    out.push_str(
        "Start it and try it:
  lepus serve                                 starts the broker on port 5672, data in ./data
  lepus perf throughput                       measures it from a second terminal
  lepus user add shop                         adds a user; the password is asked for
  lepus permission set shop '.*' '.*' '.*'    and lets it do everything in virtual host /

Commands:
  lepus serve            starts the broker; `lepus serve --help` lists all settings
  lepus config           checks the configuration and prints what is in force
  lepus perf             measures brokers: lepus itself or any other for AMQP 0-9-1
  lepus experiment       runs five experiments on it or on any other broker, each with a report
  lepus tune             finds by experiment with how many shards, and where, it is best here
  lepus hash-password    prints a password's hash for a definitions file
  lepus topology         shows the machine, where shards would be, and where they are
  lepus profile          shows where the running broker spends its CPU time
  lepus store            checks, prints and repairs the files of a data directory
  lepus version          prints the version

Orders to the running broker, found by its data directory (--data-dir):
",
    );
    let mut seen = Vec::new();
    for order in crate::order::ORDERS {
        let first = order.words.split(' ').next().unwrap_or(order.words);
        if seen.contains(&first) {
            continue;
        }
        seen.push(first);
        let rest: Vec<&str> = orders_of(first)
            .filter_map(|order| order.words.split_once(' '))
            .map(|(_, rest)| rest)
            .collect();
        let about = if rest.is_empty() { order.about.to_owned() } else { rest.join(", ") };
        out.push_str(&format!("  lepus {first:<16} {about}\n"));
    }
    out.push_str("\n`lepus help COMMAND` tells more.\n");
    out
}

/// The help of `lepus serve`.
#[must_use]
pub fn serve() -> String {
    let mut out = String::from(
        "Starts the broker and runs it until it is told to stop.

usage: lepus serve [--config FILE] [settings]

Examples:
  lepus serve                                            data in ./data, AMQP on 5672, metrics on 15692
  lepus serve --data-dir /var/lib/lepus --shards 4       another directory, four shards
  lepus serve --listen 127.0.0.1:5672                    only for clients on this machine
  lepus serve --tls-certificate s.pem --tls-key s.key    AMQP over TLS on 5671 as well
  lepus serve --placement nodes=!0                       no shard on memory node 0
  lepus serve --config lepus.toml                        settings from a file
  LEPUS_SHARDS=2 lepus serve                             or from the environment

SIGTERM or Ctrl-C stops, also while the broker starts: clients are told and get time to leave
(--stop-timeout); a second one stops at once. SIGHUP reads the TLS certificate again.

A setting stands in the file under its key, in the environment as LEPUS_ and the key in capitals
(limits.frame_max: LEPUS_LIMITS_FRAME_MAX), or here as a flag. Flags win over the environment, the
environment over the file.

  --config, -c <FILE>
          Configuration file (TOML); also LEPUS_CONFIG.
",
    );
    out.push_str(&document::help(WIDTH));
    out
}

/// The help of `lepus config`.
#[must_use]
pub fn config() -> String {
    "Checks the configuration and prints what is in force, as a file.

usage: lepus config [--config FILE] [settings]     the settings of `lepus serve`
       lepus config document                       the table of all settings as Markdown

Examples:
  lepus config > lepus.toml                   a file with every key to start from
  lepus config --config lepus.toml            says what is wrong with a file, or what it means
"
    .to_owned()
}

/// The help of `lepus hash-password`.
#[must_use]
pub fn hash_password() -> String {
    "Prints the hash of a password (salted SHA-256, base64) for `password_hash` in a definitions
file, where `hashing_algorithm` is rabbit_password_hashing_sha256.

usage: lepus hash-password [PASSWORD]

Without PASSWORD it is read from standard input, so that it does not end up in the shell's history.
"
    .to_owned()
}

/// The help of one order.
#[must_use]
pub fn order(order: &Order) -> String {
    let mut out = format!("{}\n\nusage: lepus {}\n", order.about, order.usage());
    out.push_str(&format!("example: lepus {}\n\nOptions:\n", order.example));
    let own = order.options.iter().map(|option| (option.name, option.about));
    let all = own.chain([
        ("json", "prints the answer as JSON"),
        ("data-dir", "data directory of the running broker; data when left out"),
        ("control-socket", "its control socket, where that is elsewhere"),
        ("config", "its configuration file, which names the two above"),
    ]);
    for (name, about) in all {
        out.push_str(&format!("  --{name:<16} {about}\n"));
    }
    out
}

/// The help of orders that start with the same word.
#[must_use]
pub fn group(word: &str) -> String {
    let mut out = String::new();
    for order in orders_of(word) {
        out.push_str(&format!("  lepus {}\n      {}\n", order.usage(), order.about));
    }
    out
}
