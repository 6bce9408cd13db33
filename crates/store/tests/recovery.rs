//! Recovery of bytes that no store wrote: it ends, without a panic, and says what it found.

use lepus_base::{Now, QueueId, Rng};
use lepus_store::disk::{Action, Completion, File, LogId, Operations};
use lepus_store::place::{self, offset};
use lepus_store::simulation::Disk;
use lepus_store::{Event, Fetch, Keys, Lane, Message, Place, Settings, Store, SyncMode, inspect};

const LOG: LogId = LogId(1);

fn settings() -> Settings {
    Settings { segment_bytes: 8192, ..Settings::new(LOG) }
}

fn run(store: &mut Store, disk: &mut Disk, out: &mut Operations, millis: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for step in 0..100_000 {
        disk.submit(&mut out.list);
        let Some(completion) = disk.step() else { return events };
        store.complete(Now::from_millis(millis + step / 100), completion, out);
        store.take_events(&mut events);
    }
    panic!("no end");
}

fn open(disk: &mut Disk) -> (Store, Operations, Vec<Event>) {
    let mut out = Operations::default();
    let mut store = Store::open(settings(), &mut out);
    let events = run(&mut store, disk, &mut out, 1);
    (store, out, events)
}

/// A store with a few messages, synced.
fn filled(seed: u64) -> Disk {
    let mut disk = Disk::new(seed);
    let (mut store, mut out, _) = open(&mut disk);
    let lane = store.lane(Lane::of(QueueId(1)));
    for seq in 0..60 {
        let body = [seq as u8; 300];
        let message = Message { exchange: b"e", routing_key: b"k", properties: &[], body: &body };
        let place = Place { lane, seq, deadline_millis: 0 };
        while store.append(&message, &[place]).is_err() {
            store.flush(Now::from_millis(seq), &mut out);
            run(&mut store, &mut disk, &mut out, seq);
        }
        store.want_durable();
        if seq == 30 && seed.is_multiple_of(2) {
            store.request_checkpoint();
        }
        store.flush(Now::from_millis(seq), &mut out);
        run(&mut store, &mut disk, &mut out, seq);
    }
    store.flush(Now::from_millis(100), &mut out);
    run(&mut store, &mut disk, &mut out, 100);
    disk
}

/// Opens, reads everything, appends one more, opens again.
fn use_it(disk: &mut Disk) -> bool {
    let (mut store, mut out, events) = open(disk);
    if events.iter().any(|event| matches!(event, Event::Refused(_))) {
        return false;
    }
    assert!(store.is_running());
    let lanes: Vec<_> = store.lanes().map(|(_, slot)| slot).collect();
    let mut entries = Vec::new();
    for &lane in &lanes {
        for _ in 0..1000 {
            if store.fetch(lane, 100, &mut entries, &mut out) == Fetch::Done
                && store.is_fetched(lane)
            {
                break;
            }
            run(&mut store, disk, &mut out, 1);
        }
    }
    for entry in entries.iter().take(200) {
        for _ in 0..20 {
            if !matches!(store.lookup(entry.position, &mut out), lepus_store::Lookup::Pending) {
                break;
            }
            run(&mut store, disk, &mut out, 1);
        }
    }
    while store.work(Now::from_millis(2000), &mut out) {}
    store.flush(Now::from_millis(2000), &mut out);
    run(&mut store, disk, &mut out, 2000);
    true
}

#[test]
fn arbitrary_files_never_make_recovery_panic() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut disk = Disk::new(seed);
        for slot in 0..rng.below(4) as u32 {
            let mut bytes = vec![0; rng.below(9000) as usize];
            rng.fill(&mut bytes);
            disk.put(File::Segment(LOG, slot), bytes);
        }
        for file in [File::Root(LOG), File::Index(LOG), File::Checkpoint(LOG, 1)] {
            if rng.chance(1, 2) {
                let mut bytes = vec![0; rng.below(9000) as usize];
                rng.fill(&mut bytes);
                disk.put(file, bytes);
            }
        }
        use_it(&mut disk);
    }
}

