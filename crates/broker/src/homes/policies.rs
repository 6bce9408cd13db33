//! Queues follow the policies: those that are new from the beginning, the others when policies change.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use lepus_base::{Now, QueueId};

use crate::dead_letter::DestinationRef;
use crate::homes::HomeSide;
use crate::outbox::Outbox;
use crate::policy_work::{Stage, Walk};
use crate::query::Answer;
use crate::queue::{QueueSettings, command};
use crate::trace::TRACE_EXCHANGE;

/// What one slice of a walk may cost, in comparisons of names: some hundred microseconds.
const SLICE_COST_MAX: usize = 2_048;
/// What it costs to look at a queue that no policy is for, in the same.
const LOOK_COST: usize = 2;
/// What it costs to have a queue follow another policy, in the same.
const CHANGE_COST: usize = 16;
/// Dead letters that are looked at for the price of one comparison.
const LETTERS_AT_COST: usize = 8;

impl HomeSide<'_> {
    /// What holds for a queue by its arguments and its policies, as far as its home here follows them; `None` if it is
    /// gone.
    pub(crate) fn settings_of(&self, queue: QueueId) -> Option<&QueueSettings> {
        let info = self.directory.queue_by_id(queue)?;
        let home = self.homes.find(queue);
        Some(home.and_then(|home| home.settings()).unwrap_or_else(|| info.settings()))
    }

    /// A slice of what a change of policies leaves to be done.
    pub(crate) fn work_on_policies(&mut self, now: Now, out: &mut Outbox) {
        let epoch = self.directory.policy_epoch();
        let Some(mut walk) = self.homes.policies.begin(epoch) else { return };
        let mut budget = SLICE_COST_MAX;
        while budget > 0 {
            let more = match walk.stage {
                Stage::Exchanges => self.renew_exchange(&mut walk, &mut budget),
                Stage::Queues => self.renew_queue(now, &mut walk, &mut budget, out),
            };
            if more {
                continue;
            }
            match walk.stage {
                Stage::Exchanges => (walk.stage, walk.next) = (Stage::Queues, 0),
                Stage::Queues => return self.homes.policies.over(&walk),
            }
        }
        self.homes.policies.go_on_later(walk);
    }

    /// The next exchange of a walk. Whether there are more.
    fn renew_exchange(&mut self, walk: &mut Walk, budget: &mut usize) -> bool {
        let (place, vhosts) = (walk.next, &walk.vhosts);
        walk.next += 1;
        let mut cost = LOOK_COST;
        let more =
            self.directory.renew_exchanges(place, 1, |vhost| vhosts.contains(&vhost), &mut cost);
        *budget = budget.saturating_sub(cost);
        // It may have an alternate exchange from now on, or none.
        let renewed = self.directory.exchange_at(place);
        if let Some(info) = renewed.filter(|info| &*info.name == TRACE_EXCHANGE) {
            self.shard.tracing.look(info.vhost, self.directory);
        }
        more
    }

    /// The next queue of a walk. False behind the last one.
    fn renew_queue(
        &mut self,
        now: Now,
        walk: &mut Walk,
        budget: &mut usize,
        out: &mut Outbox,
    ) -> bool {
        let slot = walk.next as u32;
        if walk.next >= self.homes.capacity() {
            return false;
        }
        walk.next += 1;
        *budget = budget.saturating_sub(LOOK_COST);
        let info = self.homes.get(slot).and_then(|home| self.directory.queue_by_id(home.id));
        if info.is_some_and(|info| walk.vhosts.contains(&info.vhost)) {
            let cost = self.renew_settings(now, slot, walk.epoch, out);
            *budget = budget.saturating_sub(cost);
        }
        true
    }

    /// Has the queue in a slot follow its policies as they are now. What that cost.
    fn renew_settings(&mut self, now: Now, slot: u32, epoch: u64, out: &mut Outbox) -> usize {
        let home = &self.homes.queues[slot as usize];
        let id = home.id;
        let Some(info) = self.directory.queue_by_id(id) else {
            invariant!("a queue that has a home is known")
        };
        let mut cost = 0;
        let settings = self.directory.settings_at_cost(info, &mut cost);
        let before = home.settings().unwrap_or_else(|| info.settings());
        if *settings == *before {
            return cost;
        }
        cost += CHANGE_COST;
        let before = DestinationRef::of(before);
        if before != DestinationRef::of(&settings) {
            // What the queue has dropped is on its way to where it was to go.
            let letters = self.homes.dead_letters.keep_destination(id, before);
            cost += letters / LETTERS_AT_COST;
        }
        let by_policy = match &settings {
            Cow::Borrowed(_) => None,
            Cow::Owned(settings) => Some(Box::new(settings.clone())),
        };
        let settings = settings.into_owned();
        self.homes.queues[slot as usize].set_settings(by_policy);
        self.with_queue(now, slot, out, |queue, sink| {
            queue.apply(now, command::Reconfigure { settings }, sink);
        });
        if self.homes.queues[slot as usize].queue.is_over_limit() {
            self.homes.policies.trim(id, epoch);
            self.list_work(slot);
        } else {
            self.homes.policies.trimmed(id);
        }
        if let Some(info) = self.directory.queue_by_id(id) {
            self.tell_strategy(info, out);
        }
        self.dispatch_ready(now, slot, out);
        cost
    }

    /// A queue that came from another shard follows the policies as they are known here.
    pub(crate) fn renew_arrived(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let epoch = self.directory.policy_epoch();
        self.renew_settings(now, slot, epoch, out);
    }

    /// Somebody waits until every queue and exchange here follows the policies of an epoch, and those that are known
    /// here. The answer, if it is so now.
    pub(crate) fn await_policies(&mut self, now: Now, epoch: u64, number: u64) -> Option<Answer> {
        let epoch = epoch.max(self.directory.policy_epoch());
        let is_quiet = !self.homes.dead_letters.has_any_to_send();
        let policies = &mut self.homes.policies;
        let is_over = (policies.done() >= epoch && is_quiet) || !policies.wait(now, epoch, number);
        is_over.then(|| Answer::PoliciesApplied { epoch: policies.done() })
    }

    /// Answers who waits no more. What the policies had leave its queue is on its way first. Who has waited for long
    /// is told how far the shard is.
    #[inline]
    pub(crate) fn answer_policies(&mut self, now: Now, out: &mut Outbox) {
        if !self.homes.policies.is_awaited() {
            return;
        }
        let epoch = self.homes.policies.done();
        let mut numbers = self.homes.policies.take_overdue(now);
        if !self.homes.dead_letters.has_any_to_send() {
            numbers.extend(self.homes.policies.take_answered());
        }
        for number in numbers {
            out.answers.push((number, Answer::PoliciesApplied { epoch }));
        }
    }
}
