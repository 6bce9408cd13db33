//! What the broker knows before it serves anyone: the first user and virtual host, and what the
//! definitions file says.
//!
//! All of it is decided here, on one copy of the directory, and handed to every shard as the same
//! list of changes. So a file with an error stops the start before a listener opens.

use crate::config::Config;
use crate::random;
use lepus_base::HashState;
use lepus_broker::directory::{
    Change, Checked, Directory, HashingAlgorithm, PasswordHash, Request, VhostMetadata, VhostRef,
};
use lepus_management::definitions::{Definitions, Importer};
use std::path::Path;

/// The state at the start.
#[derive(Debug)]
pub struct Initial {
    /// For every shard, in order.
    pub changes: Vec<Change>,
    /// Users that may log in from this machine only.
    pub loopback_users: Vec<Box<str>>,
    /// What the definitions file has and the broker does not apply, one sentence each.
    pub skipped: Vec<String>,
    /// Whether the default user was created, so that it is worth telling.
    pub has_default_user: bool,
}

/// Decides the state at the start.
///
/// The default user is created unless the definitions file has users, the default virtual host
/// unless it has virtual hosts.
///
/// # Errors
/// For a file that cannot be read or says something impossible, with its path inside the file.
pub fn initial(config: &Config, shards: u16) -> Result<Initial, String> {
    let definitions = match &config.definitions {
        Some(path) => read(config, path, shards)?,
        None => Definitions::default(),
    };
    let requests = || definitions.requests.iter().map(|step| &step.request);
    let has_users = requests().any(|request| matches!(request, Request::PutUser { .. }));
    let has_vhosts = requests().any(|request| matches!(request, Request::CreateVhost { .. }));
    let mut draft =
        Draft { directory: Directory::new(HashState::default(), shards), changes: Vec::new() };
    if !has_vhosts {
        draft.carry_out(&Request::CreateVhost {
            name: config.default_vhost.clone(),
            metadata: VhostMetadata::default(),
        })?;
    }
    if !has_users {
        draft.carry_out(&default_user(config)?)?;
    }
    for step in &definitions.requests {
        let file = config.definitions.as_deref().unwrap_or(Path::new(""));
        draft
            .carry_out(&step.request)
            .map_err(|text| format!("{}: {}: {text}", file.display(), step.path))?;
    }
    if !has_users && draft.directory.vhost(&config.default_vhost).is_some() {
        draft.carry_out(&Request::SetPermission {
            user: config.default_user.clone(),
            vhost: VhostRef::from(config.default_vhost.as_str()),
            configure: ".*".to_owned(),
            write: ".*".to_owned(),
            read: ".*".to_owned(),
        })?;
    }
    let loopback_only = config.default_loopback_only.then(|| config.default_user.as_str().into());
    Ok(Initial {
        changes: draft.changes,
        loopback_users: loopback_only.into_iter().collect(),
        skipped: definitions.skipped,
        has_default_user: !has_users,
    })
}

fn read(config: &Config, path: &Path, shards: u16) -> Result<Definitions, String> {
    let content = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the definitions file {}: {error}", path.display()))?;
    let importer =
        Importer { shards, user: config.default_user.clone(), vhost: config.default_vhost.clone() };
    importer.read(&content).map_err(|error| format!("{}: {error}", path.display()))
}

fn default_user(config: &Config) -> Result<Request, String> {
    let salt = random::bytes().map_err(|error| format!("no random salt: {error}"))?;
    let password = config.default_password.as_bytes();
    Ok(Request::PutUser {
        name: config.default_user.clone(),
        password: PasswordHash::new(HashingAlgorithm::Sha256, password, salt),
        tags: vec!["administrator".into()],
    })
}

struct Draft {
    directory: Directory,
    changes: Vec<Change>,
}

