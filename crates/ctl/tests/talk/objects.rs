//! Lists, users, permissions, policies, parameters, virtual hosts, queues, connections.

use crate::fake::{api, fails, prints, say, users};
use serde_json::{Value, json};

#[test]
fn a_list_has_a_banner_a_header_and_rows() {
    let rows = "guest\t[administrator]\nm\t[administrator, monitoring]\nnone\t[]\n";
    let banner = "Listing users ...\n";
    prints(&mut users(), "rabbitmqctl list_users", &format!("{banner}user\ttags\n{rows}"));
    prints(&mut users(), "rabbitmqctl list_users -q", &format!("user\ttags\n{rows}"));
    prints(&mut users(), "rabbitmqctl -s list_users", rows);
    prints(&mut users(), "rabbitmqctl list_users --no-table-headers", &format!("{banner}{rows}"));
    prints(
        &mut users(),
        "rabbitmq-diagnostics -n x@y -l -q list_users",
        &format!("user\ttags\n{rows}"),
    );
}

#[test]
fn every_formatter_has_its_form() {
    prints(
        &mut users(),
        "rabbitmqctl -q list_users --formatter json",
        "[\n{\"user\":\"guest\",\"tags\":[\"administrator\"]}\n,{\"user\":\"m\",\"tags\":[\"administrator\",\"monitoring\"]}\n,{\"user\":\"none\",\"tags\":[]}\n]\n",
    );
    prints(
        &mut users(),
        "rabbitmqctl list_users --formatter=csv",
        "\"user\",\"tags\"\n\"guest\",\"[administrator]\"\n\"m\",\"[administrator, monitoring]\"\n\"none\",\"[]\"\n",
    );
    prints(
        &mut users(),
        "rabbitmqctl list_users --formatter erlang",
        "Listing users ...\n[[{user,<<\"guest\">>},{tags,[administrator]}],\n [{user,<<\"m\">>},{tags,[administrator,monitoring]}],\n [{user,<<\"none\">>},{tags,[]}]]\n",
    );
    let mut one =
        api(&[("GET /api/users", 200, json!([{"name": "guest", "tags": ["administrator"]}]))]);
    prints(
        &mut one,
        "rabbitmqctl list_users --formatter pretty_table",
        "Listing users ...\n\u{1b}(0lqqqqqqqwqqqqqqqqqqqqqqqk\u{1b}(B\n\u{1b}(0x\u{1b}(B \u{1b}[1muser\u{1b}[0m  \u{1b}(0x\u{1b}(B \u{1b}[1mtags\u{1b}[0m          \u{1b}(0x\u{1b}(B\n\u{1b}(0tqqqqqqqnqqqqqqqqqqqqqqqu\u{1b}(B\n\u{1b}(0x\u{1b}(B guest \u{1b}(0x\u{1b}(B administrator \u{1b}(0x\u{1b}(B\n\u{1b}(0mqqqqqqqvqqqqqqqqqqqqqqqj\u{1b}(B\n",
    );
    let mut none = api(&[("GET /api/users", 200, json!([]))]);
    prints(&mut none, "rabbitmqctl list_users", "Listing users ...\n");
    prints(&mut none, "rabbitmqctl list_users --formatter json", "[\n]\n");
}

