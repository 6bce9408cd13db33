//! What must be true of messages, whatever happens: nothing that was confirmed is lost, nothing
//! comes twice without saying so, nothing comes from nowhere, nothing overtakes.
//!
//! The oracle knows each message by the number in its body. A *copy* is a message in one queue it
//! was published to; through dead-lettering it may move to that queue's dead-letter queue.

mod life;

pub(crate) use life::{Commit, End};

use std::collections::{BTreeMap, BTreeSet};

use lepus_amqp::properties::PropertiesRef;

use crate::plan::{Kind, QueuePlan};
use crate::routing::{Choice, Routes};

/// A message as it arrives at a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    /// The queue it comes from.
    pub(crate) queue: usize,
    pub(crate) redelivered: bool,
    pub(crate) exchange: &'a str,
    pub(crate) key: &'a str,
    pub(crate) properties: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// Number of a message.
pub(crate) type MessageId = usize;

/// One incarnation of a client's channel, unique in the run.
pub(crate) type ChannelId = u64;

/// Whether a copy ever was in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The client cannot know.
    Unknown,
    /// The broker said so, or answered something that was asked later.
    Sure,
    /// It was refused, rolled back or said on a channel that had failed.
    Never,
}

/// Whether a copy has left for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It must be there.
    No,
    /// A settlement was said; whether it was heard is not known.
    Maybe,
    /// It must not come again.
    Sure,
}

/// One message in one queue.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) root: usize,
    pub(crate) fate: Fate,
    pub(crate) gone: Gone,
    /// The channel that has it unacknowledged.
    pub(crate) holder: Option<ChannelId>,
    /// Whether a client has seen it in its queue, and in the dead-letter queue.
    pub(crate) seen: [bool; 2],
    /// Times that a client received it.
    pub(crate) received: u32,
    /// Times it was found at the end.
    pub(crate) found: u32,
    /// The broker has promised to keep it.
    pub(crate) promised: bool,
    /// It has left, and that is on the disk.
    pub(crate) gone_for_good: bool,
    /// The queue it was published to has lost it: with the process, or because it never came back.
    pub(crate) out_of_root: bool,
    /// A crash may have left it both in its queue and in the dead-letter queue.
    pub(crate) split: bool,
    /// The life of the process in which a client received it last from its queue, and from the
    /// dead-letter queue.
    pub(crate) seen_in: [u32; 2],
}

impl Copy {
    fn new(root: usize) -> Copy {
        Copy {
            root,
            fate: Fate::Unknown,
            gone: Gone::No,
            holder: None,
            seen: [false; 2],
            received: 0,
            found: 0,
            promised: false,
            gone_for_good: false,
            out_of_root: false,
            split: false,
            seen_in: [0; 2],
        }
    }
}

/// What a client does with a message that it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// It has to settle it on this channel.
    Holds(ChannelId),
    /// It has it for good.
    ForGood,
    /// It cannot settle it any more: its channel is on its way out, or what was on its way is
    /// taken back. By the time it arrives, others may have had the message.
    Passing,
    /// It takes it out of the queue at the end.
    Drains,
}

/// One published message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) channel: ChannelId,
    pub(crate) exchange: String,
    pub(crate) key: String,
    pub(crate) properties: Vec<u8>,
    pub(crate) body_bytes: usize,
    pub(crate) copies: Vec<Copy>,
    pub(crate) returned: bool,
    /// Whether the routes may have changed before the broker heard the message: nobody knows
    /// which queues have it.
    pub(crate) loose: bool,
    pub(crate) persistent: bool,
    /// The broker has refused it: one of its queues lacks it.
    pub(crate) refused: bool,
    /// An exchange held it back: it came to its queues later, and in any order.
    pub(crate) delayed: bool,
    /// Queues that have it for certain, in so far as others are among `choices`.
    pub(crate) certain: BTreeSet<usize>,
    /// It is in one queue of each of these; copies stand for all of them.
    pub(crate) choices: Vec<Choice>,
    /// The life of the process in which it was published.
    pub(crate) life: u32,
}

/// An exchange of one channel, which binds queues to it and unbinds them. Everybody publishes to
/// it: who saw the answer to a change must see its effect.
#[derive(Clone, Debug)]
pub(crate) struct Toggled {
    pub(crate) exchange: String,
    pub(crate) durable: bool,
    pub(crate) owner: ChannelId,
    /// The queues bound once everything said was heard.
    pub(crate) bound: BTreeSet<usize>,
    /// Changes that are not answered yet.
    pub(crate) pending: u32,
    /// The owner went before all was answered.
    pub(crate) lost: bool,
    /// Messages published to it: those not heard yet may go either way.
    pub(crate) published: Vec<MessageId>,
}

