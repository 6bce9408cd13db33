//! From sockets to the core.

use std::io::ErrorKind;

use lepus_base::Now;
use lepus_reactor::{Reactor, Socket};

use super::{READ_BYTES_MAX, SPARE_BYTES_MAX, SPARES_MAX, Shard, TURN_BYTES_MAX};
use crate::connection::Phase;
use crate::core::Core;

/// Leftovers up to this size are copied before the next read; larger ones gather in a buffer of
/// their own, so that a large frame in small pieces is not copied over and over.
const HEAD_BYTES: usize = 16 * 1024;
/// A leftover, then one read.
pub(super) const SCRATCH_BYTES: usize = HEAD_BYTES + READ_BYTES_MAX;
/// A leftover, then what one read may decrypt to, with what the TLS stage may have held back.
const PLAIN_BYTES: usize = HEAD_BYTES + READ_BYTES_MAX + 64 * 1024;
/// With less than this left of the turn's budget, the next connection waits for the next turn.
const READ_BYTES_MIN: usize = 4 * 1024;
/// A read takes as much of the budget at least: it costs a call of the system, and mostly one more for the
/// answer, however few bytes it brings.
const READ_COST_BYTES: usize = 512;
/// The end of a connection takes so much of the budget: all that it had is taken apart.
const END_COST_BYTES: usize = 4 * 1024;

/// Bytes that a buffer with so many bytes of a leftover may take: it may be held for long, and the
/// core counts the bytes.
fn room_for(bytes: usize) -> usize {
    2 * bytes + 512
}

impl<C: Core, R: Reactor> Shard<C, R> {
    /// Reads from the connections in the queue, each at most once, until the budget of bytes is used
    /// up or the core has done enough.
    pub(super) fn read_sockets(&mut self, now: Now) {
        self.apply_reading();
        let mut budget = TURN_BYTES_MAX;
        for _ in 0..self.queue.len() {
            if budget < READ_BYTES_MIN || self.core.has_read_enough() {
                break;
            }
            let Some(token) = self.queue.pop_front() else {
                break;
            };
            // It may have gone, and its token may name another one: reading that costs nothing.
            let Some(connection) = self.connections.get_mut(token as usize) else {
                continue;
            };
            connection.queued = false;
            if !connection.wants_turn() {
                continue;
            }
            self.busy = true;
            let taken = match connection.phase {
                Phase::Open => self.read(now, token, budget),
                Phase::Draining | Phase::Lingering => self.discard(now, token),
            };
            let is_left = self.connections.contains(token as usize);
            let cost = if is_left { READ_COST_BYTES } else { END_COST_BYTES };
            budget = budget.saturating_sub(taken.max(cost));
            if is_left {
                self.enqueue(token);
            }
        }
    }

    /// Gives one connection its turn: bytes that wait, or one read. Returns the bytes handled.
    fn read(&mut self, now: Now, token: u32, budget: usize) -> usize {
        let connection = &mut self.connections[token as usize];
        if std::mem::take(&mut connection.again) {
            let waiting = connection.leftover.len();
            if waiting > 0 {
                let mut scratch = std::mem::take(&mut self.scratch);
                self.handle(now, token, &mut scratch, 0);
                self.scratch = scratch;
                return waiting;
            }
            if !connection.readable {
                return 0;
            }
        }
        let limit = READ_BYTES_MAX.min(budget);
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = connection.socket.read(&mut scratch[HEAD_BYTES..HEAD_BYTES + limit]);
        self.links.metrics.reads.add(1);
        let handled = match result {
            Ok(0) => {
                self.end_of_input(now, token);
                0
            }
            Ok(count) => {
                // Less than asked for means drained, unless the end is behind it: a new edge comes
                // with new bytes.
                if count < limit && !connection.ending {
                    connection.readable = false;
                }
                self.links.metrics.bytes_in.add(count as u64);
                self.samples.note(token, count);
                if connection.tls.is_some() {
                    self.decrypt(now, token, &scratch[HEAD_BYTES..HEAD_BYTES + count]);
                } else {
                    self.handle(now, token, &mut scratch, count);
                }
                count
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.readable = false;
                // The handshake may have left decrypted bytes behind.
                if connection.tls.is_some() {
                    self.decrypt(now, token, &[]);
                }
                0
            }
            Err(_) => {
                self.lose(now, token);
                0
            }
        };
        self.scratch = scratch;
        handled
    }

