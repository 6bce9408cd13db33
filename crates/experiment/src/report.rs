//! The directory that an experiment leaves: a page to look at, its plots, its figures, and how they came about.

mod machine;
mod page;
mod table;

pub use machine::{facts, file_time, utc};
pub use page::{Block, Content};
pub use table::Table;

use crate::plot::PlotError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// A plot for the page, or why there is none.
#[must_use]
pub fn plot(svg: Result<String, PlotError>) -> Block {
    match svg {
        Ok(svg) => Block::Plot(svg),
        Err(error) => Block::Text(format!("Not drawn: {error}.")),
    }
}

/// A report: what it is of and what it says.
#[derive(Debug)]
pub struct Report<'a> {
    /// What it is of, in a line.
    pub title: &'a str,
    /// What was asked.
    pub asks: &'a str,
    /// Who took part.
    pub who: &'a [Block],
    /// What was seen.
    pub content: &'a Content,
    /// How it came about, by name and value.
    pub about: &'a [(String, String)],
    /// What could not be measured, and why.
    pub faults: &'a [String],
    /// Whether it was ended early.
    pub stopped: bool,
    /// The machine-readable result, beside what stands in all of them: how it came about, what was seen and what was not
    /// measured.
    pub result: Value,
}

/// How a report came about: the command, the time, the size (its name and value), who made the load, the brokers by their
/// names with who they are, the machine.
#[must_use]
pub fn about(
    command: &str,
    seconds: f64,
    size: (&str, String),
    load: &str,
    brokers: &[(String, String)],
) -> Vec<(String, String)> {
    let mut about = vec![
        ("command".to_owned(), command.to_owned()),
        ("date".to_owned(), utc(std::time::SystemTime::now())),
        ("took".to_owned(), format!("{seconds:.0} s")),
        (size.0.to_owned(), size.1),
        ("load by".to_owned(), load.to_owned()),
    ];
    about.extend_from_slice(brokers);
    about.extend(facts());
    about
}

impl Report<'_> {
    /// Writes `report.html`, `plot-N.svg`, `result.json` and `README.txt`.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(mut self, directory: &Path) -> io::Result<()> {
        let about: BTreeMap<_, _> = self.about.iter().cloned().collect();
        self.result["about"] = json!(about);
        self.result["seen"] = json!(self.content.seen);
        self.result["faults"] = json!(self.faults);
        self.result["stopped"] = json!(self.stopped);
        fs::create_dir_all(directory)?;
        fs::write(directory.join("report.html"), self.page())?;
        remove_plots(directory)?;
        for (at, svg) in self.content.plots().enumerate() {
            fs::write(directory.join(format!("plot-{}.svg", at + 1)), svg)?;
        }
        fs::write(directory.join("result.json"), serde_json::to_vec_pretty(&self.result)?)?;
        fs::write(directory.join("README.txt"), self.readme())
    }

    fn readme(&self) -> String {
        let mut out = format!("{}\n\n{}\n\n", self.title, self.asks);
        for (name, value) in self.about {
            out.push_str(&format!("{name:<10} {value}\n"));
        }
        out.push_str("\nSeen:\n");
        for line in &self.content.seen {
            out.push_str(&format!("- {line}\n"));
        }
        for fault in self.faults {
            out.push_str(&format!("- not measured: {fault}\n"));
        }
        if self.stopped {
            out.push_str("- ended early: what was measured until then stands here\n");
        }
        out.push_str(
            "\nreport.html   the report, to look at\n\
             plot-N.svg    its plots\n\
             result.json   all figures: every run, every line of the load tester, every sample of the broker\n",
        );
        out
    }
}

/// Whether a report names a plot of its so.
fn is_plot(name: &str) -> bool {
    let number = name.strip_prefix("plot-").and_then(|name| name.strip_suffix(".svg"));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Plots of an earlier report in the same directory would pass for this one's.
fn remove_plots(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if is_plot(name) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    #[test]
    fn plots_of_others_stay() {
        let scratch = Scratch::new("plots");
        for name in ["plot-1.svg", "plot-12.svg", "plot-of-mine.svg", "plot-.svg", "plot-1.png"] {
            fs::write(scratch.path().join(name), "x").unwrap();
        }
        remove_plots(scratch.path()).unwrap();
        let left = fs::read_dir(scratch.path()).unwrap().flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["plot-.svg", "plot-1.png", "plot-of-mine.svg"]);
    }
}
