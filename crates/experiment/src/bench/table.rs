//! The tables and plots of `make bench`.

use crate::bench::measure::Figures;
use crate::bench::workload::Workload;
use crate::plot::{Bar, BarPlot, Group, Unit};
use crate::report::{Block, Table, plot};
use crate::statistics::spread;
use crate::subject::Kind;

/// From here on the tester is the limit, and the rate says little about the broker.
pub const TESTER_SHARE_MAX: f64 = 0.9;
/// Counts of the same messages may be apart by this much.
const DISAGREEMENT_MAX: f64 = 0.01;

/// What the columns mean.
pub const LEGEND: [&str; 5] = [
    "CPU: user and system time of the broker's process; core: time in which its core was not idle; both per message received. \
     of spin: looking around without work, as lepus counts it, of its whole run.",
    "msg/s and µs: between the first and the last look at the broker, which it answers once a second on its own CPU; p50/99: \
     the tester's, of its whole run. calls: system calls of the broker per message, counted in one further run, start and end \
     included.",
    "rabbit ×, lavin ×, nats ×, null ×: how many times less CPU than RabbitMQ, LavinMQ and NATS, more than the null broker. *: the tester \
     used more than 90 % of its core, so that the rate is the tester's. counts: the tester's, the broker's and the acknowledged \
     agree within 1 %. A column without figures is left out.",
    "limit: a broker without a queue. of rabbit, of lavin, of nats, × limit: lepus' CPU per message by theirs.",
    "nats has no queues, no acknowledgements and no AMQP: lepus-bench itself publishes to one subject, with as many subscribers as \
     the load has queues. It tells no latency.",
];

/// What one load has shown, per broker that was measured.
pub struct Row {
    /// The load.
    pub workload: &'static Workload,
    /// The runs of each broker, in the order of measuring.
    pub runs: Vec<(Kind, Vec<Figures>)>,
}

impl Row {
    fn of(&self, kind: Kind) -> Option<Figures> {
        let found = self.runs.iter().find(|(other, _)| *other == kind);
        found.map(|(_, runs)| Figures::median(runs))
    }

    /// One broker's CPU per message by another's.
    fn ratio(&self, of: Kind, by: Kind) -> Option<f64> {
        let (of, by) = (self.of(of)?.cpu_micros, self.of(by)?.cpu_micros);
        (of > 0.0 && by > 0.0).then(|| of / by)
    }

    /// What it says in words: of each broker what a message costs it.
    pub fn sentences(&self) -> Vec<String> {
        let sentence = |(kind, runs): &(Kind, Vec<Figures>)| {
            let figures = Figures::median(runs);
            let (load, broker) = (self.workload.name, kind.name());
            let (rate, micros) = (figures.rate, figures.cpu_micros);
            let doubts = doubts(&figures);
            let doubts = match doubts.is_empty() {
                true => String::new(),
                false => format!(" ({})", doubts.join("; ")),
            };
            format!(
                "{load}: {broker} {rate:.0} messages per second at {micros:.3} µs of its CPU each{doubts}."
            )
        };
        self.runs.iter().map(sentence).collect()
    }

    /// The figures of all its brokers.
    pub fn details(&self) -> Vec<Block> {
        let mut table = Table::new([
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
            "nats ×",
            "null ×",
            "counts",
        ]);
        table
            .rows
            .extend(self.runs.iter().map(|(kind, runs)| self.line(*kind, &Figures::median(runs))));
        let heading = format!("{}: {}", self.workload.name, self.workload.title);
        vec![Block::Heading(heading), Block::Table(table.without_empty_columns())]
    }

    fn line(&self, kind: Kind, figures: &Figures) -> Vec<String> {
        let latency =
            figures.latency.map(|(median, tail)| format!("{:.1}/{:.1}", median / 1e3, tail / 1e3));
        let mark = if is_testers(figures) { "*" } else { "" };
        let counts = figures.disagreement.map(|apart| match is_apart(figures) {
            false => "agree".to_owned(),
            true => format!("APART {:.1} %", apart * 100.0),
        });
        vec![
            kind.name().to_owned(),
            format!("{:.0}", figures.rate),
            format!("{:.3}", figures.cpu_micros),
            format!("{:.3}", figures.spin_micros),
            format!("{:.3}", figures.core_micros),
            format!("{:.4}", figures.switches),
            or_dash(figures.calls.map(|calls| format!("{calls:.3}"))),
            format!("{:.0}", figures.resident_mb),
            or_dash(latency),
            format!("{:.0}%{mark}", figures.tester_share * 100.0),
            share(self.ratio(Kind::RabbitMq, kind), 2),
            share(self.ratio(Kind::LavinMq, kind), 2),
            share(self.ratio(Kind::Nats, kind), 2),
            share(self.ratio(kind, Kind::NullBroker), 2),
            or_dash(counts),
        ]
    }
}

