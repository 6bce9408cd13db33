//! Arbitrary input: nothing panics, and nothing depends on how the bytes are cut.

use crate::driver::{HEADER, Seen, Server, frame, header, method, open, start_ok, tune_ok};
use lepus_amqp::client::{ClientConnection, ClientEvent, ClientOptions, encode_publish};
use lepus_amqp::frame::FrameKind;
use lepus_amqp::method::{basic, channel, connection, queue};
use lepus_amqp::properties::{Change, Edit};
use lepus_amqp::server::{ServerOptions, State};
use lepus_amqp::{Method, Properties, PropertiesRef, Table, TableRef, Value, sasl};
use lepus_base::{Instant, Rng};

fn bytes(rng: &mut Rng, length_max: u64) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(length_max) as usize];
    rng.fill(&mut bytes);
    bytes
}

/// A value of any type.
fn value(rng: &mut Rng, depth: u32) -> Value {
    match rng.below(if depth < 5 { 18 } else { 16 }) {
        0 => rng.chance(1, 2).into(),
        1 => (rng.next_u64() as i8).into(),
        2 => (rng.next_u64() as u8).into(),
        3 => (rng.next_u64() as i16).into(),
        4 => (rng.next_u64() as u16).into(),
        5 => (rng.next_u64() as i32).into(),
        6 => (rng.next_u64() as u32).into(),
        7 => (rng.next_u64() as i64).into(),
        8 => rng.next_u64().into(),
        9 => (rng.below(1000) as f32 / 8.0).into(),
        10 => (rng.below(1000) as f64 / -8.0).into(),
        11 => Value::Decimal { scale: rng.next_u64() as u8, value: rng.next_u64() as u32 },
        12 => bytes(rng, 20).into(),
        13 => Value::Timestamp(rng.next_u64()),
        14 => Value::Void,
        15 => Value::Binary(bytes(rng, 20)),
        16 => {
            let count = rng.below(4);
            let values: Vec<Value> = (0..count).map(|_| value(rng, depth + 1)).collect();
            values.into()
        }
        _ => table(rng, depth + 1).into(),
    }
}

fn table(rng: &mut Rng, depth: u32) -> Table {
    let count = rng.below(5);
    (0..count)
        .map(|_| {
            let name = format!("k{}", rng.below(100));
            let value = value(rng, depth);
            (name, value)
        })
        .collect()
}

/// Damages some bytes.
fn damage(rng: &mut Rng, bytes: &mut [u8]) {
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len() as u64) as usize;
        if let Some(byte) = bytes.get_mut(at) {
            *byte = match rng.below(4) {
                0 => 0,
                1 => 0xff,
                2 => byte.wrapping_add(1),
                _ => rng.next_u64() as u8,
            };
        }
    }
}

#[test]
fn any_table_survives_a_round_trip() {
    let mut rng = Rng::new(11);
    for _ in 0..2000 {
        let table = table(&mut rng, 0);
        let encoded = table.to_bytes();
        let view = TableRef::decode(encoded.as_ref().bytes()).unwrap();
        assert_eq!(view.to_owned(), table);
    }
}

#[test]
fn damaged_tables_properties_and_responses_are_refused_or_read() {
    let mut rng = Rng::new(12);
    let mut refused = 0;
    for _ in 0..5000 {
        let headers = table(&mut rng, 0);
        let mut encoded = Properties {
            headers: Some(headers.clone()),
            expiration: Some("100".into()),
            timestamp: Some(1),
            ..Properties::default()
        }
        .to_bytes();
        damage(&mut rng, &mut encoded);
        let view = PropertiesRef(&encoded);
        let edit = Edit { expiration: Change::Remove, ..Edit::default() };
        // Looking without validating must be harmless, too.
        let _ = view.headers().map(|headers| headers.to_owned());
        let _ = (view.timestamp(), view.cluster_id(), view.is_persistent());
        let rewritten = view.rewrite(&edit);
        match view.validate() {
            Ok(()) => {
                let owned = Properties::decode(&encoded).unwrap();
                let rewritten = Properties::decode(&rewritten.unwrap()).unwrap();
                assert_eq!(rewritten.expiration, None);
                // NaN is not equal to itself; its bytes are.
                assert_eq!(
                    rewritten.headers.map(|headers| headers.to_bytes()),
                    owned.headers.map(|headers| headers.to_bytes())
                );
            }
            Err(_) => refused += 1,
        }
        let mut encoded = headers.to_bytes().as_ref().bytes().to_vec();
        damage(&mut rng, &mut encoded);
        let _ = TableRef::decode(&encoded);
        let _ = sasl::amqplain(&encoded);
        let _ = sasl::plain(&encoded);
    }
    assert!((500..4500).contains(&refused), "{refused}");
}

