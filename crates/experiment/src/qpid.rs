//! Apache Qpid Broker-J under test: the program of `bench/qpid-peer` with the archives that Maven fetched for it.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The most memory that its virtual machine takes for objects.
const HEAP: &str = "-Xmx2g";
/// Words for every virtual machine that is started; this one has those of the report.
const INHERITED: [&str; 2] = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"];
/// The settings as reports have them.
pub const SETTINGS: &str =
    "java -Xmx2g; messages and settings in memory, 0-9-1 alone, everything else as it comes";

/// Why it cannot be started from `built`, the directory that `bench/qpid-peer` is built to, if so.
#[must_use]
pub fn missing(built: &Path) -> Option<String> {
    let program = built.join("classes/QpidPeer.class");
    if !program.exists() {
        return Some(format!("{} is not there; `.ci/install qpid` builds it", program.display()));
    }
    let has_java = std::env::var_os("PATH").is_some_and(|path| has_program(&path, "java"));
    (!has_java).then(|| "there is no java".to_owned())
}

fn has_program(path: &OsStr, name: &str) -> bool {
    std::env::split_paths(path).any(|directory| directory.join(name).is_file())
}

/// The command that starts it on `port`, with its settings below `data`.
#[must_use]
pub fn command(built: &Path, port: u16, data: &Path) -> Command {
    let mut command = Command::new("java");
    for name in INHERITED {
        command.env_remove(name);
    }
    command.args([HEAP, "-cp"]);
    command.arg(class_path(built)).arg("QpidPeer").arg(port.to_string()).arg(data);
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
        let scratch = Scratch::new("qpid");
        let why = missing(scratch.path()).unwrap();
        assert!(why.contains("QpidPeer.class") && why.contains(".ci/install qpid"), "{why}");
        fs::write(scratch.path().join("java"), "").unwrap();
        assert!(has_program(scratch.path().as_os_str(), "java"));
        assert!(!has_program(scratch.path().as_os_str(), "javac"));
    }

    #[test]
    fn it_is_started_from_its_classes_and_archives() {
        let command = command(Path::new("/b"), 5000, Path::new("/d"));
        let words: Vec<&str> = command.get_args().filter_map(|word| word.to_str()).collect();
        assert_eq!(words, ["-Xmx2g", "-cp", "/b/classes:/b/jars/*", "QpidPeer", "5000", "/d"]);
        assert!(SETTINGS.contains(HEAP));
    }
}
