//! The fields that filters name, as a tree of steps that is walked beside a message.

use crate::path::Step;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// No slot.
const NONE: u32 = u32::MAX;

/// Names of a node up to which one is compared with each.
const LINEAR_MAX: usize = 8;

/// A node; 0 is the root.
pub(crate) type NodeId = u32;

/// The wanted paths of one part of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    /// Wanted paths.
    count: usize,
    /// Bytes of names.
    bytes: usize,
    /// Nodes that were looked at to change it.
    #[cfg(test)]
    touched: usize,
}

#[derive(Clone, Debug)]
struct Node {
    slot: u32,
    /// The same where there is nothing below it.
    leaf: u32,
    /// The node above; of the root itself.
    parent: NodeId,
    /// Marks of the names: one that is none of them has mostly another mark. Some may be of names that are gone.
    marks: u64,
    /// Names sorted by their prints, those of one print by their bytes.
    names: Vec<Name>,
    /// Indexes in their order.
    indexes: Vec<(u32, NodeId)>,
}

/// The names below a node, for those who look for many.
#[derive(Clone, Copy, Default)]
pub(crate) struct Names<'t> {
    marks: u64,
    names: &'t [Name],
}

#[derive(Clone, Debug)]
struct Name {
    /// The first eight bytes.
    print: u64,
    name: Box<[u8]>,
    node: NodeId,
}

impl Node {
    fn new(parent: NodeId) -> Node {
        Node { slot: NONE, leaf: NONE, parent, marks: 0, names: Vec::new(), indexes: Vec::new() }
    }
}

impl Node {
    /// Keeps what is known of it as a leaf.
    fn note_leaf(&mut self) {
        let is_leaf = self.marks == 0 && self.indexes.is_empty();
        self.leaf = if is_leaf { self.slot } else { NONE };
    }
}

