//! Apache Qpid Broker-J under test: the program of `bench/qpid-peer`.

use crate::java;
use std::path::Path;
use std::process::Command;

const CLASS: &str = "QpidPeer";
/// The settings as reports have them.
pub const SETTINGS: &str =
    "java -Xmx2g; messages and settings in memory, 0-9-1 alone, everything else as it comes";

/// Why it cannot be started from `built`, the directory that `bench/qpid-peer` is built to, if so.
#[must_use]
pub fn missing(built: &Path) -> Option<String> {
    java::missing(built, CLASS, "qpid")
}

/// The command that starts it on `port`, with its settings below `data`.
#[must_use]
pub fn command(built: &Path, port: u16, data: &Path) -> Command {
    let mut command = java::command(built, CLASS);
    command.arg(port.to_string()).arg(data);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gets_a_port_and_a_directory() {
        let command = command(Path::new("/b"), 5000, Path::new("/d"));
        let words: Vec<&str> = command.get_args().filter_map(|word| word.to_str()).collect();
        assert_eq!(words[3..], ["QpidPeer", "5000", "/d"]);
        assert!(SETTINGS.contains(java::HEAP));
    }
}
