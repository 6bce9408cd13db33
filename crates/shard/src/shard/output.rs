//! From the core to sockets, and the ways in which connections end.

use std::io::{self, ErrorKind, IoSlice};

use lepus_base::{Instant, Now};
use lepus_reactor::{Reactor, Socket};

use super::{DRAIN, LINGER, LINGER_STOPPING, NO_TOKEN, Shard};
use crate::connection::Phase;
use crate::core::{Core, Slot};

/// Rounds of encrypting and writing per connection and turn.
const TLS_ROUNDS_MAX: usize = 4;
/// When so many bytes were written in a turn, the other connections wait for the next one: what fan-outs and large
/// messages make ready at once takes long. So much is for those with little to send, and as much for the others:
/// who waits for an answer does not wait for those.
const WRITTEN_BYTES_MAX: usize = 1 << 20;
const LITTLE_BYTES_MAX: usize = 16 << 10;
/// A write takes as much of that at least: it costs a call of the system, however few bytes the socket takes.
const WRITE_COST_BYTES: usize = 2 << 10;

/// What a connection's socket did with its bytes.
enum Written {
    /// It took all.
    All,
    /// It is full.
    Full,
    /// It may take more in the next turn.
    Part,
    /// It is lost.
    Lost,
}

impl<C: Core, R: Reactor> Shard<C, R> {
    /// One write per connection that has bytes to send and a socket that takes them, then the ends
    /// of those that are to be closed.
    pub(super) fn write_sockets(&mut self, now: Now) {
        // In place of a list per purpose: whoever has to wait since the last turn, whoever takes bytes again, then
        // whoever got new ones.
        let mut tokens = std::mem::take(&mut self.unblocked);
        let mut slots = std::mem::take(&mut self.slots);
        slots.append(C::effects(&mut self.out).dirty);
        tokens.extend(slots.drain(..).filter_map(|slot| self.token(slot)));
        slots.append(C::effects(&mut self.out).close);
        for slot in slots.drain(..) {
            if let Some(token) = self.token(slot) {
                self.begin_close(now, token);
                tokens.push(token);
            }
        }
        self.slots = slots;
        for token in tokens.drain(..) {
            let Some(connection) = self.connections.get_mut(token as usize) else { continue };
            if !std::mem::replace(&mut connection.is_listed, true) {
                let is_much = self.core.bytes_to_send(connection.slot) > LITTLE_BYTES_MAX;
                self.writing[usize::from(is_much)].push_back(token);
            }
        }
        for list in 0..self.writing.len() {
            self.written = 0;
            while self.written < WRITTEN_BYTES_MAX
                && let Some(token) = self.writing[list].pop_front()
            {
                if let Some(connection) = self.connections.get_mut(token as usize) {
                    connection.is_listed = false;
                }
                self.write(now, token);
            }
        }
        // What was put off meanwhile is for the next turn.
        tokens.append(&mut self.unblocked);
        self.unblocked = tokens;
    }

    /// The peer has ended its side. If it has asked for the end of the connection as well, the answer
    /// is still sent, as soon as all before it is done.
    pub(super) fn end_of_input(&mut self, now: Now, token: u32) {
        let connection = &mut self.connections[token as usize];
        if connection.phase != Phase::Open || !self.core.owes_end(connection.slot) {
            return self.lose(now, token);
        }
        connection.ended = true;
        connection.deadline = now.instant + DRAIN;
        self.leaving_next = self.leaving_next.min(connection.deadline);
        self.leaving.push((token, connection.id));
        self.unblocked.push(token);
    }

    fn begin_close(&mut self, now: Now, token: u32) {
        let connection = &mut self.connections[token as usize];
        if connection.phase == Phase::Open {
            if self.stopping && self.core.gave_up(connection.slot) {
                connection.is_cut = true;
                self.cut += 1;
            }
            connection.phase = Phase::Draining;
            connection.deadline = now.instant + DRAIN;
            let entry = (token, connection.id);
            self.leaving_next = self.leaving_next.min(connection.deadline);
            self.leaving.push(entry);
        }
    }

    fn write(&mut self, now: Now, token: u32) {
        let Some(connection) = self.connections.get(token as usize) else {
            return;
        };
        if connection.phase == Phase::Lingering {
            if connection.tls.is_some() {
                self.write_last(now, token);
            }
            return;
        }
        let written = if connection.full {
            Written::Full
        } else if connection.tls.is_some() {
            let written = self.write_tls(now, token);
            self.tell_held(token);
            written
        } else {
            self.write_plain(now, token)
        };
        let Some(connection) = self.connections.get_mut(token as usize) else {
            return;
        };
        let is_draining = connection.phase == Phase::Draining;
        match written {
            Written::All if is_draining => {
                // Telling the core that bytes are sent may have brought new ones.
                if self.core.bytes_to_send(connection.slot) == 0 {
                    self.finish(now, token);
                } else {
                    self.unblocked.push(token);
                }
            }
            // Its peer waits for no more than this.
            Written::All if connection.ended && !self.core.owes_end(connection.slot) => {
                self.finish(now, token);
            }
            Written::All if connection.ticket.is_none() && !self.core.is_open(connection.slot) => {
                self.await_its_end(now, token);
            }
            Written::All => {}
            Written::Full => connection.full = true,
            Written::Part => self.unblocked.push(token),
            Written::Lost => self.lose(now, token),
        }
    }

