//! What the shards and the directory told, as small rows.

use super::families::{FAMILIES, Value};
use super::{Objects, Wish};
use crate::api::exchange_counts;
use crate::snapshot::Snapshot;
use lepus_base::{ConnectionId, QueueId, ShardId, VhostId};
use lepus_broker::directory::Directory;
use lepus_broker::query::{ChannelRow, Nested, PLACES_MAX, Page, QueueFigures};
use lepus_broker::{Answer, ExchangeCounts, Octets, Query};
use std::collections::{BTreeMap, HashMap};

/// Rows of one kind that are held at most; those beyond are counted.
const ROWS_MAX: usize = 1 << 20;

/// An open connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLine {
    pub(super) id: ConnectionId,
    pub(super) name: Box<str>,
    pub(super) channels: u64,
    pub(super) octets: Octets,
}

/// An exchange.
#[derive(Clone, Debug)]
pub(super) struct ExchangeLine {
    pub(super) vhost: Box<str>,
    pub(super) name: Box<str>,
    pub(super) kind: &'static str,
    pub(super) bindings: u64,
}

/// Everything that a page tells; of what was not wished for nothing.
#[derive(Debug, Default)]
pub struct Rows {
    pub(super) snapshot: Snapshot,
    pub(super) queues: Vec<QueueFigures>,
    /// By id.
    pub(super) connections: Vec<ConnectionLine>,
    pub(super) channels: Vec<ChannelRow>,
    pub(super) exchanges: Vec<ExchangeLine>,
    /// Virtual hosts and names of exchanges to which something was published.
    pub(super) published: Vec<(Box<str>, Box<str>, ExchangeCounts)>,
    pub(super) vhosts: Vec<Box<str>>,
    /// Things for which there was no room.
    pub(super) left_out: u64,
}

impl Rows {
    /// A connection.
    pub(super) fn connection(&self, id: ConnectionId) -> Option<&ConnectionLine> {
        let place = self.connections.binary_search_by_key(&id, |row| row.id).ok()?;
        self.connections.get(place)
    }

    /// Takes in what there is room for and counts the rest.
    fn take<T>(rows: &mut Vec<T>, left_out: &mut u64, more: impl IntoIterator<Item = T>) {
        let mut more = more.into_iter();
        let room = ROWS_MAX.saturating_sub(rows.len());
        rows.extend(more.by_ref().take(room));
        *left_out += more.count() as u64;
    }
}

impl Objects {
    /// Asks for what is wished for. It blocks.
    ///
    /// # Errors
    /// In words, where a shard does not answer.
    pub fn collect(&self, wish: &Wish) -> Result<Rows, String> {
        let mut rows = Rows { snapshot: self.broker.snapshot()?, ..Rows::default() };
        let wants = |is_it: fn(&Value) -> bool| {
            FAMILIES.iter().any(|family| is_it(&family.value) && wish.has(family))
        };
        self.mirror.catch_up();
        if wants(|value| matches!(value, Value::Queue(_) | Value::FilteredQueue(_))) {
            self.queues(wish, &mut rows)?;
        }
        let wants_channels = wants(|value| matches!(value, Value::Channel(_)));
        if wants_channels || wants(|value| matches!(value, Value::Connection(_))) {
            self.connections(&mut rows)?;
        }
        if wants_channels {
            self.channels(&mut rows)?;
        }
        let wants_exchanges = wants(|value| matches!(value, Value::Exchange(_)));
        let wants_published = wants(|value| matches!(value, Value::Published(_)));
        let vhosts = self.vhosts(wish);
        if wants_published {
            self.published(&vhosts, &mut rows)?;
        }
        if wants_exchanges {
            exchanges(&self.mirror.directory(), &vhosts, &mut rows);
        }
        rows.vhosts.extend(vhosts.into_iter().map(|(_, name)| name));
        Ok(rows)
    }

    fn vhosts(&self, wish: &Wish) -> Vec<(VhostId, Box<str>)> {
        let directory = self.mirror.directory();
        let all = directory.accounts().vhosts().filter(|info| wish.has_vhost(&info.name));
        all.map(|info| (info.id, info.name.clone())).collect()
    }

