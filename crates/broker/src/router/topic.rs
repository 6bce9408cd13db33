//! Topic patterns as a trie of words.
//!
//! Words are interned, so that a node costs 40 bytes and a word of the message's key is hashed
//! once. A key is matched from the root down: each node is visited once at most, with the set of all
//! places in the key at which the pattern up to there may end. So the work is bounded by the number
//! of nodes, however patterns and key are chosen, and does not grow with the product of both.

use crate::binding::{Bindings, Link, Links, NONE};
use crate::key::Key;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use hashbrown::HashTable;
use lepus_base::{HashState, Slab};

const ROOT: u32 = 0;
const STAR: u32 = u32::MAX - 1;
const HASH: u32 = u32::MAX - 2;

#[derive(Debug)]
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

#[derive(Debug)]
struct Word {
    text: Key,
    /// Edges that carry the word.
    edges: u32,
}

/// The patterns of one topic exchange.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Slab<Node>,
    /// Children behind plain words, by (parent, word).
    edges: HashTable<u32>,
    words: Slab<Word>,
    by_text: HashTable<u32>,
    state: HashState,
}

/// What a walk needs, kept between walks so that it allocates nothing.
///
/// A set of places in the key is as many numbers as the key needs, 64 places in each: place 0 is
/// before the first word, the last one behind all words.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Numbers that a set has.
    width: usize,
    /// The key's words in their order: interned ones, [`NONE`] for others.
    words: Vec<u32>,
    /// The interned ones, each once.
    distinct: Vec<u32>,
    /// Before which places each of these stands: a set for each.
    places: Vec<u64>,
    /// By interned word: the walk that saw it last, and where it is among the distinct ones.
    known: Vec<(u32, u32)>,
    walk: u32,
    /// Nodes that are yet to be visited, and a set for each: where the pattern may end there.
    nodes: Vec<u32>,
    reached: Vec<u64>,
    /// The set of the node that is visited.
    current: Vec<u64>,
    /// Nodes, children and words that were looked at.
    #[cfg(test)]
    pub(super) steps: u64,
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
        let mut nodes = Slab::new();
        nodes.insert(Node::new(NONE, NONE));
        Trie {
            nodes,
            edges: HashTable::new(),
            words: Slab::new(),
            by_text: HashTable::new(),
            state,
        }
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        // The slab's own mark makes a node of 36 bytes one of 40.
        self.nodes.capacity() * (size_of::<Node>() + 4)
            + self.words.capacity() * size_of::<Option<Word>>()
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

    /// Calls `emit` for each binding whose pattern fits `key`, each once.
    pub(crate) fn walk(
        &self,
        key: &str,
        bindings: &Bindings,
        walk: &mut Walk,
        mut emit: impl FnMut(&[Link]),
    ) {
        self.walk_nodes(key, walk, |_, links| emit(bindings.links(links)));
    }

    /// Calls `emit` for each binding whose pattern fits one of the keys, each once.
    #[cold]
    pub(crate) fn walk_each<'k>(
        &self,
        keys: impl Iterator<Item = &'k str>,
        bindings: &Bindings,
        walk: &mut Walk,
        mut emit: impl FnMut(&[Link]),
    ) {
        let mut is_emitted = vec![false; self.nodes.capacity()];
        for key in keys {
            self.walk_nodes(key, walk, |node, links| {
                if !core::mem::replace(&mut is_emitted[node as usize], true) {
                    emit(bindings.links(links));
                }
            });
        }
    }

    /// Calls `emit` for each node at which a pattern that fits `key` ends, each once.
    fn walk_nodes(&self, key: &str, walk: &mut Walk, mut emit: impl FnMut(u32, &Links)) {
        walk.read(self, key);
        walk.begin();
        while let Some(number) = walk.take() {
            let node = &self.nodes[number as usize];
            if walk.is_at_end() && !node.links.is_empty() {
                emit(number, &node.links);
            }
            if node.hash != NONE {
                walk.go_anywhere_behind(node.hash);
            }
            if !walk.has_words_left() {
                continue;
            }
            if node.star != NONE {
                walk.go_behind_any_word(node.star);
            }
            if node.first != NONE {
                self.go_down(number, node.first, walk);
            }
        }
    }

    /// Goes from a node to its children behind plain words: it looks at all children or at all
    /// words of the key, whatever is less.
    fn go_down(&self, node: u32, first: u32, walk: &mut Walk) {
        if let Some(word) = walk.only_word() {
            walk.count();
            if let Some(child) = self.child(node, word) {
                walk.go_behind_any_word(child);
            }
            return;
        }
        let before = walk.nodes.len();
        let mut child = first;
        for _ in 0..walk.distinct.len() {
            let found = &self.nodes[child as usize];
            walk.count();
            if let Some(place) = walk.place_of(found.word) {
                walk.go_behind(child, place);
            }
            child = found.next;
            if child == NONE {
                return;
            }
        }
        // There are more children than words.
        walk.drop_behind(before);
        for place in 0..walk.distinct.len() {
            walk.count();
            if let Some(child) = self.child(node, walk.distinct[place]) {
                walk.go_behind(child, place);
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
        self.words[word as usize].edges += 1;
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
        let word = self.words.insert(Word { text: text.into(), edges: 0 }) as u32;
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
                remove_number(&mut self.edges, edge_hash(parent, word), node);
                self.release(word);
            }
        }
    }

    fn release(&mut self, word: u32) {
        let entry = &mut self.words[word as usize];
        entry.edges -= 1;
        if entry.edges == 0 {
            let hash = text_hash(self.state, entry.text.as_bytes());
            remove_number(&mut self.by_text, hash, word);
            self.words.remove(word as usize);
        }
    }
}

