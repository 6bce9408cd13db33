//! The record at one place of a segment, looked at from outside, whatever its bytes are.

use lepus_base::{Now, QueueId};
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::inspect::{self, Content, Fault, Part};
use lepus_store::simulation::Disk;
use lepus_store::{Keys, Lane, Message, Place, Settings, Store};

const LOG: LogId = LogId(3);

fn run(store: &mut Store, disk: &mut Disk, out: &mut Operations) {
    store.flush(Now::from_millis(5), out);
    loop {
        disk.submit(&mut out.list);
        let Some(completion) = disk.step() else { return };
        store.complete(Now::from_millis(5), completion, out);
        store.flush(Now::from_millis(5), out);
    }
}

/// A segment's bytes up to where it was written, and where its messages are.
struct Written {
    generation: u32,
    bytes: Vec<u8>,
    messages: Vec<(u32, Vec<u8>)>,
}

fn written() -> Written {
    let (mut disk, mut out) = (Disk::new(0), Operations::default());
    let settings = Settings { segment_bytes: 8192, index_pages_max: 0, ..Settings::new(LOG) };
    let mut store = Store::open(settings, &mut out);
    run(&mut store, &mut disk, &mut out);
    let lane = store.lane(Lane::of(QueueId(5)));
    for seq in 0..12 {
        let body = format!("the body of message {seq}");
        let message = Message {
            exchange: b"amq.topic",
            routing_key: if seq % 3 == 0 { b"a.b" } else { b"c" },
            properties: &[0x10, 0, 2],
            body: body.as_bytes(),
        };
        store.append(&message, &[Place { lane, seq, deadline_millis: 0 }]).expect("room");
        if seq % 4 == 3 {
            store.want_durable();
            run(&mut store, &mut disk, &mut out);
        }
    }
    let segments = disk.files().map(|(file, _)| file);
    let files: Vec<File> = segments.filter(|file| matches!(file, File::Segment(..))).collect();
    for file in files {
        let bytes = disk.data(file).expect("a file").to_vec();
        let mut messages = Vec::new();
        let report = inspect::segment(Keys::none(LOG), &bytes, |part| {
            if let Part::Record(offset, Content::Message(message)) = part {
                messages.push((offset, message.body.to_vec()));
            }
        });
        if messages.len() == 12 {
            let generation = report.generation.expect("it is used");
            let bytes = bytes[..report.end as usize].to_vec();
            return Written { generation, bytes, messages };
        }
    }
    panic!("the messages are nowhere");
}

#[test]
fn a_whole_record_is_told_with_what_it_says() {
    let Written { generation, bytes, messages } = written();
    let mut lent = 0;
    for (offset, body) in &messages {
        let report = inspect::record_at(Keys::none(LOG), generation, &bytes, *offset);
        assert_eq!(report.fault, None);
        let message = report.message.expect("a message");
        assert_eq!(message.body, body);
        assert!(message.names.is_some());
        if let Some(lender) = report.lender {
            assert_eq!(inspect::record_at(Keys::none(LOG), generation, &bytes, lender).fault, None);
            lent += 1;
        }
    }
    assert_eq!(lent, 10, "all but the first of both keys");
    let behind = inspect::record_at(Keys::none(LOG), generation, &bytes, bytes.len() as u32);
    assert_eq!((behind.fault, behind.bytes.len()), (Some(Fault::Missing), 0));
}

#[test]
fn whichever_bit_is_turned_over_the_record_there_has_a_fault_and_all_others_have_none() {
    let Written { generation, bytes, messages } = written();
    let lengths: Vec<usize> = messages
        .iter()
        .map(|(offset, _)| {
            inspect::record_at(Keys::none(LOG), generation, &bytes, *offset).bytes.len()
        })
        .collect();
    let mut checksums = 0;
    for at in messages[0].0 as usize..bytes.len() {
        for bit in [0, 5] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            for ((offset, _), length) in messages.iter().zip(&lengths) {
                let place = *offset as usize..*offset as usize + length;
                let report = inspect::record_at(Keys::none(LOG), generation, &bytes, *offset);
                assert_eq!(report.fault.is_some(), place.contains(&at), "{at} {offset}");
                if report.fault == Some(Fault::Checksum) {
                    // All of it, and nothing of what follows.
                    assert_eq!(report.bytes.len(), *length, "{at} {offset}");
                    checksums += 1;
                }
            }
        }
    }
    assert!(checksums > 500, "{checksums}");
}

#[test]
fn damaged_records_of_a_damaged_batch_are_found_and_no_others() {
    let Written { generation, bytes, messages } = written();
    for (number, (offset, body)) in messages.iter().enumerate() {
        let mut bytes = bytes.clone();
        let report = inspect::record_at(Keys::none(LOG), generation, &bytes, *offset);
        let at = *offset as usize + report.bytes.len() - body.len();
        bytes[at] ^= 1;
        let gaps = inspect::segment(Keys::none(LOG), &bytes, |_| ()).gaps;
        assert_eq!(gaps.len(), 1, "{number}");
        let found = inspect::damaged_records(Keys::none(LOG), generation, &bytes, gaps[0]);
        assert_eq!(found, [*offset], "{number}");
        // All of a batch that is gone is one place.
        bytes[gaps[0].offset as usize..][..gaps[0].bytes as usize].fill(0);
        let gaps = inspect::segment(Keys::none(LOG), &bytes, |_| ()).gaps;
        let found = gaps
            .first()
            .map(|gap| inspect::damaged_records(Keys::none(LOG), generation, &bytes, *gap));
        assert!(found.is_none_or(|found| found.len() == 1), "{number}");
    }
    for begin in 0..200 {
        for length in [0, 1, 100, u32::MAX] {
            let gap = inspect::Gap { offset: begin * 7, bytes: length };
            let _ = inspect::damaged_records(Keys::none(LOG), generation, &bytes, gap);
        }
    }
}

#[test]
fn no_place_and_no_bytes_make_it_panic() {
    let Written { generation, bytes, messages } = written();
    for offset in 0..bytes.len() as u32 + 100 {
        let is_message = messages.iter().any(|(at, _)| *at == offset);
        let report = inspect::record_at(Keys::none(LOG), generation, &bytes, offset);
        assert_eq!(report.fault.is_none(), is_message, "{offset}");
        // Of another generation nothing is whole.
        assert!(
            inspect::record_at(Keys::none(LOG), generation + 1, &bytes, offset).fault.is_some()
        );
    }
    for length in 0..300 {
        let _ = inspect::record_at(Keys::none(LOG), generation, &bytes[..length], 112);
        let _ = inspect::record_at(Keys::none(LOG), generation, &vec![0xFF; length], u32::MAX);
        let _ = inspect::record_at(Keys::none(LOG), generation, &vec![0x11; length], 0);
    }
}
