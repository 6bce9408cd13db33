//! Channels of simulated clients: how they are opened, and each of them as a test speaks to it.
//!
//! Each call sends, lets everything come to rest and returns what the broker answered. An answer
//! that is missing or other than expected is a panic that says what came instead.

use lepus_amqp::Method;
use lepus_amqp::client::encode_publish;
use lepus_amqp::method::{basic, channel, confirm, exchange, queue, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;

use crate::client::Client;
use crate::inbox::{Answer, Confirm, Inbox, Message, Refused, Returned};
use crate::world::World;

/// A channel. Cheap to clone; clones are the same channel.
#[derive(Clone)]
pub struct Channel {
    client: Client,
    number: u16,
}

/// What `queue.declare-ok` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The queue's name.
    pub queue: String,
    /// Ready messages.
    pub messages: u32,
    /// Consumers.
    pub consumers: u32,
}

impl World {
    /// A new connection of `guest` to `shard` and a channel on it: the usual start.
    #[must_use]
    pub fn channel(&self, shard: u16) -> Channel {
        self.connect(shard).channel()
    }
}

/// Channels of a client.
impl Client {
    /// Opens a channel on the lowest free number.
    #[must_use]
    pub fn channel(&self) -> Channel {
        let number = self.peer(|peer| {
            (1..).find(|number| peer.inboxes.get(number).is_none_or(|inbox| inbox.closed.is_some()))
        });
        self.channel_number(number.unwrap_or(1))
    }

    /// Opens the channel with this number.
    ///
    /// # Panics
    /// When the broker refuses.
    #[must_use]
    pub fn channel_number(&self, number: u16) -> Channel {
        let channel = Channel { client: self.clone(), number };
        channel.send(channel::Open {});
        channel.expect("channel.open-ok");
        channel
    }

    /// A handle for a channel that need not be open.
    #[must_use]
    pub fn unopened(&self, number: u16) -> Channel {
        Channel { client: self.clone(), number }
    }
}

