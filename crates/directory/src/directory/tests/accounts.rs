//! Virtual hosts, users and what they may do.

use super::*;

const AMQP_QUEUE: Resource<'_> = Resource::Queue("q");

fn put_user(name: &str, password: &str) -> Request {
    let hash = PasswordHash::new(HashingAlgorithm::Sha256, password.as_bytes(), [5; 4]);
    Request::PutUser { name: name.into(), password: hash, tags: Vec::new() }
}

fn permit(user: &str, configure: &str, write: &str, read: &str) -> Request {
    Request::SetPermission {
        user: user.into(),
        vhost: "/".into(),
        configure: configure.into(),
        write: write.into(),
        read: read.into(),
    }
}

#[test]
fn a_login_needs_name_password_and_place() {
    let mut fixture = Fixture::new();
    fixture.does(&put_user("ann", "secret"));
    fixture.does(&put_user("key", ""));
    let directory = &fixture.directory;
    let login = |user, password: &str, local| {
        directory.accounts().authenticate(user, password.as_bytes(), local)
    };
    assert_eq!(login("ann", "secret", false), Ok(()));
    assert_eq!(login("ann", "wrong", true), Err(LoginFailure::WrongPassword));
    assert_eq!(login("bob", "secret", true), Err(LoginFailure::UnknownUser));
    assert_eq!(login("key", "", true), Err(LoginFailure::NoPassword));
    assert_eq!(login("guest", "guest", true), Ok(()));
    assert_eq!(login("guest", "guest", false), Err(LoginFailure::NotLoopback));
    assert_eq!(directory.accounts().authenticate_external("key", false), Ok(()));
    assert!(directory.accounts().authenticate_external("nobody", true).is_err());
    fixture.directory.accounts_mut().set_loopback_users(Vec::new());
    assert_eq!(fixture.directory.accounts().authenticate("guest", b"guest", false), Ok(()));
}

/// What a login costs tells nobody which names there are, nor how a password is kept.
#[test]
fn a_login_makes_the_same_digests_whoever_it_names() {
    let mut fixture = Fixture::new();
    let algorithms = [HashingAlgorithm::Sha256, HashingAlgorithm::Sha512, HashingAlgorithm::Md5];
    for algorithm in algorithms {
        let password = PasswordHash::new(algorithm, b"secret", [5; 4]);
        let name = algorithm.name().into();
        fixture.does(&Request::PutUser { name, password, tags: Vec::new() });
    }
    fixture.does(&put_user("key", ""));
    let names = algorithms.into_iter().map(HashingAlgorithm::name);
    for name in names.chain(["key", "nobody"]) {
        for password in [&b"secret"[..], b"wrong", b""] {
            digests::take();
            let _ = fixture.directory.accounts().authenticate(name, password, true);
            assert_eq!(digests::take(), [1; 3], "of {name}");
        }
    }
}

#[test]
fn password_and_tags_change_apart_from_each_other() {
    let mut fixture = Fixture::new();
    let hash =
        |password: &str| PasswordHash::new(HashingAlgorithm::Sha256, password.as_bytes(), [5; 4]);
    let (name, tags) = (|| String::from("ann"), || vec!["monitoring".into()]);
    let add = Request::AddUser { name: name(), password: hash("one"), tags: Vec::new() };
    let set_password = Request::SetPassword { name: name(), password: hash("two") };
    let set_tags = Request::SetTags { name: name(), tags: tags() };
    assert_eq!(fixture.ask(&set_password).unwrap_err().1, "user 'ann' not found");
    assert_eq!(fixture.ask(&set_tags).unwrap_err().1, "user 'ann' not found");
    fixture.does(&add);
    assert!(fixture.ask(&add).unwrap_err().1.contains("exists already"));
    fixture.does(&set_tags);
    fixture.does(&set_password);
    let user = fixture.directory.user("ann").unwrap();
    assert_eq!((&user.password, &user.tags), (&hash("two"), &tags()));
    assert_eq!(fixture.ask(&set_password), Ok(None));
    assert_eq!(fixture.ask(&set_tags), Ok(None));
}

#[test]
fn a_user_without_permission_may_not_open() {
    let mut fixture = Fixture::new();
    fixture.does(&put_user("ann", "secret"));
    let vhost = fixture.vhost();
    assert!(!fixture.directory.accounts().may_open("ann", vhost));
    assert!(fixture.directory.accounts().may_open("guest", vhost));
    fixture.does(&permit("ann", "", "", ""));
    assert!(fixture.directory.accounts().may_open("ann", vhost));
    assert!(!fixture.directory.accounts().may("ann", vhost, Access::Read, "q"));
    let clear = Request::ClearPermission { user: "ann".into(), vhost: "/".into() };
    assert!(fixture.does(&clear).permissions_changed);
    assert!(!fixture.directory.accounts().may_open("ann", vhost));
    assert_eq!(fixture.ask(&clear), Ok(None));
}

