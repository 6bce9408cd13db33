//! Where the records of a damaged message lie, and what is wrong with each.

use super::Failure;
use lepus_base::Position;
use lepus_store::disk::File;
use lepus_store::inspect::{self, Fault};
use lepus_store::place::{generation, offset, position};
use lepus_store::{Entry, Keys, Store};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What the disk does not give is looked for in pieces of this length.
const PIECE_BYTES: usize = 4096;

/// A record of a message.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) position: Position,
    /// `None` if the log has no such segment.
    pub(super) file: Option<File>,
    /// Bytes of its place.
    pub(super) length: usize,
    /// `None` if it is whole.
    pub(super) wrong: Option<String>,
    /// What lies there; zeros stand for what the disk does not give.
    pub(super) raw: Option<Raw>,
    /// The queues that a message is in, with its numbers there, as it seems.
    pub(super) queues: Vec<(u64, u64)>,
    /// Exchange and routing key, as it seems.
    pub(super) names: Option<(String, String)>,
    /// Where in its bytes the body is, or a part of it, as it seems.
    pub(super) body: Option<Range<usize>>,
    /// The rest of the body that it says, or seems to say, to follow elsewhere.
    rest: usize,
    /// The record that has its names.
    lender: Option<u32>,
}

/// Bytes of a file that is in memory: many places may share them.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    image: Rc<Image>,
    range: Range<usize>,
}

impl Raw {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.image.bytes[self.range.clone()]
    }
}

/// A record in the words of a list.
pub(super) fn in_words(part: &Part) -> String {
    let wrong = part.wrong.as_deref().unwrap_or("whole");
    match part.file {
        Some(file) => {
            format!("{file} at {}, {} bytes: {wrong}", offset(part.position), part.length)
        }
        None => wrong.to_owned(),
    }
}

/// The part of a segment that was written.
#[derive(Debug)]
struct Image {
    file: File,
    bytes: Vec<u8>,
    /// What the disk does not give of it.
    holes: Vec<Range<usize>>,
    error: Option<String>,
    /// The disk does not give all of it.
    is_unread: bool,
}

/// The places of a log's records, asked for in growing order of their messages.
#[derive(Debug)]
pub(super) struct Places {
    directory: PathBuf,
    keys: Keys,
    image: Option<Rc<Image>>,
    /// From where to where nothing whole is: who is looked for in there needs no search of their own.
    gap: Option<(Position, usize)>,
}

impl Places {
    pub(super) fn new(directory: &Path, keys: Keys) -> Places {
        Places { directory: directory.to_owned(), keys, image: None, gap: None }
    }

    /// Where the records of a message are.
    pub(super) fn of(&mut self, store: &Store, entry: &Entry) -> Result<Vec<Part>, Failure> {
        let first = self.part(store, entry.position)?;
        let (mut segment, mut rest) = (generation(first.position), first.rest);
        let lender = first.lender.map(|at| position(generation(first.position), at));
        let mut parts = vec![first];
        if let Some(lender) = lender {
            parts.push(self.part(store, lender)?);
        }
        while rest > 0 {
            let part = self.part(store, Store::next_part(segment))?;
            segment = segment.saturating_add(1);
            let found = part.body.as_ref().map_or(0, |body| body.len());
            let is_last = found == 0 || found > rest;
            rest = rest.saturating_sub(found);
            parts.push(part);
            if is_last {
                break;
            }
        }
        if parts.iter().all(|part| part.wrong.is_none()) {
            parts[0].wrong =
                Some("its parts do not fit together, or could not be read just now".into());
        }
        Ok(parts)
    }

    fn part(&mut self, store: &Store, at: Position) -> Result<Part, Failure> {
        let Some((at, file, end)) = store.record_place(at) else {
            return Ok(Part::nowhere(at));
        };
        self.load(file, end)?;
        Ok(self.look(at))
    }

    /// The damaged records of a segment that is kept for damage, and those that may be whole parts of a damaged
    /// message, but for those at `known` places. Where
    /// nothing of it is damaged any more, or nothing tells what was, it is all that was written of it: who
    /// lets go of the segment shall have what it was kept for.
    pub(super) fn of_segment(
        &mut self,
        number: u32,
        (file, end): (File, u32),
        known: &BTreeSet<Position>,
    ) -> Result<Vec<Part>, Failure> {
        let image = self.load(file, end)?;
        let gaps = inspect::damage(self.keys, number, &image.bytes).into_iter();
        let found =
            gaps.flat_map(|gap| inspect::damaged_records(self.keys, number, &image.bytes, gap));
        let mut places: BTreeSet<_> = found.map(|at| position(number, at)).collect();
        if places.is_empty() {
            return Ok(vec![image.all(number)]);
        }
        // What is missing of messages that they are parts of may be damaged elsewhere.
        let parts = inspect::message_parts(self.keys, number, &image.bytes).into_iter();
        places.extend(parts.map(|at| position(number, at)));
        let places = places.into_iter().filter(|at| !known.contains(at));
        Ok(places.map(|at| self.look(at)).collect())
    }

    /// Whether the disk did not give all of the segment that was asked for last.
    pub(super) fn is_unread(&self) -> bool {
        self.image.as_ref().is_some_and(|image| image.is_unread)
    }

    /// Has the bytes of a file in memory.
    fn load(&mut self, file: File, end: u32) -> Result<Rc<Image>, Failure> {
        if let Some(image) = self.image.as_ref().filter(|image| image.file == file) {
            return Ok(image.clone());
        }
        let image = Rc::new(Image::read(&self.directory, file, end as usize)?);
        self.gap = None;
        Ok(self.image.insert(image).clone())
    }

