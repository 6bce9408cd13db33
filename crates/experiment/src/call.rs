//! The command line of `lepus experiment`.

use crate::experiment::{EXPERIMENTS, Experiment, Work};
use crate::plan::Plan;
use crate::subject::{Choice, Kind, Site};
use clap::builder::{PossibleValue, PossibleValuesParser, RangedI64ValueParser};
use clap::{Args, Command, FromArgMatches};
use lepus_perf::Uri;
use std::path::PathBuf;

pub(crate) const SCALE_MAX: f64 = 100.0;
const ROUNDS_MAX: usize = 1_000;
const SECONDS_MAX: f64 = 86_400.0;
/// Columns of the help at most.
const HELP_WIDTH: usize = 100;

/// What stands behind the options in the help.
const EXAMPLES: &str = "\
Examples:
  lepus experiment jit                                   lepus alone, a few minutes
  lepus experiment treadmill --vs rabbitmq --scale 1     the whole experiment, beside RabbitMQ
  lepus experiment feed --uri amqp://me:secret@host:5672
Ctrl-C ends an experiment early; what was measured until then is reported.";

/// Runs one of six experiments on lepus or any other broker, and makes a report
///
/// The experiments are those of five field reports on message brokers, on lepus or on any other for AMQP 0-9-1, and one of the
/// filters of lepus, in which no broker takes part; its ways that compile filters to machine code are in the build of
/// `make experiment-filters` alone. The report is a directory with report.html, its plots, result.json and
/// README.txt.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Words {
    /// Which one; without a name this help is shown
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    name: Option<String>,
    /// The broker: lepus, rabbitmq (as installed), lavinmq (the binary that the variable LAVINMQ names) or null-broker (which
    /// stores nothing, from the lepus-bench beside this program), started here; or amqp://user:password@host:port for one that
    /// runs
    #[arg(long, value_name = "BROKER", value_parser = choice, default_value = "lepus")]
    uri: Choice,
    /// Another one to compare with; they take turns, and ratios are of neighbours in time
    #[arg(long, value_name = "BROKER", value_parser = choice)]
    vs: Option<Choice>,
    /// 1 for the report's counts and lengths; the default fits a coffee break
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, SCALE_MAX), allow_negative_numbers = true, default_value = "0.2")]
    scale: f64,
    /// How often each broker has its turn
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, ROUNDS_MAX), allow_negative_numbers = true, default_value = "3")]
    rounds: usize,
    /// Length of each load that is limited by time; by the scale when left out, at least 3
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, SECONDS_MAX), allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Directory of the report; build/experiments/NAME-TIME when left out
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Directory for the data of brokers that are started here; data in the report's when left out, and emptied afterwards
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Process of the broker at --uri, where it cannot be found by its port
    #[arg(long, value_parser = pid_range())]
    pid: Option<u32>,
    /// The same for --vs
    #[arg(long, value_name = "PID", value_parser = pid_range())]
    vs_pid: Option<u32>,
    /// Further settings for a lepus that is started here
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    broker_flags: Option<String>,
    /// Another build of lepus to serve and to make the load; this one when left out
    #[arg(long, value_name = "FILE")]
    lepus: Option<PathBuf>,
    /// The words as they were given.
    #[arg(skip)]
    pub spoken: Vec<String>,
}

fn names() -> impl Iterator<Item = PossibleValue> {
    let title = |one: &Experiment| one.title.split_once(": ").map_or(one.title, |(_, rest)| rest);
    let names = EXPERIMENTS.iter().map(move |one| PossibleValue::new(one.name).help(title(one)));
    names.chain(["help", "list"].map(|name| PossibleValue::new(name).hide(true)))
}

fn pid_range() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=i64::from(i32::MAX))
}

impl Words {
    /// The command that these words stand behind.
    pub(crate) fn command() -> Command {
        let command = Command::new("lepus experiment").no_binary_name(true);
        Words::augment_args(command.max_term_width(HELP_WIDTH))
    }

    /// Reads them alone; `lepus` reads them as a part of its own command line.
    ///
    /// # Errors
    /// When they cannot be meant, or the help is asked for.
    pub fn read(words: Vec<String>) -> Result<Words, clap::Error> {
        let read = Words::from_arg_matches(&Words::command().try_get_matches_from(&words)?)?;
        Ok(Words { spoken: words, ..read })
    }

