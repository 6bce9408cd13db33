//! What the broker knows before it serves anyone: what the data directory has from earlier runs,
//! the first user and virtual host of the first run, and what the definitions file says.
//!
//! All of it is decided here, on one copy of the directory, is on the disk before a listener opens,
//! and is handed to every shard as the same list of changes. A file with an error stops the start.

use crate::config::Config;
use crate::definitions::Definitions as Stored;
use crate::random;
use lepus_base::QueueId;
use lepus_broker::definitions::DefinitionsLog;
use lepus_broker::directory::{
    Capacity, Directory, HashingAlgorithm, PasswordHash, Request, VhostMetadata, VhostRef,
};
use lepus_management::definitions::{Definitions, Importer, Step};
use std::path::Path;
use std::sync::Arc;

/// The state at the start.
#[derive(Debug)]
pub struct Initial {
    /// What exists, for every shard.
    pub directory: Option<Directory>,
    /// For shard 0, once it has its directory.
    pub log: Option<DefinitionsLog>,
    /// Ids of queues, and of what delayed exchanges held back, that were deleted, in growing order.
    pub deleted: Arc<[QueueId]>,
    /// Nothing was defined before.
    pub is_first: bool,
    /// Users that may log in from this machine only.
    pub loopback_users: Vec<Box<str>>,
    /// What the definitions file has and what has no effect here, one sentence each.
    pub skipped: Vec<String>,
    /// What exists otherwise than the definitions file has it, one sentence each.
    pub differing: Vec<String>,
    /// Whom nothing but a password that everybody knows keeps out, one sentence each.
    pub open_doors: Vec<String>,
    /// Whether the default user can log in with the default password, so that it is worth telling.
    pub has_default_user: bool,
}

/// What may be declared.
#[must_use]
pub fn capacity(config: &Config) -> Capacity {
    Capacity {
        queues_max: config.queues_max,
        exchanges_max: config.exchanges_max,
        bindings_max: config.bindings_max,
        binding_arguments_max: config.binding_arguments_max,
        exchange_filters_max: config.exchange_filters_max,
        vhost_filters_max: config.vhost_filters_max,
        exchange_filter_steps_max: u32::try_from(config.exchange_filter_micros_max)
            .unwrap_or(u32::MAX)
            .saturating_mul(Capacity::FILTER_STEPS_PER_MICRO),
        arguments_bytes_max: config.arguments_bytes_max,
        vhost_arguments_bytes_max: config.vhost_arguments_bytes_max,
        ..Capacity::default()
    }
}

/// Decides the state at the start and makes it durable.
///
/// At the first start the default user is created unless the definitions file has users, the
/// default virtual host unless it has virtual hosts. The file is carried out at every start on top
/// of what exists: users, permissions, limits and descriptions of virtual hosts become what it
/// says; a queue or exchange that exists with other properties stays as it is.
///
/// # Errors
/// For a data directory that cannot be used, and for a file that cannot be read or says something
/// impossible, with its path inside the file.
pub fn initial(config: &Config, shards: u16, data_dir: &Path) -> Result<Initial, String> {
    let definitions = match &config.definitions {
        Some(path) => read(config, path, shards)?,
        None => Definitions::default(),
    };
    let mut stored = Stored::open(data_dir, shards)?;
    stored.set_capacity(capacity(config));
    let requests = || definitions.requests.iter().map(|step| &step.request);
    let is_first = stored.is_new();
    let has_user =
        is_first && !requests().any(|request| matches!(request, Request::PutUser { .. }));
    let has_vhost =
        is_first && !requests().any(|request| matches!(request, Request::CreateVhost { .. }));
    if has_vhost {
        require(&mut stored, &default_vhost(config))?;
    }
    if has_user {
        require(&mut stored, &default_user(config)?)?;
    }
    if has_user && has_vhost {
        require(&mut stored, &default_permission(config))?;
    }
    let mut differing = Vec::new();
    for step in &definitions.requests {
        let file = config.definitions.as_deref().unwrap_or(Path::new(""));
        let Err(refusal) = stored.carry_out(&step.request)? else { continue };
        let text = format!("{}: {}: {}", file.display(), step.path, refusal);
        if is_there(stored.directory(), step) {
            differing.push(format!("{text}; it stays as it is"));
        } else {
            return Err(text);
        }
    }
    if has_user && !has_vhost && stored.directory().vhost(&config.default_vhost).is_some() {
        require(&mut stored, &default_permission(config))?;
    }
    let password = config.default_password.as_bytes();
    let login = stored.directory().accounts().authenticate(&config.default_user, password, true);
    let loopback_users = loopback_users(config);
    let open_doors = open_doors(config, stored.directory(), &loopback_users);
    let deleted = stored.deleted().into();
    let (directory, log) = stored.finish()?;
    Ok(Initial {
        directory: Some(directory),
        log: Some(log),
        deleted,
        is_first,
        loopback_users,
        open_doors,
        skipped: definitions.skipped,
        differing,
        has_default_user: login.is_ok(),
    })
}

