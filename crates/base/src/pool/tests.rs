use super::*;
use crate::Rng;
use alloc::vec;

#[test]
fn a_body_lives_until_its_last_reference_goes() {
    let mut pool = Pool::new();
    let body = pool.insert(&[b"ab", b"", b"c"]);
    pool.retain(body);
    pool.release(body);
    assert_eq!(pool.get(body), b"abc");
    pool.release(body);
    assert!(pool.is_empty());
    assert_eq!(pool.live(), 0);
}

#[test]
fn a_large_body_gives_its_memory_back() {
    let mut pool = Pool::new();
    let before = pool.used();
    let body = pool.insert(&[&vec![7; CHUNK_BYTES * 3]]);
    assert!(pool.used() >= before + CHUNK_BYTES * 3);
    pool.release(body);
    assert_eq!(pool.chunk_bytes, 0);
}

#[test]
fn a_body_that_was_put_together_elsewhere_is_taken_without_a_copy() {
    let mut pool = Pool::new();
    let bytes = Arc::new(vec![7; CHUNK_BYTES]);
    let body = pool.adopt(&bytes, 5);
    assert!(core::ptr::eq(pool.get(body), &bytes[5..]));
    assert_eq!((pool.live(), pool.chunk_bytes), (CHUNK_BYTES - 5, CHUNK_BYTES));
    // A small one beside it, and what is moved together, have nothing to do with it.
    let small = pool.insert(&[b"small"]);
    pool.compact(CHUNK_BYTES);
    assert_eq!(pool.get(small), b"small");
    pool.release(body);
    assert_eq!((Arc::strong_count(&bytes), pool.live()), (1, 5));
    assert!(pool.spare.is_empty(), "it is not the pool's to write to");
}

#[test]
fn chunks_are_reused_and_not_collected() {
    let mut pool = Pool::new();
    let bytes = vec![1; 1000];
    let mut window = alloc::collections::VecDeque::new();
    for _ in 0..100_000 {
        window.push_back(pool.insert(&[&bytes]));
        if window.len() > 300 {
            pool.release(window.pop_front().unwrap());
        }
    }
    assert!(pool.used() <= 8 * CHUNK_BYTES, "used {}", pool.used());
    for body in window {
        pool.release(body);
    }
    assert!(pool.is_empty());
}

#[test]
fn an_empty_body_is_a_body() {
    let mut pool = Pool::new();
    let empty = pool.insert(&[]);
    let full = pool.insert(&[b"x"]);
    pool.release(full);
    assert_eq!(pool.get(empty), b"");
    pool.release(empty);
    assert!(pool.is_empty());
}

/// Runs whatever compaction is due, and returns how many calls it took.
fn compact_fully(pool: &mut Pool) -> usize {
    let mut calls = 1;
    while pool.compact(CHUNK_BYTES) {
        calls += 1;
    }
    calls
}

#[test]
fn few_bodies_that_stay_do_not_keep_the_chunks_of_those_that_go() {
    let mut pool = Pool::new();
    let traffic = [1; 4096];
    let mut survivors = Vec::new();
    for round in 0..1000_u32 {
        survivors.push(pool.insert(&[&round.to_le_bytes()]));
        let passing: Vec<_> = (0..64).map(|_| pool.insert(&[&traffic])).collect();
        passing.into_iter().for_each(|body| pool.release(body));
        if pool.is_sparse() {
            pool.compact(4 * CHUNK_BYTES);
        }
    }
    assert_eq!(pool.live(), 4000);
    assert!(pool.used() <= 8 * CHUNK_BYTES, "used {}", pool.used());
    for (round, body) in survivors.into_iter().enumerate() {
        assert_eq!(pool.get(body), (round as u32).to_le_bytes());
        pool.release(body);
    }
    assert!(pool.is_empty());
}

