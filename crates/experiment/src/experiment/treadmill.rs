//! E2: queues that are filled and filled, and drained from the disk.

use super::figures::{bars, cost_table, ratio_words};
use super::{Experiment, Work};
use crate::disk;
use crate::plot::{Axis, LinePlot, Look, Series, Unit, significant};
use crate::record::Record;
use crate::report::{Block, Content, plot};
use crate::sample::{INTERVAL, Sample};
use crate::session::Session;
use crate::subject::Subject;
use crate::workload::{Load, Outcome};
use lepus_amqp::method::queue;
use std::io;
use std::time::Duration;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "treadmill",
    title: "treadmill: what does a backlog on disk cost?",
    asks: "1,000,000 persistent messages of 1,024 bytes, three times without emptying the queue in between, then the same with \
           100,000 of 10,240 bytes; then the page cache is emptied and an auto-acknowledging consumer drains all. A report of \
           2009 saw 2.0 to 2.5 GB written for each GB published, and 6 GB more while draining 3. How many bytes are \
           written and read, and does filling get slower as the backlog grows?",
    is_checked: false,
    work: Work::Brokers { measure, describe },
};

const QUEUE: &str = "lepus-treadmill";
const FILLS: usize = 3;
/// Bytes of a message, and how many of them the report had in each run.
const SIZES: [(u64, u64); 2] = [(1_024, 1_000_000), (10_240, 100_000)];
/// What a broker writes shortly after its last confirm belongs to the run.
const LINGER: Duration = Duration::from_millis(1_200);
fn fill_name(size: u64) -> String {
    format!("fill, {} bytes", significant(size as f64))
}

fn drain_name(size: u64) -> String {
    format!("drain, {} bytes", significant(size as f64))
}

fn fill(size: u64, count: u64, scale: f64) -> Load {
    let words = [
        "throughput",
        "-x",
        "1",
        "-y",
        "0",
        "-u",
        QUEUE,
        "-f",
        "persistent",
        "-ad",
        "false",
        "-c",
        "500",
        "-s",
        &size.to_string(),
        "-C",
        &count.to_string(),
    ];
    counted(fill_name(size), &words, (size, count), scale)
}

fn drain(size: u64, count: u64, scale: f64) -> Load {
    let words = [
        "throughput",
        "-x",
        "0",
        "-y",
        "1",
        "-a",
        "-u",
        QUEUE,
        "-f",
        "persistent",
        "-ad",
        "false",
        "-D",
        &count.to_string(),
    ];
    counted(drain_name(size), &words, (size, count), scale)
}

fn counted(name: String, words: &[&str], (size, count): (u64, u64), scale: f64) -> Load {
    Load {
        name,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        body_bytes: size,
        seconds: None,
        patience: Duration::from_secs(300 + count / 500),
        // A small run would be over between two samples.
        sample_every: if scale < 1.0 { INTERVAL / 4 } else { INTERVAL },
        linger: LINGER,
        is_from_start: false,
    }
}

fn measure(session: &mut Session<'_>) {
    let plan = session.plan;
    let brokers = plan.choices.len();
    let counted = fill(1, 1, 1.0).seconds_expected();
    session.progress.expect(counted * (SIZES.len() * (FILLS + 1) * brokers) as f64);
    for (size, count) in SIZES {
        let count = plan.count(count, 100);
        let placement = plan.apart();
        let load = fill(size, count, plan.scale);
        let mut subjects: Vec<Option<Subject>> =
            (0..brokers).map(|number| session.start(number, &placement, true)).collect();
        for subject in subjects.iter().flatten() {
            // One that runs already may hold what an earlier run left.
            if let Err(error) = subject.delete_queue(QUEUE) {
                session.note(format!("the queue {QUEUE} cannot be emptied: {error}"));
            }
        }
        for round in 0..FILLS {
            for (number, subject) in subjects.iter().enumerate() {
                if let Some(subject) = subject {
                    session.load((number, subject), &placement, &load, round);
                }
            }
        }
        let load = drain(size, count * FILLS as u64, plan.scale);
        for (number, slot) in subjects.iter_mut().enumerate() {
            let Some(subject) = slot.take() else { continue };
            if session.is_over() {
                break;
            }
            let is_ours = plan.choices[number].is_ours();
            // It reads before it listens: what it read since its start counts.
            let load = Load { is_from_start: is_ours, ..load.clone() };
            let subject = match is_ours {
                true => {
                    // What it holds in memory goes with it; the page cache goes next.
                    drop(subject);
                    empty_cache(session);
                    session.start(number, &placement, false)
                }
                false => {
                    empty_cache(session);
                    Some(subject)
                }
            };
            if let Some(subject) = &subject {
                match is_held(subject) {
                    Ok(()) => {
                        session.load((number, subject), &placement, &load, 0);
                    }
                    // A drain would wait for what does not come.
                    Err(error) => {
                        let name = &session.record.names[number];
                        session.note(format!("{name}, {}: {error}", load.name));
                    }
                }
                if let Err(error) = subject.delete_queue(QUEUE) {
                    session.note(format!("the queue {QUEUE} cannot be deleted: {error}"));
                }
            }
        }
    }
}

