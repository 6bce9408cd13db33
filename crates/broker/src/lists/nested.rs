//! What belongs to connections and queues: channels, consumers, figures.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use lepus_base::{QueueId, VhostId};

use super::Lists;
use crate::channel::Channel;
use crate::home::Home;
use crate::query::{
    ChannelRow, ConsumerRow, ExchangeFigures, Nested, PLACES_MAX, Part, QueueFigures, SelectorRow,
};
use crate::queue::{ConsumerFilter, Distance, SelectorFigures};

impl Lists<'_> {
    /// Figures of those of the queues whose home is here.
    pub(super) fn queue_figures(&self, queues: &[QueueId]) -> Vec<QueueFigures> {
        let found = queues.iter().take(PLACES_MAX).filter_map(|queue| self.homes.find(*queue));
        let figures = |home: &Home| QueueFigures {
            id: home.id,
            ready: home.queue.ready(),
            ready_bytes: home.queue.ready_bytes(),
            unacked: home.queue.unacked(),
            unacked_bytes: home.queue.unacked_bytes(),
            passed_over: home.queue.passed_over(),
            has_filters: home.queue.has_filters(),
            consumers: home.queue.consumer_count(),
            totals: home.queue.totals(),
            memory_bytes: home.queue.memory_bytes() as u64,
        };
        found.map(figures).collect()
    }

    /// The distinct filters of a queue's consumers.
    pub(super) fn selectors(&self, queue: QueueId) -> Vec<SelectorRow> {
        let Some(home) = self.homes.find(queue) else { return Vec::new() };
        let row = |(selector, distance): (SelectorFigures, Distance)| SelectorRow {
            filter: selector.filter.as_ref().map(|filter| filter.text().into()),
            format: format_of(selector.filter.as_deref()),
            way: selector.way,
            cost: selector.cost,
            consumers: selector.consumers,
            evaluations: selector.evaluations,
            deliveries: selector.deliveries,
            given_up: selector.given_up,
            is_dear: selector.is_dear,
            behind: distance.behind,
            waiting: distance.waiting,
            is_through: distance.is_through,
        };
        home.queue.selectors().distances().map(row).collect()
    }

    /// What was published to those of the exchanges that got something.
    pub(super) fn exchange_figures(
        &self,
        exchanges: &[(VhostId, Box<str>)],
    ) -> Vec<ExchangeFigures> {
        let figures = |(vhost, name): &(VhostId, Box<str>)| {
            let place = self.directory.exchange_place(*vhost, name)?;
            let counts = self.exchanges.counts(place)?;
            Some(ExchangeFigures { vhost: *vhost, name: name.clone(), counts })
        };
        exchanges.iter().take(PLACES_MAX).filter_map(figures).collect()
    }

    /// Channels by connection and number.
    pub(super) fn channels(&self, from: Nested) -> Part<ChannelRow, Nested> {
        let mut rows = Vec::new();
        let mut at = from;
        let end = self.connections.capacity();
        let last = end.min(from.owner.saturating_add(PLACES_MAX));
        while at.owner < last {
            if let Some(connection) = self.connections.get(at.owner as u32) {
                while let Ok(number) = u16::try_from(at.first)
                    && let Some(channel) = connection.channels.from(number)
                {
                    if rows.len() == PLACES_MAX {
                        return Part { rows, next: Some(at) };
                    }
                    at.first = usize::from(channel.number()) + 1;
                    rows.push(row_of(connection.id, channel));
                }
            }
            at = Nested { owner: at.owner + 1, first: 0 };
        }
        Part { rows, next: (at.owner < end).then_some(at) }
    }

    /// Consumers by queue, in no order there.
    pub(super) fn consumers(
        &self,
        queue: Option<QueueId>,
        from: Nested,
    ) -> Part<ConsumerRow, Nested> {
        let mut rows = Vec::new();
        let mut at = from;
        let (end, last) = match queue {
            None => {
                let end = self.homes.capacity();
                (end, end.min(from.owner.saturating_add(PLACES_MAX)))
            }
            Some(queue) => match self.homes.slot_of(queue, 0) {
                Some(slot) => {
                    at.owner = slot as usize;
                    (at.owner + 1, at.owner + 1)
                }
                None => (0, 0),
            },
        };
        while at.owner < last {
            if let Some(home) = self.homes.get(at.owner as u32) {
                for (_, consumer, active) in home.queue.consumers().skip(at.first) {
                    if rows.len() == PLACES_MAX {
                        return Part { rows, next: Some(at) };
                    }
                    at.first += 1;
                    rows.push(ConsumerRow {
                        queue: home.id,
                        connection: consumer.key.connection,
                        channel: consumer.channel_number,
                        tag: consumer.tag.to_string(),
                        no_ack: consumer.no_ack,
                        exclusive: consumer.exclusive,
                        priority: consumer.priority,
                        prefetch: consumer.prefetch,
                        active,
                        filter: consumer.filter.as_ref().map(|filter| filter.text().into()),
                        format: format_of(consumer.filter.as_deref()),
                    });
                }
            }
            at = Nested { owner: at.owner + 1, first: 0 };
        }
        Part { rows, next: (at.owner < end).then_some(at) }
    }
}

/// How a filter reads bodies: the word of `x-filter-format`.
fn format_of(filter: Option<&ConsumerFilter>) -> &'static str {
    filter.map(|filter| filter.format).unwrap_or_default().name()
}

fn row_of(connection: lepus_base::ConnectionId, channel: &Channel) -> ChannelRow {
    ChannelRow {
        connection,
        number: channel.number(),
        consumers: channel.subscriptions.as_ref().map_or(0, |all| all.by_number.len()),
        prefetch: channel.prefetch,
        global_prefetch: channel.global.as_ref().map_or(0, |global| global.limit),
        unacked: channel.unacked.len(),
        unconfirmed: channel.confirms.as_ref().map_or(0, |confirms| confirms.outstanding()),
        uncommitted: channel.tx.as_ref().map_or(0, |tx| tx.publishes.len()),
        acks_uncommitted: channel.tx.as_ref().map_or(0, |tx| tx.settles.len()),
        confirms: channel.confirms.is_some(),
        transactional: channel.tx.is_some(),
        counts: channel.counts,
    }
}
