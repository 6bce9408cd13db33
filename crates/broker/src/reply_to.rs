//! Direct reply-to: the tokens that stand for a channel's reply consumer, and replies that it does not
//! read.
//!
//! A token names the shard, connection and channel and carries a keyed MAC over them, so that a
//! client cannot make up an address (HMAC-SHA-256, RFC 2104, cut to 16 bytes).

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use lepus_base::{ConnectionId, Now, ShardId};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::mail::ChannelRef;
use crate::outbox::{Outbox, Severity};
use crate::timers::{Timer, Timers};

/// The pseudo-queue that reply consumers consume from and requesters name in `reply_to`.
pub const REPLY_TO: &str = "amq.rabbitmq.reply-to";
/// What a token starts with.
pub const REPLY_TO_PREFIX: &str = "amq.rabbitmq.reply-to.";
/// Time between two lines in the log about replies that a shard drops.
const TELL_EVERY: Duration = Duration::from_secs(1);
const ADDRESS_BYTES: usize = 18;
const MAC_BYTES: usize = 16;

/// Direct replies that a shard dropped, since their clients read too slowly. A few bytes make one:
/// they are told in the log one by one only as long as they are rare.
#[derive(Debug, Default)]
pub struct UnreadReplies {
    /// Those that are not told yet.
    untold: u64,
    /// Whether the timer is armed at which the log is told of more.
    waits: bool,
}

impl UnreadReplies {
    /// A direct reply is dropped. Whether it is told with others, later.
    pub(crate) fn is_told_later(&mut self) -> bool {
        self.untold += u64::from(self.waits);
        self.waits
    }

    /// Tells of a reply that was dropped, to the connection of this name.
    pub(crate) fn tell_one(&mut self, name: &str, now: Now, timers: &mut Timers, out: &mut Outbox) {
        let text = format!("{name}: a direct reply is dropped, the client reads too slowly");
        out.log(Severity::Warning, "reply-dropped", text);
        self.wait(now, timers);
    }

    /// It is time to tell how many direct replies were dropped meanwhile.
    pub(crate) fn tell_more(&mut self, now: Now, timers: &mut Timers, out: &mut Outbox) {
        let count = core::mem::take(self).untold;
        if count > 0 {
            let text = format!("{count} more direct replies are dropped, clients read too slowly");
            out.log(Severity::Warning, "reply-dropped", text);
            self.wait(now, timers);
        }
    }

    fn wait(&mut self, now: Now, timers: &mut Timers) {
        self.waits = true;
        timers.arm(now.instant + TELL_EVERY, Timer::UnreadReplies);
    }
}

/// Whether a routing key may be the address of a reply consumer.
#[must_use]
pub fn is_reply_address(routing_key: &str) -> bool {
    routing_key.starts_with(REPLY_TO_PREFIX)
}

/// The routing key that reaches this channel's reply consumer.
#[must_use]
pub fn token(secret: &[u8; 32], channel: ChannelRef) -> String {
    let mut bytes = [0; ADDRESS_BYTES + MAC_BYTES];
    bytes[..2].copy_from_slice(&channel.shard.0.to_be_bytes());
    bytes[2..10].copy_from_slice(&channel.connection.0.to_be_bytes());
    bytes[10..18].copy_from_slice(&channel.channel.to_be_bytes());
    let mac = mac(secret, &bytes[..ADDRESS_BYTES]);
    bytes[ADDRESS_BYTES..].copy_from_slice(&mac);
    let mut text = String::from(REPLY_TO_PREFIX);
    URL_SAFE_NO_PAD.encode_string(bytes, &mut text);
    text
}

/// The channel that a routing key names, if the key is a genuine token.
#[must_use]
pub fn address(secret: &[u8; 32], routing_key: &str) -> Option<ChannelRef> {
    let text = routing_key.strip_prefix(REPLY_TO_PREFIX)?;
    let mut bytes = [0; ADDRESS_BYTES + MAC_BYTES];
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    if length != bytes.len() {
        return None;
    }
    let (address, claimed) = bytes.split_at(ADDRESS_BYTES);
    if !bool::from(mac(secret, address).ct_eq(claimed)) {
        return None;
    }
    let number = |range: core::ops::Range<usize>| {
        address[range].iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
    };
    Some(ChannelRef {
        shard: ShardId(number(0..2) as u16),
        connection: ConnectionId(number(2..10)),
        channel: number(10..18),
    })
}

/// A key of HMAC's block size: shorter keys are filled up with zeros (RFC 2104, section 2).
pub(crate) fn block(secret: &[u8; 32]) -> [u8; 64] {
    let mut block = [0; 64];
    block[..32].copy_from_slice(secret);
    block
}

fn mac(secret: &[u8; 32], bytes: &[u8]) -> [u8; MAC_BYTES] {
    let mut mac = Hmac::<Sha256>::new(&block(secret).into());
    mac.update(bytes);
    let full = mac.finalize().into_bytes();
    let mut cut = [0; MAC_BYTES];
    cut.copy_from_slice(&full[..MAC_BYTES]);
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_channel_and_nothing_else_does() {
        let channel =
            ChannelRef { shard: ShardId(3), connection: ConnectionId(77), channel: 5 << 16 | 1 };
        let secret = [9; 32];
        let token = token(&secret, channel);
        assert_eq!(address(&secret, &token), Some(channel));
        assert_eq!(address(&[8; 32], &token), None);
        let mut tampered = token.clone().into_bytes();
        tampered[30] ^= 1;
        assert_eq!(address(&secret, core::str::from_utf8(&tampered).unwrap_or("")), None);
        assert_eq!(address(&secret, "amq.rabbitmq.reply-to."), None);
        assert_eq!(address(&secret, &alloc::format!("{token}AAAA")), None);
        assert_eq!(address(&secret, "orders"), None);
    }
}
