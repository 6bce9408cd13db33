//! The words of a run: a line per interval, the summary, CSV rows and JSON.
//!
//! Lines are worded as the reference tester words them, so that scripts that read one read the other.

pub(crate) mod data;
pub(crate) mod json;

use crate::ceiling::Ceiling;
use crate::check::Check;
use crate::statistics::{Counters, Interval, Quantiles};
use json::Json;
use std::fmt::Write as _;

/// Which figures a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub sent: bool,
    pub received: bool,
    pub returned: bool,
    pub confirmed: bool,
    /// Latencies are milliseconds (between hosts), not nanoseconds printed as microseconds.
    pub millis: bool,
}

impl Shown {
    fn unit(&self) -> &'static str {
        if self.millis { "ms" } else { "µs" }
    }

    fn scale(&self, value: u64) -> u64 {
        if self.millis { value } else { value / 1_000 }
    }

    /// Minimum to 99th percentile, as [`LATENCIES`] names them.
    pub(crate) fn latency(&self, figures: &Quantiles) -> String {
        let [min, median, p75, p95, p99] =
            [figures.min, figures.median, figures.p75, figures.p95, figures.p99]
                .map(|value| self.scale(value));
        format!("{min}/{median}/{p75}/{p95}/{p99} {}", self.unit())
    }

    /// Means and the slowest, as [`TAIL`] names them.
    pub(crate) fn tail(&self, figures: &Quantiles) -> String {
        let [mean, slowest, p999, p9999, max] =
            [figures.mean, figures.tail_mean, figures.p999, figures.p9999, figures.max]
                .map(|value| self.scale(value));
        format!("{mean}/{slowest}/{p999}/{p9999}/{max} {}", self.unit())
    }

    /// A latency of the run in microseconds.
    fn micros(&self, value: u64) -> f64 {
        if self.millis { value as f64 * 1e3 } else { value as f64 / 1e3 }
    }
}

/// A rate as the reference prints it: decimals only below 10.
pub(crate) fn rate(rate: f64) -> String {
    if rate <= 0.0 {
        "0".to_owned()
    } else if rate < 1.0 {
        format!("{rate:.2}")
    } else if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        format!("{}", rate as u64)
    }
}

/// From this share of a core on, the tester may be what limits a result.
const BUSY: f64 = 0.8;
/// What [`Shown::latency`] tells.
pub(crate) const LATENCIES: &str = "min/median/75th/95th/99th";
/// What [`Shown::tail`] tells.
pub(crate) const TAIL: &str = "mean/mean of slowest 5 %/99.9th/99.99th/max";

/// The line of one interval.
pub(crate) fn interval_line(id: &str, shown: Shown, interval: &Interval) -> String {
    let counters = &interval.counters;
    let mut line = format!("id: {id}, time {:.3} s", interval.at_seconds);
    let mut part = |label: &str, count: u64, wanted: bool| {
        if wanted {
            let _ = write!(line, ", {label}: {} msg/s", rate(interval.rate(count)));
        }
    };
    part("sent", counters.sent, shown.sent);
    part("returned", counters.returned, shown.sent && shown.returned);
    part("confirmed", counters.confirmed, shown.sent && shown.confirmed);
    part("nacked", counters.nacked, shown.sent && shown.confirmed);
    part("received", counters.received, shown.received);
    let confirms = shown.sent && shown.confirmed;
    if shown.received || confirms {
        let _ = write!(line, ", {LATENCIES} ");
    }
    if shown.received {
        let figures = shown.latency(&interval.consumer_latency);
        let _ = write!(line, "consumer latency: {figures}");
    }
    if shown.received && confirms {
        line.push_str(", ");
    }
    if confirms {
        let figures = shown.latency(&interval.confirm_latency);
        let _ = write!(line, "confirm latency: {figures}");
    }
    line
}

/// The head of the CSV file.
pub(crate) fn csv_head(shown: Shown) -> String {
    let unit = shown.unit();
    let mut head = "id,time (s),published (msg/s),returned (msg/s),confirmed (msg/s),nacked (msg/s),received (msg/s)"
        .to_owned();
    for kind in ["consumer", "confirm"] {
        for point in ["min", "median", "75th p.", "95th p.", "99th p."] {
            let _ = write!(head, ",{point} {kind} latency ({unit})");
        }
    }
    head
}

