//! A profile as a directory of files, and as lines for a terminal.

use std::fmt::Write as _;
use std::path::Path;

use lepus_profile::{Group, Phase};
use serde_json::{Value, json};

use crate::picture::{Direction, Picture};
use crate::profile::{Profile, Scope};
use crate::recording::Recording;
use crate::top::{Function, bars, functions};
use crate::tree::Tree;
use lepus_svg::escape;

/// Levels of a picture by accumulated time, and of one by own time.
const LEVELS_MAX: usize = 70;
const OWN_LEVELS_MAX: usize = 24;
/// Where frames inside the kernel are.
const KERNEL_FILE: &str = "flame-kernel.svg";
/// Functions in the terminal, and in `profile.json`.
const TERMINAL_ROWS: usize = 10;
const JSON_ROWS: usize = 500;

/// A row of the table of phases: a name, nanoseconds of CPU time, and ticks by phase where there are
/// phases.
type Row = (String, u64, Option<Vec<(Phase, u64)>>);

/// Everything a report is made of.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// In addresses.
    pub recording: &'a Recording,
    /// In names.
    pub profile: &'a Profile,
    /// The call that made it.
    pub command: &'a str,
    /// What perf saw inside the kernel, or a sentence that says why nothing.
    pub kernel: Result<&'a Tree, &'a str>,
}

