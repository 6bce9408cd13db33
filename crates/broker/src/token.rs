//! Names that the broker makes up: server-named queues, consumer tags.
//!
//! The bytes come from a keyed generator (HMAC-SHA-256 in counter mode over the injected secret),
//! so that nobody can guess another client's names; the same secret gives the same names.

use alloc::string::String;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use lepus_base::ShardId;
use sha2::Sha256;

use crate::reply_to::block;

/// Makes names that no one can guess.
#[derive(Clone)]
pub struct Names {
    secret: [u8; 32],
    shard: ShardId,
    counter: u64,
}

impl core::fmt::Debug for Names {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Names").field("counter", &self.counter).finish_non_exhaustive()
    }
}

impl Names {
    /// A generator for one shard.
    #[must_use]
    pub fn new(secret: [u8; 32], shard: ShardId) -> Names {
        Names { secret, shard, counter: 0 }
    }

    /// `prefix` and 22 characters of 16 unguessable bytes.
    pub fn name(&mut self, prefix: &str) -> String {
        self.counter += 1;
        let mut mac = Hmac::<Sha256>::new(&block(&self.secret).into());
        mac.update(b"name");
        mac.update(&self.shard.0.to_be_bytes());
        mac.update(&self.counter.to_be_bytes());
        let bytes = mac.finalize().into_bytes();
        let mut text = String::from(prefix);
        URL_SAFE_NO_PAD.encode_string(&bytes[..16], &mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_by_call_and_by_shard() {
        let mut first = Names::new([1; 32], ShardId(0));
        let mut second = Names::new([1; 32], ShardId(1));
        let names = [first.name("amq.gen-"), first.name("amq.gen-"), second.name("amq.gen-")];
        assert!(names.iter().all(|name| name.len() == 8 + 22));
        assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
    }
}