impl Draft {
    fn carry_out(&mut self, request: &Request) -> Result<(), String> {
        match self.directory.check(request) {
            Ok(Checked::Already(_)) => Ok(()),
            Ok(Checked::Change(change)) => {
                self.directory.apply(&change);
                self.changes.push(change);
                Ok(())
            }
            Err(refusal) => Err(refusal.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn directory(initial: &Initial) -> Directory {
        let mut directory = Directory::new(HashState::new(7), 2);
        directory.set_loopback_users(initial.loopback_users.clone());
        for change in &initial.changes {
            directory.apply(change);
        }
        directory
    }

    fn with_file(content: &str) -> Result<Initial, String> {
        let root = Scratch::new("definitions");
        let path = root.path().join("definitions.json");
        std::fs::write(&path, content).unwrap();
        let config = Config { definitions: Some(path), ..Config::preset() };
        initial(&config, 2)
    }

    #[test]
    fn without_a_file_there_is_the_default_user() {
        let directory = directory(&initial(&Config::preset(), 2).unwrap());
        let vhost = directory.vhost("/").unwrap();
        assert!(directory.authenticate("guest", b"guest", true).is_ok());
        assert!(directory.authenticate("guest", b"guest", false).is_err());
        assert!(directory.authenticate("guest", b"other", true).is_err());
        assert!(directory.may_open("guest", vhost));
    }

    #[test]
    fn the_default_user_may_be_let_in_from_elsewhere() {
        let config = Config {
            default_user: "admin".to_owned(),
            default_password: "secret".to_owned(),
            default_vhost: "work".to_owned(),
            default_loopback_only: false,
            ..Config::preset()
        };
        let directory = directory(&initial(&config, 1).unwrap());
        assert!(directory.authenticate("admin", b"secret", false).is_ok());
        assert!(directory.vhost("/").is_none());
        assert!(directory.may_open("admin", directory.vhost("work").unwrap()));
    }

    #[test]
    fn a_definitions_file_stands_for_the_defaults() {
        let hash = PasswordHash::new(HashingAlgorithm::Sha256, b"pw", [1, 2, 3, 4]).to_base64();
        let content = format!(
            r#"{{"users": [{{"name": "shop", "password_hash": "{hash}", "tags": []}}],
                "vhosts": [{{"name": "v"}}],
                "permissions": [{{"user": "shop", "vhost": "v", "configure": ".*", "write": ".*", "read": ".*"}}],
                "queues": [{{"name": "q", "vhost": "v", "durable": true, "auto_delete": false, "arguments": {{"x-max-length": 3}}}}],
                "exchanges": [{{"name": "x", "vhost": "v", "type": "topic", "durable": true, "auto_delete": false, "internal": false, "arguments": {{}}}}],
                "bindings": [{{"source": "x", "vhost": "v", "destination": "q", "destination_type": "queue", "routing_key": "all", "arguments": {{}}}}],
                "policies": [{{"name": "p", "vhost": "v"}}]}}"#
        );
        let initial = with_file(&content).unwrap();
        assert_eq!(initial.skipped.len(), 1);
        assert!(!initial.has_default_user);
        let directory = directory(&initial);
        assert!(directory.user("guest").is_none());
        assert!(directory.authenticate("shop", b"pw", false).is_ok());
        let vhost = directory.vhost("v").unwrap();
        let queue = directory.queue(vhost, "q").unwrap();
        assert_eq!(queue.settings().max_length, Some(3));
        assert!(directory.exchange(vhost, "x").is_some());
    }

    #[test]
    fn what_the_directory_refuses_names_its_path() {
        let text = with_file(
            r#"{"bindings": [{"source": "none", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "", "arguments": {}}]}"#,
        )
        .unwrap_err();
        assert!(text.contains("definitions.json: bindings[0]: no "), "{text}");
        let config =
            Config { definitions: Some("/nowhere/at/all.json".into()), ..Config::preset() };
        let text = initial(&config, 1).unwrap_err();
        assert!(text.contains("/nowhere/at/all.json"), "{text}");
    }
}
