//! What clients ask for, whatever they speak.

use super::Arguments;
use crate::queue::Outcome;

/// What a client asks for. Names are as they came; an empty queue name stands for the last one declared on the channel.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Opens the channel.
    OpenChannel,
    /// Closes the channel.
    CloseChannel,
    /// The client's answer to a channel that the broker closed.
    ChannelClosed,
    /// Declares an exchange.
    DeclareExchange(DeclareExchange<'a>),
    /// Deletes an exchange.
    DeleteExchange {
        /// The exchange.
        exchange: &'a str,
        /// Only if nothing is bound to it.
        if_unused: bool,
        /// No answer is wanted.
        no_wait: bool,
    },
    /// Binds an exchange to another one.
    BindExchange(BindExchange<'a>),
    /// Takes such a binding away.
    UnbindExchange(BindExchange<'a>),
    /// Declares a queue.
    DeclareQueue(DeclareQueue<'a>),
    /// Binds a queue to an exchange.
    BindQueue(BindQueue<'a>),
    /// Takes such a binding away.
    UnbindQueue(BindQueue<'a>),
    /// Drops what is ready in a queue.
    PurgeQueue {
        /// The queue.
        queue: &'a str,
        /// No answer is wanted.
        no_wait: bool,
    },
    /// Deletes a queue.
    DeleteQueue {
        /// The queue.
        queue: &'a str,
        /// Only if nobody consumes.
        if_unused: bool,
        /// Only if nothing is in it.
        if_empty: bool,
        /// No answer is wanted.
        no_wait: bool,
    },
    /// Limits what is unacknowledged.
    Prefetch {
        /// The limit in bytes, 0 for none. There is no other.
        bytes: u32,
        /// The limit in messages, 0 for none.
        messages: u32,
        /// Whether it is for all consumers of the channel together, and not for each that comes.
        is_shared: bool,
    },
    /// Consumes from a queue.
    Consume(Consume<'a>),
    /// Ends a consumer.
    Cancel {
        /// Its tag.
        tag: &'a str,
        /// No answer is wanted.
        no_wait: bool,
    },
    /// Fetches one message.
    Get {
        /// The queue.
        queue: &'a str,
        /// It needs no acknowledgement.
        no_ack: bool,
    },
    /// Settles deliveries.
    Settle {
        /// The delivery, by its number on the channel.
        number: u64,
        /// All up to it as well; number 0 stands for all there are.
        several: bool,
        /// What becomes of them.
        outcome: Outcome,
    },
    /// Has everything unacknowledged of the channel delivered again.
    Recover {
        /// To whomever; the broker knows no other way.
        requeue: bool,
        /// An answer is wanted.
        answers: bool,
    },
    /// Publishes of the channel are confirmed from now on.
    SelectConfirms {
        /// No answer is wanted.
        no_wait: bool,
    },
    /// The channel is transactional from now on.
    SelectTx,
    /// Commits the channel's transaction.
    Commit,
    /// Rolls the channel's transaction back.
    Rollback,
    /// Whether deliveries are wanted at all.
    Flow {
        /// They are.
        is_active: bool,
    },
    /// Wants access to a realm, as clients of old did.
    RequestAccess,
    /// Has a new secret for the same user.
    UpdateSecret,
    /// Answers something that needed no answer.
    Nothing,
    /// Nothing that a client asks for here.
    Unknown {
        /// How its protocol calls it.
        name: &'static str,
    },
}

/// Declares an exchange.
#[derive(Clone, Copy, Debug)]
pub struct DeclareExchange<'a> {
    /// The exchange.
    pub exchange: &'a str,
    /// Its type.
    pub kind: &'a str,
    /// Only if it is there: nothing is made, and the rest does not count.
    pub passive: bool,
    /// It outlives a restart.
    pub durable: bool,
    /// It goes with the last of its bindings.
    pub auto_delete: bool,
    /// Clients do not publish to it.
    pub internal: bool,
    /// What else is said of it.
    pub arguments: Arguments<'a>,
    /// No answer is wanted.
    pub no_wait: bool,
}

/// A binding between exchanges.
#[derive(Clone, Copy, Debug)]
pub struct BindExchange<'a> {
    /// Where messages come from.
    pub source: &'a str,
    /// Where they go.
    pub destination: &'a str,
    /// The binding's key.
    pub routing_key: &'a str,
    /// What else decides.
    pub arguments: Arguments<'a>,
    /// No answer is wanted.
    pub no_wait: bool,
}

/// Declares a queue.
#[derive(Clone, Copy, Debug)]
pub struct DeclareQueue<'a> {
    /// The queue; empty for a name of the broker's.
    pub queue: &'a str,
    /// Only if it is there: nothing is made, and the rest does not count.
    pub passive: bool,
    /// It outlives a restart.
    pub durable: bool,
    /// It is this connection's alone, and goes with it.
    pub exclusive: bool,
    /// It goes with the last of its consumers.
    pub auto_delete: bool,
    /// What else is said of it.
    pub arguments: Arguments<'a>,
    /// No answer is wanted.
    pub no_wait: bool,
}

/// A queue's binding.
#[derive(Clone, Copy, Debug)]
pub struct BindQueue<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The exchange.
    pub exchange: &'a str,
    /// The binding's key.
    pub routing_key: &'a str,
    /// What else decides.
    pub arguments: Arguments<'a>,
    /// No answer is wanted.
    pub no_wait: bool,
}

/// A consumer to come.
#[derive(Clone, Copy, Debug)]
pub struct Consume<'a> {
    /// The queue.
    pub queue: &'a str,
    /// Its tag; empty for one of the broker's.
    pub tag: &'a str,
    /// Deliveries need no acknowledgement.
    pub no_ack: bool,
    /// Nobody else consumes.
    pub exclusive: bool,
    /// What else is said of it.
    pub arguments: Arguments<'a>,
    /// No answer is wanted.
    pub no_wait: bool,
}

/// What was asked for when something was refused: some protocols tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    Nothing,
    /// [`Operation::OpenChannel`].
    OpenChannel,
    /// [`Operation::CloseChannel`].
    CloseChannel,
    /// [`Operation::ChannelClosed`].
    ChannelClosed,
    /// [`Operation::Flow`].
    Flow,
    /// [`Operation::RequestAccess`].
    RequestAccess,
    /// [`Operation::DeclareExchange`].
    DeclareExchange,
    /// [`Operation::DeleteExchange`].
    DeleteExchange,
    /// [`Operation::BindExchange`].
    BindExchange,
    /// [`Operation::UnbindExchange`].
    UnbindExchange,
    /// [`Operation::DeclareQueue`].
    DeclareQueue,
    /// [`Operation::BindQueue`].
    BindQueue,
    /// [`Operation::UnbindQueue`].
    UnbindQueue,
    /// [`Operation::PurgeQueue`].
    PurgeQueue,
    /// [`Operation::DeleteQueue`].
    DeleteQueue,
    /// [`Operation::Prefetch`].
    Prefetch,
    /// [`Operation::Consume`].
    Consume,
    /// [`Operation::Cancel`].
    Cancel,
    /// A publish.
    Publish,
    /// [`Operation::Get`].
    Get,
    /// [`Operation::Settle`] with success.
    Ack,
    /// [`Operation::Settle`] without, of several.
    Nack,
    /// [`Operation::Settle`] without, of one.
    Reject,
    /// [`Operation::Recover`] with an answer.
    Recover,
    /// [`Operation::Recover`] without.
    RecoverAsync,
    /// [`Operation::SelectConfirms`].
    SelectConfirms,
    /// [`Operation::SelectTx`].
    SelectTx,
    /// [`Operation::Commit`].
    Commit,
    /// [`Operation::Rollback`].
    Rollback,
    /// Something that only the session knows, by its number there.
    Other(u32),
}
