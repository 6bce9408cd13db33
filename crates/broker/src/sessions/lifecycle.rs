//! How connections and channels begin and end.

use alloc::format;
use alloc::string::{String, ToString};

use lepus_base::{ConnectionId, Instant, Now};

use crate::backpressure::Cause;
use crate::channel::{At, Ending, Pending};
use crate::connection::{Connection, ConnectionEnd};
use crate::connections::{connection_name, mark_dirty};
use crate::effort::{DIGEST_BYTE_STEPS, LOGIN_STEPS};
use crate::mail::Mail;
use crate::outbox::{ConnectionSlot, Outbox, Severity};
use crate::parked::{self, Parked};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{
    Answer, Asked, Claim, Closing, Done, Login, Operation, State, TimeoutOutcome,
};
use crate::sessions::SessionSide;

/// A channel's question waits no longer, wherever it is, for messages that the channel published.
pub(crate) fn give_question_up(connection: &Connection, at: At, out: &mut Outbox) {
    let from = at.channel;
    out.own.push(Mail::GiveUp { from });
    for shard in connection.known_shards.iter().filter(|&&shard| shard != from.shard) {
        out.mail[shard.index()].items.push(Mail::GiveUp { from });
    }
}

/// When both sides close a channel, the client waits for an answer to its own close, too: it may
/// be among the parked frames that nobody handles any more.
pub(crate) fn answer_parked_close(
    connection: &mut Connection,
    at: At,
    mut parked: &[u8],
    out: &mut Outbox,
) {
    while let Some((first, used)) = parked::first(parked) {
        if let Parked::Operation(frame) = first
            && let Some((Operation::CloseChannel, _)) = connection.session.operation(frame)
        {
            connection.answer(at.channel.number(), &Answer::Done(Done::ChannelClosed));
            mark_dirty(connection, at.slot, out);
            return;
        }
        parked = &parked[used..];
    }
}

