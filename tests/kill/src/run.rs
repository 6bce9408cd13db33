//! All rounds against one broker.

use crate::broker::{Broker, PATIENCE, Recipe};
use crate::court::{Court, Declared};
use crate::declarer;
use crate::disk::{Failure, Span};
use crate::forger::Forger;
use crate::link;
use crate::oracle::{Fault, GRACE, Oracle};
use crate::script::{End, Round};
use crate::topology::{self, PUBLISHERS, QUEUES, Trade};
use crate::{consumer, publisher};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Rounds between two lines about the progress.
const LINE_EVERY: u64 = 10;
const PAUSE: Duration = Duration::from_millis(20);
/// How long a disk fails that fails for one call, or for ever.
const MOMENT: Duration = Duration::from_millis(100);
const EVER: Duration = Duration::from_secs(4);
/// How long a stop may take while the disk fails, before it is ended by a kill.
const STOP_PATIENCE: Duration = Duration::from_secs(12);
/// The exit code of a broker that can keep nothing any more.
const GAVE_UP: i32 = 1;
/// What a broker tells that has stopped in order, though not all was on the disk in time.
const NOT_CLOSED: &str = "event=not-closed";

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds.
    pub rounds: u64,
    /// Decides what happens in them, though not when exactly.
    pub seed: u64,
    /// The broker.
    pub recipe: Recipe,
    /// Its data, which is copied to `before` in front of each start when `copies` is set.
    pub data: PathBuf,
    /// Keep a copy of the data as the last kill left it.
    pub copies: bool,
    /// Go on after a fault.
    pub keep_going: bool,
    /// How long nothing may come while the queues are emptied.
    pub patience: Duration,
    /// The load of every round, instead of a random one.
    pub load: Option<Duration>,
    /// Without the publisher whose messages expire on their way.
    pub no_expiring: bool,
    /// Of so many rounds the disk fails in one; 0 for none.
    pub failing: u64,
    /// No lines but those about faults.
    pub quiet: bool,
}

/// What a run found.
pub struct Outcome {
    /// The oracle at the end.
    pub oracle: Oracle,
    /// Rounds that were run.
    pub rounds: u64,
    /// Kills under load, further kills while starting, orderly stops, and brokers that ended by
    /// themselves with a failing disk.
    pub ends: [u64; 4],
    /// Milliseconds from each start until a client was logged in, sorted.
    pub starts: Vec<f64>,
}

struct Run<'a> {
    plan: &'a Plan,
    court: Arc<Court>,
    broker: Broker,
    /// Starts after the first.
    turn: usize,
    ends: [u64; 4],
    starts: Vec<f64>,
    examples_shown: usize,
}

/// Runs the rounds; ends early at a fault unless told otherwise.
///
/// # Errors
/// When the broker cannot be started, or does not answer right after a start.
pub fn run(plan: &Plan, forger: Forger) -> io::Result<Outcome> {
    let is_watched = Round::new(plan.seed, 1, plan.rounds, plan.failing).failure.is_some();
    let mut broker = Broker::start(&plan.recipe, 0, is_watched)?;
    topology::declare(&mut broker.wait_until_it_serves()?)?;
    let court = Arc::new(Court::new(forger));
    let mut run =
        Run { plan, court, broker, turn: 0, ends: [0; 4], starts: Vec::new(), examples_shown: 0 };
    let mut done = 0;
    for number in 1..=plan.rounds {
        let round = |number| Round::new(plan.seed, number, plan.rounds, plan.failing);
        run.carry(&round(number))?;
        run.restart(&round(number), round(number + 1).failure.is_some())?;
        done = number;
        let faults = run.show(number, &round(number));
        if faults > 0 && !plan.keep_going {
            break;
        }
    }
    run.broker.kill()?;
    let Run { court, ends, mut starts, .. } = run;
    starts.sort_by(f64::total_cmp);
    let oracle = std::mem::replace(&mut court.open().oracle, Oracle::new());
    Ok(Outcome { oracle, rounds: done, ends, starts })
}

