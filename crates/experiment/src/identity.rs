//! What a report says of a broker that took part: which product it was, how it was started, and what its confirms mean.
//!
//! A rate is worth what the broker promises for it: a confirm may mean that a message is on the disk, that the system has it,
//! or nothing at all. What is said of that here was read where [`Promise::source`] says.

use crate::report::{Table, utc};
use crate::subject::{Kind, Subject};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where a message is when its confirm is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On the disk: it survives loss of power.
    Synced,
    /// With the system: it survives the end of the broker, and not loss of power.
    Written,
    /// Nowhere, or there are no confirms.
    Nothing,
    /// Nobody has looked.
    Unknown,
}

impl Durability {
    /// The word for it in figures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Durability::Synced => "synced",
            Durability::Written => "written",
            Durability::Nothing => "nothing",
            Durability::Unknown => "unknown",
        }
    }
}

/// What a confirm of a persistent message in a durable queue means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Where the message is.
    pub durability: Durability,
    /// The same in words, with what is said of other messages.
    pub means: &'static str,
    /// Where that was read.
    pub source: &'static str,
}

/// What is known of a product from a version on, until the next line of the same product.
struct Fact {
    kind: Kind,
    since: (u32, u32),
    promise: Promise,
}

/// By product and ascending version.
const FACTS: [Fact; 9] = [
    Fact {
        kind: Kind::RabbitMq,
        since: (0, 0),
        promise: Promise {
            durability: Durability::Synced,
            means: "fsync of the message store, one for all that wait; transient messages are confirmed from memory",
            source: "its source, rabbit_msg_store.erl: internal_sync",
        },
    },
    Fact {
        kind: Kind::RabbitMq,
        since: (3, 13),
        promise: Promise {
            durability: Durability::Written,
            means: "written: the message store of classic queues does not call fsync any more",
            source: "rabbitmq-server, pull request 8507",
        },
    },
    Fact {
        kind: Kind::LavinMq,
        since: (0, 0),
        promise: Promise {
            durability: Durability::Written,
            means: "written to files that are mapped into memory, without a sync",
            source: "lavinmq, pull request 531",
        },
    },
    Fact {
        kind: Kind::LavinMq,
        since: (2, 9),
        promise: Promise {
            durability: Durability::Synced,
            means: "syncfs of the file system with its data, one for all that wait; transient messages wait as well",
            source: "lavinmq, pull request 1891; transient ones: 2.9.1 timed with and without --no-sync",
        },
    },
    Fact {
        kind: Kind::Nats,
        since: (0, 0),
        promise: Promise {
            durability: Durability::Nothing,
            means: "there are none: a publish has no answer, and nothing is stored; who is not subscribed misses it",
            source: "its protocol: PUB is answered in verbose mode only, which is not used",
        },
    },
    Fact {
        kind: Kind::Qpid,
        since: (0, 0),
        promise: Promise {
            durability: Durability::Nothing,
            means: "the message is in its queues; they are in memory",
            source: "bench/qpid-peer, which has it keep messages in memory",
        },
    },
    Fact {
        kind: Kind::Artemis,
        since: (0, 0),
        promise: Promise {
            durability: Durability::Nothing,
            means: "the message is in its queues; they are in memory",
            source: "bench/artemis-peer, which has it keep messages in memory",
        },
    },
    Fact {
        kind: Kind::NullBroker,
        since: (0, 0),
        promise: Promise {
            durability: Durability::Nothing,
            means: "the publish was read; nothing is stored",
            source: "crates/experiment/src/bench/null_broker.rs",
        },
    },
    Fact {
        kind: Kind::NullRelay,
        since: (0, 0),
        promise: Promise {
            durability: Durability::Nothing,
            means: "there are none; nothing is stored",
            source: "crates/experiment/src/bench/null_relay.rs",
        },
    },
];

const NOBODY_LOOKED: Promise =
    Promise { durability: Durability::Unknown, means: "not known", source: "-" };

/// A broker as it took part.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// What it is called in figures.
    pub name: String,
    /// The product.
    pub product: String,
    /// Its version, empty where it does not tell.
    pub version: String,
    /// When the program's file was written, where it is one of ours: builds of one version are told apart by it.
    pub built: Option<String>,
    /// What it tells its clients, where that is another product.
    pub tells: Option<String>,
    /// The settings that it was started with, as far as they matter.
    pub settings: String,
    /// What its confirms mean.
    pub promise: Promise,
}

