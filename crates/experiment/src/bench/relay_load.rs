//! The load of the null relay: publish frames as fast as they are taken, on one connection, and a
//! reader that counts what arrives on the other.

use crate::terminal::say_line;
use lepus_amqp::Method;
use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::basic;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes that one write hands over.
const WRITE_BYTES: usize = 64 * 1024;

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

/// Sends for so many seconds to `port`, reads from the port behind it, and prints a line each second as
/// the load testers do.
///
/// # Errors
/// When a connection fails.
pub fn run(port: u16, body_bytes: usize, seconds: u64) -> io::Result<()> {
    let one = publishes(body_bytes, 1).len();
    let batch = publishes(body_bytes, (WRITE_BYTES / one).max(1));
    let mut sender = TcpStream::connect(("127.0.0.1", port))?;
    let mut receiver = TcpStream::connect(("127.0.0.1", port + 1))?;
    sender.set_nodelay(true)?;
    let start = Instant::now();
    let writer = std::thread::spawn(move || -> io::Result<()> {
        while start.elapsed() < Duration::from_secs(seconds) {
            sender.write_all(&batch)?;
        }
        Ok(())
    });
    let mut scratch = vec![0; WRITE_BYTES];
    let (mut bytes, mut told_bytes, mut told_at) = (0_u64, 0_u64, 0.0);
    loop {
        let count = receiver.read(&mut scratch)?;
        bytes += count as u64;
        let now = start.elapsed().as_secs_f64();
        if now - told_at >= 1.0 || count == 0 {
            let rate = (bytes - told_bytes) as f64 / one as f64 / (now - told_at);
            say_line(format_args!("id: relay, time {now:.3} s, received: {rate:.0} msg/s"));
            (told_bytes, told_at) = (bytes, now);
        }
        if count == 0 {
            break;
        }
    }
    writer.join().map_err(|_| io::Error::other("the writer failed"))?
}
