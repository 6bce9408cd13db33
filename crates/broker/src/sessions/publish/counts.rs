//! What is published is counted: for its channel, its connection and its exchange.

use crate::channel::At;
use crate::exchange_counts::Record;
use crate::publish::Served;
use crate::session::Publish;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// Where the exchange is counted of which routes were found last; `None` where it has vanished.
    pub(crate) fn exchange_record(&mut self, at: At, exchange: &str) -> Option<Record> {
        if let Some(place) = self.shard.routes.exchange() {
            return Some(self.shard.exchanges.record(place));
        }
        if !exchange.is_empty() {
            return race!("the exchange was deleted before a transaction published to it", None);
        }
        let place = || self.directory.exchange_place(at.vhost, "");
        self.shard.exchanges.record_of_default(at.vhost, place)
    }

    /// A message that is `served` went to so many queues.
    pub(crate) fn count_publish(
        &mut self,
        at: At,
        record: Option<Record>,
        served: Served,
        queues: usize,
    ) {
        if !served.is_taken() {
            return;
        }
        if let Some(record) = record {
            self.shard.exchanges.count(record, 1, queues as u64);
        }
        let connection = &mut self.connections[at.slot];
        connection.count_messages(at.channel.channel, |counts| counts.published += 1);
    }

    /// A message reaches nobody: it is returned where its client wants that, and dropped elsewhere.
    pub(crate) fn count_unroutable(&mut self, at: At, publish: &Publish<'_>) {
        let is_returned = publish.mandatory;
        let (returned, dropped) = (u64::from(is_returned), u64::from(!is_returned));
        self.shard.counters.unroutable_returned += returned;
        self.shard.counters.unroutable_dropped += dropped;
        if let Some(place) = self.directory.exchange_place(at.vhost, publish.exchange) {
            let record = self.shard.exchanges.record(place);
            self.shard.exchanges.count_unroutable(record, is_returned);
        }
        let connection = &mut self.connections[at.slot];
        connection.count_messages(at.channel.channel, |counts| {
            counts.returned += returned;
            counts.dropped += dropped;
        });
    }
}
