//! The session of a connection: AMQP 0-9-1, whose calls the compiler sees through, or any other.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::Instant;

use super::amqp::Amqp;
use super::{
    Answer, Arguments, Asked, Capability, Closing, Delivered, Event, Manner, Operation, Session,
    State, TimeoutOutcome,
};
use crate::refusal::Refusal;
use crate::send_buffer::Parts;

/// What a client speaks.
#[derive(Debug)]
pub(crate) enum Speaker {
    /// AMQP 0-9-1.
    Amqp(Box<Amqp>),
    /// Something else.
    Other(Box<dyn Session>),
}

macro_rules! forward {
    ($($(#[$attribute:meta])* fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {$(
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name(&self $(, $argument: $type)*) $(-> $result)? {
            match self {
                Speaker::Amqp(session) => session.$name($($argument),*),
                Speaker::Other(session) => session.$name($($argument),*),
            }
        }
    )*};
}

macro_rules! forward_mut {
    ($($(#[$attribute:meta])* fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {$(
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name(&mut self $(, $argument: $type)*) $(-> $result)? {
            match self {
                Speaker::Amqp(session) => session.$name($($argument),*),
                Speaker::Other(session) => session.$name($($argument),*),
            }
        }
    )*};
}

impl Speaker {
    #[inline(always)]
    pub(crate) fn receive<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, Event<'a>) {
        match self {
            Speaker::Amqp(session) => session.receive(now, bytes, out),
            Speaker::Other(session) => session.receive(now, bytes, out),
        }
    }

    pub(crate) fn operation<'a>(&self, frame: &'a [u8]) -> Option<(Operation<'a>, Asked)> {
        match self {
            Speaker::Amqp(session) => session.operation(frame),
            Speaker::Other(session) => session.operation(frame),
        }
    }

    /// The largest body that can be sent on in the frames of AMQP in which it came; `None` if none can.
    pub(crate) fn whole_body_bytes_max(&self) -> Option<usize> {
        match self {
            Speaker::Amqp(session) => Some(session.whole_body_bytes_max()),
            Speaker::Other(_) => None,
        }
    }

    /// AMQP 0-9-1, for what is known of its frames only.
    #[inline]
    pub(crate) fn amqp(&mut self) -> Option<&mut Amqp> {
        match self {
            Speaker::Amqp(session) => Some(session),
            Speaker::Other(_) => None,
        }
    }

    forward! {
        fn state(&self) -> State;
        fn answer(&self, channel: u16, answer: &Answer<'_>, out: &mut Vec<u8>);
        fn words(&self, why: Closing<'_>) -> String;
        fn deliver(&self, channel: u16, delivered: &Delivered<'_>, out: &mut Vec<u8>);
        fn deliver_head(&self, channel: u16, delivered: &Delivered<'_>, out: &mut Vec<u8>);
        fn confirm(&self, channel: u16, number: u64, is_taken: bool, several: bool, out: &mut Vec<u8>);
        fn next_timeout(&self) -> Instant;
        fn channel_max(&self) -> u16;
        fn held_bytes(&self) -> usize;
        fn client_properties(&self) -> Arguments<'_>;
        fn manner(&self) -> Manner<'_>;
        fn understands(&self, what: Capability) -> bool;
        fn disconnect_reason(&self) -> &'static str;
    }

    forward_mut! {
        fn logged_in(&mut self, now: Instant, is_let_in: bool, out: &mut Vec<u8>);
        fn opened(&mut self, now: Instant, result: Result<(), &Refusal>, out: &mut Vec<u8>);
        fn channel_opened(&mut self, channel: u16, out: &mut Vec<u8>);
        fn refuse(&mut self, channel: u16, refusal: &Refusal, asked: Asked, out: &mut Vec<u8>) -> bool;
        fn close(&mut self, now: Instant, why: Closing<'_>, out: &mut Vec<u8>);
        fn close_ok(&mut self, now: Instant, out: &mut Vec<u8>);
        fn sent(&mut self, now: Instant);
        fn reading_paused(&mut self, now: Instant, is_paused: bool);
        fn on_timeout(&mut self, now: Instant, out: &mut Vec<u8>) -> TimeoutOutcome;
    }
}

impl Parts for Speaker {
    fn part_bytes_max(&self) -> usize {
        match self {
            Speaker::Amqp(session) => session.part_bytes_max(),
            Speaker::Other(session) => session.part_bytes_max(),
        }
    }

    fn begin_part(&self, channel: u16, bytes: usize, out: &mut Vec<u8>) {
        match self {
            Speaker::Amqp(session) => session.begin_part(channel, bytes, out),
            Speaker::Other(session) => session.begin_part(channel, bytes, out),
        }
    }

    fn part_end(&self) -> &'static [u8] {
        match self {
            Speaker::Amqp(session) => session.part_end(),
            Speaker::Other(session) => session.part_end(),
        }
    }
}
