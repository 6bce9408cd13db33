//! What the consumers of a queue want of it.

mod shares;

use super::*;
use lepus_amqp::Properties;
use lepus_filter::Limits;

fn filter(text: &str) -> Arc<ConsumerFilter> {
    let filter = Filter::parse(text, &Limits::default()).expect("it is a filter");
    let (format, hash) = (BodyFormat::Auto, HashState::default());
    Arc::new(ConsumerFilter { filter, format, hash })
}

fn ask(selectors: &Selectors, kind: &str) -> SelectorBits {
    let properties = Properties { message_type: Some(kind.into()), ..Properties::default() };
    let properties = properties.to_bytes();
    let view = MessageView { properties: &properties, body: b"{}", ..MessageView::default() };
    match selectors.ask(SelectorBits::MAX, &view, &mut SelectScratch::default()) {
        Selected::Matches { selectors, .. } => selectors,
        other => panic!("{other:?}"),
    }
}

#[test]
fn equal_filters_are_one_selector_which_goes_with_its_last_consumer() {
    let mut all = Selectors::new();
    let (gold, again) = (filter("p.type='gold'"), filter("p.type = 'gold'"));
    assert_eq!(all.join(None, 2), Ok((0, true)));
    assert_eq!(all.join(Some(&gold), 1), Ok((1, true)));
    assert_eq!(all.join(Some(&again), 1), Ok((1, false)));
    assert_eq!(all.join(Some(&filter("p.type='lead'")), 1), Ok((2, true)));
    assert_eq!((ask(&all, "gold"), ask(&all, "lead"), ask(&all, "tin")), (0b11, 0b101, 1));
    assert!(!all.leave(1));
    assert!(all.leave(1));
    assert_eq!((ask(&all, "gold"), all.present()), (1, 0b101));
    assert_eq!(all.join(Some(&filter("p.type='tin'")), 1), Ok((1, true)));
    assert_eq!((ask(&all, "gold"), ask(&all, "tin")), (1, 0b11));
    assert!(!all.leave(0) && all.leave(0) && all.leave(1) && all.leave(2));
    assert_eq!((ask(&all, "gold"), all.are_any_filtered()), (0, false));
}

#[test]
fn there_are_63_different_filters_at_most() {
    let mut all = Selectors::new();
    for number in 1..64 {
        let filter = filter(&alloc::format!("p.type='{number}'"));
        assert_eq!(all.join(Some(&filter), 1), Ok((number, true)));
    }
    assert!(all.join(Some(&filter("p.type='64'")), 1).is_err());
    assert_eq!(all.join(None, 1), Ok((0, true)));
    assert_eq!((ask(&all, "63"), ask(&all, "64")), (1 << 63 | 1, 1));
    assert!(all.leave(7));
    assert_eq!(all.join(Some(&filter("p.type='64'")), 1), Ok((7, true)));
    assert_eq!(ask(&all, "64"), 1 << 7 | 1);
}

#[test]
fn how_bodies_are_read_is_part_of_a_selector() {
    let mut all = Selectors::new();
    let json = filter("b.x IS MISSING");
    let none = ConsumerFilter { format: BodyFormat::None, ..ConsumerFilter::clone(&json) };
    let none = Arc::new(none);
    assert_eq!(all.join(Some(&json), 1), Ok((1, true)));
    assert_eq!(all.join(Some(&none), 1), Ok((2, true)));
    let view = MessageView { properties: &[0, 0], body: b"{\"x\":1}", ..MessageView::default() };
    let found = all.ask(SelectorBits::MAX, &view, &mut SelectScratch::default());
    assert!(matches!(found, Selected::Matches { selectors: 0b100, .. }), "{found:?}");
}

