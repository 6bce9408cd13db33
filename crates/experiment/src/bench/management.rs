//! What the management API costs where there are many objects: how long its long answers take, what of the broker's memory
//! and time they need, and what messages lose while somebody asks for everything all the time.

use crate::bench::measure::{self, Figures, Load};
use crate::bench::place::Place;
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::words::{ROUNDS_MAX, from_one};
use crate::bench::workload::{WORKLOADS, Workload};
use crate::report::{Block, Table};
use crate::statistics::median;
use crate::subject::{Kind, Subject, free_port};
use clap::Args;
use lepus_amqp::method::basic;
use lepus_perf::to_stderr;
use lepus_probe::procfs;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer may take to go on.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the bystander rests between two questions.
const PAUSE: Duration = Duration::from_millis(1);
/// Bindings of each queue.
const BINDINGS: usize = 3;
/// Exchanges that they lead from.
const EXCHANGES: usize = 100;
/// guest:guest.
const LOGIN: &str = "Z3Vlc3Q6Z3Vlc3Q=";
/// The load beside which everything is asked for.
const LOAD: &str = "stream-16";

/// Their definitions are one text.
const QUEUES_MAX: u64 = 1_000_000;

/// How many objects, and how often.
#[derive(Clone, Copy, Debug, Args)]
pub struct ManyQueues {
    /// Queues, each with three bindings
    #[arg(long, default_value_t = 100_000, value_parser = from_one::<usize>(QUEUES_MAX))]
    queues: usize,
    /// Pairs of runs, with and without somebody who asks for all queues
    #[arg(long, default_value_t = 3, value_parser = from_one::<usize>(ROUNDS_MAX))]
    rounds: usize,
}

const TITLE: &str = "What the management API costs with many queues";
const ASKS: &str = "How long do its long answers take, and what do messages lose while somebody asks for everything?";
const LEGEND: [&str; 5] = [
    "seconds: from the request to the last byte of the answer. longest turn: of a shard since it started, as its metrics say.",
    "others wait ms: the longest round trip of an AMQP client meanwhile that asks for an answer and nothing else, a thousand times a second at most.",
    "broker MB: resident after the answer. All of it runs on one core, the API at the lowest priority.",
    "shard µs: CPU of the shard's thread per message, so that what the API takes of the core by itself is not in it.",
    "asked: how often the whole list of queues came while messages flowed.",
];

/// Measures and reports.
///
/// # Errors
/// When the broker does not start or refuses a request, or the report cannot be written.
pub fn run(plan: ManyQueues, place: &Place, load: &Load) -> io::Result<()> {
    let size = ("objects", format!("{} queues, {} bindings", plan.queues, plan.queues * BINDINGS));
    let mut sheet =
        Sheet::new(Cover { name: "management", title: TITLE, asks: ASKS, size }, place)?;
    let port = free_port()?;
    let place = place.with_flags(["--management-listen".to_owned(), format!("127.0.0.1:{port}")]);
    let mut answers = Answers::default();
    if let Err(error) = measure(plan, &place, load, port, &mut answers, &mut sheet) {
        // A wish to stop interrupts whatever waits for an answer.
        sheet.fault(place.goes_on().err().unwrap_or(error).to_string());
    }
    sheet.finish(&LEGEND, !answers.figures.is_empty())
}

/// What was answered until now.
#[derive(Debug, Default)]
struct Answers {
    rows: Vec<Vec<String>>,
    figures: Vec<Value>,
}

impl Answers {
    fn blocks(&self) -> Vec<Block> {
        let columns =
            ["what", "seconds", "answer MB", "broker MB", "others wait ms", "longest turn ms"];
        let mut table = Table::new(columns);
        table.rows.clone_from(&self.rows);
        vec![Block::Heading("Answers".to_owned()), Block::Table(table)]
    }
}

fn measure(
    plan: ManyQueues,
    place: &Place,
    load: &Load,
    port: u16,
    answers: &mut Answers,
    sheet: &mut Sheet,
) -> io::Result<()> {
    let subject = place.start(Kind::Lepus)?;
    place.cast.load("requests", || "lepus-bench management".to_owned());
    let outcome = ask_all(plan, place, &subject, port, answers);
    // What was answered before a request failed, or somebody wanted it to end, is worth as much as before.
    if !answers.figures.is_empty() {
        sheet.add(answers.blocks(), Some(json!({"answers": answers.figures})))?;
    }
    outcome?;
    beside(plan, place, load, &subject, port, sheet)
}

