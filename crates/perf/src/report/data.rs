//! Figures for programs: JSON Lines and CSV on standard output (`--output`). `docs/perf.md` tells what each field means.

use super::json::Json;
use super::{Shown, Summary, interval_line};
use crate::statistics::{Counters, Interval, Quantiles};
use std::fmt::Write as _;

/// What standard output carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Lines for people, as the reference tester words them.
    #[default]
    Text,
    /// One JSON object a line.
    JsonLines,
    /// A head and rows of values separated by commas.
    Csv,
}

impl Format {
    /// Prints what stands before all figures.
    pub(crate) fn print_head(self) {
        if self == Format::Csv {
            print(&csv_head());
        }
    }

    /// Prints the figures of one interval.
    pub(crate) fn print_interval(self, id: &str, shape: &str, shown: Shown, interval: &Interval) {
        print(&match self {
            Format::Text => interval_line(id, shown, interval),
            Format::JsonLines => interval_json("interval", shown, interval),
            Format::Csv => interval_csv("interval", shape, shown, interval),
        });
    }

    /// Prints the figures of the end of a run for programs.
    pub(crate) fn print_last(self, kind: &str, shape: &str, shown: Shown, last: &Interval) {
        match self {
            Format::Text => {}
            Format::JsonLines => print(&interval_json(kind, shown, last)),
            Format::Csv => print(&interval_csv(kind, shape, shown, last)),
        }
    }

    /// Prints the figures of a whole run.
    pub(crate) fn print_summary(self, summary: &Summary<'_>) {
        print(&match self {
            Format::Text => summary.text().trim_end().to_owned(),
            Format::JsonLines => summary_json(summary),
            Format::Csv => summary_csv(summary),
        });
    }

    /// Reads the option's value.
    pub(crate) fn parse(text: &str) -> Option<Format> {
        match text {
            "text" => Some(Format::Text),
            "jsonl" => Some(Format::JsonLines),
            "csv" => Some(Format::Csv),
            _ => None,
        }
    }
}

/// Prints a line; that it is not taken is no reason to stop measuring.
pub(crate) fn print(line: &str) {
    lepus_console::say(line);
}

fn counters_json(json: &mut Json, counters: &Counters) {
    for (name, count) in counted(counters) {
        json.number(name, count);
    }
}

