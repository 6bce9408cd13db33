//! An answer on its way to a client: short ones as a whole, long ones in pieces while they are made.
//!
//! A client that reads slowly holds a piece or two, not the whole of a long list, and few long answers are held at a time:
//! what the API takes of memory does not grow with the number of those who ask for everything.

use super::{TURN_TIMEOUT, busy};
use crate::api::{Failure, Output, Reply, network};
use crate::gzip::{self, Gzip};
use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Sleep, sleep};

/// Bytes of an answer that is given as a whole without a place among the long ones, and of a piece of a long one.
const SHORT_BYTES_MAX: usize = 1 << 20;
/// Long answers at a time, until the last bytes are sent; of one address.
const LONG_ANSWERS_MAX: usize = 4;
const LONG_ANSWERS_OF_ADDRESS_MAX: usize = 2;
/// Those that may wait for a place; further ones are refused at once.
const LONG_ANSWERS_WAITING_MAX: usize = 8;
/// How long one may take to be read: then it is cut off. That is 65 MB at half a megabyte a second.
const LONG_ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Pieces that wait for a client to read them.
const PIECES_MAX: usize = 1;

/// The places of long answers.
#[derive(Clone, Debug)]
pub(super) struct LongAnswers {
    places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// The places of each network that has one or waits for one.
    of_address: Arc<Mutex<BTreeMap<IpAddr, Arc<Semaphore>>>>,
}

/// A place among all, and among those of the address.
#[derive(Debug)]
struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_address: OwnedSemaphorePermit,
}

impl LongAnswers {
    /// The places of an address, and of those that count with it.
    fn of(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut known = self.of_address.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody uses are forgotten: whoever has a place or waits holds them, too.
        known.retain(|_, places| Arc::strong_count(places) > 1);
        let places = known
            .entry(network(address))
            .or_insert_with(|| Arc::new(Semaphore::new(LONG_ANSWERS_OF_ADDRESS_MAX)));
        Arc::clone(places)
    }
}

impl Default for LongAnswers {
    fn default() -> LongAnswers {
        LongAnswers {
            places: Arc::new(Semaphore::new(LONG_ANSWERS_MAX)),
            waiting: Arc::new(Semaphore::new(LONG_ANSWERS_WAITING_MAX)),
            of_address: Arc::default(),
        }
    }
}

/// An answer that is being made, on a thread that may block.
pub(super) struct Answer {
    long_answers: LongAnswers,
    address: IpAddr,
    runtime: Handle,
    /// The place among those who are answered; given back before another one is waited for.
    turn: Cell<Option<OwnedSemaphorePermit>>,
    place: Cell<Option<Place>>,
    /// What has been written and not gone yet.
    text: RefCell<Vec<u8>>,
    has_text: Cell<bool>,
    /// Tells whoever writes to the client that the answer comes in pieces.
    start: Cell<Option<oneshot::Sender<Pieces>>>,
    pieces: RefCell<Option<mpsc::Sender<io::Result<Bytes>>>>,
    /// Whether the client reads gzip.
    wants_gzip: bool,
    /// Through which the pieces go then, once there are any.
    gzip: RefCell<Option<Gzip>>,
}

impl Answer {
    /// An answer to somebody at `address` for which the turn has come. Called on the runtime.
    pub(super) fn new(
        long_answers: LongAnswers,
        address: IpAddr,
        turn: OwnedSemaphorePermit,
        start: oneshot::Sender<Pieces>,
        wants_gzip: bool,
    ) -> Answer {
        Answer {
            long_answers,
            address,
            runtime: Handle::current(),
            turn: Cell::new(Some(turn)),
            place: Cell::new(None),
            text: RefCell::default(),
            has_text: Cell::new(false),
            start: Cell::new(Some(start)),
            pieces: RefCell::new(None),
            wants_gzip,
            gzip: RefCell::new(None),
        }
    }

    /// A text as a body, in the form that the client reads if it is not a small one.
    fn body(&self, text: Vec<u8>) -> Pieces {
        let is_gzip = self.wants_gzip && text.len() >= gzip::BYTES_MIN;
        let text = if is_gzip { Gzip::whole(&text) } else { text };
        Pieces { is_gzip, ..Pieces::whole(text, self.place.take()) }
    }

    /// A piece in the form that the client gets; empty where there is nothing to send yet.
    fn piece(&self, text: Vec<u8>) -> Bytes {
        Bytes::from(match &mut *self.gzip.borrow_mut() {
            Some(gzip) => gzip.add(&text),
            None => text,
        })
    }