#[test]
fn refusals_name_access_resource_and_user() {
    let mut fixture = Fixture::new();
    fixture.does(&put_user("ann", "secret"));
    fixture.does(&permit("ann", "^q", "^amq\\.default$", "^q"));
    let vhost = fixture.vhost();
    let directory = &fixture.directory;
    let ask = |access, resource| directory.accounts().authorize("ann", vhost, access, resource);
    assert!(ask(Access::Configure, AMQP_QUEUE).is_ok());
    assert!(ask(Access::Write, Resource::Exchange("")).is_ok());
    let refused = ask(Access::Write, Resource::Exchange("logs")).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::AccessRefused);
    assert_eq!(
        refused.reply(),
        "write access to exchange 'logs' in vhost '/' refused for user 'ann'"
    );
    assert!(directory.accounts().may_any("ann", vhost, "q"));
    assert!(!directory.accounts().may_any("ann", vhost, "logs"));
    let passive = |resource| directory.accounts().authorize_passive("ann", vhost, resource);
    assert!(passive(AMQP_QUEUE).is_ok() && passive(Resource::Exchange("logs")).is_err());
}

#[test]
fn requests_need_all_rights_that_their_arguments_lead_to() {
    let mut fixture = Fixture::new();
    fixture.does(&put_user("ann", "secret"));
    let allowed = |fixture: &mut Fixture, rights: [&str; 3], request: &Request| {
        let [configure, write, read] = rights;
        let _ = fixture.ask(&permit("ann", configure, write, read));
        fixture.directory.authorize_request("ann", request).is_ok()
    };
    let mut queue = declare_queue("q");
    assert!(allowed(&mut fixture, ["^q$", "", ""], &queue));
    assert!(!allowed(&mut fixture, ["", "^q$", "^q$"], &queue));
    if let Request::DeclareQueue { arguments, .. } = &mut queue {
        arguments.insert("x-dead-letter-exchange", "dlx");
    }
    assert!(!allowed(&mut fixture, ["^q$", "", ""], &queue));
    assert!(!allowed(&mut fixture, ["^q$", "", "^q$"], &queue));
    assert!(allowed(&mut fixture, ["^q$", "^dlx$", "^q$"], &queue));
    fixture.does(&queue);
    assert!(allowed(&mut fixture, ["^q$", "", ""], &queue), "it exists");
    let mut exchange = declare_exchange("x", "direct");
    assert!(allowed(&mut fixture, ["^x$", "", ""], &exchange));
    if let Request::DeclareExchange { arguments, .. } = &mut exchange {
        arguments.insert("alternate-exchange", "ae");
    }
    assert!(!allowed(&mut fixture, ["^x$", "^ae$", ""], &exchange));
    assert!(allowed(&mut fixture, ["^x$", "^ae$", "^x$"], &exchange));
    let bind = bind("amq.topic", "q", "k");
    assert!(allowed(&mut fixture, ["", "^q$", "^amq.topic$"], &bind));
    assert!(!allowed(&mut fixture, ["", "^q$", ""], &bind));
    assert!(!allowed(&mut fixture, ["", "", "^amq.topic$"], &bind));
    let all = [".*", ".*", ".*"];
    assert!(!allowed(&mut fixture, all, &put_user("bob", "x")), "no operator");
}

#[test]
fn routing_keys_of_topic_exchanges_can_be_restricted() {
    let mut fixture = Fixture::new();
    fixture.does(&put_user("ann", "secret"));
    fixture.does(&permit("ann", ".*", ".*", ".*"));
    fixture.queue("q");
    let vhost = fixture.vhost();
    assert!(!fixture.directory.accounts().has_topic_rules("ann", vhost));
    fixture.does(&Request::SetTopicPermission {
        user: "ann".into(),
        vhost: "/".into(),
        exchange: "amq.topic".into(),
        write: "^{username}\\.".into(),
        read: "^$".into(),
    });
    let directory = &fixture.directory;
    assert!(directory.accounts().has_topic_rules("ann", vhost));
    let may = |exchange, access, key| directory.may_topic("ann", vhost, exchange, access, key);
    assert!(may("amq.topic", Access::Write, "ann.x"));
    assert!(!may("amq.topic", Access::Write, "bob.x"));
    assert!(may("amq.direct", Access::Write, "bob.x"), "no topic exchange");
    let refused = directory.authorize_request("ann", &bind("amq.topic", "q", "x")).unwrap_err();
    assert_eq!(
        refused.reply(),
        "read access to topic 'x' in exchange 'amq.topic' in vhost '/' refused for user 'ann'"
    );
    fixture.does(&Request::ClearTopicPermission {
        user: "ann".into(),
        vhost: "/".into(),
        exchange: None,
    });
    assert!(!fixture.directory.accounts().has_topic_rules("ann", vhost));
}

#[test]
fn patterns_that_do_not_compile_are_refused() {
    let mut fixture = Fixture::new();
    let (kind, text) = fixture.ask(&permit("guest", "(", "", "")).unwrap_err();
    assert_eq!(kind, RefusalKind::PreconditionFailed);
    assert!(text.starts_with("invalid configure pattern '('"), "{text}");
    assert_eq!(
        fixture.ask(&permit("nobody", "", "", "")),
        refusal(RefusalKind::NotFound, "user 'nobody' not found")
    );
}

