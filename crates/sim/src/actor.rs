//! A simulated client that does random work and checks everything that it is told.

mod goal;
mod talk;

pub(crate) use talk::Stage;

use std::collections::{BTreeMap, VecDeque};

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, channel};
use lepus_amqp::{Method, Properties};
use lepus_base::Rng;

use crate::inbox::Answer;
use crate::oracle::{Arrival, ChannelId, Commit, CopyId, Fate, Gone, MessageId, Oracle, Taking};
use crate::peer::{Heard, Peer};
use crate::plan::{Plan, QueuePlan};
use crate::routing::Filter;

/// What the broker says of a commit that no log ever takes.
const TOO_LARGE: &str = "larger than what may be stored";

/// What went wrong.
pub(crate) type Verdict = Result<(), String>;

/// A consumer as its client sees it.
#[derive(Debug, Default)]
struct Consumer {
    queue: usize,
    no_ack: bool,
    prefetch: u32,
    outstanding: u32,
    started: bool,
    cancelling: bool,
    /// What a header has to be of what it gets.
    filter: Option<(Filter, &'static str)>,
    /// The last message that came for the first time, by the channel that published it.
    last: BTreeMap<ChannelId, MessageId>,
}

/// A delivery that the client has to settle.
#[derive(Debug)]
struct Held {
    copy: CopyId,
    queue: usize,
    consumer: Option<String>,
}

/// How a delivery is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settlement {
    Ack,
    Drop,
    Requeue,
}

/// Something said that will be certain once a later question is answered.
#[derive(Debug)]
enum Proof {
    Publish(MessageId),
    Settle(CopyId, u32),
}

/// Something that a transaction holds back.
#[derive(Debug)]
enum TxStep {
    Publish(MessageId),
    Settle(u64, Held, Settlement),
}

/// What a question's answer must be.
#[derive(Debug)]
enum Expect {
    Name(&'static str),
    Consume(String),
    Cancel(String),
    Get { queue: usize, no_ack: bool },
    Recover,
    Toggle(usize, &'static str),
    Commit { publishes: Vec<MessageId>, settled: Vec<(CopyId, u32)> },
    Close,
}

#[derive(Debug)]
struct Question {
    at: u64,
    expect: Expect,
    may_fail: bool,
}

/// How a channel publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Plain,
    Confirm,
    Tx,
}

/// One channel as its client sees it.
#[derive(Debug)]
struct Channel {
    id: ChannelId,
    mode: Mode,
    /// Counts what was said.
    said: u64,
    published: u64,
    unconfirmed: BTreeMap<u64, (MessageId, bool)>,
    questions: VecDeque<Question>,
    proofs: VecDeque<(u64, Proof)>,
    consumers: BTreeMap<String, Consumer>,
    held: BTreeMap<u64, Held>,
    /// Deliveries that came while a recovery was under way: it takes them back, or gave them.
    limbo: BTreeMap<u64, CopyId>,
    steps: Vec<TxStep>,
    last_tag: u64,
    prefetch: u32,
    /// The largest channel-wide prefetch limit that was set; 0 when none holds.
    global: u32,
    /// When something was said that the broker must answer by closing the channel.
    doomed: Option<u64>,
    closing: bool,
    recovering: u32,
    /// The connection may be dropped at any moment.
    mortal: bool,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Connecting,
    Open,
    Closing,
    /// The broker closed its connection for a change that cannot be made durable, and is about to
    /// end. What was on its way to the client counts as that until then.
    Refused,
    Gone,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) name: usize,
    pub(crate) standing: Standing,
    /// It never breaks off and never risks a channel that receives without acknowledging.
    pub(crate) polite: bool,
    /// Its connection is dropped if it is silent for long.
    mortal: bool,
    /// An operator closes its connection.
    expelled: bool,
    /// The log of definitions has failed: who asks for a durable change is closed.
    refusable: bool,
    channels: BTreeMap<u16, Channel>,
    tags: u64,
    /// It takes its time to answer when the broker closes a channel.
    pub(crate) is_slow: bool,
    /// It keeps what it got for long.
    hoards: bool,
    /// Channels that the broker has closed, and that it owes an answer.
    owed: Vec<u16>,
    /// It reads a few bytes at a time, and answers when the broker cancels a consumer.
    pub(crate) trickles: bool,
    /// Consumers that the broker has cancelled, with their channels, and that it owes an answer.
    cancelled: Vec<(u16, String)>,
}