#[test]
fn bodies_that_filters_ask_for_and_cannot_read_are_counted() {
    let mut all = Selectors::new();
    let mut scratch = SelectScratch::default();
    let mut counted = |all: &Selectors, body: &[u8]| {
        let view = MessageView { properties: &[0, 0], body, ..MessageView::default() };
        let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
        (found, scratch.take_bodies_unreadable())
    };
    let _ = all.join(Some(&filter("p.type = 'gold'")), 1).unwrap();
    assert_eq!(counted(&all, b"{").1, 0);
    // Two that ask for it are one message.
    for text in ["b.x IS MISSING", "b.y = 1"] {
        let _ = all.join(Some(&filter(text)), 1).unwrap();
    }
    assert_eq!(counted(&all, b"{}").1, 0);
    let (found, count) = counted(&all, b"{");
    assert!(matches!(found, Selected::Matches { selectors: 0b100, .. }), "{found:?}");
    assert_eq!(count, 1);
    assert_eq!(counted(&all, b"{\"y\": 1}").1, 0);
    assert_eq!(counted(&all, &[b'['; (1 << 20) + 1]).1, 1);
    // Nor is it more than one where they are asked one by one, which it is that they find.
    let dear = "LENGTH(p.correlation_id) > 0 AND p.correlation_id REGEXP '(a?){300}b'";
    let _ = all.join(Some(&filter(dear)), 1).unwrap();
    let properties = Properties { correlation_id: Some("a".repeat(250)), ..Properties::default() };
    let properties = properties.to_bytes();
    let view = MessageView { properties: &properties, body: b"{", ..MessageView::default() };
    let mut scratch = SelectScratch::default();
    let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
    assert!(matches!(found, Selected::Matches { selectors: 0b100, .. }), "{found:?}");
    assert_eq!((scratch.take_given_up(), scratch.take_bodies_unreadable()), (1, 1));
}

#[test]
fn reading_in_one_way_is_not_what_filters_of_another_way_miss() {
    let mut all = Selectors::new();
    let json = filter("b.x = 1");
    let none = ConsumerFilter { format: BodyFormat::None, ..ConsumerFilter::clone(&json) };
    let fix = ConsumerFilter { format: BodyFormat::Json, ..ConsumerFilter::clone(&json) };
    for filter in [json, Arc::new(none), Arc::new(fix)] {
        let _ = all.join(Some(&filter), 1).unwrap();
    }
    let body = alloc::format!("{{\"x\":1,\"t\":\"{}\"}}", "a".repeat(1_000_000));
    let view = MessageView { properties: &[0, 0], body: body.as_bytes(), ..MessageView::default() };
    let mut scratch = SelectScratch::default();
    for _ in 0..2 {
        let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
        let Selected::Matches { selectors, dear, .. } = found else { panic!("{found:?}") };
        assert_eq!((selectors, scratch.take_given_up()), (0b1010, 0));
        all.make_dear(dear);
    }
    assert_eq!(all.dear(), 0b1010);
}

/// Who says that it matches a message of 40 and 1,200 letters, and how often one gave up.
fn ask_about_letters(all: &mut Selectors) -> (SelectorBits, u32) {
    let (few, many) = ("a".repeat(40), "a".repeat(1_200));
    let body = alloc::format!("{{\"t\":\"{few}\",\"u\":\"{many}needle\"}}");
    let view = MessageView { properties: &[0, 0], body: body.as_bytes(), ..MessageView::default() };
    let mut scratch = SelectScratch::default();
    let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
    let Selected::Matches { selectors, dear, steps } = found else { panic!("{found:?}") };
    assert!(steps < 3 * STEPS_MAX, "{steps}");
    all.make_dear(dear);
    (selectors, scratch.take_given_up())
}

#[test]
fn what_filters_of_one_pass_take_is_not_what_those_of_another_miss() {
    // They take all there is, mostly down to less than the last one needs.
    for many in 10..20 {
        let mut all = Selectors::new();
        for number in 0..60 {
            let greedy = alloc::format!("b.t REGEXP '(a?){{{}}}{number}'", many - number / 6);
            assert_eq!(all.join(Some(&filter(&greedy)), 1), Ok((number + 1, true)));
        }
        let victim = ConsumerFilter {
            format: BodyFormat::Json,
            ..ConsumerFilter::clone(&filter("b.u LIKE '%needle%'"))
        };
        assert_eq!(all.join(Some(&Arc::new(victim)), 1), Ok((61, true)));
        // Before anybody is dear, then with one pass for the dear ones, and with two.
        for _ in 0..3 {
            let (found, given_up) = ask_about_letters(&mut all);
            assert_eq!((found, all.given_up(61)), (1 << 61, 0));
            assert!(given_up > 10, "{given_up}");
        }
    }
}

