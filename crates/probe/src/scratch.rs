//! A directory for one test, removed afterwards.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty directory that lives as long as the value.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new directory; `name` only helps to tell it apart.
    pub fn new(name: &str) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let own = format!("lepus-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(own);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Scratch(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
