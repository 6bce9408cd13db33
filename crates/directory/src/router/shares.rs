//! Keys shared out among bindings by weight.
//!
//! A binary tree over the numbers that bindings have by their names, with a branch where numbers
//! begin to differ. At every branch a key's hash decides for one side, with the chance that this
//! side's weight has of both. So a choice takes as many steps as the logarithm of the number of
//! bindings, and a binding takes two nodes, whatever its weight.
//!
//! The same bindings make the same tree, in whatever order they came. When one goes, or comes, only
//! the weights above it change, and with them the choice of few keys: of `n` equal bindings about
//! `1 / n` of the keys move, times half the logarithm of `n` to the base of two.

use super::CHOICES_MAX;
use super::hash::mix;
use crate::binding::{Link, NONE, Target};
use lepus_base::ChunkedSlab;

/// The bindings of one exchange with their weights.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    nodes: ChunkedSlab<Node>,
    root: u32,
}

#[derive(Clone, Debug)]
struct Node {
    /// A leaf's number. A branch's: the bits that all below it share, then a one, then zeros.
    number: u64,
    /// The sum of the weights below.
    weight: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Leaf(Link),
    Branch {
        /// The first bit, from the highest, in which the numbers below differ.
        bit: u32,
        children: [u32; 2],
    },
}

/// On which side of a branch a number is.
fn side(number: u64, bit: u32) -> usize {
    (number << bit >> 63) as usize
}

impl Shares {
    /// A leaf and a branch.
    pub(super) const BINDING_BYTES: usize = 2 * size_of::<Node>();

    pub(super) fn new() -> Shares {
        Shares { nodes: ChunkedSlab::new(), root: NONE }
    }

    /// Adds a binding; the leaf that it has from now on. Where the number is taken, another one is
    /// made of it.
    pub(super) fn insert(&mut self, mut number: u64, weight: u32, link: Link) -> u32 {
        let bit = loop {
            let Some(nearest) = self.nearest(number) else {
                self.root = self.leaf(number, weight, link);
                return self.root;
            };
            if nearest != number {
                break (nearest ^ number).leading_zeros();
            }
            number = mix(number.wrapping_add(1));
        };
        let leaf = self.leaf(number, weight, link);
        let (mut above, mut place) = (None, self.root);
        while let Kind::Branch { bit: other, children } = self.nodes[place as usize].kind
            && other < bit
        {
            self.nodes[place as usize].weight += u64::from(weight);
            above = Some((place, side(number, other)));
            place = children[side(number, other)];
        }
        let mut children = [place; 2];
        children[side(number, bit)] = leaf;
        let lowest = 1 << 63 >> bit;
        let branch = self.nodes.insert(Node {
            number: number & !(lowest | (lowest - 1)) | lowest,
            weight: self.nodes[place as usize].weight + u64::from(weight),
            kind: Kind::Branch { bit, children },
        }) as u32;
        self.replace(above, branch);
        leaf
    }

    /// Removes the binding that has this leaf.
    pub(super) fn remove(&mut self, leaf: u32) {
        let Node { number, weight, .. } = self.nodes.remove(leaf as usize);
        let (mut above, mut place, mut sibling) = (None, self.root, NONE);
        let mut parent = None;
        while place != leaf {
            let node = &mut self.nodes[place as usize];
            node.weight -= weight;
            let Kind::Branch { bit, children } = node.kind else {
                unreachable!("the way of a leaf's number ends at this leaf");
            };
            let way = side(number, bit);
            above = parent;
            parent = Some((place, way));
            sibling = children[1 - way];
            place = children[way];
        }
        if let Some((branch, _)) = parent {
            self.nodes.remove(branch as usize);
        }
        self.replace(above, sibling);
    }

    /// The binding that a key with this hash belongs to: one link, or none without bindings. Where
    /// that leads to what is not living, the key belongs to another one.
    pub(super) fn select(&self, hash: u64, is_living: &impl Fn(Target) -> bool) -> &[Link] {
        if self.root == NONE {
            return &[];
        }
        let mut next = hash;
        for _ in 0..CHOICES_MAX {
            let links = self.choose(next);
            if links.iter().all(|link| is_living(link.target)) {
                return links;
            }
            next = mix(next);
        }
        let links = self.nodes.iter().filter_map(|(_, node)| match &node.kind {
            Kind::Leaf(link) => Some(link),
            Kind::Branch { .. } => None,
        });
        let found = { links }.find(|link| is_living(link.target));
        found.map_or(&[], core::slice::from_ref)
    }

    fn choose(&self, hash: u64) -> &[Link] {
        let mut node = &self.nodes[self.root as usize];
        loop {
            match &node.kind {
                Kind::Leaf(link) => return core::slice::from_ref(link),
                Kind::Branch { children: [left, right], .. } => {
                    let left = &self.nodes[*left as usize];
                    let chance = u128::from(mix(hash ^ node.number)) * u128::from(node.weight);
                    let goes_left = chance >> 64 < u128::from(left.weight);
                    node = if goes_left { left } else { &self.nodes[*right as usize] };
                }
            }
        }
    }

