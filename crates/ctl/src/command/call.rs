//! One call of a command: what was asked for, and the ways out.

use super::Command;
use crate::api::{Api, Reply, Unreachable, path};
use crate::failure::{DATA, Failure, NO_USER, SOFTWARE, TIMEOUT, UNAVAILABLE, USAGE};
use crate::options::Options;
use crate::own;
use crate::program::Program;
use crate::term::safe;
use serde_json::Value;
use std::io::{BufRead, Write};
use std::time::Duration;

/// Bytes that are read of standard input or of a file at most.
const INPUT_BYTES_MAX: u64 = 200 << 20;
/// Bytes of a password at most.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// A command that is being carried out.
pub struct Call<'a> {
    /// The program it was called by.
    pub program: Program,
    /// The command.
    pub command: &'static Command,
    /// All commands.
    pub table: &'a [&'static Command],
    /// The words behind its name.
    pub words: Vec<String>,
    /// The flags.
    pub options: Options,
    /// The name of the node, once it is known.
    pub node: String,
    /// What the broker said of itself before the command began.
    pub state: Value,
    /// The way to the API.
    pub api: &'a mut dyn Api,
    /// Standard input.
    pub input: &'a mut dyn BufRead,
    /// Standard output, for what is printed before the result.
    pub out: &'a mut dyn Write,
}

