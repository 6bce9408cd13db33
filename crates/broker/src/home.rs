//! A queue at its home: what a shard keeps beside the queue itself: its timer, its place among those with work, and who
//! waits for its end.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{Instant, Now, QueueId, VhostId, slab_entry_bytes};

use crate::directory::QueueInfo;
use crate::held::OfQueue;
use crate::mail::{ChannelRef, Reply};
use crate::queue::{NoSink, Queue, QueueSettings, command};
use crate::shard::Shard;
use crate::timers::{Timer, Timers};
use crate::working::{Debt, Working};

/// Pause before the directory is asked again to delete a queue that is due to go.
const DELETION_PAUSE: Duration = Duration::from_secs(5);
/// A queue on the shard that is its home.
#[derive(Debug)]
pub struct Home {
    /// The queue's id.
    pub id: QueueId,
    /// Its virtual host.
    pub(crate) vhost: VhostId,
    /// Its messages and consumers.
    pub queue: Queue,
    /// What holds for it, where policies say more than its arguments.
    settings: Option<Box<QueueSettings>>,
    /// Its log's place in the journal; [`crate::journal::NO_LOG`] where nothing may be logged for it.
    pub(crate) log: u16,
    /// The earliest timer that is armed.
    armed: Instant,
    /// Whether it is on the list of queues with work left.
    working: bool,
    /// Set while it is to be deleted.
    dying: Option<Box<Dying>>,
    /// Whether its tables are counted anew at the end of the cycle.
    is_unweighed: bool,
    /// Whether it was used since its spare room was looked at last.
    was_used: bool,
    /// Whether its spare room is to be looked at.
    has_spare: bool,
    /// What its consumers' filters took beyond their share.
    pub(crate) filters_owe: Debt,
    /// What the shard's sum has of its tables, in bytes.
    counted_bytes: usize,
    /// What the shard's other sums have of it.
    counted: OfQueue,
}

/// What waits for a queue's deletion.
#[derive(Debug, Default)]
pub(crate) struct Dying {
    /// Answers that hold once the queue is gone.
    pub answers: Vec<(ChannelRef, Reply)>,
    /// Commands that came meanwhile; they find no queue.
    pub commands: Vec<ChannelRef>,
    /// When the directory is asked again, which refused it; `None` while it is asked.
    again_at: Option<Instant>,
}

impl Home {
    /// The home of a queue that was just declared, for which these settings hold.
    #[must_use]
    pub fn new(now: Now, info: &QueueInfo, settings: Cow<'_, QueueSettings>) -> Home {
        Home {
            id: info.id,
            vhost: info.vhost,
            queue: Queue::new(now, &settings, info.auto_delete, info.durable),
            settings: match settings {
                Cow::Borrowed(_) => None,
                Cow::Owned(settings) => Some(Box::new(settings)),
            },
            log: 0,
            armed: Instant::NEVER,
            working: false,
            dying: None,
            is_unweighed: false,
            was_used: false,
            has_spare: false,
            filters_owe: Debt::default(),
            counted_bytes: 0,
            counted: OfQueue::default(),
        }
    }
}

impl Home {
    /// The home of a queue that came from another shard.
    pub(crate) fn arrived(
        (id, vhost): (QueueId, VhostId),
        queue: Queue,
        settings: Option<Box<QueueSettings>>,
        log: u16,
    ) -> Home {
        Home {
            id,
            vhost,
            queue,
            settings,
            log,
            armed: Instant::NEVER,
            working: false,
            dying: None,
            is_unweighed: false,
            was_used: false,
            has_spare: false,
            filters_owe: Debt::default(),
            counted_bytes: 0,
            counted: OfQueue::default(),
        }
    }

    /// What holds for it, where policies say more than its arguments.
    #[must_use]
    pub fn settings(&self) -> Option<&QueueSettings> {
        self.settings.as_deref()
    }

    /// Other settings hold from now on.
    pub(crate) fn set_settings(&mut self, settings: Option<Box<QueueSettings>>) {
        self.settings = settings;
    }

    /// Notes that its tables may change, to be counted anew at the end of the cycle.
    #[inline]
    pub(crate) fn note(&mut self, slot: u32, shard: &mut Shard) {
        if !self.is_unweighed {
            self.is_unweighed = true;
            shard.uncounted.push(slot);
        }
    }

    /// Brings the shard's sums up to date with what it holds.
    pub(crate) fn account_memory(&mut self, shard: &mut Shard) {
        (self.is_unweighed, self.was_used) = (false, true);
        let bytes = self.memory_bytes();
        shard.queue_bytes = shard.queue_bytes + bytes - self.counted_bytes;
        self.counted_bytes = bytes;
        let holds = OfQueue::of(&self.queue);
        let before = core::mem::replace(&mut self.counted, holds);
        shard.held.adjust(before, holds);
        shard.held_of_vhosts.adjust(self.vhost, before, holds);
    }

    /// Whether its tables take more than `least` bytes and nobody looks yet whether it needs them.
    pub(crate) fn note_spare(&mut self, least: usize) -> bool {
        let own = slab_entry_bytes::<Home>();
        self.counted_bytes > own + least && !core::mem::replace(&mut self.has_spare, true)
    }

