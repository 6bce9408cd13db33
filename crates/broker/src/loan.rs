//! One memory budget for all shards: each has a floor of its own, and the rest is lent to those that
//! need it.
//!
//! Shard 0 lends. Questions and answers are mail, between the handling of messages; a publish is
//! compared with what its shard has, and nothing else. A shard asks before it needs more, and gives
//! back what it does not use. Whoever asks while nothing is left gets what comes back, those with
//! the least first; until then its publishers are blocked, if it has used all it has.
//!
//! Lender and shards count in the bytes of the budget that there was at the start. An operator who changes the budget
//! changes what one of those stands for, on each shard by itself ([`Loan::set_share`]): nothing has to be taken back.

use alloc::vec;
use alloc::vec::Vec;

use lepus_base::ShardId;

use crate::settings::Limits;

/// A shard's floor is this part of its equal share of the budget.
const FLOOR_PART: usize = 8;
/// The least that is asked for is this part of the share.
const CHUNK_PART: usize = 16;
/// The same in bytes.
const CHUNK_BYTES_MIN: usize = 64 << 10;
const CHUNK_BYTES_MAX: usize = 64 << 20;
/// This part of what is used is kept free beside a chunk; so much more is asked for, so that a shard
/// that grows asks seldom.
const ROOM_PART: usize = 8;
/// More than this is not in use: where the budget is nothing, anything would be.
const USED_MAX: usize = usize::MAX / 4;
/// Free chunks beside that before something is given back.
const SLACK_CHUNKS: usize = 2;

/// What a shard may use of the budget.
#[derive(Clone, Debug)]
pub struct Loan {
    /// What it has of the budget that there was at the start.
    pub bytes: usize,
    /// Bytes that it may use now: the same of the budget as it is.
    pub limit: usize,
    /// Bytes that it could have: the lender had so many left when it was heard last.
    pub obtainable: usize,
    /// The same of the budget that there was at the start.
    obtainable_of_start: usize,
    /// Equal shares of the budget, at the start and now.
    share_of_start: usize,
    share: usize,
    /// What it asked for was not answered with anything yet.
    is_asking: bool,
    /// The lender has nothing: all that can be had is there.
    is_all: bool,
    /// Bytes that it never gives back.
    floor: usize,
    chunk: usize,
}

impl Loan {
    /// What one of so many shards begins with: its floor, or all where it is alone.
    #[must_use]
    pub fn new(limits: &Limits, shards: u16) -> Loan {
        let share = limits.memory_bytes;
        let floor = if shards < 2 { share } else { floor(limits) };
        let obtainable = floor.saturating_add(to_lend(limits, shards));
        Loan {
            bytes: floor,
            limit: floor,
            obtainable,
            obtainable_of_start: obtainable,
            share_of_start: share,
            share,
            is_asking: false,
            is_all: shards < 2,
            floor,
            chunk: (share / CHUNK_PART).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
        }
    }

    /// Whether nothing more can be had now.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// The equal share of the budget is so many bytes from now on.
    pub(crate) fn set_share(&mut self, share: usize) {
        self.share = share;
        self.count_limits();
    }

    /// Counts what may be used of the budget as it is now.
    fn count_limits(&mut self) {
        self.limit = scaled(self.bytes, self.share, self.share_of_start);
        self.obtainable = scaled(self.obtainable_of_start, self.share, self.share_of_start);
    }

    /// Bytes that are in use, as the lender counts them.
    fn of_start(&self, used: usize) -> usize {
        scaled(used, self.share_of_start, self.share).min(USED_MAX)
    }

    /// Bytes that it has whatever others need.
    #[must_use]
    pub fn floor(&self) -> usize {
        self.floor
    }

    /// Bytes that it is to have with so many in use.
    fn wanted(&self, used: usize) -> usize {
        used.saturating_add(used / ROOM_PART).saturating_add(self.chunk)
    }

    /// Bytes to ask for now with so many in use.
    pub(crate) fn ask(&mut self, used: usize) -> Option<usize> {
        let used = self.of_start(used);
        let missing = self.wanted(used).saturating_sub(self.bytes);
        // Half a chunk less is no reason yet: nobody asks for each message.
        if missing <= self.chunk / 2 || self.is_asking || self.is_all {
            return None;
        }
        self.is_asking = true;
        Some((missing + used / ROOM_PART).next_multiple_of(self.chunk))
    }

