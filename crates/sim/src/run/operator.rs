//! An operator who changes users, virtual hosts and permissions: what was answered is there after
//! every end of the process, and of what was asked and not answered all or nothing.
//!
//! Everything that is asked is answered while the process lives: a question when everything is quiet at the
//! latest, a change once the disk is well and everything is quiet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc;

use lepus_base::Rng;
use lepus_broker::directory::{Directory, Request, VhostRef};
use lepus_broker::user::{HashingAlgorithm, PasswordHash};
use lepus_broker::vhost::VhostMetadata;
use lepus_broker::{Answer, Query};

use super::question::{self, LISTS, Listing, fits};
use super::{Run, trace};
use crate::actor::Verdict;
use crate::shards::Shards;

/// How the operator's users and virtual hosts are called.
const PREFIX: &str = "op-";

/// Lists that are asked for at once in the middle of a run.
const LISTS_AT_ONCE: u64 = 3;

/// One change that the operator asks for. The last part is what makes it differ from others.
#[derive(Clone, Debug)]
enum Wish {
    PutUser(String, String),
    DeleteUser(String),
    PutVhost(String, String),
    DeleteVhost(String),
    Permit(String, String, String),
    Forbid(String, String),
    /// The exchange comes before what makes it differ.
    Restrict(String, String, String, String),
}

impl Wish {
    fn request(&self) -> Request {
        match self.clone() {
            Wish::PutUser(name, mark) => Request::PutUser {
                name,
                password: PasswordHash::new(HashingAlgorithm::Sha256, b"secret", [3; 4]),
                tags: vec![mark.into()],
            },
            Wish::DeleteUser(name) => Request::DeleteUser { name },
            Wish::PutVhost(name, mark) => Request::CreateVhost {
                name,
                metadata: VhostMetadata { description: mark.into(), ..VhostMetadata::default() },
            },
            Wish::DeleteVhost(name) => Request::DeleteVhost { name },
            Wish::Permit(user, vhost, mark) => Request::SetPermission {
                user,
                vhost: VhostRef::Name(vhost.into()),
                configure: mark.clone(),
                write: mark.clone(),
                read: mark,
            },
            Wish::Forbid(user, vhost) => {
                Request::ClearPermission { user, vhost: VhostRef::Name(vhost.into()) }
            }
            Wish::Restrict(user, vhost, exchange, mark) => Request::SetTopicPermission {
                user,
                vhost: VhostRef::Name(vhost.into()),
                exchange,
                write: mark.clone(),
                read: mark,
            },
        }
    }
}

/// Users, virtual hosts and permissions of the operator's, each with what makes it differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Accounts {
    users: BTreeMap<String, String>,
    vhosts: BTreeMap<String, String>,
    permissions: BTreeMap<(String, String), String>,
    restrictions: BTreeMap<(String, String, String), String>,
}

impl Accounts {
    /// What a directory has.
    fn of(directory: &Directory) -> Accounts {
        let mut found = Accounts::default();
        for user in directory.accounts().users().filter(|user| user.name.starts_with(PREFIX)) {
            let mark = user.tags.first().map(ToString::to_string).unwrap_or_default();
            found.users.insert(user.name.to_string(), mark);
        }
        for vhost in directory.accounts().vhosts().filter(|vhost| vhost.name.starts_with(PREFIX)) {
            found.vhosts.insert(vhost.name.to_string(), vhost.metadata.description.to_string());
        }
        for (user, vhost, permission) in directory.accounts().permissions() {
            if user.starts_with(PREFIX) {
                let key = (user.to_owned(), vhost.name.to_string());
                found.permissions.insert(key, permission.read.text().to_owned());
            }
        }
        for (user, vhost, exchange, permission) in directory.accounts().topic_permissions() {
            if user.starts_with(PREFIX) {
                let key = (user.to_owned(), vhost.name.to_string(), exchange.to_owned());
                found.restrictions.insert(key, permission.read.text().to_owned());
            }
        }
        found
    }

    fn apply(&mut self, wish: &Wish) {
        match wish.clone() {
            Wish::PutUser(name, mark) => {
                self.users.insert(name, mark);
            }
            Wish::DeleteUser(name) => {
                self.users.remove(&name);
                self.permissions.retain(|(user, _), _| *user != name);
                self.restrictions.retain(|(user, ..), _| *user != name);
            }
            Wish::PutVhost(name, mark) => {
                self.vhosts.insert(name, mark);
            }
            Wish::DeleteVhost(name) => {
                self.vhosts.remove(&name);
                self.permissions.retain(|(_, vhost), _| *vhost != name);
                self.restrictions.retain(|(_, vhost, _), _| *vhost != name);
            }
            Wish::Permit(user, vhost, mark) => {
                self.permissions.insert((user, vhost), mark);
            }
            Wish::Forbid(user, vhost) => {
                self.permissions.remove(&(user, vhost));
            }
            Wish::Restrict(user, vhost, exchange, mark) => {
                self.restrictions.insert((user, vhost, exchange), mark);
            }
        }
    }

