//! A recording whose functions have names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lepus_profile::{Group, Phase};

use crate::recording::Recording;
use crate::tree::Tree;

/// Whose samples a picture or table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All sampled threads.
    Sum,
    /// One shard's thread.
    Shard(u16),
}

impl Scope {
    /// For titles: `all threads` or `shard 3`.
    #[must_use]
    pub fn title(self) -> String {
        match self {
            Scope::Sum => "all threads".to_owned(),
            Scope::Shard(shard) => format!("shard {shard}"),
        }
    }

    /// For names of files: `sum` or `shard-3`.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Scope::Sum => "sum".to_owned(),
            Scope::Shard(shard) => format!("shard-{shard}"),
        }
    }

    fn holds(self, group: Group) -> bool {
        match self {
            Scope::Sum => true,
            Scope::Shard(shard) => group == Group::Shard(shard),
        }
    }
}

/// Equal stacks with names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// What the thread is for.
    pub group: Group,
    /// The phase it was in.
    pub phase: Phase,
    /// Names of the functions, outermost first; the first one in brackets is the phase, or what the
    /// thread is for; the last one is `[kernel: …]` in a system call.
    pub frames: Vec<String>,
    /// How many ticks they stand for.
    pub ticks: u64,
}

/// A profile to be read.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The stacks.
    pub stacks: Vec<Named>,
    /// Files without names.
    pub nameless: Vec<String>,
}

impl Profile {
    /// Names the functions of a recording; `names` gives those at an address, outermost first.
    #[must_use]
    pub fn new(recording: &Recording, mut names: impl FnMut(u64) -> Vec<String>) -> Profile {
        let mut known: HashMap<u32, Vec<String>> = HashMap::new();
        let mut counts: BTreeMap<(Group, Phase, Vec<String>), u64> = BTreeMap::new();
        for stack in &recording.stacks {
            let Some(thread) = recording.threads.get(stack.thread) else { continue };
            let phase = Phase::ALL.get(usize::from(stack.phase)).copied().unwrap_or_default();
            let mut frames = Vec::new();
            for index in stack.frames.iter().rev() {
                let Some(address) = recording.addresses.get(*index as usize) else { continue };
                frames.extend_from_slice(known.entry(*index).or_insert_with(|| names(*address)));
            }
            let mut frames = without_start(frames);
            if stack.is_in_kernel {
                frames.push(format!("[kernel: {}]", call_name(&frames)));
            }
            frames.insert(0, base(thread.group, phase));
            *counts.entry((thread.group, phase, frames)).or_default() += stack.ticks;
        }
        let stacks = counts
            .into_iter()
            .map(|((group, phase, frames), ticks)| Named { group, phase, frames, ticks })
            .collect();
        Profile { stacks, nameless: Vec::new() }
    }

    /// Everything that can be shown by itself: the sum, and each shard that was seen.
    #[must_use]
    pub fn scopes(&self) -> Vec<Scope> {
        let shards: BTreeSet<u16> = self
            .stacks
            .iter()
            .filter_map(|stack| match stack.group {
                Group::Shard(shard) => Some(shard),
                Group::Files | Group::Service => None,
            })
            .collect();
        std::iter::once(Scope::Sum).chain(shards.into_iter().map(Scope::Shard)).collect()
    }

    /// The stacks of a scope.
    pub fn of(&self, scope: Scope) -> impl Iterator<Item = &Named> {
        self.stacks.iter().filter(move |stack| scope.holds(stack.group))
    }

    /// Ticks of a scope.
    #[must_use]
    pub fn ticks(&self, scope: Scope) -> u64 {
        self.of(scope).map(|stack| stack.ticks).sum()
    }

    /// Ticks of the shards' phases within a scope, in the order of [`Phase::ALL`].
    #[must_use]
    pub fn phases(&self, scope: Scope) -> Vec<(Phase, u64)> {
        let ticks = |phase: Phase| {
            let of_shards = |stack: &&Named| matches!(stack.group, Group::Shard(_));
            let stacks = self.of(scope).filter(of_shards).filter(|stack| stack.phase == phase);
            stacks.map(|stack| stack.ticks).sum()
        };
        Phase::ALL.into_iter().map(|phase| (phase, ticks(phase))).collect()
    }

