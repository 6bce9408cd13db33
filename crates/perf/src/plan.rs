//! What a run consists of: connections with their scripts and roles, limits and outputs. Shapes make plans, the engine
//! carries them out.

use crate::body::Layout;
use crate::ceiling::Ceiling;
use crate::check::Check;
use crate::consumer::ConsumerSpec;
use crate::producer::ProducerSpec;
use crate::report::Shown;
use crate::report::data::Format;
use crate::roundtrip::RoundtripSpec;
use crate::script::Step;
use crate::uri::Uri;
use std::path::PathBuf;
use std::time::Duration;

/// Connections are made stage by stage; the next stage begins when all of the one before are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Declares what all share, then closes.
    Setup,
    /// Consumes.
    Consume,
    /// Publishes.
    Produce,
}

/// What a channel does once its connection's script is through.
#[derive(Clone, Debug)]
pub(crate) enum RoleSpec {
    Producer(ProducerSpec),
    Consumer(ConsumerSpec),
    Roundtrip(RoundtripSpec),
}

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct LinkPlan {
    pub stage: Stage,
    /// Time from the start of its stage to the connect.
    pub delay: Duration,
    /// Shown by the broker's tools.
    pub name: String,
    pub script: Vec<Step>,
    pub roles: Vec<RoleSpec>,
}

impl LinkPlan {
    /// Whether one of its roles stops by itself.
    pub(crate) fn is_limited(&self) -> bool {
        self.roles.iter().any(|role| match role {
            RoleSpec::Producer(producer) => producer.sent_max.is_some(),
            RoleSpec::Consumer(consumer) => consumer.received_max.is_some(),
            RoleSpec::Roundtrip(_) => false,
        })
    }
}

/// A whole run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub id: String,
    /// The subcommand.
    pub shape: &'static str,
    /// Which part of the shape this is, where it has several; or empty.
    pub phase: String,
    /// Nothing is told about it.
    pub quiet: bool,
    /// Where connections go, in turn.
    pub uris: Vec<Uri>,
    /// 0: what the broker offers.
    pub frame_bytes_max: u32,
    pub heartbeat_seconds: u16,
    pub links: Vec<LinkPlan>,
    pub layout: Layout,
    pub time_in_header: bool,
    pub check: Option<Check>,
    /// For the check: each queue's number with each producer whose messages belong into it.
    pub expected: Vec<(usize, u32)>,
    /// Deliveries that the messages of a producer lead to in turn, by the producer's number; `None` where they cannot
    /// be foreseen.
    pub copies: Option<Vec<Vec<u64>>>,
    /// The broker's process, where its CPU time is to be told.
    pub pid: Option<u32>,
    pub run: RunOptions,
    pub shown: Shown,
    /// The tester's own speed with this load, where it was measured.
    pub ceiling: Option<Ceiling>,
}

/// Options that every shape has: when to stop and what to tell.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    pub time_max: Option<Duration>,
    pub interval: Duration,
    /// Stop when no message came for so long.
    pub idle_max: Option<Duration>,
    pub confirm_timeout: Duration,
    /// Longest wait at the end: for the closing of connections, and of a check for the next message.
    pub shutdown_timeout: Duration,
    /// How long there is load before anything counts.
    pub warm_up: Duration,
    /// Longest wait at the end for messages that are under way.
    pub drain: Duration,
    pub socket: SocketOptions,
    /// How long brokers that do not listen yet are waited for.
    pub startup_timeout: Option<Duration>,
    /// With that wait, begin once so many brokers listen, or all.
    pub servers_min: usize,
    /// What standard output carries.
    pub format: Format,
    pub csv: Option<PathBuf>,
    pub json: Option<PathBuf>,
}

/// How sockets are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    pub no_delay: bool,
    /// `None`: what the system gives.
    pub send_bytes: Option<usize>,
    pub receive_bytes: Option<usize>,
}
