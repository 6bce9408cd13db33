use super::*;

const SPREAD: usize = 0;
const COMMITS: usize = 5;
const TRANSIENT: usize = 6;
const EXPIRING: usize = 7;

fn delivery(publisher: usize, number: u64, redelivered: bool) -> Delivery {
    let queue = PUBLISHERS[publisher].queue(publisher, number, 0);
    Delivery { queue, message: Some((publisher, number)), redelivered }
}

/// An oracle that has seen these many messages published and confirmed.
fn confirmed(publisher: usize, count: u64) -> Oracle {
    let mut oracle = Oracle::new();
    oracle.publish(publisher, count);
    oracle.confirm(publisher, 0..count);
    oracle
}

fn take(oracle: &mut Oracle, delivery: Delivery) -> Item {
    oracle.deliver(delivery, &mut Order::default()).unwrap()
}

fn kinds(oracle: &Oracle) -> Vec<Fault> {
    let kinds = Fault::ALL.iter().map(|(fault, _)| *fault);
    kinds.filter(|fault| oracle.faults.count(*fault) > 0).collect()
}

#[test]
fn what_was_confirmed_and_acknowledged_is_no_loss() {
    let mut oracle = confirmed(SPREAD, 2);
    oracle.publish(SPREAD, 1);
    for number in 0..2 {
        let item = take(&mut oracle, delivery(SPREAD, number, false));
        assert_eq!(oracle.outstanding(), 2 - number);
        oracle.acknowledge(&[item]);
    }
    oracle.empty();
    assert_eq!(kinds(&oracle), []);
}

#[test]
fn a_confirmed_message_that_was_only_delivered_is_lost() {
    let mut oracle = confirmed(SPREAD, 2);
    let item = take(&mut oracle, delivery(SPREAD, 0, false));
    oracle.acknowledge(&[item]);
    take(&mut oracle, delivery(SPREAD, 1, false));
    oracle.end_round(Instant::now(), false);
    oracle.empty();
    assert_eq!(oracle.faults.count(Fault::Lost), 1);
}

#[test]
fn every_copy_of_a_fanned_out_message_counts() {
    let mut oracle = confirmed(4, 1);
    let queues: Vec<usize> = (0..3).map(|copy| PUBLISHERS[4].queue(4, 0, copy)).collect();
    for queue in &queues[..2] {
        let delivery = Delivery { queue: *queue, message: Some((4, 0)), redelivered: false };
        let item = take(&mut oracle, delivery);
        oracle.acknowledge(&[item]);
    }
    assert_eq!(oracle.bounds()[queues[2]], (1, 1));
    oracle.empty();
    assert_eq!(oracle.faults.count(Fault::Lost), 1);
}

#[test]
fn a_refusal_is_a_fault_where_nothing_explains_it() {
    let mut oracle = Oracle::new();
    oracle.publish(SPREAD, 2);
    oracle.confirm(SPREAD, 0..1);
    assert_eq!(kinds(&oracle), []);
    oracle.refuse(SPREAD, 1);
    assert_eq!(kinds(&oracle), [Fault::Refused]);
}

#[test]
fn a_log_that_has_stopped_may_refuse_what_is_not_there_later() {
    let mut oracle = Oracle::new();
    oracle.publish(COMMITS, 2);
    oracle.begin_failing(Instant::now());
    oracle.begin_stop();
    oracle.refuse(COMMITS, 0);
    oracle.refuse(COMMITS, 1);
    take(&mut oracle, delivery(COMMITS, 0, false));
    oracle.end_round(Instant::now(), false);
    assert_eq!((oracle.tally.refused, kinds(&oracle)), (2, vec![]));
    take(&mut oracle, delivery(COMMITS, 1, true));
    assert_eq!(kinds(&oracle), [Fault::Refused]);
}

