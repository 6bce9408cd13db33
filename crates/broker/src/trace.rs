//! Copies of messages for those who trace a virtual host: of what is published there, and of what is delivered.
//!
//! A copy is made where the publisher's or consumer's connection is, and published to the exchange
//! [`TRACE_EXCHANGE`] behind what it is of. Copies themselves are not traced: neither where they are delivered,
//! nor once they have died, as their header `x-death` tells, nor where such a one is published again.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_amqp::properties::{Change as Set, EMPTY, Edit, PropertiesRef, Property};
use lepus_amqp::table::{FieldWriter, TableRef, ValueRef};
use lepus_base::{ConnectionId, Instant, Now, QueueId, VhostId};

use crate::directory::{Applied, Change, Directory};
pub(crate) use crate::exchange::TRACE_EXCHANGE;
use crate::message::MessageView;
use crate::properties::{for_client, further_keys};

/// Bytes of copies that wait for their turn at most, unless it is one alone.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Bytes of the frame with a copy's properties at most, and of the largest frame that the broker offers if that is
/// less: they have to fit into one.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Of these, what is kept for the frame's own bytes and for headers that come later, as a death's.
const RESERVED_BYTES: usize = 1 << 10;
/// What stands before the bytes of a text, a list or a table: its kind and its length.
const VALUE_HEAD_BYTES: usize = 5;
/// Time between two lines in the log about copies that are lost.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What a message is copied for.
#[derive(Debug)]
pub(crate) enum Occasion {
    /// It is published and reaches these queues.
    Publish { queues: Vec<QueueId> },
    /// A queue's consumer gets it, or who asked for one.
    Delivery { queue: QueueId, redelivered: bool, count: u32 },
}

/// Whose message it is.
#[derive(Debug)]
pub(crate) struct Party {
    pub vhost: VhostId,
    pub connection: ConnectionId,
    /// The incarnation of the connection's channel, with its number in the lower 16 bits.
    pub channel: u64,
    /// The connection's name.
    pub name: String,
    pub user: Box<str>,
}

/// A message that is to be copied.
#[derive(Debug)]
pub struct Tapped {
    pub(crate) party: Party,
    pub(crate) occasion: Occasion,
    packed: Vec<u8>,
}

/// What is published to the exchange for copies.
pub(crate) struct Copy<'a> {
    pub routing_key: String,
    pub properties: Vec<u8>,
    pub body: &'a [u8],
}

/// Which virtual hosts are traced, and how much waits.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// Those that somebody wants traced; whether the exchange for copies leads anywhere there.
    vhosts: BTreeMap<VhostId, bool>,
    /// In how many of them it does.
    heard: usize,
    /// Bytes of copies that are not published yet.
    waiting_bytes: usize,
    /// Copies that were lost since that was told last.
    lost: u64,
    told: Option<Instant>,
}

