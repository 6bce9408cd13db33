//! Conditions as a graph in which equal parts are there once: each is evaluated once per message at most.

mod call;
mod computed;
mod eval;
mod lists;
mod values;

pub(crate) use eval::{Evaluation, Room};

use crate::extract::DELIVERY_MODES;
use crate::like::LikePattern;
use crate::number::Number;
use crate::path::{Field, Path};
use crate::paths::{Paths, Slot};
use crate::regexp::Regexp;
use crate::tree::{Arithmetic, Comparison, Expr, Function, IsKind, Literal, Quantifier, Test};
use alloc::boxed::Box;
use alloc::vec::Vec;
use computed::Computed;
use core::hash::BuildHasher;
use lepus_base::{HashState, LinearTable};
use lists::Lists;
use values::Values;

/// A part of the graph.
pub(crate) type NodeId = u32;

/// What a part does with others. Two parts are the same when they do the same with the same ones.
#[derive(Clone, Debug, PartialEq, Hash)]
enum Op {
    Null,
    Bool(bool),
    Number(Number),
    /// A constant text.
    Text(u32),
    Slot(Slot),
    Not(NodeId),
    And(Box<[NodeId]>),
    Or(Box<[NodeId]>),
    Compare(Comparison, NodeId, NodeId),
    Arithmetic(Arithmetic, NodeId, NodeId),
    Negate(NodeId),
    Plus(NodeId),
    Test(NodeId, TestOp),
    Quantified(Quantifier, u32, TestOp),
    Is {
        value: NodeId,
        kind: IsKind,
        negated: bool,
    },
    Call(Function, Box<[NodeId]>),
}

impl Op {
    /// Whether it says TRUE, FALSE or unknown, and is no constant and no field.
    #[inline]
    fn is_condition(&self) -> bool {
        match self {
            Op::Not(_)
            | Op::And(_)
            | Op::Or(_)
            | Op::Compare(..)
            | Op::Test(..)
            | Op::Quantified(..)
            | Op::Is { .. } => true,
            Op::Null
            | Op::Bool(_)
            | Op::Number(_)
            | Op::Text(_)
            | Op::Slot(_)
            | Op::Arithmetic(..)
            | Op::Negate(_)
            | Op::Plus(_)
            | Op::Call(..) => false,
        }
    }
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Hash)]
enum TestOp {
    Compare(Comparison, NodeId),
    Between {
        low: NodeId,
        high: NodeId,
        negated: bool,
    },
    In {
        list: Box<[NodeId]>,
        negated: bool,
    },
    /// Many constants.
    Values {
        values: Box<Values>,
        negated: bool,
    },
    Like {
        pattern: Box<LikePattern>,
        negated: bool,
    },
    Regexp {
        regexp: Regexp,
        negated: bool,
    },
    /// A pattern that the parser would refuse; it matches nothing.
    Never,
}

#[derive(Clone, Debug)]
struct Node {
    op: Op,
    /// By which it is found.
    hash: u64,
    users: u32,
}

/// The graph of a set of filters.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    ids: LinearTable<NodeId>,
    lists: Lists,
    texts: Vec<Box<[u8]>>,
    free_texts: Vec<u32>,
    pub(crate) paths: Paths,
    computed: Vec<Computed>,
    state: HashState,
    /// Bytes of what parts have beside their place among them.
    bytes: usize,
}

/// Constants from which a list is looked up and not gone through.
const VALUES_MIN: usize = 8;
/// Tells the hash of a text apart from those of other parts.
const TEXT_MARK: u8 = 0xff;

impl Program {
    pub(crate) fn new(state: HashState) -> Program {
        Program {
            nodes: Vec::new(),
            free: Vec::new(),
            ids: LinearTable::new(),
            lists: Lists::new(state),
            texts: Vec::from([DELIVERY_MODES.into()]),
            free_texts: Vec::new(),
            paths: Paths::new(state),
            computed: Vec::new(),
            state,
            bytes: 0,
        }
    }

    /// The constants that spans may name.
    pub(crate) fn constants(&self) -> &[Box<[u8]>] {
        &self.texts
    }

