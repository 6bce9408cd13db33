//! Moves: messages taken out of one queue and put where they are wanted, inside this broker.
//!
//! Each is a thread that speaks AMQP to the broker as the user who asked, in transactions. What a transaction publishes
//! and what it acknowledges is one unit of the log where both queues are in the log of one shard; elsewhere it is
//! acknowledged when it is on the disk where it went. A move ends with the broker: what it has moved is moved.

mod arrivals;
mod course;
mod line;
mod origin;

use super::client::{Account, random_name};
use super::objects::time_text;
use super::{Mirror, Running};
use course::{Course, End};
use lepus_filter::{BodyFormat, Filter};
pub(crate) use origin::Death;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Moves that run at a time; each has a thread and a connection.
pub(crate) const RUNNING_MAX: usize = 16;
/// Moves that are over and still told of; those that began first are forgotten first.
const KEPT_MAX: usize = 64;

/// Where messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Into a queue, and no other.
    Queue(String),
    /// To an exchange, with this key or their own.
    Exchange { name: String, routing_key: Option<String> },
    /// Dead letters to the exchange and with the keys that they had before this death.
    Origin(Death),
}

/// A filter that says which messages are moved.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// As it was given.
    pub(crate) text: String,
    pub(crate) filter: Filter,
    /// How it reads bodies.
    pub(crate) format: BodyFormat,
}

/// What is to be moved.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) vhost: String,
    /// The queue that they are taken out of.
    pub(crate) from: String,
    pub(crate) target: Target,
    /// Those that match this filter; all without one.
    pub(crate) chosen: Option<Chosen>,
    /// Messages at most; `None` for as many as are in the queue when the move begins.
    pub(crate) count: Option<u64>,
    /// Messages a second at most.
    pub(crate) per_second: Option<u64>,
    /// The header that each gets.
    pub(crate) header: Option<String>,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// All that it was for is moved.
    Completed,
    /// It was told to, or met a message that goes nowhere.
    Stopped,
    Failed,
}

#[derive(Clone, Debug)]
struct Status {
    state: State,
    /// Why it ended, unless it has moved all.
    reason: Option<String>,
    moved: u64,
    /// How many there are to move, once that is known; with a filter only if a number was given.
    of: Option<u64>,
    /// Since when it is in this state, in seconds since 1970.
    since: u64,
}

impl Status {
    fn end(&mut self, state: State, reason: Option<String>) {
        (self.state, self.reason, self.since) = (state, reason, now());
    }
}

/// One move.
#[derive(Debug)]
struct Job {
    id: String,
    order: Order,
    account: Account,
    stop: AtomicBool,
    status: Mutex<Status>,
}

impl Job {
    fn is_running(&self) -> bool {
        locked(&self.status).state == State::Running
    }

    fn row(&self) -> Value {
        let Order { vhost, from, target, chosen, per_second, header, .. } = &self.order;
        let status = locked(&self.status).clone();
        let state = match status.state {
            State::Running => "running",
            State::Completed => "completed",
            State::Stopped => "stopped",
            State::Failed => "failed",
        };
        let mut row = json!({
            "id": self.id,
            "vhost": vhost,
            "from": from,
            "user": self.account.user,
            "state": state,
            "moved": status.moved,
            "of": status.of,
            "since": time_text(status.since),
        });
        match target {
            Target::Queue(queue) => row["to"] = json!(queue),
            Target::Origin(death) => {
                row["to"] = json!("origin");
                row["death"] = json!(death.name());
            }
            Target::Exchange { name, routing_key } => {
                row["exchange"] = json!(name);
                row["routing_key"] = json!(routing_key);
            }
        }
        if let Some(chosen) = chosen {
            row["filter"] = json!(chosen.text);
            row["filter_format"] = json!(chosen.format.name());
        }
        for (key, value) in [("per_second", json!(per_second)), ("headers", json!(header))] {
            if !value.is_null() {
                row[key] = value;
            }
        }
        if let Some(reason) = status.reason {
            row["reason"] = json!(reason);
        }
        row
    }
}

