//! The figures of one load, and the table of them.

use crate::bench::json::Json;
use std::fmt::Write;

/// What the columns mean.
pub const LEGEND: &str = "\
CPU: user and system time of the broker's process from the start of the load to its end, per message; of rabbit: that
divided by RabbitMQ's in the same row. By the payload, from before the broker's start to after its clean stop:
proc ×: bytes in pages that the process made dirty; calls ×: bytes that it handed to calls that write (in RabbitMQ
sockets count too); dev ×: bytes that the device took, from whomever; read ×: bytes that were fetched from it.
peak, end: resident megabytes during the load and at its end. *: the tester used more than 90 % of its core, so that the
rate is the tester's.";

/// From here on the tester is the limit.
const TESTER_SHARE_MAX: f64 = 0.9;

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
    pub fn json(&self) -> Json {
        let mut members = vec![
            ("broker".to_owned(), Json::text(&self.broker)),
            ("phase".to_owned(), Json::text(&self.phase)),
        ];
        if let Some(figures) = self.figures {
            for (name, value) in [
                ("messages", figures.messages as f64),
                ("messages_per_second", figures.rate),
                ("cpu_micros_per_message", figures.cpu_micros),
                ("written_by_payload", figures.written),
                ("handed_to_writes_by_payload", figures.handed),
                ("device_written_by_payload", figures.device_written),
                ("read_by_payload", figures.read),
                ("resident_peak_mb", figures.peak_mb),
                ("resident_end_mb", figures.end_mb),
                ("tester_cpu_share", figures.tester_share),
            ] {
                members.push((name.to_owned(), Json::Number(value)));
            }
        }
        for (name, value) in &self.extra {
            members.push(((*name).to_owned(), Json::Number(*value)));
        }
        members.push(("note".to_owned(), Json::text(&self.note)));
        Json::Object(members)
    }
}

/// One row with its heading.
pub fn render(name: &str, title: &str, lines: &[Line]) -> String {
    let mut out = format!("{name}: {title}\n");
    let _ = writeln!(
        out,
        "  {:10} {:16} {:>10} {:>9} {:>9} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7}",
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
        "end MB"
    );
    for line in lines {
        let _ = write!(out, "  {:10} {:16}", line.broker, line.phase);
        if let Some(figures) = &line.figures {
            out.push_str(&columns(line, figures, lines));
        }
        for (name, value) in &line.extra {
            let _ = write!(out, "  {name} {value:.3}");
        }
        if !line.note.is_empty() {
            let _ = write!(out, "  {}", line.note);
        }
        out.push('\n');
    }
    out.push('\n');
    out
}

fn columns(line: &Line, figures: &Figures, lines: &[Line]) -> String {
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
    format!(
        " {:>10} {:>9} {:>9} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7}",
        format!("{:.0}{mark}", figures.rate),
        or_dash(figures.cpu_micros, format!("{:.3}", figures.cpu_micros)),
        share,
        format!("{:.4}", figures.written),
        format!("{:.4}", figures.handed),
        format!("{:.3}", figures.device_written),
        format!("{:.3}", figures.read),
        or_dash(figures.peak_mb, format!("{:.1}", figures.peak_mb)),
        or_dash(figures.end_mb, format!("{:.1}", figures.end_mb)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_compared_with_the_same_load_of_the_other_broker() {
        let figures = |cpu_micros| Figures { cpu_micros, rate: 5.0, ..Figures::default() };
        let lines = [
            Line::new("lepus", "fill", figures(2.0)).with("ms", 1.5),
            Line::new("lepus", "drain", figures(3.0)),
            Line::new("rabbitmq", "fill", figures(20.0)),
            Line::absent("rabbitmq", "too slow"),
        ];
        let text = render("name", "title", &lines);
        let words =
            |at: usize| text.lines().nth(at).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(2)[2..5], ["5", "2.000", "0.100"]);
        assert_eq!(words(2)[11..], ["ms", "1.500"]);
        assert_eq!(words(3)[4], "-");
        assert_eq!(words(5), ["rabbitmq", "too", "slow"]);
    }
}
