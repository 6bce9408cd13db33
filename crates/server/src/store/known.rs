//! Whose messages are in a log: the definitions, looked at as a start does.

use super::drive::View;
use super::{Failure, logs_below};
use crate::definitions::{has_run, lost, unusable};
use crate::random;
use lepus_base::{Now, QueueId};
use lepus_broker::definitions::{DefinitionsLog, Draft, LOG};
use lepus_broker::directory::Directory;
use lepus_broker::journal::{Standing, standing};
use lepus_store::Damage;
use lepus_store::disk::LogId;
use std::path::Path;

/// Where queues live does not matter here; a shard is needed to say it.
const SHARDS: u16 = 1;

/// What the definitions of a data directory say.
#[derive(Debug)]
pub(super) enum Known {
    /// They can be used.
    Read {
        directory: Box<Directory>,
        /// Ids that were deleted, in growing order.
        deleted: Vec<QueueId>,
    },
    /// A start refuses them.
    Unreadable {
        /// What of them cannot be read.
        damages: Vec<Damage>,
        /// What the start says.
        text: String,
    },
}

impl Known {
    /// Reads them; nothing is written.
    ///
    /// # Errors
    /// When the directory cannot be listed, or the system has no random numbers.
    pub(super) fn look(directory: &Path) -> Result<Known, Failure> {
        let found = logs_below(directory, Some(LOG))?;
        let mut view = View::new(directory, found.first());
        let settings = DefinitionsLog::settings();
        let hash = random::hash_state().map_err(Failure::Text)?;
        let now = Now::from_millis(1);
        let looked = Draft::look(settings, now, hash, SHARDS, &mut |operation| view.run(operation));
        Ok(match looked {
            Ok(draft) if draft.is_new() && has_run(directory) => {
                Known::Unreadable { damages: Vec::new(), text: lost(directory) }
            }
            Ok(draft) => {
                let deleted = draft.deleted().to_vec();
                Known::Read { directory: Box::new(draft.directory), deleted }
            }
            Err(error) => Known::Unreadable {
                damages: error.damages().to_vec(),
                text: unusable(directory, &error, view.disk()),
            },
        })
    }

    /// What they say of a queue with messages in a log; `None` if they cannot be read.
    pub(super) fn standing(&self, log: LogId, queue: QueueId) -> Option<Standing> {
        match self {
            Known::Read { directory, deleted } => Some(standing(directory, deleted, log, queue)),
            Known::Unreadable { .. } => None,
        }
    }

    /// The queue in words.
    pub(super) fn name(&self, queue: QueueId) -> String {
        if let Known::Read { directory, .. } = self
            && let Some(info) = directory.queue_by_id(queue)
        {
            let vhost = directory.vhost_name(info.vhost);
            return format!("queue '{}' in virtual host '{vhost}'", info.name());
        }
        format!("queue {}", queue.0)
    }
}
