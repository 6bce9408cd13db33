//! Counters of messages, and the page on which the null programs show them.
//!
//! The page has the names of the Prometheus metrics that RabbitMQ and lepus have, so that one reader
//! serves all of them; LavinMQ has names of its own.

use crate::metrics::{ACKNOWLEDGED, Counts, DELIVERED, RECEIVED};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that one thread raises and the page's thread reads.
#[derive(Debug, Default)]
pub struct Shared {
    received: AtomicU64,
    delivered: AtomicU64,
    acknowledged: AtomicU64,
}

impl Shared {
    /// Publishes the counts; called once per cycle, not per message.
    pub fn set(&self, counts: Counts) {
        self.received.store(counts.received, Ordering::Relaxed);
        self.delivered.store(counts.delivered, Ordering::Relaxed);
        self.acknowledged.store(counts.acknowledged, Ordering::Relaxed);
    }

    fn page(&self) -> String {
        let mut page = String::new();
        for (name, counter) in [
            (RECEIVED, &self.received),
            (DELIVERED, &self.delivered),
            (ACKNOWLEDGED, &self.acknowledged),
        ] {
            let value = counter.load(Ordering::Relaxed);
            page.push_str(&format!("{name} {value}\n"));
        }
        page
    }
}

/// Answers every request on `port` with the counters, on a thread of its own.
///
/// # Errors
/// When the port cannot be listened on.
pub fn serve(port: u16, shared: Arc<Shared>) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that goes away early does not concern the others.
            let _ = stream.and_then(|stream| answer(stream, &shared));
        }
    });
    Ok(())
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut request = [0; 1024];
    let _ = stream.read(&mut request)?;
    let page = shared.page();
    let length = page.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{page}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_can_be_fetched() {
        let shared = Arc::new(Shared::default());
        let counts = Counts { received: 1, delivered: 2, acknowledged: 3, spin_micros: 0 };
        shared.set(counts);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            answer(stream, &shared).unwrap();
        });
        let page = crate::metrics::fetch(address).unwrap();
        server.join().unwrap();
        assert_eq!(Counts::from_metrics(&page), counts);
    }
}