#[test]
fn damaged_files_of_a_real_store_never_make_recovery_panic() {
    let mut refused = 0;
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let mut disk = filled(seed);
        let files: Vec<_> = disk.files().collect();
        for _ in 0..1 + rng.below(20) {
            let (file, length) = files[rng.below(files.len() as u64) as usize];
            match rng.below(4) {
                // A run of other bytes, a cut, or single bits.
                0 => {
                    let mut bytes = disk.data(file).unwrap_or_default().to_vec();
                    let start = rng.below(length + 1) as usize;
                    let end = (start + rng.below(400) as usize).min(bytes.len());
                    if start < end {
                        rng.fill(&mut bytes[start..end]);
                    }
                    disk.put(file, bytes);
                }
                1 => {
                    let mut bytes = disk.data(file).unwrap_or_default().to_vec();
                    bytes.truncate(rng.below(length + 1) as usize);
                    disk.put(file, bytes);
                }
                _ => disk.flip(file, rng.below(length.max(1)) as usize, rng.below(8) as u8),
            }
        }
        refused += u32::from(!use_it(&mut disk));
        use_it(&mut disk);
    }
    assert!(refused < 50, "damage is no reason to refuse");
}

#[test]
fn everything_of_an_undamaged_store_is_found() {
    for seed in 0..4 {
        let mut disk = filled(seed);
        disk.crash();
        let (mut store, mut out, events) = open(&mut disk);
        assert!(!events.iter().any(|event| matches!(event, Event::Damaged(_))), "{events:?}");
        let lane = store.lane(Lane::of(QueueId(1)));
        let mut entries = Vec::new();
        assert_eq!(store.fetch(lane, 100, &mut entries, &mut out), Fetch::Done);
        assert_eq!(entries.len(), 60);
        assert_eq!(store.count(lane), (60, 60 * 300));
    }
}

#[test]
fn definitions_are_found_in_order_and_a_snapshot_replaces_them() {
    let mut disk = Disk::new(9);
    let (mut store, mut out, _) = open(&mut disk);
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for round in 0..6u8 {
        if round == 3 {
            store.begin_snapshot();
            expected.clear();
            expected.push(b"all so far".to_vec());
            store.append_opaque(b"all so far").expect("room");
            store.end_snapshot(false);
        }
        for change in 0..40u8 {
            let bytes = vec![round ^ change; 100];
            while store.append_opaque(&bytes).is_err() {
                store.flush(Now::from_millis(1), &mut out);
                run(&mut store, &mut disk, &mut out, 1);
            }
            expected.push(bytes);
        }
        store.want_synced();
        // A checkpoint under way goes on with each flush.
        for _ in 0..3 {
            store.flush(Now::from_millis(u64::from(round)), &mut out);
            run(&mut store, &mut disk, &mut out, 1);
        }
        assert_eq!(store.synced(), store.end());
        disk.crash();
        let (next, next_out, _) = open(&mut disk);
        (store, out) = (next, next_out);
        let found: Vec<Vec<u8>> = store.take_opaque().into_iter().map(|(_, b)| b).collect();
        assert_eq!(found, expected);
    }
}

/// A large batch ends with its last page, so that no page is written twice; a small one does not, since
/// most of its page would be lost.
#[test]
fn a_large_batch_leaves_its_last_page_alone() {
    for (count, is_filled) in [(10, true), (2, false)] {
        let settings = Settings { segment_bytes: 256 << 10, ..Settings::new(LOG) };
        let mut disk = Disk::new(3);
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        run(&mut store, &mut disk, &mut out, 1);
        let mut pages = Vec::new();
        let mut appended = 0u8;
        for round in 0..4 {
            for _ in 0..count {
                appended += 1;
                while store.append_opaque(&[appended; 3_000]).is_err() {
                    store.flush(Now::from_millis(round), &mut out);
                    run(&mut store, &mut disk, &mut out, round);
                }
            }
            store.want_synced();
            store.flush(Now::from_millis(round), &mut out);
            for operation in &out.list {
                if let Action::Write { file: File::Segment(..), offset, bytes, start, .. } =
                    &operation.action
                {
                    let end = offset + (bytes.len() - start) as u64;
                    pages.push(offset / 4096..end.div_ceil(4096));
                }
            }
            run(&mut store, &mut disk, &mut out, round);
            assert_eq!(store.synced(), store.end());
        }
        assert_eq!(pages.len(), 4);
        let overlaps = pages.windows(2).filter(|two| two[1].start < two[0].end).count();
        assert_eq!(overlaps, if is_filled { 0 } else { 3 }, "{pages:?}");
        disk.crash();
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        let events = run(&mut store, &mut disk, &mut out, 9);
        assert_eq!(events[0], Event::Ready { is_clean: false }, "nothing is damaged");
        let found: Vec<u8> = store.take_opaque().iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(found, (1..=appended).collect::<Vec<_>>());
    }
}

