//! Definitions files: users, virtual hosts, permissions, policies, parameters, exchanges, queues and bindings as JSON in
//! RabbitMQ's format.
//!
//! A file becomes a list of directory requests in the order in which they must be carried out. The
//! import adds: queues and exchanges that exist already stay as they are. Keys that are not known are passed over; what is
//! known and has no effect here is named in [`Definitions::skipped`].

mod export;
mod field;
mod item;
mod parameter;
mod policy;

pub use export::{
    global_parameter_value, operator_policy_parameter, parameter_value, policy_value, table_value,
    user_limits_value, vhost_limits_value,
};
use field::Object;
use item::File;
pub use item::{LIMITS, OPERATOR_POLICY, POLICY};
use lepus_base::ShardId;
use lepus_broker::directory::Request;
use lepus_broker::policy::definition::old_keys;
pub use parameter::{SHOVEL_SET_BY, check_parameter, parameter_request};
pub use policy::{Body as PolicyBody, policy_request};
use std::fmt;

/// A file, read.
#[derive(Debug, Default)]
pub struct Definitions {
    /// What to carry out, in order.
    pub requests: Vec<Step>,
    /// What the file has and what has no effect here, one sentence each.
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

/// What is wrong with a value of a policy or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// Path inside the value, empty for the value as a whole.
    pub path: String,
    /// What is wrong there; begins with `Validation failed` where RabbitMQ says so.
    pub text: String,
}

impl ValueError {
    /// What serde found at a path.
    fn of(error: &serde_path_to_error::Error<serde_json::Error>) -> ValueError {
        let path = error.path().to_string();
        ValueError { path: path.trim_start_matches('.').to_owned(), text: plainly(error.inner()) }
    }
}

impl From<String> for ValueError {
    fn from(text: String) -> ValueError {
        ValueError { path: String::new(), text }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.text)
        } else {
            write!(f, "{}: {}", self.path, self.text)
        }
    }
}

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
        let mut file = Importer::parse(content)?;
        let single = file.rabbitmq_definition_format.as_deref() == Some("single_virtual_host");
        let mut definitions = Definitions::default();
        if single {
            let (name, metadata) = (self.vhost.clone(), file.metadata());
            definitions.push("", Request::CreateVhost { name, metadata });
        }
        self.collect(file, single.then_some(self.vhost.as_str()), &mut definitions)?;
        Ok(definitions)
    }

    /// Reads what a file has for a single virtual host that is there.
    ///
    /// # Errors
    /// As with [`Importer::read`].
    pub fn read_for_vhost(&self, content: &str) -> Result<Definitions, DefinitionsError> {
        let file = Importer::parse(content)?;
        let mut definitions = Definitions::default();
        self.collect(file, Some(self.vhost.as_str()), &mut definitions)?;
        Ok(definitions)
    }

    /// The text of a file, without the mark that some editors write before it.
    ///
    /// # Errors
    /// When it is not UTF-8, with the place of the first byte that is not.
    pub fn text(content: &[u8]) -> Result<&str, DefinitionsError> {
        let mark = "\u{feff}".as_bytes();
        let (text, skipped) = match content.strip_prefix(mark) {
            Some(text) => (text, mark.len()),
            None => (content, 0),
        };
        std::str::from_utf8(text).map_err(|error| DefinitionsError {
            path: String::new(),
            text: format!("not UTF-8 at byte {}", skipped + error.valid_up_to()),
        })
    }

    fn parse(content: &str) -> Result<File, DefinitionsError> {
        let mut json = serde_json::Deserializer::from_str(content);
        let file: Result<Object<File>, _> = serde_path_to_error::deserialize(&mut json);
        let Object(file) = file.map_err(|error| {
            let path = error.path().to_string();
            DefinitionsError::of(path.trim_start_matches('.'), error.inner())
        })?;
        json.end().map_err(|error| DefinitionsError::of("", &error))?;
        Ok(file)
    }

    /// Takes the lists of the file in the order in which one needs the other.
    fn collect(
        &self,
        file: File,
        vhost: Option<&str>,
        definitions: &mut Definitions,
    ) -> Result<(), DefinitionsError> {
        for (index, user) in file.users.into_iter().enumerate() {
            let path = format!("users[{index}]");
            let requests = user.requests().map_err(|(field, text)| DefinitionsError {
                path: format!("{path}.{field}"),
                text,
            })?;
            requests.into_iter().for_each(|request| definitions.push(&path, request));
        }
        for (index, vhost) in file.vhosts.into_iter().enumerate() {
            let path = format!("vhosts[{index}]");
            vhost.requests().into_iter().for_each(|request| definitions.push(&path, request));
        }
        let mut limits = Vec::new();
        let mut parameters = Vec::new();
        for (index, parameter) in file.parameters.into_iter().enumerate() {
            let path = format!("parameters[{index}]");
            if !parameter.is_known() {
                definitions.skip_parameter(&parameter);
                continue;
            }
            let list = if parameter.is_limit() { &mut limits } else { &mut parameters };
            match parameter.request(vhost) {
                Ok(request) => list.push(Step { path, request }),
                Err(text) => return Err(DefinitionsError { path, text }),
            }
        }
        definitions.requests.append(&mut limits);
        definitions.extend("permissions", file.permissions, |_, one| one.request(vhost))?;
        definitions.extend("exchanges", file.exchanges, |_, one| one.request(vhost))?;
        definitions
            .extend("topic_permissions", file.topic_permissions, |_, one| one.request(vhost))?;
        definitions.extend("global_parameters", file.global_parameters, |_, one| {
            Ok((!one.is_internal()).then(|| one.request()))
        })?;
        // Queues are born with their policies.
        definitions.extend("policies", file.policies, |_, one| one.request(vhost))?;
        definitions.requests.append(&mut parameters);
        definitions.note_old_keys();
        definitions.extend("queues", file.queues, |index, queue| {
            let shard = ShardId((index % usize::from(self.shards.max(1))) as u16);
            queue.request(vhost, shard, &self.user)
        })?;
        definitions.extend("bindings", file.bindings, |_, one| one.request(vhost))
    }
}

