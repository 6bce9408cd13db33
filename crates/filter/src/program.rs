//! Conditions as a graph in which equal parts are there once: each is evaluated once per message at most.

mod call;
mod eval;
mod values;

pub(crate) use eval::{Evaluation, Room};

use crate::extract::DELIVERY_MODES;
use crate::like::LikePattern;
use crate::number::Number;
use crate::path::{ListPath, Path};
use crate::paths::{Paths, Slot};
use crate::regexp;
use crate::regexp::Regexp;
use crate::tree::{Arithmetic, Comparison, Expr, Function, IsKind, Literal, Quantifier, Test};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use hashbrown::HashTable;
use lepus_base::HashState;
use values::Values;

/// A part of the graph.
pub(crate) type NodeId = u32;

/// What a part does with others.
#[derive(Clone, Debug)]
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

/// A test of a value.
#[derive(Clone, Debug)]
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
        regexp: Box<Regexp>,
        negated: bool,
    },
    /// A regular expression that does not compile any more; it matches nothing.
    Never,
}

#[derive(Clone, Debug)]
struct Node {
    op: Op,
    /// Its normal form, by which it is found.
    text: Box<str>,
    users: u32,
}

/// An array that quantifiers look at.
#[derive(Clone, Debug)]
struct List {
    path: ListPath,
    slot: Slot,
    users: u32,
}

/// The graph of a set of filters.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    ids: HashTable<NodeId>,
    lists: Vec<Option<List>>,
    texts: Vec<Box<[u8]>>,
    free_texts: Vec<u32>,
    pub(crate) paths: Paths,
    state: HashState,
    regexp_bytes_max: usize,
}

/// Constants from which a list is looked up and not gone through.
const VALUES_MIN: usize = 8;

impl Program {
    pub(crate) fn new(state: HashState, regexp_bytes_max: usize) -> Program {
        Program {
            nodes: Vec::new(),
            free: Vec::new(),
            ids: HashTable::new(),
            lists: Vec::new(),
            texts: Vec::from([DELIVERY_MODES.into()]),
            free_texts: Vec::new(),
            paths: Paths::new(state),
            state,
            regexp_bytes_max,
        }
    }

    /// The constants that spans may name.
    pub(crate) fn constants(&self) -> &[Box<[u8]>] {
        &self.texts
    }

    /// The part that means `expr`, used once more. As deep as the expression.
    pub(crate) fn acquire(&mut self, expr: &Expr) -> NodeId {
        let text = expr.to_string();
        let hash = self.state.hash_one(text.as_str());
        let nodes = &mut self.nodes;
        let is_same =
            |id: &NodeId| nodes[*id as usize].as_ref().is_some_and(|node| *node.text == *text);
        if let Some(&id) = self.ids.find(hash, is_same) {
            if let Some(node) = &mut nodes[id as usize] {
                node.users += 1;
            }
            return id;
        }
        let op = self.op(expr);
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            (self.nodes.len() - 1) as NodeId
        });
        self.nodes[id as usize] = Some(Node { op, text: text.into(), users: 1 });
        let (nodes, state) = (&self.nodes, self.state);
        let hash_of = |id: &NodeId| {
            nodes[*id as usize].as_ref().map_or(0, |node| state.hash_one(&*node.text))
        };
        self.ids.insert_unique(hash, id, hash_of);
        id
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
        let hash = self.state.hash_one(&*node.text);
        if let Ok(entry) = self.ids.find_entry(hash, |known| *known == id) {
            entry.remove();
        }
        self.free.push(id);
        match node.op {
            Op::Null | Op::Bool(_) | Op::Number(_) => {}
            Op::Text(text) => {
                self.texts[text as usize] = Box::default();
                self.free_texts.push(text);
            }
            Op::Slot(slot) => self.paths.release(slot),
            Op::Not(one) | Op::Negate(one) | Op::Plus(one) | Op::Is { value: one, .. } => {
                self.release(one);
            }
            Op::And(list) | Op::Or(list) | Op::Call(_, list) => self.release_all(&list),
            Op::Compare(_, one, two) | Op::Arithmetic(_, one, two) => self.release_all(&[one, two]),
            Op::Test(one, test) => {
                self.release(one);
                self.release_test(&test);
            }
            Op::Quantified(_, list, test) => {
                self.release_list(list);
                self.release_test(&test);
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
            Expr::Literal(Literal::Null) => Op::Null,
            Expr::Literal(Literal::Bool(value)) => Op::Bool(*value),
            Expr::Literal(Literal::Number(number)) => Op::Number(*number),
            Expr::Literal(Literal::Date(milliseconds)) => Op::Number(Number::Signed(*milliseconds)),
            Expr::Literal(Literal::Text(text)) => Op::Text(self.text(text)),
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
            Expr::Quantified(quantifier, path, test) => {
                Op::Quantified(*quantifier, self.list(path), self.test(test))
            }
            Expr::Is { value, kind, negated } => {
                Op::Is { value: self.acquire(value), kind: *kind, negated: *negated }
            }
            Expr::Call(Function::Now, _) => {
                Op::Slot(self.paths.acquire(&Path::Field(crate::path::Field::Time)))
            }
            Expr::Call(function, arguments) => Op::Call(*function, self.all(arguments)),
        }
    }

    fn all(&mut self, list: &[Expr]) -> Box<[NodeId]> {
        list.iter().map(|expr| self.acquire(expr)).collect()
    }

    fn text(&mut self, text: &str) -> u32 {
        let text: Box<[u8]> = text.as_bytes().into();
        match self.free_texts.pop() {
            Some(id) => {
                self.texts[id as usize] = text;
                id
            }
            None => {
                self.texts.push(text);
                (self.texts.len() - 1) as u32
            }
        }
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
            Test::Regexp { pattern, negated } => {
                match regexp::compile(pattern, self.regexp_bytes_max) {
                    Ok(regexp) => TestOp::Regexp { regexp: Box::new(regexp), negated: *negated },
                    Err(_) => TestOp::Never,
                }
            }
        }
    }

    /// The array of a quantifier, used once more. There are few of them.
    fn list(&mut self, path: &ListPath) -> u32 {
        let slot = self.paths.acquire(&path.list);
        let known = self.lists.iter_mut().zip(0..).find_map(|(list, id)| {
            let list = list.as_mut().filter(|list| list.path == *path)?;
            list.users += 1;
            Some(id)
        });
        if let Some(id) = known {
            return id;
        }
        let list = Some(List { path: path.clone(), slot, users: 1 });
        match self.lists.iter().position(Option::is_none) {
            Some(free) => {
                self.lists[free] = list;
                free as u32
            }
            None => {
                self.lists.push(list);
                (self.lists.len() - 1) as u32
            }
        }
    }

    fn release_list(&mut self, id: u32) {
        let Some(place) = self.lists.get_mut(id as usize) else { return };
        let Some(list) = place else { return };
        let slot = list.slot;
        list.users -= 1;
        if list.users == 0 {
            *place = None;
        }
        self.paths.release(slot);
    }
}
