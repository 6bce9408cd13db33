//! One connection: its socket, its buffers, its script and what its channels do.

use crate::consumer::Consumer;
use crate::plan::{LinkPlan, RoleSpec, Stage};
use crate::producer::{Producer, Turn};
use crate::roundtrip::Roundtrip;
use crate::scene::{Delivery, OUTPUT_BYTES_MAX, Scene};
use crate::script::Step;
use crate::to_stderr;
use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions};
use lepus_amqp::method::channel;
use lepus_amqp::server::TimeoutOutcome;
use lepus_amqp::{Method, ReplyCode};
use lepus_base::Instant;
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{self, Read, Write};

/// Bytes read at once.
pub(crate) const READ_BYTES_MAX: usize = 64 * 1024;
/// With more unsent bytes than this, nothing is read that would add to them.
const UNSENT_BYTES_MAX: usize = 16 * OUTPUT_BYTES_MAX;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Waits for the virtual host.
    Opening,
    /// Works through its script.
    Scripting,
    /// Carries load.
    Ready,
    /// Waits for the broker's close-ok.
    Closing,
    /// Has ended.
    Closed,
}

/// What a channel does.
#[derive(Debug)]
pub(crate) enum Role {
    Idle,
    Producer(Box<Producer>),
    Consumer(Box<Consumer>),
    Roundtrip(Box<Roundtrip>),
}

/// What a connection wants after it was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// To be served again at once.
    pub again: bool,
    /// To be served at this moment.
    pub at: Option<Instant>,
}

impl Wish {
    fn at(&mut self, moment: Instant) {
        self.at = Some(self.at.map_or(moment, |at| at.min(moment)));
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub stream: TcpStream,
    pub stage: Stage,
    pub readable: bool,
    pub writable: bool,
    /// The broker sends no more: everything up to the end of the stream is there to be read.
    pub hung_up: bool,
    /// Stands in the engine's queue.
    pub queued: bool,
    state: LinkState,
    name: String,
    client: ClientConnection,
    /// Bytes of a frame that has not come whole.
    kept: Vec<u8>,
    output: Vec<u8>,
    output_sent: usize,
    script: VecDeque<Step>,
    specs: Vec<RoleSpec>,
    /// By channel number.
    roles: Vec<Role>,
    /// Channels that publish.
    producers: Vec<u16>,
    /// The one of `producers` that goes first next time.
    turn: usize,
    /// Channels whose consumers take their time.
    paced: Vec<u16>,
    /// All its producers and consumers that have a limit have reached it.
    finished: bool,
}

impl Link {
    /// A connection over `stream`; the first bytes are ready to send.
    pub(crate) fn new(
        plan: LinkPlan,
        stream: TcpStream,
        options: ClientOptions,
        now: Instant,
    ) -> Link {
        let mut output = Vec::new();
        Link {
            stage: plan.stage,
            readable: false,
            writable: true,
            hung_up: false,
            queued: false,
            state: LinkState::Opening,
            name: plan.name,
            client: ClientConnection::new(options, now, &mut output),
            kept: Vec::new(),
            output,
            output_sent: 0,
            script: plan.script.into(),
            specs: plan.roles,
            roles: Vec::new(),
            producers: Vec::new(),
            turn: 0,
            paced: Vec::new(),
            finished: false,
            stream,
        }
    }

    /// Where it stands.
    pub(crate) fn state(&self) -> LinkState {
        self.state
    }

    /// Its name with `text`, for complaints.
    pub(crate) fn complain(&self, text: impl std::fmt::Display) -> String {
        format!("{}: {text}", self.name)
    }

    /// What it is waiting for while it is not ready.
    pub(crate) fn awaited(&self) -> String {
        match self.script.front() {
            Some(step) if self.state == LinkState::Scripting => {
                self.complain(format_args!("no answer to {}", step.about))
            }
            _ => self.complain("no answer to the connect"),
        }
    }

    /// What its channels do.
    pub(crate) fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Lets producers and round trips begin.
    pub(crate) fn begin(&mut self, now: Instant, scene: &mut Scene) {
        let frame_bytes_max = self.client.frame_max();
        for spec in std::mem::take(&mut self.specs) {
            if let RoleSpec::Producer(spec) = spec {
                let channel = spec.channel;
                let producer = Producer::new(spec, frame_bytes_max, now);
                self.producers.push(channel);
                self.set_role(channel, Role::Producer(Box::new(producer)));
            }
        }
        for role in &mut self.roles {
            match role {
                Role::Roundtrip(roundtrip) => roundtrip.begin(now, scene, &mut self.output),
                Role::Consumer(consumer) => consumer.begin(now),
                Role::Idle | Role::Producer(_) => {}
            }
        }
    }

