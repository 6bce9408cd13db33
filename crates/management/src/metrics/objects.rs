//! Figures of every queue, connection, channel, exchange and virtual host, one by one, under RabbitMQ's names:
//! `/metrics/per-object` and `/metrics/detailed`.
//!
//! The shards are asked in bounded parts, one part after the other; names come from the copy of the directory. What
//! they told is held as small rows, and the page is made of it in parts.

mod families;
mod rows;
#[cfg(test)]
mod tests;
mod wish;

pub use wish::Wish;

use crate::api::{Mirror, Running};
use crate::exposition::{Exposition, Kind};
use families::{FAMILIES, Family, Value};
use lepus_broker::query::{PLACES_MAX, QueueFigures};
pub use rows::Rows;
use std::sync::Arc;

/// Bytes of a part of the page, about.
const PART_BYTES: usize = 64 << 10;

/// The way to what is told one by one.
#[derive(Clone)]
pub struct Objects {
    /// The running broker.
    pub broker: Arc<dyn Running>,
    /// The copy of its directory.
    pub mirror: Arc<Mirror>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

/// A page that is made and given away in parts.
struct Page<F> {
    text: Exposition,
    /// Takes a part; false once nobody wants more.
    give: F,
    is_wanted: bool,
}

impl<F: FnMut(String) -> bool> Page<F> {
    /// Gives away what there is, if it is much.
    fn pass_on(&mut self, bytes_min: usize) {
        if self.is_wanted && self.text.len() >= bytes_min {
            self.is_wanted = (self.give)(self.text.take());
        }
    }
}

/// Writes the page that is wished for and gives it away part by part, until `give` says that nobody wants more.
pub(crate) fn write(wish: &Wish, rows: &Rows, mirror: &Mirror, give: impl FnMut(String) -> bool) {
    let mut page = Page { text: Exposition::new(), give, is_wanted: true };
    match wish {
        Wish::PerObject => super::beside_objects(&rows.snapshot, &mut page.text),
        Wish::Detailed { .. } => super::identity(&rows.snapshot, "detailed", &mut page.text),
    }
    for family in FAMILIES.iter().filter(|family| wish.has(family)) {
        page.text.family(&wish.name_of(family), family.kind, family.help);
        samples(wish, family, rows, mirror, &mut page);
    }
    if wish.has_queues() {
        queue_info(wish, rows, mirror, &mut page);
    }
    if rows.left_out > 0 {
        let name = "lepus_objects_left_out";
        let help = "Queues, connections, channels and exchanges that this page does not tell: there are too many.";
        page.text.single(name, Kind::Gauge, help, rows.left_out);
    }
    page.pass_on(1);
}

/// The samples of a family: one for each row.
fn samples<F: FnMut(String) -> bool>(
    wish: &Wish,
    family: &Family,
    rows: &Rows,
    mirror: &Mirror,
    page: &mut Page<F>,
) {
    let name = wish.name_of(family);
    match family.value {
        Value::Node(value) => page.text.sample(&name, &[], value(&rows.snapshot)),
        Value::Queue(value) | Value::FilteredQueue(value) => {
            let all = matches!(family.value, Value::Queue(_));
            for part in rows.queues.chunks(PLACES_MAX) {
                // Held for a part only, so that nobody waits long who changes the copy.
                let directory = mirror.directory();
                let is_told = |row: &&QueueFigures| all || row.has_filters || row.passed_over > 0;
                for figures in part.iter().filter(is_told) {
                    let id = directory.id_now(figures.id);
                    let Some(info) = directory.queue_by_id(id) else { continue };
                    let labels =
                        [("vhost", directory.vhost_name(info.vhost)), ("queue", info.name())];
                    page.text.sample(&name, &labels, value(figures));
                }
                drop(directory);
                page.pass_on(PART_BYTES);
            }
        }
        Value::Connection(value) => {
            for row in &rows.connections {
                page.text.sample(&name, &[("channel", &row.name)], value(row));
                page.pass_on(PART_BYTES);
            }
        }
        Value::Channel(value) => {
            for row in &rows.channels {
                let Some(connection) = rows.connection(row.connection) else { continue };
                let channel = format!("{} ({})", connection.name, row.number);
                page.text.sample(&name, &[("channel", &channel)], value(row));
                page.pass_on(PART_BYTES);
            }
        }
        Value::Exchange(value) => {
            for row in &rows.exchanges {
                let labels = [("vhost", &*row.vhost), ("exchange", &*row.name), ("type", row.kind)];
                // Names are told without the type, as in RabbitMQ.
                let labels = if family.group == "exchange_names" { &labels[..2] } else { &labels };
                page.text.sample(&name, labels, value(row));
                page.pass_on(PART_BYTES);
            }
        }
        Value::Published(value) => {
            for (vhost, exchange, counts) in &rows.published {
                let labels = [("vhost", &**vhost), ("exchange", &**exchange)];
                page.text.sample(&name, &labels, value(counts));
                page.pass_on(PART_BYTES);
            }
        }
        Value::Vhost => {
            for vhost in &rows.vhosts {
                page.text.sample(&name, &[("vhost", vhost)], 1);
            }
        }
    }
}

/// What a queue is, for others to be joined with.
fn queue_info<F: FnMut(String) -> bool>(
    wish: &Wish,
    rows: &Rows,
    mirror: &Mirror,
    page: &mut Page<F>,
) {
    let name = format!("{}queue_info", wish.prefix());
    page.text.family(&name, Kind::Gauge, "What a queue is.");
    for part in rows.queues.chunks(PLACES_MAX) {
        let directory = mirror.directory();
        for figures in part {
            let Some(info) = directory.queue_by_id(directory.id_now(figures.id)) else { continue };
            let kind = format!("rabbit_{}_queue", info.kind.name());
            let labels = [
                ("vhost", directory.vhost_name(info.vhost)),
                ("queue", info.name()),
                ("queue_type", &kind),
                ("membership", "leader"),
            ];
            page.text.sample(&name, &labels, 1);
        }
        drop(directory);
        page.pass_on(PART_BYTES);
    }
}
