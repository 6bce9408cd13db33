//! An answer that takes long, made by a thread of its own for all who ask meanwhile.

use crate::machine;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How many times as long as it took to make an answer it is given to others who ask.
const REST_FACTOR: u32 = 20;
/// How long it is at most.
const HOLDS_MAX: Duration = Duration::from_secs(1);

/// What was made last, and until when it is given.
struct Made<T> {
    value: T,
    until: Instant,
}

/// An answer for all who ask while it is made, and for a moment after that. Who asks never waits
/// behind more than the answer that is being made and the next one.
pub(super) struct Shared<T> {
    /// One wish is enough for all who wait.
    wishes: SyncSender<()>,
    made: watch::Receiver<Option<Made<T>>>,
}

impl<T: Clone + Send + Sync + 'static> Shared<T> {
    /// Answers made by `make`, on a thread of this name and of low priority.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn start(
        name: &str,
        make: impl Fn() -> T + Send + 'static,
    ) -> std::io::Result<Shared<T>> {
        let (wishes, taken) = sync_channel(1);
        let (sender, made) = watch::channel(None);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
            machine::lower_priority();
            answer_all(&taken, &sender, make);
        })?;
        Ok(Shared { wishes, made })
    }

    /// The answer; `None` when nobody makes it any more.
    pub(super) async fn ask(&self) -> Option<T> {
        let mut made = self.made.clone();
        if let Some(last) = &*made.borrow_and_update()
            && Instant::now() < last.until
        {
            return Some(last.value.clone());
        }
        // A full channel has a wish that comes after this moment.
        let _ = self.wishes.try_send(());
        made.changed().await.ok()?;
        made.borrow().as_ref().map(|last| last.value.clone())
    }
}

fn answer_all<T>(
    wishes: &Receiver<()>,
    sender: &watch::Sender<Option<Made<T>>>,
    make: impl Fn() -> T,
) {
    for () in wishes {
        let begun = Instant::now();
        // Whoever wished found an older one: it has heard of this.
        if sender.borrow().as_ref().is_some_and(|last| begun < last.until) {
            continue;
        }
        let value = make();
        let ended = Instant::now();
        let holds_for = ((ended - begun) * REST_FACTOR).min(HOLDS_MAX);
        sender.send_replace(Some(Made { value, until: ended + holds_for }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn all_who_ask_meanwhile_get_the_same_answer() {
        let (tell, told) = channel();
        let (begun, begins) = channel();
        let count = AtomicUsize::new(0);
        let shared = Shared::start("shared", move || {
            begun.send(()).unwrap();
            told.recv().unwrap();
            count.fetch_add(1, Ordering::Relaxed) + 1
        })
        .unwrap();
        let mut asking: Vec<_> = (0..300).map(|_| Box::pin(shared.ask())).collect();
        let mut context = Context::from_waker(Waker::noop());
        for ask in &mut asking {
            assert_eq!(ask.as_mut().poll(&mut context), Poll::Pending);
        }
        begins.recv().unwrap();
        tell.send(()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for ask in asking {
            assert_eq!(runtime.block_on(ask), Some(1));
        }
        // The wish that one of them left behind.
        let _ = tell.send(());
    }

    #[test]
    fn an_answer_is_given_as_long_as_it_holds() {
        let (sender, made) = watch::channel(None);
        let (wishes, taken) = sync_channel(1);
        let shared = Shared { wishes, made };
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |shared: &Shared<u32>| Box::pin(shared.ask()).as_mut().poll(&mut context);
        let now = Instant::now();
        sender.send_replace(Some(Made { value: 1, until: now + Duration::from_hours(1) }));
        assert_eq!(poll(&shared), Poll::Ready(Some(1)));
        assert!(taken.try_recv().is_err());
        sender.send_replace(Some(Made { value: 2, until: now }));
        assert_eq!(poll(&shared), Poll::Pending);
        assert!(taken.try_recv().is_ok());
    }
}