    /// What lies at a place of the file in memory.
    fn look(&mut self, at: Position) -> Part {
        let Some(image) = &self.image else { return Part::nowhere(at) };
        let file = image.file;
        let start = (offset(at) as usize).min(image.bytes.len());
        if let Some((from, until)) = self.gap
            && generation(from) == generation(at)
            && from <= at
            && start < until
        {
            let wrong = image.wrong(start..until, Some(Fault::Length));
            let raw = Some(Raw { image: image.clone(), range: start..until });
            return Part {
                file: Some(file),
                length: until - start,
                wrong,
                raw,
                ..Part::nowhere(at)
            };
        }
        let report = inspect::record_at(self.keys, generation(at), &image.bytes, offset(at));
        let length = report.bytes.len();
        if report.fault == Some(Fault::Length) {
            self.gap = Some((at, start + length));
        }
        let mut part = Part {
            file: Some(file),
            length,
            wrong: image.wrong(start..start + length, report.fault),
            raw: Some(Raw { image: image.clone(), range: start..start + length }),
            lender: report.lender.filter(|lender| *lender < offset(at)),
            ..Part::nowhere(at)
        };
        let body = report.message.as_ref().map(|message| message.body).or(report.fragment);
        part.body = body.map(|body| length - body.len()..length);
        if let Some(message) = report.message {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            part.queues =
                message.references.iter().map(|one| (one.lane.queue.0, one.seq)).collect();
            part.names = message.names.map(|(exchange, key)| (text(exchange), text(key)));
            part.rest = (message.body_bytes as usize).saturating_sub(message.body.len());
        }
        part
    }
}

impl Part {
    fn nowhere(at: Position) -> Part {
        let wrong = format!("segment {} of the log is missing", generation(at));
        Part {
            position: at,
            file: None,
            length: 0,
            wrong: Some(wrong),
            raw: None,
            queues: Vec::new(),
            names: None,
            body: None,
            rest: 0,
            lender: None,
        }
    }
}

impl Image {
    fn read(directory: &Path, file: File, end: usize) -> Result<Image, Failure> {
        let path = directory.join(file.to_string());
        let mut image =
            Image { file, bytes: Vec::new(), holes: Vec::new(), error: None, is_unread: false };
        let opened = std::fs::File::open(&path);
        let opened = opened.and_then(|found| Ok((found.metadata()?.len(), found)));
        let (length, found) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                image.is_unread = error.kind() != ErrorKind::NotFound;
                image.error = Some(error.to_string());
                return Ok(image);
            }
        };
        image.bytes = vec![0; end.min(usize::try_from(length).unwrap_or(usize::MAX))];
        if found.read_exact_at(&mut image.bytes, 0).is_ok() {
            return Ok(image);
        }
        for start in (0..image.bytes.len()).step_by(PIECE_BYTES) {
            let end = image.bytes.len().min(start + PIECE_BYTES);
            if let Err(error) = found.read_exact_at(&mut image.bytes[start..end], start as u64) {
                image.bytes[start..end].fill(0);
                image.holes.push(start..end);
                image.is_unread = true;
                image.error = Some(error.to_string());
            }
        }
        Ok(image)
    }

    /// All of the segment `number` as one place.
    fn all(self: &Rc<Self>, number: u32) -> Part {
        let length = self.bytes.len();
        let hidden = self.wrong(0..length, None);
        let wrong = hidden
            .unwrap_or_else(|| "no damaged record is found in it now: this is all of it".into());
        Part {
            file: Some(self.file),
            length,
            wrong: Some(wrong),
            raw: Some(Raw { image: self.clone(), range: 0..length }),
            ..Part::nowhere(position(number, 0))
        }
    }

    /// What is wrong with a record that lies there.
    fn wrong(&self, place: Range<usize>, fault: Option<Fault>) -> Option<String> {
        let is_hidden =
            self.holes.iter().any(|hole| hole.start < place.end && place.start < hole.end);
        if let Some(error) = self.error.as_ref().filter(|_| is_hidden || self.bytes.is_empty()) {
            return Some(format!("cannot be read from the disk: {error}"));
        }
        let text = match fault? {
            Fault::Missing => "the file ends before it",
            Fault::Length => "its checksum or length is wrong, up to what can be read again",
            Fault::Checksum => "its checksum is wrong",
            Fault::Kind => "another record is in its place",
        };
        Some(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_store::disk::LogId;

    #[test]
    fn messages_of_one_gap_share_its_bytes() {
        let file = File::Segment(LogId(1), 1);
        let bytes = vec![0; 100_000];
        let image =
            Rc::new(Image { file, bytes, holes: Vec::new(), error: None, is_unread: false });
        let mut places = Places::new(Path::new("nowhere"), Keys::none(LogId(1)));
        places.image = Some(image.clone());
        let parts: Vec<Part> =
            (0..1_000).map(|index| places.look(position(1, 64 + 80 * index))).collect();
        for (index, part) in parts.iter().enumerate() {
            let raw = part.raw.as_ref().expect("it is in the file");
            assert_eq!((raw.bytes().len(), part.length), (99_936 - 80 * index, raw.bytes().len()));
            // None has a copy of its own.
            assert!(std::ptr::eq(
                &raw const raw.bytes()[0],
                &raw const image.bytes[64 + 80 * index]
            ));
        }
    }
}
