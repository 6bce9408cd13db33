//! Whole runs against a small broker inside the test, which can be told to misbehave.

#[path = "run/broker.rs"]
mod broker;

use broker::{Broker, Fault};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the tester; the result is its exit code in words and its JSON summary.
fn run(broker: &Broker, line: &str) -> (String, String) {
    let port = broker.uri.rsplit(':').next().unwrap();
    let name: String = line.chars().filter(char::is_ascii_alphanumeric).collect();
    let path: PathBuf = std::env::temp_dir().join(format!("lepus-perf-{port}-{name}.json"));
    let path_text = path.to_str().unwrap().to_owned();
    let words = line.split_whitespace().map(str::to_owned);
    let more = ["-h".to_owned(), broker.uri.clone(), "--json".to_owned(), path_text];
    let code = lepus_perf::run(words.chain(more));
    let json = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    (words_of(code), json)
}

fn words_of(code: ExitCode) -> String {
    let code = format!("{code:?}");
    for (known, word) in
        [(ExitCode::SUCCESS, "good"), (ExitCode::from(1), "failed"), (ExitCode::from(2), "misused")]
    {
        if code == format!("{known:?}") {
            return word.to_owned();
        }
    }
    code
}

/// A number of the summary, which stands before its intervals.
fn number(json: &str, name: &str) -> u64 {
    let key = format!("\"{name}\":");
    let at = json.find(&key).unwrap_or_else(|| panic!("no {name} in {json}")) + key.len();
    let digits: String = json[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn every_message_arrives_and_is_acknowledged() {
    let broker = Broker::start(Fault::None);
    let (outcome, json) = run(&broker, "throughput -u q -C 5000 -D 5000 -s 100 --check");
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "sent"), 5_000);
    assert_eq!(number(&json, "received"), 5_000);
    assert_eq!(number(&json, "good"), 5_000);
    assert_eq!(number(&json, "count"), 5_000);
    let seen = broker.seen();
    assert!(seen.acks.iter().copied().eq((1..=5_000).map(|tag| (tag, false))));
    assert_eq!(seen.connections, 3);
}

#[test]
fn large_bodies_are_split_and_arrive_whole() {
    let broker = Broker::start(Fault::None);
    let (outcome, json) = run(&broker, "throughput -s 300000 -C 20 --check -a -M 8192");
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "good"), 20);
}

#[test]
fn many_queues_in_turn_with_confirms_and_multiple_acks() {
    let broker = Broker::start(Fault::None);
    let line = "throughput -x 4 -y 6 -qp q-%d -qpf 1 -qpt 3 -c 10 -A 5 -C 500 --check";
    let (outcome, json) = run(&broker, line);
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "sent"), 2_000);
    assert_eq!(number(&json, "confirmed"), 2_000);
    assert_eq!(number(&json, "good"), 2_000);
    let seen = broker.seen();
    assert_eq!(seen.queues, ["q-1", "q-2", "q-3"]);
    assert!(!seen.acks.is_empty());
    assert!(seen.acks.iter().all(|(tag, multiple)| *multiple && tag % 5 == 0));
}

#[test]
fn a_lost_message_fails_the_check() {
    let broker = Broker::start(Fault::Drop(77));
    let (outcome, json) = run(&broker, "throughput -C 200 --check -a -st 2");
    assert_eq!(outcome, "failed");
    assert_eq!(number(&json, "missing"), 1);
    assert!(json.contains("sequence number 78 arrived where 77 was due"), "{json}");
}

#[test]
fn the_last_message_is_missed_too() {
    let broker = Broker::start(Fault::Drop(199));
    let (outcome, json) = run(&broker, "throughput -C 200 --check -a -st 2");
    assert_eq!(outcome, "failed");
    assert_eq!(number(&json, "missing"), 1);
}

#[test]
fn a_message_that_comes_twice_fails_the_check() {
    let broker = Broker::start(Fault::Duplicate(77));
    let (outcome, json) = run(&broker, "throughput -C 200 --check -a -st 2");
    assert_eq!(outcome, "failed");
    assert_eq!(number(&json, "duplicates"), 1);
    assert_eq!(number(&json, "missing"), 0);
}

