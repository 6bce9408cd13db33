//! Wrong calls, the node and its checks, plugins, definitions, help, and `rabbitmqadmin`.

use crate::fake::{api, fails, prints, say, users};
use lepus_ctl::{Api, Unreachable};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn a_command_line_that_is_wrong_is_64_and_names_the_nearest() {
    let mut fake = users();
    fails(
        &mut fake,
        "rabbitmqctl list_user",
        64,
        "\nCommand 'list_user' not found. \nDid you mean 'list_users'? \n\n",
    );
    let ended = say(&mut fake, &["rabbitmqctl", "xyzzy"], "");
    assert_eq!(ended.code, 64);
    assert!(ended.errors.starts_with("\nCommand 'xyzzy' not found. \n\n\u{1b}[1mUsage\u{1b}[0m\n"));
    assert_eq!(say(&mut fake, &["rabbitmq-diagnostics", "add_user", "x", "y"], "").code, 64);
    assert_eq!(say(&mut fake, &["rabbitmqctl"], "").code, 64);
    let usage =
        "\n\n\u{1b}[1mUsage\u{1b}[0m\n\nrabbitmqctl [--node <node>] [--longnames] [--quiet] ";
    let list = format!("{usage}list_users [--no-table-headers] [--timeout <timeout>]\n");
    let text = format!(
        "Error (argument validation): too many arguments.\nArguments given:\n\tlist_users extra{list}"
    );
    fails(&mut fake, "rabbitmqctl list_users extra", 64, &text);
    let text = format!(
        "Error (argument validation): Invalid options for this command:\n--bogus : \nArguments given:\n\tlist_users --bogus{list}"
    );
    fails(&mut fake, "rabbitmqctl list_users --bogus", 64, &text);
    let text = format!(
        "Error (argument validation): not enough arguments.\nArguments given:\n\tset_user_tags{usage}set_user_tags <username> <tag> [...]\n"
    );
    fails(&mut fake, "rabbitmqctl set_user_tags", 64, &text);
    assert!(fake.calls.is_empty());
}

#[test]
fn no_broker_is_69_a_late_one_75_a_stopped_one_64() {
    let mut fake = users();
    fake.fault = Some(Unreachable { text: "nobody\u{1b}[2J".to_owned(), timed_out: false });
    let ended = say(&mut fake, &["rabbitmqctl", "-n", "a@b", "list_users"], "");
    assert_eq!((ended.code, ended.out.as_str()), (69, ""));
    assert!(ended.errors.starts_with("Error: unable to perform an operation on node 'a@b'."));
    assert!(ended.errors.contains("nobody\\033[2J"));
    fails(
        &mut fake,
        "rabbitmq-diagnostics -n a@b -q ping",
        69,
        "Error:\nFailed to connect and authenticate to a@b in 60000 ms\n",
    );
    fake.fault = Some(Unreachable { text: String::new(), timed_out: true });
    let late = "Error: operation list_users on node a@b timed out. Timeout value used: 5000\n";
    fails(&mut fake, "rabbitmqctl -n a@b -t 5 list_users", 75, late);
    let mut stopped =
        api(&[("GET /api/lepus/ctl/state", 200, json!({"node": "rabbit@h", "running": false}))]);
    let ended = say(&mut stopped, &["rabbitmqctl", "list_users"], "");
    assert_eq!(ended.code, 64);
    assert!(ended.errors.starts_with("Error: this command requires the 'rabbit' app to be running on the target node. Start it with 'rabbitmqctl start_app'.\nArguments given:\n\tlist_users\n"));
    fails(
        &mut stopped,
        "rabbitmq-diagnostics check_running",
        69,
        "Error:\nRabbitMQ on node rabbit@h is not running or has not fully booted yet (check with is_booting)\n",
    );
    let mut refused =
        api(&[("GET /api/users", 401, json!({"error": "not_authorised", "reason": "no"}))]);
    fails(&mut refused, "rabbitmqctl list_users", 69, "Error:\nno\n");
}

