//! One shard, turn by turn, against sockets in memory: what it reads and writes, and how often.

#[path = "echo/core.rs"]
#[allow(dead_code)]
mod core;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lepus_base::{ConnectionId, Now, ShardId};
use lepus_mesh::Bell;
use lepus_reactor::{Reactor, Readiness, Socket, Token};
use lepus_shard::{Arrival, Commands, PeerInfo, Shard, Turn, Unanswered, Wiring};

use crate::core::*;

/// A socket's two directions and a count of the calls.
#[derive(Default)]
struct Wire {
    token: Option<Token>,
    input: VecDeque<u8>,
    input_ended: bool,
    output: Vec<u8>,
    output_ended: bool,
    room: usize,
    reads: usize,
    writes: usize,
    acknowledged: usize,
    is_forgotten: bool,
    /// Readiness that the next poll reports.
    edge: Option<Readiness>,
}

#[derive(Clone)]
struct MemorySocket(Arc<Mutex<Wire>>);

impl Socket for MemorySocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        wire.reads += 1;
        let count = buffer.len().min(wire.input.len());
        if count == 0 && !wire.input_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for (target, byte) in buffer.iter_mut().zip(wire.input.drain(..count)) {
            *target = byte;
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        wire.writes += 1;
        let count = bytes.len().min(wire.room);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wire.room -= count;
        wire.output.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn acknowledge_at_once(&mut self) {
        self.0.lock().unwrap().acknowledged += 1;
    }

    fn forget_unsent_soon(&mut self) {
        self.0.lock().unwrap().is_forgotten = true;
    }

    fn shut_down_writing(&mut self) {
        self.0.lock().unwrap().output_ended = true;
    }
}

impl MemorySocket {
    fn new() -> MemorySocket {
        let wire = Wire { room: usize::MAX, ..Wire::default() };
        MemorySocket(Arc::new(Mutex::new(wire)))
    }

    fn event(&self, change: impl FnOnce(&mut Readiness)) {
        let mut wire = self.0.lock().unwrap();
        let token = wire.token.expect("the socket is registered");
        let nothing =
            Readiness { token, readable: false, writable: false, ending: false, dead: false };
        change(wire.edge.get_or_insert(nothing));
    }

    fn give(&self, bytes: &[u8]) {
        self.0.lock().unwrap().input.extend(bytes);
        self.event(|edge| edge.readable = true);
    }

    fn end(&self) {
        self.0.lock().unwrap().input_ended = true;
        self.event(|edge| {
            edge.readable = true;
            edge.ending = true;
        });
    }

    fn make_room(&self, room: usize) {
        self.0.lock().unwrap().room = room;
        self.event(|edge| edge.writable = true);
    }

    fn output(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap().output)
    }

    /// Reads and writes since the last look.
    fn calls(&self) -> (usize, usize) {
        let mut wire = self.0.lock().unwrap();
        (std::mem::take(&mut wire.reads), std::mem::take(&mut wire.writes))
    }
}

/// Reports the edges of the sockets it knows.
#[derive(Default)]
struct MemoryReactor(Vec<MemorySocket>);

impl Reactor for MemoryReactor {
    type Socket = MemorySocket;

    fn register(&mut self, socket: &mut MemorySocket, token: Token) -> io::Result<()> {
        socket.0.lock().unwrap().token = Some(token);
        self.0.push(socket.clone());
        Ok(())
    }

    fn deregister(&mut self, socket: &mut MemorySocket) -> io::Result<()> {
        socket.0.lock().unwrap().token = None;
        self.0.retain(|known| !Arc::ptr_eq(&known.0, &socket.0));
        Ok(())
    }

    fn poll(&mut self, _: Option<Duration>, ready: &mut Vec<Readiness>) -> io::Result<bool> {
        ready.extend(self.0.iter().filter_map(|socket| socket.0.lock().unwrap().edge.take()));
        Ok(false)
    }
}

/// All that connects so many shards.
fn wiring(shards: u16) -> Wiring<EchoCore, MemorySocket> {
    let (notices, _log) = lepus_shard::notices(|_| false);
    let bells: Vec<_> = (0..shards).map(|_| Arc::new(Bell::new(|| ()))).collect();
    Wiring::new(&bells, 2, &notices)
}

