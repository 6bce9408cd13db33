//! The methods of classes `exchange` and `queue`.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{Method, exchange, queue};
use lepus_base::{Now, QueueId, ShardId};

use crate::binding::Destination;
use crate::broker::Broker;
use crate::channel::{At, Pending};
use crate::directory::{Access, Checked, Request, Resource, check_not_default, clean_name};
use crate::mail::{ChannelRef, Command, Mail, Origin, Reply};
use crate::outbox::Outbox;
use crate::queue::QueueKind;
use crate::refusal::Refusal;
use crate::reply_to::{REPLY_TO, REPLY_TO_PREFIX, address};

type Outcome = Result<(), Refusal>;

impl Broker {
    pub(crate) fn exchange_declare(
        &mut self,
        now: Now,
        at: At,
        method: exchange::Declare<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let name = clean_name(method.exchange).into_owned();
        if method.passive {
            let user = &self.edge.connections[at.slot as usize].user;
            check_not_default(&name)?;
            self.directory.find_exchange(at.vhost, &name)?;
            self.authorize_passive(user, at, "exchange", &name)?;
            if !method.no_wait {
                self.send_method(at, &exchange::DeclareOk {}.into(), out);
            }
            return Ok(());
        }
        let request = Request::DeclareExchange {
            vhost: at.vhost.into(),
            name,
            kind: method.r#type.to_string(),
            durable: method.durable,
            auto_delete: method.auto_delete,
            internal: method.internal,
            arguments: method.arguments.to_owned(),
        };
        let ids = Method::ExchangeDeclare(method).ids();
        self.ask_change(now, at, request, &exchange::DeclareOk {}.into(), method.no_wait, ids, out)
    }

    /// A passive declare needs any one permission on the thing.
    fn authorize_passive(&self, user: &str, at: At, kind: &str, name: &str) -> Outcome {
        if self.directory.accounts().may_any(user, at.vhost, name) {
            return Ok(());
        }
        let vhost = self.directory.vhost_name(at.vhost);
        let text =
            format!("access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'");
        Err(Refusal::new(ReplyCode::ACCESS_REFUSED, text))
    }

    pub(crate) fn exchange_delete(
        &mut self,
        now: Now,
        at: At,
        method: exchange::Delete<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let request = Request::DeleteExchange {
            vhost: at.vhost.into(),
            name: clean_name(method.exchange).into_owned(),
            if_unused: method.if_unused,
        };
        let ids = Method::ExchangeDelete(method).ids();
        self.ask_change(now, at, request, &exchange::DeleteOk {}.into(), method.no_wait, ids, out)
    }

    pub(crate) fn exchange_bind(
        &mut self,
        now: Now,
        at: At,
        method: exchange::Bind<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let request = Request::Bind {
            vhost: at.vhost.into(),
            source: clean_name(method.source).into_owned(),
            destination: Destination::Exchange(clean_name(method.destination).into_owned()),
            routing_key: method.routing_key.to_string(),
            arguments: method.arguments.to_owned(),
            connection: Some(at.channel.connection),
        };
        let ids = Method::ExchangeBind(method).ids();
        self.ask_change(now, at, request, &exchange::BindOk {}.into(), method.no_wait, ids, out)
    }

    pub(crate) fn exchange_unbind(
        &mut self,
        now: Now,
        at: At,
        method: exchange::Unbind<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let request = Request::Unbind {
            vhost: at.vhost.into(),
            source: clean_name(method.source).into_owned(),
            destination: Destination::Exchange(clean_name(method.destination).into_owned()),
            routing_key: method.routing_key.to_string(),
            arguments: method.arguments.to_owned(),
            connection: Some(at.channel.connection),
        };
        let ids = Method::ExchangeUnbind(method).ids();
        self.ask_change(now, at, request, &exchange::UnbindOk {}.into(), method.no_wait, ids, out)
    }

    pub(crate) fn queue_bind(
        &mut self,
        now: Now,
        at: At,
        method: queue::Bind<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let name = self.queue_name(at, method.queue)?;
        if name.starts_with(REPLY_TO) {
            let text = format!("cannot bind '{REPLY_TO}'");
            return Err(Refusal::new(ReplyCode::ACCESS_REFUSED, text));
        }
        // An empty queue name together with an empty key: the key is the queue's name.
        let routing_key = if method.queue.is_empty() && method.routing_key.is_empty() {
            name.to_string()
        } else {
            method.routing_key.to_string()
        };
        let request = Request::Bind {
            vhost: at.vhost.into(),
            source: clean_name(method.exchange).into_owned(),
            destination: Destination::Queue(name.into()),
            routing_key,
            arguments: method.arguments.to_owned(),
            connection: Some(at.channel.connection),
        };
        let ids = Method::QueueBind(method).ids();
        self.ask_change(now, at, request, &queue::BindOk {}.into(), method.no_wait, ids, out)
    }

