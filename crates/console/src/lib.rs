//! What command lines share: output that nobody may read, and the word that was meant.
//!
//! `println!` and `eprintln!` end the program with a panic where their reader has gone or the disk is full. What a program
//! prints by this crate never does.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::sync::{Mutex, PoisonError};

/// Why standard output took something no more.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// Writes a line to standard error. Where that takes nothing the program goes on: a panic would leave brokers behind
/// that it started.
pub fn to_stderr(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

/// Writes to standard output at once. The program goes on whatever comes of it; [`outcome`] tells whether all was taken.
pub fn print(text: impl Display) {
    let mut out = stdout().lock();
    if let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) {
        // A reader that went away has seen what it wanted.
        if error.kind() != ErrorKind::BrokenPipe {
            let text = format!("cannot write to standard output: {error}");
            LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        }
    }
}

/// [`print`] for a line.
pub fn say(line: impl Display) {
    print(format_args!("{line}\n"));
}

/// Whether all that was printed was taken, as far as somebody reads it.
///
/// # Errors
/// Why not, in words, where a disk is full or the like. A program that did all else well ends with its code for a failure
/// then.
pub fn outcome() -> Result<(), String> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
}

/// The name with the fewest edits from `word` among those that may be meant by it, the first of several.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.into_iter().filter_map(|name| Some((distance(word, name)?, name)));
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// How many letters of `word` are put in, taken out, changed or swapped with their neighbour in `name`; capital letters
/// are no difference. `None` where these are more than a third of the letters (one is always allowed), or all.
#[must_use]
pub fn distance(word: &str, name: &str) -> Option<usize> {
    let (letters, others) = (word.chars().count(), name.chars().count());
    let allowed = (letters.max(others) / 3).max(1);
    // No fewer edits than this: a long word is not compared with short names.
    if letters.abs_diff(others) > allowed {
        return None;
    }
    let edits = strsim::osa_distance(&word.to_lowercase(), &name.to_lowercase());
    (edits <= allowed && edits < letters.min(others)).then_some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_named_and_the_far_is_not() {
        let known = ["user", "serve", "status", "store"];
        assert_eq!(nearest("serv", known), Some("serve"));
        assert_eq!(nearest("srve", known), Some("serve"));
        assert_eq!(nearest("SERVE", known), Some("serve"));
        assert_eq!(nearest("stroe", known), Some("store"));
        assert_eq!(nearest("policy", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"serve".repeat(100_000), known), None);
    }

    #[test]
    fn a_third_of_the_letters_may_differ() {
        assert_eq!(distance("serv", "user"), None);
        assert_eq!(distance("chanel_max", "channel_max"), Some(1));
        assert_eq!(distance("hearbteat", "heartbeat"), Some(1));
        assert_eq!(distance("prodcuers", "producers"), Some(1));
        assert_eq!(distance("ad", "da"), Some(1));
        assert_eq!(distance("a", "b"), None);
        assert_eq!(distance("abcdef", "abcdxy"), Some(2));
        assert_eq!(distance("abcdef", "abcxyz"), None);
    }
}
