//! The load tester as a program of its own: `cargo run --release -p lepus-perf --example perf -- throughput -z 5`.

fn main() -> std::process::ExitCode {
    lepus_perf::run(std::env::args().skip(1))
}
