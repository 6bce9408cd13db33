//! The management API as RabbitMQ's tools know it: a request in, an answer out. It blocks, and runs on no shard's
//! thread.
//!
//! One table ([`table`]) has all paths with what each needs and who answers it. Names, permissions and bindings come
//! from a copy of the directory ([`mirror`]), which costs the shards nothing; figures are asked of the shards for what
//! is shown. Changes are requests to the directory as anybody's; messages go through AMQP as the user who asks.

mod access;
mod amqp_json;
mod attempts;
mod body;
mod change;
mod client;
mod context;
mod failure;
mod filter;
mod list;
mod mirror;
mod moves;
mod objects;
mod output;
mod path;
mod request;
mod samples;
mod sessions;
mod shovel;
mod sums;
mod table;

pub use access::network;
pub use change::{Amount, Change};
pub use failure::Failure;
pub use mirror::Mirror;
pub use output::Output;
pub(crate) use path::Parameters;
pub use request::{COOKIE, Caller, Client, Reply, Request};
pub(crate) use sums::of_exchanges as exchange_counts;

use crate::snapshot::{Node, Snapshot};
use access::{Gate, Login, Right, Throttle};
use attempts::Attempts;
use context::Context;
use filter::Looks;
use lepus_base::ShardId;
use lepus_broker::directory::{self, Accounts};
use lepus_broker::refusal::Refusal;
use lepus_broker::{Answer, Query};
use moves::Moves;
use samples::Samples;
use serde_json::{Value, json};
use sessions::Sessions;
use shovel::Shovels;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// The way to the running broker. Its functions may be called from several threads at once, and block.
pub trait Running: Send + Sync + 'static {
    /// Number of shards.
    fn shards(&self) -> u16;

    /// Asks a shard and waits for the answer.
    ///
    /// # Errors
    /// In words, where it does not come in time or the broker stops.
    fn ask(&self, shard: ShardId, query: Query) -> Result<Answer, String>;

    /// Asks all shards at once; one answer for each, in their order.
    ///
    /// # Errors
    /// As with [`Running::ask`].
    fn ask_all(&self, query: &Query) -> Result<Vec<Answer>, String>;

    /// Figures of this moment, or of a moment ago.
    ///
    /// # Errors
    /// As with [`Running::ask`].
    fn snapshot(&self) -> Result<Snapshot, String>;

    /// Changes the directory, one request after the other, and waits for all: what became of each, in their order.
    ///
    /// # Errors
    /// As with [`Running::ask`], where the rest may or may not be carried out.
    fn change_all(
        &self,
        requests: Vec<directory::Request>,
    ) -> Result<Vec<Result<(), Refusal>>, String>;

    /// Who the node is.
    fn node(&self) -> &Node;

    /// Where its data is.
    fn data_dir(&self) -> String;

    /// Connections that may be open at once.
    fn connections_max(&self) -> u64;

    /// Whether it serves.
    fn service(&self) -> Service;

    /// Changes whether it serves, one change after the other, and lets connections in or not from then on. What it is
    /// after that, and, as an error in words, which listeners do not hear again, and why; that is tried on.
    fn change_service(&self, change: fn(&mut Service)) -> (Service, Result<(), String>);

    /// Changes a setting, until the broker ends. Who asks after that finds it changed.
    ///
    /// # Errors
    /// In words, where a shard does not answer: it may or may not be changed then.
    fn change(&self, change: Change) -> Result<(), String>;

    /// The memory above which publishers are held back, as it was set.
    fn memory_budget(&self) -> Amount;

    /// The last lines of the log, at most `count` and none of the first `after`, oldest first, and how many there ever
    /// were. There is no secret in them.
    fn log_lines(&self, after: u64, count: usize) -> (Vec<String>, u64);

    /// Begins the end of the broker and returns.
    fn stop(&self);

    /// A user in whose name the broker's own parts do what they do with messages of a virtual host.
    ///
    /// # Errors
    /// In words, where there is none.
    fn user_in(&self, vhost: &str) -> Result<String, String>;

    /// Opens an AMQP connection on which `user`, who comes from `peer`, is known already (SASL EXTERNAL).
    ///
    /// # Errors
    /// When the system has no sockets, or there are too many connections.
    fn connect(&self, user: &str, peer: SocketAddr) -> io::Result<UnixStream>;

    /// Bytes that nobody can guess.
    ///
    /// # Errors
    /// In words, when the system has none.
    fn random(&self) -> Result<[u8; 16], String>;

    /// Where it listens.
    fn listeners(&self) -> Vec<Listener>;

    /// Takes down what was done: every request that may change something, every login that failed, and every export of
    /// definitions. Unlike the others it waits for no disk and no shard.
    fn note(&self, done: &Done<'_>);

    /// What was taken down last, of orders by the control socket as well, newest first.
    fn audited(&self) -> Vec<Audited>;

    /// How many requests and orders are missing in the audit file, though there is one.
    fn audit_left_out(&self) -> u64;

    /// When the certificate of the listeners with TLS ends, in seconds since 1970; `None` where there is none.
    fn certificate_ends(&self) -> Option<i64>;

    /// What is in force: every setting with its value, secrets left out.
    fn settings(&self) -> Vec<(String, String)>;
}

