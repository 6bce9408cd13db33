//! Rings, inboxes and bells between real threads. A lost wake shows as a test that does not end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use lepus_base::ShardId;
use lepus_mesh::{Bell, Endpoint, Signal, connect, inbox};

/// A bell that unparks the current thread.
fn parking_bell(thread: thread::Thread) -> Bell {
    Bell::new(move || thread.unpark())
}

fn sleep(endpoint: &Endpoint<Vec<u64>>) {
    if endpoint.bell().fall_asleep() {
        thread::park();
        endpoint.bell().wake_up();
    }
}

/// Both threads send `count` numbers to each other through rings of `capacity` batches, sleep
/// whenever they have nothing to do, and check order and completeness.
fn exchange(capacity: usize, count: u64) -> u64 {
    let wakes = Arc::new(AtomicU64::new(0));
    let (bells_out, bells_in) = std::sync::mpsc::channel();
    let mut threads = Vec::new();
    let mut homes = Vec::new();
    for _ in 0..2 {
        let (home_out, home_in) = std::sync::mpsc::channel::<Endpoint<Vec<u64>>>();
        homes.push(home_out);
        let bells_out = bells_out.clone();
        let wakes = Arc::clone(&wakes);
        threads.push(thread::spawn(move || {
            bells_out.send(thread::current()).unwrap();
            let mut endpoint = home_in.recv().unwrap();
            let peer = ShardId(1 - endpoint.shard().0);
            let (mut sent, mut expected) = (0, 0);
            let mut batch = Vec::new();
            let mut received = Vec::new();
            while sent < count || expected < count || !batch.is_empty() {
                endpoint.receive(&mut received);
                let mut progress = !received.is_empty();
                for (from, mut items) in received.drain(..) {
                    for item in items.drain(..) {
                        assert_eq!(item, expected);
                        expected += 1;
                    }
                    let _ = endpoint.give_back(from, items);
                }
                // A full ring leaves the batch here, and it grows up to a bound.
                while sent < count && batch.len() < 10 {
                    batch.push(sent);
                    sent += 1;
                }
                if !batch.is_empty() && endpoint.has_room(peer) {
                    let spare = endpoint.spare(peer).unwrap_or_default();
                    let full = std::mem::replace(&mut batch, spare);
                    endpoint.send(peer, full).unwrap();
                    progress = true;
                }
                wakes.fetch_add(endpoint.ring(), Ordering::Relaxed);
                if !progress {
                    endpoint.bell().take(Signal::Room);
                    if !batch.is_empty() && endpoint.has_room(peer) {
                        continue;
                    }
                    sleep(&endpoint);
                }
            }
            // The peer may wait for room.
            endpoint.touch(peer);
            endpoint.ring();
        }));
    }
    let handles = [bells_in.recv().unwrap(), bells_in.recv().unwrap()];
    // Which handle belongs to which thread does not matter for the numbering, so find it out.
    let mut ordered: Vec<_> = threads
        .iter()
        .map(|t| {
            let id = t.thread().id();
            handles.iter().find(|h| h.id() == id).unwrap().clone()
        })
        .collect();
    let bells: Vec<_> = ordered.drain(..).map(|handle| Arc::new(parking_bell(handle))).collect();
    for (home, endpoint) in homes.into_iter().zip(connect(&bells, capacity)) {
        home.send(endpoint).unwrap();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    wakes.load(Ordering::Relaxed)
}

#[test]
fn two_threads_keep_order_with_rings_of_two() {
    exchange(2, 200_000);
}

#[test]
fn a_capacity_below_two_counts_as_two() {
    exchange(0, 20_000);
}

#[test]
fn larger_rings_need_no_more_than_one_wake_per_batch() {
    let count = 200_000;
    let wakes = exchange(16, count);
    // 10 numbers per batch and direction; each announcement (mail or room) wakes at most once.
    assert!(wakes <= 2 * 2 * (count / 10 + 16), "{wakes} wakes");
}

#[test]
fn a_full_ring_gives_the_item_back_and_reports_room() {
    let bells: Vec<_> = (0..2).map(|_| Arc::new(Bell::new(|| ()))).collect();
    let mut ends = connect(&bells, 2);
    let mut right = ends.pop().unwrap();
    let mut left = ends.pop().unwrap();
    assert_eq!(left.send(ShardId(1), 1), Ok(()));
    assert_eq!(left.send(ShardId(1), 2), Ok(()));
    assert!(!left.has_room(ShardId(1)));
    assert_eq!(left.send(ShardId(1), 3), Err(3));
    assert_eq!(left.send(ShardId(0), 3), Err(3), "no ring to oneself");
    let mut got = Vec::new();
    right.receive(&mut got);
    assert_eq!(got, [(ShardId(0), 1), (ShardId(0), 2)]);
    assert!(left.bell().take(Signal::Room));
    assert!(left.has_room(ShardId(1)));
    right.give_back(ShardId(0), 10).unwrap();
    assert_eq!(left.spare(ShardId(1)), Some(10));
    assert_eq!(left.spare(ShardId(1)), None);
    // One item in a ring of two: nobody can wait for room.
    left.send(ShardId(1), 3).unwrap();
    right.receive(&mut got);
    assert!(!left.bell().take(Signal::Room));
}

#[test]
fn more_than_64_shards_share_announcements() {
    let bells: Vec<_> = (0..130).map(|_| Arc::new(Bell::new(|| ()))).collect();
    let mut ends = connect(&bells, 2);
    for from in [3, 67, 129] {
        ends[from].send(ShardId(0), from).unwrap();
    }
    let mut got = Vec::new();
    ends[0].receive(&mut got);
    assert_eq!(got, [(ShardId(3), 3), (ShardId(67), 67), (ShardId(129), 129)]);
}

#[test]
fn an_inbox_takes_any_number_from_several_threads() {
    let bell = Arc::new(parking_bell(thread::current()));
    let (post, inbox) = inbox::<u64>(&bell, Signal::Directory);
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let post = post.clone();
            thread::spawn(move || (0..1000).for_each(|i| post.send(t * 1000 + i).unwrap()))
        })
        .collect();
    let mut seen = [0u64; 4];
    while seen.iter().sum::<u64>() < 4000 {
        if inbox.is_announced() {
            while let Some(item) = inbox.take() {
                let sender = (item / 1000) as usize;
                assert_eq!(item % 1000, seen[sender], "order per sender");
                seen[sender] += 1;
            }
        } else if bell.fall_asleep() {
            thread::park();
            bell.wake_up();
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    drop(inbox);
    assert_eq!(post.send(1), Err(1));
}