impl Toggled {
    /// Whether this channel knows where messages go.
    pub(crate) fn is_certain_for(&self, channel: ChannelId) -> bool {
        !self.lost && (self.pending == 0 || self.owner == channel)
    }
}

/// A message that came from a queue shows what an exchange chose for its word: always the same.
fn learn(
    message: MessageId,
    record: &Message,
    root: usize,
    chosen: &mut BTreeMap<(u32, usize, String), usize>,
) -> Result<(), String> {
    let mut choices = record.choices.iter().filter(|choice| choice.among.contains(&root));
    let (Some(choice), None) = (choices.next(), choices.next()) else { return Ok(()) };
    if record.certain.contains(&root) {
        return Ok(());
    }
    let name = (record.life, choice.exchange, choice.word.clone());
    let before = *chosen.entry(name).or_insert(root);
    if before != root {
        return Err(format!(
            "message {message}: exchange x{} sends {} to two queues, {before} and {root}",
            choice.exchange, choice.word
        ));
    }
    Ok(())
}

impl Message {
    /// Whether a queue is one of several of which one has the message.
    fn is_one_of_several(&self, root: usize) -> bool {
        !self.certain.contains(&root)
            && self.choices.iter().any(|choice| choice.among.contains(&root))
    }

    /// A queue that could have refused it, if all of those have had it.
    fn everywhere<'a>(&self, queues: &'a [QueuePlan]) -> Option<&'a str> {
        let may_lack = |copy: &&Copy| refuser(&queues[copy.root], self.persistent).is_some();
        let mut could = self.copies.iter().filter(may_lack).peekable();
        let first = could.peek()?.root;
        could.all(|copy| copy.received + copy.found > 0).then(|| queues[first].name.as_str())
    }
}

/// A copy, named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CopyId {
    pub(crate) message: MessageId,
    pub(crate) copy: usize,
}

/// All messages of a run.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) messages: Vec<Message>,
    /// Channels whose hold on messages may have ended without their knowing: an operation that
    /// may fail is under way.
    pub(crate) uncertain: BTreeSet<ChannelId>,
    /// Channels in transaction mode, which the broker closes when memory is short.
    pub(crate) transactional: BTreeSet<ChannelId>,
    /// Those of them whose messages somebody else got, with what is wrong unless they hear that they
    /// are closed.
    pub(crate) presumed_closed: BTreeMap<ChannelId, String>,
    pub(crate) deliveries: u64,
    pub(crate) toggled: Vec<Toggled>,
    /// Connections broke to which messages were on their way that need no acknowledgement.
    pub(crate) lossy: bool,
    /// Processes that ended so far.
    pub(crate) life: u32,
    /// A disk was full, or a log had stopped, while messages below this number were published and
    /// not all answered: those may be refused by a log.
    pub(crate) troubled_below: MessageId,
    /// Commits that the last crash left without an answer.
    pub(crate) commits: Vec<Commit>,
    /// Queues from which messages were on their way then that need no acknowledgement.
    pub(crate) careless: BTreeSet<usize>,
    /// The queue that an exchange chose for a word in this life, where a message has shown it.
    pub(crate) chosen: BTreeMap<(u32, usize, String), usize>,
    /// Logs that have forgotten settlements since their damage.
    pub(crate) forgetful: BTreeSet<u32>,
    /// Whether a log ever has: queues may count what was settled, and is not there to be given to anybody.
    pub(crate) has_forgotten: bool,
    /// Messages whose bytes were damaged on the disk.
    pub(crate) damaged: BTreeSet<MessageId>,
}

/// Why a queue may lack a message that came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refuser {
    /// A rule of the queue: it is full.
    Rule,
    /// The log did not take the message.
    Log,
}

/// What may keep a message out of a queue. `needs_log` is said of one that must be logged while a
/// log may not take it.
fn refuser(queue: &QueuePlan, needs_log: bool) -> Option<Refuser> {
    match queue.kind {
        Kind::Refusing(_) => Some(Refuser::Rule),
        _ => (needs_log && queue.durable).then_some(Refuser::Log),
    }
}

