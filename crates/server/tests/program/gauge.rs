//! The running broker's figures, and what they must be when all clients are gone.

use crate::running::Program;
use crate::session::{Seen, connect};
use lepus_amqp::method::{basic, queue};
use lepus_probe::procfs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long clients that are gone may show.
const PATIENCE: Duration = Duration::from_secs(60);

impl Program {
    /// The metrics page.
    pub fn page(&self) -> String {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// One number of the metrics page.
    pub fn gauge(&self, name: &str) -> u64 {
        let page = self.page();
        let line = page.lines().find(|line| line.split(' ').next() == Some(name));
        let value =
            line.and_then(|line| line.split(' ').nth(1)).unwrap_or_else(|| panic!("{page}"));
        value.parse::<f64>().unwrap() as u64
    }

    /// Resident bytes, and the most there ever were.
    pub fn resident_bytes(&self) -> (u64, u64) {
        let reading = procfs::read(self.id()).unwrap();
        (reading.resident_bytes, procfs::peak_bytes(self.id()).unwrap())
    }

    /// Waits until `condition` holds.
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Program) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < PATIENCE, "never {what}");
            sleep(Duration::from_millis(20));
        }
    }

    /// Another client is served as if nothing had happened.
    pub fn assert_serves(&self) {
        let mut session = connect(self.amqp);
        session.declare("still-here");
        session.consume("still-here", false);
        session.publish(1, "still-here", b"hello");
        session.flush();
        let Seen::Message { tag, body } = session.see() else { panic!("no message") };
        assert_eq!(body, b"hello");
        session.send(1, basic::Ack { delivery_tag: tag, multiple: false });
        let delete = queue::Delete { queue: "still-here", ..Default::default() };
        session.send(1, delete);
        session.flush();
        // The consumer is cancelled with its queue; where memory is short that is said as well.
        loop {
            match session.see() {
                Seen::Method("queue.delete-ok") => break,
                Seen::Method("basic.cancel") | Seen::Blocked(_) | Seen::Unblocked => {}
                seen => panic!("{seen:?}"),
            }
        }
        session.close();
    }

    /// When all clients are gone, nothing of them is left, and hardly any of their memory.
    pub fn assert_calm(&self) {
        for name in ["rabbitmq_connections", "rabbitmq_channels", "rabbitmq_consumers"] {
            self.wait_until(&format!("no {name}"), |program| program.gauge(name) == 0);
        }
        // Spare chunks of the pools stay.
        self.wait_until("little memory used", |program| {
            program.gauge("lepus_memory_used_bytes") < 12 << 20
        });
    }
}
