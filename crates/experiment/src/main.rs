//! The program `lepus-bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    lepus_experiment::bench::run(&words)
}
