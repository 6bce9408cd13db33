//! The places of pages in the index file: which are free, which come next, and how long the file is.
//!
//! The lowest free place is taken first, so that the end of the file comes free. What is free there is
//! cut off, and a file of which most is free has its last pages moved down.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::lane::PAGE_BYTES;

/// So many free places at the end are worth being cut off, and so many in all that pages are moved.
const CUT_MIN: u32 = 16;
/// And at least this part of the file.
const CUT_PART: u32 = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct IndexFile {
    /// Those that no page has, and no valid checkpoint names; all below `end`.
    free: BTreeSet<u32>,
    /// From here on all are free.
    end: u32,
    /// Places that the file has, at most.
    length: u32,
    /// Places being written, and whether they came free meanwhile.
    writing: BTreeMap<u32, bool>,
    /// The file is being cut off here: nothing behind may be written before that is done.
    cut: Option<u32>,
}

impl IndexFile {
    /// What a start found: places that pages have, and the length of the file in bytes.
    pub(crate) fn after(mut used: Vec<u32>, file_bytes: u64) -> IndexFile {
        used.sort_unstable();
        let end = used.last().map_or(0, |last| last + 1);
        let free = (0..end).filter(|place| used.binary_search(place).is_err()).collect();
        let length = u32::try_from(file_bytes.div_ceil(PAGE_BYTES as u64)).unwrap_or(u32::MAX);
        IndexFile { free, end, length: length.max(end), ..IndexFile::default() }
    }

    /// A place for a page that is about to be written; `None` while there is none.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let place = match self.free.pop_first() {
            Some(place) => place,
            None if self.cut.is_some() => return None,
            None => {
                self.end += 1;
                self.length = self.length.max(self.end);
                self.end - 1
            }
        };
        self.writing.insert(place, false);
        Some(place)
    }

    /// The write of a place ended.
    pub(crate) fn written(&mut self, place: u32) {
        if self.writing.remove(&place) == Some(true) {
            self.free(place);
        }
    }

    /// These are nobody's any more; what is still being written is used again afterwards.
    pub(crate) fn release(&mut self, places: impl IntoIterator<Item = u32>) {
        for place in places {
            match self.writing.get_mut(&place) {
                Some(is_released) => *is_released = true,
                None => self.free(place),
            }
        }
    }

    fn free(&mut self, place: u32) {
        self.free.insert(place);
        while self.free.last().is_some_and(|last| last + 1 == self.end) {
            self.free.pop_last();
            self.end -= 1;
        }
    }

    /// Begins to cut off what is free at the end, if that is enough: how long the file is to be, in bytes.
    pub(crate) fn begin_cut(&mut self) -> Option<u64> {
        if self.cut.is_some() || !self.is_worth_cutting((self.length - self.end) as usize) {
            return None;
        }
        self.cut = Some(self.end);
        Some(u64::from(self.end) * PAGE_BYTES as u64)
    }

    /// Whether so many places are a good part of the file.
    pub(crate) fn is_worth_cutting(&self, places: usize) -> bool {
        places >= CUT_MIN.max(self.length / CUT_PART) as usize
    }

    /// It was cut off, or could not be.
    pub(crate) fn end_cut(&mut self, is_done: bool) {
        if let Some(end) = self.cut.take().filter(|_| is_done) {
            self.length = end.max(self.end);
        }
    }

    /// Whether more is free than used: then it is worth to move pages down.
    pub(crate) fn is_sparse(&self) -> bool {
        let free = self.free.len() as u32;
        free >= CUT_MIN && free > self.end / 2
    }

    /// Behind the last place in use.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Whether a page at `place` would have a lower one if it were written anew.
    pub(crate) fn has_lower(&self, place: u32) -> bool {
        self.free.first().is_some_and(|first| *first < place)
    }

    /// Whether a page may be there that can be moved.
    pub(crate) fn is_used(&self, place: u32) -> bool {
        place < self.end && !self.free.contains(&place) && !self.writing.contains_key(&place)
    }

    /// Bytes on disk, at most.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.length) * PAGE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_at_the_end_is_cut_off_once_nothing_is_written_there() {
        let mut file = IndexFile::after(Vec::new(), 0);
        for place in 0..40 {
            assert_eq!(file.take(), Some(place));
        }
        (0..39).for_each(|place| file.written(place));
        file.release(10..40);
        assert_eq!(file.begin_cut(), None, "the last one is still being written");
        file.written(39);
        assert_eq!(file.begin_cut(), Some(10 * PAGE_BYTES as u64));
        assert_eq!(file.take(), None, "what is written behind the cut would be cut off");
        file.release([3]);
        assert_eq!(file.take(), Some(3));
        file.end_cut(true);
        assert_eq!((file.take(), file.bytes()), (Some(10), 11 * PAGE_BYTES as u64));
    }

    #[test]
    fn a_start_finds_the_gaps_and_the_free_end() {
        let mut file = IndexFile::after([5, 1, 3].into(), 100 * PAGE_BYTES as u64);
        assert_eq!(file.begin_cut(), Some(6 * PAGE_BYTES as u64));
        file.end_cut(false);
        assert_eq!([file.take(), file.take(), file.take(), file.take()], [0, 2, 4, 6].map(Some));
    }
}