impl Channel {
    /// The client whose channel it is.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn inbox<R>(&self, act: impl FnOnce(&mut Inbox) -> R) -> R {
        self.client.peer(|peer| act(peer.inboxes.entry(self.number).or_default()))
    }

    /// Sends a method and waits for nothing.
    pub fn send<'a>(&self, method: impl Into<Method<'a>>) {
        self.client.send(self.number, method);
    }

    /// Sends a method and takes the broker's answer to it.
    ///
    /// # Panics
    /// When none comes.
    pub fn call<'a>(&self, method: impl Into<Method<'a>>) -> Answer {
        let method = method.into();
        self.send(method);
        self.answer().unwrap_or_else(|| self.fail(&format!("no answer to {}", method.name())))
    }

    /// The next answer that came, if any.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        self.inbox(|inbox| inbox.answers.pop_front())
    }

    /// Takes the next answer, which must be this method.
    ///
    /// # Panics
    /// When it is another, or none.
    pub fn expect(&self, name: &str) -> Answer {
        match self.answer() {
            Some(answer) if answer.name() == name => answer,
            Some(answer) => self.fail(&format!("expected {name}, found {answer:?}")),
            None => self.fail(&format!("expected {name}, found nothing")),
        }
    }

    pub(crate) fn call_for<'a>(&self, method: impl Into<Method<'a>>, name: &str) -> Answer {
        self.send(method);
        self.expect(name)
    }

    fn fail(&self, text: &str) -> ! {
        let (closed, connection) = (self.inbox(|inbox| inbox.closed.clone()), self.client.closed());
        panic!(
            "channel {}: {text} (channel closed: {closed:?}, connection closed: {connection:?})",
            self.number
        );
    }

    /// Whether neither the channel nor its connection was closed by the broker.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.client.is_open() && self.inbox(|inbox| inbox.closed.is_none())
    }

    /// Sends a method that the broker must refuse by closing the channel or the connection.
    ///
    /// # Panics
    /// When it does not.
    pub fn refused<'a>(&self, method: impl Into<Method<'a>>) -> Refused {
        self.send(method);
        self.expect_refused()
    }

    /// Expects that something said before was refused.
    ///
    /// # Panics
    /// When it was not.
    pub fn expect_refused(&self) -> Refused {
        if let Some(closed) = self.inbox(|inbox| inbox.closed.clone()) {
            return closed;
        }
        match self.client.closed() {
            Some(closed) => {
                Refused { code: closed.code, text: closed.text, method: (0, 0), hard: true }
            }
            None => {
                let answers = self.inbox(|inbox| inbox.answers.clone());
                self.fail(&format!("expected a refusal, found {answers:?}"))
            }
        }
    }

    /// Names of all methods that came on this channel since the last call, in order.
    #[must_use]
    pub fn order(&self) -> Vec<&'static str> {
        self.inbox(|inbox| std::mem::take(&mut inbox.order))
    }

    /// Closes the channel.
    pub fn close(&self) {
        let close =
            channel::Close { reply_code: 200, reply_text: "goodbye", class_id: 0, method_id: 0 };
        self.call_for(close, "channel.close-ok");
        self.client.peer(|peer| peer.inboxes.remove(&self.number));
    }

    // Queues and exchanges.

    /// Declares a transient shared queue.
    pub fn declare(&self, name: &str) -> Declared {
        self.declare_with(name, Table::new())
    }

    /// Declares a transient shared queue with arguments.
    pub fn declare_with(&self, name: &str, arguments: Table) -> Declared {
        let arguments = arguments.to_bytes();
        self.declare_method(queue::Declare {
            queue: name,
            arguments: arguments.as_ref(),
            ..Default::default()
        })
    }

    /// Declares a queue that lives and dies with the connection.
    pub fn declare_exclusive(&self, name: &str) -> Declared {
        self.declare_method(queue::Declare { queue: name, exclusive: true, ..Default::default() })
    }

    /// Asks for a queue that must be there.
    pub fn passive(&self, name: &str) -> Declared {
        self.declare_method(queue::Declare { queue: name, passive: true, ..Default::default() })
    }

    /// Declares a queue.
    pub fn declare_method(&self, method: queue::Declare<'_>) -> Declared {
        let answer = self.call_for(method, "queue.declare-ok");
        let Method::QueueDeclareOk(ok) = answer.method() else { unreachable!() };
        Declared {
            queue: ok.queue.to_owned(),
            messages: ok.message_count,
            consumers: ok.consumer_count,
        }
    }

    /// Declares a transient exchange.
    pub fn exchange(&self, name: &str, kind: &str) {
        self.exchange_with(name, kind, Table::new());
    }

    /// Declares a transient exchange with arguments.
    pub fn exchange_with(&self, name: &str, kind: &str, arguments: Table) {
        let arguments = arguments.to_bytes();
        self.exchange_method(exchange::Declare {
            exchange: name,
            r#type: kind,
            arguments: arguments.as_ref(),
            ..Default::default()
        });
    }

    /// Declares an exchange.
    pub fn exchange_method(&self, method: exchange::Declare<'_>) {
        self.call_for(method, "exchange.declare-ok");
    }

    /// Deletes an exchange.
    pub fn delete_exchange(&self, name: &str) {
        let method = exchange::Delete { exchange: name, if_unused: false, no_wait: false };
        self.call_for(method, "exchange.delete-ok");
    }

    /// Binds a queue to an exchange.
    pub fn bind(&self, queue: &str, exchange: &str, routing_key: &str) {
        self.bind_with(queue, exchange, routing_key, Table::new());
    }

    /// Binds a queue to an exchange with arguments.
    pub fn bind_with(&self, queue: &str, exchange: &str, routing_key: &str, arguments: Table) {
        let arguments = arguments.to_bytes();
        let arguments = arguments.as_ref();
        let method = queue::Bind { queue, exchange, routing_key, no_wait: false, arguments };
        self.call_for(method, "queue.bind-ok");
    }

    /// Removes a binding of a queue.
    pub fn unbind(&self, queue: &str, exchange: &str, routing_key: &str) {
        let arguments = Default::default();
        let method = queue::Unbind { queue, exchange, routing_key, arguments };
        self.call_for(method, "queue.unbind-ok");
    }

    /// Binds exchange `destination` to exchange `source`.
    pub fn bind_exchange(&self, destination: &str, source: &str, routing_key: &str) {
        let arguments = Default::default();
        let method = exchange::Bind { destination, source, routing_key, no_wait: false, arguments };
        self.call_for(method, "exchange.bind-ok");
    }

    /// Removes a binding between exchanges.
    pub fn unbind_exchange(&self, destination: &str, source: &str, routing_key: &str) {
        let arguments = Default::default();
        let method =
            exchange::Unbind { destination, source, routing_key, no_wait: false, arguments };
        self.call_for(method, "exchange.unbind-ok");
    }

    /// Purges a queue; how many messages went.
    pub fn purge(&self, queue: &str) -> u32 {
        let answer = self.call_for(queue::Purge { queue, no_wait: false }, "queue.purge-ok");
        let Method::QueuePurgeOk(ok) = answer.method() else { unreachable!() };
        ok.message_count
    }

    /// Deletes a queue; how many messages went with it.
    pub fn delete(&self, queue: &str) -> u32 {
        self.delete_method(queue::Delete { queue, ..Default::default() })
    }

    /// Deletes a queue on conditions; how many messages went with it.
    pub fn delete_method(&self, method: queue::Delete<'_>) -> u32 {
        let answer = self.call_for(method, "queue.delete-ok");
        let Method::QueueDeleteOk(ok) = answer.method() else { unreachable!() };
        ok.message_count
    }

    // Publishing.

    /// Publishes a message without properties.
    pub fn publish(&self, exchange: &str, key: &str, body: impl AsRef<[u8]>) {
        self.publish_with(exchange, key, &Properties::default(), body);
    }

    /// Publishes a message with properties.
    pub fn publish_with(
        &self,
        exchange: &str,
        key: &str,
        properties: &Properties,
        body: impl AsRef<[u8]>,
    ) {
        self.publish_raw(exchange, key, false, &properties.to_bytes(), body.as_ref());
    }

    /// Publishes a message that is to come back if no queue takes it.
    pub fn publish_mandatory(&self, exchange: &str, key: &str, body: impl AsRef<[u8]>) {
        let properties = Properties::default().to_bytes();
        self.publish_raw(exchange, key, true, &properties, body.as_ref());
    }

    /// Publishes a message with properties in wire form.
    pub fn publish_raw(
        &self,
        exchange: &str,
        key: &str,
        mandatory: bool,
        properties: &[u8],
        body: &[u8],
    ) {
        let mut frames = Vec::new();
        let frame_max = self
            .client
            .peer(|peer| peer.machine.as_ref().map_or(u32::MAX, |machine| machine.frame_max()));
        encode_publish(
            &mut frames,
            self.number,
            frame_max,
            exchange,
            key,
            mandatory,
            properties,
            body,
        );
        self.client.send_bytes(&frames);
    }

    /// Publishes each of `bodies` to a queue, all in one piece.
    pub fn publish_all<B: AsRef<[u8]>>(&self, queue: &str, bodies: impl IntoIterator<Item = B>) {
        self.client.together(|| {
            for body in bodies {
                self.publish("", queue, body);
            }
        });
    }

    /// Switches publisher confirms on.
    pub fn confirm_select(&self) {
        self.call_for(confirm::Select { no_wait: false }, "confirm.select-ok");
    }

    /// Confirms since the last call, as they came.
    #[must_use]
    pub fn confirms(&self) -> Vec<Confirm> {
        self.inbox(|inbox| inbox.confirms.drain(..).collect())
    }

    /// Publish numbers reported since the last call, `multiple` written out: acknowledged ones
    /// and refused ones.
    #[must_use]
    pub fn confirmed(&self) -> (Vec<u64>, Vec<u64>) {
        self.inbox(|inbox| {
            let (mut acked, mut nacked) = (Vec::new(), Vec::new());
            for confirm in inbox.confirms.drain(..) {
                let (list, tag, multiple) = match confirm {
                    Confirm::Ack { tag, multiple } => (&mut acked, tag, multiple),
                    Confirm::Nack { tag, multiple } => (&mut nacked, tag, multiple),
                };
                let first = if multiple { inbox.reported + 1 } else { tag };
                list.extend(first..=tag);
                inbox.reported = inbox.reported.max(tag);
            }
            (acked, nacked)
        })
    }

    /// Messages that came back since the last call.
    #[must_use]
    pub fn returns(&self) -> Vec<Returned> {
        self.inbox(|inbox| inbox.returns.drain(..).collect())
    }

    /// Makes the channel transactional.
    pub fn tx_select(&self) {
        self.call_for(tx::Select {}, "tx.select-ok");
    }

    /// Commits the transaction.
    pub fn tx_commit(&self) {
        self.call_for(tx::Commit {}, "tx.commit-ok");
    }

    /// Rolls the transaction back.
    pub fn tx_rollback(&self) {
        self.call_for(tx::Rollback {}, "tx.rollback-ok");
    }

    // Consuming.

    /// Starts a consumer that acknowledges.
    pub fn consume(&self, queue: &str, consumer_tag: &str) {
        self.consume_method(basic::Consume { queue, consumer_tag, ..Default::default() });
    }

    /// Starts a consumer that does not acknowledge.
    pub fn consume_no_ack(&self, queue: &str, consumer_tag: &str) {
        let no_ack = true;
        self.consume_method(basic::Consume { queue, consumer_tag, no_ack, ..Default::default() });
    }

    /// Starts a consumer that acknowledges, with arguments.
    pub fn consume_with(&self, queue: &str, consumer_tag: &str, arguments: Table) {
        let arguments = arguments.to_bytes();
        let arguments = arguments.as_ref();
        self.consume_method(basic::Consume {
            queue,
            consumer_tag,
            arguments,
            ..Default::default()
        });
    }

    /// Starts a consumer; its tag.
    pub fn consume_method(&self, method: basic::Consume<'_>) -> String {
        let answer = self.call_for(method, "basic.consume-ok");
        let Method::BasicConsumeOk(ok) = answer.method() else { unreachable!() };
        ok.consumer_tag.to_owned()
    }

    /// Ends a consumer.
    pub fn cancel(&self, consumer_tag: &str) {
        self.call_for(basic::Cancel { consumer_tag, no_wait: false }, "basic.cancel-ok");
    }

    /// Limits the unacknowledged deliveries of each consumer that comes.
    pub fn qos(&self, prefetch_count: u16) {
        let method = basic::Qos { prefetch_size: 0, prefetch_count, global: false };
        self.call_for(method, "basic.qos-ok");
    }

    /// Limits the unacknowledged deliveries of the whole channel.
    pub fn qos_global(&self, prefetch_count: u16) {
        let method = basic::Qos { prefetch_size: 0, prefetch_count, global: true };
        self.call_for(method, "basic.qos-ok");
    }

    /// Deliveries since the last call.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Message> {
        self.inbox(|inbox| inbox.deliveries.drain(..).collect())
    }

    /// The bodies of the deliveries since the last call, as text.
    #[must_use]
    pub fn bodies(&self) -> Vec<String> {
        self.deliveries().iter().map(Message::text).collect()
    }

    /// The next delivery.
    ///
    /// # Panics
    /// When there is none.
    pub fn delivery(&self) -> Message {
        let next = self.inbox(|inbox| inbox.deliveries.pop_front());
        next.unwrap_or_else(|| self.fail("expected a delivery"))
    }

    /// Expects that no delivery has come.
    ///
    /// # Panics
    /// When one has.
    pub fn expect_none(&self) {
        let bodies = self.bodies();
        if !bodies.is_empty() {
            self.fail(&format!("expected no delivery, found {bodies:?}"));
        }
    }

    /// Consumers that the broker cancelled since the last call.
    #[must_use]
    pub fn cancelled(&self) -> Vec<String> {
        self.inbox(|inbox| inbox.cancelled.drain(..).collect())
    }

    /// Fetches a message, to be acknowledged.
    pub fn get(&self, queue: &str) -> Option<Message> {
        self.get_method(basic::Get { queue, no_ack: false })
    }

    /// Fetches a message for good.
    pub fn get_no_ack(&self, queue: &str) -> Option<Message> {
        self.get_method(basic::Get { queue, no_ack: true })
    }

    fn get_method(&self, method: basic::Get<'_>) -> Option<Message> {
        let answer = self.call(method);
        match answer.name() {
            "basic.get-empty" => None,
            "basic.get-ok" => self.inbox(|inbox| inbox.fetched.pop_front()),
            other => self.fail(&format!("expected an answer to basic.get, found {other}")),
        }
    }

    /// Acknowledges one delivery.
    pub fn ack(&self, delivery_tag: u64) {
        self.send(basic::Ack { delivery_tag, multiple: false });
    }

    /// Acknowledges all deliveries up to one; 0 stands for all there are.
    pub fn ack_up_to(&self, delivery_tag: u64) {
        self.send(basic::Ack { delivery_tag, multiple: true });
    }

    /// Refuses one delivery.
    pub fn reject(&self, delivery_tag: u64, requeue: bool) {
        self.send(basic::Reject { delivery_tag, requeue });
    }

    /// Refuses one delivery, or all up to one.
    pub fn nack(&self, delivery_tag: u64, multiple: bool, requeue: bool) {
        self.send(basic::Nack { delivery_tag, multiple, requeue });
    }

    /// Gives back everything unacknowledged.
    pub fn recover(&self) {
        self.call_for(basic::Recover { requeue: true }, "basic.recover-ok");
    }
}