/// Whether there is a backlog to drain. A broker that stores nothing has none, however much it has confirmed.
fn is_held(subject: &Subject) -> io::Result<()> {
    let declare = queue::Declare { queue: QUEUE, passive: true, ..Default::default() };
    match subject.peer()?.count(1, declare)? {
        0 => Err(io::Error::other("nothing to drain: the broker kept nothing of what it took")),
        _ => Ok(()),
    }
}

/// Whether a drain brought the whole backlog of so many bytes; what is divided by the backlog means nothing otherwise.
fn is_whole(outcome: &Outcome, backlog: f64) -> bool {
    outcome.payload().is_some_and(|payload| payload >= backlog * 0.999)
}

fn empty_cache(session: &mut Session<'_>) {
    if let Err(error) = disk::drop_page_cache(&session.plan.site.scratch) {
        session.note(format!("the page cache could not be emptied: {error}"));
    }
}

fn describe(session: &Session<'_>) -> Content {
    let (record, plan) = (&session.record, session.plan);
    let mut content = Content::default();
    let placement = plan.apart().label();
    for (size, count) in SIZES {
        let payload = (plan.count(count, 100) * size) as f64;
        let title = format!("Filling with messages of {} bytes", significant(size as f64));
        content.blocks.push(Block::Heading(title.clone()));
        let title = format!("{title}: written by the broker");
        content.blocks.push(plot(cumulative(record, &placement, size, payload, title).render()));
        let title = format!(
            "Draining {} bytes each: read and written by the broker",
            significant(size as f64)
        );
        content.blocks.push(plot(drained(record, &placement, size, title).render()));
        content.seen.extend(sentences(record, &placement, size, payload));
    }
    content.blocks.push(Block::Heading("By the payload".to_owned()));
    let label = "bytes written by bytes published";
    content.blocks.push(bars(
        record,
        "Bytes written, by the payload",
        label,
        Unit::Number,
        |outcome| {
            written(outcome).zip(outcome.payload()).map(|(written, payload)| written / payload)
        },
    ));
    content.blocks.push(Block::Text(
        "Written and read are the process's own counters: pages that it made dirty, and what was fetched from the device \
         for it, of a drain since the restart before it, its program included. Runs 1 to 3 fill the same queue one after the other; its ranges stand over the bars."
            .to_owned(),
    ));
    content.blocks.push(Block::Heading("What a message cost".to_owned()));
    content.blocks.push(cost_table(record));
    content
}

/// How a counter grew: from the first sample, or from the start of a process that was started for this run.
fn growth(outcome: &Outcome, counter: fn(&Sample) -> Option<u64>) -> Vec<(f64, f64)> {
    let samples = &outcome.samples;
    let Some(first) = samples.iter().find_map(counter) else { return Vec::new() };
    let first = if outcome.is_from_start { 0 } else { first };
    let point =
        |sample: &Sample| Some((sample.at_seconds, counter(sample)?.saturating_sub(first) as f64));
    samples.iter().filter_map(point).collect()
}

fn written(outcome: &Outcome) -> Option<f64> {
    growth(outcome, |sample| sample.written_bytes).last().map(|point| point.1)
}

fn read(outcome: &Outcome) -> Option<f64> {
    growth(outcome, |sample| sample.read_bytes).last().map(|point| point.1)
}

