//! A broker that was just started, a client of it, and what the operations cost it.

use super::Cost;
use crate::bench::place::{Place, goes_on};
use crate::stop::Stop;
use crate::subject::{Kind, Subject};
use lepus_amqp::Method;
use lepus_amqp::client::{ClientEvent, encode_publish};
use lepus_amqp::method::{basic, queue};
use lepus_amqp::{Table, TableRef};
use lepus_probe::Client;
use lepus_probe::procfs;
use std::io;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a broker may take to come to rest, and a queue to get its messages.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks at whether the broker rests.
const LOOK: Duration = Duration::from_millis(150);
/// A broker rests that takes no more than this share of a CPU, in two looks that follow each other.
const REST_SHARE: f64 = 0.02;
/// Between two questions whether a queue has its messages.
const ASK: Duration = Duration::from_millis(20);
/// Bytes that are sent together.
const OUTPUT_BYTES: usize = 64 * 1024;
const FRAME_MAX: u32 = 131_072;
/// The client's channel: the one that a subject's client begins with.
const CHANNEL: u16 = 1;
/// Answers that are awaited together.
const BATCH: u64 = 500;

/// One broker under load.
pub struct Load {
    subject: Subject,
    peer: Client<TcpStream>,
    began: Option<Began>,
    /// Whether somebody wants the whole to end.
    stop: Stop,
}

/// What was read before the operations.
#[derive(Clone, Copy, Debug)]
struct Began {
    cpu_nanos: u64,
    resident: u64,
}

/// What is published.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The exchange.
    pub exchange: &'a str,
    /// The routing key.
    pub key: &'a str,
    /// The properties in wire form.
    pub properties: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

impl Load {
    /// Starts the broker, runs `act`, which says how many operations it did since it called [`Load::begin`],
    /// and says what each of them cost.
    ///
    /// # Errors
    /// When the broker does not start, refuses something or comes to no rest.
    pub fn on(
        kind: Kind,
        place: &Place,
        core: usize,
        act: impl FnOnce(&mut Load) -> io::Result<u64> + Send,
    ) -> io::Result<Cost> {
        let subject = place.start(kind)?;
        let work = || {
            crate::affinity::restrict_thread(&[core])?;
            let peer = connect(&subject)?;
            let mut load = Load { subject, peer, began: None, stop: place.stop.clone() };
            let operations = act(&mut load)?;
            load.end(operations)
        };
        std::thread::scope(|scope| {
            let worker = scope.spawn(work);
            worker.join().unwrap_or_else(|_| Err(io::Error::other("the client's thread ended")))
        })
    }

    /// Everything is prepared: the operations begin.
    ///
    /// # Errors
    /// When the broker comes to no rest.
    pub fn begin(&mut self) -> io::Result<()> {
        self.peer.flush()?;
        let cpu_nanos = self.rest()?;
        let resident = self.subject.read()?.resident_bytes;
        self.began = Some(Began { cpu_nanos, resident });
        Ok(())
    }

    fn end(mut self, operations: u64) -> io::Result<Cost> {
        let began = self.began.ok_or_else(|| io::Error::other("a curve that never begins"))?;
        let cpu_nanos = self.rest()?.saturating_sub(began.cpu_nanos);
        let resident = self.subject.read()?.resident_bytes;
        if operations == 0 {
            return Err(io::Error::other("nothing was done"));
        }
        Ok(Cost {
            micros: cpu_nanos as f64 / 1e3 / operations as f64,
            grown_mb: (resident as f64 - began.resident as f64) / 1e6,
        })
    }

    /// Waits until the broker rests. Its nanoseconds of CPU then.
    fn rest(&mut self) -> io::Result<u64> {
        let start = Instant::now();
        let mut last = procfs::cpu_nanos(self.subject.seen_pid()?)?;
        let mut calm = 0;
        while start.elapsed() < PATIENCE {
            goes_on(&self.stop)?;
            let looked = Instant::now();
            sleep(LOOK);
            let now = procfs::cpu_nanos(self.subject.seen_pid()?)?;
            let share = now.saturating_sub(last) as f64 / looked.elapsed().as_nanos() as f64;
            calm = if share < REST_SHARE { calm + 1 } else { 0 };
            last = now;
            if calm == 2 {
                return Ok(now);
            }
        }
        Err(io::Error::other("the broker comes to no rest"))
    }

