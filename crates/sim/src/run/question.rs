//! What operators and the server's own threads ask, and what lists must say.
//!
//! What a list says is compared with the state itself, which the simulator sees apart from all parts. Everything
//! that is there before and after a list that takes its time is in it once; a list that is asked for while
//! everything is quiet has what there is, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Debug;

use lepus_amqp::table::TableBytes;
use lepus_base::Rng;
use lepus_broker::directory::{BindingInfo, ExchangeInfo, QueueInfo};
use lepus_broker::query::{
    BindingRow, ConnectionRow, ExchangeRow, Names, Page, Part, PermissionRow, QueueRow, Rights,
    RightsPlace, TopicPermissionRow, UserRow, VhostRow,
};
use lepus_broker::{Answer, Broker, Octets, Query};

use crate::shards::Shards;

/// Kinds of lists.
pub(super) const LISTS: u64 = 8;
/// Questions for something else than a list.
const OTHERS: u64 = 4;
/// Rows or places of a part, at most.
const LIMIT_MAX: u64 = 40;
/// Places are asked for that lie beyond all that there are, too.
const PLACES_MAX: u64 = 60;

/// A list from its beginning, of some kind.
pub(super) fn list(kind: u64, rng: &mut Rng) -> Query {
    let most = 1 + rng.below(LIMIT_MAX);
    let limit = 1 + rng.below(most) as usize;
    let page = Page { from: 0, limit };
    let names = Names { after: None, limit };
    let rights = Rights { after: None, limit };
    let vhost = "/".to_owned();
    match kind {
        0 => Query::Queues { vhost, page },
        1 => Query::Connections(page),
        2 => Query::Exchanges { vhost, page },
        3 => Query::Bindings { vhost, page },
        4 => Query::Vhosts(names),
        5 => Query::Users(names),
        6 => Query::Permissions(rights),
        _ => Query::TopicPermissions(rights),
    }
}

/// Anything that can be asked, for some part of a list if it is one.
pub(super) fn any(rng: &mut Rng) -> Query {
    let kind = rng.below(LISTS + OTHERS);
    let mut query = match kind.checked_sub(LISTS) {
        None => list(kind, rng),
        Some(0) => Query::Figures,
        Some(1) => Query::Alive,
        Some(2) => Query::Known { user: "guest".to_owned(), vhost: "/".to_owned() },
        Some(_) => {
            let (connections_max, queues_max) = (rng.below(4) as usize, rng.below(4) as usize);
            Query::Traffic { connections_max, queues_max, with_idle: rng.chance(1, 2) }
        }
    };
    if rng.chance(1, 2) {
        let place = rng.below(PLACES_MAX) as usize;
        let name = ["a", "guest", "op-user-1", "op-vhost-0", "z"][place % 5].to_owned();
        match &mut query {
            Query::Queues { page, .. }
            | Query::Connections(page)
            | Query::Exchanges { page, .. }
            | Query::Bindings { page, .. } => page.from = place,
            Query::Vhosts(names) | Query::Users(names) => names.after = Some(name),
            Query::Permissions(rights) | Query::TopicPermissions(rights) => {
                rights.after = Some(RightsPlace { user: name, right: None });
            }
            _ => {}
        }
    }
    query
}