impl Trie {
    /// Has a path read into a slot; it is not there yet. As much work as it has steps.
    pub(crate) fn insert(&mut self, steps: &[Step], slot: u32) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::new(0));
        }
        let mut node = 0;
        for step in steps {
            node = self.below(node, step).unwrap_or_else(|| self.grow(node, step));
        }
        self.touch(steps.len());
        self.nodes[node as usize].slot = slot;
        self.nodes[node as usize].note_leaf();
        self.count += 1;
    }

    /// The opposite.
    pub(crate) fn remove(&mut self, steps: &[Step]) {
        let mut node = 0;
        for step in steps {
            let Some(found) = self.below(node, step) else { return };
            node = found;
        }
        self.touch(steps.len());
        self.nodes[node as usize].slot = NONE;
        self.nodes[node as usize].note_leaf();
        self.count -= 1;
        // What leads nowhere any more goes.
        for step in steps.iter().rev() {
            let Node { slot, parent, names, indexes, .. } = &self.nodes[node as usize];
            if *slot != NONE || !names.is_empty() || !indexes.is_empty() {
                break;
            }
            let parent = *parent;
            self.nodes[node as usize] = Node::new(0);
            self.free.push(node);
            self.cut(parent, step, node);
            node = parent;
        }
        if self.count == 0 {
            *self = Trie::default();
        }
    }

    fn below(&self, node: NodeId, step: &Step) -> Option<NodeId> {
        match step {
            Step::Name(name) => self.name(node, name.as_bytes(), 0, name.len()),
            Step::Index(index) => self.index(node, *index),
            // Behind it nothing has a place of its own.
            Step::Every => None,
        }
    }

    fn grow(&mut self, parent: NodeId, step: &Step) -> NodeId {
        let new = Node::new(parent);
        let id = match self.free.pop() {
            Some(free) => {
                self.nodes[free as usize] = new;
                free
            }
            None => {
                self.nodes.push(new);
                (self.nodes.len() - 1) as NodeId
            }
        };
        let Node { names, indexes, marks, .. } = &mut self.nodes[parent as usize];
        match step {
            Step::Name(name) => {
                let name: Box<[u8]> = name.as_bytes().into();
                self.bytes += name.len();
                let print = print(&name, 0, name.len());
                *marks |= mark(print);
                let at = place(names, print, &name);
                names.insert(at, Name { print, name, node: id });
            }
            Step::Index(index) => {
                let at = indexes.partition_point(|(known, _)| known < index);
                indexes.insert(at, (*index, id));
            }
            Step::Every => {}
        }
        self.nodes[parent as usize].note_leaf();
        id
    }

    fn cut(&mut self, parent: NodeId, step: &Step, node: NodeId) {
        let Node { names, indexes, marks, .. } = &mut self.nodes[parent as usize];
        match step {
            Step::Name(name) => {
                self.bytes -= name.len();
                let print = print(name.as_bytes(), 0, name.len());
                let at = place(names, print, name.as_bytes());
                if names.get(at).is_some_and(|known| known.node == node) {
                    names.remove(at);
                }
                if names.is_empty() {
                    *marks = 0;
                }
            }
            Step::Index(_) => indexes.retain(|(_, below)| *below != node),
            Step::Every => {}
        }
        self.nodes[parent as usize].note_leaf();
    }

    #[cfg(test)]
    fn touch(&mut self, nodes: usize) {
        self.touched += nodes;
    }

    #[cfg(not(test))]
    fn touch(&mut self, _: usize) {}

    /// Nodes that were looked at to change it.
    #[cfg(test)]
    pub(crate) fn touched(&self) -> usize {
        self.touched
    }

    /// Whether nothing is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of nodes, free ones included.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The slot of a node that is wanted itself.
    #[inline]
    pub(crate) fn slot(&self, node: NodeId) -> Option<usize> {
        let slot = self.nodes[node as usize].slot;
        (slot != NONE).then_some(slot as usize)
    }

    /// The slot of a node that is wanted itself and has nothing below it.
    #[inline]
    pub(crate) fn leaf_slot(&self, node: NodeId) -> Option<usize> {
        let slot = self.nodes[node as usize].leaf;
        (slot != NONE).then_some(slot as usize)
    }

    /// Whether a node is `above` or below it. As deep as they lie apart.
    pub(crate) fn is_within(&self, mut node: NodeId, above: NodeId) -> bool {
        while node != above {
            if node == 0 {
                return false;
            }
            node = self.nodes[node as usize].parent;
        }
        true
    }

    /// Bytes that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        // Each node but the root is a name or an index of another.
        self.nodes.capacity() * (size_of::<Node>() + size_of::<Name>())
            + self.free.capacity() * size_of::<NodeId>()
            + self.bytes
    }

    /// The node of a name, which lies in `text`.
    #[inline(always)]
    pub(crate) fn name(
        &self,
        node: NodeId,
        text: &[u8],
        start: usize,
        end: usize,
    ) -> Option<NodeId> {
        self.names(node).find(print(text, start, end), text, start, end)
    }

    /// The names below a node.
    #[inline]
    pub(crate) fn names(&self, node: NodeId) -> Names<'_> {
        let Node { names, marks, .. } = &self.nodes[node as usize];
        Names { names, marks: *marks }
    }

    /// Whether a node has nothing below it.
    #[inline]
    pub(crate) fn is_leaf(&self, node: NodeId) -> bool {
        let Node { marks, indexes, .. } = &self.nodes[node as usize];
        *marks == 0 && indexes.is_empty()
    }

    /// Whether a node is directly below the root and has nothing below it.
    #[inline]
    pub(crate) fn is_alone(&self, node: NodeId) -> bool {
        self.nodes[node as usize].parent == 0 && self.is_leaf(node)
    }

    /// The node of an index.
    #[inline]
    pub(crate) fn index(&self, node: NodeId, index: u32) -> Option<NodeId> {
        let indexes = &self.nodes[node as usize].indexes;
        let at = indexes.binary_search_by_key(&index, |(known, _)| *known).ok()?;
        Some(indexes[at].1)
    }

    /// One above the largest index below a node.
    pub(crate) fn index_end(&self, node: NodeId) -> usize {
        self.nodes[node as usize].indexes.last().map_or(0, |(index, _)| *index as usize + 1)
    }
}