    /// Something that can be asked for.
    fn wish(&self, rng: &mut Rng, mark: String) -> Wish {
        let user = format!("{PREFIX}user-{}", rng.below(3));
        let vhost = format!("{PREFIX}vhost-{}", rng.below(2));
        let (has_user, has_vhost) =
            (self.users.contains_key(&user), self.vhosts.contains_key(&vhost));
        match rng.below(8) {
            0 if has_user => Wish::DeleteUser(user),
            1 if has_vhost => Wish::DeleteVhost(vhost),
            2 if self.permissions.contains_key(&(user.clone(), vhost.clone())) => {
                Wish::Forbid(user, vhost)
            }
            3..=5 if has_user && has_vhost => Wish::Permit(user, vhost, mark),
            6 => Wish::PutVhost(vhost, mark),
            _ if has_user && !has_vhost => Wish::PutVhost(vhost, mark),
            _ => Wish::PutUser(user, mark),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Operator {
    /// Decides what is asked, apart from everything else that a seed decides.
    rng: Rng,
    /// What is there for certain.
    sure: Accounts,
    /// What was asked for and not answered yet, or refused because of the disk, and then without an answer
    /// to wait for: it may be there after the end of the process.
    open: Option<(Wish, Option<mpsc::Receiver<Answer>>)>,
    wishes: u64,
    asked: Option<Asked>,
}

/// A question of which nobody has heard the answer.
#[derive(Debug)]
struct Asked {
    query: Query,
    shard: u16,
    /// What has been said so far, if it is for a part of a list that is asked for to its end.
    listing: Option<Listing>,
    waits: mpsc::Receiver<Answer>,
    answer: Option<Answer>,
}

impl Operator {
    pub(super) fn new(seed: u64) -> Operator {
        Operator {
            rng: Rng::new(seed ^ 0x6f70_6572_6174_6f72),
            sure: Accounts::default(),
            open: None,
            wishes: 0,
            asked: None,
        }
    }

    /// The answer to the last question is taken, if it is there.
    fn take_answer(&mut self) -> Verdict {
        let Some(Asked { query, waits, answer, .. }) = &mut self.asked else { return Ok(()) };
        if answer.is_none() {
            match waits.try_recv() {
                Ok(given) => *answer = Some(given),
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => {
                    return Err(format!("{query:?} is dropped without an answer"));
                }
            }
        }
        Ok(())
    }

    /// Everything is quiet: no question is without an answer.
    pub(super) fn check_asked(&mut self) -> Verdict {
        self.take_answer()?;
        match &self.asked {
            Some(Asked { query, answer: None, .. }) => {
                Err(format!("{query:?} is not answered, though everything is quiet"))
            }
            _ => Ok(()),
        }
    }

    /// Everything is quiet and the disk is well: no change is without an answer.
    fn check_wish(&self) -> Verdict {
        match &self.open {
            Some((wish, Some(_))) => {
                Err(format!("{wish:?} is not answered, though everything is quiet"))
            }
            _ => Ok(()),
        }
    }

    /// The process ends: what it has not answered it never will.
    pub(super) fn lose_answers(&mut self) {
        self.asked = None;
        if let Some((_, answer)) = &mut self.open {
            *answer = None;
        }
    }

    /// The answer to the last question fits, and another one is asked: for the next part of the list, or anything.
    fn ask_something(&mut self, shards: &Shards) -> Verdict {
        self.take_answer()?;
        if let Some(Asked { answer: None, .. }) = &self.asked {
            return Ok(());
        }
        if let Some(Asked { query, shard, listing, answer: Some(answer), .. }) = self.asked.take() {
            if !fits(&query, &answer) {
                return Err(format!("{query:?} is answered with {answer:?}"));
            }
            if let Some(mut listing) = listing {
                match listing.go_on(&query, &answer) {
                    Some(next) => return self.ask(shards, shard, next, Some(listing)),
                    None => listing.check(shards, &query)?,
                }
            }
        }
        let shard = self.rng.below(shards.len() as u64) as u16;
        if self.rng.chance(1, 2) {
            let kind = self.rng.below(LISTS);
            let query = question::list(kind, &mut self.rng);
            let listing = Listing::begin(shards, shard, &query);
            return self.ask(shards, shard, query, Some(listing));
        }
        let query = question::any(&mut self.rng);
        self.ask(shards, shard, query, None)
    }

    fn ask(
        &mut self,
        shards: &Shards,
        shard: u16,
        query: Query,
        listing: Option<Listing>,
    ) -> Verdict {
        let waits = shards.ask(shard, query.clone());
        self.asked = Some(Asked { query, shard, listing, waits, answer: None });
        Ok(())
    }

    /// Everything is quiet: a few lists say what there is.
    pub(super) fn check_some_lists(&mut self, shards: &mut Shards) -> Verdict {
        let first = self.rng.below(LISTS);
        self.check_lists(shards, first..first + LISTS_AT_ONCE)
    }

    /// The same of lists of these kinds.
    pub(super) fn check_lists(&mut self, shards: &mut Shards, kinds: Range<u64>) -> Verdict {
        for kind in kinds {
            let mut query = question::list(kind % LISTS, &mut self.rng);
            let shard = self.rng.below(shards.len() as u64) as u16;
            trace(format!("{query:?} is asked of shard {shard} to its end"));
            let mut listing = Listing::begin(shards, shard, &query);
            loop {
                let waits = shards.ask(shard, query.clone());
                shards.run_to_rest()?;
                let answer = waits.try_recv().map_err(|_| format!("{query:?} is not answered"))?;
                if !fits(&query, &answer) {
                    return Err(format!("{query:?} is answered with {answer:?}"));
                }
                match listing.go_on(&query, &answer) {
                    Some(next) => query = next,
                    None => break,
                }
            }
            listing.check_all(shards, &query)?;
        }
        Ok(())
    }

    /// Some wishes for permissions are for topic permissions instead.
    fn vary(&mut self, wish: Wish) -> Wish {
        match wish {
            Wish::Permit(user, vhost, mark) if self.rng.chance(1, 2) => {
                let exchange = format!("x{}", self.rng.below(3));
                Wish::Restrict(user, vhost, exchange, mark)
            }
            other => other,
        }
    }
}

impl Run {
    /// The operator hears the answer to the last wish, or has another one.
    pub(super) fn operate(&mut self) -> Verdict {
        self.hear_operator()?;
        self.operator.ask_something(&self.shards)?;
        if self.operator.open.is_some() {
            return Ok(());
        }
        self.operator.wishes += 1;
        let wish = self.operator.sure.wish(&mut self.rng, self.operator.wishes.to_string());
        let wish = self.operator.vary(wish);
        trace(format!("an operator asks for {wish:?}"));
        let answer = self.shards.ask(0, Query::Change(wish.request()));
        self.operator.open = Some((wish, Some(answer)));
        Ok(())
    }

    pub(super) fn hear_operator(&mut self) -> Verdict {
        let Some((wish, answer)) = &mut self.operator.open else { return Ok(()) };
        match answer.as_ref().map(mpsc::Receiver::try_recv) {
            Some(Ok(Answer::Changed(Ok(())))) => {
                self.operator.sure.apply(wish);
                self.operator.open = None;
            }
            Some(Ok(Answer::Changed(Err(refusal)))) => {
                let fills = self.plan.disk.as_ref().is_some_and(|disk| disk.fills);
                if !fills && !self.shards.definitions_failed() {
                    return Err(format!("an operator is refused {wish:?}: {}", refusal.reply()));
                }
                *answer = None;
            }
            Some(Ok(other)) => return Err(format!("{wish:?} is answered with {other:?}")),
            Some(Err(mpsc::TryRecvError::Disconnected)) => {
                return Err(format!("{wish:?} is dropped without an answer"));
            }
            Some(Err(mpsc::TryRecvError::Empty)) | None => {}
        }
        Ok(())
    }

    /// Everything is quiet and the disk is well: whatever was asked is answered.
    pub(super) fn check_answered(&mut self) -> Verdict {
        self.hear_operator()?;
        self.operator.check_asked()?;
        self.operator.check_wish()
    }

    /// What the operator was told is there on every shard, and nothing else.
    pub(super) fn check_accounts(&mut self) -> Verdict {
        self.hear_operator()?;
        let mut expected = vec![self.operator.sure.clone()];
        if let Some((wish, _)) = &self.operator.open {
            let mut other = self.operator.sure.clone();
            other.apply(wish);
            expected.push(other);
        }
        let found = Accounts::of(&self.shards.broker(0).directory);
        if !expected.contains(&found) {
            return Err(format!(
                "accounts are not as the operator left them: {found:?} is there, {expected:?} was to be"
            ));
        }
        if self.shards.brokers().any(|broker| Accounts::of(&broker.directory) != found) {
            return Err("shards differ about accounts".into());
        }
        Ok(())
    }

    /// A new process has started: whatever is there counts from now on.
    pub(super) fn begin_accounts(&mut self) -> Verdict {
        self.check_accounts()?;
        self.operator.open = None;
        self.operator.sure = Accounts::of(&self.shards.broker(0).directory);
        Ok(())
    }
}
