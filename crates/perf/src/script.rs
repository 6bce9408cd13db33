//! What a connection does before it carries load: methods that are sent one after the other, each when the one before it
//! was answered.

use lepus_amqp::method::{basic, channel, confirm, exchange, queue, tx};
use lepus_amqp::{Method, Table};

/// One method and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub channel: u16,
    /// The encoded method frame.
    pub frame: Vec<u8>,
    /// Class and method of the answer.
    pub answer: (u16, u16),
    /// For complaints: the method, and what it is about.
    pub about: String,
    /// What to do instead where the broker closes the channel with 404; the channel is closed then.
    pub if_missing: Vec<Step>,
}

impl Step {
    /// Sends `method`, whose answer has the next number of the same class, as all methods used here have.
    pub(crate) fn new<'a>(channel: u16, method: impl Into<Method<'a>>, object: &str) -> Step {
        let method = method.into();
        let mut frame = Vec::new();
        method.encode_frame(channel, &mut frame);
        let (class_id, method_id) = method.ids();
        Step {
            channel,
            frame,
            answer: (class_id, method_id + 1),
            about: if object.is_empty() {
                method.name().to_owned()
            } else {
                format!("{} '{object}'", method.name())
            },
            if_missing: Vec::new(),
        }
    }

    /// Opens the channel.
    pub(crate) fn open(channel: u16) -> Step {
        Step::new(channel, channel::Open {}, "")
    }
}

/// An exchange as a run makes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExchangeSpec {
    /// Empty: the default exchange, which is there.
    pub name: String,
    pub kind: String,
    /// Goes with its last binding.
    pub auto_delete: bool,
    /// Only made where it is missing.
    pub predeclared: bool,
}

impl ExchangeSpec {
    /// The steps that make the exchange; the broker's own ones are only looked for.
    pub(crate) fn declare(&self, channel: u16) -> Vec<Step> {
        if self.name.is_empty() {
            return Vec::new();
        }
        let declare = |passive| {
            let method = exchange::Declare {
                exchange: &self.name,
                r#type: &self.kind,
                // As the reference tester makes it, so that both can run one after the other.
                durable: true,
                auto_delete: self.auto_delete,
                passive,
                ..Default::default()
            };
            Step::new(channel, method, &self.name)
        };
        if !self.predeclared && !self.name.starts_with("amq.") {
            return vec![declare(false)];
        }
        let mut step = declare(true);
        if self.predeclared {
            step.if_missing = vec![Step::open(channel), declare(false)];
        }
        vec![step]
    }
}

/// A queue as a run makes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueSpec {
    /// Empty: the broker makes a name up, and the steps that follow on the channel mean this queue by an empty name.
    pub name: String,
    pub durable: bool,
    pub exclusive: bool,
    pub auto_delete: bool,
    pub arguments: Table,
    /// Only made where it is missing.
    pub predeclared: bool,
}

impl QueueSpec {
    /// The steps that make the queue.
    pub(crate) fn declare(&self, channel: u16) -> Vec<Step> {
        let arguments = self.arguments.to_bytes();
        let declare = |passive| {
            let method = queue::Declare {
                queue: &self.name,
                passive,
                durable: self.durable,
                exclusive: self.exclusive,
                auto_delete: self.auto_delete,
                no_wait: false,
                arguments: arguments.as_ref(),
            };
            Step::new(channel, method, &self.name)
        };
        if !self.predeclared || self.name.is_empty() {
            return vec![declare(false)];
        }
        let mut step = declare(true);
        step.if_missing = vec![Step::open(channel), declare(false)];
        vec![step]
    }
}

/// Binds a queue; the default exchange needs and allows none.
pub(crate) fn bind(channel: u16, queue: &str, exchange: &str, routing_key: &str) -> Vec<Step> {
    if exchange.is_empty() {
        return Vec::new();
    }
    let method = queue::Bind { queue, exchange, routing_key, ..Default::default() };
    vec![Step::new(channel, method, queue)]
}

/// Starts a consumer.
pub(crate) fn consume(
    channel: u16,
    queue: &str,
    tag: &str,
    no_ack: bool,
    arguments: &Table,
) -> Step {
    let arguments = arguments.to_bytes();
    let method = basic::Consume {
        queue,
        consumer_tag: tag,
        no_ack,
        arguments: arguments.as_ref(),
        ..Default::default()
    };
    Step::new(channel, method, queue)
}

/// Limits the unacknowledged messages of each consumer (or, `global`, of the channel).
pub(crate) fn qos(channel: u16, prefetch_count: u16, global: bool) -> Step {
    let method = basic::Qos { prefetch_size: 0, prefetch_count, global };
    Step::new(channel, method, "")
}

/// Switches publisher confirms on.
pub(crate) fn select_confirms(channel: u16) -> Step {
    Step::new(channel, confirm::Select { no_wait: false }, "")
}

/// Makes the channel transactional.
pub(crate) fn select_transactions(channel: u16) -> Step {
    Step::new(channel, tx::Select {}, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_the_next_method_of_the_class() {
        let answers = [
            (Step::open(1).answer, (20, 11)),
            (qos(1, 5, false).answer, (60, 11)),
            (consume(1, "q", "0", true, &Table::new()).answer, (60, 21)),
            (select_confirms(1).answer, (85, 11)),
            (select_transactions(1).answer, (90, 11)),
            (bind(1, "q", "e", "k")[0].answer, (50, 21)),
            (QueueSpec::default().declare(1)[0].answer, (50, 11)),
        ];
        for (answer, expected) in answers {
            assert_eq!(answer, expected);
        }
    }

    fn declared(step: &Step) -> (bool, bool) {
        let (frame, _) = lepus_amqp::frame::decode(&step.frame, 4_096).unwrap().unwrap();
        match Method::decode(frame.payload).unwrap() {
            Method::ExchangeDeclare(declare) => (declare.passive, declare.durable),
            Method::QueueDeclare(declare) => (declare.passive, declare.durable),
            other => panic!("{}", other.name()),
        }
    }

    #[test]
    fn predeclared_objects_are_looked_for_first() {
        let spec = ExchangeSpec {
            name: "logs".into(),
            kind: "fanout".into(),
            predeclared: true,
            ..ExchangeSpec::default()
        };
        let steps = spec.declare(1);
        assert_eq!(declared(&steps[0]), (true, true));
        assert_eq!(declared(&steps[0].if_missing[1]), (false, true));
        let spec = QueueSpec {
            name: "q".into(),
            durable: true,
            predeclared: true,
            ..QueueSpec::default()
        };
        assert_eq!(declared(&spec.declare(1)[0]), (true, true));
        assert_eq!(declared(&spec.declare(1)[0].if_missing[1]), (false, true));
    }

    #[test]
    fn the_broker_s_own_exchanges_are_never_made() {
        assert!(ExchangeSpec::default().declare(1).is_empty());
        let spec = ExchangeSpec {
            name: "amq.topic".into(),
            kind: "topic".into(),
            ..ExchangeSpec::default()
        };
        let steps = spec.declare(1);
        assert!(declared(&steps[0]).0);
        assert!(steps[0].if_missing.is_empty());
        assert!(bind(1, "q", "", "k").is_empty());
    }
}
