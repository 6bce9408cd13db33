//! A broker of the smallest kind: queues in memory, one thread for each connection, and faults on demand.

use lepus_amqp::Method;
use lepus_amqp::ProtocolError;
use lepus_amqp::ReplyCode;
use lepus_amqp::frame::{FrameKind, write_frame};
use lepus_amqp::method::{basic, channel, confirm, exchange, queue, tx};
use lepus_amqp::server::{
    Event, ServerConnection, ServerOptions, encode_ack, encode_delivery, encode_return,
};
use lepus_amqp::{PropertiesRef, TableRef, ValueRef};
use lepus_base::{HashState, Instant};
use lepus_filter::{BodyFormat, Filter, FilterSet, Limits, Meta, Scratch, SetLimits};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What happens to a message that is to be delivered; counted from 0 over all queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// The message is lost.
    Drop(u64),
    /// It is delivered twice.
    Duplicate(u64),
    /// It is delivered after the next one.
    Swap(u64),
    /// A byte of its body is changed.
    Damage(u64),
    /// The connection that published it is closed.
    Close(u64),
    /// Queues declared on the first channel are answered behind those on others.
    LateAnswers,
}

/// What the broker saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Queue names declared, in their order.
    pub queues: Vec<String>,
    /// Delivery tags acknowledged, with their multiple flag.
    pub acks: Vec<(u64, bool)>,
    pub commits: u64,
    /// Messages that were asked for one by one.
    pub gets: u64,
    pub connections: u64,
    /// Deliveries by the consumer's tag.
    pub deliveries: HashMap<String, u64>,
}

#[derive(Debug, Default)]
struct State {
    fault: Fault,
    /// Whether filters and priorities of consumers count.
    filters: bool,
    /// Answers that are held back.
    late: Vec<u8>,
    count: u64,
    held: Option<(String, Message)>,
    seen: Seen,
    exchanges: HashMap<String, String>,
    /// Exchange, key, queue.
    bindings: Vec<(String, String, String)>,
    queues: HashMap<String, Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    ready: VecDeque<Message>,
    consumers: Vec<Consumer>,
    turn: usize,
}

#[derive(Debug)]
struct Consumer {
    socket: TcpStream,
    connection: u64,
    channel: u16,
    tag: String,
    frame_max: u32,
    delivery_tag: u64,
    priority: i32,
    /// What it wants; everything where there is none.
    filter: Option<FilterSet>,
}

#[derive(Clone, Debug)]
struct Message {
    exchange: String,
    routing_key: String,
    properties: Vec<u8>,
    body: Vec<u8>,
}

/// A running broker; it ends with the process.
#[derive(Clone, Debug)]
pub struct Broker {
    pub uri: String,
    state: Arc<Mutex<State>>,
}

impl Broker {
    /// Listens on a free port of this host.
    pub fn start(fault: Fault) -> Broker {
        Broker::start_at(0, fault)
    }

    /// Listens on this port of this host; 0 is a free one.
    pub fn start_at(port: u16, fault: Fault) -> Broker {
        Broker::serve(port, State { fault, ..State::default() })
    }

    /// One that heeds the filters and priorities of consumers.
    pub fn start_with_filters() -> Broker {
        Broker::serve(0, State { filters: true, ..State::default() })
    }

    fn serve(port: u16, state: State) -> Broker {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let broker =
            Broker { uri: format!("amqp://127.0.0.1:{port}"), state: Arc::new(Mutex::new(state)) };
        let running = broker.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let mut state = running.lock();
                state.seen.connections += 1;
                let connection = state.seen.connections;
                let state = Arc::clone(&running.state);
                std::thread::spawn(move || {
                    let mut peer = Peer::new(socket, connection, state);
                    let _ = peer.serve();
                    peer.leave();
                });
            }
        });
        broker
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.lock().seen.clone()
    }

    /// How many queues there are.
    pub fn queues(&self) -> usize {
        self.lock().queues.len()
    }

    /// Messages that wait in a queue.
    pub fn ready(&self, queue: &str) -> usize {
        self.lock().queues.get(queue).map_or(0, |queue| queue.ready.len())
    }
}

impl State {
    fn routes(&self, exchange: &str, key: &str) -> Vec<String> {
        if exchange.is_empty() {
            return self.queues.contains_key(key).then(|| key.to_owned()).into_iter().collect();
        }
        let to_all = self.exchanges.get(exchange).is_some_and(|kind| kind == "fanout");
        let mut queues: Vec<String> = Vec::new();
        for (from, bound, queue) in &self.bindings {
            if from == exchange && (to_all || bound == key) && !queues.contains(queue) {
                queues.push(queue.clone());
            }
        }
        queues
    }

