//! The command line: options by table, in the manner of the reference load tester.
//!
//! Accepted forms: `-x 1`, `-x1`, `-x=1`, `--producers 1`, `--producers=1`, `-producers 1` and short names of several
//! letters such as `-ad false`. An unknown name is answered with the nearest known one.

use std::fmt;
use std::str::FromStr;

/// What an option takes after its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing: the option is a switch.
    Nothing,
    /// One value; the text names it in the help.
    Value(&'static str),
    /// A value, or nothing where the next word is another option.
    Optional(&'static str),
    /// One or more words up to the next option.
    Words(&'static str),
}

/// One option. `short` is written with one dash and may have several letters; `long` with two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub short: &'static str,
    pub long: &'static str,
    /// Another long name for the same option, or empty.
    pub alias: &'static str,
    pub takes: Takes,
    pub help: &'static str,
}

impl Choice {
    pub(crate) const fn switch(
        short: &'static str,
        long: &'static str,
        help: &'static str,
    ) -> Choice {
        Choice { short, long, alias: "", takes: Takes::Nothing, help }
    }

    pub(crate) const fn value(
        short: &'static str,
        long: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Choice {
        Choice { short, long, alias: "", takes: Takes::Value(value), help }
    }

    fn is_named(&self, name: &str) -> bool {
        self.long == name || (!self.alias.is_empty() && self.alias == name)
    }
}

/// Options that belong together in the help.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub title: &'static str,
    pub choices: &'static [Choice],
}

/// An option of the reference tester that this one does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign {
    pub short: &'static str,
    pub long: &'static str,
    pub takes_value: bool,
    /// Why it is refused; `None` where leaving it out changes nothing that is measured, so that it is skipped.
    pub refusal: Option<&'static str>,
}

/// What is wrong with the command line, in words for its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OptionError(pub String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Shorthand for an error with a text.
pub(crate) fn wrong<T>(text: impl Into<String>) -> Result<T, OptionError> {
    Err(OptionError(text.into()))
}

/// The options as given, by long name, in their order.
#[derive(Debug, Default)]
pub(crate) struct Options {
    given: Vec<(&'static str, Option<String>)>,
}

impl Options {
    /// Reads `words`. `--help` and `-?` are left to the caller, who looks for them first.
    pub(crate) fn parse(
        groups: &[Group],
        foreign: &[Foreign],
        words: &[String],
    ) -> Result<Options, OptionError> {
        let mut options = Options::default();
        let mut rest = words.iter().map(String::as_str).peekable();
        while let Some(word) = rest.next() {
            if !is_option(word) {
                return wrong(format!(
                    "'{word}' does not belong to any option (options start with '-'; values follow them)"
                ));
            }
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            if let Some(skipped) = find_foreign(foreign, name) {
                if let Some(refusal) = skipped.refusal {
                    return wrong(format!("{name} is not supported here: {refusal}"));
                }
                if skipped.takes_value && attached.is_none() {
                    rest.next();
                }
                continue;
            }
            let (choice, attached) = match find(groups, name) {
                Some(choice) => (choice, attached),
                None => match split_number(groups, word) {
                    Some((choice, value)) => (choice, Some(value)),
                    None => return wrong(unknown(groups, name)),
                },
            };
            let follows = rest.peek().is_some_and(|next| !is_option(next));
            match (choice.takes, attached) {
                (Takes::Nothing, None) => options.given.push((choice.long, None)),
                (Takes::Nothing, Some(value)) => match value {
                    "true" => options.given.push((choice.long, None)),
                    "false" => {}
                    _ => return wrong(format!("{name} takes no value, but '{value}' was given")),
                },
                (_, Some(value)) => options.given.push((choice.long, Some(value.to_owned()))),
                (Takes::Value(_) | Takes::Optional(_), None) if follows => {
                    options.given.push((choice.long, rest.next().map(str::to_owned)));
                }
                (Takes::Words(_), None) if follows => {
                    while let Some(value) = rest.next_if(|next| !is_option(next)) {
                        options.given.push((choice.long, Some(value.to_owned())));
                    }
                }
                (Takes::Optional(_), None) => options.given.push((choice.long, None)),
                (Takes::Value(value) | Takes::Words(value), None) => {
                    return wrong(format!("{name} needs a value: {value}"));
                }
            }
        }
        Ok(options)
    }

    /// Whether the option was given, with or without a value.
    pub(crate) fn has(&self, long: &str) -> bool {
        self.given.iter().any(|(name, _)| *name == long)
    }

