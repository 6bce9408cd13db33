//! Messages stay on the shard they came in on: loads of the program's own tester, by the broker's
//! counters.

use crate::running::{Program, Scratch, lepus};
use std::process::{Child, Stdio};

/// Messages that are counted, after as many that are not.
const MESSAGES: u64 = 20_000;

/// `lepus perf` with these words, ended when it is dropped.
struct Load(Child);

impl Load {
    fn start(program: &Program, words: &[&str]) -> Load {
        let uri = format!("amqp://guest:guest@{}", program.amqp);
        let mut command = lepus(&["perf"]);
        command.args(words).args(["--uri", &uri]).stdout(Stdio::null()).stderr(Stdio::null());
        Load(command.spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Steps of messages that stayed, and all of them.
fn steps(program: &Program) -> (u64, u64) {
    let mut sums = (0, 0);
    for line in program.page().lines() {
        if !line.starts_with("lepus_shard_messages_total{") {
            continue;
        }
        let count = line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        sums.1 += count;
        sums.0 += if line.contains("path=\"stayed\"") { count } else { 0 };
    }
    sums
}

/// The share of steps that stayed under a load, in percent, once it is under way.
fn stayed(shards: usize, words: &[&str]) -> u64 {
    let scratch = Scratch::new("locality");
    let program = Program::start(&scratch, &["--shards", &shards.to_string()]);
    let _load = Load::start(&program, words);
    let wait_for = |count| {
        program.wait_until("messages", |program| steps(program).1 >= count);
        steps(&program)
    };
    let before = wait_for(2 * MESSAGES);
    let after = wait_for(before.1 + 2 * MESSAGES);
    (after.0 - before.0) * 100 / (after.1 - before.1)
}

#[test]
fn channels_that_talk_to_themselves_stay_on_their_shard() {
    // Experiment E1, with a tenth of its channels.
    for shards in [2, 8] {
        let share = stayed(shards, &["loop", "--connections", "9", "--channels", "50"]);
        assert!(share >= 99, "{share} % on {shards} shards");
    }
}

#[test]
fn producers_and_consumers_meet_on_the_shard_of_their_queue() {
    // Experiment E4, with a tenth of its clients and queues.
    let words = "throughput -x 15 -y 30 --queue-pattern q-%d --queue-pattern-from 1 \
                 --queue-pattern-to 10 -f mandatory -q 300 -c 100 -s 12";
    let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    for shards in [2, 8] {
        let share = stayed(shards, &words);
        assert!(share >= 95, "{share} % on {shards} shards");
    }
}