fn counted(counters: &Counters) -> [(&'static str, u64); 5] {
    [
        ("sent", counters.sent),
        ("received", counters.received),
        ("confirmed", counters.confirmed),
        ("nacked", counters.nacked),
        ("returned", counters.returned),
    ]
}

fn points(shown: Shown, figures: &Quantiles) -> [(&'static str, f64); 10] {
    [
        ("min", figures.min),
        ("mean", figures.mean),
        ("mean_slowest_5", figures.tail_mean),
        ("p50", figures.median),
        ("p75", figures.p75),
        ("p95", figures.p95),
        ("p99", figures.p99),
        ("p99_9", figures.p999),
        ("p99_99", figures.p9999),
        ("max", figures.max),
    ]
    .map(|(name, value)| (name, shown.micros(value)))
}

/// The distribution of a whole run.
struct Whole<'a> {
    curve: &'a [(f64, u64)],
    buckets: &'a [(u64, u64)],
}

fn latency_json(
    json: &mut Json,
    shown: Shown,
    name: &str,
    figures: &Quantiles,
    whole: Option<Whole<'_>>,
) {
    if figures.count == 0 {
        json.raw(name, "null");
        return;
    }
    json.open(Some(name), '{');
    json.number("count", figures.count);
    for (name, micros) in points(shown, figures) {
        json.float(name, micros);
    }
    if let Some(Whole { curve, buckets }) = whole {
        json.open(Some("curve"), '[');
        for (share, value) in curve {
            json.pair(*share, shown.micros(*value));
        }
        json.close(']');
        json.open(Some("buckets"), '[');
        for (value, count) in buckets {
            json.bucket(shown.micros(*value), *count);
        }
        json.close(']');
    }
    json.close('}');
}

/// The JSON line of one interval.
fn interval_json(kind: &str, shown: Shown, interval: &Interval) -> String {
    let mut json = Json::default();
    json.open(None, '{');
    json.text("kind", kind);
    json.float("at_s", interval.at_seconds);
    json.float("seconds", interval.seconds);
    counters_json(&mut json, &interval.counters);
    latency_json(&mut json, shown, "consumer_latency_us", &interval.consumer_latency, None);
    latency_json(&mut json, shown, "confirm_latency_us", &interval.confirm_latency, None);
    json.close('}');
    json.text
}

/// The JSON line of the whole run.
fn summary_json(summary: &Summary<'_>) -> String {
    let (shown, counters) = (summary.shown, &summary.counters);
    let mut json = Json::default();
    json.open(None, '{');
    json.text("kind", "summary");
    json.text("shape", summary.shape);
    if !summary.phase.is_empty() {
        json.text("phase", summary.phase);
    }
    json.text("id", summary.id);
    json.text("stopped", summary.stopped);
    json.float("seconds", summary.seconds);
    json.number("body_bytes", summary.body_bytes as u64);
    counters_json(&mut json, counters);
    json.float("sent_per_s", summary.per_second(summary.in_load.sent));
    json.float("received_per_s", summary.per_second(summary.in_load.received));
    json.float("confirmed_per_s", summary.per_second(summary.in_load.confirmed));
    json.optional("outstanding", summary.missing.outstanding);
    json.number("unsent", summary.missing.unsent);
    json.number("unconfirmed", summary.missing.unconfirmed);
    let [consumer, confirm] = &summary.curves;
    let [consumers, confirms] = &summary.buckets;
    let latency = &summary.consumer_latency;
    latency_json(
        &mut json,
        shown,
        "consumer_latency_us",
        latency,
        Some(Whole { curve: consumer, buckets: consumers }),
    );
    let latency = &summary.confirm_latency;
    latency_json(
        &mut json,
        shown,
        "confirm_latency_us",
        latency,
        Some(Whole { curve: confirm, buckets: confirms }),
    );
    json.float("tester_cpu_us_per_message", summary.cpu_micros_per_message());
    json.float("tester_cpu_share", summary.cpu_share());
    match summary.ceiling {
        None => json.raw("tester_ceiling", "null"),
        Some(ceiling) => {
            json.open(Some("tester_ceiling"), '{');
            json.float("sent_per_s", ceiling.sent_per_s);
            json.float("received_per_s", ceiling.received_per_s);
            json.close('}');
        }
    }
    json.raw("near_ceiling", if summary.near_ceiling().is_some() { "true" } else { "false" });
    json.texts("errors", summary.errors);
    match summary.check.and_then(|check| check.gap()) {
        None => json.raw("gap", "null"),
        Some(gap) => {
            json.open(Some("gap"), '{');
            json.number("producer", u64::from(gap.producer));
            json.number("expected", gap.expected);
            json.optional("got", gap.got);
            json.close('}');
        }
    }
    if let Some(check) = summary.check {
        let faults = check.faults();
        json.open(Some("check"), '{');
        for (name, count) in [
            ("good", check.good()),
            ("redelivered", check.redelivered()),
            ("missing", faults.missing),
            ("duplicates", faults.duplicates),
            ("out_of_order", faults.disordered),
            ("damaged", faults.damaged),
        ] {
            json.number(name, count);
        }
        json.close('}');
    }
    json.close('}');
    json.text
}

/// The head of the CSV on standard output.
fn csv_head() -> String {
    let mut head = "kind,shape,at_s,seconds".to_owned();
    for (name, _) in counted(&Counters::default()) {
        let _ = write!(head, ",{name}");
    }
    head.push_str(",sent_per_s,received_per_s,confirmed_per_s");
    for kind in ["consumer", "confirm"] {
        let _ = write!(head, ",{kind}_latency_count");
        for (name, _) in points(Shown::default(), &Quantiles::default()) {
            let _ = write!(head, ",{kind}_latency_{name}_us");
        }
    }
    head.push_str(",tester_cpu_us_per_message,errors");
    head
}

fn csv_figures(
    row: &mut String,
    shown: Shown,
    [counters, in_load]: [&Counters; 2],
    seconds: f64,
    latencies: [&Quantiles; 2],
) {
    for (_, count) in counted(counters) {
        let _ = write!(row, ",{count}");
    }
    for count in [in_load.sent, in_load.received, in_load.confirmed] {
        let rate = if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let _ = write!(row, ",{rate:.3}");
    }
    for figures in latencies {
        let _ = write!(row, ",{}", figures.count);
        for (_, micros) in points(shown, figures) {
            row.push(',');
            if figures.count > 0 {
                let _ = write!(row, "{micros:.3}");
            }
        }
    }
}

/// The CSV row of one interval.
fn interval_csv(kind: &str, shape: &str, shown: Shown, interval: &Interval) -> String {
    let mut row = format!("{kind},{shape},{:.6},{:.6}", interval.at_seconds, interval.seconds);
    let latencies = [&interval.consumer_latency, &interval.confirm_latency];
    let counters = [&interval.counters; 2];
    csv_figures(&mut row, shown, counters, interval.seconds, latencies);
    row.push_str(",,");
    row
}

/// The CSV row of the whole run; its errors stand in quotes, one after the other.
fn summary_csv(summary: &Summary<'_>) -> String {
    let mut row =
        format!("summary,{},{:.6},{:.6}", summary.shape, summary.seconds, summary.seconds);
    let latencies = [&summary.consumer_latency, &summary.confirm_latency];
    let counters = [&summary.counters, &summary.in_load];
    csv_figures(&mut row, summary.shown, counters, summary.seconds, latencies);
    let errors = summary.errors.join("; ").replace('"', "\"\"").replace(['\n', '\r'], " ");
    let _ = write!(row, ",{:.6},\"{errors}\"", summary.cpu_micros_per_message());
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Layout;
    use crate::check::Check;
    use crate::report::Missing;

    fn figures() -> Quantiles {
        Quantiles {
            count: 4,
            min: 1_000,
            median: 2_000,
            p75: 3_000,
            p95: 4_000,
            p99: 5_000,
            p999: 6_000,
            p9999: 7_500,
            max: 8_000,
            tail_mean: 8_000,
            mean: 2_500,
        }
    }

    fn interval() -> Interval {
        Interval {
            at_seconds: 1.0,
            seconds: 0.5,
            counters: Counters { sent: 50, received: 40, returned: 1, confirmed: 30, nacked: 2 },
            consumer_latency: figures(),
            confirm_latency: Quantiles::default(),
        }
    }

    fn summary<'a>(check: Option<&'a Check>, errors: &'a [String]) -> Summary<'a> {
        Summary {
            id: "run",
            shape: "throughput",
            phase: "",
            shown: Shown::default(),
            seconds: 2.0,
            counters: interval().counters,
            in_load: interval().counters,
            missing: Missing { outstanding: Some(3), unsent: 2, unconfirmed: 1 },
            consumer_latency: figures(),
            confirm_latency: Quantiles::default(),
            curves: [vec![(0.5, 2_000), (1.0, 8_000)], Vec::new()],
            buckets: [vec![(2_000, 3), (8_000, 1)], Vec::new()],
            cpu_seconds: 0.001,
            ceiling: None,
            body_bytes: 12,
            check,
            stopped: "Reached time limit",
            errors,
            intervals: &[],
        }
    }

    #[test]
    fn an_interval_is_one_object_on_one_line() {
        assert_eq!(
            interval_json("interval", Shown::default(), &interval()),
            concat!(
                r#"{"kind":"interval","at_s":1.000000,"seconds":0.500000,"sent":50,"received":40,"confirmed":30,"#,
                r#""nacked":2,"returned":1,"consumer_latency_us":{"count":4,"min":1.000000,"mean":2.500000,"#,
                r#""mean_slowest_5":8.000000,"p50":2.000000,"p75":3.000000,"p95":4.000000,"p99":5.000000,"#,
                r#""p99_9":6.000000,"p99_99":7.500000,"max":8.000000},"confirm_latency_us":null}"#
            )
        );
        let millis = Shown { millis: true, ..Shown::default() };
        assert!(interval_json("interval", millis, &interval()).contains(r#""p50":2000000.000000"#));
    }

    #[test]
    fn the_summary_has_rates_curve_errors_and_the_gap() {
        let line = summary_json(&summary(None, &["said \"no\"".to_owned()]));
        for part in [
            r#"{"kind":"summary","shape":"throughput","#,
            r#""sent_per_s":25.000000,"received_per_s":20.000000,"confirmed_per_s":15.000000"#,
            r#""outstanding":3,"unsent":2,"unconfirmed":1,"consumer"#,
            r#""curve":[[0.50000000,2.000],[1.00000000,8.000]],"buckets":[[2.000,3],[8.000,1]]}"#,
            r#""confirm_latency_us":null,"tester_cpu_us_per_message":20.000000"#,
            r#""errors":["said \"no\""],"gap":null}"#,
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains('\n'));
        let mut check = Check::new(Layout::new(16, true));
        let queue = check.add_queue("q");
        check.expect(queue, 2, 7);
        check.finish();
        let line = summary_json(&summary(Some(&check), &[]));
        assert!(line.contains(r#""gap":{"producer":2,"expected":0,"got":null}"#), "{line}");
        assert!(line.contains(r#""errors":[]"#) && line.contains(r#""missing":7"#), "{line}");
    }

    #[test]
    fn csv_rows_have_as_many_fields_as_the_head() {
        let fields = |line: &str| line.split(',').count();
        let head = csv_head();
        assert_eq!(
            fields(&interval_csv("interval", "loop", Shown::default(), &interval())),
            fields(&head)
        );
        let row = summary_csv(&summary(None, &["a".to_owned(), "b\nc".to_owned()]));
        assert_eq!(fields(&row), fields(&head));
        assert!(row.ends_with("\"a; b c\""), "{row}");
        assert!(
            row.starts_with("summary,throughput,2.000000,2.000000,50,40,30,2,1,25.000,"),
            "{row}"
        );
    }
}