/// Room that was promised is there, also where the open batch is full and is closed, and filled, before
/// the message.
#[test]
fn a_message_for_which_there_was_room_is_taken() {
    let mut taken = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let settings = Settings {
            batch_bytes_max: 1024,
            fill_bytes_min: 512,
            segments_max: 6,
            write_bytes_min: 1 << 20,
            ..settings()
        };
        let mut disk = Disk::new(seed);
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        run(&mut store, &mut disk, &mut out, 1);
        let lane = store.lane(Lane::of(QueueId(1)));
        let (mut seq, mut refused) = (0, 0);
        while refused < 4 {
            let body = vec![0; 100 + rng.below(2_000) as usize];
            let message =
                Message { exchange: b"", routing_key: b"q", properties: &[], body: &body };
            let place = Place { lane, seq, deadline_millis: 0 };
            if store.has_room(body.len() + 64) {
                let result = store.append(&message, &[place]);
                assert!(result.is_ok(), "seed {seed}, message {seq} of {}: {result:?}", body.len());
                (seq, taken) = (seq + 1, taken + 1);
            } else {
                refused += 1;
                store.flush(Now::from_millis(seq), &mut out);
                run(&mut store, &mut disk, &mut out, seq);
            }
        }
    }
    assert!(taken > 1_000, "{taken}");
}

/// Whichever of the two root records is damaged: the one that is left may tell of an orderly end after
/// which messages were delivered.
#[test]
fn beside_a_damaged_root_record_no_end_counts_as_orderly() {
    for index in 0..2 {
        let mut disk = filled(3);
        let (mut store, mut out, _) = open(&mut disk);
        store.close();
        while !store.is_closed() {
            store.flush(Now::from_millis(500), &mut out);
            store.work(Now::from_millis(500), &mut out);
            run(&mut store, &mut disk, &mut out, 500);
        }
        let (_, _, events) = open(&mut disk);
        assert_eq!(events[0], Event::Ready { is_clean: true });
        disk.crash();
        disk.flip(File::Root(LOG), index * 4096 + 20, 1);
        let (mut store, mut out, events) = open(&mut disk);
        assert!(events.contains(&Event::Ready { is_clean: false }), "{index}: {events:?}");
        let lane = store.lane(Lane::of(QueueId(1)));
        let mut entries = Vec::new();
        while !store.is_fetched(lane) {
            let _ = store.fetch(lane, 100, &mut entries, &mut out);
            run(&mut store, &mut disk, &mut out, 600);
        }
        assert_eq!(entries.len(), 60);
        assert!(entries.iter().all(|entry| store.is_redelivered(lane, entry.seq)));
    }
}