/// The broker has refused a message. Something must explain that: the rule of a queue, or a log
/// that is in trouble. Queues with no such excuse have the message; if only one has an excuse, it
/// lacks it; else one of them does.
fn refuse(
    message: MessageId,
    record: &mut Message,
    is_troubled: bool,
    queues: &[QueuePlan],
) -> Result<(), String> {
    let needs_log = record.persistent && is_troubled;
    let may_lack = |copy: &Copy| refuser(&queues[copy.root], needs_log).is_some();
    let excused = record.copies.iter().filter(|copy| may_lack(copy)).count();
    // What is held back is logged wherever it will go, or nowhere.
    let is_held_back = needs_log && record.delayed;
    if excused == 0 && !is_held_back || record.returned {
        return Err(format!(
            "message {message} was refused: no queue of it has a rule for that, and no log that \
             would have to take it is full or has stopped"
        ));
    }
    record.refused = true;
    if !record.choices.is_empty() {
        record.copies.iter_mut().for_each(|copy| copy.fate = Fate::Unknown);
        return Ok(());
    }
    for copy in &mut record.copies {
        copy.fate = match may_lack(copy) {
            true if excused == 1 && copy.received > 0 => {
                let name = &queues[copy.root].name;
                return Err(format!("message {message} was refused, and yet it came from {name}"));
            }
            true if excused == 1 => Fate::Never,
            true => Fate::Unknown,
            false => Fate::Sure,
        };
    }
    Ok(())
}

/// The body of a message: its number and bytes that follow from it.
pub(crate) fn body_of(message: MessageId, bytes: usize) -> Vec<u8> {
    let mut body = (message as u64).to_be_bytes().to_vec();
    body.extend((8..bytes).map(|place| (message * 31 + place) as u8));
    body
}

impl Oracle {
    /// A client is about to publish to these queues.
    pub(crate) fn publish(
        &mut self,
        channel: ChannelId,
        exchange: &str,
        key: &str,
        roots: &[usize],
        properties: &[u8],
        body_bytes: usize,
    ) -> MessageId {
        self.messages.push(Message {
            channel,
            exchange: exchange.to_owned(),
            key: key.to_owned(),
            properties: properties.to_vec(),
            body_bytes: body_bytes.max(8),
            copies: roots.iter().map(|&root| Copy::new(root)).collect(),
            returned: false,
            loose: false,
            persistent: PropertiesRef(properties).is_persistent(),
            refused: false,
            delayed: false,
            certain: BTreeSet::new(),
            choices: Vec::new(),
            life: self.life,
        });
        self.messages.len() - 1
    }

    /// The owner of a toggled exchange is about to bind or unbind a queue.
    pub(crate) fn toggle(&mut self, place: usize, queue: usize) -> bool {
        let toggled = &mut self.toggled[place];
        toggled.pending += 1;
        let owner = toggled.owner;
        for &message in &toggled.published {
            let record = &mut self.messages[message];
            if record.channel == owner {
                continue;
            }
            record.loose = true;
            if !record.copies.iter().any(|copy| copy.root == queue) {
                record.copies.push(Copy::new(queue));
            }
        }
        let binds = !toggled.bound.remove(&queue);
        if binds {
            toggled.bound.insert(queue);
        }
        binds
    }

    /// A change of a toggled exchange is answered.
    pub(crate) fn toggle_answered(&mut self, place: usize) {
        self.toggled[place].pending -= 1;
    }

    /// A channel is gone; what it changes is lost if it was not answered.
    pub(crate) fn abandon(&mut self, channel: ChannelId) {
        for toggled in self.toggled.iter_mut().filter(|toggled| toggled.owner == channel) {
            toggled.lost |= toggled.pending > 0;
        }
    }

    pub(crate) fn copy(&mut self, id: CopyId) -> &mut Copy {
        &mut self.messages[id.message].copies[id.copy]
    }

    /// Everybody has heard what there was to hear.
    ///
    /// # Errors
    ///
    /// A channel is open whose messages somebody else got.
    pub(crate) fn check_presumed(&self) -> Result<(), String> {
        self.presumed_closed.values().next().map_or(Ok(()), |text| Err(text.clone()))
    }

    /// A channel is gone.
    pub(crate) fn forget(&mut self, channel: ChannelId) {
        self.uncertain.remove(&channel);
        self.transactional.remove(&channel);
    }

    /// A channel has heard that the broker closed it for want of memory, or cannot hear it any more.
    pub(crate) fn believe(&mut self, channel: ChannelId) {
        self.presumed_closed.remove(&channel);
    }

    /// A channel does not hold a copy any more.
    pub(crate) fn release(&mut self, id: CopyId, channel: ChannelId) {
        let copy = self.copy(id);
        if copy.holder == Some(channel) {
            copy.holder = None;
        }
    }

    /// A disk is full, or a log has stopped: what is under way may be refused for that.
    pub(crate) fn trouble(&mut self) {
        self.troubled_below = self.messages.len();
    }

