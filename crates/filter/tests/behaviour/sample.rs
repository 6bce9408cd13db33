//! Messages for tests, and the verdict on them by all ways there are.

use crate::oracle;
use lepus_amqp::{Properties, PropertiesRef, Table};
use lepus_base::HashState;
use lepus_filter::{BodyFormat, Filter, FilterSet, Limits, Message, Meta, Scratch, SetLimits};

/// A message that owns its parts.
#[derive(Clone, Default)]
pub struct Sample {
    pub properties: Vec<u8>,
    pub body: Vec<u8>,
    pub format: BodyFormat,
    pub exchange: Option<Vec<u8>>,
    pub routing_key: Option<Vec<u8>>,
    pub time: Option<u64>,
    pub offset: Option<u64>,
}

impl Sample {
    /// A message with these properties.
    pub fn new(properties: &Properties, body: &str) -> Sample {
        Sample { properties: properties.to_bytes(), body: body.into(), ..Sample::default() }
    }

    /// A message with a body and nothing else.
    pub fn body(body: &str) -> Sample {
        Sample::new(&Properties::default(), body)
    }

    /// A message with headers and nothing else.
    pub fn headers(table: Table) -> Sample {
        Sample::new(&Properties { headers: Some(table), ..Properties::default() }, "")
    }

    /// The message as filters get it.
    pub fn message(&self) -> Message<'_> {
        Message {
            properties: PropertiesRef(&self.properties),
            body: &self.body,
            format: self.format,
            meta: Meta {
                exchange: self.exchange.as_deref(),
                routing_key: self.routing_key.as_deref(),
                time: self.time,
                offset: self.offset,
                ..Meta::default()
            },
        }
    }

    /// What a filter says about it.
    pub fn truth(&self, text: &str) -> oracle::Truth {
        let filter = Filter::parse(text, &Limits::default())
            .unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let truth = oracle::verdict(filter.tree(), &self.message());
        assert_eq!(self.is_matched(&filter), truth == Some(true), "the engine on {text}");
        truth
    }

    /// Whether the engine says that a filter matches it.
    pub fn is_matched(&self, filter: &Filter) -> bool {
        let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
        set.add(filter, 7).expect("there is room for one");
        let mut found = Vec::new();
        set.matches(&self.message(), u64::MAX, &mut Scratch::default(), &mut found);
        assert!(found.iter().all(|found| found.target == 7) && found.len() <= 1);
        !found.is_empty()
    }

    /// Whether a filter matches it.
    pub fn matches(&self, text: &str) -> bool {
        self.truth(text) == Some(true)
    }
}

/// Checks each filter's verdict: TRUE, FALSE or `None` for unknown.
pub fn check(sample: &Sample, rows: &[(&str, oracle::Truth)]) {
    for (text, expected) in rows {
        assert_eq!(sample.truth(text), *expected, "{text}");
    }
}
