//! Who asks, and what that one may.

use super::body::Fields;
use super::failure::Failure;
use super::request::{Caller, Client};
use super::sessions::Sessions;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lepus_base::VhostId;
use lepus_broker::directory::{Accounts, LoginFailure, PasswordHash};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// Nothing, not even a login.
    Nothing,
    /// As [`Right::Member`], with name and password in this very request, also in its body.
    Password,
    /// A login with any of the tags.
    Member,
    /// The tag `policymaker`.
    Policymaker,
    /// The tag `monitoring`.
    Monitoring,
    /// The tag `administrator`.
    Administrator,
}

/// Who asks, once that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    /// The user; `None` for the operator, who may do everything.
    pub(crate) user: Option<String>,
    /// The user's password as it was compared, or as it is where a session stands for the user.
    pub(crate) password: Option<PasswordHash>,
    /// The tags.
    pub(crate) tags: Vec<String>,
    /// Where the request came from.
    pub(crate) peer: Option<SocketAddr>,
    /// Which session it is of, if it is of one.
    pub(crate) session: Option<String>,
}

impl Login {
    /// The operator, or nobody in particular where nothing is needed.
    fn of_operator() -> Login {
        let tags = vec!["administrator".to_owned()];
        Login { user: None, password: None, tags, peer: None, session: None }
    }

    /// Whether it came by the control socket.
    pub(crate) fn is_operator(&self) -> bool {
        self.user.is_none() && self.peer.is_none()
    }

    /// The user's name; the operator counts as a user that no client can be.
    pub(crate) fn name(&self) -> &str {
        self.user.as_deref().unwrap_or("rmq-operator")
    }

    fn has(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// Whether everybody's connections and figures may be seen.
    pub(crate) fn is_monitor(&self) -> bool {
        self.has("monitoring") || self.is_administrator()
    }

    pub(crate) fn is_administrator(&self) -> bool {
        self.has("administrator")
    }

    fn is_policymaker(&self) -> bool {
        self.has("policymaker") || self.is_administrator()
    }

    fn is_member(&self) -> bool {
        self.has("management") || self.is_policymaker() || self.is_monitor()
    }

    /// Whether the user has any permission in the virtual host.
    pub(crate) fn may_enter(&self, accounts: &Accounts, vhost: VhostId) -> bool {
        self.user.as_ref().is_none_or(|user| accounts.may_open(user, vhost))
    }

    /// # Errors
    /// 401 where it is not given.
    pub(crate) fn check(&self, right: Right) -> Result<(), Failure> {
        let (is_given, text) = match right {
            Right::Nothing => return Ok(()),
            Right::Password | Right::Member => (true, ""),
            Right::Policymaker => (self.is_policymaker(), "User not authorised to access object"),
            Right::Monitoring => (self.is_monitor(), "Not monitor user"),
            Right::Administrator => (self.is_administrator(), "Not administrator user"),
        };
        if !self.is_member() {
            return Err(Failure::not_authorised("Not management user"));
        }
        if is_given { Ok(()) } else { Err(Failure::not_authorised(text)) }
    }
}

/// The address under which somebody is counted: who has one of version 6 has 2^64 of them.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// Logins that failed, by [`network`], so that guessing is slow and who guesses does not slow others down; and those that
/// were right, which are compared however many others failed.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    failures: Mutex<BTreeMap<IpAddr, Failures>>,
    /// When logins were right last, by their [`Throttle::mark`].
    right: Mutex<BTreeMap<u64, Instant>>,
    /// With a key that nobody else knows.
    marks: RandomState,
}

/// Of one network.
#[derive(Clone, Copy, Debug)]
struct Failures {
    /// Failures that may follow at once.
    left: u32,
    /// When `left` was counted.
    at: Instant,
}

/// Failures of a network that may come at once.
const FREE: u32 = 10;
/// How soon one more may follow then.
const INTERVAL: Duration = Duration::from_secs(1);
/// Networks that are remembered.
const NETWORKS_MAX: usize = 10_000;
/// Right logins that are remembered, and for how long.
const RIGHT_MAX: usize = 10_000;
const RIGHT_FOR: Duration = Duration::from_hours(1);

