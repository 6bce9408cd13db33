//! The fields that filters name, as a tree of steps that is walked beside a message.

use crate::path::Step;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// No slot.
const NONE: u32 = u32::MAX;

/// A node; 0 is the root.
pub(crate) type NodeId = u32;

/// The wanted paths of one part of a message. Nodes are numbered so that all below one follow it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    slot: u32,
    /// The last node below.
    last: NodeId,
    /// Marks of the names: one that is none of them has mostly another mark.
    marks: u64,
    /// Names sorted by their prints.
    names: Vec<Name>,
    /// Indexes in their order.
    indexes: Vec<(u32, NodeId)>,
}

#[derive(Clone, Debug)]
struct Name {
    /// The first eight bytes.
    print: u64,
    name: Box<[u8]>,
    node: NodeId,
}

impl Trie {
    /// The tree of these paths, each with its slot. No path is there twice.
    pub(crate) fn new<'p>(paths: impl IntoIterator<Item = (&'p [Step], u32)>) -> Trie {
        let mut paths: Vec<(&[Step], u32)> = paths.into_iter().collect();
        if paths.is_empty() {
            return Trie::default();
        }
        paths.sort_unstable();
        let mut trie = Trie::default();
        trie.add(&paths, 0);
        trie
    }

    /// Adds the node that these paths have in common after so many steps. As deep as the longest path.
    fn add(&mut self, mut paths: &[(&[Step], u32)], depth: usize) -> NodeId {
        let id = self.nodes.len() as NodeId;
        let mut slot = NONE;
        // The shortest is first.
        if let Some(((steps, found), rest)) = paths.split_first()
            && steps.len() == depth
        {
            (slot, paths) = (*found, rest);
        }
        self.nodes.push(Node { slot, last: id, marks: 0, names: Vec::new(), indexes: Vec::new() });
        let (mut names, mut indexes) = (Vec::new(), Vec::new());
        while let Some((steps, _)) = paths.first() {
            let step = &steps[depth];
            let same = paths.iter().take_while(|(steps, _)| steps[depth] == *step).count();
            let (group, rest) = paths.split_at(same);
            let node = self.add(group, depth + 1);
            match step {
                Step::Name(name) => {
                    let name: Box<[u8]> = name.as_bytes().into();
                    names.push(Name { print: print(&name, 0, name.len()), name, node });
                }
                Step::Index(index) => indexes.push((*index, node)),
                // Behind it nothing has a place of its own.
                Step::Every => {}
            }
            paths = rest;
        }
        names.sort_unstable_by_key(|name: &Name| name.print);
        indexes.sort_unstable();
        let last = (self.nodes.len() - 1) as NodeId;
        let node = &mut self.nodes[id as usize];
        node.marks = names.iter().fold(0, |marks, name| marks | mark(name.print, name.name.len()));
        (node.last, node.names, node.indexes) = (last, names, indexes);
        id
    }

    /// Whether nothing is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The slot of a node that is wanted itself.
    #[inline]
    pub(crate) fn slot(&self, node: NodeId) -> Option<usize> {
        let slot = self.nodes[node as usize].slot;
        (slot != NONE).then_some(slot as usize)
    }

    /// The last node below this one.
    pub(crate) fn last(&self, node: NodeId) -> NodeId {
        self.nodes[node as usize].last
    }

    /// How many names a node has below it.
    pub(crate) fn name_count(&self, node: NodeId) -> usize {
        self.nodes[node as usize].names.len()
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
        let Node { names, marks, .. } = &self.nodes[node as usize];
        let wanted = print(text, start, end);
        if marks & mark(wanted, end - start) == 0 {
            return None;
        }
        find(names, wanted, &text[start..end])
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

fn find(names: &[Name], wanted: u64, text: &[u8]) -> Option<NodeId> {
    let first = match names.len() {
        ..=8 => names.iter().position(|name| name.print == wanted)?,
        _ => names.partition_point(|name| name.print < wanted),
    };
    let mut same = names[first..].iter().take_while(|name| name.print == wanted);
    same.find(|name| *name.name == *text).map(|name| name.node)
}

/// One bit of 64, by the first three bytes and the length.
#[inline(always)]
fn mark(print: u64, length: usize) -> u64 {
    let mixed = print ^ (print >> 11) ^ (print >> 21) ^ (length as u64).wrapping_mul(5);
    1 << (mixed & 63)
}

/// The first eight bytes of a name, zeros behind it.
#[inline(always)]
fn print(text: &[u8], start: usize, end: usize) -> u64 {
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
        let trie = Trie::new(paths.iter().zip(0..).map(|(path, slot)| (path.as_slice(), slot)));
        let find = |text: &str| {
            path(text).iter().try_fold(0, |node, step| match step {
                Step::Name(name) => trie.name(node, name.as_bytes(), 0, name.len()),
                Step::Index(index) => trie.index(node, *index),
                Step::Every => None,
            })
        };
        for (slot, text) in texts.iter().enumerate() {
            assert_eq!(find(text).and_then(|node| trie.slot(node)), Some(slot), "{text}");
        }
        for text in ["b", "a.c", "a.0", "longer n", "longer name t", "", "a.b.c.d"] {
            assert_eq!(find(text), None, "{text}");
        }
        assert_eq!(find("x").and_then(|node| trie.slot(node)), None);
        let (a, last) = (find("a").unwrap(), find("a.7.x").unwrap());
        assert!(trie.last(a) >= last && trie.last(a) < find("ab").unwrap());
    }
}
