//! Commands that bring a message with them, or take one away.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{Now, Pool, Position};

use super::carry::Carry;
use super::{Command, Owned};
use crate::code::{Decode, Encode};
use crate::entry::{Admission, Enqueued, Entry, Ticket};
use crate::message::Incoming;
use crate::queue::{Queue, Sink};

/// Offers a message that is not to be logged: to a consumer at once where one is ready and nothing waits, else it is
/// kept as the queue's rules say.
#[derive(Debug)]
pub struct Publish<'i, 'm> {
    /// The message.
    pub incoming: &'i mut Incoming<'m>,
}

impl Carry for Publish<'_, '_> {
    type Effects = Enqueued;

    #[inline(always)]
    fn carry_out(self, queue: &mut Queue, now: Now, sink: &mut impl Sink) -> Enqueued {
        queue.enqueue(now, self.incoming, sink)
    }

    fn owned(&self, sink: &mut impl Sink) -> Owned {
        Owned::Publish(Message::of(self.incoming, sink))
    }
}

impl Command for Publish<'_, '_> {}

/// Offers a message that is to be logged before the queue takes it: [`Put`] or [`Withdraw`](super::Withdraw) follows, and
/// nothing else may happen to the queue before.
#[derive(Debug)]
pub struct Admit<'i, 'm> {
    /// The message.
    pub incoming: &'i mut Incoming<'m>,
}

impl Carry for Admit<'_, '_> {
    type Effects = Admission;

    #[inline(always)]
    fn carry_out(self, queue: &mut Queue, now: Now, sink: &mut impl Sink) -> Admission {
        queue.admit(now, self.incoming, sink)
    }

    fn owned(&self, sink: &mut impl Sink) -> Owned {
        Owned::Admit(Message::of(self.incoming, sink))
    }
}

impl Command for Admit<'_, '_> {}

/// Takes a message that was logged after [`Admit`].
#[derive(Debug)]
pub struct Put<'i, 'm> {
    /// What it was given.
    pub ticket: Ticket,
    /// Where it is in the log.
    pub position: Position,
    /// The message.
    pub incoming: &'i mut Incoming<'m>,
}

impl Carry for Put<'_, '_> {
    type Effects = ();

    #[inline(always)]
    fn carry_out(self, queue: &mut Queue, now: Now, sink: &mut impl Sink) {
        queue.put(now, self.ticket, self.position, self.incoming, sink);
    }

    fn owned(&self, sink: &mut impl Sink) -> Owned {
        let Put { ticket, position, ref incoming } = *self;
        Owned::Put(OwnedPut { ticket, position, message: Message::of(incoming, sink) })
    }
}

impl Command for Put<'_, '_> {}

/// Is done with a message that [`TakeHead`](super::TakeHead) took without acknowledgement.
#[derive(Debug)]
pub struct Release {
    /// The message.
    pub entry: Entry,
}

impl Carry for Release {
    type Effects = ();

    #[inline(always)]
    fn carry_out(self, queue: &mut Queue, _: Now, sink: &mut impl Sink) {
        queue.release(self.entry, sink);
    }

    fn owned(&self, _: &mut impl Sink) -> Owned {
        Owned::Release(self.entry.seq)
    }
}

impl Command for Release {}

/// A message that is offered to a queue, without what it borrows.
#[derive(Clone, Debug)]
pub struct Message {
    /// The message as the pool has it.
    pub packed: Box<[u8]>,
    /// Bytes of the payload.
    pub bytes: u32,
    /// As [`Incoming::persistent`].
    pub persistent: bool,
    /// As [`Incoming::priority`].
    pub priority: u8,
    /// As [`Incoming::expiration`].
    pub expiration: Option<Duration>,
    /// As [`Incoming::last`].
    pub last: bool,
}

impl Message {
    fn of(incoming: &Incoming<'_>, sink: &mut impl Sink) -> Message {
        let mut packed = Vec::new();
        match (incoming.stored(), incoming.view()) {
            (Some(body), _) => packed.extend_from_slice(sink.pool().get(body)),
            (None, Some(view)) => drop(view.append_packed(&mut packed)),
            (None, None) => {}
        }
        Message {
            packed: packed.into(),
            bytes: incoming.bytes(),
            persistent: incoming.persistent,
            priority: incoming.priority,
            expiration: incoming.expiration,
            last: incoming.last,
        }
    }

    /// The message to be offered, which has one reference in the pool.
    pub(crate) fn incoming(&self, pool: &mut Pool) -> Incoming<'static> {
        let mut incoming = Incoming::from_body(pool.insert(&[&self.packed]), self.bytes);
        incoming.persistent = self.persistent;
        incoming.priority = self.priority;
        incoming.expiration = self.expiration;
        incoming.last = self.last;
        incoming
    }
}

impl Encode for Message {
    fn put(&self, out: &mut Vec<u8>) {
        let Message { packed, bytes, persistent, priority, expiration, last } = self;
        (packed, bytes, persistent).put(out);
        (priority, expiration, last).put(out);
    }
}

impl Decode for Message {
    fn take(input: &mut &[u8]) -> Option<Message> {
        let (packed, bytes, persistent) = Decode::take(input)?;
        let (priority, expiration, last) = Decode::take(input)?;
        Some(Message { packed, bytes, persistent, priority, expiration, last })
    }
}

/// [`Put`] without what it borrows.
#[derive(Clone, Debug)]
pub struct OwnedPut {
    /// As [`Put::ticket`].
    pub ticket: Ticket,
    /// As [`Put::position`].
    pub position: Position,
    /// The message.
    pub message: Message,
}

impl Encode for OwnedPut {
    fn put(&self, out: &mut Vec<u8>) {
        (&self.ticket, &self.position, &self.message).put(out);
    }
}

impl Decode for OwnedPut {
    fn take(input: &mut &[u8]) -> Option<OwnedPut> {
        let (ticket, position, message) = Decode::take(input)?;
        Some(OwnedPut { ticket, position, message })
    }
}