impl Run<'_> {
    fn carry(&mut self, round: &Round) -> io::Result<()> {
        let port = self.plan.recipe.port;
        self.court.set_ending(false);
        self.court.set_finishing(false);
        let mut threads = Vec::new();
        for (publisher, manner) in round.publishers.iter().copied() {
            if self.plan.no_expiring && PUBLISHERS[publisher] == Trade::Expiring {
                continue;
            }
            let name = format!("publisher {publisher}");
            threads.push(
                self.spawn(name, move |court| publisher::run(publisher, manner, port, court)),
            );
        }
        for (at, manners) in round.consumers.iter().cloned().enumerate() {
            let name = format!("consumer {at}");
            threads.push(self.spawn(name, move |court| consumer::run(&manners, port, court)));
        }
        let mut may_end = false;
        if round.end != End::Empty {
            sleep(self.plan.load.unwrap_or(round.load));
        }
        if let Some(failure) = &round.failure {
            may_end = failure.may_end_it();
            let first = self.court.open().declared.len();
            threads.push(
                self.spawn("declarer".to_owned(), move |court| declarer::run(first, port, court)),
            );
            self.fail(failure, round)?;
        }
        if round.end == End::Empty {
            self.empty()?;
        }
        let (is_clean, at) = self.end(round, may_end)?;
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a thread of the load failed"))?;
        }
        self.court.open().oracle.end_round(at, is_clean);
        Ok(())
    }

    /// Lets the disk fail under load, for its time, and looks whether the broker goes on behind it.
    fn fail(&mut self, failure: &Failure, round: &Round) -> io::Result<()> {
        let may_end = failure.may_end_it();
        {
            let mut court = self.court.open();
            court.oracle.begin_failing(Instant::now());
            if may_end {
                court.oracle.begin_stop();
            }
        }
        if may_end {
            self.court.set_ending(true);
        }
        self.broker.fail(failure)?;
        let (time, is_over) = match failure.span {
            Span::Once => (MOMENT, true),
            Span::For(time) => (time, true),
            Span::Forever => (EVER, false),
        };
        if self.broker.wait(time)?.is_some() || !is_over {
            return Ok(());
        }
        self.court.open().oracle.end_failing(Instant::now());
        if !may_end && !round.publishers.is_empty() {
            self.expect_confirms()?;
        }
        sleep(round.after);
        Ok(())
    }

    /// The disk is well again: publishers get their confirms.
    fn expect_confirms(&self) -> io::Result<()> {
        let confirmed = || self.court.open().oracle.tally.confirmed;
        let (before, start) = (confirmed(), Instant::now());
        while confirmed() == before {
            if start.elapsed() > self.plan.patience {
                let about = || "nothing is confirmed since the disk is well again".to_owned();
                self.court.open().oracle.faults.note(Fault::Fell, about);
                break;
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends the broker as the round says, unless it has ended by itself, as it `may`. Whether it ended
    /// in order, and when at the earliest.
    fn end(&mut self, round: &Round, may: bool) -> io::Result<(bool, Instant)> {
        self.court.set_ending(true);
        let at = Instant::now();
        let note = |about: String| self.court.open().oracle.faults.note(Fault::Fell, || about);
        if let Some(status) = self.broker.ended()? {
            if !may || status.code() != Some(GAVE_UP) {
                note(format!("the broker ended by itself, {status}, with {:?}", round.failure));
            }
            self.ends[3] += 1;
            return Ok((false, at));
        }
        if round.end != End::Stop {
            self.broker.kill()?;
            self.ends[0] += 1;
            return Ok((false, at));
        }
        self.court.open().oracle.begin_stop();
        let patience = if round.failure.is_some() { STOP_PATIENCE } else { PATIENCE };
        let unclosed = || self.plan.recipe.count_in_log(NOT_CLOSED);
        let before = unclosed()?;
        let ended = self.broker.stop(patience)?;
        self.ends[2] += 1;
        match ended {
            Some(status) if status.success() && unclosed()? == before => return Ok((true, at)),
            // Not all was on the disk in time, and that was told: it is as after a kill.
            Some(status) if status.success() && round.failure.is_some() => return Ok((false, at)),
            Some(status) if may && status.code() == Some(GAVE_UP) => {}
            None if round.failure.as_ref().is_some_and(|found| found.span == Span::Forever) => {}
            other => note(format!("the stop ended with {other:?}, with {:?}", round.failure)),
        }
        self.broker.kill()?;
        Ok((false, at))
    }

    fn spawn(
        &self,
        name: String,
        load: impl FnOnce(&Court) -> io::Result<()> + Send + 'static,
    ) -> JoinHandle<()> {
        let court = Arc::clone(&self.court);
        thread::spawn(move || {
            if let Err(error) = load(&court)
                && !court.is_ending()
            {
                let faults = &mut court.open().oracle.faults;
                faults.note(Fault::Missing, || format!("{name}: {error}"));
            }
        })
    }

    /// Waits until the consumers have emptied all queues, or nothing comes any more.
    fn empty(&mut self) -> io::Result<()> {
        let mut link = link::open(self.plan.recipe.port, 1)?;
        let (mut delivered, mut moved_at) = (0, Instant::now());
        while moved_at.elapsed() < self.plan.patience {
            let mut ready = 0;
            for queue in 0..QUEUES {
                ready += topology::count(&mut link, queue)?;
            }
            let court = self.court.open();
            if ready == 0 && court.oracle.outstanding() == 0 {
                break;
            }
            if court.oracle.tally.delivered != delivered {
                delivered = court.oracle.tally.delivered;
                moved_at = Instant::now();
            }
            drop(court);
            sleep(PAUSE);
        }
        self.court.set_finishing(true);
        // What is acknowledged by now must be gone for good when the kill comes.
        sleep(GRACE + GRACE / 5);
        for queue in 0..QUEUES {
            let count = topology::count(&mut link, queue)?;
            if count > 0 {
                let about = || format!("{}: {count} left", topology::name(queue));
                self.court.open().oracle.faults.note(Fault::Miscounted, about);
            }
        }
        self.court.open().oracle.empty();
        Ok(())
    }

    fn start(&mut self, is_watched: bool) -> io::Result<()> {
        self.turn += 1;
        self.broker = Broker::start(&self.plan.recipe, self.turn, is_watched)?;
        Ok(())
    }

    /// A start that is ended by a kill, perhaps with a failing disk.
    fn start_in_vain(&mut self, round: &Round, time: Duration) -> io::Result<()> {
        self.start(round.start_failure.is_some())?;
        if let Some((failure, from)) = &round.start_failure {
            sleep(*from);
            if self.broker.ended()?.is_none() {
                self.broker.fail(failure)?;
            }
        }
        match self.broker.wait(time)? {
            None => {
                self.broker.kill()?;
                self.ends[1] += 1;
            }
            Some(status) => {
                self.ends[3] += 1;
                if round.start_failure.is_none() || status.code() != Some(GAVE_UP) {
                    let with = &round.start_failure;
                    let about = || format!("the broker's start ended, {status}, with {with:?}");
                    self.court.open().oracle.faults.note(Fault::Fell, about);
                }
            }
        }
        Ok(())
    }

    /// Starts the broker again, perhaps with another kill on the way, and looks what is there.
    fn restart(&mut self, round: &Round, is_watched: bool) -> io::Result<()> {
        if self.plan.copies {
            let before = self.plan.data.with_extension("before");
            let (data, before) = (self.plan.data.as_os_str(), before.as_os_str());
            Command::new("rm").arg("-rf").arg(before).status()?;
            Command::new("cp").arg("-a").arg(data).arg(before).status()?;
        }
        if let Some(time) = round.second_kill {
            self.start_in_vain(round, time)?;
        }
        let start = Instant::now();
        self.start(is_watched)?;
        let mut link = self.broker.wait_until_it_serves()?;
        self.starts.push(start.elapsed().as_secs_f64() * 1e3);
        let missing = |error: io::Error| error.to_string();
        let mut counts = Vec::new();
        for queue in 0..QUEUES {
            match topology::count(&mut link, queue).map_err(missing) {
                Ok(count) => counts.push((queue, count)),
                Err(text) => {
                    self.court.open().oracle.faults.note(Fault::Missing, || text);
                    link = link::open(self.plan.recipe.port, 1)?;
                }
            }
        }
        self.court.open().oracle.check_counts(&counts);
        if let Err(error) = topology::find_exchanges(&mut link) {
            self.court.open().oracle.faults.note(Fault::Missing, || error.to_string());
        }
        if round.failure.is_some() {
            self.find_declared()?;
        }
        Ok(())
    }

    /// Looks for the queues that were declared and deleted while the disk failed.
    fn find_declared(&mut self) -> io::Result<()> {
        let declared = std::mem::take(&mut self.court.open().declared);
        for (number, state) in declared.into_iter().enumerate() {
            let found = declarer::take_away(number, self.plan.recipe.port)?;
            let is_wrong = match state {
                Declared::There => !found,
                Declared::Gone => found,
                Declared::Unknown => false,
            };
            if is_wrong {
                let about = || format!("queue {}: {found}", declarer::name(number));
                self.court.open().oracle.faults.note(Fault::Missing, about);
            }
        }
        Ok(())
    }

    /// Prints what is to be told behind a round, and returns the number of faults.
    fn show(&mut self, number: u64, round: &Round) -> u64 {
        let court = self.court.open();
        let (faults, tally) = (&court.oracle.faults, court.oracle.tally);
        for example in faults.examples(self.examples_shown) {
            lepus_console::say(format_args!("round {number}: {example}"));
        }
        if let Some(failure) = &round.failure
            && faults.examples_count() > self.examples_shown
        {
            lepus_console::say(format_args!(
                "  with {failure:?}, then in the start {:?}",
                round.start_failure
            ));
        }
        self.examples_shown = faults.examples_count();
        if !self.plan.quiet && (number.is_multiple_of(LINE_EVERY) || number == self.plan.rounds) {
            lepus_console::say(format_args!(
                "round {number:>4}: {:>9} published {:>9} confirmed {:>9} delivered {:>7} duplicates \
                 {:>3} faults, last start {:.0} ms",
                tally.published,
                tally.confirmed,
                tally.delivered,
                tally.duplicates,
                faults.total(),
                self.starts.last().copied().unwrap_or(0.0),
            ));
        }
        faults.total()
    }
}