#[test]
fn an_ack_holds_once_it_was_answered_a_second_before_the_kill() {
    for (millis, faulty) in [(900, false), (1_100, true)] {
        let mut oracle = confirmed(SPREAD, 1);
        let item = take(&mut oracle, delivery(SPREAD, 0, false));
        oracle.acknowledge(&[item]);
        let answered = Instant::now();
        oracle.answer([item].into_iter(), answered);
        oracle.end_round(answered + Duration::from_millis(millis), false);
        take(&mut oracle, delivery(SPREAD, 0, true));
        assert_eq!(kinds(&oracle).contains(&Fault::Returned), faulty);
    }
}

#[test]
fn an_ack_holds_if_the_disk_was_well_for_a_second_behind_it() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    // The disk fails from 2 s to 4 s, and what failed is made again by 6 s.
    for (answered, mended, killed, faulty) in [
        (900, false, 9_000, true),
        (1_100, false, 9_000, false),
        (1_100, true, 6_900, false),
        (1_100, true, 7_100, true),
        (3_000, true, 7_100, true),
        (6_500, true, 7_100, false),
        (6_500, true, 7_600, true),
    ] {
        let mut oracle = confirmed(SPREAD, 1);
        let item = take(&mut oracle, delivery(SPREAD, 0, false));
        oracle.acknowledge(&[item]);
        oracle.answer([item].into_iter(), at(answered));
        oracle.begin_failing(at(2_000));
        if mended {
            oracle.end_failing(at(4_000));
        }
        oracle.end_round(at(killed), false);
        take(&mut oracle, delivery(SPREAD, 0, true));
        assert_eq!(kinds(&oracle).contains(&Fault::Returned), faulty, "{answered} {killed}");
    }
}

#[test]
fn an_orderly_stop_takes_nothing_back() {
    let mut oracle = confirmed(SPREAD, 1);
    let item = take(&mut oracle, delivery(SPREAD, 0, false));
    oracle.acknowledge(&[item]);
    let answered = Instant::now();
    oracle.answer([item].into_iter(), answered);
    oracle.end_round(answered, true);
    take(&mut oracle, delivery(SPREAD, 0, true));
    assert_eq!(kinds(&oracle), [Fault::Returned]);
}

#[test]
fn duplicates_are_counted_and_need_the_mark() {
    let mut oracle = confirmed(SPREAD, 1);
    take(&mut oracle, delivery(SPREAD, 0, false));
    oracle.end_round(Instant::now(), false);
    take(&mut oracle, delivery(SPREAD, 0, true));
    assert_eq!((oracle.tally.duplicates, kinds(&oracle)), (1, vec![]));
    take(&mut oracle, delivery(SPREAD, 0, false));
    assert_eq!((oracle.tally.duplicates, kinds(&oracle)), (2, vec![Fault::Unmarked]));
}

#[test]
fn in_an_orderly_stop_the_first_who_had_a_message_may_read_it_last() {
    // What is read of one message in turn: whether it is marked. One delivery is the first.
    for (marks, faulty) in [
        (&[true, false][..], false),
        (&[true, true, false], false),
        (&[false, false], true),
        (&[true, false, false], true),
    ] {
        let mut oracle = confirmed(SPREAD, 1);
        oracle.begin_stop();
        for mark in marks {
            take(&mut oracle, delivery(SPREAD, 0, *mark));
        }
        assert_eq!(kinds(&oracle), if faulty { vec![Fault::Unmarked] } else { vec![] });
    }
    // In a later round nobody reads what was sent before it.
    let mut oracle = confirmed(SPREAD, 1);
    take(&mut oracle, delivery(SPREAD, 0, true));
    oracle.end_round(Instant::now(), false);
    oracle.begin_stop();
    take(&mut oracle, delivery(SPREAD, 0, false));
    assert_eq!(kinds(&oracle), [Fault::Unmarked]);
}

#[test]
fn a_consumer_gets_a_publisher_in_order() {
    let mut oracle = confirmed(COMMITS, 3);
    let mut order = Order::default();
    for number in [0, 2, 1] {
        assert_eq!(kinds(&oracle), []);
        oracle.deliver(delivery(COMMITS, number, false), &mut order);
    }
    assert_eq!(kinds(&oracle), [Fault::Disordered]);
}

