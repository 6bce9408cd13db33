use super::*;
use lepus_amqp::table::Value as AmqpValue;
use lepus_broker::binding::Destination;
use lepus_broker::directory::VhostRef;

fn importer() -> Importer {
    Importer { shards: 2, user: "guest".to_owned(), vhost: "own".to_owned() }
}

fn error(content: &str) -> String {
    importer().read(content).unwrap_err().to_string()
}

/// What `rabbitmqctl export_definitions` writes, shortened.
const EXPORT: &str = r#"{
  "rabbit_version": "4.2.0", "rabbitmq_version": "4.2.0", "product_name": "RabbitMQ",
  "explanation": ["text"], "rabbitmq_definition_format": "cluster", "future": {"a": 1},
  "users": [
    {"name": "guest", "password_hash": "Jqd5IBpAuQvGpFvSr8o0tZbsmW0mBOJPCDKmaCnzWOzjRUYO",
     "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ["administrator"], "limits": {}},
    {"name": "old", "password_hash": "", "tags": "monitoring, policymaker", "limits": {"max-channels": 5}}],
  "vhosts": [{"name": "/", "description": "Default", "tags": [], "metadata": {"description": "Default", "tags": [], "default_queue_type": "quorum"}}],
  "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
  "topic_permissions": [{"user": "old", "vhost": "/", "exchange": "t", "write": "^a", "read": ".*"}],
  "parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": {"src-uri": "amqp://a", "src-queue": "a", "dest-uri": "amqp://b"}},
    {"component": "odd", "vhost": "/", "name": "o", "value": {}},
    {"component": "operator_policy", "vhost": "/", "name": "op", "value": {"pattern": "^a", "apply-to": "queues", "definition": {"expires": 5}, "priority": 2}},
    {"component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max-queues": 7, "max-connections": -1}}],
  "global_parameters": [{"name": "cluster_name", "value": "rabbit@x"}, {"name": "internal_cluster_id", "value": "i"}],
  "policies": [{"vhost": "/", "name": "ha", "pattern": ".*", "apply-to": "all", "definition": {"ha-mode": "all", "max-length": 5}, "priority": 0}],
  "queues": [
    {"name": "q1", "vhost": "/", "durable": true, "auto_delete": false,
     "arguments": {"x-max-length": 10, "x-big": 18446744073709551615, "x-share": 0.5, "x-list": [1, "a"], "x-in": {"b": true}}},
    {"name": "q2", "vhost": "/", "type": "quorum", "durable": true, "auto_delete": false, "arguments": []}],
  "exchanges": [{"name": "x", "vhost": "/", "type": "topic", "durable": true, "auto_delete": false, "internal": true, "arguments": {}}],
  "bindings": [{"source": "x", "vhost": "/", "destination": "q1", "destination_type": "queue", "routing_key": "a.#", "arguments": {}},
               {"source": "x", "vhost": "/", "destination": "y", "destination_type": "exchange", "routing_key": "", "arguments": {}}]
}"#;

#[test]
fn an_export_becomes_requests_in_the_needed_order() {
    let definitions = importer().read(EXPORT).unwrap();
    let paths: Vec<&str> = definitions.requests.iter().map(|step| step.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "users[0]",
            "users[1]",
            "users[1]",
            "vhosts[0]",
            "parameters[3]",
            "permissions[0]",
            "exchanges[0]",
            "topic_permissions[0]",
            "global_parameters[0]",
            "policies[0]",
            "parameters[0]",
            "parameters[2]",
            "queues[0]",
            "queues[1]",
            "bindings[0]",
            "bindings[1]",
        ]
    );
    let Request::PutUser { name, tags, .. } = &definitions.requests[1].request else { panic!() };
    assert_eq!((name.as_str(), tags.len(), &*tags[1]), ("old", 2, "policymaker"));
    let Request::Bind { destination, vhost, .. } = &definitions.requests[15].request else {
        panic!()
    };
    assert!(matches!(destination, Destination::Exchange(name) if name == "y"));
    assert!(matches!(vhost, VhostRef::Name(name) if &**name == "/"));
    let Request::SetUserLimits { limits, .. } = &definitions.requests[2].request else { panic!() };
    assert_eq!((limits.channels_max, limits.connections_max), (Some(5), None));
    let Request::SetVhostLimits { limits, .. } = &definitions.requests[4].request else { panic!() };
    assert_eq!((limits.queues_max, limits.connections_max), (Some(7), Some(-1)));
    assert_eq!(
        definitions.skipped,
        [
            "parameter \"o\" of component \"odd\" is not applied",
            "policies[0]: policy \"ha\" keeps ha-mode without any effect",
        ]
    );
}

