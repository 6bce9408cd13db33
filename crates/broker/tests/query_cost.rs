//! What questions cost the shard that answers them, counted in looks at its tables: a look at metrics, at health
//! and at the status costs the same however much the shard holds, and a part of a list never more than its limit.

use lepus_amqp::Method;
use lepus_amqp::method::{basic, channel, connection};
use lepus_amqp::table::{Table, TableRef};
use lepus_base::{ConnectionId, HashState, Now, ShardId, visits};
use lepus_broker::connection::PeerInfo;
use lepus_broker::directory::{Checked, Directory, Request};
use lepus_broker::query::{PLACES_MAX, Page};
use lepus_broker::{Answer, Broker, Limits, Outbox, Query, Settings};

const NOW: Now = Now { instant: lepus_base::Instant(1), wall_millis: 1 };

fn frame<'a>(number: u16, method: impl Into<Method<'a>>, into: &mut Vec<u8>) {
    method.into().encode_frame(number, into);
}

/// What a client says that logs in, opens a channel, publishes to a queue and consumes from it.
fn words(queue: &str) -> Vec<u8> {
    let mut bytes = b"AMQP\x00\x00\x09\x01".to_vec();
    let start = connection::StartOk {
        client_properties: TableRef::default(),
        mechanism: "PLAIN",
        response: b"\0guest\0guest",
        locale: "en_US",
    };
    frame(0, start, &mut bytes);
    let tune = connection::TuneOk { channel_max: 10, frame_max: 131_072, heartbeat: 0 };
    frame(0, tune, &mut bytes);
    frame(0, connection::Open { virtual_host: "/" }, &mut bytes);
    frame(1, channel::Open {}, &mut bytes);
    for _ in 0..2 {
        let publish = basic::Publish { routing_key: queue, ..basic::Publish::default() };
        frame(1, publish, &mut bytes);
        // The header of an empty body without properties.
        bytes.extend_from_slice(&[
            2, 0, 1, 0, 0, 0, 14, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xCE,
        ]);
    }
    frame(1, basic::Qos { prefetch_count: 1, ..basic::Qos::default() }, &mut bytes);
    frame(1, basic::Consume { queue, ..basic::Consume::default() }, &mut bytes);
    bytes
}

/// A shard with so many queues and connections. Each connection has one message of a queue unacknowledged, and one
/// is left there.
fn shard(queues: usize, connections: usize) -> (Broker, Outbox) {
    let mut broker = Broker::new(Settings {
        shard: ShardId(0),
        shards: 1,
        node: "rabbit@localhost".into(),
        nodes: Vec::new(),
        hash: HashState::new(1),
        secret: [1; 32],
        server: Default::default(),
        limits: Limits::default(),
        store: None,
    });
    let mut out = Outbox::new(1);
    broker.preset(NOW, &Directory::preset("guest", b"guest", [1; 4], "/"), &mut out);
    for number in 0..queues {
        let request = Request::DeclareQueue {
            vhost: "/".into(),
            name: format!("q{number}"),
            server_named: false,
            durable: true,
            exclusive: None,
            auto_delete: false,
            arguments: Table::new(),
            declared_on: ShardId(0),
            user: "guest".into(),
        };
        let Ok(Checked::Change(change)) = broker.directory.check(&request) else {
            panic!("q{number} cannot be declared");
        };
        broker.preset(NOW, &[change], &mut out);
    }
    for number in 0..connections {
        let id = ConnectionId(1 + number as u64);
        let peer = PeerInfo { loopback: true, ..PeerInfo::default() };
        let slot = broker.accept(NOW, id, peer, None, &mut out);
        let words = words(&format!("q{number}"));
        let mut consumed = 0;
        while consumed < words.len() {
            let taken = broker.received(NOW, slot, &words[consumed..], &mut out);
            consumed += taken;
            assert!(taken > 0, "{consumed} bytes are taken");
            end_turn(&mut broker, &mut out);
        }
        let sent = broker.connections.bytes_to_send(slot);
        broker.sent(NOW, slot, sent, &mut out);
        end_turn(&mut broker, &mut out);
    }
    (broker, out)
}

/// What a driver calls in every turn.
fn end_turn(broker: &mut Broker, out: &mut Outbox) {
    broker.work(NOW, out);
    broker.flush(NOW, out);
    broker.flush(NOW, out);
    out.dirty.clear();
    out.events.clear();
    out.pause.clear();
    out.resume.clear();
    assert!(out.close.is_empty(), "the broker closes nobody");
}

/// The answer to a question, and looks at tables in the turn in which it is asked.
fn ask((broker, out): &mut (Broker, Outbox), query: Query) -> (Answer, u64) {
    let before = visits();
    broker.query(NOW, 7, query, out);
    end_turn(broker, out);
    let (number, answer) = out.answers.pop().expect("an answer");
    assert_eq!(number, 7);
    (answer, visits() - before)
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "looks are counted in debug builds")]
fn metrics_health_and_status_cost_the_same_however_much_there_is() {
    let (mut few, mut many) = (shard(10, 10), shard(100_000, 10_000));
    for (shard, queues, connections) in [(&mut few, 10, 10), (&mut many, 100_000, 10_000)] {
        let (Answer::Figures(figures), _) = ask(shard, Query::Figures) else {
            panic!("no figures");
        };
        let held = figures.holdings;
        assert_eq!((held.queues, held.connections), (queues, connections));
        assert_eq!(
            (held.channels, held.publishers, held.consumers),
            (held.connections, held.connections, held.connections)
        );
        assert_eq!((held.ready, held.unacked), (held.connections, held.connections));
    }
    // Metrics and the status are made of figures.
    for query in [Query::Figures, Query::Alive] {
        let (_, cost_of_few) = ask(&mut few, query.clone());
        let (_, cost_of_many) = ask(&mut many, query.clone());
        assert_eq!(cost_of_few, cost_of_many, "{query:?}");
    }
    // A walk would not have gone unseen.
    let before = visits();
    assert_eq!(many.0.view().miscounted(), None);
    assert!(visits() - before >= 110_000);
    // Parts of lists: some looks for each place that they cover.
    let page = Page { from: 50_000, limit: usize::MAX };
    let vhost = "/".to_owned();
    for query in [
        Query::Queues { vhost: vhost.clone(), page },
        Query::Connections(Page { from: 5_000, ..page }),
        Query::ConnectionsById(vec![ConnectionId(1), ConnectionId(u64::MAX)]),
        Query::Exchanges { vhost: vhost.clone(), page: Page { from: 0, ..page } },
        Query::Bindings { vhost, page },
    ] {
        let (answer, cost) = ask(&mut many, query);
        assert!(cost <= 8 * PLACES_MAX as u64, "{cost} looks for {answer:?}");
    }
}
