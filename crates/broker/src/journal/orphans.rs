//! Messages in a log whose queue nobody knows, or that the definitions have in another log: they are
//! kept as they are, counted and named, until an operator decides.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use lepus_base::QueueId;
use lepus_store::disk::LogId;

/// Queues named in one line of the log.
const NAMED_MAX: usize = 20;

/// What a log has of queues that are not its own.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    queues: BTreeSet<QueueId>,
    /// Persistent messages in them.
    messages: u64,
}

impl Orphans {
    /// Takes note of a queue with so many messages.
    pub(super) fn add(&mut self, queue: QueueId, messages: u64) {
        self.queues.insert(queue);
        self.messages += messages;
    }

    pub(super) fn has(&self, queue: QueueId) -> bool {
        self.queues.contains(&queue)
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// The lowest id above all of them; `None` where there are none.
    pub(super) fn ids_below(&self) -> Option<u64> {
        Some(self.queues.last()?.0.saturating_add(1))
    }

    /// What an operator is told.
    pub(super) fn text(&self, log: LogId) -> String {
        let (count, messages) = (self.queues.len(), self.messages);
        let mut text = format!(
            "{log} has {messages} messages of {count} queues that the definitions do not have there; \
             they are kept and delivered to nobody: bring back the copy of the definitions that has \
             their queues, or stop the broker and move them to a queue, export or drop them with \
             `lepus store orphans`. Ids of the queues:"
        );
        for queue in self.queues.iter().take(NAMED_MAX) {
            text.push_str(&format!(" {}", queue.0));
        }
        if count > NAMED_MAX {
            text.push_str(&format!(" and {} more", count - NAMED_MAX));
        }
        text
    }
}
