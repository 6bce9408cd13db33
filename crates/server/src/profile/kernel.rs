//! What `perf` can add where it is installed and allowed: frames inside the kernel.

use lepus_flame::{Tree, kernel_tree};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `perf` at work beside a profile.
pub struct Perf {
    child: Child,
    file: PathBuf,
}

impl Drop for Perf {
    fn drop(&mut self) {
        // It has ended in most cases.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Perf {
    /// Starts it; what it writes is in `directory` until the end. The error is a sentence for the
    /// report.
    pub fn start(directory: &Path, process: u64, seconds: u64, rate: u32) -> Result<Perf, String> {
        let file = directory.join("perf.data");
        let mut command = Command::new("perf");
        command.args(["record", "--quiet", "--event", "cpu-clock:k", "--call-graph", "fp"]);
        command.args(["--freq", &rate.to_string(), "--pid", &process.to_string(), "--output"]);
        command.arg(&file).args(["--", "sleep", &seconds.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Ok(Perf { child, file }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err("perf, which could look inside, is not installed.".to_owned())
            }
            Err(error) => {
                Err(format!("perf, which could look inside, cannot be started: {error}."))
            }
        }
    }

    /// Waits for its end: what it saw, or a sentence that says why it saw nothing.
    pub fn finish(mut self) -> Result<Tree, String> {
        let failed = |what: &str| {
            let path = "/proc/sys/kernel/perf_event_paranoid";
            let level = std::fs::read_to_string(path).unwrap_or_default();
            format!(
                "perf, which could look inside, {what}; the kernel lets users see little \
                 (kernel.perf_event_paranoid is {}).",
                level.trim()
            )
        };
        if !self.child.wait().is_ok_and(|status| status.success()) {
            return Err(failed("is not allowed to"));
        }
        let mut command = Command::new("perf");
        command.args(["script", "--fields", "comm,ip,sym", "--input"]).arg(&self.file);
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => {
                Ok(kernel_tree(&String::from_utf8_lossy(&output.stdout)))
            }
            _ => Err(failed("does not tell what it saw")),
        }
    }
}
