//! How much of what the management API is asked is taken down one by one: who repeats something, or fails very often, takes
//! nobody else's entries away. Whatever is left out is counted.

use super::Deed;
use lepus_management::api::network;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// What is counted is counted within this time, and told after it.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// Requests of an address without a right login that are taken down one by one in a window.
const OF_ADDRESS_MAX: u32 = 10;
/// Refused and failed requests of a user that are.
const OF_USER_MAX: u32 = 20;
/// Addresses that are told apart in a window; further ones are limited together.
const ADDRESSES_MAX: usize = 32;
/// Users that are told apart in a window.
const USERS_MAX: usize = 1_000;

/// Who has what is done counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A user whose login is right.
    User(String),
    /// Somebody else, by the address.
    Address(IpAddr),
}

impl Source {
    /// The same for what is counted together.
    fn grouped(self) -> Source {
        match self {
            Source::Address(address) => Source::Address(network(address)),
            user @ Source::User(_) => user,
        }
    }
}

/// What makes two deeds the same: all but the port and the time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    user: String,
    host: String,
    face: &'static str,
    what: String,
    result: String,
}

impl Key {
    fn of(deed: &Deed) -> Key {
        let host = deed.from.rsplit_once(':').map_or(&*deed.from, |(host, _)| host);
        Key {
            user: deed.user.clone(),
            host: host.to_owned(),
            face: deed.face,
            what: deed.what.clone(),
            result: deed.result.clone(),
        }
    }
}

/// A request to be limited.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub(super) deed: Deed,
    /// Whether it was refused or failed.
    pub(super) is_failure: bool,
    /// How many of it there were.
    pub(super) count: u64,
}

/// What a source did in a window.
#[derive(Debug, Default)]
struct Share {
    /// Failures that were taken down.
    taken: u32,
    /// Stands for those that were not.
    rest: Option<Act>,
}

/// The running window.
#[derive(Debug, Default)]
pub(super) struct Limits {
    since: Option<Instant>,
    /// What failed and was taken down, with the number of repeats.
    failed: BTreeMap<Key, Act>,
    /// What each user succeeded in last.
    succeeded: BTreeMap<String, (Key, Act)>,
    /// `None` stands for all addresses or users beyond those that are told apart.
    shares: BTreeMap<(bool, Option<Source>), Share>,
}

impl Limits {
    /// What is to be taken down now that something was done, in this order: counts of what was, and the deed if it is not
    /// one that is counted.
    pub(super) fn admit(
        &mut self,
        source: Source,
        deed: Deed,
        is_failure: bool,
        now: Instant,
    ) -> Vec<Act> {
        let mut told = match self.time_left(now) {
            Some(Duration::ZERO) => self.close(),
            _ => Vec::new(),
        };
        self.since.get_or_insert(now);
        let key = Key::of(&deed);
        let act = Act { deed, is_failure, count: 1 };
        match source.grouped() {
            Source::User(user) if !is_failure => self.succeed(user, key, act, &mut told),
            source => self.fail(source, key, act, &mut told),
        }
        told
    }

    fn succeed(&mut self, user: String, key: Key, act: Act, told: &mut Vec<Act>) {
        if let Some((last, repeats)) = self.succeeded.get_mut(&user) {
            if *last == key {
                count(repeats, act);
                return;
            }
            // Told before what follows: the order of what has changed something says what is now.
            told.extend((repeats.count > 0).then(|| repeats.clone()));
        }
        if self.succeeded.len() < USERS_MAX || self.succeeded.contains_key(&user) {
            self.succeeded.insert(user, (key, Act { count: 0, ..act.clone() }));
        }
        told.push(act);
    }

