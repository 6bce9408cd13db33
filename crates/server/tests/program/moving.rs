//! Moves of messages between queues, by the management API.

use crate::management::{User, started};
use crate::running::{Program, Signal, lepus};
use crate::session::{Seen, connect};
use lepus_amqp::client::encode_publish;
use lepus_amqp::method::{basic, confirm};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use serde_json::{Value, json};

const MESSAGES: u64 = 10_000;

/// Publishes messages that survive a restart, with their numbers as bodies, and waits until all are taken.
fn fill(program: &Program, exchange: &str, key: &str, count: u64) {
    let mut session = connect(program.amqp);
    assert_eq!(session.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    let properties = Properties { delivery_mode: Some(2), ..Properties::default() }.to_bytes();
    let mut bytes = Vec::new();
    for number in 0..count {
        let body = number.to_string().into_bytes();
        encode_publish(&mut bytes, 1, 4096, exchange, key, false, &properties, &body);
    }
    session.send_raw(&bytes);
    session.flush();
    let mut left = count;
    let mut last = 0;
    while left > 0 {
        match session.see() {
            Seen::Ack { tag, multiple: true } => {
                (left, last) = (left - (tag - last), tag);
            }
            Seen::Ack { tag, .. } => (left, last) = (left - 1, tag),
            other => panic!("{other:?}"),
        }
    }
    session.close();
}

/// Takes all that is in a queue.
fn rows(user: &User, queue: &str, mode: &str) -> Vec<Value> {
    let body = json!({"ackmode": mode, "count": MESSAGES, "encoding": "auto"}).to_string();
    let mut all = Vec::new();
    loop {
        let answer = user.send("POST", &format!("/queues/%2F/{queue}/get"), "", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let found = answer.body.as_array().unwrap();
        if found.is_empty() {
            return all;
        }
        all.extend_from_slice(found);
    }
}

fn numbers(rows: &[Value]) -> Vec<u64> {
    rows.iter().map(|row| row["payload"].as_str().unwrap().parse().unwrap()).collect()
}

/// Begins a move; the path that tells of it.
fn begin(user: &User, order: &Value) -> String {
    let answer = user.send("POST", "/lepus/moves", "", &order.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    let path = answer.header("location").unwrap().strip_prefix("/api").unwrap().to_owned();
    assert!(path.ends_with(answer.body["id"].as_str().unwrap()), "{path}");
    path
}

/// Waits until a move is as wanted.
fn wait_for(user: &User, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let row = user.get(path);
        if is_so(&row) {
            return row;
        }
        std::thread::yield_now();
    }
}

/// What a move came to, once it is over.
fn outcome(user: &User, path: &str) -> Value {
    wait_for(user, path, |row| row["state"] != "running")
}

/// A queue `dead` with messages that died in a queue, to which their exchange `jobs` brought them.
fn with_dead_letters(program: &Program) -> User {
    let user = User::guest(program);
    user.put("/exchanges/%2F/jobs", json!({"type": "direct", "durable": true}));
    let arguments = json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"});
    user.put("/queues/%2F/work", json!({"durable": true, "arguments": arguments}));
    user.put("/queues/%2F/dead", json!({"durable": true}));
    let key = json!({"routing_key": "k"});
    assert_eq!(user.code("POST", "/bindings/%2F/e/jobs/q/work", &key).0, 201);
    fill(program, "jobs", "k", MESSAGES);
    let rejected = rows(&user, "work", "reject_requeue_false");
    assert_eq!(rejected.len() as u64, MESSAGES);
    while user.messages("dead") < MESSAGES {
        std::thread::yield_now();
    }
    user
}

#[test]
fn dead_letters_go_back_to_where_they_came_from() {
    let (_scratch, program) = started("move-dead");
    let user = with_dead_letters(&program);
    let path = begin(&user, &json!({"vhost": "/", "from": "dead", "to": "origin"}));
    let row = outcome(&user, &path);
    assert_eq!(row["state"], "completed", "{row}");
    assert_eq!((&row["moved"], &row["of"]), (&json!(MESSAGES), &json!(MESSAGES)));
    assert_eq!(user.messages("dead"), 0);
    let found = rows(&user, "work", "ack_requeue_false");
    assert_eq!(numbers(&found), (0..MESSAGES).collect::<Vec<_>>());
    for row in &found {
        assert_eq!((&row["exchange"], &row["routing_key"]), (&json!("jobs"), &json!("k")));
        let headers = &row["properties"]["headers"];
        assert_eq!(headers["x-lepus-moved"]["queue"], "dead", "{row}");
        assert_eq!(headers["x-death"][0]["queue"], "work", "{row}");
    }
}

#[test]
fn a_kill_in_the_middle_of_a_move_leaves_each_message_in_one_queue() {
    for place in 0..2 {
        kill_in_the_middle(place, &json!({"per_second": 2_000}));
    }
    kill_in_the_middle(1, &json!({"per_second": 2_000, "filter": "m.size > 0"}));
}

/// Both queues have their homes on the shard that the connection at this place of two is on.
fn kill_in_the_middle(place: usize, how: &Value) {
    let (scratch, program) = started("move-kill");
    let user = User::guest(&program);
    let mut sessions = [connect(program.amqp), connect(program.amqp)];
    sessions[place].declare("from");
    sessions[place].declare("to");
    fill(&program, "", "from", MESSAGES);
    let mut order = json!({"vhost": "/", "from": "from", "to": "to"});
    how.as_object().unwrap().iter().for_each(|(key, value)| order[key] = value.clone());
    let path = begin(&user, &order);
    let row = wait_for(&user, &path, |row| row["moved"].as_u64() > Some(MESSAGES / 5));
    let moved = row["moved"].as_u64().unwrap();
    assert_eq!(row["state"], "running", "{row}");
    program.signal(Signal::KILL);
    program.end();
    let program = Program::start(&scratch, &["--shards", "2"]);
    let user = User::guest(&program);
    assert_eq!(user.get("/lepus/moves"), json!([]), "it ended with the broker");
    let there = numbers(&rows(&user, "to", "ack_requeue_false"));
    let here = numbers(&rows(&user, "from", "ack_requeue_false"));
    let all: Vec<u64> = there.iter().chain(&here).copied().collect();
    assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>(), "{} and {}", there.len(), here.len());
    assert!(there.len() as u64 >= moved, "what was told is moved: {moved}");
}

#[test]
fn a_kill_between_shards_loses_nothing() {
    let (scratch, program) = started("move-far");
    let user = User::guest(&program);
    // Connections that are open at the same time are on different shards, and so are their queues.
    let mut sessions = [connect(program.amqp), connect(program.amqp)];
    for (session, queue) in sessions.iter_mut().zip(["from", "to"]) {
        session.declare(queue);
    }
    fill(&program, "", "from", MESSAGES);
    let order = json!({"vhost": "/", "from": "from", "to": "to", "per_second": 2_000});
    let path = begin(&user, &order);
    wait_for(&user, &path, |row| row["moved"].as_u64() > Some(MESSAGES / 5));
    program.signal(Signal::KILL);
    program.end();
    let program = Program::start(&scratch, &["--shards", "2"]);
    let user = User::guest(&program);
    let there = numbers(&rows(&user, "to", "ack_requeue_false"));
    let here = numbers(&rows(&user, "from", "ack_requeue_false"));
    assert_eq!(there, (0..there.len() as u64).collect::<Vec<_>>());
    let mut all: Vec<u64> = there.iter().chain(&here).copied().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>());
}