#[test]
fn a_filter_may_take_what_those_of_a_later_pass_leave() {
    let json = |text: &str| ConsumerFilter {
        format: BodyFormat::Json,
        ..ConsumerFilter::clone(&filter(text))
    };
    // More than a half of what there is.
    let mut all = Selectors::new();
    let _ = all.join(Some(&filter("b.t REGEXP '(a?){100}$'")), 1).unwrap();
    let _ = all.join(Some(&Arc::new(json("b.u LIKE '%needle%'"))), 1).unwrap();
    for _ in 0..3 {
        assert_eq!(ask_about_letters(&mut all), (0b110, 0));
    }
    // Two that take as much are too many: the first one has it.
    let _ = all.join(Some(&Arc::new(json("b.t REGEXP '(a?){101}$'"))), 1).unwrap();
    for _ in 0..3 {
        let (found, given_up) = ask_about_letters(&mut all);
        assert_eq!((found & 0b100, given_up), (0b100, 1), "{found:b}");
    }
}

/// One goes through many elements until it may no more, whatever it has; the other one needs a little.
#[test]
fn what_one_takes_in_vain_is_not_what_those_of_a_later_pass_miss() {
    let elements = |text: &str, count| alloc::vec![text; count].join(",");
    let (many, few) = (elements("\"xaybz\"", 900), elements("\"abc\"", 90));
    let body = alloc::format!("{{\"n\":1,\"e\":[{many}],\"a\":[{few}]}}");
    let view = MessageView { properties: &[0, 0], body: body.as_bytes(), ..MessageView::default() };
    let branch = |number| alloc::format!("ANY(b.e[*]) LIKE '%x_y%z_{number}%'");
    let greedy = (0..15).map(branch).collect::<Vec<_>>().join(" OR ");
    let victim = "b.n = 1 AND ALL(b.a[*]) NOT LIKE '%q_q%'";
    for format in [BodyFormat::Json, BodyFormat::Auto] {
        let mut all = Selectors::new();
        let victim = ConsumerFilter { format, ..ConsumerFilter::clone(&filter(victim)) };
        let _ = all.join(Some(&filter(&greedy)), 1).unwrap();
        let _ = all.join(Some(&Arc::new(victim)), 1).unwrap();
        for round in 0..3 {
            let mut scratch = SelectScratch::default();
            let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
            let Selected::Matches { selectors, dear, steps } = found else { panic!("{found:?}") };
            assert_eq!((selectors, all.given_up(2)), (0b100, 0), "{format:?} {round}");
            assert_eq!(all.given_up(1), round + 1);
            assert!(steps < 5 * STEPS_MAX, "{steps}");
            all.make_dear(dear);
        }
    }
    // Beside dear ones a newcomer is asked first.
    let mut all = Selectors::new();
    let _ = all.join(Some(&filter(victim)), 1).unwrap();
    all.make_dear(0b10);
    let _ = all.join(Some(&filter(&greedy)), 1).unwrap();
    let found = all.ask(SelectorBits::MAX, &view, &mut SelectScratch::default());
    assert!(matches!(found, Selected::Matches { selectors: 0b10, .. }), "{found:?}");
}

#[test]
fn what_was_evaluated_in_vain_is_not_paid_twice() {
    let text = "a".repeat(44_000);
    let body = alloc::format!("{{\"u\":\"{text}needle\",\"v\":\"{text}needle\"}}");
    let view = MessageView { properties: &[0, 0], body: body.as_bytes(), ..MessageView::default() };
    let other =
        ConsumerFilter { format: BodyFormat::Json, ..ConsumerFilter::clone(&filter("b.z = 5")) };
    let long = filter("b.u LIKE '%needle%' AND b.v LIKE '%needle%'");
    let short = filter("b.w LIKE '%noodle'");
    for others in [&[Arc::new(other)][..], &[short], &[filter("b.z IS NOT MISSING")]] {
        let mut all = Selectors::new();
        let _ = all.join(Some(&long), 1).unwrap();
        for other in others {
            let _ = all.join(Some(other), 1).unwrap();
        }
        for _ in 0..3 {
            let mut scratch = SelectScratch::default();
            let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
            let Selected::Matches { selectors, dear, .. } = found else { panic!("{found:?}") };
            assert_eq!((selectors, all.given_up(1)), (0b10, 0));
            all.make_dear(dear);
        }
    }
}

