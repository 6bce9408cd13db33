//! The classic queue: durable or not, with priorities.

use alloc::format;

use super::{Arguments, Kind};
use crate::refusal::Refusal;

pub(super) const KIND: Kind = Kind {
    name: "classic",
    module: "rabbit_classic_queue",
    foreign_arguments: &[
        "x-dead-letter-strategy",
        "x-delivery-limit",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-quorum-initial-group-size",
        "x-initial-cluster-size",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
    ],
    // That of a limit of deliveries is known: the queue keeps to it, though it may not be declared so.
    foreign_policy_keys: &[
        "dead-letter-strategy",
        "initial-cluster-size",
        "target-group-size",
        "member-placement-tag",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "max-age",
        "stream-max-segment-size-bytes",
        "stream-filter-size-bytes",
        "consumer-disconnected-timeout",
        "delayed-retry-type",
        "delayed-retry-min",
        "delayed-retry-max",
    ],
    check_own_arguments,
    forbidden: |_| None,
    overflow: |asked| asked,
    policy_rules_overflow: false,
    has_priorities: true,
    has_sure_dead_letters: false,
    counts_deliveries: false,
    shares_prefetch: true,
    deletes_on_condition: true,
    serves_get_beside_active: true,
};

fn check_own_arguments(arguments: &Arguments<'_>) -> Result<(), Refusal> {
    let name = "x-queue-mode";
    match arguments.text(name)? {
        None | Some("default" | "lazy") => {}
        Some(mode) => {
            return Err(arguments.invalid(name, format!("\"unsupported queue mode '{mode}'\"")));
        }
    }
    let name = "x-queue-version";
    match arguments.natural(name)? {
        None | Some(1 | 2) => Ok(()),
        Some(version) => {
            Err(arguments.invalid(name, format!("\"unsupported queue version '{version}'\"")))
        }
    }
}
