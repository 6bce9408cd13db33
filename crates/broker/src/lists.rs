//! What there is on a shard, listed in parts.

mod filters;
mod nested;

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use lepus_base::{ConnectionId, ShardId, VhostId};

use crate::connection::Connection;
use crate::connections::Connections;
use crate::directory::{
    BindingInfo, Directory, ExchangeInfo, Permission, TopicPermission, User, VhostInfo,
};
use crate::exchange_counts::ExchangeTable;
use crate::filter_costs::FilterCosts;
use crate::held::{Held, HeldOfVhosts, OfQueue};
use crate::homes::Homes;
use crate::journal::OldestDelivery;
use crate::query::{
    Answer, BindingRow, ConnectionRow, ExchangeRow, NAMES_MAX, Names, Oldest, PLACES_MAX, Page,
    Part, PermissionRow, Query, QueueRow, Rights, RightsPlace, TopicPermissionRow, UserRow,
    VhostRow,
};

/// Bytes of arguments of bindings after which a part of their list ends. An order puts a few hundred parts together, and
/// control characters are six bytes of JSON each.
const ARGUMENTS_BYTES: usize = 16 << 10;

impl Page {
    /// Its places, of so many that there are, and where the next page begins.
    fn of(self, places: usize) -> (usize, usize, Option<usize>) {
        let first = self.from.min(places);
        let limit = self.limit.clamp(1, PLACES_MAX).min(places - first);
        let end = first + limit;
        (first, limit, (end < places).then_some(end))
    }
}

impl Names {
    fn limit(&self) -> usize {
        self.limit.clamp(1, NAMES_MAX)
    }
}

/// What lists are made of; nothing is changed by them.
pub(crate) struct Lists<'a> {
    pub(crate) shard: ShardId,
    /// What was published to exchanges.
    pub(crate) exchanges: &'a ExchangeTable,
    /// What asking filters of exchanges takes.
    pub(crate) filter_costs: &'a FilterCosts,
    /// Queues by place.
    pub(crate) homes: &'a Homes,
    /// Connections by place.
    pub(crate) connections: &'a Connections,
    pub(crate) directory: &'a Directory,
}

impl<'a> Lists<'a> {
    /// Answers a question for a part of a list, or for names.
    ///
    /// # Panics
    /// When it is another question.
    pub(crate) fn answer(&self, query: Query) -> Answer {
        match query {
            Query::Connections(page) => Answer::Connections(self.connections(page)),
            Query::ConnectionsById(ids) => Answer::Connections(self.connections_by_id(&ids)),
            Query::Channels(from) => Answer::Channels(self.channels(from)),
            Query::Consumers { queue, from } => Answer::Consumers(self.consumers(queue, from)),
            Query::QueueFigures(queues) => Answer::QueueFigures(self.queue_figures(&queues)),
            Query::Selectors(queue) => Answer::Selectors(self.selectors(queue)),
            Query::FilterFigures(exchanges) => {
                Answer::FilterFigures(self.filter_figures(&exchanges))
            }
            Query::DearFilters { vhost, exchange, from } => {
                Answer::DearFilters(self.dear_filters(vhost, &exchange, from))
            }
            Query::FilteredQueues { after } => Answer::FilteredQueues(self.filtered_queues(after)),
            Query::ExchangeFigures(exchanges) => {
                Answer::ExchangeFigures(self.exchange_figures(&exchanges))
            }
            Query::Queues { vhost, page } => {
                self.in_vhost(&vhost, |vhost| Answer::Queues(self.queues(vhost, page)))
            }
            Query::Exchanges { vhost, page } => {
                self.in_vhost(&vhost, |vhost| Answer::Exchanges(self.exchanges(vhost, page)))
            }
            Query::Bindings { vhost, page } => {
                self.in_vhost(&vhost, |vhost| Answer::Bindings(self.bindings(vhost, page)))
            }
            Query::Known { user, vhost } => Answer::Known {
                user: self.directory.user(&user).is_some(),
                vhost: self.directory.vhost(&vhost).is_some(),
            },
            Query::Vhosts(names) => Answer::Vhosts(self.vhosts(&names)),
            Query::Users(names) => Answer::Users(self.users(&names)),
            Query::Permissions(rights) => {
                Answer::Permissions(self.rights(&rights, |user, behind| {
                    let behind = behind.map(|(vhost, _)| vhost);
                    let found = self.directory.accounts().permissions_behind(user, behind);
                    found.map(|found| ((found.0.id, ""), permission(user, found)))
                }))
            }
            Query::TopicPermissions(rights) => {
                Answer::TopicPermissions(self.rights(&rights, |user, behind| {
                    let behind = behind.map(|(vhost, exchange)| (vhost, exchange.into()));
                    let found = self.directory.accounts().topic_permissions_behind(user, behind);
                    found.map(|found| ((found.0.id, found.1), topic_permission(user, found)))
                }))
            }
            other => unreachable!("{other:?} asks for no list"),
        }
    }

