//! What mail from other shards means.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, Now, QueueId, ShardId};

use crate::broker::Broker;
use crate::channel::Target;
use crate::dead_letter::must_arrive;
use crate::effort::{MESSAGE_BYTES, TARGETS_AT_ONCE_MAX};
use crate::jobs::Job;
use crate::journal::{LogSet, Need, Refusals, Room};
use crate::mail::{
    ChannelRef, Command, LETTERS_CONNECTION, Mail, MailBatch, Many, Receipt, Reply, Step, Terms,
    report,
};
use crate::message::{Incoming, packed};
use crate::migration::{Parcel, Rest};
use crate::outbox::Outbox;
use crate::postponed::{Asked, Few, Part, Postponed, Waits, Wish};
use crate::refusal::{Refusal, RefusalKind};

impl Broker {
    /// Mail from another shard. The batch is left empty.
    pub fn mail(&mut self, now: Now, from: ShardId, batch: &mut MailBatch, out: &mut Outbox) {
        self.shard.now = now;
        let bytes = core::mem::take(&mut batch.bytes);
        let mut items = core::mem::take(&mut batch.items);
        self.shard.effort.spend_on_queues(items.len());
        self.shard.effort.spend_on_bytes(bytes.len());
        let mut mails = items.drain(..);
        let own = self.shard.id;
        let mut targets = core::mem::take(&mut self.homes.mailed_targets);
        // Of a transaction: what it needs before the first message, and items that follow.
        let (mut commit, mut commit_items) = (None, 0_usize);
        while let Some(mail) = mails.next() {
            let is_of_commit = commit_items > 0;
            commit_items = commit_items.saturating_sub(1);
            let Mail::Enqueue { queue, message, persistent, priority, expiration, from, number } =
                mail
            else {
                match mail {
                    Mail::Commit { bytes, items } => {
                        let following = mails.as_slice().get(..items).unwrap_or_default();
                        (commit, commit_items) = (self.commit_need(bytes, following), items);
                    }
                    Mail::EnqueueMany(many) => self.many_mailed(&many, &bytes),
                    mail => {
                        self.on_mail(now, from, mail, &bytes, out);
                        self.carry_own_mail(now, out);
                    }
                }
                continue;
            };
            let part = match commit.take() {
                None if is_of_commit => Part::Next,
                None => Part::Alone,
                Some(need) => Part::First(need),
            };
            let target = |queue| Target { queue, home: own, slot: u32::MAX };
            targets.clear();
            targets.push(target(queue));
            // Neighbours for the same message: it is stored once for all of them.
            while let Some(Mail::Enqueue { message: same, .. }) = mails.as_slice().first()
                && *same == message
                && let Some(Mail::Enqueue { queue, .. }) = mails.next()
            {
                targets.push(target(queue));
                commit_items = commit_items.saturating_sub(1);
            }
            let expiration = expiration.map(core::time::Duration::from_millis);
            let terms = Terms { persistent, priority, expiration, from, number };
            let view = packed(&bytes, message);
            if let Some(waits) = self.must_postpone(&Incoming::new(view), &targets, &terms, part) {
                let body = view.pack(&mut self.shard.pool);
                let bytes = view.body.len() as u32;
                let targets = targets.clone();
                let few = Few { body, bytes, targets, terms, part };
                self.homes.postponed.push(Postponed::Few(few), waits);
                continue;
            }
            self.enqueue_part(now, Incoming::new(view), &targets, terms, part, out);
        }
        drop(mails);
        self.homes.mailed_targets = targets;
        batch.items = items;
        batch.bytes = bytes;
        batch.clear();
        self.settle_down(now, out);
    }

    /// Carries out what the owners of this shard's state tell each other, and what follows from it. A home answers a
    /// channel, and the directory who asked it, as they do on another shard; only that nothing has to be packed.
    pub(crate) fn carry_own_mail(&mut self, now: Now, out: &mut Outbox) {
        while !out.own.is_empty() || self.sessions.follow_ups.has_grants() {
            self.carry_mail(now, out);
            if let Some((slot, channel)) = self.sessions.follow_ups.next_grant() {
                self.grant_credit(now, slot, channel, out);
            }
        }
    }

