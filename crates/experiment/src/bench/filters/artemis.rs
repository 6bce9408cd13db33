//! The load for Artemis, which does not speak AMQP 0-9-1: the filters and messages of `lepus perf filters` for a program that does the
//! same by the client of Artemis.

use super::{Plan, Row};
use crate::subject::Subject;
use lepus_perf::filter_load::{LookAt, Wanted, Workload, symbol_name};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::process::Command;

/// Filters of a queue's consumers, as `lepus perf filters` has them.
const QUEUE_FILTERS: u32 = 63;
/// Messages whose deliveries are checked before speed.
const CHECKED: &str = "500";
/// Of what it reads, beside the data of brokers.
const FILE: &str = "artemis-load.txt";

/// The command of the load; what it reads is written.
pub fn load(plan: &Plan, row: &Row, filters: u32, subject: &Subject) -> io::Result<Command> {
    // Filters at consumers are on so many queues; 0: each is that of a queue.
    let queues = if row.is_paced { filters.div_ceil(QUEUE_FILTERS) } else { 0 };
    let file = plan.place.site.scratch.join(FILE);
    fs::write(&file, lines(&draw(filters, queues, plan.words.seed)))?;
    let rate = if row.is_paced { plan.words.consumer_rate } else { 0 };
    let mut command = plan.load.testers.of_artemis(&plan.place.site.artemis);
    command.args([subject.port().to_string(), subject.seen_pid()?.to_string()]);
    command.arg(&file).args([queues.to_string(), rate.to_string()]);
    command.args([plan.words.warm_up.to_string(), plan.load.seconds.to_string()]).arg(CHECKED);
    Ok(command)
}

/// What `lepus perf filters` draws in the rows that Artemis has: all filters have ranges.
fn draw(filters: u32, queues: u32, seed: u64) -> Workload {
    let wanted = Wanted::new(filters, 0.9, 2, 1.0, seed);
    // Each queue gets another message.
    Workload::draw(&Wanted { messages: wanted.messages.max(queues), ..wanted })
}

/// Filters and messages as that program reads them, each message with the filters that match it.
fn lines(workload: &Workload) -> String {
    let mut out = String::new();
    for filter in &workload.filters {
        // Writing to a string does not fail.
        let _ = writeln!(out, "filter {}", filter.text(LookAt::Headers));
    }
    for (trade, matching) in workload.trades.iter().zip(&workload.matching) {
        let name = symbol_name(trade.symbol);
        let _ = write!(out, "message {name} {} {}", trade.price, trade.quantity);
        for filter in matching {
            let _ = write!(out, " {filter}");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_load_has_filters_and_messages_with_what_matches_them() {
        let mut workload = draw(3, 0, 1);
        workload.trades.truncate(1);
        workload.matching = vec![vec![0, 2]];
        let text = lines(&workload);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("filter ") && lines[0].contains("price > "), "{}", lines[0]);
        let trade = workload.trades[0];
        let expected =
            format!("message {} {} {} 0 2", symbol_name(trade.symbol), trade.price, trade.quantity);
        assert_eq!(lines[3], expected);
        assert!(draw(200_000, 3_175, 1).trades.len() == 3_175);
    }
}
