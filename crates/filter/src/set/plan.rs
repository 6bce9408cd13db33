//! How a branch is filed: under the equality whose field has the most values, else under a prefix; ranges become bounds;
//! what is left is evaluated.

use super::GroupKey;
use super::filing::{Filing, PREFIXES};
use crate::atom::{Atom, Constant, Key, Kind, Limit};
use crate::bound::{Bound, SIDES_MAX};
use crate::form::{Form, Turned};
use crate::paths::Slot;
use crate::program::Program;
use crate::tree::Expr;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Bytes of a text that is an end of a range: it is kept at each place of its branch. Longer ones are evaluated.
const BOUND_BYTES_MAX: usize = 64;

/// How a branch is filed and what is left of it.
pub(super) struct Plan {
    /// The values under which it is filed; none for all messages.
    pub(super) keys: Option<Vec<GroupKey>>,
    /// Ends of ranges, sorted by their sides, each side once.
    pub(super) bounds: Vec<Bound>,
    /// How the bounds hang together; without it all of them must hold.
    pub(super) form: Option<Arc<Form>>,
    /// What must be TRUE besides.
    pub(super) rest: Option<Expr>,
    /// Slots that were acquired for it.
    pub(super) slots: Vec<Slot>,
}

impl Plan {
    /// The plan of a branch.
    pub(super) fn new(atoms: &mut [Atom<'_>], filing: &Filing, program: &mut Program) -> Plan {
        let mut plan =
            Plan { keys: None, bounds: Vec::new(), form: None, rest: None, slots: Vec::new() };
        let filed = equality(atoms, filing, program).or_else(|| prefix(atoms, program));
        let filed_under = filed.map(|(index, slot, keys)| {
            plan.slots.push(slot);
            plan.keys = Some(keys);
            index
        });
        // What is computed is looked up only where nothing else can be: it is computed for each message.
        let is_looked_up = |atom: &Atom<'_>| matches!(atom.kind, Kind::Equal(..) | Kind::Range(..));
        let computes = plan.keys.is_none() && !atoms.iter().any(is_looked_up);
        let mut rest: Vec<&Expr> = Vec::new();
        // A prefix is not all that its condition says.
        let is_filed = |index: usize, atom: &Atom<'_>| {
            Some(index) == filed_under && !matches!(atom.kind, Kind::Prefix(..))
        };
        for (index, atom) in atoms.iter().enumerate() {
            let is_computed = matches!(atom.kind, Kind::Computed(..));
            let may_be_bound = computes || !is_computed;
            if !(is_filed(index, atom) || may_be_bound && plan.bound(atom, program)) {
                rest.push(atom.expr);
            }
        }
        if !rest.is_empty() && (plan.keys.is_none() || plan.bounds.is_empty()) {
            let unfiled = atoms.iter().enumerate().filter(|(index, atom)| !is_filed(*index, atom));
            let conditions: Vec<&Expr> = unfiled.map(|(_, atom)| atom.expr).collect();
            if plan.turn(&conditions, program) {
                return plan;
            }
        }
        plan.bounds.sort_by_key(Bound::side);
        plan.rest = match rest[..] {
            [] => None,
            [one] => Some(one.clone()),
            _ => Some(Expr::And(rest.into_iter().cloned().collect())),
        };
        plan
    }

    /// That of a filter which is evaluated for each message.
    pub(super) fn evaluated(filter: &Expr) -> Plan {
        Plan {
            keys: None,
            bounds: Vec::new(),
            form: None,
            rest: Some(filter.clone()),
            slots: Vec::new(),
        }
    }

    /// How many places it is filed at.
    pub(super) fn places(&self) -> usize {
        self.keys.as_ref().map_or(1, Vec::len)
    }

    /// Makes a form of conditions that stand for all bounds and the rest, if they can be one.
    fn turn(&mut self, conditions: &[&Expr], program: &mut Program) -> bool {
        let Some(turned) = Turned::new(conditions)
            .filter(|turned| turned.ends.iter().all(|(_, _, constant)| is_short(constant)))
        else {
            return false;
        };
        // The first slot is what it is filed under.
        let filed = usize::from(self.keys.is_some());
        for slot in self.slots.drain(filed..) {
            program.release_slot(slot);
        }
        let paths = turned.ends.iter().map(|(path, ..)| *path).chain(turned.fields.iter().copied());
        self.slots.extend(paths.map(|path| program.paths.acquire(path)));
        let (form, bounds) = turned.finish(&self.slots[filed..]);
        (self.form, self.bounds) = (Some(Arc::new(form)), bounds);
        true
    }