#[test]
fn queues_come_page_by_page_with_the_columns_in_the_order_asked() {
    let page = |page: u64, names: &[&str]| {
        let items: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "messages": 3, "arguments": {"x-max-length": 10}}))
            .collect();
        json!({"items": items, "page": page, "page_count": 2})
    };
    let mut fake = api(&[
        ("GET /api/queues/a%2Fb%25c", 200, page(1, &["q1"])),
        ("GET /api/queues/a%2Fb%25c", 200, page(2, &["q 2", "t\tn\u{1b}"])),
    ]);
    let expected = "Timeout: 7.0 seconds ...\nListing queues for vhost a/b%c ...\nmessages\tname\targuments\n3\tq1\t[{\"x-max-length\",10}]\n3\tq 2\t[{\"x-max-length\",10}]\n3\tt\\011n\\033\t[{\"x-max-length\",10}]\n";
    prints(&mut fake, "rabbitmqctl list_queues -p a/b%c messages name,arguments -t 7", expected);
    let asked: Vec<&str> = fake.calls.iter().map(|(call, _)| call.as_str()).collect();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].contains("page=2&page_size=500&columns=name,vhost,node,arguments,messages"));
    let mut none = api(&[]);
    prints(
        &mut none,
        "rabbitmqctl list_queues -p nope",
        "Timeout: 60.0 seconds ...\nListing queues for vhost nope ...\n",
    );
    let usage = "\nArguments given:\n\tlist_queues b a\n\n\u{1b}[1mUsage\u{1b}[0m\n\nrabbitmqctl [--node <node>] [--longnames] [--quiet] list_queues [--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout <timeout>]\n";
    let text = format!("Error (argument validation): Info key(s) a,b are not supported{usage}");
    fails(&mut none, "rabbitmqctl list_queues b a", 64, &text);
}

#[test]
fn what_filters_passed_over_is_a_column_of_queues_and_nothing_where_there_is_no_filter() {
    let items = json!([{"name": "plain"}, {"name": "q", "messages_passed_over": 3}]);
    let page = json!({"items": items, "page": 1, "page_count": 1});
    let mut fake = api(&[("GET /api/queues/%2F", 200, page)]);
    let line = "rabbitmqctl list_queues -s name messages_passed_over";
    let ended = say(&mut fake, &line.split(' ').collect::<Vec<_>>(), "");
    assert_eq!(ended.out, "plain\t\nq\t3\n");
    assert!(fake.calls[0].0.ends_with(",messages_passed_over"), "{}", fake.calls[0].0);
}

#[test]
fn a_connection_is_closed_by_the_identifier_that_its_list_shows() {
    let connection = json!({
        "name": "127.0.0.1:1 -> 127.0.0.1:2", "node": "rabbit@h", "peer_port": 1,
        "client_properties": {"connection_name": "x"},
    });
    let mut fake = api(&[
        ("GET /api/connections", 200, json!([connection])),
        ("POST /api/lepus/ctl/connections/close", 200, json!({"closed": 1})),
    ]);
    let line = "rabbitmqctl -n x list_connections -s pid peer_port client_properties";
    let ended = say(&mut fake, &line.split(' ').collect::<Vec<_>>(), "");
    let (pid, rest) = ended.out.split_once('\t').unwrap();
    assert_eq!(rest, "1\t[{\"connection_name\",\"x\"}]\n");
    assert!(pid.starts_with("<rabbit@h.") && pid.ends_with('>'), "{pid}");
    let words = ["rabbitmqctl", "close_connection", pid, "why not"];
    let ended = say(&mut fake, &words, "");
    assert_eq!(ended.out, format!("Closing connection {pid}, reason: why not...\n"));
    let (call, body) = fake.calls.last().unwrap();
    assert_eq!(call, "POST /api/lepus/ctl/connections/close");
    assert_eq!(*body, json!({"name": "127.0.0.1:1 -> 127.0.0.1:2", "reason": "why not"}));
    // One that is gone is closed.
    let calls = fake.calls.len();
    assert_eq!(say(&mut fake, &["rabbitmqctl", "close_connection", "<a.1.2.3>", "x"], "").code, 0);
    assert_eq!(fake.calls.len(), calls + 1);
    prints(
        &mut fake,
        "rabbitmqctl close_all_connections --limit 10 bye",
        "Closing 10 connections in vhost /, reason: bye...\nClosed 1 connections\n",
    );
}