/// All moves since the broker started, but for those that are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// In the order in which they began.
    jobs: Mutex<VecDeque<Arc<Job>>>,
}

/// Why a move did not begin.
pub(crate) enum NotBegun {
    /// As many run as may.
    TooMany,
    /// What the system lacks, in words.
    Unavailable(String),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Moves {
    /// Begins a move as this user. Its id, which no other has, also after a restart.
    ///
    /// # Errors
    /// [`NotBegun`].
    pub(crate) fn begin(
        &self,
        order: Order,
        account: Account,
        broker: &Arc<dyn Running>,
        mirror: &Arc<Mirror>,
    ) -> Result<String, NotBegun> {
        let id = random_name(&**broker).map_err(NotBegun::Unavailable)?;
        let since = now();
        let status = Status { state: State::Running, reason: None, moved: 0, of: None, since };
        let (stop, status) = (AtomicBool::new(false), Mutex::new(status));
        let job = Arc::new(Job { id: id.clone(), order, account, stop, status });
        let mut jobs = locked(&self.jobs);
        let running = jobs.iter().filter(|job| job.is_running()).count();
        if running >= RUNNING_MAX {
            return Err(NotBegun::TooMany);
        }
        if jobs.len() - running >= KEPT_MAX
            && let Some(oldest) = jobs.iter().position(|job| !job.is_running())
        {
            jobs.remove(oldest);
        }
        let (own, broker, mirror) = (Arc::clone(&job), Arc::clone(broker), Arc::clone(mirror));
        let thread = std::thread::Builder::new().name("move".to_owned());
        thread
            .spawn(move || {
                let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
                crate::machine::lower_priority();
                carry_out(&own, &*broker, &mirror);
            })
            .map_err(|error| NotBegun::Unavailable(format!("cannot start a thread: {error}")))?;
        jobs.push_back(job);
        Ok(id)
    }

    /// Those of the virtual hosts that are wanted, in the order in which they began.
    pub(crate) fn rows(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Value> {
        let jobs = locked(&self.jobs);
        jobs.iter().filter(|job| is_wanted(&job.order.vhost)).map(|job| job.row()).collect()
    }

    /// Stops a move of one of the virtual hosts that are wanted, or forgets one that is over. False if there is none.
    pub(crate) fn stop(&self, id: &str, is_wanted: impl Fn(&str) -> bool) -> bool {
        let mut jobs = locked(&self.jobs);
        let is_it = |job: &Arc<Job>| job.id == id && is_wanted(&job.order.vhost);
        let Some(place) = jobs.iter().position(is_it) else { return false };
        if jobs[place].is_running() {
            jobs[place].stop.store(true, Ordering::Relaxed);
        } else {
            jobs.remove(place);
        }
        true
    }
}

/// Moves messages until all are moved, or it is to stop.
fn carry_out(job: &Job, broker: &dyn Running, mirror: &Mirror) {
    let course = Course::new(&job.order, &job.account, (broker, mirror), &job.stop);
    let ended = course.run(&mut |moved, of| {
        let mut status = locked(&job.status);
        status.moved += moved;
        status.of = of.or(status.of);
    });
    let mut status = locked(&job.status);
    match ended {
        Ok(End::Complete) => {
            let missing = status.of.unwrap_or(0).saturating_sub(status.moved);
            let why = match (&job.order.chosen, missing, course.given_up()) {
                (_, 0, 0) => None,
                (None, ..) => {
                    Some(format!("the queue is empty: {missing} messages went another way"))
                }
                (Some(_), _, 0) => {
                    Some(format!("no more match the filter: {missing} fewer than asked for"))
                }
                (Some(_), _, times) => Some(format!(
                    "the filter would have taken too long {times} times: such messages stay"
                )),
            };
            status.end(State::Completed, why);
        }
        Ok(End::Stopped(reason)) => status.end(State::Stopped, Some(reason)),
        Err(reason) => status.end(State::Failed, Some(reason)),
    }
}