impl Actor {
    pub(crate) fn new(name: usize, polite: bool, mortal: bool, rng: &mut Rng) -> Actor {
        Actor {
            is_slow: rng.chance(1, 3),
            hoards: rng.chance(1, 4),
            owed: Vec::new(),
            trickles: false,
            cancelled: Vec::new(),
            name,
            standing: Standing::Connecting,
            polite,
            mortal,
            expelled: false,
            refusable: false,
            channels: BTreeMap::new(),
            tags: 0,
        }
    }

    /// Takes in everything that its connection heard.
    pub(crate) fn listen(
        &mut self,
        peer: &mut Peer,
        plan: &Plan,
        oracle: &mut Oracle,
        trace: &mut impl FnMut(String),
    ) -> Verdict {
        if matches!(self.standing, Standing::Gone | Standing::Refused) {
            // It does not listen any more.
            peer.heard.iter_mut().for_each(VecDeque::clear);
            return Ok(());
        }
        while let Some(heard) = peer.heard.as_mut().and_then(VecDeque::pop_front) {
            match heard {
                Heard::Opened => self.standing = Standing::Open,
                Heard::Method(number, method) => {
                    trace(format!("client {} channel {number} hears {method:?}", self.name));
                    self.hear(peer, number, &method, plan, oracle)
                        .map_err(|text| self.located(number, &text))?;
                }
                Heard::Content(number, method, properties, body) => {
                    let message = body.first_chunk::<8>().map(|id| u64::from_be_bytes(*id));
                    trace(format!(
                        "client {} channel {number} gets message {message:?}: {method:?}",
                        self.name
                    ));
                    self.hear_content(number, &method, (&properties, &body), plan, oracle)
                        .map_err(|text| self.located(number, &text))?;
                }
                Heard::Closed(code, text) => {
                    trace(format!("client {} is closed: {} {text}", self.name, code.0));
                    if self.expelled && code == ReplyCode::CONNECTION_FORCED {
                        self.gone(oracle);
                        continue;
                    }
                    let asks = self.channels.values().any(|channel| !channel.questions.is_empty());
                    if self.refusable && asks && code == ReplyCode::INTERNAL_ERROR {
                        self.standing = Standing::Refused;
                        return Ok(());
                    }
                    if self.standing != Standing::Closing || code != ReplyCode::REPLY_SUCCESS {
                        return Err(format!("client {} is closed: {} {text}", self.name, code.0));
                    }
                    if !self.expelled {
                        self.prove_all(plan, oracle)?;
                    }
                    self.gone(oracle);
                }
            }
        }
        if peer.ended && self.standing != Standing::Gone {
            trace(format!("client {} finds its connection ended", self.name));
            // Who does not read for ten seconds in its handshake is not waited for.
            let is_excused = matches!(self.standing, Standing::Closing | Standing::Connecting);
            if !is_excused && !self.mortal && !self.expelled {
                return Err(format!("client {}: the broker drops its connection", self.name));
            }
            self.gone(oracle);
        }
        Ok(())
    }

    fn located(&self, number: u16, text: &str) -> String {
        let id = self.channels.get(&number).map_or(0, |channel| channel.id);
        format!("client {} channel {number} ({id}): {text}", self.name)
    }

    /// The broker may drop the connection without the client's knowing for a while.
    pub(crate) fn expel(&mut self, oracle: &mut Oracle) {
        self.expelled = true;
        self.doubt(oracle);
    }

    /// The same for the time in which the log of definitions has failed and the broker goes on.
    pub(crate) fn fear_refusal(&mut self, oracle: &mut Oracle) {
        if self.standing != Standing::Gone {
            self.refusable = true;
            self.doubt(oracle);
        }
    }