    /// Bytes to give back now with so many in use.
    pub(crate) fn give_back(&mut self, used: usize) -> Option<usize> {
        let used = self.of_start(used);
        let keeps = self.wanted(used).max(self.floor);
        let surplus = self.bytes.saturating_sub(keeps);
        if surplus <= SLACK_CHUNKS * self.chunk + used / ROOM_PART {
            return None;
        }
        self.bytes -= surplus;
        self.count_limits();
        Some(surplus)
    }

    /// The lender says what it lends and what it has left. Nothing and nothing is a refusal for now,
    /// nothing of something no answer to a question.
    pub(crate) fn take(&mut self, bytes: usize, left: usize) {
        self.bytes += bytes;
        self.obtainable_of_start = self.bytes.saturating_add(left);
        self.count_limits();
        if bytes > 0 {
            (self.is_asking, self.is_all) = (false, false);
        } else if left == 0 {
            // What was asked for comes when there is something again.
            self.is_all = true;
        }
    }
}

/// `bytes` as a part of `of` is of another whole: as many as there are where that is the same one.
fn scaled(bytes: usize, whole: usize, of: usize) -> usize {
    if whole == of {
        return bytes;
    }
    let part = (bytes as u128 * whole as u128).checked_div(of as u128);
    let part = part.unwrap_or(if bytes == 0 { 0 } else { u128::MAX });
    usize::try_from(part).unwrap_or(usize::MAX)
}

/// Bytes that a shard keeps of its equal share.
fn floor(limits: &Limits) -> usize {
    let share = limits.memory_bytes;
    (share / FLOOR_PART).max(limits.memory_floor_bytes).min(share)
}

/// Bytes beside the floors of so many shards; of one shard none, which has all.
fn to_lend(limits: &Limits, shards: u16) -> usize {
    let part = limits.memory_bytes - floor(limits);
    if shards < 2 { 0 } else { part.saturating_mul(usize::from(shards)) }
}

/// What a shard got of the budget.
#[derive(Clone, Copy, Debug)]
struct Debt {
    /// Bytes, its floor among them.
    lent: usize,
    /// Bytes that it asked for when nothing was left.
    wish: usize,
    /// Bytes left, as it was told last.
    told: usize,
}

/// Who lends; on shard 0.
#[derive(Clone, Debug)]
pub struct Lender {
    free: usize,
    debts: Vec<Debt>,
}

impl Lender {
    /// One for so many shards.
    #[must_use]
    pub fn new(limits: &Limits, shards: u16) -> Lender {
        let free = to_lend(limits, shards);
        let debt = Debt { lent: floor(limits), wish: 0, told: free };
        Lender { free, debts: vec![debt; usize::from(shards)] }
    }

    /// Bytes that are not lent.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free
    }

    /// Bytes that a shard got and has not given back.
    #[must_use]
    pub fn lent(&self, shard: ShardId) -> usize {
        self.debts[shard.index()].lent
    }

    /// A shard asks. Who waits already has no reason to: then nothing is left.
    pub(crate) fn ask(&mut self, shard: ShardId, bytes: usize) -> Answer {
        let debt = &mut self.debts[shard.index()];
        let lent = bytes.min(self.free);
        self.free -= lent;
        debt.lent += lent;
        debt.wish = if lent == 0 { bytes } else { 0 };
        debt.told = self.free;
        Answer { to: shard, lent, left: self.free }
    }

    /// A shard gives something back.
    pub(crate) fn give_back(&mut self, shard: ShardId, bytes: usize) {
        let debt = &mut self.debts[shard.index()];
        assert!(bytes <= debt.lent, "a shard gives back {bytes} bytes of {}", debt.lent);
        debt.lent -= bytes;
        debt.told = debt.told.saturating_add(bytes);
        self.free += bytes;
    }

    /// What is to be told after something came back: first something for those who wait for it, then
    /// that there is much more to be had than a shard knows.
    pub(crate) fn next_answer(&mut self) -> Option<Answer> {
        if self.free == 0 {
            return None;
        }
        let waiting = (0..self.debts.len()).filter(|&shard| self.debts[shard].wish > 0);
        if let Some(shard) = waiting.min_by_key(|&shard| self.debts[shard].lent) {
            let wish = self.debts[shard].wish;
            return Some(self.ask(ShardId(shard as u16), wish));
        }
        let shard = self.debts.iter().position(|debt| debt.told < self.free / 2)?;
        self.debts[shard].told = self.free;
        Some(Answer { to: ShardId(shard as u16), lent: 0, left: self.free })
    }
}

/// What the lender says to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) to: ShardId,
    /// Bytes that it may use from now on.
    pub(crate) lent: usize,
    /// Bytes that are not lent.
    pub(crate) left: usize,
}

#[cfg(test)]
mod tests;
