//! Operations on exchanges, queues and bindings.

use crate::binding::Destination;
use crate::channel::{At, Pending};
use crate::directory::router::{FILTER, SELECTOR};
use crate::directory::{Access, Checked, Request, Resource, check_not_default, clean_name};
use crate::mail::{ChannelRef, Command, Mail, Origin, Reply};
use crate::outbox::Outbox;
use crate::refusal::{Refusal, RefusalKind};
use crate::reply_to::{REPLY_TO, REPLY_TO_PREFIX, address};
use crate::session::{
    Answer, Arguments, Asked, BindExchange, BindQueue, DeclareExchange, DeclareQueue, Done,
    Operation,
};
use crate::sessions::SessionSide;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use lepus_base::{QueueId, ShardId};

type Outcome = Result<(), Refusal>;

/// A binding that is asked for.
pub(crate) struct Binding<'a> {
    at: At,
    source: &'a str,
    destination: Destination,
    routing_key: String,
    arguments: Arguments<'a>,
}

pub(crate) fn bind_exchange<'a>(at: At, bind: &BindExchange<'a>) -> Binding<'a> {
    Binding {
        at,
        source: bind.source,
        destination: Destination::Exchange(clean_name(bind.destination).into_owned()),
        routing_key: bind.routing_key.to_string(),
        arguments: bind.arguments,
    }
}

pub(crate) fn bind_queue<'a>(at: At, bind: &BindQueue<'a>, name: Box<str>) -> Binding<'a> {
    // An empty queue name together with an empty key: the key is the queue's name.
    let is_same = bind.queue.is_empty() && bind.routing_key.is_empty();
    let routing_key = if is_same { name.to_string() } else { bind.routing_key.to_string() };
    Binding {
        at,
        source: bind.exchange,
        destination: Destination::Queue(name.into()),
        routing_key,
        arguments: bind.arguments,
    }
}

impl Binding<'_> {
    fn into_bind(self) -> Request {
        Request::Bind {
            vhost: self.at.vhost.into(),
            source: clean_name(self.source).into_owned(),
            destination: self.destination,
            routing_key: self.routing_key,
            arguments: self.arguments.to_owned(),
            connection: Some(self.at.channel.connection),
        }
    }

    fn into_unbind(self) -> Request {
        Request::Unbind {
            vhost: self.at.vhost.into(),
            source: clean_name(self.source).into_owned(),
            destination: self.destination,
            routing_key: self.routing_key,
            arguments: self.arguments.to_owned(),
            connection: Some(self.at.channel.connection),
        }
    }
}