#[test]
fn any_method_payload_is_decoded_or_refused() {
    let mut rng = Rng::new(13);
    let mut decoded = 0;
    for _ in 0..50_000 {
        let mut payload = bytes(&mut rng, 60);
        if payload.len() >= 4 {
            let class = [10, 20, 30, 40, 50, 60, 85, 90][rng.below(8) as usize];
            let method = rng.below(13) as u8 * 10 + rng.below(2) as u8;
            payload[..4].copy_from_slice(&[0, class, 0, method]);
            if rng.chance(1, 2) {
                payload[4..].fill(0);
            }
        }
        if let Ok(method) = Method::decode(&payload) {
            decoded += 1;
            let mut out = Vec::new();
            method.encode_frame(1, &mut out);
            let (frame, _) = lepus_amqp::frame::decode(&out, 8192).unwrap().unwrap();
            // Compared as bytes: a table may hold a NaN, bits may have had unused company.
            let mut again = Vec::new();
            Method::decode(frame.payload).unwrap().encode_frame(1, &mut again);
            assert_eq!(again, out);
        }
    }
    assert!(decoded > 5000, "{decoded}");
}

/// A conversation of a client, mostly well-formed.
fn conversation(rng: &mut Rng) -> Vec<u8> {
    let mut out = HEADER.to_vec();
    out.extend(start_ok(&table(rng, 0), "PLAIN"));
    out.extend(tune_ok(20, 4096, 0));
    out.extend(open("/"));
    for _ in 0..rng.below(20) {
        let channel = rng.below(5) as u16 + 1;
        match rng.below(9) {
            0 => out.extend(method(channel, channel::Open {})),
            1 => {
                let arguments = table(rng, 0).to_bytes();
                out.extend(method(
                    channel,
                    queue::Declare {
                        queue: "q",
                        arguments: arguments.as_ref(),
                        ..queue::Declare::default()
                    },
                ));
            }
            2 => out.extend(frame(FrameKind::Heartbeat, 0, b"")),
            3 => {
                let body = bytes(rng, 9000);
                out.extend(method(channel, basic::Publish::default()));
                out.extend(header(channel, 60, 0, body.len() as u64, &[0, 0]));
                let piece_bytes = rng.below(4000) as usize + 1;
                for piece in body.chunks(piece_bytes) {
                    out.extend(frame(FrameKind::Body, channel, piece));
                }
            }
            4 if rng.chance(1, 10) => out.extend(method(0, connection::Close::default())),
            5 if rng.chance(1, 10) => out.extend(bytes(rng, 30)),
            _ => {
                let properties = Properties {
                    headers: rng.chance(1, 2).then(|| table(rng, 0)),
                    ..Properties::default()
                };
                let length_max = if rng.chance(1, 4) { 20_000 } else { 40 };
                let body = bytes(rng, length_max);
                encode_publish(
                    &mut out,
                    channel,
                    4096,
                    "exchange",
                    "key",
                    rng.chance(1, 2),
                    &properties.to_bytes(),
                    &body,
                );
            }
        }
    }
    out
}