#[test]
fn a_message_that_goes_nowhere_stays_and_is_told_of() {
    let (_scratch, program) = started("move-nowhere");
    let user = User::guest(&program);
    user.put("/exchanges/%2F/none", json!({"type": "direct"}));
    user.put("/queues/%2F/from", json!({"durable": true}));
    let full = json!({"x-max-length": 3, "x-overflow": "reject-publish"});
    user.put("/queues/%2F/full", json!({"durable": true, "arguments": full}));
    fill(&program, "", "from", 10);
    let to_nobody = json!({"vhost": "/", "from": "from", "exchange": "none", "routing_key": "k"});
    let row = outcome(&user, &begin(&user, &to_nobody));
    assert_eq!((&row["state"], &row["moved"]), (&json!("stopped"), &json!(0)), "{row}");
    assert!(row["reason"].as_str().unwrap().contains("a message reaches no queue"), "{row}");
    let row = outcome(&user, &begin(&user, &json!({"vhost": "/", "from": "from", "to": "origin"})));
    assert_eq!((&row["state"], &row["moved"]), (&json!("stopped"), &json!(0)), "{row}");
    assert!(row["reason"].as_str().unwrap().contains("x-death"), "{row}");
    assert_eq!(user.messages("from"), 10);
    let row = outcome(&user, &begin(&user, &json!({"vhost": "/", "from": "from", "to": "full"})));
    assert_eq!((&row["state"], &row["moved"]), (&json!("stopped"), &json!(3)), "{row}");
    assert!(row["reason"].as_str().unwrap().contains("refuse"), "{row}");
    assert_eq!(numbers(&rows(&user, "full", "ack_requeue_false")), [0, 1, 2]);
    let some = json!({"vhost": "/", "from": "from", "to": "full", "count": 2, "headers": "x-own"});
    assert_eq!(outcome(&user, &begin(&user, &some))["state"], "completed");
    let found = rows(&user, "full", "ack_requeue_false");
    assert_eq!(numbers(&found), [3, 4]);
    assert_eq!(found[0]["properties"]["headers"]["x-own"]["queue"], "from", "{found:?}");
    assert_eq!(numbers(&rows(&user, "from", "ack_requeue_false")), [5, 6, 7, 8, 9]);
}

