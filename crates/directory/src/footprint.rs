//! What a request looks at and changes: whether it may be decided while others, decided before,
//! are not applied yet.

use crate::binding::Destination;
use crate::directory::Directory;
use crate::request::{Request, VhostRef, clean_name};
use core::hash::{BuildHasher, Hasher};
use lepus_base::{HashMap, HashState, VhostId};

/// Sources of one deletion that are told apart; one with more waits for everything before it.
const SOURCES_MAX: usize = 64;

/// What some requests look at and change.
///
/// Objects are known by the hash of their names. Two with the same hash make one request wait that
/// need not.
#[derive(Debug)]
pub struct Footprint {
    /// Whether a request changes the object or only looks at it.
    objects: HashMap<u64, bool>,
    /// A request may look at or change anything.
    is_everything: bool,
    /// Objects of the request that is looked at.
    found: alloc::vec::Vec<(u64, bool)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Exchange,
    Queue,
    User,
    Binding,
    Policy,
    Parameter,
}

impl Footprint {
    /// That of no request.
    #[must_use]
    pub fn new(hash: HashState) -> Footprint {
        Footprint {
            objects: HashMap::with_hasher(hash),
            is_everything: false,
            found: alloc::vec::Vec::new(),
        }
    }

    /// Forgets all requests.
    pub fn clear(&mut self) {
        self.objects.clear();
        self.is_everything = false;
    }

    /// Adds a request, unless what `directory` says of it may change by the requests before.
    pub fn add(&mut self, directory: &Directory, request: &Request) -> bool {
        self.found.clear();
        let mut look = Look { directory, found: &mut self.found };
        let Some(()) = look.request(request) else {
            let is_alone = self.objects.is_empty() && !self.is_everything;
            self.is_everything |= is_alone;
            return is_alone;
        };
        let clashes = |(object, changes): &(u64, bool)| {
            self.objects.get(object).is_some_and(|other| *changes || *other)
        };
        if self.is_everything || self.found.iter().any(clashes) {
            return false;
        }
        for &(object, changes) in &self.found {
            *self.objects.entry(object).or_default() |= changes;
        }
        true
    }
}

/// Collects the objects of one request.
struct Look<'a> {
    directory: &'a Directory,
    found: &'a mut alloc::vec::Vec<(u64, bool)>,
}

impl Look<'_> {
    /// `None` for a request that may concern anything.
    fn request(&mut self, request: &Request) -> Option<()> {
        match request {
            Request::DeclareExchange { vhost, name, .. } => {
                let vhost = self.vhost(vhost);
                self.object(Kind::Exchange, vhost, &clean_name(name), true);
            }
            Request::DeleteExchange { vhost, name, .. } => {
                let (vhost, name) = (self.vhost(vhost), clean_name(name));
                self.object(Kind::Exchange, vhost, &name, true);
                self.sources(vhost, &Destination::Exchange(name.into_owned()))?;
            }
            Request::DeclareQueue { vhost, name, .. } => {
                let vhost = self.vhost(vhost);
                self.object(Kind::Queue, vhost, &clean_name(name), true);
            }
            Request::MoveQueue { id, .. } => {
                let info = self.directory.queue_by_id(*id)?;
                self.object(Kind::Queue, info.vhost, info.name(), true);
            }
            Request::DeleteQueue { id } => {
                // One that is not there may be about to appear.
                let info = self.directory.queue_by_id(*id)?;
                self.object(Kind::Queue, info.vhost, info.name(), true);
                self.sources(info.vhost, &Destination::Queue(info.name().into()))?;
            }
            Request::Bind { vhost, source, destination, routing_key, .. }
            | Request::Unbind { vhost, source, destination, routing_key, .. } => {
                let (vhost, source) = (self.vhost(vhost), clean_name(source));
                let binds = matches!(request, Request::Bind { .. });
                let info = self.directory.exchange(vhost, &source);
                if !binds && info.is_some_and(|info| info.auto_delete) {
                    return None;
                }
                self.object(Kind::Exchange, vhost, &source, false);
                let (kind, name) = match destination {
                    Destination::Queue(name) => (Kind::Queue, clean_name(name)),
                    Destination::Exchange(name) => (Kind::Exchange, clean_name(name)),
                };
                self.object(kind, vhost, &name, false);
                // All with this key, whatever their arguments.
                let key = self.hash(kind, vhost, &name) ^ self.hash(Kind::User, vhost, routing_key);
                let source = self.hash(Kind::Binding, vhost, &source);
                self.found.push((source.rotate_left(1) ^ key, true));
            }
            Request::UseIds { .. } => return None,
            Request::PutUser { name, .. }
            | Request::AddUser { name, .. }
            | Request::SetPassword { name, .. }
            | Request::SetTags { name, .. }
            | Request::SetUserLimits { name, .. }
            | Request::SetPermission { user: name, .. }
            | Request::ClearPermission { user: name, .. }
            | Request::SetTopicPermission { user: name, .. }
            | Request::ClearTopicPermission { user: name, .. } => {
                self.object(Kind::User, VhostId(0), name, true);
            }
            // Nothing that is declared depends on them when it is decided.
            Request::SetPolicy { vhost, scope, name, .. }
            | Request::ClearPolicy { vhost, scope, name } => {
                let (vhost, name) = (self.vhost(vhost), alloc::format!("{scope:?} {name}"));
                self.object(Kind::Policy, vhost, &name, true);
            }
            Request::SetParameter { vhost, component, name, .. }
            | Request::ClearParameter { vhost, component, name } => {
                let (vhost, name) = (self.vhost(vhost), alloc::format!("{component} {name}"));
                self.object(Kind::Parameter, vhost, &name, true);
            }
            Request::SetGlobalParameter { name, .. } | Request::ClearGlobalParameter { name } => {
                self.object(Kind::Parameter, VhostId(0), name, true);
            }
            Request::CreateVhost { .. }
            | Request::DeleteVhost { .. }
            | Request::SetTracing { .. }
            | Request::SetVhostLimits { .. }
            | Request::DeleteUser { .. } => return None,
        }
        Some(())
    }

    /// Virtual hosts come and go alone, so one that is not there now will not be.
    fn vhost(&self, vhost: &VhostRef) -> VhostId {
        self.directory.accounts().resolve(vhost).map_or(VhostId(u32::MAX), |info| info.id)
    }

    fn hash(&self, kind: Kind, vhost: VhostId, name: &str) -> u64 {
        let mut hasher = self.directory.hash().build_hasher();
        hasher.write_u64(u64::from(kind as u8) << 32 | u64::from(vhost.0));
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    fn object(&mut self, kind: Kind, vhost: VhostId, name: &str, changes: bool) {
        let object = self.hash(kind, vhost, name);
        self.found.push((object, changes));
    }

    /// The exchanges that lose bindings with the object.
    fn sources(&mut self, vhost: VhostId, of: &Destination) -> Option<()> {
        let topology = self.directory.topology();
        for (vhost, name) in topology.sources_of(topology.target(vhost, of), SOURCES_MAX)? {
            let object = self.hash(Kind::Exchange, vhost, name);
            self.found.push((object, false));
        }
        Some(())
    }
}
