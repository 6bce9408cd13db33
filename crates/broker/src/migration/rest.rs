//! What waits on a shard for a queue that is on its way.

use alloc::collections::VecDeque;

use lepus_base::{Body, Pool};

use crate::mail::{Mail, Terms};

/// What a parcel costs beside its message, in bytes.
const PARCEL_BYTES: usize = 64;

/// Something for a queue that is on its way.
#[derive(Debug)]
pub(crate) enum Parcel {
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

impl Parcel {
    /// Bytes that it takes while it waits.
    pub(crate) fn bytes(&self, pool: &Pool) -> usize {
        PARCEL_BYTES
            + match self {
                Parcel::Message { body, .. } => pool.get(*body).len(),
                Parcel::Mail(_) => 0,
            }
    }
}

/// What waits for a queue on one shard, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    parcels: VecDeque<Parcel>,
    /// The queue is to come here.
    is_expected: bool,
}

impl Rest {
    /// The same, of a queue that is to come to this shard.
    pub(super) fn expecting(self) -> Rest {
        Rest { is_expected: true, ..self }
    }

    /// One more waits.
    pub(super) fn push(&mut self, parcel: Parcel) {
        self.parcels.push_back(parcel);
    }

    /// What waits, oldest first.
    pub(crate) fn into_parcels(self) -> VecDeque<Parcel> {
        self.parcels
    }

    /// Whether the queue is to come to this shard.
    pub(crate) fn is_expected(&self) -> bool {
        self.is_expected
    }
}