#[test]
fn a_virtual_host_is_an_island_and_goes_with_all_that_is_in_it() {
    let mut fixture = Fixture::new();
    let create = Request::CreateVhost { name: "other".into(), metadata: VhostMetadata::default() };
    fixture.does(&create);
    assert_eq!(fixture.ask(&create), Ok(None));
    let other = fixture.directory.vhost("other").unwrap();
    let mut request = declare_queue("q");
    if let Request::DeclareQueue { vhost, .. } = &mut request {
        *vhost = other.into();
    }
    let id = fixture.does(&request).queues_created[0];
    assert!(fixture.reached("", "q").is_empty());
    let mut grant = permit("guest", ".*", ".*", ".*");
    if let Request::SetPermission { vhost, .. } = &mut grant {
        *vhost = other.into();
    }
    fixture.does(&grant);
    assert_eq!(fixture.directory.accounts().permissions().count(), 2);
    let delete = Request::DeleteVhost { name: "other".into() };
    let applied = fixture.does(&delete);
    assert_eq!(applied.vhost_deleted, Some(other));
    assert_eq!(fixture.directory.clearing(), 1);
    let applied = fixture.directory.apply(&Change::Cleared);
    assert_eq!(fixture.directory.clearing(), 0);
    assert_eq!(applied.queues_deleted[0].id, id);
    assert_eq!(applied.exchanges_deleted.len(), 7);
    assert_eq!(fixture.directory.accounts().permissions().count(), 1);
    assert_eq!(fixture.ask(&delete), refusal(RefusalKind::NotFound, "vhost 'other' not found"));
    assert_eq!(fixture.ask(&request), refusal(RefusalKind::NotFound, "vhost was deleted"));
    fixture.does(&create);
    assert_ne!(fixture.directory.vhost("other"), Some(other), "ids are not used again");
}

#[test]
fn a_protected_virtual_host_stays() {
    let mut fixture = Fixture::new();
    let describe = |protected| Request::CreateVhost {
        name: "/".into(),
        metadata: VhostMetadata { protected, ..VhostMetadata::default() },
    };
    let delete = Request::DeleteVhost { name: "/".into() };
    fixture.does(&describe(true));
    assert_eq!(fixture.ask(&delete).unwrap_err().0, RefusalKind::PreconditionFailed);
    fixture.does(&describe(false));
    fixture.does(&delete);
}

#[test]
fn changing_a_password_keeps_rights_and_deleting_a_user_takes_them() {
    let mut fixture = Fixture::new();
    fixture.does(&put_user("ann", "one"));
    fixture.does(&permit("ann", ".*", ".*", ".*"));
    fixture.does(&put_user("ann", "two"));
    assert_eq!(fixture.ask(&put_user("ann", "two")), Ok(None));
    assert!(fixture.directory.accounts().may_open("ann", fixture.vhost()));
    assert!(fixture.directory.accounts().authenticate("ann", b"two", false).is_ok());
    let delete = Request::DeleteUser { name: "ann".into() };
    assert_eq!(fixture.does(&delete).user_deleted.as_deref(), Some("ann"));
    assert_eq!(fixture.ask(&delete).unwrap_err().0, RefusalKind::NotFound);
    fixture.does(&put_user("ann", "two"));
    assert!(!fixture.directory.accounts().may_open("ann", fixture.vhost()));
}

#[test]
fn a_virtual_host_is_traced_until_that_is_ended() {
    let mut fixture = Fixture::new();
    let trace = |on| Request::SetTracing { vhost: "/".into(), on };
    let is_traced =
        |fixture: &Fixture| fixture.directory.vhost_info(fixture.vhost()).unwrap().metadata.tracing;
    fixture.does(&trace(true));
    assert_eq!(fixture.ask(&trace(true)), Ok(None));
    let metadata = VhostMetadata { description: "d".into(), ..VhostMetadata::default() };
    fixture.does(&Request::CreateVhost { name: "/".into(), metadata });
    assert!(is_traced(&fixture), "who describes it says nothing of that");
    fixture.does(&trace(false));
    assert!(!is_traced(&fixture));
}

#[test]
fn a_negative_limit_is_kept_and_limits_nothing() {
    let mut fixture = Fixture::new();
    let limits = VhostLimits { queues_max: Some(-1), ..VhostLimits::default() };
    fixture.does(&Request::SetVhostLimits { vhost: "/".into(), limits });
    fixture.queue("q");
    assert_eq!(fixture.directory.vhost_info(fixture.vhost()).unwrap().limits, limits);
    let limits = VhostLimits { queues_max: Some(0), ..VhostLimits::default() };
    fixture.does(&Request::SetVhostLimits { vhost: "/".into(), limits });
    assert!(fixture.ask(&declare_queue("r")).is_err(), "none may be declared");
}