/// Whether an answer fits its question: of its kind, and with no more than was asked for.
pub(super) fn fits(query: &Query, answer: &Answer) -> bool {
    fn is_part<T>(part: &Part<T, usize>, page: &Page) -> bool {
        part.rows.len() <= page.limit && part.next.is_none_or(|next| next > page.from)
    }
    match (query, answer) {
        (Query::Figures, Answer::Figures(_)) | (Query::Alive, Answer::Alive) => true,
        (Query::Queues { page, .. }, Answer::Queues(part)) => is_part(part, page),
        (Query::Connections(page), Answer::Connections(part)) => is_part(part, page),
        (Query::Exchanges { page, .. }, Answer::Exchanges(part)) => is_part(part, page),
        (Query::Bindings { page, .. }, Answer::Bindings(part)) => is_part(part, page),
        (Query::Vhosts(names), Answer::Vhosts(part)) => part.rows.len() <= names.limit,
        (Query::Users(names), Answer::Users(part)) => part.rows.len() <= names.limit,
        (Query::Permissions(rights), Answer::Permissions(part)) => part.rows.len() <= rights.limit,
        (Query::TopicPermissions(rights), Answer::TopicPermissions(part)) => {
            part.rows.len() <= rights.limit
        }
        (Query::Known { .. }, Answer::Known { user, vhost }) => *user && *vhost,
        (Query::Traffic { connections_max, queues_max, .. }, Answer::Traffic { .. }) => {
            let Answer::Traffic { connections, queues } = answer else { return false };
            connections.len() <= *connections_max && queues.len() <= *queues_max
        }
        _ => false,
    }
}

/// The question for the next part of a list, if there is one.
fn next(query: &Query, answer: &Answer) -> Option<Query> {
    let mut query = query.clone();
    match (&mut query, answer) {
        (Query::Queues { page, .. }, Answer::Queues(part)) => page.from = part.next?,
        (Query::Connections(page), Answer::Connections(part)) => page.from = part.next?,
        (Query::Exchanges { page, .. }, Answer::Exchanges(part)) => page.from = part.next?,
        (Query::Bindings { page, .. }, Answer::Bindings(part)) => page.from = part.next?,
        (Query::Vhosts(names), Answer::Vhosts(part)) => names.after = Some(part.next.clone()?),
        (Query::Users(names), Answer::Users(part)) => names.after = Some(part.next.clone()?),
        (Query::Permissions(rights), Answer::Permissions(part)) => {
            rights.after = Some(part.next.clone()?);
        }
        (Query::TopicPermissions(rights), Answer::TopicPermissions(part)) => {
            rights.after = Some(part.next.clone()?);
        }
        _ => return None,
    }
    Some(query)
}

/// A row in words, and in words what it is of: no two things have the same at any time, and one that came back is
/// another one, but for what is told by [`Entries::of`].
type Entry = (String, String);

/// What a list says, or is to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entries(Vec<Entry>);

/// A row without what the client's session says of itself, which is not the list's doing.
fn without_manner(row: &ConnectionRow) -> ConnectionRow {
    ConnectionRow {
        client_properties: TableBytes::default(),
        protocol: "",
        mechanism: String::new(),
        channel_max: 0,
        frame_max: 0,
        heartbeat_seconds: 0,
        octets: Octets::default(),
        ..row.clone()
    }
}

impl Entries {
    fn add<T: Debug>(&mut self, rows: &[T], name: impl Fn(&T) -> String) {
        self.0.extend(rows.iter().map(|row| (name(row), format!("{row:?}"))));
    }

    /// Adds what a part says.
    fn add_part(&mut self, answer: &Answer) {
        // The operator never gives two users, virtual hosts or rights the same text.
        match answer {
            Answer::Queues(part) => self.add(&part.rows, |row| format!("queue {}", row.id.0)),
            Answer::Connections(part) => {
                let rows: Vec<ConnectionRow> = part.rows.iter().map(without_manner).collect();
                self.add(&rows, |row| format!("connection {}", row.id.0));
            }
            Answer::Exchanges(part) => self.add(&part.rows, |row| format!("{row:?}")),
            Answer::Bindings(part) => self.add(&part.rows, |row| format!("{row:?}")),
            Answer::Vhosts(part) => {
                self.add(&part.rows, |row| format!("{} {}", row.name, row.description));
            }
            Answer::Users(part) => self.add(&part.rows, |row| format!("{row:?}")),
            Answer::Permissions(part) => self.add(&part.rows, |row| format!("{row:?}")),
            Answer::TopicPermissions(part) => self.add(&part.rows, |row| format!("{row:?}")),
            _ => {}
        }
    }