    fn carry_mail(&mut self, now: Now, out: &mut Outbox) {
        let own = self.shard.id;
        let mut steps = core::mem::take(&mut self.shard.own_steps);
        steps.extend(out.own.drain(..).map(Step::Mail));
        while let Some(step) = steps.pop_front() {
            let mut dispatch = None;
            match step {
                Step::Mail(Mail::Command { from, queue, command }) if from.shard == own => {
                    dispatch = self.pass_command(now, from, queue, command, out);
                }
                Step::Mail(mail) => self.on_mail(now, own, mail, &[], out),
                Step::Dispatch(home) => self.pump(now, home, out),
            }
            // What follows from a step comes before the next one, and what a home answers before what it delivers.
            dispatch.into_iter().for_each(|home| steps.push_front(Step::Dispatch(home)));
            out.own.drain(..).rev().for_each(|mail| steps.push_front(Step::Mail(mail)));
        }
        self.shard.own_steps = steps;
    }

    /// A channel of this shard asks the home of a queue, wherever that is. The home whose queue is to deliver then,
    /// if that is here.
    fn pass_command(
        &mut self,
        now: Now,
        from: ChannelRef,
        queue: QueueId,
        command: Command,
        out: &mut Outbox,
    ) -> Option<u32> {
        let own = self.shard.id;
        let home = self.directory.queue_by_id(queue).map_or(own, |info| info.home);
        // A consumer that ends takes no more of what is to be gone before its queue leaves.
        let is_end = matches!(command, Command::Cancel(..));
        let rests =
            self.homes.migrations.rests(queue).is_some_and(|rest| !is_end || rest.is_expected());
        if (rests || home != own)
            && let Some((_, connection)) = self.sessions.connection(from.connection, u32::MAX)
        {
            connection.touch(home);
        }
        if rests {
            self.let_rest(queue, Parcel::Mail(Mail::Command { from, queue, command }));
        } else if home == own {
            return self.command(now, from, queue, command, out);
        } else {
            out.mail[home.index()].items.push(Mail::Command { from, queue, command });
        }
        None
    }

    /// A message for very many queues of this shard.
    fn many_mailed(&mut self, many: &Many, bytes: &[u8]) {
        let fanout =
            self.shard.jobs.mailed_fanout(&mut self.shard.pool, self.shard.id, many, bytes);
        if self.homes.postponed.has_from(many.from) {
            self.homes.postponed.push(Postponed::Many(fanout), Waits::Turn);
        } else {
            self.shard.jobs.push(Job::Fanout(fanout));
        }
    }

    /// A message that has room, of a transaction or alone.
    fn enqueue_part(
        &mut self,
        now: Now,
        incoming: Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        part: Part,
        out: &mut Outbox,
    ) {
        // All of it lands in one batch of each log.
        self.journal.hold(part.begun());
        // The room in the log, and the batch, are for what has to be there.
        self.shard.is_committing = part != Part::Alone;
        self.enqueue_mailed(now, incoming, targets, terms, out);
        self.shard.is_committing = false;
    }

    /// A message for queues of this shard; each of them is reported to the publisher.
    pub(crate) fn enqueue_mailed(
        &mut self,
        now: Now,
        mut incoming: Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        out: &mut Outbox,
    ) {
        let before = self.shard.counters.enqueued_local;
        let kept;
        let targets = if self.homes.migrations.is_idle() {
            targets
        } else {
            // What came before the queue did waits for it.
            kept = self.set_aside(&mut incoming, targets, terms, |rest| rest.is_expected());
            &kept[..]
        };
        let routed = self.enqueue_here(now, &mut incoming, targets, terms, out);
        // Counted where it was published.
        self.shard.counters.enqueued_local = before;
        incoming.finish(&mut self.shard.pool);
        if let Some((to, number)) = terms.confirm() {
            let is_gone = |target: &Target| self.home_slot(target.queue, target.slot).is_none();
            let receipt = match must_arrive(to) && targets.iter().any(is_gone) {
                true => Receipt::Refused,
                false => routed.receipt,
            };
            // What is logged is reported when it is durable.
            let count = targets.len() as u32 - routed.logs;
            if count > 0 {
                self.report_enqueued(to, number, count, receipt, out);
            }
        }
    }

