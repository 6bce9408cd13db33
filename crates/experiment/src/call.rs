//! The command line of `lepus experiment`.

use crate::experiment::{EXPERIMENTS, Experiment};
use crate::plan::Plan;
use crate::subject::{Choice, Kind, Site};
use lepus_perf::Uri;
use lexopt::prelude::{Long, Short, Value};
use std::path::PathBuf;

/// The report's size; the default fits a coffee break.
const SCALE: f64 = 0.2;
const SCALE_MAX: f64 = 100.0;
const ROUNDS: usize = 3;
const ROUNDS_MAX: usize = 1_000;
const SECONDS_MAX: f64 = 86_400.0;

/// What the words ask for.
#[derive(Debug)]
pub enum Call {
    /// Print this text.
    Print(String),
    /// Run this experiment.
    Run(&'static Experiment, Box<Plan>),
}

/// Reads the words behind `lepus experiment`. `lepus` is the program to start brokers and loads with, `now` the time for
/// the name of the output directory.
///
/// # Errors
/// A text that says what would be right.
pub fn read(words: &[String], lepus: PathBuf, now: &str) -> Result<Call, String> {
    let Some((name, rest)) = words.split_first() else {
        return Ok(Call::Print(help()));
    };
    if matches!(name.as_str(), "-h" | "--help" | "help" | "list") {
        return Ok(Call::Print(help()));
    }
    let experiment = find(name)?;
    let mut plan = Plan {
        scale: SCALE,
        rounds: ROUNDS,
        seconds: None,
        choices: vec![Choice::Ours(Kind::Lepus)],
        output: PathBuf::from(format!("build/experiments/{name}-{now}")),
        site: Site::new(lepus),
        cpus: lepus_topology::usable_cpus().ids,
        command: String::new(),
    };
    let (mut pids, mut vs, mut data) = ([None, None], None, None);
    let mut parser = lexopt::Parser::from_args(rest);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        let name = match argument {
            Short('h') | Long("help") => return Ok(Call::Print(help())),
            Long(name) => name.to_owned(),
            Short(name) => return Err(unknown(&format!("-{name}"))),
            Value(word) => {
                let word = word.display();
                return Err(format!(
                    "'{word}' belongs to no option; see `lepus experiment --help`"
                ));
            }
        };
        if !OPTIONS.iter().any(|option| option.0 == name) {
            return Err(unknown(&format!("--{name}")));
        }
        let value = parser.value().map_err(|error| error.to_string())?;
        let value = value.into_string().map_err(|_| format!("--{name} is not valid text"))?;
        match name.as_str() {
            "scale" => plan.scale = number(&name, &value, SCALE_MAX)?,
            "seconds" => plan.seconds = Some(number(&name, &value, SECONDS_MAX)?),
            "rounds" => plan.rounds = whole(&name, &value, ROUNDS_MAX)?,
            "uri" => plan.choices[0] = choice(&value)?,
            "vs" => vs = Some(choice(&value)?),
            "pid" => pids[0] = Some(whole(&name, &value, i32::MAX as usize)? as u32),
            "vs-pid" => pids[1] = Some(whole(&name, &value, i32::MAX as usize)? as u32),
            "output" => plan.output = PathBuf::from(value),
            "data-dir" => data = Some(PathBuf::from(value)),
            "lepus" => plan.site.lepus = PathBuf::from(value),
            _ => plan.site.flags = value.split_whitespace().map(str::to_owned).collect(),
        }
    }
    plan.choices.extend(vs);
    for (choice, pid) in plan.choices.iter_mut().zip(pids) {
        if let Choice::At(_, known) = choice {
            *known = pid;
        }
    }
    plan.output = absolute(plan.output)?;
    plan.site.lepus = absolute(plan.site.lepus)?;
    // A name that nobody has used: what is in it is deleted afterwards.
    let own = format!("lepus-experiment-{now}-{}", std::process::id());
    plan.site.scratch = absolute(data.unwrap_or_else(|| plan.output.clone()))?.join(own);
    plan.command = spoken(words);
    Ok(Call::Run(experiment, Box::new(plan)))
}