/// What an operator has said about whether the broker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// False between `stop_app` and `start_app`.
    pub is_running: bool,
    /// Whether new connections are let in.
    pub accepts: bool,
    /// Whether it is to be taken out of service.
    pub is_drained: bool,
}

impl Default for Service {
    fn default() -> Service {
        Service { is_running: true, accepts: true, is_drained: false }
    }
}

/// Something that was done, or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done<'a> {
    /// Who did it, or says so.
    pub user: &'a str,
    /// Whether the login was right, so that it was that user; or the operator.
    pub is_logged_in: bool,
    /// Where it came from; `None` for the control socket.
    pub peer: Option<SocketAddr>,
    /// By what it came: `http`, `https` or `ctl`.
    pub face: &'static str,
    /// The method.
    pub method: &'a str,
    /// The path as it came.
    pub path: &'a str,
    /// The code of the answer.
    pub status: u16,
}

/// Something that was done, as it was taken down: without bodies and secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// Who did it; empty where that is not known.
    pub user: String,
    /// From where.
    pub from: String,
    /// By what: `http`, `https`, `ctl`, or `control` for orders by the control socket.
    pub face: &'static str,
    /// What.
    pub what: String,
    /// What came of it.
    pub result: String,
    /// How many of it there were.
    pub count: u64,
}

impl Audited {
    /// As an object of JSON, in which its time stands under the name `at` as `time`.
    #[must_use]
    pub fn to_json(&self, at: &str, time: Value) -> Value {
        json!({
            at: time,
            "user": self.user,
            "from": self.from,
            "face": self.face,
            "what": self.what,
            "result": self.result,
            "count": self.count,
        })
    }
}

/// A listener, as tools want to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// `amqp`, `amqp/ssl`, `http`, `http/prometheus`.
    pub protocol: &'static str,
    /// Where.
    pub address: SocketAddr,
}

/// What the paths begin with that answer whatever the broker's service is.
const OWN: [&str; 2] = ["lepus", "ctl"];

