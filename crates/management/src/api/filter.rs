//! Filters that requests name: the same language as in bindings and consumers.

use super::body::Fields;
use super::client::Got;
use super::failure::Failure;
use lepus_amqp::table::{Table, Value};
use lepus_base::HashState;
use lepus_broker::router::{FILTER, SELECTOR};
use lepus_filter::{
    BodyFormat, Filter, FilterError, FilterSet, Limits, Match, Message, Meta, Scratch, SetLimits,
};

/// Steps of some ten nanoseconds that a filter may take for a message, as one of a consumer. A message that takes more
/// does not match.
const STEPS_MAX: u64 = 32_768;

/// A filter that single messages are held against.
pub(crate) struct Wanted {
    set: FilterSet,
    format: BodyFormat,
    scratch: Scratch,
    found: Vec<Match>,
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
        let Some(text) = fields.text("filter")? else { return Ok(None) };
        let filter = Filter::parse(&text, &Limits::default())
            .map_err(|error| Failure::filter("filter", &error))?;
        let mut set = FilterSet::new(SetLimits::default(), HashState::default());
        let added = set.add(&filter, 0);
        added.map_err(|full| Failure::bad_request(format!("the filter has {full}")))?;
        Ok(Some(Wanted { set, format, scratch: Scratch::default(), found: Vec::new() }))
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
        self.set.matches(&message, STEPS_MAX, &mut self.scratch, &mut self.found);
        !self.found.is_empty()
    }
}

/// What is wrong with the filter among a binding's arguments, if that is what the binding was refused for.
pub(crate) fn error_in(arguments: &Table) -> Option<(&'static str, FilterError)> {
    let text = |name| arguments.get(name).and_then(Value::as_text);
    let mut named = [FILTER, SELECTOR].into_iter().filter_map(|name| Some((name, text(name)?)));
    let (name, filter) = named.find(|(name, text)| *name == FILTER || !text.is_empty())?;
    Some((name, Filter::parse(filter, &Limits::default()).err()?))
}
