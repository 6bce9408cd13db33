//! The trie against the definition of a pattern.

use super::*;
use crate::binding::Target;
use alloc::string::String;
use alloc::vec::Vec;
use lepus_amqp::table::TableBytes;
use lepus_base::Rng;

fn fits(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.first(), key.first()) {
        (None, None) => true,
        (Some(&"#"), None) => fits(&pattern[1..], key),
        (Some(&"#"), Some(_)) => fits(&pattern[1..], key) || fits(pattern, &key[1..]),
        (Some(&"*"), Some(_)) => fits(&pattern[1..], &key[1..]),
        (Some(word), Some(other)) => word == other && fits(&pattern[1..], &key[1..]),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn words(key: &str) -> Vec<&str> {
    split(key).collect()
}

struct Fixture {
    bindings: Bindings,
    trie: Trie,
    walk: Walk,
    /// What the last walk cost.
    steps: u32,
}

impl Fixture {
    fn new() -> Fixture {
        let state = HashState::new(5);
        let (bindings, trie) = (Bindings::new(state), Trie::new(state));
        Fixture { bindings, trie, walk: Walk::default(), steps: 0 }
    }

    fn bind(&mut self, queue: u32, pattern: &str) -> u32 {
        let target = Target::queue(queue);
        let place = self.bindings.insert(0, target, pattern, &TableBytes::default());
        self.trie.insert(&mut self.bindings, place);
        place
    }

    fn unbind(&mut self, place: u32) {
        self.trie.remove(&mut self.bindings, place);
        self.bindings.remove(place);
    }

    fn matches(&mut self, key: &str) -> Vec<u32> {
        self.matches_each(&[key])
    }

    /// The bindings that fit any of the keys.
    fn matches_each(&mut self, keys: &[&str]) -> Vec<u32> {
        let mut found = Vec::new();
        let meter = Meter::new(0, u32::MAX);
        let keys = keys.iter().copied();
        self.trie.walk(keys, &self.bindings, &mut self.walk, &meter, |links| {
            found.extend(links.iter().map(|link| link.binding));
        });
        found.sort_unstable();
        self.steps = meter.used();
        found
    }
}

fn random_key(rng: &mut Rng, alphabet: &[&str], words_max: u64) -> String {
    let count = rng.below(words_max + 1);
    let words: Vec<&str> =
        (0..count).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect();
    words.join(".")
}

/// Words count their edges, and know the only one of which they are sure.
fn check_words(trie: &Trie) {
    for (number, word) in trie.words.iter() {
        let edges = trie.nodes.iter().filter(|(_, node)| node.word == number as u32);
        let edges: Vec<usize> = edges.map(|(node, _)| node).collect();
        assert_eq!(edges.len() as u32, word.edges);
        assert!(word.only == NONE || edges == [word.only as usize]);
    }
}

#[test]
fn a_word_of_one_pattern_and_an_only_child_are_found_without_the_table() {
    let mut fixture = Fixture::new();
    let places: Vec<u32> = (0..1_000)
        .map(|number| fixture.bind(number, &alloc::format!("a{number}.*.c.{}", number % 10)))
        .collect();
    check_words(&fixture.trie);
    // All ways to them.
    fixture.trie.edges = LinearTable::new();
    for (number, place) in places.iter().enumerate() {
        let (last, other) = (number % 10, number % 10 + 1);
        assert_eq!(fixture.matches(&alloc::format!("a{number}.b.c.{last}")), [*place]);
        assert_eq!(fixture.matches(&alloc::format!("a{number}.b.c.{other}")), [0u32; 0]);
        assert_eq!(fixture.matches(&alloc::format!("a{number}.b.a{number}")), [0u32; 0]);
    }
}

#[test]
fn the_trie_agrees_with_the_definition_while_patterns_come_and_go() {
    let mut rng = Rng::new(11);
    for round in 0..60 {
        let mut fixture = Fixture::new();
        let mut bound: Vec<(u32, String)> = Vec::new();
        for step in 0..200 {
            if rng.chance(2, 3) || bound.is_empty() {
                let pattern = random_key(&mut rng, &["a", "b", "", "*", "#"], 6);
                bound.push((fixture.bind(step, &pattern), pattern));
            } else {
                let victim = rng.below(bound.len() as u64) as usize;
                fixture.unbind(bound.swap_remove(victim).0);
            }
            if step % 10 != 0 {
                continue;
            }
            check_words(&fixture.trie);
            for _ in 0..20 {
                let key = random_key(&mut rng, &["a", "b", "c", ""], 6);
                let mut expected: Vec<u32> = bound
                    .iter()
                    .filter(|(_, pattern)| fits(&words(pattern), &words(&key)))
                    .map(|(place, _)| *place)
                    .collect();
                expected.sort_unstable();
                assert_eq!(fixture.matches(&key), expected, "round {round}, key {key:?}");
            }
        }
        for (place, _) in bound {
            fixture.unbind(place);
        }
        assert_eq!(fixture.trie.nodes.len(), 1, "only the root is left");
        assert_eq!(fixture.trie.words.len(), 0);
        assert!(fixture.trie.edges.is_empty() && fixture.trie.by_text.is_empty());
    }
}

#[test]
fn empty_words_count_and_the_empty_key_has_none() {
    let mut fixture = Fixture::new();
    let empty = fixture.bind(0, "");
    let hash = fixture.bind(1, "#");
    let star = fixture.bind(2, "*");
    let two = fixture.bind(3, "*.*");
    let gap = fixture.bind(4, "a..b");
    assert_eq!(fixture.matches(""), [empty, hash]);
    assert_eq!(fixture.matches("."), [hash, two]);
    assert_eq!(fixture.matches("a..b"), [hash, gap]);
    assert_eq!(fixture.matches("a"), [hash, star]);
}

#[test]
fn wildcards_are_whole_words_only() {
    let mut fixture = Fixture::new();
    let literal = fixture.bind(0, "a*.#b");
    assert_eq!(fixture.matches("ax.b"), [0u32; 0]);
    assert_eq!(fixture.matches("a*.#b"), [literal]);
}

#[test]
fn patterns_of_many_hashes_stay_cheap() {
    // Tried one path after the other this would be more steps than the test could ever do.
    let mut fixture = Fixture::new();
    let mut pattern = ["#", "a"].repeat(60);
    pattern.push("b");
    fixture.bind(0, &pattern.join("."));
    let key = ["a"; 127].join(".");
    assert_eq!(fixture.matches(&key), [0u32; 0]);
    pattern.pop();
    let place = fixture.bind(1, &pattern.join("."));
    assert_eq!(fixture.matches(&key), [place]);
}

#[test]
fn a_binding_behind_repeated_hashes_is_found_once() {
    let mut fixture = Fixture::new();
    let place = fixture.bind(0, "#.#.a.#.#");
    assert_eq!(fixture.matches("a.a.a"), [place]);
    assert_eq!(fixture.matches("b.b"), [0u32; 0]);
}

#[test]
fn a_binding_that_several_keys_fit_is_found_once() {
    let mut fixture = Fixture::new();
    let places = ["#", "*.a", "#.a", "b"].map(|pattern| fixture.bind(0, pattern));
    assert_eq!(fixture.matches_each(&["x.a", "y.a", "x.a", "b", ""]), places);
}

#[test]
fn a_walk_over_another_trie_starts_afresh() {
    let mut first = Fixture::new();
    let mut second = Fixture::new();
    first.bind(0, "#.a");
    let place = second.bind(0, "#.a");
    assert_eq!(first.matches("a").len(), 1);
    core::mem::swap(&mut first.walk, &mut second.walk);
    assert_eq!(second.matches("x.a"), [place]);
}

/// Whether a pattern fits a key, place by place: for long ones.
fn fits_long(pattern: &[&str], key: &[&str]) -> bool {
    let mut reached = alloc::vec![false; key.len() + 1];
    reached[0] = true;
    for word in pattern {
        if *word == "#" {
            let first = reached.iter().position(|is_reached| *is_reached);
            reached.iter_mut().skip(first.unwrap_or(key.len() + 1)).for_each(|place| *place = true);
            continue;
        }
        for place in (0..key.len()).rev() {
            reached[place + 1] = reached[place] && (*word == "*" || *word == key[place]);
        }
        reached[0] = false;
    }
    reached[key.len()]
}

#[test]
fn long_keys_agree_with_the_definition() {
    let mut rng = Rng::new(12);
    let alphabet = ["a", "b", "", "*", "#", "#"];
    for _ in 0..40 {
        let mut fixture = Fixture::new();
        let bound: Vec<(u32, String)> = (0..60)
            .map(|queue| {
                let pattern = random_key(&mut rng, &alphabet, 90);
                (fixture.bind(queue, &pattern), pattern)
            })
            .collect();
        for words_max in [6, 63, 64, 65, 130, 300] {
            let key = random_key(&mut rng, &["a", "b", "c", ""], words_max);
            let key_words = words(&key);
            let fitting = bound.iter().filter(|(_, text)| fits_long(&words(text), &key_words));
            let mut expected: Vec<u32> = fitting.map(|(place, _)| *place).collect();
            expected.sort_unstable();
            assert_eq!(fixture.matches(&key), expected, "key {key:?}");
        }
    }
}

/// Patterns that all begin to fit a key of `a`s, each in its own way.
fn greedy_patterns(rest: &str) -> Vec<String> {
    let ways = 0..1 << 12;
    ways.map(|way: u32| {
        let words: Vec<&str> =
            (0..12).map(|bit| if way >> bit & 1 == 1 { "*" } else { "a" }).collect();
        alloc::format!("{}.#.{rest}", words.join("."))
    })
    .collect()
}

#[test]
fn the_work_does_not_grow_with_the_length_of_the_key() {
    for rest in ["x", "a.x", "a.*.a.#.*.*.x", "*.*.*.*.*.a"] {
        let mut fixture = Fixture::new();
        for (queue, pattern) in (0..).zip(greedy_patterns(rest)) {
            fixture.bind(queue, &pattern);
        }
        let key = ["a"; 127].join(".");
        let found = fixture.matches(&key).len();
        assert_eq!(found, if rest.ends_with('x') { 0 } else { 1 << 12 });
        // Each node is visited once at most, and looked at once from its parent.
        let nodes = fixture.trie.nodes.len() as u32;
        let looks = fixture.steps / LOOK_STEPS;
        assert!(looks <= 2 * nodes, "{looks} for {nodes} nodes");
    }
}

#[test]
fn a_node_with_very_many_children_costs_as_much_as_the_key_has_words() {
    let mut fixture = Fixture::new();
    for queue in 0..10_000 {
        fixture.bind(queue, &alloc::format!("#.w{queue}.#"));
    }
    assert_eq!(fixture.matches("w7.w8.other").len(), 2);
    let looks = fixture.steps / LOOK_STEPS;
    assert!(looks < 20, "{looks}");
}

#[test]
fn many_keys_at_once_agree_with_the_definition() {
    let mut rng = Rng::new(13);
    let alphabet = ["a", "b", "", "*", "#", "#"];
    for round in 0..60 {
        let mut fixture = Fixture::new();
        let patterns_max = if round % 2 == 0 { 6 } else { 70 };
        let bound: Vec<(u32, String)> = (0..60)
            .map(|queue| {
                let pattern = random_key(&mut rng, &alphabet, patterns_max);
                (fixture.bind(queue, &pattern), pattern)
            })
            .collect();
        for (count, words_max) in [(2, 6), (8, 6), (9, 7), (40, 6), (3, 63), (3, 130), (30, 70)] {
            let keys: Vec<String> =
                (0..count).map(|_| random_key(&mut rng, &["a", "b", "c", ""], words_max)).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let is_fitting = |(_, text): &&(u32, String)| {
                keys.iter().any(|key| fits_long(&words(text), &words(key)))
            };
            let mut expected: Vec<u32> =
                bound.iter().filter(is_fitting).map(|(place, _)| *place).collect();
            expected.sort_unstable();
            assert_eq!(fixture.matches_each(&keys), expected, "round {round}, keys {keys:?}");
        }
    }
}

/// All patterns of so many words that are `a` or `*`, under one queue each.
fn bind_all_ways(fixture: &mut Fixture, words: u32) {
    for way in 0..1u32 << words {
        let word = |bit| if way >> bit & 1 == 1 { "*" } else { "a" };
        let words: Vec<&str> = (0..words).map(word).collect();
        fixture.bind(way, &words.join("."));
    }
}

#[test]
fn many_keys_cost_nodes_and_keys_instead_of_their_product() {
    let mut fixture = Fixture::new();
    bind_all_ways(&mut fixture, 10);
    let keys: Vec<String> = (0..1000)
        .map(|number| {
            let mut words = ["a"; 10].map(String::from);
            words[number % 10] = alloc::format!("w{number}");
            words.join(".")
        })
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    fixture.matches(keys[0]);
    let one = fixture.steps;
    assert!(!fixture.matches_each(&keys).is_empty());
    assert!(fixture.steps < 60 * one, "{} for 1000 keys, {one} for one", fixture.steps);
    // Keys that go their own ways cost what they have of words.
    let mut fixture = Fixture::new();
    for queue in 0..1000 {
        fixture.bind(queue, &alloc::format!("a.b.device{queue}.x"));
    }
    let keys: Vec<String> =
        (0..1000).map(|number| alloc::format!("a.b.device{number}.x")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert_eq!(fixture.matches_each(&keys).len(), 1000);
    let looks = fixture.steps / LOOK_STEPS;
    assert!(looks < 5000, "{looks}");
}