#[test]
fn who_waits_waits_no_longer_than_told() {
    let down = json!({"node": "rabbit@h", "running": false, "booting": true});
    let up = json!({"node": "rabbit@h", "running": true});
    let state = "GET /api/lepus/ctl/state";
    let mut fake = api(&[(state, 200, down.clone()), (state, 200, down), (state, 200, up)]);
    prints(&mut fake, "rabbitmqctl await_startup", "");
    assert!(fake.waited > Duration::ZERO && fake.waited < Duration::from_secs(1));
    fake.fault = Some(Unreachable { text: String::new(), timed_out: false });
    let late = "Error: operation await_startup on node a@b timed out. Timeout value used: 3000\n";
    fails(&mut fake, "rabbitmqctl await_startup -n a@b -t 3", 75, late);
    let mut running = api(&[]);
    let ended = say(&mut running, &["rabbitmqctl", "wait", "--pid", "999999999", "-t", "2"], "");
    assert_eq!((ended.code, ended.errors.as_str()), (69, "Error:\nprocess_not_running\n"));
    let own = std::process::id().to_string();
    let ended = say(&mut running, &["rabbitmqctl", "wait", "--pid", &own], "");
    assert!(
        ended.code == 0
            && ended
                .out
                .ends_with("Applications 'rabbit_and_plugins' are running on node 'rabbit@h'\n"),
        "{ended:?}"
    );
}

fn status() -> Value {
    json!({
        "rabbitmq_version": "4.2.0", "is_under_maintenance": false, "alarms": [{"resource": "memory", "node": "rabbit@h"}],
        "listeners": [{"interface": "[::]", "node": "rabbit@h", "port": 5672, "protocol": "amqp", "purpose": "AMQP 0-9-1 and AMQP 1.0"}],
        "memory": {"strategy": "rss", "total": {"rss": 200_000_000}, "binary": 50_000_000, "code": 1},
        "log_files": ["/a", "/b"], "vm_memory_high_watermark_setting": {"relative": 0.4},
        "vm_memory_high_watermark_limit": 10_110_604_083_u64,
    })
}

#[test]
fn health_checks_end_with_69_and_their_reason() {
    let mut fake = api(&[("GET /api/lepus/ctl/status", 200, status())]);
    let alarm = "Memory alarm on node rabbit@h\n";
    fails(&mut fake, "rabbitmq-diagnostics check_alarms", 69, alarm);
    fails(&mut fake, "rabbitmq-diagnostics check_local_alarms", 69, &format!("Error:\n{alarm}"));
    prints(&mut fake, "rabbitmq-diagnostics -q alarms", alarm);
    prints(
        &mut fake,
        "rabbitmq-diagnostics check_port_listener 5672",
        "Asking node rabbit@h if there's an active listener on port 5672 ...\nA listener for port 5672 is running on node rabbit@h.\n",
    );
    fails(
        &mut fake,
        "rabbitmq-diagnostics check_port_listener 1",
        69,
        "No listener for port 1 is active on node rabbit@h. Found listeners that use the following ports: 5672\n",
    );
    fails(
        &mut fake,
        "rabbitmq-diagnostics check_protocol_listener mqtt",
        69,
        "Error:\nNo listener for protocol mqtt is active on node rabbit@h. Found listeners for the following protocols: amqp\n",
    );
    prints(
        &mut fake,
        "rabbitmq-diagnostics listeners",
        "Asking node rabbit@h to report its protocol listeners ...\nInterface: [::], port: 5672, protocol: amqp, purpose: AMQP 0-9-1 and AMQP 1.0\n",
    );
    prints(
        &mut fake,
        "rabbitmq-diagnostics memory_breakdown",
        "Reporting memory breakdown on node rabbit@h...\nbinary: 0.05 gb (25.0%)\ncode: 0.0 gb (0.0%)\n\n",
    );
    prints(&mut fake, "rabbitmq-diagnostics -q ping", "Ping succeeded\n");
}

