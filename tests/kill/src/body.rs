//! Bodies that tell who published them and show every changed byte.

use lepus_base::Rng;

/// Bytes in front of the filler: publisher and number.
pub const HEAD_BYTES: usize = 12;

/// The body of a publisher's message with this number.
pub fn body(publisher: usize, number: u64) -> Vec<u8> {
    let mut rng = Rng::new((publisher as u64) << 56 ^ number);
    let mut body = vec![0; HEAD_BYTES + filler_bytes(&mut rng)];
    body[..4].copy_from_slice(&(publisher as u32).to_be_bytes());
    body[4..HEAD_BYTES].copy_from_slice(&number.to_be_bytes());
    rng.fill(&mut body[HEAD_BYTES..]);
    body
}

/// Mostly small, sometimes some pages, rarely more than two frames.
fn filler_bytes(rng: &mut Rng) -> usize {
    let bound = match rng.below(1_000) {
        0..750 => 400,
        750..950 => 4_096,
        950..997 => 40_000,
        _ => 300_000,
    };
    rng.below(bound) as usize
}

/// Publisher and number of a body; `None` when a byte of it is not as it was published.
pub fn read(bytes: &[u8]) -> Option<(usize, u64)> {
    let publisher = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let number = u64::from_be_bytes(bytes.get(4..HEAD_BYTES)?.try_into().ok()?);
    (body(publisher, number) == bytes).then_some((publisher, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_back_and_no_changed_one() {
        for number in [0, 1, 77, 1 << 40] {
            let mut bytes = body(3, number);
            assert_eq!(read(&bytes), Some((3, number)));
            bytes.push(0);
            assert_eq!(read(&bytes), None);
            bytes.pop();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            assert_eq!(read(&bytes), None);
        }
        assert_eq!(read(&[1, 2, 3]), None);
    }
}