    /// The client, for what there is no word for here.
    pub fn peer(&mut self) -> &mut Client<TcpStream> {
        &mut self.peer
    }

    /// A further client.
    ///
    /// # Errors
    /// When it cannot log in.
    pub fn connect(&self) -> io::Result<Client<TcpStream>> {
        connect(&self.subject)
    }

    /// Declares a queue.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn declare(&mut self, name: &str, arguments: &Table) -> io::Result<()> {
        let encoded = arguments.to_bytes();
        let declare =
            queue::Declare { queue: name, arguments: encoded.as_ref(), ..Default::default() };
        self.peer.send(CHANNEL, declare);
        self.peer.expect("queue.declare-ok")
    }

    /// Sends `count` methods and awaits as many answers of this name, some hundred at a time.
    ///
    /// # Errors
    /// When something else comes.
    pub fn ask_each(
        &mut self,
        count: u64,
        answer: &str,
        mut ask: impl FnMut(&mut Client<TcpStream>, u16, u64),
    ) -> io::Result<()> {
        for first in (0..count).step_by(BATCH as usize) {
            goes_on(&self.stop)?;
            let end = count.min(first + BATCH);
            for number in first..end {
                ask(&mut self.peer, CHANNEL, number);
            }
            for _ in first..end {
                self.peer.expect(answer)?;
            }
        }
        Ok(())
    }

    /// Asks once, and waits for the answer.
    ///
    /// # Errors
    /// When something else comes.
    pub fn ask<'a>(&mut self, method: impl Into<Method<'a>>, answer: &str) -> io::Result<()> {
        self.peer.send(CHANNEL, method);
        self.peer.expect(answer)
    }

    /// Publishes without confirms. The broker may not have it all when this returns.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn publish(&mut self, message: Message<'_>) -> io::Result<()> {
        let Message { exchange, key, properties, body } = message;
        let output = self.peer.output();
        encode_publish(output, CHANNEL, FRAME_MAX, exchange, key, false, properties, body);
        match self.peer.output().len() > OUTPUT_BYTES {
            true => goes_on(&self.stop).and_then(|()| self.peer.flush()),
            false => Ok(()),
        }
    }

    /// Waits until the queue has so many messages.
    ///
    /// # Errors
    /// When it does not get them.
    pub fn await_count(&mut self, name: &str, count: u64) -> io::Result<()> {
        let start = Instant::now();
        loop {
            goes_on(&self.stop)?;
            let declare = queue::Declare { queue: name, passive: true, ..Default::default() };
            let found = self.peer.count(CHANNEL, declare)?;
            if found == count {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("{name} has {found} messages, not {count}")));
            }
            sleep(ASK);
        }
    }

    /// Takes so many messages of a queue with a consumer that acknowledges nothing.
    ///
    /// # Errors
    /// When they do not come.
    pub fn consume(&mut self, name: &str, count: u64) -> io::Result<()> {
        let consume = basic::Consume {
            queue: name,
            no_ack: true,
            arguments: TableRef::default(),
            ..Default::default()
        };
        self.peer.send(CHANNEL, consume);
        self.peer.flush()?;
        for _ in 0..count {
            self.await_message()?;
        }
        Ok(())
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn await_message(&mut self) -> io::Result<()> {
        self.peer.wait(|event| matches!(event, ClientEvent::Content { .. }).then_some(()))
    }
}

fn connect(subject: &Subject) -> io::Result<Client<TcpStream>> {
    let peer = subject.peer()?;
    peer.stream().set_read_timeout(Some(PATIENCE))?;
    Ok(peer)
}