impl Report<'_> {
    /// What the report does not show, a sentence each.
    #[must_use]
    pub fn unseen(&self) -> Vec<String> {
        let recording = self.recording;
        let ticks = self.profile.ticks(Scope::Sum);
        let in_kernel = recording.stacks.iter().filter(|stack| stack.is_in_kernel);
        let in_kernel: u64 = in_kernel.map(|stack| stack.ticks).sum();
        let seen = match self.kernel {
            Ok(tree) => {
                format!("{KERNEL_FILE} has what perf saw inside: {} samples.", tree.total())
            }
            Err(reason) => reason.to_owned(),
        };
        let mut unseen = vec![
            format!(
                "Inside the kernel: {} of the samples fell into system calls, shown as one frame \
                 [kernel: NAME] on the function that called. {seen}",
                share(in_kernel, ticks)
            ),
            "Time asleep: only CPU time is sampled. A thread that waits for a disk, a lock or \
             bytes does not show."
                .to_owned(),
        ];
        let others: Vec<String> = recording
            .unsampled
            .iter()
            .map(|(name, nanos)| format!("{name} {}", of_a_core(*nanos, recording.seconds)))
            .collect();
        unseen.push(if others.is_empty() {
            "Threads that are not sampled: none of them used CPU time.".to_owned()
        } else {
            format!("Threads that are not sampled, with their CPU time: {}.", others.join(", "))
        });
        let asked: f64 = recording.threads.iter().filter_map(|thread| thread.cpu_nanos).sum::<u64>()
            as f64
            * 1e-9
            * f64::from(recording.rate);
        if recording.samples < ticks {
            unseen.push(format!(
                "Ticks between those of the system: {} interruptions stand for {ticks} samples, \
                 as the system's clock is coarser than {} per second.",
                recording.samples, recording.rate
            ));
        }
        if (ticks as f64) < 0.8 * asked && asked >= 20.0 {
            unseen.push(format!(
                "CPU time between ticks: {ticks} samples where the CPU time used would give \
                 {asked:.0}. Threads that run for less than a tick at a time are seen too seldom."
            ));
        }
        for (count, what) in [
            (recording.dropped, "samples were dropped: they came faster than they were taken"),
            (recording.cut, "samples have stacks whose outermost functions are not known"),
            (recording.overflow, "samples were left out: too many different stacks"),
        ] {
            if count > 0 {
                unseen.push(format!("{count} {what}."));
            }
        }
        if !self.profile.nameless.is_empty() {
            unseen.push(format!(
                "Names of functions in {}: the file has none, or it is not there as it was.",
                self.profile.nameless.join(", ")
            ));
        }
        unseen
    }

    /// Shares of phases and the functions that cost most, for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let (recording, profile) = (self.recording, self.profile);
        let mut out = format!(
            "lepus {}, process {}: {} samples in {:.1} s, {} per second of CPU time\n\n",
            recording.version,
            recording.process,
            profile.ticks(Scope::Sum),
            recording.seconds,
            recording.rate
        );
        let shown: Vec<Phase> = Phase::ALL[1..].to_vec();
        // Writing to a string cannot fail.
        let _ = write!(out, "{:<14}{:>7}", "", "CPU");
        for phase in &shown {
            let _ = write!(out, "{:>8}", phase.name());
        }
        out.push('\n');
        for (name, nanos, phases) in self.rows() {
            let _ = write!(out, "{name:<14}{:>7}", of_a_core(nanos, recording.seconds));
            if let Some(phases) = phases {
                let whole: u64 = phases.iter().map(|(_, ticks)| ticks).sum();
                for (phase, ticks) in phases {
                    if shown.contains(&phase) {
                        let _ = write!(out, "{:>8}", share(ticks, whole));
                    }
                }
            }
            out.push('\n');
        }
        let ticks = profile.ticks(Scope::Sum);
        let mut all = functions(profile, Scope::Sum);
        out.push_str("\n    own  accumulated  by own time\n");
        rows(&mut out, &all, ticks);
        all.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
        out.push_str("\n    own  accumulated  by accumulated time\n");
        rows(&mut out, &all, ticks);
        out.push_str("\nNot seen:\n");
        for line in self.unseen() {
            let _ = writeln!(out, "- {line}");
        }
        out
    }

    /// Rows of the table of phases: a name, nanoseconds of CPU time, and ticks by phase of shards.
    fn rows(&self) -> Vec<Row> {
        let nanos = |wanted: &dyn Fn(Group) -> bool| {
            let threads = self.recording.threads.iter().filter(|thread| wanted(thread.group));
            threads.filter_map(|thread| thread.cpu_nanos).sum::<u64>()
        };
        let mut rows = Vec::new();
        for scope in self.profile.scopes() {
            if let Scope::Shard(shard) = scope {
                let nanos = nanos(&|group| group == Group::Shard(shard));
                rows.push((scope.title(), nanos, Some(self.profile.phases(scope))));
            }
        }
        let is_shard = |group| matches!(group, Group::Shard(_));
        rows.push((
            "all shards".to_owned(),
            nanos(&is_shard),
            Some(self.profile.phases(Scope::Sum)),
        ));
        rows.push(("files".to_owned(), nanos(&|group| group == Group::Files), None));
        rows.push(("services".to_owned(), nanos(&|group| group == Group::Service), None));
        rows
    }

    /// The flame graph of a scope, by accumulated or by own time.
    #[must_use]
    pub fn picture(&self, scope: Scope, direction: Direction) -> String {
        let (by, tree, levels_max) = match direction {
            Direction::Up => ("accumulated", self.profile.tree(scope), LEVELS_MAX),
            Direction::Down => ("own", self.profile.own_tree(scope), OWN_LEVELS_MAX),
        };
        let title = format!("CPU time by {by} time: {}", scope.title());
        let way = match direction {
            Direction::Up => "callers below, what they called above",
            Direction::Down => "what ran above, its callers below",
        };
        let note = format!(
            "lepus {}, {:.1} s, {} samples; width is the share of CPU time; {way}",
            self.recording.version,
            self.recording.seconds,
            tree.total()
        );
        Picture { title: &title, note: &note, direction, levels_max }.svg(&tree)
    }

    /// Bars of the most expensive functions of a scope.
    #[must_use]
    pub fn bars(&self, scope: Scope) -> String {
        let title = format!("Functions by CPU time: {}", scope.title());
        bars(&title, &functions(self.profile, scope), self.profile.ticks(scope))
    }

    /// The figures.
    #[must_use]
    pub fn json(&self) -> Value {
        let (recording, profile) = (self.recording, self.profile);
        let scope = |scope: Scope| {
            let ticks = profile.ticks(scope);
            let phases: serde_json::Map<String, Value> = profile
                .phases(scope)
                .into_iter()
                .skip(1)
                .map(|(phase, ticks)| (phase.name().to_owned(), ticks.into()))
                .collect();
            let functions: Vec<Value> = functions(profile, scope)
                .into_iter()
                .take(JSON_ROWS)
                .map(|one| json!({"name": one.name, "own": one.own, "accumulated": one.total}))
                .collect();
            json!({
                "scope": scope.word(),
                "samples": ticks,
                "phases": phases,
                "functions": functions,
            })
        };
        let thread = |thread: &crate::recording::Thread| json!({"name": thread.name, "cpu_nanos": thread.cpu_nanos});
        json!({
            "version": recording.version,
            "command": self.command,
            "process": recording.process,
            "seconds": recording.seconds,
            "rate": recording.rate,
            "interruptions": recording.samples,
            "dropped": recording.dropped,
            "threads": recording.threads.iter().map(thread).collect::<Vec<_>>(),
            "scopes": profile.scopes().into_iter().map(scope).collect::<Vec<_>>(),
            "not_seen": self.unseen(),
        })
    }

    /// One line per stack, functions separated by `;`, then its ticks: the form that other tools
    /// for flame graphs read.
    #[must_use]
    pub fn folded(&self) -> String {
        let mut out = String::new();
        for stack in &self.profile.stacks {
            let group = match stack.group {
                Group::Shard(shard) => format!("shard {shard};"),
                Group::Files | Group::Service => String::new(),
            };
            let frames: Vec<String> =
                stack.frames.iter().map(|name| name.replace(';', ",")).collect();
            let _ = writeln!(out, "{group}{} {}", frames.join(";"), stack.ticks);
        }
        out
    }

    /// Writes everything into a directory, which is made. Returns the names of the files.
    ///
    /// # Errors
    /// When a file cannot be written, with its path.
    pub fn write(&self, directory: &Path) -> Result<Vec<String>, String> {
        let mut files: Vec<(String, String)> = Vec::new();
        for scope in self.profile.scopes() {
            let word = scope.word();
            files.push((format!("flame-{word}.svg"), self.picture(scope, Direction::Up)));
            files.push((format!("own-{word}.svg"), self.picture(scope, Direction::Down)));
            files.push((format!("top-{word}.svg"), self.bars(scope)));
        }
        if let Ok(tree) = self.kernel {
            let note = format!("perf, {} samples; threads below, functions above", tree.total());
            let title = "CPU time inside the kernel, by accumulated time";
            let (note, direction) = (note.as_str(), Direction::Up);
            let picture = Picture { title, note, direction, levels_max: LEVELS_MAX };
            files.push((KERNEL_FILE.to_owned(), picture.svg(tree)));
        }
        let page = page(&files, &self.text());
        files.push(("report.html".to_owned(), page));
        files.push(("profile.json".to_owned(), format!("{:#}\n", self.json())));
        files.push(("stacks.folded".to_owned(), self.folded()));
        files.push(("README.txt".to_owned(), self.readme()));
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        for (name, text) in &files {
            let path = directory.join(name);
            std::fs::write(&path, text)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        Ok(files.into_iter().map(|(name, _)| name).collect())
    }

    fn readme(&self) -> String {
        let mut out = format!(
            "A profile of a running broker: where its threads spent their CPU time.\n\n\
             command  {}\nversion  lepus {}\nprocess  {}\n\n",
            self.command, self.recording.version, self.recording.process
        );
        out.push_str(
            "report.html       everything below on one page\n\
             flame-sum.svg     flame graph of all sampled threads: a box is as wide as its share of CPU\n\
             \x20                 time, with what it called above it; the lowest row names the phase of the\n\
             \x20                 duty cycle (poll, handle, flush, submit, write, spin, sleep)\n\
             flame-shard-N.svg the same for one shard\n\
             flame-kernel.svg  inside the kernel, by thread, where perf is installed and allowed\n\
             own-*.svg         the other way round: what ran, and below it who called it\n\
             top-*.svg         the most expensive functions by own and by accumulated time\n\
             profile.json      the figures\n\
             stacks.folded     the stacks, for other tools\n\n",
        );
        out.push_str(&self.text());
        out
    }
}

fn rows(out: &mut String, functions: &[Function], ticks: u64) {
    for function in functions.iter().take(TERMINAL_ROWS) {
        let (own, total) = (share(function.own, ticks), share(function.total, ticks));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{own:>7}{total:>13}  {}", function.name);
    }
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn of_a_core(nanos: u64, seconds: f64) -> String {
    format!("{:.1} %", nanos as f64 * 1e-7 / seconds.max(1e-3))
}

/// All pictures on one page that needs nothing else.
fn page(files: &[(String, String)], text: &str) -> String {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>lepus profile</title>\n\
         <style>body{font-family:sans-serif;margin:2em;max-width:1220px}svg{max-width:100%;height:auto}\
         pre{overflow-x:auto}section{break-inside:avoid}</style></head><body>\n\
         <h1>Profile of a broker</h1>\n",
    );
    let _ = writeln!(out, "<pre>{}</pre>", escape_text(text));
    for (name, svg) in files {
        let _ = writeln!(out, "<section id=\"{name}\">\n{svg}</section>");
    }
    out.push_str("</body></html>\n");
    out
}

fn escape_text(text: &str) -> String {
    text.lines().map(|line| escape(line) + "\n").collect()
}

#[cfg(test)]
mod tests;
