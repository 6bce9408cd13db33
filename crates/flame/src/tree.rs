//! Stacks with a common beginning share it: the tree that a flame graph shows.

use std::collections::HashMap;

/// One function on one way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Ticks in it and in what it called.
    pub total: u64,
    /// Ticks in itself.
    pub own: u64,
    /// What it called, by index; the most expensive first once [`Tree::sort`] was called.
    pub children: Vec<usize>,
}

/// A tree of functions by ticks. Its root has index 0.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    places: HashMap<(usize, String), usize>,
}

impl Tree {
    /// A tree without ticks, whose root has this name.
    #[must_use]
    pub fn new(root: &str) -> Tree {
        let root = Node { name: root.to_owned(), total: 0, own: 0, children: Vec::new() };
        Tree { nodes: vec![root], places: HashMap::new() }
    }

    /// Adds ticks of one stack, outermost function first.
    pub fn add<'a>(&mut self, path: impl IntoIterator<Item = &'a str>, ticks: u64) {
        let mut at = 0;
        self.nodes[at].total += ticks;
        for name in path {
            at = match self.places.get(&(at, name.to_owned())) {
                Some(child) => *child,
                None => {
                    let child = self.nodes.len();
                    let name = name.to_owned();
                    self.places.insert((at, name.clone()), child);
                    self.nodes[at].children.push(child);
                    self.nodes.push(Node { name, total: 0, own: 0, children: Vec::new() });
                    child
                }
            };
            self.nodes[at].total += ticks;
        }
        self.nodes[at].own += ticks;
    }

    /// Orders what each function called: the most expensive first, by name where equal.
    pub fn sort(&mut self) {
        for at in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[at].children);
            children.sort_by(|a, b| {
                let (a, b) = (&self.nodes[*a], &self.nodes[*b]);
                b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name))
            });
            self.nodes[at].children = children;
        }
    }

    /// All nodes; the root is the first.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Ticks of the whole tree.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.nodes[0].total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_beginning_is_shared_and_ticks_add_up() {
        let mut tree = Tree::new("all");
        tree.add(["a", "b"], 3);
        tree.add(["a", "c"], 5);
        tree.add(["a"], 2);
        tree.add(["b"], 1);
        tree.sort();
        let name = |index: &usize| tree.nodes()[*index].name.as_str();
        let root = &tree.nodes()[0];
        assert_eq!(root.children.iter().map(name).collect::<Vec<_>>(), ["a", "b"]);
        let a = &tree.nodes()[root.children[0]];
        assert_eq!((a.total, a.own), (10, 2));
        assert_eq!(a.children.iter().map(name).collect::<Vec<_>>(), ["c", "b"]);
        for node in tree.nodes() {
            let below: u64 = node.children.iter().map(|child| tree.nodes()[*child].total).sum();
            assert_eq!(node.total, node.own + below, "{node:?}");
        }
        assert_eq!(tree.total(), 11);
    }
}