/// The CSV row of one interval; fields that the run does not have are empty.
pub(crate) fn csv_row(id: &str, shown: Shown, interval: &Interval) -> String {
    let counters = &interval.counters;
    let mut row = format!("{id},{:.3}", interval.at_seconds);
    for (count, wanted) in [
        (counters.sent, shown.sent),
        (counters.returned, shown.sent && shown.returned),
        (counters.confirmed, shown.sent && shown.confirmed),
        (counters.nacked, shown.sent && shown.confirmed),
        (counters.received, shown.received),
    ] {
        row.push(',');
        if wanted {
            row.push_str(&rate(interval.rate(count)));
        }
    }
    for (figures, wanted) in [
        (&interval.consumer_latency, shown.received),
        (&interval.confirm_latency, shown.sent && shown.confirmed),
    ] {
        for value in [figures.min, figures.median, figures.p75, figures.p95, figures.p99] {
            row.push(',');
            if wanted {
                let _ = write!(row, "{}", shown.scale(value));
            }
        }
    }
    row
}

/// What is left over at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Deliveries of what was sent that never came; `None` where nobody can tell how many there should be.
    pub outstanding: Option<u64>,
    /// Messages that were due by the end of the load and not sent.
    pub unsent: u64,
    /// Messages without their confirm.
    pub unconfirmed: u64,
}

impl Missing {
    /// In words; `None` where nothing is missing.
    pub(crate) fn in_words(&self) -> Option<String> {
        let outstanding = self.outstanding.unwrap_or(0);
        if outstanding + self.unsent + self.unconfirmed == 0 {
            return None;
        }
        Some(format!(
            "outstanding: {outstanding} sent and never received, {} due and not sent, {} not confirmed; \
             they count in the latencies with their age",
            self.unsent, self.unconfirmed
        ))
    }
}

/// The figures of a whole run.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub id: &'a str,
    /// The subcommand.
    pub shape: &'static str,
    /// Which part of the shape this is, where it has several; or empty.
    pub phase: &'a str,
    pub shown: Shown,
    pub seconds: f64,
    /// Everything, what came after the load included.
    pub counters: Counters,
    /// What was counted while there was load: what rates are of.
    pub in_load: Counters,
    pub missing: Missing,
    pub consumer_latency: Quantiles,
    pub confirm_latency: Quantiles,
    /// Distributions of the two, for drawing.
    pub curves: [Vec<(f64, u64)>; 2],
    /// The same as values with their counts, for putting several together.
    pub buckets: [Vec<(u64, u64)>; 2],
    /// CPU time of this process during the run, in seconds.
    pub cpu_seconds: f64,
    /// The tester's own speed with this load, where it was measured.
    pub ceiling: Option<Ceiling>,
    pub body_bytes: usize,
    pub check: Option<&'a Check>,
    pub stopped: &'a str,
    /// What went wrong, in words.
    pub errors: &'a [String],
    pub intervals: &'a [Interval],
}

