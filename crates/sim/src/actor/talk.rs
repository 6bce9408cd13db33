//! What a client says next.

use lepus_amqp::Method;
use lepus_amqp::client::encode_publish;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, channel, confirm, exchange, queue, tx};
use lepus_amqp::table::Table;
use lepus_base::{Instant, Rng};

use super::goal::{Goal, random_properties};
use super::{
    Actor, Channel, Consumer, Expect, Held, Mode, Proof, Question, Settlement, Standing, TxStep,
    settle,
};
use crate::oracle::{Gone, Oracle, Toggled, body_of};
use crate::peer::Peer;
use crate::plan::{Kind, Plan, Volatility};
use crate::routing::{Filter, Routes};

/// Questions that a client asks before it has heard the answer to the first.
const QUESTIONS_MAX: usize = 4;
/// Channels of a client.
const CHANNELS_MAX: u64 = 3;

/// Everything that a client needs for saying something.
pub(crate) struct Stage<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) plan: &'a Plan,
    pub(crate) oracle: &'a mut Oracle,
    /// The number of the next channel incarnation.
    pub(crate) channels: &'a mut u64,
    pub(crate) faults: bool,
}

impl Actor {
    /// Says something. Returns what, for the trace.
    pub(crate) fn act(&mut self, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        if self.standing != Standing::Open {
            return String::new();
        }
        if stage.rng.chance(1, 20) {
            self.answer_closes(peer);
        }
        if !self.cancelled.is_empty() && stage.rng.chance(1, 4) {
            self.answer_cancel(peer);
        }
        let number = 1 + stage.rng.below(CHANNELS_MAX) as u16;
        if self.owed.contains(&number) {
            return String::new();
        }
        let Some(mut channel) = self.channels.remove(&number) else {
            return self.open(number, peer, stage);
        };
        let before = peer.output.len();
        let mut text = String::new();
        if channel.doomed.is_some() {
            if stage.rng.chance(1, 2) {
                text = channel.publish(number, peer, stage);
            }
        } else if !channel.closing {
            text = self.say(number, &mut channel, peer, stage);
        }
        self.channels.insert(number, channel);
        match text.is_empty() {
            true => text,
            false => {
                let bytes = peer.output.len() - before;
                format!("client {} channel {number} says {text} ({bytes} bytes)", self.name)
            }
        }
    }

    fn open(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        *stage.channels += 1;
        let mode = match stage.rng.below(6) {
            0 => Mode::Tx,
            1 | 2 => Mode::Plain,
            _ => Mode::Confirm,
        };
        let mut opened = Channel::new(*stage.channels, mode);
        if self.mortal || self.expelled || self.refusable || stage.plan.times_out {
            opened.mortal = true;
            stage.oracle.uncertain.insert(opened.id);
        }
        let name = Expect::Name("channel.open-ok");
        opened.ask(number, channel::Open {}, name, false, peer);
        match mode {
            Mode::Plain => {}
            Mode::Confirm => {
                let select = confirm::Select { no_wait: false };
                opened.ask(number, select, Expect::Name("confirm.select-ok"), false, peer);
            }
            Mode::Tx => {
                stage.oracle.transactional.insert(opened.id);
                opened.ask(number, tx::Select {}, Expect::Name("tx.select-ok"), false, peer);
            }
        }
        self.channels.insert(number, opened);
        format!("client {} opens channel {number} ({}) for {mode:?}", self.name, *stage.channels)
    }