/// Without a checkpoint, damage to the last batch of a segment takes nothing of that batch with it that is
/// whole, and is reported, whether or not the segment behind it is still there.
#[test]
fn damage_to_the_last_batch_of_a_segment_costs_a_rebuild_nothing_beside_it() {
    for (is_followed, place) in
        [true, false].into_iter().flat_map(|is| [None, Some(0), Some(1)].map(|place| (is, place)))
    {
        let mut disk = Disk::new(1);
        let (mut store, mut out, _) = open(&mut disk);
        let lane = store.lane(Lane::of(QueueId(1)));
        for seq in 0..60 {
            let body = [seq as u8; 300];
            let message =
                Message { exchange: b"", routing_key: b"k", properties: &[], body: &body };
            let place = Place { lane, seq, deadline_millis: 0 };
            while store.append(&message, &[place]).is_err() {
                store.flush(Now::from_millis(seq), &mut out);
                run(&mut store, &mut disk, &mut out, seq);
            }
            if seq % 6 == 5 {
                store.want_durable();
                store.flush(Now::from_millis(seq), &mut out);
                run(&mut store, &mut disk, &mut out, seq);
            }
        }
        disk.crash();
        let files = disk.files().map(|(file, _)| file);
        let segments = files.filter(|file| matches!(file, File::Segment(..)));
        let generation = |file: File| disk.data(file).map_or(0, |data| data[16]);
        let mut segments: Vec<_> = segments.map(|file| (generation(file), file)).collect();
        segments.retain(|(generation, _)| *generation > 0);
        segments.sort_unstable();
        assert!(segments.len() > 2, "{segments:?}");
        let (hit, behind) = (segments[0].1, segments[1].1);
        let (mut batch, mut batches, mut records) = (0, 0, Vec::new());
        inspect::segment(Keys::none(LOG), disk.data(hit).unwrap(), |part| match part {
            inspect::Part::Batch(found) => {
                (batch, batches, records) = (found.offset, batches + 1, Vec::new());
            }
            inspect::Part::Record(offset, inspect::Content::Message(message)) => {
                records.push((offset, message.references[0].seq));
            }
            _ => {}
        });
        assert!(batches > 1 && records.len() > 1, "{batches} {records:?}");
        let mut expected: Vec<u64> = (0..60).collect();
        match place {
            // The header of the batch.
            Some(0) => disk.flip(hit, batch as usize + 9, 1),
            // One of its messages.
            Some(_) => {
                disk.flip(hit, records[1].0 as usize + 100, 1);
                expected.retain(|seq| *seq != records[1].1);
            }
            None => {}
        }
        if !is_followed {
            let bytes = disk.data(behind).unwrap();
            inspect::segment(Keys::none(LOG), bytes, |part| {
                if let inspect::Part::Record(_, inspect::Content::Message(message)) = part {
                    expected.retain(|seq| *seq != message.references[0].seq);
                }
            });
            disk.put(behind, vec![0; 8192]);
        }
        disk.put(File::Root(LOG), vec![1; 8192]);
        let (mut store, mut out, events) = open(&mut disk);
        let is_reported = events
            .iter()
            .any(|event| matches!(event, Event::Damaged(damage) if damage.file == hit));
        assert_eq!(is_reported, place.is_some(), "{is_followed} {place:?}: {events:?}");
        let lane = store.lane(Lane::of(QueueId(1)));
        let mut entries = Vec::new();
        while !store.is_fetched(lane) {
            let _ = store.fetch(lane, 100, &mut entries, &mut out);
            run(&mut store, &mut disk, &mut out, 600);
        }
        let found: Vec<u64> = entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(found, expected, "{is_followed} {place:?}");
    }
}

/// A segment is written to only when the one before it is synced to its end, though the batch that begins
/// it may have been put together earlier, and cannot say so: damage at that end is no torn tail.
#[test]
fn damage_at_the_end_of_a_segment_is_told_by_the_next_one_there_is() {
    let settings = Settings { batch_bytes_max: 1024, ..settings() };
    let mut disk = Disk::new(1);
    let mut out = Operations::default();
    let mut store = Store::open(settings, &mut out);
    run(&mut store, &mut disk, &mut out, 1);
    for _ in 0..8 {
        store.flush(Now::from_millis(1), &mut out);
        run(&mut store, &mut disk, &mut out, 1);
    }
    let mut places = Vec::new();
    for part in 1..=4 {
        let at = store.append_opaque(&[part; 3_000]).expect("room");
        places.push((place::generation(at), offset(at)));
        if part == 2 {
            // Its sync is under way while the next segment's batch is closed.
            store.want_synced();
            store.flush(Now::from_millis(2), &mut out);
        }
    }
    assert_eq!(places[1].0 + 1, places[2].0, "{places:?}");
    run(&mut store, &mut disk, &mut out, 2);
    let has = |disk: &Disk, file: File, part: u8| {
        disk.data(file).is_some_and(|data| data.windows(99).any(|bytes| bytes == [part; 99]))
    };
    let file_of = |disk: &Disk, part: u8| {
        disk.files().map(|(file, _)| file).find(|file| has(disk, *file, part))
    };
    // The fourth is still in memory when the process ends.
    store.want_synced();
    for millis in 3..9 {
        if file_of(&disk, 3).is_none() {
            store.flush(Now::from_millis(millis), &mut out);
            run(&mut store, &mut disk, &mut out, millis);
        }
    }
    assert!(file_of(&disk, 3).is_some() && file_of(&disk, 4).is_none());
    let file = file_of(&disk, 2).expect("it was written");
    disk.flip(file, places[1].1 as usize + 1_000, 3);
    let (mut store, _, events) = open(&mut disk);
    assert!(events.iter().any(|event| matches!(event, Event::Damaged(_))), "{events:?}");
    let found: Vec<u8> = store.take_opaque().iter().map(|(_, bytes)| bytes[0]).collect();
    assert_eq!(found, [1, 3]);
}

