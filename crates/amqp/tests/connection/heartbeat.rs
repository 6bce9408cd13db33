use crate::driver::{HEADER, Server, open, start_ok, tune_ok};
use lepus_amqp::Table;
use lepus_amqp::frame::HEARTBEAT;
use lepus_amqp::server::{ServerOptions, State, TimeoutOutcome};
use lepus_base::Instant;
use std::time::Duration;

/// A server past the handshake with a heartbeat of ten seconds.
fn server(heartbeat: u16) -> Server {
    let mut server = Server::new(&ServerOptions::default());
    server.feed(HEADER);
    server.feed(&start_ok(&Table::new(), "PLAIN"));
    server.machine.authenticated(server.now, Ok(()), &mut server.out);
    server.feed(&tune_ok(10, 4096, heartbeat));
    server.feed(&open("/"));
    server.machine.opened(server.now, Ok(()), &mut server.out);
    server.out.clear();
    server
}

fn after(server: &Server, seconds: u64) -> Instant {
    server.now + Duration::from_secs(seconds)
}

#[test]
fn a_quiet_server_sends_a_heartbeat_every_half_interval() {
    let mut server = server(10);
    for step in 1..=3 {
        assert_eq!(server.machine.next_timeout(), after(&server, 5 * step));
        let outcome = server.machine.on_timeout(after(&server, 5 * step), &mut server.out);
        assert_eq!(outcome, TimeoutOutcome::Nothing);
        assert_eq!(server.out, HEARTBEAT);
        server.out.clear();
    }
}

#[test]
fn traffic_in_either_direction_moves_the_timers() {
    let mut server = server(10);
    let start = server.now;
    server.machine.sent(start + Duration::from_secs(4));
    let at = start + Duration::from_secs(5);
    let outcome = server.machine.on_timeout(at, &mut server.out);
    assert_eq!(outcome, TimeoutOutcome::Nothing);
    assert!(server.out.is_empty());
    server.now = start + Duration::from_secs(15);
    server.feed(&HEARTBEAT);
    let at = start + Duration::from_secs(39);
    let outcome = server.machine.on_timeout(at, &mut server.out);
    assert_eq!(outcome, TimeoutOutcome::Nothing);
    let at = start + Duration::from_secs(40);
    let outcome = server.machine.on_timeout(at, &mut server.out);
    assert_eq!(outcome, TimeoutOutcome::PeerDead);
    assert_eq!(server.machine.state(), State::Closed);
}

#[test]
fn a_peer_that_is_not_read_from_is_not_dead() {
    let mut server = server(10);
    let start = server.now;
    server.machine.reading_paused(start, true);
    let at = start + Duration::from_secs(100);
    let outcome = server.machine.on_timeout(at, &mut server.out);
    assert_eq!(outcome, TimeoutOutcome::Nothing);
    assert_eq!(server.out, HEARTBEAT);
    server.machine.reading_paused(at, false);
    let outcome = server.machine.on_timeout(at + Duration::from_secs(24), &mut server.out);
    assert_eq!(outcome, TimeoutOutcome::Nothing);
    let outcome = server.machine.on_timeout(at + Duration::from_secs(25), &mut server.out);
    assert_eq!(outcome, TimeoutOutcome::PeerDead);
}

#[test]
fn zero_switches_heartbeats_off() {
    let mut server = server(0);
    assert_eq!(server.machine.next_timeout(), Instant::NEVER);
    let at = after(&server, 1_000_000);
    let outcome = server.machine.on_timeout(at, &mut server.out);
    assert_eq!(outcome, TimeoutOutcome::Nothing);
    assert!(server.out.is_empty());
}