#[test]
fn a_user_is_added_once_and_its_password_is_not_repeated() {
    let note = "Done. Don't forget to grant the user permissions to some virtual hosts! See 'rabbitmqctl help set_permissions' to learn more.\n";
    let mut fake = api(&[("PUT /api/users/u", 201, Value::Null)]);
    prints(&mut fake, "rabbitmqctl add_user u secret", &format!("Adding user \"u\" ...\n{note}"));
    let ended = say(&mut fake, &["rabbitmqctl", "-q", "add_user", "u"], "from input\nrest");
    assert_eq!((ended.code, ended.out.as_str()), (0, ""));
    let bodies: Vec<&Value> = fake
        .calls
        .iter()
        .filter(|(call, _)| call.starts_with("PUT"))
        .map(|(_, body)| body)
        .collect();
    assert_eq!(*bodies[0], json!({"password": "secret", "tags": ""}));
    assert_eq!(*bodies[1], json!({"password": "from input", "tags": ""}));
    let ended = say(&mut fake, &["rabbitmqctl", "add_user", "u", "secret", "word"], "");
    assert_eq!(ended.code, 64);
    assert!(ended.errors.contains("\tadd_user u ...\n") && !ended.errors.contains("secret"));
    let missing = "Error:\nPassword is not provided via argument or stdin\n";
    fails(&mut fake, "rabbitmqctl add_user u", 65, missing);
    fails(&mut fake, "rabbitmqctl change_password u", 70, missing);
    let mut there = api(&[("GET /api/users/u", 200, json!({"name": "u"}))]);
    fails(&mut there, "rabbitmqctl add_user u x", 70, "Error:\nUser \"u\" already exists\n");
}

#[test]
fn what_a_user_has_is_kept_when_something_else_changes() {
    let user = json!({"name": "u", "tags": ["monitoring"], "password_hash": "H", "hashing_algorithm": "A"});
    let mut fake = api(&[("GET /api/users/u", 200, user), ("PUT /api/users/u", 204, Value::Null)]);
    prints(
        &mut fake,
        "rabbitmqctl set_user_tags u administrator policymaker",
        "Setting tags for user \"u\" to [administrator, policymaker] ...\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl change_password u new",
        "Changing password for user \"u\" ...\n",
    );
    prints(&mut fake, "rabbitmqctl clear_password u", "Clearing password for user \"u\" ...\n");
    let bodies: Vec<&Value> = fake
        .calls
        .iter()
        .filter(|(call, _)| call.starts_with("PUT"))
        .map(|(_, body)| body)
        .collect();
    let tags = json!({"tags": ["administrator", "policymaker"], "password_hash": "H", "hashing_algorithm": "A"});
    assert_eq!(*bodies[0], tags);
    assert_eq!(*bodies[1], json!({"tags": ["monitoring"], "password": "new"}));
    assert_eq!(*bodies[2], json!({"tags": ["monitoring"], "password_hash": ""}));
    let nobody = "Error:\nUser \"x\" does not exist\n";
    for line in ["set_user_tags x a", "change_password x y", "delete_user x"] {
        fails(&mut fake, &format!("rabbitmqctl {line}"), 67, nobody);
    }
    fails(&mut fake, "rabbitmqctl clear_password x", 69, "Error:\n{:no_such_user, \"x\"}\n");
}

#[test]
fn a_wrong_password_is_65() {
    let mut fake = api(&[
        ("POST /api/lepus/ctl/authenticate", 200, json!({"ok": true})),
        ("POST /api/lepus/ctl/authenticate", 200, json!({"ok": false})),
    ]);
    prints(
        &mut fake,
        "rabbitmqctl authenticate_user u p",
        "Authenticating user \"u\" ...\nSuccess\n",
    );
    let refused =
        "Error:\nError: failed to authenticate user \"u\"\nuser 'u' - invalid credentials\n";
    fails(&mut fake, "rabbitmqctl authenticate_user u wrong", 65, refused);
}