#[test]
fn where_all_that_is_left_is_one_step_nobody_else_misses_anything() {
    let mut all = Selectors::new();
    for text in ["n = 1 AND b.u LIKE '%needle%'", "k = 2 AND b.u LIKE '%needle%'", "b.z = 1"] {
        let _ = all.join(Some(&filter(text)), 1).unwrap();
    }
    let headers = lepus_amqp::table::Table::new().with("n", 1).with("k", 2);
    let properties = Properties { headers: Some(headers), ..Properties::default() };
    let properties = properties.to_bytes();
    for length in (97_500..98_500).chain(130_800..131_100) {
        let text = "a".repeat(length);
        let body = alloc::format!("{{\"z\":1,\"u\":\"{text}needle\"}}");
        let (properties, body) = (&properties[..], body.as_bytes());
        let view = MessageView { properties, body, ..MessageView::default() };
        let found = all.ask(SelectorBits::MAX, &view, &mut SelectScratch::default());
        let Selected::Matches { selectors, .. } = found else { panic!("{found:?}") };
        assert!(selectors & 0b1000 != 0, "{length}: {selectors:b}");
    }
}

#[test]
fn a_filter_may_take_what_those_behind_it_leave() {
    for is_first in [true, false] {
        let mut all = Selectors::new();
        let long = filter("b.t REGEXP '(a?){20}$'");
        if is_first {
            let _ = all.join(Some(&long), 1).unwrap();
        }
        for number in 0..62 {
            let short = alloc::format!("b.t REGEXP 'q{number}'");
            let _ = all.join(Some(&filter(&short)), 1).unwrap();
        }
        let (number, _) = all.join(Some(&long), 1).unwrap();
        for _ in 0..3 {
            assert_eq!(ask_about_letters(&mut all), (bit(number), 0));
        }
    }
}

#[test]
fn the_dear_ones_are_found_once_and_asked_apart() {
    let mut all = Selectors::new();
    for number in 0..4 {
        let cheap = alloc::format!("p.type = '{number}'");
        let _ = all.join(Some(&filter(&cheap)), 1).unwrap();
        let dear = alloc::format!("b.t REGEXP '(a?){{20}}{number}'");
        let _ = all.join(Some(&filter(&dear)), 1).unwrap();
    }
    assert_eq!((all.dear(), all.present()), (0, 0b1_1111_1110));
    let properties = Properties { message_type: Some("2".into()), ..Properties::default() };
    let properties = properties.to_bytes();
    let body = alloc::format!("{{\"t\":\"{}3\"}}", "a".repeat(40));
    let (properties, body) = (&properties[..], body.as_bytes());
    let view = MessageView { properties, body, ..MessageView::default() };
    let mut scratch = SelectScratch::default();
    let mut asked = |all: &Selectors, asked| match all.ask(asked, &view, &mut scratch) {
        Selected::Matches { selectors, steps, dear } => (selectors, steps, dear),
        other => panic!("{other:?}"),
    };
    let (expected, dear) = (0b1_0010_0000, 0b1_0101_0100);
    let (found, _, new) = asked(&all, SelectorBits::MAX);
    assert_eq!((found, new), (expected, dear));
    all.make_dear(new | 1 | 1 << 40);
    assert_eq!(all.dear(), dear);
    // Nobody is found twice, and the cheap ones take little.
    let (found, both, new) = asked(&all, SelectorBits::MAX);
    assert_eq!((found, new), (expected, 0));
    let (found, steps, new) = asked(&all, !dear);
    assert_eq!((found, new), (expected & !dear, 0));
    assert!(steps < STEPS_PER_MESSAGE && both > PASS_STEPS, "{steps} of {both}");
    assert_eq!(asked(&all, dear).0, expected & dear);
    // They go as others do, and their places are anybody's.
    for number in numbers(dear) {
        assert!(all.leave(number));
    }
    assert_eq!((all.dear(), ask(&all, "2")), (0, expected & !dear));
    assert_eq!(all.join(Some(&filter("p.type IN ('2', '9')")), 1), Ok((2, true)));
    assert_eq!(ask(&all, "2"), expected & !dear | 1 << 2);
}