    fn fail(&mut self, source: Source, key: Key, act: Act, told: &mut Vec<Act>) {
        if let Some(repeats) = self.failed.get_mut(&key) {
            count(repeats, act);
            return;
        }
        let is_user = matches!(source, Source::User(_));
        let (most, sources_max) = match is_user {
            true => (OF_USER_MAX, USERS_MAX),
            false => (OF_ADDRESS_MAX, ADDRESSES_MAX),
        };
        let own = (is_user, Some(source));
        let is_known = self.shares.contains_key(&own);
        let sources = self.shares.keys().filter(|(of_user, _)| *of_user == is_user);
        let place = if is_known || sources.count() < sources_max { own } else { (is_user, None) };
        let share = self.shares.entry(place).or_default();
        if share.taken < most {
            share.taken += 1;
            self.failed.insert(key, Act { count: 0, ..act.clone() });
            told.push(act);
            return;
        }
        match &mut share.rest {
            Some(rest) => count(rest, act),
            None => {
                let mut rest = act;
                "further requests that failed".clone_into(&mut rest.deed.what);
                "not taken down one by one".clone_into(&mut rest.deed.result);
                // Others' names may be among them.
                if !is_user {
                    rest.deed.user.clear();
                }
                share.rest = Some(rest);
            }
        }
    }

    /// Whether something was counted that is to be told.
    pub(super) fn has_counts(&self) -> bool {
        let mut repeats = self.failed.values().chain(self.succeeded.values().map(|(_, act)| act));
        repeats.any(|act| act.count > 0) || self.shares.values().any(|share| share.rest.is_some())
    }

    /// How long the running window lasts; `None` where there is none.
    pub(super) fn time_left(&self, now: Instant) -> Option<Duration> {
        Some(WINDOW.saturating_sub(now.saturating_duration_since(self.since?)))
    }

    /// Ends the window: the counts that are to be told.
    pub(super) fn close(&mut self) -> Vec<Act> {
        let ended = std::mem::take(self);
        let succeeded = ended.succeeded.into_values().map(|(_, act)| act);
        let repeats = succeeded.chain(ended.failed.into_values()).filter(|act| act.count > 0);
        repeats.chain(ended.shares.into_values().filter_map(|share| share.rest)).collect()
    }
}

