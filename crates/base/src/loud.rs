//! What code says that leaves early because something is not there: that this is legal ([`race!`](crate::race!)), or that the
//! broker is broken ([`invariant!`](crate::invariant!)).

/// Something is not there, and that is legal: something else happened meanwhile. The text says what, in a few plain words:
///
/// ```
/// # fn find(_: u32) -> Option<u32> { None }
/// # let mut sent = 0;
/// # let mut send = || {
/// let Some(connection) = find(7) else {
///     return lepus_base::race!("the connection closed before its reply came");
/// };
/// # sent += connection; };
/// # send();
/// ```
///
/// With a value behind the text the whole has that value: `return race!("the queue is gone", false)`.
///
/// Builds for tests, and those with the feature `races`, count how often each place is met
/// ([`races`](crate::races())). In others nothing is left of it but the value.
#[cfg(any(debug_assertions, feature = "races"))]
#[macro_export]
macro_rules! race {
    ($text:literal $(,)?) => {{
        static RACE: $crate::Race = $crate::Race::new($text, ::core::file!(), ::core::line!());
        RACE.meet();
    }};
    ($text:literal, $value:expr $(,)?) => {{
        $crate::race!($text);
        $value
    }};
}

/// Something is not there, and that is legal: something else happened meanwhile. The text says what, in a few plain words.
///
/// With a value behind the text the whole has that value. This build does not count how often each place is met.
#[cfg(not(any(debug_assertions, feature = "races")))]
#[macro_export]
macro_rules! race {
    ($text:literal $(,)?) => {
        ()
    };
    ($text:literal, $value:expr $(,)?) => {
        $value
    };
}

/// What has to hold does not: the broker is broken, and stops, in release builds, too. What it has promised is in the logs,
/// and a start makes it whole again; to go on would make the damage larger. The text says what should have held:
///
/// ```
/// # use lepus_base::invariant;
/// # let queue = Some(1);
/// # let (given, taken) = (2, 1);
/// let Some(queue) = queue else {
///     invariant!("a delivery's queue is at home on its own shard");
/// };
/// invariant!(taken <= given, "no more credit is taken than was given");
/// # let _: i32 = queue;
/// ```
///
/// No peer, no file and no command line may be able to bring this about.
#[macro_export]
macro_rules! invariant {
    ($text:literal $(,)?) => {
        $crate::broken($text)
    };
    ($holds:expr, $text:literal $(,)?) => {
        if !$holds {
            $crate::broken($text);
        }
    };
}

/// Panics because of what [`invariant!`](crate::invariant!) says: out of line, so that its places cost no more than a return.
#[cold]
#[inline(never)]
#[track_caller]
pub fn broken(text: &'static str) -> ! {
    panic!("this should have held: {text}");
}

/// Whether this build counts what [`race!`](crate::race!) names.
pub const COUNTS_RACES: bool = cfg!(any(debug_assertions, feature = "races"));

/// A place where something may legally not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetRace {
    /// File of the place.
    pub file: &'static str,
    /// Its line there.
    pub line: u32,
    /// What has happened meanwhile, in words.
    pub text: &'static str,
    /// How often all threads have met it so far.
    pub times: u64,
}

#[cfg(any(debug_assertions, feature = "races"))]
pub use counted::{Race, races};

/// The places that this process has met, by file and line: none in a build that does not count them.
#[cfg(not(any(debug_assertions, feature = "races")))]
#[must_use]
pub fn races() -> alloc::vec::Vec<MetRace> {
    alloc::vec::Vec::new()
}

#[cfg(any(debug_assertions, feature = "races"))]
mod counted {
    extern crate std;

    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};

    use super::MetRace;

    /// Those that were met.
    static MET: Mutex<Vec<&'static Race>> = Mutex::new(Vec::new());

    /// A place where [`race!`](crate::race!) stands.
    #[derive(Debug)]
    pub struct Race {
        text: &'static str,
        file: &'static str,
        line: u32,
        times: AtomicU64,
    }

    impl Race {
        /// One that nobody has met.
        #[must_use]
        pub const fn new(text: &'static str, file: &'static str, line: u32) -> Race {
            Race { text, file, line, times: AtomicU64::new(0) }
        }

        /// Counts that it is met.
        #[cold]
        pub fn meet(&'static self) {
            if self.times.fetch_add(1, Ordering::Relaxed) == 0 {
                MET.lock().unwrap_or_else(PoisonError::into_inner).push(self);
            }
        }
    }

    /// The places that this process has met, by file and line: none in a build that does not count them.
    #[must_use]
    pub fn races() -> Vec<MetRace> {
        let met = MET.lock().unwrap_or_else(PoisonError::into_inner);
        let tell = |race: &&Race| MetRace {
            file: race.file,
            line: race.line,
            text: race.text,
            times: race.times.load(Ordering::Relaxed),
        };
        let mut races: Vec<MetRace> = met.iter().map(tell).collect();
        races.sort_unstable();
        races
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    extern crate std;

    fn half(value: Option<u32>) -> Option<u32> {
        let Some(value) = value else { return race!("the value is gone", None) };
        Some(value / 2)
    }

    fn count(value: Option<u32>, sum: &mut u32) {
        let Some(value) = value else { return race!("the value went away") };
        *sum += value;
    }

    fn times(text: &str) -> u64 {
        super::races().iter().filter(|race| race.text == text).map(|race| race.times).sum()
    }

    #[test]
    fn a_race_has_the_value_behind_its_text_and_counts() {
        assert_eq!(half(Some(4)), Some(2));
        assert_eq!(times("the value is gone"), 0);
        assert_eq!((half(None), half(None)), (None, None));
        let mut sum = 0;
        count(Some(3), &mut sum);
        count(None, &mut sum);
        assert_eq!(sum, 3);
        if super::COUNTS_RACES {
            assert_eq!(times("the value is gone"), 2);
            assert_eq!(times("the value went away"), 1);
            let met = super::races();
            let race = met.iter().find(|race| race.text == "the value went away").unwrap();
            assert!(race.file.ends_with("loud.rs"));
            assert!(0 < race.line);
        }
    }

    #[test]
    fn a_broken_invariant_panics_and_says_what_should_have_held() {
        let take = |value: Option<u32>, most: u32| {
            let Some(value) = value else { invariant!("there is a value") };
            invariant!(value <= most, "no value is above the most");
            value
        };
        assert_eq!(take(Some(3), 4), 3);
        let text = |panic: std::boxed::Box<dyn core::any::Any + Send>| {
            panic.downcast_ref::<&str>().map(std::string::ToString::to_string).unwrap_or_else(
                || panic.downcast_ref::<std::string::String>().cloned().unwrap_or_default(),
            )
        };
        let broken = catch_unwind(|| take(None, 4)).unwrap_err();
        assert_eq!(text(broken), "this should have held: there is a value");
        let broken = catch_unwind(|| take(Some(5), 4)).unwrap_err();
        assert_eq!(text(broken), "this should have held: no value is above the most");
    }
}