impl Tracing {
    /// Whether messages of any virtual host are copied.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.heard > 0
    }

    /// Whether those of this one are: it is traced, and copies may go somewhere.
    #[inline]
    pub(crate) fn is_traced(&self, vhost: VhostId) -> bool {
        self.is_on() && self.vhosts.get(&vhost) == Some(&true)
    }

    /// A change of the directory was applied, with what followed from it.
    pub(crate) fn follow(&mut self, change: &Change, applied: &Applied, directory: &Directory) {
        match change {
            Change::VhostCreated { id, metadata, .. } | Change::VhostDescribed { id, metadata } => {
                self.set(*id, metadata.tracing, directory);
            }
            Change::VhostDeleted { id } => self.set(*id, false, directory),
            _ if self.vhosts.is_empty() => {}
            Change::Bound(binding) | Change::Unbound(binding)
                if &*binding.source == TRACE_EXCHANGE =>
            {
                self.look(binding.vhost, directory);
            }
            Change::ExchangeDeclared(info) => self.look(info.vhost, directory),
            Change::ExchangeDeleted { vhost, .. } => self.look(*vhost, directory),
            Change::Cleared => {
                let vhosts: Vec<VhostId> = self.vhosts.keys().copied().collect();
                vhosts.into_iter().for_each(|vhost| self.look(vhost, directory));
            }
            _ => {}
        }
        for info in &applied.queues_deleted {
            self.look(info.vhost, directory);
        }
    }

    /// The directory is another one.
    pub(crate) fn follow_all(&mut self, directory: &Directory) {
        (self.vhosts, self.heard) = (BTreeMap::new(), 0);
        for info in directory.accounts().vhosts() {
            self.set(info.id, info.metadata.tracing, directory);
        }
    }

    fn set(&mut self, vhost: VhostId, is_on: bool, directory: &Directory) {
        if is_on {
            self.vhosts.entry(vhost).or_insert(false);
            self.look(vhost, directory);
        } else {
            self.heard -= usize::from(self.vhosts.remove(&vhost) == Some(true));
        }
    }

    /// The exchange for copies may lead elsewhere in this virtual host. Whoever changes that asks for it before the next
    /// message comes: ways that are remembered know nothing of copies.
    pub(crate) fn look(&mut self, vhost: VhostId, directory: &Directory) {
        let Some(is_heard) = self.vhosts.get_mut(&vhost) else { return };
        self.heard -= usize::from(*is_heard);
        *is_heard = directory.leads_somewhere(vhost, TRACE_EXCHANGE);
        self.heard += usize::from(*is_heard);
    }

    /// A message to be copied, which waits from now on until [`Tracing::take`]; `None` where too much does already.
    pub(crate) fn tap(
        &mut self,
        party: Party,
        occasion: Occasion,
        view: &MessageView<'_>,
    ) -> Option<Box<Tapped>> {
        let bytes = view.properties.len() + view.body.len();
        if self.waiting_bytes > 0 && self.waiting_bytes + bytes > WAITING_BYTES_MAX {
            self.lost += 1;
            return None;
        }
        let mut packed = Vec::new();
        view.append_packed(&mut packed);
        self.waiting_bytes += packed.len();
        Some(Box::new(Tapped { party, occasion, packed }))
    }

    /// It waits no longer.
    pub(crate) fn take(&mut self, tapped: &Tapped) {
        let left = self.waiting_bytes.checked_sub(tapped.packed.len());
        self.waiting_bytes = left.expect("what is taken waited");
    }

    /// A copy goes nowhere.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
    }

    /// What to tell the log of copies that were lost, if any were since that was told last, and not too often.
    pub(crate) fn take_lost(&mut self, now: Now) -> Option<String> {
        let is_soon = self.told.is_some_and(|told| now.instant.since(told) < TELL_EVERY);
        if self.lost == 0 || is_soon {
            return None;
        }
        self.told = Some(now.instant);
        let lost = core::mem::take(&mut self.lost);
        Some(format!(
            "{lost} copies of traced messages were dropped: more is traced than its queues take, or \
             reaches too many of them"
        ))
    }
}

impl Tapped {
    /// Whether it is of a delivery.
    pub(crate) fn is_delivery(&self) -> bool {
        matches!(self.occasion, Occasion::Delivery { .. })
    }