impl Call<'_> {
    /// The word at a place; empty when there are fewer.
    #[must_use]
    pub fn word(&self, place: usize) -> String {
        self.words.get(place).cloned().unwrap_or_default()
    }

    /// The value of a flag, or what stands for it.
    #[must_use]
    pub fn flag(&self, name: &str) -> String {
        let default = self.command.flags.iter().find(|flag| flag.name == name);
        let default = default.map_or("", |flag| flag.default);
        self.options.get(name).unwrap_or(default).to_owned()
    }

    /// The virtual host that is meant.
    #[must_use]
    pub fn vhost(&self) -> String {
        self.options.vhost().to_owned()
    }

    /// Sends a request; 401 and a stopped broker are failures, other refusals are replies.
    ///
    /// # Errors
    /// When no answer comes.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Failure> {
        let reply = self.api.call(method, path, body).map_err(|error| self.unreachable(&error))?;
        match reply.status {
            401 => Err(Failure::new(UNAVAILABLE, reply.reason())),
            503 if own::is_stopped(&reply) => Err(self.stopped()),
            _ => Ok(reply),
        }
    }

    /// Gets what stands at a path.
    ///
    /// # Errors
    /// When no answer comes, or a refusal.
    pub fn get(&mut self, segments: &[&str]) -> Result<Value, Failure> {
        let reply = self.ask("GET", &path(segments), None)?;
        match reply.is_success() {
            true => Ok(reply.body),
            false => Err(self.refusal(&reply)),
        }
    }

    /// Gets what stands at a path, if it is there.
    ///
    /// # Errors
    /// When no answer comes, or another refusal than 404.
    pub fn find(&mut self, segments: &[&str]) -> Result<Option<Value>, Failure> {
        let reply = self.ask("GET", &path(segments), None)?;
        match reply.status {
            404 => Ok(None),
            _ if reply.is_success() => Ok(Some(reply.body)),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// Sends a request that must be carried out.
    ///
    /// # Errors
    /// When no answer comes, or a refusal.
    pub fn send(
        &mut self,
        method: &str,
        segments: &[&str],
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let reply = self.ask(method, &path(segments), body)?;
        match reply.is_success() {
            true => Ok(reply.body),
            false => Err(self.refusal(&reply)),
        }
    }

    /// What a refusal means where nothing better is known.
    #[must_use]
    pub fn refusal(&self, reply: &Reply) -> Failure {
        let code = match reply.status {
            400 | 405 | 409 | 412 | 503 => UNAVAILABLE,
            404 => DATA,
            _ => SOFTWARE,
        };
        let reason = reply.reason();
        let ends = if reason.starts_with("Validation failed") { "\n" } else { "" };
        Failure::new(code, format!("{}{ends}", reason.trim_end()))
    }

    /// That a virtual host is not there.
    #[must_use]
    pub fn no_vhost(vhost: &str) -> Failure {
        Failure::plain(DATA, format!("Virtual host '{vhost}' does not exist"))
    }

    /// That a user is not there.
    #[must_use]
    pub fn no_user(user: &str) -> Failure {
        Failure::new(NO_USER, format!("User \"{user}\" does not exist"))
    }

    /// Fails where the virtual host is not there.
    ///
    /// # Errors
    /// When it is not, or no answer comes.
    pub fn check_vhost(&mut self) -> Result<(), Failure> {
        let vhost = self.vhost();
        match self.find(&["vhosts", &vhost])? {
            Some(_) => Ok(()),
            None => Err(Call::no_vhost(&vhost)),
        }
    }

    /// The text with names in braces replaced: `{0}` by the first word, `{*}` by all words but the first, `{node}`,
    /// `{vhost}`, `{seconds}` and any flag.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            filled.push_str(before);
            let Some((name, behind)) = behind.split_once('}') else {
                rest = behind;
                break;
            };
            filled.push_str(&self.named(name));
            rest = behind;
        }
        filled.push_str(rest);
        filled
    }

    fn named(&self, name: &str) -> String {
        match name {
            "node" => self.node.clone(),
            "vhost" => self.vhost(),
            "*" => joined(self.words.get(1..).unwrap_or_default()),
            "**" => joined(&self.words),
            "seconds" => self.options.timeout().unwrap_or(60).to_string(),
            _ => match name.parse() {
                Ok(place) => self.word(place),
                Err(_) => self.flag(name),
            },
        }
    }

    /// Prints a line now, unless `--quiet` or a format for programs is asked for.
    pub fn say(&mut self, text: &str) {
        let is_for_programs =
            self.options.formatter().is_some_and(|formatter| formatter.is_for_programs());
        if !self.options.is_quiet() && !is_for_programs {
            // A reader that went away shows when the result is printed.
            let _ = writeln!(self.out, "{}", safe(text));
            let _ = self.out.flush();
        }
    }

    /// A password of the word at a place or else of the first line of standard input.
    ///
    /// # Errors
    /// With this code when there is neither.
    pub fn password(&mut self, place: usize, code: u8) -> Result<String, Failure> {
        if let Some(password) = self.words.get(place) {
            return Ok(password.clone());
        }
        self.say("Password: ");
        let mut line = Vec::new();
        let mut input = std::io::Read::take(&mut *self.input, PASSWORD_BYTES_MAX);
        let missing = "Password is not provided via argument or stdin";
        let read = input.read_until(b'\n', &mut line);
        read.map_err(|_| Failure::new(code, missing))?;
        let line = String::from_utf8(line)
            .map_err(|_| Failure::new(code, "The password on standard input is not UTF-8"))?;
        match line.trim_end_matches(['\r', '\n']) {
            "" => Err(Failure::new(code, missing)),
            password => Ok(password.to_owned()),
        }
    }

    /// All of standard input.
    ///
    /// # Errors
    /// When it cannot be read, or is too long.
    pub fn whole_input(&mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut input = std::io::Read::take(&mut *self.input, INPUT_BYTES_MAX);
        match std::io::Read::read_to_end(&mut input, &mut bytes) {
            Ok(_) if (bytes.len() as u64) < INPUT_BYTES_MAX => Ok(bytes),
            Ok(_) => Err(Failure::new(DATA, "Standard input is longer than 200 MiB")),
            Err(error) => {
                Err(Failure::new(DATA, format!("Standard input cannot be read: {error}")))
            }
        }
    }

    /// Asks `is_so` until it says yes; fails when that takes longer than `seconds`.
    ///
    /// # Errors
    /// When the time is over, or `is_so` fails.
    pub fn wait_until(
        &mut self,
        seconds: u64,
        mut is_so: impl FnMut(&mut Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        const STEP: Duration = Duration::from_millis(200);
        let mut waited = Duration::ZERO;
        while !is_so(self)? {
            if waited >= Duration::from_secs(seconds) {
                return Err(self.timed_out(seconds * 1000));
            }
            self.api.pause(STEP);
            waited += STEP;
        }
        Ok(())
    }

    /// That it took longer than so many milliseconds.
    #[must_use]
    pub fn timed_out(&self, millis: u64) -> Failure {
        let text = format!(
            "Error: operation {} on node {} timed out. Timeout value used: {millis}",
            self.command.name, self.node
        );
        Failure::plain(TIMEOUT, text)
    }

    /// That no answer came.
    #[must_use]
    pub fn unreachable(&self, error: &Unreachable) -> Failure {
        if error.timed_out {
            return self.timed_out(self.options.timeout().unwrap_or(60) * 1000);
        }
        let text = format!(
            "Error: unable to perform an operation on node '{}'. Please see diagnostics information and suggestions \
             below.\n\nMost common reasons for this are:\n\n * Target node is not running\n * Target node runs with \
             another data directory than the one that was looked in\n * The control socket may only be opened by root \
             and by the user that the node runs as\n\nDIAGNOSTICS\n===========\n\n{}\n",
            self.node, error.text
        );
        Failure::plain(UNAVAILABLE, text)
    }

    /// That `stop_app` stopped the broker.
    #[must_use]
    pub fn stopped(&self) -> Failure {
        let text = "Error: this command requires the 'rabbit' app to be running on the target node. Start it with \
                    'rabbitmqctl start_app'.";
        Failure { with_usage: true, ..Failure::plain(USAGE, text) }
    }
}

/// Words with commas between them.
#[must_use]
pub fn joined(words: &[String]) -> String {
    words.join(", ")
}