/// Makes room for one more: what is no longer `needed` goes first, and else what is the oldest.
fn make_room<K: Ord + Copy, V>(
    known: &mut BTreeMap<K, V>,
    most: usize,
    at: impl Fn(&V) -> Instant,
    is_needed: impl Fn(&V) -> bool,
) {
    if known.len() < most {
        return;
    }
    known.retain(|_, value| is_needed(value));
    if known.len() >= most {
        let oldest = known.iter().min_by_key(|(_, value)| at(value)).map(|(key, _)| *key);
        if let Some(oldest) = oldest {
            known.remove(&oldest);
        }
    }
}

impl Throttle {
    /// Whether so many logins from a network failed that the next ones are not looked at, and for how many seconds.
    fn is_closed_to(&self, network: IpAddr, now: Instant) -> Option<u64> {
        let known = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = known.get(&network)?;
        let regained = now.duration_since(failures.at).as_secs() / INTERVAL.as_secs();
        (failures.left == 0 && regained == 0).then_some(INTERVAL.as_secs())
    }

    /// One more login from there failed.
    fn count(&self, network: IpAddr, now: Instant) {
        let mut known = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(&network) {
            // Who has been quiet for long enough to have all back is forgotten first.
            let all_back = INTERVAL * FREE;
            let is_needed = |one: &Failures| now.duration_since(one.at) < all_back;
            make_room(&mut known, NETWORKS_MAX, |one| one.at, is_needed);
        }
        let failures = known.entry(network).or_insert(Failures { left: FREE, at: now });
        let regained = now.duration_since(failures.at).as_secs() / INTERVAL.as_secs();
        let regained = u32::try_from(regained).unwrap_or(FREE);
        failures.left = failures.left.saturating_add(regained).min(FREE).saturating_sub(1);
        failures.at = now;
    }

    /// Stands for a login of a network: who guesses a password has another one.
    fn mark(&self, network: IpAddr, user: &str, password: &str) -> u64 {
        self.marks.hash_one((network, user, password))
    }

    /// Whether a login was right there within [`RIGHT_FOR`].
    fn was_right(&self, mark: u64, now: Instant) -> bool {
        let right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right.get(&mark).is_some_and(|at| now.duration_since(*at) < RIGHT_FOR)
    }

    /// A login was compared, and is right or not.
    fn note(&self, mark: u64, is_right: bool, now: Instant) {
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_right {
            right.remove(&mark);
            return;
        }
        if !right.contains_key(&mark) {
            let is_needed = |at: &Instant| now.duration_since(*at) < RIGHT_FOR;
            make_room(&mut right, RIGHT_MAX, |at| *at, is_needed);
        }
        right.insert(mark, now);
    }
}

/// What a login is compared with.
pub(crate) struct Gate<'a> {
    pub(crate) accounts: &'a Accounts,
    pub(crate) throttle: &'a Throttle,
    pub(crate) sessions: &'a Sessions,
    pub(crate) now: Instant,
}

fn wrong() -> Failure {
    Failure::new(401, "not_authorized", "Not_Authorized")
}

