//! Sessions: who has logged in once goes on with a secret that the browser keeps in a cookie.
//!
//! Only a hash of the secret is kept, and in memory only. A session ends after [`LIFE`], or when it was not used for
//! [`IDLE`]; with the user, and with the user's password.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lepus_broker::directory::{Accounts, PasswordHash};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// How long a session lasts.
pub(crate) const LIFE: Duration = Duration::from_secs(8 * 3600);
/// How long it lasts without being used.
pub(crate) const IDLE: Duration = Duration::from_secs(30 * 60);
/// Sessions of one user; with one more the oldest ends.
const OF_USER_MAX: usize = 20;
/// Sessions of all users.
const SESSIONS_MAX: usize = 1_000;

/// The sessions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Vec<Session>>);

/// One of them, as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionInfo {
    /// What it is called in lists; it opens nothing.
    pub(crate) id: String,
    pub(crate) user: String,
    /// Where its login came from.
    pub(crate) peer: SocketAddr,
    pub(crate) begun: Instant,
    pub(crate) used: Instant,
}

struct Session {
    info: SessionInfo,
    /// Of the secret.
    hash: [u8; 32],
    /// The user's password when it began.
    password: PasswordHash,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.info.fmt(f)
    }
}

impl Session {
    /// Whether it has not ended by itself, nor with its user.
    fn lives(&self, accounts: &Accounts, now: Instant) -> bool {
        let is_young = now.duration_since(self.info.begun) < LIFE;
        let is_used = now.duration_since(self.info.used) < IDLE;
        let user = accounts.user(&self.info.user);
        is_young && is_used && user.is_some_and(|user| user.password == self.password)
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, Vec<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session of a user who has logged in with `password`: its secret, which is told nobody else. `None` where
    /// `accounts` has the user no more, or with another password. `random` are bytes that nobody can guess, `id` some
    /// others.
    pub(crate) fn begin(
        &self,
        (random, id): ([u8; 32], [u8; 16]),
        (user, password, peer): (&str, &PasswordHash, SocketAddr),
        accounts: &Accounts,
        now: Instant,
    ) -> Option<(String, SessionInfo)> {
        let known = accounts.user(user)?;
        if known.password != *password {
            return None;
        }
        let secret = URL_SAFE_NO_PAD.encode(random);
        let id = URL_SAFE_NO_PAD.encode(id);
        let info = SessionInfo { id, user: user.to_owned(), peer, begun: now, used: now };
        let mut all = self.all();
        all.retain(|session| session.lives(accounts, now));
        let of_user = all.iter().filter(|session| session.info.user == user).count();
        let oldest = match of_user >= OF_USER_MAX {
            true => all.iter().position(|session| session.info.user == user),
            false => (all.len() >= SESSIONS_MAX).then_some(0),
        };
        if let Some(oldest) = oldest {
            all.remove(oldest);
        }
        all.push(Session { info: info.clone(), hash: hash(&secret), password: password.clone() });
        Some((secret, info))
    }

    /// The session with this secret, which is used now.
    pub(crate) fn find(
        &self,
        secret: &str,
        accounts: &Accounts,
        now: Instant,
    ) -> Option<SessionInfo> {
        let hash = hash(secret);
        let mut all = self.all();
        // All are looked at, however far the right one is.
        let mut found = None;
        for (place, session) in all.iter().enumerate() {
            if bool::from(session.hash.ct_eq(&hash)) {
                found = Some(place);
            }
        }
        let place = found?;
        if !all[place].lives(accounts, now) {
            all.remove(place);
            return None;
        }
        let info = &mut all[place].info;
        info.used = now;
        Some(info.clone())
    }

    /// Those that last, oldest first.
    pub(crate) fn list(&self, accounts: &Accounts, now: Instant) -> Vec<SessionInfo> {
        let mut all = self.all();
        all.retain(|session| session.lives(accounts, now));
        all.iter().map(|session| session.info.clone()).collect()
    }

    /// Ends one, if it `may` be ended. Whether it was there.
    pub(crate) fn end(&self, id: &str, may: impl Fn(&SessionInfo) -> bool) -> bool {
        let mut all = self.all();
        let before = all.len();
        all.retain(|session| session.info.id != id || !may(&session.info));
        all.len() < before
    }

    /// Ends all of a user who is deleted: who has the name later is somebody else, whatever the password.
    pub(crate) fn end_of(&self, user: &str) {
        self.all().retain(|session| session.info.user != user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_broker::directory::{Directory, HashingAlgorithm, Request, User};

    const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 9);

    /// A directory with users `a` and `b`.
    fn directory() -> Directory {
        let mut directory = Directory::new(lepus_base::HashState::new(1), 1);
        for user in ["a", "b"] {
            set_password(&mut directory, user, "x");
        }
        directory
    }

    fn change(directory: &mut Directory, request: Request) {
        match directory.check(&request).unwrap() {
            lepus_broker::directory::Checked::Change(change) => {
                directory.apply(&change);
            }
            other => panic!("{other:?}"),
        }
    }

    fn set_password(directory: &mut Directory, user: &str, password: &str) {
        let password = PasswordHash::new(HashingAlgorithm::Sha256, password.as_bytes(), [1; 4]);
        let tags = Vec::new();
        change(directory, Request::PutUser { name: user.into(), password, tags });
    }

    fn begin(
        sessions: &Sessions,
        number: u16,
        user: &str,
        directory: &Directory,
        now: Instant,
    ) -> (String, SessionInfo) {
        let mut random = [0; 32];
        random[..2].copy_from_slice(&number.to_ne_bytes());
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_ne_bytes());
        let password = directory.accounts().user(user).unwrap().password.clone();
        let who = (user, &password, PEER.into());
        sessions.begin((random, id), who, directory.accounts(), now).unwrap()
    }

    #[test]
    fn a_session_is_found_by_its_secret_alone() {
        let (directory, sessions, now) = (directory(), Sessions::default(), Instant::now());
        let (secret, info) = begin(&sessions, 1, "a", &directory, now);
        assert_eq!(secret.len(), 43);
        let later = now + Duration::from_secs(5);
        let found = sessions.find(&secret, directory.accounts(), later).unwrap();
        assert_eq!(found, SessionInfo { used: later, ..info.clone() });
        for wrong in ["", &info.id, &secret[1..], &secret.to_lowercase()] {
            assert_eq!(sessions.find(wrong, directory.accounts(), later), None, "{wrong}");
        }
        assert!(!format!("{sessions:?}").contains(&secret));
    }

    #[test]
    fn it_ends_by_age_and_when_it_is_not_used() {
        let (directory, sessions, now) = (directory(), Sessions::default(), Instant::now());
        let accounts = directory.accounts();
        let (used, _) = begin(&sessions, 1, "a", &directory, now);
        let (idle, _) = begin(&sessions, 2, "a", &directory, now);
        let step = IDLE - Duration::from_secs(1);
        let mut at = now;
        while at + step < now + LIFE {
            at += step;
            assert!(sessions.find(&used, accounts, at).is_some());
        }
        assert!(sessions.find(&idle, accounts, at).is_none());
        assert_eq!(sessions.list(accounts, at).len(), 1);
        assert!(sessions.find(&used, accounts, now + LIFE).is_none());
        assert_eq!(sessions.list(accounts, at), []);
        let (unused, _) = begin(&sessions, 3, "a", &directory, now);
        assert!(sessions.find(&unused, accounts, now + IDLE).is_none());
    }

    #[test]
    fn it_ends_with_the_password_and_with_the_user() {
        let (mut directory, sessions, now) = (directory(), Sessions::default(), Instant::now());
        let (of_a, _) = begin(&sessions, 1, "a", &directory, now);
        let (of_b, _) = begin(&sessions, 2, "b", &directory, now);
        set_password(&mut directory, "a", "another");
        assert!(sessions.find(&of_a, directory.accounts(), now).is_none());
        assert!(sessions.find(&of_b, directory.accounts(), now).is_some());
        change(&mut directory, Request::DeleteUser { name: "b".into() });
        assert!(sessions.find(&of_b, directory.accounts(), now).is_none());
        // Once it has ended it does not come back.
        set_password(&mut directory, "a", "x");
        assert!(sessions.find(&of_a, directory.accounts(), now).is_none());
        assert_eq!(
            directory.accounts().users().map(|user: &User| &*user.name).collect::<Vec<_>>(),
            ["a"]
        );
        let (of_a, info) = begin(&sessions, 3, "a", &directory, now);
        assert!(!sessions.end(&info.id, |info| info.user == "b"));
        assert!(sessions.end(&info.id, |info| info.user == "a"));
        assert!(sessions.find(&of_a, directory.accounts(), now).is_none());
        let (of_a, _) = begin(&sessions, 4, "a", &directory, now);
        sessions.end_of("a");
        assert!(sessions.find(&of_a, directory.accounts(), now).is_none());
    }

    #[test]
    fn none_begins_with_a_password_that_was_set_anew_since_the_login() {
        let (mut directory, sessions, now) = (directory(), Sessions::default(), Instant::now());
        let password = directory.accounts().user("a").unwrap().password.clone();
        set_password(&mut directory, "a", "another");
        let who = ("a", &password, PEER.into());
        assert_eq!(sessions.begin(([1; 32], [1; 16]), who, directory.accounts(), now), None);
        assert_eq!(sessions.list(directory.accounts(), now), []);
    }

    #[test]
    fn the_oldest_gives_way() {
        let (mut directory, sessions, now) = (directory(), Sessions::default(), Instant::now());
        let (first_of_b, _) = begin(&sessions, 0, "b", &directory, now);
        let of_a: Vec<String> = (1..=OF_USER_MAX as u16 + 1)
            .map(|number| begin(&sessions, number, "a", &directory, now).0)
            .collect();
        let lives = |secret: &str, directory: &Directory| {
            sessions.find(secret, directory.accounts(), now).is_some()
        };
        let living: Vec<bool> = of_a.iter().map(|secret| lives(secret, &directory)).collect();
        assert_eq!(living.iter().position(|lives| *lives), Some(1));
        assert!(living[1..].iter().all(|lives| *lives) && lives(&first_of_b, &directory));
        for number in 0..SESSIONS_MAX as u16 {
            let user = format!("user {}", number / 10);
            if number % 10 == 0 {
                set_password(&mut directory, &user, "x");
            }
            begin(&sessions, 1_000 + number, &user, &directory, now);
        }
        assert_eq!(sessions.list(directory.accounts(), now).len(), SESSIONS_MAX);
        assert!(!lives(&first_of_b, &directory));
    }
}
