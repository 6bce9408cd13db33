//! How much the directory may hold, whoever declares it.

use super::Directory;
use super::change::Change;
use super::size::{arguments_of, kind_of};
use alloc::format;
use lepus_amqp::code::ReplyCode;
use lepus_queue::refusal::Refusal;

/// Of each limit one part in so many is divided among the virtual hosts: so much each of them may
/// have, however much the others take.
const KEPT_PART: u64 = 10;

/// What all virtual hosts together may hold. A virtual host's own limit comes on top. A tenth of the
/// queues, exchanges and bindings is kept for the virtual hosts in equal shares.
///
/// What is over a limit already, because it was lowered between two starts, stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Queues.
    pub queues_max: u64,
    /// Exchanges, those that every virtual host begins with included.
    pub exchanges_max: u64,
    /// Bindings, those to the default exchange not counted.
    pub bindings_max: u64,
    /// Arguments of one binding.
    pub binding_arguments_max: u64,
    /// Bytes of the arguments of one queue, exchange or binding, as they are sent.
    pub arguments_bytes_max: u64,
    /// Bytes of all arguments in one virtual host.
    pub vhost_arguments_bytes_max: u64,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity {
            queues_max: 1_000_000,
            exchanges_max: 100_000,
            bindings_max: 5_000_000,
            binding_arguments_max: 256,
            arguments_bytes_max: 16 << 10,
            vhost_arguments_bytes_max: 256 << 20,
        }
    }
}

/// What was decided and is not applied yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reserved {
    queues: u64,
    exchanges: u64,
    bindings: u64,
}

impl Reserved {
    /// The number that a change adds to.
    pub(super) fn of(&mut self, change: &Change) -> Option<&mut u64> {
        match change {
            Change::QueueDeclared(_) => Some(&mut self.queues),
            Change::ExchangeDeclared(_) => Some(&mut self.exchanges),
            Change::Bound(_) => Some(&mut self.bindings),
            _ => None,
        }
    }
}

impl Directory {
    /// Sets how much may be declared. It matters on the shard that orders the changes.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
    }

    /// Whether one more of what `change` adds may be there, with its arguments.
    ///
    /// # Errors
    /// 406 with the limit.
    pub(super) fn check_capacity(&self, change: &Change) -> Result<(), Refusal> {
        let (what, plural, there, limit) = match change {
            Change::QueueDeclared(info) => {
                let there = self.queues.len() as u64 + self.reserved.queues;
                (
                    format!("declare queue '{}'", info.name()),
                    "queue",
                    there,
                    self.capacity.queues_max,
                )
            }
            Change::ExchangeDeclared(info) => {
                let there = self.exchanges.len() as u64 + self.reserved.exchanges;
                let what = format!("declare exchange '{}'", info.name);
                (what, "exchange", there, self.capacity.exchanges_max)
            }
            Change::Bound(binding) => {
                let there = self.bindings.len() as u64 + self.reserved.bindings;
                let what = format!("bind to exchange '{}'", binding.source);
                (what, "binding", there, self.capacity.bindings_max)
            }
            _ => return Ok(()),
        };
        let refuse = |text| Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text));
        if there >= limit {
            return refuse(format!(
                "cannot {what}: {plural} limit of the broker ({limit}) is reached"
            ));
        }
        if !self.leaves_shares(change, there, limit) {
            return refuse(format!(
                "cannot {what}: what is left of the {plural} limit of the broker ({limit}) is kept \
                 for other virtual hosts"
            ));
        }
        let (vhost, bytes) = arguments_of(change).unwrap_or_default();
        let limit = self.capacity.arguments_bytes_max;
        if bytes as u64 > limit {
            return refuse(format!(
                "cannot {what}: its arguments take {bytes} bytes, and {limit} is the limit"
            ));
        }
        if let Change::Bound(binding) = change {
            let count = binding.arguments.as_ref().iter().count();
            let limit = self.capacity.binding_arguments_max;
            if count as u64 > limit {
                return refuse(format!(
                    "cannot {what}: the binding has {count} arguments, and {limit} is the limit"
                ));
            }
        }
        let limit = self.capacity.vhost_arguments_bytes_max;
        if bytes > 0 && self.size.arguments(vhost) + bytes as u64 > limit {
            let vhost = self.vhost_name(vhost);
            return refuse(format!(
                "cannot {what}: arguments in vhost '{vhost}' take {limit} bytes at most"
            ));
        }
        Ok(())
    }

    /// Whether, with one more of what `change` adds beside those that are there, every other virtual
    /// host can still have its share of `limit`.
    fn leaves_shares(&self, change: &Change, there: u64, limit: u64) -> bool {
        let kept = limit / KEPT_PART;
        if there < limit - kept {
            return true;
        }
        let Some((vhost, kind)) = kind_of(change) else { return true };
        let share = kept / (self.vhosts.len() as u64).max(1);
        if self.size.holding(vhost, kind) < share {
            return true;
        }
        let others = self.vhosts.keys().filter(|other| **other != vhost);
        let lacking = others.map(|other| share.saturating_sub(self.size.holding(*other, kind)));
        there + lacking.sum::<u64>() < limit
    }
}
