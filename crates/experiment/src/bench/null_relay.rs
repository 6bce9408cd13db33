//! The least that anything between a publisher and a consumer must do: read publish frames from one
//! connection, find their borders, and write the same frames to another.

use crate::bench::counters::{self, Shared};
use crate::bench::null_broker::content;
use crate::metrics::Counts;
use lepus_perf::to_stderr;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

const INPUT: Token = Token(0);
const OUTPUT: Token = Token(1);
const READ_BYTES_MAX: usize = 64 * 1024;

/// Relays from the first connection on `port` to the first on the port behind it, then waits for
/// the next pair; counters are on `metrics_port`.
///
/// # Errors
/// When a port cannot be listened on.
pub fn run(port: u16, metrics_port: u16) -> io::Result<()> {
    let shared = Arc::new(Shared::default());
    counters::serve(metrics_port, Arc::clone(&shared))?;
    let bind = |port| std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port)));
    let (inputs, outputs) = (bind(port)?, bind(port + 1)?);
    let mut counts = Counts::default();
    loop {
        let (input, output) = (inputs.accept()?.0, outputs.accept()?.0);
        for stream in [&input, &output] {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
        }
        let (input, output) = (TcpStream::from_std(input), TcpStream::from_std(output));
        if let Err(error) = relay(input, output, &mut counts, &shared) {
            to_stderr(format_args!("null relay: {error}"));
        }
    }
}

fn relay(
    mut input: TcpStream,
    mut output: TcpStream,
    counts: &mut Counts,
    shared: &Shared,
) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(8);
    let registry = poll.registry();
    registry.register(&mut input, INPUT, Interest::READABLE)?;
    registry.register(&mut output, OUTPUT, Interest::WRITABLE)?;
    let mut scratch = vec![0; READ_BYTES_MAX];
    // Bytes of an incomplete publish at the start of the scratch.
    let mut held = 0;
    let mut unsent: Vec<u8> = Vec::with_capacity(READ_BYTES_MAX);
    loop {
        let wait = match send(&mut output, &mut unsent)? {
            false => true,
            true => match input.read(&mut scratch[held..]) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    let end = held + count;
                    let whole = copy(&scratch[..end], &mut unsent, counts)?;
                    scratch.copy_within(whole..end, 0);
                    held = end - whole;
                    shared.set(*counts);
                    false
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => true,
                Err(error) => return Err(error),
            },
        };
        if wait {
            match poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => other?,
            }
        }
    }
}

/// Sends what it can; whether all is sent.
fn send(output: &mut TcpStream, unsent: &mut Vec<u8>) -> io::Result<bool> {
    let mut sent = 0;
    while sent < unsent.len() {
        match output.write(&unsent[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    unsent.drain(..sent);
    Ok(unsent.is_empty())
}

/// Copies all whole publishes, each by itself, and says how many bytes they are.
fn copy(bytes: &[u8], out: &mut Vec<u8>, counts: &mut Counts) -> io::Result<usize> {
    let mut at = 0;
    loop {
        let Some(method) = content::frame_bytes(&bytes[at..]).map_err(io::Error::other)? else {
            return Ok(at);
        };
        let rest = &bytes[at + method..];
        let Some(content) = content::measure(rest).map_err(io::Error::other)? else {
            return Ok(at);
        };
        let length = method + content.bytes;
        out.extend_from_slice(&bytes[at..at + length]);
        at += length;
        counts.received += 1;
        counts.delivered += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::relay_load::publishes;

    #[test]
    fn only_whole_publishes_are_copied() {
        let bytes = publishes(16, 2);
        let one = bytes.len() / 2;
        let mut out = Vec::new();
        let mut counts = Counts::default();
        let copied = copy(&bytes[..bytes.len() - 1], &mut out, &mut counts).unwrap();
        assert_eq!((copied, counts.received), (one, 1));
        assert_eq!(out, bytes[..one]);
    }
}
