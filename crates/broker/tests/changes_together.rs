//! Many changes of the directory that one question asks for: carried out in their order, answered together.

use std::sync::mpsc::TryRecvError;

use lepus_amqp::method::exchange;
use lepus_base::ShardId;
use lepus_broker::directory::{Request, VhostRef};
use lepus_broker::refusal::RefusalKind;
use lepus_broker::{Answer, Query};
use lepus_sim::{Limits, Options, StoreOptions, World};

fn declare(vhost: &str, name: &str) -> Request {
    Request::DeclareQueue {
        vhost: VhostRef::Name(vhost.into()),
        name: name.into(),
        server_named: false,
        durable: true,
        exclusive: None,
        auto_delete: false,
        arguments: Default::default(),
        declared_on: ShardId(0),
        user: "guest".into(),
    }
}

fn results(answer: Result<Answer, TryRecvError>) -> Vec<Result<(), RefusalKind>> {
    match answer {
        Ok(Answer::ChangedAll(all)) => {
            all.into_iter().map(|result| result.map_err(|refusal| refusal.kind)).collect()
        }
        other => panic!("no answer to many changes: {other:?}"),
    }
}

#[test]
fn one_that_is_refused_stops_no_other() {
    for store in [None, Some(StoreOptions::default())] {
        let world = World::with(Options { shards: 2, store, ..Options::default() });
        let wishes = vec![
            declare("/", "a"),
            declare("missing", "b"),
            declare("/", "a"),
            Request::CreateVhost { name: "v".into(), metadata: Default::default() },
            declare("v", "c"),
            Request::DeleteVhost { name: "missing".into() },
        ];
        let answer = world.begin_asking(0, Query::ChangeAll(wishes));
        world.settle();
        let refused = Err(RefusalKind::NotFound);
        assert_eq!(results(answer.try_recv()), [Ok(()), refused, Ok(()), Ok(()), Ok(()), refused]);
        for shard in 0..2 {
            world.broker(shard, |broker| {
                assert_eq!(broker.directory.queues(None).len(), 2);
                assert!(broker.directory.vhost("v").is_some());
            });
        }
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn none_is_answered_at_once() {
    let world = World::new(1);
    assert_eq!(world.ask(0, Query::ChangeAll(Vec::new())), Answer::ChangedAll(Vec::new()));
}

#[test]
fn they_are_answered_when_the_last_is_over() {
    let limits = Limits { bindings_at_once: 8, ..Limits::default() };
    let world = World::with(Options { shards: 2, limits, ..Options::default() });
    let channel = world.connect(1).channel();
    channel.declare("q");
    channel.declare("other");
    for number in 0..200 {
        channel.bind("q", "amq.topic", &format!("key.{number}"));
    }
    // The first goes in slices: the second is over long before it.
    let id = world.broker(0, |broker| {
        let vhost = broker.directory.vhost("/").expect("it is there from the start");
        broker.directory.queue(vhost, "q").expect("it was declared").id
    });
    let delete = Request::DeleteQueue { id };
    let answer = world.begin_asking(0, Query::ChangeAll(vec![delete, declare("/", "new")]));
    while world.broker(0, |broker| broker.directory.queues(None).len() != 2) {
        world.round();
    }
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
    world.settle();
    assert_eq!(results(answer.try_recv()), [Ok(()), Ok(())]);
    assert_eq!(world.leaks(), [""; 0]);
}

/// Otherwise a shard that applies changes as fast as another makes them would do nothing else until the last.
#[test]
fn a_shard_that_falls_behind_is_waited_for() {
    /// More changes than these are not on their way to a shard.
    const AHEAD: usize = 512;
    const ALL: usize = 2_000;
    for store in [None, Some(StoreOptions::default())] {
        let world = World::with(Options { shards: 3, store, ..Options::default() });
        let queues = |shard| world.broker(shard, |broker| broker.directory.queues(None).len());
        let channel = world.channel(0);
        let wishes = (0..ALL).map(|number| declare("/", &format!("q{number}"))).collect();
        let answer = world.quietly(|| world.begin_asking(0, Query::ChangeAll(wishes)));
        // Only the first gets on, and two of the three.
        for held_up in [&[1, 2][..], &[2]] {
            (0..100).for_each(|_| world.round_without(held_up));
            assert!(queues(0) > AHEAD / 2 && queues(0) <= AHEAD, "{} queues", queues(0));
        }
        assert!(answer.try_recv().is_err());
        let asks = exchange::Declare { exchange: "amq.topic", passive: true, ..Default::default() };
        world.quietly(|| channel.send(asks));
        (0..3).for_each(|_| world.round_without(&[1, 2]));
        assert_eq!(
            world.quietly(|| channel.answer()).map(|answer| answer.name()),
            Some("exchange.declare-ok")
        );
        // In one turn a shard applies no more, and in each somebody is served.
        let mut before = 0;
        while answer.try_recv().is_err() {
            world.round();
            assert!(queues(2) <= before + AHEAD, "{} queues after {before}", queues(2));
            before = queues(2);
        }
        world.settle();
        assert!((0..3).all(|shard| queues(shard) == ALL));
        assert_eq!(world.leaks(), [""; 0]);
    }
}
