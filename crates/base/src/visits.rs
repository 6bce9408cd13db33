//! How much of the tables is looked at, counted in debug builds: so a test can tell what something costs by what
//! it does, and not by a clock.

#[cfg(debug_assertions)]
static COUNT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Values that all threads have looked at in slabs and tables of this crate so far; always 0 in a build without
/// debug assertions, which counts nothing.
#[must_use]
pub fn visits() -> u64 {
    #[cfg(debug_assertions)]
    let count = COUNT.load(core::sync::atomic::Ordering::Relaxed);
    #[cfg(not(debug_assertions))]
    let count = 0;
    count
}

/// So many more are looked at.
#[inline]
pub(crate) fn visit(count: usize) {
    #[cfg(debug_assertions)]
    COUNT.fetch_add(count as u64, core::sync::atomic::Ordering::Relaxed);
    #[cfg(not(debug_assertions))]
    let _ = count;
}