#[test]
fn a_filter_is_kept_once_and_not_anew_where_one_takes_too_much() {
    let mut all = Selectors::new();
    let many = |from: usize| {
        let values: Vec<_> = (from..from + 60).map(|n| alloc::format!("'{n}'")).collect();
        alloc::format!("p.type IN ({})", values.join(", "))
    };
    for number in 0..9 {
        let text = match number {
            // What it takes is not to be had of the others.
            0 => "b.t REGEXP '(a?){300}b'".into(),
            _ => many(100 * number),
        };
        let _ = all.join(Some(&filter(&text)), 1).unwrap();
    }
    let once = all.memory_bytes();
    let texts: usize = (1..10).map(|n| all.filter(n).unwrap().text().len()).sum();
    let places = all.all.capacity() * size_of::<Option<Selector>>();
    assert_eq!(once, all.sets.memory_bytes() + texts + places);
    assert_eq!(all.cost(1).0, "evaluated");
    assert_eq!((all.cost(2).0, all.cost(0), all.cost(40)), ("looked_up", all.cost(0), all.cost(0)));
    assert_eq!(ask(&all, "830"), 1 << 9);
    assert_eq!(all.memory_bytes(), once);
    let properties = Properties { message_type: Some("120".into()), ..Properties::default() };
    let properties = properties.to_bytes();
    let mut scratch = SelectScratch::default();
    let mut ask_about = |all: &Selectors, body: &str| {
        let (properties, body) = (&properties[..], body.as_bytes());
        let view = MessageView { properties, body, ..MessageView::default() };
        let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
        assert!(matches!(found, Selected::Matches { selectors: 0b100, .. }), "{found:?}");
        scratch.take_given_up()
    };
    // Others need not be asked anew where evaluating one takes too much.
    let long = alloc::format!("{{\"t\":\"{}\"}}", "a".repeat(200_000));
    assert_eq!((ask_about(&all, &long), all.memory_bytes()), (1, once));
    // Nor where it is a string that has to be decoded.
    let escaped = alloc::format!("{{\"t\":\"{}\"}}", "\\n".repeat(100_000));
    assert_eq!((ask_about(&all, &escaped), all.memory_bytes()), (1, once));
    assert_eq!(ask(&all, "830"), 1 << 9);
}

#[test]
fn where_reading_takes_too_much_those_who_read_are_dear_and_others_are_right() {
    let mut all = Selectors::new();
    for text in ["b.n = 1", "p.type = 'gold'", "p.type = 'gold' AND b.x IS MISSING"] {
        let _ = all.join(Some(&filter(text)), 1).unwrap();
    }
    let properties = Properties { message_type: Some("gold".into()), ..Properties::default() };
    let properties = properties.to_bytes();
    let number = alloc::format!("\"n\":{}", "9".repeat(99));
    let body = alloc::format!("{{{}}}", [&number[..]; 600].join(","));
    let (properties, body) = (&properties[..], body.as_bytes());
    let view = MessageView { properties, body, ..MessageView::default() };
    let mut scratch = SelectScratch::default();
    for (expected, given_up, dear) in [(0, 3, 0b1010), (0b100, 2, 0)] {
        let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
        let Selected::Matches { selectors, dear: new, steps } = found else { panic!("{found:?}") };
        assert_eq!((selectors, scratch.take_given_up(), new), (expected, given_up, dear));
        assert!(steps < 4 * STEPS_MAX, "{steps}");
        all.make_dear(new);
    }
    assert_eq!((all.given_up(1), all.given_up(2), all.given_up(3)), (2, 1, 2));
}
