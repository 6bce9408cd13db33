//! Parameters: what operators tell parts of the broker, and tools each other, as JSON text that the directory keeps
//! and does not read.

use crate::accounts::Accounts;
use crate::change::{Change, Checked};
use crate::request::Request;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::ops::Bound;
use lepus_base::VhostId;
use lepus_queue::refusal::{Refusal, RefusalKind};

/// Longest name of a component or a parameter in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Bytes that a parameter takes beside its name and its value, about.
const ENTRY_BYTES: usize = 128;

/// By virtual host, component and name.
pub(crate) type Key = (VhostId, Box<str>, Box<str>);

/// A parameter of a part of the broker in a virtual host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterInfo<'a> {
    /// The part of the broker: `shovel`, `federation-upstream`.
    pub component: &'a str,
    /// Where.
    pub vhost: VhostId,
    /// Its name.
    pub name: &'a str,
    /// JSON text, as it was set.
    pub value: &'a str,
}

/// The parameters of all virtual hosts, and those of the whole broker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    by_key: BTreeMap<Key, Arc<str>>,
    global: BTreeMap<Box<str>, Arc<str>>,
    /// Bytes of the values, which all shards share.
    shared_bytes: usize,
}

impl Parameters {
    /// How many there are, those of the whole broker included.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len() + self.global.len()
    }

    /// About how many bytes they take on one of so many shards.
    pub(crate) fn bytes(&self, shards: usize) -> usize {
        self.len() * ENTRY_BYTES + self.shared_bytes / shards.max(1)
    }

    /// The JSON text of a parameter.
    pub(crate) fn find(&self, vhost: VhostId, component: &str, name: &str) -> Option<&str> {
        let key = (vhost, component.into(), name.into());
        self.by_key.get(&key).map(|value| &**value)
    }

    /// Those of a virtual host by component and name.
    pub(crate) fn list(&self, vhost: VhostId) -> impl Iterator<Item = ParameterInfo<'_>> {
        let first = (vhost, Box::from(""), Box::from(""));
        let found = self.by_key.range(first..).take_while(move |((other, ..), _)| *other == vhost);
        found.map(|((vhost, component, name), value)| ParameterInfo {
            component,
            vhost: *vhost,
            name,
            value,
        })
    }

    /// The JSON text of a parameter of the whole broker.
    pub(crate) fn find_global(&self, name: &str) -> Option<&str> {
        self.global.get(name).map(|value| &**value)
    }

    /// Those of the whole broker by name, with their JSON texts.
    pub(crate) fn list_global(&self) -> impl Iterator<Item = (&str, &str)> {
        self.global.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Which change fulfils a request about parameters.
    ///
    /// # Errors
    /// Why not, for whoever asks.
    pub(crate) fn check(&self, request: &Request, accounts: &Accounts) -> Result<Checked, Refusal> {
        let change = match request {
            Request::SetParameter { vhost, component, name, value } => {
                let vhost = accounts.resolve(vhost)?.id;
                check_name("component", component)?;
                check_name("parameter", name)?;
                if self.find(vhost, component, name) == Some(&**value) {
                    return Ok(Checked::Already(None));
                }
                let (component, name) = (component.as_str().into(), name.as_str().into());
                Change::ParameterSet { vhost, component, name, value: value.as_str().into() }
            }
            Request::ClearParameter { vhost, component, name } => {
                let vhost = accounts.resolve(vhost)?;
                if self.find(vhost.id, component, name).is_none() {
                    let vhost = &vhost.name;
                    let what = format!("parameter '{name}' of component '{component}'");
                    return Err(not_found(&format!("{what} in vhost '{vhost}'")));
                }
                let (component, name) = (component.as_str().into(), name.as_str().into());
                Change::ParameterCleared { vhost: vhost.id, component, name }
            }
            Request::SetGlobalParameter { name, value } => {
                check_name("global parameter", name)?;
                if self.find_global(name) == Some(&**value) {
                    return Ok(Checked::Already(None));
                }
                let (name, value) = (name.as_str().into(), value.as_str().into());
                Change::GlobalParameterSet { name, value }
            }
            Request::ClearGlobalParameter { name } => {
                if self.find_global(name).is_none() {
                    return Err(not_found(&format!("global parameter '{name}'")));
                }
                Change::GlobalParameterCleared { name: name.as_str().into() }
            }
            _ => return Ok(Checked::Already(None)),
        };
        Ok(Checked::Change(change))
    }

    /// Applies a change of parameters; their virtual host is there.
    pub(crate) fn apply(&mut self, change: &Change) {
        let before = match change {
            Change::ParameterSet { vhost, component, name, value } => {
                self.shared_bytes += value.len();
                let key = (*vhost, component.clone(), name.clone());
                self.by_key.insert(key, Arc::clone(value))
            }
            Change::ParameterCleared { vhost, component, name } => {
                self.by_key.remove(&(*vhost, component.clone(), name.clone()))
            }
            Change::GlobalParameterSet { name, value } => {
                self.shared_bytes += value.len();
                self.global.insert(name.clone(), Arc::clone(value))
            }
            Change::GlobalParameterCleared { name } => self.global.remove(name),
            _ => None,
        };
        self.shared_bytes -= before.map_or(0, |value| value.len());
    }

    /// A virtual host is gone, and its parameters with it.
    pub(crate) fn forget_vhost(&mut self, vhost: VhostId) {
        let first = (vhost, Box::from(""), Box::from(""));
        let mut own = self.by_key.split_off(&first);
        let behind = (VhostId(vhost.0.saturating_add(1)), Box::from(""), Box::from(""));
        let mut others = if behind.0 == vhost { BTreeMap::new() } else { own.split_off(&behind) };
        self.by_key.append(&mut others);
        self.shared_bytes -= own.values().map(|value| value.len()).sum::<usize>();
    }

    /// The parameter of a virtual host next after this one, with its JSON text.
    pub(crate) fn behind(&self, last: Option<&Key>) -> Option<(&Key, &Arc<str>)> {
        let first = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_key.range::<Key, _>((first, Bound::Unbounded)).next()
    }

    /// The parameter of the whole broker next after this one, with its JSON text.
    pub(crate) fn global_behind(&self, last: Option<&str>) -> Option<(&str, &Arc<str>)> {
        let first = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self.global.range::<str, _>((first, Bound::Unbounded));
        behind.next().map(|(name, value)| (&**name, value))
    }
}

fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let text = format!("{what} name has to have 1 to {NAME_BYTES_MAX} bytes");
        return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
    }
    Ok(())
}

fn not_found(what: &str) -> Refusal {
    let text: String = format!("{what} not found");
    Refusal::new(RefusalKind::NotFound, text)
}
