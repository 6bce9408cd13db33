//! The report of a run of `lepus-bench`: a table in the terminal for each part as soon as it is measured, and the same
//! directory that an experiment leaves.

use crate::bench::place::Place;
use crate::cast::Cast;
use crate::disk::named;
use crate::ground::Ground;
use crate::identity::Identity;
use crate::report::{Block, Content, Report, about, file_time};
use crate::stop::Stop;
use crate::terminal::{say, say_line};
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use std::{fs, io};

/// Reports of one command that begin in one second.
const NAMESAKES_MAX: u32 = 1_000;

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
    cast: Cast,
    ground: Arc<Ground>,
    /// Those who took part that the terminal was told of: brokers, and who made load.
    told: (usize, usize),
}

/// What a report is of.
#[derive(Clone, Debug)]
pub struct Cover {
    /// The command.
    pub name: &'static str,
    /// The subject, in a line.
    pub title: &'static str,
    /// What is asked.
    pub asks: &'static str,
    /// The size: its name and its value.
    pub size: (&'static str, String),
}

impl Sheet {
    /// Begins the report of a command, in a directory of its own below the results of `place`.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(cover: Cover, place: &Place) -> io::Result<Sheet> {
        let Cover { name, title, asks, size } = cover;
        let stem = format!("{name}-{}", file_time(SystemTime::now()));
        let directory = unused(&place.results, &stem)?;
        let content = Content { seen: place.notes.clone(), ..Content::default() };
        Ok(Sheet {
            name,
            title,
            asks,
            size,
            directory,
            start: Instant::now(),
            content,
            parts: Vec::new(),
            faults: Vec::new(),
            stop: place.stop.clone(),
            cast: place.cast.clone(),
            ground: Arc::clone(&place.ground),
            told: (0, 0),
        })
    }

    /// Keeps a part, writes the report with all parts so far, and prints the part. `figures` are a run of its own in `result.json`.
    /// Whoever took part since the last one is told before it.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn add(&mut self, blocks: Vec<Block>, figures: Option<Value>) -> io::Result<()> {
        let (brokers, loads) = (self.cast.brokers(), self.cast.loads());
        let told = introduction(&brokers[self.told.0..], &loads[self.told.1..]) + &text(&blocks);
        self.told = (brokers.len(), loads.len());
        self.content.blocks.extend(blocks);
        self.parts.extend(figures);
        let written = self.write();
        say(&told);
        written
    }

    fn write(&self) -> io::Result<()> {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("lepus-bench {}", command.join(" "));
        let size = (self.size.0, self.size.1.clone());
        let seconds = self.start.elapsed().as_secs_f64();
        let cast = &self.cast;
        let about = about(&command, seconds, size, &cast.loads_text(), &cast.lines());
        let result = json!({
            "bench": self.name,
            "brokers": cast.json(),
            "load": cast.loads(),
            "record": {"runs": self.parts},
        });
        let report = Report {
            title: self.title,
            asks: self.asks,
            who: &cast.page(),
            content: &self.content,
            about: &about,
            faults: &self.faults,
            stopped: self.stop.is_wanted(),
            result,
        };
        report.write(&self.directory)
    }

    /// Keeps figures for `result.json`; they are written with the next part.
    pub fn keep(&mut self, figures: Value) {
        self.parts.push(figures);
    }

    /// Notes what was seen, in a sentence for the page; it is written with the next part.
    pub fn see(&mut self, sentence: String) {
        self.content.seen.push(sentence);
    }

    /// Notes what was seen, and tells it at once: for what stands in no table.
    pub fn tell(&mut self, sentence: String) {
        say_line(format_args!("{sentence}"));
        self.see(sentence);
    }

    /// Notes what could not be measured, and why; it is told at once, and written with the next part.
    pub fn fault(&mut self, fault: String) {
        to_stderr(format_args!("{fault}"));
        self.faults.push(fault);
    }

    /// Ends the report with what its columns mean, and says where it is.
    ///
    /// # Errors
    /// As for [`Sheet::add`], and when nothing at all `was_measured`.
    pub fn finish(mut self, legend: &[&str], was_measured: bool) -> io::Result<()> {
        let texts = legend.iter().map(|text| Block::Text((*text).to_owned()));
        say("\n");
        self.add(texts.collect(), None)?;
        say_line(format_args!("{}", self.directory.join("report.html").display()));
        // Whoever ended it knows why it failed.
        if self.stop.is_wanted() || (self.faults.is_empty() && was_measured) {
            self.ground.done();
        } else if self.ground.has_logs() {
            say_line(format_args!("what failed has its logs in {}", self.ground.path().display()));
        }
        match was_measured {
            true => Ok(()),
            false => Err(io::Error::other("nothing was measured")),
        }
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        // One in which nothing was written is no report; any other stays.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// A new directory of this name, with a number behind it where others began in the same second.
fn unused(parent: &Path, stem: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(parent).map_err(|error| named(parent, &error))?;
    let numbered = (2..=NAMESAKES_MAX).map(|number| format!("{stem}-{number}"));
    for name in std::iter::once(stem.to_owned()).chain(numbered) {
        let path = parent.join(name);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(named(&path, &error)),
        }
    }
    Err(io::Error::other(format!(
        "{}: there are too many of this name",
        parent.join(stem).display()
    )))
}

