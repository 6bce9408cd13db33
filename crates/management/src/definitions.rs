//! Definitions files: users, virtual hosts, permissions, exchanges, queues and bindings as JSON in
//! RabbitMQ's format.
//!
//! A file becomes a list of directory requests in the order in which they must be carried out. The
//! import adds: what exists already stays as it is. Keys that are not known are passed over; what is
//! known and cannot be applied (policies, parameters) is named in [`Definitions::skipped`].

mod field;
mod item;

use field::Place;
use lepus_base::ShardId;
use lepus_broker::directory::Request;
use serde_json::Value;
use std::fmt;

/// A file, read.
#[derive(Debug, Default)]
pub struct Definitions {
    /// What to carry out, in order.
    pub requests: Vec<Step>,
    /// What the file has and the broker does not apply, one sentence each.
    pub skipped: Vec<String>,
}

/// One request and where the file says so.
#[derive(Debug)]
pub struct Step {
    /// Path inside the file: `queues[3]`.
    pub path: String,
    /// The request.
    pub request: Request,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionsError {
    /// Path inside the file, empty for the file as a whole.
    pub path: String,
    /// What is wrong there.
    pub text: String,
}

impl fmt::Display for DefinitionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.text)
        } else {
            write!(f, "{}: {}", self.path, self.text)
        }
    }
}

impl std::error::Error for DefinitionsError {}

/// Who imports: what the file leaves open.
#[derive(Clone, Debug)]
pub struct Importer {
    /// Shards over which the queues of the file are spread.
    pub shards: u16,
    /// The user that owns what the file declares.
    pub user: String,
    /// The virtual host of a file that was exported for a single one.
    pub vhost: String,
}

impl Importer {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its path in the file.
    pub fn read(&self, content: &str) -> Result<Definitions, DefinitionsError> {
        let root: Value = serde_json::from_str(content).map_err(|error| DefinitionsError {
            path: String::new(),
            text: format!("not valid JSON: {error}"),
        })?;
        let root = Place::root(&root);
        if !root.value().is_object() {
            return Err(root.wrong("expected an object with users, vhosts, queues and so on"));
        }
        let single = root.text_or("rabbitmq_definition_format", "")? == "single_virtual_host";
        let mut definitions = Definitions::default();
        if single {
            let metadata = item::metadata(&root)?;
            definitions.push(&root, item::create_vhost(&self.vhost, metadata));
        }
        let vhost = single.then_some(self.vhost.as_str());
        self.collect(&root, vhost, &mut definitions)?;
        definitions.note_skipped(&root)?;
        Ok(definitions)
    }

    /// Takes the lists of the file in the order in which one needs the other.
    fn collect(
        &self,
        root: &Place<'_>,
        vhost: Option<&str>,
        definitions: &mut Definitions,
    ) -> Result<(), DefinitionsError> {
        for place in root.list("users")? {
            let request = item::user(&place)?;
            definitions.push(&place, request);
            if let Some(limits) = item::user_limits(&place)? {
                definitions.push(&place, limits);
            }
        }
        for place in root.list("vhosts")? {
            let request = item::vhost(&place)?;
            definitions.push(&place, request);
            if let Some(limits) = item::vhost_limits(&place)? {
                definitions.push(&place, limits);
            }
        }
        for place in root.list("permissions")? {
            let request = item::permission(&place, vhost)?;
            definitions.push(&place, request);
        }
        for place in root.list("topic_permissions")? {
            let request = item::topic_permission(&place, vhost)?;
            definitions.push(&place, request);
        }
        for place in root.list("parameters")? {
            if place.text("component")? == "vhost-limits"
                && let Some(limits) = place.get("value")
            {
                let vhost = item::vhost_of(&place, vhost)?;
                let request = item::set_vhost_limits(&limits, vhost)?;
                definitions.push(&place, request);
            }
        }
        for (index, place) in root.list("queues")?.enumerate() {
            let shard = ShardId((index % usize::from(self.shards.max(1))) as u16);
            let request = item::queue(&place, vhost, shard, &self.user)?;
            definitions.push(&place, request);
        }
        for place in root.list("exchanges")? {
            let request = item::exchange(&place, vhost)?;
            definitions.push(&place, request);
        }
        for place in root.list("bindings")? {
            let request = item::binding(&place, vhost)?;
            definitions.push(&place, request);
        }
        Ok(())
    }
}

impl Definitions {
    fn push(&mut self, place: &Place<'_>, request: Request) {
        let path = place.path();
        self.requests.push(Step { path, request });
    }

    /// Names what the file has and nobody applies.
    fn note_skipped(&mut self, root: &Place<'_>) -> Result<(), DefinitionsError> {
        for place in root.list("policies")? {
            let (name, vhost) = (place.text("name")?, place.text_or("vhost", "/")?);
            let text =
                format!("policy {name:?} of vhost {vhost:?} is not applied: there are no policies");
            self.skipped.push(text);
        }
        for place in root.list("parameters")? {
            let (component, name) = (place.text("component")?, place.text("name")?);
            if component != "vhost-limits" {
                let text = format!("parameter {name:?} of component {component:?} is not applied");
                self.skipped.push(text);
            }
        }
        for place in root.list("global_parameters")? {
            let name = place.text("name")?;
            // These two only name the exporting cluster.
            if name != "cluster_name" && name != "internal_cluster_id" {
                self.skipped.push(format!("global parameter {name:?} is not applied"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
