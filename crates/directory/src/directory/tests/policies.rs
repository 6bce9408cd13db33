//! Policies and parameters: what is set and cleared, which policies count, and what comes of them.

use super::*;
use lepus_amqp::table::Value;
use lepus_queue::Overflow;

fn set(
    scope: PolicyScope,
    name: &str,
    pattern: &str,
    apply_to: &str,
    priority: i64,
    definition: Table,
) -> Request {
    Request::SetPolicy {
        vhost: "/".into(),
        scope,
        name: name.into(),
        pattern: pattern.into(),
        apply_to: apply_to.into(),
        priority,
        definition,
    }
}

fn policy(name: &str, pattern: &str, definition: Table) -> Request {
    set(PolicyScope::User, name, pattern, "all", 0, definition)
}

fn operator(name: &str, pattern: &str, definition: Table) -> Request {
    set(PolicyScope::Operator, name, pattern, "queues", 0, definition)
}

fn clear(scope: PolicyScope, name: &str) -> Request {
    Request::ClearPolicy { vhost: "/".into(), scope, name: name.into() }
}

fn limit(length: i64) -> Table {
    Table::new().with("max-length", length)
}

fn with_arguments(name: &str, arguments: Table) -> Request {
    let mut request = declare_queue(name);
    if let Request::DeclareQueue { arguments: own, durable, .. } = &mut request {
        *own = arguments;
        *durable = true;
    }
    request
}

impl Fixture {
    fn info(&self, name: &str) -> &QueueInfo {
        self.directory.queue(self.vhost(), name).unwrap()
    }

    /// Names of the policies that count for a queue.
    fn policies_of(&self, queue: &str) -> (Option<&str>, Option<&str>) {
        let found = self.directory.policy_of_queue(self.info(queue));
        (found.policy_name(), found.operator_name())
    }

    fn max_length(&self, queue: &str) -> Option<u64> {
        self.directory.settings_of(self.info(queue)).max_length
    }
}

