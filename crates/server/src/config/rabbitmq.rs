//! Settings of RabbitMQ: the keys of `rabbitmq.conf` and the environment of its image, as far as they mean something
//! here. What does not is named.

use super::file::Entry;
use std::path::Path;

/// A file in the form of `rabbitmq.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is.
    pub path: String,
    /// What stands in it.
    pub content: String,
}

/// What was read: settings of ours, and what is said of the rest.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Settings with their lines.
    pub entries: Vec<Entry>,
    /// Sentences on keys without a meaning here.
    pub notes: Vec<String>,
}

/// Keys that are one of ours, with the same values.
const SAME: [(&str, &str); 17] = [
    ("default_user", "default.user"),
    ("default_pass", "default.password"),
    ("default_vhost", "default.vhost"),
    ("heartbeat", "limits.heartbeat"),
    ("frame_max", "limits.frame_max"),
    ("channel_max", "limits.channel_max"),
    ("max_message_size", "limits.body_bytes_max"),
    ("cluster_name", "identity.cluster_name"),
    ("load_definitions", "definitions"),
    ("definitions.local.path", "definitions"),
    ("management.load_definitions", "definitions"),
    ("management.path_prefix", "management.path_prefix"),
    ("management.hsts.policy", "management.hsts_policy"),
    ("ssl_options.certfile", "tls.certificate"),
    ("ssl_options.keyfile", "tls.key"),
    ("ssl_options.cacertfile", "tls.ca"),
    ("disk_free_limit.absolute", "store.disk_free_limit"),
];

/// Keys that set something which is so here anyway, or that there is nothing of here.
const WITHOUT_MEANING: [&str; 12] = [
    "tcp_listen_options.",
    "collect_statistics",
    "management_agent.",
    "management.rates_mode",
    "mirroring_",
    "queue_leader_locator",
    "raft.",
    "num_acceptors.",
    "background_gc_",
    "mnesia_table_loading_",
    "reverse_dns_lookups",
    "vm_memory_calculation_strategy",
];

/// Environment variables of RabbitMQ's image that are one of our settings.
const VARIABLES: [(&str, &str); 6] = [
    ("RABBITMQ_DEFAULT_USER", "default.user"),
    ("RABBITMQ_DEFAULT_PASS", "default.password"),
    ("RABBITMQ_DEFAULT_VHOST", "default.vhost"),
    ("RABBITMQ_NODE_PORT", "listen"),
    ("RABBITMQ_NODENAME", "identity.node"),
    ("RABBITMQ_MNESIA_BASE", "data_dir"),
];

/// The setting that an environment variable of RabbitMQ's image is.
#[must_use]
pub fn of_variable(name: &str) -> Option<&'static str> {
    VARIABLES.iter().find(|(variable, _)| *variable == name).map(|(_, key)| *key)
}

