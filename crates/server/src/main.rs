//! The binary `lepus`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    lepus_server::run(std::env::args_os().skip(1))
}
