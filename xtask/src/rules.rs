//! The rules, one file each. A finding says where and what to do about it.

pub mod circles;
pub mod crates;
pub mod emptiness;
pub mod impls;
pub mod length;
pub mod names;
pub mod protocol;
pub mod unsafety;
pub mod words;

use std::fmt;

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, from the root of the repository.
    pub path: String,
    /// The line from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub advice: String,
    /// Whether it is only worth a look.
    pub warning: bool,
}

impl Finding {
    /// A broken rule.
    pub fn error(path: &str, line: usize, advice: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, advice: advice.into(), warning: false }
    }

    /// Something worth a look.
    pub fn warning(path: &str, line: usize, advice: impl Into<String>) -> Finding {
        Finding { warning: true, ..Finding::error(path, line, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning" } else { "error" };
        match self.line {
            0 => write!(f, "{}: {kind}: {}", self.path, self.advice),
            line => write!(f, "{}:{line}: {kind}: {}", self.path, self.advice),
        }
    }
}
