//! A core that understands frames of `[operation, length u16, payload]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use lepus_base::{ByShard, ConnectionId, Instant, Now, ShardId, Slab, Slices};
use lepus_shard::{Core, Effects, PeerInfo};
use lepus_store::disk::{Completion, LogId, Operation};

/// `e`: answer with the payload.
pub const ECHO: u8 = b'e';
/// `f`: have the payload answered through the next shard.
pub const FAR: u8 = b'f';
/// `h`: hand the connection over to the shard in the payload; answers `h` from there.
pub const HAND_OVER: u8 = b'h';
/// `w`: answer with the number of the shard.
pub const WHERE: u8 = b'w';
/// `d`: have shard 0 change the directory; answers when that is done.
pub const DECLARE: u8 = b'd';
/// `v`: answer with the number of directory changes known.
pub const VERSION: u8 = b'v';
/// `p`: stop reading for a millisecond, then answer and go on.
pub const PAUSE: u8 = b'p';
/// `c`: answer with the payload and close.
pub const CLOSE: u8 = b'c';
/// `q`: after a millisecond answer `bye`, which the peer waits for with its side ended.
pub const QUIT: u8 = b'q';
/// `b`: answer with as many KiB as the payload's first two bytes say.
pub const BULK: u8 = b'b';
/// `i`: answer with what is known of the peer.
pub const PEER: u8 = b'i';

/// `l`: answer `bye` and be at the end, until the peer ends the connection.
pub const LEAVE: u8 = b'l';
/// `k`: no answer, and no login, which any other frame is.
pub const KNOCK: u8 = b'k';