impl Summary<'_> {
    /// So many per second of the run.
    pub(crate) fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    /// CPU time of this process per message in microseconds; a message that was sent and received counts once.
    pub(crate) fn cpu_micros_per_message(&self) -> f64 {
        match self.counters.sent.max(self.counters.received) {
            0 => 0.0,
            messages => self.cpu_seconds * 1e6 / messages as f64,
        }
    }

    /// Share of one core that the tester used.
    pub(crate) fn cpu_share(&self) -> f64 {
        if self.seconds > 0.0 { self.cpu_seconds / self.seconds } else { 0.0 }
    }

    /// A warning where the tester rather than the broker may have set the rates.
    pub(crate) fn near_ceiling(&self) -> Option<String> {
        let rates = [self.in_load.sent, self.in_load.received].map(|count| self.per_second(count));
        if let Some(ceiling) = self.ceiling {
            return ceiling.is_near(rates[0], rates[1]).then(|| {
                format!(
                    "near the tester's ceiling: {:.0} % of what it can do; alone it sends {} msg/s and receives {} msg/s",
                    ceiling.share(rates[0], rates[1]) * 100.0,
                    rate(ceiling.sent_per_s),
                    rate(ceiling.received_per_s)
                )
            });
        }
        // Without a measurement: its one thread cannot do more than fill one core.
        let share = self.cpu_share();
        (share >= BUSY).then(|| {
            format!(
                "near the tester's ceiling: it used {:.0} % of its core; with a whole one about {} msg/s sent and {} msg/s received",
                share * 100.0,
                rate(rates[0] / share.min(1.0)),
                rate(rates[1] / share.min(1.0))
            )
        })
    }

    /// The last lines of a run.
    pub(crate) fn text(&self) -> String {
        let id = self.id;
        let shown = self.shown;
        let mut text = format!("test stopped ({})\n", self.stopped);
        if !self.phase.is_empty() {
            let _ = writeln!(text, "id: {id}, phase: {}", self.phase);
        }
        let sending = rate(self.per_second(self.in_load.sent));
        let receiving = rate(self.per_second(self.in_load.received));
        let _ = writeln!(text, "id: {id}, sending rate avg: {sending} msg/s");
        let _ = writeln!(text, "id: {id}, receiving rate avg: {receiving} msg/s");
        for (kind, figures, wanted) in [
            ("consumer", &self.consumer_latency, shown.received),
            ("confirm", &self.confirm_latency, shown.sent && shown.confirmed),
        ] {
            if wanted {
                let points = shown.latency(figures);
                let _ = writeln!(text, "id: {id}, {kind} latency {LATENCIES} {points}");
            }
        }
        for (kind, figures) in
            [("consumer", &self.consumer_latency), ("confirm", &self.confirm_latency)]
        {
            if figures.count > 0 {
                let tail = shown.tail(figures);
                let _ = writeln!(text, "id: {id}, {kind} latency {TAIL} {tail}");
            }
        }
        let _ = writeln!(
            text,
            "id: {id}, tester CPU: {:.2} s, {:.3} µs per message",
            self.cpu_seconds,
            self.cpu_micros_per_message()
        );
        if let Some(missing) = self.missing.in_words() {
            let _ = writeln!(text, "id: {id}, {missing}");
        }
        if let Some(near) = self.near_ceiling() {
            let _ = writeln!(text, "id: {id}, {near}");
        }
        if let Some(check) = self.check {
            let _ = if check.faults().is_none() {
                writeln!(
                    text,
                    "id: {id}, check: {} messages in order and intact, {} redelivered",
                    check.good(),
                    check.redelivered()
                )
            } else {
                writeln!(
                    text,
                    "id: {id}, check FAILED: {}; first: {}",
                    check.faults(),
                    check.first().unwrap_or("unknown")
                )
            };
        }
        text
    }

    /// The summary as a JSON object; rates are messages per second, latencies microseconds (or milliseconds, see
    /// `latency_unit`).
    pub(crate) fn json(&self) -> String {
        let shown = self.shown;
        let mut json = Json::default();
        json.open(None, '{');
        json.text("id", self.id);
        json.text("shape", self.shape);
        json.text("stopped", self.stopped);
        json.float("seconds", self.seconds);
        json.number("body_bytes", self.body_bytes as u64);
        self.json_counters(&mut json, [&self.counters, &self.in_load], self.seconds);
        json.optional("outstanding", self.missing.outstanding);
        json.number("unsent", self.missing.unsent);
        json.number("unconfirmed", self.missing.unconfirmed);
        json.float("cpu_seconds", self.cpu_seconds);
        json.float("cpu_micros_per_message", self.cpu_micros_per_message());
        json.text("latency_unit", shown.unit());
        json_latency(&mut json, shown, "consumer_latency", &self.consumer_latency);
        json_latency(&mut json, shown, "confirm_latency", &self.confirm_latency);
        if let Some(check) = self.check {
            let faults = check.faults();
            json.open(Some("check"), '{');
            json.raw("ok", if faults.is_none() { "true" } else { "false" });
            json.number("good", check.good());
            json.number("redelivered", check.redelivered());
            json.number("missing", faults.missing);
            json.number("duplicates", faults.duplicates);
            json.number("out_of_order", faults.disordered);
            json.number("damaged", faults.damaged);
            if let Some(first) = check.first() {
                json.text("first", first);
            }
            json.close('}');
        }
        json.open(Some("intervals"), '[');
        for interval in self.intervals {
            json.open(None, '{');
            json.float("time", interval.at_seconds);
            self.json_counters(&mut json, [&interval.counters; 2], interval.seconds);
            json_latency(&mut json, shown, "consumer_latency", &interval.consumer_latency);
            json_latency(&mut json, shown, "confirm_latency", &interval.confirm_latency);
            json.close('}');
        }
        json.close(']');
        json.close('}');
        json.text.push('\n');
        json.text
    }

    fn json_counters(&self, json: &mut Json, [counters, in_load]: [&Counters; 2], seconds: f64) {
        let shown = self.shown;
        for (name, count, timely, wanted) in [
            ("sent", counters.sent, in_load.sent, shown.sent),
            ("received", counters.received, in_load.received, shown.received),
            ("returned", counters.returned, in_load.returned, shown.sent && shown.returned),
            ("confirmed", counters.confirmed, in_load.confirmed, shown.sent && shown.confirmed),
            ("nacked", counters.nacked, in_load.nacked, shown.sent && shown.confirmed),
        ] {
            if wanted {
                let rate = if seconds > 0.0 { timely as f64 / seconds } else { 0.0 };
                json.number(name, count);
                json.float(&format!("{name}_rate"), rate);
            }
        }
    }
}

