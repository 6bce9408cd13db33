//! What the sessions of a shard may touch of it.

use crate::connections::Connections;
use crate::directory::Directory;
use crate::homes::{HomeSide, Homes};
use crate::journal::Journal;
use crate::owner::Owner;
use crate::sessions::Sessions;
use crate::shard::Shard;

/// The sessions of a shard at work: what they own, and what they may touch of the shard.
///
/// They call the homes where an answer is needed at once: a message that is published, a delivery that is settled in
/// a row. What the homes own is theirs; all else goes to them as mail.
pub(crate) struct SessionSide<'a> {
    pub sessions: &'a mut Sessions,
    pub connections: &'a mut Connections,
    pub homes: &'a mut Homes,
    pub journal: &'a mut Journal,
    pub shard: &'a mut Shard,
    pub directory: &'a mut Directory,
}

impl SessionSide<'_> {
    /// The homes at work.
    #[inline]
    pub(crate) fn home(&mut self) -> HomeSide<'_> {
        HomeSide {
            homes: self.homes,
            journal: self.journal,
            shard: self.shard,
            directory: self.directory,
            connections: self.connections,
        }
    }

    /// Whether all mail that came is applied.
    pub(crate) fn has_applied_mail(&self) -> bool {
        let (sessions, homes) = (self.sessions.owners(), self.homes.owners());
        let mut all = sessions.into_iter().chain(homes).chain(self.shard.owners());
        !all.any(|owner: &dyn Owner| owner.holds_mail())
    }
}