/// The next of these shards.
fn shard(
    wiring: &mut Wiring<EchoCore, MemorySocket>,
    number: u16,
    shards: u16,
) -> Shard<EchoCore, MemoryReactor> {
    let core = EchoCore::new(ShardId(number), shards);
    Shard::new(core, MemoryReactor::default(), wiring.links.remove(0))
}

struct Bench {
    shard: Shard<EchoCore, MemoryReactor>,
    wiring: Wiring<EchoCore, MemorySocket>,
    millis: u64,
    next: u64,
}

impl Bench {
    fn new() -> Bench {
        let mut wiring = wiring(1);
        Bench { shard: shard(&mut wiring, 0, 1), wiring, millis: 1, next: 0 }
    }

    /// A connection that has settled down.
    fn connect(&mut self) -> MemorySocket {
        let socket = MemorySocket::new();
        self.next += 1;
        let address = "127.0.0.1:1".parse().unwrap();
        let arrival = Arrival {
            replaces: false,
            id: ConnectionId(self.next),
            socket: socket.clone(),
            peer: PeerInfo { address, local_address: address, tls: None, login_name: None },
            tls: None,
        };
        assert!(self.wiring.arrivals[0].put(arrival).is_ok());
        while self.turn().more {}
        socket.calls();
        socket
    }

    fn turn(&mut self) -> Turn {
        self.shard.poll(None).unwrap();
        self.shard.turn(Now::from_millis(self.millis))
    }
}

#[test]
fn one_read_and_one_write_serve_any_number_of_frames() {
    let mut bench = Bench::new();
    let socket = bench.connect();
    socket.give(&frame(ECHO, b"x").repeat(1000));
    let turn = bench.turn();
    assert_eq!(socket.calls(), (1, 1));
    assert_eq!(socket.output(), b"x".repeat(1000));
    assert!(turn.busy && !turn.more, "nothing is left to do");
    assert!(!bench.turn().busy);
    assert_eq!(socket.calls(), (0, 0));
}

#[test]
fn a_flood_shares_the_turn_with_the_others() {
    let mut bench = Bench::new();
    let floods: Vec<_> = (0..6).map(|_| bench.connect()).collect();
    let quiet = bench.connect();
    for flood in &floods {
        flood.calls();
        flood.give(&frame(ECHO, &[1; 1021]).repeat(1024));
    }
    quiet.give(&frame(ECHO, b"quick"));
    let mut turns = 0;
    let mut answer = Vec::new();
    while answer.is_empty() {
        assert!(turns == 0 || bench.turn().more);
        turns += 1;
        answer = quiet.output();
        for flood in &floods {
            assert!(flood.calls().0 <= 1, "more than one read in a turn");
        }
    }
    assert_eq!(answer, b"quick");
    // Four pieces of 64 KiB fit a turn: the seventh in the queue is reached in the second turn.
    assert!(turns <= 3, "{turns} turns");
    while bench.turn().more {}
    for flood in &floods {
        assert_eq!(flood.output().len(), 1021 * 1024);
    }
}

#[test]
fn a_full_socket_is_left_alone_until_it_has_room() {
    let mut bench = Bench::new();
    let socket = bench.connect();
    socket.make_room(10);
    socket.give(&frame(BULK, &1u16.to_be_bytes()));
    assert!(!bench.turn().more);
    assert_eq!(socket.calls(), (1, 1));
    // More to send is no reason to try again.
    socket.give(&frame(ECHO, b"more"));
    assert!(!bench.turn().more);
    assert_eq!(socket.calls(), (1, 0));
    socket.make_room(usize::MAX);
    bench.turn();
    assert_eq!(socket.calls(), (0, 1));
    assert_eq!(socket.output().len(), 1024 + 4);
}

#[test]
fn a_paused_connection_is_not_read() {
    let mut bench = Bench::new();
    let socket = bench.connect();
    socket.give(&frame(PAUSE, b""));
    bench.turn();
    socket.calls();
    socket.give(&frame(ECHO, b"later"));
    assert!(!bench.turn().more);
    assert_eq!(socket.calls(), (0, 0));
    assert_eq!(bench.shard.next_timeout().0, 2_000_000);
    bench.millis += 1;
    while bench.turn().more {}
    assert_eq!(socket.output(), b"plater");
}

