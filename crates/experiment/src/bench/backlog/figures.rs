//! The figures of one load, and the table of them.

use crate::bench::table::TESTER_SHARE_MAX;
use crate::plot::{Bar, BarPlot, Group, Unit};
use crate::report::{Block, Table, plot};
use serde_json::{Value, json};

/// What the columns mean.
pub const LEGEND: [&str; 4] = [
    "CPU: user and system time of the broker's process from the start of the load to its end, per message; of rabbit: that \
     divided by RabbitMQ's in the same row.",
    "By the payload, from before the broker's start to after its clean stop: proc ×: bytes in pages that the process made \
     dirty; calls ×: bytes that it handed to calls that write (in RabbitMQ sockets count too); dev ×: bytes that the device \
     took, from whomever; read ×: bytes that were fetched from it.",
    "peak, end: resident megabytes during the load and at its end. *: the tester used more than 90 % of its core, so that \
     the rate is the tester's.",
    "start ms: from the broker's start until it answers, which is looked for every 50 ms.",
];

/// Costs of one load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Messages of the load.
    pub messages: u64,
    /// Messages per second.
    pub rate: f64,
    /// Microseconds of the broker's CPU per message.
    pub cpu_micros: f64,
    /// Bytes in pages that the process made dirty, by payload.
    pub written: f64,
    /// Bytes that the process handed to calls that write, by payload.
    pub handed: f64,
    /// Bytes that the device took, by payload.
    pub device_written: f64,
    /// Bytes that were read from the device, by payload.
    pub read: f64,
    /// Resident megabytes at most, in the load.
    pub peak_mb: f64,
    /// Resident megabytes at the end of the load.
    pub end_mb: f64,
    /// The tester's share of its core, 0 to 1; 0 where it was not measured.
    pub tester_share: f64,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Whose it is.
    pub broker: String,
    /// Which load of the row.
    pub phase: String,
    /// Its figures, where there are any.
    pub figures: Option<Figures>,
    /// Further figures by name.
    pub extra: Vec<(&'static str, f64)>,
    /// What must be known about it.
    pub note: String,
}

impl Line {
    /// A line with figures.
    pub fn new(broker: &str, phase: impl Into<String>, figures: Figures) -> Line {
        let (broker, phase) = (broker.to_owned(), phase.into());
        Line { broker, phase, figures: Some(figures), extra: Vec::new(), note: String::new() }
    }

    /// A line that says why there are no figures.
    pub fn absent(broker: &str, reason: impl Into<String>) -> Line {
        Line {
            broker: broker.to_owned(),
            phase: String::new(),
            figures: None,
            extra: Vec::new(),
            note: reason.into(),
        }
    }

    /// The line with a further figure.
    pub fn with(mut self, name: &'static str, value: f64) -> Line {
        self.extra.push((name, value));
        self
    }

    /// The line with a further remark.
    pub fn noting(mut self, note: impl AsRef<str>) -> Line {
        if !self.note.is_empty() && !note.as_ref().is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note.as_ref());
        self
    }

    /// The line as a JSON object.
    pub fn json(&self) -> Value {
        let mut line = json!({"broker": self.broker, "phase": self.phase, "note": self.note});
        if let Some(figures) = self.figures {
            line["messages"] = json!(figures.messages);
            line["messages_per_second"] = json!(figures.rate);
            line["cpu_micros_per_message"] = json!(figures.cpu_micros);
            line["written_by_payload"] = json!(figures.written);
            line["handed_to_writes_by_payload"] = json!(figures.handed);
            line["device_written_by_payload"] = json!(figures.device_written);
            line["read_by_payload"] = json!(figures.read);
            line["resident_peak_mb"] = json!(figures.peak_mb);
            line["resident_end_mb"] = json!(figures.end_mb);
            line["tester_cpu_share"] = json!(figures.tester_share);
        }
        for (name, value) in &self.extra {
            line[*name] = json!(value);
        }
        line
    }

    /// The line in the table of its row, whose lines are `all`.
    fn cells(&self, all: &[Line]) -> Vec<String> {
        let mut further: Vec<String> =
            self.extra.iter().map(|(name, value)| format!("{name} {}", decimals(*value))).collect();
        further.extend((!self.note.is_empty()).then(|| self.note.clone()));
        let mut cells = vec![self.broker.clone(), self.phase.clone()];
        match &self.figures {
            Some(figures) => cells.extend(columns(self, figures, all)),
            None => cells.resize(HEAD.len() - 1, String::new()),
        }
        cells.push(further.join("  "));
        cells
    }
}

