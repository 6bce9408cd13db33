//! `lepus store check`: what each log has, and what of it is damaged. It opens the logs as a start
//! does and reads every message, but writes nothing.

use super::drive::{Drive, SEE_TO_DISK};
use super::known::Known;
use super::{Failure, Files, LogFiles, ROOT_BYTES, logs, read};
use crate::data_dir::DataDir;
use crate::definitions;
use crate::shard_logs::unusable;
use lepus_base::QueueId;
use lepus_broker::definitions::LOG;
use lepus_broker::journal::{RefusedLog, Standing};
use lepus_store::disk::File;
use lepus_store::inspect::{self, CheckpointReport};
use lepus_store::place::{generation, offset};
use lepus_store::{Damage, Root, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

/// What was found in one log.
#[derive(Debug, Default)]
struct Findings {
    damage: Vec<String>,
    notes: Vec<String>,
    /// What a start says that it refuses.
    refusal: Option<String>,
}

impl Findings {
    fn damage(&mut self, damage: &Damage) {
        let Damage { file, offset, bytes } = *damage;
        let what = match file {
            File::Root(_) if bytes == 0 => "it is missing".to_owned(),
            File::Root(_) => "no record of it is valid".to_owned(),
            File::Checkpoint(..) => "the checkpoint is missing or damaged".to_owned(),
            File::Index(_) => {
                format!("page {} of the index", offset / inspect::PAGE_BYTES as u64)
            }
            File::Segment(..) if is_whole_file(damage) => {
                "it, or what was before it, is missing".to_owned()
            }
            File::Segment(..) => "cannot be read".to_owned(),
        };
        self.damage.push(format!("{file} at {offset}, {bytes} bytes: {what}"));
    }

    fn write(&self, out: &mut impl Write) -> Result<usize, Failure> {
        for note in &self.notes {
            writeln!(out, "  note: {note}")?;
        }
        for damage in &self.damage {
            writeln!(out, "  damaged: {damage}")?;
        }
        if let Some(refusal) = &self.refusal {
            writeln!(out, "  a start is refused: {refusal}")?;
        }
        Ok(self.damage.len().max(usize::from(self.refusal.is_some())))
    }
}

/// Checks the logs of a directory. Whether all is well.
pub(super) fn check(files: &Files, out: &mut impl Write) -> Result<bool, Failure> {
    let wanted = logs(&files.directory, files.log)?;
    if DataDir::is_held(&files.directory) {
        writeln!(
            out,
            "note: a broker uses the directory; what it is writing now may look damaged here"
        )?;
    }
    let known = Known::look(&files.directory)?;
    let has_definitions = wanted.iter().any(|log| log.id == LOG);
    let mut places = 0;
    for log in wanted {
        let mut findings = Findings::default();
        let (root, checkpoint) = state(&files.directory, &log, &mut findings)?;
        summary(&log, root, checkpoint.as_ref(), out)?;
        match log.id {
            LOG => check_definitions(&files.directory, &known, &mut findings),
            _ => check_messages(&files.directory, &log, &known, &mut findings, out)?,
        }
        places += findings.write(out)?;
    }
    if files.log.is_none() && !has_definitions {
        let mut findings = Findings::default();
        writeln!(out, "{LOG}: it is missing")?;
        check_definitions(&files.directory, &known, &mut findings);
        places += findings.write(out)?;
    }
    match places {
        0 => writeln!(out, "no damage")?,
        1 => writeln!(out, "1 place is damaged")?,
        _ => writeln!(out, "{places} places are damaged")?,
    }
    Ok(places == 0)
}

fn check_definitions(directory: &Path, known: &Known, findings: &mut Findings) {
    match known {
        Known::Read { directory: defined, .. } => {
            findings.refusal = definitions::missing_log(directory, defined);
        }
        Known::Unreadable { damages, text } => {
            damages.iter().for_each(|damage| findings.damage(damage));
            findings.refusal = Some(text.clone());
        }
    }
}

fn check_messages(
    directory: &Path,
    log: &LogFiles,
    known: &Known,
    findings: &mut Findings,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut drive = Drive::looking(directory, Settings::new(log.id), log);
    let mut store = match drive.open()? {
        Ok(store) => store,
        Err(refusal) => {
            let refused = RefusedLog { log: log.id, refusal };
            findings.refusal = Some(unusable(directory, &refused, drive.disk()));
            return Ok(());
        }
    };
    let opened: BTreeSet<File> = drive.damages.iter().map(|found| found.file).collect();
    let mut kept = 0;
    let (mut lost, mut orphans) = (BTreeMap::<QueueId, u64>::new(), 0);
    let mut unread = BTreeMap::<QueueId, u64>::new();
    for (lane, slot) in Drive::lanes(&store) {
        let standing = known.standing(log.id, lane.queue);
        if standing == Some(Standing::Deleted) {
            continue;
        }
        if standing == Some(Standing::Orphaned) {
            orphans += store.count(slot).0;
        }
        let tally = drive.read_lane(&mut store, slot, &mut |_, _| Ok(()))?;
        kept += tally.kept;
        if tally.lost > 0 {
            *lost.entry(lane.queue).or_default() += tally.lost;
        }
        if tally.unread > 0 {
            *unread.entry(lane.queue).or_default() += tally.unread;
        }
    }
    writeln!(out, "  {kept} messages can be read")?;
    // Of a file that is not there nothing more needs to be said.
    let missing: BTreeSet<File> =
        drive.damages.iter().filter(|found| is_whole_file(found)).map(|found| found.file).collect();
    let told = |found: &&Damage| is_whole_file(found) || !missing.contains(&found.file);
    drive.damages.iter().filter(told).for_each(|damage| findings.damage(damage));
    // What this look met itself is told above.
    for (_, file, _) in store.damaged_segments() {
        if !opened.contains(&file) {
            findings.damage.push(format!(
                "{file}: an earlier start met damage in it, or in the rest of a message of it, and no queue knows what was lost; it is kept, \
                 and `lepus store damaged` lists, exports or drops what is damaged"
            ));
        }
    }
    for (queue, count) in lost {
        findings.damage.push(format!(
            "{count} messages of {}; they are kept and given to nobody, and `lepus store damaged` \
             lists them, exports or drops them",
            known.name(queue)
        ));
    }
    for (queue, count) in unread {
        findings.damage.push(format!(
            "{count} messages of {}: the disk does not give them, and they may be whole; {SEE_TO_DISK}",
            known.name(queue)
        ));
    }
    for (queue, count) in &drive.missing {
        findings.damage.push(format!("{count} messages of {} are missing", known.name(*queue)));
    }
    if orphans > 0 {
        findings.notes.push(format!(
            "{orphans} messages are of queues that the definitions do not have there; `lepus store \
             orphans` lists them, and moves them to a queue, exports or drops them"
        ));
    }
    findings.notes.extend(drive.failures().iter().map(ToString::to_string));
    Ok(())
}

/// Whether all of a file is missing.
fn is_whole_file(damage: &Damage) -> bool {
    (damage.offset, damage.bytes) == (0, 0)
}

/// Root and checkpoint, as far as they can be read.
fn state(
    directory: &Path,
    log: &LogFiles,
    findings: &mut Findings,
) -> Result<(Option<Root>, Option<CheckpointReport>), Failure> {
    let file = File::Root(log.id);
    if !log.has(file) {
        return Ok((None, None));
    }
    let report = inspect::root(&read(directory, file, ROOT_BYTES)?);
    for at in report.damaged.iter().filter(|_| report.valid.is_some()) {
        findings.notes.push(format!("{file} at {at}: a record is torn, the other is valid"));
    }
    let root = report.valid.filter(|root| root.log == log.id);
    let Some(root) = root else { return Ok((None, None)) };
    let file = File::Checkpoint(log.id, root.number);
    if !log.has(file) {
        return Ok((Some(root), None));
    }
    Ok((Some(root), inspect::checkpoint(&read(directory, file, root.length)?, &root).ok()))
}

fn summary(
    log: &LogFiles,
    root: Option<Root>,
    checkpoint: Option<&CheckpointReport>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let is_segment = |file: &File| matches!(file, File::Segment(..));
    let bytes: u64 = log.files.iter().map(|(_, length)| length).sum();
    let segments = log.files.iter().filter(|(file, _)| is_segment(file));
    let held: u64 = segments.clone().map(|(_, length)| length).sum();
    writeln!(out, "{}: {bytes} bytes, {held} of them in {} segments", log.id, segments.count())?;
    match (root, checkpoint) {
        (Some(root), Some(checkpoint)) => {
            let stop = if root.is_clean { ", after an orderly stop" } else { "" };
            let live: u64 = checkpoint.lanes.iter().map(|(_, live)| live).sum();
            let lanes = checkpoint.lanes.len();
            let (segment, at) = (generation(checkpoint.position), offset(checkpoint.position));
            writeln!(
                out,
                "  checkpoint {}{stop}: {live} messages in {lanes} lanes, {} pages of the index; \
                 the log goes on behind {segment}:{at}",
                root.number,
                checkpoint.pages.len(),
            )?;
        }
        _ => writeln!(out, "  no checkpoint")?,
    }
    Ok(())
}
