//! `rabbitmqadmin` in the syntax of the Python program that comes with RabbitMQ 3: `declare queue name=q`.

mod format;
mod kinds;
mod settings;
mod teaching;

pub use settings::{Settings, Wrong};
pub use teaching::subcommands;

use crate::api::{Api, escape};
use crate::http::Http;
use crate::term::safe;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kinds::{CLOSED, DECLARED, DELETED, GET, Kind, LISTS, Listed, PUBLISH, PURGED, SHOWN};
use serde_json::{Map, Value};
use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::time::Duration;

/// Bytes of a message from standard input at most.
const PAYLOAD_BYTES_MAX: u64 = 128 << 20;

/// Why a command line ends with another code than 0.
enum Stop {
    /// The command line is wrong.
    Usage(String),
    /// The broker refused or did not answer.
    Refused(String),
    /// A value is not JSON.
    NotJson(String),
}

/// The way to the API that a command line's options name. A wrong command line is told by [`run`].
#[must_use]
pub fn connection(arguments: &[String]) -> Http {
    let settings = Settings::read(arguments).unwrap_or_default();
    let seconds = settings.get("request_timeout").parse().unwrap_or(120);
    Http {
        host: settings.get("hostname").to_owned(),
        port: settings.get("port").parse().unwrap_or(0),
        prefix: settings.get("path_prefix").trim_end_matches('/').to_owned(),
        user: settings.get("username").to_owned(),
        password: settings.get("password").to_owned(),
        tls: settings.is_on("ssl"),
        patience: Duration::from_secs(seconds),
    }
}

/// Carries out a command line.
pub fn run(
    arguments: &[String],
    api: &mut dyn Api,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> u8 {
    let settings = match Settings::read(arguments) {
        Ok(settings) => settings,
        Err(wrong) if wrong.code == 2 => {
            let usage = "Usage\n=====\n  rabbitmqadmin [options] subcommand\n";
            let _ = writeln!(errors, "{usage}\nrabbitmqadmin: error: {}", safe(&wrong.text));
            return wrong.code;
        }
        Err(wrong) => return told(errors, &Stop::Usage(wrong.text)),
    };
    let mut admin = Admin { settings: &settings, api, input, out };
    match admin.carry_out() {
        Ok(()) => 0,
        Err(stop) => told(errors, &stop),
    }
}

fn told(errors: &mut dyn Write, stop: &Stop) -> u8 {
    // Nobody is left to be told when standard error is closed.
    let _ = match stop {
        Stop::Usage(text) => {
            writeln!(errors, "\nERROR: {}\n\nrabbitmqadmin --help for help\n", safe(text))
        }
        Stop::Refused(text) => writeln!(errors, "*** {}\n", safe(text)),
        Stop::NotJson(text) => {
            writeln!(errors, "ERROR: Could not parse JSON:\n  {}", safe(text))
        }
    };
    1
}

struct Admin<'a> {
    settings: &'a Settings,
    api: &'a mut dyn Api,
    input: &'a mut dyn BufRead,
    out: &'a mut dyn Write,
}

