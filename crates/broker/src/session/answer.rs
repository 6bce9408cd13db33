//! What the broker says, whatever the client speaks.

/// What has become of something that was asked for, or what a client has to know. Text borrowed from the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Something was done of which there is nothing to tell.
    Done(Done),
    /// A queue is there.
    QueueDeclared {
        /// Its name.
        queue: &'a str,
        /// Messages that are ready.
        messages: u64,
        /// Its consumers.
        consumers: u32,
    },
    /// So many messages were dropped.
    QueuePurged(u64),
    /// A queue is gone, and so many messages with it.
    QueueDeleted(u64),
    /// A consumer with this tag gets messages from now on.
    Consuming(&'a str),
    /// The consumer with this tag has ended, as its client wanted.
    Cancelled(&'a str),
    /// The broker ends the consumer with this tag.
    ConsumerLost(&'a str),
    /// Publishes wait, for this reason.
    Blocked(&'a str),
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The channel is closed, as its client wanted.
    ChannelClosed,
    /// An exchange is there.
    ExchangeDeclared,
    /// An exchange is gone.
    ExchangeDeleted,
    /// An exchange is bound.
    ExchangeBound,
    /// An exchange is bound no longer.
    ExchangeUnbound,
    /// A queue is bound.
    QueueBound,
    /// A queue is bound no longer.
    QueueUnbound,
    /// The limit counts.
    PrefetchSet,
    /// Nothing was there to be fetched.
    GotNothing,
    /// What was unacknowledged is on its way back.
    Recovered,
    /// Publishes are confirmed.
    ConfirmsSelected,
    /// The channel is transactional.
    TxSelected,
    /// The transaction is committed.
    Committed,
    /// The transaction is rolled back.
    RolledBack,
    /// Deliveries flow.
    Flowing,
    /// Access is granted.
    AccessGranted,
    /// The new secret is taken.
    SecretUpdated,
    /// Publishes wait no longer.
    Unblocked,
}

/// A message on its way to a client.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    /// Why it gets it.
    pub source: Source<'a>,
    /// The exchange's name.
    pub exchange: &'a [u8],
    /// The routing key.
    pub routing_key: &'a [u8],
    /// The properties in the form in which they came.
    pub properties: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

/// Why a client gets a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// It consumes.
    Consumer {
        /// By this tag.
        tag: &'a str,
        /// The delivery's number on the channel.
        number: u64,
        /// Whether it was delivered before.
        redelivered: bool,
    },
    /// It fetched it.
    Get {
        /// The delivery's number on the channel.
        number: u64,
        /// Whether it was delivered before.
        redelivered: bool,
        /// Messages left in the queue.
        remaining: u64,
    },
    /// It published it, and no queue takes it.
    Unroutable,
}