    fn doubt(&mut self, oracle: &mut Oracle) {
        oracle.uncertain.extend(self.channels.values().map(|channel| channel.id));
        for channel in self.channels.values_mut() {
            channel.mortal = true;
        }
    }

    /// Gives the answers that it owes.
    pub(crate) fn answer_closes(&mut self, peer: &mut Peer) {
        for number in std::mem::take(&mut self.owed) {
            Method::from(channel::CloseOk {}).encode_frame(number, &mut peer.output);
        }
    }

    /// Answers that a consumer is cancelled, which the broker does not wait for.
    fn answer_cancel(&mut self, peer: &mut Peer) {
        let Some((number, tag)) = self.cancelled.pop() else { return };
        if self.channels.get(&number).is_some_and(|channel| !channel.closing) {
            let ok = basic::CancelOk { consumer_tag: &tag };
            Method::from(ok).encode_frame(number, &mut peer.output);
        }
    }

    /// The connection is no more: what was held is free, what was not proven stays unknown.
    pub(crate) fn gone(&mut self, oracle: &mut Oracle) {
        self.standing = Standing::Gone;
        self.owed.clear();
        self.cancelled.clear();
        for (_, channel) in std::mem::take(&mut self.channels) {
            oracle.believe(channel.id);
            channel.end(oracle);
        }
    }

    fn prove_all(&mut self, plan: &Plan, oracle: &mut Oracle) -> Verdict {
        for channel in self.channels.values_mut() {
            // Who leaves does not hear any more that its channel was closed.
            if plan.times_out && channel.may_have_timed_out() {
                continue;
            }
            // Behind something that may have failed nothing is certain.
            let risky = channel.questions.iter().find(|question| question.may_fail);
            let at = risky.map_or(u64::MAX, |question| question.at);
            let at = at.min(channel.doomed.unwrap_or(u64::MAX));
            channel.prove(at, &plan.queues, oracle)?;
        }
        Ok(())
    }

    fn hear(
        &mut self,
        peer: &mut Peer,
        number: u16,
        method: &Answer,
        plan: &Plan,
        oracle: &mut Oracle,
    ) -> Verdict {
        let Some(channel) = self.channels.get_mut(&number) else {
            return Err(format!("{method:?} on a channel that is not open"));
        };
        match method.method() {
            Method::BasicAck(basic::Ack { delivery_tag, multiple }) => {
                channel.confirmed(delivery_tag, multiple, true, &plan.queues, oracle)
            }
            Method::BasicNack(basic::Nack { delivery_tag, multiple, .. }) => {
                channel.confirmed(delivery_tag, multiple, false, &plan.queues, oracle)
            }
            Method::BasicCancel(cancel) => {
                let Some(consumer) = channel.consumers.remove(cancel.consumer_tag) else {
                    return Err("an unknown consumer is cancelled".into());
                };
                if plan.queues[consumer.queue].is_stable() {
                    return Err("a consumer is cancelled whose queue should be there".into());
                }
                if self.trickles {
                    self.cancelled.push((number, cancel.consumer_tag.to_owned()));
                }
                Ok(())
            }
            Method::ChannelClose(close) => {
                let text = close.reply_text.to_owned();
                self.owed.push(number);
                if !self.is_slow {
                    self.answer_closes(peer);
                }
                let Some(channel) = self.channels.remove(&number) else { return Ok(()) };
                if channel.closing {
                    // Both sides close: the broker answers the client's close all the same.
                    let mut closing = Channel::new(channel.id, Mode::Plain);
                    closing.closing = true;
                    let expect = Expect::Close;
                    closing.questions.push_back(Question { at: 0, expect, may_fail: false });
                    self.channels.insert(number, closing);
                }
                if plan.times_out && text.contains("delivery acknowledgement on channel") {
                    channel.timed_out(oracle);
                    return Ok(());
                }
                if text.contains("and memory is short") {
                    channel.crowded_out(oracle);
                    return Ok(());
                }
                channel.failed(&text, &plan.queues, oracle)
            }
            Method::ChannelCloseOk(_) => {
                channel.answered(method, &plan.queues, oracle)?;
                if let Some(channel) = self.channels.remove(&number) {
                    channel.end(oracle);
                }
                Ok(())
            }
            _ => channel.answered(method, &plan.queues, oracle),
        }
    }

