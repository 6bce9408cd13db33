//! The places in a message's keys at which patterns may end, node by node.

use super::{HASH, LOOK_STEPS, Node, ROOT, STAR, Trie, split};
use crate::binding::NONE;
use alloc::vec::Vec;
use lepus_base::ChunkedSlab;

/// Numbers of a set that are made and looked at in one step.
const PARTS_PER_STEP: usize = 2;
/// Numbers and places that are kept for the next walk; what was needed beyond that is given back.
const KEPT_MAX: usize = 16 * 1024;

/// What a walk needs, kept between walks so that it allocates nothing.
///
/// The places of all keys stand in one row: before each word of the first key and behind its last
/// one, then those of the second key. A set of places is one bit for each of them, 64 in a number.
/// Only the numbers of a set's range count, the others may be anything.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// By place, the word that follows: an interned one, [`NONE`] for others and behind a key.
    words: Vec<u32>,
    /// The places before the first word of a key.
    starts: Vec<u64>,
    /// The places before a word.
    inner: Vec<u64>,
    /// Numbers that a set has.
    width: usize,
    /// Whether what follows is known of these keys: one key that can go one way only does not need it.
    is_sorted: bool,
    /// The interned words of the keys, each once.
    distinct: Vec<Seen>,
    /// Before which places they stand, one word after the other.
    sorted: Vec<u32>,
    /// Sets of these places, for words that stand before more of them than a set has numbers.
    dense: Vec<u64>,
    /// By interned word: the walk that saw it last, and where it is among the distinct ones.
    known: Vec<(u32, u32)>,
    walk: u32,
    /// Nodes that are yet to be visited, and how deep they are.
    nodes: Vec<(u32, u32)>,
    /// By depth on the way to the node that is visited: where the pattern may end there.
    sets: Vec<u64>,
    ranges: Vec<(u32, u32)>,
    depth: usize,
    /// What there is in the set of the node that is visited.
    found: Found,
}

/// A word of the keys.
#[derive(Debug)]
struct Seen {
    word: u32,
    /// Where its places begin among all.
    first: u32,
    count: u32,
    /// Where its set begins among all, [`NONE`] where it has none.
    dense: u32,
}

/// A summary of a set.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// A place behind a key is in it.
    is_at_end: bool,
    /// A place before a word is in it.
    has_words_left: bool,
    /// The place before a word, if there is only one.
    only: Option<u32>,
}