    /// What a list over a shard is to say.
    fn of(query: &Query, broker: &Broker) -> Entries {
        fn part<T, P>(rows: impl Iterator<Item = T>) -> Part<T, P> {
            Part { rows: rows.collect(), next: None }
        }
        let directory = &broker.directory;
        let vhost = directory.vhost("/");
        let accounts = directory.accounts();
        let answer = match query {
            Query::Queues { .. } => {
                let queues = directory.queues(vhost).filter_map(|info| queue_row(broker, info));
                Answer::Queues(part(queues))
            }
            Query::Connections(_) => {
                let connections = broker.connections.iter();
                Answer::Connections(part(connections.map(|(_, connection)| ConnectionRow {
                    id: connection.id,
                    peer: connection.peer.address.clone(),
                    local_address: connection.peer.local_address.clone(),
                    accepted_millis: connection.accepted_millis,
                    client_properties: TableBytes::default(),
                    protocol: "",
                    mechanism: String::new(),
                    channel_max: 0,
                    frame_max: 0,
                    heartbeat_seconds: 0,
                    user: connection.user.to_string(),
                    vhost: connection.vhost_name.to_string(),
                    channels: connection.channels.len(),
                    tls: connection.peer.tls.as_ref().map(|tls| tls.protocol.clone()),
                    blocked: connection.blocked,
                    octets: Octets::default(),
                    shard: broker.shard.id,
                })))
            }
            Query::Exchanges { .. } => {
                Answer::Exchanges(part(directory.exchanges(vhost).map(exchange_row)))
            }
            Query::Bindings { .. } => {
                let bindings = vhost.into_iter().flat_map(|vhost| directory.bindings(vhost));
                let named = bindings.filter(|binding| !binding.source.is_empty());
                Answer::Bindings(part(named.map(binding_row)))
            }
            Query::Vhosts(_) => Answer::Vhosts(part(accounts.vhosts().map(|vhost| VhostRow {
                name: vhost.name.to_string(),
                queues: directory.queues(Some(vhost.id)).len() as u64,
                description: vhost.metadata.description.to_string(),
            }))),
            Query::Users(_) => Answer::Users(part(accounts.users().map(|user| UserRow {
                name: user.name.to_string(),
                tags: user.tags.iter().map(ToString::to_string).collect(),
                has_password: !user.password.is_none(),
            }))),
            Query::Permissions(_) => {
                let all = accounts.permissions();
                Answer::Permissions(part(all.map(|(user, vhost, permission)| PermissionRow {
                    user: user.to_owned(),
                    vhost: vhost.name.to_string(),
                    configure: permission.configure.text().to_owned(),
                    write: permission.write.text().to_owned(),
                    read: permission.read.text().to_owned(),
                })))
            }
            Query::TopicPermissions(_) => {
                let all = accounts.topic_permissions();
                Answer::TopicPermissions(part(all.map(|(user, vhost, exchange, permission)| {
                    TopicPermissionRow {
                        user: user.to_owned(),
                        vhost: vhost.name.to_string(),
                        exchange: exchange.to_owned(),
                        write: permission.write.text().to_owned(),
                        read: permission.read.text().to_owned(),
                    }
                })))
            }
            _ => Answer::Alive,
        };
        let mut found = Entries::default();
        found.add_part(&answer);
        found
    }

    /// How often each thing is there.
    fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (name, _) in &self.0 {
            *counts.entry(name.as_str()).or_default() += 1;
        }
        counts
    }
}

/// A queue as its home sees it; `None` on other shards.
fn queue_row(broker: &Broker, info: &QueueInfo) -> Option<QueueRow> {
    let queue = broker.queue(info.id)?;
    Some(QueueRow {
        id: info.id,
        name: info.name().to_owned(),
        kind: info.kind.name(),
        durable: info.durable,
        auto_delete: info.auto_delete,
        exclusive: info.exclusive().is_some(),
        ready: queue.ready(),
        unacked: queue.unacked(),
        consumers: queue.consumer_count(),
        shard: broker.shard.id,
    })
}