#[test]
fn whole_numbers_become_integers() {
    let definitions = importer().read(EXPORT).unwrap();
    let Request::DeclareQueue { arguments, declared_on, .. } = &definitions.requests[12].request
    else {
        panic!()
    };
    assert_eq!(arguments.get("x-max-length"), Some(&AmqpValue::I64(10)));
    assert_eq!(arguments.get("x-big"), Some(&AmqpValue::U64(u64::MAX)));
    assert_eq!(arguments.get("x-share"), Some(&AmqpValue::F64(0.5)));
    let list = AmqpValue::Array(vec![AmqpValue::I64(1), AmqpValue::LongString(b"a".to_vec())]);
    assert_eq!(arguments.get("x-list"), Some(&list));
    assert_eq!(*declared_on, ShardId(0));
    let Request::DeclareQueue { arguments, declared_on, .. } = &definitions.requests[13].request
    else {
        panic!()
    };
    assert_eq!(arguments.get("x-queue-type").and_then(AmqpValue::as_text), Some("quorum"));
    assert_eq!(*declared_on, ShardId(1));
}

#[test]
fn a_file_of_one_vhost_goes_to_the_one_asked_for() {
    let content = r#"{"rabbitmq_definition_format": "single_virtual_host", "metadata": {"description": "d"},
        "queues": [{"name": "q", "durable": true, "auto_delete": false, "arguments": {}}]}"#;
    let definitions = importer().read(content).unwrap();
    let Request::CreateVhost { name, metadata } = &definitions.requests[0].request else {
        panic!()
    };
    assert_eq!((name.as_str(), &*metadata.description), ("own", "d"));
    let Request::DeclareQueue { vhost, .. } = &definitions.requests[1].request else { panic!() };
    assert!(matches!(vhost, VhostRef::Name(name) if &**name == "own"));
}

#[test]
fn a_file_may_begin_with_the_mark_of_utf_8_and_has_to_be_that() {
    assert_eq!(Importer::text("{\"ä\"}".as_bytes()).unwrap(), "{\"ä\"}");
    assert_eq!(Importer::text(b"\xef\xbb\xbf{}").unwrap(), "{}");
    for (content, at) in [(&b"{\xff}"[..], 1), (b"\xef\xbb\xbf{}\xc3", 5), (b"\xef\xbb", 0)] {
        let error = Importer::text(content).unwrap_err();
        assert_eq!(error.to_string(), format!("not UTF-8 at byte {at}"));
    }
}

