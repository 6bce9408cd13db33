//! Users: names, password hashes as RabbitMQ stores them, tags and permissions.

use crate::permission::{Permission, TopicPermission};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use core::fmt;
use core::ops::Bound;
use lepus_base::VhostId;
use sha2::Digest;
use subtle::ConstantTimeEq;

/// Bytes of salt in front of a digest.
pub const SALT_BYTES: usize = 4;

/// Bytes of a hash that is kept, whatever made it.
const HASH_BYTES_MAX: usize = 256;

/// How a password's digest is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashingAlgorithm {
    /// SHA-256, the default.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
    /// MD5, for very old definitions.
    Md5,
}

impl HashingAlgorithm {
    const ALL: [HashingAlgorithm; 3] =
        [HashingAlgorithm::Sha256, HashingAlgorithm::Sha512, HashingAlgorithm::Md5];

    /// The name in definitions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HashingAlgorithm::Sha256 => "rabbit_password_hashing_sha256",
            HashingAlgorithm::Sha512 => "rabbit_password_hashing_sha512",
            HashingAlgorithm::Md5 => "rabbit_password_hashing_md5",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<HashingAlgorithm> {
        HashingAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Its number in the definitions log.
    pub(crate) fn number(self) -> u8 {
        match self {
            HashingAlgorithm::Sha256 => 0,
            HashingAlgorithm::Sha512 => 1,
            HashingAlgorithm::Md5 => 2,
        }
    }

    /// Bytes of a hash with its salt.
    fn hash_bytes(self) -> usize {
        SALT_BYTES
            + match self {
                HashingAlgorithm::Sha256 => 32,
                HashingAlgorithm::Sha512 => 64,
                HashingAlgorithm::Md5 => 16,
            }
    }

    fn append_digest(self, salt: &[u8], password: &[u8], out: &mut Vec<u8>) {
        #[cfg(test)]
        digests::count(self);
        match self {
            HashingAlgorithm::Sha256 => {
                let hasher = sha2::Sha256::new().chain_update(salt);
                out.extend_from_slice(&hasher.chain_update(password).finalize());
            }
            HashingAlgorithm::Sha512 => {
                let hasher = sha2::Sha512::new().chain_update(salt);
                out.extend_from_slice(&hasher.chain_update(password).finalize());
            }
            HashingAlgorithm::Md5 => {
                let hasher = md5::Md5::new().chain_update(salt);
                out.extend_from_slice(&hasher.chain_update(password).finalize());
            }
        }
    }
}

/// A salted password digest, or nothing for a user who cannot log in with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    algorithm: HashingAlgorithm,
    /// Salt and digest; empty for no password.
    bytes: Box<[u8]>,
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordHash").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl PasswordHash {
    /// No password matches.
    #[must_use]
    pub fn none() -> PasswordHash {
        PasswordHash { algorithm: HashingAlgorithm::default(), bytes: Box::default() }
    }

    /// Hashes a password; the empty one gives [`PasswordHash::none`]. `salt` should come from a
    /// cryptographic generator.
    #[must_use]
    pub fn new(
        algorithm: HashingAlgorithm,
        password: &[u8],
        salt: [u8; SALT_BYTES],
    ) -> PasswordHash {
        if password.is_empty() {
            return PasswordHash::none();
        }
        let mut bytes = salt.to_vec();
        algorithm.append_digest(&salt, password, &mut bytes);
        PasswordHash { algorithm, bytes: bytes.into() }
    }

    /// A hash from definitions: base64 of salt and digest, or nothing.
    ///
    /// # Errors
    /// In words, where the text is not base64 or has not the algorithm's length.
    pub fn from_base64(algorithm: HashingAlgorithm, text: &str) -> Result<PasswordHash, String> {
        let bytes = STANDARD
            .decode(text)
            .map_err(|error| alloc::format!("password hash is not base64: {error}"))?;
        let length = algorithm.hash_bytes();
        if !bytes.is_empty() && bytes.len() != length {
            return Err(alloc::format!(
                "password hash has {} bytes where {} has {length}",
                bytes.len(),
                algorithm.name()
            ));
        }
        Ok(PasswordHash { algorithm, bytes: bytes.into() })
    }

    /// A hash from a tool, whose length nobody has looked at: one of another algorithm is kept, and no password is right.
    ///
    /// # Errors
    /// In words, where the text is not base64 or very long.
    pub fn from_base64_of_any_length(
        algorithm: HashingAlgorithm,
        text: &str,
    ) -> Result<PasswordHash, String> {
        let bytes = STANDARD
            .decode(text)
            .map_err(|error| alloc::format!("password hash is not base64: {error}"))?;
        if bytes.len() > HASH_BYTES_MAX {
            return Err(alloc::format!(
                "password hash has {} bytes, {HASH_BYTES_MAX} are allowed",
                bytes.len()
            ));
        }
        Ok(PasswordHash { algorithm, bytes: bytes.into() })
    }