    /// Puts a message into a queue; false asks to close the publisher.
    fn enqueue(&mut self, queue: &str, mut message: Message) -> bool {
        let number = self.count;
        self.count += 1;
        match self.fault {
            Fault::Drop(at) if at == number => return true,
            Fault::Close(at) if at == number => return false,
            Fault::Swap(at) if at == number => {
                self.held = Some((queue.to_owned(), message));
                return true;
            }
            Fault::Damage(at) if at == number => {
                if let Some(byte) = message.body.last_mut() {
                    *byte ^= 0x55;
                }
            }
            Fault::Duplicate(at) if at == number => self.hand_over(queue, message.clone()),
            _ => {}
        }
        self.hand_over(queue, message);
        if let Some((queue, message)) = self.held.take() {
            self.hand_over(&queue, message);
        }
        true
    }

    fn hand_over(&mut self, name: &str, message: Message) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        // Of those who want it, the next one among those of the highest priority.
        let count = queue.consumers.len();
        let in_turn = (1..=count).map(|step| (queue.turn + step) % count.max(1));
        let willing: Vec<usize> =
            in_turn.filter(|at| queue.consumers[*at].wants(&message)).collect();
        let chosen = willing.into_iter().rev().max_by_key(|at| queue.consumers[*at].priority);
        let Some(chosen) = chosen else {
            queue.ready.push_back(message);
            return;
        };
        queue.turn = chosen;
        let consumer = &mut queue.consumers[chosen];
        consumer.deliver(&message);
        *self.seen.deliveries.entry(consumer.tag.clone()).or_default() += 1;
    }
}

impl Consumer {
    /// Takes filter and priority of these arguments.
    fn heed(&mut self, arguments: TableRef<'_>) {
        for (name, value) in arguments.iter() {
            match (name, value) {
                ("x-priority", ValueRef::I32(priority)) => self.priority = priority,
                ("x-filter", ValueRef::LongString(text)) => {
                    let text = std::str::from_utf8(text).expect("a filter is text");
                    let filter = Filter::parse(text, &Limits::default()).expect("a filter");
                    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
                    set.add(&filter, 0).expect("room for a filter");
                    self.filter = Some(set);
                }
                _ => {}
            }
        }
    }

    fn wants(&mut self, message: &Message) -> bool {
        let Some(filter) = &mut self.filter else { return true };
        let asked = lepus_filter::Message {
            properties: PropertiesRef(&message.properties),
            body: &message.body,
            format: BodyFormat::Auto,
            meta: Meta::default(),
        };
        let mut found = Vec::new();
        filter.matches(&asked, u64::MAX, &mut Scratch::default(), &mut found);
        !found.is_empty()
    }

    fn deliver(&mut self, message: &Message) {
        self.delivery_tag += 1;
        let mut out = Vec::new();
        encode_delivery(
            &mut out,
            self.channel,
            self.frame_max,
            &self.tag,
            self.delivery_tag,
            false,
            message.exchange.as_bytes(),
            message.routing_key.as_bytes(),
            &message.properties,
            &message.body,
        );
        let _ = self.socket.write_all(&out);
    }
}

/// One connection.
struct Peer {
    socket: TcpStream,
    connection: u64,
    state: Arc<Mutex<State>>,
    machine: ServerConnection,
    confirming: HashMap<u16, u64>,
    transactional: HashSet<u16>,
    last_queue: HashMap<u16, String>,
}

impl Peer {
    fn new(socket: TcpStream, connection: u64, state: Arc<Mutex<State>>) -> Peer {
        Peer {
            socket,
            connection,
            state,
            machine: ServerConnection::new(&ServerOptions::default(), Instant(0)),
            confirming: HashMap::new(),
            transactional: HashSet::new(),
            last_queue: HashMap::new(),
        }
    }