    /// Gives spare room in its tables back, and says how many bytes they had; `None` if it was used since this was asked
    /// last.
    pub(crate) fn give_spare(&mut self, now: Now, shard: &mut Shard) -> Option<usize> {
        if core::mem::take(&mut self.was_used) {
            return None;
        }
        let had = self.counted_bytes;
        self.queue.apply(now, command::Trim {}, &mut NoSink);
        self.account_memory(shard);
        self.has_spare = false;
        Some(had)
    }

    /// Allocated bytes, this value included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let settings = self.settings.as_ref().map_or(0, |_| size_of::<QueueSettings>());
        slab_entry_bytes::<Home>() - size_of::<Queue>() + self.queue.memory_bytes() + settings
    }

    /// The queue, what holds for it by policies, and its log's place in the journal.
    pub(crate) fn into_parts(self) -> (Queue, Option<Box<QueueSettings>>, u16) {
        (self.queue, self.settings, self.log)
    }

    /// Takes it out of the shard's sums.
    pub(crate) fn forget_bytes(&mut self, shard: &mut Shard) {
        self.forget_holdings(shard);
        shard.queue_bytes -= core::mem::take(&mut self.counted_bytes);
    }

    /// Takes what it holds out of the shard's sums.
    fn forget_holdings(&mut self, shard: &mut Shard) {
        let before = core::mem::take(&mut self.counted);
        shard.held.adjust(before, OfQueue::default());
        shard.held_of_vhosts.adjust(self.vhost, before, OfQueue::default());
        shard.held_of_vhosts.sweep(self.vhost);
    }

    /// Whether it is on the list of queues with work left.
    pub(crate) fn is_listed(&self) -> bool {
        self.working
    }

    /// Whether it is to be deleted.
    pub(crate) fn is_dying(&self) -> bool {
        self.dying.is_some()
    }

    /// Whether the directory is asked to delete it: nobody is served meanwhile.
    pub(crate) fn awaits_deletion(&self) -> bool {
        self.dying.as_ref().is_some_and(|dying| dying.again_at.is_none())
    }

    /// When something has to be done by itself.
    fn next_timeout(&self) -> Instant {
        let again_at = self.dying.as_ref().and_then(|dying| dying.again_at);
        again_at.unwrap_or_else(|| self.queue.next_timeout())
    }

    /// Who waits for its deletion, and what to answer.
    pub(crate) fn take_answers(&mut self) -> Vec<(ChannelRef, Reply)> {
        let Some(dying) = self.dying.take() else { return Vec::new() };
        let gone = dying.commands.into_iter().map(|from| (from, Reply::Gone));
        dying.answers.into_iter().chain(gone).collect()
    }

    /// Puts it on the list of queues with work left.
    pub(crate) fn list(&mut self, slot: u32, working: &mut Working) {
        working.list(&mut self.working, slot, self.id);
    }

    /// It was taken off that list.
    pub(crate) fn unlist(&mut self) {
        self.working = false;
    }

    /// Whether its earliest timer is armed for this moment.
    pub(crate) fn is_armed_for(&self, at: Instant) -> bool {
        self.armed == at
    }

    /// Its earliest timer has fired.
    pub(crate) fn disarm(&mut self) {
        self.armed = Instant::NEVER;
    }

    /// Arms a timer if something is to be done before the earliest one.
    #[inline]
    pub(crate) fn arm(&mut self, slot: u32, timers: &mut Timers) {
        let next = self.next_timeout();
        if next < self.armed {
            self.armed = next;
            timers.arm(next, Timer::Queue(slot, self.id));
        }
    }

    /// Arms a timer for what the queue has to do by itself, unless that is due by now.
    pub(crate) fn arm_later(&mut self, now: Now, slot: u32, timers: &mut Timers) {
        let next = self.queue.next_timeout();
        if next != Instant::NEVER && next > now.instant {
            self.armed = next;
            timers.arm(next, Timer::Queue(slot, self.id));
        }
    }

    /// The directory is asked to delete it; `answer` is given once it is gone.
    pub(crate) fn begin_deletion(&mut self, answer: Option<(ChannelRef, Reply)>) {
        let dying = self.dying.get_or_insert_default();
        dying.answers.extend(answer);
        dying.again_at = None;
    }

    /// A command waits for what the directory says about its deletion.
    pub(crate) fn await_end(&mut self, from: ChannelRef) {
        let dying =
            self.dying.as_mut().expect("only a queue that is to be deleted has commands wait");
        dying.commands.push(from);
    }

    /// The directory refuses to delete it. Who waited for that, if it was asked; a queue that is due to go by itself
    /// has it asked again after a pause.
    pub(crate) fn end_deletion(&mut self, now: Now) -> Option<Box<Dying>> {
        let dying = self.dying.take()?;
        if self.queue.auto_delete_due() || self.queue.is_lease_over(now) {
            let again_at = Some(now.instant + DELETION_PAUSE);
            self.dying = Some(Box::new(Dying { again_at, ..Dying::default() }));
        }
        Some(dying)
    }

    /// That pause is over. Whether there was one.
    pub(crate) fn end_pause(&mut self) -> bool {
        self.dying.take().is_some()
    }

    /// Takes so many bytes of its tables, which are counted apart, out of the shard's sum, and what it holds.
    /// How many bytes are left in the sum.
    pub(crate) fn discount(&mut self, apart: usize, shard: &mut Shard) -> usize {
        self.forget_holdings(shard);
        let left = self.counted_bytes.saturating_sub(apart);
        shard.queue_bytes -= self.counted_bytes - left;
        left
    }
}
