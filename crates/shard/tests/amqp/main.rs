//! The runtime with the real broker, over real sockets.

use std::net::TcpStream;
use std::time::Duration;

use lepus_amqp::method::{basic, channel as amqp_channel, confirm, queue};
use lepus_amqp::server::ServerOptions;
use lepus_broker::directory::Directory;
use lepus_broker::{Answer, Query};
use lepus_broker::{Broker, Limits, Outbox, Settings};
use lepus_shard::{Admission, Clock, Config, IdlePreset, Listener, Running, Runtime, Transport};

use lepus_probe::session::Seen;
use lepus_probe::session::{Session, connect};

type Peer = Session<TcpStream>;

/// Longer than a shard ever takes to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

fn start(shards: u16) -> Running<Broker> {
    let (notices, _log) = lepus_shard::notices(|_| false);
    let clock = Clock::start();
    let config = Config {
        plan: lepus_topology::Plan::anywhere(
            usize::from(shards),
            usize::from(shards) <= lepus_topology::usable_cpus().count(),
        ),
        idle: IdlePreset::Adaptive,
        ring_capacity: 2,
        connections_max: usize::MAX,
        admission: Admission {
            waiting_max: 10_000,
            silence_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(10),
        },
        listeners: vec![Listener {
            address: "127.0.0.1:0".parse().unwrap(),
            transport: Transport::Plain,
            backlog: 1024,
        }],
        tls: None,
        storage: None,
        stop_timeout: Duration::from_secs(30),
        notices,
        clock,
    };
    let changes = Directory::preset("guest", b"guest", [1, 2, 3, 4], "/");
    let make = move |shard, _: &mut Outbox| {
        let mut broker = Broker::new(Settings {
            node: "rabbit@test".into(),
            nodes: Vec::new(),
            shard,
            shards,
            hash: lepus_base::HashState::new(7),
            secret: [7; 32],
            server: ServerOptions::default(),
            limits: Limits::default(),
            store: None,
        });
        broker.preset(clock.now(), &changes, &mut Outbox::new(shards));
        Ok(broker)
    };
    Runtime::start(config, make).unwrap()
}

fn finish(running: Running<Broker>) {
    running.stop();
    assert_eq!(running.join().cut, 0);
}

/// Which shard has the connection with this many others before it.
fn connections(running: &Running<Broker>) -> Vec<u64> {
    running.metrics().iter().map(|metrics| metrics.snapshot().connections).collect()
}

fn declare(peer: &mut Peer, name: &str) {
    let declare = queue::Declare { queue: name, ..queue::Declare::default() };
    assert_eq!(peer.call(1, declare), Seen::Method("queue.declare-ok"));
}

/// How many are confirmed after this ack, where they come in order.
fn count_acked(before: u64, tag: u64, multiple: bool) -> u64 {
    assert!(tag > before, "{tag} after {before}");
    assert!(multiple || tag == before + 1, "{tag} after {before}");
    tag
}

fn consume(peer: &mut Peer, name: &str, no_ack: bool) {
    let consume = basic::Consume { queue: name, no_ack, ..basic::Consume::default() };
    assert_eq!(peer.call(1, consume), Seen::Method("basic.consume-ok"));
}

#[test]
fn messages_arrive_in_order_wherever_publisher_and_consumer_are() {
    let running = start(2);
    let address = running.addresses()[0];
    let mut peers: Vec<Peer> = (0..4).map(|_| connect(address)).collect();
    assert_eq!(connections(&running), [2, 2]);
    // Every peer publishes to a queue of its own and to the next peer's; consumers tie the
    // connections to their shards first.
    let names: Vec<String> = (0..4).map(|index| format!("queue-{index}")).collect();
    for (peer, name) in peers.iter_mut().zip(&names) {
        declare(peer, name);
        consume(peer, name, true);
    }
    let rounds = 500;
    for round in 0..rounds {
        for index in 0..4 {
            let body = format!("{index}:{round}");
            peers[index].publish(1, &names[index], body.as_bytes());
            peers[index].publish(1, &names[(index + 1) % 4], body.as_bytes());
        }
    }
    for peer in &mut peers {
        peer.flush();
    }
    for (index, peer) in peers.iter_mut().enumerate() {
        let mut next = [0; 4];
        for _ in 0..2 * rounds {
            let Seen::Message { body, .. } = peer.see() else { panic!("not a message") };
            let text = String::from_utf8(body).unwrap();
            let (from, round) = text.split_once(':').unwrap();
            let from: usize = from.parse().unwrap();
            assert_eq!(round, next[from].to_string(), "in order per publisher");
            next[from] += 1;
        }
        let mut wanted = [0; 4];
        wanted[index] = rounds;
        wanted[(index + 3) % 4] = rounds;
        assert_eq!(next, wanted);
    }
    drop(peers);
    finish(running);
}