    fn write_plain(&mut self, now: Now, token: u32) -> Written {
        let connection = &mut self.connections[token as usize];
        let slices = self.core.writable_slices(connection.slot);
        let length = slices.len();
        if length == 0 {
            return Written::All;
        }
        self.busy = true;
        let result = match slices.more {
            None => connection.socket.write(slices.first),
            Some(_) => connection.socket.write_vectored(&slices.all().map(IoSlice::new)),
        };
        self.links.metrics.writes.add(1);
        // What was made ready for a socket that takes nothing has cost something, too.
        let cost = length.clamp(WRITE_COST_BYTES, LITTLE_BYTES_MAX);
        self.written += cost.max(*result.as_ref().unwrap_or(&0));
        match result {
            Ok(count) => {
                self.links.metrics.bytes_out.add(count as u64);
                self.core.sent(now, connection.slot, count, &mut self.out);
                if count == length { Written::All } else { Written::Full }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Written::Full,
            Err(_) => Written::Lost,
        }
    }

    fn write_tls(&mut self, now: Now, token: u32) -> Written {
        let connection = &mut self.connections[token as usize];
        let Some(tls) = &mut connection.tls else {
            return Written::All;
        };
        for _ in 0..TLS_ROUNDS_MAX {
            while tls.wants_write() {
                self.links.metrics.writes.add(1);
                let result = tls.write_to(&mut connection.socket);
                self.written += WRITE_COST_BYTES.max(*result.as_ref().unwrap_or(&0));
                match result {
                    Ok(0) => return Written::Full,
                    Ok(count) => self.links.metrics.bytes_out.add(count as u64),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Written::Full,
                    Err(_) => return Written::Lost,
                }
            }
            let slices = self.core.writable_slices(connection.slot);
            if slices.is_empty() {
                return Written::All;
            }
            self.busy = true;
            let taken = tls.encrypt(&slices);
            self.core.sent(now, connection.slot, taken, &mut self.out);
        }
        Written::Part
    }

    /// The last byte for the core's connection is written: the core forgets it, the socket waits
    /// for the peer's end.
    fn finish(&mut self, now: Now, token: u32) {
        self.busy = true;
        self.forget(now, token);
        let connection = &mut self.connections[token as usize];
        connection.phase = Phase::Lingering;
        connection.deadline = now.instant + if self.stopping { LINGER_STOPPING } else { LINGER };
        connection.leftover = Vec::new();
        connection.readable = true;
        self.leaving_next = self.leaving_next.min(connection.deadline);
        self.lingering.push_back((token, connection.id));
        self.lingering_count += 1;
        if let Some(tls) = &mut connection.tls {
            tls.end();
            self.write_last(now, token);
        } else {
            connection.socket.shut_down_writing();
        }
        if self.connections.contains(token as usize) {
            self.enqueue(token);
        }
        self.bound_lingering(now);
    }

    /// The first that began to linger is cut while there are more than may be: they count nowhere else.
    fn bound_lingering(&mut self, now: Now) {
        while let Some(&(token, id)) = self.lingering.front() {
            let is_there = self.connections.get(token as usize).is_some_and(|one| one.id == id);
            if is_there && self.lingering_count <= self.entering_max {
                return;
            }
            self.lingering.pop_front();
            if is_there {
                self.lose(now, token);
            }
        }
    }

    /// Writes the end of a TLS session that lingers.
    fn write_last(&mut self, now: Now, token: u32) {
        let connection = &mut self.connections[token as usize];
        let Some(tls) = &mut connection.tls else {
            return;
        };
        let mut result: io::Result<usize> = Ok(0);
        while tls.wants_write() && result.is_ok() {
            result = tls.write_to(&mut connection.socket);
        }
        match result {
            Ok(_) => connection.socket.shut_down_writing(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => connection.full = true,
            Err(_) => self.lose(now, token),
        }
    }

    /// Tells the core that a connection is gone and frees its slot.
    fn forget(&mut self, now: Now, token: u32) {
        let connection = &mut self.connections[token as usize];
        let slot = connection.slot;
        if let Some(ticket) = connection.ticket.take() {
            self.entering.leave(ticket);
        }
        self.tokens[slot.index()] = NO_TOKEN;
        self.core.closed(now, slot, &mut self.out);
        self.links.metrics.closed.add(1);
    }

    /// Drops a connection in whatever phase it is.
    pub(super) fn lose(&mut self, now: Now, token: u32) {
        self.busy = true;
        match self.connections[token as usize].phase {
            Phase::Lingering => self.lingering_count -= 1,
            Phase::Open | Phase::Draining => self.forget(now, token),
        }
        let mut connection = self.connections.remove(token as usize);
        // Whoever takes nothing would keep the system's memory for minutes, and counts nowhere any more.
        connection.socket.forget_unsent_soon();
        // Closing the socket would do; mio wants to be told.
        let _ = self.reactor.deregister(&mut connection.socket);
        self.keep_spare(connection.leftover);
    }

    /// Cuts connections that took too long to leave.
    pub(super) fn cut_overdue(&mut self, now: Now) {
        if self.leaving_next > now.instant {
            return;
        }
        self.leaving_next = Instant::NEVER;
        let mut index = 0;
        while let Some(&(token, id)) = self.leaving.get(index) {
            let leaving = self.connections.get(token as usize);
            match leaving.filter(|connection| connection.id == id) {
                Some(connection) if connection.deadline > now.instant => {
                    self.leaving_next = self.leaving_next.min(connection.deadline);
                    index += 1;
                }
                Some(_) => {
                    self.leaving.swap_remove(index);
                    self.lose(now, token);
                }
                None => {
                    self.leaving.swap_remove(index);
                }
            }
        }
    }
}