    pub(crate) fn queue_unbind(
        &mut self,
        now: Now,
        at: At,
        method: queue::Unbind<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let name = self.queue_name(at, method.queue)?;
        let routing_key = if method.queue.is_empty() && method.routing_key.is_empty() {
            name.to_string()
        } else {
            method.routing_key.to_string()
        };
        let request = Request::Unbind {
            vhost: at.vhost.into(),
            source: clean_name(method.exchange).into_owned(),
            destination: Destination::Queue(name.into()),
            routing_key,
            arguments: method.arguments.to_owned(),
            connection: Some(at.channel.connection),
        };
        let ids = Method::QueueUnbind(method).ids();
        self.ask_change(now, at, request, &queue::UnbindOk {}.into(), false, ids, out)
    }

    /// Asks for a change of the directory and answers `ok` when it stands.
    fn ask_change(
        &mut self,
        now: Now,
        at: At,
        request: Request,
        ok: &Method<'_>,
        no_wait: bool,
        method: (u16, u16),
        out: &mut Outbox,
    ) -> Outcome {
        let user = &self.edge.connections[at.slot as usize].user;
        self.directory.authorize_request(user, &request)?;
        if let Checked::Already(_) = self.directory.check(&request)? {
            if !no_wait {
                self.send_method(at, ok, out);
            }
            return Ok(());
        }
        let mut frame = Vec::new();
        if !no_wait {
            ok.encode_frame(at.channel.number(), &mut frame);
        }
        self.set_pending(at, Pending::Done { ok: frame, method });
        self.ask_directory(now, Origin::Channel(at.channel), request, out);
        Ok(())
    }

    pub(crate) fn queue_declare(
        &mut self,
        now: Now,
        at: At,
        method: queue::Declare<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        if method.queue.starts_with(REPLY_TO_PREFIX) {
            return self.declare_reply_token(at, &method, out);
        }
        if method.queue == REPLY_TO {
            if !method.no_wait {
                let ok = queue::DeclareOk { queue: REPLY_TO, message_count: 0, consumer_count: 1 };
                self.send_method(at, &ok.into(), out);
            }
            return Ok(());
        }
        let cleaned = clean_name(method.queue);
        if method.passive {
            let name: Box<str> = self.queue_name(at, &cleaned)?;
            let user = &self.edge.connections[at.slot as usize].user;
            let info = self.directory.find_queue(at.vhost, &name, at.channel.connection)?;
            self.authorize_passive(user, at, "queue", &name)?;
            let (id, home) = (info.id, info.home);
            self.remember_queue(at, &name);
            let pending = Pending::Declare { name, request: None, no_wait: method.no_wait };
            self.set_pending(at, pending);
            self.ask_home(now, at, id, home, Command::Count, out);
            return Ok(());
        }
        let server_named = cleaned.is_empty();
        let name: String =
            if server_named { self.names.name("amq.gen-") } else { cleaned.into_owned() };
        let connection = &self.edge.connections[at.slot as usize];
        let request = Request::DeclareQueue {
            vhost: at.vhost.into(),
            name: name.clone(),
            server_named,
            durable: method.durable,
            exclusive: method.exclusive.then_some(at.channel.connection),
            auto_delete: method.auto_delete,
            arguments: method.arguments.to_owned(),
            declared_on: self.edge.shard,
            user: connection.user.to_string(),
        };
        self.directory.authorize_request(&connection.user, &request)?;
        self.declare(now, at, name.into(), Box::new(request), method.no_wait, out)
    }

