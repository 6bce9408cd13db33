//! `lepus store check`: what each log has, and what of it is damaged.

use super::{Call, Failure, LogFiles, logs, read};
use lepus_base::Position;
use lepus_store::CHECKPOINT_VERSION;
use lepus_store::Root;
use lepus_store::disk::{File, LogId};
use lepus_store::inspect::{self, CheckpointReport, HeaderError, SegmentReport};
use lepus_store::place::{generation, offset, position};
use lepus_store::segment::FORMAT_VERSION;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// What was found in one log.
#[derive(Debug, Default)]
struct Findings {
    damage: Vec<String>,
    notes: Vec<String>,
}

impl Findings {
    fn damage(&mut self, file: File, at: u64, bytes: u64, what: impl Display) {
        self.damage.push(format!("{file} at {at}, {bytes} bytes: {what}"));
    }

    fn version(&mut self, file: File, version: u16) {
        let known = match file {
            File::Checkpoint(..) => CHECKPOINT_VERSION,
            _ => FORMAT_VERSION,
        };
        let text = format!("format version {version}; this lepus reads up to {known}");
        self.damage(file, 0, 0, text);
    }
}

/// A segment's file and what it amounts to.
struct Found {
    file: File,
    bytes: u64,
    report: SegmentReport,
}

/// Checks the logs of a directory. Whether all is well.
pub(super) fn check(call: &Call, out: &mut impl Write) -> Result<bool, Failure> {
    let mut damaged = 0;
    for log in logs(&call.directory, call.log)? {
        let mut findings = Findings::default();
        let (root, checkpoint) = state(&call.directory, &log, &mut findings)?;
        pages(&call.directory, log.id, checkpoint.as_ref(), &mut findings)?;
        let mut found = Vec::new();
        for slot in log.segments() {
            let file = File::Segment(log.id, slot);
            let bytes = read(&call.directory, file)?;
            let report = inspect::segment(log.id, &bytes, |_| ());
            found.push(Found { file, bytes: bytes.len() as u64, report });
        }
        let records = segments(log.id, &found, checkpoint.as_ref(), &mut findings);
        summary(&log, root, checkpoint.as_ref(), (&found, records), out)?;
        for note in &findings.notes {
            writeln!(out, "  note: {note}")?;
        }
        for damage in &findings.damage {
            writeln!(out, "  damaged: {damage}")?;
        }
        damaged += findings.damage.len();
    }
    match damaged {
        0 => writeln!(out, "no damage")?,
        1 => writeln!(out, "1 place is damaged")?,
        _ => writeln!(out, "{damaged} places are damaged")?,
    }
    Ok(damaged == 0)
}

/// Root and checkpoint, as far as they can be read.
fn state(
    directory: &Path,
    log: &LogFiles,
    findings: &mut Findings,
) -> Result<(Option<Root>, Option<CheckpointReport>), Failure> {
    let file = File::Root(log.id);
    if !log.has(file) {
        if log.segments().next().is_some() {
            findings.damage(file, 0, 0, "the file is missing");
        }
        return Ok((None, None));
    }
    let report = inspect::root(&read(directory, file)?);
    if let Some(version) = report.version {
        findings.version(file, version);
    }
    for at in &report.damaged {
        if report.valid.is_some() {
            findings.notes.push(format!("{file} at {at}: a record is torn, the other is valid"));
        } else {
            let bytes = inspect::ROOT_RECORD_BYTES as u64;
            findings.damage(file, *at, bytes, "no record of it is valid");
        }
    }
    let Some(root) = report.valid else { return Ok((None, None)) };
    if root.log != log.id {
        findings.damage(file, 0, 0, format!("it belongs to {}", root.log));
        return Ok((None, None));
    }
    let file = File::Checkpoint(log.id, root.number);
    if !log.has(file) {
        findings.damage(file, 0, 0, "the file is missing");
        return Ok((Some(root), None));
    }
    let bytes = read(directory, file)?;
    match inspect::checkpoint(&bytes, &root) {
        Ok(checkpoint) => return Ok((Some(root), Some(checkpoint))),
        Err(HeaderError::Version(version)) => findings.version(file, version),
        Err(HeaderError::Invalid) => {
            findings.damage(file, 0, bytes.len() as u64, "the checkpoint is damaged");
        }
    }
    Ok((Some(root), None))
}