#[test]
fn what_outlived_its_neighbours_is_moved_once() {
    let mut pool = Pool::new();
    let survivor = pool.insert(&[b"stays"]);
    let mut moves = 0;
    for _ in 0..100 {
        let before = pool.places.get(survivor.0).chunk;
        let passing: Vec<_> = (0..300).map(|_| pool.insert(&[&[0; 4096]])).collect();
        passing.into_iter().for_each(|body| pool.release(body));
        compact_fully(&mut pool);
        moves += usize::from(pool.places.get(survivor.0).chunk != before);
    }
    assert_eq!(moves, 1);
}

#[test]
fn a_slice_of_compaction_frees_no_more_than_it_may() {
    let mut pool = Pool::new();
    let bodies: Vec<_> = (0..64 * 64).map(|_| pool.insert(&[&[0; 4096]])).collect();
    for (number, body) in bodies.into_iter().enumerate() {
        if number % 64 != 0 {
            pool.release(body);
        }
    }
    let chunks = pool.chunks.len();
    assert!(pool.compact(2 * CHUNK_BYTES));
    assert!(pool.chunks.len() >= chunks - 2);
    assert!(compact_fully(&mut pool) >= 50);
    assert!(!pool.is_sparse());
    assert_eq!(pool.len(), 64);
}

#[test]
fn spare_chunks_are_not_used_memory_and_go_when_asked() {
    let mut pool = Pool::new();
    let bodies: Vec<_> = (0..1000).map(|_| pool.insert(&[&[0; 4096]])).collect();
    bodies.into_iter().for_each(|body| pool.release(body));
    assert!(pool.used() <= 2 * CHUNK_BYTES, "used {}", pool.used());
    assert!(pool.spare() > 0);
    pool.give_back();
    assert_eq!(pool.spare(), 0);
}

#[test]
fn spare_chunks_that_were_not_used_for_long_are_given_back() {
    const LARGE: usize = SHARED_BODY_BYTES_MAX;
    let mut pool = Pool::new();
    let come_and_go = |pool: &mut Pool, chunks: usize| {
        let bodies: Vec<_> = (0..4 * chunks).map(|_| pool.insert(&[&[0; LARGE]])).collect();
        bodies.into_iter().for_each(|body| pool.release(body));
    };
    come_and_go(&mut pool, 10);
    let all = pool.spare();
    assert!(all >= 8 * CHUNK_BYTES, "{all}");
    // They have just come.
    pool.give_unused();
    assert_eq!(pool.spare(), all);
    // Some of them are used, and come back.
    come_and_go(&mut pool, 4);
    pool.give_unused();
    let some = pool.spare();
    assert!((CHUNK_BYTES..=4 * CHUNK_BYTES).contains(&some), "{some}");
    pool.give_unused();
    assert_eq!(pool.spare(), 0);
    // And whoever needs one gets it.
    come_and_go(&mut pool, 2);
    assert!(pool.spare() > 0);
}

#[test]
fn a_pool_that_gives_back_keeps_what_lives_and_nothing_else() {
    let mut pool = Pool::new();
    let bodies: Vec<_> = (0..100_000).map(|_| pool.insert(&[b"body"])).collect();
    bodies.into_iter().for_each(|body| pool.release(body));
    assert!(pool.used() > CHUNK_BYTES, "the open chunk and the table");
    pool.give_back();
    assert_eq!((pool.used(), pool.spare()), (0, 0));
    // In the middle of the table, with vacant places before and behind it.
    let bodies: Vec<_> = (0..1000).map(|_| pool.insert(&[b"other"])).collect();
    let mut bodies = bodies.into_iter();
    let before: Vec<_> = bodies.by_ref().take(400).collect();
    let kept = bodies.next().unwrap();
    before.into_iter().chain(bodies).for_each(|body| pool.release(body));
    pool.give_back();
    assert_eq!(pool.get(kept), b"other");
    assert!(pool.used() <= CHUNK_BYTES + 16 * 1024, "used {}", pool.used());
    let more: Vec<_> = (0..1000).map(|_| pool.insert(&[b"more"])).collect();
    assert_eq!(pool.get(kept), b"other");
    more.iter().for_each(|body| assert_eq!(pool.get(*body), b"more"));
    more.into_iter().chain([kept]).for_each(|body| pool.release(body));
    pool.give_back();
    assert_eq!(pool.used(), 0);
}