fn absolute(path: PathBuf) -> Result<PathBuf, String> {
    std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn find(name: &str) -> Result<&'static Experiment, String> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        format!("there is no experiment '{name}'; there are {}", names.join(", "))
    })
}

fn number(name: &str, value: &str, most: f64) -> Result<f64, String> {
    let number = value.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= most);
    number.ok_or_else(|| format!("--{name} needs a number above 0, up to {most}, not '{value}'"))
}

fn whole(name: &str, value: &str, most: usize) -> Result<usize, String> {
    let number = value.parse::<usize>().ok().filter(|number| *number > 0 && *number <= most);
    number.ok_or_else(|| format!("--{name} needs a whole number from 1 to {most}, not '{value}'"))
}

fn choice(value: &str) -> Result<Choice, String> {
    match value {
        uri if uri.contains("://") => {
            Uri::parse(uri)?;
            Ok(Choice::At(uri.to_owned(), None))
        }
        name => match Kind::find(name).filter(|kind| *kind != Kind::NullRelay) {
            Some(kind) => Ok(Choice::Ours(kind)),
            None => Err(format!(
                "'{name}' is no broker: give amqp://…, or lepus, rabbitmq, lavinmq or null-broker to start one"
            )),
        },
    }
}

/// The command without passwords.
fn spoken(words: &[String]) -> String {
    let word = |word: &String| match word.contains("://") {
        true => {
            let (option, uri) = word.split_once('=').unwrap_or(("", word));
            let shown = crate::subject::without_password(uri);
            if option.is_empty() { shown } else { format!("{option}={shown}") }
        }
        false if word.contains(char::is_whitespace) => format!("'{word}'"),
        false => word.clone(),
    };
    let words: Vec<String> = words.iter().map(word).collect();
    format!("lepus experiment {}", words.join(" "))
}

/// Options with the name of their value and what they do.
const OPTIONS: [(&str, &str, &str); 11] = [
    (
        "uri",
        "BROKER",
        "the broker: lepus (the default), rabbitmq (as installed), lavinmq (the binary that the variable LAVINMQ names) or \
      null-broker (which stores nothing, from the lepus-bench beside this program), started here; or \
      amqp://user:password@host:port for one that runs",
    ),
    (
        "vs",
        "BROKER",
        "another one to compare with; they take turns, and ratios are of neighbours in time",
    ),
    ("scale", "N", "1 for the report's counts and lengths; default 0.2"),
    ("rounds", "N", "how often each broker has its turn; default 3"),
    (
        "seconds",
        "N",
        "length of each load that is limited by time; default by the scale, at least 3",
    ),
    ("output", "DIR", "directory of the report; default build/experiments/NAME-TIME"),
    (
        "data-dir",
        "DIR",
        "directory for the data of brokers that are started here; default data in the report's, \
      and emptied afterwards",
    ),
    ("pid", "PID", "process of the broker at --uri, where it cannot be found by its port"),
    ("vs-pid", "PID", "the same for --vs"),
    ("broker-flags", "WORDS", "further settings for a lepus that is started here"),
    ("lepus", "FILE", "another build of lepus to serve and to make the load; default this one"),
];

fn unknown(option: &str) -> String {
    let names: Vec<String> = OPTIONS.iter().map(|(name, ..)| format!("--{name}")).collect();
    format!("there is no option {option}; there are {}", names.join(", "))
}

