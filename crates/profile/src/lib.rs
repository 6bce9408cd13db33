//! Samples of the own process: where its threads spend their CPU time.
//!
//! Threads enrol ([`enroll`]) and say in which phase of their work they are ([`Mark`]). While a
//! [`Session`] runs, a timer on each thread's CPU clock interrupts it; the handler copies the
//! registers and the stack into memory that was made before, and that is all it does. Walking the
//! stacks and naming the functions is for others, later, elsewhere. No root, no hardware counters, no
//! frame pointers are needed; a thread that sleeps is not interrupted.
//!
//! Nothing here runs while no session does, but for one relaxed store per change of phase.
//! Linux on x86-64 and AArch64; elsewhere [`Session::start`] says that it cannot.

mod phase;
mod registry;
mod sample;
mod session;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod signal;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "unsupported.rs"]
mod signal;
mod thread;

pub use phase::{Mark, Phase};
pub use registry::{Enrolled, enroll, enroll_with};
pub use sample::{Registers, SAMPLES_MAX, STACK_WORDS_MAX, Sample};
pub use session::{RATE_MAX, Session, StartError, Summary, ThreadFigures, Unsampled};
pub use thread::Group;
