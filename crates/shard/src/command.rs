//! Questions and orders of the control plane, carried out by a shard between two inputs.
//!
//! What reaches a core is a value ([`Core::Query`]). The closure that takes the answer away is the shard's and
//! never sees the core.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

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

    /// Asks the shard and waits for the answer. Never to be called by a shard.
    ///
    /// # Errors
    /// When the shard is gone or goes without an answer.
    pub fn wait(&self, shard: ShardId, query: C::Query) -> Result<C::Answer, Stopped> {
        self.begin(shard, query)?.recv().map_err(|_| Stopped)
    }

    /// Asks all shards at the same time and waits for all: one answer per shard, in their order. Never to be
    /// called by a shard.
    ///
    /// # Errors
    /// When a shard is gone.
    pub fn wait_all(&self, query: &C::Query) -> Result<Vec<C::Answer>, Stopped>
    where
        C::Query: Clone,
    {
        let begin = |shard| self.begin(ShardId(shard), query.clone());
        let answers = (0..self.shards()).map(begin).collect::<Result<Vec<_>, _>>()?;
        answers.into_iter().map(|answer| answer.recv().map_err(|_| Stopped)).collect()
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