/// The files that `RABBITMQ_CONFIG_FILE` and `RABBITMQ_CONFIG_FILES` name, those of a directory in the order of their
/// names. One that is not there has nothing in it: images name theirs whether it is there or not.
///
/// # Errors
/// In words, for one that cannot be read.
pub fn fetch(file: Option<&str>, directory: Option<&str>) -> Result<Vec<File>, String> {
    let mut paths: Vec<String> = Vec::new();
    if let Some(file) = file.filter(|file| !file.is_empty()) {
        let with_ending = format!("{file}.conf");
        let is_plain = Path::new(file).is_file();
        paths.push(if is_plain { file.to_owned() } else { with_ending });
    }
    if let Some(directory) = directory.filter(|directory| !directory.is_empty()) {
        let found = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut found: Vec<String> = found
            .map(|entry| entry.path().to_string_lossy().into_owned())
            .filter(|path| path.ends_with(".conf"))
            .collect();
        found.sort();
        paths.extend(found);
    }
    let mut files = Vec::new();
    for path in paths {
        match std::fs::read_to_string(&path) {
            Ok(content) => files.push(File { path, content }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {path}: {error}")),
        }
    }
    Ok(files)
}

/// What lines of several keys come to.
#[derive(Default)]
struct Gathered {
    listen: Vec<String>,
    tls_listen: Vec<String>,
    origins: Vec<String>,
    /// Users that may not come from elsewhere; `None` where nothing was said.
    loopback: Option<Vec<String>>,
    management_port: Option<String>,
    management_address: Option<String>,
    verify: Option<bool>,
    demands: Option<bool>,
}

/// Takes a file apart.
#[must_use]
pub fn read(file: &File) -> Read {
    let mut read = Read::default();
    let mut gathered = Gathered::default();
    for (index, whole) in file.content.lines().enumerate() {
        let line = index + 1;
        let text = whole.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let Some((key, value)) = text.split_once('=') else {
            read.notes.push(format!("{}, line {line}: {text:?} is no setting", file.path));
            continue;
        };
        let value = value.trim().trim_matches('\'').trim_matches('"');
        // A value may be followed by a comment.
        let value = value.split(" #").next().unwrap_or(value).trim();
        let key = key.trim();
        if let Some(text) = take(key, value, line, &mut read, &mut gathered) {
            read.notes.push(format!("{}, line {line}: {key} {text}", file.path));
        }
    }
    gathered.finish(&mut read);
    read
}

/// Takes one line; what is to be said of it, if it means nothing.
fn take(
    key: &str,
    value: &str,
    line: usize,
    read: &mut Read,
    gathered: &mut Gathered,
) -> Option<&'static str> {
    let mut put = |key: &str, text: String| {
        read.entries.push(Entry { key: key.to_owned(), text: Some(text), line });
    };
    if let Some((_, own)) = SAME.iter().find(|(theirs, _)| *theirs == key) {
        put(own, sized(value));
        return None;
    }
    let port = |value: &str| value.rsplit(':').next().unwrap_or(value).to_owned();
    match key {
        "listeners.tcp" if value == "none" => gathered.listen = vec!["none".to_owned()],
        "listeners.ssl" if value == "none" => gathered.tls_listen = vec!["none".to_owned()],
        _ if key.starts_with("listeners.tcp.") => gathered.listen.push(value.to_owned()),
        _ if key.starts_with("listeners.ssl.") => gathered.tls_listen.push(value.to_owned()),
        "ssl_options.verify" => gathered.verify = Some(value == "verify_peer"),
        "ssl_options.fail_if_no_peer_cert" => gathered.demands = Some(value == "true"),
        "loopback_users" if value == "none" => gathered.loopback = Some(Vec::new()),
        _ if key.starts_with("loopback_users.") => {
            let user = key["loopback_users.".len()..].to_owned();
            let users = gathered.loopback.get_or_insert_with(Vec::new);
            users.retain(|one| *one != user);
            if value == "true" {
                users.push(user);
            }
        }
        "consumer_timeout" => match value.parse::<u64>() {
            Ok(millis) => put("limits.consumer_timeout", millis.div_ceil(1_000).to_string()),
            Err(_) => return Some("is to be milliseconds"),
        },
        "connection_max" if value == "infinity" => {}
        "connection_max" => put("limits.connections_max", value.to_owned()),
        "vm_memory_high_watermark.relative" => match value.parse::<f64>() {
            Ok(share) if share > 0.0 && share <= 1.0 => {
                put("memory.budget", format!("{}%", (share * 100.0).round() as u64));
            }
            _ => return Some("is to be a share from 0 to 1"),
        },
        "vm_memory_high_watermark.absolute" => put("memory.budget", sized(value)),
        "log.console.level" | "log.level" | "log.default.level" => match value {
            "debug" | "info" | "warning" | "error" => put("log.level", value.to_owned()),
            "none" | "critical" => put("log.level", "error".to_owned()),
            _ => return Some("is to be debug, info, warning or error"),
        },
        "log.console.formatter" => match value {
            "json" => put("log.format", "json".to_owned()),
            _ => put("log.format", "text".to_owned()),
        },
        "log.console" if value == "true" => {}
        "management.tcp.port" | "management.listener.port" => {
            gathered.management_port = Some(port(value))
        }
        "management.tcp.ip" | "management.listener.ip" => {
            gathered.management_address = Some(value.to_owned())
        }
        "management.ssl.port" => put("management.tls_listen", value.to_owned()),
        "prometheus.tcp.port" => put("metrics.listen", value.to_owned()),
        _ if key.starts_with("management.cors.allow_origins.") => {
            gathered.origins.push(value.to_owned());
        }
        _ if WITHOUT_MEANING.iter().any(|start| key.starts_with(start)) => {
            return Some("has no meaning here and is passed over");
        }
        _ => return Some("is not known here and is passed over"),
    }
    None
}