impl Gate<'_> {
    /// Finds out who asks, for something that changes nothing if it `is_look`.
    ///
    /// # Errors
    /// 401 for a login that is missing or wrong, 429 where too many were wrong, 403 where another web site may have
    /// made the browser ask.
    pub(crate) fn log_in(&self, caller: &Caller, is_look: bool) -> Result<Login, Failure> {
        let Caller::Client(client) = caller else { return Ok(Login::of_operator()) };
        if let Some(authorization) = &client.authorization {
            return self.by_password(client, credentials(authorization));
        }
        let session = client.session.as_deref();
        let session = session.and_then(|text| self.sessions.find(text, self.accounts, self.now));
        let Some(session) = session else {
            let mut failure = wrong();
            if !client.is_marked {
                let realm = "Basic realm=\"RabbitMQ Management\"".to_owned();
                failure.headers.push(("www-authenticate", realm));
            }
            return Err(failure);
        };
        if !is_look && !client.is_marked {
            let reason = "what a session changes needs the header X-Lepus-Request";
            return Err(Failure::new(403, "forbidden", reason));
        }
        if self.accounts.authenticate_external(&session.user, client.is_local).is_err() {
            return Err(Failure::not_authorised("User can only log in via localhost"));
        }
        Ok(self.login_of(session.user, client.peer, Some(session.id)))
    }

    /// The same by name and password alone, which the body may have instead of the header.
    ///
    /// # Errors
    /// As with [`Gate::log_in`], and 400 for a body that makes no sense.
    pub(crate) fn log_in_anew(&self, caller: &Caller, body: &[u8]) -> Result<Login, Failure> {
        let Caller::Client(client) = caller else { return Ok(Login::of_operator()) };
        if client.authorization.is_some() {
            return self.log_in(caller, false);
        }
        self.by_password(client, Some(credentials_of_body(body)?))
    }

    fn by_password(
        &self,
        client: &Client,
        credentials: Option<(String, String)>,
    ) -> Result<Login, Failure> {
        let network = network(client.peer.ip());
        let mark = credentials
            .as_ref()
            .map(|(user, password)| self.throttle.mark(network, user, password));
        let was_right = mark.is_some_and(|mark| self.throttle.was_right(mark, self.now));
        if !was_right && let Some(seconds) = self.throttle.is_closed_to(network, self.now) {
            let mut failure = Failure::new(429, "too_many_requests", "too many failed logins");
            failure.headers.push(("retry-after", seconds.to_string()));
            return Err(failure);
        }
        let outcome = credentials.map(|(user, password)| {
            let is_local = client.is_local;
            let outcome = self.accounts.authenticate(&user, password.as_bytes(), is_local);
            (user, outcome)
        });
        if let Some(mark) = mark {
            let is_right = matches!(outcome, Some((_, Ok(()))));
            self.throttle.note(mark, is_right, self.now);
        }
        match outcome {
            Some((user, Ok(()))) => Ok(self.login_of(user, client.peer, None)),
            Some((_, Err(LoginFailure::NotLoopback))) => {
                self.throttle.count(network, self.now);
                Err(Failure::not_authorised("User can only log in via localhost"))
            }
            _ => {
                self.throttle.count(network, self.now);
                Err(wrong())
            }
        }
    }

    fn login_of(&self, user: String, peer: SocketAddr, session: Option<String>) -> Login {
        let known = self.accounts.user(&user);
        let tags = known.map(|user| user.tags.iter().map(ToString::to_string).collect());
        let (password, tags) = (known.map(|user| user.password.clone()), tags.unwrap_or_default());
        Login { user: Some(user), password, tags, peer: Some(peer), session }
    }

    /// Whom a client says to be, by its header or else by the `body` of a login, if there is such a user: what else stands
    /// there may be a password.
    pub(crate) fn claimed(&self, caller: &Caller, body: Option<&[u8]>) -> Option<String> {
        let Caller::Client(client) = caller else { return None };
        let (user, _) = match &client.authorization {
            Some(header) => credentials(header)?,
            None => credentials_of_body(body?).ok()?,
        };
        self.accounts.user(&user).map(|user| user.name.to_string())
    }
}

/// Who asks where no login is needed.
pub(crate) fn nobody(caller: &Caller) -> Login {
    match caller {
        Caller::Operator => Login::of_operator(),
        Caller::Client(client) => {
            Login { peer: Some(client.peer), tags: Vec::new(), ..Login::of_operator() }
        }
    }
}

/// Name and password that the body of a login has.
///
/// # Errors
/// 400 where it has none, or is no JSON object.
fn credentials_of_body(body: &[u8]) -> Result<(String, String), Failure> {
    let fields = Fields::read(body)?;
    let name =
        fields.text("name")?.map_or_else(|| fields.text("username"), |name| Ok(Some(name)))?;
    let credentials = name.zip(fields.text("password")?);
    credentials.ok_or_else(|| Failure::bad_request("name and password are needed"))
}