/// The help.
#[must_use]
pub fn help() -> String {
    let mut out = String::from(
        "Runs the experiments of five field reports on message brokers, on lepus or on any other for AMQP 0-9-1,
and makes a report: a directory with report.html, its plots, result.json and README.txt.

usage: lepus experiment NAME [options]

Experiments:
",
    );
    for experiment in &EXPERIMENTS {
        out.push_str(&format!("  {:<12} {}\n", experiment.name, experiment.title));
    }
    out.push_str("\nOptions:\n");
    for (name, value, text) in OPTIONS {
        let option = format!("--{name} {value}");
        let mut line = format!("  {option:<22} ");
        for word in text.split_whitespace() {
            if line.chars().count() + word.chars().count() > 100 {
                out.push_str(line.trim_end());
                line = format!("\n{:25}", "");
            }
            line.push_str(word);
            line.push(' ');
        }
        out.push_str(line.trim_end_matches(' '));
        out.push('\n');
    }
    out.push_str(
        "
Examples:
  lepus experiment jit                                   lepus alone, a few minutes
  lepus experiment treadmill --vs rabbitmq --scale 1     the whole experiment, beside RabbitMQ
  lepus experiment feed --uri amqp://me:secret@host:5672
Ctrl-C ends an experiment early; what was measured until then is reported.
",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Result<Call, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        read(&words, PathBuf::from("lepus"), "now")
    }

    fn plan(line: &str) -> Plan {
        match read_line(line) {
            Ok(Call::Run(_, plan)) => *plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_is_enough() {
        let plan = plan("jit");
        assert_eq!((plan.scale, plan.rounds), (0.2, 3));
        assert_eq!(plan.names(), ["lepus"]);
        assert!(plan.output.ends_with("build/experiments/jit-now"));
        assert!(plan.site.scratch.starts_with(&plan.output));
        assert_eq!(plan.seconds(60.0), 12.0);
        assert_eq!((plan.count(1_000_000, 1), plan.count(10, 5)), (200_000, 5));
    }

    #[test]
    fn data_is_kept_where_nothing_else_can_be() {
        let first = plan("jit --data-dir /var/lib").site.scratch;
        assert!(first.starts_with("/var/lib") && first.components().count() == 4, "{first:?}");
        assert!(first.ends_with(format!("lepus-experiment-now-{}", std::process::id())));
    }

    #[test]
    fn brokers_are_placed_only_where_they_are_started_here() {
        let mut own = plan("feed");
        own.cpus = vec![0, 1, 2, 3, 4, 5];
        let counts: Vec<usize> = own.sweep().iter().map(|place| place.broker.len()).collect();
        assert_eq!((counts, own.apart().broker), (vec![1, 2, 4, 6], vec![0, 1, 2]));
        let mut other = plan("feed --uri amqp://there");
        other.cpus = vec![0, 1];
        assert_eq!(other.sweep(), [other.apart()]);
        assert_eq!((other.apart().broker, other.apart().load), (vec![], vec![0, 1]));
    }

    #[test]
    fn two_brokers_have_names_of_their_own() {
        let two = plan("feed --vs lepus --scale=0.01 --seconds 1 --broker-flags --economy");
        assert_eq!(two.names(), ["lepus A", "lepus B"]);
        assert_eq!(
            (two.seconds(60.0), two.site.flags.as_slice()),
            (1.0, &["--economy".to_owned()][..])
        );
        let two = plan("feed --uri amqp://u:secret@there --pid 7 --vs rabbitmq");
        assert_eq!(two.names(), ["there:5672", "rabbitmq"]);
        assert_eq!(two.choices[0], Choice::At("amqp://u:secret@there".to_owned(), Some(7)));
        assert!(!two.command.contains("secret"), "{}", two.command);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (line, part) in [
            ("jti", "penguins, treadmill, ticker, jit, feed"),
            ("jit --scael 1", "--scale"),
            ("jit --scale nan", "above 0"),
            ("jit --scale 1e9", "up to 100"),
            ("jit --rounds 0", "from 1"),
            ("jit --uri localhost", "amqp://"),
            ("jit --vs amqps://x", "TLS"),
            ("jit 5", "no option"),
            ("jit --scale", "scale"),
            ("jit -x", "--uri"),
        ] {
            let text = read_line(line).unwrap_err();
            assert!(text.contains(part), "{line}: {text}");
        }
    }

    #[test]
    fn help_names_everything() {
        let Ok(Call::Print(text)) = read_line("--help") else { panic!() };
        for (name, ..) in OPTIONS {
            assert!(text.contains(&format!("--{name}")), "{text}");
        }
        for experiment in &EXPERIMENTS {
            assert!(text.contains(experiment.name));
        }
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
        assert!(matches!(read_line("jit --help"), Ok(Call::Print(_))));
        assert!(matches!(read_line(""), Ok(Call::Print(_))));
    }
}
