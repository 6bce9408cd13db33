//! Topic patterns as a trie of words.
//!
//! Words are interned, so that a node costs 40 bytes and a word of the message's key is hashed
//! once. All keys of a message are matched together from the root down: each node is visited once at
//! most, with the set of all places in the keys at which the pattern up to there may end. So the work
//! is bounded by the number of nodes, however patterns and keys are chosen, and does not grow with
//! the product of both, but for one bit for each place.

mod walk;

use super::meter::Meter;
use crate::binding::{Bindings, Link, Links, NONE};
use crate::key::Key;
use core::hash::{BuildHasher, Hasher};
use lepus_base::{ChunkedSlab, HashState, LinearTable};

pub(crate) use walk::Walk;

const ROOT: u32 = 0;
const STAR: u32 = u32::MAX - 1;
const HASH: u32 = u32::MAX - 2;
/// What looking at a node, a child or a word costs, in steps of a [`Meter`].
const LOOK_STEPS: u32 = 4;

#[derive(Clone, Debug)]
struct Node {
    parent: u32,
    /// The word on the edge from the parent: an interned word, [`STAR`] or [`HASH`].
    word: u32,
    /// The child behind `*`.
    star: u32,
    /// The child behind `#`.
    hash: u32,
    /// The first of the children behind plain words.
    first: u32,
    /// The neighbours among the parent's children behind plain words.
    next: u32,
    previous: u32,
    links: Links,
}

impl Node {
    fn new(parent: u32, word: u32) -> Node {
        Node {
            parent,
            word,
            star: NONE,
            hash: NONE,
            first: NONE,
            next: NONE,
            previous: NONE,
            links: Links::EMPTY,
        }
    }

    fn is_leaf(&self) -> bool {
        self.first == NONE && self.star == NONE && self.hash == NONE
    }
}

#[derive(Clone, Debug)]
struct Word {
    text: Key,
    /// Edges that carry the word.
    edges: u32,
    /// The child behind the only edge that ever did; [`NONE`] where there were several.
    only: u32,
}

/// The patterns of one topic exchange.
#[derive(Clone, Debug)]
pub(crate) struct Trie {
    nodes: ChunkedSlab<Node>,
    /// Children behind plain words, by (parent, word).
    edges: LinearTable<u32>,
    words: ChunkedSlab<Word>,
    by_text: LinearTable<u32>,
    state: HashState,
}

/// Bytes that a pattern takes where it shares half of its words with others, about.
pub(super) fn bytes_of(pattern: &str) -> usize {
    split(pattern).count() * (size_of::<Node>() + size_of::<Word>()) / 2
}

/// The words of a key or pattern: none for the empty one, and empty words between dots.
fn split(key: &str) -> impl Iterator<Item = &str> {
    let count = if key.is_empty() { 0 } else { usize::MAX };
    key.split('.').take(count)
}

impl Trie {
    pub(crate) fn new(state: HashState) -> Trie {
        let mut nodes = ChunkedSlab::new();
        nodes.insert(Node::new(NONE, NONE));
        Trie {
            nodes,
            edges: LinearTable::new(),
            words: ChunkedSlab::new(),
            by_text: LinearTable::new(),
            state,
        }
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.nodes.allocation_size()
            + self.words.allocation_size()
            + self.edges.allocation_size()
            + self.by_text.allocation_size()
    }

    /// Adds the binding under its routing key.
    pub(crate) fn insert(&mut self, bindings: &mut Bindings, place: u32) {
        let mut node = ROOT;
        for word in split(bindings.get(place).routing_key.as_str()) {
            node = self.child_or_insert(node, word);
        }
        bindings.get_mut(place).node = node;
        bindings.push_link(&mut self.nodes[node as usize].links, place);
    }

    /// Removes the binding, and the nodes that only it needed.
    pub(crate) fn remove(&mut self, bindings: &mut Bindings, place: u32) {
        let mut node = bindings.get(place).node;
        bindings.remove_link(&mut self.nodes[node as usize].links, place);
        while node != ROOT {
            let current = &self.nodes[node as usize];
            if !current.links.is_empty() || !current.is_leaf() {
                return;
            }
            let parent = current.parent;
            self.remove_leaf(node);
            node = parent;
        }
    }

