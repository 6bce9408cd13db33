//! Pages of figures one by one: collected by one thread, and given away as fast as the client takes them.

use super::{Desk, unavailable};
use crate::exposition::CONTENT_TYPE;
use crate::metrics::objects::{self, Objects, Rows, Wish};
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE as CONTENT_TYPE_NAME;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
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
pub(super) async fn per_object(State(desk): State<Arc<Desk>>) -> Response {
    page(&desk, Wish::PerObject).await
}

/// `/metrics/detailed`
pub(super) async fn detailed(State(desk): State<Arc<Desk>>, RawQuery(query): RawQuery) -> Response {
    match Wish::read(&query.unwrap_or_default()) {
        Ok(wish) => page(&desk, wish).await,
        Err(text) => (StatusCode::BAD_REQUEST, format!("{text}\n")).into_response(),
    }
}

async fn page(desk: &Desk, wish: Wish) -> Response {
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
    tokio::task::spawn_blocking(move || make(&objects, &wish, begun, &sender, turn));
    match begins.await {
        Ok(Ok(())) => {
            ([(CONTENT_TYPE_NAME, CONTENT_TYPE)], Body::new(Parts(parts))).into_response()
        }
        Ok(Err(text)) => unavailable(&text),
        Err(_) => unavailable("no figures are collected any more"),
    }
}

/// Collects the rows, says whether it could, and gives the page away. The turn ends with it.
fn make(
    objects: &Objects,
    wish: &Wish,
    begun: oneshot::Sender<Result<(), String>>,
    sender: &mpsc::Sender<Option<Bytes>>,
    turn: OwnedSemaphorePermit,
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
        is_whole = give(Some(text.into()));
        is_whole
    });
    if is_whole {
        give(None);
    }
    drop(turn);
}
