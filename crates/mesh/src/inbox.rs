//! A lane without bound into one shard, for what is rare: directory changes, orders, connections.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::bell::{Bell, Signal};

/// The sending end; cheap to clone.
#[derive(Debug)]
pub struct Post<T> {
    sender: Sender<T>,
    bell: Arc<Bell>,
    signal: Signal,
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Post<T> {
        Post { sender: self.sender.clone(), bell: Arc::clone(&self.bell), signal: self.signal }
    }
}

impl<T> Post<T> {
    /// Puts an item into the inbox and announces it; the owner is not woken yet.
    ///
    /// # Errors
    /// Gives the item back when the owner is gone.
    pub fn put(&self, item: T) -> Result<(), T> {
        self.sender.send(item).map_err(|refused| refused.0)?;
        self.bell.post(self.signal);
        Ok(())
    }

    /// Wakes the owner if it sleeps; whether it did.
    pub fn ring(&self) -> bool {
        self.bell.ring()
    }

    /// Puts an item into the inbox and wakes the owner if it sleeps.
    ///
    /// # Errors
    /// Gives the item back when the owner is gone.
    pub fn send(&self, item: T) -> Result<(), T> {
        self.put(item)?;
        self.ring();
        Ok(())
    }
}

/// The owner's end.
#[derive(Debug)]
pub struct Inbox<T> {
    receiver: Receiver<T>,
    bell: Arc<Bell>,
    signal: Signal,
}

impl<T> Inbox<T> {
    /// Whether something was announced since the last call; one load when not. After `true` the
    /// caller takes items until there is none.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.bell.take(self.signal)
    }

    /// The oldest item.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

/// An inbox that is announced as `signal` on its owner's bell.
#[must_use]
pub fn inbox<T>(bell: &Arc<Bell>, signal: Signal) -> (Post<T>, Inbox<T>) {
    let (sender, receiver) = channel();
    let post = Post { sender, bell: Arc::clone(bell), signal };
    let inbox = Inbox { receiver, bell: Arc::clone(bell), signal };
    (post, inbox)
}
