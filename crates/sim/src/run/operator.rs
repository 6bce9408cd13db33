//! An operator who changes users, virtual hosts and permissions: what was answered is there after
//! every end of the process, and of what was asked and not answered all or nothing.

use std::collections::BTreeMap;
use std::sync::mpsc;

use lepus_base::Rng;
use lepus_broker::directory::{Directory, Request, VhostRef};
use lepus_broker::refusal::Refusal;
use lepus_broker::user::{HashingAlgorithm, PasswordHash};
use lepus_broker::vhost::VhostMetadata;

use super::{Run, trace};
use crate::actor::Verdict;

/// How the operator's users and virtual hosts are called.
const PREFIX: &str = "op-";

/// One change that the operator asks for. The last part is what makes it differ from others.
#[derive(Clone, Debug)]
enum Wish {
    PutUser(String, String),
    DeleteUser(String),
    PutVhost(String, String),
    DeleteVhost(String),
    Permit(String, String, String),
    Forbid(String, String),
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
        }
    }
}

/// Users, virtual hosts and permissions of the operator's, each with what makes it differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Accounts {
    users: BTreeMap<String, String>,
    vhosts: BTreeMap<String, String>,
    permissions: BTreeMap<(String, String), String>,
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
            }
            Wish::PutVhost(name, mark) => {
                self.vhosts.insert(name, mark);
            }
            Wish::DeleteVhost(name) => {
                self.vhosts.remove(&name);
                self.permissions.retain(|(_, vhost), _| *vhost != name);
            }
            Wish::Permit(user, vhost, mark) => {
                self.permissions.insert((user, vhost), mark);
            }
            Wish::Forbid(user, vhost) => {
                self.permissions.remove(&(user, vhost));
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
#[derive(Debug, Default)]
pub(super) struct Operator {
    /// What is there for certain.
    sure: Accounts,
    /// What was asked for and not answered yet, or refused because of the disk: it may be there
    /// after the end of the process.
    open: Option<(Wish, mpsc::Receiver<Result<(), Refusal>>)>,
    wishes: u64,
}

impl Run {
    /// The operator hears the answer to the last wish, or has another one.
    pub(super) fn operate(&mut self) -> Verdict {
        self.hear_operator()?;
        if self.operator.open.is_some() {
            return Ok(());
        }
        self.operator.wishes += 1;
        let wish = self.operator.sure.wish(&mut self.rng, self.operator.wishes.to_string());
        trace(format!("an operator asks for {wish:?}"));
        let answer = self.shards.request(wish.request());
        self.operator.open = Some((wish, answer));
        Ok(())
    }

    pub(super) fn hear_operator(&mut self) -> Verdict {
        let Some((wish, answer)) = &self.operator.open else { return Ok(()) };
        match answer.try_recv() {
            Ok(Ok(())) => {
                self.operator.sure.apply(wish);
                self.operator.open = None;
            }
            Ok(Err(refusal)) => {
                let fills = self.plan.disk.as_ref().is_some_and(|disk| disk.fills);
                if !fills && !self.shards.definitions_failed() {
                    return Err(format!("an operator is refused {wish:?}: {}", refusal.text));
                }
            }
            Err(_) => {}
        }
        Ok(())
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
