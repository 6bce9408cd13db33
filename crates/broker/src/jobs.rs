//! What clients asked for and takes long, or has to wait for room in a log: publishes to very many
//! queues, publishes that no log has room for, commits. Each is a job with a cursor, served in
//! slices between other work. So is freeing the publishes of a transaction that nobody commits.
//!
//! A channel has one job at a time; what it says meanwhile is parked. So jobs need no order among
//! each other: those that can go on take turns, those that need room wait until there is enough.

mod commit;
mod fanout;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use lepus_base::{QueueId, ShardId};

pub(crate) use commit::{Commit, Plan, Whole};
pub(crate) use fanout::{Asker, Fanout};

use crate::channel::{HeldPublish, Target};
use crate::delayed::Delayed;
use crate::directory::Directory;
use crate::journal::{Journal, LogSet, Need, Refusals};
use crate::mail::ChannelRef;
use crate::owner::{Conditions, Owner};

/// Held publishes that are freed in one slice.
const FREED_AT_ONCE_MAX: usize = 2048;

/// Something that takes long.
#[derive(Debug)]
pub(crate) enum Job {
    Fanout(Fanout),
    Commit(Box<Commit>),
}

impl Job {
    /// The channel of this shard that asked for it.
    fn client(&self) -> Option<ChannelRef> {
        match self {
            Job::Fanout(fanout) => fanout.client(),
            Job::Commit(commit) => Some(commit.channel()),
        }
    }

    /// The channel, of whatever shard, that asked for it, or what stands for one.
    pub(crate) fn channel(&self) -> ChannelRef {
        match self {
            Job::Fanout(fanout) => fanout.channel(),
            Job::Commit(commit) => commit.channel(),
        }
    }

    /// Whether it waits for others that a delayed exchange holds back, whatever room there is.
    pub(crate) fn waits_for_others(
        &self,
        directory: &Directory,
        delayed: &Delayed,
        journal: &mut Journal,
    ) -> bool {
        matches!(self, Job::Fanout(fanout) if fanout.waits_for_others(directory, delayed, journal))
    }

    /// Whether a part of it would come apart from the rest if it began while a queue is on its way.
    fn waits_for_moves(&self) -> bool {
        matches!(self, Job::Commit(commit) if !commit.is_begun())
    }

    /// Whether it still waits for what it needs.
    fn must_wait(&self, need: Need, refusals: &mut Refusals, journal: &mut Journal) -> bool {
        match self {
            Job::Fanout(fanout) => fanout.must_wait(need, refusals, journal),
            Job::Commit(_) => refusals.must_wait(need, journal),
        }
    }
}

/// How far a slice brought a job.
pub(crate) enum Step {
    Done,
    More(Job),
    /// It goes on when there is room in its logs.
    NeedsRoom(Job, Need),
    /// The commit goes on when its last publish, a job now, is served, or what its channel published
    /// before has room.
    Fans(Box<Commit>),
}

/// The jobs of a shard.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Those that can go on, by turns.
    ready: VecDeque<Job>,
    /// Those that wait until their logs have room, by turns.
    roomless: VecDeque<(Job, Need)>,
    /// Channels of this shard one of whose publishes is a job.
    publishing: BTreeSet<ChannelRef>,
    /// Commits one of whose publishes is a job, or whose channel has something that waits for room, by
    /// their channel.
    fanning: BTreeMap<ChannelRef, Box<Commit>>,
    /// Publishes that nobody commits, and that are to be freed; no list is empty.
    discarded: VecDeque<VecDeque<HeldPublish>>,
    /// Channels with a publish on its way to very many queues, and how many other shards have yet
    /// to say that theirs have it.
    away: BTreeMap<ChannelRef, u32>,
    /// The list of targets made last, for publishes that go the same way.
    list: Option<Weak<[Target]>>,
    /// Bytes of lists of targets, and of publishes that are being committed or freed.
    bytes: usize,
}

