//! Dead letters that must arrive: each of their queues is asked by itself, and they wait where they are until all
//! have them.

use alloc::format;
use alloc::vec;

use lepus_base::{Now, QueueId};

use super::{cost_of, terms_of};
use crate::channel::Target;
use crate::dead_letter::{
    DeadLetter, End, FirstHeld, Posted, Routed, Slice, Then, sure_letters_of,
};
use crate::directory::QueueInfo;
use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::homes::HomeSide;
use crate::journal::{LogSet, Need, Room};
use crate::mail::{Receipt, Terms};
use crate::message::{Incoming, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::timers::Timer;

impl HomeSide<'_> {
    /// Sends a letter that must arrive to the queues that have yet to get it, each by itself: so it is
    /// known which of them has it. What that cost, in queues.
    pub(crate) fn send_surely(
        &mut self,
        now: Now,
        mut letter: DeadLetter,
        out: &mut Outbox,
    ) -> usize {
        if self.homes.dead_letters.is_held_back(&letter) {
            let first = self.homes.dead_letters.hold_behind(letter);
            self.letter_held(now, first, out);
            return 0;
        }
        let is_addressed = letter.is_under_way();
        let Some(routed) = self.route_dead_letter(now, &letter, !is_addressed, out) else {
            self.homes.dead_letters.let_go(&mut letter);
            self.settle_source(now, letter.source);
            return 1;
        };
        let Routed { packed, targets } = routed;
        let cost = cost_of(&packed, targets.len());
        if !is_addressed {
            let begun = self.homes.dead_letters.begin_attempt(letter, &targets);
            let Some(begun) = begun else { return cost };
            letter = begun;
        }
        let mut asked = 0;
        while asked < TARGETS_AT_ONCE_MAX
            && self.shard.conditions(self.journal, out).may_pass_on()
            && let Some(queue) = self.homes.dead_letters.next_to_ask(&mut letter)
        {
            asked += 1;
            let posted = self.post(now, &letter, &packed, queue, out);
            match self.homes.dead_letters.asked(&mut letter, queue, posted) {
                Then::GoesOn => {}
                Then::IsTooLarge(bytes) => self.tell_too_large(letter.source.queue, bytes, out),
                Then::Waits(need) => {
                    let queues = vec![self.directory.id_now(queue)];
                    self.homes.dead_letters.wait_for_room(letter, need, queues, self.journal);
                    return cost + asked;
                }
            }
        }
        let max = self.shard.waiting_bytes_max();
        match self.homes.dead_letters.end_slice(letter, max) {
            // More than fits into a slice: that ends it.
            Slice::More => cost + TARGETS_AT_ONCE_MAX,
            Slice::Waits => cost + asked,
            Slice::Over(letter) => {
                self.end_attempt(now, letter, out);
                cost + asked
            }
        }
    }

    /// Puts a letter into one queue.
    pub(crate) fn post(
        &mut self,
        now: Now,
        letter: &DeadLetter,
        packed: &[u8],
        queue: QueueId,
        out: &mut Outbox,
    ) -> Posted {
        let source = &letter.source;
        let id = self.directory.id_now(queue);
        let Some(home) = self.directory.queue_by_id(id).map(|info| info.home) else {
            // Deleted meanwhile: another attempt finds out where the letter goes now.
            return Posted::Refused;
        };
        let target = Target { queue: id, home, slot: u32::MAX };
        let own = self.shard.id;
        let waits = self.is_far(&target) || self.journal.len() > 1;
        let number = waits.then(|| self.homes.dead_letters.next_number());
        let terms =
            Terms { number, ..terms_of(source, packed, sure_letters_of(own, source.queue)) };
        let mut incoming = Incoming::new(MessageView::unpack(packed));
        if let Some(need) = self.room_behind_others(letter, &incoming, terms.persistent, &[target])
        {
            return Posted::NeedsRoom(need);
        }
        let room = self.room_to_pass_on(&incoming, terms.persistent, &[target], source.occupied());
        match room {
            Room::Now => {}
            Room::Later(need) => return Posted::NeedsRoom(need),
            Room::Never(bytes) => return Posted::TooLarge(bytes),
        }
        let routed = self.enqueue_all(now, &mut incoming, &[target], terms, out);
        incoming.finish(&mut self.shard.pool);
        match number {
            Some(number) if routed.remote + routed.logs > 0 => Posted::Waits(number),
            _ if routed.receipt != Receipt::Taken => Posted::Refused,
            _ => Posted::Done,
        }
    }

    /// All queues have said what they do with a letter: it has arrived, or waits for another attempt.
    pub(crate) fn end_attempt(&mut self, now: Now, letter: DeadLetter, out: &mut Outbox) {
        match self.homes.dead_letters.end_attempt(letter) {
            End::Lacks(letter, need, queue) => self.wait_anew(letter, need, queue),
            End::Held(first) => self.letter_held(now, first, out),
            End::Arrived(source) => self.settle_source(now, source),
        }
    }

    /// A letter waits for room for a queue, which may be gone or in another log since it was asked for.
    pub(crate) fn wait_anew(&mut self, letter: DeadLetter, need: Need, queue: QueueId) {
        let target = self.directory.id_now(queue);
        if self.directory.queue_by_id(target).is_none() {
            return self.homes.dead_letters.look_anew(letter);
        }
        let mut logs = LogSet::default();
        self.log_of(target).into_iter().for_each(|log| logs.add(log));
        let home =
            self.homes.slot_of(target, u32::MAX).map(|slot| &self.homes.queues[slot as usize]);
        if home.is_some_and(|home| !home.queue.is_durable()) {
            // There may be memory for it since it was asked for.
            self.homes.spilling.insert(target);
        }
        let need = Need { logs, ..need };
        self.homes.dead_letters.wait_for_room(letter, need, vec![target], self.journal);
    }

    /// A letter waits for another attempt, which may be the first one of its queue.
    pub(crate) fn letter_held(&mut self, now: Now, first: Option<FirstHeld>, out: &mut Outbox) {
        let Some(FirstHeld { queue, why, pause }) = first else { return };
        self.shard.timers.arm(now.instant + pause, Timer::Letters(queue));
        let text = format!(
            "dead letters of {} wait there: {why}; they are tried again",
            self.directory.describe_queue(queue)
        );
        out.log(Severity::Warning, "dead-letters-wait", text);
    }

    pub(crate) fn tell_too_large(&self, queue: QueueId, bytes: usize, out: &mut Outbox) {
        let text = format!(
            "a dead letter of {} takes {bytes} bytes in the log, more than may ever be stored while \
             it holds the message itself: it stays there and holds up those behind it until the \
             queue is deleted, its dead-letter exchange leads elsewhere, or store.bytes_max is \
             raised",
            self.directory.describe_queue(queue)
        );
        out.log(Severity::Warning, "dead-letter-too-large", text);
    }

    /// Drops the letters of a queue that is gone.
    pub(crate) fn forget_letters(&mut self, now: Now, queue: QueueId) {
        for source in self.homes.dead_letters.forget(queue) {
            self.settle_source(now, source);
        }
    }

    /// The pause of a queue's letters is over.
    pub(crate) fn letters_due(&mut self, now: Now, queue: QueueId) {
        if let Some(pause) = self.homes.dead_letters.pause_over(queue) {
            self.shard.timers.arm(now.instant + pause, Timer::Letters(queue));
        }
    }

    /// A queue may ask for what its other arguments, or policies, rule out.
    pub(crate) fn tell_strategy(&self, info: &QueueInfo, out: &mut Outbox) {
        let asked =
            info.arguments().get("x-dead-letter-strategy").and_then(|value| value.as_text());
        if asked != Some("at-least-once") {
            return;
        }
        if self.settings_of(info.id).is_some_and(|settings| !settings.at_least_once) {
            let text = format!(
                "dead letters of {} are sent at most once: at-least-once needs a dead-letter \
                 exchange and x-overflow reject-publish",
                self.directory.describe_queue(info.id)
            );
            out.log(Severity::Warning, "dead-letter-strategy", text);
        }
    }
}