#[test]
fn errors_name_their_path() {
    assert!(error("{").starts_with("not valid JSON: "), "{}", error("{"));
    assert!(error("[]").contains("expected an object"));
    for (content, start) in [
        (r#"{"users": 5}"#, "users: found integer `5`, expected a list at line 1"),
        (
            r#"{"queues": [{"name": "q"}, 7]}"#,
            "queues[1]: found integer `7`, expected an object at line 1",
        ),
        (r#"{"queues": [["q", "/"]]}"#, "queues[0]: found a list, expected an object"),
        (
            r#"{"queues": [{"name": "q", "vhost": "/", "arguments": [1]}]}"#,
            "queues[0].arguments: found a list, expected an object",
        ),
        (
            r#"{"users": [{"name": "u", "tags": {}}]}"#,
            "users[0].tags: found an object, expected a list of texts, or one text with commas",
        ),
        (
            r#"{"users": [{"name": "u", "tags": ["a", 1]}]}"#,
            "users[0].tags: found 1 in the list, expected a list of texts",
        ),
        (r#"{"queues": [{"vhost": "/"}]}"#, "queues[0]: missing field `name`"),
        (r#"{"queues": [{"name": "q"}]}"#, "queues[0]: missing field `vhost`"),
        (
            r#"{"queues": [{"vhost": "/", "name": "q", "durable": "yes"}]}"#,
            "queues[0].durable: found string \"yes\", expected true or false",
        ),
        (
            r#"{"bindings": [{"vhost": "/", "source": "x", "destination": "d", "destination_type": "topic"}]}"#,
            "bindings[0].destination_type: unknown variant `topic`, expected `queue` or `exchange`",
        ),
        (
            r#"{"vhosts": [{"name": "v", "metadata": {"default_queue_type": "stream"}}]}"#,
            "vhosts[0].metadata.default_queue_type: \"stream\" is not supported; there are classic and quorum",
        ),
        (
            r#"{"users": [{"name": "u", "limits": {"max-channels": 1e3}}]}"#,
            "users[0].limits.max-channels: found floating point `1000.0`, expected a whole number",
        ),
        (
            r#"{"policies": [{"vhost": "/", "name": "p", "pattern": "", "definition": {"odd": 1}}]}"#,
            "policies[0]: [<<\"odd\">>] are not recognised policy settings",
        ),
        (
            r#"{"policies": [{"vhost": "/", "name": "p", "pattern": "(", "definition": {"expires": 1}}]}"#,
            "policies[0]: pattern should be regular expression but is invalid",
        ),
        (
            r#"{"policies": [{"vhost": "/", "name": "p", "definition": {"expires": 1}}]}"#,
            "policies[0]: key_missing: pattern",
        ),
        (
            r#"{"policies": [{"vhost": "/", "name": "p", "pattern": "a", "priority": "x"}]}"#,
            "policies[0].priority: found string \"x\", expected a whole number",
        ),
        (
            r#"{"policies": [{"name": "p", "pattern": "a", "definition": {"expires": 1}}]}"#,
            "policies[0]: missing field `vhost`",
        ),
        (
            r#"{"parameters": [{"component": "operator_policy", "vhost": "/", "name": "p", "value": {"pattern": "a", "definition": {"ha-mode": "all"}}}]}"#,
            "parameters[0]: value: [<<\"ha-mode\">>] are not recognised operator policy settings",
        ),
        (
            r#"{"parameters": [{"component": "operator_policy", "vhost": "/", "name": "p", "value": {"pattern": 5}}]}"#,
            "parameters[0]: value.pattern: found integer `5`, expected a text",
        ),
        (
            r#"{"parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": {}}]}"#,
            "parameters[0]: value: Key \"src-uri\" not found in s",
        ),
        (
            r#"{"users": [{"name": "u", "tags": 5}]}"#,
            "users[0].tags: found 5, expected a list of texts",
        ),
        (r#"{} x"#, "not valid JSON: trailing characters"),
        (
            r#"{"vhosts": [{"name": "v", "limits": [0, 0]}]}"#,
            "vhosts[0].limits: a list with something in it, expected an object",
        ),
        (
            r#"{"users": [{"name": "u", "limits": [0, 0]}]}"#,
            "users[0].limits: a list with something in it, expected an object",
        ),
        (
            r#"{"parameters": [{"component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max-queues": "5"}}]}"#,
            "parameters[0]: value.max-queues: found string \"5\", expected a whole number",
        ),
        (
            r#"{"parameters": [{"component": "vhost-limits", "vhost": "/", "name": "limits", "value": [5]}]}"#,
            "parameters[0]: value: a list with something in it, expected an object",
        ),
    ] {
        assert!(error(content).starts_with(start), "{content}: {}", error(content));
    }
    assert_eq!(
        error(
            r#"{"exchanges": [{"vhost": "/", "name": "x", "arguments": {"a": [1, {"b": 5e999}]}}]}"#
        )
        .split(':')
        .next(),
        Some("not valid JSON")
    );
    let text = error(
        r#"{"users": [{"name": "u", "password_hash": "short", "hashing_algorithm": "rabbit_password_hashing_sha256"}]}"#,
    );
    assert!(text.starts_with("users[0].password_hash: "), "{text}");
    let text =
        error(r#"{"users": [{"name": "u", "password_hash": "x", "hashing_algorithm": "bcrypt"}]}"#);
    assert!(text.starts_with("users[0].hashing_algorithm: "), "{text}");
    let text = error(r#"{"users": [{"name": "u", "password": "x"}]}"#);
    assert!(text.contains("lepus hash-password"), "{text}");
}

#[test]
fn an_empty_list_stands_for_an_empty_object() {
    for content in [
        r#"{"vhosts": [{"name": "v", "limits": [], "metadata": []}]}"#,
        r#"{"vhosts": [{"name": "v", "limits": null, "metadata": null}]}"#,
        r#"{"users": [{"name": "v", "limits": []}]}"#,
    ] {
        let read = importer().read(content).expect("it is what exporters write");
        assert_eq!(read.requests.len(), 1, "{content}");
    }
}

#[test]
fn deep_arguments_are_refused_not_recursed_into() {
    let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
    let content = format!(r#"{{"queues": [{{"vhost": "/", "name": "q", "arguments": {deep}}}]}}"#);
    assert!(error(&content).contains("nested deeper than 32 levels"));
    // Deeper than the JSON reader itself goes.
    let deeper = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(error(&deeper).contains("expected an object"));
    let content = format!(r#"{{"queues": [{{"name": "q", "arguments": {deeper}}}]}}"#);
    assert!(error(&content).starts_with("not valid JSON"), "{}", error(&content));
    // What nobody asks for is passed over, however deep it is.
    assert!(importer().read(&format!(r#"{{"future": {deeper}}}"#)).is_ok());
}

#[test]
fn what_is_left_out_or_null_has_its_default() {
    let content = r#"{"users": null, "vhosts": [
            {"name": "a", "tags": null, "description": null, "limits": [], "metadata": null},
            {"name": "b", "description": "old", "tags": "x, y", "protected_from_deletion": true},
            {"name": "c", "description": "old", "metadata": {"default_queue_type": "undefined"}, "limits": {"max-queues": -1}}],
        "queues": [{"name": "q", "vhost": "a", "type": null, "durable": null, "arguments": null}]}"#;
    let requests = importer().read(content).unwrap().requests;
    let metadata = |index: usize| match &requests[index].request {
        Request::CreateVhost { metadata, .. } => metadata.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(metadata(0), Default::default());
    assert_eq!((metadata(1).tags.len(), &*metadata(1).description), (2, "old"));
    assert!(metadata(1).protected && metadata(1).default_queue_type.is_none());
    assert_eq!(&*metadata(2).description, "old");
    assert!(matches!(requests[3].request, Request::SetVhostLimits { .. }));
    assert!(matches!(&requests[4].request, Request::DeclareQueue { durable: true, .. }));
}

/// A file of RabbitMQ 3.8, of 3.13 and of 4.x, shortened: mirrored queues, lazy queues, patterns that look around.
const FILES: [&str; 3] = [
    r#"{"rabbit_version": "3.8.9", "users": [], "vhosts": [{"name": "/"}], "parameters": [], "global_parameters": [],
        "policies": [{"vhost": "/", "name": "ha-all", "pattern": "^(?!amq\\.).*", "apply-to": "all",
            "definition": {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic", "queue-mode": "lazy"}, "priority": 0},
            {"vhost": "/", "name": "nodes", "pattern": "^n", "apply-to": "queues", "definition": {"ha-mode": "nodes", "ha-params": ["a", "b"]}, "priority": 1}],
        "queues": [{"name": "q", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}}]}"#,
    r#"{"rabbit_version": "3.13.7", "vhosts": [{"limits": [], "name": "/", "metadata": {"tags": [], "description": "Default virtual host"}}],
        "parameters": [{"component": "operator_policy", "name": "o", "value": {"apply-to": "queues", "definition": {"max-in-memory-length": 5, "expires": 9}, "pattern": "", "priority": 0}, "vhost": "/"}],
        "policies": [{"vhost": "/", "name": "v", "pattern": "", "apply-to": "classic_queues", "definition": {"queue-version": 2}, "priority": 0}]}"#,
    r#"{"rabbit_version": "4.1.0", "rabbitmq_definition_format": "cluster", "vhosts": [{"name": "/", "limits": {"max-queues": 9}, "metadata": {"default_queue_type": "quorum"}}],
        "global_parameters": [{"name": "cluster_tags", "value": {"region": "eu"}}, {"name": "internal_cluster_id", "value": "i"}],
        "policies": [{"vhost": "/", "name": "p", "pattern": ".*", "apply-to": "quorum_queues", "definition": {"delivery-limit": -1, "target-group-size": 3}, "priority": 0}]}"#,
];

#[test]
fn files_of_all_versions_are_read_with_what_has_no_effect_named() {
    let skipped = |file: &str| importer().read(file).unwrap().skipped;
    assert_eq!(
        skipped(FILES[0]),
        [
            "policies[0]: policy \"ha-all\" keeps ha-mode, ha-params, ha-sync-mode, queue-mode without any effect",
            "policies[1]: policy \"nodes\" keeps ha-mode, ha-params without any effect",
        ]
    );
    assert_eq!(
        skipped(FILES[1]),
        [
            "policies[0]: policy \"v\" keeps queue-version without any effect",
            "parameters[0]: policy \"o\" keeps max-in-memory-length without any effect",
        ]
    );
    assert_eq!(skipped(FILES[2]), [""; 0]);
    let requests = importer().read(FILES[2]).unwrap().requests;
    let global = requests.iter().find_map(|step| match &step.request {
        Request::SetGlobalParameter { name, value } => Some((name.as_str(), value.as_str())),
        _ => None,
    });
    assert_eq!(global, Some(("cluster_tags", r#"{"region":"eu"}"#)));
}

#[test]
fn what_was_read_is_written_as_it_was() {
    use lepus_base::HashState;
    use lepus_broker::directory::{Checked, Directory, PolicyScope};
    let mut directory = Directory::new(HashState::new(1), 1);
    for change in Directory::preset("guest", b"guest", [1; 4], "/") {
        directory.apply(&change);
    }
    for file in FILES {
        for step in importer().read(file).unwrap().requests {
            if let Ok(Checked::Change(change)) = directory.check(&step.request) {
                directory.apply(&change);
            }
        }
    }
    let written: Vec<serde_json::Value> = directory
        .policies(PolicyScope::User, None)
        .map(|(vhost, policy)| policy_value(&vhost.name, policy))
        .chain(
            directory
                .policies(PolicyScope::Operator, None)
                .map(|(vhost, policy)| operator_policy_parameter(&vhost.name, policy)),
        )
        .chain(
            directory.global_parameters().map(|(name, value)| global_parameter_value(name, value)),
        )
        .collect();
    let mut read = Vec::new();
    for file in FILES {
        let file: serde_json::Value = serde_json::from_str(file).unwrap();
        for list in ["policies", "parameters", "global_parameters"] {
            read.extend(file[list].as_array().into_iter().flatten().cloned());
        }
    }
    read.retain(|one| one["name"] != "internal_cluster_id");
    assert_eq!(written.len(), read.len());
    for one in &read {
        assert!(written.contains(one), "{one}");
    }
    let limits = directory.vhost_info(directory.vhost("/").unwrap()).unwrap().limits;
    assert_eq!(vhost_limits_value(&limits).to_string(), r#"{"max-queues":9}"#);
}