#[test]
fn the_status_is_an_object_or_sections() {
    let mut fake = api(&[("GET /api/lepus/ctl/status", 200, status())]);
    let ended = say(&mut fake, &["rabbitmqctl", "status", "--formatter", "json"], "");
    assert_eq!(serde_json::from_str::<Value>(&ended.out).unwrap(), status());
    let ended = say(&mut fake, &["rabbitmqctl", "status", "--unit", "mb"], "");
    let part = "\u{1b}[1mAlarms\u{1b}[0m\n\nMemory alarm on node rabbit@h\n\n";
    assert!(ended.out.starts_with("Status of node rabbit@h ...\n\u{1b}[1mRuntime\u{1b}[0m\n\n"));
    assert!(ended.out.contains(part), "{}", ended.out);
    assert!(ended.out.contains("\nRabbitMQ version: 4.2.0\n"));
    assert!(ended.out.contains("\nTotal memory used: 200.0 mb\nCalculation strategy: rss\nMemory high watermark setting: 0.4 of available memory, computed to: 10110.6041 mb\n\nbinary: 50.0 mb (25.0 %)\n"));
}

#[test]
fn known_expressions_are_done_and_others_refused() {
    let mut fake = api(&[
        ("PUT /api/lepus/ctl/alarms/memory", 204, Value::Null),
        ("DELETE /api/lepus/ctl/alarms/disk", 204, Value::Null),
        ("PUT /api/lepus/ctl/settings/channel_max", 204, Value::Null),
        ("PUT /api/lepus/ctl/settings/loopback_users", 204, Value::Null),
        ("GET /api/lepus/ctl/settings/channel_max", 200, json!({"value": 7})),
        ("GET /api/lepus/ctl/settings/loopback_users", 200, json!({"value": ["a \"b\"", "c"]})),
    ]);
    for (text, expected) in [
        ("rabbit_nodes:reached_target_cluster_size().", "true\n"),
        ("rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []}).", "ok\n"),
        ("rabbit_alarm:clear_alarm({resource_limit, disk, node()}).", "ok\n"),
        ("application:set_env(rabbit, channel_max, 7).", "ok\n"),
        ("application:set_env(rabbit, loopback_users, [<<\"a b\">>, \"c\"]).", "ok\n"),
        ("application:get_env(rabbit, channel_max).", "{ok,7}\n"),
        ("application:get_env(rabbit, loopback_users).", "{ok,[<<\"a \\\"b\\\"\">>,<<\"c\">>]}\n"),
        (
            "application:set_env(rabbitmq_management, sample_retention_policies, [{global, [{605, 1}]}]), ok.",
            "ok\n",
        ),
        ("node().", "rabbit@h\n"),
    ] {
        let ended = say(&mut fake, &["rabbitmqctl", "eval", text], "");
        assert_eq!((ended.code, ended.out.as_str()), (0, expected), "{text}: {}", ended.errors);
    }
    assert_eq!(fake.calls[2].1, json!({"value": 7}));
    assert_eq!(fake.calls[3].1, json!({"value": ["a b", "c"]}));
    let ended = say(&mut fake, &["rabbitmqctl", "eval", "os:cmd(\"id\")."], "");
    assert_eq!((ended.code, ended.out.as_str()), (69, ""));
}

#[test]
fn lines_of_the_log_are_printed_as_they_come() {
    let lines = |lines: &[&str], end: u64| json!({"lines": lines, "end": end});
    let mut fake = api(&[
        ("GET /api/lepus/ctl/log?lines=0", 200, lines(&[], 5)),
        ("GET /api/lepus/ctl/log?lines=10000&after=5", 200, lines(&["one", "two\u{1b}"], 7)),
        ("GET /api/lepus/ctl/log?lines=10000&after=7", 200, lines(&[], 7)),
    ]);
    let printed = "Streaming logs from node rabbit@h ...\none\ntwo\\033\n";
    prints(&mut fake, "rabbitmq-diagnostics log_tail_stream -d 1", printed);
    assert_eq!(fake.calls.len(), 3);
}