fn ask_all(
    plan: ManyQueues,
    place: &Place,
    subject: &Subject,
    port: u16,
    answers: &mut Answers,
) -> io::Result<()> {
    let file = definitions(plan.queues);
    let asked = [
        ("import of definitions", "POST", "/api/definitions", file.as_str()),
        ("the same again, nothing new", "POST", "/api/definitions", file.as_str()),
        ("all queues", "GET", "/api/queues", ""),
        ("a page of 100 queues", "GET", "/api/queues?page=1&page_size=100", ""),
        (
            "a page of 100, sorted by messages",
            "GET",
            "/api/queues?page=1&page_size=100&sort=messages&sort_reverse=true",
            "",
        ),
        ("all bindings", "GET", "/api/bindings", ""),
        ("export of definitions", "GET", "/api/definitions", ""),
        ("a policy for all queues", "PUT", "/api/policies/%2F/all", POLICY),
        ("the policy's end", "DELETE", "/api/policies/%2F/all", ""),
    ];
    for (name, method, path, body) in asked {
        place.goes_on()?;
        let bystander = Bystander::start(subject)?;
        let answer = ask(port, method, path, body)?;
        let waited = bystander.end()?;
        let resident = subject.read()?.resident_bytes as f64 / 1e6;
        let turn = longest_turn(subject)?;
        to_stderr(format_args!("{name}: {:.3} s", answer.seconds));
        answers.rows.push(vec![
            name.to_owned(),
            format!("{:.3}", answer.seconds),
            format!("{:.1}", answer.bytes as f64 / 1e6),
            format!("{resident:.0}"),
            format!("{:.1}", waited * 1e3),
            format!("{:.1}", turn * 1e3),
        ]);
        answers.figures.push(json!({
            "request": format!("{method} {path}"),
            "seconds": answer.seconds,
            "answer_bytes": answer.bytes,
            "resident_mb": resident,
            "others_waited_seconds": waited,
            "longest_turn_seconds": turn,
        }));
    }
    Ok(())
}

const POLICY: &str =
    r#"{"pattern": "^q", "definition": {"max-length": 1000000}, "apply-to": "queues"}"#;

/// One run of the load.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    figures: Figures,
    shard_micros: f64,
    asked: u64,
}

