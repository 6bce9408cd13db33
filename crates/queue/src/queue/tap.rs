//! Where a queue's commands are written down, if somebody wants that: in builds for tests, and with the feature `record`.
//! Others have nothing of it.

use alloc::sync::Arc;
use core::fmt;

/// Whether this build can write commands down.
pub const CAN_RECORD: bool = cfg!(any(debug_assertions, feature = "record"));

/// Takes down what happens to queues. [`crate::Replay`] reads it again.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// A queue comes into being, as the line says. The result is its name in later calls.
    fn begin(&self, line: &[u8]) -> u64;

    /// A command was carried out: the line has it, with all that was asked of the queue's shard and the answers.
    fn applied(&self, queue: u64, line: &[u8]);

    /// A queue is no more; `digest` is that of its last state.
    fn end(&self, queue: u64, digest: u64);
}

/// Where a queue's commands go, if anywhere.
#[cfg(any(debug_assertions, feature = "record"))]
#[derive(Default)]
pub(crate) struct Tap(Option<alloc::boxed::Box<(Arc<dyn Recorder>, u64)>>);

#[cfg(any(debug_assertions, feature = "record"))]
impl Tap {
    /// The recorder and the queue's name there.
    pub(crate) fn open(&self) -> Option<(&dyn Recorder, u64)> {
        let (recorder, name) = &**self.0.as_ref()?;
        Some((&**recorder, *name))
    }

    /// The queue goes to this recorder from now on.
    pub(crate) fn begin(&mut self, recorder: &Arc<dyn Recorder>, line: &[u8]) {
        let name = recorder.begin(line);
        self.0 = Some(alloc::boxed::Box::new((Arc::clone(recorder), name)));
    }
}

/// Nowhere.
#[cfg(not(any(debug_assertions, feature = "record")))]
#[derive(Default)]
pub(crate) struct Tap;

#[cfg(not(any(debug_assertions, feature = "record")))]
impl Tap {
    /// Nobody listens.
    pub(crate) fn begin(&mut self, _: &Arc<dyn Recorder>, _: &[u8]) {}
}

/// It is no part of a queue's state, which is compared by how it is shown.
impl fmt::Debug for Tap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tap")
    }
}