    fn hear_content(
        &mut self,
        number: u16,
        method: &Answer,
        content: (&[u8], &[u8]),
        plan: &Plan,
        oracle: &mut Oracle,
    ) -> Verdict {
        let Some(channel) = self.channels.get_mut(&number) else {
            return Err(format!("{method:?} on a channel that is not open"));
        };
        match method.method() {
            Method::BasicDeliver(deliver) => {
                channel.delivered(&deliver, content, &plan.queues, oracle)
            }
            Method::BasicGetOk(got) => channel.got(method, &got, content, &plan.queues, oracle),
            Method::BasicReturn(_) => channel.returned(content.1, &plan.queues, oracle),
            _ => Err(format!("{method:?} does not belong to a client")),
        }
    }

    /// Whether something is on its way to it that it need not acknowledge.
    pub(crate) fn is_careful(&self) -> bool {
        self.channels.values().any(Channel::is_careful)
    }

    /// Whether it has messages that it has not settled, or not for good.
    pub(crate) fn holds_some(&self) -> bool {
        let holds = |channel: &Channel| !channel.held.is_empty() || !channel.steps.is_empty();
        self.channels.values().any(holds)
    }

    /// The queues that messages come from which it need not acknowledge.
    pub(crate) fn careless_queues(&self) -> impl Iterator<Item = usize> {
        self.channels.values().flat_map(Channel::careless_queues)
    }

    /// Commits that were not answered.
    pub(crate) fn open_commits(&self) -> impl Iterator<Item = Commit> {
        let questions = self.channels.values().flat_map(|channel| &channel.questions);
        questions.filter_map(|question| match &question.expect {
            Expect::Commit { publishes, settled } => Some(Commit {
                publishes: publishes.clone(),
                settled: settled.iter().map(|(copy, _)| *copy).collect(),
            }),
            _ => None,
        })
    }

    /// Questions without an answer, in words.
    pub(crate) fn unanswered(&self) -> Option<String> {
        for (number, channel) in &self.channels {
            if let Some(question) = channel.questions.front() {
                return Some(format!(
                    "client {} channel {number} ({}) has no answer: {question:?}",
                    self.name, channel.id
                ));
            }
            if channel.doomed.is_some() {
                return Some(format!(
                    "client {} channel {number} ({}) was not closed for its error",
                    self.name, channel.id
                ));
            }
            if let Some((publish, (message, _))) = channel.unconfirmed.first_key_value() {
                return Some(format!(
                    "client {} channel {number} ({}): publish {publish} (message {message}) is \
                     not confirmed",
                    self.name, channel.id
                ));
            }
        }
        None
    }
}

impl Channel {
    fn new(id: ChannelId, mode: Mode) -> Channel {
        Channel {
            id,
            mode,
            said: 0,
            published: 0,
            unconfirmed: BTreeMap::new(),
            questions: VecDeque::new(),
            proofs: VecDeque::new(),
            consumers: BTreeMap::new(),
            held: BTreeMap::new(),
            limbo: BTreeMap::new(),
            steps: Vec::new(),
            last_tag: 0,
            prefetch: 0,
            global: 0,
            doomed: None,
            closing: false,
            recovering: 0,
            mortal: false,
        }
    }

    /// Whether it must not fail, lest messages be lost that were delivered without
    /// acknowledgement.
    fn is_careful(&self) -> bool {
        self.consumers.values().any(|consumer| consumer.no_ack)
            || self
                .questions
                .iter()
                .any(|question| matches!(question.expect, Expect::Get { no_ack: true, .. }))
    }

    fn careless_queues(&self) -> impl Iterator<Item = usize> {
        let consumed =
            self.consumers.values().filter(|consumer| consumer.no_ack).map(|found| found.queue);
        let got = self.questions.iter().filter_map(|question| match question.expect {
            Expect::Get { no_ack: true, queue } => Some(queue),
            _ => None,
        });
        consumed.chain(got)
    }