    /// What is left to be sent once the request is answered: the reply without its body, and the body.
    pub(super) fn end(self, mut reply: Reply) -> (Reply, Option<Pieces>) {
        let text = self.text.take();
        if let Some(pieces) = self.pieces.take() {
            let last = match reply.status {
                200 => {
                    let mut text = Vec::from(self.piece(text));
                    let gzip = self.gzip.take().map(Gzip::end);
                    text.extend_from_slice(&gzip.unwrap_or_default());
                    Ok(Bytes::from(text))
                }
                // It has begun as a good one: the client is not to take it for whole.
                _ => Err(io::Error::other("the answer could not be completed")),
            };
            // Where nobody reads any more there is nobody to tell.
            let _ = pieces.blocking_send(last);
            return (reply, None);
        }
        let text = match reply.body.take() {
            Some(body) => body.to_string().into_bytes(),
            None if self.has_text.get() && reply.status == 200 => text,
            None => return (reply, None),
        };
        if text.len() > SHORT_BYTES_MAX
            && let Err(failure) = self.admit()
        {
            let mut reply = failure.into_reply();
            let text = reply.body.take().map(|body| body.to_string().into_bytes());
            let body = text.map(|text| Pieces::whole(text, None));
            return (reply, body);
        }
        let body = self.body(text);
        (reply, Some(body))
    }
}

impl Output for Answer {
    fn write(&self, mut piece: Vec<u8>) -> Result<(), Failure> {
        self.has_text.set(true);
        let mut text = self.text.borrow_mut();
        if text.is_empty() {
            std::mem::swap(&mut *text, &mut piece);
        } else {
            text.extend_from_slice(&piece);
        }
        if text.len() <= SHORT_BYTES_MAX {
            return Ok(());
        }
        let mut pieces = self.pieces.borrow_mut();
        if pieces.is_none() {
            self.admit()?;
            let (sender, receiver) = mpsc::channel(PIECES_MAX);
            let body = Pieces::coming(receiver, self.place.take());
            let body = Pieces { is_gzip: self.wants_gzip, ..body };
            self.gzip.replace(self.wants_gzip.then(Gzip::new));
            let start = self.start.take().expect("an answer begins once");
            start.send(body).map_err(|_| nobody_reads())?;
            *pieces = Some(sender);
        }
        let sender = pieces.as_ref().expect("it is there now");
        let piece = self.piece(std::mem::take(&mut *text));
        if piece.is_empty() {
            return Ok(());
        }
        sender.blocking_send(Ok(piece)).map_err(|_| nobody_reads())
    }

    fn write_whole(&self, text: Vec<u8>) {
        self.has_text.set(true);
        let before = self.text.replace(text);
        assert!(before.is_empty(), "a whole body stands alone");
    }

    fn admit(&self) -> Result<(), Failure> {
        let held = self.place.take();
        if held.is_some() {
            self.place.set(held);
            return Ok(());
        }
        let waits = Arc::clone(&self.long_answers.waiting).try_acquire_owned();
        let _waits = waits.map_err(|_| busy())?;
        // Short answers are not to wait until long ones are read.
        drop(self.turn.take());
        let (of_all, of_address) =
            (Arc::clone(&self.long_answers.places), self.long_answers.of(self.address));
        let place = async {
            let of_address = of_address.acquire_owned().await?;
            let of_all = of_all.acquire_owned().await?;
            Ok::<_, AcquireError>(Place { _of_all: of_all, _of_address: of_address })
        };
        let place = async { tokio::time::timeout(TURN_TIMEOUT, place).await };
        let place = self.runtime.block_on(place).ok().and_then(Result::ok).ok_or_else(busy)?;
        self.place.set(Some(place));
        Ok(())
    }
}