#[test]
fn a_policy_is_created_replaced_and_cleared() {
    let mut fixture = Fixture::new();
    let vhost = fixture.vhost();
    assert_eq!(fixture.does(&policy("p", "^q", limit(5))).policies_changed, Some(vhost));
    assert_eq!(fixture.ask(&policy("p", "^q", limit(5))), Ok(None), "it is so already");
    assert_eq!(fixture.directory.policy_epoch_of(vhost), 1);
    fixture.does(&policy("p", "^x", limit(6)));
    let found = fixture.directory.policy(vhost, PolicyScope::User, "p").unwrap();
    assert_eq!((found.pattern(), found.priority(), found.apply_to()), ("^x", 0, ApplyTo::All));
    assert_eq!(found.definition().to_owned(), limit(6));
    assert!(fixture.directory.policy(vhost, PolicyScope::Operator, "p").is_none());
    fixture.does(&clear(PolicyScope::User, "p"));
    assert_eq!(fixture.directory.policy_epoch(), 3);
    let missing = "policy 'p' in vhost '/' not found";
    assert_eq!(
        fixture.ask(&clear(PolicyScope::User, "p")),
        refusal(RefusalKind::NotFound, missing)
    );
    let missing = "operator policy 'p' in vhost '/' not found";
    assert_eq!(
        fixture.ask(&clear(PolicyScope::Operator, "p")),
        refusal(RefusalKind::NotFound, missing)
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_the_text_that_tools_look_for() {
    let mut fixture = Fixture::new();
    let mut text = |request: Request| match fixture.ask(&request) {
        Err((RefusalKind::PreconditionFailed, text)) => text,
        other => panic!("{other:?}"),
    };
    let starts = "Validation failed\n\n";
    let unknown = text(policy("p", "a", Table::new().with("odd", 1)));
    assert_eq!(unknown, format!("{starts}[<<\"odd\">>] are not recognised policy settings\n"));
    assert!(text(policy("p", "a", Table::new())).starts_with(starts));
    assert!(text(policy("p", "(", limit(1))).starts_with(starts));
    assert!(text(policy("p", "(?>a)", limit(1))).contains("atomic groups"));
    assert!(text(policy("", "a", limit(1))).starts_with(starts));
    let kind = set(PolicyScope::User, "p", "a", "nothing", 0, limit(1));
    assert!(text(kind).starts_with("Validation failed\n\napply-to 'nothing' unrecognised"));
    let names = operator("p", "a", Table::new().with("dead-letter-exchange", "x"));
    assert!(text(names).contains("operator policy settings"));
    let mut elsewhere = policy("p", "a", limit(1));
    if let Request::SetPolicy { vhost, .. } = &mut elsewhere {
        *vhost = "v".into();
    }
    assert!(matches!(fixture.ask(&elsewhere), Err((RefusalKind::NotFound, _))));
}

#[test]
fn the_highest_priority_counts_and_then_the_first_name() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.does(&policy("b", "^q", limit(1)));
    fixture.does(&policy("c", "^q", limit(2)));
    assert_eq!(fixture.policies_of("q"), (Some("b"), None));
    fixture.does(&policy("a", "^q", limit(3)));
    assert_eq!(fixture.policies_of("q"), (Some("a"), None));
    fixture.does(&set(PolicyScope::User, "c", "^q", "queues", 7, limit(4)));
    assert_eq!((fixture.policies_of("q"), fixture.max_length("q")), ((Some("c"), None), Some(4)));
    fixture.does(&set(PolicyScope::User, "z", "^x", "queues", 9, limit(5)));
    assert_eq!(fixture.policies_of("q"), (Some("c"), None), "the other is for other names");
    fixture.does(&set(PolicyScope::User, "c", "^q", "queues", -7, limit(4)));
    assert_eq!(fixture.policies_of("q"), (Some("a"), None));
}

#[test]
fn a_policy_is_for_the_kinds_that_it_names_and_that_know_all_its_keys() {
    let mut fixture = Fixture::new();
    fixture.queue("c");
    fixture.does(&with_arguments("k", Table::new().with("x-queue-type", "quorum")));
    fixture.exchange("x", "direct");
    let mut found = |apply_to: &str, definition: Table| {
        fixture.does(&set(PolicyScope::User, "p", "", apply_to, 0, definition));
        let exchange = fixture.directory.exchange(fixture.vhost(), "x").unwrap();
        let exchange = fixture.directory.policy_of_exchange(exchange).policy.is_some();
        (fixture.policies_of("c").0.is_some(), fixture.policies_of("k").0.is_some(), exchange)
    };
    assert_eq!(found("all", limit(1)), (true, true, true), "the empty pattern is in every name");
    assert_eq!(found("queues", limit(1)), (true, true, false));
    assert_eq!(found("classic_queues", limit(1)), (true, false, false));
    assert_eq!(found("quorum_queues", limit(1)), (false, true, false));
    assert_eq!(found("streams", limit(1)), (false, false, false));
    assert_eq!(found("exchanges", limit(1)), (false, false, true));
    assert_eq!(found("all", limit(1).with("max-age", "7D")), (false, false, true));
    assert_eq!(found("all", limit(1).with("ha-mode", "all")), (true, false, true));
    assert_eq!(found("all", Table::new().with("delivery-limit", 2)), (true, true, true));
    assert_eq!(
        found("all", Table::new().with("dead-letter-strategy", "at-least-once")),
        (false, true, true)
    );
}

#[test]
fn where_a_policy_is_not_for_a_kind_the_next_one_counts() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.does(&set(PolicyScope::User, "first", "", "all", 9, limit(1).with("max-age", "7D")));
    fixture.does(&set(PolicyScope::User, "second", "", "all", 1, limit(2)));
    assert_eq!(
        (fixture.policies_of("q"), fixture.max_length("q")),
        ((Some("second"), None), Some(2))
    );
}

#[test]
fn names_of_the_brokers_own_match_unless_the_pattern_rules_them_out() {
    let mut fixture = Fixture::new();
    let mut request = declare_queue("amq.gen-1");
    if let Request::DeclareQueue { server_named, exclusive, .. } = &mut request {
        (*server_named, *exclusive) = (true, Some(ConnectionId(1)));
    }
    fixture.does(&request);
    fixture.queue("q");
    fixture.does(&policy("p", "", limit(1)));
    assert_eq!(fixture.policies_of("amq.gen-1"), (Some("p"), None));
    fixture.does(&policy("p", "^(?!amq\\.).*", limit(1)));
    assert_eq!(fixture.policies_of("amq.gen-1"), (None, None));
    assert_eq!(fixture.policies_of("q"), (Some("p"), None));
}

#[test]
fn of_argument_policy_and_operator_policy_the_lowest_limit_holds() {
    let mut fixture = Fixture::new();
    fixture.does(&with_arguments("q", Table::new().with("x-max-length", 7)));
    fixture.does(&policy("p", "q", limit(10).with("overflow", "drop-head")));
    assert_eq!(fixture.max_length("q"), Some(7));
    fixture.does(&operator("o", "q", limit(5).with("overflow", "reject-publish")));
    assert_eq!(fixture.max_length("q"), Some(5));
    let found = fixture.directory.policy_of_queue(fixture.info("q"));
    assert_eq!((found.policy_name(), found.operator_name()), (Some("p"), Some("o")));
    assert_eq!(found.definition(), limit(5).with("overflow", "reject-publish"));
    let settings = fixture.directory.settings_of(fixture.info("q"));
    assert_eq!(settings.overflow, Overflow::RejectPublish);
    // A declaration is compared with the arguments alone.
    assert_eq!(fixture.ask(&with_arguments("q", Table::new().with("x-max-length", 7))), Ok(None));
    assert!(fixture.ask(&with_arguments("q", Table::new().with("x-max-length", 5))).is_err());
}

