//! The command line: words in, one [`Command`] out, or a text that says what would be right.

pub mod help;

use crate::config::load::unknown_flag;
use crate::config::nearest::nearest;
use crate::flags::{Settings, setting, value};
use crate::order::{ORDERS, Order};
use lexopt::prelude::{Long, Short, Value};
use std::ffi::OsString;

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Print this text and end well.
    Print(String),
    /// Start the broker.
    Serve(Settings),
    /// Check and print the configuration in force.
    ShowConfig(Settings),
    /// Run the load tester with these words.
    Perf(Vec<String>),
    /// Run an experiment with these words.
    Experiment(Vec<String>),
    /// Find the best setting by experiment, with these words.
    Tune(Vec<String>),
    /// Print the hash of a password; read from standard input when it is not given.
    HashPassword(Option<String>),
    /// Look after the store's files.
    Store(crate::store::Call),
    /// Show the machine, a plan for it, or where the running broker is.
    Topology(Box<crate::topology::Call>),
    /// Take a profile of the running broker.
    Profile(Box<crate::profile::Call>),
    /// Send an order to the running broker.
    Order(OrderCall),
}

/// An order with its words filled in.
#[derive(Debug)]
pub struct OrderCall {
    /// Which one.
    pub order: &'static Order,
    /// Arguments and options by name.
    pub values: Vec<(&'static str, String)>,
    /// Print the answer as JSON.
    pub json: bool,
    /// For finding the control socket.
    pub settings: Settings,
}

/// Words that stand alone.
const COMMANDS: &[&str] = &[
    "serve",
    "perf",
    "experiment",
    "tune",
    "config",
    "hash-password",
    "store check",
    "store dump",
    "store repair",
    "store orphans",
    "store damaged",
    "topology",
    "profile",
    "help",
    "version",
];

/// Reads the words behind the program's name.
///
/// # Errors
/// The text for standard error.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let first = words.first().and_then(|word| word.to_str()).unwrap_or("");
    let command = match first {
        "" if words.is_empty() => return Ok(Command::Print(help::top())),
        "-h" | "--help" | "help" => {
            let rest: Vec<&str> = words[1..].iter().filter_map(|word| word.to_str()).collect();
            return help_for(&rest.join(" "));
        }
        "-V" | "--version" | "version" => return Ok(Command::Print(help::version())),
        other => other.to_owned(),
    };
    let program: Option<fn(Vec<String>) -> Command> = match command.as_str() {
        "perf" => Some(Command::Perf),
        "experiment" => Some(Command::Experiment),
        "tune" => Some(Command::Tune),
        _ => None,
    };
    if let Some(program) = program {
        let rest = words.drain(1..).map(|word| word.into_string());
        let rest: Result<Vec<String>, _> = rest.collect();
        return rest
            .map(program)
            .map_err(|word| format!("{command}: {} is not valid text", word.display()));
    }
    let parser = lexopt::Parser::from_args(words.drain(1..));
    match command.as_str() {
        "serve" => parse_settings(parser, &help::serve()).map(|parsed| match parsed {
            Parsed::Help(text) => Command::Print(text),
            Parsed::Settings(settings) => Command::Serve(settings),
        }),
        "config" => parse_config(parser),
        "hash-password" => parse_hash_password(parser),
        "store" => Ok(crate::store::parse(parser)?
            .map_or_else(|| Command::Print(crate::store::help()), Command::Store)),
        "topology" => Ok(crate::topology::parse(parser)?.map_or_else(
            || Command::Print(crate::topology::help()),
            |call| Command::Topology(Box::new(call)),
        )),
        "profile" => Ok(crate::profile::parse(parser)?.map_or_else(
            || Command::Print(crate::profile::help()),
            |call| Command::Profile(Box::new(call)),
        )),
        _ => parse_order(&command, parser),
    }
}

fn help_for(words: &str) -> Result<Command, String> {
    let text = match words {
        "" => help::top(),
        "serve" => help::serve(),
        "config" => help::config(),
        "perf" => return Ok(Command::Perf(vec!["--help".to_owned()])),
        "experiment" => return Ok(Command::Experiment(Vec::new())),
        "tune" => return Ok(Command::Tune(vec!["--help".to_owned()])),
        "hash-password" => help::hash_password(),
        "store" | "store check" | "store dump" | "store repair" | "store orphans"
        | "store damaged" => crate::store::help(),
        "topology" => crate::topology::help(),
        "profile" => crate::profile::help(),
        words => match crate::order::find(words) {
            Some(order) => help::order(order),
            None if group(words).next().is_some() => help::group(words),
            None => return Err(unknown_command(words)),
        },
    };
    Ok(Command::Print(text))
}

