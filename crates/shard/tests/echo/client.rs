//! A blocking client and a server to talk to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lepus_shard::{
    Admission, Clock, Config, IdlePreset, Listener, NoticeReader, Runtime, Transport,
};

use crate::core::{EchoAnswer, EchoCore, EchoQuery, WHERE, frame};

/// Longer than a shard ever takes to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub type Running = lepus_shard::Running<EchoCore>;

pub fn config(shards: u16) -> (Config<String>, NoticeReader<String>) {
    let (notices, log) = lepus_shard::notices(|_| false);
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
        clock: Clock::start(),
    };
    (config, log)
}

pub fn start_with(config: Config<String>) -> Running {
    let shards = config.plan.shards as u16;
    Runtime::start(config, move |shard, _| Ok(EchoCore::new(shard, shards))).unwrap()
}

pub fn start(shards: u16) -> Running {
    start_with(config(shards).0)
}

pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream }
    }

    /// One connection per shard, in the order of the shards.
    pub fn one_per_shard(running: &Running) -> Vec<Client> {
        let shards = running.metrics().len();
        let mut clients: Vec<Option<Client>> = (0..shards).map(|_| None).collect();
        for _ in 0..shards {
            let mut client = Client::connect(running.addresses()[0]);
            let shard = client.ask(WHERE, b"", 1)[0];
            clients[usize::from(shard)] = Some(client);
        }
        clients.into_iter().map(|client| client.expect("connections are spread evenly")).collect()
    }

    pub fn send(&mut self, operation: u8, payload: &[u8]) {
        self.stream.write_all(&frame(operation, payload)).unwrap();
    }

    pub fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn ask(&mut self, operation: u8, payload: &[u8], count: usize) -> Vec<u8> {
        self.send(operation, payload);
        self.read(count)
    }

    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).unwrap();
        bytes
    }
}

pub fn finish(running: Running) {
    running.stop();
    assert_eq!(running.join().cut, 0);
}

/// The sum of what all shards answer.
pub fn sum(running: &Running, query: &EchoQuery) -> u64 {
    let answers = running.commands().wait_all(query, ANSWER_TIMEOUT).unwrap();
    let count = |answer| match answer {
        EchoAnswer::Count(count) => count,
        other => panic!("{other:?}"),
    };
    answers.into_iter().map(count).sum()
}

/// Waits until the shards have counted so many ended connections.
pub fn await_closed(running: &Running, count: u64) {
    loop {
        if sum(running, &EchoQuery::Closed) == count {
            return;
        }
    }
}