    /// Whether the broker may have sent it a delivery that it has not acknowledged in time.
    fn may_have_timed_out(&self) -> bool {
        let asks = |question: &Question| {
            matches!(question.expect, Expect::Get { .. } | Expect::Consume(_))
        };
        self.last_tag > 0 || !self.consumers.is_empty() || self.questions.iter().any(asks)
    }

    /// Everything said up to `at` was heard.
    fn prove(&mut self, at: u64, queues: &[QueuePlan], oracle: &mut Oracle) -> Verdict {
        while let Some((_, proof)) = self.proofs.pop_front_if(|(said, _)| *said < at) {
            match proof {
                Proof::Publish(message) => oracle.decide_sure(message, queues),
                Proof::Settle(copy, received) => oracle.settled(copy, received)?,
            }
        }
        Ok(())
    }

    fn release_all(&mut self, oracle: &mut Oracle) {
        for held in std::mem::take(&mut self.held).into_values() {
            oracle.release(held.copy, self.id);
        }
        for consumer in self.consumers.values_mut() {
            consumer.outstanding = 0;
        }
    }

    /// Nothing of the channel is left.
    fn end(mut self, oracle: &mut Oracle) {
        self.release_all(oracle);
        oracle.forget(self.id);
        oracle.abandon(self.id);
        for step in &self.steps {
            match step {
                // A transaction that was not committed never was.
                TxStep::Publish(message) => oracle.decide_never(*message),
                TxStep::Settle(_, held, _) => oracle.release(held.copy, self.id),
            }
        }
    }

    /// The broker closed the channel because it did not acknowledge in time, whatever it said
    /// meanwhile.
    fn timed_out(self, oracle: &mut Oracle) {
        oracle.lossy |= self.is_careful();
        self.end(oracle);
    }

    /// The broker closed the channel because its connection's transactions take too much memory. What
    /// has no answer came behind that.
    fn crowded_out(self, oracle: &mut Oracle) {
        oracle.believe(self.id);
        for question in &self.questions {
            if let Expect::Commit { publishes, .. } = &question.expect {
                publishes.iter().for_each(|&message| oracle.decide_never(message));
            }
        }
        self.timed_out(oracle);
    }

    /// The broker closed the channel.
    fn failed(mut self, text: &str, queues: &[QueuePlan], oracle: &mut Oracle) -> Verdict {
        let commits =
            self.questions.front().map(|front| matches!(front.expect, Expect::Commit { .. }));
        if commits == Some(true) && self.doomed.is_none() && !text.contains(TOO_LARGE) {
            return Err(format!("a commit is refused: {text}"));
        }
        let failed_at = match (self.doomed, self.questions.front()) {
            (doomed, Some(question)) if question.may_fail => {
                doomed.unwrap_or(u64::MAX).min(question.at)
            }
            (Some(doomed), None) => doomed,
            (Some(doomed), Some(question)) if question.at > doomed => doomed,
            (_, front) => {
                return Err(format!("the channel is closed: {text} (waiting for {front:?})"));
            }
        };
        self.prove(failed_at, queues, oracle)?;
        if let Some(Question { expect: Expect::Commit { publishes, .. }, .. }) =
            self.questions.front()
        {
            publishes.iter().for_each(|&message| oracle.decide_never(message));
        }
        for (_, proof) in &self.proofs {
            if let Proof::Publish(message) = proof {
                oracle.decide_never(*message);
            }
        }
        self.end(oracle);
        Ok(())
    }

    fn confirmed(
        &mut self,
        tag: u64,
        multiple: bool,
        acked: bool,
        queues: &[QueuePlan],
        oracle: &mut Oracle,
    ) -> Verdict {
        let first = if multiple { 0 } else { tag };
        let tags: Vec<u64> = self.unconfirmed.range(first..=tag).map(|(&tag, _)| tag).collect();
        if tags.last() != Some(&tag) {
            return Err(format!("publish {tag} is confirmed, and none waits for that"));
        }
        for tag in tags {
            let Some((message, must_return)) = self.unconfirmed.remove(&tag) else { continue };
            let record = &oracle.messages[message];
            if must_return && !record.returned && !record.loose {
                return Err(format!("message {message} is confirmed before it was returned"));
            }
            oracle.confirm(message, acked, queues)?;
        }
        Ok(())
    }

