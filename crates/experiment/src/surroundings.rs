//! The environment of a broker under test: what somebody has set for a broker of his own is not for that one.

use std::ffi::{OsStr, OsString};
use std::process::Command;

/// What the names of brokers' settings begin with.
const PREFIXES: [&str; 3] = ["LEPUS_", "RABBITMQ_", "LAVINMQ_"];

/// Takes the settings of brokers out of what the command inherits. What is set for it afterwards holds.
pub fn clear(command: &mut Command) {
    remove(command, std::env::vars_os().map(|(name, _)| name));
}

fn remove(command: &mut Command, inherited: impl Iterator<Item = OsString>) {
    for name in inherited.filter(|name| is_setting(name)) {
        command.env_remove(name);
    }
}

fn is_setting(name: &OsStr) -> bool {
    PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_other_brokers_are_not_inherited() {
        let mut command = Command::new("x");
        let names = ["LEPUS_CONFIG", "RABBITMQ_NODENAME", "PATH", "LAVINMQ"].map(OsString::from);
        remove(&mut command, names.into_iter());
        command.env("RABBITMQ_NODENAME", "ours");
        let set: Vec<_> = command.get_envs().collect();
        let ours = Some(OsStr::new("ours"));
        assert_eq!(
            set,
            [(OsStr::new("LEPUS_CONFIG"), None), (OsStr::new("RABBITMQ_NODENAME"), ours)]
        );
    }
}
