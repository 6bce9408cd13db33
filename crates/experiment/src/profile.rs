//! Where a broker of ours spends its CPU time under a load: `lepus profile` beside it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::record::Profiled;
use crate::session::Session;
use crate::stop::Stop;
use crate::subject::{Choice, Kind, Placement, Subject};
use crate::workload::{self, Load};

/// Bounds of how long a profile takes.
const SECONDS_MIN: f64 = 2.0;
const SECONDS_MAX: f64 = 10.0;
/// How long the load runs before and after it.
const MARGIN: Duration = Duration::from_secs(2);

/// Takes a profile of every `lepus` of ours under each load, in runs of their own: sampling costs a
/// little. What fails is noted.
pub fn take(session: &mut Session<'_>, placement: &Placement, loads: &[Load]) -> Vec<Profiled> {
    let mut profiles = Vec::new();
    for number in 0..session.plan.choices.len() {
        if session.plan.choices[number] != Choice::Ours(Kind::Lepus) || session.is_over() {
            continue;
        }
        let Some(subject) = session.start(number, placement, true) else { continue };
        for load in loads {
            if session.is_over() {
                break;
            }
            let name = session.record.names[number].clone();
            let what = format!("{name}, {}, profile", load.name);
            session.progress.tell(&what);
            let seconds = load.seconds.unwrap_or(SECONDS_MAX).clamp(SECONDS_MIN, SECONDS_MAX);
            let taken = under_load(session, &subject, placement, load, seconds.round());
            session.progress.done(seconds_expected(load));
            match taken {
                Ok(profile) => profiles.push(Profiled { name, load: load.name.clone(), ..profile }),
                Err(_) if session.is_over() => {}
                Err(error) => session.note(format!("{what}: {error}")),
            }
        }
    }
    profiles
}

/// How long [`take`] needs for one load and broker.
#[must_use]
pub fn seconds_expected(load: &Load) -> f64 {
    load.seconds.unwrap_or(SECONDS_MAX).clamp(SECONDS_MIN, SECONDS_MAX) + 2.0 * MARGIN.as_secs_f64()
}

fn under_load(
    session: &Session<'_>,
    subject: &Subject,
    placement: &Placement,
    load: &Load,
    seconds: f64,
) -> io::Result<Profiled> {
    let lepus = &session.plan.site.lepus;
    let word: String =
        load.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let directory = session.plan.output.join(format!("profile-{word}"));
    let load = Load { seconds: Some(seconds + 2.0 * MARGIN.as_secs_f64()), ..load.clone() };
    std::thread::scope(|scope| {
        let profile = scope.spawn(|| {
            workload::rest(MARGIN, &session.stop);
            run(lepus, subject, seconds, &directory, &session.stop)
        });
        let outcome = workload::run(lepus, &load, subject, placement, &session.stop);
        let profile = profile.join().map_err(|_| io::Error::other("the profile broke off"))?;
        outcome?;
        profile
    })?;
    read(&directory)
}

fn run(
    lepus: &Path,
    subject: &Subject,
    seconds: f64,
    directory: &Path,
    stop: &Stop,
) -> io::Result<()> {
    if stop.is_wanted() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let data = subject.data().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(lepus);
    // Below the data directory's own, as the broker is: the path of the control socket has to be short.
    command.arg("profile").current_dir(data.parent().unwrap_or(data));
    command.arg("--data-dir").arg(data.file_name().unwrap_or(data.as_os_str()));
    command.args(["--seconds", &seconds.to_string()]).arg("--out").arg(directory);
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(text.lines().last().unwrap_or("it said nothing").to_owned()))
}

/// Reads what `lepus profile` left.
fn read(directory: &Path) -> io::Result<Profiled> {
    let json: Value = serde_json::from_slice(&fs::read(directory.join("profile.json"))?)?;
    let sum = &json["scopes"][0];
    let share = |ticks: &Value, whole: f64| 100.0 * ticks.as_f64().unwrap_or(0.0) / whole.max(1.0);
    let phases = sum["phases"].as_object().ok_or(io::ErrorKind::InvalidData)?;
    let of_shards: f64 = phases.values().filter_map(Value::as_f64).sum();
    let mut phases: Vec<(String, f64)> =
        phases.iter().map(|(name, ticks)| (name.clone(), share(ticks, of_shards))).collect();
    phases.sort_by(|a, b| b.1.total_cmp(&a.1));
    let whole = sum["samples"].as_f64().unwrap_or(0.0);
    let function = |one: &Value| {
        let name = one["name"].as_str().unwrap_or("?").to_owned();
        (name, share(&one["own"], whole), share(&one["accumulated"], whole))
    };
    let functions = sum["functions"].as_array().ok_or(io::ErrorKind::InvalidData)?;
    let texts = json["not_seen"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(Profiled {
        svg: fs::read_to_string(directory.join("flame-sum.svg"))?,
        phases,
        functions: functions.iter().take(10).map(function).collect(),
        not_seen: texts.map(str::to_owned).collect(),
        ..Profiled::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    #[test]
    fn what_a_profile_left_is_read_in_shares() {
        let scratch = Scratch::new("profiled");
        let directory = scratch.path().to_owned();
        assert!(read(&directory).is_err(), "nothing is there");
        let json = r#"{"scopes": [{"scope": "sum", "samples": 50, "phases": {"handle": 10, "poll": 30},
            "functions": [{"name": "f", "own": 25, "accumulated": 50}]}], "not_seen": ["sleep"]}"#;
        fs::write(directory.join("profile.json"), json).unwrap();
        fs::write(directory.join("flame-sum.svg"), "<svg></svg>").unwrap();
        let read = read(&directory).unwrap();
        assert_eq!(read.phases, [("poll".to_owned(), 75.0), ("handle".to_owned(), 25.0)]);
        assert_eq!(read.functions, [("f".to_owned(), 50.0, 100.0)]);
        assert_eq!(read.not_seen, ["sleep"]);
    }
}
