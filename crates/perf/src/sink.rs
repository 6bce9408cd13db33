//! The other end of a measurement of the tester itself: takes publishes and feeds deliveries as fast as it can.
//!
//! It agrees to everything, throws messages away, confirms them, and sends each consumer an endless stream of
//! made-up messages, whatever the prefetch. Two threads for each connection: one reads, one feeds its consumers.

use lepus_amqp::frame::HEAD_BYTES;
use lepus_amqp::method::{basic, channel, confirm, exchange, queue, tx};
use lepus_amqp::server::{Event, ServerConnection, ServerOptions, encode_ack, encode_delivery};
use lepus_amqp::{Method, ProtocolError, ReplyCode};
use lepus_base::Instant;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Bytes of deliveries that are made up at once.
const BATCH_BYTES: usize = 64 * 1024;
const EXCHANGE: &[u8] = b"";
const KEY: &[u8] = b"sink";

/// Listens on `port` of this host, 0 for a free one, and serves whoever comes for as long as the process lives.
/// Bodies of deliveries have `body_bytes`. Returns the port.
///
/// # Errors
/// The port cannot be listened on.
pub(crate) fn start(port: u16, body_bytes: usize) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let port = listener.local_addr()?.port();
    let body: Arc<[u8]> = vec![0; body_bytes].into();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let body = Arc::clone(&body);
            thread::spawn(move || {
                // A client that goes away ends its connection and nothing else.
                let _ = serve(socket, &body);
            });
        }
    });
    Ok(port)
}

/// One consumer and the deliveries that it is sent.
struct Consumer {
    batch: Vec<u8>,
    /// Bytes from one delivery tag in `batch` to the next.
    stride: usize,
    tag_at: usize,
    delivered: u64,
}

impl Consumer {
    fn new(channel: u16, tag: &str, frame_max: u32, body: &[u8]) -> Consumer {
        let mut batch = Vec::new();
        while batch.len() < BATCH_BYTES {
            let properties = [0, 0];
            encode_delivery(
                &mut batch,
                channel,
                frame_max,
                tag,
                0,
                false,
                EXCHANGE,
                KEY,
                &properties,
                body,
            );
        }
        let mut one = Vec::new();
        encode_delivery(&mut one, channel, frame_max, tag, 0, false, EXCHANGE, KEY, &[0, 0], body);
        Consumer {
            stride: one.len(),
            batch,
            // Behind class and method stand the consumer tag and its length.
            tag_at: HEAD_BYTES + 4 + 1 + tag.len(),
            delivered: 0,
        }
    }

    /// The next deliveries.
    fn next(&mut self) -> &[u8] {
        for delivery in self.batch.chunks_mut(self.stride) {
            self.delivered += 1;
            let tag = self.delivered.to_be_bytes();
            if let Some(place) = delivery.get_mut(self.tag_at..self.tag_at + 8) {
                place.copy_from_slice(&tag);
            }
        }
        &self.batch
    }
}

/// What the two threads of a connection share.
#[derive(Default)]
struct Feed {
    /// `None`: the connection ends.
    consumers: Mutex<Option<Vec<Consumer>>>,
    changed: Condvar,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<Consumer>>> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        *self.lock() = None;
        self.changed.notify_all();
    }

    /// Sends deliveries until the connection ends.
    fn run(&self, socket: &Mutex<TcpStream>) {
        let mut consumers = self.lock();
        loop {
            match consumers.as_mut() {
                None => return,
                Some(list) if list.is_empty() => {
                    consumers =
                        self.changed.wait(consumers).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Some(list) => {
                    for consumer in list {
                        let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
                        if socket.write_all(consumer.next()).is_err() {
                            return;
                        }
                    }
                }
            }
            drop(consumers);
            consumers = self.lock();
        }
    }
}

fn serve(mut reader: TcpStream, body: &[u8]) -> io::Result<()> {
    reader.set_nodelay(true)?;
    let socket = Arc::new(Mutex::new(reader.try_clone()?));
    let feed = Arc::new(Feed { consumers: Mutex::new(Some(Vec::new())), ..Feed::default() });
    let feeder = {
        let (feed, socket) = (Arc::clone(&feed), Arc::clone(&socket));
        thread::spawn(move || feed.run(&socket))
    };
    let result = Session::new(body).read(&mut reader, &socket, &feed);
    feed.end();
    let _ = reader.shutdown(std::net::Shutdown::Both);
    let _ = feeder.join();
    result
}

/// What the broker's side of a connection knows.
struct Session<'a> {
    machine: ServerConnection,
    body: &'a [u8],
    /// By channel: messages published in confirm mode, and whether some are not confirmed yet.
    confirming: HashMap<u16, (u64, bool)>,
    queues: u64,
    /// Consumers that begin once their answers are sent.
    beginning: Vec<Consumer>,
}

