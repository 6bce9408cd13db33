//! One request that is being answered: who asks, for what, and the way to the broker.

use super::Api;
use super::access::Login;
use super::body::Fields;
use super::failure::Failure;
use super::output::Output;
use super::path::Parameters;
use super::request::Request;
use lepus_base::{ShardId, VhostId};
use lepus_broker::directory::{Directory, Request as Change, VhostInfo};
use lepus_broker::{Answer, Query};
use std::collections::HashSet;
use std::sync::RwLockReadGuard;

/// A request whose path and rights are known.
pub(crate) struct Context<'a> {
    pub(crate) api: &'a Api,
    pub(crate) request: &'a Request,
    pub(crate) login: Login,
    /// What the path has at the places of the pattern's names.
    pub(crate) names: Vec<String>,
    pub(crate) query: Parameters,
    /// Where a long list goes; `None` where the answer is wanted as a value.
    pub(crate) output: Option<&'a dyn Output>,
}

impl Context<'_> {
    /// The name at a place of the path's pattern.
    pub(crate) fn name(&self, place: usize) -> &str {
        &self.names[place]
    }

    /// The same for an exchange, whose default one has a name in paths.
    pub(crate) fn exchange_name(&self, place: usize) -> &str {
        match self.name(place) {
            "amq.default" => "",
            name => name,
        }
    }

    /// The body's fields.
    ///
    /// # Errors
    /// 400 for what is no JSON object.
    pub(crate) fn fields(&self) -> Result<Fields, Failure> {
        Fields::read(&self.request.body)
    }

    /// The directory as it is now; not to be held while the broker is asked for something.
    pub(crate) fn directory(&self) -> RwLockReadGuard<'_, Directory> {
        self.api.mirror.directory()
    }

    /// The virtual host of that name, in which the user has to have any permission.
    ///
    /// # Errors
    /// 404 where there is none, and where the user may not know.
    pub(crate) fn vhost(&self, directory: &Directory, name: &str) -> Result<VhostId, Failure> {
        let vhost = directory.vhost(name).ok_or_else(Failure::not_found)?;
        if !self.login.may_enter(directory.accounts(), vhost) {
            return Err(Failure::not_found());
        }
        Ok(vhost)
    }

    /// The same for what is to be changed: who asks is told that the virtual host is missing.
    ///
    /// # Errors
    /// 404 where there is none, 401 where the user may not enter it.
    pub(crate) fn vhost_to_change(&self, name: &str) -> Result<VhostId, Failure> {
        let directory = self.directory();
        let vhost = directory.vhost(name).ok_or_else(Failure::vhost_not_found)?;
        if !self.login.may_enter(directory.accounts(), vhost) {
            return Err(Failure::not_authorised("User not authorised to access virtual host"));
        }
        Ok(vhost)
    }

    /// The virtual hosts whose objects a list has: that of the path, else that of the header `X-Vhost`, else all that
    /// the user may enter, by name.
    ///
    /// # Errors
    /// 404 for one that is named and not there.
    pub(crate) fn vhosts<'d>(
        &self,
        directory: &'d Directory,
        of_path: Option<&str>,
    ) -> Result<Vec<&'d VhostInfo>, Failure> {
        let header = self.request.vhost.as_deref().filter(|name| !name.is_empty());
        if let Some(name) = of_path.or(header) {
            let vhost = self.vhost(directory, name)?;
            return Ok(directory.vhost_info(vhost).into_iter().collect());
        }
        let accounts = directory.accounts();
        let all = accounts.vhosts();
        Ok(all.filter(|vhost| self.login.may_enter(accounts, vhost.id)).collect())
    }

    /// The same by their ids, which is how lists of what is in them are asked for.
    ///
    /// # Errors
    /// As with [`Context::vhosts`].
    pub(crate) fn vhost_ids(
        &self,
        directory: &Directory,
        of_path: Option<&str>,
    ) -> Result<Vec<VhostId>, Failure> {
        Ok(self.vhosts(directory, of_path)?.into_iter().map(|vhost| vhost.id).collect())
    }

    /// The names of the same, for lists of what is not in the directory.
    ///
    /// # Errors
    /// As with [`Context::vhosts`].
    pub(crate) fn vhost_names(&self, of_path: Option<&str>) -> Result<HashSet<Box<str>>, Failure> {
        let directory = self.directory();
        let vhosts = self.vhosts(&directory, of_path)?;
        Ok(vhosts.into_iter().map(|vhost| (*vhost.name).into()).collect())
    }

    /// Asks a shard.
    ///
    /// # Errors
    /// 503 where it does not answer.
    pub(crate) fn ask(&self, shard: ShardId, query: Query) -> Result<Answer, Failure> {
        self.api.broker.ask(shard, query).map_err(Failure::unavailable)
    }

    /// Changes the directory, if the user may; returns when the own copy has the change, too.
    ///
    /// # Errors
    /// What the directory refuses, 503 where shard 0 does not answer.
    pub(crate) fn change(&self, change: Change) -> Result<(), Failure> {
        if let Some(user) = &self.login.user {
            self.directory().authorize_request(user, &change)?;
        }
        self.administer(change)
    }

    /// The same for what no permission is needed but the tag that was asked for.
    ///
    /// # Errors
    /// As with [`Context::change`].
    pub(crate) fn administer(&self, change: Change) -> Result<(), Failure> {
        match self.ask(ShardId(0), Query::Change(change))? {
            Answer::Changed(result) => result?,
            other => unreachable!("a change is answered with {other:?}"),
        }
        self.catch_up();
        Ok(())
    }

    /// Makes sure that the own copy has what was done before.
    pub(crate) fn catch_up(&self) {
        self.api.mirror.catch_up();
    }
}
