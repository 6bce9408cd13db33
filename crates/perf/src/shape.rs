//! The shapes of load, and the options that all of them have.

pub(crate) mod backlog;
pub(crate) mod churn;
pub(crate) mod echo;
pub(crate) mod fanout;
pub(crate) mod feed;
pub(crate) mod filters;
pub(crate) mod idle;
pub(crate) mod sink;
pub(crate) mod throughput;

use crate::body::Layout;
use crate::job::Job;
use crate::option::{Choice, Foreign, Group, OptionError, Options, wrong};
use crate::plan::{LinkPlan, Plan, RoleSpec, RunOptions, SocketOptions, Stage};
use crate::producer::ProducerSpec;
use crate::report::Shown;
use crate::report::data::Format;
use crate::schedule::Schedule;
use crate::script::{Step, select_confirms};
use crate::uri::Uri;
use std::time::Duration;

/// One subcommand.
pub(crate) struct Shape {
    pub name: &'static str,
    /// One line for the list of subcommands.
    pub summary: &'static str,
    /// Explains the shape, with examples.
    pub lesson: &'static str,
    pub groups: &'static [Group],
    pub foreign: &'static [Foreign],
    /// The parts that the options ask for, one after the other.
    pub plan: fn(&Options) -> Result<Vec<Job>, OptionError>,
}

/// All shapes.
pub(crate) const SHAPES: &[Shape] = &[
    throughput::SHAPE,
    echo::SHAPE,
    fanout::SHAPE,
    feed::SHAPE,
    backlog::SHAPE,
    filters::SHAPE,
    churn::SHAPE,
    idle::SHAPE,
    sink::SHAPE,
];

/// Measures the tester itself first.
pub(crate) const CEILING: Choice = Choice::switch(
    "",
    "ceiling",
    "measure the tester itself first, against a sink, and tell its ceiling beside results that come within 20 % of it",
);

/// The run that `plan` makes of the options, and before it the measurement of the tester where that is asked for.
pub(crate) fn with_ceiling(
    options: &Options,
    plan: fn(&Options) -> Result<Plan, OptionError>,
) -> Result<Vec<Job>, OptionError> {
    let mut jobs = Vec::new();
    if options.has("ceiling") {
        jobs.push(Job::Ceiling(Box::new(plan(options)?), Box::new(plan(options)?)));
    }
    jobs.push(plan(options)?.into());
    Ok(jobs)
}

const URI: Choice = Choice::value(
    "h",
    "uri",
    "URI",
    "amqp://user:password@host:port/vhost; default amqp://localhost as guest. A vhost '/' is written %2f",
);
const URIS: Choice =
    Choice::value("H", "uris", "URI,URI", "several brokers; connections go to them in turn");

/// Where the broker is.
pub(crate) const CONNECTION: Group = Group {
    title: "Connection",
    choices: &[
        URI,
        URIS,
        Choice::value("M", "framemax", "BYTES", "largest frame; default what the broker offers"),
        Choice::value("b", "heartbeat", "SECONDS", "heartbeat interval; default 60, 0 for none"),
        Choice::value("tnd", "tcp-no-delay", "true|false", "TCP_NODELAY; default true"),
        Choice::value("tsbs", "tcp-send-buffer-size", "BYTES", "SO_SNDBUF; default the system's"),
        Choice::value(
            "trbs",
            "tcp-receive-buffer-size",
            "BYTES",
            "SO_RCVBUF; default the system's",
        ),
        Choice::value(
            "sst",
            "servers-startup-timeout",
            "SECONDS",
            "wait so long for brokers that do not listen yet; default not at all",
        ),
        Choice::value(
            "sul",
            "servers-up-limit",
            "N",
            "with the wait, begin once so many of the brokers listen; default all",
        ),
    ],
};

/// Where the broker is, for shapes whose connections only call and wait.
pub(crate) const PLACE: Group = Group { title: "Connection", choices: &[URI, URIS] };

const WARM_UP: Choice = Choice::value(
    "",
    "warm-up",
    "SECONDS",
    "so long before that there is load and nothing counts; default none",
);
const INTERVAL: Choice =
    Choice::value("i", "interval", "SECONDS", "time between two lines; default 1");
const ID: Choice = Choice::value("d", "id", "TEXT", "name of the run, at the start of each line");
const OUTPUT_FILE: Choice = Choice::value("o", "output-file", "FILE", "write the lines as CSV");
const CONFIRM_TIMEOUT: Choice =
    Choice::value("ct", "confirm-timeout", "SECONDS", "longest wait for a confirm; default 30");

