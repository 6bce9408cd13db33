//! Groups of branches by the value that messages are looked up by.

use super::{Filed, GroupKey};
use crate::atom::Key;
use crate::group::Group;
use crate::number::Number;
use crate::paths::Slot;
use crate::segment::BranchId;
use crate::steps::{self, Steps};
use crate::value::{Sources, Value};
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};
use lepus_base::{HashState, LinearTable};

/// Bytes of a prefix that branches are filed under: a message is looked up once for each length in use.
pub(super) const PREFIXES: [usize; 6] = [32, 16, 8, 4, 2, 1];

/// The groups of a set.
#[derive(Clone, Debug)]
pub(super) struct Filing {
    groups: Vec<Option<Filed>>,
    free: Vec<u32>,
    by_key: LinearTable<u32>,
    /// By slot.
    look_ups: Vec<LookUp>,
    /// Slots that groups are filed under.
    active: Vec<Slot>,
    born: u64,
    state: HashState,
    /// Bytes of what groups and their keys have beside their place among them.
    bytes: usize,
}

/// How many groups are filed under a slot.
#[derive(Clone, Copy, Debug, Default)]
struct LookUp {
    equal: u32,
    /// By the length of the prefix.
    prefixes: [u32; PREFIXES.len()],
}

impl LookUp {
    fn count(&mut self, key: &GroupKey) -> &mut u32 {
        match key {
            GroupKey::Equal(..) => &mut self.equal,
            GroupKey::Prefix(_, prefix) => {
                let at = PREFIXES.iter().position(|length| *length == prefix.len());
                &mut self.prefixes[at.unwrap_or(0)]
            }
        }
    }

    fn is_used(&self) -> bool {
        self.equal > 0 || self.has_prefixes()
    }

    #[inline]
    fn has_prefixes(&self) -> bool {
        self.prefixes != [0; PREFIXES.len()]
    }
}

/// What a group is looked up by.
#[derive(Clone, Copy)]
enum Wanted<'w> {
    Bool(bool),
    Number(Number),
    Text(&'w [u8]),
    Prefix(&'w [u8]),
}

impl Wanted<'_> {
    fn is(self, key: &GroupKey) -> bool {
        match (self, key) {
            (Wanted::Bool(one), GroupKey::Equal(_, Key::Bool(two))) => one == *two,
            (Wanted::Number(one), GroupKey::Equal(_, Key::Number(two))) => one == *two,
            (Wanted::Text(one), GroupKey::Equal(_, Key::Text(two))) => *one == **two,
            (Wanted::Prefix(one), GroupKey::Prefix(_, two)) => *one == **two,
            _ => false,
        }
    }
}

impl<'w> From<&'w GroupKey> for Wanted<'w> {
    fn from(key: &'w GroupKey) -> Wanted<'w> {
        match key {
            GroupKey::Equal(_, Key::Bool(value)) => Wanted::Bool(*value),
            GroupKey::Equal(_, Key::Number(number)) => Wanted::Number(*number),
            GroupKey::Equal(_, Key::Text(text)) => Wanted::Text(text),
            GroupKey::Prefix(_, prefix) => Wanted::Prefix(prefix),
        }
    }
}

impl Filing {
    /// The group that every message is looked up in.
    pub(super) const ALL: u32 = 0;

    pub(super) fn new(state: HashState) -> Filing {
        Filing {
            groups: Vec::from([Some(Filed { key: None, born: 0, group: Group::default() })]),
            free: Vec::new(),
            by_key: LinearTable::new(),
            look_ups: Vec::new(),
            active: Vec::new(),
            born: 0,
            state,
            bytes: 0,
        }
    }

    /// How many values of a field groups are filed under.
    pub(super) fn values(&self, slot: Slot) -> u32 {
        self.look_ups.get(slot as usize).map_or(0, |look_up| look_up.equal)
    }

    /// Changes a group; it comes with what tells it from others that had its place.
    pub(super) fn change<R>(
        &mut self,
        group: u32,
        change: impl FnOnce(u64, &mut Group) -> R,
    ) -> Option<R> {
        let filed = self.groups.get_mut(group as usize)?.as_mut()?;
        let before = filed.group.bytes();
        let result = change(filed.born, &mut filed.group);
        self.bytes = self.bytes + filed.group.bytes() - before;
        Some(result)
    }

    /// The group of a key, made if there is none.
    pub(super) fn group(&mut self, key: GroupKey) -> u32 {
        let (slot, state) = (key.slot(), self.state);
        let hash = hash_of(state, slot, Wanted::from(&key));
        if let Some(group) = self.find(hash, slot, Wanted::from(&key)) {
            return group;
        }
        if self.look_ups.len() <= slot as usize {
            self.look_ups.resize(slot as usize + 1, LookUp::default());
        }
        let look_up = &mut self.look_ups[slot as usize];
        if !look_up.is_used() {
            self.active.push(slot);
        }
        *look_up.count(&key) += 1;
        self.bytes += key.text_bytes();
        self.born += 1;
        let filed = Some(Filed { key: Some(key), born: self.born, group: Group::default() });
        let group = match self.free.pop() {
            Some(free) => {
                self.groups[free as usize] = filed;
                free
            }
            None => {
                self.groups.push(filed);
                (self.groups.len() - 1) as u32
            }
        };
        let groups = &self.groups;
        let rehash = |id: &u32| match key_of(groups, *id) {
            Some(key) => hash_of(state, key.slot(), Wanted::from(key)),
            None => 0,
        };
        self.by_key.insert_unique(hash, group, rehash);
        group
    }

