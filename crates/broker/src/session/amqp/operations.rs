//! Methods of AMQP 0-9-1, by what they ask for.

use lepus_amqp::method::{Method, basic, channel, confirm, exchange, queue};

use super::super::{
    Asked, BindExchange, BindQueue, Consume, DeclareExchange, DeclareQueue, Operation,
};
use crate::queue::Outcome;

/// What a method asks for, and how it is called.
#[inline]
pub(super) fn operation(method: Method<'_>) -> (Operation<'_>, Asked) {
    // The one that comes once for every message.
    if let Method::BasicAck(basic::Ack { delivery_tag, multiple }) = method {
        let outcome = Outcome::Ack;
        return (
            Operation::Settle { number: delivery_tag, several: multiple, outcome },
            Asked::Ack,
        );
    }
    (other_operation(method), asked(method.ids()))
}

fn other_operation(method: Method<'_>) -> Operation<'_> {
    match method {
        Method::ChannelOpen(_) => Operation::OpenChannel,
        Method::ChannelClose(_) => Operation::CloseChannel,
        Method::ChannelCloseOk(_) => Operation::ChannelClosed,
        Method::ChannelFlow(channel::Flow { active }) => Operation::Flow { is_active: active },
        Method::AccessRequest(_) => Operation::RequestAccess,
        Method::ConnectionUpdateSecret(_) => Operation::UpdateSecret,
        Method::ExchangeDeclare(method) => Operation::DeclareExchange(declare_exchange(method)),
        Method::ExchangeDelete(exchange::Delete { exchange, if_unused, no_wait }) => {
            Operation::DeleteExchange { exchange, if_unused, no_wait }
        }
        Method::ExchangeBind(method) => Operation::BindExchange(BindExchange {
            source: method.source,
            destination: method.destination,
            routing_key: method.routing_key,
            arguments: method.arguments,
            no_wait: method.no_wait,
        }),
        Method::ExchangeUnbind(method) => Operation::UnbindExchange(BindExchange {
            source: method.source,
            destination: method.destination,
            routing_key: method.routing_key,
            arguments: method.arguments,
            no_wait: method.no_wait,
        }),
        Method::QueueDeclare(method) => Operation::DeclareQueue(declare_queue(method)),
        Method::QueueBind(method) => Operation::BindQueue(BindQueue {
            queue: method.queue,
            exchange: method.exchange,
            routing_key: method.routing_key,
            arguments: method.arguments,
            no_wait: method.no_wait,
        }),
        Method::QueueUnbind(method) => Operation::UnbindQueue(BindQueue {
            queue: method.queue,
            exchange: method.exchange,
            routing_key: method.routing_key,
            arguments: method.arguments,
            no_wait: false,
        }),
        Method::QueuePurge(queue::Purge { queue, no_wait }) => {
            Operation::PurgeQueue { queue, no_wait }
        }
        Method::QueueDelete(queue::Delete { queue, if_unused, if_empty, no_wait }) => {
            Operation::DeleteQueue { queue, if_unused, if_empty, no_wait }
        }
        Method::BasicQos(basic::Qos { prefetch_size, prefetch_count, global }) => {
            Operation::Prefetch {
                bytes: prefetch_size,
                messages: prefetch_count.into(),
                is_shared: global,
            }
        }
        Method::BasicConsume(method) => Operation::Consume(Consume {
            queue: method.queue,
            tag: method.consumer_tag,
            no_ack: method.no_ack,
            exclusive: method.exclusive,
            arguments: method.arguments,
            no_wait: method.no_wait,
        }),
        Method::BasicCancel(basic::Cancel { consumer_tag, no_wait }) => {
            Operation::Cancel { tag: consumer_tag, no_wait }
        }
        // The answer to a cancellation by the broker.
        Method::BasicCancelOk(_) => Operation::Nothing,
        Method::BasicGet(basic::Get { queue, no_ack }) => Operation::Get { queue, no_ack },
        Method::BasicNack(basic::Nack { delivery_tag, multiple, requeue }) => {
            Operation::Settle { number: delivery_tag, several: multiple, outcome: outcome(requeue) }
        }
        Method::BasicReject(basic::Reject { delivery_tag, requeue }) => {
            Operation::Settle { number: delivery_tag, several: false, outcome: outcome(requeue) }
        }
        Method::BasicRecover(basic::Recover { requeue }) => {
            Operation::Recover { requeue, answers: true }
        }
        Method::BasicRecoverAsync(basic::RecoverAsync { requeue }) => {
            Operation::Recover { requeue, answers: false }
        }
        Method::ConfirmSelect(confirm::Select { no_wait }) => Operation::SelectConfirms { no_wait },
        Method::TxSelect(_) => Operation::SelectTx,
        Method::TxCommit(_) => Operation::Commit,
        Method::TxRollback(_) => Operation::Rollback,
        other => Operation::Unknown { name: other.name() },
    }
}

fn declare_exchange(method: exchange::Declare<'_>) -> DeclareExchange<'_> {
    DeclareExchange {
        exchange: method.exchange,
        kind: method.r#type,
        passive: method.passive,
        durable: method.durable,
        auto_delete: method.auto_delete,
        internal: method.internal,
        arguments: method.arguments,
        no_wait: method.no_wait,
    }
}

fn declare_queue(method: queue::Declare<'_>) -> DeclareQueue<'_> {
    DeclareQueue {
        queue: method.queue,
        passive: method.passive,
        durable: method.durable,
        exclusive: method.exclusive,
        auto_delete: method.auto_delete,
        arguments: method.arguments,
        no_wait: method.no_wait,
    }
}

fn outcome(requeue: bool) -> Outcome {
    if requeue { Outcome::Requeue } else { Outcome::Reject }
}

/// What a method of this class and number asks for.
pub(super) fn asked(ids: (u16, u16)) -> Asked {
    match ids {
        (0, 0) => Asked::Nothing,
        (20, 10) => Asked::OpenChannel,
        (20, 20) => Asked::Flow,
        (20, 40) => Asked::CloseChannel,
        (20, 41) => Asked::ChannelClosed,
        (30, 10) => Asked::RequestAccess,
        (40, 10) => Asked::DeclareExchange,
        (40, 20) => Asked::DeleteExchange,
        (40, 30) => Asked::BindExchange,
        (40, 40) => Asked::UnbindExchange,
        (50, 10) => Asked::DeclareQueue,
        (50, 20) => Asked::BindQueue,
        (50, 30) => Asked::PurgeQueue,
        (50, 40) => Asked::DeleteQueue,
        (50, 50) => Asked::UnbindQueue,
        (60, 10) => Asked::Prefetch,
        (60, 20) => Asked::Consume,
        (60, 30) => Asked::Cancel,
        (60, 40) => Asked::Publish,
        (60, 70) => Asked::Get,
        (60, 80) => Asked::Ack,
        (60, 90) => Asked::Reject,
        (60, 100) => Asked::RecoverAsync,
        (60, 110) => Asked::Recover,
        (60, 120) => Asked::Nack,
        (85, 10) => Asked::SelectConfirms,
        (90, 10) => Asked::SelectTx,
        (90, 20) => Asked::Commit,
        (90, 30) => Asked::Rollback,
        (class_id, method_id) => Asked::Other(u32::from(class_id) << 16 | u32::from(method_id)),
    }
}

/// Class and number of the method that asks for this.
pub(super) fn ids(asked: Asked) -> (u16, u16) {
    match asked {
        Asked::Nothing => (0, 0),
        Asked::OpenChannel => (20, 10),
        Asked::Flow => (20, 20),
        Asked::CloseChannel => (20, 40),
        Asked::ChannelClosed => (20, 41),
        Asked::RequestAccess => (30, 10),
        Asked::DeclareExchange => (40, 10),
        Asked::DeleteExchange => (40, 20),
        Asked::BindExchange => (40, 30),
        Asked::UnbindExchange => (40, 40),
        Asked::DeclareQueue => (50, 10),
        Asked::BindQueue => (50, 20),
        Asked::PurgeQueue => (50, 30),
        Asked::DeleteQueue => (50, 40),
        Asked::UnbindQueue => (50, 50),
        Asked::Prefetch => (60, 10),
        Asked::Consume => (60, 20),
        Asked::Cancel => (60, 30),
        Asked::Publish => (60, 40),
        Asked::Get => (60, 70),
        Asked::Ack => (60, 80),
        Asked::Reject => (60, 90),
        Asked::RecoverAsync => (60, 100),
        Asked::Recover => (60, 110),
        Asked::Nack => (60, 120),
        Asked::SelectConfirms => (85, 10),
        Asked::SelectTx => (90, 10),
        Asked::Commit => (90, 20),
        Asked::Rollback => (90, 30),
        Asked::Other(number) => ((number >> 16) as u16, number as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_both_ways() {
        for class_id in 0..100 {
            for method_id in 0..150 {
                assert_eq!(ids(asked((class_id, method_id))), (class_id, method_id));
            }
        }
        assert_eq!(asked((60, 40)), Asked::Publish);
        assert_eq!(asked((10, 70)), Asked::Other(10 << 16 | 70));
    }
}
