//! What filters of a queue leave each other of a message's steps.

extern crate std;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lepus_amqp::Properties;
use lepus_amqp::table::Table;
use lepus_base::HashState;
use lepus_base::Rng;
use lepus_filter::{
    BodyFormat, Filter, FilterSet, Limits, Message, Meta, Scratch, SetLimits, Shares,
};

use super::super::{
    ConsumerFilter, Number, SELECTORS_MAX, STEPS_MAX, SelectScratch, Selected, SelectorBits,
    Selectors, bit,
};
use crate::message::MessageView;

fn filter(text: &str, format: BodyFormat) -> Arc<ConsumerFilter> {
    let filter = Filter::parse(text, &Limits::default()).expect(text);
    Arc::new(ConsumerFilter { filter, format, hash: HashState::default() })
}

/// The steps of asking all about a message, who matches it, and who has given up. Who is found to be dear is from then on.
fn ask(all: &mut Selectors, properties: &[u8], body: &str) -> (u64, SelectorBits, SelectorBits) {
    let numbers = || 1..SELECTORS_MAX as Number;
    let before: Vec<u64> = numbers().map(|number| all.given_up(number)).collect();
    let view = MessageView { properties, body: body.as_bytes(), ..MessageView::default() };
    let found = all.ask(SelectorBits::MAX, &view, &mut SelectScratch::default());
    let Selected::Matches { selectors, dear, steps } = found else { panic!("{found:?}") };
    let has_given_up = |(number, before): &(Number, u64)| all.given_up(*number) > *before;
    let given_up = numbers().zip(before).filter(has_given_up);
    let given_up = given_up.fold(0, |bits, (number, _)| bits | bit(number));
    all.make_dear(dear);
    (steps, selectors, given_up)
}

#[test]
fn a_branch_that_takes_too_much_is_not_what_others_of_its_filter_miss() {
    let headers = Table::new().with("k", 1).with("n", 1);
    let properties = Properties { headers: Some(headers), ..Properties::default() }.to_bytes();
    let cheap = "(k = 1 AND b.u LIKE '%needle%')";
    let greedy = "(n = 1 AND ANY(b.e[*]) LIKE '%x_y%z_1%')";
    let other = "n = 1 AND ANY(b.e[*]) LIKE '%x_y%z_2%'";
    let texts = [
        format!("{cheap} OR {greedy}"),
        format!("{greedy} OR {cheap}"),
        format!("{greedy} OR {} OR {}", greedy.replace("z_1", "z_3"), cheap.replace("b.u", "b.l")),
    ];
    let long = "a".repeat(3_000);
    for text in &texts {
        for beside in [None, Some(other), Some("n = 1 AND b.u LIKE '%noodle%'"), Some("n = 7")] {
            for (is_first, elements) in
                [(true, 1_500), (false, 2_500), (true, 4_000), (false, 9_000)]
            {
                let mut all = Selectors::new();
                let mut texts = Vec::from_iter(beside);
                texts.insert(if is_first { 0 } else { texts.len() }, text);
                for text in &texts {
                    let _ = all.join(Some(&filter(text, BodyFormat::Auto)), 1).unwrap();
                }
                let own = bit(if is_first { 1 } else { texts.len() as Number });
                let many = alloc::vec!["\"xaybz\""; elements].join(",");
                let body = format!("{{\"u\":\"needle\",\"l\":\"{long}needle\",\"e\":[{many}]}}");
                for round in 0..3 {
                    let (_, found, given_up) = ask(&mut all, &properties, &body);
                    let seen = (found & own, given_up & own);
                    assert_eq!(seen, (own, 0), "{text} beside {beside:?}, {elements}, {round}");
                }
            }
        }
    }
}