#[test]
fn settings_are_checked_before_they_are_sent() {
    let mut fake = api(&[
        ("PUT /api/lepus/ctl/settings/vm_memory_high_watermark", 204, Value::Null),
        ("PUT /api/lepus/ctl/settings/disk_free_limit", 204, Value::Null),
    ]);
    prints(
        &mut fake,
        "rabbitmqctl set_vm_memory_high_watermark absolute 2GB",
        "Setting memory threshold on rabbit@h to 2GB bytes ...\n",
    );
    prints(
        &mut fake,
        "rabbitmqctl set_disk_free_limit mem_relative 0.1",
        "Setting disk free limit on rabbit@h to 0.1 times the total RAM ...\n",
    );
    assert_eq!(fake.calls[0].1, json!({"value": {"absolute": 2_000_000_000}}));
    assert_eq!(fake.calls[1].1, json!({"value": {"mem_relative": 0.1}}));
    for words in [
        "set_vm_memory_high_watermark 2.5",
        "set_vm_memory_high_watermark abc",
        "set_disk_free_limit x",
    ] {
        let line: Vec<&str> = "rabbitmqctl".split(' ').chain(words.split(' ')).collect();
        assert_eq!(say(&mut fake, &line, "").code, 65, "{words}");
    }
    assert_eq!(fake.calls.len(), 2);
}

#[test]
fn plugins_that_are_built_in_are_enabled() {
    let nodes = json!([{"enabled_plugins": ["rabbitmq_shovel", "rabbitmq_management"], "rabbitmq_version": "4.2.0"}]);
    let mut fake = api(&[("GET /api/nodes", 200, nodes)]);
    prints(&mut fake, "rabbitmq-plugins list -q -E -m", "rabbitmq_management\nrabbitmq_shovel\n");
    prints(
        &mut fake,
        "rabbitmq-plugins list -q rabbitmq_shovel",
        "[E*] rabbitmq_shovel            4.2.0\n[  ] rabbitmq_shovel_management 4.2.0\n[  ] rabbitmq_shovel_prometheus 4.2.0\n",
    );
    prints(
        &mut fake,
        "rabbitmq-plugins enable --online rabbitmq_shovel",
        "Enabling plugins on node rabbit@h:\nrabbitmq_shovel\nThe following plugins have been configured:\n  rabbitmq_management\n  rabbitmq_shovel\nApplying plugin configuration to rabbit@h...\nPlugin configuration unchanged.\n",
    );
    fails(
        &mut fake,
        "rabbitmq-plugins enable nosuch",
        70,
        "Error:\n{:plugins_not_found, [:nosuch]}\n",
    );
    fails(
        &mut fake,
        "rabbitmq-plugins is_enabled rabbitmq_mqtt",
        69,
        "Error:\nPlugin rabbitmq_mqtt is not enabled on node rabbit@h. Enabled plugins and dependencies: rabbitmq_management, rabbitmq_shovel\n",
    );
}

#[test]
fn definitions_and_feature_flags() {
    let flags = json!([{"name": "a", "state": "enabled"}, {"name": "b", "state": "enabled"}]);
    let mut fake = api(&[
        ("GET /api/definitions", 200, json!({"users": []})),
        ("POST /api/definitions", 204, Value::Null),
        ("GET /api/feature-flags", 200, flags),
        ("PUT /api/feature-flags/a/enable", 204, Value::Null),
        ("PUT /api/feature-flags/b/enable", 204, Value::Null),
    ]);
    prints(&mut fake, "rabbitmqctl export_definitions -", "{\"users\":[]}");
    let ended = say(&mut fake, &["rabbitmqctl", "import_definitions"], "\u{feff}{\"users\":[1]}");
    assert_eq!(
        ended.out,
        "Importing definitions in JSON from standard input ...\nSuccessfully started definition import. This process is asynchronous and can take some time.\n"
    );
    assert_eq!(fake.calls.last().unwrap().1, json!({"users": [1]}));
    assert_eq!(say(&mut fake, &["rabbitmqctl", "import_definitions", "/nosuch"], "").code, 65);
    prints(
        &mut fake,
        "rabbitmqctl enable_feature_flag --opt-in all",
        "Enabling all feature flags ...\n",
    );
    fails(
        &mut fake,
        "rabbitmqctl enable_feature_flag c",
        64,
        "Error:\nThis feature flag is not supported by node rabbit@h\n",
    );
}