    /// The broker has heard a message. What a queue's rule or a log refuses, and was not to be
    /// confirmed, is gone in silence.
    pub(crate) fn decide_sure(&mut self, message: MessageId, queues: &[QueuePlan]) {
        let is_troubled = message < self.troubled_below;
        self.decide(message, queues, is_troubled);
    }

    /// The commit of a message is answered: only a queue's rule may have refused it.
    pub(crate) fn committed(&mut self, message: MessageId, queues: &[QueuePlan]) {
        self.decide(message, queues, false);
        self.promise(message);
    }

    fn decide(&mut self, message: MessageId, queues: &[QueuePlan], is_troubled: bool) {
        let record = &mut self.messages[message];
        if record.loose || record.refused {
            return;
        }
        let persistent = record.persistent;
        for copy in &mut record.copies {
            let queue = &queues[copy.root];
            let may_refuse = refuser(queue, persistent && is_troubled);
            // What is held back is refused in silence later.
            if copy.fate == Fate::Unknown && may_refuse.is_none() {
                copy.fate = Fate::Sure;
            }
        }
    }

    /// A message cannot have got anywhere.
    pub(crate) fn decide_never(&mut self, message: MessageId) {
        for copy in &mut self.messages[message].copies {
            if copy.fate == Fate::Unknown {
                copy.fate = Fate::Never;
            }
        }
    }

    /// A publish was confirmed.
    pub(crate) fn confirm(
        &mut self,
        message: MessageId,
        acked: bool,
        queues: &[QueuePlan],
    ) -> Result<(), String> {
        let record = &mut self.messages[message];
        if record.loose {
            return Ok(());
        }
        if !acked {
            return refuse(message, record, message < self.troubled_below, queues);
        }
        for copy in record.copies.iter_mut().filter(|_| !record.returned) {
            if copy.fate == Fate::Never {
                return Err(format!("message {message} is confirmed and should never have been"));
            }
            let is_late = record.delayed && matches!(queues[copy.root].kind, Kind::Refusing(_));
            if !is_late {
                copy.promised = true;
                copy.fate = Fate::Sure;
            }
        }
        Ok(())
    }

    /// A client received a message.
    pub(crate) fn receive(
        &mut self,
        queues: &[QueuePlan],
        arrival: Arrival<'_>,
        taking: Taking,
    ) -> Result<CopyId, String> {
        let Arrival { queue, redelivered, body, .. } = arrival;
        self.deliveries += 1;
        let name = &queues[queue].name;
        let message = body.first_chunk::<8>().map(|id| u64::from_be_bytes(*id) as usize);
        let Some(message) = message.filter(|&message| message < self.messages.len()) else {
            return Err(format!("a message from nowhere in {name}: {} bytes", body.len()));
        };
        let record = &mut self.messages[message];
        if body != body_of(message, record.body_bytes) {
            return Err(format!("message {message} has another body in {name}"));
        }
        let root = queues[queue].root;
        let dead = queue != root;
        // Dead-lettering and counting of deliveries change what the message says of itself.
        let is_same = arrival.exchange == record.exchange
            && arrival.key == record.key
            && (arrival.properties == record.properties
                || record.delayed
                || matches!(queues[queue].kind, Kind::Quorum(_)));
        if !dead && !is_same {
            return Err(format!("message {message} comes from {name} changed: {arrival:?}"));
        }
        let Some(place) = record.copies.iter().position(|copy| copy.root == root) else {
            return Err(format!("message {message} is in {name}, where it was not published"));
        };
        if record.life == self.life {
            learn(message, record, root, &mut self.chosen)?;
        }
        let is_moved = dead || record.delayed;
        let copy = &mut record.copies[place];
        if copy.fate == Fate::Never {
            return Err(format!("message {message} is in {name}, but should never have been"));
        }
        if copy.out_of_root && !(dead && record.persistent) {
            return Err(format!(
                "message {message} is in {name}, but was not to outlive its process"
            ));
        }
        let id = CopyId { message, copy: place };
        let place = usize::from(dead);
        copy.seen_in[place] = self.life;
        if record.life < self.life && !copy.out_of_root {
            // Recovery found it: it is on the disk.
            copy.promised = true;
            copy.fate = Fate::Sure;
        }
        let late = match taking {
            Taking::Passing => true,
            Taking::Holds(channel) => self.uncertain.contains(&channel),
            Taking::ForGood | Taking::Drains => false,
        };
        if late {
            copy.seen[place] = true;
            let elsewhere = copy.holder.is_some_and(|other| !self.uncertain.contains(&other));
            let free = copy.gone != Gone::Sure && !elsewhere;
            if let Taking::Holds(channel) = taking
                && free
            {
                copy.holder = Some(channel);
            }
            return Ok(id);
        }
        if copy.gone == Gone::Sure && !copy.split {
            return Err(format!("message {message} is in {name}, but was settled before"));
        }
        if let Some(holder) = copy.holder
            && !self.uncertain.contains(&holder)
            && !copy.split
        {
            let text =
                format!("message {message} comes from {name} while channel {holder} holds it");
            if !self.transactional.contains(&holder) {
                return Err(text);
            }
            self.presumed_closed.entry(holder).or_insert(text);
        }
        if !dead && copy.seen[1] && !copy.split {
            return Err(format!("message {message} came back from the dead to {name}"));
        }
        if !redelivered && copy.seen[place] && !(is_moved && copy.split) {
            return Err(format!(
                "message {message} comes from {name} a second time without saying so"
            ));
        }
        copy.seen[place] = true;
        copy.received += 1;
        (copy.holder, copy.gone) = match taking {
            Taking::Holds(channel) if copy.split => (Some(channel), copy.gone),
            Taking::Holds(channel) => (Some(channel), Gone::No),
            Taking::ForGood => (None, Gone::Sure),
            Taking::Passing | Taking::Drains => (None, copy.gone),
        };
        Ok(id)
    }