fn exchange_row(exchange: &ExchangeInfo) -> ExchangeRow {
    ExchangeRow {
        name: exchange.name.to_string(),
        kind: exchange.kind_name(),
        durable: exchange.durable,
        auto_delete: exchange.auto_delete,
        internal: exchange.internal,
    }
}

fn binding_row(binding: BindingInfo<'_>) -> BindingRow {
    BindingRow {
        source: binding.source.to_owned(),
        destination_kind: binding.destination.kind(),
        destination: binding.destination.name().to_owned(),
        routing_key: binding.routing_key.to_owned(),
        arguments: binding.arguments.to_owned().to_bytes(),
    }
}

/// A list that is asked for part by part to its end, on one shard.
#[derive(Debug)]
pub(super) struct Listing {
    shard: u16,
    said: Entries,
    before: Entries,
    /// What says whether something may have gone and come back since the beginning.
    marks: (u64, u64),
}

impl Listing {
    /// One that is about to be asked for.
    pub(super) fn begin(shards: &Shards, shard: u16, query: &Query) -> Listing {
        let before = Entries::of(query, shards.broker(usize::from(shard)));
        Listing { shard, said: Entries::default(), before, marks: marks(shards, shard) }
    }

    /// A part is answered. What is asked next.
    pub(super) fn go_on(&mut self, query: &Query, answer: &Answer) -> Option<Query> {
        self.said.add_part(answer);
        next(query, answer)
    }

    /// It is at its end: what was there all the time is in it once.
    ///
    /// # Errors
    /// What is not.
    pub(super) fn check(&self, shards: &Shards, query: &Query) -> Result<(), String> {
        let after = Entries::of(query, shards.broker(usize::from(self.shard)));
        let (said, before, after) = (self.said.counts(), self.before.counts(), after.counts());
        let is_named_by_id = matches!(query, Query::Queues { .. } | Query::Connections(_));
        let (moves, version) = marks(shards, self.shard);
        let may_return = match query {
            Query::Connections(_) => moves != self.marks.0,
            // One that is made again has its old name.
            Query::Exchanges { .. } | Query::Bindings { .. } => version != self.marks.1,
            _ => false,
        };
        if may_return {
            return Ok(());
        }
        if let Some((what, count)) = said.iter().find(|(_, count)| is_named_by_id && **count > 1) {
            return Err(format!("{query:?} tells {what} {count} times"));
        }
        for (what, count) in before.iter().filter(|(what, count)| after.get(*what) == Some(*count))
        {
            let told = said.get(what).copied().unwrap_or(0);
            if told != *count {
                return Err(format!(
                    "{query:?} tells {what} {told} times, it is there {count} times"
                ));
            }
        }
        Ok(())
    }

    /// It is at its end, and everything was quiet meanwhile: it says what there is.
    ///
    /// # Errors
    /// What it says instead.
    pub(super) fn check_all(&self, shards: &Shards, query: &Query) -> Result<(), String> {
        let mut there = Entries::of(query, shards.broker(usize::from(self.shard)));
        if there != self.before {
            return Err(format!("{query:?} changes what it lists: {:?}, {there:?}", self.before));
        }
        let mut said = self.said.clone();
        if matches!(
            query,
            Query::Queues { .. }
                | Query::Connections(_)
                | Query::Exchanges { .. }
                | Query::Bindings { .. }
        ) {
            // Those come by place.
            there.0.sort();
            said.0.sort();
        }
        match said == there {
            true => Ok(()),
            false => Err(format!("{query:?} tells {said:?} in all, there is {there:?}")),
        }
    }
}

/// Connections that went to another shard so far, and the state of a shard's directory.
fn marks(shards: &Shards, shard: u16) -> (u64, u64) {
    let gone = crate::figures::counters(shards).handed_over;
    (gone, shards.broker(usize::from(shard)).directory.version())
}
