//! `lepus store dump`: every record of a log, one a line.

use super::{Failure, Files, ROOT_BYTES, logs, read};
use lepus_store::disk::File;
use lepus_store::inspect::{self, Content, MessagePart, Part, SEGMENT_BYTES_MAX};
use lepus_store::place::{generation, offset};
use lepus_store::{Keys, LEVEL_TRANSIENT, Lane};
use std::fmt::Write as _;
use std::io::Write;

/// Bytes of a body that are shown.
const PREVIEW_BYTES: usize = 40;
/// References and runs that are shown of one record.
const SHOWN_MAX: usize = 8;

/// Prints the records of the logs, segments in their order.
pub(super) fn dump(
    files: &Files,
    only: Option<u32>,
    out: &mut impl Write,
) -> Result<bool, Failure> {
    for log in logs(&files.directory, files.log)? {
        let root = File::Root(log.id);
        let root =
            if log.has(root) { read(&files.directory, root, ROOT_BYTES)? } else { Vec::new() };
        let keys = Keys::of_root(log.id, &root);
        let wanted = log.segments().filter(|slot| only.is_none_or(|only| only == *slot));
        let mut order = Vec::new();
        for slot in wanted {
            let bytes = read(&files.directory, File::Segment(log.id, slot), SEGMENT_BYTES_MAX)?;
            order.push((slot, inspect::segment(keys, &bytes, |_| ())));
        }
        order.sort_by_key(|(slot, report)| (report.generation, *slot));
        for (slot, report) in order {
            let Some(found) = report.generation else {
                writeln!(out, "{} {slot} 0 unused", log.id.0)?;
                continue;
            };
            let (batches, records) = (report.batches, report.records);
            writeln!(
                out,
                "{} {slot} 0 segment {found} of the log, {batches} batches, {records} records",
                log.id.0
            )?;
            segment(
                keys,
                slot,
                &read(&files.directory, File::Segment(log.id, slot), SEGMENT_BYTES_MAX)?,
                out,
            )?;
        }
    }
    Ok(true)
}

fn segment(keys: Keys, slot: u32, bytes: &[u8], out: &mut impl Write) -> std::io::Result<()> {
    let mut written = Ok(());
    let mut line = String::new();
    inspect::segment(keys, bytes, |part| {
        line.clear();
        part_line(&part, &mut line);
        if written.is_ok() {
            written = writeln!(out, "{} {slot} {line}", keys.log.0);
        }
    });
    written
}

fn part_line(part: &Part<'_>, line: &mut String) {
    // Writing to a string cannot fail.
    let _ = match part {
        Part::Batch(batch) => write!(
            line,
            "{} batch {}: {} records, {} bytes, synced {}:{}",
            batch.offset,
            batch.number,
            batch.records,
            batch.bytes,
            generation(batch.synced),
            offset(batch.synced),
        ),
        Part::Gap(gap) => write!(line, "{} unreadable: {} bytes", gap.offset, gap.bytes),
        Part::Record(offset, content) => {
            let _ = write!(line, "{offset} ");
            content_line(content, line)
        }
    };
}

fn lane(lane: Lane) -> String {
    let priority = lane.level & !LEVEL_TRANSIENT;
    let transient = if lane.is_transient() { " (transient)" } else { "" };
    match priority {
        0 => format!("queue {}{transient}", lane.queue.0),
        _ => format!("queue {} priority {priority}{transient}", lane.queue.0),
    }
}

fn content_line(content: &Content<'_>, line: &mut String) -> std::fmt::Result {
    match content {
        Content::Message(message) => message_line(message, line),
        Content::Fragment(bytes) => {
            write!(line, "fragment of {} bytes {}", bytes.len(), preview(bytes))
        }
        Content::Settles(runs) => {
            write!(line, "settled:")?;
            for (index, (found, first, end)) in runs.iter().enumerate().take(SHOWN_MAX) {
                let comma = if index > 0 { ";" } else { "" };
                write!(line, "{comma} {} {first}", lane(*found))?;
                if end - first > 1 {
                    write!(line, " to {}", end - 1)?;
                }
            }
            more(runs.len(), line)
        }
        Content::QueueDropped(queue) => write!(line, "queue {} dropped", queue.0),
        Content::Opaque(bytes) => {
            // Users' salts and digests are among them.
            write!(line, "definition of {} bytes, not shown", bytes.len())
        }
        Content::Filler(bytes) => write!(line, "filler of {bytes} bytes"),
        Content::Unknown(kind) => write!(line, "unknown record of kind {kind}"),
    }
}

fn message_line(message: &MessagePart<'_>, line: &mut String) -> std::fmt::Result {
    write!(line, "message")?;
    for reference in message.references.iter().take(SHOWN_MAX) {
        write!(line, " {} number {}", lane(reference.lane), reference.seq)?;
        if reference.deadline_millis > 0 {
            write!(line, " until {}", reference.deadline_millis)?;
        }
    }
    more(message.references.len(), line)?;
    if let Some(origin) = message.origin {
        write!(line, ", a copy from {}:{}", generation(origin), offset(origin))?;
    }
    match message.names {
        Some((exchange, key)) => {
            write!(line, ", exchange {}, key {}", preview(exchange), preview(key))?;
        }
        None => write!(line, ", names unreadable")?,
    }
    let (properties, bytes) = (message.properties.len(), message.body_bytes);
    write!(line, ", {properties} bytes of properties, {bytes} of body {}", preview(message.body))
}

fn more(count: usize, line: &mut String) -> std::fmt::Result {
    match count.saturating_sub(SHOWN_MAX) {
        0 => Ok(()),
        rest => write!(line, " and {rest} more"),
    }
}

/// The beginning of some bytes, in printable characters.
fn preview(bytes: &[u8]) -> String {
    let (shown, dots) = match bytes.get(..PREVIEW_BYTES) {
        Some(first) if bytes.len() > PREVIEW_BYTES => (first, "…"),
        _ => (bytes, ""),
    };
    format!("\"{}\"{dots}", shown.escape_ascii())
}
