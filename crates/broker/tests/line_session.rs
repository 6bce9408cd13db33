//! A client that speaks something else than AMQP: lines of text. What it needs of the broker is what
//! [`lepus_broker::session`] offers, and nothing of AMQP 0-9-1.

use lepus_base::{ConnectionId, HashState, Instant, Now, ShardId};
use lepus_broker::connection::PeerInfo;
use lepus_broker::directory::Directory;
use lepus_broker::queue::Outcome;
use lepus_broker::refusal::{Refusal, RefusalKind};
use lepus_broker::session::{
    AmqpOptions, Answer, Arguments, Asked, Capability, Claim, Closing, Consume, DeclareQueue,
    Delivered, Done, Event, Incoming, Login, Manner, Operation, Publish, Session, Source, State,
    TimeoutOutcome,
};
use lepus_broker::settings::Limits;
use lepus_broker::{Broker, ConnectionSlot, Outbox, Settings};

/// The only channel that there is.
const CHANNEL: u16 = 1;
/// The properties of a message without any, as the broker keeps them.
const NO_PROPERTIES: &[u8] = &[0, 0];

/// Where the greeting is.
#[derive(Debug, PartialEq)]
enum Stage {
    LogIn,
    OpenVhost,
    OpenChannel,
    Running,
    Closed,
}

/// `make QUEUE`, `put QUEUE BODY`, `get QUEUE` (from then on), `ok NUMBER` and `back NUMBER`, each on a line, of a client that is
/// guest at once. Whatever else it says ends its connection.
#[derive(Debug)]
struct Lines {
    stage: Stage,
}