#[test]
fn messages_out_of_order_fail_the_check() {
    let broker = Broker::start(Fault::Swap(77));
    let (outcome, json) = run(&broker, "throughput -C 200 --check -a -st 2");
    assert_eq!(outcome, "failed");
    assert_eq!(number(&json, "out_of_order"), 1);
    assert_eq!(number(&json, "missing"), 0);
}

#[test]
fn a_changed_body_fails_the_check() {
    let broker = Broker::start(Fault::Damage(77));
    let (outcome, json) = run(&broker, "throughput -C 200 -s 40 --check -a");
    assert_eq!(outcome, "failed");
    assert_eq!(number(&json, "damaged"), 1);
}

#[test]
fn a_broken_connection_ends_the_run_with_its_figures() {
    let broker = Broker::start(Fault::Close(77));
    let (outcome, json) = run(&broker, "throughput -C 200 -c 10 -a");
    assert_eq!(outcome, "failed");
    assert!(json.contains(r#""stopped":"Connection lost""#), "{json}");
}

#[test]
fn a_fanout_reaches_every_queue() {
    let broker = Broker::start(Fault::None);
    let line = "fanout --queues 7 --connections 3 -C 300 -c 50 --acks -q 10 --check";
    let (outcome, json) = run(&broker, line);
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "sent"), 300);
    assert_eq!(number(&json, "good"), 2_100);
    assert_eq!(broker.seen().acks.len(), 2_100);
}

#[test]
fn a_loop_feeds_itself_until_the_time_is_up() {
    let broker = Broker::start(Fault::None);
    let line = "loop --connections 2 --channels 3 --in-flight 2 -z 0.2 --check";
    let (outcome, json) = run(&broker, line);
    assert_eq!(outcome, "good");
    assert!(number(&json, "sent") >= 12);
    assert_eq!(number(&json, "good"), number(&json, "sent"));
    assert_eq!(number(&json, "body_bytes"), 16);
}

#[test]
fn a_queue_is_filled_by_one_run_and_emptied_by_another() {
    let broker = Broker::start(Fault::None);
    let (outcome, json) = run(&broker, "throughput -y 0 -u backlog -ad false -f persistent -C 400");
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "sent"), 400);
    let (outcome, json) = run(&broker, "throughput -x 0 -p -u backlog -a -D 400");
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "received"), 400);
    assert_eq!(broker.ready("backlog"), 0);
}

#[test]
fn predeclared_objects_that_are_missing_are_made() {
    let broker = Broker::start(Fault::None);
    let (outcome, json) = run(&broker, "throughput -p -u q -C 50 -D 50 --check");
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "good"), 50);
}

#[test]
fn unroutable_messages_come_back() {
    let broker = Broker::start(Fault::None);
    let (outcome, json) = run(&broker, "throughput -K -f mandatory -c 10 -C 60");
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "returned"), 60);
    assert_eq!(number(&json, "confirmed"), 60);
}

#[test]
fn transactions_are_committed() {
    let broker = Broker::start(Fault::None);
    let (outcome, json) = run(&broker, "throughput -m 10 -n 5 -C 95 -D 95 --check");
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "good"), 95);
    assert_eq!(broker.seen().commits, 10 + 19);
}

#[test]
fn a_refused_connection_and_wrong_arguments_are_told_apart() {
    let nobody = Broker::start(Fault::None);
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let uri = format!("amqp://127.0.0.1:{port}");
    let words = ["throughput", "-z", "1", "-h", &uri].map(str::to_owned);
    assert_eq!(words_of(lepus_perf::run(words.into_iter())), "failed");
    assert_eq!(run(&nobody, "throughput --nonsense").0, "misused");
    assert_eq!(run(&nobody, "troughput").0, "misused");
    assert_eq!(nobody.seen().connections, 0);
}