    /// Lets producers commit what is open; nothing is published any more.
    pub(crate) fn end(&mut self) {
        for role in &mut self.roles {
            if let Role::Producer(producer) = role {
                producer.finish(&mut self.output);
            }
        }
    }

    /// Asks the broker to close.
    pub(crate) fn close(&mut self, now: Instant) {
        match self.state {
            LinkState::Closing | LinkState::Closed => {}
            LinkState::Opening => self.state = LinkState::Closed,
            LinkState::Scripting | LinkState::Ready => {
                self.client.close(now, ReplyCode::REPLY_SUCCESS, "bye", &mut self.output);
                self.state = LinkState::Closing;
            }
        }
    }

    /// Gives the connection up without a word to the broker.
    pub(crate) fn abandon(&mut self) {
        self.state = LinkState::Closed;
    }

    /// Whether all its limited roles have reached their limits, now for the first time.
    pub(crate) fn finishes(&mut self) -> bool {
        if self.finished {
            return false;
        }
        self.finished = self.roles.iter().all(|role| match role {
            Role::Producer(producer) => !producer.is_limited() || producer.is_done(),
            Role::Consumer(consumer) => !consumer.is_limited() || consumer.is_done(),
            Role::Idle | Role::Roundtrip(_) => true,
        });
        self.finished
    }

    /// Reads once, lets the roles act, writes once.
    ///
    /// # Errors
    /// A text for the user: the connection or a channel has ended, or the broker refused something.
    pub(crate) fn serve(
        &mut self,
        scratch: &mut Vec<u8>,
        scene: &mut Scene,
    ) -> Result<Wish, String> {
        let mut wish = Wish::default();
        if self.readable && !self.is_behind() && self.state != LinkState::Closed {
            self.read(scratch, scene)?;
        }
        let now = scene.clock.now();
        let ready = self.state == LinkState::Ready;
        for at in 0..if ready { self.paced.len() } else { 0 } {
            let channel = usize::from(self.paced[at]);
            if let Some(Role::Consumer(consumer)) = self.roles.get_mut(channel)
                && let Some(moment) = consumer.resume(now, scene, &mut self.output)
            {
                wish.at(moment);
            }
        }
        self.flush(now)?;
        if self.writable && scene.producing && self.state == LinkState::Ready {
            let more = self.produce(now, scene, &mut wish);
            self.flush(now)?;
            wish.again = more && self.writable;
        }
        wish.again |= self.readable && !self.is_behind();
        if self.state == LinkState::Closed {
            wish = Wish::default();
        }
        Ok(wish)
    }

    fn is_behind(&self) -> bool {
        let behind = |channel: &u16| matches!(self.roles.get(usize::from(*channel)), Some(Role::Consumer(consumer)) if consumer.is_behind());
        self.output.len() - self.output_sent > UNSENT_BYTES_MAX || self.paced.iter().any(behind)
    }

    /// Lets producers fill the output; whether they have more.
    fn produce(&mut self, now: Instant, scene: &mut Scene, wish: &mut Wish) -> bool {
        let count = self.producers.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            let channel = usize::from(self.producers[at]);
            let Some(Role::Producer(producer)) = self.roles.get_mut(channel) else {
                continue;
            };
            match producer.produce(now, scene, &mut self.output) {
                Turn::Room => {
                    self.turn = (at + 1) % count;
                    return true;
                }
                Turn::At(moment) => wish.at(moment),
                Turn::Answer | Turn::Done => {}
            }
        }
        false
    }