impl Gathered {
    fn finish(self, read: &mut Read) {
        let mut put = |key: &str, text: String| {
            read.entries.push(Entry { key: key.to_owned(), text: Some(text), line: 0 });
        };
        let mut list = |key: &str, all: Vec<String>| {
            if !all.is_empty() {
                put(key, all.join(","));
            }
        };
        list("listen", self.listen);
        list("tls.listen", self.tls_listen);
        list("management.allowed_origins", self.origins);
        if let Some(users) = self.loopback {
            let only = users.iter().any(|user| user == "guest");
            put("default.loopback_only", only.to_string());
            put("login.loopback_users", users.join(","));
        }
        match (self.management_address, self.management_port) {
            (Some(address), port) => {
                let port = port.unwrap_or_else(|| "15672".to_owned());
                put("management.listen", format!("{address}:{port}"));
            }
            (None, Some(port)) => put("management.listen", port),
            (None, None) => {}
        }
        match (self.verify, self.demands) {
            (Some(true), Some(true)) => put("tls.verify", "required".to_owned()),
            (Some(true), _) => put("tls.verify", "optional".to_owned()),
            _ => {}
        }
    }
}

/// A size as our settings write it: RabbitMQ's `kB`, `KiB`, `MB`, `MiB`, `GB`, `GiB` and their short forms.
fn sized(value: &str) -> String {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = value[digits.len()..].to_ascii_lowercase();
    let own = match unit.as_str() {
        "k" | "ki" | "kib" => "KiB",
        "m" | "mi" | "mib" => "MiB",
        "g" | "gi" | "gib" => "GiB",
        "kb" => "kB",
        "mb" => "MB",
        "gb" => "GB",
        _ => return value.to_owned(),
    };
    match digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => value.to_owned(),
        false => format!("{digits}{own}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Budget, Sources, load};
    use std::time::Duration;

    fn file(content: &str) -> File {
        File { path: "rabbitmq.conf".to_owned(), content: content.to_owned() }
    }

    #[test]
    fn what_images_and_charts_write_is_read() {
        let content = "
# a comment
listeners.tcp.default = 5673
listeners.tcp.other = 127.0.0.1:5674
default_user = shop
default_pass = 's3cret'
loopback_users.guest = false
vm_memory_high_watermark.relative = 0.4
disk_free_limit.absolute = 2GB
consumer_timeout = 1800500
management.tcp.port = 15673
log.console.level = warning
cluster_name = here
tcp_listen_options.backlog = 128
cluster_formation.peer_discovery_backend = k8s
nonsense
";
        let sources = Sources { rabbitmq: vec![file(content)], ..Sources::default() };
        let config = load(&sources).unwrap();
        let ports: Vec<u16> = config.listen.iter().map(std::net::SocketAddr::port).collect();
        assert!(ports.contains(&5673) && ports.contains(&5674), "{ports:?}");
        assert_eq!(
            (config.default_user.as_str(), config.default_password.as_str()),
            ("shop", "s3cret")
        );
        assert!(!config.default_loopback_only);
        assert_eq!(config.memory_budget, Budget::Percent(40));
        assert_eq!(config.store_disk_free_limit, 2_000_000_000);
        assert_eq!(config.consumer_timeout, Duration::from_secs(1801));
        assert!(config.management_listen.iter().all(|address| address.port() == 15673));
        assert_eq!((config.log_level.as_str(), config.cluster_name.as_str()), ("warning", "here"));
        let notes = sources.notes();
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].contains("line 14: tcp_listen_options.backlog has no meaning here"));
        assert!(
            notes[1].contains("line 15: cluster_formation.peer_discovery_backend is not known")
        );
        assert!(notes[2].contains("line 16: \"nonsense\" is no setting"));
    }

    #[test]
    fn a_value_that_is_refused_is_named_with_its_line() {
        let sources =
            Sources { rabbitmq: vec![file("\nheartbeat = often\n")], ..Sources::default() };
        let errors = load(&sources).unwrap_err().to_string();
        assert!(errors.contains("rabbitmq.conf") && errors.contains('2'), "{errors}");
    }

    #[test]
    fn our_own_settings_win() {
        let sources = Sources {
            rabbitmq: vec![file("default_user = theirs")],
            environment: vec![("LEPUS_DEFAULT_USER".to_owned(), "ours".to_owned())],
            rabbitmq_environment: vec![("RABBITMQ_DEFAULT_USER".to_owned(), "image".to_owned())],
            ..Sources::default()
        };
        assert_eq!(load(&sources).unwrap().default_user, "ours");
        let without = Sources { environment: Vec::new(), ..sources };
        assert_eq!(load(&without).unwrap().default_user, "image");
    }

    #[test]
    fn sizes_are_written_as_ours() {
        assert_eq!(["2GB", "1Gi", "5k", "64", "x"].map(sized), ["2GB", "1GiB", "5KiB", "64", "x"]);
    }
}