    /// Tells a publisher, here or elsewhere, what became of a message.
    pub(crate) fn report_enqueued(
        &self,
        to: ChannelRef,
        number: u64,
        queues: u32,
        receipt: Receipt,
        out: &mut Outbox,
    ) {
        let items = out.items_for(self.shard.id, to.shard);
        report(items, to, (number, number), queues, receipt);
    }

    /// What a message has to wait for: room in its logs, or one of its channel that waits.
    fn must_postpone(
        &mut self,
        incoming: &Incoming<'_>,
        targets: &[Target],
        terms: &Terms,
        part: Part,
    ) -> Option<Waits> {
        if self.homes.postponed.has_from(terms.from) || self.must_give_up(part.begun()) {
            return Some(Waits::Turn);
        }
        self.must_wait_for_room(incoming, targets, terms, part)
    }

    /// What a message waits for that finds no room, or the transaction that it begins.
    fn must_wait_for_room(
        &mut self,
        incoming: &Incoming<'_>,
        targets: &[Target],
        terms: &Terms,
        part: Part,
    ) -> Option<Waits> {
        match part {
            Part::Alone => {
                let occupied = self.occupied_by(terms);
                let frees = occupied.frees();
                self.journal.set_passing(frees, true);
                let room = self.room_beside(incoming, terms.persistent, targets, occupied);
                self.journal.set_passing(frees, false);
                match room {
                    Room::Later(need) => Some(Waits::for_room(need, frees)),
                    Room::Now | Room::Never(_) => None,
                }
            }
            // It must not come apart because one of its queues is not here yet.
            Part::First(_) if self.homes.migrations.expects_any() => Some(Waits::Arrivals),
            Part::First(need) => {
                self.journal.must_wait_for(need).then(|| Waits::for_room(need, None))
            }
            // Asked again, it might be told that the room is gone which the transaction took.
            Part::Next => None,
        }
    }

    /// What a transaction of another shard waits for that brings these items: bytes of a segment at most,
    /// since what none holds is not atomic over a crash.
    fn commit_need(&self, bytes: usize, items: &[Mail]) -> Option<Need> {
        let store = self.shard.settings.store.as_ref()?;
        let bytes = bytes.min(store.template.payload_bytes_max());
        (bytes > 0).then(|| Need { logs: self.logs_of_mailed(items), bytes })
    }

    /// Logs that are to have something of these items.
    fn logs_of_mailed(&self, items: &[Mail]) -> LogSet {
        if self.journal.len() == 1 {
            return LogSet::ALL;
        }
        let mut logs = LogSet::default();
        for item in items {
            if let Mail::Enqueue { queue, persistent: true, .. } = item {
                self.log_of(*queue).into_iter().for_each(|log| logs.add(log));
            }
        }
        logs
    }

    /// The logs that are to have something of a transaction now, whose first message this is, and how many queues
    /// were looked at: some may be gone since it came.
    fn logs_of_commit(&self, first: &Few) -> (LogSet, usize) {
        let rest = self.homes.postponed.rest_of_commit(first.terms.from);
        let persistent = core::iter::once(first).chain(rest).filter(|few| few.terms.persistent);
        let (mut logs, mut looked_at) = (LogSet::default(), 0);
        for target in persistent.flat_map(|few| &few.targets) {
            looked_at += 1;
            self.log_of(target.queue).into_iter().for_each(|log| logs.add(log));
            if self.journal.len() == 1 && !logs.is_empty() {
                break;
            }
        }
        (logs, looked_at)
    }

    /// What the oldest of a channel still has to wait for.
    fn must_still_wait(&mut self, few: &Few) -> Option<Waits> {
        // It is only looked at.
        let incoming = Incoming::from_body(few.body, few.bytes);
        self.must_wait_for_room(&incoming, &few.targets, &few.terms, few.part)
    }

