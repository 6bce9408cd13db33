//! From the configuration to what the runtime and the broker are started with.

use super::{Address, logs};
use crate::config::Config;
use crate::figures;
use crate::initial::{Initial, capacity};
use crate::placement::{SHARDS_MAX, disk_bytes, place};
use lepus_amqp::server::ServerOptions;
use lepus_base::{HashState, ShardId};
use lepus_broker::outbox::Event;
use lepus_broker::settings::{Limits, Settings, StoreSettings};
use lepus_shard::{
    Admission, Clock, Config as RuntimeConfig, FreeLimit, IdlePreset, Listener, LoginFrom,
    RevocationCheck, Revocations, Storage, TlsFiles, Transport,
};
use lepus_topology::{Binding, Machine, Wishes, source};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// Mail batches in flight per ordered pair of shards.
const RING_CAPACITY: usize = 16;

/// Numbers that are decided once at the start.
#[derive(Debug)]
pub struct Plan {
    /// Shards.
    pub shards: u16,
    /// Bytes for messages and connections, of all shards together.
    pub memory_budget_bytes: u64,
    /// The machine.
    pub machine: Machine,
    /// What was asked of the planner.
    pub wishes: Wishes,
    /// Where everything is on it.
    pub placement: lepus_topology::Plan,
    /// What the operator should know about the two.
    pub notes: Vec<String>,
    /// What is to stay free of the disk.
    pub free_limit: FreeLimit,
    listeners: Vec<Listener>,
}

impl Plan {
    /// Looks at the machine and the configuration.
    ///
    /// # Errors
    /// When the placement leaves no CPU, in words.
    pub fn new(config: &Config) -> Result<Plan, String> {
        let (machine, failure) = source::running();
        let failure = failure.map(|failure| format!("{failure}; its CPUs count as one node"));
        let (wishes, placement) = place(config, &machine, disk_bytes(config))?;
        // Not more than the planner was allowed.
        let shards = placement.shards.clamp(1, SHARDS_MAX) as u16;
        logs::check_bytes_max(config, shards)?;
        let memory_budget_bytes = figures::memory_budget_bytes(config);
        check_memory(memory_budget_bytes, shards)?;
        let notes = failure.into_iter().chain(placement.notes.iter().cloned()).collect();
        let mut listeners = Vec::new();
        for address in &config.listen {
            listeners.push(listener(*address, Transport::Plain));
        }
        if config.tls_certificate.is_some() {
            for address in &config.tls_listen {
                listeners.push(listener(*address, Transport::Tls));
            }
        }
        let free_limit = FreeLimit::new(config.store_disk_free_limit);
        Ok(Plan {
            shards,
            memory_budget_bytes,
            machine,
            wishes,
            placement,
            notes,
            free_limit,
            listeners,
        })
    }

    /// How many shards there are, and why, in one line.
    #[must_use]
    pub fn reason(&self) -> String {
        let shards = if self.shards == 1 { "shard" } else { "shards" };
        let memory = self.memory_budget_bytes >> 20;
        let reason = &self.placement.shards_reason;
        format!("{} {shards} ({reason}), {memory} MiB for messages and connections", self.shards)
    }

    /// Takes the calling thread, and those it starts from now on, to the CPUs for housekeeping, where
    /// the place of threads matters.
    pub fn keep_house(&self) {
        if self.placement.binds_memory() {
            // Where the system refuses, housekeeping runs anywhere.
            let _ = lepus_topology::bind_current_thread(&self.placement.housekeeping);
        }
    }

    /// What the runtime is started with.
    pub fn runtime(
        &self,
        config: &Config,
        clock: Clock,
        notices: lepus_shard::Notices<Event>,
        room: Room,
    ) -> RuntimeConfig<Event> {
        let tls = config.tls_certificate.clone().zip(config.tls_key.clone());
        let verify = config.tls_verify != "none";
        RuntimeConfig {
            plan: self.placement.clone(),
            idle: match (config.economy, config.latency) {
                (true, _) => IdlePreset::Economy,
                (false, true) => IdlePreset::Latency,
                (false, false) => IdlePreset::Adaptive,
            },
            ring_capacity: RING_CAPACITY,
            connections_max: room.connections_max,
            admission: Admission {
                waiting_max: room.waiting_max,
                silence_timeout: config.silence_timeout,
                handshake_timeout: config.handshake_timeout,
            },
            listeners: self.listeners.clone(),
            tls: tls.map(|(certificate, key)| TlsFiles {
                certificate,
                key,
                client_authorities: config.tls_ca.clone().filter(|_| verify),
                client_certificate_required: config.tls_verify == "required",
                revocations: config.tls_crl.clone().map(|file| Revocations {
                    file,
                    check: match config.tls_crl_check.as_str() {
                        "peer" => RevocationCheck::Peer,
                        "best_effort" => RevocationCheck::BestEffort,
                        _ => RevocationCheck::Chain,
                    },
                }),
                login_from: match config.tls_login_from.as_str() {
                    "common_name" => LoginFrom::CommonName,
                    "dns" => LoginFrom::DnsName,
                    "email" => LoginFrom::MailAddress,
                    "uri" => LoginFrom::Uri,
                    _ => LoginFrom::DistinguishedName,
                },
            }),
            storage: Some(self.storage(config, room)),
            stop_timeout: config.stop_timeout,
            notices,
            clock,
        }
    }

