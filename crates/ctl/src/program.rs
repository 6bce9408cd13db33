//! Whose language is spoken.

/// A program whose command line is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `rabbitmqctl`
    Ctl,
    /// `rabbitmq-diagnostics`
    Diagnostics,
    /// `rabbitmq-plugins`
    Plugins,
    /// `rabbitmq-queues`
    Queues,
    /// `rabbitmq-upgrade`
    Upgrade,
    /// `rabbitmq-streams`
    Streams,
    /// `rabbitmqadmin`, the Python program of RabbitMQ 3
    Admin,
}

/// All of them.
pub const PROGRAMS: [Program; 7] = [
    Program::Ctl,
    Program::Diagnostics,
    Program::Plugins,
    Program::Queues,
    Program::Upgrade,
    Program::Streams,
    Program::Admin,
];

impl Program {
    /// The name that it is started under.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Program::Ctl => "rabbitmqctl",
            Program::Diagnostics => "rabbitmq-diagnostics",
            Program::Plugins => "rabbitmq-plugins",
            Program::Queues => "rabbitmq-queues",
            Program::Upgrade => "rabbitmq-upgrade",
            Program::Streams => "rabbitmq-streams",
            Program::Admin => "rabbitmqadmin",
        }
    }

    /// The program of that name; a directory before it does not count, nor does `.exe` or `.py`.
    #[must_use]
    pub fn of(name: &str) -> Option<Program> {
        let name = name.rsplit('/').next().unwrap_or(name);
        let name = name.strip_suffix(".exe").or(name.strip_suffix(".py")).unwrap_or(name);
        PROGRAMS.into_iter().find(|program| program.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_the_last_part_of_its_name() {
        assert_eq!(Program::of("/usr/sbin/rabbitmqctl"), Some(Program::Ctl));
        assert_eq!(Program::of("rabbitmqadmin.py"), Some(Program::Admin));
        assert_eq!(Program::of("rabbitmq-upgrade"), Some(Program::Upgrade));
        assert_eq!(Program::of("lepus"), None);
    }
}