fn cumulative(
    record: &Record,
    placement: &str,
    size: u64,
    payload: f64,
    title: String,
) -> LinePlot {
    let mut series = Vec::new();
    let mut longest: f64 = 0.0;
    for (subject, name) in record.names.iter().enumerate() {
        for run in record.runs_of(subject, placement, &fill_name(size)) {
            let points = growth(&run.outcome, |sample| sample.written_bytes);
            longest = points.last().map_or(longest, |point| longest.max(point.0));
            let look = Look { colour: subject, pattern: subject * FILLS + run.round };
            series.push(Series { name: format!("{name}, run {}", run.round + 1), look, points });
        }
    }
    if longest > 0.0 {
        let look = Look { colour: 5, pattern: 1 };
        let points = vec![(0.0, payload), (longest, payload)];
        series.push(Series { name: "published".to_owned(), look, points });
    }
    let x = Axis::new("time", Unit::Seconds);
    LinePlot { title, x, y: Axis::new("written", Unit::Bytes), series }
}

fn drained(record: &Record, placement: &str, size: u64, title: String) -> LinePlot {
    let counters: [fn(&Sample) -> Option<u64>; 2] =
        [|sample| sample.read_bytes, |sample| sample.written_bytes];
    let series = super::figures::lines(record, &["read", "written"], |subject, kind| {
        let name = drain_name(size);
        let run = record.runs_of(subject, placement, &name).next();
        run.map_or(Vec::new(), |run| growth(&run.outcome, counters[kind]))
    });
    LinePlot {
        title,
        x: Axis::new("time", Unit::Seconds),
        y: Axis::new("read or written", Unit::Bytes),
        series,
    }
}

fn sentences(record: &Record, placement: &str, size: u64, payload: f64) -> Vec<String> {
    let (fill, drain) = (fill_name(size), drain_name(size));
    let mut out = Vec::new();
    for (subject, name) in record.names.iter().enumerate() {
        let backlog = payload * FILLS as f64;
        let rate = record.spread(subject, placement, &fill, |outcome| Some(outcome.rate()));
        let Some(rate) = rate else { continue };
        let mut text = format!(
            "{name}, {} bytes: {} messages per second ({} to {} over the fills)",
            significant(size as f64),
            significant(rate.value),
            significant(rate.low),
            significant(rate.high)
        );
        if let Some(bytes) = record.spread(subject, placement, &fill, written) {
            text.push_str(&format!(
                ", {} written for each byte published",
                significant(bytes.value / payload)
            ));
        }
        let of_drain = |figure: fn(&Outcome) -> Option<f64>| {
            record.spread(subject, placement, &drain, |outcome| {
                figure(outcome).filter(|_| is_whole(outcome, backlog))
            })
        };
        if let Some((written, fetched)) = of_drain(written).zip(of_drain(read)) {
            text.push_str(&format!(
                "; draining read {} and wrote {} for each byte of the backlog",
                significant(fetched.value / backlog),
                significant(written.value / backlog)
            ));
        }
        out.push(format!("{text}."));
    }
    let ratio = record.ratio(placement, &fill, written);
    if ratio.is_some() {
        out.push(format!("Bytes written, {fill}{}.", ratio_words(ratio)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;
    use crate::workload::Interval;

    /// A broker that took three fills of 1,000 bytes and gave so many messages of a byte back.
    fn record(drained: f64) -> Record {
        let sample = |at_seconds, bytes| Sample {
            at_seconds,
            read_bytes: Some(bytes),
            written_bytes: Some(bytes),
            ..Sample::default()
        };
        let run = |load: String, received: f64, round| {
            let total = Interval { seconds: 1.0, received, ..Interval::default() };
            let samples = vec![sample(0.0, 0), sample(1.0, 6_000)];
            let outcome = Outcome { total, body_bytes: 1, samples, ..Outcome::default() };
            Run { subject: 0, placement: "p".to_owned(), load, round, outcome }
        };
        let mut runs: Vec<Run> =
            (0..FILLS).map(|round| run(fill_name(1), 1_000.0, round)).collect();
        runs.push(run(drain_name(1), drained, 0));
        Record { names: vec!["x".to_owned()], runs, ..Record::default() }
    }

    #[test]
    fn a_drain_is_told_where_it_brought_the_whole_backlog() {
        let told = |drained| sentences(&record(drained), "p", 1, 1_000.0).concat();
        assert!(told(3_000.0).contains("draining read 2.00 and wrote 2.00"), "{}", told(3_000.0));
        for drained in [0.0, 1_500.0] {
            let text = told(drained);
            assert!(text.contains("written for each byte") && !text.contains("draining"), "{text}");
        }
    }
}