/// The disk is slow, so that many batches wait for it in a row: each of them is known by what names it
/// later, whichever of them is damaged. Only the last one looks like a write that did not end.
#[test]
fn damage_in_front_of_the_last_batch_is_told_from_its_end() {
    const BATCHES: u64 = 20;
    let settings = Settings { batch_bytes_max: 256, segment_bytes: 1 << 16, ..settings() };
    let written = || {
        let mut disk = Disk::new(1);
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        run(&mut store, &mut disk, &mut out, 1);
        for _ in 0..8 {
            store.flush(Now::from_millis(1), &mut out);
            run(&mut store, &mut disk, &mut out, 1);
        }
        let lane = store.lane(Lane::of(QueueId(1)));
        for seq in 0..BATCHES {
            let message =
                Message { exchange: b"e", routing_key: b"k", properties: &[], body: &[7; 300] };
            let place = Place { lane, seq, deadline_millis: 0 };
            store.append(&message, &[place]).expect("room");
        }
        // One is written and synced after the other; all were closed before.
        store.want_durable();
        for millis in 2..100 {
            store.flush(Now::from_millis(millis), &mut out);
            run(&mut store, &mut disk, &mut out, millis);
        }
        assert!(store.durable() >= store.end());
        // No checkpoint says where the log ends.
        disk.put(File::Root(LOG), vec![0; 8192]);
        disk
    };
    let disk = written();
    let is_used = |file: &File| {
        let File::Segment(log, _) = *file else { return false };
        inspect::segment(Keys::none(log), disk.data(*file).expect("it is listed"), |_| ()).batches
            > 1
    };
    let file = disk.files().map(|(file, _)| file).find(is_used).expect("a segment with batches");
    let mut batches = Vec::new();
    inspect::segment(Keys::none(LOG), disk.data(file).expect("it is listed"), |part| {
        if let inspect::Part::Batch(batch) = part {
            let named = if batches.is_empty() { 0 } else { batch.offset };
            assert_eq!(offset(batch.synced), named, "each names the end of the one before it");
            batches.push(batch.offset as usize);
        }
    });
    assert_eq!(batches.len() as u64, BATCHES);
    for (index, &at) in batches.iter().enumerate() {
        for hit in [at + 4, at + 24, at + 40, at + 44, at + 200] {
            let mut disk = written();
            disk.flip(file, hit, 2);
            let mut out = Operations::default();
            let mut store = Store::open(settings, &mut out);
            let events = run(&mut store, &mut disk, &mut out, 1);
            let is_told = events.iter().any(|event| matches!(event, Event::Damaged(_)));
            let is_last = index + 1 == batches.len();
            assert_eq!(is_told, !is_last, "{hit} in batch {index}: {events:?}");
            let lane = store.lane(Lane::of(QueueId(1)));
            // Records are known by checksums of their own: a damaged header costs none.
            let lost = u64::from(is_last || hit == at + 200);
            assert_eq!(store.count(lane).0, BATCHES - lost, "{hit} in batch {index}");
        }
    }
}

/// What is held together is whole after a loss of power, or not there at all, also where more was
/// announced than a segment has.
#[test]
fn what_was_held_together_is_found_whole_or_not_at_all() {
    let (mut nothing, mut everything) = (0, 0);
    for seed in 0..200 {
        let settings = Settings { batch_bytes_max: 1024, ..settings() };
        let mut disk = Disk::new(seed);
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        run(&mut store, &mut disk, &mut out, 1);
        for before in 0..seed % 8 {
            while store.append_opaque(&[0; 700]).is_err() {
                store.flush(Now::from_millis(before), &mut out);
                run(&mut store, &mut disk, &mut out, before);
            }
        }
        store.want_synced();
        store.flush(Now::from_millis(10), &mut out);
        run(&mut store, &mut disk, &mut out, 10);
        for _ in 0..3 {
            if store.hold(usize::MAX).is_ok() {
                break;
            }
            store.flush(Now::from_millis(11), &mut out);
            run(&mut store, &mut disk, &mut out, 11);
        }
        for part in 1..=9 {
            store.append_opaque(&[part; 800]).expect("room was made");
        }
        store.want_synced();
        store.flush(Now::from_millis(20), &mut out);
        disk.submit(&mut out.list);
        for _ in 0..seed % 5 {
            let Some(completion) = disk.step() else { break };
            store.complete(Now::from_millis(30), completion, &mut out);
            disk.submit(&mut out.list);
        }
        disk.crash();
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        run(&mut store, &mut disk, &mut out, 40);
        let found = store.take_opaque();
        let parts = found.iter().filter(|(_, bytes)| bytes[0] > 0).count();
        assert!(parts == 0 || parts == 9, "seed {seed}: {parts} of 9");
        *(if parts == 0 { &mut nothing } else { &mut everything }) += 1;
    }
    assert!(nothing > 20 && everything > 20, "{nothing} and {everything}");
}

