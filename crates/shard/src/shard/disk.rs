//! From the core to files and back.

use lepus_base::Now;
use lepus_mesh::Signal;
use lepus_reactor::Reactor;

use super::Shard;
use crate::core::Core;
use crate::notice::Notice;

impl<C: Core, R: Reactor> Shard<C, R> {
    /// Tells the core which operations have ended.
    pub(super) fn take_completions(&mut self, now: Now) {
        if !self.bell().take(Signal::Disk) {
            return;
        }
        let Some(disk) = &mut self.disk else { return };
        disk.take(&mut self.completions);
        disk.take_failures(&mut self.failures);
        for failure in self.failures.drain(..) {
            let shard = self.id;
            self.links.notices.tell(Notice::DiskFailed { shard, failure });
        }
        self.busy |= !self.completions.is_empty();
        let metrics = &self.links.metrics;
        metrics.disk_operations.add(self.completions.len() as u64);
        for (log, completion) in self.completions.drain(..) {
            self.core.disk_done(now, log, completion, &mut self.out);
        }
    }

    /// Hands over what the core wants from the disk.
    pub(super) fn submit(&mut self) {
        let operations = C::effects(&mut self.out).disk;
        if operations.is_empty() {
            return;
        }
        let disk = self.disk.as_mut();
        disk.expect("a shard whose core has a store has a disk").submit(operations);
    }

    /// Whether operations are under way, on threads that may need this CPU.
    pub(crate) fn awaits_disk(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.in_flight() > 0)
    }
}