#[test]
fn maintenance_and_upgrades() {
    let mut fake = api(&[
        ("POST /api/lepus/ctl/lifecycle", 204, Value::Null),
        ("GET /api/health/checks/node-is-quorum-critical", 200, json!({"status": "ok"})),
        ("POST /api/rebalance/queues", 204, Value::Null),
    ]);
    prints(
        &mut fake,
        "rabbitmq-upgrade await_online_quorum_plus_one -t 5",
        "Will wait for a quorum + 1 of nodes to be online for all quorum queues for 5 seconds...\nTarget node seems to be the only one in a single node cluster, the command does not apply\n",
    );
    prints(
        &mut fake,
        "rabbitmq-upgrade drain",
        "Will put node rabbit@h into maintenance mode. The node will no longer serve any client traffic!\n",
    );
    prints(&mut fake, "rabbitmqctl stop_app", "Stopping rabbit application on node rabbit@h ...\n");
    assert_eq!(fake.calls.last().unwrap().1, json!({"action": "stop_app"}));
    prints(&mut fake, "rabbitmq-queues rebalance all", "Re-balancing leaders of all queues...\n");
    fails(
        &mut fake,
        "rabbitmqctl join_cluster a@b",
        69,
        "Error:\nThis broker has one node: there are no clusters yet\n",
    );
}

#[test]
fn every_command_teaches_itself() {
    for program in lepus_ctl::program::PROGRAMS {
        let mut fake = api(&[]);
        let overview = say(&mut fake, &[program.name(), "help"], "");
        assert_eq!(overview.code, 0);
        let table = lepus_ctl::families::all();
        for command in lepus_ctl::help::commands_of(&table, program) {
            assert!(overview.out.contains(&format!("   {}  ", command.name)), "{}", command.name);
            let one = say(&mut fake, &[program.name(), "help", command.name], "");
            assert!(one.out.contains(&command.usage_line(program)), "{}", command.name);
            assert_eq!(one.out, say(&mut fake, &[program.name(), command.name, "--help"], "").out);
            assert!(
                command
                    .defaults
                    .iter()
                    .all(|name| command.columns.iter().any(|column| column.name == *name))
            );
        }
        assert!(fake.calls.is_empty());
    }
    prints(&mut api(&[]), "rabbitmqctl autocomplete add_", "add_user\nadd_vhost\n");
}