    /// The last value given; `None` where the option is absent or has no value.
    pub(crate) fn text(&self, long: &str) -> Option<&str> {
        let (_, value) = self.given.iter().rev().find(|(name, _)| *name == long)?;
        value.as_deref()
    }

    /// All values given, commas split them too.
    pub(crate) fn list(&self, long: &str) -> Vec<&str> {
        self.given
            .iter()
            .filter(|(name, _)| *name == long)
            .filter_map(|(_, value)| value.as_deref())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .collect()
    }

    /// The value as a number, or whatever else `T` reads.
    pub(crate) fn number<T: FromStr>(&self, long: &str) -> Result<Option<T>, OptionError> {
        match self.text(long) {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => wrong(format!("--{long} needs a number, not '{text}'")),
            },
        }
    }

    /// A finite number of 0 or more.
    pub(crate) fn rate(&self, long: &str) -> Result<Option<f64>, OptionError> {
        match self.number::<f64>(long)? {
            Some(rate) if !rate.is_finite() || rate < 0.0 => {
                wrong(format!("--{long} needs a number of 0 or more"))
            }
            rate => Ok(rate),
        }
    }

    /// `true` or `false`; `default` where it was not given.
    pub(crate) fn truth(&self, long: &str, default: bool) -> Result<bool, OptionError> {
        match self.text(long) {
            None => Ok(default),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(text) => wrong(format!("--{long} needs true or false, not '{text}'")),
        }
    }
}

/// A word that starts an option; negative numbers and a lone dash are values.
fn is_option(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|name| !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()))
}

fn find(groups: &[Group], name: &str) -> Option<&'static Choice> {
    let mut choices = groups.iter().flat_map(|group| group.choices);
    if let Some(long) = name.strip_prefix("--") {
        return choices.find(|choice| choice.is_named(long));
    }
    let name = name.strip_prefix('-')?;
    let by_short = choices.clone().find(|choice| !choice.short.is_empty() && choice.short == name);
    by_short.or_else(|| choices.find(|choice| choice.is_named(name)))
}

fn find_foreign<'a>(foreign: &'a [Foreign], name: &str) -> Option<&'a Foreign> {
    let bare = name.trim_start_matches('-');
    foreign
        .iter()
        .find(|option| option.long == bare || (option.short == bare && !name.starts_with("--")))
}

/// `-x20` as `-x` and `20`: a short name directly followed by a number.
fn split_number<'a>(groups: &[Group], word: &'a str) -> Option<(&'static Choice, &'a str)> {
    if word.starts_with("--") {
        return None;
    }
    let digits = word.find(|c: char| c.is_ascii_digit())?;
    let (name, number) = word.split_at(digits);
    let choice = find(groups, name)?;
    (choice.takes != Takes::Nothing && number.parse::<f64>().is_ok()).then_some((choice, number))
}

fn unknown(groups: &[Group], name: &str) -> String {
    let bare = name.trim_start_matches('-');
    let names = groups
        .iter()
        .flat_map(|group| group.choices)
        .flat_map(|choice| [choice.long, choice.alias, choice.short]);
    match lepus_console::nearest(bare, names) {
        Some(near) => {
            let by_long =
                groups.iter().flat_map(|group| group.choices).any(|choice| choice.is_named(near));
            let dashes = if by_long { "--" } else { "-" };
            format!("unknown option {name}; the nearest is {dashes}{near} (--help lists all)")
        }
        None => format!("unknown option {name} (--help lists all)"),
    }
}

