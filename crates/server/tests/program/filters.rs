//! Content filters over HTTP: listed, in what is got from a queue, and in where a message would go.

use crate::management::{User, started};
use crate::running::{Program, Scratch};
use crate::session::{Seen, connect};
use lepus_amqp::method::{basic, queue};
use lepus_amqp::table::Table;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const GUIDE: &str = include_str!("../../../../docs/filters.md");

/// Requests of the guide: the path, the body, and the answer where it stands there.
fn requests_of_the_guide() -> Vec<(&'static str, Value, Option<Value>)> {
    let blocks = GUIDE
        .split("\n```\n")
        .filter_map(|block| block.strip_prefix("curl -u guest:guest http://localhost:15672/api"));
    let requests = blocks.map(|block| {
        let (path, rest) = block.split_once(" \\\n  -d '").expect("a body");
        let (body, answer) = rest.split_once('\'').expect("its end");
        let answer = answer.trim();
        let answer = (!answer.is_empty()).then(|| serde_json::from_str(answer).expect("JSON"));
        (path, serde_json::from_str(body).expect("JSON"), answer)
    });
    requests.collect()
}

/// What the guide asks over HTTP is answered as it says.
#[test]
fn requests_of_the_guide_are_answered() {
    let (_scratch, program) = started("filters-guide");
    let guest = User::guest(&program);
    for queue in ["orders", "dear-uk"] {
        guest.put(&format!("/queues/%2F/{queue}"), json!({}));
    }
    let binding = json!({"routing_key": "order.#", "arguments": {"x-filter": "b.total > 50"}});
    let path = "/bindings/%2F/e/amq.topic/q/dear-uk";
    assert_eq!(guest.send("POST", path, "", &binding.to_string()).status, 201);
    for total in [50, 60] {
        guest.publish("orders", &json!({"total": total}).to_string());
    }
    let requests = requests_of_the_guide();
    assert_eq!(requests.len(), 2);
    for (path, body, said) in requests {
        let answer = guest.send("POST", path, "", &body.to_string());
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        match said {
            Some(said) => assert_eq!(answer.body, said, "{path}"),
            None => {
                let payloads: Vec<&Value> =
                    answer.body.as_array().unwrap().iter().map(|row| &row["payload"]).collect();
                assert_eq!(payloads, [&json!(r#"{"total":60}"#)], "{path}");
            }
        }
    }
    let (_, said) = GUIDE.split_once("is answered with 400 and\n`").expect("an error");
    let (said, _) = said.split_once("}`").expect("its end");
    let said: Value = serde_json::from_str(&format!("{said}}}")).expect("JSON");
    let body =
        json!({"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "filter": "b.ab >"});
    let answer = guest.send("POST", "/queues/%2F/orders/get", "", &body.to_string());
    assert_eq!((answer.status, answer.body), (400, said));
}

/// Where filters stand, what they take, and who may see it.
#[test]
fn filters_are_listed_with_what_they_take_and_the_dearest() {
    let (_scratch, program) = started("api-filters");
    let guest = User::guest(&program);
    assert_eq!(guest.get("/lepus/filters"), json!([]));
    assert_eq!(program.order(&["list", "filters", "--json"]), Ok("[]\n".to_owned()));
    for queue in ["q", "other"] {
        guest.put(&format!("/queues/%2F/{queue}"), json!({"durable": true}));
    }
    guest.put("/vhosts/v", Value::Null);
    guest.put("/queues/v/q", json!({}));
    let long = format!("b.text REGEXP '{}'", "x".repeat(300));
    for (vhost, exchange, queue, text) in [
        ("%2F", "amq.topic", "q", "a = 1"),
        ("%2F", "amq.topic", "q", "a > 1 AND b.price < 5"),
        ("%2F", "amq.topic", "other", &long),
        ("%2F", "amq.fanout", "q", "country = 'UK'"),
        ("v", "amq.fanout", "q", "LENGTH(a) > 5"),
    ] {
        let body = json!({"routing_key": "k", "arguments": {"x-filter": text}});
        let path = format!("/bindings/{vhost}/e/{exchange}/q/{queue}");
        let answer = guest.send("POST", &path, "", &body.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    let all = guest.get("/lepus/filters");
    let names = |rows: &Value| -> Vec<String> {
        let of = |row: &Value| format!("{} {} {}", row["kind"], row["vhost"], row["name"]);
        rows.as_array().unwrap().iter().map(of).collect()
    };
    let fanout = r#""exchange" "/" "amq.fanout""#;
    let topic = r#""exchange" "/" "amq.topic""#;
    let other = r#""exchange" "v" "amq.fanout""#;
    assert_eq!(names(&all), [fanout, topic, other]);
    let row = &all[1];
    let counts = ["bindings", "filters", "looked_up", "compared", "evaluated", "fields"];
    assert_eq!(counts.map(|name| row[name].as_u64()), [3, 3, 1, 1, 1, 3].map(Some), "{row}");
    assert_eq!((&row["microseconds"], &row["takes_looked_up_only"]), (&Value::Null, &json!(false)));
    let dearest = row["dearest"].as_array().unwrap();
    assert_eq!(dearest.len(), 3);
    let first = &dearest[0];
    assert_eq!(first["filter"], format!("{}…", &long[..200]));
    assert_eq!(
        (&first["way"], &first["destination"], &first["destination_type"], &first["routing_key"]),
        (&json!("evaluated"), &json!("other"), &json!("queue"), &json!("k"))
    );
    assert_eq!((&dearest[1]["way"], &dearest[2]["way"]), (&json!("compared"), &json!("looked_up")));

    // The first message of a shard is one that is looked at.
    let mut session = connect(program.amqp);
    for _ in 0..100 {
        let publish =
            basic::Publish { exchange: "amq.topic", routing_key: "k", ..Default::default() };
        session.send(1, publish);
        session.send_raw(&[2, 0, 1, 0, 0, 0, 14, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 206]);
    }
    session.declare("own");
    let sorted = guest.get("/lepus/filters?sort=microseconds&sort_reverse=true&page=1&page_size=1");
    assert_eq!(names(&sorted["items"]), [topic]);
    assert_eq!((&sorted["total_count"], &sorted["page_count"]), (&json!(3), &json!(3)));
    let row = &sorted["items"][0];
    assert!(row["sampled_messages"].as_u64() > Some(0), "{row}");
    assert!(row["microseconds"].as_f64().unwrap() > 0.0, "{row}");

    let arguments = Table::new().with("x-filter", "a LIKE '%x'").to_bytes();
    let consume =
        basic::Consume { queue: "own", arguments: arguments.as_ref(), ..Default::default() };
    assert!(matches!(session.call(1, consume), Seen::Method(..)));
    for _ in 0..3 {
        session.publish(1, "own", b"nobody wants it");
    }
    session.declare("own");
    let rows = guest.get("/lepus/filters/%2F");
    assert_eq!(names(&rows), [fanout, topic, r#""queue" "/" "own""#]);
    let row = &rows[2];
    let counts = ["consumers", "filters", "evaluated", "evaluations", "deliveries"];
    assert_eq!(counts.map(|name| row[name].as_u64()), [1, 1, 1, 3, 0].map(Some), "{row}");
    assert_eq!(row["dearest"][0]["filter"], "a LIKE '%x'");
    assert_eq!(guest.get("/lepus/filters?page=1&name=own")["filtered_count"], 1);
    let table = program.order(&["list", "filters"]).unwrap();
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(lines[0], ["kind", "name", "filters"]);
    assert_eq!(lines[1], ["exchange", "amq.topic", "3"], "the dearest comes first: {table}");
    assert_eq!(lines.len(), 4, "{table}");
    assert!(table.contains("a LIKE '%x'"), "{table}");
    let of_v = program.order(&["list", "filters", "--vhost", "v", "--json"]).unwrap();
    let of_v: Value = serde_json::from_str(&of_v).unwrap();
    assert_eq!((&of_v[0]["evaluated"], &of_v[0]["dearest"]), (&json!(1), &json!("LENGTH(a) > 5")));
    let missing = program.order(&["list", "filters", "--vhost", "none"]).unwrap_err();
    assert!(missing.contains("there is no virtual host \"none\""), "{missing}");

    // As with bindings: whoever may enter the virtual host.
    guest.put("/users/ann", json!({"password": "p", "tags": "management"}));
    guest.put("/users/nobody", json!({"password": "p", "tags": ""}));
    guest.put("/permissions/v/ann", json!({"configure": "", "write": "", "read": ""}));
    let ann = User::new(program.management, "ann:p");
    assert_eq!(names(&ann.get("/lepus/filters")), [other]);
    assert_eq!(ann.code("GET", "/lepus/filters/%2F", &Value::Null).0, 404);
    let nobody = User::new(program.management, "nobody:p");
    assert_eq!(nobody.code("GET", "/lepus/filters", &Value::Null).0, 401);
}

/// Filters that differ in nothing but how they read bodies, what they pass over, and bindings with different filters.
#[test]
fn filters_are_shown_with_their_formats_and_what_they_pass_over() {
    let scratch = Scratch::new("filters-shown");
    let program = Program::start(&scratch, &["--shards", "1"]);
    let guest = User::guest(&program);
    let mut session = connect(program.amqp);
    session.declare("own");
    session.declare("plain");
    for format in ["auto", "json", "none"] {
        let arguments = Table::new().with("x-filter", "b.x = 1").with("x-filter-format", format);
        let arguments = arguments.to_bytes();
        let consume = basic::Consume {
            queue: "own",
            consumer_tag: format,
            arguments: arguments.as_ref(),
            ..Default::default()
        };
        assert!(matches!(session.call(1, consume), Seen::Method(..)));
    }
    for _ in 0..3 {
        session.publish(1, "own", b"nobody wants it");
    }
    session.declare("own");
    let filter = json!({"x-filter": "b.x = 1"});
    let with = |format: &str| json!({"x-filter": "b.x = 1", "x-filter-format": format});
    let expected = [filter, with("json"), with("none")];
    let arguments = |rows: &Value| -> Vec<Value> {
        let mut rows = rows.as_array().unwrap().clone();
        rows.sort_by_key(|row| row["consumer_tag"].as_str().map(str::to_owned));
        rows.iter().map(|row| row["arguments"].clone()).collect()
    };
    let formats = |rows: &Value, key: &str| -> Vec<Value> {
        let mut found: Vec<Value> =
            rows.as_array().unwrap().iter().map(|row| row[key].clone()).collect();
        found.sort_by_key(Value::to_string);
        found
    };
    let queue = guest.get("/queues/%2F/own");
    assert_eq!(arguments(&guest.get("/consumers")), expected);
    assert_eq!(arguments(&queue["consumer_details"]), expected);
    assert_eq!(formats(&queue["selectors"], "filter_format"), ["auto", "json", "none"]);
    let list = guest.get("/lepus/filters");
    assert_eq!(formats(&list[0]["dearest"], "format"), ["auto", "json", "none"]);
    let list = program.order(&["list", "filters", "--json"]).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert!(["auto", "json", "none"].contains(&list[0]["dearest_format"].as_str().unwrap()));

    let metrics = crate::metrics::page(&program, "/metrics/per-object");
    let of_queues = metrics.lines().filter(|line| line.starts_with("lepus_queue_messages_passed"));
    assert_eq!(
        of_queues.collect::<Vec<_>>(),
        [r#"lepus_queue_messages_passed_over{vhost="/",queue="own"} 3"#]
    );
    let metrics = crate::metrics::page(&program, "/metrics");
    assert!(metrics.contains("\nlepus_shard_messages_passed_over{shard=\"0\"} 3\n"), "{metrics}");

    for text in ["a = 1", "a = 2"] {
        let body = json!({"routing_key": "k", "arguments": {"x-filter": text}});
        let answer = guest.send("POST", "/bindings/%2F/e/amq.topic/q/own", "", &body.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    guest.send("POST", "/bindings/%2F/e/amq.fanout/q/own", "", "{}");
    let list = program.order(&["list", "bindings", "--json"]).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let shown: Vec<&Value> = list.as_array().unwrap().iter().map(|row| &row["arguments"]).collect();
    assert_eq!(shown, [&json!({}), &json!({"x-filter": "a = 1"}), &json!({"x-filter": "a = 2"})]);
    let table = program.order(&["list", "bindings"]).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].ends_with("arguments") && lines[2].ends_with("  x-filter: a = 1"), "{table}");
}

/// What filters may take of a message is a setting, and the list says where only such are taken as can be looked up.
#[test]
fn filters_that_take_more_than_a_setting_says_leave_no_room_for_others() {
    let scratch = Scratch::new("api-filters-much");
    let program = Program::start(&scratch, &["--limits-exchange-filter-micros-max", "3"]);
    let guest = User::guest(&program);
    guest.put("/queues/%2F/q", json!({}));
    let bind = |text: &str| {
        let body = json!({"arguments": {"x-filter": text}}).to_string();
        guest.send("POST", "/bindings/%2F/e/amq.fanout/q/q", "", &body)
    };
    assert_eq!(bind("b.text LIKE '%none%'").status, 201);
    let takes_looked_up_only = || {
        let list = program.order(&["list", "filters", "--json"]).unwrap();
        let rows: Value = serde_json::from_str(&list).unwrap();
        rows[0]["takes_looked_up_only"].clone()
    };
    assert_eq!(takes_looked_up_only(), json!(false));
    // A step for four bytes: some five microseconds.
    let body = format!(r#"{{"text": "{}"}}"#, "x".repeat(2_000));
    let deadline = Instant::now() + Duration::from_secs(60);
    while takes_looked_up_only() != json!(true) {
        assert!(Instant::now() < deadline, "what filters take was not noticed");
        for _ in 0..20 {
            let publish = json!({
                "routing_key": "", "properties": {}, "payload": body, "payload_encoding": "string",
            });
            let path = "/exchanges/%2F/amq.fanout/publish";
            assert_eq!(guest.send("POST", path, "", &publish.to_string()).status, 200);
        }
    }
    let table = program.order(&["list", "filters"]).unwrap();
    let head = table.lines().next().unwrap();
    assert!(head.contains("takes_looked_up_only"), "{table}");
    let refused = bind("b.text LIKE '%other%'");
    let reason = refused.body["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("above 3 µs (limits.exchange_filter_micros_max)"), "{reason}");
    assert_eq!(refused.status, 400);
    assert_eq!(bind("b.text = 'x'").status, 201);
}

/// What is got by a filter is what matches it; all else is in its place behind, and counts as not tried.
#[test]
fn messages_are_got_by_a_filter() {
    let (_scratch, program) = started("api-filtered-get");
    let guest = User::guest(&program);
    guest.put(
        "/queues/%2F/q",
        json!({"durable": true, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 1}}),
    );
    for number in 0..10 {
        guest.publish("q", &json!({"n": number}).to_string());
    }
    let get = |mode: &str, count: u32, filter: &str| {
        let body = json!({"ackmode": mode, "count": count, "encoding": "auto", "filter": filter});
        guest.send("POST", "/queues/%2F/q/get", "", &body.to_string())
    };
    let payloads = |body: &Value| -> Vec<String> {
        let rows = body.as_array().unwrap().iter();
        rows.map(|row| row["payload"].as_str().unwrap().to_owned()).collect()
    };
    for _ in 0..3 {
        let shown = get("ack_requeue_true", 2, "b.n % 3 = 0 AND b.n > 0");
        assert_eq!(shown.status, 200, "{}", shown.body);
        assert_eq!(payloads(&shown.body), [r#"{"n":3}"#, r#"{"n":6}"#]);
        assert_eq!(shown.header("x-lepus-looked-at"), Some("7"), "{}", shown.head);
    }
    let taken = get("ack_requeue_false", 10, "m.routing_key = 'q' AND b.n IN (3, 6)");
    assert_eq!(payloads(&taken.body), [r#"{"n":3}"#, r#"{"n":6}"#]);
    assert_eq!(taken.header("x-lepus-looked-at"), Some("10"));
    let rejected = get("reject_requeue_false", 10, "b.n = 9");
    assert_eq!(payloads(&rejected.body).len(), 1);
    assert_eq!(payloads(&get("ack_requeue_true", 10, "FALSE").body).len(), 0);
    let left: Vec<String> =
        [0, 1, 2, 4, 5, 7, 8].iter().map(|n| json!({ "n": n }).to_string()).collect();
    assert_eq!(guest.take("q", 100), left);

    let wrong = get("ack_requeue_true", 1, "b.n > ");
    assert_eq!(wrong.status, 400);
    let text = "expected a value after '>'";
    let reason = format!("invalid filter at character 7: {text}");
    assert_eq!(wrong.body, json!({"error": "filter", "at": 7, "text": text, "reason": reason}),);
    for odd in [Value::Null, json!(5)] {
        let body =
            json!({"ackmode": "ack_requeue_false", "count": 1, "encoding": "auto", "filter": odd});
        let (code, reason) = guest.code("POST", "/queues/%2F/q/get", &body);
        assert_eq!((code, &*reason), (400, "filter is to be a text, or to be left out"));
    }
    let body = json!({
        "ackmode": "ack_requeue_true", "count": 1, "encoding": "auto", "filter": "b.n = 1",
        "filter_format": "xml",
    });
    let (code, reason) = guest.code("POST", "/queues/%2F/q/get", &body);
    assert_eq!(code, 400);
    assert!(reason.contains("auto, json, fix, nvfix or none"), "{reason}");
}

/// Whoever gave a filter that is refused is told what is wrong in it; the log has nothing of its text.
#[test]
fn the_log_has_nothing_of_a_filter_that_is_refused() {
    let (_scratch, program) = started("filters-log");
    let guest = User::guest(&program);
    guest.put("/queues/%2F/q", json!({"durable": true}));
    let secret = "card = '4111' = 1";
    for name in ["x-filter", "x-filter-jms-selector"] {
        let arguments = Table::new().with(name, secret).to_bytes();
        let arguments = arguments.as_ref();
        let binding = json!({"routing_key": "", "arguments": {name: secret}});
        let mut of_file = binding.clone();
        for (key, value) in [
            ("source", "amq.topic"),
            ("vhost", "/"),
            ("destination", "q"),
            ("destination_type", "queue"),
        ] {
            of_file[key] = json!(value);
        }
        for (path, body) in [
            ("/bindings/%2F/e/amq.topic/q/q", binding),
            ("/definitions", json!({"bindings": [of_file]})),
            (
                "/queues/%2F/q/get",
                json!({"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "filter": secret}),
            ),
            ("/lepus/moves", json!({"vhost": "/", "from": "q", "to": "q2", "filter": secret})),
        ] {
            let (code, reason) = guest.code("POST", path, &body);
            assert_eq!(code, 400, "{path}");
            assert!(reason.contains("at character 15: ") && reason.contains("4111"), "{reason}");
        }
        let mut session = connect(program.amqp);
        let consume = basic::Consume { queue: "q", arguments, ..Default::default() };
        let bind =
            queue::Bind { queue: "q", exchange: "amq.topic", arguments, ..Default::default() };
        for refused in [session.call(1, consume), connect(program.amqp).call(1, bind)] {
            assert!(format!("{refused:?}").contains("4111"), "{refused:?}");
        }
    }
    let (status, log) = program.stop();
    assert!(status.success(), "{status}");
    for told in [
        "invalid x-filter at character 15 (more is not for logs)",
        "invalid x-filter-jms-selector at character 15 (more is not for logs)",
    ] {
        assert_eq!(log.matches(told).count(), 2, "{log}");
    }
    assert!(!log.contains("4111"), "{log}");
}

#[test]
fn a_route_is_tested_without_a_message() {
    let (_scratch, program) = started("api-route-test");
    let guest = User::guest(&program);
    for queue in ["a", "b", "c"] {
        guest.put(&format!("/queues/%2F/{queue}"), json!({}));
    }
    let bind = |queue: &str, key: &str, arguments: Value| {
        let body = json!({"routing_key": key, "arguments": arguments}).to_string();
        guest.send("POST", &format!("/bindings/%2F/e/amq.topic/q/{queue}"), "", &body)
    };
    assert_eq!(bind("a", "x.*", json!({})).status, 201);
    assert_eq!(bind("b", "#", json!({"x-filter": "b.price > 5 AND kind = 'y'"})).status, 201);
    let wrong = bind("b", "#", json!({"x-filter-jms-selector": "kind = \"y\""}));
    assert_eq!(
        (wrong.status, &wrong.body["error"], &wrong.body["at"]),
        (400, &json!("filter"), &json!(8))
    );
    let reason = wrong.body["reason"].as_str().unwrap();
    assert!(reason.starts_with("invalid x-filter-jms-selector at character 8: "), "{reason}");

    // What it is refused for otherwise is told as it is.
    let wrong = bind("b", "#", json!({"x-filter": "a =", "x-filter-format": "xml"}));
    assert_eq!((wrong.status, &wrong.body["error"]), (400, &json!("bad_request")));

    let test = |user: &User, body: Value| {
        let mut whole = json!({"vhost": "/", "exchange": "amq.topic"});
        body.as_object().unwrap().iter().for_each(|(key, value)| whole[key] = value.clone());
        user.send("POST", "/lepus/route-test", "", &whole.to_string())
    };
    let queues = |body: Value| -> Vec<String> {
        let answer = test(&guest, body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let rows = answer.body["queues"].as_array().unwrap();
        assert_eq!(answer.body["queue_count"], rows.len());
        assert_eq!(answer.body["routed"], !rows.is_empty());
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(queues(json!({"routing_key": "x.y"})), ["a"]);
    assert_eq!(queues(json!({"routing_key": "none"})), [""; 0]);
    let properties = json!({"headers": {"kind": "y", "CC": ["x.z"]}});
    let payload = json!({"price": 6}).to_string();
    let message = json!({"routing_key": "k", "properties": properties, "payload": payload});
    assert_eq!(queues(message), ["a", "b"]);
    let by_name = json!({"exchange": "amq.default", "routing_key": "c"});
    assert_eq!(queues(by_name), ["c"]);
    for queue in ["a", "b", "c"] {
        assert_eq!(guest.messages(queue), 0, "nothing was published");
    }

    assert_eq!(test(&guest, json!({"exchange": "none"})).status, 404);
    assert_eq!(test(&guest, json!({"vhost": "none"})).status, 404);
    // It takes nothing from clients, and leads somewhere nevertheless.
    assert_eq!(queues(json!({"exchange": "amq.rabbitmq.trace"})), [""; 0]);
    assert_eq!(test(&guest, json!({"payload_encoding": "x"})).status, 400);
    let refused = test(&guest, json!({"properties": {"headers": {"CC": 1}}}));
    assert_eq!(refused.status, 400, "{}", refused.body);
    guest.put("/users/ann", json!({"password": "p", "tags": "management"}));
    let ann = User::new(program.management, "ann:p");
    assert_eq!(test(&ann, json!({})).status, 404, "of a virtual host that she may not enter");
}
