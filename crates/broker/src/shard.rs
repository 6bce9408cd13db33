//! What all owners of a shard's state share: its time, its limits, its memory and what is counted.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use alloc::boxed::Box;
use alloc::format;
use lepus_base::{HashState, Now, Pool, QueueId, Rng, ShardId, VhostId};

use crate::alarm::Alarm;
use crate::backpressure::Backpressure;
use crate::channel::Target;
use crate::counters::Counters;
use crate::directory::{Directory, Message, Request, Routes};
use crate::effort::Effort;
use crate::exchange_counts::ExchangeTable;
use crate::filter_costs::FilterCosts;
use crate::held::{Held, HeldOfVhosts};
use crate::jobs::Jobs;
use crate::journal::Journal;
use crate::loan::{Answer, Lender, Loan};
use crate::mail::Step;
use crate::mail::{ChannelRef, Mail, Origin, Receipt, Reply, ToldFilterCost, report};
use crate::outbox::Outbox;
use crate::outbox::Severity;
use crate::owner::{Conditions, Owner};
use crate::queue::SelectScratch;
use crate::settings::{Limits, Settings};
use crate::timers::Timers;
use crate::trace::Tracing;

/// What messages of one queue take in memory before those that follow go to the log if it has ample room, and before they
/// do in any case.
const QUEUE_MESSAGES_BYTES_SPARED: u64 = 4 << 20;
const QUEUE_MESSAGES_BYTES_MAX: u64 = 32 << 20;
/// Bytes of chunks that one slice of compaction frees at most.
const COMPACTED_AT_ONCE_BYTES: usize = 1024 * 1024;

/// Of the memory that there may be so big a part takes what is on its way to very many queues and waits.
const WAITING_PART: usize = 16;

/// What the owners of a shard's state share.
#[derive(Debug)]
pub struct Shard {
    /// This shard.
    pub id: ShardId,
    /// What the broker was started with.
    pub(crate) settings: Settings,
    pub(crate) hash: HashState,
    pub(crate) rng: Rng,
    /// Set when the broker stops.
    pub(crate) stopping: bool,
    /// What the log knows of what is short.
    pub(crate) alarm: Alarm,
    /// Who lends memory to all shards, on shard 0.
    pub(crate) lender: Option<Lender>,
    /// Publishes and commits that are served in slices.
    pub(crate) jobs: Jobs,
    /// The virtual hosts that are traced.
    pub(crate) tracing: Tracing,
    /// Where the message goes that is routed now.
    pub(crate) routes: Routes,
    /// What the owners of the state tell each other, while it is carried out; to be used again.
    pub(crate) own_steps: VecDeque<Step>,
    /// The queues of that, to be used again.
    pub(crate) targets: Vec<Target>,
    /// For asking consumers' filters.
    pub(crate) selecting: SelectScratch,
    /// Whether each shard is on the memory node of this one.
    pub near: Vec<bool>,
    /// This cycle's time, as the driver last told it.
    pub now: Now,
    /// Limits on what peers can make grow.
    pub limits: Limits,
    /// What the shard may use of the memory budget.
    pub loan: Loan,
    /// Bodies of this shard.
    pub pool: Pool,
    /// Timers of this shard.
    pub timers: Timers,
    /// Totals of this shard.
    pub counters: Counters,
    /// What its queues and connections hold.
    pub held: Held,
    /// What its queues hold, by virtual host.
    pub(crate) held_of_vhosts: HeldOfVhosts,
    /// What was published to exchanges.
    pub(crate) exchanges: ExchangeTable,
    /// What asking the filters of exchanges takes here.
    pub(crate) filter_costs: FilterCosts,
    /// The exchange of a message for which filters took too much in this turn.
    filters_given_up: Option<Box<str>>,
    /// The queue of such a message whose consumers' filters did.
    consumer_filters_given_up: Option<QueueId>,
    /// A commit is being published as a whole: nothing else goes to the log meanwhile.
    pub is_committing: bool,
    /// What was done in this turn.
    pub effort: Effort,
    /// Who waits for what.
    pub backpressure: Backpressure,
    /// Bytes that clients made their connections hold, see [`crate::connection::Connection::memory_bytes`].
    pub connection_bytes: usize,
    /// The same of those that have not opened a vhost: they block nobody, and have a limit of their
    /// own, see [`Limits::entering_bytes_max`].
    pub entering_bytes: usize,
    /// Bytes that wait to be written to the log, and of what queues know of their logs.
    pub log_bytes: usize,
    /// Bytes of what waits for queues on their way to other shards.
    pub parked_mail_bytes: usize,
    /// Bytes of the tables of this shard's queues, as far as they were counted.
    pub queue_bytes: usize,
    /// Queues whose tables are counted anew at the end of the cycle.
    pub uncounted: Vec<u32>,
    /// Bytes of what is done in slices.
    pub job_bytes: usize,
    /// Bytes of the shard's other tables, at the end of the last cycle.
    pub table_bytes: usize,
    /// Bytes of mail on its way to other shards, and of emptied batches on their way back.
    pub mail_bytes: usize,
}

