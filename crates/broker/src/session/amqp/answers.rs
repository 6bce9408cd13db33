//! What the broker says, as methods of AMQP 0-9-1.

use lepus_amqp::method::{
    Method, access, basic, channel, confirm, connection, exchange, queue, tx,
};

use super::super::answer::{Answer, Done};

/// The method that says it.
pub(super) fn method<'a>(answer: &Answer<'a>) -> Method<'a> {
    match *answer {
        Answer::Done(done) => method_of(done),
        Answer::QueueDeclared { queue, messages, consumers } => {
            queue::DeclareOk { queue, message_count: clamp(messages), consumer_count: consumers }
                .into()
        }
        Answer::QueuePurged(count) => queue::PurgeOk { message_count: clamp(count) }.into(),
        Answer::QueueDeleted(count) => queue::DeleteOk { message_count: clamp(count) }.into(),
        Answer::Consuming(consumer_tag) => basic::ConsumeOk { consumer_tag }.into(),
        Answer::Cancelled(consumer_tag) => basic::CancelOk { consumer_tag }.into(),
        Answer::ConsumerLost(consumer_tag) => basic::Cancel { consumer_tag, no_wait: true }.into(),
        Answer::Blocked(reason) => connection::Blocked { reason }.into(),
    }
}

fn method_of(done: Done) -> Method<'static> {
    match done {
        Done::ChannelClosed => channel::CloseOk {}.into(),
        Done::ExchangeDeclared => exchange::DeclareOk {}.into(),
        Done::ExchangeDeleted => exchange::DeleteOk {}.into(),
        Done::ExchangeBound => exchange::BindOk {}.into(),
        Done::ExchangeUnbound => exchange::UnbindOk {}.into(),
        Done::QueueBound => queue::BindOk {}.into(),
        Done::QueueUnbound => queue::UnbindOk {}.into(),
        Done::PrefetchSet => basic::QosOk {}.into(),
        Done::GotNothing => basic::GetEmpty {}.into(),
        Done::Recovered => basic::RecoverOk {}.into(),
        Done::ConfirmsSelected => confirm::SelectOk {}.into(),
        Done::TxSelected => tx::SelectOk {}.into(),
        Done::Committed => tx::CommitOk {}.into(),
        Done::RolledBack => tx::RollbackOk {}.into(),
        Done::Flowing => channel::FlowOk { active: true }.into(),
        Done::AccessGranted => access::RequestOk { ticket: 1 }.into(),
        Done::SecretUpdated => connection::UpdateSecretOk {}.into(),
        Done::Unblocked => connection::Unblocked {}.into(),
    }
}

/// A count as the protocol has it: what is more is told as the most.
pub(super) fn clamp(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