/// After a failed sync the system shows bytes that it never writes, to the next process, too, whose own
/// sync succeeds: what the next process finds must be there after a loss of power.
#[test]
fn what_a_failed_sync_left_in_memory_is_not_believed_by_the_next_process() {
    let mut lost = 0;
    for seed in 0..40 {
        let mut disk = Disk::new(seed);
        let (mut store, mut out, _) = open(&mut disk);
        while store.append_opaque(&[1; 3_000]).is_err() {
            store.flush(Now::from_millis(1), &mut out);
            run(&mut store, &mut disk, &mut out, 1);
        }
        store.want_synced();
        store.flush(Now::from_millis(1), &mut out);
        run(&mut store, &mut disk, &mut out, 1);
        assert_eq!(store.synced(), store.end());
        disk.faults.sync_error = 1000;
        store.append_opaque(&[2; 3_000]).expect("room");
        store.want_synced();
        store.flush(Now::from_millis(2), &mut out);
        run(&mut store, &mut disk, &mut out, 2);
        assert!(store.synced() < store.end(), "its sync failed");
        disk.faults.sync_error = 0;
        disk.kill();
        let (mut next, _, _) = open(&mut disk);
        let found = next.take_opaque();
        lost += usize::from(found.len() == 1);
        disk.crash();
        let (mut last, ..) = open(&mut disk);
        assert_eq!(last.take_opaque(), found, "seed {seed}");
    }
    assert!(lost > 0, "the sync left something out in some of them");
}

/// The last batch is named by no later batch, but by the checkpoint: it was there.
#[test]
fn a_damaged_last_definition_is_reported_when_a_checkpoint_names_it() {
    let mut disk = Disk::new(11);
    let (mut store, mut out, _) = open(&mut disk);
    for change in [&b"the first change"[..], b"the second change", b"the last change"] {
        while store.append_opaque(change).is_err() {
            store.flush(Now::from_millis(1), &mut out);
            run(&mut store, &mut disk, &mut out, 1);
        }
        store.want_synced();
        store.flush(Now::from_millis(1), &mut out);
        run(&mut store, &mut disk, &mut out, 1);
    }
    store.request_checkpoint();
    store.flush(Now::from_millis(2), &mut out);
    run(&mut store, &mut disk, &mut out, 2);
    disk.crash();
    let is_segment = |file: &File| matches!(file, File::Segment(..));
    let last = disk.files().map(|(file, _)| file).filter(is_segment).find_map(|file| {
        let text = b"the last change";
        let bytes = disk.data(file)?;
        let at = bytes.windows(text.len()).position(|window| window == text)?;
        Some((file, at))
    });
    let (file, at) = last.expect("it is in a segment");
    disk.flip(file, at, 3);
    let (mut store, _, events) = open(&mut disk);
    let damages: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Damaged(damage) => Some(*damage),
            _ => None,
        })
        .collect();
    assert_eq!(damages.len(), 1, "{events:?}");
    let (damage, at) = (damages[0], at as u64);
    assert_eq!(damage.file, file);
    assert!((damage.offset..damage.offset + damage.bytes).contains(&at), "{damage:?} {at}");
    assert_eq!(store.take_opaque().len(), 2);
}