    fn say(
        &mut self,
        number: u16,
        channel: &mut Channel,
        peer: &mut Peer,
        stage: &mut Stage<'_>,
    ) -> String {
        let may_ask = channel.questions.len() < QUESTIONS_MAX;
        match stage.rng.below(100) {
            0..40 => {
                let mut text = String::new();
                let burst_max = match channel.mode {
                    Mode::Tx => stage.plan.commit_burst_max,
                    Mode::Plain | Mode::Confirm => stage.plan.burst_max,
                };
                for _ in 0..1 + stage.rng.below(burst_max) {
                    text += &channel.publish(number, peer, stage);
                }
                text
            }
            40..60 if self.hoards && stage.rng.chance(9, 10) => String::new(),
            40..60 => channel.settle_some(number, peer, stage),
            _ if !may_ask => String::new(),
            60..68 => self.consume(number, channel, peer, stage),
            68..71 => channel.cancel(number, peer, stage),
            71..77 => channel.get(number, self.polite, peer, stage),
            77..80 => channel.limit(number, peer, stage),
            80..82 => {
                let recover = basic::Recover { requeue: true };
                channel.recovering += 1;
                channel.release_all(stage.oracle);
                channel.ask(number, recover, Expect::Recover, false, peer);
                "basic.recover".into()
            }
            82..88 if channel.mode == Mode::Tx => channel.end_tx(number, peer, stage),
            82..90 => channel.meddle(number, peer, stage),
            90..92 => channel.count(number, peer, stage),
            92..94 => channel.toggle(number, peer, stage),
            94..96 if stage.faults => channel.offend(number, peer, stage),
            96..98 => channel.close(number, peer, stage),
            _ => String::new(),
        }
    }

    fn consume(
        &mut self,
        number: u16,
        channel: &mut Channel,
        peer: &mut Peer,
        stage: &mut Stage<'_>,
    ) -> String {
        if channel.consumers.len() > 3 {
            return String::new();
        }
        let place = stage.rng.below(stage.plan.queues.len() as u64) as usize;
        let plan = &stage.plan.queues[place];
        let may_fail = !plan.is_stable();
        if may_fail && channel.is_careful() {
            return String::new();
        }
        if channel.global > 0 && matches!(plan.kind, Kind::Quorum(_)) {
            // The broker does not do that.
            return String::new();
        }
        let no_ack = self.polite && !may_fail && stage.rng.chance(1, 3);
        if no_ack && channel.questions.iter().any(|question| question.may_fail) {
            return String::new();
        }
        self.tags += 1;
        let tag = format!("c{}-{}", self.name, self.tags);
        let mut arguments = Table::new();
        if stage.rng.chance(1, 4) {
            arguments.insert("x-priority", stage.rng.below(3) as i32);
        }
        let filter = Filter::of_consumer(self.tags as usize + self.name);
        if let Some((filter, name)) = filter {
            arguments.insert("x-filter", filter.text(name));
        }
        let arguments = arguments.to_bytes();
        let consume = basic::Consume {
            queue: &plan.name,
            consumer_tag: &tag,
            no_ack,
            exclusive: may_fail && stage.rng.chance(1, 5),
            arguments: arguments.as_ref(),
            ..Default::default()
        };
        let prefetch = channel.prefetch;
        let consumer = Consumer { queue: place, no_ack, prefetch, filter, ..Consumer::default() };
        channel.consumers.insert(tag.clone(), consumer);
        channel.risk(may_fail, stage.oracle);
        channel.ask(number, consume, Expect::Consume(tag.clone()), may_fail, peer);
        format!("basic.consume {} as {tag}, no_ack {no_ack}, prefetch {prefetch}", plan.name)
    }

    /// Says what is to be said before the connection can be closed without losing anything.
    /// Returns whether that was nothing.
    pub(crate) fn prepare_to_leave(&mut self, peer: &mut Peer) -> bool {
        let mut ready = true;
        for (&number, channel) in &mut self.channels {
            if channel.closing || channel.doomed.is_some() {
                continue;
            }
            let tags: Vec<String> = channel
                .consumers
                .iter()
                .filter(|(_, consumer)| consumer.no_ack && !consumer.cancelling)
                .map(|(tag, _)| tag.clone())
                .collect();
            for tag in tags {
                ready = false;
                channel.say_cancel(number, &tag, peer);
            }
        }
        ready
    }

    /// Acknowledges all that can be.
    pub(crate) fn settle_all(&mut self, peer: &mut Peer, plan: &Plan, oracle: &mut Oracle) {
        for (&number, channel) in &mut self.channels {
            if channel.closing || channel.doomed.is_some() || channel.mode == Mode::Tx {
                continue;
            }
            for tag in channel.held.keys().copied().collect::<Vec<u64>>() {
                let said =
                    channel.tell(number, basic::Ack { delivery_tag: tag, multiple: false }, peer);
                let Some(held) = channel.held.remove(&tag) else { continue };
                channel.settled(said, &held, Settlement::Ack, plan, oracle);
            }
        }
    }