    /// Takes a group away if nothing lives in it. Returns the branches that were there.
    pub(super) fn remove_if_over(&mut self, group: u32) -> Option<Vec<BranchId>> {
        let filed = self.groups.get(group as usize)?.as_ref()?;
        let key = filed.key.as_ref()?;
        if !filed.group.is_over() {
            return None;
        }
        let slot = key.slot();
        let hash = hash_of(self.state, slot, Wanted::from(key));
        let filed = self.groups[group as usize].take()?;
        self.by_key.remove(hash, |known| *known == group);
        self.free.push(group);
        let own = filed.group.bytes() - size_of::<Group>();
        self.bytes -= own + filed.key.as_ref()?.text_bytes();
        let look_up = &mut self.look_ups[slot as usize];
        *look_up.count(filed.key.as_ref()?) -= 1;
        if !look_up.is_used() {
            self.active.retain(|active| *active != slot);
        }
        Some(filed.group.branches().collect())
    }

    #[inline]
    fn find(&self, hash: u64, slot: Slot, wanted: Wanted<'_>) -> Option<u32> {
        let is_same = |id: &u32| {
            key_of(&self.groups, *id).is_some_and(|key| key.slot() == slot && wanted.is(key))
        };
        self.by_key.find(hash, is_same).copied()
    }

    /// Calls `found` with each group that a message's values are filed under, unless `steps` runs out.
    pub(super) fn look_up(
        &self,
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        mut found: impl FnMut(&Group, &mut Steps),
    ) {
        let mut one = |slot: Slot, wanted: Wanted<'_>, steps: &mut Steps| {
            let bytes = match wanted {
                Wanted::Text(text) => text.len(),
                _ => 0,
            };
            let hash = steps::of_hash(bytes);
            if !steps.spend(steps::LOOK_UP) || (hash > 0 && !steps.spend_on_string(hash)) {
                return;
            }
            let group = self.find(hash_of(self.state, slot, wanted), slot, wanted);
            if let Some(Some(filed)) = group.map(|group| &self.groups[group as usize]) {
                found(&filed.group, steps);
            }
        };
        for &slot in &self.active {
            let look_up = &self.look_ups[slot as usize];
            let value = slots.get(slot as usize).copied().unwrap_or(Value::Missing);
            if look_up.equal > 0 {
                match value {
                    Value::Bool(value) => one(slot, Wanted::Bool(value), steps),
                    Value::Number(number) => {
                        one(slot, Wanted::Number(number.canonical()), steps);
                    }
                    Value::Text(span) => one(slot, Wanted::Text(sources.bytes(span)), steps),
                    Value::Untyped(span) => {
                        one(slot, Wanted::Text(sources.bytes(span)), steps);
                        if steps.spend_on_number(span.length as usize)
                            && let Some(number) = value.number(sources)
                        {
                            one(slot, Wanted::Number(number.canonical()), steps);
                        }
                    }
                    _ => {}
                }
            }
            let span = match value.string() {
                Some(span) if look_up.has_prefixes() => span,
                _ => continue,
            };
            for (length, groups) in PREFIXES.iter().zip(&look_up.prefixes) {
                if *groups > 0
                    && let Some(prefix) = sources.bytes(span).get(..*length)
                {
                    one(slot, Wanted::Prefix(prefix), steps);
                }
            }
        }
        if let Some(Some(filed)) = self.groups.first() {
            found(&filed.group, steps);
        }
    }

    /// Whether there is no group but that of all messages.
    #[cfg(test)]
    pub(super) fn is_alone(&self) -> bool {
        self.groups.iter().flatten().count() == 1
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Option<Filed>>()
            + self.free.capacity() * size_of::<u32>()
            + self.by_key.allocation_size()
            + self.look_ups.capacity() * size_of::<LookUp>()
            + self.active.capacity() * size_of::<Slot>()
            + self.bytes
    }
}

fn key_of(groups: &[Option<Filed>], group: u32) -> Option<&GroupKey> {
    groups.get(group as usize)?.as_ref()?.key.as_ref()
}

#[inline]
fn hash_of(state: HashState, slot: Slot, wanted: Wanted<'_>) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write_u32(slot);
    match wanted {
        Wanted::Bool(value) => hasher.write_u8(u8::from(value)),
        Wanted::Number(number) => number.hash(&mut hasher),
        Wanted::Text(text) => hasher.write(text),
        Wanted::Prefix(text) => {
            hasher.write_u8(2);
            hasher.write(text);
        }
    }
    hasher.finish()
}
