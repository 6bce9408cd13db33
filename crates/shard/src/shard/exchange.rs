//! Between this shard and the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lepus_base::{Now, ShardId};
use lepus_reactor::{Reactor, Token};

use super::{NO_TOKEN, Shard};
use crate::connection::{Connection, Envelope, Parcel, Phase};
use crate::core::{Core, Slot};

impl<C: Core, R: Reactor> Shard<C, R> {
    /// Takes mail out of the rings, then the directory changes that were made before it was sent,
    /// and only then applies the mail.
    pub(super) fn take_mail(&mut self, now: Now) {
        if self.received.is_empty() {
            let mut fresh = std::mem::take(&mut self.fresh);
            self.links.endpoint.receive(&mut fresh);
            if !fresh.is_empty() {
                self.drain_directory(now);
                self.links.metrics.mail_in.add(fresh.len() as u64);
                self.samples.note_parcels(fresh.len());
            }
            self.received.extend(fresh.drain(..));
            self.fresh = fresh;
        }
        self.busy |= !self.received.is_empty();
        while let Some((from, mut parcel)) = self.received.pop_front() {
            if parcel.changes > self.changes {
                self.drain_directory(now);
            }
            if parcel.changes > self.changes {
                // Its sender was told of a change before this shard: it is on its way, and what it is about as well.
                self.received.push_front((from, parcel));
                break;
            }
            if !C::is_mail_empty(&parcel.mail) {
                self.core.mail(now, from, &mut parcel.mail, &mut self.out);
            }
            for envelope in parcel.connections.drain(..) {
                self.adopt(now, envelope);
            }
            self.give_back(from, parcel);
            if self.core.has_taken_enough_mail() {
                break;
            }
        }
    }

    /// An emptied parcel goes back to be filled again, unless there are enough.
    fn give_back(&mut self, from: ShardId, mut parcel: Parcel<C, R::Socket>) {
        let kept = C::mail_bytes(&parcel.mail);
        let counted = std::mem::replace(&mut parcel.counted, kept);
        let sum = Arc::clone(&self.links.mail_bytes[from.index()]);
        // The other shard takes it off the sum as soon as it has it.
        sum.fetch_add(kept.wrapping_sub(counted), Ordering::AcqRel);
        if self.links.endpoint.give_back(from, parcel).is_err() {
            sum.fetch_sub(kept, Ordering::AcqRel);
        }
    }

    fn adopt(&mut self, now: Now, envelope: Envelope<C, R::Socket>) {
        let mut socket = envelope.socket;
        let slot = self.core.adopt(now, envelope.traveller, &mut self.out);
        let entry = self.connections.vacant_entry();
        let token = entry.key() as u32;
        let registered = self.reactor.register(&mut socket, Token(token));
        let Envelope { id, address, tls, .. } = envelope;
        let mut connection = Connection::new(id, slot, address, socket, tls);
        connection.again = !envelope.leftover.is_empty();
        // Copied: what grows or is kept as a spare has to lie in this shard's memory.
        connection.leftover = envelope.leftover.clone();
        entry.insert(connection);
        self.install(slot, token);
        self.links.metrics.adopted.add(1);
        if registered.is_err() {
            self.lose(now, token);
        }
    }

    /// Directory changes first, then mail, then the connections that follow it. What does not fit
    /// stays and is added to.
    pub(super) fn send_parcels(&mut self) {
        let effects = C::effects(&mut self.out);
        for change in effects.changes.drain(..) {
            self.changes += 1;
            if let Some(follower) = &self.links.follower {
                follower(&change);
            }
            for (index, post) in self.links.directories.iter().enumerate() {
                let peer = ShardId(index as u16);
                if peer != self.id && post.put(Arc::clone(&change)).is_ok() {
                    self.links.endpoint.touch(peer);
                }
            }
        }
        let outgoing = &self.outgoing;
        effects.mail.settle(|peer, mail| {
            C::is_mail_empty(mail) && outgoing.get(peer.index()).is_none_or(Vec::is_empty)
        });
        for place in 0..effects.mail.touched().len() {
            let peer = effects.mail.touched_at(place);
            if peer == self.id {
                continue;
            }
            if !self.links.endpoint.has_room(peer) {
                self.links.metrics.ring_full.add(1);
                continue;
            }
            let mail = &mut effects.mail[peer.index()];
            let connections = &mut self.outgoing[peer.index()];
            let mut parcel = self.links.endpoint.spare(peer).unwrap_or_default();
            std::mem::swap(&mut parcel.mail, mail);
            std::mem::swap(&mut parcel.connections, connections);
            parcel.changes = self.changes;
            let kept = std::mem::replace(&mut parcel.counted, C::mail_bytes(&parcel.mail));
            let change = parcel.counted.wrapping_sub(kept);
            self.links.mail_bytes[self.id.index()].fetch_add(change, Ordering::AcqRel);
            self.busy = true;
            self.links.metrics.mail_out.add(1);
            if let Err(mut refused) = self.links.endpoint.send(peer, parcel) {
                // Room does not vanish; if it did, nothing may be lost.
                std::mem::swap(&mut refused.mail, mail);
                std::mem::swap(&mut refused.connections, connections);
                self.links.mail_bytes[self.id.index()].fetch_sub(refused.counted, Ordering::AcqRel);
            }
        }
        let bytes = self.links.mail_bytes[self.id.index()].load(Ordering::Relaxed);
        self.core.note_mail_on_its_way(bytes);
    }

