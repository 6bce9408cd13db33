//! Frames: what is decoded is what was there.
#![no_main]

use lepus_amqp::frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for payload_max in [4096, u32::MAX] {
        if let Ok(Some((decoded, consumed))) = frame::decode(input, payload_max) {
            assert!(decoded.payload.len() <= payload_max as usize);
            let mut again = Vec::new();
            frame::write_frame(&mut again, decoded.kind, decoded.channel, decoded.payload);
            assert_eq!(again, &input[..consumed]);
        }
    }
});