/// The orders whose first word is `word`.
pub(crate) fn group(word: &str) -> impl Iterator<Item = &'static Order> {
    ORDERS.iter().filter(move |order| order.words.split(' ').next() == Some(word))
}

fn unknown_command(words: &str) -> String {
    let known = COMMANDS.iter().copied().chain(ORDERS.iter().map(|order| order.words));
    match nearest(words, known) {
        Some(hint) => format!("there is no command `{words}`; did you mean `lepus {hint}`?"),
        None => format!("there is no command `{words}`; `lepus --help` lists what there is"),
    }
}

enum Parsed {
    Help(String),
    Settings(Settings),
}

fn parse_settings(mut parser: lexopt::Parser, help: &str) -> Result<Parsed, String> {
    let mut settings = Settings::default();
    while let Some(argument) = parser.next().map_err(text)? {
        match argument {
            Short('h') | Long("help") => return Ok(Parsed::Help(help.to_owned())),
            Short('c') | Long("config") => settings.config = Some(value(&mut parser)?),
            Long(name) => {
                let flag = format!("--{name}");
                setting(flag, &mut parser, &mut settings)?;
            }
            Short(name) => {
                return Err(format!("flag -{name}: {}", unknown_flag(&format!("-{name}"))));
            }
            Value(word) => {
                return Err(format!(
                    "{:?} is not expected here; settings are flags such as --data-dir {:?}",
                    word.display().to_string(),
                    word.display().to_string()
                ));
            }
        }
    }
    Ok(Parsed::Settings(settings))
}

fn parse_config(mut parser: lexopt::Parser) -> Result<Command, String> {
    if let Some(rest) = parser.try_raw_args()
        && rest.peek().is_some_and(|word| word == "document")
    {
        return Ok(Command::Print(crate::config::document::markdown()));
    }
    parse_settings(parser, &help::config()).map(|parsed| match parsed {
        Parsed::Help(text) => Command::Print(text),
        Parsed::Settings(settings) => Command::ShowConfig(settings),
    })
}

fn parse_hash_password(mut parser: lexopt::Parser) -> Result<Command, String> {
    let mut password = None;
    while let Some(argument) = parser.next().map_err(text)? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Print(help::hash_password())),
            Value(word) if password.is_none() => {
                password = Some(word.into_string().map_err(|_| "not valid text".to_owned())?);
            }
            other => return Err(text(other.unexpected())),
        }
    }
    Ok(Command::HashPassword(password))
}