/// An object as a table of AMQP; `null` and an empty list have nothing in them.
///
/// # Errors
/// In words, for what no table can hold.
pub(crate) fn table_of(value: serde_json::Value) -> Result<lepus_amqp::table::Table, String> {
    field::table_of(value)
}

/// An error in words of JSON instead of those of the reader's types.
fn plainly(error: &serde_json::Error) -> String {
    const WORDS: [(&str, &str); 7] = [
        ("invalid type: ", "found "),
        ("expected i64", "expected a whole number"),
        ("expected a string", "expected a text"),
        ("expected a sequence", "expected a list"),
        ("expected a boolean", "expected true or false"),
        ("found map", "found an object"),
        ("found sequence", "found a list"),
    ];
    let text = error.to_string();
    WORDS.into_iter().fold(text, |text, (found, said)| text.replace(found, said))
}

impl DefinitionsError {
    /// What serde found at a path.
    fn of(path: &str, error: &serde_json::Error) -> DefinitionsError {
        if error.is_data() {
            let hint = match path {
                "" => "; a definitions file is an object with users, vhosts, queues and so on",
                _ => "",
            };
            let text = format!("{}{hint}", plainly(error));
            return DefinitionsError { path: path.to_owned(), text };
        }
        DefinitionsError { path: String::new(), text: format!("not valid JSON: {error}") }
    }
}

impl Definitions {
    fn push(&mut self, path: &str, request: Request) {
        self.requests.push(Step { path: path.to_owned(), request });
    }

    /// Takes the requests of a list; of an item that is none there is none.
    fn extend<T, R: Into<Option<Request>>>(
        &mut self,
        list: &str,
        items: Vec<T>,
        request: impl Fn(usize, T) -> Result<R, String>,
    ) -> Result<(), DefinitionsError> {
        for (index, item) in items.into_iter().enumerate() {
            let path = format!("{list}[{index}]");
            match request(index, item).map(Into::into) {
                Ok(Some(request)) => self.push(&path, request),
                Ok(None) => {}
                Err(text) => return Err(DefinitionsError { path, text }),
            }
        }
        Ok(())
    }

    /// Names a parameter that no part of the broker knows.
    fn skip_parameter(&mut self, parameter: &item::Parameter) {
        let (component, name) = (&parameter.component, &parameter.name);
        let text = format!("parameter {name:?} of component {component:?} is not applied");
        self.skipped.push(text);
    }

    /// Names what policies have that is kept and has no effect.
    fn note_old_keys(&mut self) {
        for step in &self.requests {
            let Request::SetPolicy { name, definition, .. } = &step.request else { continue };
            let keys: Vec<&str> = old_keys(definition).collect();
            if !keys.is_empty() {
                let (path, keys) = (&step.path, keys.join(", "));
                let text = format!("{path}: policy {name:?} keeps {keys} without any effect");
                self.skipped.push(text);
            }
        }
    }
}

#[cfg(test)]
mod tests;