    /// The copy, as this node publishes it; `None` where the queue is gone that it came from. Its headers fit into a
    /// frame of so many bytes, 0 for no limit: of lists and of the message's own headers there is as much as has room.
    pub(crate) fn copy(
        &self,
        directory: &Directory,
        node: &str,
        frame_max: u32,
    ) -> Option<Copy<'_>> {
        let view = MessageView::unpack(&self.packed);
        let (mut headers, mut tail) = (Vec::new(), Vec::new());
        let mut fields = FieldWriter::new(&mut headers);
        fields.field("exchange_name", ValueRef::LongString(view.exchange));
        let mut fields = FieldWriter::new(&mut tail);
        fields.text("node", node);
        if let Occasion::Delivery { redelivered, .. } = self.occasion {
            fields.field("redelivered", ValueRef::I32(redelivered.into()));
        }
        fields.text("vhost", directory.vhost_name(self.party.vhost));
        fields.text("connection", &self.party.name);
        fields.field("channel", ValueRef::I32((self.party.channel as u16).into()));
        fields.text("user", &self.party.user);
        let frame_bytes_max = match frame_max as usize {
            0 => FRAME_BYTES_MAX,
            offered => offered.min(FRAME_BYTES_MAX),
        };
        // Keys may take a third of what is left for lists, and properties two thirds of what is left by these.
        let bytes_max = frame_bytes_max.saturating_sub(RESERVED_BYTES + tail.len());
        let further = further_keys(view.properties);
        let keys = core::iter::once(view.routing_key).chain(further.iter().map(String::as_bytes));
        let room = bytes_max.saturating_sub(headers.len()) / 3;
        list(&mut headers, room, "routing_keys", keys);
        let count = match self.occasion {
            Occasion::Publish { .. } => 0,
            Occasion::Delivery { count, .. } => count,
        };
        let shown = for_client(view.properties, count);
        let room = bytes_max.saturating_sub(headers.len()) / 3 * 2;
        let told = shown.as_deref().unwrap_or(view.properties);
        let properties = properties_table(told, room.saturating_sub(field_bytes("properties")));
        let mut fields = FieldWriter::new(&mut headers);
        fields.field("properties", ValueRef::Table(TableRef::trusted(&properties)));
        let room = bytes_max.saturating_sub(headers.len());
        headers.extend(tail);
        let name_of = |queue: QueueId| directory.queue_by_id(directory.id_now(queue));
        let mut routing_key = match &self.occasion {
            Occasion::Publish { queues } => {
                let names = queues.iter().filter_map(|&queue| name_of(queue));
                let names = names.map(|info| info.name().as_bytes());
                list(&mut headers, room, "routed_queues", names);
                format!("publish.{}", String::from_utf8_lossy(view.exchange))
            }
            Occasion::Delivery { queue, .. } => format!("deliver.{}", name_of(*queue)?.name()),
        };
        // A key has 255 bytes at most.
        routing_key.truncate(routing_key.floor_char_boundary(255));
        let edit = Edit { headers: Set::Set(TableRef::trusted(&headers)), ..Edit::default() };
        let Ok(properties) = PropertiesRef(&EMPTY).rewrite(&edit) else {
            invariant!("headers can be added to no properties")
        };
        Some(Copy { routing_key, properties, body: view.body })
    }
}

/// What a field takes beside its value: its name, and the value's kind and length.
fn field_bytes(name: &str) -> usize {
    1 + name.len() + VALUE_HEAD_BYTES
}

/// Adds a field with a list of names, as many of them as there is room for.
fn list<'a>(headers: &mut Vec<u8>, room: usize, name: &str, names: impl Iterator<Item = &'a [u8]>) {
    let mut room = room.saturating_sub(field_bytes(name));
    FieldWriter::new(headers).array(name, |list| {
        for name in names {
            let Some(left) = room.checked_sub(VALUE_HEAD_BYTES + name.len()) else { return };
            room = left;
            list.value(ValueRef::LongString(name));
        }
    });
}

/// Adds a field unless there are more bytes than so many then.
fn add(bytes: &mut Vec<u8>, bytes_max: usize, name: &str, value: ValueRef<'_>) {
    let before = bytes.len();
    FieldWriter::new(bytes).field(name, value);
    if bytes.len() > bytes_max {
        bytes.truncate(before);
    }
}