/// A write that fails leaves part of itself. The next start cuts it off; those after it must not
/// take it for damage, though a checkpoint names what was written behind it since.
#[test]
fn a_definition_that_was_cut_off_stays_so_at_every_later_start() {
    for kept in 0..90 {
        let mut disk = Disk::new(kept);
        let (mut store, mut out, _) = open(&mut disk);
        let append = |store: &mut Store, disk: &mut Disk, out: &mut Operations, text: &[u8]| {
            while store.append_opaque(text).is_err() {
                store.flush(Now::from_millis(1), out);
                run(store, disk, out, 1);
            }
            store.want_synced();
            store.flush(Now::from_millis(1), out);
        };
        append(&mut store, &mut disk, &mut out, b"first");
        run(&mut store, &mut disk, &mut out, 1);
        let before = store.end();
        append(&mut store, &mut disk, &mut out, b"a change that fails");
        run(&mut store, &mut disk, &mut out, 1);
        let is_segment = |file: &File| matches!(file, File::Segment(..));
        let file = disk.files().map(|(file, _)| file).filter(is_segment).find(|file| {
            disk.data(*file).is_some_and(|bytes| bytes.windows(5).any(|text| text == b"first"))
        });
        let file = file.expect("a segment");
        let mut bytes = disk.data(file).expect("a segment").to_vec();
        let start = offset(before) as usize + kept as usize;
        bytes[start..].fill(0);
        disk.put(file, bytes);
        let mut expected = vec![b"first".to_vec()];
        for start in 0..4u8 {
            let (mut store, mut out, events) = open(&mut disk);
            let is_damage = |event: &Event| matches!(event, Event::Damaged(_));
            assert!(!events.iter().any(is_damage), "{kept} bytes, start {start}: {events:?}");
            let found = store.take_opaque().into_iter().map(|(_, bytes)| bytes);
            let found: Vec<Vec<u8>> = found.collect();
            if start == 0 && found.len() == 2 {
                // All that matters of it was written.
                expected.push(b"a change that fails".to_vec());
            }
            assert_eq!(found, expected, "{kept} bytes, start {start}");
            append(&mut store, &mut disk, &mut out, &[start; 30]);
            expected.push(vec![start; 30]);
            run(&mut store, &mut disk, &mut out, 1);
            store.request_checkpoint();
            store.flush(Now::from_millis(2), &mut out);
            run(&mut store, &mut disk, &mut out, 2);
            disk.crash();
        }
    }
}

/// Short lives in a row: each writes something that is not synced, makes a checkpoint or not, has
/// a next segment prepared, and loses its power. What is torn by that is no damage, at any start.
#[test]
fn what_was_never_synced_is_no_damage_at_any_later_start() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut disk = Disk::new(seed);
        let mut seq = 0;
        for life in 0..6u8 {
            let mut out = Operations::default();
            let settings = Settings { sync: SyncMode::Interval, ..settings() };
            let mut store = Store::open(settings, &mut out);
            let events = run(&mut store, &mut disk, &mut out, 1);
            let is_damage = |event: &Event| matches!(event, Event::Damaged(_));
            assert!(!events.iter().any(is_damage), "seed {seed}, life {life}: {events:?}");
            let lane = store.lane(Lane::of(QueueId(1)));
            for action in 0..6 {
                let body = vec![life; rng.below(3000) as usize];
                let message =
                    Message { exchange: b"e", routing_key: b"k", properties: &[], body: &body };
                let place = Place { lane, seq, deadline_millis: 0 };
                seq += u64::from(store.append(&message, &[place]).is_ok());
                if rng.chance(1, 4) {
                    store.request_checkpoint();
                }
                store.want_durable();
                store.flush(Now::from_millis(2 + action), &mut out);
                for _ in 0..rng.below(12) {
                    disk.submit(&mut out.list);
                    let Some(completion) = disk.step() else { break };
                    store.complete(Now::from_millis(2 + action), completion, &mut out);
                    store.flush(Now::from_millis(2 + action), &mut out);
                }
            }
            disk.crash();
        }
    }
}

/// Goes through all files as `lepus store check` does; gaps found in segments.
fn inspect_all(disk: &Disk) -> usize {
    let mut gaps = 0;
    for (file, _) in disk.files() {
        let bytes = disk.data(file).unwrap_or_default();
        match file {
            File::Segment(log, _) => {
                let mut parts = 0;
                let report = inspect::segment(Keys::none(log), bytes, |_| parts += 1);
                assert!(parts >= report.batches + report.records);
                gaps += report.gaps.len();
            }
            File::Root(log) => {
                let Some(root) = inspect::root(bytes).valid else { continue };
                let file = File::Checkpoint(log, root.number);
                let _ = inspect::checkpoint(disk.data(file).unwrap_or_default(), &root);
            }
            File::Index(_) => {
                for (number, page) in bytes.chunks(inspect::PAGE_BYTES).enumerate() {
                    let _ = inspect::is_page_whole(number as u32, page);
                }
            }
            File::Checkpoint(..) => {}
        }
    }
    gaps
}