/// Name and password of a header of the scheme Basic.
fn credentials(header: &str) -> Option<(String, String)> {
    let (scheme, text) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(text.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_beyond_ten_wait_a_second_each() {
        let throttle = Throttle::default();
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let begin = Instant::now();
        for _ in 0..FREE {
            assert_eq!(throttle.is_closed_to(one, begin), None);
            throttle.count(one, begin);
        }
        assert_eq!(throttle.is_closed_to(one, begin), Some(1));
        assert_eq!(throttle.is_closed_to(other, begin), None);
        let later = begin + INTERVAL;
        assert_eq!(throttle.is_closed_to(one, later), None);
        throttle.count(one, later);
        assert_eq!(throttle.is_closed_to(one, later), Some(1));
        // Everything is given back in time.
        let long = later + INTERVAL * 100;
        throttle.count(one, long);
        assert_eq!(throttle.is_closed_to(one, long), None);
    }

    #[test]
    fn networks_are_bounded_and_who_fails_now_is_remembered() {
        let throttle = Throttle::default();
        let begin = Instant::now();
        let guesser = IpAddr::from([0, 0, 0, 1]);
        for number in 0..NETWORKS_MAX as u32 + 10 {
            throttle.count(IpAddr::from((number + 1_000).to_be_bytes()), begin);
            // Its address is the smallest.
            throttle.count(guesser, begin + Duration::from_millis(1));
        }
        assert_eq!(throttle.failures.lock().unwrap().len(), NETWORKS_MAX);
        assert_eq!(throttle.is_closed_to(guesser, begin + Duration::from_millis(1)), Some(1));
    }

    #[test]
    fn addresses_of_version_6_count_together_by_their_first_half() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::2"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("::ffff:10.0.0.1"), network("::ffff:10.0.0.2"));
    }

    #[test]
    fn a_right_login_is_remembered_for_an_hour() {
        let throttle = Throttle::default();
        let (here, now) = (IpAddr::from([10, 0, 0, 1]), Instant::now());
        let mark = throttle.mark(here, "ann", "a");
        assert!(!throttle.was_right(mark, now));
        throttle.note(mark, true, now);
        assert!(throttle.was_right(mark, now + RIGHT_FOR - Duration::from_secs(1)));
        assert!(!throttle.was_right(mark, now + RIGHT_FOR));
        let elsewhere = IpAddr::from([10, 0, 0, 2]);
        for (place, user, password) in
            [(here, "ann", "b"), (here, "bob", "a"), (elsewhere, "ann", "a")]
        {
            assert!(!throttle.was_right(throttle.mark(place, user, password), now));
        }
        throttle.note(mark, false, now);
        assert!(!throttle.was_right(mark, now));
        for number in 0..RIGHT_MAX as u64 + 10 {
            throttle.note(number, true, now);
        }
        assert_eq!(throttle.right.lock().unwrap().len(), RIGHT_MAX);
    }

    #[test]
    fn credentials_are_read_to_the_first_colon() {
        let header = format!("bAsIc {}", STANDARD.encode("user:pass:word"));
        assert_eq!(credentials(&header), Some(("user".to_owned(), "pass:word".to_owned())));
        for broken in ["", "Basic", "Basic *", "Bearer eDp5"] {
            assert_eq!(credentials(broken), None);
        }
    }

    #[test]
    fn a_tag_gives_what_stands_below_it() {
        let login = |tag: &str| Login {
            user: Some("u".to_owned()),
            password: None,
            tags: vec![tag.to_owned()],
            peer: None,
            session: None,
        };
        let rights = [Right::Member, Right::Policymaker, Right::Monitoring, Right::Administrator];
        let given = |tag| rights.map(|right| login(tag).check(right).is_ok());
        assert_eq!(given("administrator"), [true; 4]);
        assert_eq!(given("monitoring"), [true, false, true, false]);
        assert_eq!(given("policymaker"), [true, true, false, false]);
        assert_eq!(given("management"), [true, false, false, false]);
        assert_eq!(given("other"), [false; 4]);
    }
}
