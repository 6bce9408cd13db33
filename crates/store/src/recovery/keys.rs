//! The first writes of a run, and the keys of the log in the file `root`.

use alloc::sync::Arc;

use super::{Recovery, Refusal, Wait};
use crate::disk::{Action, File, Operations};
use crate::keys::{KEYS_OFFSETS, KEYS_RECORD_BYTES, Keys};
use crate::root::ROOT_STRIDE_BYTES;

impl Recovery {
    /// The first writes: from here on the log is this run's.
    pub(crate) fn take_over(&mut self, out: &mut Operations) {
        let has_root = self.files.iter().any(|(file, _)| matches!(file, File::Root(_)));
        if has_root {
            // The run before may have made files without the time to sync their names. This one relies on
            // all that it found.
            self.ask(Action::SyncDirectory(self.settings.log), Wait::Directory, out);
        } else {
            let file = File::Root(self.settings.log);
            let length = (2 * ROOT_STRIDE_BYTES) as u64;
            self.ask(Action::Create { file, length }, Wait::CreateRoot, out);
        }
        let has_new_key = self.keys.key.is_none() && !self.settings.key.is_none();
        if has_new_key {
            // Segments of a log that was begun without a key stay as they are.
            self.keys = Keys { key: self.settings.key, first: self.next_generation(), ..self.keys };
        }
        if has_root {
            self.write_keys(out);
        }
        self.mark_unclean(has_new_key, out);
        self.finish(out);
    }

    /// The keys that the file `root` names.
    pub(super) fn read_keys(&mut self, root: &[u8]) -> Result<(), Refusal> {
        let places = KEYS_OFFSETS.map(|at| root.get(at..at + KEYS_RECORD_BYTES));
        let is_empty = |place: &[u8]| place.iter().all(|byte| *byte == 0);
        self.has_no_key = places.iter().all(|place| place.is_some_and(is_empty));
        let copies = Keys::copies(root);
        let Some(keys) = copies.into_iter().flatten().next() else { return Ok(()) };
        if keys.log != self.settings.log {
            return Err(Refusal::Foreign(File::Root(self.settings.log)));
        }
        self.keys = keys;
        self.are_keys_written = copies == [Some(keys); 2];
        Ok(())
    }

    /// Writes the keys into the file `root`, if they are not there: before any segment that has them.
    pub(super) fn write_keys(&mut self, out: &mut Operations) {
        if self.keys.key.is_none() || core::mem::replace(&mut self.are_keys_written, true) {
            return;
        }
        let bytes = Arc::new(self.keys.encode().to_vec());
        for offset in KEYS_OFFSETS {
            let action = Action::Write {
                file: File::Root(self.settings.log),
                offset: offset as u64,
                bytes: bytes.clone(),
                start: 0,
                sync: true,
            };
            self.ask(action, Wait::Keys, out);
        }
    }

    /// The segment that is begun next.
    pub(super) fn next_generation(&self) -> u32 {
        self.generation_max.max(self.at.0).saturating_add(1)
    }

    /// From here on messages may be delivered: a stop that is not orderly must be seen as one,
    /// even if nothing was written by then. And a version that does not know the log's key must not go on with it,
    /// even if no segment has it yet.
    fn mark_unclean(&mut self, has_new_key: bool, out: &mut Operations) {
        let Some((index, root)) = self.root.as_mut() else { return };
        if !root.is_clean && !has_new_key {
            return;
        }
        // A damaged record beside it may be the one that said the opposite later.
        self.was_clean = root.is_clean && !self.is_root_damaged;
        root.is_clean = false;
        *index = 1 - *index;
        let action = Action::Write {
            file: File::Root(self.settings.log),
            offset: (*index * ROOT_STRIDE_BYTES) as u64,
            bytes: Arc::new(root.encode()),
            start: 0,
            sync: true,
        };
        self.ask(action, Wait::Unclean, out);
    }
}