    fn returned(&mut self, body: &[u8], queues: &[QueuePlan], oracle: &mut Oracle) -> Verdict {
        let message = body.first_chunk::<8>().map(|id| u64::from_be_bytes(*id) as usize);
        let Some(message) = message.filter(|&message| message < oracle.messages.len()) else {
            return Err("a message from nowhere is returned".into());
        };
        let record = &mut oracle.messages[message];
        if record.channel != self.id {
            return Err(format!("message {message} of another channel is returned"));
        }
        let is_stable = record.copies.iter().any(|copy| queues[copy.root].is_stable());
        if is_stable && !record.loose || record.delayed {
            return Err(format!("message {message} is returned though a queue takes it"));
        }
        record.returned = true;
        for copy in &mut record.copies {
            copy.fate = Fate::Never;
        }
        Ok(())
    }

    fn numbered(&mut self, tag: u64) -> Verdict {
        if tag != self.last_tag + 1 {
            return Err(format!("delivery tag {tag} follows {}", self.last_tag));
        }
        self.last_tag = tag;
        Ok(())
    }

    fn delivered(
        &mut self,
        deliver: &basic::Deliver<'_>,
        (properties, body): (&[u8], &[u8]),
        queues: &[QueuePlan],
        oracle: &mut Oracle,
    ) -> Verdict {
        self.numbered(deliver.delivery_tag)?;
        let passing = self.closing || self.doomed.is_some() || self.recovering > 0;
        let Some(consumer) = self.consumers.get_mut(deliver.consumer_tag) else {
            return Err(format!("a delivery to consumer '{}', unknown", deliver.consumer_tag));
        };
        if !consumer.started {
            return Err(format!("a delivery to '{}' before it started", deliver.consumer_tag));
        }
        let taking = match (consumer.no_ack, passing) {
            (true, _) => Taking::ForGood,
            (false, true) => Taking::Passing,
            (false, false) => Taking::Holds(self.id),
        };
        let arrival = Arrival {
            queue: consumer.queue,
            redelivered: deliver.redelivered,
            exchange: deliver.exchange,
            key: deliver.routing_key,
            properties,
            body,
        };
        if let Some((filter, name)) = consumer.filter {
            let headers = Properties::decode(properties).ok().and_then(|found| found.headers);
            if !filter.holds(headers.unwrap_or_default().get(name)) {
                return Err(format!(
                    "consumer '{}' wants {}, and gets something else",
                    deliver.consumer_tag,
                    filter.text(name)
                ));
            }
        }
        let copy = oracle.receive(queues, arrival, taking)?;
        let is_delayed = oracle.messages[copy.message].delayed;
        if !deliver.redelivered && !is_delayed && queues[consumer.queue].is_ordered() {
            let publisher = oracle.messages[copy.message].channel;
            let last = consumer.last.insert(publisher, copy.message);
            if last.is_some_and(|last| last > copy.message) {
                return Err(format!(
                    "message {} came after message {last:?} of the same channel {publisher}",
                    copy.message
                ));
            }
        }
        if taking == Taking::Passing {
            self.limbo.insert(deliver.delivery_tag, copy);
        }
        if let Taking::Holds(_) = taking {
            consumer.outstanding += 1;
            if consumer.prefetch > 0 && consumer.outstanding > consumer.prefetch {
                return Err(format!(
                    "consumer '{}' has {} unacknowledged, {} allowed",
                    deliver.consumer_tag, consumer.outstanding, consumer.prefetch
                ));
            }
            let tag = deliver.consumer_tag.to_owned();
            let held = Held { copy, queue: consumer.queue, consumer: Some(tag) };
            self.held.insert(deliver.delivery_tag, held);
            let consumed = self.held.values().filter(|held| held.consumer.is_some()).count();
            if self.global > 0 && consumed > self.global as usize {
                return Err(format!(
                    "the channel has {consumed} unacknowledged, {} allowed",
                    self.global
                ));
            }
        }
        Ok(())
    }

