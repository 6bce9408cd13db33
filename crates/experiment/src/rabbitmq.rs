//! A RabbitMQ of one's own: started from what is installed, with ports, data, logs, cookie and settings apart
//! from any other, and without plugins.

use crate::guard::watch;
use crate::metrics::Counts;
use crate::surroundings;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where Debian puts RabbitMQ's scripts. The wrappers on the path insist on a user of their own.
const SCRIPTS: &str = "/usr/lib/rabbitmq/bin";

/// A node that may be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, `NAME@localhost`.
    pub name: String,
    /// The port of AMQP; the two behind it serve the node's traffic and its port mapper.
    pub port: u16,
    /// A directory for everything that it keeps.
    pub scratch: PathBuf,
}

impl Node {
    /// Why none can be started here, if so.
    #[must_use]
    pub fn missing() -> Option<String> {
        let needed = Path::new(SCRIPTS).join("rabbitmq-server");
        (!needed.exists()).then(|| format!("{} is not there", needed.display()))
    }

    /// The command that starts the node.
    #[must_use]
    pub fn server() -> String {
        format!("{SCRIPTS}/rabbitmq-server")
    }

    /// Makes the directories and starts the port mapper, which the caller ends.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn start_mapper(&self) -> io::Result<Child> {
        for directory in ["mnesia", "log"] {
            fs::create_dir_all(self.scratch.join(directory))?;
        }
        fs::write(self.scratch.join("enabled_plugins"), "[].\n")?;
        let port = (self.port + 2).to_string();
        let mut command = Command::new("epmd");
        // Ctrl-C is for whoever ends the node in order; the node would start another mapper meanwhile.
        command.args(["-port", &port]).process_group(0);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().inspect(watch);
        child.map_err(|error| io::Error::other(format!("cannot start epmd: {error}")))
    }

    /// Sets what makes a command of RabbitMQ's mean this node, and nothing that was set for another.
    pub fn set_environment(&self, command: &mut Command) {
        surroundings::clear(command);
        command.env("RABBITMQ_NODENAME", &self.name);
        command.env("RABBITMQ_NODE_PORT", self.port.to_string());
        command.env("RABBITMQ_DIST_PORT", (self.port + 1).to_string());
        command.env("ERL_EPMD_PORT", (self.port + 2).to_string());
        for (name, file) in [
            ("RABBITMQ_MNESIA_BASE", "mnesia"),
            ("RABBITMQ_LOG_BASE", "log"),
            ("RABBITMQ_PID_FILE", "pid"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
            ("RABBITMQ_CONFIG_FILE", "none"),
            ("HOME", ""),
        ] {
            command.env(name, self.scratch.join(file));
        }
        command.env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
    }

    /// Where it keeps its messages.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.scratch.join("mnesia")
    }

    /// What it has counted; a program that takes seconds of CPU asks it.
    ///
    /// # Errors
    /// When the control script cannot be run.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut command = Command::new(format!("{SCRIPTS}/rabbitmqctl"));
        self.set_environment(&mut command);
        let overview = "rabbit_global_counters:overview().";
        let output = command.args(["-n", &self.name, "eval", overview]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(Counts {
            received: sum(&text, "messages_received_total"),
            delivered: sum(&text, "messages_delivered_total"),
            acknowledged: sum(&text, "messages_acknowledged_total"),
            spin_micros: 0,
        })
    }
}

/// The sum of a counter over all maps of RabbitMQ's overview.
fn sum(overview: &str, name: &str) -> u64 {
    let counter = |at: usize| {
        let rest = overview[at + name.len()..].trim_start();
        let rest = rest.strip_prefix("=>")?.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        rest[..end].parse::<u64>().ok()
    };
    overview
        .match_indices(name)
        .filter(|(at, _)| !overview[..*at].ends_with('_'))
        .filter_map(|(at, _)| counter(at))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_overview_are_summed() {
        let text = "#{[{protocol,amqp091}] =>\n  #{consumers => 301,messages_received_total => 40,\n\
                    x_messages_received_total => 7},\n [{queue_type,q}] =>\n \
                    #{messages_received_total => 2}}";
        assert_eq!(sum(text, "messages_received_total"), 42);
        assert_eq!(sum(text, "messages_delivered_total"), 0);
    }
}
