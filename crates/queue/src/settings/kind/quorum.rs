//! The quorum queue with one replica: durable, shared, with a delivery count and dead letters that may wait.

use super::{Arguments, Declared, Kind, Overflow};
use crate::refusal::Refusal;

pub(super) const KIND: Kind = Kind {
    name: "quorum",
    module: "rabbit_quorum_queue",
    foreign_arguments: &[
        "x-max-priority",
        "x-queue-mode",
        "x-queue-version",
        "x-queue-master-locator",
        "x-initial-cluster-size",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
    ],
    foreign_policy_keys: &[
        "max-priority",
        "queue-mode",
        "queue-version",
        "queue-master-locator",
        "ha-mode",
        "ha-params",
        "ha-sync-mode",
        "ha-sync-batch-size",
        "ha-promote-on-shutdown",
        "ha-promote-on-failure",
        "initial-cluster-size",
        "max-age",
        "stream-max-segment-size-bytes",
        "stream-filter-size-bytes",
    ],
    check_own_arguments,
    forbidden,
    overflow,
    policy_rules_overflow: true,
    has_priorities: false,
    has_sure_dead_letters: true,
    counts_deliveries: true,
    shares_prefetch: false,
    deletes_on_condition: false,
    serves_get_beside_active: false,
};

fn check_own_arguments(arguments: &Arguments<'_>) -> Result<(), Refusal> {
    arguments.natural("x-max-in-memory-length")?;
    arguments.natural("x-max-in-memory-bytes")?;
    let name = "x-quorum-initial-group-size";
    match arguments.natural(name)? {
        Some(0) => Err(arguments.invalid(name, "{value_zero,0}")),
        _ => Ok(()),
    }
}

fn forbidden(declared: Declared) -> Option<&'static str> {
    match declared {
        Declared { durable: false, .. } => Some("non-durable"),
        Declared { exclusive: true, .. } => Some("exclusive-owner"),
        Declared { auto_delete: true, .. } => Some("auto-delete"),
        _ => None,
    }
}

/// The rule that dead-letters what is refused is unknown to it: it drops from its head instead.
fn overflow(asked: Overflow) -> Overflow {
    match asked {
        Overflow::RejectPublishDlx => Overflow::DropHead,
        known => known,
    }
}
