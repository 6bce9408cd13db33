//! From a session's events to what carries them out: channel state, parked frames,
//! transactions, and the decision to hand a connection over.

use alloc::format;

use lepus_base::Now;

use crate::backpressure::Cause;
use crate::channel::confirm::Confirms;
use crate::channel::{At, Tx};
use crate::mail::ChannelRef;
use crate::outbox::Outbox;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Answer, Asked, Closing, Done, Operation};
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// What is asked for on no channel.
    pub(crate) fn connection_operation(
        &mut self,
        now: Now,
        slot: u32,
        operation: &Operation<'_>,
        asked: Asked,
        out: &mut Outbox,
    ) {
        let name = match operation {
            Operation::UpdateSecret => {
                // Users with passwords of our own keep their rights whatever the secret.
                return self.sessions.answer(slot, 0, &Answer::Done(Done::SecretUpdated), out);
            }
            Operation::Unknown { name } => name,
            _ => "this",
        };
        let text = format!("{name} is not for channel 0");
        let refusal = Refusal::new(RefusalKind::CommandInvalid, text);
        self.fail_connection(now, slot, Closing::Refused(&refusal, asked), out);
    }

    pub(crate) fn at(&self, slot: u32, number: u16) -> Option<At> {
        let connection = self.sessions.connections.get(slot as usize)?;
        let channel = connection.channel(number)?;
        Some(At {
            slot,
            vhost: connection.vhost,
            channel: ChannelRef {
                shard: self.shard.id,
                connection: connection.id,
                channel: channel.key,
            },
        })
    }

    pub(crate) fn unknown_channel(
        &mut self,
        now: Now,
        slot: u32,
        number: u16,
        asked: Asked,
        out: &mut Outbox,
    ) {
        if asked == Asked::ChannelClosed {
            // It comes late for a channel that both sides closed.
            return;
        }
        let text = format!("expected 'channel.open' on channel {number}");
        let refusal = Refusal::new(RefusalKind::ChannelError, text);
        self.fail_connection(now, slot, Closing::Refused(&refusal, asked), out);
    }

    pub(crate) fn confirm_select(
        &mut self,
        at: At,
        no_wait: bool,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let connection = &mut self.sessions.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return Ok(()) };
        if channel.tx.is_some() {
            let text = "cannot switch from tx to confirm mode";
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        if channel.confirms.is_none() {
            channel.confirms = Some(alloc::boxed::Box::new(Confirms::default()));
            connection.weigh_channel(at.channel.channel);
        }
        if !no_wait {
            self.say(at, &Answer::Done(Done::ConfirmsSelected), out);
        }
        Ok(())
    }

    pub(crate) fn tx_select(&mut self, at: At, out: &mut Outbox) -> Result<(), Refusal> {
        let connection = &mut self.sessions.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return Ok(()) };
        if channel.confirms.is_some() {
            let text = "cannot switch from confirm to tx mode";
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        channel.tx.get_or_insert_default();
        self.say(at, &Answer::Done(Done::TxSelected), out);
        Ok(())
    }

    pub(crate) fn take_tx(&mut self, at: At) -> Result<Tx, Refusal> {
        let connection = &mut self.sessions.connections[at.slot as usize];
        let taken = connection
            .incarnation(at.channel.channel)
            .and_then(|channel| channel.tx.as_mut())
            .map(|tx| core::mem::take(&mut **tx));
        let bytes = taken.as_ref().map_or(0, |tx| tx.bytes);
        connection.tx_bytes = connection.tx_bytes.saturating_sub(bytes);
        taken.ok_or_else(|| {
            let text = "channel is not transactional";
            Refusal::new(RefusalKind::PreconditionFailed, text)
        })
    }

    pub(crate) fn tx_rollback(
        &mut self,
        now: Now,
        at: At,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let tx = self.take_tx(at)?;
        let held = self.shard.jobs.discard_tx(tx);
        self.put_back(now, at, held, out);
        Ok(())
    }

    /// Reads a connection again that was paused for its parked frames, once there are few.
    pub(crate) fn resume_parked(&mut self, slot: u32, out: &mut Outbox) {
        let limit = self.shard.limits.parked_bytes_max / 2;
        let Some(connection) = self.sessions.connections.get(slot as usize) else { return };
        let is_paused = connection.paused.has(Cause::Parked);
        if is_paused && connection.parked_bytes <= limit {
            self.sessions.resume(&mut self.shard, slot, Cause::Parked, out);
        }
    }
}
