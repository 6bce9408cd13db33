//! The seam between what a client speaks and the broker.
//!
//! A [`Session`] turns the bytes of one connection into [`Event`]s, and what the broker has to say back into bytes. It
//! knows its protocol and nothing of the broker; the broker knows what is asked and nothing of the bytes. It is told by
//! reason, not by code, why something is refused, and chooses its own words.

pub(crate) mod amqp;
mod answer;
mod operation;
mod speaker;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use lepus_base::Instant;

pub use answer::{Answer, Delivered, Done, Source};
pub use lepus_amqp::server::{
    Publish as Incoming, PublishRef as Publish, ServerOptions as AmqpOptions, TimeoutOutcome,
};
pub use lepus_amqp::table::TableRef as Arguments;
pub use operation::{
    Asked, BindExchange, BindQueue, Consume, DeclareExchange, DeclareQueue, Operation,
};
pub(crate) use speaker::Speaker;

use crate::refusal::Refusal;

/// What came in.
#[derive(Debug)]
pub enum Event<'a> {
    /// Nothing to tell. More bytes are needed when none were consumed; otherwise call again.
    None,
    /// The client wants to log in; answer with [`Session::logged_in`].
    Login(Login<'a>),
    /// The client wants a vhost; answer with [`Session::opened`].
    Open {
        /// The vhost's name.
        vhost: &'a str,
    },
    /// The client asks for something on a channel, or, on channel 0, of the connection.
    Operation {
        /// The channel.
        channel: u16,
        /// What it asks for.
        operation: Operation<'a>,
        /// How it is called, should it be refused.
        asked: Asked,
        /// The bytes in which it came, for [`Session::operation`] should it have to wait.
        frame: &'a [u8],
    },
    /// A whole message.
    Publish {
        /// The channel, not 0.
        channel: u16,
        /// The message.
        publish: Incoming<'a>,
    },
    /// A message larger than allowed; its body is skipped as it comes.
    TooLarge {
        /// The channel.
        channel: u16,
        /// Its bytes.
        size: u64,
        /// By what it was to come.
        asked: Asked,
    },
    /// The client closes; answer with [`Session::close_ok`] once all is cleaned up.
    Close,
    /// The client answered the broker's close: drop the socket.
    CloseOk,
    /// The client broke the protocol; answer with [`Session::close`] and [`Closing::Broken`].
    Broken,
    /// Send what is in the buffer and drop the socket, see [`Session::disconnect_reason`].
    Disconnect,
}

/// How a client says who it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Login<'a> {
    /// The mechanism's name, for the log.
    pub mechanism: &'a str,
    /// What it says.
    pub claim: Claim<'a>,
    /// Bytes of the claim as it came: what looking at it costs grows with them.
    pub bytes: usize,
}

impl fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the claim, which may hold a password.
        f.debug_struct("Login").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

/// What a client says about who it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Claim<'a> {
    /// A user with a password.
    Password {
        /// The user's name.
        user: &'a str,
        /// The password as it came.
        password: &'a [u8],
    },
    /// The user whom its certificate names.
    Certificate,
    /// Whoever comes without a name.
    Anonymous,
    /// Nothing that could be read.
    Unreadable,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The client has yet to log in or to open a vhost.
    Entering,
    /// Open.
    Running,
    /// [`Event::Broken`] was given; waits for [`Session::close`].
    Failed,
    /// The client was told that it is closed, and has yet to answer.
    Closing,
    /// [`Event::Close`] was given; waits for [`Session::close_ok`].
    PeerClosing,
    /// The client's close is answered; it ends the socket, or the time is up.
    Leaving,
    /// Nothing more will happen.
    Closed,
}

/// Why the broker closes a connection.
#[derive(Clone, Copy, Debug)]
pub enum Closing<'a> {
    /// The client broke the protocol, as the session knows better.
    Broken,
    /// Something was refused so that the connection cannot go on, or an operator ends it.
    Refused(&'a Refusal, Asked),
}

/// How a client speaks, as its session has agreed with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner<'a> {
    /// The protocol with its version: `AMQP 0-9-1`.
    pub protocol: &'static str,
    /// The mechanism by which it logged in; empty before that.
    pub mechanism: &'a str,
    /// Bytes of the largest frame; 0 for no limit.
    pub frame_max: u32,
    /// Seconds between signs of life; 0 for none.
    pub heartbeat_seconds: u16,
}

