//! The definitions before the shards start: what the log has, and what is added to it.

use alloc::vec::Vec;
use core::fmt;

use lepus_base::{HashState, Now, QueueId};
use lepus_store::disk::{Completion, DiskError, File, Operation, Operations};
use lepus_store::{Damage, Event, Settings, Store};

use super::log::{DefinitionsLog, Recorded};
use super::replay::RecoveryError;
use crate::directory::{Change, Checked, Directory, Request};
use crate::refusal::Refusal;

/// Carries one disk operation out, and waits for it.
pub type Run<'a> = &'a mut dyn FnMut(Operation) -> Completion;

/// Why there are no definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The log's files cannot be used.
    Store(lepus_store::Refusal),
    /// Parts of the log cannot be read: what they said is missing.
    Damaged(Vec<Damage>),
    /// The log was read, and what it says cannot be understood.
    Recovery(RecoveryError),
    /// A file cannot be written or synced.
    Stopped(File, DiskError),
    /// The disk has no room.
    Full,
}

impl OpenError {
    /// What cannot be read, if that is why.
    #[must_use]
    pub fn damages(&self) -> &[Damage] {
        match self {
            OpenError::Damaged(damages) => damages,
            _ => &[],
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Store(lepus_store::Refusal::Disk(file, error)) => {
                write!(f, "{file} cannot be read or written ({error:?})")
            }
            OpenError::Store(lepus_store::Refusal::Version(file, version)) => {
                write!(f, "{file} was written by another version of the format ({version})")
            }
            OpenError::Store(lepus_store::Refusal::Foreign(file)) => {
                write!(f, "{file} belongs to another log")
            }
            OpenError::Damaged(damages) => {
                for (index, Damage { file, offset, bytes }) in damages.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{bytes} bytes at offset {offset} of {file}")?;
                }
                f.write_str(" cannot be read")
            }
            OpenError::Recovery(error) => error.fmt(f),
            OpenError::Stopped(file, error) => write!(f, "{file} cannot be written ({error:?})"),
            OpenError::Full => f.write_str("the disk has no room for it"),
        }
    }
}

/// A directory that nobody uses yet, with its log.
#[derive(Debug)]
pub struct Draft {
    /// What exists.
    pub directory: Directory,
    log: DefinitionsLog,
    deleted: Vec<QueueId>,
    out: Operations,
}

impl Draft {
    /// Recovers the log. Queues get the homes that they have with `shards` shards; `hash` keys the maps of
    /// the directory.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing was written then, unless it is [`OpenError::Stopped`]: what is damaged
    /// stays so for everybody to see until the operator has decided.
    pub fn open(
        settings: Settings,
        now: Now,
        hash: HashState,
        shards: u16,
        run: Run<'_>,
    ) -> Result<Draft, OpenError> {
        Draft::look(settings, now, hash, shards, run)?.go_on(now, run)
    }

    /// As [`Draft::open`], but for who only wants to know what a start would find: nothing is written.
    ///
    /// # Errors
    /// [`OpenError`] as the start would have it.
    pub fn look(
        settings: Settings,
        now: Now,
        hash: HashState,
        shards: u16,
        run: Run<'_>,
    ) -> Result<Draft, OpenError> {
        let mut out = Operations::default();
        let mut store = Store::open(Settings { asks_first: true, ..settings }, &mut out);
        let damages = carry_out(&mut store, now, run, &mut out)?;
        if !damages.is_empty() {
            return Err(OpenError::Damaged(damages));
        }
        let (log, directory, deleted) =
            DefinitionsLog::recover(store, settings, hash, shards).map_err(OpenError::Recovery)?;
        Ok(Draft { directory, log, deleted, out })
    }

    /// What was found is used: the log is written to from here on.
    ///
    /// # Errors
    /// [`OpenError`] for a log that cannot be written to.
    pub fn go_on(mut self, now: Now, run: Run<'_>) -> Result<Draft, OpenError> {
        self.log.go_on(now, &mut self.out);
        while !self.out.list.is_empty() {
            for operation in core::mem::take(&mut self.out.list) {
                self.log.complete(now, run(operation), &mut self.out);
            }
        }
        match self.log.refusal() {
            Some(refusal) => Err(OpenError::Store(refusal)),
            None => self.fail().map(|()| self),
        }
    }