impl Session<'_> {
    fn new(body: &[u8]) -> Session<'_> {
        // Nobody looks at clocks here, so there are no heartbeats.
        let options = ServerOptions { heartbeat: 0, ..ServerOptions::default() };
        Session {
            machine: ServerConnection::new(&options, Instant(0)),
            body,
            confirming: HashMap::new(),
            queues: 0,
            beginning: Vec::new(),
        }
    }

    fn read(
        &mut self,
        reader: &mut TcpStream,
        socket: &Mutex<TcpStream>,
        feed: &Feed,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        let mut out = Vec::new();
        loop {
            let count = reader.read(&mut chunk)?;
            if count == 0 {
                return Ok(());
            }
            bytes.extend_from_slice(&chunk[..count]);
            let (used, ends) = self.receive(&bytes, &mut out, feed);
            bytes.drain(..used);
            for (channel, (published, open)) in &mut self.confirming {
                if std::mem::take(open) {
                    encode_ack(&mut out, *channel, *published, true);
                }
            }
            if !out.is_empty() {
                let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
                socket.write_all(&out)?;
                out.clear();
            }
            if ends {
                return Ok(());
            }
            if !self.beginning.is_empty() {
                if let Some(consumers) = feed.lock().as_mut() {
                    consumers.append(&mut self.beginning);
                }
                feed.changed.notify_all();
            }
        }
    }

    /// Takes what came in; returns how many bytes were used and whether the connection ends.
    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>, feed: &Feed) -> (usize, bool) {
        let mut used = 0;
        loop {
            let frame_max = self.machine.frame_max();
            let (consumed, event) = self.machine.receive(Instant(0), &bytes[used..], out);
            used += consumed;
            match event {
                Event::None if consumed == 0 => return (used, false),
                Event::None => {}
                Event::Authenticate { .. } => self.machine.authenticated(Instant(0), Ok(()), out),
                Event::Open { .. } => self.machine.opened(Instant(0), Ok(()), out),
                Event::Publish { channel, .. } => {
                    if let Some((published, open)) = self.confirming.get_mut(&channel) {
                        *published += 1;
                        *open = true;
                    }
                }
                Event::Method { channel, method: Method::BasicConsume(consume) } => {
                    let tag = consume.consumer_tag;
                    let consumer = Consumer::new(channel, tag, frame_max, self.body);
                    self.beginning.push(consumer);
                    Method::from(basic::ConsumeOk { consumer_tag: tag }).encode_frame(channel, out);
                }
                Event::Method { channel, method: Method::ConfirmSelect(_) } => {
                    self.confirming.insert(channel, (0, false));
                    Method::from(confirm::SelectOk {}).encode_frame(channel, out);
                }
                Event::Method { channel, method: Method::QueueDeclare(declare) } => {
                    self.queues += 1;
                    let made_up = format!("sink-{}", self.queues);
                    let queue = if declare.queue.is_empty() { &made_up } else { declare.queue };
                    let ok = queue::DeclareOk { queue, ..queue::DeclareOk::default() };
                    Method::from(ok).encode_frame(channel, out);
                }
                Event::Method { channel, method } => {
                    if !agree(channel, &method, out) {
                        let text = format!("the sink has no {}", method.name());
                        let error = ProtocolError::new(ReplyCode::NOT_IMPLEMENTED, text);
                        self.machine.close(Instant(0), &error, out);
                    }
                }
                Event::Close { .. } => {
                    // Nothing may follow the answer.
                    feed.end();
                    self.machine.close_ok(Instant(0), out);
                }
                Event::Error(error) => self.machine.close(Instant(0), &error, out),
                Event::BodyTooLarge { .. } | Event::CloseOk | Event::Disconnect => {
                    return (used, true);
                }
            }
        }
    }
}

/// Answers what needs no thought; false where it cannot.
fn agree(channel: u16, method: &Method<'_>, out: &mut Vec<u8>) -> bool {
    let answer: Method<'_> = match method {
        Method::ChannelOpen(_) => channel::OpenOk {}.into(),
        Method::ChannelClose(_) => channel::CloseOk {}.into(),
        Method::ExchangeDeclare(_) => exchange::DeclareOk {}.into(),
        Method::QueueBind(_) => queue::BindOk {}.into(),
        Method::QueueDelete(_) => queue::DeleteOk { message_count: 0 }.into(),
        Method::BasicQos(_) => basic::QosOk {}.into(),
        Method::BasicGet(_) => basic::GetEmpty {}.into(),
        Method::TxSelect(_) => tx::SelectOk {}.into(),
        Method::TxCommit(_) => tx::CommitOk {}.into(),
        Method::ChannelCloseOk(_)
        | Method::BasicAck(_)
        | Method::BasicNack(_)
        | Method::BasicReject(_) => return true,
        _ => return false,
    };
    answer.encode_frame(channel, out);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_whole_and_numbered_on() {
        let mut consumer = Consumer::new(7, "tag", 4_096, &[9; 5_000]);
        let mut tags = Vec::new();
        for _ in 0..2 {
            let mut rest = consumer.next();
            while let Some((frame, used)) = lepus_amqp::frame::decode(rest, 4_096).unwrap() {
                assert_eq!(frame.channel, 7);
                if let Ok(Method::BasicDeliver(deliver)) = Method::decode(frame.payload) {
                    tags.push(deliver.delivery_tag);
                }
                rest = &rest[used..];
            }
            assert!(rest.is_empty());
        }
        assert!(tags.len() > 20);
        assert!(tags.iter().copied().eq(1..=tags.len() as u64));
    }
}