#[test]
fn inspection_finds_every_message_and_the_place_that_is_damaged() {
    let mut disk = filled(1);
    let (mut numbers, mut bodies) = (Vec::new(), Vec::new());
    let files: Vec<File> = disk.files().map(|(file, _)| file).collect();
    for file in &files {
        let File::Segment(log, _) = *file else { continue };
        let bytes = disk.data(*file).unwrap_or_default().to_vec();
        inspect::segment(Keys::none(log), &bytes, |part| {
            if let inspect::Part::Record(offset, inspect::Content::Message(message)) = part {
                bodies.push((*file, offset));
                assert_eq!(message.names, Some((&b"e"[..], &b"k"[..])));
                assert_eq!(message.body, [message.references[0].seq as u8; 300]);
                numbers.push(message.references[0].seq);
            }
        });
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..60).collect::<Vec<_>>());
    assert_eq!(inspect_all(&disk), 0);
    let (file, at) = bodies[20];
    disk.flip(file, at as usize + 100, 1);
    assert_eq!(inspect_all(&disk), 1);
}

#[test]
fn inspection_of_arbitrary_bytes_never_panics() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut disk = filled(seed % 3);
        let files: Vec<_> = disk.files().collect();
        for _ in 0..1 + rng.below(20) {
            let (file, length) = files[rng.below(files.len() as u64) as usize];
            let mut bytes = disk.data(file).unwrap_or_default().to_vec();
            let start = rng.below(length + 1) as usize;
            let end = (start + rng.below(200) as usize).min(bytes.len());
            rng.fill(&mut bytes[start.min(end)..end]);
            if rng.chance(1, 5) {
                bytes.truncate(end);
            }
            disk.put(file, bytes);
        }
        inspect_all(&disk);
    }
}

/// A purge says numbers, and not all of them need be messages of the lane.
#[test]
fn messages_behind_a_purge_are_counted_right_after_a_crash() {
    for index_pages_max in [0, 100] {
        let mut disk = Disk::new(5);
        let settings = Settings { index_pages_max, segment_bytes: 1 << 18, ..settings() };
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        run(&mut store, &mut disk, &mut out, 1);
        let lane = store.lane(Lane::of(QueueId(1)));
        let mut number = 0;
        // Numbers with gaps, over several pages of the index.
        for seq in (0..9000u64).step_by(3) {
            let body = [1; 9];
            let body = &body[..(seq % 7) as usize];
            let message = Message { exchange: b"e", routing_key: b"k", properties: &[], body };
            let place = Place { lane, seq, deadline_millis: 0 };
            while store.append(&message, &[place]).is_err() {
                store.flush(Now::from_millis(seq), &mut out);
                run(&mut store, &mut disk, &mut out, seq);
            }
            number += 1;
        }
        store.request_checkpoint();
        for millis in 9000..9010 {
            store.want_durable();
            store.flush(Now::from_millis(millis * 10), &mut out);
            store.work(Now::from_millis(millis * 10), &mut out);
            run(&mut store, &mut disk, &mut out, millis * 10);
        }
        let kept = [300, 303, 6000];
        store.purge(lane, 7001, &kept);
        store.want_durable();
        store.flush(Now::from_millis(200_000), &mut out);
        run(&mut store, &mut disk, &mut out, 200_000);
        let left = number - 7001u64.div_ceil(3) + kept.len() as u64;
        disk.crash();
        let mut out = Operations::default();
        let mut store = Store::open(settings, &mut out);
        let events = run(&mut store, &mut disk, &mut out, 1);
        assert!(events.contains(&Event::Ready { is_clean: false }), "{events:?}");
        let lane = store.lane(Lane::of(QueueId(1)));
        assert_eq!(store.count(lane).0, left);
    }
}

/// A file may be as long as the disk and say nothing.
#[test]
fn no_more_of_a_file_is_read_than_a_segment_has() {
    let mut out = Operations::default();
    let mut store = Store::open(settings(), &mut out);
    let file = File::Segment(LOG, 7);
    let mut longest = 0;
    while let Some(operation) = out.list.pop() {
        let completion = match operation.action {
            Action::List(_) => {
                Completion { files: vec![(file, 1 << 40)], ..Completion::done(operation.id, 0) }
            }
            Action::Read { length, .. } => {
                longest = longest.max(length as u64);
                let bytes = vec![7; length.min(1 << 20)];
                Completion { bytes, ..Completion::done(operation.id, length) }
            }
            // Everything is read by then.
            _ => break,
        };
        store.complete(Now::from_millis(1), completion, &mut out);
    }
    assert!(longest > 8192 && longest <= inspect::SEGMENT_BYTES_MAX, "{longest}");
}
