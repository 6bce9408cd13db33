//! Dead letters that go round: from queue to queue, without a client having rejected them.

use alloc::format;
use alloc::vec::Vec;

use super::DeadLetter;
use crate::channel::Target;
use crate::directory::Directory;
use crate::outbox::{Outbox, Severity};
use crate::properties::{Cycles, DEATHS_MAX};
use crate::queue::Reason;

/// How often a message has died.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deaths<'a> {
    /// Once.
    First,
    /// Before, as these properties tell.
    Several(&'a [u8]),
}

/// Takes those queues off the `targets` of a letter of `queue` in which it would close a circle. The log hears of it
/// when the letter is tried first.
pub(crate) fn end_cycles(
    directory: &Directory,
    letter: &DeadLetter,
    queue: &str,
    deaths: Deaths<'_>,
    targets: &mut Vec<Target>,
    out: &mut Outbox,
) {
    if letter.reason == Reason::Rejected || targets.is_empty() {
        return;
    }
    let cycles = match deaths {
        Deaths::First => Cycles::first(queue),
        Deaths::Several(properties) => Cycles::of(properties),
    };
    let is_first_try = letter.progress.is_none();
    if cycles.is_too_long && is_first_try {
        let text = format!(
            "message dropped in queue '{queue}': it was dead-lettered {DEATHS_MAX} times without a \
             client having rejected it"
        );
        out.log(Severity::Warning, "dead-letter-cycle", text);
    }
    targets.retain(|target| {
        let Some(info) = directory.queue_by_id(target.queue) else { return race!("the target was deleted before the dead letter came", false) };
        let closes = cycles.end_in(info.name());
        if closes && is_first_try && !cycles.is_too_long {
            let text = format!(
                "message dropped: dead-lettering it from queue '{queue}' into '{}' again would go round for ever",
                info.name()
            );
            out.log(Severity::Warning, "dead-letter-cycle", text);
        }
        !closes
    });
}
