//! The flags of a command line, told apart from its words.

use crate::output::Formatter;
use std::collections::BTreeMap;

/// A flag that one command has.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name without dashes.
    pub name: &'static str,
    /// A letter for short.
    pub letter: Option<char>,
    /// What follows it.
    pub value: Follows,
    /// What stands for it in a banner when it is not given.
    pub default: &'static str,
    /// What it is for.
    pub about: &'static str,
}

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Nothing.
    Switch,
    /// Any text.
    Text,
    /// A whole number.
    Number,
}

/// Flags that every command accepts and that mean nothing here: names, with what follows.
const IGNORED: &[(&str, Option<char>, Follows)] = &[
    ("longnames", Some('l'), Follows::Switch),
    ("dry-run", None, Follows::Switch),
    ("table-headers", None, Follows::Switch),
    ("erlang-cookie", None, Follows::Text),
    ("aliases-file", None, Follows::Text),
    ("mnesia-dir", None, Follows::Text),
    ("plugins-dir", None, Follows::Text),
    ("enabled-plugins-file", None, Follows::Text),
    ("rabbitmq-home", None, Follows::Text),
    ("script-name", None, Follows::Text),
    ("printer", None, Follows::Text),
    ("file", None, Follows::Text),
];

/// Flags that every command accepts.
const GENERAL: &[(&str, Option<char>, Follows)] = &[
    ("node", Some('n'), Follows::Text),
    ("vhost", Some('p'), Follows::Text),
    ("timeout", Some('t'), Follows::Number),
    ("quiet", Some('q'), Follows::Switch),
    ("silent", Some('s'), Follows::Switch),
    ("formatter", None, Follows::Text),
    ("no-table-headers", None, Follows::Switch),
    ("help", Some('?'), Follows::Switch),
    ("version", None, Follows::Switch),
    ("auto-complete", None, Follows::Switch),
];

/// A command line, read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is no flag, in order.
    pub words: Vec<String>,
    /// Flags that were given, by name; switches with an empty value.
    pub given: BTreeMap<String, String>,
    /// Flags that no command like this has, as they were written, each with its value.
    pub wrong: Vec<(String, String)>,
}

impl Options {
    /// Reads a command line. `flags` are the command's own.
    #[must_use]
    pub fn read(arguments: &[String], flags: &[Flag]) -> Options {
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                options.words.extend(rest.by_ref().cloned());
            } else if argument == "-" || !argument.starts_with('-') {
                options.words.push(argument.clone());
            } else if let Some(name) = argument.strip_prefix("--") {
                let (name, value) = match name.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (name, None),
                };
                let known = find(flags, |known, _| known == name);
                options.take(argument, known, value, &mut rest);
            } else {
                options.take_letters(argument, flags, &mut rest);
            }
        }
        options
    }

    fn take_letters<'a>(
        &mut self,
        argument: &str,
        flags: &[Flag],
        rest: &mut impl Iterator<Item = &'a String>,
    ) {
        let mut letters = argument[1..].chars();
        while let Some(letter) = letters.next() {
            let known = find(flags, |_, short| short == Some(letter));
            let behind = letters.as_str().trim_start_matches('=');
            let takes_value = known.as_ref().is_some_and(|(_, value)| *value != Follows::Switch);
            if takes_value && !behind.is_empty() {
                self.take(argument, known, Some(behind.to_owned()), rest);
                return;
            }
            self.take(&format!("-{letter}"), known, None, rest);
        }
    }

    fn take<'a>(
        &mut self,
        written: &str,
        known: Option<(&'static str, Follows)>,
        value: Option<String>,
        rest: &mut impl Iterator<Item = &'a String>,
    ) {
        let written = written.split('=').next().unwrap_or(written).to_owned();
        let Some((name, follows)) = known else {
            self.wrong.push((written, value.unwrap_or_default()));
            return;
        };
        let value = match follows {
            Follows::Switch => value.unwrap_or_default(),
            _ => match value.or_else(|| rest.next().cloned()) {
                Some(value) => value,
                None => {
                    self.wrong.push((written, String::new()));
                    return;
                }
            },
        };
        let is_number = value.parse::<i64>().is_ok();
        if follows == Follows::Number && !is_number {
            self.wrong.push((written, value));
        } else {
            self.given.insert(name.to_owned(), value);
        }
    }

    /// Whether the flag was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The flag's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    /// The virtual host that is meant.
    #[must_use]
    pub fn vhost(&self) -> &str {
        self.get("vhost").unwrap_or("/")
    }

    /// Banners and notes are not wanted.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.has("quiet") || self.has("silent")
    }

    /// Seconds an operation may take, if that was said.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        let seconds: i64 = self.get("timeout")?.parse().ok()?;
        u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)
    }

    /// How results are to be written; none when nobody knows the name.
    #[must_use]
    pub fn formatter(&self) -> Option<Formatter> {
        match self.get("formatter") {
            Some(name) => Formatter::of(name),
            None => Some(Formatter::Table),
        }
    }
}

/// The flag that `is` means, of a command's own or of everybody's.
fn find(
    flags: &[Flag],
    is: impl Fn(&str, Option<char>) -> bool,
) -> Option<(&'static str, Follows)> {
    let own = flags.iter().find(|flag| is(flag.name, flag.letter));
    if let Some(flag) = own {
        return Some((flag.name, flag.value));
    }
    let general = GENERAL.iter().chain(IGNORED);
    general
        .copied()
        .find(|(name, letter, _)| is(name, *letter))
        .map(|(name, _, value)| (name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Options {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let flag = |name, letter, value| Flag { name, letter, value, default: "", about: "" };
        let flags =
            [flag("pid", Some('P'), Follows::Number), flag("online", None, Follows::Switch)];
        Options::read(&arguments, &flags)
    }

    #[test]
    fn flags_stand_anywhere_and_in_every_form() {
        let options = read(&["-q", "-n", "a@b", "list", "--vhost=v/1", "--online", "-P", "7", "-"]);
        assert_eq!(options.words, ["list", "-"]);
        assert_eq!((options.vhost(), options.get("node")), ("v/1", Some("a@b")));
        assert!(options.is_quiet() && options.has("online") && options.wrong.is_empty());
        let options = read(&["-qs", "-pv1", "--", "-t"]);
        assert!(options.has("silent") && options.vhost() == "v1");
        assert_eq!(options.words, ["-t"]);
    }

    #[test]
    fn what_is_no_flag_or_has_no_fitting_value_is_told() {
        let wrong = |arguments: &[&str]| read(arguments).wrong;
        assert_eq!(wrong(&["--bogus"]), [("--bogus".to_owned(), String::new())]);
        assert_eq!(wrong(&["-t", "abc"]), [("-t".to_owned(), "abc".to_owned())]);
        assert_eq!(wrong(&["--pid=x"]), [("--pid".to_owned(), "x".to_owned())]);
        assert_eq!(wrong(&["-p"]), [("-p".to_owned(), String::new())]);
    }
}