    fn queues(&self, wish: &Wish, rows: &mut Rows) -> Result<(), String> {
        let mut by_home: BTreeMap<ShardId, Vec<QueueId>> = BTreeMap::new();
        for info in self.mirror.directory().queues_of(&ids(&self.vhosts(wish))) {
            by_home.entry(info.home).or_default().push(info.id);
        }
        for (home, ids) in by_home {
            for ids in ids.chunks(PLACES_MAX) {
                if rows.queues.len() >= ROWS_MAX {
                    rows.left_out += ids.len() as u64;
                    continue;
                }
                match self.broker.ask(home, Query::QueueFigures(ids.to_vec()))? {
                    Answer::QueueFigures(found) => rows.queues.extend(found),
                    other => unreachable!("a question for figures is answered with {other:?}"),
                }
            }
        }
        Ok(())
    }

    fn connections(&self, rows: &mut Rows) -> Result<(), String> {
        for shard in 0..self.broker.shards() {
            let mut from = Some(0);
            while let Some(place) = from {
                let page = Page { from: place, limit: PLACES_MAX };
                match self.broker.ask(ShardId(shard), Query::Connections(page))? {
                    Answer::Connections(part) => {
                        let open = part.rows.into_iter().filter(|row| !row.vhost.is_empty());
                        let lines = open.map(|row| ConnectionLine {
                            id: row.id,
                            name: format!("{} -> {}", row.peer, row.local_address).into(),
                            channels: row.channels as u64,
                            octets: row.octets,
                        });
                        Rows::take(&mut rows.connections, &mut rows.left_out, lines);
                        from = part.next;
                    }
                    other => unreachable!("a question for connections is answered with {other:?}"),
                }
            }
        }
        // One that moves while shards are asked may be told twice.
        rows.connections.sort_unstable_by_key(|row| row.id);
        rows.connections.dedup_by_key(|row| row.id);
        Ok(())
    }

    fn channels(&self, rows: &mut Rows) -> Result<(), String> {
        for shard in 0..self.broker.shards() {
            let mut from = Some(Nested::default());
            while let Some(next) = from {
                match self.broker.ask(ShardId(shard), Query::Channels(next))? {
                    Answer::Channels(part) => {
                        Rows::take(&mut rows.channels, &mut rows.left_out, part.rows);
                        from = part.next;
                    }
                    other => unreachable!("a question for channels is answered with {other:?}"),
                }
            }
        }
        rows.channels.sort_unstable_by_key(|row| (row.connection, row.number));
        rows.channels.dedup_by_key(|row| (row.connection, row.number));
        Ok(())
    }
}

impl Objects {
    /// What was published to the exchanges of virtual hosts.
    fn published(&self, vhosts: &[(VhostId, Box<str>)], rows: &mut Rows) -> Result<(), String> {
        let names: Vec<(VhostId, Box<str>)> = {
            let directory = self.mirror.directory();
            let found = directory.exchanges_of(&ids(vhosts));
            found.map(|info| (info.vhost, info.name.clone())).collect()
        };
        let mut counts = exchange_counts(&*self.broker, &names)?;
        let vhosts = by_id(vhosts);
        let lines = names.into_iter().filter_map(|name| {
            let counts = counts.remove(&name)?;
            Some((vhosts[&name.0].into(), name.1, counts))
        });
        Rows::take(&mut rows.published, &mut rows.left_out, lines);
        Ok(())
    }
}

fn ids(vhosts: &[(VhostId, Box<str>)]) -> Vec<VhostId> {
    vhosts.iter().map(|(id, _)| *id).collect()
}

fn by_id(vhosts: &[(VhostId, Box<str>)]) -> HashMap<VhostId, &str> {
    vhosts.iter().map(|(id, name)| (*id, &**name)).collect()
}

/// The exchanges of virtual hosts with the number of their bindings; those that nobody made are not counted.
fn exchanges(directory: &Directory, vhosts: &[(VhostId, Box<str>)], rows: &mut Rows) {
    let ids = ids(vhosts);
    let mut bindings: HashMap<(VhostId, &str), u64> = HashMap::new();
    for (vhost, binding) in directory.bindings_of(&ids) {
        if !binding.source.is_empty() {
            *bindings.entry((vhost, binding.source)).or_default() += 1;
        }
    }
    let vhosts = by_id(vhosts);
    let lines = directory.exchanges_of(&ids).map(|info| ExchangeLine {
        vhost: vhosts[&info.vhost].into(),
        name: info.name.clone(),
        kind: info.kind_name(),
        bindings: bindings.get(&(info.vhost, &*info.name)).copied().unwrap_or(0),
    });
    Rows::take(&mut rows.exchanges, &mut rows.left_out, lines);
}
