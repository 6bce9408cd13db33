//! What clients said on a channel that waits for an answer, in the order in which they said it.

use alloc::vec::Vec;

use crate::session::Publish;

/// An operation, in its session's own bytes: a length, and these.
const OPERATION: u8 = 0;
/// A publish: flags, lengths, and its parts.
const PUBLISH: u8 = 1;
/// The end of the connection.
const END: u8 = 2;

const MANDATORY: u8 = 1;
const IMMEDIATE: u8 = 2;

/// The first of what is parked.
#[derive(Debug)]
pub(crate) enum Parked<'a> {
    /// What a client asked for, in the bytes in which it came.
    Operation(&'a [u8]),
    /// A message.
    Publish(Publish<'a>),
    /// The connection ended: the channel ends behind what was said before.
    End,
}

/// Parks an operation.
pub(crate) fn park_operation(out: &mut Vec<u8>, frame: &[u8]) {
    out.push(OPERATION);
    append(out, frame);
}

/// Parks a publish.
pub(crate) fn park_publish(out: &mut Vec<u8>, publish: &Publish<'_>) {
    let mandatory = if publish.mandatory { MANDATORY } else { 0 };
    let immediate = if publish.immediate { IMMEDIATE } else { 0 };
    out.extend_from_slice(&[PUBLISH, mandatory | immediate]);
    let names = [publish.exchange.as_bytes(), publish.routing_key.as_bytes()];
    for part in names.into_iter().chain([publish.properties, publish.body]) {
        append(out, part);
    }
}

/// Parks the end of the connection.
pub(crate) fn park_end(out: &mut Vec<u8>) {
    out.push(END);
}

/// What stands at the beginning of `bytes`, and what it takes. `None` at the end.
///
/// # Panics
/// If `bytes` are not what was parked here.
pub(crate) fn first(bytes: &[u8]) -> Option<(Parked<'_>, usize)> {
    let (&kind, mut rest) = bytes.split_first()?;
    let parked = match kind {
        OPERATION => Parked::Operation(take(&mut rest)),
        PUBLISH => {
            let (&flags, parts) = rest.split_first().expect("a publish has flags");
            rest = parts;
            let text = |bytes| core::str::from_utf8(bytes).expect("a name is text");
            Parked::Publish(Publish {
                exchange: text(take(&mut rest)),
                routing_key: text(take(&mut rest)),
                mandatory: flags & MANDATORY != 0,
                immediate: flags & IMMEDIATE != 0,
                properties: take(&mut rest),
                body: take(&mut rest),
                packed: None,
            })
        }
        END => Parked::End,
        other => panic!("{other} is no kind of what is parked"),
    };
    Some((parked, bytes.len() - rest.len()))
}

fn append(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&(part.len() as u64).to_le_bytes());
    out.extend_from_slice(part);
}

fn take<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let (length, rest) = bytes.split_first_chunk::<8>().expect("a part has a length");
    let (part, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
    *bytes = rest;
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_parked_comes_back_in_order() {
        let publish = Publish {
            exchange: "x",
            routing_key: "",
            mandatory: false,
            immediate: true,
            properties: &[0, 0],
            body: b"body",
            packed: None,
        };
        let mut bytes = Vec::new();
        park_operation(&mut bytes, b"frame");
        park_publish(&mut bytes, &publish);
        park_end(&mut bytes);
        let (parked, used) = first(&bytes).unwrap();
        assert!(matches!(parked, Parked::Operation(b"frame")));
        let rest = &bytes[used..];
        let (parked, used) = first(rest).unwrap();
        assert!(matches!(parked, Parked::Publish(found) if found == publish));
        let rest = &rest[used..];
        let (parked, used) = first(rest).unwrap();
        assert!(matches!(parked, Parked::End));
        assert!(first(&rest[used..]).is_none());
    }
}