    fn leaf(&mut self, number: u64, weight: u32, link: Link) -> u32 {
        let kind = Kind::Leaf(link);
        self.nodes.insert(Node { number, weight: weight.into(), kind }) as u32
    }

    /// The number that agrees with this one in every bit that the tree asks for.
    fn nearest(&self, number: u64) -> Option<u64> {
        let mut place = self.root;
        loop {
            let node = self.nodes.get(place as usize)?;
            match node.kind {
                Kind::Leaf(_) => return Some(node.number),
                Kind::Branch { bit, children } => place = children[side(number, bit)],
            }
        }
    }

    /// Puts a node below a branch, or at the root.
    fn replace(&mut self, above: Option<(u32, usize)>, place: u32) {
        match above {
            None => self.root = place,
            Some((branch, way)) => match &mut self.nodes[branch as usize].kind {
                Kind::Branch { children, .. } => children[way] = place,
                Kind::Leaf(_) => unreachable!("nothing is below a leaf"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Target;
    use alloc::vec::Vec;
    use lepus_base::Rng;

    fn link(queue: u32) -> Link {
        Link { target: Target::queue(queue), binding: queue }
    }

    fn chosen(shares: &Shares, count: u64) -> Vec<u32> {
        (0..count)
            .filter_map(|key| Some(shares.select(mix(key), &|_| true).first()?.binding))
            .collect()
    }

    /// Weights of branches are those of what is below; how many nodes there are.
    fn check(shares: &Shares, place: u32) -> (u64, usize) {
        let node = &shares.nodes[place as usize];
        let Kind::Branch { bit, children } = node.kind else { return (node.weight, 1) };
        let mut sum = (0, 1);
        for (way, child) in children.into_iter().enumerate() {
            let below = &shares.nodes[child as usize];
            assert_eq!(side(below.number, bit), way);
            assert!(
                matches!(below.kind, Kind::Leaf(_)) || below.number.trailing_zeros() < 63 - bit
            );
            let (weight, nodes) = check(shares, child);
            sum = (sum.0 + weight, sum.1 + nodes);
        }
        assert_eq!(sum.0, node.weight);
        sum
    }

    #[test]
    fn the_same_bindings_choose_alike_in_whatever_order_they_came() {
        let mut rng = Rng::new(5);
        let bindings: Vec<(u64, u32)> =
            (0..100).map(|_| (rng.next_u64(), 1 + rng.below(65_535) as u32)).collect();
        let mut shares = Shares::new();
        for (queue, &(number, weight)) in (0..).zip(&bindings) {
            shares.insert(number, weight, link(queue));
        }
        let expected = chosen(&shares, 1_000);
        let mut other = Shares::new();
        let mut leaves: Vec<(u32, u32)> = Vec::new();
        for round in 0..3_000u32 {
            let queue = rng.below(100) as u32;
            if let Some(at) = leaves.iter().position(|&(_, bound)| bound == queue) {
                other.remove(leaves.swap_remove(at).0);
            } else {
                let (number, weight) = bindings[queue as usize];
                leaves.push((other.insert(number, weight, link(queue)), queue));
            }
            if let Some(nodes) = (other.root != NONE).then(|| check(&other, other.root).1) {
                assert_eq!(nodes, 2 * leaves.len() - 1, "round {round}");
                assert_eq!(other.nodes.len(), nodes);
            }
        }
        for queue in (0..100).rev() {
            if !leaves.iter().any(|&(_, bound)| bound == queue) {
                let (number, weight) = bindings[queue as usize];
                other.insert(number, weight, link(queue));
            }
        }
        assert_eq!(chosen(&other, 1_000), expected);
    }

    #[test]
    fn what_goes_takes_few_keys_of_others_with_it() {
        let mut shares = Shares::new();
        let leaves: Vec<u32> = (0..1_000u32)
            .map(|queue| shares.insert(mix(u64::from(queue) + 7), 100, link(queue)))
            .collect();
        let before = chosen(&shares, 100_000);
        shares.remove(leaves[500]);
        let after = chosen(&shares, 100_000);
        let moved = before.iter().zip(&after).filter(|(one, two)| one != two).count();
        // The queue's own keys are a thousandth of all.
        assert!((60..1_200).contains(&moved), "{moved} of 100000");
        assert!(!after.contains(&500));
    }

    #[test]
    fn equal_numbers_get_along() {
        let mut shares = Shares::new();
        let leaves: Vec<u32> = (0..50).map(|queue| shares.insert(1, 1, link(queue))).collect();
        let mut seen = chosen(&shares, 10_000);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 50);
        for leaf in leaves {
            shares.remove(leaf);
        }
        assert!(shares.select(1, &|_| true).is_empty() && shares.nodes.is_empty());
    }
}
