//! Sessions of browsers, and what is taken down of what is done.

use crate::management::{Answer, User, started};
use crate::running::{Program, Scratch};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The header that a page of the broker's own sends.
const MARK: &str = "X-Lepus-Request: 1\r\n";

/// A client without a login of its own.
fn browser(program: &Program) -> User {
    User::new(program.management, "")
}

fn log_in(program: &Program, name: &str, password: &str) -> Answer {
    let body = json!({"name": name, "password": password}).to_string();
    browser(program).send("POST", "/lepus/session", MARK, &body)
}

/// The header with which a browser sends back the cookie of an answer.
fn cookie(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let set = answer.header("set-cookie").expect("a cookie");
    let (secret, rest) = set.split_once(';').unwrap();
    assert_eq!(rest, " HttpOnly; SameSite=Strict; Path=/; Max-Age=28800");
    format!("Cookie: other=1; {secret}\r\n")
}

#[test]
fn a_session_stands_for_its_user_until_it_is_ended() {
    let (_scratch, program) = started("api-session");
    let (guest, page) = (User::guest(&program), browser(&program));
    let answer = log_in(&program, "guest", "guest");
    let own = cookie(&answer);
    assert_eq!(answer.body["user"], "guest");
    let look = page.send("GET", "/whoami", &own, "");
    assert_eq!((look.status, &look.body["name"]), (200, &json!("guest")));
    // What changes something needs the header as well, and no other site's page gets there.
    let put = |headers: &str| page.send("PUT", "/queues/%2F/q", headers, "{}").status;
    assert_eq!(put(&own), 403);
    assert_eq!(put(&format!("{own}{MARK}Origin: https://evil\r\n")), 403);
    assert_eq!(put(&format!("{own}{MARK}Sec-Fetch-Site: cross-site\r\n")), 403);
    let cross = guest.send("PUT", "/queues/%2F/q", "Origin: https://evil\r\n", "{}");
    assert_eq!(cross.status, 403, "with name and password, too");
    assert_eq!(put(&format!("{own}{MARK}")), 201);
    // Only browsers' own pages are not asked for a password.
    for (headers, asks) in [("", true), (MARK, false)] {
        let refused = page.send("GET", "/whoami", headers, "");
        assert_eq!(refused.status, 401);
        assert_eq!(refused.header("www-authenticate").is_some(), asks);
    }
    let other = cookie(&guest.send("POST", "/lepus/session", "", ""));
    let rows = page.send("GET", "/lepus/sessions", &own, "").body;
    let rows = rows.as_array().unwrap();
    let flags: Vec<&Value> = rows.iter().map(|row| &row["is_own"]).collect();
    assert_eq!(flags, [&json!(true), &json!(false)]);
    let secret = own.trim().rsplit('=').next().unwrap();
    assert!(!Value::from(rows.clone()).to_string().contains(secret));
    let path = format!("/lepus/sessions/{}", rows[1]["id"].as_str().unwrap());
    let revoke = |headers: &str| page.send("DELETE", &path, headers, "").status;
    assert_eq!((revoke(&format!("{own}{MARK}")), revoke(&format!("{own}{MARK}"))), (204, 404));
    assert_eq!(page.send("GET", "/whoami", &other, "").status, 401);
    let end = page.send("DELETE", "/lepus/session", &format!("{own}{MARK}"), "");
    assert_eq!(end.status, 204);
    assert!(end.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(page.send("GET", "/whoami", &own, "").status, 401);
    assert_eq!(guest.code("DELETE", "/lepus/session", &Value::Null).0, 404);
}

#[test]
fn sessions_end_with_their_user_and_others_are_nobodys_business() {
    let (_scratch, program) = started("api-session-users");
    let (guest, page) = (User::guest(&program), browser(&program));
    let user = |password: &str, tags: &str| json!({"password": password, "tags": tags});
    guest.put("/users/ann", user("a", "management"));
    guest.put("/users/tom", user("t", ""));
    assert_eq!(log_in(&program, "tom", "t").status, 401, "who may do nothing here");
    assert_eq!(log_in(&program, "ann", "wrong").status, 401);
    let body = json!({"name": "ann"}).to_string();
    assert_eq!(browser(&program).send("POST", "/lepus/session", "", &body).status, 400);
    let of_guest = log_in(&program, "guest", "guest");
    let id = of_guest.body["id"].as_str().unwrap();
    let own = cookie(&log_in(&program, "ann", "a"));
    let seen = page.send("GET", "/lepus/sessions", &own, "").body;
    assert_eq!(seen.as_array().unwrap().len(), 1);
    assert_eq!(guest.get("/lepus/sessions").as_array().unwrap().len(), 2);
    let path = format!("/lepus/sessions/{id}");
    assert_eq!(page.send("DELETE", &path, &format!("{own}{MARK}"), "").status, 404);
    // Tags are those of the moment.
    assert_eq!(page.send("GET", "/users", &own, "").status, 401);
    let lives = |cookie: &str| page.send("GET", "/whoami", cookie, "").status == 200;
    assert!(lives(&own) && lives(&cookie(&of_guest)));
    guest.put("/users/ann", user("another", "management"));
    assert!(!lives(&own));
    let own = cookie(&log_in(&program, "ann", "another"));
    program.order(&["user", "delete", "ann"]).unwrap();
    assert!(!lives(&own) && lives(&cookie(&of_guest)));
    // Who gets the name later is somebody else, also with the password.
    guest.put("/users/ann", user("a", "management"));
    let hash = guest.get("/users/ann")["password_hash"].clone();
    let own = cookie(&log_in(&program, "ann", "a"));
    program.order(&["user", "delete", "ann"]).unwrap();
    guest.put("/users/ann", json!({"password_hash": hash, "tags": "management"}));
    assert!(!lives(&own));
}

#[test]
fn logins_by_a_body_are_counted_and_told_by_name_whatever_way_it_comes() {
    let (_scratch, program) = started("api-session-body");
    let guest = User::guest(&program);
    guest.put("/users/ann", json!({"password": "a", "tags": "management"}));
    let node = guest.get("/nodes")[0]["name"].as_str().unwrap().to_owned();
    let path = format!("/auth/attempts/{node}");
    assert_eq!(guest.delete(&path), 204);
    let chunked = |body: &str| {
        let mut stream = TcpStream::connect(program.management).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!(
            "POST /api/lepus/session HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Transfer-Encoding: chunked\r\n{MARK}\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            program.management,
            body.len(),
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // It may be cut where not all was read.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap().split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(chunked(r#"{"name": "ann", "password": "a"}"#), "200");
    assert_eq!(chunked(r#"{"name": "ann", "password": "b"}"#), "401");
    assert_eq!(chunked(r#"{"name": "nobody", "password": "b"}"#), "401");
    // No login.
    assert_eq!(chunked("{}"), "400");
    assert_eq!(chunked(&format!("\"{}\"", "x".repeat(65 << 10))), "400");
    let row = &guest.get(&path)[0];
    assert_eq!((&row["protocol"], &row["auth_attempts_failed"]), (&json!("http"), &json!(2)));
    // With that of this very look.
    assert_eq!(row["auth_attempts_succeeded"], 2);
    let told = guest.get("/lepus/audit");
    let told = told.as_array().unwrap().iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        (text("what"), text("user"), text("result"))
    });
    let logins: Vec<(String, String)> = told
        .filter(|(what, ..)| what == "POST /api/lepus/session")
        .map(|(_, user, result)| (user, result))
        .collect();
    let expected = [("", "400"), ("", "401"), ("ann", "401"), ("ann", "200")];
    assert_eq!(logins, expected.map(|(user, result)| (user.to_owned(), result.to_owned())));
}

#[test]
fn what_is_done_is_taken_down_without_secrets() {
    let scratch = Scratch::new("audit-file");
    let path = scratch.path().join("audit.jsonl");
    let file = path.to_str().unwrap();
    let program = Program::start(&scratch, &["--shards", "1", "--management-audit-file", file]);
    let guest = User::guest(&program);
    guest.put("/users/ann", json!({"password": "hidden-1", "tags": "management"}));
    guest.get("/users");
    guest.get("/definitions");
    let wrong = User::new(program.management, "ann:hidden-2");
    assert_eq!(wrong.code("GET", "/whoami", &Value::Null).0, 401);
    let unknown = User::new(program.management, "hidden-3:x");
    assert_eq!(unknown.code("GET", "/whoami", &Value::Null).0, 401);
    guest.code("PUT", "/parameters/x/%2F/amqp%3A%2F%2Fme%3Ahidden-4%40host", &json!({"value": {}}));
    let path_of_hash = "/%61uth/h%61sh_password/hidden-6";
    assert_eq!(wrong.code("GET", path_of_hash, &Value::Null).0, 401);
    program.order(&["user", "add", "tom", "--password", "hidden-5"]).unwrap();
    program.order(&["user", "list"]).unwrap();
    // A thread writes the file.
    let deadline = Instant::now() + Duration::from_secs(60);
    let text = loop {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("user add") && text.ends_with('\n') {
            break text;
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::yield_now();
    };
    assert!(!text.contains("hidden"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &Value| {
        ["face", "user", "what", "result"].map(|key| line[key].as_str().unwrap().to_owned())
    };
    let told: Vec<[String; 4]> = lines.iter().map(told).collect();
    let uid = format!("uid {}", rustix::process::geteuid().as_raw());
    let parameter = "PUT /api/parameters/x/%2F/amqp%3A%2F%2F***@host";
    let expected = [
        ["http", "guest", "PUT /api/users/ann", "201"],
        ["http", "guest", "GET /api/definitions", "200"],
        ["http", "ann", "GET /api/whoami", "401"],
        ["http", "", "GET /api/whoami", "401"],
        ["http", "guest", parameter, "400"],
        ["http", "ann", "GET /api/%61uth/", "401"],
        ["control", &uid, "user add name=\"tom\"", "done"],
    ];
    assert_eq!(told, expected.map(|line| line.map(str::to_owned)));
    assert!(lines.iter().all(|line| line["time"].as_str().unwrap().ends_with('Z')));
    assert!(lines[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"));
    // The last ones are there to be read, newest first.
    let page = guest.get("/lepus/audit?page=1&page_size=2");
    assert_eq!((&page["total_count"], &page["page_count"]), (&json!(7), &json!(4)));
    assert_eq!(page["items"][0]["what"], "user add name=\"tom\"");
    assert!(page["items"][0]["timestamp"].as_u64().unwrap() > 1_600_000_000_000);
    guest.put("/users/ann", json!({"password": "a", "tags": "monitoring"}));
    let ann = User::new(program.management, "ann:a");
    assert_eq!(ann.code("GET", "/lepus/audit", &Value::Null).0, 401);
    // Who fails very often leaves what others did where it is, and all is counted.
    for number in 0..100 {
        let path = format!("/queues/%2F/none-{}", number % 2);
        assert_eq!(ann.delete(&path), 404);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let rows = guest.get("/lepus/audit");
        let rows = rows.as_array().unwrap();
        let failed = rows.iter().filter(|row| row["result"] == "404");
        let count: u64 = failed.clone().map(|row| row["count"].as_u64().unwrap()).sum();
        if count == 100 {
            assert!(failed.count() < 100);
            assert!(rows.iter().any(|row| row["what"] == "GET /api/definitions"));
            break;
        }
        assert!(Instant::now() < deadline, "{rows:?}");
        std::thread::yield_now();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_audit_file_lacks_is_counted() {
    let scratch = Scratch::new("audit-left-out");
    let path = scratch.path().join("audit.jsonl");
    // A disk without room.
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let file = path.to_str().unwrap();
    let program = Program::start(&scratch, &["--shards", "1", "--management-audit-file", file]);
    let guest = User::guest(&program);
    let left_out = || {
        let answer = guest.send("GET", "/lepus/audit", "", "");
        answer.header("x-lepus-left-out").unwrap().to_owned()
    };
    assert_eq!(left_out(), "0");
    guest.put("/queues/%2F/q", json!({}));
    let deadline = Instant::now() + Duration::from_secs(60);
    while left_out() != "1" {
        assert!(Instant::now() < deadline, "{} are counted", left_out());
    }
    let line = "\nlepus_audit_entries_left_out_total 1\n";
    loop {
        let mut stream = TcpStream::connect(program.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        if page.contains(line) {
            break;
        }
        // Figures hold for a moment.
        assert!(Instant::now() < deadline, "{page}");
    }
    // Memory has it.
    assert_eq!(guest.get("/lepus/audit")[0]["what"], "PUT /api/queues/%2F/q");
}
