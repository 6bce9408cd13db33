//! Methods: a decoded method survives encoding and decoding.
#![no_main]

use lepus_amqp::{Method, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let Ok(method) = Method::decode(payload) else {
        return;
    };
    let mut encoded = Vec::new();
    method.encode_frame(7, &mut encoded);
    let (frame, consumed) = frame::decode(&encoded, u32::MAX)
        .expect("an encoded frame is well-formed")
        .expect("an encoded frame is whole");
    assert_eq!(consumed, encoded.len());
    assert_eq!(frame.channel, 7);
    assert_eq!(Method::decode(frame.payload), Ok(method));
});
