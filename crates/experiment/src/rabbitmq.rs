//! A RabbitMQ of one's own: started from what is installed, with ports, data, logs, cookie and settings apart
//! from any other, and without plugins.

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
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }

    /// Sets what makes a command of RabbitMQ's mean this node.
    pub fn set_environment(&self, command: &mut Command) {
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

    /// Asks the node to evaluate an expression of Erlang's.
    ///
    /// # Errors
    /// When the control script cannot be run.
    pub fn evaluate(&self, expression: &str) -> io::Result<String> {
        let mut command = Command::new(format!("{SCRIPTS}/rabbitmqctl"));
        self.set_environment(&mut command);
        let output = command.args(["-n", &self.name, "eval", expression]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The node's own process once it listens.
    ///
    /// # Errors
    /// When the node has not written it.
    pub fn pid(&self) -> io::Result<u32> {
        let text = fs::read_to_string(self.scratch.join("pid"))?;
        text.trim().parse().map_err(io::Error::other)
    }
}
