//! The broker as the runtime's core.

use std::sync::Arc;

use lepus_base::{ConnectionId, Instant, Now, ShardId, Slices};
use lepus_broker::mail::MailBatch;
use lepus_broker::outbox::Event;
use lepus_broker::{
    Answer, Broker, ConnectionSlot, MovingConnection, Outbox, Query, connection, directory,
};
use lepus_store::disk::{Completion, LogId};

use crate::core::{Core, Effects, PeerInfo, Slot};

impl Slot for ConnectionSlot {
    fn index(self) -> usize {
        ConnectionSlot::index(self)
    }
}

impl From<PeerInfo> for connection::PeerInfo {
    fn from(peer: PeerInfo) -> connection::PeerInfo {
        connection::PeerInfo {
            address: peer.address.to_string(),
            local_address: peer.local_address.to_string(),
            loopback: peer.is_loopback(),
            tls: peer.tls.map(|tls| connection::TlsPeer { protocol: tls.protocol }),
            login_name: peer.login_name,
        }
    }
}

impl Core for Broker {
    type Slot = ConnectionSlot;
    type Outbox = Outbox;
    type Mail = MailBatch;
    type Change = directory::Change;
    type Traveller = MovingConnection;
    type Event = Event;
    type Query = Query;
    type Answer = Answer;

    fn outbox(shards: u16) -> Outbox {
        Outbox::new(shards)
    }

    fn effects(out: &mut Outbox) -> Effects<'_, Broker> {
        Effects {
            dirty: &mut out.dirty,
            close: &mut out.close,
            pause: &mut out.pause,
            resume: &mut out.resume,
            hand_over: &mut out.hand_over,
            mail: &mut out.mail,
            disk: &mut out.disk.list,
            changes: &mut out.changes,
            events: &mut out.events,
            lost_events: &mut out.lost_events,
            answers: &mut out.answers,
        }
    }

    fn is_mail_empty(mail: &MailBatch) -> bool {
        mail.is_empty()
    }

    fn mail_bytes(mail: &MailBatch) -> usize {
        mail.memory_bytes()
    }

    fn accept(
        &mut self,
        now: Now,
        connection: ConnectionId,
        peer: PeerInfo,
        out: &mut Outbox,
    ) -> ConnectionSlot {
        Broker::accept(self, now, connection, peer.into(), None, out)
    }

    fn received(
        &mut self,
        now: Now,
        slot: ConnectionSlot,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> usize {
        Broker::received(self, now, slot, bytes, out)
    }

    fn has_read_enough(&self) -> bool {
        self.shard.has_read_enough()
    }

    fn is_open(&self, slot: ConnectionSlot) -> bool {
        self.connections.is_open(slot)
    }

    fn is_crowded(&self) -> bool {
        self.shard.is_crowded()
    }

    fn driver_holds(&mut self, slot: ConnectionSlot, bytes: usize) {
        self.connections.driver_holds(&mut self.shard, slot, bytes);
    }

    fn owes_end(&self, slot: ConnectionSlot) -> bool {
        self.connections.owes_end(slot)
    }

    fn gave_up(&self, slot: ConnectionSlot) -> bool {
        self.connections.gave_up(slot)
    }

    fn bytes_to_send(&self, slot: ConnectionSlot) -> usize {
        self.connections.bytes_to_send(slot)
    }

    fn note_mail_on_its_way(&mut self, bytes: usize) {
        self.shard.note_mail_on_its_way(bytes);
    }

    fn has_taken_enough_mail(&self) -> bool {
        self.shard.has_taken_enough_mail()
    }

    fn writable_slices(&mut self, slot: ConnectionSlot) -> Slices<'_> {
        self.connections.writable_slices(&mut self.shard, slot)
    }

    fn sent(&mut self, now: Now, slot: ConnectionSlot, bytes: usize, out: &mut Outbox) {
        Broker::sent(self, now, slot, bytes, out);
    }

    fn closed(&mut self, now: Now, slot: ConnectionSlot, out: &mut Outbox) {
        Broker::closed(self, now, slot, out);
    }

    fn release(&mut self, slot: ConnectionSlot) -> Option<MovingConnection> {
        Broker::release(self, slot)
    }

    fn adopt(&mut self, now: Now, moving: MovingConnection, out: &mut Outbox) -> ConnectionSlot {
        Broker::adopt(self, now, moving, out)
    }

    fn mail(&mut self, now: Now, from: ShardId, mail: &mut MailBatch, out: &mut Outbox) {
        Broker::mail(self, now, from, mail, out);
    }

    fn change(&mut self, now: Now, change: &Arc<directory::Change>, out: &mut Outbox) {
        Broker::change(self, now, change, out);
    }

    fn disk_done(&mut self, now: Now, log: LogId, completion: Completion, out: &mut Outbox) {
        Broker::disk_done(self, now, log, completion, out);
    }

    fn query(&mut self, now: Now, number: u64, query: Query, out: &mut Outbox) {
        Broker::query(self, now, number, query, out);
    }

    fn timeout(&mut self, now: Now, out: &mut Outbox) {
        Broker::timeout(self, now, out);
    }

    fn next_timeout(&self) -> Instant {
        Broker::next_timeout(self)
    }

    fn work(&mut self, now: Now, out: &mut Outbox) {
        Broker::work(self, now, out);
    }

    fn has_work(&self, out: &Outbox) -> bool {
        Broker::has_work(self, out)
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) {
        Broker::flush(self, now, out);
    }

    fn shut_down(&mut self, now: Now, out: &mut Outbox) {
        Broker::shut_down(self, now, out);
    }

    fn owes(&self) -> bool {
        self.view().owes()
    }

    fn close(&mut self, now: Now, out: &mut Outbox) {
        Broker::close(self, now, out);
    }

    fn is_closed(&self) -> bool {
        Broker::is_closed(self)
    }
}