/// When to stop and what to tell.
pub(crate) const OUTPUT: Group = Group {
    title: "Length and output",
    choices: &[
        Choice::value("z", "time", "SECONDS", "stop after this time; default: run until Ctrl-C"),
        WARM_UP,
        INTERVAL,
        ID,
        Choice::switch(
            "",
            "check",
            "number the messages in their bodies and check that each arrives once, in order and intact; \
             the run then waits for what is under way, and ends with exit code 1 if anything is wrong",
        ),
        Choice::value(
            "",
            "output",
            "text|jsonl|csv",
            "what standard output carries: lines for people (default), or the same figures as JSON Lines or CSV for programs",
        ),
        Choice::value("", "json", "FILE", "write the summary and all intervals as JSON"),
        OUTPUT_FILE,
        Choice::value(
            "st",
            "shutdown-timeout",
            "SECONDS",
            "at the end, the longest wait for the broker to close, and with --check for the next message; default 5",
        ),
        Choice::value(
            "",
            "drain",
            "SECONDS",
            "at the end, the longest wait for messages under way; what has not come by then counts with its age; \
             0: neither, for several testers that take each other's messages; default 5",
        ),
    ],
};

/// The name of the run.
pub(crate) fn id(options: &Options) -> String {
    options.text("id").map_or_else(crate::clock::run_name, str::to_owned)
}

/// The brokers.
pub(crate) fn uris(options: &Options) -> Result<Vec<Uri>, OptionError> {
    let mut texts = options.list("uris");
    if texts.is_empty() {
        texts.push(options.text("uri").unwrap_or("amqp://localhost"));
    }
    let read = |text: &&str| Uri::parse(text).map_err(OptionError);
    texts.iter().map(read).collect()
}

/// Limits and outputs of the run.
pub(crate) fn run_options(options: &Options) -> Result<RunOptions, OptionError> {
    let interval = match seconds(options, "interval")? {
        Some(interval) if interval < Duration::from_millis(10) => {
            return wrong("--interval needs at least 0.01 seconds");
        }
        interval => interval.unwrap_or(Duration::from_secs(1)),
    };
    Ok(RunOptions {
        time_max: seconds(options, "time")?.filter(|time| !time.is_zero()),
        interval,
        idle_max: match options.text("exit-when") {
            None => None,
            Some("idle" | "empty") => Some(Duration::from_secs(1)),
            Some(other) => return wrong(format!("--exit-when needs idle or empty, not '{other}'")),
        },
        confirm_timeout: seconds(options, "confirm-timeout")?.unwrap_or(Duration::from_secs(30)),
        shutdown_timeout: seconds(options, "shutdown-timeout")?.unwrap_or(Duration::from_secs(5)),
        warm_up: seconds(options, "warm-up")?.unwrap_or_default(),
        drain: seconds(options, "drain")?.unwrap_or(Duration::from_secs(5)),
        format: match options.text("output") {
            None => Format::Text,
            Some(text) => match Format::parse(text) {
                Some(format) => format,
                None => return wrong(format!("--output knows text, jsonl and csv, not '{text}'")),
            },
        },
        socket: SocketOptions {
            no_delay: options.truth("tcp-no-delay", true)?,
            send_bytes: options.number("tcp-send-buffer-size")?.filter(|bytes| *bytes > 0),
            receive_bytes: options.number("tcp-receive-buffer-size")?.filter(|bytes| *bytes > 0),
        },
        startup_timeout: seconds(options, "servers-startup-timeout")?,
        servers_min: options.number("servers-up-limit")?.unwrap_or(usize::MAX),
        csv: options.text("output-file").map(Into::into),
        json: options.text("json").map(Into::into),
    })
}

/// A run of `shape` over these links as the options ask for it: nothing is checked, and latencies are told by nobody yet.
pub(crate) fn plan_of(
    options: &Options,
    shape: &'static str,
    id: String,
    links: Vec<LinkPlan>,
    layout: Layout,
) -> Result<Plan, OptionError> {
    let (frame_bytes_max, heartbeat_seconds) = tuning(options)?;
    Ok(Plan {
        id,
        shape,
        phase: String::new(),
        quiet: false,
        uris: uris(options)?,
        frame_bytes_max,
        heartbeat_seconds,
        links,
        layout,
        time_in_header: false,
        check: None,
        expected: Vec::new(),
        copies: None,
        pid: None,
        ceiling: None,
        run: run_options(options)?,
        shown: Shown::default(),
    })
}

