//! The rules of the project that a compiler does not know, run over the whole tree.

use crate::rules::{self, Finding};
use crate::source::Source;
use std::path::Path;
use std::{fs, io};

/// Directories that hold nothing of the project's own, and `tests/e2e`, whose suites are clients in
/// many languages with habits of their own.
const SKIPPED: [&str; 9] =
    ["target", "data", "build", "node_modules", ".git", ".venv", "e2e", "corpus", "artifacts"];

/// What the rules look at: every Rust file and every `Cargo.toml`, as (path from the root, text).
pub struct Tree {
    /// Files ending in `.rs`, sorted by path.
    pub sources: Vec<(String, String)>,
    /// Files named `Cargo.toml`, sorted by path.
    pub manifests: Vec<(String, String)>,
    /// Exceptions from the length of functions, as written in `xtask/exceptions.txt`.
    pub exceptions: String,
}

impl Tree {
    /// Reads the tree below `root`.
    ///
    /// # Errors
    /// When a directory or file cannot be read.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree {
            sources: Vec::new(),
            manifests: Vec::new(),
            exceptions: fs::read_to_string(root.join("xtask/exceptions.txt"))?,
        };
        tree.walk(root, "")?;
        tree.sources.sort();
        tree.manifests.sort();
        Ok(tree)
    }

    fn walk(&mut self, directory: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.walk(&entry.path(), &format!("{path}/"))?;
                }
            } else if name.ends_with(".rs") {
                self.sources.push((path, fs::read_to_string(entry.path())?));
            } else if name == "Cargo.toml" {
                self.manifests.push((path, fs::read_to_string(entry.path())?));
            }
        }
        Ok(())
    }
}

/// All findings of all rules over `tree`.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources: Vec<Source<'_>> =
        tree.sources.iter().map(|(path, text)| Source::new(path, text)).collect();
    let mut findings = Vec::new();
    rules::crates::check(&tree.manifests, &sources, &mut findings);
    rules::circles::check(&sources, &mut findings);
    rules::impls::check(&sources, &mut findings);
    rules::length::check(&sources, &tree.exceptions, &mut findings);
    for source in &sources {
        rules::unsafety::check(source, &mut findings);
        rules::names::check(source, &mut findings);
        rules::emptiness::check(source, &mut findings);
        rules::words::check(source, &mut findings);
        rules::protocol::check(source, &mut findings);
    }
    findings
}

/// Prints the findings and says whether the tree may stay as it is.
///
/// # Errors
/// When the tree cannot be read.
pub fn run(root: &Path) -> io::Result<bool> {
    let tree = Tree::read(root)?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| !finding.warning).count();
    let warnings = findings.len() - errors;
    println!("tidy: {} files, {errors} errors, {warnings} warnings", tree.sources.len());
    Ok(errors == 0)
}
