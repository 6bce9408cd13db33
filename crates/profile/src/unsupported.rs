//! For systems whose threads cannot be sampled.

use std::ops::Range;
use std::sync::Arc;

use crate::sample::Samples;
use crate::thread::Member;

/// What handlers use.
pub(crate) struct Shared {
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) samples: Samples,
}

/// Never made.
pub(crate) enum Running {}

impl Running {
    pub(crate) fn start(_shared: Shared, _rate: u32) -> Result<Running, String> {
        Err("profiles are taken on Linux, on x86-64 and AArch64".to_owned())
    }

    pub(crate) fn shared(&self) -> &Shared {
        match *self {}
    }

    pub(crate) fn stop(&mut self) {
        match *self {}
    }
}

pub(crate) fn current_thread() -> Option<(u32, Range<u64>)> {
    None
}
