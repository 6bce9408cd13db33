//! Pages of figures one by one: collected by one thread, and given away as fast as the client takes them.

use super::{Desk, figures, unavailable};
use crate::gzip::{self, Gzip};
use crate::metrics::objects::{self, Objects, Rows, Wish};
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Pages that are made at the same time, each with its rows in memory.
pub(super) const PAGES_MAX: usize = 2;
/// How long one waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take for the next part.
const PART_TIMEOUT: Duration = Duration::from_secs(10);
/// Parts that wait for the client.
const PARTS_MAX: usize = 2;

/// A body that comes in parts. One that breaks off is no whole page: the client is told by a broken connection.
struct Parts(mpsc::Receiver<Option<Bytes>>);

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.get_mut().0.poll_recv(context).map(|part| match part {
            Some(Some(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(None) => None,
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}

/// `/metrics/per-object`
pub(super) async fn per_object(State(desk): State<Arc<Desk>>, headers: HeaderMap) -> Response {
    page(&desk, Wish::PerObject, gzip::is_wanted(&headers)).await
}

/// `/metrics/detailed`
pub(super) async fn detailed(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    match Wish::read(&query.unwrap_or_default()) {
        Ok(wish) => page(&desk, wish, gzip::is_wanted(&headers)).await,
        Err(text) => (StatusCode::BAD_REQUEST, format!("{text}\n")).into_response(),
    }
}

async fn page(desk: &Desk, wish: Wish, is_gzip: bool) -> Response {
    let objects = match desk.source.objects() {
        Ok(objects) => objects,
        Err(text) => return unavailable(&text),
    };
    let turn = timeout(TURN_TIMEOUT, Arc::clone(&desk.turns).acquire_owned()).await;
    let Ok(Ok(turn)) = turn else {
        return unavailable("others are being told the same; ask again");
    };
    let (begun, begins) = oneshot::channel();
    let (sender, parts) = mpsc::channel(PARTS_MAX);
    tokio::task::spawn_blocking(move || {
        let gzip = is_gzip.then(Gzip::new);
        make(&objects, &wish, begun, &sender, gzip);
        drop(turn);
    });
    match begins.await {
        Ok(Ok(())) => figures(Body::new(Parts(parts)), is_gzip),
        Ok(Err(text)) => unavailable(&text),
        Err(_) => unavailable("no figures are collected any more"),
    }
}

/// Collects the rows, says whether it could, and gives the page away, through `gzip` if there is one.
fn make(
    objects: &Objects,
    wish: &Wish,
    begun: oneshot::Sender<Result<(), String>>,
    sender: &mpsc::Sender<Option<Bytes>>,
    mut gzip: Option<Gzip>,
) {
    let rows: Rows = match objects.collect(wish) {
        Ok(rows) => rows,
        Err(text) => {
            // Who asked may be gone.
            let _ = begun.send(Err(text));
            return;
        }
    };
    if begun.send(Ok(())).is_err() {
        return;
    }
    let runtime = Handle::current();
    let give = |part: Option<Bytes>| {
        matches!(runtime.block_on(timeout(PART_TIMEOUT, sender.send(part))), Ok(Ok(())))
    };
    let mut is_whole = true;
    objects::write(wish, &rows, &objects.mirror, |text| {
        let part = match &mut gzip {
            Some(gzip) => Bytes::from(gzip.add(text.as_bytes())),
            None => text.into(),
        };
        is_whole = part.is_empty() || give(Some(part));
        is_whole
    });
    let rest = gzip.map(|gzip| Bytes::from(gzip.end()));
    if is_whole && rest.is_none_or(|rest| give(Some(rest))) {
        give(None);
    }
}