    /// The hash as definitions hold it.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    /// Salt and digest; empty for no password.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The opposite of [`HashingAlgorithm::number`] and [`PasswordHash::bytes`].
    pub(crate) fn from_bytes(algorithm: u8, bytes: &[u8]) -> Option<PasswordHash> {
        let algorithm = *HashingAlgorithm::ALL.get(usize::from(algorithm))?;
        let fits = bytes.len() <= HASH_BYTES_MAX;
        fits.then(|| PasswordHash { algorithm, bytes: bytes.into() })
    }

    /// How the digest was made.
    #[must_use]
    pub fn algorithm(&self) -> HashingAlgorithm {
        self.algorithm
    }

    /// Whether no password matches.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether this is the password. The time taken tells neither how much of it was right, nor how
    /// the digest was made, nor whether there is one.
    #[must_use]
    pub fn matches(&self, password: &[u8]) -> bool {
        let (salt, digest) = self.bytes.split_at_checked(SALT_BYTES).unwrap_or((&[0; 4], &[]));
        let mut is_same = false;
        for algorithm in HashingAlgorithm::ALL {
            let mut given = Vec::with_capacity(64);
            algorithm.append_digest(salt, password, &mut given);
            let found = bool::from(core::hint::black_box(given).ct_eq(digest));
            is_same |= found & (algorithm == self.algorithm);
        }
        is_same & !password.is_empty()
    }
}

/// How much a user may open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Connections at a time, as it was set; a negative number is no limit.
    pub connections_max: Option<i64>,
    /// Channels at a time, as it was set; a negative number is no limit.
    pub channels_max: Option<i64>,
}

impl UserLimits {
    /// Connections at a time, where there is a limit.
    #[must_use]
    pub fn connections(&self) -> Option<u64> {
        self.connections_max.and_then(|limit| u64::try_from(limit).ok())
    }

    /// Channels at a time, where there is a limit.
    #[must_use]
    pub fn channels(&self) -> Option<u64> {
        self.channels_max.and_then(|limit| u64::try_from(limit).ok())
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// The name.
    pub name: Box<str>,
    /// The password's hash.
    pub password: PasswordHash,
    /// `administrator`, `monitoring`, `policymaker`, `management`, `impersonator` and any others.
    pub tags: Vec<Box<str>>,
    /// How much the user may open.
    pub limits: UserLimits,
    permissions: BTreeMap<VhostId, Permission>,
    topic_permissions: BTreeMap<(VhostId, Box<str>), TopicPermission>,
}

impl User {
    pub(crate) fn new(name: &str, password: PasswordHash, tags: Vec<Box<str>>) -> User {
        User {
            name: name.into(),
            password,
            tags,
            limits: UserLimits::default(),
            permissions: BTreeMap::new(),
            topic_permissions: BTreeMap::new(),
        }
    }

    /// Whether the user has the tag.
    #[must_use]
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| **own == *tag)
    }

    /// The user's rights in a virtual host.
    #[must_use]
    pub fn permission(&self, vhost: VhostId) -> Option<&Permission> {
        self.permissions.get(&vhost)
    }

    /// With which routing keys the user may use an exchange, if that is restricted.
    #[must_use]
    pub fn topic_permission(&self, vhost: VhostId, exchange: &str) -> Option<&TopicPermission> {
        self.topic_permissions.get(&(vhost, exchange.into()))
    }

    /// Whether any restriction of routing keys holds in the virtual host.
    pub(crate) fn is_topic_restricted(&self, vhost: VhostId) -> bool {
        let mut from_here = self.topic_permissions.range((vhost, Box::default())..);
        from_here.next().is_some_and(|((first, _), _)| *first == vhost)
    }

    /// All rights, by age of the virtual host.
    pub(crate) fn permissions(&self) -> impl Iterator<Item = (VhostId, &Permission)> {
        self.permissions.iter().map(|(vhost, permission)| (*vhost, permission))
    }

    /// All restrictions of routing keys, by age of the virtual host and by exchange.
    pub(crate) fn topic_permissions(
        &self,
    ) -> impl Iterator<Item = (VhostId, &str, &TopicPermission)> {
        let all = self.topic_permissions.iter();
        all.map(|((vhost, exchange), permission)| (*vhost, &**exchange, permission))
    }

    /// The rights in virtual hosts younger than this one; all without one.
    pub(crate) fn permissions_behind(
        &self,
        vhost: Option<VhostId>,
    ) -> impl Iterator<Item = (VhostId, &Permission)> {
        let first = vhost.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.permissions.range((first, Bound::Unbounded));
        found.map(|(vhost, permission)| (*vhost, permission))
    }

    /// The restrictions behind that of an exchange in a virtual host; all without one.
    pub(crate) fn topic_permissions_behind(
        &self,
        exchange: Option<(VhostId, Box<str>)>,
    ) -> impl Iterator<Item = (VhostId, &str, &TopicPermission)> {
        let first = exchange.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.topic_permissions.range((first, Bound::Unbounded));
        found.map(|((vhost, exchange), permission)| (*vhost, &**exchange, permission))
    }

    /// Sets the rights in a virtual host.
    pub(crate) fn permit(&mut self, vhost: VhostId, permission: Permission) {
        self.permissions.insert(vhost, permission);
    }

    /// Takes the rights in a virtual host.
    pub(crate) fn forbid(&mut self, vhost: VhostId) {
        self.permissions.remove(&vhost);
    }

    /// Restricts the routing keys that an exchange may be used with.
    pub(crate) fn restrict(
        &mut self,
        vhost: VhostId,
        exchange: Box<str>,
        permission: TopicPermission,
    ) {
        self.topic_permissions.insert((vhost, exchange), permission);
    }

    /// Ends the restrictions of one exchange, or of all in the virtual host.
    pub(crate) fn unrestrict(&mut self, vhost: VhostId, exchange: Option<&str>) {
        self.topic_permissions.retain(|(other, name), _| {
            *other != vhost || exchange.is_some_and(|meant| *meant != **name)
        });
    }

    /// The virtual host is gone.
    pub(crate) fn forget_vhost(&mut self, vhost: VhostId) {
        self.forbid(vhost);
        self.unrestrict(vhost, None);
    }
}