    /// A delivery with the names of its queue and virtual host, while there is the queue.
    pub(crate) fn oldest(&self, delivery: OldestDelivery) -> Option<Oldest> {
        let info = self.directory.queue_by_id(delivery.queue)?;
        Some(Oldest {
            vhost: self.directory.vhost_name(info.vhost).to_owned(),
            queue: info.name().to_owned(),
            segments: delivery.segments,
        })
    }

    /// What queues and connections hold, by a walk over all of them.
    pub(crate) fn held(&self) -> Held {
        let mut walked = Held::default();
        for (_, home) in self.homes.iter() {
            walked.adjust(OfQueue::default(), OfQueue::of(&home.queue));
        }
        for (_, connection) in self.connections.iter() {
            walked.channels += connection.open_channels().count() as u64;
            walked.publishers += u64::from(connection.publishes);
        }
        walked
    }

    /// What the queues of each virtual host hold, by a walk over all of them.
    pub(crate) fn held_of_vhosts(&self) -> HeldOfVhosts {
        let mut walked = HeldOfVhosts::default();
        for (_, home) in self.homes.iter() {
            walked.adjust(home.vhost, OfQueue::default(), OfQueue::of(&home.queue));
        }
        walked
    }

    fn in_vhost(&self, name: &str, list: impl FnOnce(VhostId) -> Answer) -> Answer {
        match self.directory.vhost(name) {
            Some(vhost) => list(vhost),
            None => Answer::NoVhost,
        }
    }

    fn queues(&self, vhost: VhostId, page: Page) -> Part<QueueRow, usize> {
        let (first, limit, next) = page.of(self.homes.capacity());
        let rows = (first..first + limit).filter_map(|place| {
            let home = self.homes.get(place as u32)?;
            let info = self.directory.queue_by_id(home.id).filter(|info| info.vhost == vhost)?;
            Some(QueueRow {
                id: home.id,
                name: info.name().to_owned(),
                kind: info.kind.name(),
                durable: info.durable,
                auto_delete: info.auto_delete,
                exclusive: info.exclusive().is_some(),
                ready: home.queue.ready(),
                unacked: home.queue.unacked(),
                consumers: home.queue.consumer_count(),
                shard: self.shard,
            })
        });
        Part { rows: rows.collect(), next }
    }

    fn connections(&self, page: Page) -> Part<ConnectionRow, usize> {
        let (first, limit, next) = page.of(self.connections.capacity());
        let places = first..first + limit;
        let rows = places.filter_map(|place| self.connections.get(place as u32));
        Part { rows: rows.map(|connection| self.connection_row(connection)).collect(), next }
    }

    fn connections_by_id(&self, ids: &[ConnectionId]) -> Part<ConnectionRow, usize> {
        let slots = ids.iter().take(PLACES_MAX).filter_map(|id| self.connections.slot_of(*id));
        let rows = slots.filter_map(|slot| self.connections.get(slot));
        Part { rows: rows.map(|connection| self.connection_row(connection)).collect(), next: None }
    }

    fn connection_row(&self, connection: &Connection) -> ConnectionRow {
        let manner = connection.session.manner();
        ConnectionRow {
            id: connection.id,
            peer: connection.peer.address.clone(),
            local_address: connection.peer.local_address.clone(),
            accepted_millis: connection.accepted_millis,
            client_properties: connection.client_properties().to_bytes(),
            protocol: manner.protocol,
            mechanism: manner.mechanism.to_owned(),
            channel_max: connection.session.channel_max(),
            frame_max: manner.frame_max,
            heartbeat_seconds: manner.heartbeat_seconds,
            user: connection.user.to_string(),
            vhost: connection.vhost_name.to_string(),
            channels: connection.channels.len(),
            tls: connection.peer.tls.as_ref().map(|tls| tls.protocol.clone()),
            blocked: connection.blocked,
            octets: connection.octets,
            shard: self.shard,
        }
    }

    fn exchanges(&self, vhost: VhostId, page: Page) -> Part<ExchangeRow, usize> {
        let row = |exchange: &ExchangeInfo| ExchangeRow {
            name: exchange.name.to_string(),
            kind: exchange.kind_name(),
            durable: exchange.durable,
            auto_delete: exchange.auto_delete,
            internal: exchange.internal,
        };
        let limit = page.limit.clamp(1, PLACES_MAX);
        let found = self.directory.exchanges_in(vhost, page.from, limit);
        let next = found.is_some().then(|| page.from.saturating_add(limit));
        Part { rows: found.into_iter().flatten().map(row).collect(), next }
    }

