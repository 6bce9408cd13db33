//! The load of the null relay: publish frames as fast as they are taken, on one connection, and a
//! reader that counts what arrives on the other.

use lepus_amqp::Method;
use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::basic;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that one write hands over.
const WRITE_BYTES: usize = 64 * 1024;

/// What the load saw.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Messages that came out of the relay.
    pub messages: u64,
    /// Seconds from the first byte sent until the last byte came.
    pub seconds: f64,
}

/// `count` publishes of `body_bytes` each, as a client sends them.
pub fn publishes(body_bytes: usize, count: usize) -> Vec<u8> {
    let mut one = Vec::new();
    let publish =
        basic::Publish { exchange: "", routing_key: "relay", mandatory: false, immediate: false };
    Method::from(publish).encode_frame(1, &mut one);
    let mut header = vec![0, 60, 0, 0];
    header.extend((body_bytes as u64).to_be_bytes());
    header.extend([0x10, 0, 1]);
    frame::write_frame(&mut one, FrameKind::Header, 1, &header);
    frame::write_frame(&mut one, FrameKind::Body, 1, &vec![b'x'; body_bytes]);
    one.repeat(count)
}

/// Sends for `duration` to `port` and reads from the port behind it until all has come.
///
/// # Errors
/// When a connection fails.
pub fn run(port: u16, body_bytes: usize, duration: Duration) -> io::Result<Arrived> {
    let one = publishes(body_bytes, 1).len();
    let batch = publishes(body_bytes, (WRITE_BYTES / one).max(1));
    let mut sender = TcpStream::connect(("127.0.0.1", port))?;
    let mut receiver = TcpStream::connect(("127.0.0.1", port + 1))?;
    sender.set_nodelay(true)?;
    receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
    let done = Arc::new(AtomicBool::new(false));
    let seen_done = Arc::clone(&done);
    let start = Instant::now();
    let reader = std::thread::spawn(move || -> io::Result<(u64, Instant)> {
        let mut scratch = vec![0; WRITE_BYTES];
        let (mut bytes, mut last) = (0_u64, Instant::now());
        loop {
            match receiver.read(&mut scratch) {
                Ok(0) => return Ok((bytes, last)),
                Ok(count) => {
                    bytes += count as u64;
                    last = Instant::now();
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if seen_done.load(Ordering::Relaxed) {
                        return Ok((bytes, last));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    });
    while start.elapsed() < duration {
        sender.write_all(&batch)?;
    }
    done.store(true, Ordering::Relaxed);
    let (bytes, last) = reader.join().map_err(|_| io::Error::other("the reader failed"))??;
    Ok(Arrived { messages: bytes / one as u64, seconds: last.duration_since(start).as_secs_f64() })
}
