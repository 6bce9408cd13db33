//! Messages on their way to queues that cannot have them at once: a slice of the queues at a time, and who goes on
//! when all have it.

use crate::channel::Target;
use crate::homes::HomeSide;
use crate::jobs::Fanout;
use crate::journal::{LogSet, Need, Occupied, Room};
use crate::mail::{ChannelRef, LETTERS_CONNECTION, Mail};
use crate::message::Incoming;
use crate::outbox::Outbox;

impl HomeSide<'_> {
    /// Whether there is room for the next queues of a message, and in which log it takes that of what is
    /// kept for those that are passed on.
    pub(crate) fn room_for_slice(
        &mut self,
        fanout: &mut Fanout,
        incoming: &Incoming<'_>,
        here: &[Target],
    ) -> (Room, Option<u16>) {
        let persistent = fanout.terms().persistent;
        let room = self.room_for(incoming, persistent, here);
        let (directory, delayed) = (&self.directory, &self.homes.delayed);
        if room == Room::Now && fanout.waits_for_others(directory, delayed, &mut self.journal) {
            let need = Need { logs: LogSet::OWN, bytes: self.bytes_in_log(incoming, 1) };
            return (Room::Later(need), None);
        }
        let frees = fanout.frees().filter(|_| room != Room::Now);
        if frees.is_none() {
            return (room, None);
        }
        let bytes = self.bytes_in_log(incoming, fanout.rest());
        self.journal.set_passing(frees, true);
        let of_rest = self.lack_of_room(bytes, here, Occupied::default());
        self.journal.set_passing(frees, false);
        fanout.learn_room_of_rest(of_rest);
        match (of_rest, room) {
            (Room::Now, _) => (Room::Now, frees),
            (Room::Later(_), Room::Never(_)) => (of_rest, None),
            _ => (room, None),
        }
    }

    /// A message can only wait now, for room or for other shards: if it is one that is passed on, those of others
    /// that are do not wait with it.
    pub(crate) fn let_others_pass(&mut self, fanout: &Fanout) {
        if let Some((from, bytes)) = fanout.passed_on() {
            self.give_turn_away(from, bytes);
        }
    }

    /// Nothing of a channel of this shard waits for room any more.
    pub(crate) fn publishes_go_on(&mut self, channel: ChannelRef, out: &mut Outbox) {
        if channel.connection == LETTERS_CONNECTION {
            self.set_aside_over(channel);
        } else {
            out.own.push(Mail::PublishesWait { channel, on: false });
        }
    }
}