#[test]
fn permissions_say_what_is_missing() {
    let permission =
        json!([{"user": "u", "vhost": "/", "configure": ".*", "write": "", "read": "x"}]);
    let mut fake = api(&[
        ("PUT /api/permissions/%2F/u", 201, Value::Null),
        ("GET /api/vhosts/%2F/permissions", 200, permission.clone()),
        ("GET /api/users/u/permissions", 200, permission),
        ("GET /api/users/u", 200, json!({})),
        ("PUT /api/permissions/nope/u", 400, json!({"reason": "vhost_or_user_not_found"})),
        ("PUT /api/permissions/%2F/x", 400, json!({"reason": "vhost_or_user_not_found"})),
    ]);
    prints(
        &mut fake,
        "rabbitmqctl set_permissions u .* b x",
        "Setting permissions for user \"u\" in vhost \"/\" ...\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl list_permissions",
        "Listing permissions for vhost \"/\" ...\nuser\tconfigure\twrite\tread\nu\t.*\t\tx\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl list_user_permissions u --formatter json",
        "[\n{\"vhost\":\"/\",\"configure\":\".*\",\"write\":\"\",\"read\":\"x\"}\n]\n",
    );
    let no_vhost = "Error:\nVirtual host nope does not exist\n";
    fails(&mut fake, "rabbitmqctl set_permissions -p nope u a b c", 69, no_vhost);
    fails(&mut fake, "rabbitmqctl set_permissions x a b c", 67, "Error:\nUser x does not exist\n");
    fails(
        &mut fake,
        "rabbitmqctl list_permissions -p nope",
        65,
        "Virtual host 'nope' does not exist\n",
    );
    fails(&mut fake, "rabbitmqctl list_user_permissions x", 69, "Error:\n{:no_such_user, \"x\"}\n");
}

