//! Carries a plan out: one thread, one poll, all connections.

mod ending;
mod load;
mod setup;

use crate::alarm::Alarm;
use crate::clock::{Clock, cpu_seconds};
use crate::link::{Link, LinkState, READ_BYTES_MAX, Role};
use crate::outstanding::Outstanding;
use crate::plan::{LinkPlan, Plan, Stage};
use crate::report::data::Format;
use crate::report::{Missing, csv_head};
use crate::scene::Scene;
use crate::statistics::{Counters, Interval, Statistics};
use lepus_base::Instant;
use lepus_probe::procfs::{self, Reading};
use mio::{Events, Poll, Token};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const ALARM: Token = Token(usize::MAX);
/// How often limits, heartbeats and the end of the run are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A moment nearer than this is waited for with the alarm, a later one with the poll's timeout.
const ALARM_WITHIN: Duration = Duration::from_millis(20);

/// Whether the run did what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Good,
    /// Somebody ended it before it would have ended by itself.
    Interrupted,
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
    /// What went wrong, for the summary.
    errors: Vec<String>,
    /// When the last message was seen to have come; the end of the run for its rates.
    received_at: Instant,
    received: u64,
    /// When the load ended, how long it was, and what was counted by then: what its rates are of.
    load: Option<(Instant, f64, Counters)>,
    /// What did not come, be sent or be confirmed.
    missing: Missing,
    /// Until then nothing counts.
    warm_until: Option<Instant>,
    /// The broker when counting began and when the load ended.
    broker_begun: Option<Reading>,
    broker_ended: Option<Reading>,
}

/// What a run came to, for shapes that tell more than its summary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// What was counted while there was load.
    pub in_load: Counters,
    /// Everything, what came after the load included.
    pub total: Counters,
    /// Seconds of that.
    pub seconds: f64,
    /// Deliveries that never came; `None` where it is not known how many there should be.
    pub outstanding: Option<u64>,
    /// Deliveries that should not have come.
    pub strays: u64,
    /// The broker when counting began and when the load ended.
    pub readings: Option<(Reading, Reading)>,
}

/// Carries `plan` out and prints its lines.
///
/// # Errors
/// A text for the user: the run could not begin, or a connection broke. What was measured until then is printed.
pub(crate) fn run(plan: Plan) -> Result<Outcome, String> {
    run_counted(plan).map(|(outcome, _)| outcome)
}

/// Carries `plan` out and prints its lines; how it went and what it came to.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_counted(plan: Plan) -> Result<(Outcome, Tally), String> {
    let mut engine = Engine::new(plan)?;
    let set_up = match engine.set_up() {
        Ok(true) => Ok(()),
        Ok(false) => Err("interrupted while connecting".to_owned()),
        Err(error) => Err(error),
    };
    if let Err(error) = &set_up
        && engine.plan.run.format == Format::Text
    {
        return Err(error.clone());
    }
    let result = set_up.and_then(|()| engine.carry());
    if let Err(error) = &result {
        engine.errors.push(error.clone());
    }
    let ended = engine.received_at;
    let printed = engine.finish(ended);
    let tally = engine.tally();
    engine.close();
    result?;
    Ok((printed?, tally))
}

/// Carries `plan` out without a word; messages sent and received a second.
///
/// # Errors
/// A text for the user.
pub(crate) fn measure(plan: Plan) -> Result<(f64, f64), String> {
    let mut engine = Engine::new(plan)?;
    if !engine.set_up()? {
        return Err("interrupted".to_owned());
    }
    engine.carry()?;
    let seconds = engine.scene.statistics.seconds(engine.scene.clock.now()).max(1e-9);
    let total = engine.scene.statistics.total();
    engine.close();
    if engine.interrupted.load(std::sync::atomic::Ordering::Relaxed) {
        return Err("interrupted".to_owned());
    }
    Ok((total.sent as f64 / seconds, total.received as f64 / seconds))
}

/// A flag that SIGINT and SIGTERM set; a second one ends the process the hard way.
///
/// # Errors
/// A text for the user.
pub(crate) fn interruptible() -> Result<Arc<AtomicBool>, String> {
    let fail = |error: io::Error| format!("cannot watch for signals: {error}");
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let armed = Arc::clone(&interrupted);
        signal_hook::flag::register_conditional_shutdown(signal, 130, armed).map_err(fail)?;
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(fail)?;
    }
    Ok(interrupted)
}

impl Engine {
    fn new(mut plan: Plan) -> Result<Engine, String> {
        let io = |error: io::Error| format!("cannot set up polling: {error}");
        let poll = Poll::new().map_err(io)?;
        let alarm = Alarm::new(poll.registry(), ALARM).map_err(io)?;
        let interrupted = interruptible()?;
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
            outstanding: Outstanding::new(plan.copies.take(), plan.shown.millis),
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
            stopped: "Not begun".to_owned(),
            errors: Vec::new(),
            received_at: now,
            received: 0,
            load: None,
            missing: Missing::default(),
            warm_until: None,
            broker_begun: None,
            broker_ended: None,
            plan,
        })
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
                    self.links[at].close(self.scene.clock.now());
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
        self.broker_begun = self.read_broker();
        self.cpu_begun = cpu_seconds();
        self.scene.statistics.begin(now);
        self.next_report = now + self.plan.run.interval;
        self.received_at = now;
    }

    /// What the system says about the broker's process, where the plan names it and it runs.
    fn read_broker(&self) -> Option<Reading> {
        procfs::read(self.plan.pid?).ok()
    }

    fn tally(&self) -> Tally {
        let (seconds, in_load) = match self.load {
            Some((_, seconds, counters)) => (seconds, counters),
            None => {
                let statistics = &self.scene.statistics;
                (statistics.seconds(self.received_at), statistics.total())
            }
        };
        Tally {
            in_load,
            total: self.scene.statistics.total(),
            seconds,
            outstanding: self.missing.outstanding,
            strays: self.scene.outstanding.strays(),
            readings: self.broker_begun.zip(self.broker_ended),
        }
    }
}
