//! The running broker as the management API sees it.

use crate::audit::{Audit, Deed, Source};
use crate::changed::Changed;
use crate::config::Config;
use crate::figures::Figures;
use crate::log::Log;
use crate::random;
use crate::secrets;
use crate::signal::Wish;
use lepus_base::ShardId;
use lepus_broker::directory::Request;
use lepus_broker::refusal::Refusal;
use lepus_broker::{Answer, Query};
use lepus_management::api::{Amount, Audited, Change, Done, Listener, Mirror, Running, Service};
use lepus_management::snapshot::{Node, Snapshot};
use lepus_shard::tls::Identity;
use lepus_shard::{Inside, PeerInfo, Stopper};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a change of the directory may take before whoever asked is told that it is unsure.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Changes that one question asks shard 0 for at most: as many as share a sync of the log.
const CHANGES_AT_ONCE: usize = 512;
/// Questions that are on their way to shard 0 at a time: it decides on one while the log is synced for another.
const QUESTIONS_MAX: usize = 3;
/// How long listeners may take to close or to hear again.
const LISTENERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The broker.
pub struct RunningBroker {
    /// Asks its shards.
    pub figures: Arc<Figures>,
    /// Connects to it.
    pub inside: Inside,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// What is declared.
    pub mirror: Arc<Mirror>,
    /// What was set.
    pub config: Arc<Config>,
    /// What of that was changed since.
    pub changed: Arc<Changed>,
    /// Its log.
    pub log: Log,
    /// Where its data is.
    pub data_dir: PathBuf,
    /// Where changes are told.
    pub audit: Audit,
    /// The certificate, if there is one.
    pub identity: Option<Arc<Identity>>,
    /// Lets connections in or not.
    pub stopper: Stopper,
    /// Told when the broker is to stop.
    pub wish: Sender<Wish>,
    /// What an operator has said.
    pub service: SaidService,
}

/// Whether the broker serves, as operators have said.
#[derive(Debug, Default)]
pub struct SaidService {
    now: Mutex<Service>,
    /// Held while a change is carried out: who only looks does not wait for that.
    changing: Mutex<()>,
}

impl SaidService {
    fn get(&self) -> Service {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it and has that carried out, one change after the other.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Service),
        carry_out: impl FnOnce(Service) -> T,
    ) -> (Service, T) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let service = {
            let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut now);
            *now
        };
        (service, carry_out(service))
    }
}

impl fmt::Debug for RunningBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningBroker").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

impl Running for RunningBroker {
    fn shards(&self) -> u16 {
        self.figures.commands.shards()
    }

    fn ask(&self, shard: ShardId, query: Query) -> Result<Answer, String> {
        match query {
            // It waits for a disk.
            change @ Query::Change(_) => {
                let answer = self.figures.commands.wait(shard, change, CHANGE_TIMEOUT);
                answer.map_err(|error| format!("{error}; the change may still be carried out"))
            }
            query => self.figures.ask_one(shard, query),
        }
    }

    fn ask_all(&self, query: &Query) -> Result<Vec<Answer>, String> {
        match query {
            // Messages above a new limit have to leave first.
            Query::AwaitPolicies { .. } => {
                let answers = self.figures.commands.wait_all(query, CHANGE_TIMEOUT);
                answers.map_err(|error| error.to_string())
            }
            Query::Alarm { .. } => {
                let answers = self.figures.ask_all(query);
                self.figures.forget();
                answers
            }
            query => self.figures.ask_all(query),
        }
    }

    fn snapshot(&self) -> Result<Snapshot, String> {
        self.figures.collect()
    }

    fn change_all(&self, requests: Vec<Request>) -> Result<Vec<Result<(), Refusal>>, String> {
        let mut results = Vec::with_capacity(requests.len());
        let mut waiting = VecDeque::new();
        let mut requests = requests.into_iter();
        loop {
            while waiting.len() < QUESTIONS_MAX {
                let part: Vec<Request> = requests.by_ref().take(CHANGES_AT_ONCE).collect();
                if part.is_empty() {
                    break;
                }
                let begun = self.figures.commands.begin(ShardId(0), Query::ChangeAll(part));
                waiting.push_back(begun.map_err(|stopped| stopped.to_string())?);
            }
            let Some(answer) = waiting.pop_front() else { return Ok(results) };
            match answer.recv_timeout(CHANGE_TIMEOUT) {
                Ok(Answer::ChangedAll(all)) => results.extend(all),
                Ok(other) => unreachable!("changes are answered with {other:?}"),
                Err(_) => {
                    let count = results.len();
                    return Err(format!(
                        "shard 0 does not answer: {count} changes are carried out, others may be"
                    ));
                }
            }
        }
    }