    /// Where the logs are, and what they may take.
    #[must_use]
    pub fn storage(&self, config: &Config, room: Room) -> Storage {
        Storage {
            directory: config.data_dir(),
            free_limit: self.free_limit.clone(),
            open_files_max: room.open_files_max,
        }
    }

    /// What each shard's broker is started with, but for the shard's number and logs.
    #[must_use]
    pub fn broker_settings(&self, config: &Config, hash: HashState, secret: [u8; 32]) -> Settings {
        let shard_bytes = self.memory_budget_bytes / u64::from(self.shards);
        Settings {
            shard: ShardId(0),
            shards: self.shards,
            node: figures::node_name(config).into(),
            nodes: self.nodes(),
            hash,
            secret,
            server: server_options(config),
            limits: Limits {
                consumers_per_channel_max: narrow(config.consumers_per_channel_max),
                connection_filters_max: usize::try_from(config.connection_filters_max)
                    .unwrap_or(usize::MAX),
                unacked_per_channel_max: narrow(config.unacked_per_channel_max),
                consumer_timeout: config.consumer_timeout,
                copy_keys_max: usize::try_from(config.copy_keys_max).unwrap_or(usize::MAX),
                routing_steps_max: narrow(config.routing_steps_max),
                tx_bytes_max: usize::try_from(config.transaction_bytes_max).unwrap_or(usize::MAX),
                unread_bytes_max: usize::try_from(config.unread_bytes_max).unwrap_or(usize::MAX),
                capacity: capacity(config),
                memory_bytes: usize::try_from(shard_bytes).unwrap_or(usize::MAX),
                ..Limits::default()
            },
            store: Some(StoreSettings {
                template: logs::template(
                    config,
                    self.shards,
                    usize::try_from(shard_bytes).unwrap_or(1 << 30),
                ),
                logs: Vec::new(),
                deleted: [].into(),
            }),
        }
    }

    /// The memory node of each shard; empty where they have none or it does not matter.
    fn nodes(&self) -> Vec<u32> {
        let places = self.placement.places.iter().filter(|_| self.placement.is_numa);
        let nodes: Vec<u32> = places.filter_map(|place| place.memory_node).collect();
        if nodes.len() == usize::from(self.shards) { nodes } else { Vec::new() }
    }

    /// What is printed once the broker serves.
    #[must_use]
    pub fn banner(
        &self,
        config: &Config,
        initial: &Initial,
        addresses: &[Address],
        data_dir: &Path,
    ) -> String {
        let mut out = format!("lepus {} is ready\n", env!("CARGO_PKG_VERSION"));
        let shards = if self.shards == 1 { "shard" } else { "shards" };
        let cpus: Vec<String> =
            self.placement.places.iter().map(|place| place.cpu.id.to_string()).collect();
        let mut placement = match self.placement.binding {
            Binding::Cpu => format!("on CPU {}", cpus.join(", ")),
            Binding::Node | Binding::Nothing => "not bound to CPUs".to_owned(),
        };
        if !self.placement.shared_memory.is_empty() {
            placement.push_str(&format!(", memory on nodes {}", self.placement.shared_memory));
        }
        out.push_str(&format!("  {} {shards} {placement}\n", self.shards));
        for (name, address) in addresses {
            out.push_str(&match *name {
                "management" => format!("  API      http://{address}/api\n"),
                "management-tls" => format!("  API      https://{address}/api\n"),
                "metrics" => format!("  metrics  http://{address}/metrics\n"),
                name => format!("  {name:<7}  {address}\n"),
            });
        }
        out.push_str(&format!("  data     {} (sync {})\n", data_dir.display(), config.store_sync));
        let memory = self.memory_budget_bytes >> 20;
        out.push_str(&format!("  memory   {memory} MiB for messages and connections\n"));
        if initial.has_default_user {
            let place = if config.default_loopback_only { ", from this machine only" } else { "" };
            out.push_str(&format!(
                "  login    user {} in virtual host {}{place}\n",
                config.default_user, config.default_vhost
            ));
        }
        let port = addresses.iter().find(|(name, _)| *name == "amqp");
        let known = config.default_user == "guest" && config.default_password == "guest";
        if let Some((_, address)) = port
            && initial.has_default_user
            && known
        {
            let host = match address.ip() {
                ip if ip.is_unspecified() => "localhost".to_owned(),
                IpAddr::V6(ip) => format!("[{ip}]"),
                IpAddr::V4(ip) => ip.to_string(),
            };
            out.push_str(&format!(
                "try: lepus perf throughput --uri amqp://guest:guest@{host}:{} --time 10\n",
                address.port()
            ));
        }
        out
    }
}

