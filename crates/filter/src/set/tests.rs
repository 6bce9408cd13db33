//! What tidying up takes.

use super::*;
use crate::limits::Limits;
use alloc::format;
use alloc::string::{String, ToString};

/// Steps of the longest piece of work that nothing stops in the middle, of some ten nanoseconds each: branches that are made a
/// segment.
const LONGEST: usize = 5_200;

fn set() -> FilterSet {
    let limits = SetLimits {
        filters_max: usize::MAX,
        unindexed_max: usize::MAX,
        paths_max: usize::MAX,
        bytes_max: usize::MAX,
        ..SetLimits::default()
    };
    FilterSet::new(limits, HashState::new(1))
}

/// A filter that is filed at 64 places, with eight ends, of one of so many shapes.
fn dear(number: usize, shapes: usize) -> Filter {
    let values: Vec<String> = (0..64).map(|value| value.to_string()).collect();
    let first = number % shapes;
    let ranges: Vec<String> = (first..first + 4)
        .map(|field| format!("f{field} > {number} AND f{field} < 9{number}"))
        .collect();
    let text = format!("k IN ({}) AND {}", values.join(","), ranges.join(" AND "));
    Filter::parse(&text, &Limits::default()).expect("a filter")
}

/// Nothing that an add, a removal or tidying does in one go grows with the number of filters: whoever tidies may stop behind
/// each of them.
#[test]
fn no_piece_of_work_is_long() {
    for (count, shapes) in [(700, 1), (700, 9), (400, 400)] {
        let mut set = set();
        let mut subscriptions = Vec::new();
        for number in 0..count {
            let filter = dear(number, shapes);
            subscriptions.push(set.add(&filter, 0).expect("there is room"));
        }
        assert!(set.most_beyond <= LONGEST, "{} steps with {shapes} shapes", set.most_beyond);
        while set.work(1) {}
        assert!(set.most_beyond <= LONGEST, "{} steps with {shapes} shapes", set.most_beyond);
        // Few of each of very many shapes are compared one by one.
        assert!(set.most_beyond > 1_000 || shapes == count, "{} steps", set.most_beyond);
        // All of it goes, in pieces as well.
        for (index, subscription) in subscriptions.into_iter().enumerate() {
            set.remove(subscription);
            if index % 50 == 0 {
                set.work(1);
            }
        }
        while set.work(1) {}
        assert!(set.most_beyond <= LONGEST, "{} steps with {shapes} shapes", set.most_beyond);
        assert!(set.is_empty() && set.filing.is_alone());
    }
}

/// Whoever never tidies has no backlog that grows with what comes and goes.
#[test]
fn who_changes_a_set_tidies_up() {
    let mut set = set();
    let mut subscriptions = VecDeque::new();
    let mut most = 0;
    for number in 0..12_000_u64 {
        let text = format!("b.x > {number} AND b.y < {}", number % 700);
        let filter = Filter::parse(&text, &Limits::default()).expect("a filter");
        subscriptions.push_back(set.add(&filter, number).expect("there is room"));
        if number >= 2_000 {
            set.remove(subscriptions.pop_front().expect("one of them"));
        }
        if number > 6_000 {
            most = most.max(set.branches.len());
        }
    }
    assert!(most < 8_000, "{most} branches for 2,000 filters");
}