impl Walk {
    /// Takes keys apart, and begins at the root, before the first word of each.
    pub(super) fn read<'k>(&mut self, trie: &Trie, keys: impl Iterator<Item = &'k str>) {
        self.words.clear();
        self.starts.clear();
        self.inner.clear();
        self.is_sorted = false;
        for key in keys {
            set_bit(&mut self.starts, self.words.len());
            for word in split(key) {
                let word = trie.word(word).unwrap_or(NONE);
                set_bit(&mut self.inner, self.words.len());
                self.words.push(word);
            }
            self.words.push(NONE);
        }
        self.width = self.words.len().div_ceil(64);
        self.starts.resize(self.width, 0);
        self.inner.resize(self.width, 0);
        self.nodes.clear();
        self.nodes.push((ROOT, 0));
    }

    /// Finds out which words the keys have, each once.
    fn see_words(&mut self, interned: usize) {
        self.walk = self.walk.wrapping_add(1);
        if self.walk == 0 {
            self.known.fill((0, 0));
            self.walk = 1;
        }
        if self.known.len() < interned {
            self.known.resize(interned, (0, 0));
        }
        self.distinct.clear();
        for &word in self.words.iter().filter(|word| **word != NONE) {
            let (walk, known) = &mut self.known[word as usize];
            if *walk == self.walk {
                self.distinct[*known as usize].count += 1;
            } else {
                (*walk, *known) = (self.walk, self.distinct.len() as u32);
                self.distinct.push(Seen { word, first: 0, count: 1, dense: NONE });
            }
        }
    }

    /// Finds out before which places each word stands, once. All interned words are numbers below `interned`.
    pub(super) fn sort_words(&mut self, interned: usize) {
        if self.is_sorted {
            return;
        }
        self.is_sorted = true;
        self.see_words(interned);
        self.dense.clear();
        self.sorted.clear();
        let mut first = 0;
        for seen in &mut self.distinct {
            seen.first = first;
            first += seen.count;
            if seen.count as usize > self.width {
                seen.dense = self.dense.len() as u32;
                self.dense.resize(self.dense.len() + self.width, 0);
            }
            seen.count = 0;
        }
        self.sorted.resize(first as usize, 0);
        for (place, &word) in self.words.iter().enumerate() {
            if word == NONE {
                continue;
            }
            let seen = &mut self.distinct[self.known[word as usize].1 as usize];
            self.sorted[(seen.first + seen.count) as usize] = place as u32;
            seen.count += 1;
            if seen.dense != NONE {
                self.dense[seen.dense as usize + place / 64] |= 1 << (place % 64);
            }
        }
    }

    /// Number of distinct words.
    pub(super) fn distinct(&self) -> usize {
        self.distinct.len()
    }

    pub(super) fn distinct_word(&self, place: usize) -> u32 {
        self.distinct[place].word
    }

    /// Where an interned word is among the distinct ones of the keys.
    pub(super) fn place_of(&self, word: u32) -> Option<usize> {
        let (walk, place) = self.known[word as usize];
        (walk == self.walk).then_some(place as usize)
    }

    /// Has a node below the one that is visited be visited, too. One behind a word has to follow.
    pub(super) fn go_to(&mut self, node: u32) {
        self.nodes.push((node, self.depth as u32 + 1));
    }

    /// Nodes that are yet to be visited.
    pub(super) fn pending(&self) -> usize {
        self.nodes.len()
    }

    /// Forgets the nodes that were added when there were so many.
    pub(super) fn drop_behind(&mut self, nodes: usize) {
        self.nodes.truncate(nodes);
    }

    /// The next node, and where the pattern may end there.
    pub(super) fn take(&mut self, nodes: &ChunkedSlab<Node>) -> Option<u32> {
        let (node, depth) = self.nodes.pop()?;
        self.depth = depth as usize;
        let end = (self.depth + 1) * self.width;
        if self.sets.len() < end {
            self.sets.resize(end, 0);
        }
        if self.ranges.len() <= self.depth {
            self.ranges.resize(self.depth + 1, (0, 0));
        }
        let range = match self.depth.checked_sub(1) {
            None => {
                self.sets[..self.width].copy_from_slice(&self.starts);
                (0, self.width)
            }
            Some(above) => self.descend(above, nodes[node as usize].word),
        };
        self.ranges[self.depth] = (range.0 as u32, range.1 as u32);
        self.look();
        Some(node)
    }

    /// Makes the set behind a word from the one above. Returns its range.
    fn descend(&mut self, above: usize, word: u32) -> (usize, usize) {
        let (first, last) = self.ranges[above];
        let (first, last) = (first as usize, last as usize);
        let (from, to) = self.sets[above * self.width..].split_at_mut(self.width);
        let inner = &self.inner[..];
        match word {
            HASH => {
                // The pattern may end wherever it could before, and behind that in the same key. The
                // carry of the sum goes from the first of these places to the key's end.
                let (mut part, mut carried) = (first, false);
                while part < last || carried {
                    let reached = if part < last { from[part] } else { 0 };
                    let inner = self.inner[part];
                    let (sum, is_over) = inner.overflowing_add(reached & inner);
                    let (sum, is_over_too) = sum.overflowing_add(u64::from(carried));
                    to[part] = (sum ^ inner) | reached;
                    carried = is_over || is_over_too;
                    part += 1;
                }
                (first, part)
            }
            STAR => shift(from, to, (first, last), |part| inner[part]),
            _ => {
                if !self.is_sorted {
                    // There was one place only, and this word follows.
                    return shift(from, to, (first, last), |part| inner[part]);
                }
                let seen = &self.distinct[self.known[word as usize].1 as usize];
                if seen.dense != NONE {
                    let places = &self.dense[seen.dense as usize..][..self.width];
                    return shift(from, to, (first, last), |part| places[part]);
                }
                let places = &self.sorted[seen.first as usize..][..seen.count as usize];
                let mut range = (0, 0);
                for &place in places {
                    if is_in(from, (first, last), place) {
                        let behind = place as usize + 1;
                        if range.1 == 0 {
                            range = (behind / 64, behind / 64);
                        }
                        while range.1 <= behind / 64 {
                            to[range.1] = 0;
                            range.1 += 1;
                        }
                        to[behind / 64] |= 1 << (behind % 64);
                    }
                }
                range
            }
        }
    }

    /// Looks what there is in the set.
    fn look(&mut self) {
        let (first, last) = self.range();
        let set = &self.sets[self.depth * self.width..][first..last];
        let inner = &self.inner[first..last];
        let (mut behind, mut more, mut parts) = (0, 0, 0);
        for (&reached, &inner) in set.iter().zip(inner) {
            behind |= reached & !inner;
            let left = reached & inner;
            more |= left & left.wrapping_sub(1);
            parts += u64::from(left != 0);
        }
        let only = (parts == 1 && more == 0).then(|| {
            let part = set.iter().zip(inner).position(|(reached, inner)| reached & inner != 0);
            let part = part.unwrap_or_default();
            ((first + part) * 64) as u32 + (set[part] & inner[part]).trailing_zeros()
        });
        self.found = Found { is_at_end: behind != 0, has_words_left: parts > 0, only };
    }

    fn range(&self) -> (usize, usize) {
        let (first, last) = self.ranges[self.depth];
        (first as usize, last as usize)
    }

    /// What visiting the node costs.
    pub(super) fn steps(&self) -> u32 {
        let (first, last) = self.range();
        LOOK_STEPS + ((last - first) / PARTS_PER_STEP) as u32
    }

    /// Whether the pattern may end behind all words of a key.
    pub(super) fn is_at_end(&self) -> bool {
        self.found.is_at_end
    }

    /// Whether it may end before a word.
    pub(super) fn has_words_left(&self) -> bool {
        self.found.has_words_left
    }

    /// The word that comes next, if that is the same wherever the pattern may end because it can end
    /// at one place only. [`NONE`] where the word is in no pattern.
    pub(super) fn only_word(&self) -> Option<u32> {
        self.found.only.map(|place| self.words[place as usize])
    }

    /// Whether one of the distinct words comes next anywhere. Adds to what that costs.
    pub(super) fn follows(&self, word: usize, steps: &mut u32) -> bool {
        let seen = &self.distinct[word];
        let range = self.range();
        let set = &self.sets[self.depth * self.width..][..self.width];
        if seen.dense != NONE {
            *steps += ((range.1 - range.0) / PARTS_PER_STEP) as u32;
            let places = &self.dense[seen.dense as usize..][..self.width];
            return (range.0..range.1).any(|part| set[part] & places[part] != 0);
        }
        *steps += seen.count / 2;
        let places = &self.sorted[seen.first as usize..][..seen.count as usize];
        places.iter().any(|&place| is_in(set, range, place))
    }

    /// Gives back what few messages need.
    pub(super) fn rest(&mut self) {
        if self.sets.capacity() > KEPT_MAX {
            self.sets = Vec::new();
        }
        for list in [&mut self.words, &mut self.sorted] {
            if list.capacity() > KEPT_MAX {
                *list = Vec::new();
            }
        }
        if self.nodes.capacity() > KEPT_MAX {
            self.nodes = Vec::new();
        }
        if self.dense.capacity() > KEPT_MAX {
            self.dense = Vec::new();
        }
        if self.distinct.capacity() > KEPT_MAX {
            self.distinct = Vec::new();
        }
    }
}

/// The places behind those in both sets.
fn shift(
    from: &[u64],
    to: &mut [u64],
    (first, last): (usize, usize),
    other: impl Fn(usize) -> u64,
) -> (usize, usize) {
    let mut carried = 0;
    for part in first..last {
        let both = from[part] & other(part);
        to[part] = both << 1 | carried;
        carried = both >> 63;
    }
    if carried == 0 {
        return (first, last);
    }
    to[last] = carried;
    (first, last + 1)
}

fn is_in(set: &[u64], (first, last): (usize, usize), place: u32) -> bool {
    let part = place as usize / 64;
    (first..last).contains(&part) && set[part] >> (place % 64) & 1 == 1
}

/// Adds a place that is beyond all others.
fn set_bit(set: &mut Vec<u64>, place: usize) {
    if set.len() <= place / 64 {
        set.resize(place / 64 + 1, 0);
    }
    set[place / 64] |= 1 << (place % 64);
}
