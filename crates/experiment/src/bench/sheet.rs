//! The report of a run of `lepus-bench`: a table in the terminal for each part as soon as it is measured, and the same
//! directory that an experiment leaves.

use crate::report::{Block, Content, Report, about, file_time};
use crate::stop::Stop;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

/// A report that grows.
#[derive(Debug)]
pub struct Sheet {
    name: &'static str,
    title: &'static str,
    asks: &'static str,
    /// Its size: the name and the value.
    size: (&'static str, String),
    directory: PathBuf,
    start: Instant,
    content: Content,
    parts: Vec<Value>,
    /// What could not be measured, and why.
    faults: Vec<String>,
    stop: Stop,
}

impl Sheet {
    /// Begins the report of the command `name` in a directory of its own below `results`.
    #[must_use]
    pub fn new(
        name: &'static str,
        title: &'static str,
        asks: &'static str,
        size: (&'static str, String),
        results: &Path,
        stop: &Stop,
    ) -> Sheet {
        let directory = results.join(format!("{name}-{}", file_time(SystemTime::now())));
        let (start, content) = (Instant::now(), Content::default());
        let (parts, faults, stop) = (Vec::new(), Vec::new(), stop.clone());
        Sheet { name, title, asks, size, directory, start, content, parts, faults, stop }
    }

    /// Prints a part, keeps it, and writes the report with all parts so far. `figures` are a run of its own in `result.json`.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn add(&mut self, blocks: Vec<Block>, figures: Option<Value>) -> io::Result<()> {
        print!("{}", text(&blocks));
        self.content.blocks.extend(blocks);
        self.parts.extend(figures);
        let command: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("lepus-bench {}", command.join(" "));
        let size = (self.size.0, self.size.1.clone());
        let about = about(&command, self.start.elapsed().as_secs_f64(), size, &[]);
        let result = json!({
            "bench": self.name,
            "about": about.iter().cloned().collect::<BTreeMap<_, _>>(),
            "seen": self.content.seen,
            "faults": self.faults,
            "stopped": self.stop.is_wanted(),
            "record": {"runs": self.parts},
        });
        let report = Report {
            title: self.title,
            asks: self.asks,
            content: &self.content,
            about: &about,
            faults: &self.faults,
            stopped: self.stop.is_wanted(),
            result: &result,
        };
        report.write(&self.directory)
    }

    /// Notes what was seen, in a sentence for the page; it is written with the next part.
    pub fn see(&mut self, sentence: String) {
        self.content.seen.push(sentence);
    }

    /// Notes what could not be measured, and why; it is told at once, and written with the next part.
    pub fn fault(&mut self, fault: String) {
        eprintln!("{fault}");
        self.faults.push(fault);
    }

    /// Ends the report with what its columns mean, and says where it is.
    ///
    /// # Errors
    /// As for [`Sheet::add`], and when nothing at all `was_measured`.
    pub fn finish(mut self, legend: &[&str], was_measured: bool) -> io::Result<()> {
        let texts = legend.iter().map(|text| Block::Text((*text).to_owned()));
        println!();
        self.add(texts.collect(), None)?;
        println!("{}", self.directory.join("report.html").display());
        match was_measured {
            true => Ok(()),
            false => Err(io::Error::other("nothing was measured")),
        }
    }
}

/// Words and tables for a terminal; plots are for the page only.
pub fn text(blocks: &[Block]) -> String {
    let mut out = String::new();
    for block in blocks {
        match block {
            Block::Heading(text) => out.push_str(&format!("\n{text}\n")),
            Block::Text(text) => out.push_str(&format!("{text}\n")),
            Block::Table(table) => out.push_str(&table.text()),
            Block::Plot(_) => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;
    use std::fs;

    #[test]
    fn plots_are_left_out_of_a_terminal() {
        let plot = Block::Plot("<svg></svg>".to_owned());
        let blocks = [Block::Heading("h".to_owned()), plot, Block::Text("t".to_owned())];
        assert_eq!(text(&blocks), "\nh\nt\n");
    }

    #[test]
    fn what_is_measured_is_in_the_report_before_the_end() {
        let scratch = Scratch::new("sheet");
        let results = scratch.path().to_owned();
        let mut sheet = Sheet::new(
            "x",
            "A title",
            "Why?",
            ("rounds", "3".to_owned()),
            &results,
            &Stop::default(),
        );
        let heading = |text: &str| vec![Block::Heading(text.to_owned())];
        sheet.add(heading("first part"), Some(json!({"one": 1}))).unwrap();
        let directory = sheet.directory.clone();
        let page = || fs::read_to_string(directory.join("report.html")).unwrap();
        assert!(page().contains("first part") && !page().contains("second part"));
        sheet.see("a sentence".to_owned());
        sheet.add(heading("second part"), Some(json!({"two": 2}))).unwrap();
        sheet.finish(&["a legend"], true).unwrap();
        for part in ["first part", "second part", "a sentence", "a legend"] {
            assert!(page().contains(part), "{part}");
        }
        let result = fs::read(directory.join("result.json")).unwrap();
        let result: Value = serde_json::from_slice(&result).unwrap();
        assert_eq!(result["record"]["runs"], json!([{"one": 1}, {"two": 2}]));
        assert_eq!(result["about"]["rounds"], "3");
    }
}