fn parse_order(first: &str, mut parser: lexopt::Parser) -> Result<Command, String> {
    let mut words = first.to_owned();
    let mut order = crate::order::find(&words);
    let mut places: Vec<String> = Vec::new();
    let mut values: Vec<(&'static str, String)> = Vec::new();
    let mut settings = Settings::default();
    let mut json = false;
    while let Some(argument) = parser.next().map_err(text)? {
        match argument {
            Short('h') | Long("help") => return help_for(&words),
            Short('c') | Long("config") => settings.config = Some(value(&mut parser)?),
            Long("json") => json = true,
            Long(name) => {
                let known =
                    order.and_then(|order| order.options.iter().find(|option| option.name == name));
                let flag = format!("--{name}");
                if let Some(option) = known {
                    values.push((option.name, value(&mut parser)?));
                } else if ["--data-dir", "--data", "--control-socket"].contains(&flag.as_str()) {
                    setting(flag, &mut parser, &mut settings)?;
                } else {
                    return Err(unknown_option(&words, order, &flag));
                }
            }
            Short(name) => return Err(unknown_option(&words, order, &format!("-{name}"))),
            Value(word) => {
                let word = word.into_string().map_err(|_| "not valid text".to_owned())?;
                if order.is_none() && group(first).next().is_some() {
                    words = format!("{first} {word}");
                    order =
                        Some(crate::order::find(&words).ok_or_else(|| unknown_command(&words))?);
                } else {
                    places.push(word);
                }
            }
        }
    }
    let Some(order) = order else {
        if group(first).next().is_some() {
            return Err(format!("which one?\n\n{}", help::group(first)));
        }
        return Err(unknown_command(first));
    };
    if places.len() < order.required() || places.len() > order.arguments.len() {
        return Err(format!(
            "usage: lepus {}\nfor example: lepus {}",
            order.usage(),
            order.example
        ));
    }
    for (name, place) in order.arguments.iter().zip(places) {
        values.push((name.trim_matches(['[', ']']), place));
    }
    Ok(Command::Order(OrderCall { order, values, json, settings }))
}

fn unknown_option(words: &str, order: Option<&'static Order>, flag: &str) -> String {
    let own = order.map_or(&[][..], |order| order.options);
    let mut known: Vec<String> = own.iter().map(|option| format!("--{}", option.name)).collect();
    known.extend(
        ["--json", "--data-dir", "--control-socket", "--config", "--help"].map(str::to_owned),
    );
    let hint = nearest(flag, known.iter().map(String::as_str));
    match hint {
        Some(hint) => format!("lepus {words} has no {flag}; did you mean {hint}?"),
        None => format!("lepus {words} has no {flag}; there are {}", known.join(", ")),
    }
}

fn text(error: lexopt::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Command, String> {
        parse(words.split_whitespace().map(OsString::from))
    }

    fn settings(words: &str) -> Settings {
        match read(words) {
            Ok(Command::Serve(settings)) => settings,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn serve_takes_every_setting_as_a_flag() {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let read = settings(
            "serve -c f.toml --shards 2 --limits-frame-max=8192 --economy --pin false --port 1",
        );
        assert_eq!(read.config.as_deref(), Some("f.toml"));
        assert_eq!(
            read.flags,
            [
                own("--shards", "2"),
                own("--limits-frame-max", "8192"),
                own("--economy", "true"),
                own("--pin", "false"),
                own("--port", "1"),
            ]
        );
    }

    #[test]
    fn a_wrong_flag_or_word_names_the_nearest() {
        assert_eq!(
            read("serve --shrads 2").unwrap_err(),
            "flag --shrads: no such flag; did you mean --shards?"
        );
        assert_eq!(
            read("srve").unwrap_err(),
            "there is no command `srve`; did you mean `lepus serve`?"
        );
        assert_eq!(
            read("user ad x").unwrap_err(),
            "there is no command `user ad`; did you mean `lepus user add`?"
        );
        assert_eq!(
            read("user add x --tag y").unwrap_err(),
            "lepus user add has no --tag; did you mean --tags?"
        );
        assert!(read("frobnicate").unwrap_err().contains("lepus --help"));
        assert!(read("serve now").unwrap_err().contains("not expected"));
        assert!(read("serve --shards").unwrap_err().contains("--shards"));
    }

    #[test]
    fn an_order_fills_its_places() {
        let Command::Order(call) =
            read("permission set u ^a .* --vhost v .* --json --data-dir d").unwrap()
        else {
            panic!("no order")
        };
        assert_eq!(call.order.words, "permission set");
        let own = |name: &'static str, value: &str| (name, value.to_owned());
        assert_eq!(
            call.values,
            [
                own("vhost", "v"),
                own("user", "u"),
                own("configure", "^a"),
                own("write", ".*"),
                own("read", ".*"),
            ]
        );
        assert!(call.json);
        assert_eq!(call.settings.flags, [("--data-dir".to_owned(), "d".to_owned())]);
        assert!(read("permission set u").unwrap_err().starts_with("usage: lepus permission set"));
        assert!(read("vhost add a b").unwrap_err().starts_with("usage"));
        assert!(read("user").unwrap_err().contains("user set-tags"));
    }

    #[test]
    fn every_order_has_help() {
        for order in ORDERS {
            let Command::Print(text) = read(&format!("{} --help", order.words)).unwrap() else {
                panic!("{}", order.words)
            };
            assert!(text.contains(order.example), "{text}");
            let Command::Print(top) = read("--help").unwrap() else { panic!() };
            let first = order.words.split(' ').next().unwrap();
            assert!(top.contains(&format!("lepus {first}")), "{top}");
        }
    }
}