/// Who took part, for a terminal, which is too narrow for a table of sentences.
fn introduction(brokers: &[Identity], loads: &[String]) -> String {
    let mut out = String::new();
    if !brokers.is_empty() || !loads.is_empty() {
        out.push('\n');
    }
    for broker in brokers {
        out.push_str(&format!("{}: {}\n", broker.name, broker.line()));
    }
    for load in loads {
        out.push_str(&format!("load: {load}\n"));
    }
    out
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
    use crate::subject::Subject;
    use lepus_probe::Scratch;

    #[test]
    fn plots_are_left_out_of_a_terminal() {
        let plot = Block::Plot("<svg></svg>".to_owned());
        let blocks = [Block::Heading("h".to_owned()), plot, Block::Text("t".to_owned())];
        assert_eq!(text(&blocks), "\nh\nt\n");
    }

    #[test]
    fn two_reports_of_one_second_have_directories_of_their_own() {
        let scratch = Scratch::new("namesakes");
        let names: Vec<PathBuf> = (0..3).map(|_| unused(scratch.path(), "x").unwrap()).collect();
        assert_eq!(names, ["x", "x-2", "x-3"].map(|name| scratch.path().join(name)));
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        let error = unused(&file, "x").unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()), "{error}");
    }

    #[test]
    fn what_is_measured_is_in_the_report_before_the_end() {
        let scratch = Scratch::new("sheet");
        let place = Place::for_test(scratch.path());
        place.cast.load("t", || "tester 7".to_owned());
        let cover =
            Cover { name: "x", title: "A title", asks: "Why?", size: ("rounds", "3".to_owned()) };
        let mut sheet = Sheet::new(cover, &place).unwrap();
        let heading = |text: &str| vec![Block::Heading(text.to_owned())];
        sheet.add(heading("first part"), Some(json!({"one": 1}))).unwrap();
        let directory = sheet.directory.clone();
        let page = || fs::read_to_string(directory.join("report.html")).unwrap();
        assert!(page().contains("first part") && !page().contains("second part"));
        sheet.see("a sentence".to_owned());
        place.cast.broker("x", "", || {
            let mut subject = Subject::elsewhere("amqp://there");
            subject.product = "Broker 7.1".to_owned();
            Identity::of(&subject, "x", Path::new(""))
        });
        sheet.add(heading("second part"), Some(json!({"two": 2}))).unwrap();
        sheet.finish(&["a legend"], true).unwrap();
        for part in [
            "first part",
            "second part",
            "a sentence",
            "a legend",
            "a note",
            "Broker 7.1",
            "tester 7",
        ] {
            assert!(page().contains(part), "{part}");
        }
        let result = fs::read(directory.join("result.json")).unwrap();
        let result: Value = serde_json::from_slice(&result).unwrap();
        assert_eq!(result["record"]["runs"], json!([{"one": 1}, {"two": 2}]));
        assert_eq!(result["about"]["rounds"], "3");
        assert_eq!(result["about"]["load by"], "tester 7");
        assert_eq!(result["brokers"][0]["version"], "7.1");
        assert_eq!(result["brokers"][0]["confirm"]["durability"], "unknown");
        assert_eq!(result["load"], json!(["tester 7"]));
    }
}
