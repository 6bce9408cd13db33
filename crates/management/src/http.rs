//! The HTTP listener for `/metrics`, `/health` and `/ready`: one thread of low priority that waits for
//! nothing but sockets. Two more ask the shards, one for figures and one whether they answer, each once
//! for all who want to know it meanwhile ([`Shared`]), so that a probe waits for nobody's figures.
//!
//! Connections, waiting for a request and a connection's life are bounded; a new connection finds a
//! place whoever sits on the others. What one asks for at once is answered one by one, everybody else's
//! requests in between.

use crate::exposition::CONTENT_TYPE;
use crate::gzip::{self, Gzip};
use crate::machine;
use crate::metrics;
use crate::metrics::objects::Objects;
use crate::snapshot::Snapshot;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE as CONTENT_TYPE_NAME, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lepus_base::{Crowd, Slab, Ticket};
use shared::Shared;
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, Semaphore};

mod objects;
mod shared;

/// Connections at the same time; for a further one, one without a request gives way.
const CONNECTIONS_MAX: usize = 256;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long a client may take to send the head of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection lives, whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// The same for one that has the spare descriptor: others wait for it.
const SPARE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take none of the bytes that are there for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Threads for answers that block; those that have nothing to do end.
const BLOCKING_THREADS_MAX: usize = 48;
/// Pause after a failed accept, when file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the figures come from. Of each function there is one call at a time.
pub trait Source: Send + Sync + 'static {
    /// Figures of this moment; it may take its time.
    ///
    /// # Errors
    /// Why the broker does not tell them: it stops, or a shard does not answer.
    fn collect(&self) -> Result<Snapshot, String>;

    /// What the process that lives is at, in words: it starts, or its shards answer. It may take the
    /// time that a shard has for an answer.
    ///
    /// # Errors
    /// Why it is of no use to wait for it: a shard does not answer.
    fn health(&self) -> Result<String, String>;

    /// Whether clients are served. Called on the listener's thread: it waits for nothing.
    ///
    /// # Errors
    /// Why they are not; while the broker starts, how far it is.
    fn ready(&self) -> Result<(), String>;

    /// The way to figures of queues, connections and channels one by one. Called on the listener's thread as well.
    ///
    /// # Errors
    /// Why there is none; while the broker starts, how far it is.
    fn objects(&self) -> Result<Objects, String> {
        Err("figures are not told one by one here".to_owned())
    }
}

/// Binds a listener on exactly this address; an IPv6 wildcard serves IPv6 alone.
///
/// # Errors
/// When the address is in use, not local or not permitted.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves `listeners` until the end of the program, on a thread of its own.
///
/// # Errors
/// When the thread or its runtime cannot be started.
pub fn start(listeners: Vec<TcpListener>, source: Arc<dyn Source>) -> std::io::Result<()> {
    let listeners = listeners.into_iter().map(|listener| (listener, None)).collect();
    run("metrics", listeners, router(source)?, REQUEST_TIMEOUT)
}

/// Gives what the next TLS handshake uses; `None` while it is not known yet.
pub type TlsSource = Arc<dyn Fn() -> Option<Arc<rustls::ServerConfig>> + Send + Sync>;

/// A listener, and what its connections' handshakes use; `None` without TLS.
pub type Door = (TcpListener, Option<TlsSource>);

/// Serves `listeners` with a router on a thread of that name. A client has `request_timeout` for the head of a request.
pub(crate) fn run(
    name: &str,
    listeners: Vec<Door>,
    router: Router,
    request_timeout: Duration,
) -> std::io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build()?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
        machine::lower_priority();
        runtime.block_on(serve(listeners, Service { router, request_timeout, tls: None }));
    })?;
    Ok(())
}

/// What answers, and how long it waits for a question.
#[derive(Clone)]
struct Service {
    router: Router,
    request_timeout: Duration,
    tls: Option<TlsSource>,
}

/// Who sent a request: its address, among the request's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Whether it speaks TLS.
    pub(crate) is_secure: bool,
}

/// The page of figures, for all who ask while it holds.
#[derive(Default)]
struct Page {
    plain: Bytes,
    /// The same as gzip, once somebody has wanted that.
    gzip: OnceLock<Bytes>,
}

