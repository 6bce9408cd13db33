//! A copy of the directory beside those of the shards, so that names, permissions and bindings cost no shard anything.
//!
//! It is fed by the changes that all shards apply, in their order. They are applied when somebody looks, and on a thread
//! when very many wait: a shard that makes a change wakes nobody for it.

use lepus_broker::directory::{Change, Directory};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::Thread;

/// Changes that wait before the thread is woken, each time.
const WAITING_MAX: usize = 4096;

/// What both sides share.
struct Shared {
    directory: RwLock<Directory>,
    /// Changes that are to be applied, in their order.
    waiting: Mutex<Vec<Arc<Change>>>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Change>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies what waits.
    fn catch_up(&self) {
        if self.waiting().is_empty() {
            return;
        }
        let mut directory = self.directory.write().unwrap_or_else(PoisonError::into_inner);
        // Taken while the directory is held: nobody applies later ones before these.
        let waiting = std::mem::take(&mut *self.waiting());
        for change in waiting {
            // What follows from it for connections and messages is the shards' affair.
            let _ = directory.apply(&change);
        }
    }
}

/// The copy.
pub struct Mirror {
    shared: Arc<Shared>,
    thread: Thread,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").finish_non_exhaustive()
    }
}

impl Mirror {
    /// A copy of `directory`, to be told by [`Mirror::follow`] every change that is made after it.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start(directory: Directory) -> io::Result<Mirror> {
        let directory = RwLock::new(directory);
        let shared = Arc::new(Shared { directory, waiting: Mutex::default() });
        let own = Arc::clone(&shared);
        let name = "directory-copy".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // Not of low priority: what waits here grows with every change, and it costs less to apply one than to make
            // it. So it never falls behind for long, however busy the cores are.
            let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
            loop {
                own.catch_up();
                std::thread::park();
            }
        })?;
        Ok(Mirror { shared, thread: thread.thread().clone() })
    }

    /// Takes the next change. It waits for nobody but who takes what waits, which is a moment.
    pub fn follow(&self, change: &Arc<Change>) {
        let count = {
            let mut waiting = self.shared.waiting();
            waiting.push(Arc::clone(change));
            waiting.len()
        };
        if count.is_multiple_of(WAITING_MAX) {
            self.thread.unpark();
        }
    }

    /// Applies every change that was told before this call.
    pub fn catch_up(&self) {
        self.shared.catch_up();
    }

    /// An administrator who may enter a virtual host.
    ///
    /// # Errors
    /// In words, where there is none.
    pub fn administrator_in(&self, vhost: &str) -> Result<String, String> {
        self.catch_up();
        let directory = self.directory();
        let id = directory.vhost(vhost).ok_or_else(|| format!("there is no vhost '{vhost}'"))?;
        let accounts = directory.accounts();
        let is_one = |name: &str| accounts.may_open(name, id);
        let mut users = accounts.users();
        let found = users.find(|user| user.has_tag("administrator") && is_one(&user.name));
        found.map(|user| user.name.to_string()).ok_or_else(|| {
            format!(
                "no administrator has permissions in vhost '{vhost}', and messages are handled in the name of a user: \
                 give one some"
            )
        })
    }

    /// The directory as it was at the last [`Mirror::catch_up`] or later. A thread that holds it must not ask for it
    /// again, nor catch up.
    pub fn directory(&self) -> RwLockReadGuard<'_, Directory> {
        self.shared.directory.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_base::HashState;

    /// Whoever catches up sees all that was told before, however many threads do so.
    #[test]
    fn what_was_told_is_seen_in_its_order() {
        let mut origin = Directory::new(HashState::new(1), 1);
        let mirror = Mirror::start(origin.clone()).unwrap();
        for change in Directory::preset("guest", b"guest", [0; 4], "/") {
            origin.apply(&change);
            mirror.follow(&Arc::new(change));
        }
        assert_eq!(mirror.directory().version(), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| mirror.catch_up());
            }
        });
        mirror.catch_up();
        assert_eq!(mirror.directory().version(), origin.version());
        assert!(mirror.directory().user("guest").is_some());
    }

    #[test]
    fn many_changes_do_not_wait_for_somebody_to_look() {
        let mirror = Mirror::start(Directory::new(HashState::new(1), 1)).unwrap();
        let change = Arc::new(Change::IdsUsed { vhosts: 1, queues: 1 });
        // The thread may take some as it starts, and is then not woken before as many wait again.
        for _ in 0..2 * WAITING_MAX {
            mirror.follow(&change);
        }
        while mirror.directory().version() < WAITING_MAX as u64 {
            std::thread::yield_now();
        }
    }
}
