//! Repair of the log of definitions: what can be read becomes a new snapshot, what is missing is
//! named.

use super::Repair;
use crate::definitions::{has_run, lost};
use crate::random;
use crate::store::drive::CYCLES_MAX;
use crate::store::known::Known;
use crate::store::{Failure, read_if_there, unreadable};
use lepus_broker::definitions::salvage::{self, Salvaged};
use lepus_broker::definitions::{LOG, Record, RecoveryError};
use lepus_broker::directory::Directory;
use lepus_reactor::files::sync_directory;
use lepus_store::disk::{File, LogId};
use lepus_store::place::position;
use lepus_store::{AppendError, Damage, Keys, Store, inspect};
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;

/// Where queues live does not matter here; a shard is needed to say it.
const SHARDS: u16 = 1;

impl Repair {
    /// Repairs the definitions, if they need it, and makes logs that their queues name and that are
    /// missing.
    pub(super) fn definitions(mut self, out: &mut impl Write) -> Result<(), Failure> {
        let mut store = self.open()?;
        let records = store.take_opaque();
        if records.is_empty() && self.drive.damages.is_empty() && has_run(&self.drive.directory) {
            return Err(Failure::Text(lost(&self.drive.directory)));
        }
        let hash = random::hash_state().map_err(Failure::Text)?;
        let read = salvage::check(&records, hash, SHARDS);
        if let (Ok(directory), true) = (&read, self.drive.damages.is_empty()) {
            writeln!(
                out,
                "{LOG}: no damage, definitions of {} queues and exchanges; nothing was changed",
                directory.object_count()
            )?;
            return self.make_missing(directory, out);
        }
        let torn = self.torn(store.keys(), &records)?;
        let unreadable = |error: RecoveryError| {
            let path = self.drive.directory.join(LOG.to_string());
            Failure::Text(format!("{}: {error}; nothing was changed", path.display()))
        };
        let saved = salvage::salvage(&records, &torn, hash, SHARDS).map_err(unreadable)?;
        if saved.directory.accounts().vhosts().len() == 0 {
            let path = self.drive.directory.join(LOG.to_string());
            return Err(Failure::Text(format!(
                "nothing of the definitions in {} can be read; nothing was changed: restore the \
                 directory from a backup",
                path.display()
            )));
        }
        self.rewrite(store, &saved.directory)?;
        self.see_whether_it_starts()?;
        self.report(&saved, out)?;
        self.make_missing(&saved.directory, out)
    }

    /// What is left of records that are not whole.
    fn torn(&self, keys: Keys, records: &[Record]) -> Result<Vec<Record>, Failure> {
        let whole: BTreeSet<_> = records.iter().map(|(at, _)| *at).collect();
        let mut torn = Vec::new();
        for Damage { file, offset, bytes } in &self.drive.damages {
            if !matches!(file, File::Segment(..)) {
                continue;
            }
            let directory = &self.drive.directory;
            let image = match read_if_there(directory, *file, inspect::SEGMENT_BYTES_MAX) {
                Ok(image) => image,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(unreadable(&directory.join(file.to_string()), &error)),
            };
            let Some(generation) = inspect::segment(keys, &image, |_| ()).generation else {
                continue;
            };
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            let end = usize::try_from(offset.saturating_add(*bytes)).unwrap_or(usize::MAX);
            for (offset, payload) in inspect::torn_records(keys, generation, &image, start..end) {
                let at = position(generation, offset);
                if !whole.contains(&at) {
                    torn.push((at, payload.to_vec()));
                }
            }
        }
        Ok(torn)
    }

    /// A snapshot takes the place of all that the log has.
    fn rewrite(&mut self, mut store: Store, directory: &Directory) -> Result<(), Failure> {
        store.go_on(self.drive.now(), &mut self.drive.out);
        self.drive.carry_out(&mut store)?;
        store.begin_snapshot_apart();
        for record in salvage::snapshot(directory) {
            let mut waited = 0;
            while let Err(error) = store.append_opaque(&record) {
                match error {
                    AppendError::Full if waited < CYCLES_MAX => waited += 1,
                    AppendError::Full => return Err(self.drive.no_room()),
                    _ => return Err(Failure::Text(format!("a definition: {error:?}"))),
                }
                self.drive.cycle(&mut store)?;
            }
        }
        store.end_snapshot(false);
        // The second checkpoint shows what the first made free.
        for _ in 0..2 {
            self.drive.rest(&mut store)?;
        }
        Ok(())
    }

    /// Looks at what was written as a start does.
    fn see_whether_it_starts(&self) -> Result<(), Failure> {
        match Known::look(&self.drive.directory)? {
            Known::Read { .. } => Ok(()),
            Known::Unreadable { text, .. } => Err(Failure::Text(format!(
                "{LOG} was written anew, and a start is refused all the same: {text}"
            ))),
        }
    }

    fn report(&self, saved: &Salvaged, out: &mut impl Write) -> Result<(), Failure> {
        let count = saved.directory.object_count();
        writeln!(out, "{LOG}: repaired; definitions of {count} queues and exchanges were kept")?;
        for Damage { file, offset, bytes } in &self.drive.damages {
            writeln!(out, "  damaged: {file} at {offset}, {bytes} bytes")?;
        }
        for text in &saved.doubtful {
            writeln!(out, "  taken from damaged bytes, see whether it is right: {text}")?;
        }
        for text in &saved.missing {
            writeln!(out, "  lost: {text}")?;
        }
        if saved.missing.is_empty() {
            writeln!(
                out,
                "  nothing is known to be lost; look whether users and queues are there"
            )?;
        }
        Ok(())
    }

    /// A log that queues name and that is missing is made anew, empty: otherwise no start follows.
    fn make_missing(&self, directory: &Directory, out: &mut impl Write) -> Result<(), Failure> {
        for (number, queues) in directory.logs() {
            let log = LogId(1 + u32::from(number));
            let path = self.drive.directory.join(log.to_string());
            if path.exists() {
                continue;
            }
            let made = DirBuilder::new().mode(0o700).create(&path);
            made.and_then(|()| sync_directory(&self.drive.directory)).map_err(|error| {
                Failure::Text(format!("cannot make {}: {error}", path.display()))
            })?;
            writeln!(out, "{log}: it was missing and is made anew, empty, for {queues} queues")?;
        }
        Ok(())
    }
}
