//! Apache Artemis under test: the program of `bench/artemis-peer`. It does not speak AMQP 0-9-1.

use crate::java;
use std::path::Path;
use std::process::Command;

const CLASS: &str = "ArtemisPeer";
#[cfg(feature = "bench")]
const LOAD: &str = "ArtemisLoad";
/// How the line begins that it prints once it takes connections; its product follows.
const READY: &str = "ready ";
/// The settings as reports have them.
pub const SETTINGS: &str =
    "java -Xmx2g; messages in memory, its own protocol, no users, everything else as it comes";

/// Why it cannot be started from `built`, the directory that `bench/artemis-peer` is built to, if so.
#[must_use]
pub fn missing(built: &Path) -> Option<String> {
    java::missing(built, CLASS, "artemis")
}

/// The command that starts it on `port`, with what it writes below `data`.
#[must_use]
pub fn command(built: &Path, port: u16, data: &Path) -> Command {
    let mut command = java::command(built, CLASS);
    command.arg(port.to_string()).arg(data);
    command
}

/// The command of its load, to which its words are still to be added.
#[cfg(feature = "bench")]
#[must_use]
pub fn load(built: &Path) -> Command {
    java::command(built, LOAD)
}

/// Product and version, of what it printed; nothing while it does not take connections.
#[must_use]
pub fn product(printed: &str) -> Option<String> {
    printed.lines().find_map(|line| line.strip_prefix(READY)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gets_a_port_and_a_directory() {
        let command = command(Path::new("/b"), 5000, Path::new("/d"));
        let words: Vec<&str> = command.get_args().filter_map(|word| word.to_str()).collect();
        assert_eq!(words[3..], ["ArtemisPeer", "5000", "/d"]);
        assert!(SETTINGS.contains(java::HEAP));
    }

    #[test]
    fn its_product_is_known_once_it_is_ready() {
        assert_eq!(
            product("starting\nready Apache Artemis 2.56.0\n").unwrap(),
            "Apache Artemis 2.56.0"
        );
        assert_eq!(product("starting\n"), None);
    }
}
