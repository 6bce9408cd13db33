//! Who may log in.

use super::Accounts;
use crate::user::{LoginFailure, PasswordHash, User};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

/// Whom clients log in as that give no name. The password has to be right, so that nobody gets more
/// in this way than by giving both.
#[derive(Clone)]
pub struct Anonymous {
    user: Box<str>,
    password: Box<str>,
}

impl Anonymous {
    /// The user of that name, as long as the password is right.
    #[must_use]
    pub fn new(user: &str, password: &str) -> Anonymous {
        Anonymous { user: user.into(), password: password.into() }
    }
}

impl core::fmt::Debug for Anonymous {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Anonymous").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Accounts {
    /// Checks a name and password. An unknown name costs as much time as a wrong password, however
    /// that of a user is kept.
    ///
    /// # Errors
    /// Why the login is refused, for the log.
    pub fn authenticate(
        &self,
        user: &str,
        password: &[u8],
        from_loopback: bool,
    ) -> Result<(), LoginFailure> {
        let Some(user) = self.users.get(user) else {
            let _ = core::hint::black_box(PasswordHash::none().matches(password));
            return Err(LoginFailure::UnknownUser);
        };
        if !user.password.matches(password) {
            return Err(match user.password.is_none() {
                true => LoginFailure::NoPassword,
                false => LoginFailure::WrongPassword,
            });
        }
        self.check_address(user, from_loopback)
    }

    /// Checks a name that something else has vouched for, such as a client certificate.
    ///
    /// # Errors
    /// Why the login is refused, for the log.
    pub fn authenticate_external(
        &self,
        user: &str,
        from_loopback: bool,
    ) -> Result<(), LoginFailure> {
        let user = self.users.get(user).ok_or(LoginFailure::UnknownUser)?;
        self.check_address(user, from_loopback)
    }

    /// Whom clients log in as that give no name, if they are let in.
    #[must_use]
    pub fn anonymous(&self) -> Option<&Anonymous> {
        self.anonymous.as_ref()
    }

    /// The user that a client is who gives no name, and whether it may log in; `None` where such clients are not let in.
    #[must_use]
    pub fn authenticate_anonymous(
        &self,
        from_loopback: bool,
    ) -> Option<(&str, Result<(), LoginFailure>)> {
        let Anonymous { user, password } = self.anonymous.as_ref()?;
        Some((user, self.authenticate(user, password.as_bytes(), from_loopback)))
    }

    fn check_address(&self, user: &User, from_loopback: bool) -> Result<(), LoginFailure> {
        if !from_loopback && self.loopback_users.contains(&user.name) {
            return Err(LoginFailure::NotLoopback);
        }
        Ok(())
    }

    /// What to tell of a user who may log in from any machine with a password that everybody knows, if
    /// clients can come from there.
    #[must_use]
    pub fn open_door(&self, user: &str) -> Option<String> {
        let is_open = self.is_reachable && self.check_address(self.user(user)?, false).is_ok();
        is_open.then(|| self.known_password(user)).flatten()
    }

    /// The same, wherever the user may come from.
    #[must_use]
    pub fn known_password(&self, user: &str) -> Option<String> {
        let password = &self.user(user)?.password;
        let mut known = [user, "guest", "password"].into_iter();
        known.any(|word| password.matches(word.as_bytes())).then(|| {
            format!(
                "user {user} has a password that everybody knows and may log in from any machine: \
                 give it another one (lepus user set-password {user}) or name it in \
                 login.loopback_users"
            )
        })
    }
}