/// Properties as a table without its length: of each that is there its name and value, and of its headers those that
/// there is room for.
fn properties_table(properties: &[u8], bytes_max: usize) -> Vec<u8> {
    const TEXTS: [(&str, Property); 9] = [
        ("content_type", Property::ContentType),
        ("content_encoding", Property::ContentEncoding),
        ("correlation_id", Property::CorrelationId),
        ("reply_to", Property::ReplyTo),
        ("expiration", Property::Expiration),
        ("message_id", Property::MessageId),
        ("type", Property::Type),
        ("user_id", Property::UserId),
        ("app_id", Property::AppId),
    ];
    let properties = PropertiesRef(properties);
    let mut bytes = Vec::new();
    for (name, property) in TEXTS {
        if let Some(text) = properties.field(property) {
            add(&mut bytes, bytes_max, name, ValueRef::LongString(text));
        }
    }
    let small =
        [("delivery_mode", properties.delivery_mode()), ("priority", properties.priority())];
    for (name, value) in small {
        if let Some(value) = value {
            add(&mut bytes, bytes_max, name, ValueRef::I32(value.into()));
        }
    }
    if let Some(seconds) = properties.timestamp() {
        let value = match i32::try_from(seconds) {
            Ok(seconds) => ValueRef::I32(seconds),
            Err(_) => ValueRef::I64(i64::try_from(seconds).unwrap_or(i64::MAX)),
        };
        add(&mut bytes, bytes_max, "timestamp", value);
    }
    if let Some(headers) = properties.headers() {
        let room = bytes_max.saturating_sub(bytes.len() + field_bytes("headers"));
        let mut shown = Vec::new();
        for (name, value) in headers.iter() {
            add(&mut shown, room, name, value);
        }
        let headers = ValueRef::Table(TableRef::trusted(&shown));
        add(&mut bytes, bytes_max, "headers", headers);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use lepus_amqp::table::TableBytes;
    use lepus_base::HashState;

    use super::*;
    use crate::binding::Destination;
    use crate::directory::BindingChange;

    const VHOST: VhostId = VhostId(1);

    fn binding(source: &str) -> Box<BindingChange> {
        Box::new(BindingChange {
            vhost: VHOST,
            source: source.into(),
            destination: Destination::Exchange("amq.fanout".into()),
            routing_key: "#".into(),
            arguments: TableBytes::default(),
            filter: Default::default(),
        })
    }

    #[test]
    fn nothing_is_copied_where_copies_go_nowhere() {
        let mut directory = Directory::new(HashState::new(1), 1);
        let mut tracing = Tracing::default();
        let mut apply = |tracing: &mut Tracing, change: Change| {
            let applied = directory.apply(&change);
            tracing.follow(&change, &applied, &directory);
            // One that starts with the directory as it is knows the same.
            let mut late = Tracing::default();
            late.follow_all(&directory);
            assert_eq!((tracing.is_on(), tracing.heard), (late.is_on(), late.heard));
            (tracing.is_on(), tracing.is_traced(VHOST), tracing.is_traced(VhostId(2)))
        };
        for change in Directory::preset("guest", b"guest", [7; 4], "/") {
            apply(&mut tracing, change);
        }
        let described = |tracing: bool| {
            let metadata = crate::directory::VhostMetadata { tracing, ..Default::default() };
            Change::VhostDescribed { id: VHOST, metadata }
        };
        let off = (false, false, false);
        let on = (true, true, false);
        assert_eq!(apply(&mut tracing, described(true)), off);
        assert_eq!(apply(&mut tracing, Change::Bound(binding("amq.topic"))), off);
        assert_eq!(apply(&mut tracing, Change::Bound(binding(TRACE_EXCHANGE))), on);
        assert_eq!(apply(&mut tracing, described(true)), on);
        assert_eq!(apply(&mut tracing, described(false)), off);
        assert_eq!(apply(&mut tracing, described(true)), on);
        assert_eq!(apply(&mut tracing, Change::Unbound(binding(TRACE_EXCHANGE))), off);
        assert_eq!(apply(&mut tracing, Change::Bound(binding(TRACE_EXCHANGE))), on);
        assert_eq!(apply(&mut tracing, Change::VhostDeleted { id: VHOST }), off);
    }
}
