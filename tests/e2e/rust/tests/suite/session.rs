//! A connection to the broker under test, patience with it, and names nobody else uses.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_lite::StreamExt;
use lapin::message::{BasicGetMessage, Delivery};
use lapin::options::*;
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, Error,
    ErrorKind, ExchangeKind,
};

/// After this time something that should have happened counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Address of the broker, from `LEPUS_URI`.
pub fn uri() -> AMQPUri {
    let text =
        std::env::var("LEPUS_URI").unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672/".into());
    let mut uri: AMQPUri = text.parse().expect("LEPUS_URI");
    if uri.vhost.is_empty() {
        // A path of one slash is an empty vhost to this client; to everybody else it is the default one.
        uri.vhost = "/".into();
    }
    uri
}

/// A name that no other test, run or suite uses.
pub fn unique(kind: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos =
        SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos();
    format!("e2e.{kind}.{}.{nanos}.{count}", std::process::id())
}

/// What the future gives; fails once patience is over.
pub async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("still missing after {PATIENCE:?}: {what}"),
    }
}

/// Asks until there is an answer; fails once patience is over.
pub async fn until<T>(what: &str, mut question: impl AsyncFnMut() -> Option<T>) -> T {
    patiently(what, async {
        loop {
            if let Some(answer) = question().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// A table of arguments or headers.
pub fn table<const N: usize>(fields: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        table.insert(name.into(), value);
    }
    table
}

/// A long string as a field.
pub fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// A 32 bit number as a field.
pub fn number(value: i32) -> AMQPValue {
    AMQPValue::LongInt(value)
}

/// The body as text.
pub fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.data.clone()).expect("a body of text")
}

/// Code and text of the protocol error in an error of the client.
pub fn refusal(error: &Error) -> (u16, String) {
    match error.kind() {
        ErrorKind::ProtocolError(error) => (error.get_id(), error.get_message().to_string()),
        other => panic!("not a word of the broker: {other:?}"),
    }
}

/// One connection with one channel in confirm mode.
pub struct Session {
    pub connection: Connection,
    pub channel: Channel,
}

impl Session {
    pub async fn open() -> Session {
        Session::open_to(uri(), ConnectionProperties::default()).await
    }

    pub async fn open_to(uri: AMQPUri, properties: ConnectionProperties) -> Session {
        let connection = patiently("connection", Connection::connect_uri(uri, properties))
            .await
            .expect("connection");
        let channel = connection.create_channel().await.expect("channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
        Session { connection, channel }
    }

    /// One more channel, in no mode.
    pub async fn plain_channel(&self) -> Channel {
        self.connection.create_channel().await.expect("channel")
    }

    /// A fresh exclusive queue.
    pub async fn queue(&self) -> String {
        self.queue_with(FieldTable::default()).await
    }

    /// A fresh exclusive queue with arguments.
    pub async fn queue_with(&self, arguments: FieldTable) -> String {
        let name = unique("queue");
        let options = QueueDeclareOptions::exclusive();
        self.channel.queue_declare(name.as_str().into(), options, arguments).await.expect("queue");
        name
    }

    /// A fresh exchange that goes with its last binding.
    pub async fn exchange(&self, kind: ExchangeKind) -> String {
        self.exchange_with(kind, FieldTable::default()).await
    }

    /// A fresh exchange with arguments, which goes with its last binding.
    pub async fn exchange_with(&self, kind: ExchangeKind, arguments: FieldTable) -> String {
        let name = unique("exchange");
        let options = ExchangeDeclareOptions { auto_delete: true, ..Default::default() };
        self.channel
            .exchange_declare(name.as_str().into(), kind, options, arguments)
            .await
            .expect("exchange");
        name
    }

    /// A fresh exclusive queue bound with this key.
    pub async fn bound(&self, exchange: &str, key: &str) -> String {
        let queue = self.queue().await;
        self.bind(&queue, exchange, key, FieldTable::default()).await;
        queue
    }

    pub async fn bind(&self, queue: &str, exchange: &str, key: &str, arguments: FieldTable) {
        let options = QueueBindOptions::default();
        self.channel
            .queue_bind(queue.into(), exchange.into(), key.into(), options, arguments)
            .await
            .expect("queue.bind");
    }

    pub async fn bind_exchange(&self, destination: &str, source: &str, key: &str) {
        let options = ExchangeBindOptions::default();
        self.channel
            .exchange_bind(
                destination.into(),
                source.into(),
                key.into(),
                options,
                FieldTable::default(),
            )
            .await
            .expect("exchange.bind");
    }

    /// Publishes and waits for the confirm.
    pub async fn publish(
        &self,
        exchange: &str,
        key: &str,
        body: &[u8],
        properties: BasicProperties,
    ) -> Confirmation {
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let sent = self
            .channel
            .basic_publish(exchange.into(), key.into(), options, body, properties)
            .await;
        patiently("confirm", sent.expect("publish")).await.expect("confirm")
    }

    /// Publishes to queues by their names, each with its own body, and waits for the last confirm.
    pub async fn send(&self, queue: &str, bodies: &[&str]) {
        let mut confirms = Vec::new();
        for body in bodies {
            let options = BasicPublishOptions::default();
            let properties = BasicProperties::default();
            let sent = self
                .channel
                .basic_publish("".into(), queue.into(), options, body.as_bytes(), properties)
                .await;
            confirms.push(sent.expect("publish"));
        }
        for confirm in confirms {
            assert!(patiently("confirm", confirm).await.expect("confirm").is_ack());
        }
    }

    /// Publishes a body through an exchange, whether it has somewhere to go or not.
    pub async fn route(&self, exchange: &str, key: &str, body: &str) -> bool {
        let confirmation =
            self.publish(exchange, key, body.as_bytes(), BasicProperties::default()).await;
        assert!(confirmation.is_ack());
        confirmation.take_message().is_none()
    }

    /// The oldest message, if there is one, without owing an answer for it.
    pub async fn take(&self, queue: &str) -> Option<BasicGetMessage> {
        let options = BasicGetOptions { no_ack: true };
        patiently("get", self.channel.basic_get(queue.into(), options)).await.expect("get")
    }

    /// The oldest message, which must be there, not yet settled.
    pub async fn hold(&self, queue: &str) -> BasicGetMessage {
        let got = self.channel.basic_get(queue.into(), BasicGetOptions::default()).await;
        got.expect("get").expect("a message")
    }

    /// The oldest message, as soon as there is one.
    pub async fn arrived(&self, queue: &str) -> Delivery {
        until("a message", async || self.take(queue).await).await.delivery
    }

    /// Takes all that is ready: the bodies in order.
    pub async fn bodies(&self, queue: &str) -> Vec<String> {
        let mut bodies = Vec::new();
        while let Some(message) = self.take(queue).await {
            bodies.push(body(&message));
        }
        bodies
    }

    /// Ready messages and consumers.
    pub async fn counts(&self, queue: &str) -> (u32, u32) {
        let options = QueueDeclareOptions::default().passive();
        let channel = &self.channel;
        let queue = channel
            .queue_declare(queue.into(), options, FieldTable::default())
            .await
            .expect("a queue");
        (queue.message_count(), queue.consumer_count())
    }

    /// A consumer of the queue that owes answers, on the session's channel.
    pub async fn inbox(&self, queue: &str) -> Inbox {
        Inbox::open(&self.channel, queue, BasicConsumeOptions::default(), FieldTable::default())
            .await
    }

    /// Does something that makes the broker close a fresh channel: code and text of the close.
    pub async fn refused<T>(
        &self,
        action: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
    ) -> (u16, String) {
        let channel = self.plain_channel().await;
        let queue = self.queue().await;
        // What has no answer of its own, such as publish, tells its error to the consumers of the channel.
        let mut inbox =
            Inbox::open(&channel, &queue, BasicConsumeOptions::default(), FieldTable::default())
                .await;
        let _ = patiently("an answer", action(&channel)).await;
        refusal(&inbox.error().await)
    }
}

/// A consumer with patience.
pub struct Inbox(pub Consumer);

impl Inbox {
    pub async fn open(
        channel: &Channel,
        queue: &str,
        options: BasicConsumeOptions,
        arguments: FieldTable,
    ) -> Inbox {
        let consumer = channel.basic_consume(queue.into(), "".into(), options, arguments).await;
        Inbox(consumer.expect("consume"))
    }

    /// The next delivery.
    pub async fn next(&mut self) -> Delivery {
        patiently("a delivery", self.0.next()).await.expect("a consumer").expect("a delivery")
    }

    /// The bodies of the next deliveries.
    pub async fn bodies(&mut self, count: usize) -> Vec<String> {
        let mut bodies = Vec::new();
        for _ in 0..count {
            bodies.push(body(&self.next().await));
        }
        bodies
    }

    /// The error that ends the consumer.
    pub async fn error(&mut self) -> Error {
        patiently("an error", self.0.next()).await.expect("a consumer").expect_err("an error")
    }

    /// True if the broker has sent nothing up to now; the channel must be the consumer's.
    pub async fn is_empty_after_round_trip(&mut self, channel: &Channel) -> bool {
        let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
        let kind = ExchangeKind::Direct;
        channel
            .exchange_declare("amq.direct".into(), kind, options, FieldTable::default())
            .await
            .expect("round trip");
        futures_lite::future::poll_once(self.0.next()).await.is_none()
    }
}