impl Page {
    /// Made by the first who wants it, on a thread that may block; others wait for that.
    async fn as_gzip(self: Arc<Page>) -> Option<Bytes> {
        if let Some(made) = self.gzip.get() {
            return Some(made.clone());
        }
        let make = move || self.gzip.get_or_init(|| Gzip::whole(&self.plain).into()).clone();
        tokio::task::spawn_blocking(make).await.ok()
    }
}

/// What answers requests.
struct Desk {
    source: Arc<dyn Source>,
    page: Shared<Result<Arc<Page>, String>>,
    health: Shared<Result<String, String>>,
    /// Turns for pages of figures one by one.
    turns: Arc<Semaphore>,
}

/// The paths and what answers them.
fn router(source: Arc<dyn Source>) -> std::io::Result<Router> {
    let (told, lives) = (Arc::clone(&source), Arc::clone(&source));
    let page = Shared::start("figures", move || {
        let page = told.collect().map(|snapshot| Bytes::from(metrics::encode(&snapshot)));
        page.map(|plain| Arc::new(Page { plain, ..Page::default() }))
    })?;
    let health = Shared::start("health", move || lives.health())?;
    let turns = Arc::new(Semaphore::new(objects::PAGES_MAX));
    Ok(Router::new()
        .route("/metrics", get(metrics_page))
        .route("/metrics/per-object", get(objects::per_object))
        .route("/metrics/detailed", get(objects::detailed))
        .route("/health", get(health_page))
        .route("/ready", get(ready))
        .route("/", get(index))
        .with_state(Arc::new(Desk { source, page, health, turns })))
}

async fn index() -> &'static str {
    "lepus: /metrics, /metrics/per-object, /metrics/detailed (Prometheus), /health, /ready\n"
}

async fn metrics_page(State(desk): State<Arc<Desk>>, headers: HeaderMap) -> Response {
    match desk.page.ask().await {
        Some(Ok(page)) if gzip::is_wanted(&headers) && page.plain.len() >= gzip::BYTES_MIN => {
            match page.as_gzip().await {
                Some(page) => figures(page, true),
                None => unavailable("the page could not be made shorter"),
            }
        }
        Some(Ok(page)) => figures(page.plain.clone(), false),
        Some(Err(text)) => unavailable(&text),
        None => unavailable("no figures are collected any more"),
    }
}

/// A page of figures, as gzip or not.
fn figures(page: impl IntoResponse, is_gzip: bool) -> Response {
    let headers = [(CONTENT_TYPE_NAME, CONTENT_TYPE), (VARY, "accept-encoding")];
    let mut response = (headers, page).into_response();
    if is_gzip {
        gzip::mark(response.headers_mut());
    }
    response
}

/// The process lives, and its shards answer once there are any.
async fn health_page(State(desk): State<Arc<Desk>>) -> Response {
    match desk.health.ask().await {
        Some(Ok(text)) => format!("{text}\n").into_response(),
        Some(Err(text)) => unavailable(&text),
        None => unavailable("no shard is asked any more"),
    }
}

/// Clients are served.
async fn ready(State(desk): State<Arc<Desk>>) -> Response {
    match desk.source.ready() {
        Ok(()) => "ready\n".into_response(),
        Err(text) => unavailable(&text),
    }
}

fn unavailable(text: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{text}\n")).into_response()
}

async fn serve(listeners: Vec<Door>, service: Service) {
    let places = Arc::new(Places::default());
    let local = listeners.into_iter().map(|(listener, tls)| {
        let service = Service { tls, ..service.clone() };
        tokio::spawn(accept(listener, service, Arc::clone(&places), Spare::new()))
    });
    for task in local.collect::<Vec<_>>() {
        // A task ends only when its listener cannot be used at all; the others go on.
        let _ = task.await;
    }
}

