//! The server's end of a connection: any bytes, cut anywhere, never panic, and where they are cut
//! does not change what happens until the first error. Behind one the machine looks for the peer's
//! close, and what it skips on the way may depend on what came together.
#![no_main]

use lepus_amqp::server::{Event, ServerConnection, ServerOptions, TimeoutOutcome};
use lepus_base::Instant;
use lepus_fuzz::handshake;
use libfuzzer_sys::fuzz_target;

/// When everything happens.
const NOW: Instant = Instant::from_millis(1);
/// Events that are looked at; a stream of heartbeats need not be followed for ever.
const EVENTS_MAX: usize = 2000;

fuzz_target!(|input: &[u8]| {
    let Some((&head, rest)) = input.split_first() else {
        return;
    };
    let mut bytes = Vec::new();
    // Half of the inputs start behind a handshake.
    if head & 1 == 1 {
        handshake(&mut bytes);
    }
    bytes.extend_from_slice(rest);
    let whole = run(&bytes, bytes.len().max(1));
    let pieces = run(&bytes, usize::from(head >> 1).max(1));
    assert_eq!(whole, pieces);
});

/// What happens when `bytes` come `piece` at a time, up to the first error: events in words, and
/// the bytes answered. What follows an error is handled too, but not told.
fn run(bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let now = NOW;
    let mut connection = ServerConnection::new(&ServerOptions::default(), now);
    let (mut events, mut out) = (Vec::new(), Vec::new());
    let mut buffer: Vec<u8> = Vec::new();
    let mut told = None;
    for chunk in bytes.chunks(piece) {
        buffer.extend_from_slice(chunk);
        loop {
            let (consumed, event) = connection.receive(now, &buffer, &mut out);
            assert!(consumed <= buffer.len());
            let idle = consumed == 0 && matches!(event, Event::None);
            let ends = matches!(event, Event::Disconnect);
            let reaction = note(&event, &mut events);
            let failed = matches!(reaction, Reaction::Close(_));
            react(&mut connection, reaction, &mut out);
            if failed && told.is_none() {
                told = Some((events.clone(), out.clone()));
            }
            buffer.drain(..consumed);
            if ends || events.len() > EVENTS_MAX {
                return told.unwrap_or((events, out));
            }
            if idle {
                break;
            }
        }
    }
    let due = connection.next_timeout();
    assert!(due >= now || due == Instant::NEVER);
    if due != Instant::NEVER
        && !matches!(connection.on_timeout(due, &mut out), TimeoutOutcome::Nothing)
    {
        events.push("the peer is given up".into());
    }
    told.unwrap_or((events, out))
}

enum Reaction {
    None,
    Authenticated,
    Opened,
    Close(lepus_amqp::ProtocolError),
    CloseOk,
}

/// Writes the event down in a form that does not depend on how its bytes were held.
fn note(event: &Event<'_>, events: &mut Vec<String>) -> Reaction {
    let (text, reaction) = match event {
        Event::None => return Reaction::None,
        Event::Publish { channel, publish } => {
            let publish = publish.as_ref();
            (format!("publish {channel} {publish:?}"), Reaction::None)
        }
        Event::Authenticate { .. } => (format!("{event:?}"), Reaction::Authenticated),
        Event::Open { .. } => (format!("{event:?}"), Reaction::Opened),
        Event::Close { .. } => (format!("{event:?}"), Reaction::CloseOk),
        Event::Error(error) => (format!("{error:?}"), Reaction::Close(error.clone())),
        other => (format!("{other:?}"), Reaction::None),
    };
    events.push(text);
    reaction
}

fn react(connection: &mut ServerConnection, reaction: Reaction, out: &mut Vec<u8>) {
    match reaction {
        Reaction::None => {}
        Reaction::Authenticated => connection.authenticated(NOW, Ok(()), out),
        Reaction::Opened => connection.opened(NOW, Ok(()), out),
        Reaction::Close(error) => connection.close(NOW, &error, out),
        Reaction::CloseOk => connection.close_ok(NOW, out),
    }
}