#[test]
fn unroutable_messages_go_where_the_policy_says() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.exchange("x", "direct");
    fixture.exchange("xa", "fanout");
    fixture.bind("xa", "q", "");
    fixture.does(&policy("p", "^x", Table::new().with("alternate-exchange", "xa")));
    let version = fixture.directory.version();
    let bytes = fixture.directory.bytes();
    assert_eq!(fixture.reached("x", "k"), [""; 0], "each shard looks at its exchanges in slices");
    let mut first = 0;
    while fixture.directory.renew_exchanges(first, 3, |_| true, &mut 0) {
        first += 3;
    }
    assert_eq!(fixture.reached("x", "k"), ["q"]);
    assert!(fixture.directory.version() > version, "routes that are remembered do not hold");
    assert!(fixture.directory.bytes() > bytes);
    // One that comes later does so from the beginning.
    fixture.exchange("xb", "direct");
    assert_eq!(fixture.reached("xb", "k"), ["q"]);
    let mut own = declare_exchange("xc", "direct");
    if let Request::DeclareExchange { arguments, .. } = &mut own {
        arguments.insert("alternate-exchange", "nowhere");
    }
    fixture.does(&own);
    assert_eq!(fixture.reached("xc", "k"), [""; 0], "its argument counts");
    fixture.does(&clear(PolicyScope::User, "p"));
    fixture.directory.renew_exchanges(0, 100, |_| true, &mut 0);
    assert_eq!(fixture.reached("x", "k"), [""; 0]);
    for name in ["x", "xa", "xb", "xc"] {
        fixture.does(&delete_exchange(name, false));
    }
    let mut fresh = Fixture::new();
    fresh.queue("q");
    assert_eq!(fixture.directory.bytes(), fresh.directory.bytes());
}

#[test]
fn what_a_log_says_of_policies_after_the_exchanges_holds_at_the_start() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.exchange("x", "direct");
    fixture.exchange("xa", "fanout");
    fixture.bind("xa", "q", "");
    fixture.does(&policy("p", "^x$", Table::new().with("alternate-exchange", "xa")));
    let mut copy = Directory::new(HashState::new(9), 1);
    fixture.changes.iter().for_each(|change| copy.replay(change));
    copy.settle(Capacity::default(), 512);
    fixture.directory = copy;
    assert_eq!(fixture.reached("x", "k"), ["q"]);
}

#[test]
fn parameters_are_kept_as_text_by_virtual_host_component_and_name() {
    let mut fixture = Fixture::new();
    let create =
        |name: &str| Request::CreateVhost { name: name.into(), metadata: VhostMetadata::default() };
    fixture.does(&create("a"));
    let set = |vhost: &str, component: &str, name: &str, value: &str| Request::SetParameter {
        vhost: vhost.into(),
        component: component.into(),
        name: name.into(),
        value: value.into(),
    };
    fixture.does(&set("a", "shovel", "s", "{}"));
    fixture.does(&set("/", "shovel", "s", "{\"b\":1}"));
    fixture.does(&set("/", "federation-upstream", "u", "[]"));
    assert_eq!(fixture.ask(&set("a", "shovel", "s", "{}")), Ok(None));
    let list = |directory: &Directory, vhost: Option<VhostId>| -> Vec<String> {
        let found = directory.parameters(vhost);
        found
            .map(|(vhost, one)| {
                format!("{} {} {} {}", vhost.name, one.component, one.name, one.value)
            })
            .collect()
    };
    assert_eq!(
        list(&fixture.directory, None),
        ["/ federation-upstream u []", "/ shovel s {\"b\":1}", "a shovel s {}"]
    );
    let (default, other) = (fixture.vhost(), fixture.directory.vhost("a").unwrap());
    assert_eq!(list(&fixture.directory, Some(other)), ["a shovel s {}"]);
    assert_eq!(fixture.directory.parameter(default, "shovel", "s"), Some("{\"b\":1}"));
    let clear = |name: &str| Request::ClearParameter {
        vhost: "/".into(),
        component: "shovel".into(),
        name: name.into(),
    };
    let missing = "parameter 'x' of component 'shovel' in vhost '/' not found";
    assert_eq!(fixture.ask(&clear("x")), refusal(RefusalKind::NotFound, missing));
    fixture.does(&clear("s"));
    assert_eq!(fixture.directory.parameter(default, "shovel", "s"), None);
    let global = |value: &str| Request::SetGlobalParameter {
        name: "cluster_name".into(),
        value: value.into(),
    };
    fixture.does(&global("\"a\""));
    fixture.does(&global("\"b\""));
    assert_eq!(
        fixture.directory.global_parameters().collect::<Vec<_>>(),
        [("cluster_name", "\"b\"")]
    );
    let clear = Request::ClearGlobalParameter { name: "cluster_name".into() };
    fixture.does(&clear);
    let missing = "global parameter 'cluster_name' not found";
    assert_eq!(fixture.ask(&clear), refusal(RefusalKind::NotFound, missing));
}