/// A connection that makes what the others use.
pub(crate) fn setup(id: &str, script: Vec<Step>) -> LinkPlan {
    LinkPlan {
        stage: Stage::Setup,
        delay: Duration::ZERO,
        name: format!("{id} setup"),
        script,
        roles: Vec::new(),
    }
}

/// A connection of a producer, which publishes on its first channel.
pub(crate) fn producer(id: &str, producer: ProducerSpec) -> LinkPlan {
    let mut script = vec![Step::open(1)];
    if producer.confirms.is_some() {
        script.push(select_confirms(1));
    }
    LinkPlan {
        stage: Stage::Produce,
        delay: Duration::ZERO,
        name: format!("{id} producer {}", producer.number),
        script,
        roles: vec![RoleSpec::Producer(ProducerSpec { channel: 1, ..producer })],
    }
}

/// The size of the confirm window, `default` where nobody says; `None` without confirms.
pub(crate) fn confirms(
    options: &Options,
    default: Option<u64>,
) -> Result<Option<u64>, OptionError> {
    match options.number::<i64>("confirm")? {
        None => Ok(default),
        Some(-1) => Ok(None),
        Some(window) if window > 0 => Ok(Some(window.unsigned_abs())),
        Some(_) => wrong("--confirm needs at least 1 outstanding message"),
    }
}

/// When each producer publishes; as fast as it can where no rate is given.
pub(crate) fn schedule(options: &Options) -> Result<Option<Schedule>, OptionError> {
    let rate = options.rate("rate")?.filter(|rate| *rate > 0.0);
    Ok(rate.map(Schedule::constant))
}

/// After how many messages a producer stops, if at all.
pub(crate) fn sent_max(options: &Options) -> Result<Option<u64>, OptionError> {
    Ok(options.number("pmessages")?.filter(|max| *max > 0))
}

/// Whether queues are durable and messages persistent.
pub(crate) fn persistent(options: &Options) -> Result<bool, OptionError> {
    match options.list("flag").as_slice() {
        [] => Ok(false),
        ["persistent"] => Ok(true),
        _ => wrong("--flag knows only persistent here"),
    }
}

/// A time in seconds, decimals allowed; at most a year.
pub(crate) fn seconds(options: &Options, long: &str) -> Result<Option<Duration>, OptionError> {
    match options.rate(long)? {
        Some(seconds) if seconds > 31_536_000.0 => wrong(format!("--{long} is longer than a year")),
        seconds => Ok(seconds.map(Duration::from_secs_f64)),
    }
}

/// A count with bounds.
pub(crate) fn count(
    options: &Options,
    long: &str,
    default: u64,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<u64, OptionError> {
    let count = options.number(long)?.unwrap_or(default);
    if bounds.contains(&count) {
        Ok(count)
    } else {
        wrong(format!("--{long} needs a number from {} to {}", bounds.start(), bounds.end()))
    }
}

/// Largest body in bytes; brokers take 128 or 512 MiB at most.
pub(crate) const BODY_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The size of bodies; with the check it has a minimum and another default.
pub(crate) fn body_bytes(options: &Options, default: usize) -> Result<usize, OptionError> {
    if options.has("check") {
        return body_bytes_checked(options, default.max(16));
    }
    Ok(count(options, "size", default as u64, 0..=BODY_BYTES_MAX)? as usize)
}

/// The size of bodies that are checked.
pub(crate) fn body_bytes_checked(options: &Options, default: usize) -> Result<usize, OptionError> {
    let size = count(options, "size", default as u64, 0..=BODY_BYTES_MAX)? as usize;
    if size < crate::body::CHECKED_BODY_BYTES_MIN {
        return wrong("checked bodies need at least 8 bytes for their numbers");
    }
    Ok(size)
}

/// Largest frame wanted, and the heartbeat interval in seconds.
pub(crate) fn tuning(options: &Options) -> Result<(u32, u16), OptionError> {
    let frame_bytes_max: u32 = options.number("framemax")?.unwrap_or(0);
    if frame_bytes_max != 0 && frame_bytes_max < lepus_amqp::frame::FRAME_MAX_MIN {
        return wrong("--framemax needs at least 4096 bytes");
    }
    Ok((frame_bytes_max, options.number("heartbeat")?.unwrap_or(60)))
}