fn nobody_reads() -> Failure {
    Failure::unavailable("nobody reads the answer")
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Pieces {
    whole: Bytes,
    receiver: Option<mpsc::Receiver<io::Result<Bytes>>>,
    /// Kept until the last bytes are on their way.
    place: Option<Place>,
    /// When it is cut off; only where it has a place that others wait for.
    until: Option<Pin<Box<Sleep>>>,
    /// Whether it is in this form.
    is_gzip: bool,
}

impl Pieces {
    /// Whether the client has to be told that it is gzip.
    pub(super) fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    fn whole(text: Vec<u8>, place: Option<Place>) -> Pieces {
        let until = place.is_some().then(|| Box::pin(sleep(LONG_ANSWER_TIMEOUT)));
        Pieces { whole: Bytes::from(text), receiver: None, place, until, is_gzip: false }
    }

    fn coming(receiver: mpsc::Receiver<io::Result<Bytes>>, place: Option<Place>) -> Pieces {
        Pieces { receiver: Some(receiver), ..Pieces::whole(Vec::new(), place) }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(until) = &mut self.until
            && until.as_mut().poll(context).is_ready()
        {
            // The client sees that it is not whole.
            (self.whole, self.receiver, self.place, self.until) = (Bytes::new(), None, None, None);
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        if !self.whole.is_empty() {
            // Not all at once: the place is kept until nearly all has gone.
            let length = self.whole.len().min(SHORT_BYTES_MAX);
            return Poll::Ready(Some(Ok(Frame::data(self.whole.split_to(length)))));
        }
        match &mut self.receiver {
            None => Poll::Ready(None),
            Some(receiver) => {
                receiver.poll_recv(context).map(|got| got.map(|got| got.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_empty() && self.receiver.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.receiver {
            None => SizeHint::with_exact(self.whole.len() as u64),
            Some(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MIB: usize = 1 << 20;

    /// Lets `make` make an answer to 10.0.0.`last` on a thread that blocks, and hands over its pieces once there are any.
    async fn made(
        long_answers: &LongAnswers,
        last: u8,
        make: impl FnOnce(&Answer) -> Reply + Send + 'static,
    ) -> (tokio::task::JoinHandle<(Reply, Option<Pieces>)>, oneshot::Receiver<Pieces>) {
        made_as(long_answers, last, false, make).await
    }

    /// The same, in the form of gzip or not.
    async fn made_as(
        long_answers: &LongAnswers,
        last: u8,
        is_gzip: bool,
        make: impl FnOnce(&Answer) -> Reply + Send + 'static,
    ) -> (tokio::task::JoinHandle<(Reply, Option<Pieces>)>, oneshot::Receiver<Pieces>) {
        let turn = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let (start, started) = oneshot::channel();
        let address = IpAddr::from([10, 0, 0, last]);
        let answer = Answer::new(long_answers.clone(), address, turn, start, is_gzip);
        let making = tokio::task::spawn_blocking(move || {
            let reply = make(&answer);
            answer.end(reply)
        });
        (making, started)
    }

    async fn bytes(pieces: Pieces) -> Result<Bytes, axum::Error> {
        axum::body::to_bytes(axum::body::Body::new(pieces), usize::MAX).await
    }

    #[tokio::test]
    async fn short_answers_come_as_a_whole() {
        let long_answers = LongAnswers::default();
        let (making, started) = made(&long_answers, 1, |answer| {
            answer.write(b"[1".to_vec()).unwrap();
            answer.write(b",2]".to_vec()).unwrap();
            Reply::empty(200)
        })
        .await;
        let (reply, body) = making.await.unwrap();
        assert!(started.await.is_err());
        let body = body.unwrap();
        assert_eq!((reply.status, body.size_hint().exact()), (200, Some(5)));
        assert_eq!(bytes(body).await.unwrap(), "[1,2]");
        // One without a body has none, and a value becomes text.
        let (making, _) = made(&long_answers, 1, |_| Reply::done()).await;
        assert!(making.await.unwrap().1.is_none());
        let (making, _) = made(&long_answers, 1, |_| Reply::json(json!({"a": 1}))).await;
        assert_eq!(bytes(making.await.unwrap().1.unwrap()).await.unwrap(), "{\"a\":1}");
    }

    #[tokio::test]
    async fn long_answers_come_in_pieces_while_they_are_made() {
        let long_answers = LongAnswers::default();
        let (making, started) = made(&long_answers, 1, |answer| {
            (0..10).for_each(|_| answer.write(vec![b'x'; MIB]).unwrap());
            answer.write(b"end".to_vec()).unwrap();
            Reply::empty(200)
        })
        .await;
        let pieces = started.await.unwrap();
        // It is not done before it is read.
        assert!(!making.is_finished());
        assert_eq!(long_answers.places.available_permits(), LONG_ANSWERS_MAX - 1);
        let body = bytes(pieces).await.unwrap();
        assert_eq!(body.len(), 10 * MIB + 3);
        assert!(body.ends_with(b"end"));
        assert!(making.await.unwrap().1.is_none());
        assert_eq!(long_answers.places.available_permits(), LONG_ANSWERS_MAX);
    }

    fn unzipped(bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut text).unwrap();
        text
    }

    #[tokio::test]
    async fn answers_for_who_reads_gzip_are_shorter() {
        let long_answers = LongAnswers::default();
        // Small ones stay as they are.
        for (length, expected) in [(gzip::BYTES_MIN - 1, false), (gzip::BYTES_MIN, true)] {
            let (making, _) = made_as(&long_answers, 1, true, move |answer| {
                answer.write(vec![b'x'; length]).unwrap();
                Reply::empty(200)
            })
            .await;
            let body = making.await.unwrap().1.unwrap();
            assert_eq!((body.is_gzip(), body.size_hint().exact().is_some()), (expected, true));
            let body = bytes(body).await.unwrap();
            let text = if expected { unzipped(&body) } else { body.to_vec() };
            assert_eq!(text, vec![b'x'; length]);
        }
        // One that has no body has no form.
        let (making, _) = made_as(&long_answers, 1, true, |_| Reply::empty(304)).await;
        assert!(making.await.unwrap().1.is_none());
        // Long ones go through it while they are made, and keep their place until they are read.
        let (making, started) = made_as(&long_answers, 1, true, |answer| {
            let mut noise = 1_u64;
            for _ in 0..10 {
                let mut random = || {
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (noise >> 33) as u8
                };
                answer.write((0..MIB).map(|_| random()).collect()).unwrap();
            }
            answer.write(b"end".to_vec()).unwrap();
            Reply::empty(200)
        })
        .await;
        let pieces = started.await.unwrap();
        assert!(pieces.is_gzip() && !making.is_finished());
        assert_eq!(long_answers.places.available_permits(), LONG_ANSWERS_MAX - 1);
        let text = unzipped(&bytes(pieces).await.unwrap());
        assert!(text.len() == 10 * MIB + 3 && text.ends_with(b"end"));
        assert!(making.await.unwrap().1.is_none());
        assert_eq!(long_answers.places.available_permits(), LONG_ANSWERS_MAX);
    }

    #[tokio::test]
    async fn an_answer_that_fails_on_the_way_is_not_taken_for_whole() {
        for is_gzip in [false, true] {
            let (making, started) = made_as(&LongAnswers::default(), 1, is_gzip, |answer| {
                (0..3).for_each(|_| answer.write(vec![b'x'; MIB]).unwrap());
                Failure::unavailable("a shard does not answer").into_reply()
            })
            .await;
            assert!(bytes(started.await.unwrap()).await.is_err());
            assert!(making.await.unwrap().1.is_none());
        }
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_ends() {
        let (making, started) = made(&LongAnswers::default(), 1, |answer| {
            let written = (0..10).try_for_each(|_| answer.write(vec![b'x'; MIB]));
            written.unwrap_err().into_reply()
        })
        .await;
        drop(started.await.unwrap());
        assert_eq!(making.await.unwrap().0.status, 503);
    }

    fn long(answer: &Answer) -> Reply {
        match answer.admit() {
            Ok(()) => {
                answer.write_whole(vec![b'x'; 2 * MIB]);
                Reply::empty(200)
            }
            Err(failure) => failure.into_reply(),
        }
    }

    async fn until_waiting(long_answers: &LongAnswers) {
        while long_answers.waiting.available_permits() == LONG_ANSWERS_WAITING_MAX {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn long_answers_are_few_at_a_time() {
        let long_answers = LongAnswers::default();
        let mut held = Vec::new();
        for at in 0..LONG_ANSWERS_MAX {
            let (making, _) = made(&long_answers, at as u8, long).await;
            held.push(making.await.unwrap().1.unwrap());
        }
        // A further one waits for a place; it gets that of one that is sent.
        let (waiting, _) = made(&long_answers, 100, long).await;
        until_waiting(&long_answers).await;
        assert!(!waiting.is_finished());
        held.pop();
        let body = waiting.await.unwrap().1.unwrap();
        assert_eq!(bytes(body).await.unwrap().len(), 2 * MIB);
        // Where too many wait already it is refused at once, though a place is free.
        let all = long_answers.waiting.clone().acquire_many_owned(LONG_ANSWERS_WAITING_MAX as u32);
        let _all = all.await.unwrap();
        let (refused, _) = made(&long_answers, 101, long).await;
        assert_eq!(refused.await.unwrap().0.status, 503);
    }

    #[tokio::test]
    async fn one_address_leaves_places_to_others() {
        let long_answers = LongAnswers::default();
        let mut held = Vec::new();
        for _ in 0..LONG_ANSWERS_OF_ADDRESS_MAX {
            let (making, _) = made(&long_answers, 1, long).await;
            held.push(making.await.unwrap().1.unwrap());
        }
        let (waiting, _) = made(&long_answers, 1, long).await;
        until_waiting(&long_answers).await;
        let (other, _) = made(&long_answers, 2, long).await;
        assert_eq!(bytes(other.await.unwrap().1.unwrap()).await.unwrap().len(), 2 * MIB);
        assert!(!waiting.is_finished());
        held.clear();
        waiting.await.unwrap().1.unwrap();
        drop(long_answers.of(IpAddr::from([10, 0, 0, 9])));
        assert_eq!(long_answers.of_address.lock().unwrap().len(), 1);
    }
}
