//! Carries a plan out: one thread, one poll, all connections.

use crate::alarm::Alarm;
use crate::clock::{Clock, cpu_seconds};
use crate::link::{Link, LinkState, READ_BYTES_MAX, Role};
use crate::plan::{LinkPlan, Plan, Stage};
use crate::report::{Summary, csv_head, csv_row, interval_line};
use crate::scene::Scene;
use crate::statistics::{Interval, Statistics};
use crate::uri::Uri;
use lepus_amqp::Table;
use lepus_amqp::client::ClientOptions;
use lepus_base::Instant;
use mio::{Events, Interest, Poll, Token};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ALARM: Token = Token(usize::MAX);
/// Connections that may be on their way to being ready at the same time.
const OPENING_MAX: usize = 64;
/// The run fails when setting up makes no progress for this long.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// How often limits, heartbeats and the end of the run are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A moment nearer than this is waited for with the alarm, a later one with the poll's timeout.
const ALARM_WITHIN: Duration = Duration::from_millis(20);

const IDLE: &str = "Consumers idle";

/// Whether the run did what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Good,
    /// The order check found faults.
    Faulty,
}

/// Where the run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Connections of this stage are being made.
    Setting(Stage),
    Running,
    /// Load has ended; messages under way are awaited.
    Draining,
    /// Connections are being closed.
    Closing,
}

/// A run under way.
pub(crate) struct Engine {
    plan: Plan,
    scene: Scene,
    poll: Poll,
    events: Events,
    alarm: Alarm,
    links: Vec<Link>,
    /// Connections of the stage that are not made yet, with the moment to make them.
    waiting: VecDeque<(Instant, LinkPlan)>,
    later: Vec<LinkPlan>,
    /// Connections to be served in this round.
    queue: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    scratch: Vec<u8>,
    phase: Phase,
    progress_at: Instant,
    /// Connections that have been ready once.
    ready: usize,
    /// Some producer or consumer has a message limit.
    limited: bool,
    /// Connections with roles below their limits.
    unfinished: usize,
    /// Counting has begun: all are ready, or the first message came.
    begun: Option<Instant>,
    cpu_begun: f64,
    next_report: Instant,
    next_tick: Instant,
    interrupted: Arc<AtomicBool>,
    intervals: Vec<Interval>,
    csv: Option<BufWriter<File>>,
    stopped: String,
    /// When the last message was seen to have come; the end of the run for its rates.
    received_at: Instant,
    received: u64,
}

/// Carries `plan` out and prints its lines.
///
/// # Errors
/// A text for the user: the run could not begin, or a connection broke. What was measured until then is printed.
pub(crate) fn run(plan: Plan) -> Result<Outcome, String> {
    let mut engine = Engine::new(plan)?;
    match engine.set_up() {
        Ok(true) => {}
        Ok(false) => return Err("interrupted while connecting".to_owned()),
        Err(error) => return Err(error),
    }
    let result = engine.carry();
    let ended = engine.received_at;
    let printed = engine.finish(ended);
    engine.close();
    result?;
    printed
}