#[test]
fn a_large_frame_in_small_pieces_is_put_together() {
    let mut bench = Bench::new();
    let socket = bench.connect();
    let body: Vec<u8> = (0..65_535u32).map(|n| n as u8).collect();
    let mut bytes = frame(ECHO, &body);
    bytes.extend(frame(ECHO, b"next"));
    for piece in bytes.chunks(700) {
        socket.give(piece);
        bench.turn();
    }
    let output = socket.output();
    assert_eq!(output.len(), body.len() + 4);
    assert_eq!(output[..body.len()], body);
    assert_eq!(&output[body.len()..], b"next");
}

#[test]
fn the_end_behind_bytes_is_found_without_another_event() {
    let mut bench = Bench::new();
    let socket = bench.connect();
    socket.give(&frame(ECHO, b"last"));
    socket.end();
    while bench.turn().more {}
    assert_eq!(socket.output(), b"last");
    assert_eq!(bench.shard.connections(), 0);
}

#[test]
fn who_asked_for_the_end_and_ended_its_side_is_still_answered() {
    let mut bench = Bench::new();
    let (waits, late) = (bench.connect(), bench.connect());
    for socket in [&waits, &late] {
        socket.give(&frame(QUIT, b""));
        socket.end();
        bench.turn();
    }
    while bench.turn().more {}
    assert_eq!((waits.output(), bench.shard.connections()), (Vec::new(), 2));
    late.make_room(0);
    bench.millis += 1;
    while bench.turn().more {}
    assert_eq!(waits.output(), b"bye");
    assert!(waits.0.lock().unwrap().output_ended);
    assert_eq!(bench.shard.connections(), 1, "whoever takes nothing keeps its answer for a while");
    bench.millis += 10_000;
    bench.turn();
    assert_eq!((late.output(), bench.shard.connections()), (Vec::new(), 0));
}

#[test]
fn a_closed_connection_lingers_for_the_peers_end_and_no_longer() {
    let mut bench = Bench::new();
    let (polite, rude) = (bench.connect(), bench.connect());
    for socket in [&polite, &rude] {
        socket.give(&frame(CLOSE, b"bye"));
    }
    while bench.turn().more {}
    for socket in [&polite, &rude] {
        assert_eq!(socket.output(), b"bye");
        assert!(socket.0.lock().unwrap().output_ended);
        socket.give(&frame(ECHO, b"unheard"));
    }
    polite.end();
    while bench.turn().more {}
    assert_eq!(bench.shard.connections(), 1);
    assert_eq!(rude.output(), b"");
    bench.millis = bench.shard.next_timeout().0 / 1_000_000;
    bench.turn();
    assert_eq!(bench.shard.connections(), 0);
}

#[test]
fn a_peer_that_never_takes_its_last_bytes_is_cut() {
    let mut bench = Bench::new();
    let socket = bench.connect();
    socket.make_room(0);
    socket.give(&frame(CLOSE, b"bye"));
    while bench.turn().more {}
    assert_eq!(bench.shard.connections(), 1);
    bench.millis += 9_999;
    bench.turn();
    assert_eq!(bench.shard.connections(), 1);
    bench.millis += 1;
    bench.turn();
    assert_eq!(bench.shard.connections(), 0);
    assert!(!socket.0.lock().unwrap().output_ended);
    assert!(socket.0.lock().unwrap().is_forgotten, "the system would keep its bytes for minutes");
}

#[test]
fn a_peer_that_ends_without_reading_leaves_nothing_to_the_system() {
    let mut bench = Bench::new();
    let (half_closed, giving_way) = (bench.connect(), bench.connect());
    for socket in [&half_closed, &giving_way] {
        socket.make_room(0);
        socket.give(&frame(ECHO, b"unread"));
    }
    while bench.turn().more {}
    half_closed.end();
    while bench.turn().more {}
    assert!(half_closed.0.lock().unwrap().is_forgotten);
    assert!(!giving_way.0.lock().unwrap().is_forgotten);
    bench.shard.cut_all(Now::from_millis(bench.millis));
    assert!(giving_way.0.lock().unwrap().is_forgotten);
}