/// Messages with and without somebody who asks for all queues, in turn.
fn beside(
    plan: ManyQueues,
    place: &Place,
    load: &Load,
    subject: &Subject,
    port: u16,
    sheet: &mut Sheet,
) -> io::Result<()> {
    let workload = WORKLOADS.iter().find(|workload| workload.name == LOAD);
    let workload = workload.expect("the load has a name that is there");
    let (mut alone, mut with) = (Vec::new(), Vec::new());
    let pair = || {
        place.goes_on()?;
        let alone = load_once(workload, place, load, subject, None)?;
        Ok((alone, load_once(workload, place, load, subject, Some(port))?))
    };
    let mut outcome = Ok(());
    for _ in 0..plan.rounds {
        match pair() {
            Ok(pair) => {
                alone.push(pair.0);
                with.push(pair.1);
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    if alone.is_empty() {
        return outcome;
    }
    let mut table = Table::new(["", "messages/s", "shard µs", "CPU µs", "asked"]);
    let of = |runs: &[Run], pick: fn(&Run) -> f64| median(runs.iter().map(pick));
    let mut row = |name: &str, runs: &[Run]| {
        let asked: u64 = runs.iter().map(|run| run.asked).sum();
        table.rows.push(vec![
            name.to_owned(),
            format!("{:.0}", of(runs, |run| run.figures.rate)),
            format!("{:.4}", of(runs, |run| run.shard_micros)),
            format!("{:.4}", of(runs, |run| run.figures.cpu_micros)),
            asked.to_string(),
        ]);
    };
    row("messages alone", &alone);
    row("and somebody asks for all queues", &with);
    let ratio = |pick: fn(&Run) -> f64| of(&with, pick) / of(&alone, pick);
    let (rate, shard) = (ratio(|run| run.figures.rate), ratio(|run| run.shard_micros));
    table.rows.push(vec![
        "ratio".to_owned(),
        format!("{rate:.3}"),
        format!("{shard:.3}"),
        format!("{:.3}", ratio(|run| run.figures.cpu_micros)),
        String::new(),
    ]);
    let json_of = |runs: &[Run]| -> Value {
        let one = |run: &Run| json!({"figures": run.figures.json(), "shard_micros": run.shard_micros, "asked": run.asked});
        runs.iter().map(one).collect()
    };
    let found = json!({"alone": json_of(&alone), "with": json_of(&with), "rate_ratio": rate, "shard_ratio": shard});
    let heading = Block::Heading(format!("{}, and all queues asked for", workload.title));
    sheet.add(vec![heading, Block::Table(table)], Some(found))?;
    outcome
}

fn load_once(
    workload: &Workload,
    place: &Place,
    load: &Load,
    subject: &Subject,
    port: Option<u16>,
) -> io::Result<Run> {
    let (ends, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let asking = port.map(|port| {
        let (ends, asked) = (Arc::clone(&ends), Arc::clone(&asked));
        thread::spawn(move || -> io::Result<()> {
            while !ends.load(Relaxed) {
                ask(port, "GET", "/api/queues", "")?;
                asked.fetch_add(1, Relaxed);
            }
            Ok(())
        })
    });
    let pid = subject.seen_pid()?;
    let (cpu, delivered) = (procfs::thread_nanos(pid, "shard-0")?, subject.counts()?);
    let figures = measure::run(workload, subject, place.core, load);
    let nanos = procfs::thread_nanos(pid, "shard-0")? - cpu;
    let counts = subject.counts()?.since(delivered);
    // The last answer may take as long as it takes: it is not waited for in a run that failed.
    ends.store(true, Relaxed);
    let figures = figures?;
    if let Some(asking) = asking {
        asking.join().map_err(|_| io::Error::other("whoever asks has failed"))??;
    }
    let messages = counts.delivered.max(1) as f64;
    Ok(Run { figures, shard_micros: nanos as f64 / 1e3 / messages, asked: asked.load(Relaxed) })
}

/// An AMQP client that notes how long the broker lets it wait at most.
struct Bystander {
    ends: Arc<AtomicBool>,
    longest: thread::JoinHandle<io::Result<f64>>,
}

impl Bystander {
    fn start(subject: &Subject) -> io::Result<Bystander> {
        let mut peer = subject.peer()?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let longest = thread::spawn(move || {
            let mut longest = 0.0_f64;
            while !told.load(Relaxed) {
                let start = Instant::now();
                peer.call(1, basic::Qos::default(), "basic.qos-ok")?;
                longest = longest.max(start.elapsed().as_secs_f64());
                // It is to leave the core to others.
                thread::sleep(PAUSE);
            }
            peer.close()?;
            Ok(longest)
        });
        Ok(Bystander { ends, longest })
    }

    /// The longest wait in seconds.
    fn end(self) -> io::Result<f64> {
        self.ends.store(true, Relaxed);
        self.longest.join().map_err(|_| io::Error::other("the bystander has failed"))?
    }
}

/// The longest turn of a shard until now, in seconds.
fn longest_turn(subject: &Subject) -> io::Result<f64> {
    let page = subject.metrics()?;
    let values = page.lines().filter(|line| line.starts_with("lepus_shard_longest_turn_seconds"));
    let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.fold(0.0, f64::max))
}

/// A file of definitions in RabbitMQ's format.
fn definitions(queues: usize) -> String {
    let mut text = String::from(r#"{"vhosts":[{"name":"/"}],"exchanges":["#);
    for exchange in 0..EXCHANGES {
        let comma = if exchange == 0 { "" } else { "," };
        text += &format!(
            r#"{comma}{{"name":"x{exchange}","vhost":"/","type":"topic","durable":true,"auto_delete":false,"arguments":{{}}}}"#
        );
    }
    text += r#"],"queues":["#;
    for queue in 0..queues {
        let comma = if queue == 0 { "" } else { "," };
        text += &format!(
            r#"{comma}{{"name":"q{queue:07}","vhost":"/","durable":true,"auto_delete":false,"arguments":{{}}}}"#
        );
    }
    text += r#"],"bindings":["#;
    for at in 0..queues * BINDINGS {
        let comma = if at == 0 { "" } else { "," };
        let (queue, nth, exchange) = (at / BINDINGS, at % BINDINGS, at % EXCHANGES);
        text += &format!(
            r#"{comma}{{"source":"x{exchange}","vhost":"/","destination":"q{queue:07}","destination_type":"queue","routing_key":"a.{nth}.{queue}","arguments":{{}}}}"#
        );
    }
    text + "]}"
}

/// An answer that came whole.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Answer {
    seconds: f64,
    bytes: u64,
}

/// Asks the API and takes what comes. In HTTP/1.0 an answer ends with its connection.
fn ask(port: u16, method: &str, path: &str, body: &str) -> io::Result<Answer> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Basic {LOGIN}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut first = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
        if first.len() < 1024 {
            first.extend_from_slice(&buffer[..count.min(1024)]);
        }
    }
    match accepted(&first) {
        true => Ok(Answer { seconds: start.elapsed().as_secs_f64(), bytes }),
        false => {
            let text = String::from_utf8_lossy(&first).into_owned();
            Err(io::Error::other(format!("{method} {path} is answered with {text}")))
        }
    }
}

/// Whether an answer's code is one of success.
fn accepted(first: &[u8]) -> bool {
    first.starts_with(b"HTTP/1.") && first.get(8..10) == Some(b" 2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_what_was_asked_for() {
        let file: Value = serde_json::from_str(&definitions(5)).unwrap();
        assert_eq!(file["queues"].as_array().unwrap().len(), 5);
        assert_eq!(file["bindings"].as_array().unwrap().len(), 15);
        assert_eq!(file["bindings"][14]["destination"], "q0000004");
        assert_eq!(file["exchanges"].as_array().unwrap().len(), EXCHANGES);
    }

    #[test]
    fn only_success_is_taken_for_it() {
        assert!(accepted(b"HTTP/1.1 204 No Content\r\n"));
        assert!(accepted(b"HTTP/1.0 200 OK\r\n"));
        for other in [&b"HTTP/1.1 503 Service Unavailable\r\n"[..], b"HTTP", b""] {
            assert!(!accepted(other));
        }
    }
}