    /// Calls `emit` for each binding whose pattern fits one of the keys, each once. It ends early
    /// when the meter has run out.
    pub(crate) fn walk<'k>(
        &self,
        keys: impl Iterator<Item = &'k str>,
        bindings: &Bindings,
        walk: &mut Walk,
        meter: &Meter,
        mut emit: impl FnMut(&[Link]),
    ) {
        walk.read(self, keys);
        while let Some(number) = walk.take(&self.nodes)
            && meter.spend(walk.steps())
        {
            let node = &self.nodes[number as usize];
            if walk.is_at_end() && !node.links.is_empty() {
                emit(bindings.links(&node.links));
            }
            if node.hash != NONE {
                walk.go_to(node.hash);
            }
            if !walk.has_words_left() {
                continue;
            }
            if node.star != NONE {
                walk.go_to(node.star);
            }
            if node.first != NONE {
                self.go_down(number, node.first, walk, meter);
            }
        }
        walk.rest();
    }

    /// Goes from a node to its children behind plain words: it looks at all children or at all
    /// words of the keys, whatever is less.
    fn go_down(&self, node: u32, first: u32, walk: &mut Walk, meter: &Meter) {
        if let Some(word) = walk.only_word() {
            if meter.spend(LOOK_STEPS)
                && let Some(child) = self.child(node, word)
            {
                walk.go_to(child);
            }
            return;
        }
        walk.sort_words(self.words.places());
        let before = walk.pending();
        let mut child = first;
        for _ in 0..walk.distinct() {
            let found = &self.nodes[child as usize];
            let mut steps = LOOK_STEPS;
            if let Some(place) = walk.place_of(found.word)
                && walk.follows(place, &mut steps)
            {
                walk.go_to(child);
            }
            child = found.next;
            if !meter.spend(steps) || child == NONE {
                return;
            }
        }
        // There are more children than words.
        walk.drop_behind(before);
        for place in 0..walk.distinct() {
            let mut steps = LOOK_STEPS;
            if walk.follows(place, &mut steps)
                && let Some(child) = self.child(node, walk.distinct_word(place))
            {
                walk.go_to(child);
            }
            if !meter.spend(steps) {
                return;
            }
        }
    }

    fn word(&self, text: &str) -> Option<u32> {
        let is_same = |&word: &u32| self.words[word as usize].text == *text;
        let hash = text_hash(self.state, text.as_bytes());
        self.by_text.find(hash, is_same).copied()
    }

    fn child(&self, parent: u32, word: u32) -> Option<u32> {
        if word == NONE {
            return None;
        }
        // Most words that make many patterns differ stand on one edge, and most nodes have one child: both are found
        // beside what was read already, where the table would be two more places in a large memory.
        let only = self.words[word as usize].only;
        if only != NONE {
            return (self.nodes[only as usize].parent == parent).then_some(only);
        }
        let first = self.nodes[parent as usize].first;
        if first == NONE {
            return None;
        }
        let found = &self.nodes[first as usize];
        if found.word == word || found.next == NONE {
            return (found.word == word).then_some(first);
        }
        let is_same = |&child: &u32| {
            let node = &self.nodes[child as usize];
            node.parent == parent && node.word == word
        };
        self.edges.find(edge_hash(parent, word), is_same).copied()
    }

    fn child_or_insert(&mut self, parent: u32, text: &str) -> u32 {
        if text == "*" || text == "#" {
            return self.wildcard_or_insert(parent, text == "#");
        }
        let word = self.intern(text);
        if let Some(child) = self.child(parent, word) {
            return child;
        }
        let next = self.nodes[parent as usize].first;
        let child = self.nodes.insert(Node { next, ..Node::new(parent, word) }) as u32;
        self.nodes[parent as usize].first = child;
        if next != NONE {
            self.nodes[next as usize].previous = child;
        }
        let entry = &mut self.words[word as usize];
        entry.edges += 1;
        entry.only = if entry.edges == 1 { child } else { NONE };
        let nodes = &self.nodes;
        self.edges.insert_unique(edge_hash(parent, word), child, |&child| {
            let node = &nodes[child as usize];
            edge_hash(node.parent, node.word)
        });
        child
    }

    fn wildcard_or_insert(&mut self, parent: u32, is_hash: bool) -> u32 {
        let node = &self.nodes[parent as usize];
        let existing = if is_hash { node.hash } else { node.star };
        if existing != NONE {
            return existing;
        }
        let word = if is_hash { HASH } else { STAR };
        let child = self.nodes.insert(Node::new(parent, word)) as u32;
        let node = &mut self.nodes[parent as usize];
        if is_hash {
            node.hash = child;
        } else {
            node.star = child;
        }
        child
    }

    fn intern(&mut self, text: &str) -> u32 {
        if let Some(word) = self.word(text) {
            return word;
        }
        let word = self.words.insert(Word { text: text.into(), edges: 0, only: NONE }) as u32;
        let (words, state) = (&self.words, self.state);
        self.by_text.insert_unique(text_hash(state, text.as_bytes()), word, |&word| {
            text_hash(state, words[word as usize].text.as_bytes())
        });
        word
    }

    fn remove_leaf(&mut self, node: u32) {
        let Node { parent, word, next, previous, .. } = self.nodes.remove(node as usize);
        let above = &mut self.nodes[parent as usize];
        match word {
            STAR => above.star = NONE,
            HASH => above.hash = NONE,
            _ => {
                if previous == NONE {
                    above.first = next;
                } else {
                    self.nodes[previous as usize].next = next;
                }
                if next != NONE {
                    self.nodes[next as usize].previous = previous;
                }
                self.edges.remove(edge_hash(parent, word), |&other| other == node);
                self.release(word);
            }
        }
    }

    fn release(&mut self, word: u32) {
        let entry = &mut self.words[word as usize];
        entry.edges -= 1;
        if entry.edges == 0 {
            let hash = text_hash(self.state, entry.text.as_bytes());
            self.by_text.remove(hash, |&other| other == word);
            self.words.remove(word as usize);
        }
    }
}

fn text_hash(state: HashState, text: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(text);
    hasher.finish()
}

/// Mixes two small numbers (the finalizer of SplitMix64).
fn edge_hash(parent: u32, word: u32) -> u64 {
    let mut z = (u64::from(parent) << 32 | u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
