//! What goes in: messages, settles, dropped queues, opaque records.

use lepus_base::{Instant, Position, QueueId};

use super::Store;
use crate::lanes::LaneSlot;
use crate::log::AppendError;
use crate::page::Entry;
use crate::place::{generation, offset};
use crate::record::{
    Envelope, KIND_FRAGMENT, KIND_MESSAGE, KIND_OPAQUE, KIND_QUEUE_DROPPED, KIND_SETTLES, Message,
    Names, RECORD_HEADER_BYTES, REFERENCE_BYTES_MAX, REFERENCE_BYTES_MIN, Reference,
    envelope_bytes_max, put_envelope, put_settles, references_bytes_max,
};
use crate::varint::{VARINT_BYTES_MAX, put};

/// Records up to this size are never cut in two: the rest of a segment is left unused instead.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// Records above this size do not lend their names to others, who would have to read them.
const LENDER_BYTES_MAX: usize = 4096;
/// Runs in one part of a settle record.
const RUNS_MAX: usize = 1024;
/// References of one message that are replayed in about the time that a message takes by itself.
const REFERENCES_PER_WEIGHT: usize = 64;

/// A message's place in a lane of this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The lane.
    pub lane: LaneSlot,
    /// Sequence number, not below [`Store::next_seq`].
    pub seq: u64,
    /// Wall time in milliseconds when it expires; 0 for never.
    pub deadline_millis: u64,
}

/// What a message with so many references counts until the next checkpoint. A fan-out counts as a
/// few messages, not as many as it has queues: it would have a checkpoint of all of them written
/// every few publishes.
fn weight(references: usize) -> u64 {
    1 + (references / REFERENCES_PER_WEIGHT) as u64
}

impl Store {
    /// Appends a message once with its places in all queues of the shard, and says where it is.
    /// It is durable when [`Store::durable`] has reached what [`Store::end`] says afterwards.
    ///
    /// A message of transient lanes is written too, but no recovery finds it.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing was appended.
    ///
    /// # Panics
    /// When a sequence number was used before in its lane, or a lane was dropped.
    pub fn append(
        &mut self,
        message: &Message<'_>,
        places: &[Place],
    ) -> Result<Position, AppendError> {
        let mut is_transient = true;
        for place in places {
            let lane = self.state.lanes.get_mut(place.lane).expect("the lane exists");
            assert!(place.seq >= lane.next() && !lane.is_dropped, "numbers grow along a lane");
            is_transient &= lane.lane.is_transient();
        }
        let lanes = &self.state.lanes;
        let references = places.iter().map(|place| {
            let lane = lanes.lane(place.lane).unwrap_or_default();
            Reference { lane, seq: place.seq, deadline_millis: place.deadline_millis }
        });
        let written = write_message(
            &mut self.log,
            &mut self.names,
            message,
            references,
            (is_transient, None, true),
        );
        let (start, generation_last) = written?;
        let bytes = message.body.len() as u32;
        self.appended += weight(places.len());
        self.state.lanes.appended(places.len());
        self.state.count(
            &mut self.log.segments,
            start,
            generation_last,
            places.len() as u32,
            bytes,
            is_transient,
        );
        for place in places {
            let Some(lane) = self.state.lane_mut(place.lane) else { continue };
            let entry = Entry {
                seq: place.seq,
                position: start,
                bytes,
                deadline_millis: place.deadline_millis,
            };
            if lane.append(entry)
                && let Some(first) = lane.unwritten_page_last()
            {
                self.closed_pages.push_back((place.lane, first));
                self.state.lanes.weigh(place.lane);
            }
        }
        Ok(start)
    }