async fn accept(listener: TcpListener, service: Service, places: Arc<Places>, spare: Spare) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let place = places.enter(peer.ip());
                tokio::spawn(greet(stream, peer, service.clone(), place, None));
                // It says what it wants before another one may take its place.
                tokio::task::yield_now().await;
            }
            Err(_) => match spare.lend() {
                Some(loan) => {
                    let next = tokio::time::timeout(ACCEPT_PAUSE, listener.accept()).await;
                    if let Ok(Ok((stream, peer))) = next {
                        let place = places.enter(peer.ip());
                        greet(stream, peer, service.clone(), place, Some(loan)).await;
                    }
                }
                None => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// A file descriptor that is kept for when there is none left: one connection after the other can be
/// answered with it.
#[derive(Clone)]
struct Spare(Arc<Mutex<Option<File>>>);

impl Spare {
    fn new() -> Spare {
        Spare(Arc::new(Mutex::new(File::open("/dev/null").ok())))
    }

    /// Gives the descriptor free until the loan ends; `None` where there is none.
    fn lend(&self) -> Option<Loan> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() {
            // Another took it when the last loan ended.
            *kept = File::open("/dev/null").ok();
        }
        kept.take().map(|_| Loan(self.clone()))
    }
}

/// The spare descriptor is in use.
struct Loan(Spare);

impl Drop for Loan {
    fn drop(&mut self) {
        let mut kept = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = File::open("/dev/null").ok();
    }
}

/// Serves a connection, behind a TLS handshake where its listener wants one.
async fn greet(
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    service: Service,
    place: Place,
    loan: Option<Loan>,
) {
    let Some(tls) = &service.tls else {
        return connection(stream, peer, service, place, loan).await;
    };
    // Before the broker has read its certificate nobody is served.
    let Some(config) = tls() else { return };
    let limit = if loan.is_some() { SPARE_TIMEOUT } else { REQUEST_TIMEOUT };
    let handshake = tokio_rustls::TlsAcceptor::from(config).accept(stream);
    let given_way = Arc::clone(&place.given_way);
    let greeted = tokio::select! {
        () = given_way.notified() => return,
        greeted = tokio::time::timeout(limit, handshake) => greeted,
    };
    if let Ok(Ok(stream)) = greeted {
        connection(stream, peer, service, place, loan).await;
    }
}

/// Serves a connection; one with a loan says one thing only and has little time for it.
async fn connection<S>(
    stream: S,
    peer: SocketAddr,
    service: Service,
    place: Place,
    loan: Option<Loan>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = tokio_io_timeout::TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let life = if loan.is_some() { SPARE_TIMEOUT } else { CONNECTION_TIMEOUT };
    let place = Arc::new(place);
    let given_way = Arc::clone(&place.given_way);
    let request_timeout = service.request_timeout;
    let peer = Peer { address: peer, is_secure: service.tls.is_some() };
    let router = TowerToHyperService::new(service.router);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        place.set_silent(false);
        request.extensions_mut().insert(peer);
        let (answer, place) = (router.call(request), Arc::clone(&place));
        async move {
            // It may have sent more requests: those of others come in between.
            tokio::task::yield_now().await;
            let answer = answer.await;
            place.set_silent(true);
            answer
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(request_timeout)
        .keep_alive(loan.is_none())
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    // However it ends: a client's broken request is the client's affair.
    tokio::select! {
        () = given_way.notified() => {}
        _ = tokio::time::timeout(life, served) => {}
    }
}

/// The places of all listeners' connections.
#[derive(Default)]
struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    crowd: Crowd<usize>,
    /// What tells a connection that it has given way.
    bells: Slab<Arc<Notify>>,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more; whoever has to gives way.
    fn enter(self: &Arc<Places>, address: IpAddr) -> Place {
        let mut taken = self.taken();
        while taken.crowd.len() >= CONNECTIONS_MAX {
            let key = taken.crowd.give_way();
            if let Some(bell) = key.and_then(|key| taken.bells.get(key)) {
                bell.notify_one();
            }
        }
        let given_way = Arc::new(Notify::new());
        let key = taken.bells.insert(Arc::clone(&given_way));
        let ticket = taken.crowd.enter(address, key);
        Place { places: Arc::clone(self), key, ticket, given_way }
    }
}

/// A connection's place, free again when it is dropped.
struct Place {
    places: Arc<Places>,
    key: usize,
    ticket: Ticket,
    given_way: Arc<Notify>,
}

impl Place {
    /// Whether it waits for a request now.
    fn set_silent(&self, is_silent: bool) {
        self.places.taken().crowd.set_silent(self.ticket, is_silent);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.crowd.leave(self.ticket);
        taken.bells.remove(self.key);
    }
}

#[cfg(test)]
mod tests;