#[test]
fn only_a_step_of_the_login_without_an_answer_is_acknowledged_by_itself() {
    let mut bench = Bench::new();
    let socket = bench.connect();
    let acknowledged = || socket.0.lock().unwrap().acknowledged;
    socket.give(&frame(KNOCK, b""));
    bench.turn();
    assert_eq!(acknowledged(), 1);
    socket.give(&frame(ECHO, b"in"));
    bench.turn();
    assert_eq!((acknowledged(), socket.output()), (1, b"in".to_vec()));
    // Nothing of the kind is done once it is in.
    socket.give(&frame(KNOCK, b""));
    bench.turn();
    assert_eq!(acknowledged(), 1);
}

#[test]
fn who_has_not_logged_in_gives_way_to_a_new_connection() {
    let mut bench = Bench::new();
    bench.shard = bench.shard.with_entering_max(3);
    let sockets: Vec<_> = (0..3).map(|_| bench.connect()).collect();
    sockets[0].give(&frame(ECHO, b"in"));
    sockets[1].give(&frame(KNOCK, b""));
    while bench.turn().more {}
    let is_there =
        |number: usize, sockets: &[MemorySocket]| sockets[number].0.lock().unwrap().token.is_some();
    // Two wait; with two more the silent one goes, with the next the one that knocked.
    let mut sockets = sockets;
    sockets.push(bench.connect());
    assert!((0..4).all(|number| is_there(number, &sockets)));
    sockets.push(bench.connect());
    let there: Vec<bool> = (0..5).map(|number| is_there(number, &sockets)).collect();
    assert_eq!(there, [true, true, false, true, true]);
    for socket in &sockets[3..] {
        socket.give(&frame(KNOCK, b""));
    }
    while bench.turn().more {}
    sockets.push(bench.connect());
    let there: Vec<bool> = (0..6).map(|number| is_there(number, &sockets)).collect();
    assert_eq!(there, [true, false, false, true, true, true]);
    assert_eq!(bench.shard.metrics().snapshot().gave_way, 2);
    // Who has logged in stays, and is served.
    sockets[0].output();
    sockets[0].give(&frame(ECHO, b"still"));
    bench.turn();
    assert_eq!(sockets[0].output(), b"still");
}

#[test]
fn who_is_at_the_end_gives_way_before_anybody_who_comes() {
    let mut bench = Bench::new();
    bench.shard = bench.shard.with_entering_max(3);
    let is_there = |socket: &MemorySocket| socket.0.lock().unwrap().token.is_some();
    let leaving: Vec<_> = (0..5)
        .map(|_| {
            let socket = bench.connect();
            socket.give(&frame(ECHO, b"in"));
            while bench.turn().more {}
            socket.give(&frame(LEAVE, b""));
            while bench.turn().more {}
            assert_eq!(socket.output(), b"inbye");
            socket
        })
        .collect();
    // They do nothing but to keep a place, and no more of them may than may be without a login.
    assert_eq!(leaving.iter().map(is_there).collect::<Vec<_>>(), [false, false, true, true, true]);
    assert_eq!(bench.shard.metrics().snapshot().entering, 3);
    let coming: Vec<_> = (0..2).map(|_| bench.connect()).collect();
    for socket in &coming {
        socket.give(&frame(KNOCK, b""));
    }
    // A word more makes no difference.
    leaving[4].give(&frame(KNOCK, b""));
    while bench.turn().more {}
    let last = bench.connect();
    assert!(coming.iter().all(is_there) && is_there(&last));
    assert!(!leaving.iter().any(is_there));
}

#[test]
fn no_more_connections_linger_than_may_be_without_a_login() {
    let mut bench = Bench::new();
    bench.shard = bench.shard.with_entering_max(3);
    let is_there = |socket: &MemorySocket| socket.0.lock().unwrap().token.is_some();
    let sockets: Vec<_> = (0..6)
        .map(|_| {
            let socket = bench.connect();
            socket.give(&frame(CLOSE, b"bye"));
            while bench.turn().more {}
            assert_eq!(socket.output(), b"bye");
            socket
        })
        .collect();
    let there: Vec<_> = sockets.iter().map(is_there).collect();
    assert_eq!(there, [false, false, false, true, true, true]);
    sockets[4].end();
    while bench.turn().more {}
    assert_eq!(bench.shard.connections(), 2);
    let one_more = bench.connect();
    one_more.give(&frame(CLOSE, b"bye"));
    while bench.turn().more {}
    assert!(is_there(&sockets[3]) && is_there(&sockets[5]) && is_there(&one_more));
}