impl Lines {
    fn say(out: &mut Vec<u8>, text: &str) {
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
}

fn read(line: &[u8]) -> Option<(Operation<'_>, Asked)> {
    let text = std::str::from_utf8(line).ok()?;
    let (word, rest) = text.split_once(' ')?;
    let settle = |outcome| {
        let number = rest.parse().ok()?;
        Some(Operation::Settle { number, several: false, outcome })
    };
    match word {
        "make" => {
            let declare = DeclareQueue {
                queue: rest,
                passive: false,
                durable: false,
                exclusive: false,
                auto_delete: false,
                arguments: Arguments::default(),
                no_wait: false,
            };
            Some((Operation::DeclareQueue(declare), Asked::DeclareQueue))
        }
        "get" => {
            let consume = Consume {
                queue: rest,
                tag: rest,
                no_ack: false,
                exclusive: false,
                arguments: Arguments::default(),
                no_wait: false,
            };
            Some((Operation::Consume(consume), Asked::Consume))
        }
        "ok" => Some((settle(Outcome::Ack)?, Asked::Ack)),
        "back" => Some((settle(Outcome::Requeue)?, Asked::Nack)),
        _ => None,
    }
}

/// Why a connection ends, with the text of a refusal.
fn said(why: Closing<'_>, text: impl FnOnce(&Refusal) -> String) -> String {
    match why {
        Closing::Broken => "what?".to_owned(),
        Closing::Refused(refusal, _) if refusal.kind == RefusalKind::NotFound => {
            format!("not there: {}", text(refusal))
        }
        Closing::Refused(refusal, _) => format!("no: {}", text(refusal)),
    }
}

impl Session for Lines {
    fn receive<'a>(
        &mut self,
        _now: Instant,
        bytes: &'a [u8],
        _out: &mut Vec<u8>,
    ) -> (usize, Event<'a>) {
        match self.stage {
            // It says nothing before: the first look at its bytes takes none of them.
            Stage::LogIn => {
                let claim = Claim::Password { user: "guest", password: b"guest" };
                return (0, Event::Login(Login { mechanism: "lines", claim, bytes: 0 }));
            }
            Stage::OpenVhost => return (0, Event::Open { vhost: "/" }),
            Stage::OpenChannel => {
                self.stage = Stage::Running;
                let (operation, asked) = (Operation::OpenChannel, Asked::OpenChannel);
                return (0, Event::Operation { channel: CHANNEL, operation, asked, frame: b"" });
            }
            Stage::Closed => return (bytes.len(), Event::None),
            Stage::Running => {}
        }
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            return (0, Event::None);
        };
        let line = &bytes[..end];
        let put = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("put "));
        if let Some((queue, body)) = put.and_then(|rest| rest.split_once(' ')) {
            let publish = Publish {
                exchange: "",
                routing_key: queue,
                mandatory: true,
                immediate: false,
                properties: NO_PROPERTIES,
                body: body.as_bytes(),
                packed: None,
            };
            let publish = Incoming::Borrowed(publish);
            return (end + 1, Event::Publish { channel: CHANNEL, publish });
        }
        let event = match read(line) {
            Some((operation, asked)) => {
                Event::Operation { channel: CHANNEL, operation, asked, frame: line }
            }
            None => Event::Broken,
        };
        (end + 1, event)
    }

    fn operation<'a>(&self, frame: &'a [u8]) -> Option<(Operation<'a>, Asked)> {
        read(frame)
    }

    fn state(&self) -> State {
        match self.stage {
            Stage::LogIn | Stage::OpenVhost => State::Entering,
            Stage::OpenChannel | Stage::Running => State::Running,
            Stage::Closed => State::Closed,
        }
    }

    fn logged_in(&mut self, _now: Instant, is_let_in: bool, out: &mut Vec<u8>) {
        self.stage = if is_let_in { Stage::OpenVhost } else { Stage::Closed };
        Lines::say(out, if is_let_in { "hello" } else { "no" });
    }

    fn opened(&mut self, _now: Instant, result: Result<(), &Refusal>, out: &mut Vec<u8>) {
        self.stage = if result.is_ok() { Stage::OpenChannel } else { Stage::Closed };
        if let Err(refusal) = result {
            Lines::say(out, refusal.reply());
        }
    }

    fn answer(&self, _channel: u16, answer: &Answer<'_>, out: &mut Vec<u8>) {
        let text = match answer {
            Answer::QueueDeclared { queue, .. } => format!("made {queue}"),
            Answer::Consuming(queue) => format!("getting {queue}"),
            Answer::ConsumerLost(queue) => format!("lost {queue}"),
            Answer::Done(Done::Unblocked) => "go on".to_owned(),
            Answer::Blocked(reason) => format!("wait: {reason}"),
            other => panic!("nobody asked for {other:?}"),
        };
        Lines::say(out, &text);
    }

    fn channel_opened(&mut self, _channel: u16, out: &mut Vec<u8>) {
        Lines::say(out, "ready");
    }

    /// There are no channels to go on with: every refusal ends the connection.
    fn refuse(&mut self, _: u16, _: &Refusal, _: Asked, _: &mut Vec<u8>) -> bool {
        true
    }

    fn close(&mut self, _now: Instant, why: Closing<'_>, out: &mut Vec<u8>) {
        let words = said(why, |refusal| refusal.reply().to_owned());
        Lines::say(out, &words);
        self.stage = Stage::Closed;
    }

    fn close_ok(&mut self, _now: Instant, _out: &mut Vec<u8>) {
        self.stage = Stage::Closed;
    }

    fn words(&self, why: Closing<'_>) -> String {
        said(why, Refusal::to_string)
    }

    fn deliver(&self, _channel: u16, delivered: &Delivered<'_>, out: &mut Vec<u8>) {
        let head = match delivered.source {
            Source::Consumer { number, redelivered: false, .. } => format!("{number} "),
            Source::Consumer { number, redelivered: true, .. } => format!("{number} again "),
            Source::Unroutable => "nowhere ".to_owned(),
            Source::Get { .. } => panic!("nobody fetches"),
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(delivered.body);
        out.push(b'\n');
    }

    fn deliver_head(&self, _channel: u16, delivered: &Delivered<'_>, out: &mut Vec<u8>) {
        let Source::Consumer { number, .. } = delivered.source else { panic!("nobody fetches") };
        out.extend_from_slice(format!("{number} of {} ", delivered.body.len()).as_bytes());
    }

    fn part_bytes_max(&self) -> usize {
        0
    }

    fn begin_part(&self, _channel: u16, _bytes: usize, _out: &mut Vec<u8>) {}

    fn part_end(&self) -> &'static [u8] {
        &[]
    }

    fn confirm(&self, _: u16, _: u64, _: bool, _: bool, _: &mut Vec<u8>) {
        panic!("nobody wants confirms");
    }

    fn sent(&mut self, _now: Instant) {}

    fn reading_paused(&mut self, _now: Instant, _is_paused: bool) {}

    fn on_timeout(&mut self, _now: Instant, _out: &mut Vec<u8>) -> TimeoutOutcome {
        TimeoutOutcome::Nothing
    }

    fn next_timeout(&self) -> Instant {
        Instant::NEVER
    }

    fn channel_max(&self) -> u16 {
        CHANNEL
    }

    fn held_bytes(&self) -> usize {
        0
    }

    fn client_properties(&self) -> Arguments<'_> {
        Arguments::default()
    }

    fn manner(&self) -> Manner<'_> {
        Manner { protocol: "lines", ..Manner::default() }
    }

    fn understands(&self, _what: Capability) -> bool {
        true
    }

    fn disconnect_reason(&self) -> &'static str {
        ""
    }
}

/// One shard, and clients whose sockets take everything at once.
struct Bench {
    broker: Broker,
    out: Outbox,
    now: Now,
    connections: u64,
    closed: Vec<ConnectionSlot>,
}

