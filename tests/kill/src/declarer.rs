//! A connection that declares and deletes queues while the disk fails.

use crate::court::{Court, Declared};
use crate::link;
use lepus_amqp::method::queue;
use std::io;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(20);
/// Of so many queues one is deleted again.
const DELETED: usize = 3;

/// The name of one of these queues.
pub fn name(number: usize) -> String {
    format!("kill.new.{number}")
}

/// Declares queues from this number on, until the round finishes or the connection ends.
///
/// # Errors
/// When the connection ends.
pub fn run(first: usize, port: u16, court: &Court) -> io::Result<()> {
    let mut link = link::open(port, 1)?;
    for number in first.. {
        if court.is_finishing() {
            break;
        }
        court.open().declared.push(Declared::Unknown);
        let queue = name(number);
        let declare = queue::Declare { queue: &queue, durable: true, ..Default::default() };
        link.call(1, declare, "queue.declare-ok")?;
        court.open().declared[number] = Declared::There;
        if number % DELETED == 0 {
            court.open().declared[number] = Declared::Unknown;
            let delete = queue::Delete { queue: &queue, ..Default::default() };
            link.call(1, delete, "queue.delete-ok")?;
            court.open().declared[number] = Declared::Gone;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Whether a queue is there; then it is deleted.
///
/// # Errors
/// When the connection ends.
pub fn take_away(number: usize, port: u16) -> io::Result<bool> {
    let mut link = link::open(port, 1)?;
    let queue = name(number);
    let declare = queue::Declare { queue: &queue, passive: true, ..Default::default() };
    if link.call(1, declare, "queue.declare-ok").is_err() {
        return Ok(false);
    }
    let delete = queue::Delete { queue: &queue, ..Default::default() };
    link.call(1, delete, "queue.delete-ok")?;
    Ok(true)
}