#[test]
fn a_turn_reads_from_few_connections_however_little_they_say() {
    let mut bench = Bench::new();
    let sockets: Vec<_> = (0..2_000).map(|_| bench.connect()).collect();
    for socket in &sockets {
        socket.give(&frame(ECHO, b"x"));
    }
    let mut turns = 0;
    let mut is_unfinished = true;
    while is_unfinished {
        is_unfinished = bench.turn().more;
        turns += 1;
        let reads: usize = sockets.iter().map(|socket| socket.calls().0).sum();
        assert!(reads <= 512, "{reads} reads in one turn");
    }
    assert!(turns <= 5, "{turns} turns");
    assert!(sockets.iter().all(|socket| socket.output() == b"x"));
}

/// Has the shard count, and asks for the same again from where it is counted: faster than anybody.
fn count_again(commands: &Commands<EchoCore>, count: &Arc<AtomicUsize>) {
    let (again, counted) = (commands.clone(), Arc::clone(count));
    let waiter = move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) < 1_000 {
            count_again(&again, &counted);
        }
    };
    commands.ask(ShardId(0), EchoQuery::Version, waiter).unwrap();
}

#[test]
fn between_two_commands_everybody_else_is_served() {
    let mut bench = Bench::new();
    let socket = bench.connect();
    let count = Arc::new(AtomicUsize::new(0));
    count_again(&bench.wiring.commands, &count);
    for turn in 1..=5 {
        socket.give(&frame(ECHO, b"x"));
        bench.turn();
        assert_eq!(socket.output(), b"x");
        assert_eq!(count.load(Ordering::Relaxed), turn);
        assert!(bench.shard.bell().is_posted(), "it does not sleep before the next");
    }
}

#[test]
fn whoever_saw_a_change_done_is_told_of_it_by_every_shard() {
    let mut wiring = wiring(2);
    let (first, second) = (shard(&mut wiring, 0, 2), shard(&mut wiring, 1, 2));
    let mut bench = Bench { shard: first, wiring, millis: 1, next: 0 };
    let mut other = second;
    let socket = bench.connect();
    other.turn(Now::from_millis(1));
    socket.give(&frame(DECLARE, b""));
    bench.turn();
    assert_eq!(socket.output(), b"d");
    let told = Arc::new(Mutex::new(None));
    let answer = Arc::clone(&told);
    let waiter = move |version| *answer.lock().unwrap() = Some(version);
    bench.wiring.commands.ask(ShardId(1), EchoQuery::Version, waiter).unwrap();
    other.turn(Now::from_millis(1));
    assert_eq!(*told.lock().unwrap(), Some(EchoAnswer::Version(ShardId(1), 1)));
}

#[test]
fn whoever_waits_for_an_answer_waits_for_so_long_at_most() {
    let mut bench = Bench::new();
    let (commands, id) = (bench.wiring.commands.clone(), ShardId(0));
    // The shard makes no turn meanwhile: it is stuck, as far as others see.
    let version = || commands.wait(id, EchoQuery::Version, Duration::ZERO);
    let late = Unanswered::TooLate(id, Duration::ZERO);
    assert_eq!(version(), Err(late));
    assert_eq!(commands.wait_all(&EchoQuery::Version, Duration::ZERO), Err(late));
    assert_eq!(late.to_string(), "shard 0 does not answer within 0ns");
    // It answers later, and nobody takes that amiss.
    bench.turn();
    bench.turn();
    let answer = commands.begin(id, EchoQuery::Version).unwrap();
    bench.turn();
    assert_eq!(answer.try_recv(), Ok(EchoAnswer::Version(id, 0)));
    drop(bench);
    assert_eq!(version(), Err(Unanswered::Stopped(id)));
    assert_eq!(
        version().unwrap_err().to_string(),
        "shard 0 does not answer: the broker has stopped"
    );
}
