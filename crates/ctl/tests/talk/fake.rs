//! An API that answers what a test says, and what a command line came to.

use lepus_ctl::{Api, Program, Reply, Unreachable};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// An API that answers by the method and the beginning of the path, and remembers what it was asked.
pub struct Fake {
    pub answers: Vec<(String, VecDeque<Reply>)>,
    pub calls: Vec<(String, Value)>,
    pub fault: Option<Unreachable>,
    pub waited: Duration,
}

impl Api for Fake {
    fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Unreachable> {
        let call = format!("{method} {path}");
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if path != "/api/lepus/ctl/state" {
            self.calls.push((call.clone(), body.cloned().unwrap_or_default()));
        }
        let found = self
            .answers
            .iter_mut()
            .find(|(known, _)| call == *known || call.starts_with(&format!("{known}?")));
        let missing = json!({"error": "Object Not Found", "reason": "Not Found"});
        Ok(match found {
            Some((_, replies)) if replies.len() > 1 => replies.pop_front().unwrap(),
            Some((_, replies)) => replies[0].clone(),
            None => Reply { status: 404, body: missing },
        })
    }

    fn pause(&mut self, time: Duration) {
        self.waited += time;
    }
}

/// An API of a broker that runs, with these answers.
pub fn api(answers: &[(&str, u16, Value)]) -> Fake {
    let state = json!({"node": "rabbit@h", "running": true, "booting": false, "pid": 1});
    let mut fake =
        Fake { answers: Vec::new(), calls: Vec::new(), fault: None, waited: Duration::ZERO };
    let own = [("GET /api/lepus/ctl/state", 200, state)];
    let is_told = answers.iter().any(|(call, ..)| *call == own[0].0);
    let own = if is_told { &[][..] } else { &own[..] };
    for (call, status, body) in answers.iter().chain(own) {
        let reply = Reply { status: *status, body: body.clone() };
        match fake.answers.iter_mut().find(|(known, _)| known == call) {
            Some((_, replies)) => replies.push_back(reply),
            None => fake.answers.push(((*call).to_owned(), VecDeque::from([reply]))),
        }
    }
    fake
}

/// What came of a command line.
#[derive(Debug)]
pub struct Ended {
    pub code: u8,
    pub out: String,
    pub errors: String,
}

pub fn say(fake: &mut Fake, words: &[&str], input: &str) -> Ended {
    let program = Program::of(words[0]).unwrap();
    let arguments: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let code =
        lepus_ctl::run(program, &arguments, fake, &mut input.as_bytes(), &mut out, &mut errors);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code, out: text(out), errors: text(errors) }
}

/// Fails unless the command line prints this and ends with 0.
pub fn prints(fake: &mut Fake, line: &str, expected: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let ended = say(fake, &words, "");
    assert_eq!(
        (ended.code, ended.out.as_str(), ended.errors.as_str()),
        (0, expected, ""),
        "{line}"
    );
}

/// Fails unless the command line ends so, with this on standard error.
pub fn fails(fake: &mut Fake, line: &str, code: u8, errors: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let ended = say(fake, &words, "");
    assert_eq!((ended.code, ended.errors.as_str()), (code, errors), "{line}");
}

pub fn users() -> Fake {
    let users = json!([
        {"name": "guest", "tags": ["administrator"]},
        {"name": "m", "tags": ["administrator", "monitoring"]},
        {"name": "none", "tags": []},
    ]);
    api(&[("GET /api/users", 200, users)])
}