#[test]
fn while_memory_is_short_a_move_waits_and_can_be_stopped() {
    let (_scratch, program) = started("move-short");
    let user = User::guest(&program);
    for queue in ["from", "to"] {
        user.put(&format!("/queues/%2F/{queue}"), json!({"durable": true}));
    }
    fill(&program, "", "from", 1_000);
    let order_alarm = |what: &str| {
        let mut command = lepus(&["ctl", "eval", what]);
        let output = command.env("LEPUS_DATA_DIR", &program.data_dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    order_alarm("rabbit_alarm:set_alarm({{resource_limit,memory,node()},[]}).");
    let order = json!({"vhost": "/", "from": "from", "to": "to"});
    let path = begin(&user, &order);
    // It has taken some, and can do no more.
    wait_for(&user, &path, |row| row["of"] == 1_000);
    assert_eq!(user.delete(&path), 204);
    let row = outcome(&user, &path);
    assert_eq!((&row["state"], &row["moved"]), (&json!("stopped"), &json!(0)), "{row}");
    let path = begin(&user, &order);
    let row = wait_for(&user, &path, |row| row["of"].is_u64());
    assert_eq!((&row["state"], &row["moved"]), (&json!("running"), &json!(0)), "{row}");
    order_alarm("rabbit_alarm:clear_alarm({resource_limit,memory,node()}).");
    let row = outcome(&user, &path);
    assert_eq!(row["state"], "completed", "{row}");
    let there = numbers(&rows(&user, "to", "ack_requeue_false"));
    let here = numbers(&rows(&user, "from", "ack_requeue_false"));
    let mut all: Vec<u64> = there.iter().chain(&here).copied().collect();
    all.sort_unstable();
    assert_eq!(all, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn who_may_not_read_or_write_moves_nothing() {
    let (_scratch, program) = started("move-rights");
    let guest = User::guest(&program);
    for queue in ["from", "to"] {
        guest.put(&format!("/queues/%2F/{queue}"), json!({"durable": true}));
    }
    let order = json!({"vhost": "/", "from": "from", "to": "to"});
    let rights = |read: &str, write: &str| json!({"configure": "", "write": write, "read": read});
    guest.put("/users/poll", json!({"password": "p", "tags": "policymaker"}));
    guest.put("/users/member", json!({"password": "p", "tags": "management"}));
    let poll = User::new(program.management, "poll:p");
    let begun = |user: &User| user.code("POST", "/lepus/moves", &order).0;
    assert_eq!(begun(&poll), 401, "it may not enter the virtual host");
    guest.put("/permissions/%2F/poll", rights("to", ".*"));
    assert_eq!(begun(&poll), 401, "it may not read");
    guest.put("/permissions/%2F/poll", rights("from", "to"));
    assert_eq!(begun(&poll), 401, "it may not write to the default exchange");
    guest.put("/permissions/%2F/poll", rights("from", "amq.default"));
    guest.put("/permissions/%2F/member", rights(".*", ".*"));
    assert_eq!(begun(&User::new(program.management, "member:p")), 401);
    let path = begin(&poll, &order);
    assert_eq!(outcome(&poll, &path)["user"], "poll");
    // Who may not enter its virtual host sees nothing of it.
    guest.put("/users/other", json!({"password": "p", "tags": "policymaker"}));
    let other = User::new(program.management, "other:p");
    assert_eq!(other.get("/lepus/moves"), json!([]));
    assert_eq!(other.delete(&path), 404);
    let bad = |more: Value| {
        let mut order = order.clone();
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        guest.code("POST", "/lepus/moves", &order).0
    };
    for more in [
        json!({"to": null}),
        json!({"exchange": "amq.direct"}),
        json!({"to": "from"}),
        json!({"count": 0}),
        json!({"per_second": "x"}),
        json!({"headers": 1}),
        json!({"death": "first"}),
        json!({"routing_key": "k"}),
        json!({"vhost": null}),
    ] {
        assert_eq!(bad(more.clone()), 400, "{more}");
    }
    for more in [json!({"from": "x"}), json!({"to": "x"}), json!({"vhost": "x"})] {
        assert_eq!(bad(more.clone()), 404, "{more}");
    }
}

#[test]
fn moves_are_stopped_and_only_so_many_run() {
    let (_scratch, program) = started("move-many");
    let user = User::guest(&program);
    for queue in ["from", "to"] {
        user.put(&format!("/queues/%2F/{queue}"), json!({"durable": true}));
    }
    fill(&program, "", "from", 1_000);
    let order = json!({"vhost": "/", "from": "from", "to": "to", "per_second": 1});
    let paths: Vec<String> = (0..16).map(|_| begin(&user, &order)).collect();
    assert_eq!(user.code("POST", "/lepus/moves", &order).0, 503);
    assert_eq!(user.get("/lepus/moves").as_array().unwrap().len(), 16);
    for path in &paths {
        assert_eq!(user.delete(path), 204);
        let row = outcome(&user, path);
        assert_eq!((&row["state"], &row["reason"]), (&json!("stopped"), &json!("it was told to")));
    }
    // Several at once take turns; all messages are in one of the queues.
    let row = outcome(&user, &begin(&user, &json!({"vhost": "/", "from": "from", "to": "to"})));
    assert_eq!(row["state"], "completed", "{row}");
    assert_eq!((user.messages("from"), user.messages("to")), (0, 1_000));
    assert_eq!(user.delete(&paths[0]), 204, "it is forgotten");
    assert_eq!(user.code("GET", &paths[0], &Value::Null).0, 404);
    for _ in 0..80 {
        outcome(&user, &begin(&user, &order));
    }
    assert_eq!(user.get("/lepus/moves").as_array().unwrap().len(), 64);
}

#[test]
fn what_a_move_leaves_does_not_count_as_delivered() {
    let (_scratch, program) = started("move-limit");
    let user = User::guest(&program);
    let arguments = json!({"x-queue-type": "quorum", "x-delivery-limit": 0});
    user.put("/queues/%2F/limited", json!({"durable": true, "arguments": arguments}));
    let arguments = json!({"x-max-length": 5, "x-overflow": "reject-publish"});
    user.put("/queues/%2F/full", json!({"durable": true, "arguments": arguments}));
    fill(&program, "", "limited", 100);
    for moved in [5, 0, 0] {
        let path = begin(&user, &json!({"vhost": "/", "from": "limited", "to": "full"}));
        let row = outcome(&user, &path);
        assert_eq!((&row["state"], &row["moved"]), (&json!("stopped"), &json!(moved)), "{row}");
        while user.messages("limited") != 95 {
            std::thread::yield_now();
        }
    }
}

/// Many small messages, then some of which a few fill a slice: what comes that a move has no room for goes back and comes
/// again.
#[test]
fn messages_that_become_large_are_moved_in_their_order() {
    let (_scratch, program) = started("move-large");
    let user = User::guest(&program);
    user.put("/queues/%2F/from", json!({"durable": true}));
    user.put("/queues/%2F/to", json!({"durable": true}));
    let mut session = connect(program.amqp);
    assert_eq!(session.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    let sizes: Vec<usize> = (0..300).chain((0..12).map(|at| (700 << 10) + at)).collect();
    let mut left = sizes.len() as u64;
    for size in &sizes {
        session.publish_persistent(1, "from", &vec![b'x'; *size]);
        session.flush();
    }
    let mut last = 0;
    while left > 0 {
        let Seen::Ack { tag, multiple } = session.see() else { panic!("a confirm was expected") };
        left -= if multiple { tag - last } else { 1 };
        last = tag;
    }
    let path = begin(&user, &json!({"vhost": "/", "from": "from", "to": "to"}));
    let row = outcome(&user, &path);
    assert_eq!((&row["state"], &row["moved"]), (&json!("completed"), &json!(312)), "{row}");
    let mut found = Vec::new();
    while found.len() < sizes.len() {
        found.extend(rows(&user, "to", "ack_requeue_false"));
    }
    let found: Vec<u64> = found.iter().map(|row| row["payload_bytes"].as_u64().unwrap()).collect();
    assert_eq!(found, sizes.iter().map(|size| *size as u64).collect::<Vec<_>>());
}

/// Moves what a filter chooses; what the move came to, and the numbers that are in the queue `to` then.
fn choose(user: &User, filter: &str, more: &Value) -> (Value, Vec<u64>) {
    let mut order = json!({"vhost": "/", "from": "from", "to": "to", "filter": filter});
    more.as_object().unwrap().iter().for_each(|(key, value)| order[key] = value.clone());
    let path = begin(user, &order);
    let row = outcome(user, &path);
    (row, numbers(&rows(user, "to", "ack_requeue_false")))
}

#[test]
fn a_filter_chooses_what_is_moved_and_all_else_stays_in_its_order() {
    let (_scratch, program) = started("move-filter");
    let user = User::guest(&program);
    let mut session = connect(program.amqp);
    session.declare("from");
    session.declare("to");
    fill(&program, "", "from", MESSAGES);
    // One who wants the same, and takes one of them.
    let arguments = Table::new().with("x-filter", "m.size=3").to_bytes();
    session.call(1, basic::Qos { prefetch_count: 1, ..basic::Qos::default() });
    let consume =
        basic::Consume { queue: "from", arguments: arguments.as_ref(), ..Default::default() };
    assert_eq!(session.call(1, consume), Seen::Method("basic.consume-ok"));
    assert!(matches!(session.see(), Seen::Message { .. }));

    let (row, there) = choose(&user, "m.size = 3", &json!({}));
    assert_eq!((&row["state"], &row["moved"]), (&json!("completed"), &json!(899)), "{row}");
    assert_eq!((&row["of"], &row["reason"]), (&Value::Null, &Value::Null));
    assert_eq!((&row["filter"], &row["filter_format"]), (&json!("m.size = 3"), &json!("auto")));
    assert_eq!(there, (101..1000).collect::<Vec<_>>());
    session.close();

    let (row, there) =
        choose(&user, "m.size = 4", &json!({"count": 1000, "filter_format": "none"}));
    assert_eq!((&row["moved"], &row["of"]), (&json!(1000), &json!(1000)), "{row}");
    assert_eq!(there, (1000..2000).collect::<Vec<_>>());
    let (row, there) = choose(&user, "m.size = 1", &json!({"count": 50}));
    assert_eq!((&row["state"], &row["moved"]), (&json!("completed"), &json!(10)), "{row}");
    assert_eq!(row["reason"], "no more match the filter: 40 fewer than asked for");
    assert_eq!(there, (0..10).collect::<Vec<_>>());
    let (row, there) = choose(&user, "m.size = 77", &json!({}));
    assert_eq!((&row["state"], &row["moved"]), (&json!("completed"), &json!(0)), "{row}");
    assert_eq!(there, [0; 0]);
    assert_eq!(user.get("/queues/%2F/from")["consumers"], 0);
    let here = numbers(&rows(&user, "from", "ack_requeue_false"));
    let left: Vec<u64> = (10..101).chain(2000..MESSAGES).collect();
    assert_eq!(here, left);
}

/// More comes than one transaction has: it goes back, and counts as no attempt.
#[test]
fn large_messages_that_a_filter_chooses_are_moved_in_their_order() {
    const LARGE: usize = 300_000;
    let (_scratch, program) = started("move-filter-large");
    let user = User::guest(&program);
    let arguments = json!({"x-queue-type": "quorum", "x-delivery-limit": 1});
    user.put("/queues/%2F/from", json!({"durable": true, "arguments": arguments}));
    user.put("/queues/%2F/to", json!({"durable": true}));
    let mut session = connect(program.amqp);
    let mut bytes = Vec::new();
    for number in 0..60_u8 {
        let body = vec![number; if number % 2 == 0 { LARGE } else { 1 }];
        encode_publish(&mut bytes, 1, 4096, "", "from", false, &[0, 0], &body);
    }
    session.send_raw(&bytes);
    session.close();
    while user.messages("from") < 60 {
        std::thread::yield_now();
    }
    let order = json!({"vhost": "/", "from": "from", "to": "to", "filter": "m.size > 1000"});
    let row = outcome(&user, &begin(&user, &order));
    assert_eq!((&row["state"], &row["moved"]), (&json!("completed"), &json!(30)), "{row}");
    let firsts = |queue: &str| -> Vec<u8> {
        let body =
            json!({"ackmode": "ack_requeue_false", "count": 60, "encoding": "auto", "truncate": 1});
        let answer = user.send("POST", &format!("/queues/%2F/{queue}/get"), "", &body.to_string());
        let rows = answer.body.as_array().unwrap().clone();
        rows.iter().map(|row| row["payload"].as_str().unwrap().as_bytes()[0]).collect()
    };
    assert_eq!(firsts("to"), (0..60).step_by(2).collect::<Vec<_>>());
    assert_eq!(firsts("from"), (1..60).step_by(2).collect::<Vec<_>>());
}

#[test]
fn a_move_by_a_filter_says_why_it_cannot_be() {
    let (_scratch, program) = started("move-filter-refused");
    let user = User::guest(&program);
    user.put(
        "/queues/%2F/to",
        json!({"arguments": {"x-max-length": 5, "x-overflow": "reject-publish"}}),
    );
    user.put("/queues/%2F/single", json!({"arguments": {"x-single-active-consumer": true}}));
    let order = |from: &str, filter: Value| json!({"vhost": "/", "from": from, "to": "to", "filter": filter});
    let (code, reason) = user.code("POST", "/lepus/moves", &order("single", json!("a = 1")));
    assert_eq!(code, 400);
    assert!(reason.contains("has a single active consumer"), "{reason}");
    let without = json!({"vhost": "/", "from": "single", "to": "to"});
    assert_eq!(outcome(&user, &begin(&user, &without))["state"], "completed");
    let path = "/lepus/moves";
    let wrong = user.send("POST", path, "", &order("from", json!("a = ")).to_string());
    assert_eq!((wrong.status, &wrong.body["error"]), (400, &json!("filter")), "{}", wrong.body);
    assert_eq!(wrong.body["at"], 5);
    assert_eq!(user.code("POST", path, &order("from", Value::Null)).0, 400);

    // An exclusive consumer lets no other in.
    let mut session = connect(program.amqp);
    session.declare("from");
    fill(&program, "", "from", 20);
    let alone = basic::Consume { queue: "from", exclusive: true, ..Default::default() };
    session.call(1, basic::Qos { prefetch_count: 1, ..basic::Qos::default() });
    assert_eq!(session.call(1, alone), Seen::Method("basic.consume-ok"));
    let row = outcome(&user, &begin(&user, &order("from", json!("m.size = 2"))));
    assert_eq!(row["state"], "failed", "{row}");
    assert!(row["reason"].as_str().unwrap().contains("in exclusive use"), "{row}");
    session.close();

    // A message that is not taken stays, and so does what is behind it.
    let row = outcome(&user, &begin(&user, &order("from", json!("m.size = 2"))));
    assert_eq!((&row["state"], &row["moved"]), (&json!("stopped"), &json!(5)), "{row}");
    assert!(
        row["reason"].as_str().unwrap().starts_with("a message is left in \"from\": "),
        "{row}"
    );
    assert_eq!(numbers(&rows(&user, "to", "ack_requeue_false")), [10, 11, 12, 13, 14]);
    let left = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 18, 19];
    assert_eq!(numbers(&rows(&user, "from", "ack_requeue_false")), left);

    // A queue that goes ends it.
    fill(&program, "", "from", 20);
    let mut slow = order("from", json!("m.size = 2"));
    slow["per_second"] = json!(1);
    let path = begin(&user, &slow);
    wait_for(&user, &path, |row| row["moved"] == 1);
    assert_eq!(user.send("DELETE", "/queues/%2F/from", "", "").status, 204);
    let row = outcome(&user, &path);
    assert_eq!(row["state"], "failed", "{row}");
}

/// Its consumer only looks in: an auto-delete queue stays, and nothing is dropped for that no consumer wants it.
#[test]
fn a_queue_is_not_attended_by_a_move() {
    let (_scratch, program) = started("move-filter-attends");
    let user = User::guest(&program);
    user.put("/queues/%2F/from", json!({"auto_delete": true}));
    user.put("/queues/%2F/to", json!({}));
    fill(&program, "", "from", 200);
    let mut order = json!({"vhost": "/", "from": "from", "to": "to", "filter": "m.size = 3"});
    order["per_second"] = json!(50);
    let path = begin(&user, &order);
    wait_for(&user, &path, |row| row["moved"].as_u64() > Some(0));
    // All that its filter passed over is due at once, where somebody attends the queue.
    let drops = json!({"unmatched-after": 0});
    let policy = json!({"pattern": "^from$", "apply-to": "queues", "definition": drops});
    user.put("/policies/%2F/p", policy);
    let row = outcome(&user, &path);
    assert_eq!((&row["state"], &row["moved"]), (&json!("completed"), &json!(100)), "{row}");
    assert_eq!(user.messages("from"), 100);
    // A consumer attends it, and it goes with that one.
    let mut session = connect(program.amqp);
    let arguments = Table::new().with("x-filter", "m.size = 1").to_bytes();
    let consume =
        basic::Consume { queue: "from", arguments: arguments.as_ref(), ..Default::default() };
    assert_eq!(session.call(1, consume), Seen::Method("basic.consume-ok"));
    while user.messages("from") > 10 {
        std::thread::yield_now();
    }
    session.close();
    while user.send("GET", "/queues/%2F/from", "", "").status != 404 {
        std::thread::yield_now();
    }
}

/// Whoever publishes what matches all the time does not keep a move from its end, and what has come does not wait for more.
#[test]
fn a_move_ends_while_what_matches_comes() {
    let (_scratch, program) = started("move-filter-comes");
    let user = User::guest(&program);
    user.put("/queues/%2F/from", json!({}));
    user.put("/exchanges/%2F/back", json!({"type": "fanout"}));
    let key = json!({"routing_key": ""});
    assert_eq!(user.code("POST", "/bindings/%2F/e/back/q/from", &key).0, 201);
    fill(&program, "", "from", MESSAGES);
    // What is moved comes back: two messages that match, and so go round.
    let order = json!({"vhost": "/", "from": "from", "exchange": "back", "filter": "m.size = 1", "count": 9});
    let row = outcome(&user, &begin(&user, &order));
    assert_eq!((&row["state"], &row["moved"]), (&json!("completed"), &json!(9)), "{row}");
    let mut order = order;
    order["count"] = Value::Null;
    let row = outcome(&user, &begin(&user, &order));
    assert_eq!(row["state"], "completed", "{row}");
    assert!(row["moved"].as_u64() < Some(1000), "{row}");
    assert_eq!(user.messages("from"), MESSAGES);
}

#[test]
fn a_move_tells_for_how_many_messages_its_filter_would_have_taken_too_long() {
    let (_scratch, program) = started("move-filter-long");
    let user = User::guest(&program);
    user.put("/queues/%2F/from", json!({}));
    user.put("/queues/%2F/to", json!({}));
    let mut session = connect(program.amqp);
    for length in [100, 20_000] {
        let body = json!({ "text": "a".repeat(length) }).to_string();
        session.publish(1, "from", body.as_bytes());
    }
    session.close();
    while user.messages("from") < 2 {
        std::thread::yield_now();
    }
    let filter = "b.text REGEXP '^(a|aa|aaa)*$'";
    let order = json!({"vhost": "/", "from": "from", "to": "to", "filter": filter});
    let row = outcome(&user, &begin(&user, &order));
    assert_eq!((&row["state"], &row["moved"]), (&json!("completed"), &json!(1)), "{row}");
    let reason = "the filter would have taken too long 1 times: such messages stay";
    assert_eq!(row["reason"], reason, "{row}");
}
