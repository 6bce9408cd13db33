//! The table that a run ends with.

use crate::bench::measure::Figures;
use crate::bench::workload::Workload;
use crate::subject::Kind;
use std::fmt::Write;

/// From here on the tester is the limit, and the rate says little about the broker.
const TESTER_SHARE_MAX: f64 = 0.9;
/// Counts of the same messages may be apart by this much.
const DISAGREEMENT_MAX: f64 = 0.01;

/// The medians of one load, per broker that was measured.
pub struct Row {
    /// The load.
    pub workload: &'static Workload,
    /// What was measured, in the order of measuring.
    pub figures: Vec<(Kind, Figures)>,
}

impl Row {
    fn of(&self, kind: Kind) -> Option<&Figures> {
        let found = self.figures.iter().find(|(other, _)| *other == kind);
        found.map(|(_, figures)| figures)
    }
}

/// The figures of all brokers, loads as headings, then one line for each load: lepus, its peer, and the
/// limit, which is a broker without a queue.
pub fn render(rows: &[Row]) -> String {
    let mut out = details(rows);
    let _ = writeln!(
        out,
        "\n{:14} {:>22} {:>22} {:>22} {:>22} {:>9} {:>8} {:>7}",
        "", "lepus", "rabbitmq", "lavinmq", "limit", "of rabbit", "of lavin", "× limit"
    );
    for row in rows {
        let show = |kind: Kind| {
            let figures = row.of(kind);
            let text =
                |figures: &Figures| format!("{:.0}/s {:.3} µs", figures.rate, figures.cpu_micros);
            figures.map_or_else(|| "-".to_owned(), text)
        };
        let share = |other: Kind, digits: usize| {
            let micros = |kind| row.of(kind).map_or(0.0, |figures| figures.cpu_micros);
            let (own, other) = (micros(Kind::Lepus), micros(other));
            match own > 0.0 && other > 0.0 {
                true => format!("{:.digits$}", own / other),
                false => "-".to_owned(),
            }
        };
        let _ = writeln!(
            out,
            "{:14} {:>22} {:>22} {:>22} {:>22} {:>9} {:>8} {:>7}",
            row.workload.name,
            show(Kind::Lepus),
            show(Kind::RabbitMq),
            show(Kind::LavinMq),
            show(Kind::NullBroker),
            share(Kind::RabbitMq, 3),
            share(Kind::LavinMq, 2),
            share(Kind::NullBroker, 2),
        );
    }
    out.push_str("Rates and µs are of the time between the first and the last look at the broker; µs and ratios are its CPU per message.\n");
    out
}

fn details(rows: &[Row]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:12} {:>10} {:>9} {:>7} {:>9} {:>8} {:>8} {:>7} {:>9} {:>7} {:>9} {:>8} {:>8}  counts",
        "",
        "msg/s",
        "CPU µs/m",
        "of spin",
        "core µs/m",
        "switch/m",
        "calls/m",
        "RSS MB",
        "p50/99 ms",
        "tester",
        "rabbit ×",
        "lavin ×",
        "null ×"
    );
    for row in rows {
        let _ = writeln!(out, "\n{}: {}", row.workload.name, row.workload.title);
        for (kind, figures) in &row.figures {
            out.push_str(&line(row, *kind, figures));
        }
    }
    out.push_str(
        "\nCPU: user and system time of the broker's process; core: time in which its core was not \
         idle; both per message received. of spin: looking around without work, as lepus counts it, of its whole run.\nmsg/s and µs: between the first and the last look at the broker, which it answers once a second on its own CPU; p50/99: the tester's, of its whole run.\ncalls: system calls of the broker per message, counted in one further run, start and end included. rabbit ×, lavin ×, null ×: how many times less CPU than RabbitMQ \
         and LavinMQ, more than the null broker. *: the tester used more than 90 % of its\ncore, so that the rate \
         is the tester's. counts: the tester's, the broker's and the acknowledged agree within 1 %.\n",
    );
    out
}

fn line(row: &Row, kind: Kind, figures: &Figures) -> String {
    let ratio = |other: Kind, inverse: bool| {
        let other = row.of(other).map(|other| other.cpu_micros);
        match other {
            Some(other) if other > 0.0 && figures.cpu_micros > 0.0 => {
                let ratio =
                    if inverse { other / figures.cpu_micros } else { figures.cpu_micros / other };
                format!("{ratio:.2}")
            }
            _ => "-".to_owned(),
        }
    };
    let latency = figures.latency.map_or_else(
        || "-".to_owned(),
        |(median, tail)| format!("{:.1}/{:.1}", median / 1e3, tail / 1e3),
    );
    let mark = if figures.tester_share > TESTER_SHARE_MAX { "*" } else { "" };
    let counts = match figures.disagreement {
        None => "-".to_owned(),
        Some(apart) if apart <= DISAGREEMENT_MAX => "agree".to_owned(),
        Some(apart) => format!("APART {:.1} %", apart * 100.0),
    };
    format!(
        "  {:10} {:>10.0} {:>9.3} {:>7.3} {:>9.3} {:>8.4} {:>8} {:>7.0} {:>9} {:>7} {:>9} {:>8} {:>8}  {counts}\n",
        kind.name(),
        figures.rate,
        figures.cpu_micros,
        figures.spin_micros,
        figures.core_micros,
        figures.switches,
        figures.calls.map_or_else(|| "-".to_owned(), |calls| format!("{calls:.3}")),
        figures.resident_mb,
        latency,
        format!("{:.0}%{mark}", figures.tester_share * 100.0),
        ratio(Kind::RabbitMq, true),
        ratio(Kind::LavinMq, true),
        ratio(Kind::NullBroker, false),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::WORKLOADS;

    #[test]
    fn ratios_and_marks_are_shown() {
        let figures = |cpu_micros, tester_share, disagreement| Figures {
            cpu_micros,
            tester_share,
            disagreement: Some(disagreement),
            ..Figures::default()
        };
        let row = Row {
            workload: &WORKLOADS[0],
            figures: vec![
                (Kind::Lepus, figures(2.0, 0.95, 0.0)),
                (Kind::RabbitMq, figures(20.0, 0.5, 0.02)),
                (Kind::LavinMq, figures(4.0, 0.5, 0.0)),
                (Kind::NullBroker, figures(1.0, 0.5, 0.0)),
            ],
        };
        let text = render(&[row]);
        let line = |name: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(name));
            found.unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(line("lepus")[9..], ["95%*", "10.00", "2.00", "2.00", "agree"]);
        assert_eq!(line("rabbitmq")[9..], ["50%", "1.00", "0.20", "20.00", "APART", "2.0", "%"]);
        assert_eq!(line("null-broker")[10..], ["20.00", "4.00", "1.00", "agree"]);
        let last = text.lines().rfind(|line| line.starts_with(WORKLOADS[0].name)).unwrap();
        let words: Vec<_> = last.split_whitespace().collect();
        assert_eq!(
            words[1..],
            "0/s 2.000 µs 0/s 20.000 µs 0/s 4.000 µs 0/s 1.000 µs 0.100 0.50 2.00"
                .split(' ')
                .collect::<Vec<_>>()
        );
    }
}
