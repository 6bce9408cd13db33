//! RabbitMQ's command line tools: their words go to `lepus-ctl`, whose calls of the API go over the control socket.

use crate::control::{ControlError, PATIENCE_SECONDS, ask_within};
use crate::flags::Settings;
use lepus_console::to_stderr;
use lepus_ctl::{Api, Program, Reply, Unreachable, admin};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The exit code for words that are not text, and for a configuration that cannot be used.
const WRONG_WORDS: u8 = 64;
const WRONG_CONFIGURATION: u8 = 78;
/// Flags of lepus that say where the broker is found; the tools have none for that.
const PLACES: [&str; 3] = ["--data-dir", "--control-socket", "--config"];

/// The management API behind the control socket, which asks for no password.
struct ControlApi {
    path: PathBuf,
    patience: Duration,
}

impl Api for ControlApi {
    fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Unreachable> {
        let request = json!({"order": "api", "method": method, "path": path, "body": body});
        let began = Instant::now();
        match ask_within(&self.path, &request, self.patience) {
            Ok(mut answer) => Ok(Reply {
                status: answer["status"]
                    .as_u64()
                    .and_then(|code| code.try_into().ok())
                    .unwrap_or(500),
                body: answer.get_mut("body").map(Value::take).unwrap_or_default(),
            }),
            Err(error) => Err(Unreachable {
                timed_out: matches!(error, ControlError::Broken(_))
                    && began.elapsed() >= self.patience,
                text: error.to_string(),
            }),
        }
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }
}

/// Runs `lepus ctl`: the first word may name the tool, which is `rabbitmqctl` otherwise.
#[must_use]
pub fn run_words(mut words: Vec<OsString>) -> ExitCode {
    let named = words.first().and_then(|word| word.to_str()).and_then(Program::of);
    if named.is_some() {
        words.remove(0);
    }
    run(named.unwrap_or(Program::Ctl), words)
}

/// Runs a tool with the words behind its name.
#[must_use]
pub fn run(program: Program, words: Vec<OsString>) -> ExitCode {
    let words: Result<Vec<String>, OsString> =
        words.into_iter().map(OsString::into_string).collect();
    let mut words = match words {
        Ok(words) => words,
        Err(word) => {
            to_stderr(format_args!("Error: {word:?} is not UTF-8"));
            return ExitCode::from(WRONG_WORDS);
        }
    };
    if program == Program::Admin {
        let mut http = admin::connection(&words);
        return carry_out(program, &words, &mut http);
    }
    match take_settings(&mut words).load() {
        Ok(config) => {
            let path = config.control_socket();
            let patience = Duration::from_secs(PATIENCE_SECONDS);
            carry_out(program, &words, &mut ControlApi { path, patience })
        }
        Err(text) => {
            to_stderr(format_args!("Error:\n{text}"));
            ExitCode::from(WRONG_CONFIGURATION)
        }
    }
}

fn carry_out(program: Program, words: &[String], api: &mut dyn Api) -> ExitCode {
    let mut input = std::io::stdin().lock();
    let mut out = std::io::stdout().lock();
    let mut errors = std::io::stderr().lock();
    ExitCode::from(lepus_ctl::run(program, words, api, &mut input, &mut out, &mut errors))
}

/// Takes the flags that say where the broker is found out of the words.
fn take_settings(words: &mut Vec<String>) -> Settings {
    let mut settings = Settings::default();
    let mut left = Vec::new();
    let mut rest = std::mem::take(words).into_iter();
    while let Some(word) = rest.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (word.clone(), None),
        };
        if word == "--" {
            left.push(word);
            left.extend(rest.by_ref());
        } else if PLACES.contains(&flag.as_str()) {
            let value = value.or_else(|| rest.next()).unwrap_or_default();
            match flag.as_str() {
                "--config" => settings.config = Some(value),
                _ => settings.flags.push((flag, value)),
            }
        } else {
            left.push(word);
        }
    }
    *words = left;
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn where_the_broker_is_found_is_said_by_flags_of_lepus() {
        let words = ["-q", "--data-dir", "d", "list_queues", "--config=c", "--", "--data-dir", "x"];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        let settings = take_settings(&mut words);
        assert_eq!(words, ["-q", "list_queues", "--", "--data-dir", "x"]);
        assert_eq!(settings.config.as_deref(), Some("c"));
        assert_eq!(settings.flags, [("--data-dir".to_owned(), "d".to_owned())]);
    }

    #[test]
    fn a_request_of_the_api_is_one_order() {
        let root = Scratch::new("ctl");
        let path = root.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            stream.write_all(b"{\"ok\":{\"status\":201,\"body\":{\"a\":1}}}\n").unwrap();
            line
        });
        let mut api = ControlApi { path, patience: Duration::from_secs(60) };
        let reply = api.call("PUT", "/api/vhosts/%2F", Some(&json!({"tracing": true}))).unwrap();
        assert_eq!(reply, Reply { status: 201, body: json!({"a": 1}) });
        let line: Value = serde_json::from_str(&served.join().unwrap()).unwrap();
        let expected = json!({
            "order": "api", "method": "PUT", "path": "/api/vhosts/%2F", "body": {"tracing": true},
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_broker_that_is_not_there_is_unreachable_and_not_late() {
        let root = Scratch::new("ctl-none");
        let path = root.path().join("control.sock");
        let mut api = ControlApi { path, patience: Duration::from_secs(60) };
        let error = api.call("GET", "/api/overview", None).unwrap_err();
        assert!(!error.timed_out && error.text.contains("no running lepus"), "{}", error.text);
    }
}
