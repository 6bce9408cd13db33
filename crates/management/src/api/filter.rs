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
use std::time::{Duration, Instant};

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
    /// The filter that a request names, if there is one.
    ///
    /// # Errors
    /// As with [`parsed`].
    pub(crate) fn of(fields: &Fields) -> Result<Option<Wanted>, Failure> {
        let Some((_, filter, format)) = parsed(fields)? else { return Ok(None) };
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
        self.given_up += usize::from(report.has_run_out());
        !self.found.is_empty()
    }
}

/// The filter in the fields `filter` and `filter_format`, if there is one: its text, itself, and how it reads bodies.
///
/// # Errors
/// 400 for one that is not well-formed, with its place in the text.
pub(crate) fn parsed(fields: &Fields) -> Result<Option<(String, Filter, BodyFormat)>, Failure> {
    let word = fields.text("filter_format")?.unwrap_or_else(|| "auto".to_owned());
    let format = BodyFormat::from_name(&word).ok_or_else(|| {
        let text = format!("filter_format is {word:?} and not auto, json, fix, nvfix or none");
        Failure::bad_request(text)
    })?;
    let text = match fields.as_sent("filter") {
        None => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        // Without a filter all messages are meant, which some client may not.
        Some(_) => {
            return Err(Failure::bad_request("filter is to be a text, or to be left out"));
        }
    };
    let filter = Filter::parse(&text, &Limits::default())
        .map_err(|error| Failure::filter("filter", &error))?;
    Ok(Some((text, filter, format)))
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

/// A user who has the messages of a queue held against a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Looking {
    user: String,
    queue: (VhostId, String),
}

/// Users who wait at most; one more is not remembered.
const WAITING_MAX: usize = 64;
/// Who does not ask again for so long waits no more.
const WAITING_TIME: Duration = Duration::from_secs(3);

/// Those who do at present. While a queue is looked at, others would see only what is left there.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<Round>);

#[derive(Debug, Default)]
struct Round {
    looking: Vec<Looking>,
    /// Who was refused, in the order of asking, and when each asked last: they come before those who have looked already.
    waiting: Vec<(Looking, Instant)>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    looks: &'a Looks,
    own: Looking,
}

impl Looks {
    fn round(&self) -> MutexGuard<'_, Round> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user begins to look at a queue.
    ///
    /// # Errors
    /// 503 while the user looks at any, while somebody looks at this one, while many are looked at, and while others have
    /// waited for longer.
    pub(crate) fn begin(
        &self,
        user: &str,
        vhost: VhostId,
        queue: &str,
        now: Instant,
    ) -> Result<Look<'_>, Failure> {
        let own = Looking { user: user.to_owned(), queue: (vhost, queue.to_owned()) };
        if self.round().begin(&own, now) {
            return Ok(Look { looks: self, own });
        }
        Err(Failure::busy("messages are held against another filter at present: try again"))
    }
}

impl Round {
    /// Whether one may look now; otherwise it waits.
    fn begin(&mut self, own: &Looking, now: Instant) -> bool {
        self.waiting.retain(|(_, asked)| now.saturating_duration_since(*asked) < WAITING_TIME);
        if self.looking.iter().any(|other| other.user == own.user) {
            return false;
        }
        let place = self.waiting.iter().position(|(other, _)| other.user == own.user);
        let ahead = &self.waiting[..place.unwrap_or(self.waiting.len())];
        let all = self.looking.iter().chain(ahead.iter().map(|(other, _)| other));
        if all.clone().count() < LOOKS_MAX && all.clone().all(|other| other.queue != own.queue) {
            place.map(|place| self.waiting.remove(place));
            self.looking.push(own.clone());
            return true;
        }
        match place {
            Some(place) => self.waiting[place] = (own.clone(), now),
            None if self.waiting.len() < WAITING_MAX => self.waiting.push((own.clone(), now)),
            None => {}
        }
        false
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.looks.round().looking.retain(|other| *other != self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_looks_at_one_queue_and_each_queue_is_looked_at_by_one() {
        let (looks, one, two) = (Looks::default(), VhostId(0), VhostId(1));
        let begun = Instant::now();
        let begin = |user, vhost, queue| looks.begin(user, vhost, queue, begun);
        let first = begin("ann", one, "a").ok();
        assert!(first.is_some());
        let refused = begin("ann", one, "b").err().unwrap();
        assert_eq!(refused.status, 503);
        assert_eq!(refused.headers, [("retry-after", "1".to_owned())]);
        assert!(begin("bob", one, "a").is_err());
        let second = begin("bob", two, "a").ok();
        assert!(second.is_some());
        assert!(begin("cid", one, "c").is_err(), "as many as may");
        drop(first);
        assert!(begin("cid", one, "a").is_ok());
        assert!(begin("bob", one, "c").is_err());
        drop(second);
        assert!(begin("bob", one, "c").is_ok());
    }

    #[test]
    fn who_has_looked_comes_after_who_waits() {
        let (looks, vhost) = (Looks::default(), VhostId(0));
        let begun = Instant::now();
        let begin = |user, queue, after| looks.begin(user, vhost, queue, begun + after);
        let soon = Duration::from_secs(1);
        let (ann, bob) = (begin("ann", "a", soon).ok(), begin("bob", "b", soon).ok());
        assert!(ann.is_some() && bob.is_some());
        for user in ["cid", "dan"] {
            assert!(begin(user, "c", soon).is_err());
        }
        drop(ann);
        assert!(begin("ann", "a", soon).is_err(), "others wait");
        assert!(begin("dan", "c", soon).is_err(), "so does somebody for the same queue");
        let cid = begin("cid", "c", soon).ok();
        assert!(cid.is_some());
        drop((bob, cid));
        // Bob comes behind two who wait, and goes on once they have not come for a while.
        let later = soon + WAITING_TIME / 2;
        assert!(begin("bob", "b", later).is_err());
        assert!(begin("bob", "b", soon + WAITING_TIME).is_ok());
    }
}