impl Engine {
    fn new(mut plan: Plan) -> Result<Engine, String> {
        let io = |error: io::Error| format!("cannot set up polling: {error}");
        let poll = Poll::new().map_err(io)?;
        let alarm = Alarm::new(poll.registry(), ALARM).map_err(io)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // A second signal ends the process the hard way.
            let armed = Arc::clone(&interrupted);
            signal_hook::flag::register_conditional_shutdown(signal, 130, armed).map_err(io)?;
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(io)?;
        }
        let csv = match &plan.run.csv {
            None => None,
            Some(path) => {
                let file = File::create(path)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
                let mut file = BufWriter::new(file);
                let _ = writeln!(file, "{}", csv_head(plan.shown));
                Some(file)
            }
        };
        let clock = Clock::new(plan.shown.millis);
        let now = clock.now();
        let scene = Scene {
            clock,
            statistics: Statistics::new(now),
            check: plan.check.take(),
            layout: plan.layout,
            time_in_header: plan.time_in_header,
            producing: false,
        };
        let limited = plan.links.iter().any(LinkPlan::is_limited);
        Ok(Engine {
            later: std::mem::take(&mut plan.links),
            scene,
            poll,
            events: Events::with_capacity(1024),
            alarm,
            links: Vec::new(),
            waiting: VecDeque::new(),
            queue: VecDeque::new(),
            timers: BinaryHeap::new(),
            scratch: vec![0; 2 * READ_BYTES_MAX],
            phase: Phase::Setting(Stage::Setup),
            progress_at: now,
            ready: 0,
            limited,
            unfinished: 0,
            begun: None,
            cpu_begun: 0.0,
            next_report: Instant::NEVER,
            next_tick: now,
            interrupted,
            intervals: Vec::new(),
            csv,
            stopped: String::new(),
            received_at: now,
            received: 0,
            plan,
        })
    }

    /// Makes all connections, stage by stage; false when interrupted.
    fn set_up(&mut self) -> Result<bool, String> {
        for stage in [Stage::Setup, Stage::Consume, Stage::Produce] {
            let now = self.scene.clock.now();
            self.phase = Phase::Setting(stage);
            self.progress_at = now;
            let (these, later) =
                std::mem::take(&mut self.later).into_iter().partition(|link| link.stage == stage);
            self.later = later;
            let these: Vec<LinkPlan> = these;
            self.waiting = these.into_iter().map(|link| (now + link.delay, link)).collect();
            self.ready = self.links.len();
            while !self.waiting.is_empty() || self.ready < self.links.len() {
                self.connect()?;
                self.turn()?;
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                let stale = self.scene.clock.now().since(self.progress_at) > SETUP_TIMEOUT;
                if stale && self.waiting.front().is_none_or(|(at, _)| *at <= self.progress_at) {
                    let late = self.links.iter().find(|link| is_opening(link));
                    return Err(late.map_or_else(String::new, Link::awaited));
                }
            }
        }
        Ok(true)
    }

    /// Makes connections that are due, as many as may open at once.
    fn connect(&mut self) -> Result<(), String> {
        let now = self.scene.clock.now();
        while self.links.len() - self.ready < OPENING_MAX
            && self.waiting.front().is_some_and(|(at, _)| *at <= now)
        {
            let Some((_, plan)) = self.waiting.pop_front() else {
                return Ok(());
            };
            let at = self.links.len();
            let uri = &self.plan.uris[at % self.plan.uris.len()];
            let fail =
                |error: io::Error| format!("cannot connect to {}:{}: {error}", uri.host, uri.port);
            let stream = connect(uri).map_err(fail)?;
            stream.set_nodelay(true).map_err(fail)?;
            stream.set_nonblocking(true).map_err(fail)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(at), interest).map_err(fail)?;
            let options = self.client_options(uri, &plan.name);
            self.links.push(Link::new(plan, stream, options, now));
            self.enqueue(at);
        }
        Ok(())
    }

    fn client_options(&self, uri: &Uri, name: &str) -> ClientOptions {
        let defaults = ClientOptions::default();
        let capabilities = defaults.properties.get("capabilities").cloned();
        let mut properties = Table::new()
            .with("product", "lepus perf")
            .with("version", env!("CARGO_PKG_VERSION"))
            .with("platform", "Rust")
            .with("connection_name", name);
        if let Some(capabilities) = capabilities {
            properties.insert("capabilities", capabilities);
        }
        ClientOptions {
            user: uri.user.clone(),
            password: uri.password.clone(),
            vhost: uri.vhost.clone(),
            frame_max: self.plan.frame_bytes_max,
            heartbeat: self.plan.heartbeat_seconds,
            properties,
            ..defaults
        }
    }

    fn enqueue(&mut self, at: usize) {
        if !self.links[at].queued {
            self.links[at].queued = true;
            self.queue.push_back(at);
        }
    }

    /// One round: serves who has something to do, then waits for more.
    fn turn(&mut self) -> Result<(), String> {
        for _ in 0..self.queue.len() {
            if let Some(at) = self.queue.pop_front() {
                self.links[at].queued = false;
                self.serve(at)?;
            }
        }
        let now = self.scene.clock.now();
        while let Some(Reverse((moment, at))) = self.timers.peek().copied()
            && moment <= now
        {
            self.timers.pop();
            self.enqueue(at);
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick(now)?;
        }
        self.wait(now)
    }

    fn serve(&mut self, at: usize) -> Result<(), String> {
        let link = &mut self.links[at];
        let before = link.state();
        let wish = match link.serve(&mut self.scratch, &mut self.scene) {
            Ok(wish) => wish,
            Err(_) if self.phase == Phase::Closing => {
                link.abandon();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let after = link.state();
        if let Some(moment) = wish.at {
            self.timers.push(Reverse((moment, at)));
        }
        if wish.again {
            self.enqueue(at);
        }
        if let Phase::Setting(stage) = self.phase {
            let now = self.scene.clock.now();
            self.progress_at = now;
            if before != LinkState::Ready && after == LinkState::Ready {
                self.ready += 1;
                if stage == Stage::Setup {
                    self.links[at].close();
                    self.enqueue(at);
                }
            }
            if self.begun.is_none() && self.scene.statistics.now.received > 0 {
                self.begin_counting(now);
            }
        } else if self.limited && self.phase == Phase::Running && self.links[at].finishes() {
            self.unfinished -= 1;
        }
        Ok(())
    }

    /// Waits for sockets and timers; not at all while connections wait to be served.
    fn wait(&mut self, now: Instant) -> Result<(), String> {
        let mut moment = self.next_tick;
        if matches!(self.phase, Phase::Running | Phase::Draining) {
            moment = moment.min(self.next_report);
        }
        if let Some(Reverse((timer, _))) = self.timers.peek() {
            moment = moment.min(*timer);
        }
        if let Some((connect, _)) = self.waiting.front() {
            moment = moment.min((*connect).max(now + Duration::from_millis(1)));
        }
        let left = moment.since(now);
        let set_up = matches!(self.phase, Phase::Setting(_))
            && self.waiting.is_empty()
            && self.ready == self.links.len();
        let timeout = if !self.queue.is_empty() || left.is_zero() || set_up {
            Duration::ZERO
        } else if left < ALARM_WITHIN && self.alarm.set(moment) {
            TICK
        } else {
            left
        };
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot poll: {error}")),
        }
        for event in &self.events {
            let Token(at) = event.token();
            let Some(link) = self.links.get_mut(at) else {
                continue;
            };
            link.hung_up |= event.is_read_closed() || event.is_error();
            link.readable |= event.is_readable() || link.hung_up;
            link.writable |= event.is_writable();
            if !link.queued {
                link.queued = true;
                self.queue.push_back(at);
            }
        }
        Ok(())
    }

    fn tick(&mut self, now: Instant) -> Result<(), String> {
        for link in &mut self.links {
            match link.tick(now) {
                Err(_) if self.phase == Phase::Closing => link.abandon(),
                result => result?,
            }
        }
        let received = self.scene.statistics.total().received;
        if received != self.received {
            self.received = received;
            self.received_at = now;
        }
        let timeout = self.plan.run.confirm_timeout;
        let oldest =
            self.scene.clock.stamp(Instant(now.0.saturating_sub(timeout.as_nanos() as u64)));
        for link in &self.links {
            for role in link.roles() {
                if let Role::Producer(producer) = role
                    && producer.oldest_unconfirmed().is_some_and(|at| at < oldest)
                {
                    return Err(link.complain(format_args!(
                        "no confirm for {} messages within {} s (--confirm-timeout)",
                        producer.unconfirmed(),
                        timeout.as_secs()
                    )));
                }
            }
        }
        Ok(())
    }

    fn begin_counting(&mut self, now: Instant) {
        self.begun = Some(now);
        self.cpu_begun = cpu_seconds();
        self.scene.statistics.begin(now);
        self.next_report = now + self.plan.run.interval;
        self.received_at = now;
    }

    /// Runs the load and waits for what is under way.
    fn carry(&mut self) -> Result<(), String> {
        let now = self.scene.clock.now();
        if self.begun.is_none() {
            self.begin_counting(now);
        }
        self.phase = Phase::Running;
        self.scene.producing = true;
        self.received_at = now;
        self.unfinished = self.links.len();
        for at in 0..self.links.len() {
            if self.links[at].stage != Stage::Setup {
                self.links[at].begin(now, &mut self.scene);
            }
            self.enqueue(at);
        }
        loop {
            if let Err(error) = self.turn() {
                self.stopped = "Connection lost".to_owned();
                self.received_at = self.scene.clock.now();
                return Err(error);
            }
            let now = self.scene.clock.now();
            self.report(now);
            match self.phase {
                Phase::Draining => {
                    if self.is_drained(now) {
                        return Ok(());
                    }
                }
                Phase::Setting(_) | Phase::Running | Phase::Closing => {
                    if let Some(reason) = self.reason_to_stop(now) {
                        self.stopped = reason.to_owned();
                        self.scene.producing = false;
                        if reason != IDLE {
                            self.received_at = now;
                        }
                        if self.scene.check.is_none() {
                            return Ok(());
                        }
                        self.begin_draining();
                    }
                }
            }
        }
    }

    fn reason_to_stop(&self, now: Instant) -> Option<&'static str> {
        let run = &self.plan.run;
        let begun = self.begun.unwrap_or(now);
        if self.interrupted.load(Ordering::Relaxed) {
            return Some("Interrupted");
        }
        if run.time_max.is_some_and(|time| now.since(begun) >= time) {
            return Some("Reached time limit");
        }
        if self.limited && self.unfinished == 0 {
            return Some("Reached message limit");
        }
        if run.stop_when_idle && now.since(self.received_at) >= Duration::from_secs(1) {
            return Some(IDLE);
        }
        None
    }

    /// Tells the check what was sent, so that it knows what to wait for.
    fn begin_draining(&mut self) {
        self.phase = Phase::Draining;
        for at in 0..self.links.len() {
            self.links[at].end();
            self.enqueue(at);
        }
        let mut sent = std::collections::HashMap::new();
        for role in self.links.iter().flat_map(Link::roles) {
            match role {
                Role::Producer(producer) => sent.insert(producer.number(), producer.sent()),
                Role::Roundtrip(roundtrip) => sent.insert(roundtrip.number(), roundtrip.sent()),
                Role::Idle | Role::Consumer(_) => None,
            };
        }
        if let Some(check) = &mut self.scene.check {
            for (queue, producer) in &self.plan.expected {
                if let Some(sent) = sent.get(producer) {
                    check.expect(*queue, *producer, *sent);
                }
            }
        }
        self.received = self.scene.statistics.total().received;
    }

    fn is_drained(&mut self, now: Instant) -> bool {
        // Looking at all streams is not free: it waits for a pause, or for the tick.
        let received = self.scene.statistics.total().received;
        if received != self.received {
            self.received = received;
            self.received_at = now;
            if now < self.next_tick && !self.queue.is_empty() {
                return false;
            }
        }
        let Some(check) = &mut self.scene.check else {
            return true;
        };
        check.is_complete() || now.since(self.received_at) > self.plan.run.shutdown_timeout
    }

    fn report(&mut self, now: Instant) {
        if now < self.next_report {
            return;
        }
        let interval = self.scene.statistics.turn(now);
        // Reports keep to multiples of the interval, whatever one of them takes.
        while self.next_report <= now {
            self.next_report = self.next_report + self.plan.run.interval;
        }
        let line = interval_line(&self.plan.id, self.plan.shown, &interval);
        print(&line);
        if let Some(csv) = &mut self.csv {
            let row = csv_row(&self.plan.id, self.plan.shown, &interval);
            let _ = writeln!(csv, "{row}");
            let _ = csv.flush();
        }
        self.intervals.push(interval);
    }

    /// Prints and writes the summary of what was counted until `ended`.
    fn finish(&mut self, ended: Instant) -> Result<Outcome, String> {
        let cpu_seconds = cpu_seconds() - self.cpu_begun;
        let seconds = self.scene.statistics.seconds(ended);
        // The last, incomplete interval counts for the totals only.
        let last = self.scene.statistics.turn(ended);
        if self.intervals.is_empty() {
            self.intervals.push(last);
        }
        if let Some(check) = &mut self.scene.check {
            check.finish();
        }
        let check = self.scene.check.as_ref();
        let summary = Summary {
            id: &self.plan.id,
            shape: self.plan.shape,
            shown: self.plan.shown,
            seconds,
            counters: self.scene.statistics.total(),
            consumer_latency: self.scene.statistics.consumer_latency.total(),
            confirm_latency: self.scene.statistics.confirm_latency.total(),
            cpu_seconds,
            body_bytes: self.plan.layout.size,
            check,
            stopped: &self.stopped,
            intervals: &self.intervals,
        };
        print(summary.text().trim_end());
        if let Some(path) = &self.plan.run.json {
            std::fs::write(path, summary.json())
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        Ok(match check {
            Some(check) if !check.faults().is_none() => Outcome::Faulty,
            _ => Outcome::Good,
        })
    }

    /// Closes all connections; what goes wrong now no longer matters.
    fn close(&mut self) {
        self.scene.producing = false;
        self.timers.clear();
        self.phase = Phase::Closing;
        let until = self.scene.clock.now() + self.plan.run.shutdown_timeout;
        for at in 0..self.links.len() {
            self.links[at].close();
            self.enqueue(at);
        }
        let open = |link: &Link| link.state() != LinkState::Closed;
        while self.links.iter().any(open) && self.scene.clock.now() < until {
            if self.turn().is_err() {
                return;
            }
        }
    }
}

fn is_opening(link: &Link) -> bool {
    matches!(link.state(), LinkState::Opening | LinkState::Scripting)
}

/// Connects to the first address of the host that answers.
fn connect(uri: &Uri) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host name has no address");
    for address in (uri.host.as_str(), uri.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Prints a line; a reader that has gone is no reason to stop measuring.
fn print(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