    /// Leaves in good order.
    pub(crate) fn leave(&mut self, now: Instant, peer: &mut Peer, oracle: &mut Oracle) {
        for channel in self.channels.values_mut() {
            channel.release_all(oracle);
            oracle.uncertain.insert(channel.id);
            channel.closing = true;
        }
        self.standing = Standing::Closing;
        if let Some(machine) = &mut peer.machine {
            machine.close(now, ReplyCode::REPLY_SUCCESS, "goodbye", &mut peer.output);
        }
    }

    /// Whether the connection may break off at any moment.
    pub(crate) fn may_break(&self) -> bool {
        !self.polite && !matches!(self.standing, Standing::Gone | Standing::Refused)
    }
}

impl Channel {
    fn ask<'a>(
        &mut self,
        number: u16,
        method: impl Into<Method<'a>>,
        expect: Expect,
        may_fail: bool,
        peer: &mut Peer,
    ) {
        let at = self.tell(number, method, peer);
        self.questions.push_back(Question { at, expect, may_fail });
    }

    fn tell<'a>(&mut self, number: u16, method: impl Into<Method<'a>>, peer: &mut Peer) -> u64 {
        method.into().encode_frame(number, &mut peer.output);
        self.said += 1;
        self.said
    }

    /// Notes that the channel may be closed by what is said next.
    fn risk(&mut self, may_fail: bool, oracle: &mut Oracle) {
        if may_fail {
            oracle.uncertain.insert(self.id);
        }
    }

    fn publish(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        let is_tx = self.mode == Mode::Tx;
        let goal = Goal::random(stage.rng, stage.plan, stage.oracle, (self.id, is_tx));
        let Goal { exchange, key, address, toggled, delayed, .. } = goal;
        let Routes { certain, choices } = stage.oracle.with_known(goal.routes);
        let mut roots: Vec<usize> = certain.iter().copied().collect();
        roots.extend(choices.iter().flat_map(|choice| choice.among.difference(&certain)));
        roots.sort_unstable();
        roots.dedup();
        let (rng, plan) = (&mut *stage.rng, stage.plan);
        let bytes = match rng.below(20) {
            0 => 5000 + rng.below(plan.large_bytes) as usize,
            1..4 => 200 + rng.below(2000) as usize,
            _ => 8 + rng.below(40) as usize,
        };
        let mandatory = rng.chance(1, 4);
        let mut properties = random_properties(rng);
        let may_expire = roots
            .iter()
            .all(|&root| plan.queues[root].dead_letters() || !plan.queues[root].is_stable());
        if may_expire && toggled.is_none() && rng.chance(1, 5) {
            properties.expiration = Some(rng.below(50).to_string());
        }
        let [mut sent, mut seen] = [properties.clone(), properties];
        let [sent_headers, seen_headers] = address.tables();
        if !sent_headers.is_empty() {
            (sent.headers, seen.headers) = (Some(sent_headers), Some(seen_headers));
        }
        let (properties, seen) = (sent.to_bytes(), seen.to_bytes());
        let message = stage.oracle.publish(self.id, &exchange, &key, &roots, &seen, bytes);
        stage.oracle.messages[message].delayed = delayed;
        if !choices.is_empty() {
            stage.oracle.messages[message].certain = certain;
            stage.oracle.messages[message].choices = choices;
        }
        if let Some(place) = toggled {
            stage.oracle.toggled[place].published.push(message);
        }
        encode_publish(
            &mut peer.output,
            number,
            peer.machine.as_ref().map_or(u32::MAX, |machine| machine.frame_max()),
            &exchange,
            &key,
            mandatory,
            &properties,
            &body_of(message, bytes),
        );
        self.said += 1;
        if self.doomed.is_some() {
            stage.oracle.decide_never(message);
            return format!("(in vain) message {message}, ");
        }
        match self.mode {
            Mode::Tx => self.steps.push(TxStep::Publish(message)),
            Mode::Plain => self.proofs.push_back((self.said, Proof::Publish(message))),
            Mode::Confirm => {
                self.published += 1;
                let must_return = mandatory && roots.is_empty() && !delayed;
                self.unconfirmed.insert(self.published, (message, must_return));
                self.proofs.push_back((self.said, Proof::Publish(message)));
            }
        }
        format!("message {message} to '{exchange}' '{key}', ")
    }

    fn settle_some(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        if self.held.is_empty() {
            return String::new();
        }
        let place = stage.rng.below(self.held.len() as u64) as usize;
        let Some(&tag) = self.held.keys().nth(place) else { return String::new() };
        let multiple = stage.rng.chance(1, 3);
        let settlement = match stage.rng.below(10) {
            0..6 => Settlement::Ack,
            6..8 => Settlement::Requeue,
            _ => Settlement::Drop,
        };
        let requeue = settlement == Settlement::Requeue;
        let said = match settlement {
            Settlement::Ack => self.tell(number, basic::Ack { delivery_tag: tag, multiple }, peer),
            _ if !multiple && stage.rng.chance(1, 2) => {
                self.tell(number, basic::Reject { delivery_tag: tag, requeue }, peer)
            }
            _ => {
                let nack = basic::Nack { delivery_tag: tag, multiple, requeue };
                self.tell(number, nack, peer)
            }
        };
        let first = if multiple { 0 } else { tag };
        if multiple {
            // They stay in limbo: a transaction that is rolled back gives them back.
            for &copy in self.limbo.range(..=tag).map(|(_, copy)| copy) {
                let copy = stage.oracle.copy(copy);
                if copy.gone == Gone::No && settlement != Settlement::Requeue {
                    copy.gone = Gone::Maybe;
                }
            }
        }
        let tags: Vec<u64> = self.held.range(first..=tag).map(|(&tag, _)| tag).collect();
        for &tag in &tags {
            let Some(held) = self.held.remove(&tag) else { continue };
            if self.mode == Mode::Tx {
                self.count_down(&held);
                self.steps.push(TxStep::Settle(tag, held, settlement));
                continue;
            }
            self.settled(said, &held, settlement, stage.plan, stage.oracle);
        }
        format!("{settlement:?} of deliveries {tags:?}, multiple {multiple}")
    }

    /// A consumer has one delivery less to settle.
    fn count_down(&mut self, held: &Held) {
        if let Some(name) = &held.consumer
            && let Some(consumer) = self.consumers.get_mut(name)
        {
            consumer.outstanding = consumer.outstanding.saturating_sub(1);
        }
    }

    fn settled(
        &mut self,
        said: u64,
        held: &Held,
        settlement: Settlement,
        plan: &Plan,
        oracle: &mut Oracle,
    ) {
        self.count_down(held);
        if let Some(received) = settle(held, settlement, self.id, &plan.queues, oracle) {
            self.proofs.push_back((said, Proof::Settle(held.copy, received)));
        }
    }

    fn cancel(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        let candidates: Vec<String> = self
            .consumers
            .iter()
            .filter(|(_, consumer)| consumer.started && !consumer.cancelling)
            .map(|(tag, _)| tag.clone())
            .collect();
        if candidates.is_empty() {
            return String::new();
        }
        let tag = &candidates[stage.rng.below(candidates.len() as u64) as usize];
        self.say_cancel(number, tag, peer);
        format!("basic.cancel {tag}")
    }

    fn say_cancel(&mut self, number: u16, tag: &str, peer: &mut Peer) {
        if let Some(consumer) = self.consumers.get_mut(tag) {
            consumer.cancelling = true;
        }
        let cancel = basic::Cancel { consumer_tag: tag, no_wait: false };
        self.ask(number, cancel, Expect::Cancel(tag.to_owned()), false, peer);
    }

    fn get(&mut self, number: u16, polite: bool, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        let place = stage.rng.below(stage.plan.queues.len() as u64) as usize;
        let plan = &stage.plan.queues[place];
        let may_fail = !plan.is_stable();
        if may_fail && self.is_careful() {
            return String::new();
        }
        let risky = self.questions.iter().any(|question| question.may_fail);
        let no_ack = polite && !may_fail && !risky && stage.rng.chance(1, 2);
        self.risk(may_fail, stage.oracle);
        let get = basic::Get { queue: &plan.name, no_ack };
        self.ask(number, get, Expect::Get { queue: place, no_ack }, may_fail, peer);
        format!("basic.get {}, no_ack {no_ack}", plan.name)
    }

    fn limit(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        let limit = stage.rng.below(6) as u16;
        let mut qos = basic::Qos { prefetch_size: 0, prefetch_count: limit, global: false };
        let untouched = self.consumers.is_empty() && self.held.is_empty() && self.mode != Mode::Tx;
        if untouched && stage.rng.chance(1, 2) {
            qos.global = true;
            // An earlier limit may still have its grants under way.
            self.global = match (self.global, u32::from(limit)) {
                (_, 0) => 0,
                (0, limit) => limit,
                (before, limit) => before.max(limit),
            };
        } else {
            self.prefetch = u32::from(limit);
        }
        self.ask(number, qos, Expect::Name("basic.qos-ok"), false, peer);
        format!("basic.qos {limit}, global {}", qos.global)
    }

    fn end_tx(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        let steps = std::mem::take(&mut self.steps);
        let may_fail = is_too_large(&steps, stage);
        // What is on its way to somebody who acknowledges nothing goes with a channel that fails.
        if stage.rng.chance(2, 3) && !(may_fail && self.is_careful()) {
            self.risk(may_fail, stage.oracle);
            let mut publishes = Vec::new();
            let mut settled = Vec::new();
            for step in steps {
                match step {
                    TxStep::Publish(message) => publishes.push(message),
                    TxStep::Settle(_, held, settlement) => {
                        let received =
                            settle(&held, settlement, self.id, &stage.plan.queues, stage.oracle);
                        settled.extend(received.map(|received| (held.copy, received)));
                    }
                }
            }
            let text = format!("tx.commit of {publishes:?}");
            let expect = Expect::Commit { publishes, settled };
            self.ask(number, tx::Commit {}, expect, may_fail, peer);
            return text;
        }
        for step in steps {
            match step {
                TxStep::Publish(message) => stage.oracle.decide_never(message),
                TxStep::Settle(tag, held, _) => {
                    self.held.insert(tag, held);
                }
            }
        }
        self.ask(number, tx::Rollback {}, Expect::Name("tx.rollback-ok"), false, peer);
        "tx.rollback".into()
    }

    /// Declares, deletes or purges a volatile queue.
    fn meddle(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        let volatile: Vec<_> =
            stage.plan.queues.iter().filter(|queue| !queue.is_stable()).collect();
        if volatile.is_empty() || self.is_careful() {
            return String::new();
        }
        let plan = volatile[stage.rng.below(volatile.len() as u64) as usize];
        self.risk(true, stage.oracle);
        match stage.rng.below(8) {
            0 => {
                let purge = queue::Purge { queue: &plan.name, no_wait: false };
                self.ask(number, purge, Expect::Name("queue.purge-ok"), true, peer);
                format!("queue.purge {}", plan.name)
            }
            1 => {
                let delete = queue::Delete { queue: &plan.name, ..Default::default() };
                self.ask(number, delete, Expect::Name("queue.delete-ok"), true, peer);
                format!("queue.delete {}", plan.name)
            }
            _ => {
                let arguments = plan.arguments().to_bytes();
                let declare = queue::Declare {
                    queue: &plan.name,
                    durable: plan.durable,
                    exclusive: plan.kind == Kind::Volatile(Volatility::Exclusive),
                    auto_delete: plan.kind == Kind::Volatile(Volatility::AutoDelete),
                    arguments: arguments.as_ref(),
                    ..Default::default()
                };
                self.ask(number, declare, Expect::Name("queue.declare-ok"), true, peer);
                format!("queue.declare {}", plan.name)
            }
        }
    }

    /// Binds a queue to an exchange of its own or unbinds one.
    fn toggle(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        let own = stage.oracle.toggled.iter().position(|toggled| toggled.owner == self.id);
        let Some(place) = own else {
            let exchange = format!("toggled-{}", self.id);
            let durable = stage.rng.chance(1, 2);
            let declare = exchange::Declare {
                exchange: &exchange,
                r#type: "fanout",
                durable,
                ..Default::default()
            };
            let expect = Expect::Toggle(stage.oracle.toggled.len(), "exchange.declare-ok");
            self.ask(number, declare, expect, false, peer);
            let text = format!("exchange.declare {exchange}");
            stage.oracle.toggled.push(Toggled {
                exchange,
                durable,
                owner: self.id,
                bound: Default::default(),
                pending: 1,
                lost: false,
                published: Vec::new(),
            });
            return text;
        };
        let stable: Vec<usize> = (0..stage.plan.queues.len())
            .filter(|&queue| {
                let plan = &stage.plan.queues[queue];
                plan.is_stable() && plan.kind != Kind::Dead
            })
            .collect();
        let queue = stable[stage.rng.below(stable.len() as u64) as usize];
        let (binds, name) = (stage.oracle.toggle(place, queue), &stage.plan.queues[queue].name);
        let exchange = stage.oracle.toggled[place].exchange.clone();
        if binds {
            let bind = queue::Bind { queue: name, exchange: &exchange, ..Default::default() };
            self.ask(number, bind, Expect::Toggle(place, "queue.bind-ok"), false, peer);
            format!("queue.bind {name} to {exchange}")
        } else {
            let unbind = queue::Unbind { queue: name, exchange: &exchange, ..Default::default() };
            self.ask(number, unbind, Expect::Toggle(place, "queue.unbind-ok"), false, peer);
            format!("queue.unbind {name} from {exchange}")
        }
    }

    fn count(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        let place = stage.rng.below(stage.plan.queues.len() as u64) as usize;
        let plan = &stage.plan.queues[place];
        if !plan.is_stable() {
            return String::new();
        }
        let declare = queue::Declare { queue: &plan.name, passive: true, ..Default::default() };
        self.ask(number, declare, Expect::Name("queue.declare-ok"), false, peer);
        format!("queue.declare {}, passive", plan.name)
    }

    /// Says something for which the broker must close the channel.
    fn offend(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        if self.is_careful() {
            return String::new();
        }
        self.release_all(stage.oracle);
        oracle_releases_steps(self, stage.oracle);
        stage.oracle.uncertain.insert(self.id);
        let said = match stage.rng.below(3) {
            0 => {
                let ack = basic::Ack { delivery_tag: 1 << 40, multiple: stage.rng.chance(1, 2) };
                self.tell(number, ack, peer)
            }
            1 => {
                encode_publish(
                    &mut peer.output,
                    number,
                    u32::MAX,
                    "no such exchange",
                    "",
                    false,
                    &[0, 0],
                    b"",
                );
                self.said += 1;
                self.said
            }
            _ => {
                let declare =
                    queue::Declare { queue: "missing", passive: true, ..Default::default() };
                self.tell(number, declare, peer)
            }
        };
        self.doomed = Some(said);
        "something wrong".into()
    }

    fn close(&mut self, number: u16, peer: &mut Peer, stage: &mut Stage<'_>) -> String {
        if self.is_careful() {
            return String::new();
        }
        self.release_all(stage.oracle);
        oracle_releases_steps(self, stage.oracle);
        stage.oracle.uncertain.insert(self.id);
        self.closing = true;
        let close =
            channel::Close { reply_code: 200, reply_text: "enough", class_id: 0, method_id: 0 };
        self.ask(number, close, Expect::Close, false, peer);
        "channel.close".into()
    }
}

/// Whether no log may ever have room for a transaction, since the number of segments is limited.
fn is_too_large(steps: &[TxStep], stage: &Stage<'_>) -> bool {
    let (Some(segments_max), Some(store)) = (stage.plan.segments_max(), &stage.plan.options.store)
    else {
        return false;
    };
    let publishes = steps.iter().filter_map(|step| match step {
        TxStep::Publish(message) => Some(*message),
        TxStep::Settle(..) => None,
    });
    let bytes = stage.oracle.logged_bytes_max(publishes);
    let segment = store.template.payload_bytes_max();
    // Two segments in a row hold more than one is long; one more may be begun at both ends.
    let segments = 2 + 2 * bytes / segment;
    segments + store.template.reserve_segments >= segments_max
}

/// What a transaction took is free when its channel goes.
fn oracle_releases_steps(channel: &Channel, oracle: &mut Oracle) {
    for step in &channel.steps {
        if let TxStep::Settle(_, held, _) = step {
            oracle.release(held.copy, channel.id);
        }
    }
}
