//! The project's own commands: `cargo xtask tidy`, `dependencies` and `check`.
#![forbid(unsafe_code)]

mod check;
mod dependencies;
mod lexer;
mod rules;
mod source;
mod tee;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask tidy            the rules that a compiler does not know
cargo xtask dependencies    licences of all packages, and packages that are built twice
cargo xtask check           everything that must pass before a change lands
cargo xtask check NAME ...  only the named sections of it
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    match arguments.first().map(String::as_str) {
        Some("tidy") => match tidy::run(&root) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("tidy: cannot read the tree at {}: {error}", root.display());
                ExitCode::FAILURE
            }
        },
        Some("dependencies") => match dependencies::run(&root) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("dependencies: {error}");
                ExitCode::FAILURE
            }
        },
        Some("check") => check::run(&root, &arguments[1..]),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository: this package lies directly below it.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}
