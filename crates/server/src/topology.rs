//! `lepus topology`: the machine, where shards would be on it, and where those of a running broker
//! are.

mod standpoint;

pub use standpoint::Standpoint;

use crate::config::Config;
use crate::control::{self, ControlError};
use crate::flags::{BrokerFlags, Settings};
use crate::placement::{disk_bytes, place};
use clap::Args;
use lepus_topology::report::{self, Report};
use lepus_topology::{Machine, description, source};

/// What stands behind the options in the help.
fn examples() -> String {
    format!(
        "Without --from and --plan the running broker is asked; when none runs, the configuration's placement is planned.
MACHINE may be one of the examples {}.
POLICY is a value of the setting `placement`: {}

Examples:
  lepus topology                                     this machine, and the broker on it
  lepus topology --plan nodes=!0 --explain           a placement, and why
  lepus topology --from artemis --plan spread --shards 8
  lepus topology --from 'pack:2 numa:2 core:6 pu:2' --svg > machine.svg",
        source::EXAMPLES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        lepus_topology::POLICIES_ACCEPTED
    )
}

/// Shows the machine, where shards would be, and where they are
///
/// Packages, cores, caches, memory nodes, network cards and disks, and what of it this program may use; with where each shard,
/// its memory, its log and the cards are, for a running broker, or where they would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(after_help = examples())]
pub struct Call {
    /// Another machine: a file saved by `lstopo FILE.xml` or `lepus topology --toml`, an example's name, or hwloc's synthetic
    /// form
    #[arg(long, value_name = "MACHINE", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Plans with this placement
    #[arg(long, alias = "placement", value_name = "POLICY", allow_hyphen_values = true)]
    pub plan: Option<String>,
    /// Plans with so many shards; one per CPU when left out
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub shards: Option<String>,
    /// Whether shards are bound to CPUs, as the setting says
    #[arg(long, value_name = "VALUE", num_args = 0..=1, default_missing_value = "true")]
    pub pin: Option<String>,
    /// Says why each shard is where it is
    #[arg(long)]
    pub explain: bool,
    /// Prints one object for programs
    #[arg(long, overrides_with_all = ["svg", "toml"])]
    pub json: bool,
    /// Prints a picture
    #[arg(long, overrides_with_all = ["json", "toml"])]
    pub svg: bool,
    /// Prints the machine alone, as --from reads it
    #[arg(long, overrides_with_all = ["json", "svg"])]
    pub toml: bool,
    /// Where the broker is found.
    #[command(flatten)]
    pub broker: BrokerFlags,
}

impl Call {
    /// Settings that decide about the plan, and where the broker is found.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let mut settings = self.broker.settings();
        let flags = [("--placement", &self.plan), ("--shards", &self.shards), ("--pin", &self.pin)];
        let given = |(flag, text): (&str, &Option<String>)| Some((flag.to_owned(), text.clone()?));
        settings.renamed = &[("--placement", "--plan")];
        settings.flags.extend(flags.into_iter().filter_map(given));
        settings
    }
}

/// The report that the call asks for, with the configuration that its settings lead to.
///
/// # Errors
/// The text for standard error.
pub fn run(call: &Call, config: &Config) -> Result<String, String> {
    let plans = call.plan.is_some() || call.shards.is_some();
    let report = match (&call.from, plans) {
        (Some(from), _) => planned(config, source::from_file(from)?, None)?,
        (None, false) => match control::ask(&config.control_socket(), &standpoint::request()) {
            Ok(answer) => standpoint::read(&answer)?,
            Err(ControlError::NotRunning(..)) => here(config)?,
            Err(error) => return Err(error.to_string()),
        },
        (None, true) => here(config)?,
    };
    let report = Report { explain: call.explain, ..report };
    Ok(match call {
        Call { json: true, .. } => format!("{:#}\n", report::json(&report)),
        Call { svg: true, .. } => report::svg(&report),
        Call { toml: true, .. } => description::write(&report.machine),
        _ => report::text(&report),
    })
}

fn here(config: &Config) -> Result<Report, String> {
    let (machine, failure) = source::running();
    let mut report = planned(config, machine, disk_bytes(config))?;
    report.notes.extend(failure);
    report
        .notes
        .extend(source::cpuset().map(|cpus| format!("the control group's cpuset is {cpus}")));
    Ok(report)
}

fn planned(config: &Config, machine: Machine, disk_bytes: Option<u64>) -> Result<Report, String> {
    let (_, plan) = place(config, &machine, disk_bytes)?;
    Ok(Report { machine, plan: Some(plan), ..Report::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn call(words: &str) -> Call {
        read(words.split_whitespace()).unwrap()
    }

    fn run(call: &Call) -> Result<String, String> {
        super::run(call, &call.settings().load()?)
    }

    fn read<'a>(words: impl Iterator<Item = &'a str>) -> Result<Call, clap::Error> {
        let command = Call::augment_args(Command::new("topology").no_binary_name(true));
        Call::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn a_plan_for_another_machine_is_printed_in_every_form() {
        let text = run(&call("--from artemis --plan nodes=!0 --explain")).unwrap();
        assert!(text.contains("plan nodes=!0: 18 shards"), "{text}");
        assert!(text.contains("a core of its own"), "{text}");
        let json = run(&call("--from leviathan --plan compact --shards 3 --json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["plan"]["places"][1]["cpu"], 12);
        assert_eq!(json["machine"]["nodes"][1]["cpus"][0], 1);
        let svg = run(&call("--from artemis --svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("network card eth0"), "{svg}");
        let toml = run(&call("--from leviathan --toml")).unwrap();
        let machine = description::read(&toml).unwrap();
        assert_eq!((machine.cpus.len(), machine.cores()), (24, 12));
    }

    #[test]
    fn wrong_words_are_told() {
        let error = run(&call("--from no-such-machine")).unwrap_err();
        assert!(error.contains("no-such-machine"), "{error}");
        let error = run(&call("--plan everywhere")).unwrap_err();
        assert!(error.contains("one-per-core"), "{error}");
        let error = run(&call("--from artemis --plan cpus=99")).unwrap_err();
        assert!(error.contains("those that may be are 0-23"), "{error}");
        let error = read(["--frm"].into_iter()).unwrap_err().to_string();
        assert!(error.contains("'--from'"), "{error}");
    }
}
