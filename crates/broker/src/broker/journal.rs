//! What the disk's answers set going: confirms, parked queues, complaints; and what the logs are to be asked.

use crate::broker::Broker;
use crate::journal::LogTroubles;
use crate::query::LogFigures;

impl Broker {
    /// What the logs that this shard drives are in trouble with.
    #[must_use]
    pub fn log_troubles(&self) -> LogTroubles {
        self.journal.troubles()
    }

    /// Figures of the logs that this shard drives.
    #[must_use]
    pub fn log_figures(&self) -> LogFigures {
        self.journal.figures()
    }
}
