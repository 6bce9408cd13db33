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

/// Words for [`a_child_of_another_test`], one on each line.
const CHILD_WORDS: &str = "LEPUS_PERF_TEST_WORDS";

/// Nothing by itself: other tests start this file's program anew with only this test, to read its standard output.
#[test]
fn a_child_of_another_test() {
    if let Ok(words) = std::env::var(CHILD_WORDS) {
        let code = lepus_perf::run(words.lines().map(str::to_owned));
        println!("\nexit {}", words_of(code));
    }
}

/// Runs the tester in a process of its own; the result is its exit code in words and the lines on its standard output
/// that begin with one of `starts`.
fn run_apart(uri: &str, line: &str, starts: &[&str]) -> (String, Vec<String>) {
    let words: Vec<&str> = line.split_whitespace().chain(["-h", uri]).collect();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_of_another_test", "--nocapture"])
        .env(CHILD_WORDS, words.join("\n"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let code = text.lines().find_map(|line| line.strip_prefix("exit "));
    let is_wanted = |line: &&str| starts.iter().any(|start| line.starts_with(start));
    let lines = text.lines().filter(is_wanted).map(str::to_owned).collect();
    (code.unwrap_or(&text).to_owned(), lines)
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
fn json_lines_sum_up_to_their_summary() {
    let broker = Broker::start(Fault::None);
    let line = "throughput -u q -C 3000 -D 3000 -r 6000 -i 0.1 -c 100 --output jsonl";
    let (outcome, lines) = run_apart(&broker.uri, line, &["{"]);
    assert_eq!(outcome, "good");
    let (summary, intervals) = lines.split_last().unwrap();
    assert!(intervals.len() > 2, "{lines:?}");
    assert!(intervals.iter().all(|line| line.starts_with(r#"{"kind":"interval","at_s":"#)));
    assert!(summary.starts_with(r#"{"kind":"summary","shape":"throughput","#), "{summary}");
    for name in ["sent", "received", "confirmed"] {
        let sum: u64 = intervals.iter().map(|line| number(line, name)).sum();
        assert_eq!((sum, number(summary, name)), (3_000, 3_000), "{name}");
    }
    assert!(summary.contains(r#""errors":[],"gap":null"#), "{summary}");
}

#[test]
fn a_program_reads_what_went_wrong() {
    let broker = Broker::start(Fault::Drop(77));
    let (outcome, lines) =
        run_apart(&broker.uri, "throughput -C 200 --check -a -st 2 --output jsonl", &["{"]);
    assert_eq!(outcome, "failed");
    let summary = lines.last().unwrap();
    assert!(summary.contains(r#""gap":{"producer":0,"expected":77,"got":78}"#), "{summary}");
    assert!(summary.contains(r#""errors":["1 message lost; first: queue"#), "{summary}");
    let uri = "amqp://127.0.0.1:1";
    let (outcome, lines) = run_apart(uri, "throughput -z 1 --output jsonl", &["{"]);
    assert_eq!(outcome, "failed");
    assert!(lines[0].contains(r#""errors":["cannot connect to 127.0.0.1:1"#), "{lines:?}");
    assert_eq!(lines.len(), 1);
}

#[test]
fn comma_separated_values_have_a_head_and_a_summary() {
    let broker = Broker::start(Fault::None);
    let line = "loop --connections 1 --channels 2 -z 0.3 -i 0.1 --output csv";
    let (outcome, lines) = run_apart(&broker.uri, line, &["kind,", "interval,", "summary,"]);
    assert_eq!(outcome, "good");
    let fields = |line: &String| line.split(',').count();
    assert!(lines.len() > 3 && lines.iter().all(|line| fields(line) == fields(&lines[0])));
    assert!(lines[0].starts_with("kind,shape,at_s,seconds,sent,"));
    assert!(lines.last().unwrap().starts_with("summary,loop,"));
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
fn a_feed_names_each_fault() {
    let line = "feed -x 2 -y 2 -C 300 -c 50 -st 2 --output jsonl";
    let good = Broker::start(Fault::None);
    let (outcome, lines) = run_apart(&good.uri, line, &["{"]);
    assert_eq!(outcome, "good");
    let summary = lines.last().unwrap();
    assert!(summary.contains(r#""shape":"feed""#) && summary.contains(r#""body_bytes":100"#));
    assert_eq!((number(summary, "sent"), number(summary, "good")), (600, 1_200));
    for (fault, named, of_check) in [
        (Fault::Drop(77), "1 message lost", "missing"),
        (Fault::Drop(1_199), "1 message lost", "missing"),
        (Fault::Duplicate(77), "1 message delivered twice", "duplicates"),
        (Fault::Swap(79), "out of order", "out_of_order"),
        (Fault::Damage(77), "damaged", "damaged"),
    ] {
        // One producer and one consumer, so that the message after the swapped one goes to the same queue.
        let line = match fault {
            Fault::Swap(_) => "feed -C 300 -st 2 --output jsonl",
            _ => line,
        };
        let broker = Broker::start(fault);
        let (outcome, lines) = run_apart(&broker.uri, line, &["{"]);
        let summary = lines.last().unwrap();
        assert_eq!(outcome, "failed", "{fault:?}");
        assert_eq!(number(summary, of_check), 1, "{summary}");
        let (_, errors) = summary.split_once(r#""errors":[""#).unwrap();
        assert!(errors.contains(named), "{fault:?}: {errors}");
    }
}

#[test]
fn a_backlog_is_filled_in_runs_drained_checked_and_deleted() {
    let broker = Broker::start(Fault::None);
    let line = "backlog --runs 2 -s 40,90 -C 300,100 -c 50 --output jsonl";
    let (outcome, lines) = run_apart(&broker.uri, line, &[r#"{"kind":"summary""#]);
    assert_eq!(outcome, "good");
    let phases = ["fill 1", "fill 2", "fill 3", "fill 4", "drain"];
    assert_eq!(lines.len(), phases.len(), "{lines:?}");
    for (line, phase) in lines.iter().zip(phases) {
        assert!(line.contains(&format!(r#""shape":"backlog","phase":"{phase}""#)), "{line}");
    }
    let sent: Vec<u64> = lines.iter().map(|line| number(line, "sent")).collect();
    assert_eq!(sent, [300, 300, 100, 100, 0]);
    assert_eq!((number(&lines[4], "received"), number(&lines[4], "good")), (800, 800));
    let seen = broker.seen();
    assert!(seen.queues.iter().all(|name| name == &seen.queues[0]));
    assert_eq!(broker.queues(), 0);
}

#[test]
fn a_backlog_that_lost_a_message_is_told() {
    let broker = Broker::start(Fault::Drop(150));
    let line = "backlog -s 40 -C 200 --confirm-timeout 1 -st 0.2 --output jsonl";
    let (outcome, lines) = run_apart(&broker.uri, line, &[r#"{"kind":"summary""#]);
    assert_eq!(outcome, "failed");
    let drain = lines.last().unwrap();
    assert!(drain.contains(r#""gap":{"producer":0,"expected":150,"got":151}"#), "{drain}");
    assert_eq!(number(drain, "missing"), 1);
}

#[test]
fn things_are_made_and_removed_until_the_time_is_up() {
    let broker = Broker::start(Fault::None);
    let line = "churn -x 2 -z 0.3 -i 0.1 --output jsonl";
    let (outcome, lines) = run_apart(&broker.uri, line, &[r#"{"kind":"summary""#]);
    assert_eq!(outcome, "good");
    let kinds = ["connections", "channels", "queues", "bindings"];
    assert_eq!(lines.len(), kinds.len());
    for (line, kind) in lines.iter().zip(kinds) {
        assert!(line.contains(&format!(r#""shape":"churn","phase":"{kind}""#)), "{line}");
        assert!(number(line, "confirmed") > 0, "{line}");
        assert!(line.contains(r#""confirm_latency_us":{"count":"#), "{line}");
    }
    assert_eq!(broker.queues(), 0);
    assert!(broker.seen().connections > 6);
}

#[test]
fn idle_things_are_counted_and_their_cost_is_told() {
    let broker = Broker::start(Fault::None);
    let pid = std::process::id();
    let line =
        format!("idle --connections 3 --channels 2 --queues 4 -z 0.1 --pid {pid} --output jsonl");
    let (outcome, lines) = run_apart(&broker.uri, &line, &["{"]);
    assert_eq!(outcome, "good");
    let counts: Vec<u64> = lines[..3].iter().map(|line| number(line, "count")).collect();
    assert_eq!(counts, [3, 6, 24]);
    assert!(lines[..3].iter().all(|line| line.contains(r#""broker_cpu_us_each":"#)));
    assert!(lines[3].contains(r#""shape":"idle""#), "{lines:?}");
    assert!(number(&lines[3], "broker_resident_bytes") > 0);
    let seen = broker.seen();
    assert_eq!((seen.connections, seen.queues.len()), (3, 24));
    let (outcome, lines) = run_apart(&broker.uri, "idle -x 1 --pid 0 --output jsonl", &["{"]);
    assert_eq!((outcome.as_str(), lines.len()), ("failed", 0));
}

#[test]
fn filters_that_match_everything_are_set_checked_loaded_and_deleted() {
    let broker = Broker::start(Fault::None);
    let line = "filters --count 6 --anchored 0 --matches 6 --queues 3 --type fanout -C 500 -d all \
                --check-messages 40 --output jsonl";
    let (outcome, lines) = run_apart(&broker.uri, line, &["{"]);
    assert_eq!(outcome, "good", "{lines:?}");
    assert!(lines[0].contains(r#""what":"filters","count":6,"#), "{lines:?}");
    assert!(
        lines[1].contains(r#""messages":40,"good":120,"missing":0,"unexpected":0,"#),
        "{lines:?}"
    );
    let last = lines.last().unwrap();
    assert!(last.contains(r#""matches_per_message":6.000000,"deliveries_per_message":3.000000,"delivered_per_published":3.000000,"#), "{last}");
    assert!(last.contains(r#""broker_cpu_us_per_message":null"#), "{last}");
    let summary = &lines[lines.len() - 2];
    assert_eq!((number(summary, "sent"), number(summary, "received")), (500, 1_500));
    assert_eq!(broker.queues(), 0);
}

#[test]
fn consumers_with_filters_get_what_they_ask_for_and_no_more() {
    let broker = Broker::start_with_filters();
    let line = "filters --at consumer --count 12 --symbols 3 --queues 2 --matches 3 -C 500 -d each \
                --check-messages 40 --output jsonl";
    let (outcome, lines) = run_apart(&broker.uri, line, &["{"]);
    assert_eq!(outcome, "good", "{lines:?}");
    assert!(lines[0].contains(r#""what":"filters","count":12,"#), "{lines:?}");
    // Each message of the check came to one consumer, which may have it.
    assert!(
        lines[1].contains(
            r#""messages":40,"good":40,"missing":0,"unexpected":0,"repeated":0,"first":null"#
        ),
        "{lines:?}"
    );
    let last = lines.last().unwrap();
    for part in [
        r#""at":"consumer","argument":"x-filter","look_at":"body","count":12,"#,
        r#""deliveries_per_message":1.000000,"delivered_per_published":1.000000,"#,
        r#""outstanding":0,"unexpected":0"#,
    ] {
        assert!(last.contains(part), "{part}: {last}");
    }
    let summary = &lines[lines.len() - 2];
    assert_eq!((number(summary, "sent"), number(summary, "received")), (500, 500));
    // What the broker says of it: every message to one of 14 consumers, of which the last two have no filter.
    let deliveries = broker.seen().deliveries;
    assert_eq!(deliveries.values().sum::<u64>(), 540);
    let to_filters: u64 = (0..12).filter_map(|tag| deliveries.get(&tag.to_string())).sum();
    assert!((1..540).contains(&to_filters), "{deliveries:?}");
    assert_eq!(broker.queues(), 0);
}

#[test]
fn a_broker_that_ignores_filters_is_told() {
    let broker = Broker::start(Fault::None);
    for (line, faults) in [
        ("filters --count 4 --queues 2 --anchored 0 --type fanout", r#""missing":0,"unexpected":"#),
        ("filters --count 4 --queues 2 --at consumer", r#""missing":0,"unexpected":"#),
    ] {
        let line = format!("{line} --check-messages 40 --output jsonl -z 1");
        let (outcome, lines) = run_apart(&broker.uri, &line, &["{"]);
        assert_eq!((outcome.as_str(), lines.len()), ("failed", 2), "{lines:?}");
        assert!(lines[1].contains(faults), "{lines:?}");
        assert!(number(&lines[1], "unexpected") > 0, "{lines:?}");
        assert_eq!(broker.queues(), 0);
    }
}

#[test]
fn a_delivery_that_the_filters_ask_for_is_missed() {
    let broker = Broker::start(Fault::Drop(7));
    let line = "filters --count 2 --anchored 0 --matches 2 --queues 2 --type fanout --check-messages 40 --output jsonl";
    let (outcome, lines) = run_apart(&broker.uri, line, &["{"]);
    assert_eq!((outcome.as_str(), lines.len()), ("failed", 2), "{lines:?}");
    assert!(
        lines[1].contains(r#""good":79,"missing":1,"unexpected":0,"repeated":0,"#),
        "{lines:?}"
    );
    assert!(lines[1].contains("did not get message 3 "), "{lines:?}");
}

#[test]
fn answers_on_several_channels_may_come_in_any_order() {
    let broker = Broker::start(Fault::LateAnswers);
    let line = "idle --connections 1 --channels 3 --queues 4 -z 0.1";
    assert_eq!(run_apart(&broker.uri, line, &[]).0, "good");
    assert_eq!(broker.seen().queues.len(), 12);
}

#[test]
fn messages_are_asked_for_one_by_one() {
    let broker = Broker::start(Fault::None);
    let line = "throughput -u q,r -y 2 -po -pi 1 -a -C 40 -D 20 --check -z 20 -k q -e amq.default";
    let (outcome, json) = run(&broker, line);
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "good"), 40);
    assert_eq!(broker.seen().gets, 40);
}

#[test]
fn messages_pile_up_until_a_late_consumer_starts() {
    let broker = Broker::start(Fault::None);
    let (outcome, json) = run(&broker, "throughput -csd 0.3 -C 100 -D 100 --check");
    assert_eq!(outcome, "good");
    assert_eq!(number(&json, "good"), 100);
    // All were sent well before: the first of them waited for the whole delay.
    assert!(number(&json, "max") >= 300_000, "{json}");
}

#[test]
fn sizes_bodies_and_latencies_may_vary() {
    let broker = Broker::start(Fault::None);
    let line = "throughput -vs 12:0.05 2000:0.05 -vl 0:0.1 100:0.1 -r 2000 -C 400 -D 400";
    let (outcome, json) = run(&broker, line);
    assert_eq!(outcome, "good");
    assert_eq!((number(&json, "received"), number(&json, "count")), (400, 400));
    let (outcome, json) = run(&broker, "throughput -jb -s 300 -bc 5 -C 50 -D 50");
    assert_eq!(outcome, "good");
    // The time of made-up bodies travels in a header.
    assert_eq!((number(&json, "received"), number(&json, "count")), (50, 50));
}

#[test]
fn a_broker_that_comes_late_is_waited_for() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let uri = format!("amqp://127.0.0.1:{port}");
    let words = format!("throughput -C 10 -D 10 -sst 60 -h {uri}");
    let tester = std::thread::spawn(move || {
        lepus_perf::run(words.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter())
    });
    let broker = Broker::start_at(port, Fault::None);
    assert_eq!(words_of(tester.join().unwrap()), "good");
    assert!(broker.seen().connections >= 3);
    let nobody = format!("throughput -sst 0.3 -h {}", "amqp://127.0.0.1:1");
    let code = lepus_perf::run(nobody.split_whitespace().map(str::to_owned));
    assert_eq!(words_of(code), "failed");
}

#[test]
fn the_tester_measures_its_own_ceiling() {
    let broker = Broker::start(Fault::None);
    let line = "throughput --ceiling -c 100 -r 1000 -C 200 -D 200 --output jsonl";
    let (outcome, lines) = run_apart(&broker.uri, line, &["{"]);
    assert_eq!(outcome, "good");
    let summary = lines.last().unwrap();
    let (_, ceiling) = summary.split_once(r#""tester_ceiling":{"#).unwrap();
    // The sink does nothing, so both sides are far above the broker's 1000 a second.
    for name in ["sent_per_s", "received_per_s"] {
        assert!(number(ceiling, name) > 2_000, "{ceiling}");
    }
    assert_eq!(number(summary, "sent"), 200);
    assert!(lines.iter().all(|line| !line.contains("127.0.0.1")), "{lines:?}");
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
    assert_eq!(run(&nobody, "throughput --output xml").0, "misused");
    assert_eq!(nobody.seen().connections, 0);
}