    /// Arguments may be long: a part ends where it has many bytes of them.
    fn bindings(&self, vhost: VhostId, page: Page) -> Part<BindingRow, usize> {
        let row = |binding: BindingInfo<'_>| BindingRow {
            source: binding.source.to_owned(),
            destination_kind: binding.destination.kind(),
            destination: binding.destination.name().to_owned(),
            routing_key: binding.routing_key.to_owned(),
            arguments: binding.arguments.to_owned().to_bytes(),
        };
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let end = page.from.saturating_add(page.limit.clamp(1, PLACES_MAX));
        let mut place = page.from;
        while place < end && bytes < ARGUMENTS_BYTES {
            let Some(found) = self.directory.bindings_in(vhost, place, 1) else {
                return Part { rows, next: None };
            };
            place += 1;
            for binding in found {
                bytes += binding.arguments.bytes().len();
                rows.push(row(binding));
            }
        }
        Part { rows, next: Some(place) }
    }

    fn vhosts(&self, names: &Names) -> Part<VhostRow, String> {
        let behind = self.directory.accounts().vhosts_behind(names.after.as_deref());
        let vhosts: Vec<&VhostInfo> = behind.take(names.limit()).collect();
        let next = vhosts.last().map(|vhost| vhost.name.to_string());
        let row = |vhost: &VhostInfo| VhostRow {
            name: vhost.name.to_string(),
            queues: self.directory.queue_count(vhost.id),
            description: vhost.metadata.description.to_string(),
        };
        Part { rows: vhosts.into_iter().map(row).collect(), next }
    }

    fn users(&self, names: &Names) -> Part<UserRow, String> {
        let behind = self.directory.accounts().users_behind(names.after.as_deref());
        let users: Vec<&User> = behind.take(names.limit()).collect();
        let next = users.last().map(|user| user.name.to_string());
        let row = |user: &User| UserRow {
            name: user.name.to_string(),
            tags: user.tags.iter().map(ToString::to_string).collect(),
            has_password: !user.password.is_none(),
        };
        Part { rows: users.into_iter().map(row).collect(), next }
    }

    /// What users may do: so many rows of so many users at most. `of` gives what a user may do behind a right, each
    /// row with the place of its right.
    fn rights<T, I: Iterator<Item = ((VhostId, &'a str), T)>>(
        &self,
        rights: &Rights,
        of: impl Fn(&'a User, Option<(VhostId, &str)>) -> I,
    ) -> Part<T, RightsPlace> {
        let limit = rights.limit.clamp(1, NAMES_MAX);
        let accounts = self.directory.accounts();
        let after = rights.after.as_ref();
        let begun = after.and_then(|after| {
            let (vhost, exchange) = after.right.as_ref()?;
            Some((accounts.user(&after.user)?, Some((*vhost, exchange.as_str()))))
        });
        let others = accounts.users_behind(after.map(|after| after.user.as_str()));
        let users = begun.into_iter().chain(others.map(|user| (user, None)));
        let mut rows = Vec::new();
        let mut next = None;
        for (user, behind) in users.take(limit) {
            let mut own = of(user, behind);
            let mut last = None;
            let room = limit - rows.len();
            rows.extend(own.by_ref().take(room).map(|(place, row)| {
                last = Some(place);
                row
            }));
            let right = last.filter(|_| rows.len() == limit);
            let right = right.map(|(vhost, exchange)| (vhost, exchange.to_owned()));
            next = Some(RightsPlace { user: user.name.to_string(), right });
            if rows.len() == limit {
                break;
            }
        }
        Part { rows, next }
    }
}

fn permission(user: &User, (vhost, permission): (&VhostInfo, &Permission)) -> PermissionRow {
    PermissionRow {
        user: user.name.to_string(),
        vhost: vhost.name.to_string(),
        configure: permission.configure.text().to_owned(),
        write: permission.write.text().to_owned(),
        read: permission.read.text().to_owned(),
    }
}

fn topic_permission(
    user: &User,
    (vhost, exchange, permission): (&VhostInfo, &str, &TopicPermission),
) -> TopicPermissionRow {
    TopicPermissionRow {
        user: user.name.to_string(),
        vhost: vhost.name.to_string(),
        exchange: exchange.to_owned(),
        write: permission.write.text().to_owned(),
        read: permission.read.text().to_owned(),
    }
}