pub fn frame(operation: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![operation];
    bytes.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

#[derive(Default)]
pub struct Outbox {
    dirty: Vec<u32>,
    close: Vec<u32>,
    pause: Vec<u32>,
    resume: Vec<u32>,
    hand_over: Vec<(u32, ShardId)>,
    mail: ByShard<Vec<Letter>>,
    disk: Vec<Operation>,
    changes: Vec<Arc<u64>>,
    events: Vec<String>,
    lost_events: u64,
    answers: Vec<(u64, EchoAnswer)>,
}

/// What a test asks.
#[derive(Clone)]
pub enum EchoQuery {
    /// The shard's number and its [`EchoCore::version`].
    Version,
    /// Its [`EchoCore::closed`].
    Closed,
    /// Its [`EchoCore::held`].
    Held,
    /// Something that another shard answers.
    Far,
}

#[derive(Debug, PartialEq)]
pub enum EchoAnswer {
    Version(ShardId, u64),
    Count(u64),
    Text(String),
}

pub enum Letter {
    Far(ShardId, ConnectionId, Vec<u8>),
    Back(ConnectionId, Vec<u8>),
    Declare(ShardId, ConnectionId),
    Ask(ShardId, u64),
    Answer(u64, String),
}

pub struct Client {
    id: ConnectionId,
    peer: PeerInfo,
    send: Vec<u8>,
    sent: usize,
    dirty: bool,
    is_known: bool,
    is_quitting: bool,
    has_answer: bool,
    is_moving: Option<ShardId>,
    /// Bytes that the driver holds.
    held: usize,
}

pub struct EchoCore {
    shard: ShardId,
    shards: u16,
    clients: Slab<Client>,
    by_id: BTreeMap<ConnectionId, u32>,
    resume_at: BTreeMap<(Instant, ConnectionId), ()>,
    quit_at: BTreeMap<(Instant, ConnectionId), ()>,
    /// Directory changes applied.
    version: u64,
    /// Calls of `closed`.
    closed: u64,
}

impl EchoCore {
    pub fn new(shard: ShardId, shards: u16) -> EchoCore {
        EchoCore {
            shard,
            shards,
            clients: Slab::new(),
            by_id: BTreeMap::new(),
            resume_at: BTreeMap::new(),
            quit_at: BTreeMap::new(),
            version: 0,
            closed: 0,
        }
    }

    fn reply(&mut self, slot: u32, bytes: &[u8], out: &mut Outbox) {
        let client = &mut self.clients[slot as usize];
        client.send.extend_from_slice(bytes);
        if !client.dirty {
            client.dirty = true;
            out.dirty.push(slot);
        }
    }

    fn insert(&mut self, client: Client) -> u32 {
        let id = client.id;
        let slot = self.clients.insert(client) as u32;
        self.by_id.insert(id, slot);
        slot
    }

    fn declare(&mut self, out: &mut Outbox) {
        self.version += 1;
        out.changes.push(Arc::new(self.version));
    }

    fn next(&self) -> ShardId {
        ShardId((self.shard.0 + 1) % self.shards)
    }

    /// Bytes that the driver holds for all.
    fn held(&self) -> usize {
        self.clients.iter().map(|(_, client)| client.held).sum()
    }
}

impl Core for EchoCore {
    type Slot = u32;
    type Outbox = Outbox;
    type Mail = Vec<Letter>;
    type Change = u64;
    type Traveller = Client;
    type Event = String;
    type Query = EchoQuery;
    type Answer = EchoAnswer;

    fn outbox(shards: u16) -> Outbox {
        Outbox { mail: ByShard::new(shards), ..Outbox::default() }
    }

    fn effects(out: &mut Outbox) -> Effects<'_, EchoCore> {
        Effects {
            dirty: &mut out.dirty,
            close: &mut out.close,
            pause: &mut out.pause,
            resume: &mut out.resume,
            hand_over: &mut out.hand_over,
            mail: &mut out.mail,
            disk: &mut out.disk,
            changes: &mut out.changes,
            events: &mut out.events,
            lost_events: &mut out.lost_events,
            answers: &mut out.answers,
        }
    }

    fn mail_bytes(_: &Vec<Letter>) -> usize {
        0
    }

    fn is_mail_empty(mail: &Vec<Letter>) -> bool {
        mail.is_empty()
    }

    fn accept(&mut self, _: Now, id: ConnectionId, peer: PeerInfo, out: &mut Outbox) -> u32 {
        out.events.push(format!("accepted {}", peer.address));
        self.insert(Client {
            id,
            peer,
            send: Vec::new(),
            sent: 0,
            dirty: false,
            is_known: false,
            is_quitting: false,
            has_answer: false,
            is_moving: None,
            held: 0,
        })
    }

    fn received(&mut self, now: Now, slot: u32, bytes: &[u8], out: &mut Outbox) -> usize {
        let mut consumed = 0;
        while let Some((header, rest)) = bytes[consumed..].split_at_checked(3) {
            let length = usize::from(u16::from_be_bytes([header[1], header[2]]));
            let Some(payload) = rest.get(..length) else {
                break;
            };
            self.clients[slot as usize].is_known |= header[0] != KNOCK;
            let id = self.clients[slot as usize].id;
            let far = self.next();
            if header[0] == HAND_OVER {
                let to = ShardId(u16::from(payload[0]));
                if to != self.shard {
                    // The frame travels with the connection and is handled there.
                    self.clients[slot as usize].is_moving = Some(to);
                    out.hand_over.push((slot, to));
                    return consumed;
                }
                self.reply(slot, b"h", out);
            }
            consumed += 3 + length;
            match header[0] {
                ECHO => self.reply(slot, payload, out),
                FAR => {
                    let letter = Letter::Far(self.shard, id, payload.to_vec());
                    out.mail[far.index()].push(letter);
                }
                WHERE => self.reply(slot, &[self.shard.0 as u8], out),
                DECLARE if self.shard.0 == 0 => {
                    self.declare(out);
                    self.reply(slot, b"d", out);
                }
                DECLARE => out.mail[0].push(Letter::Declare(self.shard, id)),
                VERSION => self.reply(slot, &[self.version as u8], out),
                PAUSE => {
                    let at = now.instant + std::time::Duration::from_millis(1);
                    self.resume_at.insert((at, id), ());
                    out.pause.push(slot);
                    return consumed;
                }
                QUIT => {
                    self.clients[slot as usize].is_quitting = true;
                    let at = now.instant + std::time::Duration::from_millis(1);
                    self.quit_at.insert((at, id), ());
                }
                CLOSE => {
                    self.reply(slot, payload, out);
                    out.close.push(slot);
                    return bytes.len();
                }
                LEAVE => {
                    self.reply(slot, b"bye", out);
                    self.clients[slot as usize].is_known = false;
                }
                BULK => {
                    let count = usize::from(u16::from_be_bytes([payload[0], payload[1]])) * 1024;
                    self.reply(slot, &vec![b'b'; count], out);
                }
                PEER => {
                    let peer = self.clients[slot as usize].peer.clone();
                    let tls = peer.tls.clone().unwrap_or_default();
                    let text = format!(
                        "{}|{}|{}|{}|{}",
                        peer.is_loopback(),
                        peer.tls.is_some(),
                        tls.protocol,
                        peer.login_name.clone().unwrap_or_default(),
                        tls.subject.unwrap_or_default(),
                    );
                    self.reply(slot, text.as_bytes(), out);
                }
                _ => {}
            }
        }
        consumed
    }

    fn is_open(&self, slot: u32) -> bool {
        self.clients[slot as usize].is_known
    }

    fn is_crowded(&self) -> bool {
        false
    }

    fn driver_holds(&mut self, slot: u32, bytes: usize) {
        self.clients[slot as usize].held = bytes;
    }

    fn owes_end(&self, slot: u32) -> bool {
        self.clients[slot as usize].is_quitting
    }

    fn gave_up(&self, _: u32) -> bool {
        false
    }

    fn bytes_to_send(&self, slot: u32) -> usize {
        self.clients.get(slot as usize).map_or(0, |client| client.send.len() - client.sent)
    }

    fn note_mail_on_its_way(&mut self, _: usize) {}

    fn has_taken_enough_mail(&self) -> bool {
        false
    }

    fn writable_slices(&mut self, slot: u32) -> Slices<'_> {
        let client = &mut self.clients[slot as usize];
        client.dirty = false;
        Slices::of(&client.send[client.sent..])
    }

    fn sent(&mut self, _: Now, slot: u32, bytes: usize, _: &mut Outbox) {
        let client = &mut self.clients[slot as usize];
        client.sent += bytes;
        if client.sent == client.send.len() {
            client.send.clear();
            client.sent = 0;
            client.is_quitting &= !client.has_answer;
        }
    }

    fn closed(&mut self, _: Now, slot: u32, _: &mut Outbox) {
        let client = self.clients.remove(slot as usize);
        self.by_id.remove(&client.id);
        self.closed += 1;
    }

    fn release(&mut self, slot: u32) -> Option<Client> {
        let client = self.clients.remove(slot as usize);
        self.by_id.remove(&client.id);
        Some(client)
    }

    fn adopt(&mut self, _: Now, mut client: Client, out: &mut Outbox) -> u32 {
        assert_eq!(client.is_moving.take(), Some(self.shard));
        client.dirty = !client.send.is_empty();
        let is_dirty = client.dirty;
        let slot = self.insert(client);
        if is_dirty {
            out.dirty.push(slot);
        }
        slot
    }

    fn mail(&mut self, _: Now, from: ShardId, mail: &mut Vec<Letter>, out: &mut Outbox) {
        for letter in mail.drain(..) {
            match letter {
                Letter::Far(shard, id, payload) => {
                    assert_eq!(shard, from);
                    out.mail[from.index()].push(Letter::Back(id, payload));
                }
                Letter::Back(id, payload) => {
                    if let Some(&slot) = self.by_id.get(&id) {
                        self.reply(slot, &payload, out);
                    }
                }
                Letter::Declare(shard, id) => {
                    self.declare(out);
                    out.mail[shard.index()].push(Letter::Back(id, b"d".to_vec()));
                }
                Letter::Ask(shard, number) => {
                    let text = format!("answer of {} to {shard}", self.shard);
                    out.mail[shard.index()].push(Letter::Answer(number, text));
                }
                Letter::Answer(number, text) => out.answers.push((number, EchoAnswer::Text(text))),
            }
        }
    }

    fn change(&mut self, _: Now, change: &Arc<u64>, _: &mut Outbox) {
        assert_eq!(**change, self.version + 1, "changes come in order");
        self.version = **change;
    }

    fn disk_done(&mut self, _: Now, _: LogId, _: Completion, _: &mut Outbox) {}

    fn query(&mut self, _: Now, number: u64, query: EchoQuery, out: &mut Outbox) {
        let answer = match query {
            EchoQuery::Version => EchoAnswer::Version(self.shard, self.version),
            EchoQuery::Closed => EchoAnswer::Count(self.closed),
            EchoQuery::Held => EchoAnswer::Count(self.held() as u64),
            EchoQuery::Far => {
                let to = self.next();
                return out.mail[to.index()].push(Letter::Ask(self.shard, number));
            }
        };
        out.answers.push((number, answer));
    }

    fn timeout(&mut self, now: Now, out: &mut Outbox) {
        while let Some((&(at, id), ())) = self.resume_at.first_key_value() {
            if at > now.instant {
                break;
            }
            self.resume_at.pop_first();
            if let Some(&slot) = self.by_id.get(&id) {
                self.reply(slot, b"p", out);
                out.resume.push(slot);
            }
        }
        while let Some((&(at, id), ())) = self.quit_at.first_key_value() {
            if at > now.instant {
                break;
            }
            self.quit_at.pop_first();
            if let Some(&slot) = self.by_id.get(&id) {
                self.clients[slot as usize].has_answer = true;
                self.reply(slot, b"bye", out);
            }
        }
    }

    fn next_timeout(&self) -> Instant {
        let first = |timers: &BTreeMap<(Instant, ConnectionId), ()>| {
            timers.first_key_value().map_or(Instant::NEVER, |(&(at, _), ())| at)
        };
        first(&self.resume_at).min(first(&self.quit_at))
    }

    fn work(&mut self, _: Now, _: &mut Outbox) {}

    fn has_work(&self, _: &Outbox) -> bool {
        false
    }

    fn flush(&mut self, _: Now, _: &mut Outbox) {}

    fn shut_down(&mut self, _: Now, out: &mut Outbox) {
        let slots: Vec<u32> = self.by_id.values().copied().collect();
        for slot in slots {
            self.reply(slot, b"bye", out);
            out.close.push(slot);
        }
    }

    fn owes(&self) -> bool {
        false
    }

    fn close(&mut self, _: Now, _: &mut Outbox) {}

    fn is_closed(&self) -> bool {
        true
    }
}
