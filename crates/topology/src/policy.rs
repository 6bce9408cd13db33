//! The operator's words for where shards shall be.

use crate::ids::Ids;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Which CPUs get shards, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Policy {
    /// Only these CPUs.
    pub cpus: Option<Ids>,
    /// Only CPUs of these nodes.
    pub nodes: Option<Nodes>,
    /// In which order CPUs are taken.
    pub order: Order,
    /// One CPU of each core, however many threads it has.
    pub one_per_core: bool,
}

/// A choice of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// These.
    Only(Ids),
    /// All but these.
    AllBut(Ids),
}

/// In which order CPUs are taken when there are more of them than shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Cores before sibling threads, near the network card before far from it.
    #[default]
    Auto,
    /// A node is filled, siblings included, before the next is begun.
    Compact,
    /// Nodes in turn.
    Spread,
}

/// What is accepted.
pub const ACCEPTED: &str = "auto, compact, spread, one-per-core, cpus=0,2-5, nodes=0,1 or nodes=!0; \
several of them joined by +, such as nodes=!0+one-per-core";

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let mut policy = Policy::default();
        let mut order = None;
        let wrong = |word: &str| format!("`{word}` is no placement; accepted: {ACCEPTED}");
        for word in text.split('+').map(str::trim) {
            let taken = match word.split_once('=') {
                Some(("cpus", list)) => policy.cpus.replace(set(list)?).is_some(),
                Some(("nodes", list)) => {
                    let nodes = match list.strip_prefix('!') {
                        Some(list) => Nodes::AllBut(set(list)?),
                        None => Nodes::Only(set(list)?),
                    };
                    policy.nodes.replace(nodes).is_some()
                }
                Some(_) => return Err(wrong(word)),
                None => match word {
                    "auto" => order.replace(Order::Auto).is_some(),
                    "compact" => order.replace(Order::Compact).is_some(),
                    "spread" => order.replace(Order::Spread).is_some(),
                    "one-per-core" => std::mem::replace(&mut policy.one_per_core, true),
                    _ => return Err(wrong(word)),
                },
            };
            if taken {
                return Err(format!("`{text}` says the same thing twice; accepted: {ACCEPTED}"));
            }
        }
        policy.order = order.unwrap_or_default();
        Ok(policy)
    }
}

fn set(list: &str) -> Result<Ids, String> {
    let ids: Ids = list.parse()?;
    if ids.is_empty() { Err("a list of numbers is expected behind =".to_owned()) } else { Ok(ids) }
}

impl TryFrom<String> for Policy {
    type Error = String;

    fn try_from(text: String) -> Result<Policy, String> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        policy.to_string()
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if let Some(cpus) = &self.cpus {
            words.push(format!("cpus={cpus}"));
        }
        match &self.nodes {
            Some(Nodes::Only(nodes)) => words.push(format!("nodes={nodes}")),
            Some(Nodes::AllBut(nodes)) => words.push(format!("nodes=!{nodes}")),
            None => {}
        }
        match self.order {
            Order::Auto => {}
            Order::Compact => words.push("compact".to_owned()),
            Order::Spread => words.push("spread".to_owned()),
        }
        if self.one_per_core {
            words.push("one-per-core".to_owned());
        }
        if words.is_empty() { f.write_str("auto") } else { f.write_str(&words.join("+")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_written_alike() {
        for text in [
            "auto",
            "compact",
            "spread",
            "one-per-core",
            "cpus=0,2-5",
            "nodes=1-3",
            "nodes=!0",
            "cpus=0-7+nodes=!0+spread+one-per-core",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_policy_is_told_what_would_be() {
        for text in ["", "dense", "cpus=", "nodes=!", "cores=1", "auto+spread", "cpus=1+cpus=2"] {
            let error = text.parse::<Policy>().unwrap_err();
            assert!(error.contains("accepted") || error.contains("expected"), "{error}");
        }
    }
}