    /// A message that waited for its queue, which is here now, goes into it. What finds no room in the
    /// log waits as other mail does, and with it its channel alone. It came before all that waits of the channel
    /// for that queue, but for those that waited for the queue in front of it: `postponed` says how many of these
    /// wait for room now.
    pub(crate) fn enqueue_or_postpone(
        &mut self,
        now: Now,
        few: Few,
        postponed: &mut BTreeMap<ChannelRef, usize>,
        out: &mut Outbox,
    ) {
        let from = few.terms.from;
        let before = postponed.get(&from).copied().unwrap_or_default();
        let waits = if before == 0 { self.must_still_wait(&few) } else { Some(Waits::Turn) };
        let Some(waits) = waits else {
            return self.enqueue_few(now, few, out);
        };
        self.homes.postponed.insert(before, Postponed::Few(few), waits);
        postponed.insert(from, before + 1);
        out.own.push(Mail::PublishesWait { channel: from, on: true });
    }

    fn enqueue_few(&mut self, now: Now, few: Few, out: &mut Outbox) {
        let incoming = Incoming::from_body(few.body, few.bytes);
        let frees = self.occupied_by(&few.terms).frees();
        self.journal.set_passing(frees, true);
        self.enqueue_part(now, incoming, &few.targets, few.terms, few.part, out);
        self.journal.set_passing(frees, false);
    }

    /// Mail that waited for room in the log goes into its queues, as far as there is some. What one
    /// channel sent keeps that of no other waiting: it may need more room than there ever is. So many queues are
    /// looked at, or get something, as in a slice of a job, and fewer get large messages; more only where a
    /// transaction goes to more, of which all lands in one batch. What is left is for the next time: those first
    /// that were not looked at.
    pub(crate) fn enqueue_postponed(&mut self, now: Now, out: &mut Outbox) {
        self.homes.postponed.cut(false);
        if self.homes.postponed.is_empty() {
            return;
        }
        if !self.homes.migrations.expects_any() {
            self.homes.postponed.end_arrivals();
        }
        let mut budget = TARGETS_AT_ONCE_MAX;
        for _ in 0..self.homes.postponed.turns() {
            if budget == 0 {
                break;
            }
            let Some(channel) = self.homes.postponed.take_turn() else { break };
            self.enqueue_postponed_of(now, channel, &mut budget, out);
        }
        let (mut asked, mut refusals) = (None, Refusals::new());
        while let Some((wish, channel)) = self.homes.postponed.next_roomless(asked) {
            // Asked also where nothing more is done in this turn: room is made only for who asks.
            if self.lacks_wished(wish, &mut refusals) {
                asked = Some(Asked::Refused(wish, channel));
                continue;
            }
            if budget == 0 {
                self.homes.postponed.cut(true);
                break;
            }
            asked = Some(Asked::Taken(wish, channel));
            self.homes.postponed.take_roomless(channel);
            self.enqueue_postponed_of(now, channel, &mut budget, out);
        }
    }

    /// Publishes of clients that are gone wait for room: whoever said more behind one waits for nothing any more.
    pub(crate) fn end_lost_publishers(&mut self, now: Now, out: &mut Outbox) {
        let near: Vec<ChannelRef> = self.homes.postponed.near().collect();
        for channel in near {
            if self.sessions.is_lost(channel.connection) {
                self.end_lost(now, channel, out);
            }
        }
    }

    /// Whether there is no room for which somebody waits.
    fn lacks_wished(&mut self, wish: Wish, refusals: &mut Refusals) -> bool {
        match wish.frees {
            None => refusals.must_wait(wish.need, &mut self.journal),
            // It may use what is kept for such.
            frees => self.journal.must_wait_to_pass_on(wish.need, frees),
        }
    }

