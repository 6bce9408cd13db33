//! The management API as RabbitMQ's tools know it: a request in, an answer out. It blocks, and runs on no shard's
//! thread.
//!
//! One table ([`table`]) has all paths with what each needs and who answers it. Names, permissions and bindings come
//! from a copy of the directory ([`mirror`]), which costs the shards nothing; figures are asked of the shards for what
//! is shown. Changes are requests to the directory as anybody's; messages go through AMQP as the user who asks.

mod access;
mod amqp_json;
mod body;
mod client;
mod context;
mod failure;
mod list;
mod mirror;
mod moves;
mod objects;
mod output;
mod path;
mod request;
mod samples;
mod shovel;
mod table;

pub use failure::Failure;
pub use mirror::Mirror;
pub use output::Output;
pub(crate) use path::Parameters;
pub use request::{Caller, Reply, Request};

use crate::snapshot::{Node, Snapshot};
use access::{Right, Throttle};
use context::Context;
use lepus_base::ShardId;
use lepus_broker::directory;
use lepus_broker::refusal::Refusal;
use lepus_broker::{Answer, Query};
use moves::Moves;
use samples::Samples;
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

    /// Lets connections in or not, from now on.
    fn set_service(&self, service: Service);

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

    /// Takes down what was done: every request that may change something, and every login that failed.
    fn note(&self, done: &Done<'_>);

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
    /// Where it came from; `None` for the control socket.
    pub peer: Option<SocketAddr>,
    /// The method.
    pub method: &'a str,
    /// The path as it came.
    pub path: &'a str,
    /// The code of the answer.
    pub status: u16,
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

/// The API of one broker.
pub struct Api {
    broker: Arc<dyn Running>,
    mirror: Arc<Mirror>,
    throttle: Throttle,
    samples: Arc<Samples>,
    shovels: Arc<Shovels>,
    moves: Moves,
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
        let (throttle, moves) = (Throttle::default(), Moves::default());
        Ok(Api { broker, mirror, throttle, samples, shovels, moves })
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
        let mut user = String::new();
        let output = output.filter(|_| request.method != "HEAD");
        let result = self.try_answer(request, output, &mut user);
        let mut reply = result.unwrap_or_else(Failure::into_reply);
        let is_look = matches!(request.method.as_str(), "GET" | "HEAD" | "OPTIONS");
        if !is_look || matches!(reply.status, 401 | 429) {
            let peer = match &request.caller {
                Caller::Client { peer, .. } => Some(*peer),
                Caller::Operator => None,
            };
            let (method, path) = (request.method.as_str(), request.path.as_str());
            let status = reply.status;
            self.broker.note(&Done { user: &user, peer, method, path, status });
        }
        if request.method == "HEAD" {
            reply.body = None;
        }
        reply
    }

    /// Whether a request would be answered as far as that follows from its path and login: asked before its body is read.
    ///
    /// # Errors
    /// The answer that says why not.
    pub fn check(&self, request: &Request) -> Result<(), Reply> {
        let check = || {
            let path = request.path.strip_prefix("/api").unwrap_or(&request.path);
            let parts = path::parts(path)?;
            let (entry, _) = table::find(&parts).ok_or_else(Failure::not_found)?;
            let action = entry.action(&request.method).ok_or_else(Failure::not_found)?;
            let directory = self.mirror.directory();
            let (accounts, now) = (directory.accounts(), Instant::now());
            access::log_in(&request.caller, accounts, &self.throttle, now)?
                .check(action.right.max(Right::Member))
        };
        check().map_err(Failure::into_reply)
    }

    /// The answer; `user` is told who asks, once that is known.
    fn try_answer(
        &self,
        request: &Request,
        output: Option<&dyn Output>,
        user: &mut String,
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
                let accounts = directory.accounts();
                let login =
                    access::log_in(&request.caller, accounts, &self.throttle, Instant::now())?;
                login.name().clone_into(user);
                login.check(right)?;
                login
            }
        };
        if !self.broker.service().is_running && !parts.starts_with(&OWN.map(str::to_owned)) {
            return Err(Failure::new(503, "app_stopped", "the broker was stopped by stop_app"));
        }
        let query = Parameters::read(&request.query)?;
        (action.answer)(&Context { api: self, request, login, names, query, output })
    }
}
