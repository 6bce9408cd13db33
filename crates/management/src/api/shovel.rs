//! Dynamic shovels: messages carried from a queue or exchange of one broker to one of the same or another.
//!
//! Each is a parameter of the component `shovel` and a thread that speaks AMQP on both sides, never on a shard's thread.
//! What is not confirmed by the destination stays at the source: a message may come twice, and none is lost, unless the
//! shovel's acknowledgement mode says otherwise.

mod course;
mod definition;
mod stream;

use super::mirror::Mirror;
use super::{Listener, Running};
use course::Course;
use definition::Definition;
use lepus_base::ShardId;
use lepus_broker::Query;
use lepus_broker::directory::Request;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use stream::{Agent, Need};

/// The component of its parameters.
pub(crate) const COMPONENT: &str = "shovel";
/// Shovels that run at a time; each has a thread and two connections.
const SHOVELS_MAX: usize = 256;
/// Addresses of an end: each is looked up when it is set.
const URIS_MAX: usize = 16;
/// How soon it is looked again whether there are others, when nobody says so.
const LOOK: Duration = Duration::from_secs(5);
/// The same while one is to take the place of another that has not ended.
const LOOK_AT_ENDS: Duration = Duration::from_millis(100);
/// How long one rests before it tries again, unless it says so.
const RECONNECT_DELAY: Duration = Duration::from_secs(5);

/// What somebody needs who sets a shovel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Permissions in these virtual hosts of this broker, where it would handle messages.
    pub(crate) vhosts: Vec<String>,
    /// Why the tag `administrator`, if it is needed.
    pub(crate) administrator: Option<&'static str>,
}

/// Whether a shovel may be set as a value says, and what is needed for that, if it is one of the virtual host `own` of the
/// broker with these listeners. Waits for whoever knows names.
///
/// # Errors
/// In words, where it would lose messages, or has very many addresses.
pub(crate) fn check(value: &str, own: &str, listeners: &[Listener]) -> Result<Needs, String> {
    let Ok(definition) = Definition::read(value) else {
        // It is kept, and says why it does not run.
        return Ok(Needs::default());
    };
    if definition.would_lose() {
        return Err(
            "delete-after with ack-mode no-ack would take messages that are not carried".to_owned()
        );
    }
    let uris = [&definition.source.uris, &definition.destination.uris];
    if uris.iter().any(|uris| uris.len() > URIS_MAX) {
        return Err(format!("an end of a shovel has {URIS_MAX} addresses at most"));
    }
    let mut needs = Needs::default();
    for uri in uris.into_iter().flatten() {
        match stream::need(uri, own, listeners) {
            Need::Nothing => {}
            Need::Vhost(vhost) => needs.vhosts.push(vhost),
            Need::Administrator => needs.administrator = Some(stream::NEEDS_ADMINISTRATOR),
        }
    }
    Ok(needs)
}

/// A shovel by virtual host and name.
type Key = (String, String);

/// What a shovel is at.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    /// `starting`, `running` or `terminated`.
    pub(crate) state: &'static str,
    /// Why it does not run.
    pub(crate) reason: Option<String>,
    /// Since when, in seconds since 1970.
    since: u64,
    /// Messages carried since it was started.
    pub(crate) forwarded: u64,
    /// Messages that are left to be carried, where it ends by itself.
    pub(crate) remaining: Option<u64>,
}

impl Status {
    fn new() -> Status {
        Status { state: "starting", reason: None, since: now(), forwarded: 0, remaining: None }
    }

