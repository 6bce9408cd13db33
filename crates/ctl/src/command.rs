//! What a command is: one row of the table that the help, the documentation and [`crate::run`] are made of.

mod call;
mod column;
mod rows;

pub use call::{Call, joined};
pub use column::{Column, Kind, atom, json, plain, table, tags};
pub use rows::{all_pages, check_columns, listing, listing_of};

use crate::failure::Failure;
use crate::options::Flag;
use crate::output::Output;
use crate::program::Program;

/// What a command does when it is called.
pub type Action = fn(&mut Call<'_>) -> Result<Output, Failure>;

/// Any number of words.
pub const MANY: usize = usize::MAX;

/// Where a command stands in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Help
    Help,
    /// Nodes
    Nodes,
    /// Cluster
    Cluster,
    /// Replication
    Replication,
    /// Users
    Users,
    /// Access control
    Access,
    /// Monitoring
    Monitoring,
    /// Parameters
    Parameters,
    /// Policies
    Policies,
    /// Virtual hosts
    Vhosts,
    /// Configuration
    Configuration,
    /// Definitions
    Definitions,
    /// Feature flags
    FeatureFlags,
    /// Operations
    Operations,
    /// Queues
    Queues,
    /// Plugins
    Plugins,
    /// Upgrade
    Upgrade,
    /// Deprecated
    Deprecated,
}

/// The groups as the help shows them.
pub const GROUPS: [(Group, &str); 18] = [
    (Group::Help, "Help"),
    (Group::Nodes, "Nodes"),
    (Group::Cluster, "Cluster"),
    (Group::Replication, "Replication"),
    (Group::Users, "Users"),
    (Group::Access, "Access Control"),
    (Group::Monitoring, "Monitoring, observability and health checks"),
    (Group::Parameters, "Parameters"),
    (Group::Policies, "Policies"),
    (Group::Vhosts, "Virtual hosts"),
    (Group::Configuration, "Configuration and Environment"),
    (Group::Definitions, "Definitions"),
    (Group::FeatureFlags, "Feature flags"),
    (Group::Operations, "Operations"),
    (Group::Queues, "Queues"),
    (Group::Plugins, "Plugin Management"),
    (Group::Upgrade, "Upgrade"),
    (Group::Deprecated, "Deprecated"),
];

/// What must be so before a command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A broker that serves clients.
    Running,
    /// A broker that answers, even if `stop_app` stopped it.
    Reachable,
    /// Nothing.
    Nothing,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// The programs that have it.
    pub programs: &'static [Program],
    /// Where the help shows it.
    pub group: Group,
    /// What stands behind its name in the usage.
    pub usage: &'static str,
    /// What it does: one sentence.
    pub about: &'static str,
    /// The least and the greatest number of words behind its name.
    pub words: (usize, usize),
    /// Flags of its own.
    pub flags: &'static [Flag],
    /// The columns of its table.
    pub columns: &'static [Column],
    /// Those that are shown when none are asked for.
    pub defaults: &'static [&'static str],
    /// Columns keep the order of the table whatever order they are asked in.
    pub sorts_columns: bool,
    /// What is printed before the result; see [`Call::fill`].
    pub banner: &'static str,
    /// The paths it calls, for the documentation.
    pub calls: &'static str,
    /// What must be so.
    pub needs: Needs,
    /// What it does.
    pub run: Action,
}

/// The programs that most commands belong to.
pub const CTL: &[Program] = &[Program::Ctl];
/// Those of commands that look and change nothing.
pub const LOOKING: &[Program] = &[Program::Ctl, Program::Diagnostics];
/// Those of checks.
pub const CHECKING: &[Program] = &[Program::Diagnostics];

impl Command {
    /// A command of `rabbitmqctl` with that many words and nothing else.
    pub const fn new(
        name: &'static str,
        group: Group,
        words: (usize, usize),
        run: Action,
    ) -> Command {
        Command {
            name,
            programs: CTL,
            group,
            usage: "",
            about: "",
            words,
            flags: &[],
            columns: &[],
            defaults: &[],
            sorts_columns: false,
            banner: "",
            calls: "",
            needs: Needs::Running,
            run,
        }
    }

    /// With the words of the help.
    #[must_use]
    pub const fn told(self, usage: &'static str, about: &'static str) -> Command {
        Command { usage, about, ..self }
    }

    /// With a banner.
    #[must_use]
    pub const fn banner(self, banner: &'static str) -> Command {
        Command { banner, ..self }
    }

    /// With the paths it calls.
    #[must_use]
    pub const fn calls(self, calls: &'static str) -> Command {
        Command { calls, ..self }
    }

    /// Of these programs.
    #[must_use]
    pub const fn of(self, programs: &'static [Program]) -> Command {
        Command { programs, ..self }
    }

    /// With flags.
    #[must_use]
    pub const fn flags(self, flags: &'static [Flag]) -> Command {
        Command { flags, ..self }
    }

    /// With a table of these columns, of which some are shown unasked.
    #[must_use]
    pub const fn table(
        self,
        columns: &'static [Column],
        defaults: &'static [&'static str],
    ) -> Command {
        Command { columns, defaults, ..self }
    }

    /// With what it needs.
    #[must_use]
    pub const fn needs(self, needs: Needs) -> Command {
        Command { needs, ..self }
    }

    /// The line that shows how it is called.
    #[must_use]
    pub fn usage_line(&self, program: Program) -> String {
        let line = format!(
            "{} [--node <node>] [--longnames] [--quiet] {} {}",
            program.name(),
            self.name,
            self.usage
        );
        line.trim_end().to_owned()
    }
}