impl Shard {
    /// What a shard begins with.
    #[must_use]
    pub(crate) fn new(settings: Settings) -> Shard {
        let (id, shards, hash) = (settings.shard, settings.shards, settings.hash);
        let limits = settings.limits.clone();
        let own = settings.nodes.get(id.index());
        let lends = id == ShardId(0) && shards > 1;
        Shard {
            id,
            near: settings.nodes.iter().map(|node| Some(node) == own).collect(),
            now: Now::default(),
            loan: Loan::new(&limits, shards),
            lender: lends.then(|| Lender::new(&limits, shards)),
            hash,
            rng: Rng::new(hash.seed() ^ u64::from(id.0) << 32),
            stopping: false,
            alarm: Alarm::default(),
            jobs: Jobs::default(),
            tracing: Tracing::default(),
            selecting: SelectScratch::default(),
            routes: Routes::new(limits.routing_steps_max),
            own_steps: VecDeque::new(),
            targets: Vec::new(),
            limits,
            pool: Pool::new(),
            timers: Timers::default(),
            counters: Counters::default(),
            held: Held::default(),
            held_of_vhosts: HeldOfVhosts::default(),
            exchanges: ExchangeTable::default(),
            filter_costs: FilterCosts::default(),
            filters_given_up: None,
            consumer_filters_given_up: None,
            is_committing: false,
            effort: Effort::default(),
            backpressure: Backpressure::default(),
            connection_bytes: 0,
            entering_bytes: 0,
            log_bytes: 0,
            parked_mail_bytes: 0,
            queue_bytes: 0,
            uncounted: Vec::new(),
            job_bytes: 0,
            table_bytes: 0,
            mail_bytes: 0,
            settings,
        }
    }

    /// Whether the mail to some shard has no room.
    #[inline]
    pub(crate) fn is_mail_full(&self, out: &Outbox) -> bool {
        let limit = self.limits.mail_batch_bytes_max;
        self.parked_mail_bytes > limit || out.mail.iter().any(|batch| batch.weight() > limit)
    }

    /// Whether what comes into a transient queue whose messages take so many bytes of memory goes to the log, where there
    /// is one.
    #[inline]
    pub(crate) fn must_spill(&self, taken_bytes: u64) -> bool {
        let is_much = taken_bytes >= QUEUE_MESSAGES_BYTES_MAX
            || self.pool.used() >= self.spilling_bytes()
            || self.backpressure.is_memory_short();
        is_much && !self.is_committing
    }

    /// Whether it goes there already because there is room for it, though it need not.
    #[inline]
    pub(crate) fn may_spill(&self, taken_bytes: u64) -> bool {
        taken_bytes >= QUEUE_MESSAGES_BYTES_SPARED && !self.is_committing
    }

    /// Bytes of messages in memory above which transient ones go to the log, where there is one.
    #[inline]
    pub(crate) fn spilling_bytes(&self) -> usize {
        self.limits.spill_bytes.min(self.loan.obtainable / 2)
    }