/// One line for each load: lepus, its peers, and the limit, which is a broker without a queue; and plots of the same.
pub fn summary(rows: &[Row]) -> Vec<Block> {
    let mut table = Table::new([
        "",
        "lepus",
        "rabbitmq",
        "lavinmq",
        "nats",
        "limit",
        "of rabbit",
        "of lavin",
        "of nats",
        "× limit",
    ]);
    for row in rows {
        let show = |kind: Kind| {
            let text = |figures: Figures| {
                let mark = if is_testers(&figures) { "*" } else { "" };
                let apart = if is_apart(&figures) { " APART" } else { "" };
                format!("{:.0}/s{mark} {:.3} µs{apart}", figures.rate, figures.cpu_micros)
            };
            or_dash(row.of(kind).map(text))
        };
        table.rows.push(vec![
            row.workload.name.to_owned(),
            show(Kind::Lepus),
            show(Kind::RabbitMq),
            show(Kind::LavinMq),
            show(Kind::Nats),
            show(Kind::NullBroker),
            share(row.ratio(Kind::Lepus, Kind::RabbitMq), 3),
            share(row.ratio(Kind::Lepus, Kind::LavinMq), 2),
            share(row.ratio(Kind::Lepus, Kind::Nats), 2),
            share(row.ratio(Kind::Lepus, Kind::NullBroker), 2),
        ]);
    }
    let mut blocks = vec![
        Block::Heading("All loads".to_owned()),
        Block::Table(table.without_empty_columns()),
        bars(rows, "CPU of the broker per message", Unit::Micros, |figures| figures.cpu_micros),
        bars(rows, "Messages per second", Unit::Number, |figures| figures.rate),
    ];
    blocks.extend(doubtful(rows).map(Block::Text));
    blocks
}

/// Whether the rate is the tester's.
fn is_testers(figures: &Figures) -> bool {
    figures.tester_share > TESTER_SHARE_MAX
}

/// Whether counts of the same messages are not the same.
fn is_apart(figures: &Figures) -> bool {
    figures.disagreement.is_some_and(|apart| apart > DISAGREEMENT_MAX)
}

/// Why figures are not what they seem.
fn doubts(figures: &Figures) -> Vec<String> {
    let testers = is_testers(figures).then(|| "*: the tester was at its limit".to_owned());
    let apart = figures.disagreement.filter(|_| is_apart(figures));
    let apart = apart.map(|apart| format!("APART: counts differ by {:.1} %", apart * 100.0));
    testers.into_iter().chain(apart).collect()
}

/// The bars whose figures are not what they seem, under plots that have no marks.
fn doubtful(rows: &[Row]) -> Option<String> {
    let mut out = Vec::new();
    for row in rows {
        for (kind, runs) in &row.runs {
            let doubts = doubts(&Figures::median(runs));
            if !doubts.is_empty() {
                let (load, broker) = (row.workload.name, kind.name());
                out.push(format!("{load}, {broker}: {}", doubts.join("; ")));
            }
        }
    }
    (!out.is_empty()).then(|| format!("In the plots: {}.", out.join(". ")))
}

/// A figure of all brokers under all loads: medians with the range of the rounds.
fn bars(rows: &[Row], title: &str, unit: Unit, figure: fn(&Figures) -> f64) -> Block {
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::NullRelay);
    let has_runs = |kind: &Kind| rows.iter().any(|row| row.of(*kind).is_some());
    let kinds: Vec<Kind> = kinds.filter(has_runs).collect();
    let bar = |row: &Row, kind: &Kind| -> Option<Bar> {
        let runs = row.runs.iter().find(|(other, _)| other == kind)?;
        spread(runs.1.iter().map(figure).collect())
    };
    let group = |row: &Row| Group {
        label: row.workload.name.replace('-', "\n"),
        bars: kinds.iter().map(|kind| bar(row, kind)).collect(),
    };
    let bars = BarPlot {
        title: title.to_owned(),
        label: title.to_owned(),
        unit,
        names: kinds.iter().map(|kind| kind.name().to_owned()).collect(),
        groups: rows.iter().map(group).collect(),
    };
    plot(bars.render())
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn share(ratio: Option<f64>, digits: usize) -> String {
    or_dash(ratio.map(|ratio| format!("{ratio:.digits$}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::text;
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
            runs: vec![
                (Kind::Lepus, vec![figures(2.0, 0.95, 0.0)]),
                (Kind::RabbitMq, vec![figures(20.0, 0.5, 0.02)]),
                (Kind::LavinMq, vec![figures(4.0, 0.5, 0.0)]),
                (Kind::NullBroker, vec![figures(1.0, 0.5, 0.0)]),
            ],
        };
        let seen = row.sentences();
        assert!(seen[0].contains("the tester was at its limit"), "{}", seen[0]);
        assert!(seen[1].contains("APART: counts differ by 2.0 %"), "{}", seen[1]);
        assert!(seen[2].ends_with("4.000 µs of its CPU each."), "{}", seen[2]);
        let (text, summary) = (text(&row.details()), text(&summary(&[row])));
        let doubt = format!("In the plots: {}, lepus: *", WORKLOADS[0].name);
        assert!(summary.contains(&doubt), "{summary}");
        let line = |name: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(name));
            found.unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(line("lepus")[7..], ["95%*", "10.00", "2.00", "2.00", "agree"]);
        assert_eq!(line("rabbitmq")[7..], ["50%", "1.00", "0.20", "20.00", "APART", "2.0", "%"]);
        assert_eq!(line("null-broker")[8..], ["20.00", "4.00", "1.00", "agree"]);
        let last = summary.lines().rfind(|line| line.starts_with(WORKLOADS[0].name)).unwrap();
        let words: Vec<_> = last.split_whitespace().collect();
        assert_eq!(
            words[1..],
            "0/s* 2.000 µs 0/s 20.000 µs APART 0/s 4.000 µs 0/s 1.000 µs 0.100 0.50 2.00"
                .split(' ')
                .collect::<Vec<_>>()
        );
    }
}