impl Identity {
    /// The identity of a broker that is called so in figures; `lepus` is the program where it is one of those.
    #[must_use]
    pub fn of(subject: &Subject, name: &str, lepus: &Path) -> Identity {
        let settings = subject.settings.clone();
        let ours = |product: &str| (product.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let kind = subject.kind();
        let (product, version) = match kind {
            Some(Kind::Lepus) => split(&own_version(lepus)),
            Some(Kind::NullBroker) => ours("lepus-bench null-broker"),
            Some(Kind::NullRelay) => ours("lepus-bench null-relay"),
            Some(Kind::RabbitMq | Kind::LavinMq | Kind::Qpid | Kind::Artemis | Kind::Nats)
            | None => split(&subject.product),
        };
        let promise = match kind {
            Some(Kind::Lepus) => own_promise(&settings),
            Some(kind) => promise(kind, &version),
            None => NOBODY_LOOKED,
        };
        let tells = (kind == Some(Kind::Lepus)).then(|| subject.product.clone());
        let built = built(lepus).filter(|_| kind == Some(Kind::Lepus));
        let name = name.to_owned();
        Identity { name, product, version, built, tells, settings, promise }
    }

    /// Product and version in one.
    #[must_use]
    pub fn label(&self) -> String {
        let mut own = format!("{} {}", self.product, self.version).trim().to_owned();
        if let Some(built) = &self.built {
            own.push_str(&format!(" (built {built})"));
        }
        match &self.tells {
            Some(tells) if !tells.is_empty() => format!("{own}, tells clients {tells}"),
            _ => own,
        }
    }

    /// All of it in a line.
    #[must_use]
    pub fn line(&self) -> String {
        let Promise { durability, means, source } = self.promise;
        format!(
            "{}; started with {}; a confirm means {}: {means} ({source})",
            self.label(),
            self.settings,
            durability.name()
        )
    }

    /// The identity for the machine-readable result.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "product": self.product,
            "version": self.version,
            "built": self.built,
            "tells_clients": self.tells,
            "started_with": self.settings,
            "confirm": {
                "durability": self.promise.durability.name(),
                "means": self.promise.means,
                "source": self.promise.source,
            },
        })
    }
}

/// The brokers as a table for the page.
#[must_use]
pub fn table(brokers: &[Identity]) -> Table {
    let mut table = Table::new(["broker", "product", "started with", "a confirm means", "read in"]);
    for broker in brokers {
        let Promise { durability, means, source } = broker.promise;
        table.rows.push(vec![
            broker.name.clone(),
            broker.label(),
            broker.settings.clone(),
            format!("{}: {means}", durability.name()),
            source.to_owned(),
        ]);
    }
    table
}

/// What a build of `lepus` calls itself.
#[must_use]
pub fn own_version(lepus: &Path) -> String {
    says(Command::new(lepus).arg("version")).unwrap_or_else(|| "lepus".to_owned())
}

/// When the file of a program was written.
fn built(program: &Path) -> Option<String> {
    Some(utc(fs::metadata(program).ok()?.modified().ok()?))
}

/// The load tester that is a part of `lepus`.
pub const OWN_TESTER: &str = "lepus perf";

/// What the load tester of a build of `lepus` calls itself.
#[must_use]
pub fn own_tester(lepus: &Path) -> String {
    let version = own_version(lepus).replacen("lepus", OWN_TESTER, 1);
    built(lepus).map_or_else(|| version.clone(), |built| format!("{version} (built {built})"))
}