    /// What waits of a channel goes on as far as it can, which takes what it does off the `budget`.
    fn enqueue_postponed_of(
        &mut self,
        now: Now,
        channel: ChannelRef,
        budget: &mut usize,
        out: &mut Outbox,
    ) {
        let (mut gives_up, mut is_first) = (false, true);
        while let Some(first) = self.homes.postponed.pop(channel) {
            match first {
                Postponed::Few(few) if gives_up => self.give_up(few, out),
                Postponed::Few(mut few) => {
                    let is_begun = few.part == Part::Next;
                    // Many of them are looked at where nothing else was.
                    if !is_begun
                        && *budget < TARGETS_AT_ONCE_MAX
                        && *budget < few.targets.len().max(1)
                    {
                        *budget = 0;
                        return self.homes.postponed.put_back(
                            Postponed::Few(few),
                            Waits::Turn,
                            is_first,
                        );
                    }
                    *budget = budget.saturating_sub(few.targets.len().max(1));
                    if let Part::First(need) = few.part {
                        let (logs, looked_at) = self.logs_of_commit(&few);
                        few.part = Part::First(Need { logs, ..need });
                        *budget = budget.saturating_sub(looked_at);
                        self.shard.effort.look_for_room(looked_at);
                    }
                    if self.must_give_up(few.part.begun()) {
                        gives_up = true;
                        self.give_up(few, out);
                    } else if let Some(waits) = self.must_still_wait(&few) {
                        return self.homes.postponed.put_back(Postponed::Few(few), waits, false);
                    } else {
                        *budget = budget.saturating_sub(few.bytes as usize / MESSAGE_BYTES);
                        self.enqueue_few(now, few, out);
                    }
                }
                Postponed::Many(fanout) => {
                    *budget = budget.saturating_sub(1);
                    self.shard.jobs.push(Job::Fanout(fanout));
                }
                Postponed::Command { from, queue, command } => {
                    *budget = budget.saturating_sub(1);
                    out.own.push(Mail::Command { from, queue, command });
                }
            }
            is_first = false;
        }
        if channel.shard == self.shard.id {
            self.publishes_go_on(channel, out);
        }
    }

    /// Whether the logs close and a transaction finds no room in them as a whole: then nothing of it
    /// happens, nor of what its channel sent after it.
    fn must_give_up(&self, commit: Need) -> bool {
        commit.bytes > 0 && self.journal.closes() && self.journal.has_no_room(commit)
    }

    /// A postponed message comes into no queue.
    fn give_up(&mut self, few: Few, out: &mut Outbox) {
        let Few { body, targets, terms, .. } = few;
        self.shard.pool.release(body);
        self.shard.counters.unlogged += targets.len() as u64;
        if let Some((to, number)) = terms.confirm() {
            self.report_enqueued(to, number, targets.len() as u32, Receipt::Unlogged, out);
        }
    }

    /// A question from a channel of another shard, once all that the channel published before is
    /// in its queues.
    pub(crate) fn command_mailed(
        &mut self,
        now: Now,
        from: ChannelRef,
        queue: QueueId,
        command: Command,
        out: &mut Outbox,
    ) {
        if self.homes.postponed.has_from(from) && command.is_about_messages() {
            self.homes.postponed.push(Postponed::Command { from, queue, command }, Waits::Turn);
        } else if self.homes.migrations.rests(queue).is_some_and(Rest::is_expected) {
            self.let_rest(queue, Parcel::Mail(Mail::Command { from, queue, command }));
        } else if let Some(home) = self.command(now, from, queue, command, out) {
            self.carry_own_mail(now, out);
            self.pump(now, home, out);
        }
    }

    /// A channel ends, and with it its question, if that waits here: it is answered.
    pub(crate) fn question_given_up(&mut self, from: ChannelRef, out: &mut Outbox) {
        let Some(queue) = self.homes.postponed.give_up(from) else { return };
        let refusal = Refusal::new(RefusalKind::ChannelError, "the channel ends");
        self.reply(from, queue, Reply::Refused(refusal), out);
    }

