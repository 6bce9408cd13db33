//! The directory that an experiment leaves: a page to look at, its plots, its figures, and how they came about.

mod machine;
mod page;

pub use machine::{facts, utc};
pub use page::{Block, Content, render};

use crate::plot::PlotError;
use crate::record::Record;
use crate::session::Session;
use serde_json::json;
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

/// Writes the report: `report.html`, `plot-N.svg`, `result.json` and `README.txt`.
///
/// # Errors
/// When the directory cannot be written.
pub fn write(session: &Session<'_>, content: &Content, seconds: f64) -> io::Result<()> {
    let (plan, record) = (session.plan, &session.record);
    let directory = &plan.output;
    fs::create_dir_all(directory)?;
    let mut about = vec![
        ("command".to_owned(), plan.command.clone()),
        ("date".to_owned(), utc(std::time::SystemTime::now())),
        ("took".to_owned(), format!("{seconds:.0} s")),
        ("scale".to_owned(), format!("{} of the report's, {} rounds", plan.scale, plan.rounds)),
        ("tester".to_owned(), format!("lepus perf {}", env!("CARGO_PKG_VERSION"))),
    ];
    for (name, product) in record.names.iter().zip(&record.products) {
        about.push((name.clone(), product.clone()));
    }
    about.extend(facts());
    let html = render(plan.experiment.title, plan.experiment.asks, content, &about, record);
    fs::write(directory.join("report.html"), html)?;
    remove_plots(directory)?;
    for (at, svg) in content.plots().enumerate() {
        fs::write(directory.join(format!("plot-{}.svg", at + 1)), svg)?;
    }
    let result = json!({
        "experiment": plan.experiment.name,
        "about": about.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "scale": plan.scale,
        "rounds": plan.rounds,
        "seen": content.seen,
        "record": record.json(),
    });
    fs::write(directory.join("result.json"), serde_json::to_vec_pretty(&result)?)?;
    fs::write(directory.join("README.txt"), readme(session, content, &about))
}

/// Plots of an earlier report in the same directory would pass for this one's.
fn remove_plots(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if name.starts_with("plot-") && name.ends_with(".svg") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn readme(session: &Session<'_>, content: &Content, about: &[(String, String)]) -> String {
    let experiment = session.plan.experiment;
    let mut out = format!("{}\n\n{}\n\n", experiment.title, experiment.asks);
    for (name, value) in about {
        out.push_str(&format!("{name:<10} {value}\n"));
    }
    out.push_str("\nSeen:\n");
    for line in &content.seen {
        out.push_str(&format!("- {line}\n"));
    }
    for fault in &session.record.faults {
        out.push_str(&format!("- not measured: {fault}\n"));
    }
    if session.record.stopped {
        out.push_str("- ended early: what was measured until then stands here\n");
    }
    out.push_str(
        "\nreport.html   the report, to look at\n\
         plot-N.svg    its plots\n\
         result.json   all figures: every run, every line of the load tester, every sample of the broker\n",
    );
    out
}

/// Whether a record holds nothing worth a report.
#[must_use]
pub fn is_empty(record: &Record) -> bool {
    record.runs.is_empty()
}
