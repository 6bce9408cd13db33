//! What happened to the queues of a run makes the same queues again.

use std::sync::Arc;

use lepus_sim::{Played, QueueRecord};

/// Seeds with and without disks; of those with moves queues go to other shards, of those from a million on logs are
/// short, or fail.
const SEEDS: [u64; 12] = [1, 2, 3, 5, 8, 13, 21, 34, 1_000_000, 1_000_002, 1_000_004, 1_000_006];

fn record(seed: u64) -> (Vec<u8>, lepus_sim::Figures) {
    let record = Arc::new(QueueRecord::new(Vec::new()));
    let figures = lepus_sim::run_recorded(seed, false, record.clone())
        .unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    (record.look(Vec::clone), figures)
}

#[test]
fn the_queues_of_a_run_are_made_again_by_their_commands() {
    let (mut sum, mut figures) = (Played::default(), lepus_sim::Figures::default());
    for seed in SEEDS {
        let (record, of_run) = record(seed);
        let played = lepus_sim::replay(&record[..])
            .unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        (sum.queues, sum.commands) = (sum.queues + played.queues, sum.commands + played.commands);
        figures.add(of_run);
    }
    assert!(sum.queues > 100 && sum.commands > 20_000, "{sum:?} say little");
    let lepus_sim::Figures { disks, restarts, queues_moved, .. } = figures;
    assert!(disks > 0 && restarts > 0 && queues_moved > 0, "{figures:?} say little");
}

#[test]
fn the_record_changes_nothing_of_the_run() {
    for seed in [3, 8] {
        assert_eq!(Ok(record(seed).1), lepus_sim::run(seed, false), "seed {seed}");
    }
}

#[test]
fn what_is_no_record_is_refused() {
    let (record, _) = record(2);
    assert!(lepus_sim::replay(&b"lepus"[..]).is_err());
    assert!(lepus_sim::replay(&record[..record.len() - 1]).is_err());
    // Whose end is left out.
    assert!(lepus_sim::replay(&record[..record.len() - 21]).is_err());
}