    /// From the duty cycle to the functions that ran: by accumulated time.
    #[must_use]
    pub fn tree(&self, scope: Scope) -> Tree {
        let mut tree = Tree::new(&scope.title());
        for stack in self.of(scope) {
            tree.add(stack.frames.iter().map(String::as_str), stack.ticks);
        }
        tree.sort();
        tree
    }

    /// From the functions that ran to those that called them: by own time.
    #[must_use]
    pub fn own_tree(&self, scope: Scope) -> Tree {
        let mut tree = Tree::new(&scope.title());
        for stack in self.of(scope) {
            tree.add(stack.frames.iter().rev().map(String::as_str), stack.ticks);
        }
        tree.sort();
        tree
    }
}

/// The frame that all others stand on.
fn base(group: Group, phase: Phase) -> String {
    match group {
        Group::Shard(_) => format!("[{}]", phase.name()),
        Group::Files => "[files]".to_owned(),
        Group::Service => "[services]".to_owned(),
    }
}

/// Without what every thread begins with: the same in all stacks, it says nothing.
fn without_start(mut frames: Vec<String>) -> Vec<String> {
    let start = frames.iter().rposition(|name| {
        name == "lepus_shard::duty::run" || name.ends_with("__rust_begin_short_backtrace")
    });
    if let Some(start) = start.filter(|start| start + 1 < frames.len()) {
        frames.drain(..=start);
    }
    frames
}

/// The name of the system call, as far as the function around it tells.
fn call_name(frames: &[String]) -> &str {
    let is_plain = |name: &&String| {
        !name.contains("::arch::") && !name.contains("syscall") && !name.starts_with("__internal")
    };
    let name = frames.iter().rev().find(is_plain).or(frames.last());
    let name = name.map_or("?", |name| name.rsplit("::").next().unwrap_or(name));
    name.trim_start_matches("__libc_").trim_start_matches("__")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::recording::tests::example;

    /// The made-up recording with made-up names; one address holds an inlined function.
    pub(crate) fn named() -> Profile {
        Profile::new(&example(), |address| {
            let names: &[&str] = match address {
                0x1100 => &["std::rt::__rust_begin_short_backtrace", "lepus_shard::duty::run"],
                0x1200 => &["lepus_broker::publish::publish", "lepus_broker::router::route"],
                0x1300 => &["memcpy"],
                _ => &["__libc_write"],
            };
            names.iter().map(|name| (*name).to_owned()).collect()
        })
    }

    #[test]
    fn stacks_stand_on_their_phase_and_end_in_the_kernel() {
        let profile = named();
        let lines: Vec<String> = profile
            .stacks
            .iter()
            .map(|stack| format!("{} {}", stack.frames.join(";"), stack.ticks))
            .collect();
        assert_eq!(
            lines,
            [
                "[handle];lepus_broker::publish::publish;lepus_broker::router::route 60",
                "[handle];lepus_broker::publish::publish;lepus_broker::router::route;memcpy 20",
                "[write];__libc_write;[kernel: write] 20",
                "[poll];__libc_write;[kernel: write] 50",
                "[files];__libc_write;[kernel: write] 10",
            ]
        );
        assert_eq!(profile.scopes(), [Scope::Sum, Scope::Shard(0), Scope::Shard(1)]);
        assert_eq!(profile.ticks(Scope::Sum), 160);
        assert_eq!(profile.ticks(Scope::Shard(0)), 100);
    }

    #[test]
    fn phases_are_those_of_shards() {
        let profile = named();
        let ticks = |scope, phase| {
            let phases = profile.phases(scope);
            phases.into_iter().find(|(other, _)| *other == phase).unwrap().1
        };
        assert_eq!(ticks(Scope::Sum, Phase::Handle), 80);
        assert_eq!(ticks(Scope::Sum, Phase::None), 0, "files have no phases");
        assert_eq!(ticks(Scope::Shard(1), Phase::Poll), 50);
    }

    #[test]
    fn own_time_is_the_other_way_round() {
        let profile = named();
        let tree = profile.own_tree(Scope::Sum);
        let first = &tree.nodes()[tree.nodes()[0].children[0]];
        assert_eq!((first.name.as_str(), first.total), ("[kernel: write]", 80));
        assert_eq!(tree.total(), profile.tree(Scope::Sum).total());
    }
}
