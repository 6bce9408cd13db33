//! Programs on CPUs of their own.

use crate::guard::watch;
use std::io;
use std::process::{Child, Command};

/// Starts a program that may run on `cpus` (the system's numbers) only; on all where the list is empty. It ends with this
/// program at the latest, however that ends.
///
/// The program inherits the mask of a thread that is made for it.
///
/// # Errors
/// When the program cannot be started, or a CPU is not among those that this process may use.
pub fn spawn_on(cpus: &[usize], command: &mut Command) -> io::Result<Child> {
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            if !cpus.is_empty() {
                restrict_thread(cpus)?;
            }
            command.spawn().inspect(watch)
        });
        starter.join().unwrap_or_else(|_| Err(io::Error::other("the starting thread ended")))
    })
}

/// Lets the calling thread run on `cpus` (the system's numbers) only.
///
/// # Errors
/// When one of them is not among those that this process may use.
#[cfg(target_os = "linux")]
pub fn restrict_thread(cpus: &[usize]) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for cpu in cpus.iter().copied() {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Elsewhere threads cannot be bound; they run where the system puts them.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn restrict_thread(_cpus: &[usize]) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_program_gets_the_cpus_it_was_given_and_its_starter_keeps_its_own() {
        let usable = lepus_topology::usable_cpus().ids;
        let last = *usable.last().unwrap();
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        command.stdout(std::process::Stdio::piped());
        let output = spawn_on(&[last], &mut command).unwrap().wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.split_whitespace().last().unwrap(), last.to_string());
        assert_eq!(lepus_topology::usable_cpus().ids, usable);
    }
}
