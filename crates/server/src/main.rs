//! The binary `lepus`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(feature = "count-allocations")]
#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let code = lepus_server::start(std::env::args_os());
    #[cfg(feature = "count-allocations")]
    {
        let stats = ALLOCATOR.stats();
        eprintln!("allocations={} reallocations={}", stats.allocations, stats.reallocations);
    }
    code
}