    /// Whether a message of `bytes` would be taken now, or several that are [held](Store::hold)
    /// together. If not, room is prepared as far as the disk has it.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        self.log.has_room(bytes)
    }

    /// The same for who does not wait: nothing is prepared.
    #[must_use]
    pub fn would_take(&self, bytes: usize) -> bool {
        self.log.would_take(bytes)
    }

    /// Whether who need not append anything should: most of what there may be of the disk is free, and what is prepared takes
    /// so many bytes, or nothing is prepared because nobody has appended anything for a while.
    #[must_use]
    pub fn has_ample_room(&self, bytes: usize) -> bool {
        !self.log.is_nearly_full() && (!self.log.is_ready() || self.log.would_take(bytes))
    }

    /// Whether the messages that are appended next, or whose room is asked for, are passed on: each takes
    /// the place of one in this log that is settled as soon as it is there. They may use
    /// [`crate::Settings::passing_segments`].
    pub fn set_passing(&mut self, is_passing: bool) {
        self.log.set_passing(is_passing);
    }

    /// To be called now and then while somebody may wait for room: whoever was refused it and has not
    /// asked again since the last call is not waited for. Otherwise the wish of one who is gone would
    /// keep the disk full.
    pub fn forget_wishes(&mut self) {
        self.log.forget_wishes();
    }

    /// Whether a message of `bytes` would be taken if nothing else were in the log. If not, to wait for
    /// room is in vain.
    #[must_use]
    pub fn could_hold(&self, bytes: usize) -> bool {
        self.could_hold_beside(bytes, 0)
    }

    /// The same if nothing else were in the log but a message with a payload of `occupied` bytes.
    #[must_use]
    pub fn could_hold_beside(&self, bytes: usize, occupied: usize) -> bool {
        self.log.could_hold(bytes, occupied)
    }

    /// An upper bound for [`Store::has_room`] of what a message with so many `places` takes, in
    /// several records where one cannot name them all.
    #[must_use]
    pub fn message_bytes_max(&self, message: &Message<'_>, places: usize) -> usize {
        let mut records = 1;
        loop {
            let places = places.div_ceil(records);
            let bytes = Store::record_bytes_max(message, places);
            let is_named = bytes - message.body.len() < self.log.payload_bytes_max();
            if is_named || places <= 1 {
                // Each of several may leave room at the end of a segment that the next one does not
                // fit into: two segments in a row hold more than one is long.
                return if records == 1 { bytes } else { 2 * records * bytes };
            }
            records *= 2;
        }
    }

    /// A message of more bytes goes on in the next segment where it does not fit into one. One of fewer
    /// begins there.
    pub const WHOLE_BYTES_MAX: usize = WHOLE_BYTES_MAX;

    /// A lower bound of what a message with so many `places` takes, one or more: in records that find its
    /// names elsewhere, and with small numbers.
    #[must_use]
    pub fn message_bytes_min(message: &Message<'_>, places: usize) -> usize {
        // Flags, number of places, names and length of the properties.
        let envelope = 4 + REFERENCE_BYTES_MIN * places + message.properties.len();
        RECORD_HEADER_BYTES + envelope + message.body.len()
    }

    /// Whether the disk, or the limit, has no room for another segment.
    #[must_use]
    pub fn is_out_of_disk(&self) -> bool {
        self.log.is_full()
    }

    /// Whether no further segment can be made for who waits for room, however much that is.
    #[must_use]
    pub fn makes_no_room(&self) -> bool {
        self.log.makes_no_room()
    }

    /// The same as [`Store::is_out_of_disk`], and not because it has as many segments as it may have for itself: others will lack
    /// room as well.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.log.is_full() && self.log.has_segments_left()
    }

    /// Makes the following records of `bytes` in all land in one batch, which recovery finds whole or
    /// not at all. Of more than [`crate::Settings::payload_bytes_max`] as much as a segment holds does.
    ///
    /// # Errors
    /// [`AppendError::Full`] when there is no room, [`AppendError::Stopped`] after a failure.
    pub fn hold(&mut self, bytes: usize) -> Result<(), AppendError> {
        self.log.hold(bytes)
    }

    /// An upper bound for [`Store::hold`] of what a settle takes that is written with what is held.
    pub const SETTLE_BYTES_MAX: usize = RECORD_HEADER_BYTES + runs_bytes_max(1);

    /// What is settled from here to [`Store::end_held_settles`] is to land in the batch of what was [held](Store::hold)
    /// and appended: recovery finds both or neither.
    pub fn begin_held_settles(&mut self) {
        debug_assert!(self.others_settles.is_empty(), "one after the other");
        self.others_settles = core::mem::take(&mut self.settles);
    }

    /// The end of what [`Store::begin_held_settles`] began. Its settles are written now, without those that were gathered
    /// before, for which nothing was held.
    pub fn end_held_settles(&mut self) {
        self.put_settles_in_log(true);
        // What found no room after all waits with the others.
        let left = core::mem::take(&mut self.settles);
        self.settles = core::mem::take(&mut self.others_settles);
        self.settles.extend(left);
    }

    /// An upper bound for [`Store::hold`] of what appending a message takes.
    #[must_use]
    pub fn record_bytes_max(message: &Message<'_>, places: usize) -> usize {
        record_bytes_max(message, places * REFERENCE_BYTES_MAX)
    }

    /// A message of a lane is done with. `position` and `bytes` are its entry's. False if it was
    /// settled before.
    pub fn settle(&mut self, lane: LaneSlot, seq: u64, position: Position, bytes: u32) -> bool {
        let Some(index) = self.state.lanes.get_mut(lane) else { return false };
        let is_transient = index.lane.is_transient();
        if !index.settle(seq, bytes, &mut self.state.freed_pages) {
            return false;
        }
        self.state.discount(&mut self.log.segments, position, bytes, is_transient);
        if !is_transient {
            self.settles.push((lane, seq));
        }
        true
    }

    /// A message of a lane cannot be read. It is kept, but nobody is given it any more: it is not fetched,
    /// and [`Store::count`] leaves it out. It goes when it is settled, with its lane, or when the lane is
    /// purged. A later run does not know of that and fetches it again.
    pub fn set_aside(&mut self, lane: LaneSlot, seq: u64, bytes: u32) {
        self.state.lanes.set_aside(lane, seq, bytes);
    }

    /// Whether anything of a queue was set aside and is still there.
    #[must_use]
    pub fn has_set_aside(&self, queue: QueueId) -> bool {
        self.state.lanes.of(queue).into_iter().any(|slot| self.state.lanes.has_damaged(slot))
    }

    /// Everything in the lane below `end` is done with, but for the numbers in `kept` (growing):
    /// messages that are delivered and not acknowledged. What it takes to count that is done by
    /// [`Store::work`].
    pub fn purge(&mut self, lane: LaneSlot, end: u64, kept: &[u64]) {
        self.write_settles();
        let Some(index) = self.state.lane_mut(lane) else { return };
        let (name, end, mut first) = (index.lane, end.min(index.next()), 0);
        self.runs.clear();
        for &seq in kept.iter().chain([&end]) {
            let until = seq.min(end);
            if until > first {
                index.settle_range(first, until);
                self.runs.push((first, until));
            }
            first = until.saturating_add(1);
        }
        index.recount();
        if !name.is_transient() {
            for runs in self.runs.chunks(runs_max(&self.log)) {
                if self.log.make_room(runs_bytes_max(runs.len()), false).is_ok() {
                    self.log.append(KIND_SETTLES, |out| put_settles(out, name, runs));
                }
            }
        }
        self.state.list(lane.0);
    }

    /// Everything in the lane below `end` that was not fetched is done with, as if it was purged. False if
    /// something before that may be known to nobody: then nothing happened, and the whole lane is to be
    /// purged.
    pub fn purge_unfetched(&mut self, lane: LaneSlot, end: u64) -> bool {
        self.write_settles();
        let Some(index) = self.state.lane_mut(lane) else { return true };
        if !index.is_whole() {
            return false;
        }
        let (name, first, end) = (index.lane, index.fetch_from(), end.min(index.next()));
        if first >= end {
            return true;
        }
        index.settle_range(first, end);
        index.recount();
        if !name.is_transient() && self.log.make_room(runs_bytes_max(1), false).is_ok() {
            self.log.append(KIND_SETTLES, |out| put_settles(out, name, &[(first, end)]));
        }
        self.state.list(lane.0);
        true
    }

    /// The queue is deleted with everything in it.
    pub fn drop_queue(&mut self, queue: QueueId) {
        self.write_settles();
        let lanes = self.state.lanes_of(queue);
        if lanes.is_empty() {
            return;
        }
        self.settles.retain(|(lane, _)| !lanes.contains(lane));
        crate::replay::drop_queue(queue, &mut self.state);
        if self.log.make_room(VARINT_BYTES_MAX, false).is_ok() {
            self.log.append(KIND_QUEUE_DROPPED, |out| put(out, queue.0));
        }
    }

    /// Appends bytes that mean something to the owner of the log: a change of definitions. A log
    /// holds either messages or such records.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing was appended.
    pub fn append_opaque(&mut self, bytes: &[u8]) -> Result<Position, AppendError> {
        self.log.make_room(bytes.len(), true)?;
        self.has_opaque = true;
        Ok(self.log.append(KIND_OPAQUE, |out| out.extend_from_slice(bytes)))
    }

    /// The opaque records that follow say again, in fewer words, what all before amount to.
    pub fn begin_snapshot(&mut self) {
        self.snapshot = Some(self.log.cut());
    }

    /// The same in a segment of its own: of those before nothing is read any more once the snapshot counts,
    /// not even the header of the one written to now, which may be damaged.
    pub fn begin_snapshot_apart(&mut self) {
        self.snapshot = Some(self.log.cut_segment());
    }

    /// The snapshot is complete. From the next checkpoint on, which is asked for, what came before it
    /// does not count any more; if it `keeps_last`, what came before the complete snapshot before it.
    pub fn end_snapshot(&mut self, keeps_last: bool) {
        let Some(start) = self.snapshot.take() else { return };
        match self.last_snapshot.replace(start) {
            _ if !keeps_last => self.opaque_start = start,
            Some(last) => self.opaque_start = last,
            None => {}
        }
        self.publication.request();
    }

    /// The last complete snapshot among the opaque records that were found begins with the one at
    /// this position.
    pub fn snapshot_found(&mut self, at: Position) {
        let index = self.opaque_batches.binary_search_by_key(&at, |(first, _)| *first);
        self.last_snapshot = index.ok().map(|index| self.opaque_batches[index].1);
        self.opaque_batches.clear();
    }

    /// Whether settles have not gone to the log yet: for up to [`crate::Settings::write_interval`], and
    /// where no more segments can be made until a checkpoint is valid that says the same.
    #[must_use]
    pub fn has_unwritten_settles(&self) -> bool {
        !self.settles.is_empty()
    }

    /// Hands gathered settles to the log. While no more segments can be made some may wait for the next
    /// checkpoint, which says what they say.
    pub(super) fn write_settles(&mut self) {
        let due = core::mem::replace(&mut self.settle_due, Instant::NEVER);
        if self.put_settles_in_log(false) {
            // Whoever has them written early does not have them wait anew.
            self.log.write_by(due);
        }
    }

    /// The same, by the way of those for which room `is_held` in the open batch. Whether any were written.
    fn put_settles_in_log(&mut self, is_held: bool) -> bool {
        if self.settles.is_empty() {
            return false;
        }
        self.settles.sort_unstable();
        let runs_max = runs_max(&self.log);
        let (mut at, mut written) = (0, 0);
        while at < self.settles.len() {
            let lane = self.settles[at].0;
            self.runs.clear();
            while let Some(&(next, seq)) = self.settles.get(at)
                && next == lane
                && self.runs.len() < runs_max
            {
                match self.runs.last_mut() {
                    Some(last) if last.1 == seq => last.1 += 1,
                    _ => self.runs.push((seq, seq + 1)),
                }
                at += 1;
            }
            if let Some(lane) = self.state.lanes.lane(lane) {
                let bound = runs_bytes_max(self.runs.len());
                let has_room = is_held && bound <= self.log.payload_rest();
                if !has_room && !self.log.has_room_for_settles(bound) {
                    break;
                }
                if self.log.make_room(bound, false).is_ok() {
                    self.log.append(KIND_SETTLES, |out| put_settles(out, lane, &self.runs));
                }
            }
            written = at;
        }
        self.settles.drain(..written);
        written > 0
    }
}

