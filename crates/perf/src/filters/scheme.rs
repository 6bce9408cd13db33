//! Where filters stand, how messages come to them, and who must get which message.

use super::workload::{Dialect, Filter, LookAt, Workload, symbol_name};
use crate::script::{ExchangeSpec, QueueSpec, Step, consume};
use crate::template::Message;
use lepus_amqp::method::{basic, exchange, queue};
use lepus_amqp::{Properties, Table};
use std::collections::BTreeSet;

/// What carries the filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Bindings of one exchange, in turn to each of the queues. A queue has one consumer.
    Binding,
    /// Consumers, in turn on each of the queues, which take the messages in turn. Another consumer of each queue, with a lower
    /// priority and without a filter, takes what no filter wants.
    Consumer,
}

impl Place {
    /// Its name in options and figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Binding => "binding",
            Place::Consumer => "consumer",
        }
    }
}

/// What a body consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// A JSON object with the fields of the message.
    Json,
    /// Bytes that say nothing.
    Bytes,
}

/// A load of filters, before anything of it is at a broker.
#[derive(Clone, Debug)]
pub(crate) struct Scheme {
    /// The name of the run, which stands in all names.
    pub id: String,
    pub place: Place,
    pub workload: Workload,
    pub dialect: Dialect,
    pub look_at: LookAt,
    /// The exchange's type.
    pub kind: String,
    pub queues: u32,
    pub durable: bool,
    pub body: Body,
    pub body_bytes: usize,
}

/// The routing key of all bindings and messages where the exchange looks at keys.
const KEY: &str = "filters";

impl Scheme {
    /// How many filters there are.
    pub(crate) fn count(&self) -> u32 {
        self.workload.filters.len() as u32
    }

    /// How many consumers there are, over all queues.
    pub(crate) fn consumers(&self) -> u32 {
        match self.place {
            Place::Binding => self.queues,
            Place::Consumer => self.count() + self.queues,
        }
    }

    /// The queue of a filter: that of its binding or of its consumer.
    fn queue_of(&self, filter: u32) -> u32 {
        filter % self.queues
    }

    /// The name of a queue.
    pub(crate) fn queue(&self, number: u32) -> String {
        format!("{}-{number}", self.exchange())
    }

    /// The name of the exchange.
    fn exchange(&self) -> String {
        format!("lepus-filters-{}", self.id)
    }