    /// A settlement for good was heard by the broker; the copy had been received so many times
    /// when it was said.
    pub(crate) fn settled(&mut self, id: CopyId, received: u32) -> Result<(), String> {
        let copy = self.copy(id);
        if copy.received != received && !copy.split {
            return Err(format!("message {} came again after it was settled", id.message));
        }
        copy.gone = Gone::Sure;
        Ok(())
    }

    /// What is known of where exchanges send their words, put into routes.
    pub(crate) fn with_known(&self, mut routes: Routes) -> Routes {
        routes.choices.retain(|choice| {
            let name = (self.life, choice.exchange, choice.word.clone());
            let known = self.chosen.get(&name);
            routes.certain.extend(known);
            known.is_none()
        });
        routes
    }

    /// Of the queues among which an exchange chose, one must have the message.
    fn check_choices(
        &self,
        message: MessageId,
        record: &Message,
        queues: &[QueuePlan],
    ) -> Result<(), String> {
        if self.lossy || record.loose || self.damaged.contains(&message) {
            return Ok(());
        }
        for choice in &record.choices {
            let mut among = record.copies.iter().filter(|copy| choice.among.contains(&copy.root));
            let is_missing = |copy: &Copy| {
                let was_there = copy.received + copy.found > 0;
                copy.fate == Fate::Sure
                    && copy.gone == Gone::No
                    && queues[copy.root].is_stable()
                    && !was_there
            };
            if among.all(is_missing) {
                return Err(format!(
                    "message {message} (key '{}') is in none of the queues of exchange x{}, one of \
                     which must have it",
                    record.key, choice.exchange
                ));
            }
        }
        Ok(())
    }

    /// What was in the queues at the end must be what should have been there.
    ///
    /// Returns how many are missing whose bytes were damaged.
    pub(crate) fn verdict(&self, queues: &[QueuePlan]) -> Result<u64, String> {
        let mut missing = 0;
        for (message, record) in self.messages.iter().enumerate() {
            if record.refused
                && record.choices.is_empty()
                && let Some(name) = record.everywhere(queues)
            {
                return Err(format!(
                    "message {message} was refused, and yet all its queues had it, {name} too"
                ));
            }
            self.check_choices(message, record, queues)?;
            for copy in &record.copies {
                let queue = &queues[copy.root];
                if !queue.is_stable() || record.is_one_of_several(copy.root) {
                    continue;
                }
                let must_be_there = copy.fate == Fate::Sure && copy.gone == Gone::No;
                let must_not = copy.fate == Fate::Never || copy.gone == Gone::Sure;
                let is_damaged = self.damaged.contains(&message);
                let is_missing = must_be_there && copy.found == 0 && !self.lossy;
                missing += u64::from(is_missing && is_damaged);
                let is_lost = is_missing && !is_damaged;
                if is_lost || must_not && copy.found > 0 && !copy.split {
                    return Err(format!(
                        "message {message} (channel {}, exchange '{}', key '{}') was found {} \
                         times for {}, {} expected: {copy:?}",
                        record.channel,
                        record.exchange,
                        record.key,
                        copy.found,
                        queue.name,
                        u8::from(must_be_there),
                    ));
                }
                if copy.found > 1 && !copy.split {
                    return Err(format!(
                        "message {message} was found {} times for {}",
                        copy.found, queue.name
                    ));
                }
            }
        }
        Ok(missing)
    }
}