impl Jobs {
    /// Memory that is counted nowhere else, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Publishes that are being committed or freed take so many bytes.
    fn count_held(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Publishes of so many bytes are done.
    fn discount_held(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Nobody commits these publishes, which are counted: they are freed in slices.
    fn discard(&mut self, publishes: VecDeque<HeldPublish>) {
        if !publishes.is_empty() {
            self.discarded.push_back(publishes);
        }
    }

    /// Frees a slice of what was discarded.
    pub(crate) fn free_discarded(&mut self) {
        let mut left = FREED_AT_ONCE_MAX;
        while left > 0
            && let Some(publishes) = self.discarded.front_mut()
        {
            let count = publishes.len().min(left);
            let bytes: usize = publishes.drain(..count).map(|held| held.memory_bytes()).sum();
            let is_done = publishes.is_empty();
            left -= count;
            self.discount_held(bytes);
            if is_done {
                self.discarded.pop_front();
            }
        }
    }

    /// A job can go on, behind those that do so, too.
    pub(crate) fn push(&mut self, job: Job) {
        self.ready.push_back(job);
    }

    /// How many can go on.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The next of them.
    pub(crate) fn next_ready(&mut self) -> Option<Job> {
        self.ready.pop_front()
    }

    /// A job goes on when there is room in its logs.
    pub(crate) fn wait_for_room(&mut self, job: Job, need: Need) {
        self.roomless.push_back((job, need));
    }

    /// Lets jobs go on that waited for room in their logs, as far as there is some. One that needs more
    /// than there is keeps none behind it waiting that needs less: it may wait for ever. So does one of which `is_behind`
    /// says that it waits for something else. The channels of this shard whose jobs still wait.
    pub(crate) fn give_room(
        &mut self,
        is_moving: bool,
        journal: &mut Journal,
        is_behind: impl Fn(&Job, &mut Journal) -> bool,
    ) -> Vec<ChannelRef> {
        let mut waiting = Vec::new();
        let (mut place, mut refusals) = (0, Refusals::new());
        while let Some((job, need)) = self.roomless.get(place) {
            if is_moving && job.waits_for_moves() {
                place += 1;
                continue;
            }
            if is_behind(job, journal) || job.must_wait(*need, &mut refusals, journal) {
                place += 1;
                waiting.extend(job.client());
                continue;
            }
            if let Some((job, _)) = self.roomless.remove(place) {
                self.ready.push_back(job);
            }
        }
        waiting
    }

    /// Targets as a list that is shared by those that go the same way.
    fn list_of(&mut self, targets: &[Target]) -> Arc<[Target]> {
        match self.list.as_ref().and_then(Weak::upgrade) {
            Some(list) if core::ptr::eq(&*list, targets) => list,
            _ => self.list_from(targets.iter().copied()),
        }
    }

    /// The same of what an iterator has. Very many are written down once.
    pub(crate) fn list_from(
        &mut self,
        targets: impl ExactSizeIterator<Item = Target> + Clone,
    ) -> Arc<[Target]> {
        if let Some(list) = self.list.as_ref().and_then(Weak::upgrade)
            && list.len() == targets.len()
            && list.iter().copied().eq(targets.clone())
        {
            return list;
        }
        let list: Arc<[Target]> = targets.collect();
        self.bytes += size_of_val(&*list);
        self.list = Some(Arc::downgrade(&list));
        list
    }

    /// A job does not need its list any more.
    pub(crate) fn drop_list(&mut self, list: Arc<[Target]>) {
        if Arc::strong_count(&list) == 1 {
            self.bytes -= size_of_val(&*list);
            // It would keep the memory.
            let is_it =
                |last: &mut Weak<[Target]>| core::ptr::addr_eq(last.as_ptr(), Arc::as_ptr(&list));
            drop(self.list.take_if(is_it));
        }
    }

    /// A channel's publish goes to so many other shards.
    pub(crate) fn send_away(&mut self, channel: ChannelRef, shards: u32) {
        let other = self.away.insert(channel, shards);
        assert!(other.is_none(), "a channel publishes nothing before its publish is in all queues");
    }

    /// Whether other shards have yet to say that theirs have a channel's publish.
    pub(crate) fn is_away(&self, channel: ChannelRef) -> bool {
        self.away.get(&channel).is_some_and(|left| *left > 0)
    }

    /// A shard is done with a channel's publish. Whether all are.
    pub(crate) fn come_back(&mut self, channel: ChannelRef) -> bool {
        let Some(left) = self.away.get_mut(&channel) else { return true };
        if *left > 0 {
            *left -= 1;
            return false;
        }
        self.away.remove(&channel);
        true
    }

    /// Whether a publish of a channel of this shard is a job, or on its way to very many queues.
    pub(crate) fn has_fanout_of(&self, channel: ChannelRef) -> bool {
        self.publishing.contains(&channel) || self.away.contains_key(&channel)
    }

    /// A commit goes on behind what its channel publishes.
    pub(crate) fn wait_for_publish(&mut self, commit: Box<Commit>) {
        let other = self.fanning.insert(commit.channel(), commit);
        assert!(other.is_none(), "a channel has one commit at a time");
    }

    /// The channels of commits that go on behind a publish of theirs.
    pub(crate) fn commits_behind_publishes(&self) -> impl Iterator<Item = ChannelRef> {
        self.fanning.keys().copied()
    }

    /// A publish that was a job is served: the commit that it belongs to goes on, if there is one.
    pub(crate) fn end_fanning(&mut self, channel: ChannelRef) -> bool {
        let Some(commit) = self.fanning.remove(&channel) else { return false };
        self.ready.push_back(Job::Commit(commit));
        true
    }

    /// Whether a message that was mailed to this queue is yet to come into it.
    fn is_mailed_for(&self, queue: QueueId) -> bool {
        let roomless = self.roomless.iter().map(|(job, _)| job);
        self.ready
            .iter()
            .chain(roomless)
            .any(|job| matches!(job, Job::Fanout(fanout) if fanout.is_mailed_for(queue)))
    }

    /// Takes a channel's commit out if nothing of it was done yet.
    pub(crate) fn take_unbegun(&mut self, channel: ChannelRef) -> Option<Box<Commit>> {
        let is_it = |job: &Job| matches!(job, Job::Commit(commit) if commit.is_of(channel) && !commit.is_begun());
        let job = match self.ready.iter().position(is_it) {
            Some(place) => self.ready.remove(place),
            None => match self.roomless.iter().position(|(job, _)| is_it(job)) {
                Some(place) => self.roomless.remove(place).map(|(job, _)| job),
                None => {
                    self.fanning.get(&channel).filter(|commit| !commit.is_begun())?;
                    return self.fanning.remove(&channel);
                }
            },
        };
        match job {
            Some(Job::Commit(commit)) => Some(commit),
            _ => None,
        }
    }

    /// A queue has another home, and another id.
    pub(crate) fn redirect(&mut self, old: QueueId, new: Target, own: ShardId) {
        let roomless = self.roomless.iter_mut().map(|(job, _)| job);
        for job in self.ready.iter_mut().chain(roomless) {
            if let Job::Fanout(fanout) = job {
                fanout.redirect(old, new, own);
            }
        }
    }

    /// Those that wait for room in one of these logs, and commits that wait for one of `commits`, wait for nothing
    /// that is known any more: they find out anew what they need once they may go on.
    pub(crate) fn look_anew(&mut self, left: LogSet, commits: LogSet) {
        for (job, need) in &mut self.roomless {
            let is_commit = matches!(job, Job::Commit(_));
            if need.logs.meets(if is_commit { commits } else { left }) {
                *need = Need::default();
            }
        }
    }
}

impl Owner for Jobs {
    fn has_work(&self, conditions: &Conditions<'_>) -> bool {
        !self.discarded.is_empty() || (!self.ready.is_empty() && conditions.jobs_go_on())
    }

    fn owes(&self) -> bool {
        !(self.ready.is_empty()
            && self.roomless.is_empty()
            && self.fanning.is_empty()
            && self.discarded.is_empty())
    }

    fn waits_for_room(&self) -> bool {
        !self.roomless.is_empty()
    }

    fn has_of(&self, queue: QueueId) -> bool {
        self.is_mailed_for(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted_while_somebody_has_them() {
        let mut jobs = Jobs::default();
        let target = |n: u64| Target { queue: QueueId(n), home: ShardId(0), slot: u32::MAX };
        let one: Vec<Target> = (0..600).map(target).collect();
        let two: Vec<Target> = (1..601).map(target).collect();
        let iter = |list: &Vec<Target>| list.clone().into_iter();
        let many = jobs.list_from(iter(&one));
        let job = jobs.list_of(&many);
        assert_eq!(jobs.bytes, size_of_val(&*one));
        jobs.drop_list(many);
        let again = jobs.list_from(iter(&one));
        let other = jobs.list_from(iter(&two));
        assert_eq!(jobs.bytes, 2 * size_of_val(&*one));
        let third = jobs.list_from(iter(&one));
        assert_eq!(jobs.bytes, 3 * size_of_val(&*one));
        for list in [job, other, again, third] {
            jobs.drop_list(list);
        }
        assert_eq!(jobs.bytes, 0);
        assert!(jobs.list.is_none(), "the memory is kept");
    }
}