    /// Takes the connections that the core wants elsewhere out of this shard.
    pub(super) fn hand_over(&mut self) {
        while let Some((slot, to)) = C::effects(&mut self.out).hand_over.pop() {
            let Some(token) = self.token(slot) else {
                continue;
            };
            let is_open = self.connections[token as usize].phase == Phase::Open;
            if !is_open || to == self.id || to.index() >= self.outgoing.len() {
                continue;
            }
            let Some(traveller) = self.core.release(slot) else { continue };
            self.busy = true;
            self.tokens[slot.index()] = NO_TOKEN;
            let mut connection = self.connections.remove(token as usize);
            // The other shard's reactor takes it even if this one has lost it.
            let _ = self.reactor.deregister(&mut connection.socket);
            self.links.metrics.handed_over.add(1);
            C::effects(&mut self.out).mail.touch(to);
            self.outgoing[to.index()].push(Envelope {
                id: connection.id,
                address: connection.address,
                traveller,
                socket: connection.socket,
                tls: connection.tls,
                leftover: connection.leftover,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use lepus_base::{Now, ShardId};
    use lepus_mesh::Bell;
    use lepus_reactor::{Reactor, Readiness, Socket, Token};

    use crate::connection::Parcel;
    use crate::echo_core::{EchoCore, Letter};
    use crate::{Shard, Wiring};

    struct NoSocket;

    impl Socket for NoSocket {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Ok(0)
        }
        fn acknowledge_at_once(&mut self) {}
        fn forget_unsent_soon(&mut self) {}
        fn shut_down_writing(&mut self) {}
    }

    struct NoReactor;

    impl Reactor for NoReactor {
        type Socket = NoSocket;

        fn register(&mut self, _: &mut NoSocket, _: Token) -> io::Result<()> {
            Ok(())
        }
        fn deregister(&mut self, _: &mut NoSocket) -> io::Result<()> {
            Ok(())
        }
        fn poll(&mut self, _: Option<Duration>, _: &mut Vec<Readiness>) -> io::Result<bool> {
            Ok(false)
        }
    }

    /// Shard 0 tells one shard after the other. One that hears of a change first may tell another one what follows from
    /// it before that hears.
    #[test]
    fn mail_waits_for_the_changes_that_its_sender_knew() {
        let (notices, _log) = crate::notices(|_| false);
        let bells = [0, 1, 2].map(|_| Arc::new(Bell::new(|| ())));
        let mut wiring = Wiring::<EchoCore, NoSocket>::new(&bells, 4, &notices);
        let mut links = wiring.links.drain(..);
        let (first, mut second, third) =
            (links.next().unwrap(), links.next().unwrap(), links.next().unwrap());
        let mut shard = Shard::new(EchoCore::new(ShardId(2), 3), NoReactor, third);
        let mail = vec![Letter::Far(ShardId(1), lepus_base::ConnectionId(1), vec![7])];
        let parcel = Parcel { mail, changes: 1, ..Parcel::default() };
        assert!(second.endpoint.send(ShardId(2), parcel).is_ok());
        let answers = |second: &mut crate::Links<EchoCore, NoSocket>| {
            let mut got = Vec::new();
            second.endpoint.receive(&mut got);
            got.iter().map(|(_, parcel)| parcel.mail.len()).sum::<usize>()
        };
        for _ in 0..3 {
            shard.poll(None).unwrap();
            assert!(shard.turn(Now::from_millis(1)).more, "it waits for what is on its way");
            assert_eq!(answers(&mut second), 0);
        }
        assert!(first.directories[2].put(Arc::new(1)).is_ok());
        shard.poll(None).unwrap();
        shard.turn(Now::from_millis(1));
        assert_eq!(answers(&mut second), 1);
    }
}