/// Files of each kind that a shard keeps open where the process may open any number.
const OPEN_FILES_MAX: u64 = 64;
/// However few it may open: what a log writes at the same time.
const OPEN_FILES_MIN: u64 = 4;
/// File descriptors of a shard beside those: readiness, bells, counters of the system.
const SHARD_FILES: u64 = 8;

/// How many connections and files there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// With a shard.
    pub connections_max: usize,
    /// Silent ones, those on their way to a login, and those that are closed and wait for their peer's end,
    /// each for themselves.
    pub waiting_max: usize,
    /// Files of logs that each shard keeps open at once that it writes, and as many that it only reads.
    pub open_files_max: usize,
}

impl Room {
    /// What the configuration allows, but never so many that logs, or the next connection, find no
    /// file descriptor. The process may have `files` of them; `None` is any number.
    #[must_use]
    pub fn new(config: &Config, files: Option<u64>, shards: u16) -> Room {
        let mut connections_max = config.connections_max;
        let mut waiting_max = config.waiting_max;
        let mut open_files_max = OPEN_FILES_MAX;
        if let Some(files) = files {
            // For logs, rings and metrics.
            let of_shards = u64::from(shards) * (2 * OPEN_FILES_MAX + SHARD_FILES);
            let own = (512 + of_shards).min(files / 2);
            // Some for what has no shard.
            let of_each = (own - (own / 8).min(512)) / u64::from(shards.max(1));
            let left = of_each.saturating_sub(SHARD_FILES);
            open_files_max = open_files_max.min((left / 2).max(OPEN_FILES_MIN));
            let sockets = files - own;
            waiting_max = waiting_max.min((sockets / 8).max(1));
            connections_max = connections_max.min(sockets.saturating_sub(3 * waiting_max).max(1));
        }
        Room {
            connections_max: usize::try_from(connections_max).unwrap_or(usize::MAX),
            waiting_max: usize::try_from(waiting_max).unwrap_or(usize::MAX),
            open_files_max: usize::try_from(open_files_max).unwrap_or(usize::MAX),
        }
    }

    /// What to tell where files are fewer than the configuration asks for.
    #[must_use]
    pub fn complaint(&self, config: &Config, files: Option<u64>) -> Option<String> {
        let is_less = (self.connections_max as u64) < config.connections_max;
        let files = files.filter(|_| is_less)?;
        Some(format!(
            "{} connections at most instead of {} (limits.connections_max), and {} that wait for a \
             login: this process may open {files} files only; raise its limit (ulimit -n, \
             LimitNOFILE)",
            self.connections_max, config.connections_max, self.waiting_max
        ))
    }
}

/// Whether the memory budget is enough for so many shards: with less for each a few messages use it up.
///
/// # Errors
/// In words, with what to change.
fn check_memory(budget_bytes: u64, shards: u16) -> Result<(), String> {
    if budget_bytes >> 20 >= u64::from(shards) {
        return Ok(());
    }
    Err(format!(
        "memory.budget of {} MiB is too little for {shards} shards: each needs 1 MiB; set it to {shards} MiB or \
         more, or have fewer shards (--shards)",
        budget_bytes >> 20
    ))
}

fn listener(address: SocketAddr, transport: Transport) -> Listener {
    Listener { address, transport, backlog: BACKLOG }
}