#[test]
fn the_table_of_bodies_gets_shorter_after_a_peak() {
    for reverse in [false, true] {
        let mut pool = Pool::new();
        let mut bodies: Vec<_> = (0..1_000_000).map(|_| pool.insert(&[])).collect();
        let peak = pool.used();
        let first = bodies.remove(0);
        if reverse {
            bodies.reverse();
        }
        bodies.into_iter().for_each(|body| pool.release(body));
        // A few come and go, as ever.
        for _ in 0..1_000_000 {
            let body = pool.insert(&[]);
            pool.release(body);
        }
        assert!(pool.used() * 4 <= peak, "used {} of {peak}", pool.used());
        assert_eq!(pool.get(first), b"");
    }
}

#[test]
#[should_panic(expected = "released")]
fn a_released_body_is_not_there() {
    let mut pool = Pool::new();
    let body = pool.insert(&[b"x"]);
    pool.insert(&[b"y"]);
    pool.release(body);
    let _ = pool.get(body);
}

/// A pool next to what must be in it.
struct Model {
    pool: Pool,
    bodies: Vec<(Body, Vec<u8>, u32)>,
}

impl Model {
    fn insert(&mut self, rng: &mut Rng) {
        let length = match rng.below(100) {
            0 => CHUNK_BYTES / 4 - 16 + rng.below(32) as usize,
            1 => rng.below(3 * CHUNK_BYTES as u64) as usize,
            2..10 => rng.below(20_000) as usize,
            10..14 => 0,
            _ => rng.below(300) as usize,
        };
        let mut bytes = vec![0; length];
        rng.fill(&mut bytes);
        let (head, tail) = bytes.split_at(length / 3);
        let body = self.pool.insert(&[head, tail]);
        self.bodies.push((body, bytes, 1));
    }

    fn release(&mut self, at: usize) {
        let (body, bytes, references) = &mut self.bodies[at];
        assert_eq!(self.pool.get(*body), bytes);
        self.pool.release(*body);
        *references -= 1;
        if *references == 0 {
            self.bodies.swap_remove(at);
        }
    }

    fn step(&mut self, rng: &mut Rng, grows: bool) {
        let any = rng.below(self.bodies.len().max(1) as u64) as usize;
        match rng.below(20) {
            0 => drop(self.pool.compact(rng.below(3) as usize * CHUNK_BYTES)),
            1 if !self.bodies.is_empty() => {
                self.pool.retain(self.bodies[any].0);
                self.bodies[any].2 += 1;
            }
            2..11 if grows => self.insert(rng),
            2..6 => self.insert(rng),
            _ if !self.bodies.is_empty() => self.release(any),
            _ => {}
        }
    }

    fn check(&mut self) {
        let live: usize = self.bodies.iter().map(|(_, bytes, _)| bytes.len()).sum();
        assert_eq!((self.pool.live(), self.pool.len()), (live, self.bodies.len()));
        for (body, bytes, _) in &self.bodies {
            assert_eq!(self.pool.get(*body), bytes);
        }
        compact_fully(&mut self.pool);
        for (body, bytes, _) in &self.bodies {
            assert_eq!(self.pool.get(*body), bytes);
        }
        let stored = live + HEADER_BYTES * self.bodies.len();
        assert!(
            self.pool.chunk_bytes <= 2 * stored + 2 * CHUNK_BYTES,
            "{} for {stored}",
            self.pool.chunk_bytes
        );
    }
}

#[test]
fn whatever_comes_and_goes_bodies_stay_as_they_are_and_memory_follows_what_lives() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut model = Model { pool: Pool::new(), bodies: Vec::new() };
        for era in 0..12 {
            for _ in 0..400 {
                model.step(&mut rng, era % 3 != 2);
            }
            model.check();
        }
        while !model.bodies.is_empty() {
            model.release(rng.below(model.bodies.len() as u64) as usize);
        }
        assert!(model.pool.is_empty());
        assert_eq!(model.pool.live(), 0);
        assert!(model.pool.chunk_bytes <= 2 * CHUNK_BYTES);
    }
}
