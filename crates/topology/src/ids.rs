//! Sets of CPUs or nodes by the system's numbers, written as the kernel writes them: `0,2,4-7`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The largest number that is taken; the kernel's own limit is lower.
pub const ID_MAX: u32 = 65_535;

/// A set of numbers, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ids(BTreeSet<u32>);

impl Ids {
    /// The empty set.
    #[must_use]
    pub fn new() -> Ids {
        Ids::default()
    }

    /// Adds a number.
    pub fn insert(&mut self, id: u32) {
        self.0.insert(id);
    }

    /// Whether the number is in the set.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.0.contains(&id)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The smallest number.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Those that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Ids) -> Ids {
        Ids(self.0.intersection(&other.0).copied().collect())
    }

    /// Those that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Ids) -> Ids {
        Ids(self.0.difference(&other.0).copied().collect())
    }

    /// Whether all of these are in `other`.
    #[must_use]
    pub fn is_within(&self, other: &Ids) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<u32> for Ids {
    fn from_iter<T: IntoIterator<Item = u32>>(ids: T) -> Ids {
        Ids(ids.into_iter().collect())
    }
}

impl FromStr for Ids {
    type Err = String;

    /// Reads `0,2,4-7`; an empty text is the empty set. Spaces and a line's end are passed over.
    fn from_str(text: &str) -> Result<Ids, String> {
        let mut ids = Ids::new();
        if text.trim().is_empty() {
            return Ok(ids);
        }
        for part in text.trim().split(',') {
            let wrong = || {
                format!(
                    "`{}` is no list of numbers from 0 to {ID_MAX} such as 0,2,4-7",
                    text.trim()
                )
            };
            let number = |text: &str| -> Option<u32> {
                let text = text.trim();
                let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|id| plain && *id <= ID_MAX)
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first), number(last)),
                None => (number(part), number(part)),
            };
            let (first, last) = first.zip(last).ok_or_else(wrong)?;
            if first > last {
                return Err(wrong());
            }
            ids.0.extend(first..=last);
        }
        Ok(ids)
    }
}

impl TryFrom<String> for Ids {
    type Error = String;

    fn try_from(text: String) -> Result<Ids, String> {
        text.parse()
    }
}

impl From<Ids> for String {
    fn from(ids: Ids) -> String {
        ids.to_string()
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut is_first = true;
        while let Some(first) = ids.next() {
            let mut last = first;
            while ids.peek() == Some(&(last + 1)) {
                last += 1;
                ids.next();
            }
            if !is_first {
                f.write_str(",")?;
            }
            is_first = false;
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for text in ["", "0", "0,2,4-7", "0,1", "0-2,9", "65535"] {
            assert_eq!(text.parse::<Ids>().unwrap().to_string(), text);
        }
        assert_eq!("3,1,2\n".parse::<Ids>().unwrap().to_string(), "1-3");
        for wrong in ["x", "1-", "-1", "3-1", "1,,2", "+1", "65536", "0-4000000000", "1;2"] {
            let error = wrong.parse::<Ids>().unwrap_err();
            assert!(error.contains("0,2,4-7"), "{error}");
        }
    }

    #[test]
    fn sets_are_combined() {
        let set = |text: &str| text.parse::<Ids>().unwrap();
        assert_eq!(set("0-3").and(&set("2-9")), set("2,3"));
        assert_eq!(set("0-3").without(&set("2-9")), set("0,1"));
        assert!(set("2").is_within(&set("0-3")));
        assert!(!set("2,5").is_within(&set("0-3")));
    }
}
