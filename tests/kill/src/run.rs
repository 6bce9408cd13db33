//! All rounds against one broker.

use crate::broker::{Broker, Recipe};
use crate::court::Court;
use crate::forger::Forger;
use crate::link::Link;
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
    /// No lines but those about faults.
    pub quiet: bool,
}

/// What a run found.
pub struct Outcome {
    /// The oracle at the end.
    pub oracle: Oracle,
    /// Rounds that were run.
    pub rounds: u64,
    /// Kills under load, further kills while starting, orderly stops.
    pub ends: [u64; 3],
    /// Milliseconds from each start until a client was logged in, sorted.
    pub starts: Vec<f64>,
}

struct Run<'a> {
    plan: &'a Plan,
    court: Arc<Court>,
    broker: Broker,
    /// Starts after the first.
    turn: usize,
    ends: [u64; 3],
    starts: Vec<f64>,
    examples_shown: usize,
}

/// Runs the rounds; ends early at a fault unless told otherwise.
///
/// # Errors
/// When the broker cannot be started, or does not answer right after a start.
pub fn run(plan: &Plan, forger: Forger) -> io::Result<Outcome> {
    let mut broker = Broker::start(&plan.recipe, 0)?;
    topology::declare(&mut broker.wait_until_it_serves()?)?;
    let court = Arc::new(Court::new(forger));
    let mut run =
        Run { plan, court, broker, turn: 0, ends: [0; 3], starts: Vec::new(), examples_shown: 0 };
    let mut done = 0;
    for number in 1..=plan.rounds {
        let round = Round::new(plan.seed, number, plan.rounds);
        run.carry(&round)?;
        done = number;
        let faults = run.show(number);
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
        match round.end {
            End::Empty => self.empty()?,
            End::Kill | End::Stop => sleep(self.plan.load.unwrap_or(round.load)),
        }
        if self.broker.has_ended()? {
            let mut court = self.court.open();
            court.oracle.faults.note(Fault::Missing, || "the broker ended by itself".to_owned());
        }
        self.court.set_ending(true);
        let clean = round.end == End::Stop;
        let mut at = Instant::now();
        if clean {
            self.court.open().oracle.begin_stop();
            self.broker.stop()?;
            self.ends[2] += 1;
            at = Instant::now();
        } else {
            self.broker.kill()?;
            self.ends[0] += 1;
        }
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a thread of the load failed"))?;
        }
        self.court.open().oracle.end_round(at, clean);
        self.restart(round)
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
        let mut link = Link::open(self.plan.recipe.port, 1)?;
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

    fn start(&mut self) -> io::Result<()> {
        self.turn += 1;
        self.broker = Broker::start(&self.plan.recipe, self.turn)?;
        Ok(())
    }

    /// Starts the broker again, perhaps with another kill on the way, and looks what is there.
    fn restart(&mut self, round: &Round) -> io::Result<()> {
        if self.plan.copies {
            let before = self.plan.data.with_extension("before");
            let (data, before) = (self.plan.data.as_os_str(), before.as_os_str());
            Command::new("rm").arg("-rf").arg(before).status()?;
            Command::new("cp").arg("-a").arg(data).arg(before).status()?;
        }
        if let Some(time) = round.second_kill {
            self.start()?;
            sleep(time);
            if !self.broker.has_ended()? {
                self.broker.kill()?;
                self.ends[1] += 1;
            }
        }
        let start = Instant::now();
        self.start()?;
        let mut link = self.broker.wait_until_it_serves()?;
        self.starts.push(start.elapsed().as_secs_f64() * 1e3);
        let missing = |error: io::Error| error.to_string();
        let mut counts = Vec::new();
        for queue in 0..QUEUES {
            match topology::count(&mut link, queue).map_err(missing) {
                Ok(count) => counts.push((queue, count)),
                Err(text) => {
                    self.court.open().oracle.faults.note(Fault::Missing, || text);
                    link = Link::open(self.plan.recipe.port, 1)?;
                }
            }
        }
        self.court.open().oracle.check_counts(&counts);
        if let Err(error) = topology::find_exchanges(&mut link) {
            self.court.open().oracle.faults.note(Fault::Missing, || error.to_string());
        }
        Ok(())
    }

    /// Prints what is to be told behind a round, and returns the number of faults.
    fn show(&mut self, number: u64) -> u64 {
        let court = self.court.open();
        let (faults, tally) = (&court.oracle.faults, court.oracle.tally);
        for example in faults.examples(self.examples_shown) {
            println!("round {number}: {example}");
        }
        self.examples_shown = faults.examples_count();
        if !self.plan.quiet && (number.is_multiple_of(LINE_EVERY) || number == self.plan.rounds) {
            println!(
                "round {number:>4}: {:>9} published {:>9} confirmed {:>9} delivered {:>7} duplicates \
                 {:>3} faults, last start {:.0} ms",
                tally.published,
                tally.confirmed,
                tally.delivered,
                tally.duplicates,
                faults.total(),
                self.starts.last().copied().unwrap_or(0.0),
            );
        }
        faults.total()
    }
}
