//! What a client has received on one channel, in forms that own their bytes.

use std::collections::VecDeque;

use lepus_amqp::Method;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::basic;
use lepus_amqp::properties::Properties;

/// A received method.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer(Vec<u8>);

impl Answer {
    pub(crate) fn new(method: &Method<'_>) -> Answer {
        let mut frame = Vec::new();
        method.encode_frame(0, &mut frame);
        frame.truncate(frame.len() - 1);
        frame.drain(..7);
        Answer(frame)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method<'_> {
        Method::decode(&self.0).expect("it was encoded from a method")
    }

    /// Its name, `queue.declare-ok`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.method().name()
    }
}

impl core::fmt::Debug for Answer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.method().fmt(f)
    }
}

/// A message that a client received, delivered or fetched.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The delivery tag.
    pub tag: u64,
    /// The consumer's tag; empty for a fetched message.
    pub consumer: String,
    /// Whether it was delivered before.
    pub redelivered: bool,
    /// The exchange it was published to.
    pub exchange: String,
    /// Its routing key.
    pub key: String,
    /// Ready messages left in the queue, for a fetched message.
    pub remaining: Option<u32>,
    /// Its properties.
    pub properties: Properties,
    /// Its body.
    pub body: Vec<u8>,
}

impl Message {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header of the message as text, if it is there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&lepus_amqp::Value> {
        self.properties.headers.as_ref()?.get(name)
    }
}

/// A message that came back because it could not be routed.
#[derive(Clone, Debug, PartialEq)]
pub struct Returned {
    /// Why.
    pub code: ReplyCode,
    /// Why, in words.
    pub text: String,
    /// The exchange it was published to.
    pub exchange: String,
    /// Its routing key.
    pub key: String,
    /// Its properties.
    pub properties: Properties,
    /// Its body.
    pub body: Vec<u8>,
}

/// A publisher confirm as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirm {
    /// `basic.ack`.
    Ack {
        /// Publish number.
        tag: u64,
        /// All up to it as well.
        multiple: bool,
    },
    /// `basic.nack`.
    Nack {
        /// Publish number.
        tag: u64,
        /// All up to it as well.
        multiple: bool,
    },
}

/// A refusal: the broker closed the channel or the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reply code.
    pub code: ReplyCode,
    /// The reply text.
    pub text: String,
    /// Class and method that caused it; zeros when the connection was closed.
    pub method: (u16, u16),
    /// Whether the whole connection was closed.
    pub hard: bool,
}

/// Everything that came in on one channel and was not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) answers: VecDeque<Answer>,
    pub(crate) deliveries: VecDeque<Message>,
    pub(crate) fetched: VecDeque<Message>,
    pub(crate) returns: VecDeque<Returned>,
    pub(crate) confirms: VecDeque<Confirm>,
    pub(crate) cancelled: VecDeque<String>,
    pub(crate) closed: Option<Refused>,
    /// Names of everything that came, in order: deliveries, returns and confirms among it.
    pub(crate) order: Vec<&'static str>,
    /// Publish numbers that were reported up to now, for `multiple`.
    pub(crate) reported: u64,
}

impl Inbox {
    /// Files a method without content. Returns whether it closes the channel.
    pub(crate) fn file(&mut self, method: &Method<'_>) -> bool {
        self.order.push(method.name());
        match *method {
            Method::BasicAck(basic::Ack { delivery_tag, multiple }) => {
                self.confirms.push_back(Confirm::Ack { tag: delivery_tag, multiple });
            }
            Method::BasicNack(basic::Nack { delivery_tag, multiple, .. }) => {
                self.confirms.push_back(Confirm::Nack { tag: delivery_tag, multiple });
            }
            Method::BasicCancel(cancel) => {
                self.cancelled.push_back(cancel.consumer_tag.to_owned());
            }
            Method::ChannelClose(close) => {
                self.closed = Some(Refused {
                    code: ReplyCode(close.reply_code),
                    text: close.reply_text.to_owned(),
                    method: (close.class_id, close.method_id),
                    hard: false,
                });
                return true;
            }
            _ => self.answers.push_back(Answer::new(method)),
        }
        false
    }

    /// Files a method with content.
    pub(crate) fn file_content(&mut self, method: &Method<'_>, properties: &[u8], body: &[u8]) {
        self.order.push(method.name());
        let properties = Properties::decode(properties).expect("properties were validated");
        let body = body.to_vec();
        match *method {
            Method::BasicDeliver(deliver) => self.deliveries.push_back(Message {
                tag: deliver.delivery_tag,
                consumer: deliver.consumer_tag.to_owned(),
                redelivered: deliver.redelivered,
                exchange: deliver.exchange.to_owned(),
                key: deliver.routing_key.to_owned(),
                remaining: None,
                properties,
                body,
            }),
            Method::BasicGetOk(got) => {
                self.answers.push_back(Answer::new(method));
                self.fetched.push_back(Message {
                    tag: got.delivery_tag,
                    consumer: String::new(),
                    redelivered: got.redelivered,
                    exchange: got.exchange.to_owned(),
                    key: got.routing_key.to_owned(),
                    remaining: Some(got.message_count),
                    properties,
                    body,
                });
            }
            Method::BasicReturn(returned) => self.returns.push_back(Returned {
                code: ReplyCode(returned.reply_code),
                text: returned.reply_text.to_owned(),
                exchange: returned.exchange.to_owned(),
                key: returned.routing_key.to_owned(),
                properties,
                body,
            }),
            _ => {}
        }
    }
}