fn server_options(config: &Config) -> ServerOptions {
    ServerOptions {
        product: config.product.clone(),
        version: config.version.clone(),
        information: format!("lepus {}, a broker for AMQP 0-9-1", env!("CARGO_PKG_VERSION")),
        cluster_name: config.cluster_name.clone(),
        channel_max: u16::try_from(config.channel_max).unwrap_or(u16::MAX),
        frame_max: narrow(config.frame_max),
        heartbeat: u16::try_from(config.heartbeat.as_secs()).unwrap_or(u16::MAX),
        body_bytes_max: config.body_bytes_max,
        assembly_bytes_max: usize::try_from(config.body_bytes_max.saturating_mul(2))
            .unwrap_or(usize::MAX),
        header_timeout: config.silence_timeout.min(config.handshake_timeout),
        handshake_timeout: config.handshake_timeout,
        ..ServerOptions::default()
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Whether this is the IPv6 half of "all interfaces" on a machine without IPv6, and the other half
/// remains.
#[must_use]
pub fn is_missing_ipv6(address: SocketAddr, error: &std::io::Error, all: &[SocketAddr]) -> bool {
    let missing = matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    let other_half = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
    address.is_ipv6() && address.ip().is_unspecified() && missing && all.iter().any(other_half)
}

/// Why an address cannot be listened on, and what to do about it.
#[must_use]
pub fn listen_error(address: SocketAddr, error: &std::io::Error, flag: &str) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => format!(
            "cannot listen on {address}: port {} is in use by another program; \
             stop that one, or choose another address with {flag}",
            address.port()
        ),
        ErrorKind::PermissionDenied => format!(
            "cannot listen on {address}: not permitted; ports below 1024 are for root, \
             choose another address with {flag}"
        ),
        ErrorKind::AddrNotAvailable => format!(
            "cannot listen on {address}: this machine has no such address; choose another with {flag}"
        ),
        _ => format!("cannot listen on {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_follows_the_configuration() {
        let config = Config {
            shards: Some(3),
            tls_certificate: Some("c.pem".into()),
            tls_key: Some("k.pem".into()),
            memory_budget: crate::config::Budget::Bytes(300 << 20),
            ..Config::preset()
        };
        let plan = Plan::new(&config).unwrap();
        assert_eq!(plan.shards, 3);
        assert_eq!(plan.listeners.len(), 4);
        let tls = plan.listeners.iter().filter(|one| one.transport == Transport::Tls);
        assert_eq!(tls.count(), 2);
        let settings = plan.broker_settings(&config, HashState::new(1), [0; 32]);
        assert_eq!(settings.limits.memory_bytes, 100 << 20);
        assert_eq!(settings.server.heartbeat, 60);
        assert_eq!(settings.server.version, config.version);
    }

    #[test]
    fn connections_leave_files_for_logs_and_for_those_who_come_next() {
        let config = Config::preset();
        for shards in [1, 4, 64] {
            for files in [8, 64, 256, 512, 1024, 4096, 20_000, 65_536, 200_000, 1 << 20] {
                let room = Room::new(&config, Some(files), shards);
                let sockets = room.connections_max as u64 + 3 * room.waiting_max as u64;
                assert!(sockets < files, "{files} files: {room:?}");
                let open = u64::from(shards) * (2 * room.open_files_max as u64 + SHARD_FILES);
                let is_enough = files >= 64 * u64::from(shards);
                assert!(!is_enough || sockets + open < files, "{files} files: {room:?}");
                assert!(room.waiting_max * 3 <= room.connections_max || files < 16, "{room:?}");
                let is_told = room.complaint(&config, Some(files)).is_some();
                assert_eq!(is_told, room.connections_max < 100_000, "{files} files");
            }
        }
        let all = Room { connections_max: 100_000, waiting_max: 10_000, open_files_max: 64 };
        assert_eq!(Room::new(&config, Some(1 << 20), 4), all);
        assert_eq!(Room::new(&config, None, 4), all);
    }

    #[test]
    fn a_memory_budget_that_is_too_little_for_the_shards_is_refused() {
        let config = |shards| Config {
            shards: Some(shards),
            memory_budget: crate::config::Budget::Bytes(64 << 20),
            ..Config::preset()
        };
        assert!(Plan::new(&config(64)).is_ok());
        let error = Plan::new(&config(65)).unwrap_err();
        assert!(error.contains("64 MiB is too little for 65 shards"), "{error}");
        assert!(error.contains("set it to 65 MiB or more"), "{error}");
    }

    #[test]
    fn without_a_certificate_there_is_no_tls() {
        let plan = Plan::new(&Config::preset()).unwrap();
        assert_eq!(plan.listeners.len(), 2);
        assert!(plan.shards >= 1);
    }

    #[test]
    fn a_port_in_use_says_what_to_do() {
        let error = std::io::Error::from(ErrorKind::AddrInUse);
        let text = listen_error("0.0.0.0:5672".parse().unwrap(), &error, "--listen");
        assert!(text.contains("port 5672 is in use"), "{text}");
        assert!(text.contains("--listen"), "{text}");
    }

    #[test]
    fn only_the_ipv6_half_may_be_missing() {
        let error = std::io::Error::from(ErrorKind::Unsupported);
        let (v4, v6) = ("0.0.0.0:1".parse().unwrap(), "[::]:1".parse().unwrap());
        assert!(is_missing_ipv6(v6, &error, &[v4, v6]));
        assert!(!is_missing_ipv6(v6, &error, &[v6]));
        assert!(!is_missing_ipv6(v4, &error, &[v4, v6]));
        let one = "[::1]:1".parse().unwrap();
        assert!(!is_missing_ipv6(one, &error, &[v4, one]));
    }
}
