//! A copy of the directory beside those of the shards, so that names, permissions and bindings cost no shard anything.
//!
//! Bindings' filters are there by their texts alone: nobody routes messages by it.
//!
//! It is fed by the changes that all shards apply, in their order. They are applied when somebody looks, and on a thread
//! when very many wait: a shard that makes a change wakes nobody for it, and waits for nobody's lock, which a thread of low
//! priority might hold for long.

use lepus_broker::directory::{Change, Directory};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread::Thread;

/// Changes that wait before the thread is woken, each time.
const WAITING_MAX: usize = 4096;

/// The same of changes that carry filters, which may take a megabyte each.
const FILTERS_WAITING_MAX: usize = 32;

/// Told the name of each user who is deleted.
type OnDeletedUser = dyn Fn(&str) + Send + Sync;

/// What both sides share.
struct Shared {
    directory: RwLock<Directory>,
    /// Changes that are to be applied, in their order.
    waiting: Mutex<Receiver<Arc<Change>>>,
    /// How many these are; counted before they are there.
    count: AtomicUsize,
    /// How many changes with filters there were so far.
    filters: AtomicUsize,
    on_deleted_user: OnceLock<Box<OnDeletedUser>>,
}

impl Shared {
    /// Applies what waits.
    fn catch_up(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        // Held until what waits is applied: nobody applies later changes before these.
        let mut directory = self.directory.write().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Not those that come meanwhile, or it might never end.
        for _ in 0..self.count.load(Ordering::Acquire) {
            let Ok(change) = waiting.try_recv() else { break };
            self.count.fetch_sub(1, Ordering::AcqRel);
            // What follows from it for connections and messages is the shards' affair.
            let _ = directory.apply(&change);
            if let (Change::UserDeleted { name }, Some(tell)) =
                (&*change, self.on_deleted_user.get())
            {
                tell(name);
            }
        }
    }
}

/// The copy.
pub struct Mirror {
    shared: Arc<Shared>,
    changes: Sender<Arc<Change>>,
    thread: Thread,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").finish_non_exhaustive()
    }
}

impl Mirror {
    /// A copy of `directory`, but for what filters of bindings say, to be told by [`Mirror::follow`] every change that is made after it.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start(directory: Directory) -> io::Result<Mirror> {
        let directory = RwLock::new(directory.without_filters());
        let (changes, waiting) = mpsc::channel();
        let (waiting, count) = (Mutex::new(waiting), AtomicUsize::new(0));
        let filters = AtomicUsize::new(0);
        let on_deleted_user = OnceLock::new();
        let shared = Arc::new(Shared { directory, waiting, count, filters, on_deleted_user });
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
        Ok(Mirror { shared, changes, thread: thread.thread().clone() })
    }

    /// Has `tell` called with the name of each user whose deletion is applied from now on, in whatever way it came about:
    /// before anybody sees the directory without the user. It runs while the directory is held, so it must not ask for it.
    ///
    /// # Panics
    /// When it is called twice.
    pub(crate) fn tell_deleted_users(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        let is_first = self.shared.on_deleted_user.set(Box::new(tell)).is_ok();
        assert!(is_first, "deleted users are told to one");
    }

    /// Takes the next change. It waits for nobody.
    pub fn follow(&self, change: &Arc<Change>) {
        let count = self.shared.count.fetch_add(1, Ordering::AcqRel) + 1;
        let sent = self.changes.send(Arc::clone(change));
        assert!(sent.is_ok(), "the other end lives as long as this one");
        let has_large = change.carries_filter()
            && (self.shared.filters.fetch_add(1, Ordering::Relaxed) + 1)
                .is_multiple_of(FILTERS_WAITING_MAX);
        if has_large || count.is_multiple_of(WAITING_MAX) {
            self.thread.unpark();
        }
    }

    /// Sets who may log in from this machine only, from now on.
    pub fn set_loopback_users(&self, names: Vec<String>) {
        let names = names.into_iter().map(String::into_boxed_str).collect();
        let mut directory = self.shared.directory.write().unwrap_or_else(PoisonError::into_inner);
        directory.accounts_mut().set_loopback_users(names);
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
    use lepus_amqp::table::Table;
    use lepus_base::HashState;
    use lepus_broker::binding::Destination;
    use lepus_broker::directory::{Checked, Request};

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

    /// Whoever was deleted and made again within one look has still gone in between.
    #[test]
    fn a_user_who_is_deleted_and_made_again_is_told() {
        let mut origin = Directory::new(HashState::new(1), 1);
        let preset = Directory::preset("guest", b"guest", [0; 4], "/");
        for change in &preset {
            origin.apply(change);
        }
        let mirror = Mirror::start(origin).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let own = Arc::clone(&told);
        mirror.tell_deleted_users(move |name| own.lock().unwrap().push(name.to_owned()));
        mirror.follow(&Arc::new(Change::UserDeleted { name: "guest".into() }));
        for change in preset {
            mirror.follow(&Arc::new(change));
        }
        mirror.catch_up();
        assert!(mirror.directory().user("guest").is_some());
        assert_eq!(*told.lock().unwrap(), ["guest"]);
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

    /// Nobody asks them here, and their memory is in no budget.
    #[test]
    fn filters_of_bindings_are_not_kept_but_known() {
        let mut origin = Directory::new(HashState::new(1), 1);
        for change in Directory::preset("guest", b"guest", [0; 4], "/") {
            origin.apply(&change);
        }
        let vhost = origin.vhost("/").unwrap();
        let bind = |number: usize| Request::Bind {
            vhost: vhost.into(),
            source: "amq.fanout".to_owned(),
            destination: Destination::Exchange("amq.topic".into()),
            routing_key: String::new(),
            arguments: Table::new().with("x-filter", format!("a = {number}").as_str()),
            connection: None,
        };
        let made = |origin: &mut Directory, number| match origin.check(&bind(number)) {
            Ok(Checked::Change(change)) => {
                origin.apply(&change);
                Arc::new(change)
            }
            other => panic!("{other:?}"),
        };
        for number in 0..500 {
            made(&mut origin, number);
        }
        let mirror = Mirror::start(origin.clone()).unwrap();
        for number in 500..1000 {
            mirror.follow(&made(&mut origin, number));
        }
        mirror.catch_up();
        let copy = mirror.directory();
        assert_eq!(copy.binding_count(), 1000);
        assert_eq!(copy.filtered_exchanges(&[vhost]).len(), 1);
        assert_eq!(copy.filter_figures(vhost, "amq.fanout"), None);
        let of_filters = origin.filter_figures(vhost, "amq.fanout").unwrap().bytes as usize;
        assert!(of_filters > 1000 * 150, "{of_filters} bytes");
        assert_eq!(copy.bytes(), origin.bytes() - of_filters);
    }
}