impl SessionSide<'_> {
    /// The client logs in.
    pub(crate) fn log_in(&mut self, now: Now, slot: u32, login: Login<'_>, out: &mut Outbox) {
        let Login { mechanism, claim, bytes } = login;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.shard
            .effort
            .spend(LOGIN_STEPS.saturating_add(bytes.saturating_mul(DIGEST_BYTE_STEPS)));
        let connection = &mut self.connections[slot];
        // It came with the name, and stays as long as the connection.
        connection.apart_bytes += connection.client_properties().bytes().len();
        let loopback = connection.peer.loopback;
        let accounts = self.directory.accounts();
        let (user, outcome) = match claim {
            Claim::Certificate => {
                let user = connection.peer.login_name.clone().unwrap_or_default();
                let outcome = accounts.authenticate_external(&user, loopback).is_ok();
                (user, outcome)
            }
            Claim::Anonymous => match accounts.authenticate_anonymous(loopback) {
                Some((user, outcome)) => (user.to_string(), outcome.is_ok()),
                None => (String::new(), false),
            },
            Claim::Password { user, password } => {
                let outcome = accounts.authenticate(user, password, loopback);
                (user.to_string(), outcome.is_ok())
            }
            Claim::Unreadable => (String::new(), false),
        };
        if outcome {
            // Another part of the process is let in as whom it names.
            let is_inside = connection.peer.login_name.is_some() && connection.peer.tls.is_none();
            self.shard.counters.logins_accepted += u64::from(!is_inside);
            connection.user = user.into();
        } else {
            self.shard.counters.logins_refused += 1;
            let shown: String = user.chars().take(64).flat_map(char::escape_debug).collect();
            let text = format!(
                "{}: login of user '{shown}' refused (mechanism {mechanism})",
                connection_name(connection)
            );
            out.log(Severity::Warning, "login-refused", text);
        }
        connection.session.logged_in(now.instant, outcome, &mut connection.send.bytes);
        mark_dirty(connection, slot, out);
    }

    /// The client opens a vhost.
    pub(crate) fn open(&mut self, now: Now, slot: u32, vhost: &str, out: &mut Outbox) {
        let user = self.connections[slot].user.clone();
        let refuse = |why: String| Err(Refusal::new(RefusalKind::NotAllowed, why));
        let result = match self.directory.vhost(vhost) {
            None => refuse(format!("vhost {vhost} not found")),
            Some(id) if !self.directory.accounts().may_open(&user, id) => {
                refuse(format!("access to vhost '{vhost}' refused for user '{user}'"))
            }
            Some(id) => self
                .sessions
                .connection_counts
                .over_limit(self.directory, id, &user)
                .map_or(Ok(id), refuse),
        };
        if let Ok(id) = result {
            self.connections.let_in(self.shard, slot);
            self.connections.enter_vhost(id);
            let connection = self.connections[slot].id;
            self.count_connection(connection, (id, &user), true, out);
        }
        let connection = &mut self.connections[slot];
        let result = result.map(|id| {
            connection.vhost = id;
            connection.vhost_name = vhost.into();
        });
        if result.is_ok() {
            self.shard.counters.connections_opened += 1;
            let text =
                format!("{}: user '{user}' opened vhost '{vhost}'", connection_name(connection));
            out.log(Severity::Info, "connection-opened", text);
        }
        connection.session.opened(
            now.instant,
            result.as_ref().map(|_| ()),
            &mut connection.send.bytes,
        );
        mark_dirty(connection, slot, out);
    }

    /// The client opens a channel.
    pub(crate) fn channel_open(&mut self, now: Now, slot: u32, number: u16, out: &mut Outbox) {
        let connection = &mut self.connections[slot];
        if connection.channel(number).is_some() {
            let text = format!("second 'channel.open' seen on channel {number}");
            return self.refuse_channel(now, slot, RefusalKind::ChannelError, text, out);
        }
        let (open, channel_max) = (connection.channels.len(), connection.session.channel_max());
        if open >= usize::from(channel_max) {
            let text = format!(
                "number of channels opened ({open}) has reached the negotiated channel_max \
                 ({channel_max})"
            );
            return self.refuse_channel(now, slot, RefusalKind::NotAllowed, text, out);
        }
        if let Some(text) = self.over_channel_limit(slot) {
            return self.refuse_channel(now, slot, RefusalKind::NotAllowed, text, out);
        }
        let connection = &mut self.connections[slot];
        connection.open_channel(number);
        connection.session.channel_opened(number, &mut connection.send.bytes);
        self.shard.counters.channels_opened += 1;
        self.connections.mark_dirty(slot, out);
    }

    /// A channel that cannot be opened ends the connection.
    pub(crate) fn refuse_channel(
        &mut self,
        now: Now,
        slot: u32,
        kind: RefusalKind,
        text: String,
        out: &mut Outbox,
    ) {
        let refusal = Refusal::new(kind, text);
        self.fail_connection(now, slot, Closing::Refused(&refusal, Asked::OpenChannel), out);
    }

    /// A refusal ends the channel, or the connection if the protocol has it so.
    pub(crate) fn fail_channel(
        &mut self,
        now: Now,
        at: At,
        refusal: &Refusal,
        asked: Asked,
        out: &mut Outbox,
    ) {
        let Some(connection) = self.connections.get_mut(at.slot) else {
            return race!("the connection closed before its channel failed");
        };
        let is_ending = connection.end.is_some();
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            return race!("the channel closed before it failed");
        };
        if channel.ending.is_some() {
            // The answer came too late: the channel is on its way out already.
            return self.go_on(now, at, out);
        }
        if is_ending {
            return self.end_channel(now, at, Ending::ByConnection, out);
        }
        let number = channel.number();
        let why = Closing::Refused(refusal, asked);
        let bytes = &mut connection.send.bytes;
        if connection.session.refuse(number, refusal, asked, bytes) {
            return self.fail_connection(now, at.slot, why, out);
        }
        let text = connection.session.words(why);
        let text = format!("{}: channel {number}: {text}", connection_name(connection));
        out.log(Severity::Warning, "channel-error", text);
        mark_dirty(connection, at.slot, out);
        self.end_channel(now, at, Ending::ByBroker, out);
    }

    /// Begins the end of a channel.
    pub(crate) fn end_channel(&mut self, now: Now, at: At, ending: Ending, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(at.slot) else {
            return race!("the connection closed before its channel did");
        };
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            return race!("the channel closed before");
        };
        let already = channel.ending.is_some();
        channel.ending = Some(ending);
        let parked = core::mem::take(&mut channel.parked);
        if ending == Ending::ByBroker {
            answer_parked_close(connection, at, &parked, out);
        }
        connection.parked_bytes = connection.parked_bytes.saturating_sub(parked.len());
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that was just found is there")
        };
        channel.committing = None;
        match channel.pending.as_deref() {
            Some(Pending::Route | Pending::Committed) => channel.pending = None,
            Some(Pending::Commit) => self.give_commit_up(at),
            Some(_) if !already => {
                // The end goes on with the answer.
                give_question_up(connection, at, out);
            }
            _ => {}
        }
        let Some(channel) = self.connections.channel_at(at) else {
            invariant!("a channel stays until all that it has is gone")
        };
        let ends = !already && channel.pending.is_none();
        self.resume_parked(at.slot, out);
        if ends {
            self.continue_end(now, at, out);
        }
    }

    /// The channel cancels its consumers, requeues what it held, and is gone.
    pub(crate) fn continue_end(&mut self, now: Now, at: At, out: &mut Outbox) {
        let Some(channel) = self.connections.channel_at(at) else {
            return race!("the channel closed before");
        };
        channel.reply_consumer = None;
        if channel.subscriptions.as_ref().is_some_and(|all| !all.by_number.is_empty()) {
            self.cancel_consumers(now, at, out);
        } else {
            self.consumers_asked(now, at, out);
        }
    }

    /// Nothing of the channel is left anywhere.
    pub(crate) fn finish_end(&mut self, now: Now, at: At, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(at.slot) else {
            return race!("the connection closed before its channel did");
        };
        let number = at.channel.number();
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            return race!("the channel closed before");
        };
        let ending = channel.ending;
        channel.unacked = Default::default();
        connection.account_channel(at.channel.channel);
        match ending {
            Some(Ending::ByClient) => {
                let is_ending = connection.end.is_some();
                connection.remove_channel(number);
                self.shard.counters.channels_closed += 1;
                self.connections.answer(at.slot, number, &Answer::Done(Done::ChannelClosed), out);
                if is_ending {
                    self.cleaned(now, at.slot, out);
                }
            }
            // The number is free once the client's close-ok came, so only a channel whose number
            // is free already goes here.
            Some(Ending::ByBroker) if connection.end.is_none() => {
                connection.remove_retired(at.channel.channel);
            }
            // Of a connection that ends it goes at once: it is counted among what is to be cleaned, once.
            Some(Ending::ByBroker | Ending::ByConnection) => {
                if connection.is_retired(at.channel.channel) {
                    connection.remove_retired(at.channel.channel);
                } else {
                    connection.remove_channel(number);
                    self.shard.counters.channels_closed += 1;
                }
                self.cleaned(now, at.slot, out);
            }
            None => invariant!("a channel that closes was told to"),
        }
        self.connections.recount(self.shard, at.slot);
    }

    /// The connection breaks the protocol or an operator ends it: it is told.
    pub(crate) fn fail_connection(
        &mut self,
        now: Now,
        slot: u32,
        why: Closing<'_>,
        out: &mut Outbox,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return race!("the connection closed before it failed");
        };
        if connection.end.is_some() {
            return;
        }
        let text = format!("{}: {}", connection_name(connection), connection.session.words(why));
        out.log(Severity::Warning, "connection-error", text);
        connection.send.cut(&mut self.shard.pool, &connection.session);
        connection.session.close(now.instant, why, &mut connection.send.bytes);
        mark_dirty(connection, slot, out);
        self.end_connection(now, slot, ConnectionEnd::ByBroker, out);
        self.connections.arm(self.shard, slot);
        let connection = &mut self.connections[slot];
        if connection.session.state() == State::Closed {
            out.close.push(ConnectionSlot(slot));
        }
    }

    /// Begins the end of a connection: its channels and exclusive queues go.
    pub(crate) fn end_connection(
        &mut self,
        now: Now,
        slot: u32,
        end: ConnectionEnd,
        out: &mut Outbox,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return race!("the connection closed before");
        };
        let before = connection.end;
        connection.end = Some(end);
        if before.is_some() {
            // The cleaning is under way; only what follows it may have changed.
            if connection.cleaning == 0 {
                self.finish_connection(now, slot, out);
            }
            return;
        }
        let (id, vhost) = (connection.id, connection.vhost);
        if !connection.vhost_name.is_empty() {
            let user = connection.user.clone();
            self.count_connection(id, (vhost, &user), false, out);
        }
        let connection = &mut self.connections[slot];
        connection.is_silent = end == ConnectionEnd::ByBroker;
        connection.stalled.clear();
        self.part(now, slot, out);
    }

    /// One channel or exclusive queue of an ending connection is gone.
    pub(crate) fn cleaned(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return race!("the connection closed before the last of it was gone");
        };
        connection.cleaning = connection.cleaning.saturating_sub(1);
        if connection.cleaning == 0 {
            self.finish_connection(now, slot, out);
        }
    }

    /// Nothing of the connection is left anywhere but its socket, if that.
    pub(crate) fn finish_connection(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return race!("the connection closed before");
        };
        if connection.end == Some(ConnectionEnd::ByClient) && !connection.gone {
            // It waits for this and not for the rest of its messages.
            connection.send.cut(&mut self.shard.pool, &connection.session);
            connection.session.close_ok(now.instant, &mut connection.send.bytes);
            mark_dirty(connection, slot, out);
            self.connections.arm(self.shard, slot);
            return;
        }
        if !connection.gone {
            return;
        }
        let Some(mut connection) = self.connections.remove(self.shard, slot) else {
            invariant!("a connection that was just found is there")
        };
        connection.send.clear(&mut self.shard.pool);
        for shard in &connection.known_shards {
            if *shard != self.shard.id {
                out.mail[shard.index()].items.push(Mail::ConnectionGone(connection.id));
            }
        }
        if !connection.vhost_name.is_empty() {
            self.shard.counters.connections_closed += 1;
            let text = connection_name(&connection);
            out.log(Severity::Info, "connection-closed", text);
        }
    }

    /// A connection's timer has fired: heartbeats, handshake, unanswered close.
    pub(crate) fn connection_timeout(
        &mut self,
        now: Now,
        at: Instant,
        (slot, id): (u32, ConnectionId),
        out: &mut Outbox,
    ) {
        let Some(connection) = self.connections.connection_at(slot, id) else {
            return race!("the connection closed before its timer fired");
        };
        if connection.armed != at {
            return;
        }
        connection.armed = Instant::NEVER;
        // A machine that is done has asked for its socket to be closed: what it said last must
        // still go out.
        if connection.gone || connection.session.state() == State::Closed {
            return;
        }
        let before = connection.send.bytes.len();
        let is_asked = connection.session.state() == State::Closing;
        let outcome = connection.session.on_timeout(now.instant, &mut connection.send.bytes);
        connection.gave_up = is_asked && outcome == TimeoutOutcome::Disconnect;
        if connection.send.bytes.len() > before {
            mark_dirty(connection, slot, out);
        }
        let why = match outcome {
            TimeoutOutcome::Nothing => {
                self.connections.arm(self.shard, slot);
                return;
            }
            TimeoutOutcome::PeerDead => "missed heartbeats from client",
            TimeoutOutcome::HandshakeExpired => "handshake took too long",
            TimeoutOutcome::Disconnect => connection.session.disconnect_reason(),
        };
        if outcome != TimeoutOutcome::Disconnect {
            let text = format!("{}: {why}", connection_name(connection));
            out.log(Severity::Warning, "connection-dropped", text);
            // The peer is not there to read them. Otherwise the last bytes still go out.
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.send.clear(&mut self.shard.pool);
            }
        }
        out.close.push(ConnectionSlot(slot));
        self.end_connection(now, slot, ConnectionEnd::Lost, out);
    }

    /// Stops reading a connection whose parked frames are too many.
    pub(crate) fn pause_parked(&mut self, slot: u32, out: &mut Outbox) {
        self.connections.pause(self.shard, slot, Cause::Parked, out);
    }
}
