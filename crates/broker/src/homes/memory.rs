//! Tables of queues that were not used give spare room back.

use lepus_base::Now;

use crate::homes::HomeSide;
use crate::timers::Timer;

impl HomeSide<'_> {
    /// Queues that were not used since the last look give spare room in their tables back.
    pub(crate) fn look_at_tables(&mut self, now: Now) {
        let (homes, shard) = (&mut self.homes.queues, &mut self.shard);
        let next = self.homes.idle_tables.look(|slot, id| {
            let home = homes.get_mut(slot as usize).filter(|home| home.id == id);
            home.map_or(Some(0), |home| home.give_spare(now, shard))
        });
        if let Some(pause) = next {
            self.shard.timers.arm(now.instant + pause, Timer::Tables);
        }
    }
}