impl Admin<'_> {
    fn carry_out(&mut self) -> Result<(), Stop> {
        let words = &self.settings.words;
        let first = words.first().map(String::as_str);
        if self.settings.is_on("version") {
            return self.print(concat!("rabbitmqadmin ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        if self.settings.is_on("bash_completion") {
            return self.print(&teaching::completion());
        }
        if self.settings.is_on("help") {
            return self.print(&teaching::options());
        }
        let rest = words.get(1..).unwrap_or_default();
        match first {
            None => Err(Stop::Usage("Action not specified".to_owned())),
            Some("help") => self.help(rest),
            Some("list") => self.list(LISTS, "list", rest),
            Some("show") => self.list(SHOWN, "show", rest),
            Some("declare") => self.declare(rest),
            Some("delete") => self.delete(DELETED, "deleted", rest),
            Some("close") => self.delete(CLOSED, "closed", rest),
            Some("purge") => self.delete(PURGED, "purged", rest),
            Some("publish") => self.publish(rest),
            Some("get") => self.get(rest),
            Some("export") => self.export(rest),
            Some("import") => self.import(rest),
            Some(other) => Err(Stop::Usage(format!("Action {other} not understood"))),
        }
    }

    fn print(&mut self, text: &str) -> Result<(), Stop> {
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Stop::Refused(format!("Could not write: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Prints a status message, unless `-q` is given.
    fn say(&mut self, text: &str) -> Result<(), Stop> {
        match self.settings.is_on("quiet") {
            true => Ok(()),
            false => self.print(&format!("{}\n", safe(text))),
        }
    }

    fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Stop> {
        let path = format!("/api{path}");
        let reply = self.api.call(method, &path, body).map_err(|error| match error.timed_out {
            true => Stop::Refused(format!(
                "Timed out getting HTTP response (request timeout: {} seconds)",
                self.settings.get("request_timeout")
            )),
            false => Stop::Refused(format!("Could not connect: {}", error.text)),
        })?;
        match reply.status {
            400 => Err(Stop::Refused(reply.reason())),
            401 => Err(Stop::Refused(format!("Access refused: {path}"))),
            404 => Err(Stop::Refused(format!("Not found: {path}"))),
            status if status > 400 => {
                let text = format!("Received response {status} for path {path}\n{}", reply.body);
                Err(Stop::Refused(text))
            }
            _ => Ok(reply.body),
        }
    }

    fn one_word(&self, words: &[String]) -> Result<String, Stop> {
        match words {
            [word] => Ok(word.clone()),
            _ => Err(Stop::Usage("Exactly one argument required".to_owned())),
        }
    }

    fn help(&mut self, words: &[String]) -> Result<(), Stop> {
        if words.is_empty() {
            return self.print(&teaching::options());
        }
        match self.one_word(words)?.as_str() {
            "subcommands" => self.print(&teaching::subcommands()),
            "config" => self.print(&teaching::configuration()),
            _ => Err(Stop::Usage("help topic must be one of:\n  subcommands\n  config".to_owned())),
        }
    }

    fn list(&mut self, lists: &[Listed], verb: &str, words: &[String]) -> Result<(), Stop> {
        let name = words.first().map(String::as_str).unwrap_or_default();
        let list = lists.iter().find(|list| list.name == name);
        let list = list.ok_or_else(|| Stop::Usage(format!("Don't know how to {verb} {name}")))?;
        let mut path = format!("/{}", name.replace('_', "-"));
        if let Some(vhost) = self.settings.given("vhost").filter(|_| list.of_vhost) {
            path.push_str(&format!("/{}", escape(vhost)));
        }
        let mut columns = words[1..].to_vec();
        let usual =
            self.settings.get("depth") == "1" && !self.settings.get("format").contains("json");
        if columns.is_empty() && usual {
            columns = list.columns.iter().map(|name| (*name).to_owned()).collect();
        }
        let mut query = Vec::new();
        if !columns.is_empty() {
            let columns: Vec<String> = columns.iter().map(|name| escape(name)).collect();
            query.push(format!("columns={}", columns.join(",")));
        }
        if let Some(key) = self.settings.given("sort") {
            query.push(format!("sort={}", escape(key)));
        }
        if self.settings.is_on("sort_reverse") {
            query.push("sort_reverse=true".to_owned());
        }
        if !query.is_empty() {
            path.push_str(&format!("?{}", query.join("&")));
        }
        let found = self.ask("GET", &path, None)?;
        let found = if verb == "show" { Value::Array(vec![found]) } else { found };
        self.write(&found, &columns, list.json)
    }

    fn write(&mut self, found: &Value, columns: &[String], json: &[&str]) -> Result<(), Stop> {
        let wanted = self.settings.get("format");
        match wanted {
            "raw_json" => return self.print(&format!("{found}\n")),
            "pretty_json" => {
                let text = serde_json::to_string_pretty(found).unwrap_or_default();
                return self.print(&format!("{text}\n"));
            }
            _ => {}
        }
        let depth = self.settings.get("depth").parse().unwrap_or(1);
        let items = found.as_array().map_or(&[][..], Vec::as_slice);
        let table = format::Table::of(items, columns, json, depth);
        let text = format::written(&table, wanted, self.settings.is_on("quiet"))
            .ok_or_else(|| Stop::Usage(format!("Format {wanted} not recognised")))?;
        match table.rows.is_empty() {
            true => self.say("No items"),
            false => self.print(&text),
        }
    }

    fn kind<'k>(&self, kinds: &'k [Kind], words: &[String]) -> Result<&'k Kind, Stop> {
        let name = words.first().ok_or_else(|| Stop::Usage("Type not specified".to_owned()))?;
        let kind = kinds.iter().find(|kind| kind.name == name);
        kind.ok_or_else(|| Stop::Usage(format!("Type {name} not recognised")))
    }

    /// The path and the body that arguments of the form `name=value` make.
    fn arguments(
        &self,
        kind: &Kind,
        words: &[String],
    ) -> Result<(String, Map<String, Value>), Stop> {
        let mut body = Map::new();
        for (name, default) in kind.optional.iter().filter(|(_, default)| !default.is_empty()) {
            body.insert((*name).to_owned(), serde_json::from_str(default).unwrap_or_default());
        }
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| {
                Stop::Usage(format!("Argument \"{word}\" not in the name=value format"))
            })?;
            let is_known =
                kind.needed.iter().flat_map(|names| names.split('|')).any(|known| known == name)
                    || kind.optional.iter().any(|(known, _)| *known == name);
            if !is_known {
                return Err(Stop::Usage(format!("Argument \"{name}\" is not recognised")));
            }
            let value = match kind.json.contains(&name) {
                true => serde_json::from_str(value).map_err(|_| Stop::NotJson(value.to_owned()))?,
                false => Value::from(value),
            };
            body.insert(name.to_owned(), value);
        }
        for names in kind.needed {
            if names.split('|').any(|name| body.contains_key(name)) {
                continue;
            }
            let text = match names.contains('|') {
                true => {
                    let names: Vec<String> =
                        names.split('|').map(|name| format!("'{name}'")).collect();
                    format!("one of mandatory arguments \"[{}]\" is required", names.join(", "))
                }
                false => format!("mandatory argument \"{names}\" is required"),
            };
            return Err(Stop::Usage(text));
        }
        if !kind.needed.contains(&"vhost") {
            let vhost = self.settings.given("vhost").filter(|vhost| !vhost.is_empty());
            let vhost = vhost.unwrap_or_else(|| self.settings.get("declare_vhost"));
            body.insert("vhost".to_owned(), Value::from(vhost));
        }
        Ok((path_of(kind.path, &body), body))
    }

    fn declare(&mut self, words: &[String]) -> Result<(), Stop> {
        let kind = self.kind(DECLARED, words)?;
        let (path, mut body) = self.arguments(kind, &words[1..])?;
        if let Some(queue_type) = body.get("queue_type").cloned()
            && let Some(Value::Object(arguments)) = body.get_mut("arguments")
        {
            arguments.insert("x-queue-type".to_owned(), queue_type);
        }
        let method = if kind.name == "binding" { "POST" } else { "PUT" };
        self.ask(method, &path, Some(&Value::Object(body)))?;
        self.say(&format!("{} declared", kind.name))
    }

    fn delete(&mut self, kinds: &[Kind], done: &str, words: &[String]) -> Result<(), Stop> {
        let kind = self.kind(kinds, words)?;
        let (path, _) = self.arguments(kind, &words[1..])?;
        self.ask("DELETE", &path, None)?;
        self.say(&format!("{} {done}", kind.name))
    }

    fn publish(&mut self, words: &[String]) -> Result<(), Stop> {
        let (path, mut body) = self.arguments(&PUBLISH, words)?;
        if !body.contains_key("payload") {
            let mut payload = Vec::new();
            let mut input = Read::take(&mut *self.input, PAYLOAD_BYTES_MAX);
            let read = input.read_to_end(&mut payload);
            read.map_err(|error| Stop::Refused(format!("Could not read standard input: {error}")))?;
            body.insert("payload".to_owned(), STANDARD.encode(&payload).into());
            body.insert("payload_encoding".to_owned(), "base64".into());
        }
        let answer = self.ask("POST", &path, Some(&Value::Object(body)))?;
        match answer["routed"] == true {
            true => self.say("Message published"),
            false => self.say("Message published but NOT routed"),
        }
    }

    fn get(&mut self, words: &[String]) -> Result<(), Stop> {
        let (path, body) = self.arguments(&GET, words)?;
        let file = body.get("payload_file").and_then(Value::as_str).map(str::to_owned);
        let file = file.filter(|file| !file.is_empty());
        if file.is_some() && body.get("count") != Some(&Value::from("1")) {
            return Err(Stop::Usage("Cannot get multiple messages using payload_file".to_owned()));
        }
        let found = self.ask("POST", &path, Some(&Value::Object(body)))?;
        let Some(file) = file else { return self.write(&found, &[], &[]) };
        let Some(message) = found.get(0) else { return self.say("No items") };
        let payload = message["payload"].as_str().unwrap_or_default();
        let payload = match message["payload_encoding"] == "base64" {
            true => STANDARD.decode(payload).unwrap_or_default(),
            false => payload.as_bytes().to_vec(),
        };
        std::fs::write(&file, payload)
            .map_err(|error| Stop::Refused(format!("Could not write \"{file}\": {error}")))?;
        let columns = ["routing_key", "exchange", "message_count", "payload_bytes", "redelivered"];
        self.write(&found, &columns.map(str::to_owned), &[])
    }

    /// The path of definitions, of the virtual host that is named or of all.
    fn definitions(&self) -> String {
        match self.settings.given("vhost") {
            Some(vhost) => format!("/definitions/{}", escape(vhost)),
            None => "/definitions".to_owned(),
        }
    }

    fn export(&mut self, words: &[String]) -> Result<(), Stop> {
        let file = self.one_word(words)?;
        let definitions = self.ask("GET", &self.definitions(), None)?;
        crate::file::write_private(Path::new(&file), definitions.to_string().as_bytes())
            .map_err(|error| Stop::Refused(format!("Could not write \"{file}\": {error}")))?;
        let host = self.settings.get("hostname");
        self.say(&format!("Exported definitions for {host} to \"{file}\""))
    }

    fn import(&mut self, words: &[String]) -> Result<(), Stop> {
        let file = self.one_word(words)?;
        let bytes = crate::file::read(Path::new(&file))
            .map_err(|error| Stop::Refused(format!("Could not read \"{file}\": {error}")))?;
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let definitions: Value = serde_json::from_slice(bytes)
            .map_err(|error| Stop::Refused(format!("\"{file}\" is not JSON: {error}")))?;
        self.ask("POST", &self.definitions(), Some(&definitions))?;
        let host = self.settings.get("hostname");
        self.say(&format!(
            "Uploaded definitions from \"{host}\" to {file}. The import process may take some time. Consult server \
             logs to track progress."
        ))
    }
}

/// The path with names in braces replaced by what the body has under them.
fn path_of(template: &str, body: &Map<String, Value>) -> String {
    let text = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut path = String::new();
    for segment in template.split('/').skip(1) {
        path.push('/');
        match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some("destination_char") => path.extend(text("destination_type").chars().next()),
            Some(key) => path.push_str(&escape(text(key))),
            None => path.push_str(segment),
        }
    }
    path
}
