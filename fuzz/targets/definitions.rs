//! Changes of definitions: whatever is read can be written, read again and applied.
#![no_main]

use lepus_base::HashState;
use lepus_broker::directory::{Change, Directory, Extent, codec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(changes) = decode(bytes) else {
        return;
    };
    let encoded = encode(&changes);
    let again = decode(&encoded).expect("what was written is read");
    assert_eq!(encode(&again), encoded);
    let mut directory = Directory::new(HashState::new(1), 3);
    changes.iter().for_each(|change| directory.replay(change));
    // A directory made of anything can be kept, too.
    let snapshot = directory.snapshot(Extent::Durable);
    let encoded = encode(&snapshot);
    let read = decode(&encoded).expect("a snapshot is read");
    let mut copy = Directory::new(HashState::new(2), 3);
    read.iter().for_each(|change| copy.replay(change));
    // The order of exchanges may be another one, and with it that of bindings.
    assert_eq!(sorted(&copy.snapshot(Extent::Durable)), sorted(&snapshot));
});

fn decode(bytes: &[u8]) -> Result<Vec<Change>, codec::DecodeError> {
    codec::decode_each(bytes, 3).collect()
}

fn sorted(changes: &[Change]) -> Vec<Vec<u8>> {
    let mut list: Vec<Vec<u8>> =
        changes.iter().map(|change| encode(core::slice::from_ref(change))).collect();
    list.sort();
    list
}

fn encode(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    changes.iter().for_each(|change| codec::encode(change, &mut out));
    out
}