    fn decrypt(&mut self, now: Now, token: u32, ciphertext: &[u8]) {
        let connection = &mut self.connections[token as usize];
        let Some(tls) = &mut connection.tls else {
            return;
        };
        let mut plain = std::mem::take(&mut self.plain);
        if plain.is_empty() {
            plain.resize(PLAIN_BYTES, 0);
        }
        match tls.decrypt(ciphertext, &mut plain[HEAD_BYTES..]) {
            Ok(decrypted) => {
                if tls.wants_write() {
                    self.unblocked.push(token);
                }
                if decrypted.bytes > 0 {
                    self.handle(now, token, &mut plain, decrypted.bytes);
                }
                if decrypted.ended {
                    let connection = &mut self.connections[token as usize];
                    if connection.paused || connection.again {
                        // What was said before the end is heard first.
                        connection.readable = true;
                        connection.ending = true;
                    } else {
                        self.end_of_input(now, token);
                    }
                }
            }
            Err(_) => {
                // The alert is written if the socket takes it.
                let _ = tls.write_to(&mut connection.socket);
                self.lose(now, token);
            }
        }
        self.plain = plain;
        self.tell_held(token);
    }

    /// Tells the core what the TLS stage holds for a connection, if that has changed.
    pub(super) fn tell_held(&mut self, token: u32) {
        let connection = self.connections.get_mut(token as usize);
        // Otherwise the core has forgotten it.
        if let Some(connection) = connection.filter(|one| one.phase != Phase::Lingering)
            && let Some(tls) = &mut connection.tls
            && let Some(bytes) = tls.take_change(connection.ticket.is_none() || connection.is_over)
        {
            self.core.driver_holds(connection.slot, bytes);
        }
    }

    /// Hands the leftover and `count` new bytes behind `buffer`'s head to the core.
    fn handle(&mut self, now: Now, token: u32, buffer: &mut [u8], count: usize) {
        self.drain_directory(now);
        let connection = &mut self.connections[token as usize];
        let mut leftover = std::mem::take(&mut connection.leftover);
        let slot = connection.slot;
        let is_entering = connection.ticket.is_some() && !connection.is_over;
        let taken;
        if leftover.len() <= HEAD_BYTES {
            let start = HEAD_BYTES - leftover.len();
            buffer[start..HEAD_BYTES].copy_from_slice(&leftover);
            leftover.clear();
            let bytes = &buffer[start..HEAD_BYTES + count];
            let consumed = self.core.received(now, slot, bytes, &mut self.out);
            taken = consumed;
            let rest = &bytes[consumed.min(bytes.len())..];
            if !rest.is_empty() {
                if leftover.capacity() == 0 {
                    let fits = |spare: &mut Vec<u8>| spare.capacity() <= room_for(rest.len());
                    leftover = self.spares.pop_if(fits).unwrap_or_default();
                }
                leftover.extend_from_slice(rest);
            }
        } else {
            leftover.extend_from_slice(&buffer[HEAD_BYTES..HEAD_BYTES + count]);
            let consumed = self.core.received(now, slot, &leftover, &mut self.out);
            taken = consumed;
            leftover.drain(..consumed.min(leftover.len()));
        }
        if leftover.is_empty() {
            self.keep_spare(leftover);
        } else {
            if leftover.capacity() > room_for(leftover.len()) {
                leftover.shrink_to(leftover.len());
            }
            self.connections[token as usize].leftover = leftover;
        }
        if is_entering {
            self.watch_login(token, taken > 0);
        }
        self.apply_reading();
    }

    /// Keeps an emptied buffer for the next leftover.
    pub(super) fn keep_spare(&mut self, mut buffer: Vec<u8>) {
        let is_worth_it = (1..=SPARE_BYTES_MAX).contains(&buffer.capacity());
        if is_worth_it && self.spares.len() < SPARES_MAX {
            buffer.clear();
            self.spares.push(buffer);
        }
    }

    /// Drops what a peer sends after its connection was closed.
    fn discard(&mut self, now: Now, token: u32) -> usize {
        let connection = &mut self.connections[token as usize];
        match connection.socket.read(&mut self.scratch) {
            Ok(count) if count > 0 => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.readable = false;
                0
            }
            Ok(_) | Err(_) => {
                self.lose(now, token);
                0
            }
        }
    }

    /// Carries out what the core said about reading and closing, in the order of its calls.
    pub(super) fn apply_reading(&mut self) {
        let effects = C::effects(&mut self.out);
        if effects.pause.is_empty() && effects.resume.is_empty() {
            return;
        }
        let mut slots = std::mem::take(&mut self.slots);
        slots.append(effects.pause);
        for slot in slots.drain(..) {
            if let Some(token) = self.token(slot) {
                self.connections[token as usize].paused = true;
            }
        }
        slots.append(C::effects(&mut self.out).resume);
        for slot in slots.drain(..) {
            if let Some(token) = self.token(slot) {
                let connection = &mut self.connections[token as usize];
                connection.paused = false;
                connection.again = true;
                self.enqueue(token);
            }
        }
        self.slots = slots;
    }
}