/// Counts one more; the last one's port is as good as the first one's.
fn count(repeats: &mut Act, act: Act) {
    repeats.count += 1;
    repeats.deed.from = act.deed.from;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(user: &str, from: &str, what: &str, result: u16) -> Deed {
        Deed {
            user: user.to_owned(),
            from: from.to_owned(),
            face: "http",
            what: what.to_owned(),
            result: result.to_string(),
        }
    }

    /// What is to be taken down, as `user what result count`.
    fn texts(acts: &[Act]) -> Vec<String> {
        let text = |act: &Act| {
            let Deed { user, what, result, .. } = &act.deed;
            format!("{user} {what} {result} {}", act.count)
        };
        acts.iter().map(text).collect()
    }

    fn of_user(
        limits: &mut Limits,
        user: &str,
        what: &str,
        result: u16,
        now: Instant,
    ) -> Vec<String> {
        let deed = deed(user, "10.0.0.1:7", what, result);
        let told = limits.admit(Source::User(user.to_owned()), deed, result >= 400, now);
        texts(&told)
    }

    fn of_nobody(
        limits: &mut Limits,
        from: &str,
        claimed: &str,
        what: &str,
        now: Instant,
    ) -> Vec<String> {
        let source = Source::Address(from.parse().unwrap());
        let told = limits.admit(source, deed(claimed, &format!("{from}:7"), what, 401), true, now);
        texts(&told)
    }

    #[test]
    fn repeats_within_a_window_are_one_entry_with_a_count() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        assert_eq!(of_user(&mut limits, "a", "DELETE x", 404, now), ["a DELETE x 404 1"]);
        assert!(!limits.has_counts());
        for port in 0..4_000 {
            let deed = deed("a", &format!("10.0.0.1:{port}"), "DELETE x", 404);
            assert!(limits.admit(Source::User("a".to_owned()), deed, true, now).is_empty());
        }
        assert!(limits.has_counts());
        // Another user, result or address is something else.
        assert_eq!(of_user(&mut limits, "b", "DELETE x", 404, now), ["b DELETE x 404 1"]);
        assert_eq!(of_user(&mut limits, "a", "DELETE x", 204, now), ["a DELETE x 204 1"]);
        assert_eq!(of_nobody(&mut limits, "10.0.0.2", "a", "DELETE x", now), ["a DELETE x 401 1"]);
        let late = now + WINDOW;
        let told = of_user(&mut limits, "a", "DELETE x", 404, late);
        assert_eq!(told, ["a DELETE x 404 4000", "a DELETE x 404 1"]);
        assert!(!limits.has_counts() && limits.close().is_empty());
    }

    #[test]
    fn what_succeeds_is_always_taken_down_and_in_its_order() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        for number in 0..1_000 {
            let what = format!("PUT {number}");
            assert_eq!(of_user(&mut limits, "a", &what, 201, now), [format!("a {what} 201 1")]);
        }
        assert_eq!(of_user(&mut limits, "a", "PUT x", 204, now), ["a PUT x 204 1"]);
        assert!(of_user(&mut limits, "a", "PUT x", 204, now).is_empty());
        assert!(of_user(&mut limits, "a", "PUT x", 204, now).is_empty());
        let told = of_user(&mut limits, "a", "DELETE x", 204, now);
        assert_eq!(told, ["a PUT x 204 2", "a DELETE x 204 1"]);
        assert_eq!(of_user(&mut limits, "a", "PUT x", 204, now), ["a PUT x 204 1"]);
        assert!(limits.close().is_empty());
    }

    #[test]
    fn failures_of_a_user_are_limited_and_the_rest_is_counted() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        let mut told = 0;
        for number in 0..100 {
            told += of_user(&mut limits, "a", &format!("DELETE {number}"), 404, now).len();
        }
        assert_eq!(told, 20);
        assert_eq!(of_user(&mut limits, "b", "DELETE 1", 404, now), ["b DELETE 1 404 1"]);
        assert_eq!(of_user(&mut limits, "a", "PUT x", 201, now), ["a PUT x 201 1"]);
        let rest = "a further requests that failed not taken down one by one 80";
        assert_eq!(texts(&limits.close()), [rest]);
        assert_eq!(of_user(&mut limits, "a", "DELETE 1", 404, now), ["a DELETE 1 404 1"]);
    }

    #[test]
    fn who_guesses_hides_nobody_else() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        let mut told = 0;
        for number in 0..100 {
            told += of_nobody(&mut limits, "10.0.0.1", "a", &format!("GET {number}"), now).len();
        }
        assert_eq!(told, 10);
        // Neither somebody else nor a user from the same place.
        assert_eq!(of_nobody(&mut limits, "10.0.0.2", "a", "GET x", now), ["a GET x 401 1"]);
        assert_eq!(of_user(&mut limits, "a", "GET x", 401, now), ["a GET x 401 1"]);
        // Who has one address of version 6 has very many.
        let mut told = 0;
        for number in 0..100 {
            let from = format!("2001:db8::{number:x}");
            told += of_nobody(&mut limits, &from, "", &format!("GET {number}"), now).len();
        }
        assert_eq!(told, 10);
        let rest = " further requests that failed not taken down one by one 90";
        assert_eq!(texts(&limits.close()), [rest, rest]);
    }

    #[test]
    fn sources_are_bounded() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        for number in 0..10_000_u32 {
            let address = IpAddr::from(number.to_be_bytes());
            of_nobody(&mut limits, &address.to_string(), "", &format!("GET {number}"), now);
            of_user(&mut limits, &format!("user {number}"), "PUT x", 204, now);
            of_user(&mut limits, &format!("user {number}"), "PUT x", 404, now);
        }
        assert_eq!(limits.shares.len(), ADDRESSES_MAX + 1 + USERS_MAX + 1);
        assert_eq!(limits.succeeded.len(), USERS_MAX);
        let taken = limits.failed.len();
        assert_eq!(taken, ADDRESSES_MAX + 10 + USERS_MAX + 20);
    }
}