/// Runs in one part of a settle record at most.
fn runs_max(log: &crate::log::Log) -> usize {
    let runs_bytes = log.payload_bytes_max() / VARINT_BYTES_MAX;
    RUNS_MAX.min(runs_bytes.saturating_sub(3) / 2)
}

/// An upper bound of a settle record with so many runs of one lane.
const fn runs_bytes_max(runs: usize) -> usize {
    (3 + 2 * runs) * VARINT_BYTES_MAX
}

/// An upper bound of the record of a message with references of so many bytes.
pub(super) fn record_bytes_max(message: &Message<'_>, reference_bytes: usize) -> usize {
    let names = message.exchange.len() + message.routing_key.len();
    RECORD_HEADER_BYTES
        + envelope_bytes_max(reference_bytes, names, message.properties.len())
        + message.body.len()
}

/// Writes a message, cut into fragments where it does not fit. Where it begins, and the segment
/// in which it ends. The last argument says: transient, copied from, may be refused.
pub(super) fn write_message(
    log: &mut crate::log::Log,
    names: &mut crate::names::NameTable,
    message: &Message<'_>,
    references: impl ExactSizeIterator<Item = Reference> + Clone,
    (transient, origin, is_message): (bool, Option<Position>, bool),
) -> Result<(Position, u32), AppendError> {
    let exchange = &message.exchange[..message.exchange.len().min(255)];
    let routing_key = &message.routing_key[..message.routing_key.len().min(255)];
    let (properties, body) = (message.properties, message.body);
    let name_bytes = exchange.len() + routing_key.len();
    // Too high a bound would leave most of a segment empty behind a message with very many references. A copy
    // must fit where the original did, which may have had more.
    let reference_bytes = match references.len() == 1 && origin.is_none() {
        true => REFERENCE_BYTES_MAX,
        false => references_bytes_max(references.clone()),
    };
    let before = envelope_bytes_max(reference_bytes, name_bytes, properties.len());
    let bound = before + body.len();
    let whole_max = WHOLE_BYTES_MAX.min(log.payload_bytes_max());
    let first = if bound <= log.payload_rest() || bound <= whole_max {
        log.make_room(bound, is_message)?;
        body.len()
    } else {
        // However much room there is: who asked may do it in several records.
        if before + 1 > log.payload_bytes_max() {
            return Err(AppendError::TooLarge);
        }
        if is_message {
            log.admit(log.segments_for(bound))?;
        }
        // At least a byte of the body belongs to the first part.
        log.make_room(before + 1, is_message)?;
        body.len().min(log.payload_rest() - before)
    };
    let found = names.find(log.generation(), exchange, routing_key);
    let envelope = Envelope {
        transient,
        origin,
        names: found.map_or(Names::Here(exchange, routing_key), Names::At),
        properties,
        fragmented: (first < body.len()).then_some(body.len() as u32),
    };
    let start = log.append(KIND_MESSAGE, |out| {
        put_envelope(out, &envelope, references);
        out.extend_from_slice(&body[..first]);
    });
    if found.is_none() && bound <= LENDER_BYTES_MAX {
        names.put(generation(start), offset(start), exchange, routing_key);
    }
    let mut rest = &body[first..];
    while !rest.is_empty() {
        log.next_segment();
        let (part, left) = rest.split_at(rest.len().min(log.payload_bytes_max()));
        log.append(KIND_FRAGMENT, |out| out.extend_from_slice(part));
        rest = left;
    }
    Ok((start, log.generation()))
}