impl SessionSide<'_> {
    pub(crate) fn exchange_declare(
        &mut self,
        at: At,
        declare: &DeclareExchange<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let name = clean_name(declare.exchange).into_owned();
        let answer = (!declare.no_wait).then_some(Done::ExchangeDeclared);
        if declare.passive {
            let user = &self.connections[at.slot].user;
            check_not_default(&name)?;
            self.directory.find_exchange(at.vhost, &name)?;
            self.authorize_passive(user, at, "exchange", &name)?;
            self.answer_done(at, answer, out);
            return Ok(());
        }
        let request = Request::DeclareExchange {
            vhost: at.vhost.into(),
            name,
            kind: declare.kind.to_string(),
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            internal: declare.internal,
            arguments: declare.arguments.to_owned(),
        };
        self.ask_change(at, request, answer, Asked::DeclareExchange, out)
    }

    /// A passive declare needs any one permission on the thing.
    pub(crate) fn authorize_passive(&self, user: &str, at: At, kind: &str, name: &str) -> Outcome {
        if self.directory.accounts().may_any(user, at.vhost, name) {
            return Ok(());
        }
        let vhost = self.directory.vhost_name(at.vhost);
        let text =
            format!("access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'");
        Err(Refusal::new(RefusalKind::AccessRefused, text))
    }

    /// Whether a binding with these arguments may come: what its filter would take is not there while memory is short.
    fn check_memory_for_filter(&self, arguments: Arguments<'_>) -> Result<(), Refusal> {
        let has_filter = [FILTER, SELECTOR].iter().any(|name| arguments.get(name).is_some());
        if has_filter && self.shard.backpressure.has_memory_alarm() {
            let text = "memory is short: no further filters are taken until the memory alarm ends";
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        Ok(())
    }

    /// Carries out what changes exchanges and bindings, and declares nothing.
    pub(crate) fn change_routes(
        &mut self,
        at: At,
        operation: &Operation<'_>,
        asked: Asked,
        out: &mut Outbox,
    ) -> Outcome {
        let (request, done, no_wait) = match operation {
            Operation::DeleteExchange { exchange, if_unused, no_wait } => {
                let request = Request::DeleteExchange {
                    vhost: at.vhost.into(),
                    name: clean_name(exchange).into_owned(),
                    if_unused: *if_unused,
                };
                (request, Done::ExchangeDeleted, *no_wait)
            }
            Operation::BindExchange(bind) => {
                self.check_memory_for_filter(bind.arguments)?;
                let request = bind_exchange(at, bind).into_bind();
                (request, Done::ExchangeBound, bind.no_wait)
            }
            Operation::UnbindExchange(bind) => {
                let request = bind_exchange(at, bind).into_unbind();
                (request, Done::ExchangeUnbound, bind.no_wait)
            }
            Operation::BindQueue(bind) => {
                self.check_memory_for_filter(bind.arguments)?;
                let name = self.queue_name(at, bind.queue)?;
                if name.starts_with(REPLY_TO) {
                    let text = format!("cannot bind '{REPLY_TO}'");
                    return Err(Refusal::new(RefusalKind::AccessRefused, text));
                }
                (bind_queue(at, bind, name).into_bind(), Done::QueueBound, bind.no_wait)
            }
            Operation::UnbindQueue(bind) => {
                let name = self.queue_name(at, bind.queue)?;
                (bind_queue(at, bind, name).into_unbind(), Done::QueueUnbound, bind.no_wait)
            }
            other => panic!("{other:?} changes no routes"),
        };
        self.ask_change(at, request, (!no_wait).then_some(done), asked, out)
    }

    /// Says that something was done, if an answer is wanted.
    pub(crate) fn answer_done(&mut self, at: At, done: Option<Done>, out: &mut Outbox) {
        if let Some(done) = done {
            self.say(at, &Answer::Done(done), out);
        }
    }

    /// Asks for a change of the directory and answers `done` when it stands.
    pub(crate) fn ask_change(
        &mut self,
        at: At,
        request: Request,
        done: Option<Done>,
        asked: Asked,
        out: &mut Outbox,
    ) -> Outcome {
        let user = &self.connections[at.slot].user;
        self.directory.authorize_request(user, &request)?;
        let checked = self.directory.check(&request);
        let effort = match (&checked, &request) {
            (Err(_), request) => self.directory.refusal_effort(request),
            (Ok(Checked::Change(change)), Request::Bind { .. }) => self.directory.effort(change),
            _ => 0,
        };
        self.shard.effort.spend_on_filter(effort);
        if let Checked::Already(_) = checked? {
            self.answer_done(at, done, out);
            return Ok(());
        }
        self.set_pending(at, Pending::Done { done, asked });
        self.shard.ask_directory(Origin::Channel(at.channel), request, out);
        Ok(())
    }

    pub(crate) fn queue_declare(
        &mut self,
        at: At,
        declare: &DeclareQueue<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        if declare.queue.starts_with(REPLY_TO_PREFIX) {
            return self.declare_reply_token(at, declare, out);
        }
        if declare.queue == REPLY_TO {
            if !declare.no_wait {
                let answer = Answer::QueueDeclared { queue: REPLY_TO, messages: 0, consumers: 1 };
                self.say(at, &answer, out);
            }
            return Ok(());
        }
        let cleaned = clean_name(declare.queue);
        if declare.passive {
            let name: Box<str> = self.queue_name(at, &cleaned)?;
            let user = &self.connections[at.slot].user;
            let info = self.directory.find_queue(at.vhost, &name, at.channel.connection)?;
            self.authorize_passive(user, at, "queue", &name)?;
            let id = info.id;
            self.remember_queue(at, &name);
            let pending = Pending::Declare { name, request: None, no_wait: declare.no_wait };
            self.set_pending(at, pending);
            self.ask_home(at, id, Command::Count, out);
            return Ok(());
        }
        let server_named = cleaned.is_empty();
        let name: String =
            if server_named { self.sessions.names.name("amq.gen-") } else { cleaned.into_owned() };
        let connection = &self.connections[at.slot];
        let request = Request::DeclareQueue {
            vhost: at.vhost.into(),
            name: name.clone(),
            server_named,
            durable: declare.durable,
            exclusive: declare.exclusive.then_some(at.channel.connection),
            auto_delete: declare.auto_delete,
            arguments: declare.arguments.to_owned(),
            declared_on: self.shard.id,
            user: connection.user.to_string(),
        };
        self.directory.authorize_request(&connection.user, &request)?;
        self.declare(at, name.into(), Box::new(request), declare.no_wait, out)
    }

    /// Declares a queue: finds it, or asks the directory for it.
    pub(crate) fn declare(
        &mut self,
        at: At,
        name: Box<str>,
        request: Box<Request>,
        no_wait: bool,
        out: &mut Outbox,
    ) -> Outcome {
        match self.directory.check(&request)? {
            Checked::Already(id) => {
                self.remember_queue(at, &name);
                let found = id.and_then(|id| self.directory.queue_by_id(id));
                let Some(id) = found.map(|info| info.id) else {
                    invariant!("a queue that is there already is known by its id")
                };
                self.set_pending(at, Pending::Declare { name, request: Some(request), no_wait });
                self.ask_home(at, id, Command::Count, out);
            }
            Checked::Change(_) => {
                let asked = (*request).clone();
                self.set_pending(at, Pending::Declare { name, request: Some(request), no_wait });
                self.shard.ask_directory(Origin::Channel(at.channel), asked, out);
            }
        }
        Ok(())
    }

    pub(crate) fn declare_reply_token(
        &mut self,
        at: At,
        declare: &DeclareQueue<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let of = address(&self.shard.settings.secret, declare.queue);
        if let Some(of) = of
            && of.shard != self.shard.id
            && of.shard.index() < out.mail.shards()
        {
            let name = declare.queue.into();
            let pending = Pending::Declare { name, request: None, no_wait: declare.no_wait };
            self.set_pending(at, pending);
            self.connections[at.slot].note_shard(of.shard);
            let mail = Mail::FindReplyConsumer { of, from: at.channel };
            out.mail[of.shard.index()].items.push(mail);
            return Ok(());
        }
        if !of.is_some_and(|of| self.has_reply_consumer(of)) {
            let vhost = self.directory.vhost_name(at.vhost);
            let text = format!("no queue '{}' in vhost '{vhost}'", declare.queue);
            return Err(Refusal::new(RefusalKind::NotFound, text));
        }
        if !declare.no_wait {
            let queue = declare.queue;
            self.say(at, &Answer::QueueDeclared { queue, messages: 0, consumers: 1 }, out);
        }
        Ok(())
    }

    /// Whether a channel of this shard consumes replies.
    pub(crate) fn has_reply_consumer(&mut self, of: ChannelRef) -> bool {
        self.connections.connection(of.connection, u32::MAX).is_some_and(|(_, connection)| {
            connection.incarnation(of.channel).is_some_and(|c| c.reply_consumer.is_some())
        })
    }

    /// Another shard's channel asks for a reply consumer of this one.
    pub(crate) fn find_reply_consumer(
        &mut self,
        of: ChannelRef,
        from: ChannelRef,
        out: &mut Outbox,
    ) {
        let found = self.has_reply_consumer(of);
        let reply = if found { Reply::Counted { ready: 0, consumers: 1 } } else { Reply::Gone };
        self.shard.reply(from, QueueId::default(), reply, out);
    }

    pub(crate) fn queue_purge(
        &mut self,
        at: At,
        queue: &str,
        no_wait: bool,
        out: &mut Outbox,
    ) -> Outcome {
        let name = self.queue_name(at, queue)?;
        let (id, _) = self.readable_queue(at, &name)?;
        self.set_pending(at, Pending::Purge { name, no_wait });
        self.ask_home(at, id, Command::Purge, out);
        Ok(())
    }

    pub(crate) fn queue_delete(
        &mut self,
        at: At,
        queue: &str,
        (if_unused, if_empty): (bool, bool),
        no_wait: bool,
        out: &mut Outbox,
    ) -> Outcome {
        let name = self.queue_name(at, queue)?;
        let user = &self.connections[at.slot].user;
        let resource = Resource::Queue(&name);
        self.directory.accounts().authorize(user, at.vhost, Access::Configure, resource)?;
        let Some(_) = self.directory.queue(at.vhost, &name) else {
            if !no_wait {
                self.say(at, &Answer::QueueDeleted(0), out);
            }
            return Ok(());
        };
        let info = self.directory.find_queue(at.vhost, &name, at.channel.connection)?;
        if !info.kind.deletes_on_condition() && (if_unused || if_empty) {
            let flag = if if_unused { "if-unused" } else { "if-empty" };
            let text = format!(
                "cannot delete {}. queue.delete operations with {flag} flag set are not supported \
                 by quorum queues",
                self.directory.describe_queue(info.id)
            );
            return Err(Refusal::new(RefusalKind::NotImplemented, text));
        }
        let id = info.id;
        self.set_pending(at, Pending::Delete { name, no_wait });
        let command = Command::Delete { if_unused, if_empty };
        self.ask_home(at, id, command, out);
        Ok(())
    }

    /// A queue that the user may read from.
    pub(crate) fn readable_queue(&self, at: At, name: &str) -> Result<(QueueId, ShardId), Refusal> {
        let user = &self.connections[at.slot].user;
        self.directory.accounts().authorize(user, at.vhost, Access::Read, Resource::Queue(name))?;
        let info = self.directory.find_queue(at.vhost, name, at.channel.connection)?;
        Ok((info.id, info.home))
    }

    /// The queue that a name means: an empty one stands for the last queue declared.
    pub(crate) fn queue_name(&self, at: At, name: &str) -> Result<Box<str>, Refusal> {
        if !name.is_empty() {
            return Ok(clean_name(name).into());
        }
        let connection = &self.connections[at.slot];
        connection
            .channel(at.channel.number())
            .and_then(|channel| channel.last_queue.clone())
            .ok_or_else(|| Refusal::new(RefusalKind::NotFound, "no previously declared queue"))
    }

    pub(crate) fn remember_queue(&mut self, at: At, name: &str) {
        let connection = &mut self.connections[at.slot];
        if let Some(channel) = connection.incarnation(at.channel.channel)
            && channel.last_queue.as_deref() != Some(name)
        {
            channel.last_queue = Some(name.into());
        }
    }

    /// Asks the home of a queue; the channel's pending question must be set before.
    pub(crate) fn ask_home(&self, at: At, queue: QueueId, command: Command, out: &mut Outbox) {
        out.own.push(Mail::Command { from: at.channel, queue, command });
    }
}