#[test]
fn a_filter_that_is_tried_again_has_its_share_whoever_comes_before_it() {
    let headers = Table::new().with("k", 1).with("n", 1);
    let properties = Properties { headers: Some(headers), ..Properties::default() }.to_bytes();
    let (long, many) = ("a".repeat(59_000), alloc::vec!["\"xaybz\""; 5_000].join(","));
    let body = format!("{{\"u\":\"{long}needle\",\"t\":\"\",\"e\":[{many}]}}");
    // Nine tenths of a share that the first part needs, as more than half of it.
    let victim = "(k = 1 AND b.u LIKE '%needle%') OR (n = 1 AND b.t LIKE '%n_t')";
    let greedy = (0..3).map(|part| format!("(n = 1 AND ANY(b.e[*]) LIKE '%x_y%z_{part}%')"));
    let greedy = greedy.collect::<Vec<_>>().join(" OR ");
    for texts in [[victim, &greedy], [&greedy, victim]] {
        let mut all = Selectors::new();
        for text in texts {
            let _ = all.join(Some(&filter(text, BodyFormat::Auto)), 1).unwrap();
        }
        let own = if texts[0] == victim { 0b10 } else { 0b100 };
        for _ in 0..3 {
            let (_, found, given_up) = ask(&mut all, &properties, &body);
            assert_eq!((found & own, given_up), (own, 0b110 & !own));
        }
    }
}

#[test]
fn what_one_branch_found_is_not_what_another_one_needs_again() {
    let headers = Table::new().with("k", 1).with("n", 1);
    let properties = Properties { headers: Some(headers), ..Properties::default() }.to_bytes();
    let kinds = [
        "UPPER(b.t) LIKE '%NEEDLE%' OR UPPER(b.t) LIKE '%NOODLE%'",
        "UPPER(b.t) LIKE '%NOODLE%' OR UPPER(b.t) LIKE '%NEEDLE%'",
        "(k = 1 AND LENGTH(UPPER(b.t)) > 7) OR (n = 1 AND LENGTH(UPPER(b.t)) = 3)",
    ];
    for text in kinds {
        for letters in [14_000, 18_500, 20_000] {
            let mut all = Selectors::new();
            let _ = all.join(Some(&filter(text, BodyFormat::Auto)), 1).unwrap();
            let body = format!("{{\"t\":\"{}needle\"}}", "a".repeat(letters));
            for _ in 0..3 {
                let (_, found, given_up) = ask(&mut all, &properties, &body);
                assert_eq!((found, given_up), (0b10, 0), "{text} {letters}");
            }
        }
    }
}

#[test]
fn what_other_branches_took_is_given_back_to_one_that_had_not_enough() {
    let (t, u) = ("a".repeat(80_000), "a".repeat(60_000));
    let body = format!("{{\"t\":\"{t}needle\",\"u\":\"{u}\",\"x\":\"x\",\"y\":\"y\"}}");
    for text in [
        "b.t LIKE '%needle%' OR b.u LIKE '%noodle%'",
        "b.u LIKE '%noodle%' OR b.t LIKE '%needle%'",
        "b.t LIKE '%needle%' OR b.u LIKE '%noodle%' OR b.x LIKE '%noodle%' OR b.y LIKE '%noodle%'",
    ] {
        let mut all = Selectors::new();
        let _ = all.join(Some(&filter(text, BodyFormat::Auto)), 1).unwrap();
        for _ in 0..3 {
            let (_, found, given_up) = ask(&mut all, &[0, 0], &body);
            assert_eq!((found, given_up), (0b10, 0), "{text}");
        }
    }
}

#[test]
fn a_first_part_that_matches_is_found_whatever_the_others_would_take() {
    for (filters, branches) in [1, 8, 20, 60].into_iter().flat_map(|n| [2, 3, 4, 8].map(|k| (n, k)))
    {
        for (percent, elements) in [(20, 3_000), (50, 500), (50, 3_000), (70, 3_000), (90, 3_000)] {
            let each = STEPS_MAX / filters;
            let mut all = Selectors::new();
            for number in 0..filters {
                let other = |part| format!(" OR ANY(b.e{part}[*]) LIKE '%x_y%z_{number}-'");
                let others = (1..branches).map(other).collect::<String>();
                let text = format!("b.text LIKE '%word{number};%'{others}");
                let _ = all.join(Some(&filter(&text, BodyFormat::Auto)), 1).unwrap();
            }
            let elements = alloc::vec!["\"xaybz\""; (elements / filters + 5) as usize].join(",");
            let fields = (1..branches).map(|part| format!(",\"e{part}\":[{elements}]"));
            // Looking through the text takes a step for four letters.
            let text = "a".repeat((each * percent / 100 * 4) as usize);
            let text = format!("{{\"text\":\"{text}word0;\"{}}}", fields.collect::<String>());
            for _ in 0..2 {
                let (_, found, given_up) = ask(&mut all, &[0, 0], &text);
                let seen = (found & 0b10, given_up & 0b10);
                assert_eq!(seen, (0b10, 0), "{filters} {branches} {percent} {elements:.20}");
            }
        }
    }
}