#[test]
fn a_virtual_host_takes_its_policies_and_parameters_along() {
    let mut fixture = Fixture::new();
    fixture.does(&Request::CreateVhost { name: "v".into(), metadata: VhostMetadata::default() });
    let bytes = fixture.directory.bytes();
    for vhost in ["/", "v"] {
        for scope in PolicyScope::ALL {
            let mut request = set(scope, "p", "", "queues", 0, limit(1));
            if let Request::SetPolicy { vhost: of, .. } = &mut request {
                *of = vhost.into();
            }
            fixture.does(&request);
        }
        fixture.does(&Request::SetParameter {
            vhost: vhost.into(),
            component: "c".into(),
            name: "n".into(),
            value: "1".into(),
        });
    }
    let both = fixture.directory.bytes() - bytes;
    fixture.does(&Request::DeleteVhost { name: "v".into() });
    while fixture.directory.clearing() > 0 {
        fixture.directory.apply(&Change::Cleared);
    }
    assert_eq!(fixture.directory.policies(PolicyScope::User, None).count(), 1);
    assert_eq!(fixture.directory.policies(PolicyScope::Operator, None).count(), 1);
    assert_eq!(fixture.directory.parameters(None).count(), 1);
    assert_eq!(Fixture::new().directory.bytes() + both / 2, fixture.directory.bytes());
}

#[test]
fn there_may_be_so_many_and_no_more() {
    let mut fixture = Fixture::new();
    fixture.directory.set_capacity(Capacity {
        vhost_policies_max: 2,
        parameters_max: 1,
        parameter_bytes_max: 10,
        arguments_bytes_max: 40,
        ..Capacity::default()
    });
    fixture.does(&policy("a", "", limit(1)));
    fixture.does(&operator("a", "", limit(1)));
    let full = "cannot set policy 'b': there may be 2 at most";
    assert_eq!(
        fixture.ask(&policy("b", "", limit(1))),
        refusal(RefusalKind::PreconditionFailed, full)
    );
    fixture.does(&policy("a", "", limit(2)));
    let large = Table::new().with("dead-letter-exchange", Value::from("x".repeat(40).as_str()));
    let Err((_, text)) = fixture.ask(&policy("a", "", large)) else { panic!("it is too large") };
    assert!(text.ends_with("40 is the limit"), "{text}");
    let global = |name: &str, value: &str| Request::SetGlobalParameter {
        name: name.into(),
        value: value.into(),
    };
    assert!(fixture.ask(&global("a", "12345678901")).is_err());
    fixture.does(&global("a", "1234567890"));
    fixture.does(&global("a", "1"));
    assert!(fixture.ask(&global("b", "1")).is_err());
    // What is decided and not applied counts, too.
    let mut fixture = Fixture::new();
    fixture.directory.set_capacity(Capacity { policies_max: 1, ..Capacity::default() });
    let Ok(Checked::Change(change)) = fixture.directory.check(&policy("a", "", limit(1))) else {
        panic!("it may be set")
    };
    fixture.directory.reserve(&change);
    assert!(fixture.directory.check(&policy("b", "", limit(1))).is_err());
    fixture.directory.release(&change);
    assert!(fixture.directory.check(&policy("b", "", limit(1))).is_ok());
}

#[test]
fn policies_of_other_names_may_be_decided_side_by_side() {
    let fixture = Fixture::new();
    let mut touched = Footprint::new(fixture.directory.hash());
    assert!(touched.add(&fixture.directory, &policy("a", "", limit(1))));
    assert!(touched.add(&fixture.directory, &policy("b", "", limit(1))));
    assert!(touched.add(&fixture.directory, &operator("a", "", limit(1))));
    assert!(touched.add(&fixture.directory, &declare_queue("a")));
    assert!(!touched.add(&fixture.directory, &clear(PolicyScope::User, "a")));
}