#[test]
fn an_orderly_stop_gives_one_consumer_s_messages_to_another() {
    for redelivered in [true, false] {
        let mut oracle = confirmed(COMMITS, 3);
        let mut order = Order::default();
        oracle.begin_stop();
        for (number, redelivered) in [(2, false), (1, redelivered)] {
            oracle.deliver(delivery(COMMITS, number, redelivered), &mut order);
        }
        let faults = if redelivered { vec![] } else { vec![Fault::Disordered] };
        assert_eq!(kinds(&oracle), faults);
    }
}

#[test]
fn what_nobody_published_is_told_apart() {
    let mut oracle = confirmed(COMMITS, 1);
    oracle.deliver(delivery(COMMITS, 1, false), &mut Order::default());
    assert_eq!(kinds(&oracle), [Fault::Invented]);
    let stray = Delivery { queue: 0, ..delivery(COMMITS, 0, false) };
    oracle.deliver(stray, &mut Order::default());
    assert_eq!(kinds(&oracle), [Fault::Invented, Fault::Stray]);
    let damaged = Delivery { message: None, ..stray };
    oracle.deliver(damaged, &mut Order::default());
    assert_eq!(kinds(&oracle), [Fault::Invented, Fault::Damaged, Fault::Stray]);
}

#[test]
fn transient_messages_may_go_but_not_come_back() {
    let mut oracle = confirmed(TRANSIENT, 2);
    assert_eq!(oracle.outstanding(), 2);
    oracle.end_round(Instant::now(), false);
    assert_eq!(oracle.outstanding(), 0);
    take(&mut oracle, delivery(TRANSIENT, 1, true));
    assert_eq!(kinds(&oracle), [Fault::Revived]);
}

#[test]
fn a_commit_comes_as_a_whole_or_not_at_all() {
    for (recovered, faulty) in [(0..0, false), (0..3, false), (1..3, false), (0..2, true)] {
        let mut oracle = Oracle::new();
        oracle.publish(COMMITS, 3);
        let item = take(&mut oracle, delivery(COMMITS, 0, false));
        oracle.acknowledge(&[item]);
        oracle.doubt(COMMITS, 0..3);
        oracle.end_round(Instant::now(), false);
        for number in recovered {
            take(&mut oracle, delivery(COMMITS, number, true));
        }
        oracle.empty();
        assert_eq!(kinds(&oracle), if faulty { vec![Fault::Torn] } else { vec![] });
    }
}

#[test]
fn expired_messages_may_come_twice_but_must_come() {
    let mut oracle = confirmed(EXPIRING, 2);
    for _ in 0..2 {
        let item = take(&mut oracle, delivery(EXPIRING, 1, false));
        oracle.acknowledge(&[item]);
    }
    assert_eq!(kinds(&oracle), []);
    oracle.empty();
    assert_eq!(oracle.faults.count(Fault::Lost), 1);
}

#[test]
fn counts_after_a_restart_lie_between_what_must_and_what_can_be_there() {
    let mut oracle = confirmed(COMMITS, 5);
    oracle.publish(COMMITS, 2);
    let item = take(&mut oracle, delivery(COMMITS, 0, false));
    oracle.acknowledge(&[item]);
    let queue = topology::COMMITTED;
    for (count, faults) in [(4, 0), (7, 0), (3, 1), (8, 2)] {
        oracle.check_counts(&[(queue, count)]);
        assert_eq!(oracle.faults.count(Fault::Miscounted), faults);
    }
}

#[test]
fn what_was_before_the_queues_were_empty_must_not_come_again() {
    let mut oracle = confirmed(SPREAD, 1);
    let item = take(&mut oracle, delivery(SPREAD, 0, false));
    oracle.acknowledge(&[item]);
    oracle.empty();
    assert_eq!(oracle.next(SPREAD), 1);
    take(&mut oracle, delivery(SPREAD, 0, true));
    assert_eq!(kinds(&oracle), [Fault::Returned]);
}
