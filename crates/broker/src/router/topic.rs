//! Topic patterns as a trie of words.
//!
//! Words are interned, so that a node costs 32 bytes and a word of the message's key is hashed
//! once. A key is matched by walking all nodes that fit so far, word by word; a node behind `#`
//! stays active until the end. The work per word is bounded by the number of nodes, however the
//! patterns are chosen.

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
    /// Number of children behind plain words.
    children: u32,
    links: Links,
}

impl Node {
    fn new(parent: u32, word: u32) -> Node {
        Node { parent, word, star: NONE, hash: NONE, children: 0, links: Links::EMPTY }
    }

    fn is_leaf(&self) -> bool {
        self.children == 0 && self.star == NONE && self.hash == NONE
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
#[derive(Debug, Default)]
pub(crate) struct Walk {
    active: Vec<u32>,
    next: Vec<u32>,
    /// Active nodes behind `#` that have children.
    sticky: Vec<u32>,
    /// For nodes behind `#`: the walk that activated them last.
    stamps: Vec<u32>,
    walk: u32,
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
        // The slab's own mark makes a node of 28 bytes one of 32.
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
        walk.start(self.nodes.capacity());
        self.activate(ROOT, walk, &mut emit);
        for word in split(key) {
            core::mem::swap(&mut walk.active, &mut walk.next);
            walk.next.clear();
            // Nodes behind `#` that this word activates see only the words after it.
            let sticky = walk.sticky.len();
            let count = walk.active.len() + sticky;
            if count == 0 {
                return;
            }
            let mut interned = None;
            for index in 0..count {
                let node = match walk.active.get(index) {
                    Some(&node) => node,
                    None => walk.sticky[index - walk.active.len()],
                };
                let current = &self.nodes[node as usize];
                if current.star != NONE {
                    self.activate(current.star, walk, &mut emit);
                }
                if current.children > 0 {
                    let word = *interned.get_or_insert_with(|| self.word(word).unwrap_or(NONE));
                    if let Some(child) = self.child(node, word) {
                        self.activate(child, walk, &mut emit);
                    }
                }
            }
        }
        for &node in &walk.next {
            emit(node, &self.nodes[node as usize].links);
        }
    }

    /// Makes a node that is not behind `#` active for the next word, and with it what `#` reaches
    /// from there without a word.
    fn activate(&self, node: u32, walk: &mut Walk, emit: &mut impl FnMut(u32, &Links)) {
        let mut current = &self.nodes[node as usize];
        walk.next.push(node);
        while current.hash != NONE {
            let behind = current.hash;
            if !walk.stamp(behind) {
                return;
            }
            current = &self.nodes[behind as usize];
            emit(behind, &current.links);
            if current.children > 0 || current.star != NONE {
                walk.sticky.push(behind);
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
        let child = self.nodes.insert(Node::new(parent, word)) as u32;
        self.nodes[parent as usize].children += 1;
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
        let Node { parent, word, .. } = self.nodes.remove(node as usize);
        let above = &mut self.nodes[parent as usize];
        match word {
            STAR => above.star = NONE,
            HASH => above.hash = NONE,
            _ => {
                above.children -= 1;
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
    fn start(&mut self, nodes: usize) {
        self.active.clear();
        self.next.clear();
        self.sticky.clear();
        if self.stamps.len() < nodes {
            self.stamps.resize(nodes, 0);
        }
        self.walk = self.walk.wrapping_add(1);
        if self.walk == 0 {
            self.stamps.fill(0);
            self.walk = 1;
        }
    }

    /// Marks a node; false where this walk marked it before.
    fn stamp(&mut self, node: u32) -> bool {
        core::mem::replace(&mut self.stamps[node as usize], self.walk) != self.walk
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
