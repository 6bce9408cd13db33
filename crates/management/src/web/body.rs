//! Bodies of requests: read as they come, all of them together within a bound.

use super::TURN_TIMEOUT;
use axum::body::Body;
use hyper::body::Body as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a client may take to send a body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a body that count nothing.
const SMALL_BYTES_MAX: usize = 1 << 20;

/// A body that was read, and what it counts until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Taken<'a> {
    bytes: Vec<u8>,
    counted: Option<SemaphorePermit<'a>>,
    counted_kib: usize,
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    TooLarge,
    /// It did not come in time, or whole.
    TooLate,
    /// Others have too much.
    Busy,
}

/// Reads a body of `most` bytes at most. `room` has a permit for each KiB of all larger bodies: one counts what has come of
/// it, whatever it says that will come, so that who sends slowly keeps little from others.
///
/// # Errors
/// Why not.
pub(super) async fn read(body: Body, most: usize, room: &Semaphore) -> Result<Taken<'_>, NotTaken> {
    let reading = read_all(body, most, room);
    tokio::time::timeout(BODY_TIMEOUT, reading).await.unwrap_or(Err(NotTaken::TooLate))
}

async fn read_all(mut body: Body, most: usize, room: &Semaphore) -> Result<Taken<'_>, NotTaken> {
    let mut taken = Taken::default();
    loop {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let Some(frame) = frame else { return Ok(taken) };
        let Ok(data) = frame.map_err(|_| NotTaken::TooLate)?.into_data() else { continue };
        if taken.bytes.len() + data.len() > most {
            return Err(NotTaken::TooLarge);
        }
        taken.bytes.extend_from_slice(&data);
        if taken.bytes.len() > SMALL_BYTES_MAX {
            taken.count(room).await?;
        }
    }
}

impl<'a> Taken<'a> {
    /// The bytes; what they count stays counted.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Counts what has come, in steps of [`SMALL_BYTES_MAX`].
    async fn count(&mut self, room: &'a Semaphore) -> Result<(), NotTaken> {
        let needed_kib = self.bytes.len().next_multiple_of(SMALL_BYTES_MAX) / 1024;
        if needed_kib <= self.counted_kib {
            return Ok(());
        }
        let more = u32::try_from(needed_kib - self.counted_kib).unwrap_or(u32::MAX);
        let more = tokio::time::timeout(TURN_TIMEOUT, room.acquire_many(more)).await;
        let more = more.ok().and_then(Result::ok).ok_or(NotTaken::Busy)?;
        match &mut self.counted {
            Some(counted) => counted.merge(more),
            None => self.counted = Some(more),
        }
        self.counted_kib = needed_kib;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn larger_bodies_count_what_has_come_of_them() {
        let room = Semaphore::new(4 * 1024);
        let body = |bytes: usize| Body::from(vec![b'x'; bytes]);
        let small = read(body(MIB), 2 * MIB, &room).await.unwrap();
        assert_eq!((small.bytes.len(), room.available_permits()), (MIB, 4 * 1024));
        let large = read(body(2 * MIB + 1), 8 * MIB, &room).await.unwrap();
        assert_eq!((large.bytes.len(), room.available_permits()), (2 * MIB + 1, 1024));
        drop(large);
        assert_eq!(room.available_permits(), 4 * 1024);
        let refused = read(body(2 * MIB + 1), 2 * MIB, &room).await;
        assert_eq!(refused.map(|_| ()), Err(NotTaken::TooLarge));
        assert_eq!(room.available_permits(), 4 * 1024);
    }

    #[tokio::test]
    async fn what_was_counted_is_given_back_where_a_body_is_refused() {
        let room = Semaphore::new(2 * 1024);
        // Nobody gives room any more.
        room.close();
        let refused = read(Body::from(vec![b'x'; 2 * MIB]), 8 * MIB, &room).await;
        assert_eq!(refused.map(|_| ()), Err(NotTaken::Busy));
        assert_eq!(room.available_permits(), 2 * 1024);
    }
}
