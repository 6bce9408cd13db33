//! The HTTP listener for `/metrics`, `/health` and `/ready`: one thread of low priority that asks the
//! shards and can never stall one. Connections, waiting for a request and a connection's life are
//! bounded.

use crate::exposition::CONTENT_TYPE;
use crate::machine;
use crate::metrics::{self, Snapshot};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE as CONTENT_TYPE_NAME;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Connections that are served at the same time; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection lives, whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause after a failed accept, when file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the figures come from. Called on the listener's thread, one call at a time.
pub trait Source: Send + Sync + 'static {
    /// Figures of this moment.
    ///
    /// # Errors
    /// Why the broker does not tell them: it stops, or a shard does not answer.
    fn collect(&self) -> Result<Snapshot, String>;

    /// Whether clients are served.
    ///
    /// # Errors
    /// Why they are not.
    fn ready(&self) -> Result<(), String>;
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
    socket.listen(128)?;
    Ok(socket.into())
}

/// Serves `listeners` until the end of the program, on a thread of its own.
///
/// # Errors
/// When the thread or its runtime cannot be started.
pub fn start(listeners: Vec<TcpListener>, source: Arc<dyn Source>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("management".to_owned());
    thread.spawn(move || {
        let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
        machine::lower_priority();
        runtime.block_on(serve(listeners, router(source)));
    })?;
    Ok(())
}

/// The paths and what answers them.
fn router(source: Arc<dyn Source>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/", get(index))
        .with_state(source)
}

async fn index() -> &'static str {
    "lepus: /metrics (Prometheus), /health, /ready\n"
}

async fn metrics_page(State(source): State<Arc<dyn Source>>) -> Response {
    match source.collect() {
        Ok(snapshot) => {
            let page = metrics::encode(&snapshot);
            ([(CONTENT_TYPE_NAME, CONTENT_TYPE)], page).into_response()
        }
        Err(text) => unavailable(&text),
    }
}

/// The process lives and its shards answer.
async fn health(State(source): State<Arc<dyn Source>>) -> Response {
    match source.collect() {
        Ok(_) => "ok\n".into_response(),
        Err(text) => unavailable(&text),
    }
}

/// Clients are served.
async fn ready(State(source): State<Arc<dyn Source>>) -> Response {
    match source.ready() {
        Ok(()) => "ready\n".into_response(),
        Err(text) => unavailable(&text),
    }
}

fn unavailable(text: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{text}\n")).into_response()
}

async fn serve(listeners: Vec<TcpListener>, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let local = listeners
        .into_iter()
        .map(|listener| tokio::spawn(accept(listener, router.clone(), Arc::clone(&places))));
    for task in local.collect::<Vec<_>>() {
        // A task ends only when its listener cannot be used at all; the others go on.
        let _ = task.await;
    }
}

async fn accept(listener: TcpListener, router: Router, places: Arc<Semaphore>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection(stream, router.clone());
                tokio::spawn(async move {
                    // Either way the connection is over; there is nobody to tell.
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A client's broken request is the client's affair.
    let _ = served.await;
}
