//! Figures of exchanges, their filters, and virtual hosts: sums over all shards.

use super::Running;
use lepus_base::VhostId;
use lepus_broker::directory::FilterFigures;
use lepus_broker::query::{PLACES_MAX, VhostFigures};
use lepus_broker::{Answer, ExchangeCounts, Query};
use std::collections::HashMap;

/// An exchange by its virtual host and its name.
pub(crate) type ExchangeName = (VhostId, Box<str>);

/// How often the shards are asked at most until they have summed up what all connections did.
const ROUNDS_MAX: usize = 256;

/// What was published to exchanges; those to which nothing was are missing. It blocks.
///
/// # Errors
/// In words, where a shard does not answer.
pub(crate) fn of_exchanges(
    broker: &dyn Running,
    names: &[ExchangeName],
) -> Result<HashMap<ExchangeName, ExchangeCounts>, String> {
    let mut sums: HashMap<ExchangeName, ExchangeCounts> = HashMap::new();
    for names in names.chunks(PLACES_MAX) {
        for answer in broker.ask_all(&Query::ExchangeFigures(names.to_vec()))? {
            let Answer::ExchangeFigures(found) = answer else {
                unreachable!("a question for exchanges is answered with {answer:?}");
            };
            for row in found {
                let sum = sums.entry((row.vhost, row.name)).or_default();
                sum.published += row.counts.published;
                sum.routed += row.counts.routed;
                sum.returned += row.counts.returned;
                sum.dropped += row.counts.dropped;
            }
        }
    }
    Ok(sums)
}

/// How many filters the bindings of an exchange have, and what they take of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterSums {
    pub(crate) figures: FilterFigures,
    /// Messages that were drawn on all shards.
    pub(crate) samples: u64,
    /// Steps for reading one of them, in the mean.
    pub(crate) reading_steps: f64,
    /// Steps for asking the filters.
    pub(crate) matching_steps: f64,
}

/// The filters of exchanges' bindings; those whose bindings have none are missing. It blocks.
///
/// # Errors
/// In words, where a shard does not answer.
pub(crate) fn of_filters(
    broker: &dyn Running,
    names: &[ExchangeName],
) -> Result<HashMap<ExchangeName, FilterSums>, String> {
    let mut sums: HashMap<ExchangeName, FilterSums> = HashMap::new();
    for names in names.chunks(PLACES_MAX) {
        for answer in broker.ask_all(&Query::FilterFigures(names.to_vec()))? {
            let Answer::FilterFigures(found) = answer else {
                unreachable!("a question for filters is answered with {answer:?}");
            };
            for row in found {
                let sum = sums.entry((row.vhost, row.name)).or_default();
                // How many there are is the same on every shard; whether they refuse others one knows.
                let refuses = sum.figures.refuses || row.figures.refuses;
                sum.figures = FilterFigures { refuses, ..row.figures };
                sum.samples += row.samples;
                // Where they take most: that is what further ones are refused for.
                sum.reading_steps = sum.reading_steps.max(f64::from(row.reading_steps));
                sum.matching_steps = sum.matching_steps.max(f64::from(row.matching_steps));
            }
        }
    }
    Ok(sums)
}

/// What was done in virtual hosts, and what is there; those in which nothing ever was are missing. It blocks.
///
/// # Errors
/// In words, where a shard does not answer.
pub(crate) fn of_vhosts(
    broker: &dyn Running,
    vhosts: &[VhostId],
) -> Result<HashMap<VhostId, VhostFigures>, String> {
    let mut sums = HashMap::new();
    for vhosts in vhosts.chunks(PLACES_MAX) {
        let mut rows = Vec::new();
        // What very many connections did is summed up in parts.
        for _ in 0..ROUNDS_MAX {
            let mut are_whole = true;
            rows.clear();
            for answer in broker.ask_all(&Query::VhostFigures(vhosts.to_vec()))? {
                let Answer::VhostFigures { rows: found, is_whole } = answer else {
                    unreachable!("a question for virtual hosts is answered with {answer:?}");
                };
                are_whole &= is_whole;
                rows.extend(found);
            }
            if are_whole {
                break;
            }
        }
        for row in rows {
            let new = VhostFigures { vhost: row.vhost, ..VhostFigures::default() };
            let sum = sums.entry(row.vhost).or_insert(new);
            sum.counts.add(&row.counts);
            sum.received_bytes += row.received_bytes;
            sum.sent_bytes += row.sent_bytes;
            sum.ready += row.ready;
            sum.unacked += row.unacked;
        }
    }
    Ok(sums)
}