#[test]
fn a_part_that_is_looked_up_is_found_wherever_it_is_written() {
    let headers = Table::new().with("k", 1);
    let properties = Properties { headers: Some(headers), ..Properties::default() }.to_bytes();
    let (tags, items) = ("ANY(b.tags[*]) LIKE '%x_y%z'", "ANY(b.items[*]) LIKE '%x_y%z'");
    let found = "(k = 1 AND b.text LIKE '%urgent%')";
    let many = alloc::vec!["\"xaybq\""; 2_500].join(",");
    let text = "a".repeat(80_000);
    let body = format!("{{\"text\":\"{text}urgent\",\"tags\":[{many}],\"items\":[{many}]}}");
    for parts in [[tags, items, found], [tags, found, items], [found, tags, items]] {
        let mut all = Selectors::new();
        let _ = all.join(Some(&filter(&parts.join(" OR "), BodyFormat::Auto)), 1).unwrap();
        for _ in 0..2 {
            let (_, found, given_up) = ask(&mut all, &properties, &body);
            assert_eq!((found, given_up), (0b10, 0), "{parts:?}");
        }
    }
}

#[test]
fn what_is_done_for_all_is_not_what_shares_are_less_by() {
    let numbers = (0..20).map(|field| format!("b.f{field} * 2 = 1"));
    let numbers = numbers.collect::<Vec<_>>().join(" AND ");
    let mut all = Selectors::new();
    for number in 0..61 {
        let greedy = format!("ANY(b.e[*]) LIKE '%x_y%z_{number}%'");
        let _ = all.join(Some(&filter(&greedy, BodyFormat::Auto)), 1).unwrap();
    }
    let _ = all.join(Some(&filter(&numbers, BodyFormat::Auto)), 1).unwrap();
    let victim = "b.u LIKE '%needle%'";
    let (victim, _) = all.join(Some(&filter(victim, BodyFormat::Auto)), 1).unwrap();
    let fields = (0..20).map(|field| format!("\"f{field}\":{}", "7".repeat(290)));
    let fields = fields.collect::<Vec<_>>().join(",");
    let (u, many) = ("a".repeat(1_400), alloc::vec!["\"xaybz\""; 900].join(","));
    let body = format!("{{\"u\":\"{u}needle\",{fields},\"e\":[{many}]}}");
    for _ in 0..3 {
        let (_, found, given_up) = ask(&mut all, &[0, 0], &body);
        assert_eq!((found & bit(victim), given_up & bit(victim)), (bit(victim), 0));
    }
}

#[test]
fn a_long_value_that_one_compares_is_not_what_others_miss() {
    for (text, letters) in [
        ("b.v = 'x'", 60_000),
        ("b.v = 'x'", 900_000),
        ("b.v IN ('x', 'y')", 300_000),
        ("b.v = 5 AND b.w = 5", 1_000),
    ] {
        let mut all = Selectors::new();
        let _ = all.join(Some(&filter("b.n = 1", BodyFormat::Json)), 1).unwrap();
        let _ = all.join(Some(&filter(text, BodyFormat::Json)), 1).unwrap();
        for number in 0..61 {
            let other = filter(&format!("b.u LIKE '%q_q{number}%'"), BodyFormat::Auto);
            let _ = all.join(Some(&other), 1).unwrap();
        }
        let (long, w, u) = ("a".repeat(letters), "7".repeat(1_000), "b".repeat(1_470));
        for value in [format!("\"{long}\""), long.replace('a', "7")] {
            let body = format!("{{\"n\":1,\"v\":{value},\"w\":{w},\"u\":\"{u}\"}}");
            for _ in 0..3 {
                let (_, found, given_up) = ask(&mut all, &[0, 0], &body);
                assert_eq!((found & 0b110, given_up & 0b110), (0b10, 0), "{text} {letters}");
            }
        }
    }
}