    /// The experiment that is asked for, and how it is to run; none if the help is. `lepus` is the program to start
    /// brokers and loads with, `now` the time for the name of the output directory.
    ///
    /// # Errors
    /// When there is no working directory to start from, or a process is named of a broker that is started here.
    pub(crate) fn plan(
        self,
        lepus: PathBuf,
        now: &str,
    ) -> Result<Option<(&'static Experiment, Plan)>, String> {
        let named = |name: &String| EXPERIMENTS.iter().find(|one| one.name == name.as_str());
        let Some(experiment) = self.name.as_ref().and_then(named) else {
            return Ok(None);
        };
        let is_alone = matches!(experiment.work, Work::Alone(_));
        if is_alone && (self.vs.is_some() || self.uri != Choice::Ours(Kind::Lepus)) {
            return Err(format!(
                "{} is measured in this program: --uri and --vs mean brokers, of which none takes part",
                experiment.name
            ));
        }
        let preset = || PathBuf::from(format!("build/experiments/{}-{now}", experiment.name));
        let output = absolute(self.output.unwrap_or_else(preset))?;
        let mut site = Site::new(lepus);
        site.lepus = absolute(self.lepus.unwrap_or(site.lepus))?;
        let flags = self.broker_flags.unwrap_or_default();
        site.flags = flags.split_whitespace().map(str::to_owned).collect();
        // A name that nobody has used: what is in it is deleted afterwards.
        let own = format!("lepus-experiment-{now}-{}", std::process::id());
        site.scratch = absolute(self.data_dir.unwrap_or_else(|| output.clone()))?.join(own);
        let mut choices = vec![self.uri];
        choices.extend(self.vs);
        let pids = [("--pid", self.pid, "--uri"), ("--vs-pid", self.vs_pid, "--vs")];
        for (option, pid, of) in pids.iter().skip(choices.len()) {
            if pid.is_some() {
                return Err(format!("{option} is of the broker at {of}, which is not given"));
            }
        }
        for (choice, (option, pid, of)) in choices.iter_mut().zip(pids) {
            if choice.is_ours() && pid.is_some() {
                return Err(format!(
                    "{option} is of a broker that runs already, at {of} amqp://…; the process of {} is known",
                    choice.name()
                ));
            }
            if let Choice::At(_, known) = choice {
                *known = pid;
            }
        }
        let plan = Plan {
            scale: self.scale,
            rounds: self.rounds,
            seconds: self.seconds,
            choices,
            output,
            site,
            cpus: lepus_topology::usable_cpus().ids,
            command: spoken(&self.spoken),
        };
        Ok(Some((experiment, plan)))
    }
}

/// A path that stays the same in another working directory.
pub(crate) fn absolute(path: PathBuf) -> Result<PathBuf, String> {
    std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn whole(text: &str, most: usize) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0 && *number <= most);
    number.ok_or_else(|| format!("a whole number from 1 to {most} is needed"))
}

/// A number above 0.
pub(crate) fn number(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= most);
    number.ok_or_else(|| format!("a number above 0, up to {most}, is needed"))
}

fn choice(text: &str) -> Result<Choice, String> {
    if text.contains("://") {
        Uri::parse(text)?;
        return Ok(Choice::At(text.to_owned(), None));
    }
    Kind::find_for_amqp(text).map(Choice::Ours).ok_or_else(|| {
        "no broker: give amqp://…, or lepus, rabbitmq, lavinmq or null-broker to start one"
            .to_owned()
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Result<Words, String> {
        let words = line.split_whitespace().map(str::to_owned).collect();
        Words::read(words).map_err(|error| error.to_string())
    }

    fn plan(line: &str) -> Plan {
        read_line(line).unwrap().plan(PathBuf::from("lepus"), "now").unwrap().unwrap().1
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
            ("jti", "penguins, treadmill, ticker, jit, feed, filters"),
            ("jit --scael 1", "'--scale'"),
            ("jit --scale nan", "above 0"),
            ("jit --scale 1e9", "up to 100"),
            ("jit --rounds 0", "from 1 to 1000"),
            ("jit --rounds -1", "from 1 to 1000"),
            ("jit --seconds -1", "above 0"),
            ("jit --pid 0", "not in 1..="),
            ("jit --uri localhost", "amqp://"),
            ("jit --vs amqps://x", "TLS"),
            ("jit 5", "unexpected argument '5'"),
            ("jit --scale", "--scale <N>"),
            ("jit -x", "unexpected argument '-x'"),
        ] {
            let text = read_line(line).unwrap_err();
            assert!(text.contains(part), "{line}: {text}");
        }
    }

    #[test]
    fn the_process_of_a_broker_that_is_started_here_is_not_named() {
        for (line, part) in [
            ("jit --pid 7", "--pid is of a broker that runs already"),
            ("jit --uri amqp://there --vs lepus --vs-pid 7", "--vs-pid"),
            ("jit --vs-pid 7", "not given"),
            ("filters --vs rabbitmq", "none takes part"),
            ("filters --uri amqp://there", "none takes part"),
        ] {
            let text = read_line(line).unwrap().plan(PathBuf::from("lepus"), "now").unwrap_err();
            assert!(text.contains(part), "{line}: {text}");
        }
    }

    #[test]
    fn help_names_everything() {
        let text = Words::command().render_long_help().to_string();
        for experiment in &EXPERIMENTS {
            assert!(text.contains(experiment.title.split(": ").last().unwrap()), "{text}");
        }
        assert!(text.contains("lepus experiment jit"), "{text}");
        assert!(text.contains("make experiment-filters"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for line in ["", "list", "help"] {
            assert!(read_line(line).unwrap().plan(PathBuf::new(), "now").unwrap().is_none());
        }
    }
}
