//! Questions and orders of the control plane, carried out by a shard between two inputs.
//!
//! What reaches a core is a value ([`Core::Query`]). The closure that takes the answer away is the shard's and
//! never sees the core.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use lepus_base::ShardId;
use lepus_mesh::Post;

use crate::core::Core;

/// Takes the answer to a question to whoever waits for it.
pub(crate) type Waiter<C> = Box<dyn FnOnce(<C as Core>::Answer) + Send>;

/// Bytes of a block that no allocator serves from what others gave back to it.
const FRESH_BYTES: usize = 16 << 10;

/// One command for one shard.
pub(crate) enum Command<C: Core> {
    /// For the core, under a number; the answer is given to whoever waits for it.
    Query(u64, C::Query, Option<Waiter<C>>),
    /// Where the shard's memory is; the core is not asked.
    Locate(mpsc::SyncSender<[u64; 3]>),
}

/// Addresses in the memory of the calling thread: those of `core`, of what it allocates now and of its stack.
pub(crate) fn locate<C>(core: &C) -> [u64; 3] {
    let fresh = vec![0_u8; FRESH_BYTES];
    let on_stack = 0_u8;
    [std::ptr::from_ref(core) as u64, fresh.as_ptr() as u64, std::ptr::from_ref(&on_stack) as u64]
}

/// The shards have stopped or are about to; the command was not or will not be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the broker has stopped")
    }
}

impl std::error::Error for Stopped {}

/// Why there is no answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The shard is gone, or went before it answered.
    Stopped(ShardId),
    /// None came for so long. What was asked for may still be carried out.
    TooLate(ShardId, Duration),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::Stopped(shard) => {
                write!(f, "shard {} does not answer: {Stopped}", shard.0)
            }
            Unanswered::TooLate(shard, limit) => {
                write!(f, "shard {} does not answer within {limit:?}", shard.0)
            }
        }
    }
}

impl std::error::Error for Unanswered {}

/// Waits for what a shard answers, for so long at most.
fn receive<T>(
    shard: ShardId,
    answer: &mpsc::Receiver<T>,
    limit: Duration,
) -> Result<T, Unanswered> {
    answer.recv_timeout(limit).map_err(|error| match error {
        mpsc::RecvTimeoutError::Disconnected => Unanswered::Stopped(shard),
        mpsc::RecvTimeoutError::Timeout => Unanswered::TooLate(shard, limit),
    })
}

/// Sends commands to shards. Cheap to clone, usable from any thread.
pub struct Commands<C: Core> {
    posts: Arc<[Post<Command<C>>]>,
    questions: Arc<AtomicU64>,
}

impl<C: Core> Clone for Commands<C> {
    fn clone(&self) -> Commands<C> {
        Commands { posts: Arc::clone(&self.posts), questions: Arc::clone(&self.questions) }
    }
}

impl<C: Core> fmt::Debug for Commands<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").finish_non_exhaustive()
    }
}

impl<C: Core> Commands<C> {
    pub(crate) fn new(posts: Vec<Post<Command<C>>>) -> Commands<C> {
        Commands { posts: posts.into(), questions: Arc::new(AtomicU64::new(1)) }
    }

    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.posts.len() as u16
    }

    /// Gives the shard an order, whose answer nobody waits for. Returns at once.
    ///
    /// # Errors
    /// When the shard is gone (or was never there).
    pub fn send(&self, shard: ShardId, query: C::Query) -> Result<(), Stopped> {
        self.put(shard, Command::Query(self.number(), query, None))
    }

    /// Asks the shard and gives `waiter` the answer, when there is one. Returns at once. `waiter` runs on the
    /// shard's thread and must not block; it is dropped unused when the shard stops first.
    ///
    /// # Errors
    /// When the shard is gone.
    pub fn ask<W>(&self, shard: ShardId, query: C::Query, waiter: W) -> Result<(), Stopped>
    where
        W: FnOnce(C::Answer) + Send + 'static,
    {
        self.put(shard, Command::Query(self.number(), query, Some(Box::new(waiter))))
    }

    /// The same, with the answer in a channel, which is closed when the shard stops before it answers.
    ///
    /// # Errors
    /// When the shard is gone.
    pub fn begin(
        &self,
        shard: ShardId,
        query: C::Query,
    ) -> Result<mpsc::Receiver<C::Answer>, Stopped> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.ask(shard, query, move |given| {
            // Whoever asked may have gone.
            let _ = reply.try_send(given);
        })?;
        Ok(answer)
    }

    /// Asks the shard and waits for the answer, for so long at most. Never to be called by a shard.
    ///
    /// # Errors
    /// When the shard is gone or goes without an answer, or the answer does not come in time.
    pub fn wait(
        &self,
        shard: ShardId,
        query: C::Query,
        limit: Duration,
    ) -> Result<C::Answer, Unanswered> {
        let answer = self.begin(shard, query).map_err(|Stopped| Unanswered::Stopped(shard))?;
        receive(shard, &answer, limit)
    }

    /// Asks all shards at the same time and waits for all, for each so long at most: one answer per shard, in their
    /// order. Never to be called by a shard.
    ///
    /// # Errors
    /// As with [`Commands::wait`], for the first shard that does not answer.
    pub fn wait_all(&self, query: &C::Query, limit: Duration) -> Result<Vec<C::Answer>, Unanswered>
    where
        C::Query: Clone,
    {
        let begin = |shard| {
            let answer = self.begin(shard, query.clone());
            answer.map(|answer| (shard, answer)).map_err(|Stopped| Unanswered::Stopped(shard))
        };
        let answers = (0..self.shards()).map(ShardId).map(begin).collect::<Result<Vec<_>, _>>()?;
        answers.into_iter().map(|(shard, answer)| receive(shard, &answer, limit)).collect()
    }

    /// Asks a shard for addresses in its memory: of its core, of what it allocates now and of its stack.
    ///
    /// # Errors
    /// When the shard is gone.
    pub fn locate(&self, shard: ShardId) -> Result<mpsc::Receiver<[u64; 3]>, Stopped> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.put(shard, Command::Locate(reply))?;
        Ok(answer)
    }

    fn number(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::Relaxed)
    }

    fn put(&self, shard: ShardId, command: Command<C>) -> Result<(), Stopped> {
        let post = self.posts.get(shard.index()).ok_or(Stopped)?;
        post.send(command).map_err(|_| Stopped)
    }
}