    /// Number of fields, arrays of quantifiers among them once more.
    pub(crate) fn fields(&self) -> usize {
        self.paths.len() + self.lists.len()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Option<Node>>()
            + self.free.capacity() * size_of::<NodeId>()
            + self.ids.allocation_size()
            + self.texts.capacity() * size_of::<Box<[u8]>>()
            + self.free_texts.capacity() * size_of::<u32>()
            + self.lists.bytes()
            + self.paths.bytes()
            + self.computed.capacity() * size_of::<Computed>()
            + self.bytes
    }

    /// The part that means `expr`, used once more. As deep as the expression.
    pub(crate) fn acquire(&mut self, expr: &Expr) -> NodeId {
        if let Expr::Literal(Literal::Text(text)) = expr {
            return self.acquire_text(text);
        }
        let op = self.op(expr);
        let hash = self.state.hash_one(&op);
        let nodes = &self.nodes;
        let is_same = |id: &NodeId| nodes[*id as usize].as_ref().is_some_and(|node| node.op == op);
        if let Some(&id) = self.ids.find(hash, is_same) {
            // Its parts are used by it already.
            self.release_parts(&op);
            self.use_again(id);
            return id;
        }
        self.insert(op, hash)
    }

    fn acquire_text(&mut self, text: &str) -> NodeId {
        let hash = self.state.hash_one((TEXT_MARK, text.as_bytes()));
        let (nodes, texts) = (&self.nodes, &self.texts);
        let is_same = |id: &NodeId| match &nodes[*id as usize] {
            Some(Node { op: Op::Text(known), .. }) => *texts[*known as usize] == *text.as_bytes(),
            _ => false,
        };
        if let Some(&id) = self.ids.find(hash, is_same) {
            self.use_again(id);
            return id;
        }
        let text: Box<[u8]> = text.as_bytes().into();
        let id = match self.free_texts.pop() {
            Some(id) => {
                self.texts[id as usize] = text;
                id
            }
            None => {
                self.texts.push(text);
                (self.texts.len() - 1) as u32
            }
        };
        self.insert(Op::Text(id), hash)
    }

    /// One more use of a part begins.
    pub(crate) fn use_again(&mut self, id: NodeId) {
        if let Some(node) = &mut self.nodes[id as usize] {
            node.users += 1;
        }
    }