    fn enter(&mut self, state: &'static str, reason: Option<String>) {
        if self.state != state {
            self.since = now();
        }
        (self.state, self.reason) = (state, reason);
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// One that was started.
#[derive(Debug)]
struct Started {
    /// The parameter's value as it was then.
    value: String,
    stop: Arc<AtomicBool>,
    status: Arc<Mutex<Status>>,
    /// As long as its thread runs somebody else holds it, too.
    thread: Arc<()>,
}

impl Started {
    fn has_thread(&self) -> bool {
        Arc::strong_count(&self.thread) > 1
    }
}

#[derive(Debug, Default)]
struct State {
    shovels: BTreeMap<Key, Started>,
    /// Those that were told to stop and whose threads may run yet: nobody takes their place before.
    ending: Vec<(Key, Started)>,
    /// Those that are to be started anew.
    restarts: Vec<Key>,
    is_changed: bool,
}

/// All shovels.
#[derive(Debug, Default)]
pub(crate) struct Shovels {
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shovels {
    /// Runs those that the directory has, from now on.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(crate) fn start(broker: Arc<dyn Running>, mirror: Arc<Mirror>) -> io::Result<Arc<Shovels>> {
        let shovels = Arc::new(Shovels::default());
        let own = Arc::clone(&shovels);
        std::thread::Builder::new().name("shovels".to_owned()).spawn(move || {
            let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
            crate::machine::lower_priority();
            loop {
                own.follow(&broker, &mirror);
                let mut state = locked(&own.state);
                if !state.is_changed {
                    let look = if state.ending.is_empty() { LOOK } else { LOOK_AT_ENDS };
                    let waited = own.changed.wait_timeout(state, look);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                state.is_changed = false;
            }
        })?;
        Ok(shovels)
    }

    /// Parameters have changed.
    pub(crate) fn note_change(&self) {
        locked(&self.state).is_changed = true;
        self.changed.notify_one();
    }

    /// Starts one anew. False if there is none of the name.
    pub(crate) fn restart(&self, vhost: &str, name: &str) -> bool {
        let mut state = locked(&self.state);
        let key = (vhost.to_owned(), name.to_owned());
        let is_there = state.shovels.contains_key(&key);
        if is_there {
            state.restarts.push(key);
            state.is_changed = true;
            self.changed.notify_one();
        }
        is_there
    }

    /// Stops those that are gone or others now, starts those that are new.
    fn follow(&self, broker: &Arc<dyn Running>, mirror: &Arc<Mirror>) {
        mirror.catch_up();
        let wanted: BTreeMap<Key, String> = {
            let directory = mirror.directory();
            let all = directory.parameters(None);
            let shovels = all.filter(|(_, parameter)| parameter.component == COMPONENT);
            shovels
                .map(|(vhost, one)| {
                    ((vhost.name.to_string(), one.name.to_owned()), one.value.to_owned())
                })
                .collect()
        };
        let mut state = locked(&self.state);
        let restarts = std::mem::take(&mut state.restarts);
        let all = std::mem::take(&mut state.shovels);
        for (key, started) in all {
            if wanted.get(&key) == Some(&started.value) && !restarts.contains(&key) {
                state.shovels.insert(key, started);
            } else {
                started.stop.store(true, Ordering::Relaxed);
                state.ending.push((key, started));
            }
        }
        state.ending.retain(|(_, started)| started.has_thread());
        let mut threads = state.ending.len();
        threads += state.shovels.values().filter(|started| started.has_thread()).count();
        for (key, value) in wanted {
            let is_ending = state.ending.iter().any(|(ending, _)| *ending == key);
            if is_ending || state.shovels.contains_key(&key) {
                continue;
            }
            let mut started = Started {
                value: value.clone(),
                stop: Arc::default(),
                status: Arc::new(Mutex::new(Status::new())),
                thread: Arc::default(),
            };
            let refused = match threads < SHOVELS_MAX {
                true => run(&key, &value, &started, broker, mirror).err(),
                false => {
                    // So that it is tried again.
                    started.value.clear();
                    Some(format!("{SHOVELS_MAX} shovels run, as many as may"))
                }
            };
            match refused {
                Some(reason) => locked(&started.status).enter("terminated", Some(reason)),
                None => threads += 1,
            }
            state.shovels.insert(key, started);
        }
    }

    /// What those of the virtual hosts are at that are wanted.
    pub(crate) fn rows(&self, node: &str, is_wanted: impl Fn(&str, &str) -> bool) -> Vec<Value> {
        let state = locked(&self.state);
        let wanted = state.shovels.iter().filter(|((vhost, name), _)| is_wanted(vhost, name));
        wanted.map(|((vhost, name), started)| row(node, vhost, name, started)).collect()
    }
}

fn row(node: &str, vhost: &str, name: &str, started: &Started) -> Value {
    let status = locked(&started.status).clone();
    let mut row = json!({
        "node": node,
        "name": name,
        "vhost": vhost,
        "type": "dynamic",
        "state": status.state,
        "timestamp": super::objects::time_text(status.since),
        "blocked_status": "running",
        "forwarded": status.forwarded,
        "pending": 0,
    });
    if let Some(reason) = status.reason {
        row["reason"] = json!(reason);
    }
    if let Some(remaining) = status.remaining {
        row["remaining"] = json!(remaining);
    }
    if let Ok(definition) = Definition::read(&started.value) {
        definition.describe(&mut row);
    }
    row
}

/// Runs a shovel on a thread of its own until it is told to stop.
fn run(
    (vhost, name): &Key,
    value: &str,
    started: &Started,
    broker: &Arc<dyn Running>,
    mirror: &Arc<Mirror>,
) -> Result<(), String> {
    let definition = Definition::read(value)?;
    if definition.would_lose() {
        return Err(
            "delete-after with ack-mode no-ack would take messages that are not carried".to_owned()
        );
    }
    let (stop, status) = (Arc::clone(&started.stop), Arc::clone(&started.status));
    let thread = Arc::clone(&started.thread);
    let (vhost, name) = (vhost.clone(), name.clone());
    let (broker, mirror) = (Arc::clone(broker), Arc::clone(mirror));
    let body = move || {
        let _thread = thread;
        let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
        crate::machine::lower_priority();
        let delay = definition.reconnect_delay.unwrap_or(RECONNECT_DELAY);
        while !stop.load(Ordering::Relaxed) {
            let set_by = definition.set_by.as_deref();
            let agent = Agent { broker: &*broker, mirror: &mirror, set_by };
            let course = Course { definition: &definition, vhost: &vhost, agent };
            match course.run(&stop, &status) {
                Ok(course::End::Stopped) => return,
                Ok(course::End::Complete) => {
                    // It has done what it was for.
                    let (component, name) = (COMPONENT.to_owned(), name.clone());
                    let vhost = vhost.as_str().into();
                    let over = Request::ClearParameter { vhost, component, name };
                    let _ = broker.ask(ShardId(0), Query::Change(over));
                    return;
                }
                Err(reason) => locked(&status).enter("terminated", Some(reason)),
            }
            rest(delay, &stop);
        }
    };
    let thread = std::thread::Builder::new().name("shovel".to_owned());
    thread.spawn(body).map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Waits, unless it is to stop.
fn rest(delay: Duration, stop: &AtomicBool) {
    const STEP: Duration = Duration::from_millis(100);
    let mut left = delay;
    while !left.is_zero() && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(left.min(STEP));
        left = left.saturating_sub(STEP);
    }
}