#[test]
fn what_needs_more_than_there_is_has_nothing_read_again() {
    let mut all = Selectors::new();
    for format in [BodyFormat::Auto, BodyFormat::Json] {
        let _ = all.join(Some(&filter("b.u LIKE '%needle%'", format)), 1).unwrap();
    }
    let text = "a".repeat(1_000_000);
    let body = format!("{{\"u\":\"{text}\"}}");
    let reading = (body.len() / 8 + body.len() / 32) as u64;
    for _ in 0..3 {
        let (steps, found, given_up) = ask(&mut all, &[0, 0], &body);
        assert_eq!((found & 0b110, given_up), (0, 0b110));
        assert!((2 * reading..2 * reading + 1_000).contains(&steps), "{steps}");
    }
}

#[test]
fn the_dear_ones_have_a_message_read_once_whatever_fields_they_name() {
    let mut all = Selectors::new();
    let mut numbers = Vec::new();
    for filter_number in 0..24 {
        let fields = (0..56).map(|field| format!("b.f{filter_number}_{field} IS MISSING"));
        let text = fields.collect::<Vec<_>>().join(" AND ");
        let (number, _) = all.join(Some(&filter(&text, BodyFormat::Auto)), 1).unwrap();
        all.make_dear(bit(number));
        numbers.push(number);
    }
    let everyone = numbers.iter().fold(0, |bits, number| bits | bit(*number));
    let body = format!("{{\"t\":\"{}\"}}", "a".repeat(500_000));
    let reading = (body.len() / 8 + body.len() / 32) as u64;
    let (steps, found, given_up) = ask(&mut all, &[0, 0], &body);
    assert_eq!((found, given_up), (everyone, 0));
    assert!((reading..reading + 20_000).contains(&steps), "{steps}");
}

/// A part of a filter that takes little or much, by what a message has.
fn part(random: &mut Rng, number: u64) -> String {
    match random.below(12) {
        0 => format!("n = {}", random.below(3)),
        1 => format!("b.n = {}", random.below(3)),
        2 => format!("b.v = 'v{}'", random.below(3)),
        3 => format!("b.u LIKE '%n_edle{}%'", ["", "x"][random.below(2) as usize]),
        4 => format!("ANY(b.e[*]) LIKE '%x_y%z_{number}%'"),
        5 => "ANY(b.e[*]) LIKE '%x_y%'".into(),
        6 => "ALL(b.e[*]) NOT LIKE '%q_q%'".into(),
        7 => format!("b.t REGEXP '(a?){{{}}}b'", 1 + random.below(60)),
        8 => format!("UPPER(b.t) <> 'A{number}'"),
        9 => "LENGTH(b.u) * 2 > 5".into(),
        10 => format!("NOT b.n = {}", random.below(3)),
        _ => "n IS NOT MISSING".into(),
    }
}

/// What a filter of some branches of some parts says.
fn text(random: &mut Rng, number: u64) -> String {
    let branches = [1, 1, 2, 1 + random.below(10)][random.below(4) as usize];
    let branch = |random: &mut Rng| {
        let parts = (0..1 + random.below(3)).map(|_| part(random, number));
        format!("({})", parts.collect::<Vec<_>>().join(" AND "))
    };
    let text = (0..branches).map(|_| branch(random)).collect::<Vec<_>>().join(" OR ");
    // There are at most four patterns in one.
    if text.matches("REGEXP").count() > 4 { part(random, number) } else { text }
}

/// A body whose fields are short or long.
fn body(random: &mut Rng) -> String {
    let mut length = || [0, 40, 300, 1_200, 5_000, 20_000, 100_000][random.below(7) as usize];
    let (t, u, v) = (length().min(300), length(), length());
    let elements = alloc::vec!["\"xaybz\""; random.below(900) as usize].join(",");
    let end = if random.below(3) == 0 { "\\n" } else { "" };
    format!(
        "{{\"n\":{},\"t\":\"{}{end}\",\"u\":\"{}needle{end}\",\"v\":\"v{}{}\",\"e\":[{elements}]}}",
        random.below(3),
        "a".repeat(t),
        "b".repeat(u),
        random.below(3),
        if v > 5_000 { "a".repeat(v) } else { String::new() },
    )
}

