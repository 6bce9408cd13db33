//! What the tools print, byte by byte, as RabbitMQ's own print it; each against an API that answers what the test says.

use lepus_ctl::{Api, Program, Reply, Unreachable};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// An API that answers by the method and the beginning of the path, and remembers what it was asked.
struct Fake {
    answers: Vec<(String, VecDeque<Reply>)>,
    calls: Vec<(String, Value)>,
    fault: Option<Unreachable>,
    waited: Duration,
}

impl Api for Fake {
    fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Unreachable> {
        let call = format!("{method} {path}");
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if path != "/api/lepus/ctl/state" {
            self.calls.push((call.clone(), body.cloned().unwrap_or_default()));
        }
        let found = self
            .answers
            .iter_mut()
            .find(|(known, _)| call == *known || call.starts_with(&format!("{known}?")));
        let missing = json!({"error": "Object Not Found", "reason": "Not Found"});
        Ok(match found {
            Some((_, replies)) if replies.len() > 1 => replies.pop_front().unwrap(),
            Some((_, replies)) => replies[0].clone(),
            None => Reply { status: 404, body: missing },
        })
    }

    fn pause(&mut self, time: Duration) {
        self.waited += time;
    }
}

/// An API of a broker that runs, with these answers.
fn api(answers: &[(&str, u16, Value)]) -> Fake {
    let state = json!({"node": "rabbit@h", "running": true, "booting": false, "pid": 1});
    let mut fake =
        Fake { answers: Vec::new(), calls: Vec::new(), fault: None, waited: Duration::ZERO };
    let own = [("GET /api/lepus/ctl/state", 200, state)];
    let is_told = answers.iter().any(|(call, ..)| *call == own[0].0);
    let own = if is_told { &[][..] } else { &own[..] };
    for (call, status, body) in answers.iter().chain(own) {
        let reply = Reply { status: *status, body: body.clone() };
        match fake.answers.iter_mut().find(|(known, _)| known == call) {
            Some((_, replies)) => replies.push_back(reply),
            None => fake.answers.push(((*call).to_owned(), VecDeque::from([reply]))),
        }
    }
    fake
}

/// What came of a command line.
#[derive(Debug)]
struct Ended {
    code: u8,
    out: String,
    errors: String,
}

fn say(fake: &mut Fake, words: &[&str], input: &str) -> Ended {
    let program = Program::of(words[0]).unwrap();
    let arguments: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let code =
        lepus_ctl::run(program, &arguments, fake, &mut input.as_bytes(), &mut out, &mut errors);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code, out: text(out), errors: text(errors) }
}

/// Fails unless the command line prints this and ends with 0.
fn prints(fake: &mut Fake, line: &str, expected: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let ended = say(fake, &words, "");
    assert_eq!(
        (ended.code, ended.out.as_str(), ended.errors.as_str()),
        (0, expected, ""),
        "{line}"
    );
}

/// Fails unless the command line ends so, with this on standard error.
fn fails(fake: &mut Fake, line: &str, code: u8, errors: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let ended = say(fake, &words, "");
    assert_eq!((ended.code, ended.errors.as_str()), (code, errors), "{line}");
}

fn users() -> Fake {
    let users = json!([
        {"name": "guest", "tags": ["administrator"]},
        {"name": "m", "tags": ["administrator", "monitoring"]},
        {"name": "none", "tags": []},
    ]);
    api(&[("GET /api/users", 200, users)])
}

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
    ]);
    for (text, expected) in [
        ("rabbit_nodes:reached_target_cluster_size().", "true\n"),
        ("rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []}).", "ok\n"),
        ("rabbit_alarm:clear_alarm({resource_limit, disk, node()}).", "ok\n"),
        ("application:set_env(rabbit, channel_max, 7).", "ok\n"),
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
    let ended = say(&mut fake, &["rabbitmqctl", "eval", "os:cmd(\"id\")."], "");
    assert_eq!((ended.code, ended.out.as_str()), (69, ""));
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
