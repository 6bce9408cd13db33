//! The simulator over many seeds. A failing one prints its number and what happened last.

use std::thread;

fn hold(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(text) = lepus_sim::run(seed, false) {
            let (_, lines) = lepus_sim::last_words();
            panic!(
                "{}\n\nseed {seed} fails: {text}\nAgain, with everything that happens:\n    \
                 cargo run --release --package lepus-sim -- --seed {seed} --trace",
                lines.join("\n")
            );
        }
    }
}

#[test]
fn two_hundred_seeds_hold() {
    let halves = [0..100, 100..200].map(|seeds| thread::spawn(move || hold(seeds)));
    for half in halves {
        if let Err(panic) = half.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn seeds_under_strain_hold() {
    hold(1_000_000..1_000_100);
}

#[test]
fn seeds_hold_on_eight_shards_while_connections_and_queues_move() {
    let mut sum = lepus_sim::Figures::default();
    for seed in 0..30 {
        match lepus_sim::run_on_the_move(seed) {
            Ok(figures) => sum.add(figures),
            Err(text) => {
                panic!("{}\n\nseed {seed} fails: {text}", lepus_sim::last_words().1.join("\n"))
            }
        }
    }
    let moves = (sum.moved, sum.queues_moved);
    assert!(moves.0 > 100 && moves.1 > 100, "{moves:?} moves of both say little");
    assert!(sum.policies > 100, "{} policies say little", sum.policies);
}

/// A write of the log of definitions fails while a client waits for its queue or exchange, or for
/// an operator just before all faults end.
#[test]
fn who_asks_for_what_cannot_be_made_durable_may_be_refused() {
    for seed in [13007, 18714, 20486] {
        hold(seed..seed + 1);
    }
}

/// What the oracle once took for a fault: a dead letter is on the disk before the commit that it came with, a log
/// that has stopped for want of reads refuses, dead letters come while their queue is emptied, a log put together
/// again counts what was settled, an outage is over that nobody has looked at.
#[test]
fn what_a_bad_disk_explains_is_forgiven() {
    for seed in [3_017_194, 3_025_076, 5_000_864, 5_021_052, 5_037_670] {
        hold(seed..seed + 1);
    }
}

/// A publish to hundreds of durable queues, whose places alone are longer than a segment; the
/// process ends in order later.
#[test]
fn what_goes_to_more_queues_than_a_record_names_survives_an_orderly_stop() {
    hold(344_137..344_138);
}

/// A publish to hundreds of durable queues of one log, for whose records the log lacks room.
#[test]
fn a_fan_out_for_which_the_log_lacks_room_is_nowhere_or_on_the_disk() {
    hold(1021..1022);
}

/// The disk is full; a segment comes free and is used up before a new one is tried again.
#[test]
fn a_log_without_room_says_so_also_before_it_asks_the_disk_again() {
    hold(14_873..14_874);
}

/// Queues move while a message for hundreds of them is on its way.
#[test]
fn a_queue_that_moves_gets_what_is_on_its_way_to_hundreds_once() {
    hold(2751..2752);
}

/// The definitions log fails with the move of a queue, which the next start finds on the disk
/// nevertheless.
#[test]
fn a_queue_whose_move_fails_on_the_disk_loses_nothing_that_was_confirmed() {
    hold(16_703..16_704);
}

/// Connections come from another shard and leave again, or leave before they are open, while
/// timers of those before them have yet to fire.
#[test]
fn timers_of_those_that_only_passed_are_no_leak() {
    for seed in [3153, 5367, 6122] {
        hold(seed..seed + 1);
    }
}

/// An acknowledgement timed out while its channel waited for an answer, which came behind the close.
#[test]
fn a_channel_is_closed_for_a_timeout_when_what_it_asked_is_answered() {
    for seed in [101429, 203420, 208828] {
        hold(seed..seed + 1);
    }
}

/// A queue goes while a settlement waits for its write, which something else brings about; the power
/// fails a second after the settlement.
#[test]
fn what_was_settled_a_second_before_the_power_fails_stays_away() {
    hold(202_372..202_373);
}

/// A bit flips in a message that a delayed exchange holds back.
#[test]
fn a_damaged_message_comes_from_nowhere_not_from_a_delayed_exchange_either() {
    hold(51_379..51_380);
}

/// Memory is short, so that a commit of many messages spills some of them.
#[test]
fn a_commit_is_answered_while_memory_is_short() {
    hold(61_716..61_717);
}

/// The write of a log fails while the process ends in order.
#[test]
fn nobody_waits_for_a_log_that_stops_while_it_is_closed() {
    hold(34_236..34_237);
}

/// A disk refuses all writes for lack of room for a while, with a sync due meanwhile.
#[test]
fn a_shard_sleeps_while_its_log_waits_to_write_again() {
    hold(1_000_596..1_000_597);
}

/// The room of the next checkpoint cannot be had for a while, and no segment is made before it is; a
/// checkpoint begins meanwhile and waits for what has no segment yet.
#[test]
fn a_checkpoint_that_waits_for_the_log_keeps_no_segment_from_it() {
    hold(1_003_262..1_003_263);
}

/// The directory has yet to write that a queue is deleted, and a consumer of it on another shard is gone:
/// its messages went to and fro between the shards.
#[test]
fn a_queue_that_is_being_deleted_forgets_consumers_that_end() {
    hold(1_039_298..1_039_299);
}

/// The last checkpoint left off in a segment without anything that lives, right at its end. It did not
/// count for the next one, which nobody asked for: a full log had room that it did not free.
#[test]
fn a_segment_in_which_a_checkpoint_left_off_is_freed_by_the_next() {
    hold(1_047_182..1_047_183);
}

/// Messages in a thousand queues took a segment each, and compaction moved them to others for ever.
#[test]
fn messages_in_very_many_queues_come_to_rest() {
    hold(1_120_430..1_120_431);
}

/// A bit flips in a checkpoint. Compaction then took the record of a settled message for one that lives, and
/// let go of a segment with another one in it; numbers of lanes in which nothing lived were given again, and
/// at the next start what had them counted as settled.
#[test]
fn a_log_without_its_checkpoint_loses_nothing_later() {
    hold(1_132_092..1_132_093);
    hold(1_133_246..1_133_247);
}

/// Every start begins a segment. After some of them on a full log only the last prepared one was left, which
/// copies might not use, and without copies none came free.
#[test]
fn a_full_log_with_one_segment_left_frees_others() {
    hold(1_176_684..1_176_685);
}

/// Publishers took the room that a dead letter in several segments needed, and what a shorter one had left
/// of a segment that was kept for dead letters: all of its queue waited for ever.
#[test]
fn dead_letters_in_several_segments_leave_a_full_log() {
    hold(1_166_694..1_166_695);
}

/// In a log of ten segments that had half of them free, a publish in two of them waited for seven: as much was
/// kept for what is passed on.
#[test]
fn a_small_log_does_not_keep_most_of_itself_for_dead_letters() {
    hold(1_012_872..1_012_873);
}

/// One turn used nineteen prepared segments and began more than there were files for: as many segments as there
/// may be, two of them without a file, which counted as if it was another segment, and the checkpoint that frees
/// others waited for a message in one of them.
#[test]
fn segments_that_wait_for_their_files_get_them_in_a_log_that_has_all_its_segments() {
    hold(1_034_298..1_034_299);
}

/// A move ended in the last of the pauses after which everything was to be confirmed.
#[test]
fn what_waited_for_a_move_has_time_to_be_written() {
    hold(1_047_982..1_047_983);
}

#[test]
fn a_seed_decides_everything() {
    for seed in [3, 1003] {
        let figures = lepus_sim::run(seed, false);
        let words = lepus_sim::last_words();
        assert_eq!(lepus_sim::run(seed, false), figures);
        assert_eq!(lepus_sim::last_words(), words);
    }
}