    fn insert(&mut self, op: Op, hash: u64) -> NodeId {
        self.bytes += self.bytes_of(&op);
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            (self.nodes.len() - 1) as NodeId
        });
        self.nodes[id as usize] = Some(Node { op, hash, users: 1 });
        let nodes = &self.nodes;
        let hash_of = |id: &NodeId| nodes[*id as usize].as_ref().map_or(0, |node| node.hash);
        self.ids.insert_unique(hash, id, hash_of);
        id
    }

    /// Bytes of what a part has beside its place among them.
    fn bytes_of(&self, op: &Op) -> usize {
        let of_test = |test: &TestOp| match test {
            TestOp::In { list, .. } => size_of_val(&**list),
            TestOp::Values { values, .. } => values.bytes(),
            TestOp::Like { pattern, .. } => pattern.bytes(),
            TestOp::Regexp { regexp, .. } => regexp.bytes(),
            TestOp::Compare(..) | TestOp::Between { .. } | TestOp::Never => 0,
        };
        match op {
            Op::And(list) | Op::Or(list) | Op::Call(_, list) => size_of_val(&**list),
            Op::Test(_, test) | Op::Quantified(_, _, test) => of_test(test),
            Op::Text(text) => self.texts[*text as usize].len(),
            _ => 0,
        }
    }

    /// One use of a part ends.
    pub(crate) fn release(&mut self, id: NodeId) {
        let Some(place) = self.nodes.get_mut(id as usize) else { return };
        let Some(node) = place else { return };
        node.users -= 1;
        if node.users > 0 {
            return;
        }
        let Some(node) = place.take() else { return };
        self.ids.remove(node.hash, |known| *known == id);
        self.free.push(id);
        self.bytes -= self.bytes_of(&node.op);
        if let Op::Text(text) = node.op {
            self.texts[text as usize] = Box::default();
            self.free_texts.push(text);
        }
        self.release_parts(&node.op);
    }

    /// One use of what a part is made of ends.
    fn release_parts(&mut self, op: &Op) {
        match op {
            Op::Null | Op::Bool(_) | Op::Number(_) | Op::Text(_) => {}
            Op::Slot(slot) => self.paths.release(*slot),
            Op::Not(one) | Op::Negate(one) | Op::Plus(one) | Op::Is { value: one, .. } => {
                self.release(*one);
            }
            Op::And(list) | Op::Or(list) | Op::Call(_, list) => self.release_all(list),
            Op::Compare(_, one, two) | Op::Arithmetic(_, one, two) => {
                self.release_all(&[*one, *two]);
            }
            Op::Test(one, test) => {
                self.release(*one);
                self.release_test(test);
            }
            Op::Quantified(_, list, test) => {
                self.lists.release(*list, &mut self.paths);
                self.release_test(test);
            }
        }
    }

    fn release_all(&mut self, list: &[NodeId]) {
        list.iter().for_each(|id| self.release(*id));
    }

    fn release_test(&mut self, test: &TestOp) {
        match test {
            TestOp::Compare(_, one) => self.release(*one),
            TestOp::Between { low, high, .. } => self.release_all(&[*low, *high]),
            TestOp::In { list, .. } => self.release_all(list),
            TestOp::Values { .. } | TestOp::Like { .. } | TestOp::Regexp { .. } | TestOp::Never => {
            }
        }
    }

    fn op(&mut self, expr: &Expr) -> Op {
        match expr {
            // Texts are found by what they say, before.
            Expr::Literal(Literal::Null | Literal::Text(_)) => Op::Null,
            Expr::Literal(Literal::Bool(value)) => Op::Bool(*value),
            Expr::Literal(Literal::Number(number)) => Op::Number(*number),
            Expr::Literal(Literal::Date(milliseconds)) => Op::Number(Number::Signed(*milliseconds)),
            Expr::Path(path) => Op::Slot(self.paths.acquire(path)),
            Expr::Not(inner) => Op::Not(self.acquire(inner)),
            Expr::And(list) => Op::And(self.all(list)),
            Expr::Or(list) => Op::Or(self.all(list)),
            Expr::Compare(comparison, one, two) => {
                Op::Compare(*comparison, self.acquire(one), self.acquire(two))
            }
            Expr::Arithmetic(operator, one, two) => {
                Op::Arithmetic(*operator, self.acquire(one), self.acquire(two))
            }
            Expr::Negate(inner) => Op::Negate(self.acquire(inner)),
            Expr::Plus(inner) => Op::Plus(self.acquire(inner)),
            Expr::Test(value, test) => Op::Test(self.acquire(value), self.test(test)),
            Expr::Quantified(quantifier, path, test) => Op::Quantified(
                *quantifier,
                self.lists.acquire(path, &mut self.paths),
                self.test(test),
            ),
            Expr::Is { value, kind, negated } => {
                Op::Is { value: self.acquire(value), kind: *kind, negated: *negated }
            }
            Expr::Call(Function::Now, _) => Op::Slot(self.paths.acquire(&Path::Field(Field::Time))),
            Expr::Call(function, arguments) => Op::Call(*function, self.all(arguments)),
        }
    }

    fn all(&mut self, list: &[Expr]) -> Box<[NodeId]> {
        list.iter().map(|expr| self.acquire(expr)).collect()
    }

    fn test(&mut self, test: &Test) -> TestOp {
        match test {
            Test::Compare(comparison, right) => TestOp::Compare(*comparison, self.acquire(right)),
            Test::Between { low, high, negated } => TestOp::Between {
                low: self.acquire(low),
                high: self.acquire(high),
                negated: *negated,
            },
            Test::In { list, negated } => match Values::new(list) {
                Some(values) if list.len() >= VALUES_MIN => {
                    TestOp::Values { values: Box::new(values), negated: *negated }
                }
                _ => TestOp::In { list: self.all(list), negated: *negated },
            },
            Test::Like { pattern, escape, folded, negated } => {
                match LikePattern::new(pattern, *escape, *folded) {
                    Ok(pattern) => TestOp::Like { pattern: Box::new(pattern), negated: *negated },
                    Err(_) => TestOp::Never,
                }
            }
            Test::Regexp { regexp, negated } => {
                TestOp::Regexp { regexp: regexp.clone(), negated: *negated }
            }
        }
    }
}