    fn node(&self) -> &Node {
        &self.figures.node
    }

    fn data_dir(&self) -> String {
        self.data_dir.display().to_string()
    }

    fn connections_max(&self) -> u64 {
        self.config.connections_max
    }

    fn service(&self) -> Service {
        self.service.get()
    }

    fn change_service(&self, change: fn(&mut Service)) -> (Service, Result<(), String>) {
        self.service.change(change, |service| {
            self.stopper.await_accepting(service.accepts, LISTENERS_TIMEOUT)
        })
    }

    fn change(&self, change: Change) -> Result<(), String> {
        self.changed.change(change)
    }

    fn memory_budget(&self) -> Amount {
        self.changed.memory()
    }

    fn log_lines(&self, after: u64, count: usize) -> (Vec<String>, u64) {
        self.log.recent(after, count)
    }

    fn stop(&self) {
        // It is heard by the main thread, or has ended.
        let _ = self.wish.send(Wish::Stop);
    }

    fn user_in(&self, vhost: &str) -> Result<String, String> {
        self.mirror.administrator_in(vhost)
    }

    fn connect(&self, user: &str, peer: SocketAddr) -> io::Result<UnixStream> {
        let listening = self.listeners.iter().find(|one| one.protocol.starts_with("amqp"));
        self.inside.connect(PeerInfo {
            address: peer,
            local_address: listening.map_or(peer, |listener| listener.address),
            tls: None,
            login_name: Some(user.to_owned()),
        })
    }

    fn random(&self) -> Result<[u8; 16], String> {
        random::bytes().map_err(random::unavailable)
    }

    fn listeners(&self) -> Vec<Listener> {
        self.listeners.clone()
    }

    fn certificate_ends(&self) -> Option<i64> {
        self.identity.as_ref()?.ends()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let values = self.config.values().map(|(key, value)| {
            let value = self.changed.value(key).unwrap_or(value);
            (key.to_owned(), value)
        });
        values.collect()
    }

    fn note(&self, done: &Done<'_>) {
        let from = done.peer.map_or_else(|| "control socket".to_owned(), |peer| peer.to_string());
        // Both are the client's.
        let (method, path) = (secrets::shortened(done.method), secrets::of_path(done.path));
        let (user, result) = (done.user.to_owned(), done.status.to_string());
        let source = match done.peer {
            Some(peer) if !done.is_logged_in => Source::Address(peer.ip()),
            _ => Source::User(user.clone()),
        };
        let what = format!("{method} {path}");
        let deed = Deed { user, from, face: done.face, what, result };
        self.audit.note_request(source, deed, done.status >= 400);
    }

    fn audited(&self) -> Vec<Audited> {
        self.audit.recent()
    }

    fn audit_left_out(&self) -> u64 {
        self.audit.left_out().load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Each changes a part of it, and both are in force, whoever comes first.
    #[test]
    fn two_who_change_the_service_at_once_lose_nothing() {
        for _ in 0..100 {
            let (service, begin) = (SaidService::default(), Barrier::new(2));
            let done = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                let changes: [fn(&mut Service); 2] =
                    [|state| state.accepts = false, |state| state.is_drained = true];
                for change in changes {
                    let (service, begin, done) = (&service, &begin, &done);
                    scope.spawn(move || {
                        begin.wait();
                        service.change(change, |state| done.lock().unwrap().push(state));
                    });
                }
            });
            let both = Service { is_running: true, accepts: false, is_drained: true };
            assert_eq!(service.get(), both);
            // What was carried out last is what is in force.
            assert_eq!(done.lock().unwrap()[1], both);
        }
    }
}