impl Names<'_> {
    /// How many there are.
    pub(crate) fn len(self) -> usize {
        self.names.len()
    }

    /// The node of a name, which lies in `text` and whose first eight bytes are known, with zeros behind a shorter one.
    #[inline(always)]
    pub(crate) fn find(self, print: u64, text: &[u8], start: usize, end: usize) -> Option<NodeId> {
        if self.marks & mark(print) == 0 {
            return None;
        }
        if self.names.len() <= LINEAR_MAX && end - start <= 8 {
            // The first bytes are all.
            let found = self.names.iter().find(|name| name.print == print)?;
            if found.name.len() == end - start {
                return Some(found.node);
            }
        }
        find(self.names, print, &text[start..end])
    }
}

fn find(names: &[Name], print: u64, text: &[u8]) -> Option<NodeId> {
    let found = names.get(place(names, print, text))?;
    (found.print == print && *found.name == *text).then_some(found.node)
}

/// The place of a name among others, or where it would be.
fn place(names: &[Name], print: u64, text: &[u8]) -> usize {
    names.partition_point(|name| (name.print, &*name.name) < (print, text))
}

/// One bit of 64, by the first eight bytes.
#[inline(always)]
fn mark(print: u64) -> u64 {
    // The upper bits of the product depend on all of them.
    1 << (print.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

/// The first eight bytes of a name, zeros behind it.
#[inline(always)]
pub(crate) fn print(text: &[u8], start: usize, end: usize) -> u64 {
    let length = end - start;
    match text.get(start..).and_then(|text| text.first_chunk()) {
        Some(chunk) if length >= 8 => u64::from_le_bytes(*chunk),
        Some(chunk) => u64::from_le_bytes(*chunk) & ((1 << (8 * length)) - 1),
        None => {
            let mut bytes = [0; 8];
            let length = length.min(8);
            bytes[..length].copy_from_slice(&text[start..start + length]);
            u64::from_le_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<Step> {
        let step = |part: &str| part.parse().map_or_else(|_| Step::Name(part.into()), Step::Index);
        text.split('.').map(step).collect()
    }

    #[test]
    fn every_path_is_found_and_nothing_else() {
        let texts =
            ["a", "a.b", "a.b.c", "a.1", "a.7.x", "ab", "longer name", "longer name two", "x.y"];
        let paths: Vec<Vec<Step>> = texts.iter().map(|text| path(text)).collect();
        let mut trie = Trie::default();
        paths.iter().zip(0..).for_each(|(path, slot)| trie.insert(path, slot));
        let find = |trie: &Trie, text: &str| {
            if trie.is_empty() {
                return None;
            }
            path(text).iter().try_fold(0, |node, step| match step {
                Step::Name(name) => trie.name(node, name.as_bytes(), 0, name.len()),
                Step::Index(index) => trie.index(node, *index),
                Step::Every => None,
            })
        };
        for (slot, text) in texts.iter().enumerate() {
            assert_eq!(find(&trie, text).and_then(|node| trie.slot(node)), Some(slot), "{text}");
        }
        for text in ["b", "a.c", "a.0", "longer n", "longer name t", "", "a.b.c.d"] {
            assert_eq!(find(&trie, text), None, "{text}");
        }
        let (a, last) = (find(&trie, "a").unwrap(), find(&trie, "a.7.x").unwrap());
        assert!(trie.is_within(last, a) && !trie.is_within(find(&trie, "ab").unwrap(), a));
        assert_eq!(find(&trie, "x").and_then(|node| trie.slot(node)), None);
        // What goes takes nothing else along, and leaves nothing behind.
        for (slot, text) in texts.iter().enumerate() {
            trie.remove(&paths[slot]);
            assert_eq!(find(&trie, text).and_then(|node| trie.slot(node)), None, "{text}");
            for (slot, text) in texts.iter().enumerate().skip(slot + 1) {
                assert_eq!(
                    find(&trie, text).and_then(|node| trie.slot(node)),
                    Some(slot),
                    "{text}"
                );
            }
            trie.insert(&paths[slot], slot as u32);
            trie.remove(&paths[slot]);
        }
        assert!(trie.is_empty() && trie.bytes() == 0);
    }
}