/// What a server sees of the bytes when they come in pieces of these sizes.
fn conversed(bytes: &[u8], mut piece_bytes: impl FnMut() -> usize) -> (Vec<Seen>, Vec<u8>) {
    let options = ServerOptions { body_bytes_max: 15_000, ..ServerOptions::default() };
    let mut server = Server::new(&options);
    let mut seen = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(piece_bytes().clamp(1, rest.len()));
        rest = after;
        let mut new = server.feed(piece);
        // What waits for a decision goes on behind it.
        while let Some(last) = new.last().cloned() {
            seen.append(&mut new);
            let machine = &mut server.machine;
            match last {
                Seen::Authenticate(..) => {
                    machine.authenticated(server.now, Ok(()), &mut server.out)
                }
                Seen::Open(_) => machine.opened(server.now, Ok(()), &mut server.out),
                Seen::Error(error) => machine.close(server.now, &error, &mut server.out),
                Seen::Close(..) => machine.close_ok(server.now, &mut server.out),
                _ => break,
            }
            new = server.feed(b"");
        }
    }
    (seen, server.out)
}

#[test]
fn events_do_not_depend_on_how_the_bytes_are_cut() {
    let mut rng = Rng::new(14);
    let mut published = 0;
    for round in 0..600 {
        let mut input = conversation(&mut rng);
        if rng.chance(1, 3) {
            damage(&mut rng, &mut input);
        }
        let whole = conversed(&input, || usize::MAX);
        published += whole.0.iter().filter(|seen| matches!(seen, Seen::Publish(_))).count();
        let size_max = [2, 10, 100, 5000][rng.below(4) as usize];
        let mut sizes = rng.clone();
        let cut = conversed(&input, || sizes.below(size_max) as usize + 1);
        let is_lost = |seen: &[Seen]| {
            seen.iter().any(|seen| {
                matches!(seen, Seen::Error(error) if error.code.0 == 501)
                    || matches!(seen, Seen::Disconnect)
            })
        };
        if is_lost(&whole.0) {
            // Behind a frame error close-ok is looked for at the end of each read.
            let until = whole.0.len().min(cut.0.len());
            assert_eq!(whole.0[..until], cut.0[..until], "round {round}");
        } else {
            assert_eq!(whole, cut, "round {round}");
        }
    }
    assert!(published > 1000, "{published}");
}

#[test]
fn a_client_takes_whatever_a_server_sends() {
    let mut rng = Rng::new(15);
    let mut opened = 0;
    for _ in 0..1000 {
        let mut server = Server::new(&ServerOptions::default());
        let mut out = Vec::new();
        let options = ClientOptions::default();
        let mut client = ClientConnection::new(options, Instant::from_millis(0), &mut out);
        server.feed(HEADER);
        server.feed(&start_ok(&Table::new(), "PLAIN"));
        server.machine.authenticated(server.now, Ok(()), &mut server.out);
        server.feed(&tune_ok(10, 4096, 0));
        server.feed(&open("/"));
        server.machine.opened(server.now, Ok(()), &mut server.out);
        assert_eq!(server.machine.state(), State::Running);
        for tag in 0..5 {
            lepus_amqp::server::encode_delivery(
                &mut server.out,
                1,
                4096,
                "tag",
                tag,
                false,
                b"e",
                b"k",
                &[0, 0],
                &bytes(&mut rng, 6000),
            );
        }
        damage(&mut rng, &mut server.out);
        server.out.extend(bytes(&mut rng, 100));
        let mut start = 0;
        let mut end = 0;
        while end < server.out.len() {
            end = (end + rng.below(500) as usize + 1).min(server.out.len());
            loop {
                let now = Instant::from_millis(0);
                let (consumed, event) = client.receive(now, &server.out[start..end], &mut out);
                start += consumed;
                match event {
                    ClientEvent::None if consumed == 0 => break,
                    ClientEvent::Opened => opened += 1,
                    _ => {}
                }
            }
        }
    }
    assert!(opened > 100, "{opened}");
}