/// Those that may log in from this machine only.
fn loopback_users(config: &Config) -> Vec<Box<str>> {
    let listed = config.loopback_users.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut names: Vec<Box<str>> =
        listed.filter(|name| *name != config.default_user).map(Box::from).collect();
    if config.default_loopback_only {
        names.push(config.default_user.as_str().into());
    }
    names
}

/// Whether clients may come from other machines.
pub fn is_reachable(config: &Config) -> bool {
    let tls = config.tls_certificate.iter().flat_map(|_| &config.tls_listen);
    !config.listen.iter().chain(tls).all(|address| address.ip().to_canonical().is_loopback())
}

/// Users with a password that everybody knows who may log in from elsewhere, and as whom one may
/// without any.
fn open_doors(config: &Config, directory: &Directory, loopback_users: &[Box<str>]) -> Vec<String> {
    if !is_reachable(config) {
        return Vec::new();
    }
    let knows = |name: &str, password: &str| {
        directory.accounts().authenticate(name, password.as_bytes(), true).is_ok()
    };
    let mut doors = Vec::new();
    for user in directory.accounts().users().filter(|user| !loopback_users.contains(&user.name)) {
        let name = &*user.name;
        if name == config.anonymous_user && knows(name, &config.anonymous_password) {
            doors.push(format!(
                "clients that give no name log in as {name} from any machine \
                 (login.anonymous_user, login.loopback_users)"
            ));
        }
        doors.extend(directory.accounts().known_password(name));
    }
    doors
}

fn read(config: &Config, path: &Path, shards: u16) -> Result<Definitions, String> {
    let content = std::fs::read(path)
        .map_err(|error| format!("cannot read the definitions file {}: {error}", path.display()))?;
    let importer =
        Importer { shards, user: config.default_user.clone(), vhost: config.default_vhost.clone() };
    let read = Importer::text(&content).and_then(|text| importer.read(text));
    read.map_err(|error| format!("{}: {error}", path.display()))
}

/// Whether the queue or exchange that a step declares exists.
fn is_there(directory: &Directory, step: &Step) -> bool {
    let (Request::DeclareQueue { vhost, name, .. } | Request::DeclareExchange { vhost, name, .. }) =
        &step.request
    else {
        return false;
    };
    let id = match vhost {
        VhostRef::Id(id) => Some(*id),
        VhostRef::Name(name) => directory.vhost(name),
    };
    id.is_some_and(|id| match step.request {
        Request::DeclareQueue { .. } => directory.queue(id, name).is_some(),
        _ => directory.exchange(id, name).is_some(),
    })
}

fn require(stored: &mut Stored, request: &Request) -> Result<(), String> {
    stored.carry_out(request)?.map_err(|refusal| refusal.to_string())
}