/// Whether a method changes nothing.
fn is_look(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// Who asks, as far as that is known.
#[derive(Debug, Default)]
struct Asker {
    /// The user, or the one whom the login names if there is such a user; else empty.
    user: String,
    /// Whether the login is right, whatever the user may do.
    is_logged_in: bool,
}

impl Asker {
    fn log_in(&mut self, login: &Login) {
        login.name().clone_into(&mut self.user);
        self.is_logged_in = true;
    }
}

/// The API of one broker.
pub struct Api {
    broker: Arc<dyn Running>,
    mirror: Arc<Mirror>,
    throttle: Throttle,
    sessions: Arc<Sessions>,
    attempts: Attempts,
    samples: Arc<Samples>,
    shovels: Arc<Shovels>,
    moves: Moves,
    looks: Looks,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// The API of `broker`, whose directory `mirror` follows.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start(broker: Arc<dyn Running>, mirror: Arc<Mirror>) -> io::Result<Api> {
        let samples = Samples::start(Arc::clone(&broker))?;
        let shovels = Shovels::start(Arc::clone(&broker), Arc::clone(&mirror))?;
        let (throttle, attempts) = (Throttle::default(), Attempts::default());
        let (moves, looks) = (Moves::default(), Looks::default());
        let sessions = Arc::new(Sessions::default());
        let own = Arc::clone(&sessions);
        mirror.tell_deleted_users(move |user| own.end_of(user));
        Ok(Api { broker, mirror, throttle, sessions, attempts, samples, shovels, moves, looks })
    }

    fn gate<'a>(&'a self, accounts: &'a Accounts) -> Gate<'a> {
        let (throttle, sessions) = (&self.throttle, &*self.sessions);
        Gate { accounts, throttle, sessions, now: Instant::now() }
    }

    /// Parameters have changed, of which shovels follow.
    fn links_changed(&self) {
        self.shovels.note_change();
    }

    /// Answers a request. May take as long as the broker takes to do it.
    #[must_use]
    pub fn answer(&self, request: &Request) -> Reply {
        self.answer_to(request, None)
    }

    /// The same; what is long in the answer goes to `output`, and the reply has no body then.
    #[must_use]
    pub fn answer_to(&self, request: &Request, output: Option<&dyn Output>) -> Reply {
        let mut asker = Asker::default();
        let result = self.try_answer(request, output, &mut asker);
        let mut reply = result.unwrap_or_else(Failure::into_reply);
        self.note(request, &asker, reply.status);
        if request.method == "HEAD" {
            reply.body = None;
        }
        reply
    }

    /// Takes a request down that was refused with this code before anybody looked who asks. It waits for nobody.
    pub fn note_refused(&self, request: &Request, status: u16) {
        self.note(request, &Asker::default(), status);
    }

    /// Takes a request down that was answered with this code, if it is one that is to be remembered.
    fn note(&self, request: &Request, asker: &Asker, status: u16) {
        let is_export = || {
            let path = request.path.strip_prefix("/api").unwrap_or(&request.path);
            path::parts(path)
                .is_ok_and(|parts| parts.first().is_some_and(|one| one == "definitions"))
        };
        if is_look(&request.method)
            && !matches!(status, 401 | 429)
            && !(status < 300 && is_export())
        {
            return;
        }
        let (peer, face) = match &request.caller {
            Caller::Client(client) if client.is_secure => (Some(client.peer), "https"),
            Caller::Client(client) => (Some(client.peer), "http"),
            Caller::Operator => (None, "ctl"),
        };
        let (method, path) = (request.method.as_str(), request.path.as_str());
        let Asker { user, is_logged_in } = asker;
        let is_logged_in = *is_logged_in || request.caller == Caller::Operator;
        self.broker.note(&Done { user, is_logged_in, peer, face, method, path, status });
    }

    /// Whether a request is a login by its body, as far as its path, method and headers tell: nothing can be checked before
    /// that is read.
    #[must_use]
    pub fn is_login_by_body(&self, request: &Request) -> bool {
        let Caller::Client(Client { authorization: None, .. }) = request.caller else {
            return false;
        };
        let path = request.path.strip_prefix("/api").unwrap_or(&request.path);
        let Ok(parts) = path::parts(path) else { return false };
        let action = table::find(&parts).and_then(|(entry, _)| entry.action(&request.method));
        action.is_some_and(|action| action.right == Right::Password)
    }

    /// Whether a request would be answered as far as that follows from its path and login: asked before its body is read.
    ///
    /// # Errors
    /// The answer that says why not.
    pub fn check(&self, request: &Request) -> Result<(), Reply> {
        let mut asker = Asker::default();
        let mut check = || {
            let path = request.path.strip_prefix("/api").unwrap_or(&request.path);
            let parts = path::parts(path)?;
            let (entry, _) = table::find(&parts).ok_or_else(Failure::not_found)?;
            let action = entry.action(&request.method).ok_or_else(Failure::not_found)?;
            let directory = self.mirror.directory();
            let gate = self.gate(directory.accounts());
            asker.user = gate.claimed(&request.caller, None).unwrap_or_default();
            let login = gate.log_in(&request.caller, is_look(&request.method));
            let checked = login.and_then(|login| {
                asker.log_in(&login);
                login.check(action.right.max(Right::Member))
            });
            if checked.is_err() {
                // Nobody asks again for this request.
                self.attempts.count(&request.caller, false, false);
            }
            checked
        };
        let checked = check();
        checked.map_err(|failure| {
            self.note(request, &asker, failure.status);
            failure.into_reply()
        })
    }

    /// The answer; `asker` is told who asks, once that is known.
    fn try_answer(
        &self,
        request: &Request,
        output: Option<&dyn Output>,
        asker: &mut Asker,
    ) -> Result<Reply, Failure> {
        let path = request.path.strip_prefix("/api").unwrap_or(&request.path);
        let parts = path::parts(path)?;
        let Some((entry, names)) = table::find(&parts) else { return Err(Failure::not_found()) };
        let method = if request.method == "HEAD" { "GET" } else { request.method.as_str() };
        if method == "OPTIONS" {
            return Ok(Reply::empty(200).with("allow", entry.allowed()));
        }
        let Some(action) = entry.action(method) else {
            let reason = format!("{method} is not allowed here, but {}", entry.allowed());
            let mut failure = Failure::new(405, "method_not_allowed", reason);
            failure.headers.push(("allow", entry.allowed()));
            return Err(failure);
        };
        // What was done by others before this request is seen by it.
        self.mirror.catch_up();
        let login = match action.right {
            Right::Nothing => access::nobody(&request.caller),
            right => {
                let directory = self.mirror.directory();
                let gate = self.gate(directory.accounts());
                let body = (right == Right::Password).then_some(&*request.body);
                asker.user = gate.claimed(&request.caller, body).unwrap_or_default();
                let login = match body {
                    Some(body) => gate.log_in_anew(&request.caller, body),
                    None => gate.log_in(&request.caller, is_look(method)),
                };
                // A body that makes no sense is no login.
                let is_in_body =
                    body.is_some() && !login.as_ref().is_err_and(|failure| failure.status == 400);
                let login = login.and_then(|login| {
                    asker.log_in(&login);
                    login.check(right).map(|()| login)
                });
                self.attempts.count(&request.caller, is_in_body, login.is_ok());
                login?
            }
        };
        if !self.broker.service().is_running && !parts.starts_with(&OWN.map(str::to_owned)) {
            return Err(Failure::new(503, "app_stopped", "the broker was stopped by stop_app"));
        }
        let query = Parameters::read(&request.query)?;
        (action.answer)(&Context { api: self, request, login, names, query, output })
    }
}