    /// Whether the log has said nothing: this is the first start.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.log.is_empty()
    }

    /// Ids of queues, and of what delayed exchanges held back, that the log has and that are deleted, in
    /// growing order. Others may have been deleted longer ago.
    #[must_use]
    pub fn deleted(&self) -> &[QueueId] {
        &self.deleted
    }

    /// Fulfils a request. Whether anything had to be changed for it, or its refusal.
    ///
    /// # Errors
    /// [`OpenError`] for a log that takes nothing any more.
    pub fn carry_out(
        &mut self,
        now: Now,
        request: &Request,
        run: Run<'_>,
    ) -> Result<Result<bool, Refusal>, OpenError> {
        match self.directory.check(request) {
            Ok(Checked::Already(_)) => Ok(Ok(false)),
            Ok(Checked::Change(change)) => {
                let applied = self.apply(now, &change, run)?;
                Ok(applied.map(|()| true))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Records a change and applies it.
    ///
    /// # Errors
    /// [`OpenError`] for a log that takes nothing any more.
    pub fn apply(
        &mut self,
        now: Now,
        change: &Change,
        run: Run<'_>,
    ) -> Result<Result<(), Refusal>, OpenError> {
        let mut has_waited = false;
        loop {
            match self.log.record(&self.directory, change) {
                Recorded::Nothing | Recorded::Logged => break,
                Recorded::Refused(refusal) => {
                    self.fail()?;
                    return Ok(Err(refusal));
                }
                Recorded::Full if has_waited => return Err(OpenError::Full),
                Recorded::Full => {
                    self.drive(now, run)?;
                    has_waited = true;
                }
            }
        }
        self.directory.apply_whole(change);
        Ok(Ok(()))
    }

    /// Has everything synced. Afterwards each shard is given a copy of the directory, and shard 0 the log.
    ///
    /// # Errors
    /// [`OpenError`] for a disk that does not take it.
    pub fn finish(
        mut self,
        now: Now,
        run: Run<'_>,
    ) -> Result<(Directory, DefinitionsLog), OpenError> {
        // Written by an earlier version, which kept what they hold back in memory only.
        while let Some(change) = self.directory.next_holding() {
            if self.apply(now, &change, run)?.is_err() {
                return Err(OpenError::Full);
            }
        }
        // The broker ended before the log had all that followed from a deletion.
        while let Some(change) = self.directory.next_left_behind() {
            if self.apply(now, &change, run)?.is_err() {
                return Err(OpenError::Full);
            }
        }
        self.drive(now, run)?;
        if !self.log.is_synced(self.log.end()) {
            return Err(OpenError::Full);
        }
        Ok((self.directory.without_gaps(), self.log))
    }

    /// Carries out whatever the log wants, until it is synced and wants nothing.
    fn drive(&mut self, now: Now, run: Run<'_>) -> Result<(), OpenError> {
        self.log.want_synced();
        loop {
            self.log.flush(now, &mut self.out);
            if self.out.list.is_empty() {
                return self.fail();
            }
            for operation in core::mem::take(&mut self.out.list) {
                self.log.complete(now, run(operation), &mut self.out);
            }
        }
    }

    fn fail(&self) -> Result<(), OpenError> {
        match self.log.failure() {
            Some((file, error)) => Err(OpenError::Stopped(file, error)),
            None => Ok(()),
        }
    }
}

/// Carries operations out until the store wants none. What cannot be read.
fn carry_out(
    store: &mut Store,
    now: Now,
    run: Run<'_>,
    out: &mut Operations,
) -> Result<Vec<Damage>, OpenError> {
    let (mut events, mut damages) = (Vec::new(), Vec::new());
    while !out.list.is_empty() {
        for operation in core::mem::take(&mut out.list) {
            store.complete(now, run(operation), out);
        }
    }
    store.take_events(&mut events);
    for event in events {
        match event {
            Event::Refused(refusal) => return Err(OpenError::Store(refusal)),
            Event::Stopped(file, error) => return Err(OpenError::Stopped(file, error)),
            Event::Damaged(damage) => damages.push(damage),
            _ => {}
        }
    }
    Ok(damages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use lepus_amqp::table::Table;
    use lepus_base::VhostId;
    use lepus_store::simulation::Disk;

    const NOW: Now = Now { instant: lepus_base::Instant(1), wall_millis: 1 };

    fn open(run: Run<'_>) -> Draft {
        Draft::open(DefinitionsLog::settings(), NOW, HashState::default(), 1, run)
            .expect("the log can be read")
    }

    fn declare(name: &str) -> Request {
        Request::DeclareExchange {
            vhost: "/".into(),
            name: name.into(),
            kind: "x-delayed-message".into(),
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: Table::new().with("x-delayed-type", "direct"),
        }
    }

    fn holdings(draft: &Draft) -> Vec<Option<QueueId>> {
        let found = ["x", "y"].map(|name| draft.directory.exchange(VhostId(1), name));
        found.map(|info| info.expect("it is declared").holding).into()
    }

    #[test]
    fn delayed_exchanges_of_an_earlier_version_get_their_ids_at_the_next_start_and_keep_them() {
        let mut disk = Disk::new(1);
        let mut run = |operation| {
            disk.submit(&mut vec![operation]);
            disk.step().expect("an operation that was submitted ends")
        };
        let mut draft = open(&mut run);
        for change in Directory::preset("guest", b"guest", [7; 4], "/") {
            draft.apply(NOW, &change, &mut run).expect("a log").expect("no refusal");
        }
        for name in ["x", "y"] {
            // Without the id it lies in the log as an earlier version wrote it.
            let Ok(Checked::Change(Change::ExchangeDeclared(mut info))) =
                draft.directory.check(&declare(name))
            else {
                unreachable!("the exchange is new")
            };
            info.holding = None;
            let change = Change::ExchangeDeclared(info);
            draft.apply(NOW, &change, &mut run).expect("a log").expect("no refusal");
        }
        draft.drive(NOW, &mut run).expect("a log");
        let draft = open(&mut run);
        assert_eq!(holdings(&draft), [None, None]);
        drop(draft.finish(NOW, &mut run).expect("a log"));
        let draft = open(&mut run);
        let given = holdings(&draft);
        assert!(given.iter().all(Option::is_some) && given[0] != given[1], "{given:?}");
        assert!(Some(QueueId(draft.directory.next_queue())) > given[0].max(given[1]));
        drop(draft.finish(NOW, &mut run).expect("a log"));
        assert_eq!(holdings(&open(&mut run)), given);
    }
}