/// The first line that a program prints.
#[must_use]
pub fn says(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Product and version of a text that ends with the version.
fn split(told: &str) -> (String, String) {
    match told.rsplit_once(' ') {
        Some((product, version)) if version.starts_with(|first: char| first.is_ascii_digit()) => {
            (product.to_owned(), version.to_owned())
        }
        _ => (told.to_owned(), String::new()),
    }
}

/// What is known of a product in this version; without a version nothing is.
fn promise(kind: Kind, version: &str) -> Promise {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else {
        return NOBODY_LOOKED;
    };
    let fits = |fact: &&Fact| fact.kind == kind && fact.since <= (major, minor);
    FACTS.iter().rfind(fits).map_or(NOBODY_LOOKED, |fact| fact.promise)
}

/// What `lepus` promises with these settings; it inherits none.
fn own_promise(settings: &str) -> Promise {
    const SOURCE: &str = "docs/durability.md";
    let words: Vec<&str> = settings.split([' ', '=', ',']).collect();
    if words.contains(&"--config") {
        return Promise { means: "what its configuration file says", ..NOBODY_LOOKED };
    }
    let flag = words.iter().rposition(|word| ["--sync", "--store-sync"].contains(word));
    match flag.and_then(|at| words.get(at + 1)).copied() {
        None | Some("always") => Promise {
            durability: Durability::Synced,
            means: "fdatasync of the log, one for all that wait; transient messages are confirmed from memory",
            source: SOURCE,
        },
        Some("interval" | "never") => Promise {
            durability: Durability::Written,
            means: "written; synced later. Transient messages are confirmed from memory",
            source: SOURCE,
        },
        Some(_) => NOBODY_LOOKED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn what_a_confirm_means_follows_the_version() {
        let durability = |kind, version| promise(kind, version).durability;
        assert_eq!(durability(Kind::RabbitMq, "3.10.8"), Durability::Synced);
        assert_eq!(durability(Kind::RabbitMq, "3.13.0"), Durability::Written);
        assert_eq!(durability(Kind::RabbitMq, "4.2.0"), Durability::Written);
        assert_eq!(durability(Kind::LavinMq, "2.8.3"), Durability::Written);
        assert_eq!(durability(Kind::LavinMq, "2.9.1"), Durability::Synced);
        assert_eq!(durability(Kind::LavinMq, "2.10.0"), Durability::Synced);
        assert_eq!(durability(Kind::NullBroker, "0.1.0"), Durability::Nothing);
        // What does not tell its version may be any.
        assert_eq!(durability(Kind::RabbitMq, ""), Durability::Unknown);
    }

    #[test]
    fn facts_stand_by_ascending_version() {
        for pair in FACTS.windows(2) {
            assert!(pair[0].kind != pair[1].kind || pair[0].since < pair[1].since);
        }
    }

    #[test]
    fn lepus_promises_what_its_settings_say() {
        let durability = |settings: &str| own_promise(settings).durability;
        assert_eq!(durability("--shards 1"), Durability::Synced);
        assert_eq!(durability("--shards 1 --sync interval"), Durability::Written);
        assert_eq!(durability("--store-sync=never"), Durability::Written);
        assert_eq!(durability("--sync always"), Durability::Synced);
        assert_eq!(durability("--config x.toml"), Durability::Unknown);
    }

    #[test]
    fn builds_of_one_version_are_told_apart() {
        let scratch = Scratch::new("built");
        let program = scratch.path().join("lepus");
        let file = fs::File::create(&program).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(86_400)).unwrap();
        assert_eq!(built(&program).as_deref(), Some("1970-01-02 00:00:00 UTC"));
        assert_eq!(built(&scratch.path().join("none")), None);
        let tester = own_tester(&program);
        assert!(tester.ends_with("(built 1970-01-02 00:00:00 UTC)"), "{tester}");
    }

    #[test]
    fn what_a_broker_tells_is_product_and_version() {
        assert_eq!(split("RabbitMQ 3.10.8"), ("RabbitMQ".to_owned(), "3.10.8".to_owned()));
        assert_eq!(split("Some Broker"), ("Some Broker".to_owned(), String::new()));
        let mut subject = Subject::elsewhere("amqp://there");
        subject.product = "LavinMQ 2.9.1".to_owned();
        subject.settings = "-l warn".to_owned();
        let identity = Identity::of(&subject, "x", Path::new("/no/such/lepus"));
        assert_eq!((identity.label().as_str(), &*identity.version), ("LavinMQ 2.9.1", "2.9.1"));
        // Where it was not started here nobody knows which build it is.
        assert_eq!(identity.promise.durability, Durability::Unknown);
        let table = table(&[identity]).rows;
        assert_eq!(table[0][1..3], ["LavinMQ 2.9.1", "-l warn"]);
    }
}