    fn on_mail(&mut self, now: Now, from: ShardId, mail: Mail, bytes: &[u8], out: &mut Outbox) {
        match mail {
            // Taken out before.
            Mail::Enqueue { .. } | Mail::EnqueueMany(_) | Mail::Commit { .. } => {}
            Mail::Fanned { to } => self.fanned(to),
            Mail::Enqueued { to, first, last, queues, receipt } => {
                if to.connection == LETTERS_CONNECTION {
                    self.letters_reported(now, to, (first, last), queues, receipt);
                } else {
                    self.publish_reported(to, (first, last), queues, receipt);
                }
            }
            Mail::Govern { queue, .. }
                if self.homes.migrations.rests(queue).is_some_and(Rest::is_expected) =>
            {
                self.let_rest(queue, Parcel::Mail(mail));
            }
            Mail::Command { from, queue, command } => {
                self.command_mailed(now, from, queue, command, out);
            }
            Mail::GiveUp { from } => {
                self.question_given_up(from, out);
            }
            Mail::Reply { to, queue, reply } => {
                self.on_mailed_reply(now, from, to, queue, reply, bytes, out)
            }
            Mail::Settle { queue, hint, slot, sequence, outcome } => {
                let hint = if from == self.shard.id { hint } else { u32::MAX };
                if let Some(home) = self.settle_home(now, queue, hint, slot, sequence, outcome, out)
                {
                    self.pump(now, home, out);
                }
            }
            Mail::PublishesWait { channel, on } => self.publishes_wait(channel, on),
            Mail::Hold { queue, on } => self.hold_home(now, queue, on, out),
            Mail::Deliver { .. } => self.on_delivery(from, &mail, bytes, out),
            Mail::DeliverReply { .. } => self.reply_mailed(&mail, bytes, out),
            Mail::ReturnReply { to, message } => {
                self.return_reply(to, &packed(bytes, message), out);
            }
            Mail::FindReplyConsumer { of, from } => self.find_reply_consumer(of, from, out),
            Mail::ConsumerCancelled { to, queue } => self.consumer_cancelled(now, to, queue, out),
            Mail::Window { connection, bytes } => self.window_returned(now, connection, bytes, out),
            Mail::WantCredit { to, queue } => self.credit_wanted(to, queue, from),
            Mail::GrantCredit { to, queue } => self.credit_granted(now, to, queue, from, out),
            Mail::ReturnCredit { to } => self.credit_returned(to),
            Mail::Govern { consumer, queue, on } => {
                self.govern(now, consumer, queue, on, out);
            }
            Mail::MoveBarrier { connection, number } => {
                self.move_barrier(from, connection, number, out);
            }
            Mail::MovePassed { number, .. } => self.sessions.departures.passed(number),
            Mail::DetachConsumers { connection, number } => {
                self.detach_consumers(from, connection, number, out);
            }
            Mail::ConsumersDetached { number } => self.sessions.departures.detached(number),
            Mail::ConnectionStays { connection, consumers } => {
                self.attach_again(now, connection, &consumers, out);
            }
            Mail::QueueLeaves { queue, number } => self.queue_leaves(from, queue, number, out),
            Mail::QueueQuiet { number } => self.homes.migrations.is_quiet(number),
            Mail::QueueUndecided { queue } => self.take_log_from(queue, out),
            Mail::QueueStays { queue } => self.rest_over(now, queue, out),
            Mail::QueueArrives { queue, cargo } => {
                self.queue_arrives(now, from, queue, *cargo, out)
            }
            Mail::Short(shortage) => {
                self.shard.backpressure.set_shortage_of(from, shortage);
            }
            Mail::LogLags(lags) => {
                self.shard.backpressure.set_log_late_of(from, lags);
            }
            Mail::WantMemory { bytes } => self.memory_wanted(from, bytes, out),
            Mail::ReturnMemory { bytes } => self.memory_returned(from, bytes, out),
            Mail::MemoryLent { bytes, left } => self.shard.loan.take(bytes, left),
            Mail::ConnectionCounted { connection, vhost, user, came } => {
                self.connection_counted(connection, vhost, user, came);
            }
            Mail::ChannelsCounted { user, channels } => {
                self.sessions.user_channels.set_elsewhere(&user, from, channels);
            }
            Mail::ConnectionGone(id) => {
                self.homes.remote.windows.remove(&id);
                self.homes.remote.detached.retain(|detached| *detached != id);
            }
            Mail::Ask { origin, request } => self.sequence(now, origin, *request, out),
            Mail::Answer { origin, result } => self.pass_answer(now, origin, result, out),
            Mail::CloseConnection { connection, text } => {
                self.close_connection(now, connection, &text, out);
            }
        }
    }

    fn window_returned(&mut self, now: Now, id: ConnectionId, bytes: u64, out: &mut Outbox) {
        let Some(window) = self.homes.remote.windows.get_mut(&id) else { return };
        window.room += bytes as i64;
        // Whoever finds none left waits for the next time.
        while self.homes.remote.windows.get(&id).is_some_and(|window| window.room > 0)
            && let Some((queue, key)) =
                self.homes.remote.take_first_behind(&mut self.shard.backpressure, id)
        {
            self.resume_remote(now, queue, key, out);
        }
    }
}