fn default_vhost(config: &Config) -> Request {
    Request::CreateVhost { name: config.default_vhost.clone(), metadata: VhostMetadata::default() }
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

fn default_permission(config: &Config) -> Request {
    Request::SetPermission {
        user: config.default_user.clone(),
        vhost: VhostRef::from(config.default_vhost.as_str()),
        configure: ".*".to_owned(),
        write: ".*".to_owned(),
        read: ".*".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    fn directory(initial: &Initial) -> Directory {
        let mut directory = initial.directory.clone().unwrap();
        directory.accounts_mut().set_loopback_users(initial.loopback_users.clone());
        directory
    }

    /// A first start without a file.
    fn first(config: &Config) -> Directory {
        let root = Scratch::new("initial");
        directory(&initial(config, 2, root.path()).unwrap())
    }

    /// A start with a definitions file, in a data directory that may be used already.
    fn with_file(root: &Scratch, content: &str) -> Result<Initial, String> {
        let path = root.path().join("definitions.json");
        std::fs::write(&path, content).unwrap();
        let config = Config { definitions: Some(path), ..Config::preset() };
        let data = root.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        initial(&config, 2, &data)
    }

    fn queue(name: &str, arguments: &str) -> String {
        format!(
            r#"{{"name": "{name}", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {arguments}}}"#
        )
    }

    #[test]
    fn without_a_file_there_is_the_default_user() {
        let directory = first(&Config::preset());
        let vhost = directory.vhost("/").unwrap();
        assert!(directory.accounts().authenticate("guest", b"guest", true).is_ok());
        assert!(directory.accounts().authenticate("guest", b"guest", false).is_err());
        assert!(directory.accounts().authenticate("guest", b"other", true).is_err());
        assert!(directory.accounts().may_open("guest", vhost));
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
        let directory = first(&config);
        assert!(directory.accounts().authenticate("admin", b"secret", false).is_ok());
        assert!(directory.vhost("/").is_none());
        assert!(directory.accounts().may_open("admin", directory.vhost("work").unwrap()));
    }

    #[test]
    fn another_default_user_does_not_let_guest_in_from_elsewhere() {
        let root = Scratch::new("initial-loopback");
        initial(&Config::preset(), 2, root.path()).unwrap();
        for default_loopback_only in [true, false] {
            let default_user = "admin".to_owned();
            let config = Config { default_user, default_loopback_only, ..Config::preset() };
            let again = directory(&initial(&config, 2, root.path()).unwrap());
            assert!(again.accounts().authenticate("guest", b"guest", true).is_ok());
            assert!(again.accounts().authenticate("guest", b"guest", false).is_err());
        }
    }

    #[test]
    fn users_whose_password_everybody_knows_are_told_where_they_come_from_elsewhere() {
        let root = Scratch::new("initial-doors");
        let doors = |config: &Config| initial(config, 2, root.path()).unwrap().open_doors;
        assert_eq!(doors(&Config::preset()), [""; 0]);
        let open = Config { default_loopback_only: false, ..Config::preset() };
        let told = doors(&open);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("clients that give no name log in as guest"), "{told:?}");
        assert!(told[1].starts_with("user guest has a password that everybody knows"), "{told:?}");
        let unnamed = Config { anonymous_user: String::new(), ..open.clone() };
        assert_eq!(doors(&unnamed), told[1..]);
        let near = Config { listen: vec!["127.0.0.1:5672".parse().unwrap()], ..open.clone() };
        assert_eq!(doors(&near), [""; 0]);
        let mut stored = Stored::open(root.path(), 2).unwrap();
        let request = Request::PutUser {
            name: "guest".into(),
            password: PasswordHash::new(HashingAlgorithm::Sha256, b"another", [1; 4]),
            tags: Vec::new(),
        };
        stored.carry_out(&request).unwrap().unwrap();
        stored.finish().unwrap();
        assert_eq!(doors(&open), [""; 0]);
    }

    #[test]
    fn capacities_are_what_settings_say() {
        assert_eq!(capacity(&Config::preset()), Capacity::default());
        let config = Config { exchange_filter_micros_max: 50, ..Config::preset() };
        assert_eq!(capacity(&config).exchange_filter_steps_max, 5_000);
        let config = Config { exchange_filter_micros_max: 1_000_000, ..Config::preset() };
        assert_eq!(capacity(&config).exchange_filter_steps_max, 100_000_000);
    }

    #[test]
    fn the_default_user_is_created_once() {
        let root = Scratch::new("initial-once");
        assert!(initial(&Config::preset(), 2, root.path()).unwrap().has_default_user);
        let mut stored = Stored::open(root.path(), 2).unwrap();
        stored.carry_out(&Request::DeleteUser { name: "guest".into() }).unwrap().unwrap();
        stored.finish().unwrap();
        let again = initial(&Config::preset(), 2, root.path()).unwrap();
        assert!(!again.has_default_user);
        assert!(directory(&again).user("guest").is_none());
        assert!(directory(&again).vhost("/").is_some());
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
                "policies": [{{"name": "p", "vhost": "v", "pattern": "^(?!amq\\.).*", "definition": {{"ha-mode": "all", "max-length": 2}}}}]}}"#
        );
        let root = Scratch::new("initial-file");
        let initial = with_file(&root, &content).unwrap();
        assert_eq!(initial.skipped.len(), 1);
        assert!(!initial.has_default_user);
        let directory = directory(&initial);
        assert!(directory.user("guest").is_none());
        assert!(directory.accounts().authenticate("shop", b"pw", false).is_ok());
        let vhost = directory.vhost("v").unwrap();
        let queue = directory.queue(vhost, "q").unwrap();
        assert_eq!(queue.settings().max_length, Some(3));
        assert_eq!(directory.settings_of(queue).max_length, Some(2));
        assert!(directory.exchange(vhost, "x").is_some());
    }

    #[test]
    fn a_file_is_carried_out_on_top_of_what_exists() {
        let root = Scratch::new("initial-again");
        let file = |list: &[String]| format!(r#"{{"queues": [{}]}}"#, list.join(","));
        let plain = [queue("a", "{}"), queue("b", "{}")];
        assert_eq!(with_file(&root, &file(&plain)).unwrap().differing.len(), 0);
        let other = [queue("a", r#"{"x-max-length": 3}"#), queue("b", "{}"), queue("c", "{}")];
        let again = with_file(&root, &file(&other)).unwrap();
        let [text] = &again.differing[..] else { panic!("{:?}", again.differing) };
        let parts = ["definitions.json: queues[0]: ", "x-max-length", "stays as it is"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        let directory = directory(&again);
        let vhost = directory.vhost("/").unwrap();
        let names: Vec<&str> = directory.queues(Some(vhost)).map(|info| info.name()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(directory.queue(vhost, "a").unwrap().settings().max_length, None);
    }

    #[test]
    fn users_of_a_file_become_what_it_says() {
        let root = Scratch::new("initial-users");
        for password in [b"one".as_slice(), b"two"] {
            let hash = PasswordHash::new(HashingAlgorithm::Sha256, password, [1; 4]).to_base64();
            let content = format!(
                r#"{{"users": [{{"name": "ann", "password_hash": "{hash}", "tags": []}}]}}"#
            );
            let initial = with_file(&root, &content).unwrap();
            assert_eq!(initial.differing, [""; 0]);
            assert!(directory(&initial).accounts().authenticate("ann", password, true).is_ok());
        }
    }

    #[test]
    fn what_the_directory_refuses_names_its_path() {
        let root = Scratch::new("initial-refused");
        let text = with_file(
            &root,
            r#"{"bindings": [{"source": "none", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "", "arguments": {}}]}"#,
        )
        .unwrap_err();
        assert!(text.contains("definitions.json: bindings[0]: no "), "{text}");
        // It goes to the log, where no text of a filter may be.
        let content = format!(
            r#"{{"queues": [{}], "bindings": [{{"source": "amq.topic", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "", "arguments": {{"x-filter": "card = '4111' = 1"}}}}]}}"#,
            queue("q", "{}")
        );
        let text = with_file(&root, &content).unwrap_err();
        let told = "bindings[0]: invalid x-filter at character 15 (more is not for logs)";
        assert!(text.ends_with(told), "{text}");
        let config =
            Config { definitions: Some("/nowhere/at/all.json".into()), ..Config::preset() };
        let text = initial(&config, 1, root.path()).unwrap_err();
        assert!(text.contains("/nowhere/at/all.json"), "{text}");
    }
}