impl Walk {
    /// Takes a key apart.
    fn read(&mut self, trie: &Trie, key: &str) {
        self.walk = self.walk.wrapping_add(1);
        if self.walk == 0 {
            self.known.fill((0, 0));
            self.walk = 1;
        }
        if self.known.len() < trie.words.capacity() {
            self.known.resize(trie.words.capacity(), (0, 0));
        }
        self.words.clear();
        self.words.extend(split(key).map(|word| trie.word(word).unwrap_or(NONE)));
        self.width = self.words.len() / 64 + 1;
        self.distinct.clear();
        self.places.clear();
        for (place, &word) in self.words.iter().enumerate() {
            if word == NONE {
                continue;
            }
            let (walk, known) = &mut self.known[word as usize];
            if *walk != self.walk {
                (*walk, *known) = (self.walk, self.distinct.len() as u32);
                self.distinct.push(word);
                self.places.resize(self.places.len() + self.width, 0);
            }
            self.places[*known as usize * self.width + place / 64] |= 1 << (place % 64);
        }
    }

    /// Begins at the root, before the first word.
    fn begin(&mut self) {
        self.nodes.clear();
        self.reached.clear();
        self.nodes.push(ROOT);
        self.reached.push(1);
        self.reached.resize(self.width, 0);
    }

    /// The next node; its set is the current one from now on.
    fn take(&mut self) -> Option<u32> {
        let node = self.nodes.pop()?;
        let start = self.reached.len() - self.width;
        self.current.clear();
        self.current.extend_from_slice(&self.reached[start..]);
        self.reached.truncate(start);
        self.count();
        Some(node)
    }

    /// Whether the pattern may end behind all words.
    fn is_at_end(&self) -> bool {
        let place = self.words.len();
        self.current[place / 64] >> (place % 64) & 1 == 1
    }

    /// Goes to a node behind `#`: the pattern may end wherever it could before, and behind that.
    fn go_anywhere_behind(&mut self, node: u32) {
        self.nodes.push(node);
        let mut is_behind = false;
        for &part in &self.current {
            self.reached.push(if is_behind { u64::MAX } else { part | part.wrapping_neg() });
            is_behind |= part != 0;
        }
    }

    /// Takes the place behind all words out of the current set. Whether others are left.
    fn has_words_left(&mut self) -> bool {
        let place = self.words.len();
        // `#` sets places that the key does not have, too.
        self.current[place / 64] &= (1 << (place % 64)) - 1;
        self.current.iter().any(|&part| part != 0)
    }

    /// The word that comes next, if that is the same wherever the pattern may end because it can end
    /// at one place only. [`NONE`] where the word is in no pattern.
    fn only_word(&self) -> Option<u32> {
        let mut parts = self.current.iter().zip((0..).step_by(64)).filter(|(part, _)| **part != 0);
        let (part, start) = parts.next()?;
        let is_one = part.is_power_of_two() && parts.next().is_none();
        is_one.then(|| self.words[start + part.trailing_zeros() as usize])
    }

    /// Goes to a node behind whatever words come next.
    fn go_behind_any_word(&mut self, node: u32) {
        self.nodes.push(node);
        let mut carried = 0;
        for &part in &self.current {
            self.reached.push(part << 1 | carried);
            carried = part >> 63;
        }
    }

    /// Goes to a node behind one of the distinct words, if that comes next anywhere.
    fn go_behind(&mut self, node: u32, word: usize) {
        let places = &self.places[word * self.width..][..self.width];
        let (mut carried, mut found) = (0, 0);
        for (&part, &place) in self.current.iter().zip(places) {
            let both = part & place;
            self.reached.push(both << 1 | carried);
            carried = both >> 63;
            found |= both;
        }
        if found == 0 {
            self.reached.truncate(self.reached.len() - self.width);
        } else {
            self.nodes.push(node);
        }
    }

    /// Forgets the nodes that were added when there were so many.
    fn drop_behind(&mut self, nodes: usize) {
        self.nodes.truncate(nodes);
        self.reached.truncate(nodes * self.width);
    }

    /// Where an interned word is among the distinct ones of the key.
    fn place_of(&self, word: u32) -> Option<usize> {
        let (walk, place) = self.known[word as usize];
        (walk == self.walk).then_some(place as usize)
    }

    fn count(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }
}

fn remove_number(table: &mut HashTable<u32>, hash: u64, number: u32) {
    if let Ok(entry) = table.find_entry(hash, |&other| other == number) {
        entry.remove();
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
