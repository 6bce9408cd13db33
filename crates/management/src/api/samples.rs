//! Figures over time: rates from samples a second apart, and a history of samples five seconds apart.
//!
//! Nothing is sampled before somebody asks, nor when nobody has asked for a while: idle brokers and queues that nobody
//! looks at cost nothing. Of connections and channels only what somebody reads is sampled.

mod values;

pub(crate) use values::{
    CHURN, LEVELS, MESSAGES, OF_CHANNEL, OF_CONNECTION, OF_EXCHANGE, OF_QUEUE, OF_QUEUE_COUNTED,
    OF_VHOST, of_channel, of_exchange, of_queue, of_vhost,
};

use super::Running;
use super::context::Context;
use super::failure::Failure;
use super::sums::{self, ExchangeName};
use crate::snapshot::Snapshot;
use lepus_base::{ConnectionId, QueueId, VhostId};
use lepus_broker::query::PLACES_MAX;
use lepus_broker::{Answer, Octets, Query};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use values::{ALL, OF_VHOST_COUNTED, of_all};

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two samples that are kept.
const KEPT_MILLIS: u64 = 5_000;
/// Samples that are kept: a little more than ten minutes.
const KEPT_MAX: usize = 122;
/// How long sampling goes on after the last request for figures.
const USE_TIMEOUT: Duration = Duration::from_secs(600);
/// The same for a queue, a connection, a channel, an exchange, and a virtual host.
const WATCHED_USE_TIMEOUT: Duration = Duration::from_secs(60);
/// Queues that are sampled at most, and as many of each other kind.
const WATCHED_MAX: usize = 1_000;
/// The longest history that a request may ask for, in seconds.
const AGE_MAX: u64 = 10 * 365 * 86_400;
/// Samples that one request may ask for.
const SAMPLES_MAX: u64 = 500;

/// Samples of the same values.
#[derive(Clone, Debug)]
pub(crate) struct Series<const N: usize> {
    /// The last two, with milliseconds since 1970.
    last: [Option<(u64, [u64; N])>; 2],
    kept: VecDeque<(u64, [u64; N])>,
}

impl<const N: usize> Default for Series<N> {
    fn default() -> Series<N> {
        Series { last: [None; 2], kept: VecDeque::new() }
    }
}

