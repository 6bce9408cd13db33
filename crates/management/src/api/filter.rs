//! Filters that requests name: the same language as in bindings and consumers.

use super::body::Fields;
use super::client::Got;
use super::failure::Failure;
use lepus_amqp::table::{self, Table};
use lepus_base::{HashState, VhostId};
use lepus_broker::router::{FILTER, SELECTOR};
use lepus_filter::{
    BodyFormat, Filter, FilterSet, Limits, Match, Message, Meta, Scratch, SetLimits,
};
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Steps of some ten nanoseconds that a filter may take for a message, as one of a consumer. A message that takes more
/// does not match.
const STEPS_MAX: u64 = 32_768;

/// A filter that single messages are held against.
pub(crate) struct Wanted {
    set: FilterSet,
    format: BodyFormat,
    scratch: Scratch,
    found: Vec<Match>,
    /// Messages for which it would have taken too long.
    pub(crate) given_up: usize,
}

impl Wanted {
    /// The filter in the fields `filter` and `filter_format`, if there is one.
    ///
    /// # Errors
    /// 400 for one that is not well-formed, with its place in the text.
    pub(crate) fn of(fields: &Fields) -> Result<Option<Wanted>, Failure> {
        let word = fields.text("filter_format")?.unwrap_or_else(|| "auto".to_owned());
        let format = BodyFormat::from_name(&word).ok_or_else(|| {
            let text = format!("filter_format is {word:?} and not auto, json, fix, nvfix or none");
            Failure::bad_request(text)
        })?;
        let text = match fields.as_sent("filter") {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            // Without a filter all messages are meant, which some client may not.
            Some(_) => {
                return Err(Failure::bad_request("filter is to be a text, or to be left out"));
            }
        };
        let filter = Filter::parse(text, &Limits::default())
            .map_err(|error| Failure::filter("filter", &error))?;
        let mut set = FilterSet::new(SetLimits::default(), HashState::default());
        let added = set.add(&filter, 0);
        added.map_err(|full| Failure::bad_request(format!("the filter has {full}")))?;
        Ok(Some(Wanted {
            set,
            format,
            scratch: Scratch::default(),
            found: Vec::new(),
            given_up: 0,
        }))
    }

    /// Whether a message is one that is wanted.
    pub(crate) fn matches(&mut self, got: &Got) -> bool {
        let meta = Meta {
            exchange: Some(got.exchange.as_bytes()),
            routing_key: Some(got.routing_key.as_bytes()),
            ..Meta::default()
        };
        let message = Message::new(&got.properties_bytes, &got.body, self.format, meta);
        self.found.clear();
        let report = self.set.matches(&message, STEPS_MAX, &mut self.scratch, &mut self.found);
        self.given_up += usize::from(report.has_run_out);
        !self.found.is_empty()
    }
}

/// The refusal of a binding with these arguments, with the place in its filter if that is what it was refused for.
pub(crate) fn with_place(failure: Failure, arguments: &Table) -> Failure {
    let text = |name| arguments.get(name).and_then(table::Value::as_text);
    let named = [FILTER, SELECTOR].into_iter().filter_map(|name| Some((name, text(name)?)));
    let told = named.filter_map(|(name, filter)| {
        let error = Filter::parse(filter, &Limits::default()).err()?;
        Some(Failure::filter(name, &error))
    });
    let mut told = told.filter(|told| told.reason == failure.reason);
    told.next().unwrap_or(failure)
}

/// Queues that are looked at at a time: less than there are places for answers about messages.
const LOOKS_MAX: usize = 2;

/// Queues whose messages are held against a filter at present. While one is, others would see only what that one leaves.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<Vec<(VhostId, String)>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    looks: &'a Looks,
    queue: (VhostId, String),
}

impl Looks {
    fn all(&self) -> MutexGuard<'_, Vec<(VhostId, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look at a queue.
    ///
    /// # Errors
    /// 503 while somebody does, and while many are looked at.
    pub(crate) fn begin(&self, vhost: VhostId, queue: &str) -> Result<Look<'_>, Failure> {
        let mut all = self.all();
        let queue = (vhost, queue.to_owned());
        if all.contains(&queue) || all.len() >= LOOKS_MAX {
            let text = "messages are held against another filter at present: try again";
            return Err(Failure::unavailable(text));
        }
        all.push(queue.clone());
        Ok(Look { looks: self, queue })
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.looks.all().retain(|queue| *queue != self.queue);
    }
}
