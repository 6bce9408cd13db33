//! Messages on their way from a queue to its dead-letter exchange.

use alloc::vec::Vec;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Body, Now, QueueId};

use crate::broker::Broker;
use crate::edge::log;
use crate::message::{Incoming, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::properties::{Death, closes_cycle, copy_keys, owned_headers, with_death};
use crate::publish::Terms;
use crate::queue::Reason;

/// Dead letters handled in one go before other work gets its turn.
const DEAD_LETTERS_AT_ONCE_MAX: usize = 256;

/// A message that left a queue otherwise than by acknowledgement. It owns one reference to its
/// body.
#[derive(Debug)]
pub struct DeadLetter {
    /// The queue that it left.
    pub queue: QueueId,
    /// The packed message.
    pub body: Body,
    /// Delivery mode 2.
    pub persistent: bool,
    /// Its priority.
    pub priority: u8,
    /// Why it left.
    pub reason: Reason,
}

impl Broker {
    /// Routes some of the waiting dead letters. True when more wait.
    pub(crate) fn route_dead_letters(&mut self, now: Now, out: &mut Outbox) -> bool {
        for _ in 0..DEAD_LETTERS_AT_ONCE_MAX {
            let limit = self.edge.limits.mail_batch_bytes_max;
            if out.mail.iter().any(|batch| batch.weight() > 2 * limit) {
                // The letters stay where they are until the mail has gone.
                break;
            }
            let Some(letter) = self.edge.dead_letters.pop_front() else { return false };
            self.route_dead_letter(now, &letter, out);
            self.edge.pool.release(letter.body);
        }
        !self.edge.dead_letters.is_empty()
    }

    fn route_dead_letter(&mut self, now: Now, letter: &DeadLetter, out: &mut Outbox) {
        let counters = &mut self.edge.counters;
        match letter.reason {
            Reason::Rejected => counters.dead_lettered_rejected += 1,
            Reason::Expired => counters.dead_lettered_expired += 1,
            Reason::MaxLength => counters.dead_lettered_maxlen += 1,
            Reason::DeliveryLimit => counters.dead_lettered_delivery_limit += 1,
        }
        let Some(info) = self.directory.queue_by_id(letter.queue) else { return };
        let Some(exchange) = info.settings().dead_letter_exchange.clone() else { return };
        let vhost = info.vhost;
        let view = MessageView::unpack(self.edge.pool.get(letter.body));
        let (Ok(old_exchange), Ok(old_key)) =
            (core::str::from_utf8(view.exchange), core::str::from_utf8(view.routing_key))
        else {
            return;
        };
        let own_key = info.settings().dead_letter_routing_key.as_deref();
        let death = Death {
            queue: &info.name,
            reason: letter.reason,
            exchange: old_exchange,
            routing_key: old_key,
            time_seconds: now.wall_millis / 1000,
            drops_cc: own_key.is_some(),
        };
        let Some(properties) = with_death(view.properties, &death) else { return };
        let key = own_key.unwrap_or(old_key);
        let mut routes = core::mem::take(&mut self.routes);
        routes.clear();
        let headers = owned_headers(PropertiesRef(&properties));
        let copies = copy_keys(&headers, "CC").unwrap_or_default();
        for key in core::iter::once(key).chain(copies.iter().map(|key| key.as_str())) {
            self.directory.route_dead_letter(
                vhost,
                &exchange,
                key,
                PropertiesRef(&properties),
                &mut self.rng,
                &mut routes,
            );
        }
        let mut targets = Vec::new();
        self.resolve(&routes, &mut targets);
        self.routes = routes;
        if letter.reason != Reason::Rejected {
            targets.retain(|target| {
                let Some(info) = self.directory.queue_by_id(target.queue) else { return false };
                let closes = closes_cycle(&properties, &info.name);
                if closes {
                    let text = alloc::format!(
                        "message dropped: dead-lettering it from queue '{}' into '{}' again would go round for ever",
                        death.queue, info.name
                    );
                    log(out, Severity::Warning, "dead-letter-cycle", text);
                }
                !closes
            });
        }
        if targets.is_empty() {
            return;
        }
        let view = MessageView {
            exchange: exchange.as_bytes(),
            routing_key: key.as_bytes(),
            properties: &properties,
            body: view.body,
        };
        // The bytes leave the pool before the pool is written to.
        let mut body = Vec::new();
        view.append_packed(&mut body);
        let mut incoming = Incoming::new(MessageView::unpack(&body));
        let terms = Terms {
            persistent: letter.persistent,
            priority: letter.priority,
            expiration: None,
            confirm: None,
        };
        self.enqueue_all(now, &mut incoming, &targets, terms, out);
        incoming.finish(&mut self.edge.pool);
    }
}