#[test]
fn policies_are_set_listed_and_cleared() {
    let policy = json!([{
        "vhost": "/", "name": "p", "pattern": "^q", "apply-to": "all", "definition": {"max-length": 5}, "priority": 0,
    }]);
    let invalid =
        json!({"error": "bad_request", "reason": "Validation failed\n\nno policy provided\n"});
    let mut fake = api(&[
        ("PUT /api/policies/%2F/p", 201, Value::Null),
        ("PUT /api/policies/%2F/bad", 400, invalid),
        ("GET /api/policies/%2F", 200, policy),
        ("GET /api/vhosts/%2F", 200, json!({"name": "/"})),
    ]);
    prints(
        &mut fake,
        "rabbitmqctl set_policy --priority 1 --apply-to queues p ^q {\"max-length\":5}",
        "Setting policy \"p\" for pattern \"^q\" to \"{\"max-length\":5}\" with priority \"1\" for vhost \"/\" ...\n",
    );
    let body = json!({"pattern": "^q", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"});
    assert_eq!(fake.calls[0].1, body);
    prints(
        &mut fake,
        "rabbitmqctl list_policies",
        "Listing policies for vhost \"/\" ...\nvhost\tname\tpattern\tapply-to\tdefinition\tpriority\n/\tp\t^q\tall\t{\"max-length\":5}\t0\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl list_policies --formatter json",
        "[\n{\"vhost\":\"/\",\"name\":\"p\",\"pattern\":\"^q\",\"apply-to\":\"all\",\"definition\":\"{\\\"max-length\\\":5}\",\"priority\":0}\n]\n",
    );
    fails(
        &mut fake,
        "rabbitmqctl set_policy bad q {}",
        69,
        "Error:\nValidation failed\n\nno policy provided\n\n",
    );
    fails(
        &mut fake,
        "rabbitmqctl set_policy p q no",
        69,
        "Error:\nJSON decoding error. Reason: badarg\n",
    );
    fails(&mut fake, "rabbitmqctl set_policy -p v p q {}", 65, "Virtual host 'v' does not exist\n");
    fails(&mut fake, "rabbitmqctl clear_policy none", 69, "Error:\nParameter does not exist\n");
}

#[test]
fn parameters_and_limits_are_json_in_a_field() {
    let mut fake = api(&[
        ("GET /api/vhosts/%2F", 200, json!({"name": "/"})),
        (
            "GET /api/parameters",
            200,
            json!([
                {"component": "shovel", "vhost": "/", "name": "s", "value": {"a": 1}},
                {"component": "shovel", "vhost": "other", "name": "t", "value": {}},
            ]),
        ),
        (
            "GET /api/global-parameters",
            200,
            json!([{"name": "g", "value": {"a": [1, "b", true, null]}}]),
        ),
        (
            "GET /api/vhost-limits/%2F",
            200,
            json!([{"vhost": "/", "value": {"max-queues": 5, "old": 1}}]),
        ),
        ("PUT /api/vhost-limits/%2F/max-queues", 204, Value::Null),
        ("DELETE /api/vhost-limits/%2F/old", 204, Value::Null),
        ("GET /api/users/guest", 200, json!({})),
        ("GET /api/user-limits/guest", 200, json!([])),
        ("GET /api/vhost-limits/none", 200, json!([])),
    ]);
    prints(
        &mut fake,
        "rabbitmqctl list_parameters",
        "Listing runtime parameters for vhost \"/\" ...\ncomponent\tname\tvalue\nshovel\ts\t{\"a\":1}\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl list_global_parameters",
        "Listing global runtime parameters ...\nname\tvalue\ng\t{\"a\":[1,\"b\",true,null]}\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl list_vhost_limits --formatter json",
        "{\"node\":\"rabbit@h\",\"result\":\"ok\",\"value\":\"{\\\"max-queues\\\":5,\\\"old\\\":1}\"}\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl list_vhost_limits -p none",
        "Listing limits for vhost \"none\" ...\n\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl list_user_limits",
        "Listing limits for user \"guest\" ...\n{}\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl set_vhost_limits {\"max-queues\":7}",
        "Setting vhost limits to \"{\"max-queues\":7}\" for vhost \"/\" ...\n",
    );
    let last: Vec<&str> = fake.calls.iter().rev().take(2).map(|(call, _)| call.as_str()).collect();
    assert_eq!(last, ["DELETE /api/vhost-limits/%2F/old", "PUT /api/vhost-limits/%2F/max-queues"]);
}

#[test]
fn virtual_hosts_keep_what_is_not_changed() {
    let vhost = json!({"name": "v", "description": "d", "tags": ["t"], "default_queue_type": "classic", "tracing": false});
    let mut fake = api(&[
        ("GET /api/vhosts", 200, json!([vhost])),
        ("GET /api/vhosts/v", 200, vhost),
        ("PUT /api/vhosts/v", 204, Value::Null),
        ("PUT /api/vhosts/n%2F%25", 201, Value::Null),
    ]);
    prints(
        &mut fake,
        "rabbitmqctl list_vhosts name tracing",
        "Listing vhosts ...\nname\ttracing\nv\tfalse\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl trace_on -p v",
        "Starting tracing for vhost \"v\" ...\nTrace enabled for vhost v\n",
    );
    let body = json!({"description": "d", "tags": ["t"], "default_queue_type": "classic", "tracing": true});
    assert_eq!(fake.calls.last().unwrap().1, body);
    let calls = fake.calls.len();
    prints(&mut fake, "rabbitmqctl add_vhost v", "Adding vhost \"v\" ...\n");
    assert_eq!(fake.calls.len(), calls + 1, "one that is there is not changed");
    prints(&mut fake, "rabbitmqctl add_vhost n/% --description x", "Adding vhost \"n/%\" ...\n");
    assert_eq!(fake.calls.last().unwrap().0, "PUT /api/vhosts/n%2F%25");
    fails(&mut fake, "rabbitmqctl delete_vhost nope", 65, "Virtual host 'nope' does not exist\n");
}

#[test]
fn queues_are_deleted_and_purged() {
    let mut fake = api(&[
        ("GET /api/queues/%2F/q", 200, json!({"messages_ready": 4})),
        ("DELETE /api/queues/%2F/q", 204, Value::Null),
        ("DELETE /api/queues/%2F/q/contents", 204, Value::Null),
    ]);
    prints(
        &mut fake,
        "rabbitmqctl delete_queue q --if-empty",
        "Deleting queue 'q' on vhost '/' if queue is empty ...\nQueue was successfully deleted with 4 ready messages\n",
    );
    assert_eq!(fake.calls.last().unwrap().0, "DELETE /api/queues/%2F/q?if-empty=true");
    prints(&mut fake, "rabbitmqctl purge_queue q", "Purging queue 'q' in vhost '/' ...\n");
    fails(&mut fake, "rabbitmqctl delete_queue none", 64, "Error:\nQueue not found\n");
    fails(&mut fake, "rabbitmqctl purge_queue none", 69, "Error:\nnot_found\n");
}