    /// Whether the shard uses more than it has, and the answer to whether there is more is to come.
    #[inline]
    pub(crate) fn awaits_loan(&self) -> bool {
        self.memory() > self.loan.limit && !self.loan.is_all()
    }

    /// Bytes that count against the shard's memory budget; those of connections that have not opened
    /// a vhost do not.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> usize {
        self.pool.used()
            + self.connection_bytes
            + self.queue_bytes
            + self.job_bytes
            + self.table_bytes
            + self.mail_bytes
            + self.log_bytes
    }

    /// Whether memory is used that few bodies keep, and so much in all that it matters: well before
    /// anything is spilled or anybody is blocked for it.
    #[must_use]
    #[inline]
    pub fn must_compact(&self) -> bool {
        self.pool.is_sparse() && self.memory() >= self.spilling_bytes() / 2
    }

    /// A slice of making the pool smaller.
    pub(crate) fn work_on_pool(&mut self) {
        if self.must_compact() {
            self.pool.compact(COMPACTED_AT_ONCE_BYTES);
        }
    }

    /// Gives memory back that is kept for what comes next, when there is little left.
    pub(crate) fn give_spare(&mut self) {
        let limit = self.loan.obtainable;
        if self.memory() + self.pool.spare() > limit - limit / 10 {
            self.pool.give_back();
        }
    }

    /// A home answers a channel, near or far.
    pub(crate) fn reply(&self, to: ChannelRef, queue: QueueId, reply: Reply, out: &mut Outbox) {
        out.send(self.id, to.shard, Mail::Reply { to, queue, reply });
    }

    /// Bytes of messages on their way to very many queues that may wait, above which they keep their turns.
    pub(crate) fn waiting_bytes_max(&self) -> usize {
        self.loan.obtainable / WAITING_PART
    }

    /// Whether anything may be sent to shard `to` for good: it is another one, and the broker does
    /// not stop.
    pub(crate) fn may_send_to(&self, to: ShardId) -> bool {
        to != self.id && to.0 < self.settings.shards && !self.stopping
    }

    /// A message that no client waits for goes nowhere, since its way is too long.
    pub(crate) fn tell_too_far(&mut self, now: Now, exchange: &str, out: &mut Outbox) {
        if !self.effort.must_tell_too_far(now) {
            return;
        }
        let text = format!(
            "routing a message from exchange '{exchange}' takes more than limits.routing_steps_max \
             ({}), so that it reaches no queue; others may, too",
            self.routes.steps_max()
        );
        out.log(Severity::Warning, "routing-too-long", text);
    }

    /// Notes what the filters of exchanges took on the way of the message that was routed last, where that is to be noted.
    #[inline]
    pub(crate) fn note_filters(&mut self, exchange: &str) {
        if self.routes.has_filter_notes() {
            self.note_filters_asked(exchange);
        }
    }

    #[inline(never)]
    fn note_filters_asked(&mut self, exchange: &str) {
        let steps_min = self.filter_steps_told();
        for sample in self.routes.take_filter_samples() {
            self.filter_costs.add(sample, steps_min);
        }
        let unreadable = self.routes.take_bodies_unreadable();
        self.counters.filter_bodies_unreadable += u64::from(unreadable);
        let given_up = self.routes.take_filters_given_up();
        if given_up > 0 {
            self.counters.filters_given_up += u64::from(given_up);
            self.filters_given_up = Some(exchange.into());
        }
    }

    /// Notes whether filters of a queue's consumers took too much for the message that they were asked about last, or could
    /// not read it.
    #[inline]
    pub(crate) fn note_consumer_filters(&mut self, queue: QueueId) {
        let unreadable = self.selecting.take_bodies_unreadable();
        self.counters.filter_bodies_unreadable += u64::from(unreadable);
        let given_up = self.selecting.take_given_up();
        if given_up > 0 {
            self.counters.filters_given_up += u64::from(given_up);
            self.consumer_filters_given_up = Some(queue);
        }
    }

    /// Steps that the filters of an exchange take of a message, from which on the shard that orders the directory's changes
    /// is to know of it.
    fn filter_steps_told(&self) -> u32 {
        self.limits.capacity.exchange_filter_steps_max / 2
    }

    /// Tells the shard that orders the directory's changes what the filters of exchanges take here.
    #[cold]
    fn tell_filter_costs(&mut self, directory: &Directory, out: &mut Outbox) {
        for (place, cost) in self.filter_costs.take_wrong(self.filter_steps_told()) {
            if let Some(info) = directory.exchange_at(place as usize) {
                let exchange = info.name.clone();
                let told = ToldFilterCost { vhost: info.vhost, exchange, cost };
                out.send(self.id, ShardId(0), Mail::FilterCost(Box::new(told)));
            }
        }
    }

    /// Tells the log, at the end of a turn, where filters took too much.
    pub(crate) fn tell_filters(&mut self, now: Now, directory: &Directory, out: &mut Outbox) {
        if self.filter_costs.has_wrong() {
            self.tell_filter_costs(directory, out);
            self.filter_costs.arm(now, &mut self.timers);
        }
        if let Some(queue) = self.consumer_filters_given_up.take()
            && self.effort.must_tell_filters(now)
        {
            let text = format!(
                "a filter of a consumer of {} takes more than its share for a message, which is passed over; others may, \
                 too",
                directory.describe_queue(queue)
            );
            out.log(Severity::Warning, "filters-too-long", text);
        }
        let Some(exchange) = self.filters_given_up.take() else { return };
        if !self.effort.must_tell_filters(now) {
            return;
        }
        let text = format!(
            "the filters of bindings that a message to exchange '{exchange}' comes to take more than their share of \
             limits.routing_steps_max ({}), so that none of these bindings takes it; others may, too",
            self.routes.steps_max()
        );
        out.log(Severity::Warning, "filters-too-long", text);
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
        let items = out.items_for(self.id, to.shard);
        report(items, to, (number, number), queues, receipt);
    }

    /// The shard's equal share of the memory budget is so many bytes from now on.
    pub(crate) fn set_memory_share(&mut self, bytes: usize) {
        self.limits.memory_bytes = bytes;
        self.loan.set_share(bytes);
    }

    /// Asks for memory that will be needed, or gives back what is not.
    pub(crate) fn adjust_loan(&mut self, out: &mut Outbox) {
        if self.settings.shards < 2 {
            return;
        }
        let used = self.memory();
        // The lender hears itself at once: after less than it asked for it learns that this is all.
        while let Some(bytes) = self.loan.ask(used) {
            match &mut self.lender {
                Some(lender) => {
                    let answer = lender.ask(self.id, bytes);
                    self.loan.take(answer.lent, answer.left);
                }
                None => out.mail[0].items.push(Mail::WantMemory { bytes }),
            }
        }
        if let Some(bytes) = self.loan.give_back(used) {
            match self.lender {
                Some(_) => self.memory_returned(self.id, bytes, out),
                None => out.mail[0].items.push(Mail::ReturnMemory { bytes }),
            }
        }
    }

    /// A shard asks for memory (on shard 0).
    pub(crate) fn memory_wanted(&mut self, from: ShardId, bytes: usize, out: &mut Outbox) {
        let lender = self.lender.as_mut().expect("only shard 0 is asked for memory");
        let answer = lender.ask(from, bytes);
        self.tell_loan(answer, out);
    }

    /// A shard gives memory back (on shard 0).
    pub(crate) fn memory_returned(&mut self, from: ShardId, bytes: usize, out: &mut Outbox) {
        let lender = self.lender.as_mut().expect("memory goes back to shard 0");
        lender.give_back(from, bytes);
        while let Some(answer) = self.lender.as_mut().and_then(Lender::next_answer) {
            self.tell_loan(answer, out);
        }
    }

    pub(crate) fn tell_loan(&mut self, answer: Answer, out: &mut Outbox) {
        let Answer { to, lent, left } = answer;
        if to == self.id {
            self.loan.take(lent, left);
        } else {
            out.mail[to.index()].items.push(Mail::MemoryLent { bytes: lent, left });
        }
    }

    /// Whether so much was done for what was received in this turn that no more is to be read before
    /// [`flush`](crate::Broker::flush): what came already waits, and is asked for again then.
    #[must_use]
    pub fn has_read_enough(&self) -> bool {
        self.effort.has_read_before()
    }

    /// Whether so much was done for mail of other shards, before anything was read in this turn, that the rest
    /// is to wait for the next one.
    #[must_use]
    pub fn has_taken_enough_mail(&self) -> bool {
        self.effort.is_used_up()
    }

    /// How many queues were looked at, so far, to find out what room in the logs a message needs that found none at
    /// first. In a turn there are few of them, however many messages wait.
    #[must_use]
    pub fn looked_for_room(&self) -> u64 {
        self.effort.looked_for_room()
    }

    /// What another shard tells of what it has and what it lacks.
    pub(crate) fn mail(&mut self, from: ShardId, mail: Mail, out: &mut Outbox) {
        match mail {
            Mail::Short(shortage) => self.backpressure.set_shortage_of(from, shortage),
            Mail::LogLags(lags) => self.backpressure.set_log_late_of(from, lags),
            Mail::WantMemory { bytes } => self.memory_wanted(from, bytes, out),
            Mail::ReturnMemory { bytes } => self.memory_returned(from, bytes, out),
            Mail::MemoryLent { bytes, left } => self.loan.take(bytes, left),
            other => panic!("{other:?} is not between shards"),
        }
    }

    /// So many bytes of this shard's mail are on their way to others, or as emptied batches back.
    pub fn note_mail_on_its_way(&mut self, bytes: usize) {
        self.mail_bytes = bytes;
    }

    /// What the broker was started with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Who lends memory; on shard 0 where there are several.
    #[must_use]
    pub fn lender(&self) -> Option<&Lender> {
        self.lender.as_ref()
    }

    /// Whether publishers are blocked because memory is short.
    #[must_use]
    pub fn is_short_of_memory(&self) -> bool {
        self.backpressure.is_memory_short()
    }

    /// Whether connections that have not opened a vhost hold more memory than they may: then some
    /// of them have to give way.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.entering_bytes > self.limits.entering_bytes_max()
    }

    /// Those that may have work, owe something or hold mail: see [`Owner`].
    pub(crate) fn owners(&self) -> [&dyn Owner; 3] {
        [&self.jobs, &self.backpressure, self]
    }

    /// How many other shards there are.
    pub(crate) fn others(&self) -> u32 {
        u32::from(self.settings.shards) - 1
    }

    /// What decides now whether owners get on.
    pub(crate) fn conditions<'a>(
        &'a self,
        journal: &'a Journal,
        out: &'a Outbox,
    ) -> Conditions<'a> {
        Conditions {
            journal,
            out,
            limits: &self.limits,
            parked_mail_bytes: self.parked_mail_bytes,
            awaits_loan: self.awaits_loan(),
            is_stopping: self.stopping,
        }
    }

    /// Finds the queues that a message reaches. An exchange that vanished since it was checked
    /// reaches none. False where the way to them is too long.
    pub(crate) fn find_routes(
        &mut self,
        directory: &Directory,
        vhost: VhostId,
        message: Message<'_>,
    ) -> bool {
        self.routes.clear();
        let (routes, rng) = (&mut self.routes, &mut self.rng);
        let _ = directory.route(vhost, message, rng, routes);
        self.effort.spend(routes.steps());
        self.note_filters(message.exchange);
        !self.routes.are_too_far()
    }

    /// Asks for a change of the directory: shard 0 decides.
    pub(crate) fn ask_directory(&self, origin: Origin, request: Request, out: &mut Outbox) {
        let mail = Mail::Ask { origin, request: Box::new(request) };
        out.send(self.id, ShardId(0), mail);
    }

    /// Whether publishers are held back for something that no publish of a row changes.
    #[inline]
    pub(crate) fn is_short_of_anything(&self, journal: &Journal) -> bool {
        journal.is_short() || journal.is_behind() || self.backpressure.is_short_elsewhere()
    }
}

/// Its pool, which is made smaller in slices.
impl Owner for Shard {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        self.must_compact()
    }
}