/// A figure by its thousandths; a whole number, as counts and what is known in steps, without.
fn decimals(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

const HEAD: [&str; 12] = [
    "",
    "",
    "msg/s",
    "CPU µs/m",
    "of rabbit",
    "proc ×",
    "calls ×",
    "dev ×",
    "read ×",
    "peak MB",
    "end MB",
    "further",
];

/// One row with its heading and, where a broker's CPU was measured, its plot.
pub fn render(name: &str, title: &str, lines: &[Line]) -> Vec<Block> {
    let rows = lines.iter().map(|line| line.cells(lines)).collect();
    let mut blocks = vec![
        Block::Heading(format!("{name}: {title}")),
        Block::Table(Table { rows, ..Table::new(HEAD) }),
    ];
    blocks.extend(bars(name, lines));
    blocks
}

fn bars(name: &str, lines: &[Line]) -> Option<Block> {
    let micros =
        |line: &Line| line.figures.map(|figures| figures.cpu_micros).filter(|it| *it > 0.0);
    let (mut names, mut phases): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for line in lines.iter().filter(|line| micros(line).is_some()) {
        for (list, word) in [(&mut names, &line.broker), (&mut phases, &line.phase)] {
            if !list.contains(word) {
                list.push(word.clone());
            }
        }
    }
    let bar = |phase: &str, name: &str| {
        let line = lines.iter().find(|line| line.phase == phase && line.broker == name)?;
        micros(line).map(|value| Bar { value, low: value, high: value })
    };
    let group = |phase: &String| Group {
        label: phase.clone(),
        bars: names.iter().map(|name| bar(phase, name)).collect(),
    };
    let groups: Vec<Group> = phases.iter().map(group).collect();
    let title = format!("{name}: CPU of the broker per message");
    let label = "CPU per message".to_owned();
    let bars = BarPlot { title, label, unit: Unit::Micros, groups, names: names.clone() };
    (!names.is_empty()).then(|| plot(bars.render()))
}

fn columns(line: &Line, figures: &Figures, lines: &[Line]) -> [String; 9] {
    let other = lines.iter().find(|other| {
        other.broker == "rabbitmq" && other.phase == line.phase && line.broker != "rabbitmq"
    });
    let other = other.and_then(|other| other.figures).map_or(0.0, |figures| figures.cpu_micros);
    let share = match other > 0.0 && figures.cpu_micros > 0.0 {
        true => format!("{:.3}", figures.cpu_micros / other),
        false => "-".to_owned(),
    };
    let mark = if figures.tester_share > TESTER_SHARE_MAX { "*" } else { "" };
    let or_dash = |value: f64, text: String| if value > 0.0 { text } else { "-".to_owned() };
    [
        format!("{:.0}{mark}", figures.rate),
        or_dash(figures.cpu_micros, format!("{:.3}", figures.cpu_micros)),
        share,
        or_dash(figures.written, format!("{:.4}", figures.written)),
        or_dash(figures.handed, format!("{:.4}", figures.handed)),
        or_dash(figures.device_written, format!("{:.3}", figures.device_written)),
        or_dash(figures.read, format!("{:.3}", figures.read)),
        or_dash(figures.peak_mb, format!("{:.1}", figures.peak_mb)),
        or_dash(figures.end_mb, format!("{:.1}", figures.end_mb)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::text;

    #[test]
    fn lines_are_compared_with_the_same_load_of_the_other_broker() {
        let figures = |cpu_micros| Figures { cpu_micros, rate: 5.0, ..Figures::default() };
        let lines = [
            Line::new("lepus", "fill", figures(2.0)).with("ms", 1.5),
            Line::new("lepus", "drain", figures(3.0)),
            Line::new("rabbitmq", "fill", figures(20.0)),
            Line::absent("rabbitmq", "too slow"),
        ];
        let blocks = render("name", "title", &lines);
        assert!(matches!(&blocks[2], Block::Plot(svg) if svg.contains("drain")));
        let text = text(&blocks[1..]);
        let words =
            |at: usize| text.lines().nth(at - 1).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(2)[2..5], ["5", "2.000", "0.100"]);
        assert_eq!(words(2)[11..], ["ms", "1.500"]);
        assert_eq!(words(3)[4], "-");
        assert_eq!(words(5), ["rabbitmq", "too", "slow"]);
    }

    #[test]
    fn whole_figures_have_no_digits_that_nobody_knows() {
        assert_eq!((decimals(250.0).as_str(), decimals(36.87).as_str()), ("250", "36.870"));
    }
}
