//! The management API over HTTP, as RabbitMQ's tools use it.

use crate::client::log_in;
use crate::running::{Program, Scratch};
use crate::session::{Seen, connect};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lepus_amqp::method::basic;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The head as it came.
    pub head: String,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A user of the API; with an empty login it has none.
pub struct User {
    address: SocketAddr,
    login: String,
}

impl User {
    pub fn new(address: SocketAddr, login: &str) -> User {
        User { address, login: login.to_owned() }
    }

    pub fn guest(program: &Program) -> User {
        User::new(program.management, "guest:guest")
    }

    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        self.send_part(method, path, headers, body, body.len())
    }

    /// Sends a body that may be only a part of what it says to be.
    fn send_part(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
        length: usize,
    ) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let login = match self.login.is_empty() {
            true => String::new(),
            false => format!("Authorization: Basic {}\r\n", STANDARD.encode(&self.login)),
        };
        let request = format!(
            "{method} /api{path} HTTP/1.1\r\nHost: {}\r\n{login}Connection: close\r\n\
             Content-Length: {length}\r\n{headers}\r\n{body}",
            self.address,
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        Answer { status, head: head.to_owned(), body }
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = self.send("GET", path, "", "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    /// The code, and the reason where there is one.
    pub fn code(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.send(method, path, "", &body);
        (answer.status, answer.body["reason"].as_str().unwrap_or_default().to_owned())
    }

    pub fn put(&self, path: &str, body: Value) -> u16 {
        let (code, reason) = self.code("PUT", path, &body);
        assert!(code < 300, "PUT {path}: {code} {reason}");
        code
    }

    pub fn delete(&self, path: &str) -> u16 {
        self.code("DELETE", path, &Value::Null).0
    }

    pub fn publish(&self, queue: &str, payload: &str) {
        let body = json!({
            "routing_key": queue, "properties": {}, "payload": payload, "payload_encoding": "string",
        });
        let answer = self.send("POST", "/exchanges/%2F/amq.default/publish", "", &body.to_string());
        assert_eq!((answer.status, &answer.body), (200, &json!({"routed": true})));
    }

    pub fn take(&self, queue: &str, count: u32) -> Vec<String> {
        let body = json!({"ackmode": "ack_requeue_false", "count": count, "encoding": "auto"});
        let path = format!("/queues/%2F/{queue}/get");
        let answer = self.send("POST", &path, "", &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let rows = answer.body.as_array().unwrap().iter();
        rows.map(|row| row["payload"].as_str().unwrap().to_owned()).collect()
    }

    pub fn messages(&self, queue: &str) -> u64 {
        self.get(&format!("/queues/%2F/{queue}"))["messages"].as_u64().unwrap()
    }
}

/// A broker with two shards.
pub fn started(name: &str) -> (Scratch, Program) {
    let scratch = Scratch::new(name);
    let program = Program::start(&scratch, &["--shards", "2"]);
    (scratch, program)
}

#[test]
fn queues_are_declared_shown_and_deleted_as_tools_want_it() {
    let (_scratch, program) = started("api-queues");
    let guest = User::guest(&program);
    assert!(guest.get("/overview")["node"].as_str().unwrap().starts_with("rabbit@"));
    // Old scripts send texts for everything.
    assert_eq!(guest.put("/queues/%2F/q", json!({"durable": "true", "auto_delete": "false"})), 201);
    assert_eq!(guest.put("/queues/%2F/q", json!({"durable": true})), 204);
    let (code, reason) = guest.code("PUT", "/queues/%2F/q", &json!({"durable": false}));
    assert_eq!(code, 400);
    assert!(
        reason.starts_with("inequivalent arg 'durable' for queue 'q' in vhost '/'"),
        "{reason}"
    );
    for path in ["/queues", "/queues/", "/queues//", "/queues/%2F", "/queues/%2f/"] {
        assert_eq!(guest.get(path).as_array().unwrap().len(), 1, "{path}");
    }
    let missing = guest.send("DELETE", "/queues/%2F/missing", "", "");
    assert_eq!(missing.status, 404);
    assert_eq!(missing.body, json!({"error": "Object Not Found", "reason": "Not Found"}));
    let long = format!("/queues/%2F/{}", "n".repeat(256));
    assert_eq!(guest.code("PUT", &long, &json!({})).0, 400);
    guest.publish("q", "x");
    assert_eq!(guest.code("DELETE", "/queues/%2F/q?if-empty=true", &Value::Null).0, 400);
    assert_eq!(guest.take("q", 5), ["x"]);
    assert_eq!(guest.delete("/queues/%2F/q?if-empty=true"), 204);
    assert_eq!(guest.code("GET", "/queues/%2F/q", &Value::Null).0, 404);
}

#[test]
fn lists_are_paged_sorted_and_narrowed() {
    let (_scratch, program) = started("api-lists");
    let guest = User::guest(&program);
    for number in 0..101 {
        guest.put(&format!("/queues/%2F/q{number:03}"), json!({"durable": true}));
    }
    guest.publish("q050", "x");
    let page = guest.get("/queues?page=1&page_size=100");
    assert_eq!(
        (&page["page_count"], &page["item_count"], &page["total_count"]),
        (&json!(2), &json!(100), &json!(101))
    );
    let page =
        guest.get("/queues/%2F?page=1&use_regex=true&pagination=false&name=%5Eq00%5B12%5D%24");
    assert_eq!((&page["filtered_count"], &page["items"][1]["name"]), (&json!(2), &json!("q002")));
    // A broken pattern matches nothing.
    assert_eq!(guest.get("/queues?page=1&use_regex=true&name=%28")["filtered_count"], 0);
    for query in ["page=2", "page=9"] {
        let (code, _) = guest.code("GET", &format!("/vhosts?{query}"), &Value::Null);
        assert_eq!(code, 400, "{query}");
    }
    for query in ["page=0", "page=x", "page=1&page_size=501", "page=1&page_size=0"] {
        let answer = guest.send("GET", &format!("/queues?{query}"), "", "");
        assert_eq!(
            (answer.status, &answer.body["error"]),
            (400, &json!("invalid_pagination_parameters"))
        );
    }
    let sorted = guest.get("/queues?sort=messages&sort_reverse=true&page=1&page_size=1");
    assert_eq!(sorted["items"][0]["name"], "q050");
    let narrow =
        guest.get("/queues?columns=name,message_stats.publish&sort=messages&sort_reverse=true");
    assert_eq!(narrow[0], json!({"name": "q050", "message_stats": {"publish": 1}}));
    assert_eq!(narrow[1], json!({"name": narrow[1]["name"]}));
    let samples = guest.get("/queues/%2F/q050?lengths_age=60&lengths_incr=5");
    let samples = samples["messages_details"]["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 13);
    assert!(
        samples.windows(2).all(|two| two[0]["timestamp"].as_u64() > two[1]["timestamp"].as_u64())
    );
    let (code, _) = guest.code("GET", "/queues?lengths_age=6000&lengths_incr=1", &Value::Null);
    assert_eq!(code, 400);
}

#[test]
fn a_binding_is_deleted_by_the_end_of_its_location() {
    let (_scratch, program) = started("api-bindings");
    let guest = User::guest(&program);
    guest.put("/queues/%2F/q", json!({"durable": true}));
    guest.put("/exchanges/%2F/x", json!({"type": "topic", "durable": true}));
    for body in [
        json!({"routing_key": "a b/c~", "arguments": {}}),
        json!({"routing_key": "", "arguments": {}}),
        json!({"routing_key": "k", "arguments": {"b": 2, "a": "x"}}),
    ] {
        let answer = guest.send("POST", "/bindings/%2F/e/x/q/q", "", &body.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
        let location = answer.header("location").unwrap();
        let end = location.rsplit('/').next().unwrap();
        let path = format!("/bindings/%2F/e/x/q/q/{end}");
        assert_eq!(guest.get(&path)["routing_key"], body["routing_key"]);
        assert_eq!(guest.delete(&path), 204, "{path}");
        assert_eq!(guest.delete(&path), 404, "{path}");
    }
    assert_eq!(guest.code("POST", "/bindings/%2F/e/missing/q/q", &json!({})).0, 404);
    assert_eq!(guest.get("/queues/%2F/q/bindings")[0]["source"], "");
}

/// A tool that takes down a binding asks first, and reads an empty list as done; so does one that asks of every queue of a list
/// which of them are gone by then.
#[test]
fn what_is_not_there_has_no_bindings() {
    let (_scratch, program) = started("api-no-bindings");
    let guest = User::guest(&program);
    guest.put("/queues/%2F/q", json!({"durable": true}));
    for path in [
        "/bindings/%2F/e/missing/q/q",
        "/bindings/%2F/e/amq.topic/q/missing",
        "/bindings/%2F/e/missing/e/amq.topic",
        "/queues/%2F/missing/bindings",
        "/exchanges/%2F/missing/bindings/source",
        "/exchanges/%2F/missing/bindings/destination",
    ] {
        assert_eq!(guest.get(path), json!([]), "{path}");
    }
    for path in
        ["/bindings/missing/e/x/q/q", "/queues/missing/q/bindings", "/bindings/%2F/e/missing/q/q/~"]
    {
        assert_eq!(guest.code("GET", path, &Value::Null).0, 404, "{path}");
    }
}

#[test]
fn names_may_hold_any_character() {
    let (_scratch, program) = started("api-names");
    let guest = User::guest(&program);
    assert_eq!(guest.put("/vhosts/a%2Fb%3Fc%23d%25", json!({"description": "odd"})), 201);
    assert_eq!(guest.get("/vhosts/a%2Fb%3Fc%23d%25")["name"], "a/b?c#d%");
    // Who makes it may do everything in it.
    assert_eq!(guest.put("/queues/a%2Fb%3Fc%23d%25/%2B%20q", json!({})), 201);
    assert_eq!(guest.get("/queues/a%2Fb%3Fc%23d%25")[0]["name"], "+ q");
    assert_eq!(guest.code("GET", "/queues/%ff", &Value::Null).0, 400);
    assert_eq!(
        guest.code("POST", "/vhosts/a%2Fb%3Fc%23d%25/deletion/protection", &Value::Null).0,
        204
    );
    assert_eq!(guest.delete("/vhosts/a%2Fb%3Fc%23d%25"), 412);
    assert_eq!(guest.delete("/vhosts/a%2Fb%3Fc%23d%25/deletion/protection"), 204);
    assert_eq!(guest.delete("/vhosts/a%2Fb%3Fc%23d%25"), 204);
    assert_eq!(guest.delete("/vhosts/a%2Fb%3Fc%23d%25"), 404);
}

#[test]
fn tags_say_what_a_user_may_see() {
    let (_scratch, program) = started("api-tags");
    let guest = User::guest(&program);
    for tag in ["monitoring", "management", "policymaker", "none"] {
        let tags = if tag == "none" { "" } else { tag };
        guest.put(&format!("/users/{tag}"), json!({"password": "p", "tags": tags}));
    }
    guest.put("/vhosts/v", Value::Null);
    let user = |name: &str| User::new(program.management, &format!("{name}:p"));
    let code = |name: &str, path: &str| user(name).code("GET", path, &Value::Null);
    assert_eq!(code("none", "/overview"), (401, "Not management user".to_owned()));
    assert_eq!(code("monitoring", "/nodes").0, 200);
    assert_eq!(code("monitoring", "/users"), (401, "Not administrator user".to_owned()));
    assert_eq!(code("management", "/nodes").0, 401);
    // A virtual host that one may not enter is not there.
    assert_eq!(code("management", "/queues/v").0, 404);
    assert_eq!(code("management", "/queues").0, 200);
    let policy = json!({"pattern": "^a", "definition": {"max-length": 1}});
    assert_eq!(user("policymaker").code("PUT", "/policies/v/p", &policy).0, 401);
    guest
        .put("/permissions/v/policymaker", json!({"configure": "^a", "write": ".*", "read": ".*"}));
    assert_eq!(user("policymaker").put("/policies/v/p", policy.clone()), 201);
    assert_eq!(user("policymaker").code("PUT", "/operator-policies/v/p", &policy).0, 401);
    // Its own permissions hold for what it declares.
    assert_eq!(user("policymaker").put("/queues/v/a", json!({})), 201);
    let (code, reason) = user("policymaker").code("PUT", "/queues/v/b", &json!({}));
    assert_eq!(code, 401);
    assert!(reason.starts_with("ACCESS_REFUSED - configure access to queue 'b'"), "{reason}");
    let _connection = log_in(program.amqp, "guest", "guest", "/").unwrap();
    let name = guest.get("/connections")[0]["name"]
        .as_str()
        .unwrap()
        .replace(' ', "%20")
        .replace('>', "%3E");
    assert_eq!(
        user("monitoring").code("DELETE", &format!("/connections/{name}"), &Value::Null).0,
        401
    );
    assert_eq!(guest.delete(&format!("/connections/{name}")), 204);
}

#[test]
fn wrong_passwords_are_throttled_and_cross_site_requests_refused() {
    let (_scratch, program) = started("api-security");
    let guest = User::guest(&program);
    let none = User::new(program.management, "guest:guest").send(
        "GET",
        "/overview",
        "Origin: https://evil\r\n",
        "",
    );
    assert_eq!(none.status, 200, "a look is harmless: its answer is not given to the other site");
    assert_eq!(none.header("access-control-allow-origin"), None);
    for header in ["Origin: https://evil\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        assert_eq!(guest.send("PUT", "/queues/%2F/q", header, "{}").status, 403);
    }
    let own = format!("Origin: http://{}\r\n", program.management);
    assert_eq!(guest.send("PUT", "/queues/%2F/q", &own, "{}").status, 201);
    assert_eq!(guest.send("PATCH", "/queues/%2F/q", "", "").status, 405);
    let options = guest.send("OPTIONS", "/queues/%2F/q", "", "");
    assert_eq!(
        (options.status, options.header("allow")),
        (200, Some("OPTIONS, HEAD, GET, PUT, DELETE"))
    );
    // A body that is too large is refused by its length.
    let large = guest.send_part("PUT", "/queues/%2F/q", "", "", 21_000_000);
    assert_eq!(large.status, 400);
    assert!(large.body["reason"].as_str().unwrap().contains("body size limit"));
    let reason = |answer: &Answer| answer.body["reason"].as_str().unwrap_or_default().to_owned();
    let filled = |bytes: usize| json!({ "payload": "x".repeat(bytes) }).to_string();
    for (method, path, bytes, most) in [
        ("PUT", "/queues/%2F/q", 65_600, "65536"),
        ("POST", "/exchanges/%2F/amq.default", 65_600, "65536"),
        ("PUT", "/policies/%2F/p", 1_100_000, "1048576"),
        ("PUT", "/parameters/shovel/%2F/p", 1_100_000, "1048576"),
    ] {
        let answer = guest.send_part(method, path, "", &filled(bytes)[..1], bytes);
        let told = format!("Exceeded HTTP request body size limit of {most} bytes");
        assert_eq!((answer.status, reason(&answer)), (400, told), "{path}");
    }
    let path = "/exchanges/%2F/amq.default/publish";
    let message = json!({
        "routing_key": "q", "properties": {}, "payload": "x".repeat(3_000_000), "payload_encoding": "string",
    });
    assert_eq!(guest.send("POST", path, "", &message.to_string()).status, 200);
    let many = format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(100_000));
    let answer = guest.send("POST", path, "", &many);
    assert!(
        answer.status == 400 && reason(&answer).contains("more than 20000 values"),
        "{answer:?}"
    );
    // An argument of a file, and what no part of it knows.
    let file = |key: &str| json!({"queues": [{"name": "n", "vhost": "/", key: serde_json::from_str::<Value>(&many).unwrap()}]});
    let answer = guest.send("POST", "/definitions", "", &file("arguments").to_string());
    assert!(
        answer.status == 400 && reason(&answer).contains("more than 20000 values"),
        "{answer:?}"
    );
    assert_eq!(guest.send("POST", "/definitions", "", &file("odd").to_string()).status, 204);
    let wrong = User::new(program.management, "guest:wrong");
    let codes: Vec<u16> = (0..20).map(|_| wrong.code("GET", "/overview", &Value::Null).0).collect();
    assert!(codes[..10].iter().all(|code| *code == 401), "{codes:?}");
    assert!(codes.contains(&429), "{codes:?}");
    // Who guesses keeps nobody out that was right from here, but who was not yet.
    assert_eq!(wrong.code("GET", "/overview", &Value::Null).0, 429);
    assert_eq!(guest.code("GET", "/overview", &Value::Null).0, 200);
}

/// Pages of all sites may use the API with a login of their own: they get none that the browser knows.
#[test]
fn a_site_that_may_be_anybodys_is_given_no_login() {
    let scratch = Scratch::new("api-any-origin");
    let words = ["--shards", "1", "--management-allowed-origins", "*"];
    let program = Program::start(&scratch, &words);
    let guest = User::guest(&program);
    guest.put("/users/ann", json!({"password": "a", "tags": "administrator"}));
    guest.put("/permissions/%2F/ann", json!({"configure": ".*", "write": ".*", "read": ".*"}));
    let ann = User::new(program.management, "ann:a");
    let foreign = "Origin: https://evil\r\n";
    let put = |user: &User, more: &str| {
        user.send("PUT", "/queues/%2F/q", &format!("{foreign}{more}"), "{}").status
    };
    for simple in
        ["", "Content-Type: text/plain\r\n", "Content-Type: text/plain; application/json\r\n"]
    {
        assert_eq!(put(&ann, simple), 403, "{simple}");
    }
    assert_eq!(put(&ann, "Content-Type: Application/JSON; charset=utf-8\r\n"), 201);
    assert_eq!(put(&ann, "X-Lepus-Request: 1\r\n"), 204);
    // A page that asks before is not allowed what the browser knows.
    let asked = guest.send("OPTIONS", "/queues/%2F/q", foreign, "");
    assert_eq!(asked.header("access-control-allow-origin"), Some("https://evil"));
    assert_eq!(asked.header("access-control-allow-credentials"), None);
    // A browser on this machine is not this machine.
    assert_eq!(put(&guest, "X-Lepus-Request: 1\r\n"), 401);
    assert_eq!(guest.send("GET", "/overview", foreign, "").status, 401);
    assert_eq!(ann.send("GET", "/overview", foreign, "").status, 200);
}

#[test]
fn a_policy_holds_when_its_answer_comes() {
    let (_scratch, program) = started("api-policies");
    let guest = User::guest(&program);
    guest.put("/queues/%2F/dead", json!({"durable": true}));
    guest.put("/queues/%2F/q", json!({"durable": true, "arguments": {"x-max-length": 7}}));
    guest.put(
        "/queues/%2F/letters",
        json!({"durable": true, "arguments": {
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
        }}),
    );
    for number in 0..10 {
        guest.publish("letters", &number.to_string());
    }
    guest.put("/policies/%2F/short", json!({"pattern": "^let", "definition": {"max-length": 1}}));
    assert_eq!(guest.messages("letters"), 1);
    assert_eq!(guest.get("/queues/%2F/letters")["policy"], "short");
    let letters = guest.take("dead", 20);
    assert_eq!(letters.len(), 9);
    guest.put(
        "/policies/%2F/ten",
        json!({"pattern": "^(?!amq\\.|dead).*", "definition": {"max-length": 10}, "priority": "5"}),
    );
    guest.put(
        "/operator-policies/%2F/five",
        json!({"pattern": "q", "apply-to": "queues", "definition": {"max-length": 5}}),
    );
    let queue = guest.get("/queues/%2F/q");
    assert_eq!(queue["effective_policy_definition"], json!({"max-length": 5}));
    assert_eq!((&queue["policy"], &queue["operator_policy"]), (&json!("ten"), &json!("five")));
    for number in 0..20 {
        guest.publish("q", &number.to_string());
    }
    assert_eq!(guest.messages("q"), 5);
    let (code, reason) =
        guest.code("PUT", "/policies/%2F/odd", &json!({"pattern": "a", "definition": {"odd": 1}}));
    assert_eq!(code, 400);
    assert!(
        reason.starts_with("Validation failed") && reason.contains("not recognised"),
        "{reason}"
    );
    let (code, reason) = guest.code("PUT", "/policies/%2F/odd", &json!({"pattern": "a"}));
    assert_eq!((code, reason.as_str()), (400, "[{key_missing,definition}]"));
    // No classic queue has it, so that it is for none.
    guest.put(
        "/policies/%2F/stream",
        json!({"pattern": "dead", "definition": {"max-age": "7D"}, "priority": 9}),
    );
    assert_eq!(guest.get("/queues/%2F/dead").get("policy"), None);
    assert_eq!(guest.delete("/policies/%2F/short"), 204);
    assert_eq!(guest.delete("/policies/%2F/short"), 404);
}

#[test]
fn definitions_go_out_and_come_back() {
    let (_scratch, program) = started("api-definitions");
    let guest = User::guest(&program);
    guest.put("/vhosts/v", json!({"description": "second", "tags": "a,b"}));
    guest.put("/users/u", json!({"password": "p", "tags": ["monitoring"]}));
    guest.put("/permissions/v/u", json!({"configure": "", "write": "x", "read": ".*"}));
    guest.put("/queues/v/q", json!({"durable": true, "arguments": {"x-max-length": 9}}));
    guest.put("/exchanges/v/x", json!({"type": "headers", "durable": true}));
    let body = json!({"routing_key": "", "arguments": {"x-match": "all", "a": 1}});
    guest.send("POST", "/bindings/v/e/x/q/q", "", &body.to_string());
    guest.put("/policies/v/p", json!({"pattern": "^q", "definition": {"message-ttl": 1000}}));
    guest.put(
        "/operator-policies/v/o",
        json!({"pattern": "^q", "definition": {"expires": 100_000}}),
    );
    guest.put("/vhost-limits/v/max-queues", json!({"value": -1}));
    guest.put("/global-parameters/g", json!({"value": {"a": [1]}}));
    let first = guest.send("GET", "/definitions", "", "");
    let again = guest.send("GET", "/definitions", "", "");
    assert_eq!(first.body, again.body);
    let tag = format!("If-None-Match: {}\r\n", first.header("etag").unwrap());
    assert_eq!(guest.send("GET", "/definitions", &tag, "").status, 304);
    guest.delete("/vhosts/v");
    guest.delete("/users/u");
    guest.delete("/global-parameters/g");
    // What is wrong in a file is found before anything is done.
    let mut broken = first.body.clone();
    broken["queues"][0]["durable"] = json!("maybe");
    let (code, reason) = guest.code("POST", "/definitions", &broken);
    assert!(code == 400 && reason.contains("queues[0].durable"), "{code} {reason}");
    assert_eq!(guest.code("GET", "/vhosts/v", &Value::Null).0, 404);
    assert_eq!(guest.code("POST", "/definitions", &first.body).0, 204);
    assert_eq!(guest.get("/definitions"), first.body);
    let one = guest.get("/definitions/v");
    assert_eq!(one["queues"][0].get("vhost"), None);
    guest.put("/vhosts/w", Value::Null);
    assert_eq!(guest.code("POST", "/definitions/w", &one).0, 204);
    assert_eq!(guest.get("/queues/w/q")["arguments"], json!({"x-max-length": 9}));
    assert_eq!(guest.get("/bindings/w/e/x/q/q")[0]["arguments"], json!({"a": 1, "x-match": "all"}));
}

#[test]
fn a_closed_connection_is_told_why_and_limits_hold() {
    let (_scratch, program) = started("api-connections");
    let guest = User::guest(&program);
    let mut stream = log_in(program.amqp, "guest", "guest", "/").unwrap();
    let rows = guest.get("/connections");
    assert_eq!((&rows[0]["user"], &rows[0]["protocol"]), (&json!("guest"), &json!("AMQP 0-9-1")));
    let name = rows[0]["name"].as_str().unwrap().replace(' ', "%20").replace('>', "%3E");
    let path = format!("/connections/{name}");
    assert_eq!(guest.send("DELETE", &path, "X-Reason: for a test\r\n", "").status, 204);
    let mut bytes = [0; 512];
    let count = stream.read(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
    assert!(text.contains("CONNECTION_FORCED - for a test"), "{text}");
    drop(stream);
    guest.put("/vhost-limits/%2F/max-connections", json!({"value": 0}));
    let refused = log_in(program.amqp, "guest", "guest", "/").unwrap_err();
    assert!(refused.contains("530"), "{refused}");
    assert_eq!(guest.delete("/vhost-limits/%2F/max-connections"), 204);
    log_in(program.amqp, "guest", "guest", "/").unwrap();
}

#[test]
fn an_alarm_by_order_is_seen_by_probes() {
    let (_scratch, program) = started("api-alarms");
    let guest = User::guest(&program);
    assert_eq!(guest.get("/health/checks/alarms"), json!({"status": "ok"}));
    // The paths of the operator are for the control socket alone.
    assert_eq!(guest.code("PUT", "/lepus/ctl/alarms/memory", &Value::Null).0, 401);
    assert_eq!(guest.code("GET", "/health/checks/port-listener/1", &Value::Null).0, 503);
    let port = program.amqp.port();
    assert_eq!(guest.get(&format!("/health/checks/port-listener/{port}"))["port"], port);
    assert_eq!(guest.get("/health/checks/protocol-listener/amqp091,http")["status"], "ok");
    assert_eq!(guest.code("GET", "/health/checks/protocol-listener/mqtt", &Value::Null).0, 503);
    assert_eq!(guest.get("/aliveness-test/%2F")["status"], "ok");
    assert_eq!(guest.code("GET", "/aliveness-test/none", &Value::Null).0, 404);
}

#[test]
fn a_shovel_moves_what_is_in_a_queue_and_goes() {
    let (_scratch, program) = started("api-shovel");
    let guest = User::guest(&program);
    guest.put("/queues/%2F/from", json!({"durable": true}));
    // The other one is made by the shovel.
    for number in 0..50 {
        guest.publish("from", &number.to_string());
    }
    let value = json!({
        "src-uri": "amqp://", "src-queue": "from", "dest-uri": format!("amqp://guest:guest@{}", program.amqp),
        "dest-queue": "to", "src-delete-after": "queue-length", "ack-mode": "on-confirm",
    });
    assert_eq!(guest.put("/parameters/shovel/%2F/move", json!({"value": value})), 201);
    // It ends by itself; until then it says what it is at.
    while guest.code("GET", "/parameters/shovel/%2F/move", &Value::Null).0 == 200 {
        for row in guest.get("/shovels").as_array().unwrap() {
            assert_ne!(row["state"], "terminated", "{row}");
        }
        std::thread::yield_now();
    }
    assert_eq!(guest.messages("from"), 0);
    let moved = guest.take("to", 100);
    assert_eq!(moved, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
    let (code, reason) =
        guest.code("PUT", "/parameters/shovel/%2F/bad", &json!({"value": {"src-uri": "amqp://"}}));
    assert!(code == 400 && reason.starts_with("Validation failed"), "{code} {reason}");
}

/// Asks for the publish rate of a queue until it is as wanted.
fn wait_for_rate(
    guest: &User,
    queue: &str,
    is_wanted: impl Fn(f64) -> bool,
    mut meanwhile: impl FnMut(),
) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let path = format!("/queues/%2F/{queue}");
    loop {
        let rate = guest.get(&path)["message_stats"]["publish_details"]["rate"].as_f64();
        if rate.is_some_and(&is_wanted) {
            return;
        }
        assert!(Instant::now() < deadline, "the rate is {rate:?}");
        meanwhile();
        std::thread::yield_now();
    }
}

#[test]
fn a_rate_is_there_while_messages_come_and_gone_afterwards() {
    let (_scratch, program) = started("api-rates");
    let guest = User::guest(&program);
    guest.put("/queues/%2F/busy", json!({"durable": true}));
    wait_for_rate(&guest, "busy", |rate| rate > 0.0, || guest.publish("busy", "x"));
    wait_for_rate(&guest, "busy", |rate| rate == 0.0, || ());
}

#[test]
fn a_queue_tells_how_its_messages_were_handed_out() {
    let (_scratch, program) = started("api-deliveries");
    let guest = User::guest(&program);
    let mut session = connect(program.amqp);
    session.declare("q");
    let get = |no_ack| basic::Get { queue: "q", no_ack };
    assert_eq!(session.call(1, get(false)), Seen::Method("basic.get-empty"));
    let publish = |session: &mut crate::session::Session<TcpStream>, count| {
        (0..count).for_each(|_| session.publish(1, "q", b"body"));
        session.flush();
    };
    publish(&mut session, 5);
    for no_ack in [false, true] {
        assert_eq!(session.call(1, get(no_ack)), Seen::Method("basic.get-ok"));
    }
    let consume = basic::Consume { queue: "q", consumer_tag: "c", ..Default::default() };
    assert_eq!(session.call(1, consume), Seen::Method("basic.consume-ok"));
    for tag in 3..6 {
        assert_eq!(session.see(), Seen::Message { tag, body: b"body".to_vec() });
    }
    let cancel = basic::Cancel { consumer_tag: "c", no_wait: false };
    assert_eq!(session.call(1, cancel), Seen::Method("basic.cancel-ok"));
    session.consume("q", true);
    publish(&mut session, 2);
    for tag in 6..8 {
        assert_eq!(session.see(), Seen::Message { tag, body: b"body".to_vec() });
    }
    let stats = &guest.get("/queues/%2F/q")["message_stats"];
    for (name, count) in [
        ("publish", 7),
        ("get", 1),
        ("get_no_ack", 1),
        ("get_empty", 1),
        ("deliver", 3),
        ("deliver_no_ack", 2),
        ("deliver_get", 7),
        ("redeliver", 0),
        ("ack", 0),
    ] {
        assert_eq!(stats[name], count, "{name} of {stats}");
        assert!(stats[format!("{name}_details")]["rate"].is_f64(), "{name} of {stats}");
    }
    session.close();
}

#[test]
fn a_connection_tells_its_octets() {
    let (_scratch, program) = started("api-octets");
    let guest = User::guest(&program);
    let mut session = connect(program.amqp);
    session.declare("q");
    let row = || guest.get("/connections").as_array().unwrap()[0].clone();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let before = row();
    session.publish(1, "q", &[b'x'; 1_000]);
    session.send(1, basic::Get { queue: "q", no_ack: true });
    let said = session.take_output();
    session.send_raw(&said);
    session.flush();
    assert_eq!(session.see(), Seen::Method("basic.get-ok"));
    let after = row();
    let grown = |name| number(&after, name) - number(&before, name);
    assert_eq!(grown("recv_oct"), said.len() as u64);
    assert!((1_000..2_000).contains(&grown("send_oct")), "{before} {after}");
    assert!(grown("recv_cnt") > 0 && grown("send_cnt") > 0, "{before} {after}");
    let name = after["name"].as_str().unwrap().replace(' ', "%20").replace('>', "%3E");
    let path = format!("/connections/{name}?data_rates_age=60&data_rates_incr=5");
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        session.publish(1, "q", b"x");
        session.flush();
        let details = &guest.get(&path)["recv_oct_details"];
        assert_eq!(details["samples"].as_array().map(Vec::len), Some(13), "{details}");
        if details["rate"].as_f64().is_some_and(|rate| rate > 0.0) {
            break;
        }
        assert!(Instant::now() < deadline, "{details}");
        std::thread::yield_now();
    }
    session.close();
}

#[test]
fn logins_are_counted_by_protocol_until_they_are_set_back() {
    let (_scratch, program) = started("api-logins");
    let guest = User::guest(&program);
    let node = guest.get("/nodes")[0]["name"].as_str().unwrap().to_owned();
    let path = format!("/auth/attempts/{node}");
    log_in(program.amqp, "guest", "guest", "/").unwrap();
    log_in(program.amqp, "guest", "wrong", "/").unwrap_err();
    let wrong = User::new(program.management, "guest:wrong");
    assert_eq!(wrong.code("GET", &path, &Value::Null).0, 401);
    let row = |protocol, succeeded, failed| {
        json!({
            "protocol": protocol,
            "auth_attempts": succeeded + failed,
            "auth_attempts_succeeded": succeeded,
            "auth_attempts_failed": failed,
        })
    };
    assert_eq!(guest.get(&path), json!([row("amqp091", 1, 1), row("http", 2, 1)]));
    assert_eq!(guest.get(&format!("{path}/source")), json!([]));
    assert_eq!(guest.delete(&path), 204);
    // What the API itself does with messages is no login.
    guest.put("/queues/%2F/q", json!({}));
    guest.publish("q", "x");
    assert_eq!(guest.get(&path), json!([row("http", 3, 0)]));
    assert_eq!(guest.delete(&format!("{path}/source")), 204);
    assert_eq!(guest.code("GET", "/auth/attempts/rabbit@elsewhere", &Value::Null).0, 404);
    guest.put("/users/m", json!({"password": "p", "tags": "management"}));
    let member = User::new(program.management, "m:p");
    assert_eq!(member.code("GET", &path, &Value::Null).0, 401);
}

#[test]
fn a_shovel_goes_no_further_than_who_sets_it() {
    let (_scratch, program) = started("api-shovel-rights");
    let guest = User::guest(&program);
    guest.put("/vhosts/mine", Value::Null);
    guest.put("/vhosts/secret", Value::Null);
    guest.put("/users/pm", json!({"password": "p", "tags": "policymaker"}));
    guest.put("/permissions/mine/pm", json!({"configure": ".*", "write": ".*", "read": ".*"}));
    let maker = User::new(program.management, "pm:p");
    let shovel = |source: &str, more: Value| {
        let mut value = json!({
            "src-uri": source, "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to",
        });
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        maker.code("PUT", "/parameters/shovel/mine/s", &json!({ "value": value }))
    };
    assert_eq!(shovel("amqp:///secret", json!({})).0, 401);
    assert_eq!(shovel("amqp:///missing", json!({})).0, 404);
    // The broker's own port is the broker, whatever its name, and whose password is given.
    let port = program.amqp.port();
    for host in ["127.0.0.1", "guest:guest@127.0.0.1", "guest:guest@localhost", "guest:guest@[::1]"]
    {
        for vhost in ["secret", "%2F"] {
            assert_eq!(
                shovel(&format!("amqp://{host}:{port}/{vhost}"), json!({})).0,
                401,
                "{host}"
            );
        }
    }
    let other = program.management.port();
    let (code, reason) = shovel(&format!("amqp://guest:guest@127.0.0.1:{other}"), json!({}));
    assert!(code == 401 && reason.contains("another program of this machine"), "{code} {reason}");
    let (code, reason) = shovel("amqp://", json!({"ack-mode": "no-ack", "src-delete-after": 5}));
    assert!(code == 400 && reason.contains("would take messages"), "{code} {reason}");
    assert_eq!(shovel(&format!("amqp://nobody:x@127.0.0.1:{port}/mine"), json!({})).0, 201);
    let path = "/parameters/shovel/mine/s";
    assert_eq!(maker.get(path)["value"].get("lepus-set-by"), None);
    let set = &guest.get("/definitions")["parameters"][0]["value"];
    assert_eq!(set["lepus-set-by"], "pm");
    // What is gone at its destination stays at its source.
    let running = |state: &str| {
        loop {
            // It is told of from when its thread has begun.
            if guest.code("GET", "/shovels/vhost/mine/s", &Value::Null).0 == 200 {
                let row = guest.get("/shovels/vhost/mine/s");
                if row["state"] == state {
                    return row;
                }
            }
            std::thread::yield_now();
        }
    };
    running("running");
    assert_eq!(guest.delete("/queues/mine/to"), 204);
    let body = json!({
        "routing_key": "from", "properties": {}, "payload": "x", "payload_encoding": "string",
    });
    let path = "/exchanges/mine/amq.default/publish";
    assert_eq!(guest.send("POST", path, "", &body.to_string()).status, 200);
    let row = running("terminated");
    assert_eq!(row["reason"], "the destination's queue is gone");
    assert_eq!(guest.delete("/parameters/shovel/mine/s"), 204);
    while guest.get("/queues/mine/from")["messages_ready"] != 1 {
        std::thread::yield_now();
    }
}

/// Who set a shovel is looked at again when it connects: an address may lead elsewhere then, and rights end.
#[test]
fn a_shovel_connects_as_who_set_it() {
    let (_scratch, program) = started("api-shovel-connects");
    let guest = User::guest(&program);
    guest.put("/vhosts/mine", Value::Null);
    let port = program.amqp.port();
    let other = program.management.port();
    for (name, source, set_by, said) in [
        (
            "a",
            format!("amqp://guest:guest@localhost:{port}/%2F"),
            "pm",
            "has no permissions in vhost '/'",
        ),
        ("b", "amqp:///%2F".to_owned(), "guest", "may log in from this machine only"),
        (
            "c",
            format!("amqp://guest:guest@localhost:{other}/%2F"),
            "pm",
            "another program of this machine",
        ),
        ("d", format!("amqp://localhost:{other}/%2F"), "", "a user is missing"),
    ] {
        guest.put("/users/pm", json!({"password": "p", "tags": "policymaker"}));
        let mut value = json!({
            "src-uri": source, "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to",
        });
        if !set_by.is_empty() {
            value["lepus-set-by"] = json!(set_by);
        }
        let path = format!("/parameters/shovel/mine/{name}");
        assert_eq!(guest.put(&path, json!({ "value": value })), 201);
        let reason = loop {
            let rows = guest.get("/shovels");
            let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name);
            if let Some(reason) = row.and_then(|row| row["reason"].as_str()) {
                break reason.to_owned();
            }
            std::thread::yield_now();
        };
        assert!(reason.contains(said), "{name}: {reason}");
    }
}

#[test]
fn members_see_their_own() {
    let (_scratch, program) = started("api-members");
    let guest = User::guest(&program);
    guest.put("/users/m", json!({"password": "p", "tags": "management"}));
    guest.put("/permissions/%2F/m", json!({"configure": "", "write": "", "read": ".*"}));
    guest.put("/queues/%2F/q", json!({"durable": true}));
    let member = User::new(program.management, "m:p");
    let overview = member.get("/overview");
    assert_eq!(overview.get("message_stats"), None);
    assert_eq!(overview["object_totals"]["queues"], 1);
    assert!(guest.get("/overview")["message_stats"].is_object());
    let far = "lengths_age=18446744073709551615&lengths_incr=18446744073709551615";
    assert_eq!(member.code("GET", &format!("/queues?{far}"), &Value::Null).0, 400);
    let body = json!({"ackmode": "ack_requeue_true", "count": 1_000_000_000, "encoding": "auto"});
    let answer = member.send("POST", "/queues/%2F/q/get", "", &body.to_string());
    assert_eq!((answer.status, answer.body), (200, json!([])));
    assert_eq!(member.delete("/queues/%2F/q/contents"), 204);
}
