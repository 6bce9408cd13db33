//! The program `lepus-bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    lepus_experiment::bench::run(std::env::args_os())
}
