//! `lepus topology`: the machine, where shards would be on it, and where those of a running broker
//! are.

mod standpoint;

pub use standpoint::Standpoint;

use crate::config::Config;
use crate::control::{self, ControlError};
use crate::flags::{Settings, setting, value};
use crate::placement::{disk_bytes, place};
use lepus_topology::report::{self, Report};
use lepus_topology::{Machine, description, source};
use lexopt::prelude::{Long, Short};

/// How the report is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for a terminal.
    #[default]
    Text,
    /// One object.
    Json,
    /// A picture.
    Svg,
    /// The machine alone, as `--from` reads it.
    Toml,
}

/// One call of `lepus topology`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// A machine that is not this one: a file, an example's name or a synthetic form.
    pub from: Option<String>,
    /// How it is printed.
    pub format: Format,
    /// Why each shard is where it is.
    pub explain: bool,
    /// Whether a plan was asked for, and not the running broker.
    pub plans: bool,
    /// Settings that decide about the plan, and where the broker is found.
    pub settings: Settings,
}

/// The help of `lepus topology`.
#[must_use]
pub fn help() -> String {
    format!(
        "Shows the machine: packages, cores, caches, memory nodes, network cards and disks, and what of it
this program may use; with where each shard, its memory, its log and the cards are, for a running
broker, or where they would be.

usage: lepus topology [--from MACHINE] [--plan POLICY] [--explain] [--json | --svg | --toml]

  --from MACHINE   another machine: a file saved by `lstopo FILE.xml` or `lepus topology --toml`, an
                   example ({}), or hwloc's synthetic form
  --plan POLICY    plans with this placement: {}
  --shards N       with so many shards; one per CPU when left out
  --explain        says why each shard is where it is
  --json           one object for programs
  --svg            a picture
  --toml           the machine alone, as --from reads it

Without --from and --plan the running broker is asked, found by --data-dir, --control-socket or
--config; when none runs, the configuration's placement is planned.

Examples:
  lepus topology                                     this machine, and the broker on it
  lepus topology --plan nodes=!0 --explain           a placement, and why
  lepus topology --from artemis --plan spread --shards 8
  lepus topology --from 'pack:2 numa:2 core:6 pu:2' --svg > machine.svg
",
        source::EXAMPLES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        lepus_topology::POLICIES_ACCEPTED
    )
}

/// Reads the words behind `lepus topology`; `Ok(None)` asks for the help.
///
/// # Errors
/// The text for standard error.
pub fn parse(mut parser: lexopt::Parser) -> Result<Option<Call>, String> {
    const SETTINGS: [&str; 5] = ["shards", "data-dir", "data", "control-socket", "pin"];
    let mut call = Call::default();
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("from") => call.from = Some(value(&mut parser)?),
            Long("plan" | "placement") => {
                call.plans = true;
                call.settings.flags.push(("--placement".to_owned(), value(&mut parser)?));
            }
            Long("explain") => call.explain = true,
            Long("json") => call.format = Format::Json,
            Long("svg") => call.format = Format::Svg,
            Long("toml") => call.format = Format::Toml,
            Short('c') | Long("config") => call.settings.config = Some(value(&mut parser)?),
            Long(name) if SETTINGS.contains(&name) => {
                call.plans |= name == "shards";
                let flag = format!("--{name}");
                setting(flag, &mut parser, &mut call.settings)?;
            }
            other => return Err(format!("lepus topology: {}\n\n{}", other.unexpected(), help())),
        }
    }
    Ok(Some(call))
}

/// The report that the call asks for.
///
/// # Errors
/// The text for standard error.
pub fn run(call: &Call) -> Result<String, String> {
    let config = call.settings.clone().load()?;
    let report = match (&call.from, call.plans) {
        (Some(from), _) => planned(&config, source::from_file(from)?, None)?,
        (None, false) => match control::ask(&config.control_socket(), &standpoint::request()) {
            Ok(answer) => standpoint::read(&answer)?,
            Err(ControlError::NotRunning(..)) => here(&config)?,
            Err(error) => return Err(error.to_string()),
        },
        (None, true) => here(&config)?,
    };
    let report = Report { explain: call.explain, ..report };
    Ok(match call.format {
        Format::Text => report::text(&report),
        Format::Json => format!("{:#}\n", report::json(&report)),
        Format::Svg => report::svg(&report),
        Format::Toml => description::write(&report.machine),
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

    fn call(words: &str) -> Call {
        let words = words.split_whitespace();
        parse(lexopt::Parser::from_args(words)).unwrap().unwrap()
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
        assert!(parse(lexopt::Parser::from_args(["--frm"])).unwrap_err().contains("--frm"));
    }
}