    fn got(
        &mut self,
        method: &Answer,
        got: &basic::GetOk<'_>,
        (properties, body): (&[u8], &[u8]),
        queues: &[QueuePlan],
        oracle: &mut Oracle,
    ) -> Verdict {
        self.numbered(got.delivery_tag)?;
        let Some(Question { expect: Expect::Get { queue, no_ack }, .. }) = self.questions.front()
        else {
            return Err("a fetched message that was not asked for".into());
        };
        let (queue, no_ack) = (*queue, *no_ack);
        let passing = self.closing || self.doomed.is_some();
        // A recovery that was said after this question takes the message back.
        let recovered =
            self.questions.iter().any(|question| matches!(question.expect, Expect::Recover));
        let taking = match (no_ack, passing || recovered) {
            (true, _) => Taking::ForGood,
            (false, true) => Taking::Passing,
            (false, false) => Taking::Holds(self.id),
        };
        let arrival = Arrival {
            queue,
            redelivered: got.redelivered,
            exchange: got.exchange,
            key: got.routing_key,
            properties,
            body,
        };
        let copy = oracle.receive(queues, arrival, taking)?;
        if taking == Taking::Passing {
            self.limbo.insert(got.delivery_tag, copy);
        }
        if let Taking::Holds(_) = taking {
            self.held.insert(got.delivery_tag, Held { copy, queue, consumer: None });
        }
        self.answered(method, queues, oracle)
    }

    /// An answer has come: it must be the one to the oldest question.
    fn answered(&mut self, method: &Answer, queues: &[QueuePlan], oracle: &mut Oracle) -> Verdict {
        let Some(question) = self.questions.pop_front() else {
            return Err(format!("{method:?} answers no question"));
        };
        let name = method.name();
        let fits = match &question.expect {
            Expect::Name(expected) => name == *expected,
            Expect::Consume(_) => name == "basic.consume-ok",
            Expect::Cancel(_) => name == "basic.cancel-ok",
            Expect::Get { .. } => name == "basic.get-ok" || name == "basic.get-empty",
            Expect::Recover => name == "basic.recover-ok",
            Expect::Toggle(_, expected) => name == *expected,
            Expect::Commit { .. } => name == "tx.commit-ok",
            Expect::Close => name == "channel.close-ok",
        };
        if !fits {
            return Err(format!("{method:?} does not answer {question:?}"));
        }
        let is_risky = self.questions.iter().any(|question| question.may_fail);
        if !is_risky && self.doomed.is_none() && !self.mortal {
            oracle.uncertain.remove(&self.id);
        }
        self.prove(question.at, queues, oracle)?;
        match question.expect {
            Expect::Consume(tag) => {
                if let Some(consumer) = self.consumers.get_mut(&tag) {
                    consumer.started = true;
                }
            }
            Expect::Cancel(tag) => {
                self.consumers.remove(&tag);
            }
            Expect::Recover => self.recovering -= 1,
            Expect::Toggle(place, _) => oracle.toggle_answered(place),
            Expect::Commit { publishes, settled } => {
                for message in publishes {
                    oracle.committed(message, queues);
                }
                for (copy, received) in settled {
                    oracle.settled(copy, received)?;
                }
            }
            Expect::Name(_) | Expect::Get { .. } | Expect::Close => {}
        }
        Ok(())
    }
}

/// A delivery is settled as far as the client is concerned. Returns how often it was received, if
/// it must not come again.
fn settle(
    held: &Held,
    settlement: Settlement,
    channel: ChannelId,
    queues: &[QueuePlan],
    oracle: &mut Oracle,
) -> Option<u32> {
    let is_held = oracle.copy(held.copy).holder == Some(channel);
    oracle.release(held.copy, channel);
    let gone = match settlement {
        Settlement::Ack => true,
        Settlement::Drop => !queues[held.queue].dead_letters(),
        Settlement::Requeue => false,
    };
    let copy = oracle.copy(held.copy);
    if gone && copy.gone == Gone::No {
        copy.gone = Gone::Maybe;
    }
    // What somebody else has by now may have come late: then the settlement is not heard.
    (gone && is_held).then_some(copy.received)
}