    /// Declares a queue: finds it, or asks the directory for it.
    pub(crate) fn declare(
        &mut self,
        now: Now,
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
                let Some((id, home)) = found.map(|info| (info.id, info.home)) else {
                    return Ok(());
                };
                self.set_pending(at, Pending::Declare { name, request: Some(request), no_wait });
                self.ask_home(now, at, id, home, Command::Count, out);
            }
            Checked::Change(_) => {
                let asked = (*request).clone();
                self.set_pending(at, Pending::Declare { name, request: Some(request), no_wait });
                self.ask_directory(now, Origin::Channel(at.channel), asked, out);
            }
        }
        Ok(())
    }

    fn declare_reply_token(
        &mut self,
        at: At,
        method: &queue::Declare<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let of = address(&self.settings.secret, method.queue);
        if let Some(of) = of
            && of.shard != self.edge.shard
            && of.shard.index() < out.mail.shards()
        {
            let name = method.queue.into();
            let pending = Pending::Declare { name, request: None, no_wait: method.no_wait };
            self.set_pending(at, pending);
            self.edge.connections[at.slot as usize].touch(of.shard);
            let mail = Mail::FindReplyConsumer { of, from: at.channel };
            out.mail[of.shard.index()].items.push(mail);
            return Ok(());
        }
        if !of.is_some_and(|of| self.has_reply_consumer(of)) {
            let vhost = self.directory.vhost_name(at.vhost);
            let text = format!("no queue '{}' in vhost '{vhost}'", method.queue);
            return Err(Refusal::new(ReplyCode::NOT_FOUND, text));
        }
        if !method.no_wait {
            let ok = queue::DeclareOk { queue: method.queue, message_count: 0, consumer_count: 1 };
            self.send_method(at, &ok.into(), out);
        }
        Ok(())
    }

    /// Whether a channel of this shard consumes replies.
    fn has_reply_consumer(&mut self, of: ChannelRef) -> bool {
        self.edge.connection(of.connection, u32::MAX).is_some_and(|(_, connection)| {
            connection.incarnation(of.channel).is_some_and(|c| c.reply_consumer.is_some())
        })
    }

    /// Another shard's channel asks for a reply consumer of this one.
    pub(crate) fn find_reply_consumer(
        &mut self,
        now: Now,
        of: ChannelRef,
        from: ChannelRef,
        out: &mut Outbox,
    ) {
        let found = self.has_reply_consumer(of);
        let reply = if found { Reply::Counted { ready: 0, consumers: 1 } } else { Reply::Gone };
        self.reply(now, from, QueueId::default(), reply, out);
    }

    pub(crate) fn queue_purge(
        &mut self,
        now: Now,
        at: At,
        method: queue::Purge<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let name = self.queue_name(at, method.queue)?;
        let (id, home) = self.readable_queue(at, &name)?;
        self.set_pending(at, Pending::Purge { name, no_wait: method.no_wait });
        self.ask_home(now, at, id, home, Command::Purge, out);
        Ok(())
    }

    pub(crate) fn queue_delete(
        &mut self,
        now: Now,
        at: At,
        method: queue::Delete<'_>,
        out: &mut Outbox,
    ) -> Outcome {
        let name = self.queue_name(at, method.queue)?;
        let user = &self.edge.connections[at.slot as usize].user;
        let resource = Resource::Queue(&name);
        self.directory.accounts().authorize(user, at.vhost, Access::Configure, resource)?;
        let Some(_) = self.directory.queue(at.vhost, &name) else {
            if !method.no_wait {
                self.send_method(at, &queue::DeleteOk { message_count: 0 }.into(), out);
            }
            return Ok(());
        };
        let info = self.directory.find_queue(at.vhost, &name, at.channel.connection)?;
        if info.kind == QueueKind::Quorum && (method.if_unused || method.if_empty) {
            let flag = if method.if_unused { "if-unused" } else { "if-empty" };
            let text = format!(
                "cannot delete {}. queue.delete operations with {flag} flag set are not supported \
                 by quorum queues",
                self.describe_queue(info.id)
            );
            return Err(Refusal::new(ReplyCode::NOT_IMPLEMENTED, text));
        }
        let (id, home) = (info.id, info.home);
        self.set_pending(at, Pending::Delete { name, no_wait: method.no_wait });
        let command = Command::Delete { if_unused: method.if_unused, if_empty: method.if_empty };
        self.ask_home(now, at, id, home, command, out);
        Ok(())
    }

    /// A queue that the user may read from.
    pub(crate) fn readable_queue(&self, at: At, name: &str) -> Result<(QueueId, ShardId), Refusal> {
        let user = &self.edge.connections[at.slot as usize].user;
        self.directory.accounts().authorize(user, at.vhost, Access::Read, Resource::Queue(name))?;
        let info = self.directory.find_queue(at.vhost, name, at.channel.connection)?;
        Ok((info.id, info.home))
    }

    /// The queue that a name means: an empty one stands for the last queue declared.
    pub(crate) fn queue_name(&self, at: At, name: &str) -> Result<Box<str>, Refusal> {
        if !name.is_empty() {
            return Ok(clean_name(name).into());
        }
        let connection = &self.edge.connections[at.slot as usize];
        connection
            .channel(at.channel.number())
            .and_then(|channel| channel.last_queue.clone())
            .ok_or_else(|| Refusal::new(ReplyCode::NOT_FOUND, "no previously declared queue"))
    }

    pub(crate) fn remember_queue(&mut self, at: At, name: &str) {
        let connection = &mut self.edge.connections[at.slot as usize];
        if let Some(channel) = connection.incarnation(at.channel.channel)
            && channel.last_queue.as_deref() != Some(name)
        {
            channel.last_queue = Some(name.into());
        }
    }
}