/// What a client may understand or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// That it is told when its publishes have to wait.
    Blocked,
    /// That the broker cancels its consumers.
    ConsumerCancelled,
    /// That a transaction is refused as a whole where one of its messages would not be taken. Such a client passes messages on:
    /// its consumers only look in.
    WholeTransactions,
}

/// One client's protocol on one connection. Nothing in it blocks, fails or reads a clock; what is appended goes to the
/// client in order.
pub trait Session: fmt::Debug + Send {
    /// Takes what comes next from `bytes` and tells how many bytes it took. What it has to answer itself, at the
    /// beginning for one, is appended to `out`. It is called again with the rest until it takes nothing; what it does
    /// not take comes again in front of the next bytes.
    ///
    /// What an operation or a publish was taken from may be given once more, before anything else, and has to be told
    /// once more: when the connection goes to another shard for it, or the publish has to wait.
    fn receive<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, Event<'a>);

    /// What was asked for in this frame, which was given before with an [`Event::Operation`].
    fn operation<'a>(&self, frame: &'a [u8]) -> Option<(Operation<'a>, Asked)>;

    /// Where the connection stands.
    fn state(&self) -> State;

    /// The answer to [`Event::Login`].
    fn logged_in(&mut self, now: Instant, is_let_in: bool, out: &mut Vec<u8>);

    /// The answer to [`Event::Open`].
    fn opened(&mut self, now: Instant, result: Result<(), &Refusal>, out: &mut Vec<u8>);

    /// Says on a channel, or on channel 0 of the connection, what has become of something.
    fn answer(&self, channel: u16, answer: &Answer<'_>, out: &mut Vec<u8>);

    /// A channel that the client asked for is open: what comes on it counts.
    fn channel_opened(&mut self, channel: u16, out: &mut Vec<u8>);

    /// Tells that something was refused, which ends the channel; contents that come on it mean nothing any more. True
    /// if this kind of refusal ends the connection instead: then nothing was said.
    fn refuse(&mut self, channel: u16, refusal: &Refusal, asked: Asked, out: &mut Vec<u8>) -> bool;

    /// Closes the connection: from now on everything but the client's own close and its answer is ignored.
    fn close(&mut self, now: Instant, why: Closing<'_>, out: &mut Vec<u8>);

    /// Answers [`Event::Close`].
    fn close_ok(&mut self, now: Instant, out: &mut Vec<u8>);

    /// A refusal in this protocol's words, for the log: of a [`Refusal`] what it displays, never its reply.
    fn words(&self, why: Closing<'_>) -> String;

    /// Appends a message.
    fn deliver(&self, channel: u16, delivered: &Delivered<'_>, out: &mut Vec<u8>);

    /// Appends a message but for its body, of which the parts follow, each behind what
    /// [`Session::begin_part`] appends and before [`Session::part_end`].
    fn deliver_head(&self, channel: u16, delivered: &Delivered<'_>, out: &mut Vec<u8>);

    /// Bytes of a body that fit a part that is not divided any further; the limit for large ones.
    fn part_bytes_max(&self) -> usize;

    /// Appends what goes before a part of a body, of so many bytes.
    fn begin_part(&self, channel: u16, bytes: usize, out: &mut Vec<u8>);

    /// What goes behind a part of a body.
    fn part_end(&self) -> &'static [u8];

    /// Appends that publishes of a channel are taken (all up to this number that were not confirmed before, if there
    /// are `several`), or that one is not.
    fn confirm(&self, channel: u16, number: u64, is_taken: bool, several: bool, out: &mut Vec<u8>);

    /// Bytes went out to the client.
    fn sent(&mut self, now: Instant);

    /// Nothing is read from the client while `is_paused`: its silence does not count.
    fn reading_paused(&mut self, now: Instant, is_paused: bool);

    /// Does what is due; whatever it says is appended.
    fn on_timeout(&mut self, now: Instant, out: &mut Vec<u8>) -> TimeoutOutcome;

    /// When [`Session::on_timeout`] wants to be called. Calling too early does no harm.
    fn next_timeout(&self) -> Instant;

    /// How many channels may be open at once.
    fn channel_max(&self) -> u16;

    /// Bytes that it holds of what is not whole yet.
    fn held_bytes(&self) -> usize;

    /// What the client said about itself, kept for as long as the connection lasts.
    fn client_properties(&self) -> Arguments<'_>;

    /// How the client speaks, for people.
    fn manner(&self) -> Manner<'_>;

    /// Whether the client understands this.
    fn understands(&self, what: Capability) -> bool;

    /// Why [`Event::Disconnect`] was given, for the log.
    fn disconnect_reason(&self) -> &'static str;
}