/// The options of `groups` in columns, for the help.
pub(crate) fn describe(groups: &[Group]) -> String {
    let mut text = String::new();
    for group in groups {
        text.push_str(&format!("\n{}:\n", group.title));
        for choice in group.choices {
            let mut names = String::new();
            if !choice.short.is_empty() {
                names.push_str(&format!("-{}, ", choice.short));
            }
            names.push_str(&format!("--{}", choice.long));
            match choice.takes {
                Takes::Nothing => {}
                Takes::Value(value) | Takes::Words(value) => names.push_str(&format!(" {value}")),
                Takes::Optional(value) => names.push_str(&format!(" [{value}]")),
            }
            let mut lines = wrap(choice.help, 72).into_iter();
            if names.chars().count() <= 38 {
                let first = lines.next().unwrap_or_default();
                text.push_str(&format!("  {names:<38}  {first}\n"));
            } else {
                text.push_str(&format!("  {names}\n"));
            }
            for line in lines {
                text.push_str(&format!("{:42}{line}\n", ""));
            }
        }
    }
    text
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: &[Group] = &[
        Group {
            title: "Load",
            choices: &[
                Choice::value("x", "producers", "N", "producers"),
                Choice { alias: "producer-rate", ..Choice::value("r", "rate", "MSG/S", "rate") },
                Choice::switch("a", "autoack", "no acks"),
                Choice {
                    takes: Takes::Words("FLAG"),
                    ..Choice::value("f", "flag", "FLAG", "flags")
                },
            ],
        },
        Group {
            title: "Topology",
            choices: &[
                Choice::value("ad", "auto-delete", "BOOL", "auto-delete"),
                Choice {
                    takes: Takes::Optional("NAME"),
                    ..Choice::value("e", "exchange", "NAME", "exchange")
                },
            ],
        },
    ];
    const FOREIGN: &[Foreign] = &[
        Foreign {
            short: "hst",
            long: "heartbeat-sender-threads",
            takes_value: true,
            refusal: None,
        },
        Foreign {
            short: "jb",
            long: "json-body",
            takes_value: false,
            refusal: Some("bodies are bytes"),
        },
    ];

    fn parse(line: &str) -> Result<Options, OptionError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(GROUPS, FOREIGN, &words)
    }

    #[test]
    fn an_option_is_read_in_every_spelling() {
        for line in ["-x 7", "-x7", "-x=7", "--producers 7", "--producers=7", "-producers 7"] {
            let options = parse(line).unwrap();
            assert_eq!(options.number::<u32>("producers"), Ok(Some(7)), "{line}");
        }
        let options = parse("-ad false -a --producer-rate 2.5").unwrap();
        assert_eq!(options.truth("auto-delete", true), Ok(false));
        assert!(options.has("autoack"));
        assert_eq!(options.rate("rate"), Ok(Some(2.5)));
    }

    #[test]
    fn flags_take_words_and_commas_until_the_next_option() {
        let options = parse("-f persistent mandatory -x 1 -f immediate,persistent").unwrap();
        assert_eq!(options.list("flag"), ["persistent", "mandatory", "immediate", "persistent"]);
        assert_eq!(options.number::<u32>("producers"), Ok(Some(1)));
    }

    #[test]
    fn an_optional_value_may_be_left_out() {
        let options = parse("-e -a").unwrap();
        assert!(options.has("exchange"));
        assert_eq!(options.text("exchange"), None);
        assert_eq!(parse("-e logs").unwrap().text("exchange"), Some("logs"));
    }

    #[test]
    fn the_last_of_two_values_counts() {
        assert_eq!(parse("-x 1 -x 2").unwrap().number::<u32>("producers"), Ok(Some(2)));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let error = parse("--prodcuers 3").unwrap_err();
        assert!(error.0.contains("nearest is --producers"), "{error}");
        let error = parse("-da true").unwrap_err();
        assert!(error.0.contains("nearest is -ad"), "{error}");
        let error = parse("--zzzzzzzz 3").unwrap_err();
        assert!(!error.0.contains("nearest"), "{error}");
    }

    #[test]
    fn wrong_values_are_named() {
        assert!(parse("-x").unwrap_err().0.contains("-x needs a value: N"));
        assert!(parse("-x -a").unwrap_err().0.contains("needs a value"));
        assert!(parse("stray").unwrap_err().0.contains("'stray'"));
        assert!(parse("-a=5").unwrap_err().0.contains("takes no value"));
        assert!(parse("-x many").unwrap().number::<u32>("producers").is_err());
        assert!(parse("-r -1").unwrap().rate("rate").is_err());
        assert!(parse("-r NaN").unwrap().rate("rate").is_err());
        assert!(parse("-ad yes").unwrap().truth("auto-delete", true).is_err());
    }

    #[test]
    fn options_of_the_reference_are_skipped_or_refused_with_a_reason() {
        let options = parse("-hst 4 -x 2").unwrap();
        assert_eq!(options.number::<u32>("producers"), Ok(Some(2)));
        assert!(parse("-jb").unwrap_err().0.contains("bodies are bytes"));
    }

    #[test]
    fn help_names_every_option() {
        let text = describe(GROUPS);
        for name in ["--producers N", "-ad, --auto-delete", "[NAME]", "Topology:"] {
            assert!(text.contains(name), "{name} in {text}");
        }
    }
}
