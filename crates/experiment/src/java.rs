//! Peers that are Java programs: those of `bench/qpid-peer` and `bench/artemis-peer`, with the archives that Maven fetched for them.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The most memory that a virtual machine takes for objects.
pub const HEAP: &str = "-Xmx2g";
/// Words for every virtual machine that is started; these have those of the report.
const INHERITED: [&str; 2] = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"];

/// Why the program `class` cannot be started from `built`, the directory that `.ci/install NAME` builds it to, if so.
#[must_use]
pub fn missing(built: &Path, class: &str, name: &str) -> Option<String> {
    let program = built.join(format!("classes/{class}.class"));
    if !program.exists() {
        return Some(format!("{} is not there; `.ci/install {name}` builds it", program.display()));
    }
    let has_java = std::env::var_os("PATH").is_some_and(|path| has_program(&path, "java"));
    (!has_java).then(|| "there is no java".to_owned())
}

fn has_program(path: &OsStr, name: &str) -> bool {
    std::env::split_paths(path).any(|directory| directory.join(name).is_file())
}

/// The command that starts a program, to which its words are still to be added.
#[must_use]
pub fn command(built: &Path, class: &str) -> Command {
    let mut command = Command::new("java");
    for name in INHERITED {
        command.env_remove(name);
    }
    command.args([HEAP, "-cp"]).arg(class_path(built)).arg(class);
    command
}

fn class_path(built: &Path) -> OsString {
    let mut path = built.join("classes").into_os_string();
    path.push(":");
    path.push(built.join("jars/*"));
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;
    use std::fs;

    #[test]
    fn what_is_not_built_is_told_with_how_it_is_built() {
        let scratch = Scratch::new("java");
        let why = missing(scratch.path(), "QpidPeer", "qpid").unwrap();
        assert!(why.contains("QpidPeer.class") && why.contains(".ci/install qpid"), "{why}");
        fs::write(scratch.path().join("java"), "").unwrap();
        assert!(has_program(scratch.path().as_os_str(), "java"));
        assert!(!has_program(scratch.path().as_os_str(), "javac"));
    }

    #[test]
    fn programs_are_started_from_their_classes_and_archives() {
        let command = command(Path::new("/b"), "QpidPeer");
        let words: Vec<&str> = command.get_args().filter_map(|word| word.to_str()).collect();
        assert_eq!(words, ["-Xmx2g", "-cp", "/b/classes:/b/jars/*", "QpidPeer"]);
    }
}