#[test]
fn confirms_and_acks_cross_shards() {
    let running = start(2);
    let address = running.addresses()[0];
    let mut consumer = connect(address);
    declare(&mut consumer, "work");
    let qos = basic::Qos { prefetch_count: 10, ..basic::Qos::default() };
    assert_eq!(consumer.call(1, qos), Seen::Method("basic.qos-ok"));
    consume(&mut consumer, "work", false);
    let mut publisher = connect(address);
    assert_eq!(publisher.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    for number in 0..1000u32 {
        publisher.publish(1, "work", &number.to_be_bytes());
    }
    publisher.flush();
    let mut confirmed = 0;
    while confirmed < 1000 {
        match publisher.see() {
            Seen::Ack { tag, multiple } => confirmed = count_acked(confirmed, tag, multiple),
            other => panic!("{other:?}"),
        }
    }
    for number in 0..1000u32 {
        let Seen::Message { body, tag } = consumer.see() else { panic!("not a message") };
        assert_eq!(body, number.to_be_bytes());
        consumer.send(1, basic::Ack { delivery_tag: tag, multiple: false });
        consumer.flush();
    }
    let count = queue::Declare { queue: "work", passive: true, ..queue::Declare::default() };
    assert_eq!(consumer.call(1, count), Seen::Method("queue.declare-ok"));
    drop((consumer, publisher));
    finish(running);
}

#[test]
fn an_exclusive_queue_dies_with_its_connection() {
    let running = start(2);
    let address = running.addresses()[0];
    let mut owner = connect(address);
    let declare = queue::Declare { queue: "mine", exclusive: true, ..queue::Declare::default() };
    assert_eq!(owner.call(1, declare), Seen::Method("queue.declare-ok"));
    drop(owner);
    let commands = running.commands();
    loop {
        let queues = |answer: &Answer| match answer {
            Answer::Figures(figures) => figures.holdings.queues,
            other => panic!("{other:?}"),
        };
        if commands
            .wait_all(&Query::Figures, ANSWER_TIMEOUT)
            .unwrap()
            .iter()
            .map(queues)
            .sum::<u64>()
            == 0
        {
            break;
        }
    }
    let mut other = connect(address);
    let passive = queue::Declare { queue: "mine", passive: true, ..queue::Declare::default() };
    assert!(matches!(other.call(1, passive), Seen::ChannelClosed(404, _)));
    drop(other);
    finish(running);
}

#[test]
fn a_close_is_answered_and_ends_the_stream() {
    let running = start(1);
    let mut peer = connect(running.addresses()[0]);
    assert_eq!(
        peer.call(1, amqp_channel::Close { reply_code: 200, ..amqp_channel::Close::default() }),
        Seen::Method("channel.close-ok")
    );
    peer.begin_close();
    assert!(matches!(peer.see(), Seen::Closed(200, _)));
    assert_eq!(peer.see(), Seen::End);
    finish(running);
}

#[test]
fn a_stop_tells_the_clients_why() {
    let running = start(2);
    let mut peers: Vec<Peer> = (0..3).map(|_| connect(running.addresses()[0])).collect();
    running.stop();
    for peer in &mut peers {
        assert!(matches!(peer.see(), Seen::Closed(320, _)));
        // The client has answered; the server hangs up.
        assert_eq!(peer.see(), Seen::End);
    }
    assert_eq!(running.join().cut, 0);
}

#[test]
fn another_protocol_is_answered_with_ours_and_closed() {
    let running = start(1);
    // No client says that: a bare socket does.
    let mut stream = TcpStream::connect(running.addresses()[0]).unwrap();
    std::io::Write::write_all(&mut stream, b"AMQP\x01\x01\x00\x0a and more").unwrap();
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
    assert_eq!(answer, b"AMQP\0\0\x09\x01");
    finish(running);
}
