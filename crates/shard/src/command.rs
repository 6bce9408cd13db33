//! Orders and questions of the control plane, carried out by a shard between two inputs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use lepus_base::{Now, ShardId};
use lepus_mesh::Post;

use crate::core::Core;

type Closure<C> = Box<dyn FnOnce(&mut C, Now, &mut <C as Core>::Outbox) + Send>;
/// Takes the answer to a question to whoever waits for it.
pub(crate) type Waiter<C> = Box<dyn FnOnce(<C as Core>::Answer) + Send>;

/// One command for one shard.
pub(crate) enum Command<C: Core> {
    /// Runs once.
    Order(Closure<C>),
    /// Runs once; the answer comes later through the outbox under this number.
    Question(u64, Closure<C>, Waiter<C>),
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

    /// Has the shard run `order` once, soon. Returns at once.
    ///
    /// # Errors
    /// When the shard is gone (or was never there).
    pub fn send<F>(&self, shard: ShardId, order: F) -> Result<(), Stopped>
    where
        F: FnOnce(&mut C, Now, &mut C::Outbox) + Send + 'static,
    {
        self.put(shard, Command::Order(Box::new(order)))
    }

    /// Has the shard run `ask` and waits for what it returns. Never to be called by a shard.
    ///
    /// # Errors
    /// When the shard is gone.
    pub fn ask<T, F>(&self, shard: ShardId, ask: F) -> Result<T, Stopped>
    where
        T: Send + 'static,
        F: FnOnce(&mut C, Now, &mut C::Outbox) -> T + Send + 'static,
    {
        let (reply, answer) = mpsc::sync_channel(1);
        self.send(shard, move |core, now, out| {
            // Whoever asked may have gone.
            let _ = reply.send(ask(core, now, out));
        })?;
        answer.recv().map_err(|_| Stopped)
    }

    /// Asks all shards at the same time and waits for all: one value per shard, in their order.
    ///
    /// # Errors
    /// When a shard is gone.
    pub fn ask_all<T, F>(&self, ask: F) -> Result<Vec<T>, Stopped>
    where
        T: Send + 'static,
        F: Fn(ShardId, &mut C, Now, &mut C::Outbox) -> T + Clone + Send + 'static,
    {
        let mut answers = Vec::with_capacity(self.posts.len());
        for shard in (0..self.shards()).map(ShardId) {
            let ask = ask.clone();
            let (reply, answer) = mpsc::sync_channel(1);
            self.send(shard, move |core, now, out| {
                let _ = reply.send(ask(shard, core, now, out));
            })?;
            answers.push(answer);
        }
        let received = answers.into_iter().map(|answer| answer.recv());
        received.collect::<Result<_, _>>().map_err(|_| Stopped)
    }

    /// Has the shard run `ask` with a question's number, and gives `waiter` the answer that the
    /// core puts into its outbox under that number, now or later. `waiter` runs on the shard and
    /// must not block; it is dropped unused when the shard stops first.
    ///
    /// # Errors
    /// When the shard is gone.
    pub fn question<F, W>(&self, shard: ShardId, ask: F, waiter: W) -> Result<(), Stopped>
    where
        F: FnOnce(&mut C, Now, u64, &mut C::Outbox) + Send + 'static,
        W: FnOnce(C::Answer) + Send + 'static,
    {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        let ask: Closure<C> = Box::new(move |core, now, out| ask(core, now, number, out));
        self.put(shard, Command::Question(number, ask, Box::new(waiter)))
    }

    /// [`Commands::question`] that waits for the answer. Never to be called by a shard.
    ///
    /// # Errors
    /// When the shard is gone or goes without an answer.
    pub fn question_and_wait<F>(&self, shard: ShardId, ask: F) -> Result<C::Answer, Stopped>
    where
        F: FnOnce(&mut C, Now, u64, &mut C::Outbox) + Send + 'static,
    {
        let (reply, answer) = mpsc::sync_channel(1);
        self.question(shard, ask, move |given| {
            let _ = reply.send(given);
        })?;
        answer.recv().map_err(|_| Stopped)
    }

    fn put(&self, shard: ShardId, command: Command<C>) -> Result<(), Stopped> {
        let post = self.posts.get(shard.index()).ok_or(Stopped)?;
        post.send(command).map_err(|_| Stopped)
    }
}