    fn read(&mut self, scratch: &mut Vec<u8>, scene: &mut Scene) -> Result<(), String> {
        let kept = self.kept.len();
        if scratch.len() < kept + READ_BYTES_MAX {
            scratch.resize(kept + READ_BYTES_MAX, 0);
        }
        scratch[..kept].copy_from_slice(&self.kept);
        let room = &mut scratch[kept..kept + READ_BYTES_MAX];
        match self.stream.read(room) {
            Ok(0) if matches!(self.state, LinkState::Closing | LinkState::Closed) => {
                self.state = LinkState::Closed;
                self.readable = false;
                Ok(())
            }
            Ok(0) => Err(self.complain("the broker closed the socket")),
            Ok(count) => {
                // A short read has emptied the socket; the poll tells when there is more, but not about the end twice.
                self.readable = count == READ_BYTES_MAX || self.hung_up;
                let now = scene.clock.now();
                let end = kept + count;
                let used = self.receive(now, &scratch[..end], scene)?;
                self.kept.clear();
                self.kept.extend_from_slice(&scratch[used..end]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.complain(error)),
        }
    }

    /// Takes what came in; returns how many bytes were used.
    fn receive(&mut self, now: Instant, bytes: &[u8], scene: &mut Scene) -> Result<usize, String> {
        let mut used = 0;
        loop {
            let (consumed, event) = self.client.receive(now, &bytes[used..], &mut self.output);
            used += consumed;
            match event {
                ClientEvent::None if consumed == 0 => return Ok(used),
                ClientEvent::None | ClientEvent::Unblocked => {}
                ClientEvent::Content {
                    channel,
                    method: Method::BasicDeliver(deliver),
                    properties,
                    body,
                } => {
                    let delivery = Delivery {
                        consumer_tag: deliver.consumer_tag,
                        delivery_tag: deliver.delivery_tag,
                        redelivered: deliver.redelivered,
                        properties,
                        body,
                    };
                    let out = &mut self.output;
                    match self.roles.get_mut(usize::from(channel)) {
                        Some(Role::Consumer(consumer)) => {
                            consumer.deliver(now, &delivery, scene, out);
                        }
                        Some(Role::Roundtrip(roundtrip)) => {
                            roundtrip.deliver(now, &delivery, scene, out);
                        }
                        _ => {}
                    }
                }
                ClientEvent::Content {
                    channel,
                    method: Method::BasicGetOk(got),
                    properties,
                    body,
                } => {
                    let delivery = Delivery {
                        consumer_tag: "",
                        delivery_tag: got.delivery_tag,
                        redelivered: got.redelivered,
                        properties,
                        body,
                    };
                    if let Some(Role::Consumer(consumer)) = self.roles.get_mut(usize::from(channel))
                    {
                        consumer.deliver(now, &delivery, scene, &mut self.output);
                        consumer.answered();
                    }
                }
                ClientEvent::Content { .. } => scene.statistics.now.returned += 1,
                ClientEvent::Method { channel, method } => match method {
                    Method::BasicAck(ack) => {
                        let (tag, multiple) = (ack.delivery_tag, ack.multiple);
                        self.confirmed(channel, tag, multiple, true, now, scene);
                    }
                    Method::BasicNack(nack) => {
                        let (tag, multiple) = (nack.delivery_tag, nack.multiple);
                        self.confirmed(channel, tag, multiple, false, now, scene);
                    }
                    method => {
                        if let Some(text) = take_method(
                            &mut self.script,
                            &mut self.roles,
                            &mut self.output,
                            &mut self.state,
                            channel,
                            &method,
                        ) {
                            return Err(self.complain(text));
                        }
                    }
                },
                ClientEvent::Blocked(reason) => {
                    let reason = format!("the broker takes no more for now: {reason}");
                    to_stderr(self.complain(reason));
                }
                ClientEvent::Opened => self.opened(),
                ClientEvent::Closed { code, text } => {
                    let ours = self.state == LinkState::Closing;
                    self.state = LinkState::Closed;
                    if ours {
                        return Ok(used);
                    }
                    let text = format!("the broker closed the connection: {} {text}", code.0);
                    // The close-ok is worth one attempt.
                    let _ = self.flush(now);
                    return Err(self.complain(text));
                }
                ClientEvent::Error(error) => return Err(self.complain(error)),
            }
        }
    }

    fn opened(&mut self) {
        let frame_bytes_max = self.client.frame_max();
        for spec in std::mem::take(&mut self.specs) {
            match spec {
                RoleSpec::Producer(_) => self.specs.push(spec),
                RoleSpec::Consumer(spec) => {
                    let channel = spec.channel;
                    let consumer = Consumer::new(spec);
                    if consumer.is_paced() {
                        self.paced.push(channel);
                    }
                    self.set_role(channel, Role::Consumer(Box::new(consumer)));
                }
                RoleSpec::Roundtrip(spec) => {
                    let channel = spec.channel;
                    let roundtrip = Roundtrip::new(spec, frame_bytes_max);
                    self.set_role(channel, Role::Roundtrip(Box::new(roundtrip)));
                }
            }
        }
        self.state = LinkState::Scripting;
        advance(&self.script, &mut self.output, &mut self.state);
    }

    fn set_role(&mut self, channel: u16, role: Role) {
        let at = usize::from(channel);
        if at >= self.roles.len() {
            self.roles.resize_with(at + 1, || Role::Idle);
        }
        self.roles[at] = role;
    }

    fn confirmed(
        &mut self,
        channel: u16,
        tag: u64,
        multiple: bool,
        ack: bool,
        now: Instant,
        scene: &mut Scene,
    ) {
        if let Some(Role::Producer(producer)) = self.roles.get_mut(usize::from(channel)) {
            producer.confirmed(tag, multiple, ack, now, scene);
        }
    }

    fn flush(&mut self, now: Instant) -> Result<(), String> {
        while self.writable && self.output_sent < self.output.len() {
            match self.stream.write(&self.output[self.output_sent..]) {
                Ok(count) => {
                    self.output_sent += count;
                    self.client.sent(now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What the broker said before it closed is worth more than the failure to write.
                Err(_) if self.readable || self.state == LinkState::Closing => return Ok(()),
                Err(error) => return Err(self.complain(error)),
            }
        }
        if self.output_sent == self.output.len() {
            self.output.clear();
            self.output_sent = 0;
        } else if self.output_sent > UNSENT_BYTES_MAX / 4 {
            self.output.drain(..self.output_sent);
            self.output_sent = 0;
        }
        Ok(())
    }

    /// Heartbeats and their absence.
    ///
    /// # Errors
    /// The broker is silent for too long.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), String> {
        if self.state == LinkState::Closed || now < self.client.next_timeout() {
            return Ok(());
        }
        self.client.reading_paused(now, self.is_behind());
        match self.client.on_timeout(now, &mut self.output) {
            TimeoutOutcome::Nothing => self.flush(now),
            _ if self.state == LinkState::Closing => {
                self.state = LinkState::Closed;
                Ok(())
            }
            _ => Err(self.complain("the broker is silent, not even heartbeats come")),
        }
    }
}

/// Takes a method that is neither content nor confirm; returns a complaint where it ends the run.
fn take_method(
    script: &mut VecDeque<Step>,
    roles: &mut [Role],
    out: &mut Vec<u8>,
    state: &mut LinkState,
    channel: u16,
    method: &Method<'_>,
) -> Option<String> {
    match method {
        Method::ChannelClose(close) => {
            Method::from(channel::CloseOk {}).encode_frame(channel, out);
            let step = script.front_mut().filter(|step| step.channel == channel);
            let missing = close.reply_code == ReplyCode::NOT_FOUND.0;
            if let Some(step) = step {
                if missing && !step.if_missing.is_empty() {
                    let instead = std::mem::take(&mut step.if_missing);
                    script.pop_front();
                    for step in instead.into_iter().rev() {
                        script.push_front(step);
                    }
                    advance(script, out, state);
                    return None;
                }
                return Some(format!("the broker refused {}: {}", step.about, close.reply_text));
            }
            return Some(format!("the broker closed channel {channel}: {}", close.reply_text));
        }
        Method::BasicCancel(cancel) => {
            return Some(format!(
                "the broker cancelled consumer '{}' of channel {channel} (was its queue deleted?)",
                cancel.consumer_tag
            ));
        }
        Method::BasicGetEmpty(_) => {
            if let Some(Role::Consumer(consumer)) = roles.get_mut(usize::from(channel)) {
                consumer.answered();
            }
        }
        Method::TxCommitOk(_) => match roles.get_mut(usize::from(channel)) {
            Some(Role::Producer(producer)) => producer.committed(),
            Some(Role::Consumer(consumer)) => consumer.committed(),
            _ => {}
        },
        _ => {
            let answered = |step: &Step| step.channel == channel && step.answer == method.ids();
            if *state == LinkState::Scripting && script.front().is_some_and(answered) {
                script.pop_front();
                advance(script, out, state);
            }
        }
    }
    None
}

/// Sends the next step, or notes that there is none.
fn advance(script: &VecDeque<Step>, out: &mut Vec<u8>, state: &mut LinkState) {
    match script.front() {
        Some(step) => out.extend_from_slice(&step.frame),
        None => *state = LinkState::Ready,
    }
}