/// Pages of the index that the checkpoint names.
fn pages(
    directory: &Path,
    log: LogId,
    checkpoint: Option<&CheckpointReport>,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let Some(checkpoint) = checkpoint.filter(|found| !found.pages.is_empty()) else {
        return Ok(());
    };
    let file = File::Index(log);
    let bytes = read(directory, file)?;
    for &number in &checkpoint.pages {
        let at = number as usize * inspect::PAGE_BYTES;
        if !inspect::is_page_whole(number, bytes.get(at..).unwrap_or_default()) {
            let length = inspect::PAGE_BYTES as u64;
            findings.damage(file, at as u64, length, format!("page {number} of the index"));
        }
    }
    Ok(())
}

/// Finds damage in segments. Records in those that belong to the log.
fn segments(
    log: LogId,
    found: &[Found],
    checkpoint: Option<&CheckpointReport>,
    findings: &mut Findings,
) -> u64 {
    let begin = checkpoint.map_or(Position(0), |checkpoint| checkpoint.position);
    let synced = found.iter().map(|found| found.report.synced).max();
    let synced = synced.unwrap_or_default().max(begin);
    let rows = checkpoint.map_or(&[][..], |checkpoint| &checkpoint.segments);
    let mut records = 0;
    let mut order: Vec<&Found> = found.iter().collect();
    order.sort_by_key(|found| found.report.generation);
    let mut expected: Option<(&Found, u64)> = None;
    for found in order {
        let Found { file, report, .. } = found;
        match report.header {
            Ok(header) if header.log != log => {
                findings.damage(*file, 0, 0, format!("it belongs to {}", header.log));
                continue;
            }
            Err(HeaderError::Version(version)) => {
                findings.version(*file, version);
                continue;
            }
            _ => {}
        }
        let Some(this) = report.generation else { continue };
        let row = rows.iter().find(|row| row.generation == this);
        let is_tail = this >= generation(begin);
        if !is_tail && row.is_none_or(|row| !row.is_alive) {
            // It is free, or will be.
            continue;
        }
        records += report.records;
        let end = row.filter(|_| !is_tail).map_or(report.end, |row| row.used_bytes);
        gaps(found, end.max(report.end), synced, findings);
        if let Some((before, number)) = expected.filter(|_| is_tail)
            && let Some((first, _)) = report.first
            && first > number
            && position(before.report.generation.unwrap_or(0), before.report.end) < synced
        {
            let what = format!("batches {number} to {} are missing", first - 1);
            findings.damage(before.file, before.report.end.into(), 0, what);
        }
        expected = Some((found, report.next.0)).filter(|_| is_tail);
    }
    for row in rows.iter().filter(|row| row.is_alive) {
        let is_there = found.iter().any(|found| found.report.generation == Some(row.generation));
        if !is_there && let Some(slot) = row.slot {
            let file = File::Segment(log, slot);
            let what = format!("segment {} of the log, with {} messages", row.generation, row.live);
            findings.damage(file, 0, row.used_bytes.into(), what);
        }
    }
    records
}

/// Bytes of a segment that cannot be read: damage where they were synced once.
fn gaps(found: &Found, end: u32, synced: Position, findings: &mut Findings) {
    let Found { file, report, .. } = found;
    let this = report.generation.unwrap_or(0);
    for gap in &report.gaps {
        let (at, bytes) = (u64::from(gap.offset), u64::from(gap.bytes));
        if position(this, gap.offset) < synced {
            findings.damage(*file, at, bytes, "no records, or damaged ones");
        } else {
            findings.notes.push(format!("{file} at {at}, {bytes} bytes: a write that did not end"));
        }
    }
    let missing = end.saturating_sub(report.end);
    let is_synced = this < generation(synced) || end <= offset(synced);
    if missing > 0 && is_synced {
        findings.damage(*file, report.end.into(), missing.into(), "records were here");
    }
}

fn summary(
    log: &LogFiles,
    root: Option<Root>,
    checkpoint: Option<&CheckpointReport>,
    (found, records): (&[Found], u64),
    out: &mut impl Write,
) -> Result<(), Failure> {
    let bytes: u64 = log.files.iter().map(|(_, length)| length).sum();
    let held: u64 = found.iter().map(|found| found.bytes).sum();
    writeln!(out, "{}: {bytes} bytes, {held} of them in {} segments", log.id, found.len())?;
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
    writeln!(out, "  {records} records in segments in use")?;
    Ok(())
}