impl Bench {
    fn new() -> Bench {
        let settings = Settings {
            shard: ShardId(0),
            shards: 1,
            node: "rabbit@localhost".into(),
            nodes: Vec::new(),
            hash: HashState::new(1),
            secret: [7; 32],
            server: AmqpOptions::default(),
            limits: Limits::default(),
            store: None,
        };
        let now = Now::from_millis(1);
        let mut broker = Broker::new(settings);
        let preset = Directory::preset("guest", b"guest", [1, 2, 3, 4], "/");
        broker.preset(now, &preset, &mut Outbox::new(1));
        Bench { broker, out: Outbox::new(1), now, connections: 0, closed: Vec::new() }
    }

    fn connect(&mut self) -> ConnectionSlot {
        self.connections += 1;
        let peer = PeerInfo { loopback: true, ..PeerInfo::default() };
        let session = Box::new(Lines { stage: Stage::LogIn });
        let id = ConnectionId(self.connections);
        self.broker.accept(self.now, id, peer, Some(session), &mut self.out)
    }

    /// Says some lines, and gives everything that was said to this client meanwhile.
    fn say(&mut self, slot: ConnectionSlot, lines: &str) -> String {
        let mut rest = lines.as_bytes();
        let mut heard = Vec::new();
        while !rest.is_empty() {
            let used = self.broker.received(self.now, slot, rest, &mut self.out);
            rest = &rest[used..];
            let before = heard.len();
            heard.extend(self.turns(slot));
            assert!(used > 0 || heard.len() > before, "the broker gets on");
        }
        String::from_utf8(heard).unwrap()
    }

    fn hear(&mut self, slot: ConnectionSlot) -> String {
        String::from_utf8(self.turns(slot)).unwrap()
    }

    fn hang_up(&mut self, slot: ConnectionSlot) {
        self.broker.closed(self.now, slot, &mut self.out);
    }

    /// Turns until there is nothing to do. What the client in `slot` hears; others hear later.
    fn turns(&mut self, slot: ConnectionSlot) -> Vec<u8> {
        let (broker, out) = (&mut self.broker, &mut self.out);
        let mut heard = Vec::new();
        loop {
            broker.work(self.now, out);
            broker.flush(self.now, out);
            out.dirty.clear();
            loop {
                let slices = broker.connections.writable_slices(&mut broker.shard, slot);
                let count = slices.len();
                heard.extend_from_slice(&slices.all().concat());
                if count == 0 {
                    break;
                }
                broker.sent(self.now, slot, count, out);
            }
            self.closed.append(&mut out.close);
            out.pause.clear();
            out.resume.clear();
            out.events.clear();
            if !broker.has_work(out) {
                return heard;
            }
        }
    }
}

#[test]
fn another_protocol_publishes_consumes_and_settles() {
    let mut bench = Bench::new();
    let (publisher, consumer) = (bench.connect(), bench.connect());
    assert_eq!(bench.say(publisher, "make q\n"), "hello\nready\nmade q\n");
    assert_eq!(bench.say(consumer, "get q\n"), "hello\nready\ngetting q\n");
    assert_eq!(bench.say(publisher, "put q one\nput q two words\n"), "");
    assert_eq!(bench.hear(consumer), "1 one\n2 two words\n");
    assert_eq!(bench.say(consumer, "ok 1\n"), "");
    assert_eq!(bench.say(consumer, "back 2\n"), "3 again two words\n");
    // What it does not settle is the next one's.
    let other = bench.connect();
    assert_eq!(bench.say(other, "get q\n"), "hello\nready\ngetting q\n");
    bench.hang_up(consumer);
    assert_eq!(bench.hear(other), "1 again two words\n");
    assert_eq!(bench.say(other, "ok 1\n"), "");
    let (_, queue) = bench.broker.homes.queues().next().unwrap();
    assert_eq!((queue.ready(), queue.unacked()), (0, 0));
}

#[test]
fn what_is_said_behind_a_question_waits_for_its_answer() {
    let mut bench = Bench::new();
    let client = bench.connect();
    // The messages come while the queue is being made, and the consumer behind them.
    let heard = bench.say(client, "make q\nput q a\nget q\nput q b\n");
    assert_eq!(heard, "hello\nready\nmade q\ngetting q\n1 a\n2 b\n");
}

#[test]
fn refusals_come_in_its_own_words() {
    let mut bench = Bench::new();
    let client = bench.connect();
    assert_eq!(bench.say(client, "put q lost\n"), "hello\nready\nnowhere lost\n");
    assert_eq!(bench.say(client, "get q\n"), "not there: no queue 'q' in vhost '/'\n");
    assert_eq!(bench.closed, [client]);
    let client = bench.connect();
    assert_eq!(bench.say(client, "juggle\n"), "hello\nready\nwhat?\n");
    assert_eq!(bench.closed.last(), Some(&client));
}

#[test]
fn a_large_body_comes_whole() {
    let mut bench = Bench::new();
    let client = bench.connect();
    assert_eq!(bench.say(client, "make q\nget q\n"), "hello\nready\nmade q\ngetting q\n");
    let body = "x".repeat(1_000_000);
    assert_eq!(bench.say(client, &format!("put q {body}\n")), format!("1 of 1000000 {body}"));
}
