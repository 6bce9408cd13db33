//! What waits on a shard for a queue that is on its way.

use alloc::collections::VecDeque;

use lepus_base::{Body, Pool};

use crate::mail::{Mail, Terms};

/// What a item costs beside its message, in bytes.
const PARCEL_BYTES: usize = 64;

/// Something for a queue that is on its way.
#[derive(Debug)]
pub(crate) enum ParkedItem {
    /// A message. It owns one reference to its body.
    Message {
        /// The packed message.
        body: Body,
        /// Size of the payload.
        bytes: u32,
        terms: Terms,
    },
    /// A question, or a word about a consumer.
    Mail(Mail),
}

impl ParkedItem {
    /// Bytes that it takes while it waits.
    pub(crate) fn bytes(&self, pool: &Pool) -> usize {
        PARCEL_BYTES
            + match self {
                ParkedItem::Message { body, .. } => pool.get(*body).len(),
                ParkedItem::Mail(_) => 0,
            }
    }
}

/// What waits for a queue on one shard, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ParkedMail {
    parked_mail: VecDeque<ParkedItem>,
    /// The queue is to come here.
    is_expected: bool,
}

impl ParkedMail {
    /// The same, of a queue that is to come to this shard.
    pub(super) fn expecting(self) -> ParkedMail {
        ParkedMail { is_expected: true, ..self }
    }

    /// One more waits.
    pub(super) fn push(&mut self, item: ParkedItem) {
        self.parked_mail.push_back(item);
    }

    /// What waits, oldest first.
    pub(crate) fn into_items(self) -> VecDeque<ParkedItem> {
        self.parked_mail
    }

    /// Whether the queue is to come to this shard.
    pub(crate) fn is_expected(&self) -> bool {
        self.is_expected
    }
}