impl<const N: usize> Series<N> {
    fn add(&mut self, millis: u64, values: [u64; N]) {
        self.last = [self.last[1], Some((millis, values))];
        if self.kept.back().is_none_or(|(kept, _)| millis >= kept + KEPT_MILLIS) {
            self.kept.push_back((millis, values));
            if self.kept.len() > KEPT_MAX {
                self.kept.pop_front();
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Forgets everything where one of the first `counted` values is lower than it was: it is of another thing of the same
    /// name.
    fn forget_others(&mut self, values: &[u64; N], counted: usize) {
        if let Some((_, last)) = &self.last[1]
            && last.iter().zip(values).take(counted).any(|(last, value)| value < last)
        {
            *self = Series::default();
        }
    }

    /// Adds what somebody has read anyway, unless the last sample is too young for a rate.
    fn add_reading(&mut self, millis: u64, values: [u64; N]) {
        let due = self.last[1].map_or(0, |(last, _)| last + INTERVAL.as_millis() as u64);
        if millis >= due {
            self.add(millis, values);
        }
    }

    /// How much a value grew per second between the last two samples; negative for a level that fell.
    pub(crate) fn rate(&self, place: usize) -> f64 {
        let [Some((before, old)), Some((after, new))] = &self.last else { return 0.0 };
        let seconds = after.saturating_sub(*before).max(1) as f64 / 1_000.0;
        (new[place] as f64 - old[place] as f64) / seconds
    }

    /// The value as it was at a time, as far as samples were kept.
    fn at(&self, place: usize, millis: u64) -> u64 {
        let before = self.kept.iter().rev().find(|(kept, _)| *kept <= millis);
        before.or_else(|| self.kept.front()).map_or(0, |(_, values)| values[place])
    }

    /// What stands under `k_details`: the rate, and the history that is asked for.
    pub(crate) fn details(&self, place: usize, range: Option<Range>) -> Value {
        let mut details = Map::new();
        details.insert("rate".to_owned(), json!(self.rate(place)));
        let newest = self.last[1].map(|(millis, _)| millis);
        if let Some(range) = range
            && let Some(newest) = newest
        {
            let end = newest / 1_000 * 1_000;
            let steps = 0..=range.age / range.increment;
            let samples: Vec<(u64, u64)> = steps
                .map(|step| {
                    let millis = end.saturating_sub(step * range.increment * 1_000);
                    (self.at(place, millis), millis)
                })
                .collect();
            let (first, last) = (samples.last().map_or(0, |s| s.0), samples[0].0);
            let sum: u64 = samples.iter().map(|(value, _)| value).sum();
            details.insert("avg".to_owned(), json!(sum as f64 / samples.len() as f64));
            let grown = last as f64 - first as f64;
            details.insert("avg_rate".to_owned(), json!(grown / range.age.max(1) as f64));
            let rows =
                samples.iter().map(|(value, millis)| json!({"sample": value, "timestamp": millis}));
            details.insert("samples".to_owned(), rows.collect());
        }
        Value::Object(details)
    }
}

/// Which history is asked for, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    age: u64,
    increment: u64,
}

impl Range {
    /// What the query asks for under these names: `lengths_age` and `lengths_incr` for `lengths`.
    ///
    /// # Errors
    /// 400 for what are no numbers, and for too many samples.
    pub(crate) fn read(context: &Context<'_>, name: &str) -> Result<Option<Range>, Failure> {
        let part = |end: &str| context.query.get(&format!("{name}_{end}"));
        let (Some(age), Some(increment)) = (part("age"), part("incr")) else { return Ok(None) };
        match (age.parse(), increment.parse()) {
            (Ok(age), Ok(increment))
                if increment > 0
                    && age <= AGE_MAX
                    && increment <= AGE_MAX
                    && age / increment <= SAMPLES_MAX =>
            {
                Ok(Some(Range { age, increment }))
            }
            _ => Err(Failure::new(
                400,
                "invalid_range_parameters",
                format!("Invalid range parameters: age {age}, incr {increment}"),
            )),
        }
    }
}

/// Something that somebody looked at.
#[derive(Debug)]
struct Watched<const N: usize> {
    series: Series<N>,
    used: Instant,
}

impl<const N: usize> Watched<N> {
    fn is_in_use(&self) -> bool {
        self.used.elapsed() < WATCHED_USE_TIMEOUT
    }

    /// The one of this id, which is looked at now, if there is room for it.
    fn look_up<K: Eq + Hash>(
        all: &mut HashMap<K, Watched<N>>,
        id: K,
        now: Instant,
    ) -> Option<&mut Watched<N>> {
        if all.len() >= WATCHED_MAX && !all.contains_key(&id) {
            return None;
        }
        let new = || Watched { series: Series::default(), used: now };
        let watched = all.entry(id).or_insert_with(new);
        watched.used = now;
        Some(watched)
    }

    /// What is told of things that are shown, of each by its samples; of one that has none yet what the caller knows is
    /// the first. `None` where there is no room for it.
    fn show<K: Eq + Hash, T>(
        all: &mut HashMap<K, Watched<N>>,
        counted: usize,
        shown: impl Iterator<Item = (K, [u64; N])>,
        mut tell: impl FnMut(Option<&Series<N>>) -> T,
    ) -> Vec<T> {
        let (now, millis) = (Instant::now(), now_millis());
        shown
            .map(|(id, values)| {
                let watched = Watched::look_up(all, id, now);
                tell(watched.map(|watched| {
                    watched.series.forget_others(&values, counted);
                    if watched.series.is_empty() {
                        watched.series.add(millis, values);
                    }
                    &watched.series
                }))
            })
            .collect()
    }

    /// Those that somebody still looks at.
    fn in_use<K: Eq + Hash + Clone>(all: &mut HashMap<K, Watched<N>>) -> Vec<K> {
        all.retain(|_, watched| watched.is_in_use());
        all.keys().cloned().collect()
    }

    /// Adds a sample of each of them. What is gone meanwhile is not made anew.
    fn add_all<K: Eq + Hash>(
        all: &mut HashMap<K, Watched<N>>,
        millis: u64,
        counted: usize,
        samples: impl IntoIterator<Item = (K, [u64; N])>,
    ) {
        for (id, values) in samples {
            if let Some(watched) = all.get_mut(&id) {
                watched.series.forget_others(&values, counted);
                watched.series.add(millis, values);
            }
        }
    }
}

#[derive(Debug)]
struct State {
    used: Option<Instant>,
    all: Series<ALL>,
    queues: HashMap<QueueId, Watched<{ OF_QUEUE.len() }>>,
    connections: HashMap<ConnectionId, Watched<{ OF_CONNECTION.len() }>>,
    channels: HashMap<(ConnectionId, u16), Watched<{ OF_CHANNEL.len() }>>,
    exchanges: HashMap<ExchangeName, Watched<{ OF_EXCHANGE.len() }>>,
    vhosts: HashMap<VhostId, Watched<OF_VHOST>>,
}

impl State {
    /// Nothing was sampled yet.
    fn empty(used: Option<Instant>) -> State {
        State {
            used,
            all: Series::default(),
            queues: HashMap::new(),
            connections: HashMap::new(),
            channels: HashMap::new(),
            exchanges: HashMap::new(),
            vhosts: HashMap::new(),
        }
    }
}

/// The samples.
#[derive(Debug)]
pub(crate) struct Samples {
    state: Mutex<State>,
    /// Somebody asked after a while in which nobody had.
    was_used: Condvar,
}

impl Samples {
    /// Samples on a thread of its own, whenever somebody asks.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(crate) fn start(broker: Arc<dyn Running>) -> io::Result<Arc<Samples>> {
        let samples = Arc::new(Samples::idle());
        let own = Arc::clone(&samples);
        std::thread::Builder::new().name("samples".to_owned()).spawn(move || {
            let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
            crate::machine::lower_priority();
            loop {
                own.wait_for_use();
                own.sample(&*broker);
                std::thread::sleep(INTERVAL);
            }
        })?;
        Ok(samples)
    }

    /// Nobody asks yet.
    fn idle() -> Samples {
        Samples { state: Mutex::new(State::empty(None)), was_used: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_use(&self) {
        let mut state = self.lock();
        while state.used.is_none_or(|used| used.elapsed() >= USE_TIMEOUT) {
            // What was kept is old when somebody asks again.
            *state = State::empty(state.used);
            state = self.was_used.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn sample(&self, broker: &dyn Running) {
        let snapshot = broker.snapshot();
        if let Ok(snapshot) = &snapshot {
            self.lock().all.add(now_millis(), of_all(snapshot));
        }
        let (queues, exchanges, vhosts) = {
            let State { queues, connections, channels, exchanges, vhosts, .. } = &mut *self.lock();
            connections.retain(|_, watched| watched.is_in_use());
            channels.retain(|_, watched| watched.is_in_use());
            (Watched::in_use(queues), Watched::in_use(exchanges), Watched::in_use(vhosts))
        };
        for ids in queues.chunks(PLACES_MAX) {
            let Ok(answers) = broker.ask_all(&Query::QueueFigures(ids.to_vec())) else { return };
            let found = answers.into_iter().flat_map(|answer| match answer {
                Answer::QueueFigures(found) => found,
                other => unreachable!("a question for queues is answered with {other:?}"),
            });
            let samples = found.map(|figures| (figures.id, of_queue(&figures)));
            // A queue that moves has another id there.
            Watched::add_all(&mut self.lock().queues, now_millis(), 0, samples);
        }
        for names in exchanges.chunks(PLACES_MAX) {
            let Ok(found) = sums::of_exchanges(broker, names) else { return };
            // Those without messages are sampled, too: others of the same names may have had some.
            let values = |name| found.get(name).map_or([0; OF_EXCHANGE.len()], of_exchange);
            let samples = names.iter().map(|name| (name.clone(), values(name)));
            let counted = OF_EXCHANGE.len();
            Watched::add_all(&mut self.lock().exchanges, now_millis(), counted, samples);
        }
        for ids in vhosts.chunks(PLACES_MAX) {
            let Ok(found) = sums::of_vhosts(broker, ids) else { return };
            let samples = found.iter().map(|(id, figures)| (*id, of_vhost(figures)));
            Watched::add_all(&mut self.lock().vhosts, now_millis(), OF_VHOST_COUNTED, samples);
        }
    }

    fn note_use(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let was_used = state.used.replace(Instant::now());
        if was_used.is_none_or(|used| used.elapsed() >= USE_TIMEOUT) {
            self.was_used.notify_one();
        }
        state
    }

    /// The samples of the whole broker; the figures that the caller has are the first where there is none yet.
    pub(crate) fn all(&self, snapshot: &Snapshot) -> Series<ALL> {
        let mut state = self.note_use();
        if state.all.is_empty() {
            state.all.add(now_millis(), of_all(snapshot));
        }
        state.all.clone()
    }

    /// The samples of queues that are shown, with what the caller knows of each. From now on they are sampled, as long as
    /// there are few enough of them.
    pub(crate) fn queues<T>(
        &self,
        shown: impl Iterator<Item = (QueueId, [u64; OF_QUEUE.len()])>,
        mut tell: impl FnMut(QueueId, Option<&Series<{ OF_QUEUE.len() }>>) -> T,
    ) -> Vec<T> {
        let mut state = self.note_use();
        let (now, millis) = (Instant::now(), now_millis());
        shown
            .map(|(id, values)| {
                let Some(watched) = Watched::look_up(&mut state.queues, id, now) else {
                    return tell(id, None);
                };
                if watched.series.is_empty() {
                    watched.series.add(millis, values);
                }
                tell(id, Some(&watched.series))
            })
            .collect()
    }

    /// What is told of exchanges that are shown, with what the caller knows of each. From now on they are sampled, as long
    /// as there are few enough of them.
    pub(crate) fn exchanges<T>(
        &self,
        shown: impl Iterator<Item = (ExchangeName, [u64; OF_EXCHANGE.len()])>,
        tell: impl FnMut(Option<&Series<{ OF_EXCHANGE.len() }>>) -> T,
    ) -> Vec<T> {
        let state = &mut *self.note_use();
        Watched::show(&mut state.exchanges, OF_EXCHANGE.len(), shown, tell)
    }

    /// The same for virtual hosts.
    pub(crate) fn vhosts<T>(
        &self,
        shown: impl Iterator<Item = (VhostId, [u64; OF_VHOST])>,
        tell: impl FnMut(Option<&Series<OF_VHOST>>) -> T,
    ) -> Vec<T> {
        let state = &mut *self.note_use();
        Watched::show(&mut state.vhosts, OF_VHOST_COUNTED, shown, tell)
    }

    /// What is told of channels that are shown, as for connections.
    pub(crate) fn channels<T>(
        &self,
        shown: impl Iterator<Item = ((ConnectionId, u16), [u64; OF_CHANNEL.len()])>,
        mut tell: impl FnMut(Option<&Series<{ OF_CHANNEL.len() }>>) -> T,
    ) -> Vec<T> {
        let mut state = self.note_use();
        let (now, millis) = (Instant::now(), now_millis());
        shown
            .map(|(id, values)| {
                let watched = Watched::look_up(&mut state.channels, id, now);
                tell(watched.map(|watched| {
                    // The number may be another channel's now.
                    watched.series.forget_others(&values, OF_CHANNEL.len());
                    watched.series.add_reading(millis, values);
                    &watched.series
                }))
            })
            .collect()
    }

    /// What is told of connections that are shown, of each by the samples that were taken when it was shown, at least a
    /// second apart: no shard is asked for more than what somebody wants to see. `None` where there are too many.
    pub(crate) fn connections<T>(
        &self,
        shown: impl Iterator<Item = (ConnectionId, Octets)>,
        mut tell: impl FnMut(Option<&Series<{ OF_CONNECTION.len() }>>) -> T,
    ) -> Vec<T> {
        let mut state = self.note_use();
        let (now, millis) = (Instant::now(), now_millis());
        shown
            .map(|(id, octets)| {
                let watched = Watched::look_up(&mut state.connections, id, now);
                tell(watched.map(|watched| {
                    watched.series.add_reading(millis, [octets.received, octets.sent]);
                    &watched.series
                }))
            })
            .collect()
    }

    /// Forgets everything.
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        *state = State::empty(state.used);
    }
}

/// Where a value of [`LEVELS`] stands in the series of the whole broker.
pub(crate) fn level_place(level: usize) -> usize {
    MESSAGES.len() + CHURN.len() + level
}

/// Milliseconds since 1970.
pub(crate) fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Amount, Audited, Change, Done, Listener, Service};
    use crate::snapshot::Node;
    use lepus_base::ShardId;
    use lepus_broker::ExchangeCounts;
    use lepus_broker::directory::Request;
    use lepus_broker::query::ExchangeFigures;
    use lepus_broker::refusal::Refusal;
    use std::net::SocketAddr;
    use std::os::unix::net::UnixStream;

    /// A broker with one busy exchange that notes how many exchanges it was asked for.
    #[derive(Default)]
    struct Asked(Mutex<Vec<usize>>);

    impl Running for Asked {
        fn ask_all(&self, query: &Query) -> Result<Vec<Answer>, String> {
            let Query::ExchangeFigures(names) = query else { unreachable!("{query:?}") };
            self.0.lock().unwrap().push(names.len());
            let busy = names.iter().filter(|(_, name)| &**name == "busy");
            let counts = ExchangeCounts { published: 3, routed: 6, ..ExchangeCounts::default() };
            let figures = |(vhost, name): &ExchangeName| ExchangeFigures {
                vhost: *vhost,
                name: name.clone(),
                counts,
            };
            Ok(vec![Answer::ExchangeFigures(busy.map(figures).collect())])
        }

        fn snapshot(&self) -> Result<Snapshot, String> {
            Err("nobody asks for it".to_owned())
        }

        fn shards(&self) -> u16 {
            1
        }

        fn ask(&self, _: ShardId, query: Query) -> Result<Answer, String> {
            unreachable!("{query:?}")
        }

        fn change_all(&self, _: Vec<Request>) -> Result<Vec<Result<(), Refusal>>, String> {
            unreachable!()
        }

        fn node(&self) -> &Node {
            unreachable!()
        }

        fn data_dir(&self) -> String {
            unreachable!()
        }

        fn connections_max(&self) -> u64 {
            unreachable!()
        }

        fn service(&self) -> Service {
            unreachable!()
        }

        fn change_service(&self, _: fn(&mut Service)) -> (Service, Result<(), String>) {
            unreachable!()
        }

        fn change(&self, _: Change) -> Result<(), String> {
            unreachable!()
        }

        fn memory_budget(&self) -> Amount {
            unreachable!()
        }

        fn log_lines(&self, _: u64, _: usize) -> (Vec<String>, u64) {
            unreachable!()
        }

        fn audit_left_out(&self) -> u64 {
            unreachable!()
        }

        fn stop(&self) {}

        fn user_in(&self, _: &str) -> Result<String, String> {
            unreachable!()
        }

        fn connect(&self, _: &str, _: SocketAddr) -> io::Result<UnixStream> {
            unreachable!()
        }

        fn random(&self) -> Result<[u8; 16], String> {
            unreachable!()
        }

        fn listeners(&self) -> Vec<Listener> {
            unreachable!()
        }

        fn note(&self, _: &Done<'_>) {}

        fn audited(&self) -> Vec<Audited> {
            unreachable!()
        }

        fn certificate_ends(&self) -> Option<i64> {
            unreachable!()
        }

        fn settings(&self) -> Vec<(String, String)> {
            unreachable!()
        }
    }

    #[test]
    fn a_sample_asks_for_the_exchanges_that_somebody_looks_at_and_no_others() {
        let (samples, broker) = (Samples::idle(), Asked::default());
        samples.sample(&broker);
        assert_eq!(*broker.0.lock().unwrap(), [0; 0]);
        let name = (VhostId(1), Box::from("busy"));
        let shown = [(name.clone(), [1, 2])];
        samples.exchanges(shown.into_iter(), |series| assert_eq!(series.unwrap().rate(0), 0.0));
        samples.sample(&broker);
        assert_eq!(*broker.0.lock().unwrap(), [1]);
        samples.exchanges([(name, [3, 6])].into_iter(), |series| {
            let series = series.unwrap();
            assert!(series.rate(0) > 0.0 && series.rate(1) > series.rate(0));
        });
    }

    #[test]
    fn a_rate_is_that_of_the_last_two_samples() {
        let mut series = Series::<1>::default();
        assert_eq!(series.rate(0), 0.0);
        series.add(1_000, [50]);
        assert_eq!(series.rate(0), 0.0);
        series.add(2_000, [150]);
        assert_eq!(series.rate(0), 100.0);
        series.add(4_000, [150]);
        assert_eq!(series.rate(0), 0.0);
        series.add(5_000, [140]);
        assert_eq!(series.rate(0), -10.0);
    }

    #[test]
    fn readings_are_samples_where_they_are_a_second_apart() {
        let mut series = Series::<1>::default();
        for (millis, value) in [(5_000, 100), (5_400, 200), (5_999, 300), (7_000, 400)] {
            series.add_reading(millis, [value]);
        }
        assert_eq!(series.rate(0), 150.0);
    }

    #[test]
    fn what_counts_less_than_before_is_another_thing() {
        let mut series = Series::<2>::default();
        series.add(1_000, [50, 7]);
        series.forget_others(&[60, 3], 1);
        series.add(2_000, [60, 3]);
        assert_eq!((series.rate(0), series.rate(1)), (10.0, -4.0));
        series.forget_others(&[5, 3], 1);
        assert!(series.is_empty());
    }

    #[test]
    fn no_more_is_watched_than_there_is_room_for() {
        let (mut all, now) = (HashMap::new(), Instant::now());
        for id in 0..WATCHED_MAX {
            assert!(Watched::<1>::look_up(&mut all, id, now).is_some());
        }
        assert!(Watched::look_up(&mut all, WATCHED_MAX, now).is_none());
        assert!(Watched::look_up(&mut all, 0, now).is_some());
    }

    #[test]
    fn a_history_has_as_many_samples_as_were_asked_for_the_newest_first() {
        let mut series = Series::<1>::default();
        for second in 0..=600 {
            series.add(1_000_000 + second * 1_000, [second]);
        }
        let range = Range { age: 60, increment: 5 };
        let details = series.details(0, Some(range));
        let samples = details["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 13);
        assert_eq!(samples[0], json!({"sample": 600, "timestamp": 1_600_000}));
        assert_eq!(samples[12], json!({"sample": 540, "timestamp": 1_540_000}));
        assert_eq!(details["avg_rate"], json!(1.0));
        assert_eq!(series.kept.len(), KEPT_MAX - 1);
    }
}
