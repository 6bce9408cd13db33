//! Operations carried out on the calling thread.

use std::path::Path;
use std::sync::Arc;

use lepus_store::disk::{Completion, Operation};

use super::carry::{Failure, Files};

/// Carries operations out one by one, for the start, when there is nobody to keep waiting.
#[derive(Debug)]
pub struct Blocking {
    files: Arc<Files>,
    failures: Vec<Failure>,
}

impl Blocking {
    /// For the logs below `directory`, which exists.
    #[must_use]
    pub fn new(directory: &Path) -> Blocking {
        Blocking::with(Arc::new(Files::new(directory, 0)))
    }

    /// For files that a port is to serve afterwards.
    #[must_use]
    pub fn with(files: Arc<Files>) -> Blocking {
        Blocking { files, failures: Vec::new() }
    }

    /// Carries the operation out.
    pub fn run(&mut self, operation: Operation) -> Completion {
        let (completion, failure) = self.files.carry_out(operation);
        self.failures.extend(failure);
        completion
    }

    /// What the system said about operations that failed, oldest first.
    #[must_use]
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }
}