    fn serve(&mut self) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let count = self.socket.read(&mut chunk)?;
            if count == 0 {
                return Ok(());
            }
            bytes.extend_from_slice(&chunk[..count]);
            let mut used = 0;
            let shared = Arc::clone(&self.state);
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let mut out = Vec::new();
            let mut ends = false;
            loop {
                let frame_max = self.machine.frame_max();
                let (consumed, event) = self.machine.receive(Instant(1), &bytes[used..], &mut out);
                used += consumed;
                match event {
                    Event::None if consumed == 0 => break,
                    Event::None => {}
                    Event::Authenticate { .. } => {
                        self.machine.authenticated(Instant(0), Ok(()), &mut out)
                    }
                    Event::Open { .. } => self.machine.opened(Instant(0), Ok(()), &mut out),
                    Event::Publish { channel, publish } => {
                        let publish = publish.as_ref();
                        let routes = state.routes(publish.exchange, publish.routing_key);
                        let message = Message {
                            exchange: publish.exchange.to_owned(),
                            routing_key: publish.routing_key.to_owned(),
                            properties: publish.properties.to_owned(),
                            body: publish.body.to_owned(),
                        };
                        if routes.is_empty() && publish.mandatory {
                            encode_return(
                                &mut out,
                                channel,
                                131_072,
                                ReplyCode::NO_ROUTE,
                                "NO_ROUTE",
                                message.exchange.as_bytes(),
                                message.routing_key.as_bytes(),
                                &message.properties,
                                &message.body,
                            );
                        }
                        let mut stays = true;
                        for queue in routes {
                            stays &= state.enqueue(&queue, message.clone());
                        }
                        if let Some(tag) = self.confirming.get_mut(&channel) {
                            *tag += 1;
                            encode_ack(&mut out, channel, *tag, false);
                        }
                        if !stays {
                            let error = ProtocolError::new(ReplyCode::INTERNAL_ERROR, "asked to");
                            self.machine.close(Instant(0), &error, &mut out);
                        }
                    }
                    Event::Method { channel, method } => {
                        let answer = take_method(
                            self.connection,
                            &self.socket,
                            frame_max,
                            &mut self.confirming,
                            &mut self.transactional,
                            &mut self.last_queue,
                            &mut state,
                            &mut out,
                            channel,
                            method,
                        );
                        if !answer {
                            let text = format!("unsupported {}", method.name());
                            let error = ProtocolError::new(ReplyCode::NOT_IMPLEMENTED, text);
                            self.machine.close(Instant(0), &error, &mut out);
                        }
                    }
                    Event::Close { .. } => self.machine.close_ok(Instant(0), &mut out),
                    Event::Error(error) => self.machine.close(Instant(0), &error, &mut out),
                    Event::BodyTooLarge { .. } | Event::CloseOk | Event::Disconnect => {
                        ends = true;
                        break;
                    }
                }
            }
            out.append(&mut state.late);
            self.socket.write_all(&out)?;
            bytes.drain(..used);
            if ends {
                return Ok(());
            }
        }
    }

    fn leave(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in state.queues.values_mut() {
            queue.consumers.retain(|consumer| consumer.connection != self.connection);
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

#[allow(clippy::too_many_arguments)]
fn take_method(
    connection: u64,
    socket: &TcpStream,
    frame_max: u32,
    confirming: &mut HashMap<u16, u64>,
    transactional: &mut HashSet<u16>,
    last_queue: &mut HashMap<u16, String>,
    state: &mut State,
    out: &mut Vec<u8>,
    channel: u16,
    method: Method<'_>,
) -> bool {
    let name = |given: &str| match given {
        "" => last_queue.get(&channel).cloned().unwrap_or_default(),
        given => given.to_owned(),
    };
    match method {
        Method::ChannelCloseOk(_) => {}
        Method::ChannelClose(_) => Method::from(channel::CloseOk {}).encode_frame(channel, out),
        Method::ChannelOpen(_) => Method::from(channel::OpenOk {}).encode_frame(channel, out),
        Method::ExchangeDeclare(declare) if declare.passive => {
            if state.exchanges.contains_key(declare.exchange) {
                Method::from(exchange::DeclareOk {}).encode_frame(channel, out);
            } else {
                missing(channel, "no exchange", out);
            }
        }
        Method::ExchangeDeclare(declare) => {
            let kind = declare.r#type.to_owned();
            state.exchanges.insert(declare.exchange.to_owned(), kind);
            Method::from(exchange::DeclareOk {}).encode_frame(channel, out);
        }
        Method::QueueDeclare(declare) => {
            if declare.passive && !state.queues.contains_key(declare.queue) {
                missing(channel, "no queue", out);
                return true;
            }
            let name = match declare.queue {
                "" => format!("amq.gen-{connection}-{channel}"),
                name => name.to_owned(),
            };
            state.seen.queues.push(name.clone());
            state.queues.entry(name.clone()).or_default();
            let ok = queue::DeclareOk { queue: &name, ..queue::DeclareOk::default() };
            let is_late = channel == 1 && matches!(state.fault, Fault::LateAnswers);
            let out = if is_late { &mut state.late } else { out };
            Method::from(ok).encode_frame(channel, out);
            last_queue.insert(channel, name);
        }
        Method::QueueBind(bind) => {
            let (exchange, key) = (bind.exchange.to_owned(), bind.routing_key.to_owned());
            state.bindings.push((exchange, key, name(bind.queue)));
            Method::from(queue::BindOk {}).encode_frame(channel, out);
        }
        Method::BasicQos(_) => Method::from(basic::QosOk {}).encode_frame(channel, out),
        Method::BasicConsume(consume) => {
            let ok = basic::ConsumeOk { consumer_tag: consume.consumer_tag };
            Method::from(ok).encode_frame(channel, out);
            let mut consumer = Consumer {
                socket: socket.try_clone().expect("another handle"),
                connection,
                channel,
                tag: consume.consumer_tag.to_owned(),
                frame_max,
                delivery_tag: 0,
                priority: 0,
                filter: None,
            };
            if state.filters {
                consumer.heed(consume.arguments);
            }
            let queue = state.queues.entry(name(consume.queue)).or_default();
            // The answer goes out before the first delivery does.
            let _ = consumer.socket.write_all(out);
            out.clear();
            for message in std::mem::take(&mut queue.ready) {
                if consumer.wants(&message) {
                    consumer.deliver(&message);
                } else {
                    queue.ready.push_back(message);
                }
            }
            queue.consumers.push(consumer);
        }
        Method::ConfirmSelect(_) => {
            confirming.insert(channel, 0);
            Method::from(confirm::SelectOk {}).encode_frame(channel, out);
        }
        Method::TxSelect(_) => {
            transactional.insert(channel);
            Method::from(tx::SelectOk {}).encode_frame(channel, out);
        }
        Method::TxCommit(_) if transactional.contains(&channel) => {
            state.seen.commits += 1;
            Method::from(tx::CommitOk {}).encode_frame(channel, out);
        }
        Method::BasicGet(get) => {
            let ready = state.queues.get_mut(&name(get.queue));
            match ready.and_then(|queue| queue.ready.pop_front()) {
                None => Method::from(basic::GetEmpty {}).encode_frame(channel, out),
                Some(message) => {
                    state.seen.gets += 1;
                    encode_got(out, channel, state.seen.gets, &message);
                }
            }
        }
        Method::QueueDelete(delete) => {
            let queue = state.queues.remove(delete.queue);
            let message_count = queue.map_or(0, |queue| queue.ready.len() as u32);
            Method::from(queue::DeleteOk { message_count }).encode_frame(channel, out);
        }
        Method::QueueUnbind(unbind) => {
            state.bindings.retain(|(exchange, key, queue)| {
                (exchange.as_str(), key.as_str(), queue.as_str())
                    != (unbind.exchange, unbind.routing_key, unbind.queue)
            });
            Method::from(queue::UnbindOk {}).encode_frame(channel, out);
        }
        Method::ExchangeDelete(delete) => {
            state.exchanges.remove(delete.exchange);
            state.bindings.retain(|(exchange, _, _)| exchange != delete.exchange);
            Method::from(exchange::DeleteOk {}).encode_frame(channel, out);
        }
        Method::BasicCancel(cancel) => {
            let ours = |consumer: &Consumer| {
                (consumer.connection, consumer.tag.as_str()) == (connection, cancel.consumer_tag)
            };
            for queue in state.queues.values_mut() {
                queue.consumers.retain(|consumer| !ours(consumer));
            }
            let ok = basic::CancelOk { consumer_tag: cancel.consumer_tag };
            Method::from(ok).encode_frame(channel, out);
        }
        Method::BasicAck(ack) => state.seen.acks.push((ack.delivery_tag, ack.multiple)),
        _ => return false,
    }
    true
}

/// A message as the answer to `basic.get`, in one body frame.
fn encode_got(out: &mut Vec<u8>, channel: u16, delivery_tag: u64, message: &Message) {
    let got = basic::GetOk {
        delivery_tag,
        redelivered: false,
        exchange: &message.exchange,
        routing_key: &message.routing_key,
        message_count: 0,
    };
    Method::from(got).encode_frame(channel, out);
    let mut header = vec![0, 60, 0, 0];
    header.extend_from_slice(&(message.body.len() as u64).to_be_bytes());
    header.extend_from_slice(&message.properties);
    write_frame(out, FrameKind::Header, channel, &header);
    write_frame(out, FrameKind::Body, channel, &message.body);
}

fn missing(channel: u16, text: &str, out: &mut Vec<u8>) {
    let close = channel::Close { reply_code: 404, reply_text: text, class_id: 0, method_id: 0 };
    Method::from(close).encode_frame(channel, out);
}