/// Whether a filter matches, and the steps that it takes beside reading, where nobody else is there and it may take what it wants.
fn alone(filter: &ConsumerFilter, view: &MessageView<'_>) -> (bool, u64) {
    let limits = SetLimits {
        filters_max: 1,
        unindexed_max: 1,
        paths_max: 1000,
        bytes_max: 1 << 20,
        body_bytes_max: 1 << 20,
    };
    let mut set = FilterSet::new(limits, HashState::default());
    set.add(&filter.filter, 1).expect("there is room for one");
    let message = Message::new(view.properties, view.body, filter.format, Meta::default());
    let shares = Shares { asked: u64::MAX, each: 1 << 40, dear: u64::MAX };
    let (mut scratch, mut found, mut dear) = (Scratch::default(), Vec::new(), Vec::new());
    let report = set.matches_shared(&message, 1 << 40, shares, &mut scratch, &mut found, &mut dear);
    assert!(!report.has_run_out());
    (!found.is_empty(), report.steps - report.reading_steps)
}

#[test]
fn each_filter_has_its_share_whatever_others_are_there() {
    let formats = [BodyFormat::Auto, BodyFormat::Json, BodyFormat::None];
    let seeds = std::env::var("SHARES_SEEDS").map_or(60, |text| text.parse().expect("a number"));
    let (mut most, mut checked) = (0, 0);
    for seed in 0..seeds {
        let mut random = Rng::new(seed);
        let count = [3, 8, 40, 63][random.below(4) as usize];
        let kinds = 1 + random.below(3);
        let mut all = Selectors::new();
        let filters: Vec<_> = (0..count)
            .map(|number| filter(&text(&mut random, number), formats[random.below(kinds) as usize]))
            .filter_map(|filter| match all.join(Some(&filter), 1) {
                Ok((number, true)) => Some((number, filter)),
                _ => None,
            })
            .collect();
        let each = STEPS_MAX / filters.len() as u64;
        for _ in 0..4 {
            let headers = Table::new().with("n", random.below(3) as i32);
            let properties = Properties { headers: Some(headers), ..Properties::default() };
            let (properties, body) = (properties.to_bytes(), body(&mut random));
            let view = MessageView {
                properties: &properties,
                body: body.as_bytes(),
                ..MessageView::default()
            };
            let (steps, found, given_up) = ask(&mut all, &properties, &body);
            most = most.max(steps);
            for (number, filter) in &filters {
                let (is_true, needs) = alone(filter, &view);
                let has = |bits| bits & bit(*number) != 0;
                let context = || format!("seed {seed}: {} needs {needs} of {each}", filter.text());
                assert!(is_true || !has(found), "wrong: {}", context());
                assert!(has(found) || has(given_up) || !is_true, "lost: {}", context());
                // That there are others takes some steps, too.
                assert!(needs + 100 > each || !has(given_up), "missed: {}", context());
                checked += 1;
            }
        }
    }
    assert!(checked > 3_000, "{checked}");
    std::println!("{checked} checked, {most} steps at most");
}

#[test]
fn all_together_take_no_more_than_seven_times_what_there_is() {
    let mut most = 0;
    for (first, branches) in
        [1, 5, 20, 62].into_iter().flat_map(|first| [1, 2, 5].map(|branches| (first, branches)))
    {
        for elements in [900, 3_000, 20_000] {
            let mut all = Selectors::new();
            for number in 0..63 {
                let format = if number < first { BodyFormat::Auto } else { BodyFormat::Json };
                let part =
                    |end| format!("(n IS MISSING AND ANY(b.e[*]) LIKE '%x_y%z_{number}{end}%')");
                let text = (0..branches).map(part).collect::<Vec<_>>().join(" OR ");
                let _ = all.join(Some(&filter(&text, format)), 1).unwrap();
            }
            let many = alloc::vec!["\"xaybz\""; elements].join(",");
            let body = format!("{{\"n\":1,\"e\":[{many}]}}");
            let reading = (body.len() / 8 + body.len() / 32) as u64;
            for _ in 0..3 {
                let (steps, ..) = ask(&mut all, &[0, 0], &body);
                most = most.max(steps - 2 * reading);
            }
        }
    }
    assert!(most < 7 * STEPS_MAX, "{most}");
}