/// Why a login is refused; for the log. Clients are told only that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    /// No user of that name.
    UnknownUser,
    /// The user has no password.
    NoPassword,
    /// The password is another one.
    WrongPassword,
    /// The user may log in from this machine only.
    NotLoopback,
}

impl LoginFailure {
    /// The reason in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            LoginFailure::UnknownUser => "no such user",
            LoginFailure::NoPassword => "the user has no password",
            LoginFailure::WrongPassword => "wrong password",
            LoginFailure::NotLoopback => "the user can only connect via localhost",
        }
    }
}

/// Counts the digests that a test has made.
#[cfg(test)]
pub(crate) mod digests {
    extern crate std;

    use super::HashingAlgorithm;
    use core::cell::Cell;

    std::thread_local! {
        static MADE: Cell<[u32; 3]> = const { Cell::new([0; 3]) };
    }

    pub(super) fn count(algorithm: HashingAlgorithm) {
        let mut made = MADE.get();
        made[usize::from(algorithm.number())] += 1;
        MADE.set(made);
    }

    /// How many of each algorithm this thread has made since it was asked last.
    pub(crate) fn take() -> [u32; 3] {
        MADE.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn hashes_are_those_that_rabbitmq_documents() {
        // The worked example of RabbitMQ's password guide: salt 908DC60A, password "test12".
        let hash = PasswordHash::new(HashingAlgorithm::Sha256, b"test12", [0x90, 0x8d, 0xc6, 0x0a]);
        let text = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR";
        assert_eq!(hash.to_base64(), text);
        let read = PasswordHash::from_base64(HashingAlgorithm::Sha256, text).unwrap();
        assert!(read.matches(b"test12"));
        assert!(!read.matches(b"test13") && !read.matches(b""));
    }

    #[test]
    fn every_algorithm_knows_its_own_password() {
        for name in ["sha256", "sha512", "md5"] {
            let name = alloc::format!("rabbit_password_hashing_{name}");
            let algorithm = HashingAlgorithm::from_name(&name).unwrap();
            let hash = PasswordHash::new(algorithm, b"secret", [1, 2, 3, 4]);
            let text = hash.to_base64();
            let read = PasswordHash::from_base64(algorithm, &text).unwrap();
            assert_eq!(read, hash);
            assert!(read.matches(b"secret") && !read.matches(b"Secret"));
        }
        assert_eq!(HashingAlgorithm::from_name("rabbit_password_hashing_rot13"), None);
    }

    #[test]
    fn a_user_without_a_password_never_logs_in() {
        for hash in [
            PasswordHash::none(),
            PasswordHash::new(HashingAlgorithm::Sha256, b"", [1, 2, 3, 4]),
            PasswordHash::from_base64(HashingAlgorithm::Md5, "").unwrap(),
        ] {
            assert!(hash.is_none());
            assert!(!hash.matches(b"") && !hash.matches(b"x"));
        }
    }

    #[test]
    fn malformed_hashes_are_refused() {
        for text in ["*", "YWJj", &STANDARD.encode(vec![0; 35])] {
            assert!(PasswordHash::from_base64(HashingAlgorithm::Sha256, text).is_err());
        }
        let foreign = STANDARD.encode([7; 68]);
        let kept = PasswordHash::from_base64_of_any_length(HashingAlgorithm::Sha256, &foreign);
        let kept = kept.unwrap();
        assert_eq!(kept.to_base64(), foreign);
        assert!(!kept.is_none() && !kept.matches(b"x"));
        assert_eq!(PasswordHash::from_bytes(0, kept.bytes()), Some(kept));
        let debug = alloc::format!("{:?}", PasswordHash::new(HashingAlgorithm::Md5, b"a", [9; 4]));
        assert!(!debug.contains('9'), "no secrets in {debug}");
    }
}
