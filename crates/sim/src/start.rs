//! The start of a process from its disk, as the server does it.

use lepus_base::Now;
use lepus_broker::definitions::{self, DefinitionsLog, Draft};
use lepus_broker::directory::Change;
use lepus_store::Settings;

use crate::disk::SimDisk;

/// Recovers the log of definitions; what it says. `first` goes into an empty one.
pub(crate) fn definitions(
    disk: &mut SimDisk,
    template: Settings,
    shards: u16,
    now: Now,
    first: &[Change],
) -> Result<(DefinitionsLog, Vec<Change>), String> {
    let settings = Settings { log: definitions::LOG, ..template };
    let mut run = |operation| disk.run(operation);
    let mut draft =
        Draft::open(settings, now, shards, &mut run).map_err(|error| error.to_string())?;
    if let Some(damage) = draft.damages().first() {
        return Err(format!("the log of definitions is damaged: {damage:?}"));
    }
    if draft.is_new() {
        for change in first {
            let applied = draft.apply(now, change, &mut run).map_err(|error| error.to_string())?;
            applied.map_err(|refusal| refusal.text.to_string())?;
        }
    }
    let (changes, log) = draft.finish(now, &mut run).map_err(|error| error.to_string())?;
    Ok((log, changes))
}