#[test]
fn rabbitmqadmin_declares_lists_publishes_and_gets() {
    let mut fake = api(&[
        ("PUT /api/queues/a%2Fb/q", 201, Value::Null),
        ("POST /api/bindings/%2F/e/x/q/q", 201, Value::Null),
        ("GET /api/queues", 200, json!([{"name": "q", "messages": 1}])),
        (
            "GET /api/policies",
            200,
            json!([{"vhost": "/", "name": "p", "definition": {"a": 1}, "priority": 0}]),
        ),
        ("POST /api/exchanges/%2F/amq.default/publish", 200, json!({"routed": true})),
        (
            "POST /api/queues/%2F/q/get",
            200,
            json!([{"payload": "x", "redelivered": false, "routing_key": "q"}]),
        ),
        ("GET /api/connections", 200, json!([])),
    ]);
    prints(
        &mut fake,
        "rabbitmqadmin -V a/b declare queue name=q durable=false",
        "queue declared\n",
    );
    let body = json!({"name": "q", "durable": "false", "auto_delete": "false", "arguments": {}, "vhost": "a/b"});
    assert_eq!(fake.calls[0].1, body);
    prints(&mut fake, "rabbitmqadmin declare binding source=x destination=q", "binding declared\n");
    prints(
        &mut fake,
        "rabbitmqadmin list queues name messages",
        "+------+----------+\n| name | messages |\n+------+----------+\n| q    | 1        |\n+------+----------+\n",
    );
    assert_eq!(fake.calls.last().unwrap().0, "GET /api/queues?columns=name,messages");
    prints(&mut fake, "rabbitmqadmin -f tsv -q list queues", "q\t1\n");
    prints(&mut fake, "rabbitmqadmin -f kvp list queues", "name=\"q\" messages=\"1\"\n");
    prints(&mut fake, "rabbitmqadmin -f bash list queues", "q\n");
    prints(
        &mut fake,
        "rabbitmqadmin -f raw_json list queues",
        "[{\"messages\":1,\"name\":\"q\"}]\n",
    );
    prints(
        &mut fake,
        "rabbitmqadmin -f kvp list policies",
        "vhost=\"/\" name=\"p\" definition=\"{\"a\": 1}\" priority=\"0\"\n",
    );
    prints(&mut fake, "rabbitmqadmin list connections", "No items\n");
    let ended = say(&mut fake, &["rabbitmqadmin", "publish", "routing_key=q"], "body");
    assert_eq!(ended.out, "Message published\n");
    let body = &fake.calls.last().unwrap().1;
    assert_eq!(
        (body["payload"].as_str(), body["payload_encoding"].as_str()),
        (Some("Ym9keQ=="), Some("base64"))
    );
    prints(
        &mut fake,
        "rabbitmqadmin -f tsv get queue=q ackmode=ack_requeue_false",
        "routing_key\tpayload\tredelivered\nq\tx\tFalse\n",
    );
    assert_eq!(fake.calls.last().unwrap().1["count"], "1");
}

#[test]
fn rabbitmqadmin_fails_with_1_and_a_reason() {
    let mut fake = api(&[
        (
            "PUT /api/queues/%2F/q",
            400,
            json!({"error": "bad_request", "reason": "inequivalent arg"}),
        ),
        ("GET /api/users", 401, json!({"reason": "no"})),
    ]);
    fails(&mut fake, "rabbitmqadmin declare queue name=q", 1, "*** inequivalent arg\n\n");
    fails(&mut fake, "rabbitmqadmin list users", 1, "*** Access refused: /api/users\n\n");
    fails(
        &mut fake,
        "rabbitmqadmin delete queue name=a/b",
        1,
        "*** Not found: /api/queues/%2F/a%2Fb\n\n",
    );
    fails(
        &mut fake,
        "rabbitmqadmin declare policy name=p pattern=q definition=no",
        1,
        "ERROR: Could not parse JSON:\n  no\n",
    );
    let usage = |text: &str| format!("\nERROR: {text}\n\nrabbitmqadmin --help for help\n\n");
    for (line, text) in [
        ("declare queue", "mandatory argument \"name\" is required"),
        (
            "declare user name=u tags=",
            "one of mandatory arguments \"['password', 'password_hash']\" is required",
        ),
        ("declare queue name=q x=y", "Argument \"x\" is not recognised"),
        ("declare queue q", "Argument \"q\" not in the name=value format"),
        ("declare thing", "Type thing not recognised"),
        ("list things", "Don't know how to list things"),
        ("frobnicate", "Action frobnicate not understood"),
    ] {
        fails(&mut fake, &format!("rabbitmqadmin {line}"), 1, &usage(text));
    }
    fake.fault = Some(Unreachable { text: "h:1: refused".to_owned(), timed_out: false });
    fails(&mut fake, "rabbitmqadmin list queues", 1, "*** Could not connect: h:1: refused\n\n");
    let mut http = lepus_ctl::admin::connection(&["-s".to_owned()]);
    let error = http.call("GET", "/api/overview", None).unwrap_err();
    assert!(error.text.contains("TLS is not supported yet"));
}