    /// Makes bounds of an atom, if it says nothing else and there is room for them.
    fn bound(&mut self, atom: &Atom<'_>, program: &mut Program) -> bool {
        let of_key: Constant;
        let (field, ends) = match &atom.kind {
            Kind::Equal(path, keys) => match keys[..].first().and_then(Key::constant) {
                Some(constant) if keys.len() == 1 => {
                    of_key = constant;
                    (Ok(*path), [Some((Limit::From, &of_key)), Some((Limit::UpTo, &of_key))])
                }
                _ => return false,
            },
            Kind::Range(path, first, second) => (Ok(*path), both(first, second)),
            Kind::Computed(expr, first, second) => (Err(*expr), both(first, second)),
            Kind::Prefix(..) | Kind::Other => return false,
        };
        let ends = || ends.iter().flatten();
        if self.bounds.len() + ends().count() > SIDES_MAX
            || !ends().all(|(_, constant)| is_short(constant))
        {
            return false;
        }
        let slot = match field {
            Ok(path) => program.paths.acquire(path),
            Err(expr) => match program.acquire_computed(expr) {
                Some(slot) => slot,
                None => return false,
            },
        };
        let before = self.bounds.len();
        for (limit, constant) in ends() {
            let bound = Bound { slot, limit: *limit, constant: (*constant).clone() };
            if self.bounds.iter().any(|known| known.side() == bound.side()) {
                self.bounds.truncate(before);
                program.release_slot(slot);
                return false;
            }
            self.bounds.push(bound);
        }
        self.slots.push(slot);
        true
    }
}

/// Whether a constant may be an end.
fn is_short(constant: &Constant) -> bool {
    match constant {
        Constant::Text(text) => text.len() <= BOUND_BYTES_MAX,
        Constant::Number(_) => true,
    }
}

/// One or two ends.
fn both<'e>(
    first: &'e (Limit, Constant),
    second: &'e Option<(Limit, Constant)>,
) -> [Option<(Limit, &'e Constant)>; 2] {
    let end = |(limit, constant): &'e (Limit, Constant)| (*limit, constant);
    [Some(end(first)), second.as_ref().map(end)]
}

/// The atom, slot and keys of the equality whose field has the most values.
fn equality(
    atoms: &mut [Atom<'_>],
    filing: &Filing,
    program: &mut Program,
) -> Option<(usize, Slot, Vec<GroupKey>)> {
    let mut best: Option<(u64, usize, Slot)> = None;
    for (index, atom) in atoms.iter().enumerate() {
        let Kind::Equal(path, keys) = &atom.kind else { continue };
        let slot = program.paths.acquire(path);
        // In thousandths: one of two values is half as selective.
        let score = (u64::from(filing.values(slot)) + 1) * 1000 / keys.len() as u64;
        match best {
            Some((known, ..)) if known >= score => program.paths.release(slot),
            _ => {
                if let Some((_, _, slot)) = best.replace((score, index, slot)) {
                    program.paths.release(slot);
                }
            }
        }
    }
    let (_, index, slot) = best?;
    let keys = match &mut atoms[index].kind {
        // Nothing else is made of this condition.
        Kind::Equal(_, keys) => {
            core::mem::take(keys).into_iter().map(|key| GroupKey::Equal(slot, key)).collect()
        }
        _ => Vec::new(),
    };
    Some((index, slot, keys))
}

/// The atom, slot and key of the longest prefix.
fn prefix(atoms: &[Atom<'_>], program: &mut Program) -> Option<(usize, Slot, Vec<GroupKey>)> {
    let prefixes = atoms.iter().enumerate().filter_map(|(index, atom)| match &atom.kind {
        Kind::Prefix(path, prefix) => Some((index, *path, prefix)),
        _ => None,
    });
    let (index, path, prefix) = prefixes.max_by_key(|(_, _, prefix)| prefix.len())?;
    let length = PREFIXES.into_iter().find(|length| *length <= prefix.len())?;
    let slot = program.paths.acquire(path);
    Some((index, slot, Vec::from([GroupKey::Prefix(slot, prefix[..length].into())])))
}
