//! Connections that the balancer sends to another shard: paused, drained, and handed over when all
//! that they said is applied where it went.
//!
//! A departure goes through these stages: the connection is not read any more; consumers, which it
//! may have only of queues of the shard to which it goes, get nothing more; confirms, parked
//! frames and questions drain; a barrier goes to every shard that got mail of it and comes back
//! once that mail is applied; then it is handed over. One that takes too long, or whose connection
//! turns out to be tied to the shard, is given up and the connection is read again.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{ConnectionId, Instant, Now, ShardId};

use crate::connection::Connection;
use crate::outbox::{Outbox, Severity};

/// How long a departure may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// A connection stays at least so long where it came to, whatever queue it names.
pub(crate) const STAY: Duration = Duration::from_secs(1);
/// Connections that were to be closed and are not here: they may be on their way.
const EXPELLED_MAX: usize = 64;
/// Connections on their way out of one shard at the same time.
const DEPARTURES_MAX: usize = 64;

/// How far a departure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its consumers may still get something.
    Detaching,
    /// Something of it is still under way here.
    Draining,
    /// So many shards have yet to apply what it said.
    Passing(u32),
    /// It may go.
    Ready,
}

/// A connection on its way out.
#[derive(Debug)]
pub(crate) struct Departure {
    slot: u32,
    id: ConnectionId,
    to: ShardId,
    why: Box<str>,
    /// Tells its barriers from those of departures that were given up.
    number: u64,
    /// Until then it may take.
    until: Instant,
    stage: Stage,
    /// Its consumers wait for it where it goes.
    detaches: bool,
}

impl Departure {
    /// The connection, and where it is.
    pub(crate) fn connection(&self) -> (u32, ConnectionId) {
        (self.slot, self.id)
    }

    /// Where it is to go.
    pub(crate) fn to(&self) -> ShardId {
        self.to
    }

    /// By what shards tell that they have applied what the connection said.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether its consumers wait for it where it goes.
    pub(crate) fn detaches(&self) -> bool {
        self.detaches
    }

    /// Whether it is to be given up: it takes too long, or its connection is tied to the shard.
    pub(crate) fn must_end(&self, now: Now, connection: &Connection) -> bool {
        now.instant >= self.until || !connection.may_leave_to(self.to)
    }

    /// Whether its consumers may still get something.
    pub(crate) fn is_detaching(&self) -> bool {
        self.stage == Stage::Detaching
    }

    /// Whether nobody was asked yet whether what it said is applied.
    pub(crate) fn is_draining(&self) -> bool {
        self.stage == Stage::Draining
    }

    /// So many shards are asked for that.
    pub(crate) fn wait_for(&mut self, shards: u32) {
        self.stage = Stage::Passing(shards);
    }

    /// Whether all of them have told: the connection is handed over.
    pub(crate) fn may_go(&mut self) -> bool {
        if self.stage == Stage::Passing(0) {
            self.stage = Stage::Ready;
        }
        self.stage == Stage::Ready
    }

    /// Tells that the connection, which has this name, stays.
    pub(crate) fn tell_end(&self, name: &str, own: ShardId, out: &mut Outbox) {
        let text = format!("{name}: stays on shard {own}, was to go to {} ({})", self.to, self.why);
        out.log(Severity::Info, "connection-stays", text);
    }
}

/// All connections on their way out of a shard, and barriers of others that wait here.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    list: Vec<Departure>,
    count: u64,
    /// Barriers behind mail that waits for room in the log: from where, connection and number.
    waiting: Vec<(ShardId, ConnectionId, u64)>,
    /// Connections that an operator closed and that are not here, and why.
    expelled: VecDeque<(ConnectionId, Box<str>)>,
}

impl Departures {
    /// The earliest moment at which one is to be given up.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.list.iter().map(|departure| departure.until).min().unwrap_or(Instant::NEVER)
    }

    /// Whether this connection is on its way.
    pub(crate) fn has(&self, id: ConnectionId) -> bool {
        self.list.iter().any(|departure| departure.id == id)
    }

    /// Whether barriers of other shards wait here.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether this connection may begin to leave.
    pub(crate) fn may_begin(&self, id: ConnectionId) -> bool {
        self.list.len() < DEPARTURES_MAX && !self.has(id)
    }

    /// A connection begins to leave, for the reason `why`. The number by which other shards tell of it.
    pub(crate) fn begin(
        &mut self,
        now: Now,
        (slot, id): (u32, ConnectionId),
        to: ShardId,
        why: &str,
        detaches: bool,
    ) -> u64 {
        self.count += 1;
        self.list.push(Departure {
            slot,
            id,
            to,
            why: why.into(),
            number: self.count,
            until: now.instant + PATIENCE,
            stage: if detaches { Stage::Detaching } else { Stage::Draining },
            detaches,
        });
        self.count
    }

    /// All that are under way. Each that goes on comes back by [`Departures::keep`].
    pub(crate) fn take_all(&mut self) -> Vec<Departure> {
        core::mem::take(&mut self.list)
    }

    /// One goes on.
    pub(crate) fn keep(&mut self, departure: Departure) {
        self.list.push(departure);
    }

    /// The consumers of a connection that goes get nothing more.
    pub(crate) fn detached(&mut self, number: u64) {
        let found = self.list.iter_mut().find(|departure| departure.number == number);
        if let Some(departure) = found.filter(|departure| departure.is_detaching()) {
            departure.stage = Stage::Draining;
        }
    }

    /// Another shard has applied all that a connection sent there.
    pub(crate) fn passed(&mut self, number: u64) {
        let found = self.list.iter_mut().find(|departure| departure.number == number);
        if let Some(Departure { stage: Stage::Passing(waiting), .. }) = found {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Ends the departure of a connection that is handed over now. `Err` if it must not go yet; otherwise why it goes,
    /// if by a departure.
    pub(crate) fn end(&mut self, connection: &Connection) -> Result<Option<Box<str>>, ()> {
        let found = self.list.iter().position(|departure| departure.id == connection.id);
        let Some(place) = found else { return Ok(None) };
        let Departure { stage, to, .. } = self.list[place];
        if stage != Stage::Ready || !connection.may_leave_to(to) || !connection.is_quiet() {
            return Err(());
        }
        Ok(Some(self.list.swap_remove(place).why))
    }

    /// A barrier of another shard waits until all mail that came is applied.
    pub(crate) fn wait(&mut self, from: ShardId, connection: ConnectionId, number: u64) {
        self.waiting.push((from, connection, number));
    }

    /// All mail is applied: the barriers that waited for it.
    pub(crate) fn take_waiting(&mut self) -> Vec<(ShardId, ConnectionId, u64)> {
        core::mem::take(&mut self.waiting)
    }

    /// Remembers a connection that is to be closed should it come here.
    pub(crate) fn expel(&mut self, id: ConnectionId, why: &str) {
        if self.expelled.len() == EXPELLED_MAX {
            self.expelled.pop_front();
        }
        self.expelled.push_back((id, why.into()));
    }

    /// Why a connection that has come is to be closed.
    pub(crate) fn expelled(&self, id: ConnectionId) -> Option<&str> {
        let found = self.expelled.iter().find(|(expelled, _)| *expelled == id);
        found.map(|(_, why)| &**why)
    }
}