fn json_latency(json: &mut Json, shown: Shown, name: &str, figures: &Quantiles) {
    if figures.count == 0 {
        return;
    }
    let divisor = if shown.millis { 1.0 } else { 1e3 };
    json.open(Some(name), '{');
    json.number("count", figures.count);
    for (name, value) in [
        ("min", figures.min),
        ("mean", figures.mean),
        ("median", figures.median),
        ("p75", figures.p75),
        ("p95", figures.p95),
        ("p99", figures.p99),
        ("p999", figures.p999),
        ("p9999", figures.p9999),
        ("max", figures.max),
        ("slowest_5_percent_mean", figures.tail_mean),
    ] {
        json.float(name, value as f64 / divisor);
    }
    json.close('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Shown =
        Shown { sent: true, received: true, returned: true, confirmed: true, millis: false };

    fn interval() -> Interval {
        let latency = |base: u64| Quantiles {
            count: 5,
            min: base,
            median: base * 2,
            p75: base * 3,
            p95: base * 4,
            p99: base * 5,
            p999: base * 6,
            p9999: base * 6,
            max: base * 7,
            tail_mean: base * 7,
            mean: base * 2,
        };
        Interval {
            at_seconds: 2.0004,
            seconds: 2.0,
            counters: Counters { sent: 200, received: 19, returned: 1, confirmed: 100, nacked: 0 },
            consumer_latency: latency(1_000),
            confirm_latency: latency(10_999),
        }
    }

    #[test]
    fn the_line_of_an_interval_is_the_reference_s() {
        assert_eq!(
            interval_line("test-1", ALL, &interval()),
            "id: test-1, time 2.000 s, sent: 100 msg/s, returned: 0.50 msg/s, confirmed: 50 msg/s, nacked: 0 msg/s, \
             received: 9.5 msg/s, min/median/75th/95th/99th consumer latency: 1/2/3/4/5 µs, \
             confirm latency: 10/21/32/43/54 µs"
        );
        let consumer = Shown { received: true, millis: true, ..Shown::default() };
        assert_eq!(
            interval_line("a", consumer, &interval()),
            "id: a, time 2.000 s, received: 9.5 msg/s, min/median/75th/95th/99th consumer latency: \
             1000/2000/3000/4000/5000 ms"
        );
        let producer = Shown { sent: true, ..Shown::default() };
        assert_eq!(
            interval_line("a", producer, &interval()),
            "id: a, time 2.000 s, sent: 100 msg/s"
        );
    }

    #[test]
    fn csv_rows_have_as_many_fields_as_the_head() {
        let fields = |line: &str| line.split(',').count();
        for shown in [ALL, Shown::default()] {
            assert_eq!(fields(&csv_row("x", shown, &interval())), fields(&csv_head(shown)));
        }
        assert!(csv_row("x", ALL, &interval()).starts_with("x,2.000,100,0.50,50,0,9.5,1,2,"));
    }

    fn summary<'a>(check: Option<&'a Check>, intervals: &'a [Interval]) -> Summary<'a> {
        Summary {
            id: "te\"st",
            shape: "throughput",
            phase: "",
            shown: ALL,
            seconds: 4.0,
            counters: Counters {
                sent: 4_000,
                received: 8_000,
                returned: 0,
                confirmed: 3_000,
                nacked: 0,
            },
            in_load: Counters {
                sent: 4_000,
                received: 8_000,
                returned: 0,
                confirmed: 3_000,
                nacked: 0,
            },
            missing: Missing::default(),
            consumer_latency: interval().consumer_latency,
            confirm_latency: interval().confirm_latency,
            curves: [vec![(0.5, 2_000), (1.0, 7_000)], Vec::new()],
            buckets: [Vec::new(), Vec::new()],
            cpu_seconds: 0.004,
            ceiling: None,
            body_bytes: 12,
            check,
            stopped: "Reached time limit",
            errors: &[],
            intervals,
        }
    }

    #[test]
    fn the_summary_is_the_reference_s_and_the_cpu_time() {
        let text = summary(None, &[]).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "test stopped (Reached time limit)",
                "id: te\"st, sending rate avg: 1000 msg/s",
                "id: te\"st, receiving rate avg: 2000 msg/s",
                "id: te\"st, consumer latency min/median/75th/95th/99th 1/2/3/4/5 µs",
                "id: te\"st, confirm latency min/median/75th/95th/99th 10/21/32/43/54 µs",
                "id: te\"st, consumer latency mean/mean of slowest 5 %/99.9th/99.99th/max 2/7/6/6/7 µs",
                "id: te\"st, confirm latency mean/mean of slowest 5 %/99.9th/99.99th/max 21/76/65/65/76 µs",
                "id: te\"st, tester CPU: 0.00 s, 0.500 µs per message",
            ]
        );
    }

    #[test]
    fn a_result_near_the_ceiling_says_so() {
        // 1000 msg/s sent and 2000 received.
        let mut summary = summary(None, &[]);
        assert_eq!(summary.near_ceiling(), None);
        summary.cpu_seconds = 3.6;
        assert!(
            summary
                .near_ceiling()
                .unwrap()
                .contains("90 % of its core; with a whole one about 1111 msg/s")
        );
        summary.ceiling = Some(Ceiling { sent_per_s: 4_000.0, received_per_s: 10_000.0 });
        assert_eq!(summary.near_ceiling(), None);
        summary.ceiling = Some(Ceiling { sent_per_s: 2_000.0, received_per_s: 5_000.0 });
        let text = summary.text();
        assert!(
            text.contains("90 % of what it can do; alone it sends 2000 msg/s and receives 5000"),
            "{text}"
        );
    }

    #[test]
    fn a_failed_check_is_told_with_its_first_fault() {
        let mut check = Check::new(crate::body::Layout::new(16, true));
        let queue = check.add_queue("q");
        let lane = check.add_lane(queue);
        let good = summary(Some(&check), &[]).text();
        assert!(good.contains("check: 0 messages in order and intact"), "{good}");
        check.receive(lane, b"short", false);
        let bad = summary(Some(&check), &[]).text();
        assert!(bad.contains("check FAILED: missing: 0"), "{bad}");
        assert!(bad.contains("damaged: 1; first: queue 'q'"), "{bad}");
        assert!(summary(Some(&check), &[]).json().contains(r#""ok":false"#));
    }

    #[test]
    fn json_is_well_formed() {
        let intervals = [interval(), interval()];
        let json = summary(None, &intervals).json();
        assert!(json.contains(r#""id":"te\"st""#), "{json}");
        assert!(json.contains(r#""sent_rate":1000.000000"#), "{json}");
        assert!(json.contains(r#""intervals":[{"time":2.000400"#), "{json}");
        assert!(!json.contains(",}") && !json.contains(",]") && !json.contains("{,"));
        assert_eq!(json.matches('{').count(), json.matches('}').count());
        assert_eq!(json.matches('[').count(), json.matches(']').count());
        assert!(json.contains("},{"));
    }

    #[test]
    fn rates_have_decimals_only_where_they_matter() {
        let texts = [0.0, 0.256, 9.96, 10.9, 1_234_567.9].map(rate);
        assert_eq!(texts, ["0", "0.26", "10.0", "10", "1234567"]);
    }
}
