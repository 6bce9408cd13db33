//! `lepus experiment` alone, for work on it: `cargo run --example experiment -- jit --lepus target/release/lepus`.

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match lepus_experiment::Words::read(words) {
        Ok(words) => lepus_experiment::run(words),
        Err(error) => error.exit(),
    }
}