    /// Steps that make exchange and queues.
    pub(crate) fn declare(&self, channel: u16) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.place == Place::Binding {
            let exchange = ExchangeSpec {
                name: self.exchange(),
                kind: self.kind.clone(),
                ..ExchangeSpec::default()
            };
            steps.extend(exchange.declare(channel));
        }
        for number in 0..self.queues {
            let queue = QueueSpec {
                name: self.queue(number),
                durable: self.durable,
                ..QueueSpec::default()
            };
            steps.extend(queue.declare(channel));
        }
        steps
    }

    /// Steps that take away what [`Scheme::declare`] makes, and all that hangs on it.
    pub(crate) fn delete(&self, channel: u16) -> Vec<Step> {
        let queue = |number: u32| {
            let name = self.queue(number);
            let delete = queue::Delete { queue: &name, ..Default::default() };
            Step::new(channel, delete, &name)
        };
        let mut steps: Vec<Step> = (0..self.queues).map(queue).collect();
        if self.place == Place::Binding {
            let name = self.exchange();
            let delete = exchange::Delete { exchange: &name, ..Default::default() };
            steps.push(Step::new(channel, delete, &name));
        }
        steps
    }

    /// The key of a filter's binding. Exchanges that do not look at it get one for each, since there are brokers to which two
    /// bindings with one key between exchange and queue are the same.
    fn key(&self, filter: u32) -> String {
        match self.kind.as_str() {
            "direct" | "topic" => KEY.to_owned(),
            _ => filter.to_string(),
        }
    }

    /// Binds with a filter.
    pub(crate) fn bind(&self, channel: u16, filter: u32) -> Step {
        let (name, key) = (self.queue(self.queue_of(filter)), self.key(filter));
        let arguments = self.filter(filter).arguments(self.dialect, self.look_at).to_bytes();
        let bind = queue::Bind {
            queue: &name,
            exchange: &self.exchange(),
            routing_key: &key,
            arguments: arguments.as_ref(),
            ..Default::default()
        };
        Step::new(channel, bind, &name)
    }

    /// Takes that binding away.
    pub(crate) fn unbind(&self, channel: u16, filter: u32) -> Step {
        let (name, key) = (self.queue(self.queue_of(filter)), self.key(filter));
        let arguments = self.filter(filter).arguments(self.dialect, self.look_at).to_bytes();
        let unbind = queue::Unbind {
            queue: &name,
            exchange: &self.exchange(),
            routing_key: &key,
            arguments: arguments.as_ref(),
        };
        Step::new(channel, unbind, &name)
    }

    /// Starts a consumer, whose tag is its number. With filters on consumers the first ones are those of the filters.
    pub(crate) fn consume(&self, channel: u16, consumer: u32) -> Step {
        let (queue, arguments) = match self.place {
            Place::Binding => (consumer, Table::new()),
            Place::Consumer if consumer < self.count() => {
                let filter = self.filter(consumer);
                (self.queue_of(consumer), filter.arguments(self.dialect, self.look_at))
            }
            Place::Consumer => (consumer - self.count(), Table::new().with("x-priority", -1i32)),
        };
        consume(channel, &self.queue(queue), &consumer.to_string(), true, &arguments)
    }

    /// Ends that consumer.
    pub(crate) fn cancel(&self, channel: u16, consumer: u32) -> Step {
        let tag = consumer.to_string();
        let cancel = basic::Cancel { consumer_tag: &tag, no_wait: false };
        Step::new(channel, cancel, &tag)
    }

    fn filter(&self, number: u32) -> &Filter {
        &self.workload.filters[number as usize]
    }

    /// A message under its number, as it is published while speed is measured: the time stands in a header.
    pub(crate) fn message(&self, number: u32) -> Message {
        let headers = self.headers(number).with("timestamp", 0i64);
        self.publish(number, Properties { headers: Some(headers), ..Properties::default() })
    }

    /// The same message as it is published for the check: the number is its id.
    pub(crate) fn numbered(&self, number: u32) -> Message {
        let headers = Some(self.headers(number)).filter(|headers| !headers.is_empty());
        let message_id = Some(number.to_string());
        self.publish(number, Properties { headers, message_id, ..Properties::default() })
    }

    /// What comes behind all messages of a queue.
    pub(crate) fn end(&self, queue: u32) -> Message {
        let properties = Properties { message_id: Some(END.to_owned()), ..Properties::default() };
        Message {
            exchange: String::new(),
            routing_key: self.queue(queue),
            mandatory: false,
            immediate: false,
            properties: properties.to_bytes(),
            body: Vec::new(),
            layout: None,
        }
    }

    fn headers(&self, number: u32) -> Table {
        match self.look_at {
            LookAt::Headers => self.workload.trades[number as usize].headers(),
            LookAt::Body => Table::new(),
        }
    }

    fn publish(&self, number: u32, properties: Properties) -> Message {
        let (kind, body) = match self.body {
            Body::Json => {
                let trade = &self.workload.trades[number as usize];
                ("application/json", trade.json(number, self.body_bytes).unwrap_or_default())
            }
            Body::Bytes => ("application/octet-stream", crate::body::filler(self.body_bytes)),
        };
        let properties = Properties { content_type: Some(kind.to_owned()), ..properties };
        let (exchange, routing_key) = match self.place {
            Place::Binding => (self.exchange(), KEY.to_owned()),
            Place::Consumer => (String::new(), self.queue(number % self.queues)),
        };
        Message {
            exchange,
            routing_key,
            mandatory: false,
            immediate: false,
            properties: properties.to_bytes(),
            body,
            layout: None,
        }
    }

    /// How many deliveries a message leads to.
    pub(crate) fn deliveries(&self, message: u32) -> u64 {
        match self.place {
            Place::Binding => self.queues_for(message).len() as u64,
            Place::Consumer => 1,
        }
    }

    /// Queues that have a filter which matches the message.
    pub(crate) fn queues_for(&self, message: u32) -> BTreeSet<u32> {
        let matching = &self.workload.matching[message as usize];
        matching.iter().map(|filter| self.queue_of(*filter)).collect()
    }

    /// Whether a consumer may get the message.
    pub(crate) fn may_get(&self, consumer: u32, message: u32) -> bool {
        match self.place {
            Place::Binding => self.queues_for(message).contains(&consumer),
            Place::Consumer => {
                let queue = message % self.queues;
                if consumer < self.count() {
                    let matching = &self.workload.matching[message as usize];
                    return self.queue_of(consumer) == queue
                        && matching.binary_search(&consumer).is_ok();
                }
                consumer - self.count() == queue && !self.queues_for(message).contains(&queue)
            }
        }
    }

    /// A message in words.
    pub(crate) fn describe(&self, message: u32) -> String {
        let trade = &self.workload.trades[message as usize];
        let (name, price) = (symbol_name(trade.symbol), trade.price_text());
        format!("message {message} (sym {name}, price {price}, qty {})", trade.quantity)
    }

    /// In words that a consumer got a message which was not for it.
    pub(crate) fn describe_unexpected(&self, consumer: u32, message: u32) -> String {
        let what = self.describe(message);
        match self.place {
            Place::Binding => {
                format!("queue {consumer} got {what}, which none of its filters matches")
            }
            Place::Consumer if consumer < self.count() => {
                let filter = self.filter(consumer).text(self.look_at);
                format!("the consumer with `{filter}` got {what}")
            }
            Place::Consumer => format!(
                "the consumer without a filter of queue {} got {what}, which another of its consumers asks for",
                consumer - self.count()
            ),
        }
    }

    /// In words that a queue did not get a message, or that with filters on consumers nobody did.
    pub(crate) fn describe_missing(&self, queue: u32, message: u32) -> String {
        let what = self.describe(message);
        let matching = &self.workload.matching[message as usize];
        let filter = matching.iter().find(|filter| self.queue_of(**filter) == queue);
        match (self.place, filter) {
            (Place::Binding, Some(filter)) => {
                let filter = self.filter(*filter).text(self.look_at);
                format!("queue {queue} did not get {what}, which `{filter}` matches")
            }
            _ => format!("nobody got {what}"),
        }
    }
}

/// The id of the message that comes last.
pub(crate) const END: &str = "end";
