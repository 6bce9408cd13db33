//! What calls leave to be done for connections before the turn ends: frames to be handled that waited, consumers
//! that have room again, confirms to be sent.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::ConnectionId;

use crate::owner::{Conditions, Owner};

/// What is left to be done for connections.
#[derive(Debug, Default)]
pub struct FollowUps {
    /// Channels whose parked frames can be handled now; each is marked there.
    unparking: VecDeque<(u32, ConnectionId, u64)>,
    /// Slots of connections whose consumers may go on.
    resumable: Vec<u32>,
    /// Channels with confirms to send at the end of the turn; each is marked there.
    confirming: Vec<(u32, u64)>,
}

impl FollowUps {
    /// A channel has parked frames that can be handled, and is not here.
    pub(crate) fn unpark(&mut self, slot: u32, connection: ConnectionId, channel: u64) {
        self.unparking.push_back((slot, connection, channel));
    }

    /// How many have.
    pub(crate) fn channels_to_unpark(&self) -> usize {
        self.unparking.len()
    }

    /// The next of them. Its mark is to be taken away.
    pub(crate) fn next_to_unpark(&mut self) -> Option<(u32, ConnectionId, u64)> {
        self.unparking.pop_front()
    }

    /// Consumers of a connection have room again.
    pub(crate) fn resume(&mut self, slot: u32) {
        self.resumable.push(slot);
    }

    /// The connections whose consumers have.
    pub(crate) fn take_resumable(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.resumable)
    }

    /// A channel has confirms to send, and is not here.
    pub(crate) fn confirm(&mut self, slot: u32, channel: u64) {
        self.confirming.push((slot, channel));
    }

    /// Whether some have.
    pub(crate) fn has_confirms(&self) -> bool {
        !self.confirming.is_empty()
    }

    /// Those that have.
    pub(crate) fn take_confirming(&mut self) -> Vec<(u32, u64)> {
        core::mem::take(&mut self.confirming)
    }

    /// The empty list that [`FollowUps::take_confirming`] gave, to be filled again.
    pub(crate) fn give_back(&mut self, list: Vec<(u32, u64)>) {
        assert!(list.is_empty(), "who is on the list is confirmed before it comes back");
        if self.confirming.is_empty() {
            self.confirming = list;
        }
    }

    /// Whether nothing is left but confirms.
    pub(crate) fn is_quiet(&self) -> bool {
        self.unparking.is_empty() && self.resumable.is_empty()
    }
}

impl Owner for FollowUps {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        !self.is_quiet() || self.has_confirms()
    }
}
