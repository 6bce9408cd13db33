//! Who may log in, how, and to which vhost.

use lepus_amqp::Method;
use lepus_amqp::client::ClientOptions;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::connection;
use lepus_amqp::sasl;
use lepus_amqp::table::Table;
use lepus_broker::Query;
use lepus_broker::directory::{Request, VhostRef};
use lepus_broker::query::Setting;
use lepus_broker::user::UserLimits;
use lepus_broker::vhost::VhostLimits;
use lepus_sim::World;

use crate::stage::everywhere;
use crate::wire;

#[test]
fn a_wrong_password_is_refused_in_words_to_clients_that_can_hear_it() {
    let world = World::new(1);
    for (user, password) in [("guest", "wrong"), ("nobody", "guest"), ("guest", "")] {
        let client = world.connect_with(0, World::login(user, password, "/"));
        let text = client.expect_closed(ReplyCode::ACCESS_REFUSED);
        assert_eq!(
            text,
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For \
             details see the broker logfile."
        );
    }
    assert_eq!(world.counters().logins_refused, 3);
    assert_eq!(world.leaks(), [""; 0]);
}

/// The log may be read at a terminal.
#[test]
fn what_a_refused_name_would_do_to_a_terminal_is_shown_in_words() {
    let world = World::new(1);
    let name = "ev\u{1b}[2Jil\u{202e}\r\n\u{9b}";
    world.connect_with(0, World::login(name, "x", "/")).expect_closed(ReplyCode::ACCESS_REFUSED);
    let events = world.events();
    let refused: Vec<_> = events.iter().filter(|event| event.kind == "login-refused").collect();
    assert_eq!(refused.len(), 1);
    let text = &refused[0].text;
    assert!(text.contains(r"user 'ev\u{1b}[2Jil\u{202e}\r\n\u{9b}' refused"), "{text}");
}

#[test]
fn other_clients_see_only_a_closed_socket_after_a_wrong_password() {
    let world = World::new(1);
    let client = world.dial(0);
    client.send_bytes(wire::HEADER);
    let response = sasl::response("PLAIN", "guest", "wrong");
    client.send_bytes(&wire::start_ok("PLAIN", &response, &[]));
    assert_eq!(wire::names(&client.take_bytes()), ["connection.start"]);
    world.advance(5_000);
    assert_eq!(client.take_bytes(), b"");
    assert!(client.is_ended());
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn amqplain_works() {
    let world = World::new(1);
    let options = |password: &str| ClientOptions {
        mechanism: "AMQPLAIN".into(),
        ..World::login("guest", password, "/")
    };
    assert!(world.connect_with(0, options("guest")).is_open());
    let text = world.connect_with(0, options("wrong")).expect_closed(ReplyCode::ACCESS_REFUSED);
    assert!(text.contains("AMQPLAIN"), "{text}");
}

#[test]
fn a_mechanism_that_is_not_offered_is_refused() {
    let world = World::new(1);
    for mechanism in ["CRAM-MD5", "EXTERNAL", "anonymous", "plain", ""] {
        let client = world.dial(0);
        client.send_bytes(wire::HEADER);
        let _ = client.take_bytes();
        client.send_bytes(&wire::start_ok(mechanism, b"\0guest\0guest", &[]));
        assert_eq!(wire::close_in(&client.take_bytes()).0, 503, "{mechanism}");
    }
}

#[test]
fn who_gives_no_name_is_the_user_for_that_and_gets_no_more_than_with_name_and_password() {
    let world = World::new(1);
    let anonymous = || ClientOptions { mechanism: "ANONYMOUS".into(), ..World::login("", "", "/") };
    let client = world.connect_with(0, anonymous());
    assert!(client.is_open());
    let alice = client.channel();
    alice.declare("q");
    // From another machine the user has no more rights than by name.
    let refused = world.connect_from(0, "192.0.2.7:4000", anonymous());
    refused.expect_closed(ReplyCode::ACCESS_REFUSED);
    // Nor is there anybody else for them.
    world.request(Request::DeleteUser { name: "guest".into() }).unwrap();
    world.connect_with(0, anonymous()).expect_closed(ReplyCode::ACCESS_REFUSED);
}

#[test]
fn responses_that_make_no_sense_are_refused_logins() {
    let world = World::new(1);
    for response in [&b""[..], b"guest", b"\0", b"\0\0", b"\xff\xff\0\xff"] {
        let client = world.dial(0);
        client.send_bytes(wire::HEADER);
        let _ = client.take_bytes();
        let capable = ["authentication_failure_close"];
        client.send_bytes(&wire::start_ok("PLAIN", response, &capable));
        assert_eq!(wire::close_in(&client.take_bytes()).0, 403, "{response:?}");
    }
}

#[test]
fn an_unknown_vhost_is_refused_at_open() {
    let world = World::new(1);
    let client = world.connect_with(0, World::login("guest", "guest", "nowhere"));
    let text = client.expect_closed(ReplyCode::NOT_ALLOWED);
    assert_eq!(text, "NOT_ALLOWED - vhost nowhere not found");
}

#[test]
fn a_vhost_without_permissions_is_refused_at_open() {
    let world = World::new(2);
    world.add_vhost("other");
    world.add_user("ann", "secret");
    for shard in 0..2 {
        let client = world.connect_with(shard, World::login("ann", "secret", "other"));
        let text = client.expect_closed(ReplyCode::NOT_ALLOWED);
        assert_eq!(text, "NOT_ALLOWED - access to vhost 'other' refused for user 'ann'");
    }
    world.permit("ann", "other", "", "", "");
    let options = World::login("ann", "secret", "other");
    assert!(world.connect_with(1, options).is_open());
}

#[test]
fn guest_comes_from_this_machine_only() {
    let world = World::new(1);
    world.add_user("ann", "secret");
    world.permit("ann", "/", "", "", "");
    let far = "192.0.2.7:40000";
    let guest = world.connect_from(0, far, World::login("guest", "guest", "/"));
    guest.expect_closed(ReplyCode::ACCESS_REFUSED);
    let ann = world.connect_from(0, far, World::login("ann", "secret", "/"));
    assert!(ann.is_open());
    let here = world.connect_from(0, "[::1]:40000", World::login("guest", "guest", "/"));
    assert!(here.is_open());
}

#[test]
fn a_new_secret_is_accepted_at_once() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    let update = connection::UpdateSecret { new_secret: b"anything", reason: "renewed" };
    raw.send_bytes(&wire::method(0, update));
    assert_eq!(wire::names(&raw.take_bytes()), ["connection.update-secret-ok"]);
}

#[test]
fn a_client_may_name_its_connection() {
    let world = World::new(1);
    let properties = Table::new().with("connection_name", "till 7");
    let options = ClientOptions { properties, heartbeat: 0, ..Default::default() };
    assert!(world.connect_with(0, options).is_open());
    let name = world.broker(0, |broker| {
        let (_, connection) = broker.connections.iter().next().unwrap();
        let name = connection.client_properties().get("connection_name");
        name.and_then(|name| name.as_text()).map(str::to_owned)
    });
    assert_eq!(name.as_deref(), Some("till 7"));
}

#[test]
fn connections_of_a_deleted_user_are_closed() {
    let world = World::new(2);
    world.add_user("ann", "secret");
    world.permit("ann", "/", ".*", ".*", ".*");
    let clients = [world.connect_as(0, "ann", "secret"), world.connect_as(1, "ann", "secret")];
    let other = world.connect(1);
    world.request(Request::DeleteUser { name: "ann".into() }).unwrap();
    for client in clients {
        client.expect_closed(ReplyCode::CONNECTION_FORCED);
    }
    assert!(other.is_open());
    let again = world.connect_with(1, World::login("ann", "secret", "/"));
    again.expect_closed(ReplyCode::ACCESS_REFUSED);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn connections_of_a_deleted_vhost_are_closed_and_all_in_it_is_gone() {
    let world = World::new(2);
    world.add_vhost("v");
    world.permit("guest", "v", ".*", ".*", ".*");
    let clients = [0, 1].map(|shard| {
        let client = world.connect_with(shard, World::login("guest", "guest", "v"));
        let channel = client.channel();
        channel.declare(&format!("q{shard}"));
        channel.publish("", &format!("q{shard}"), "x");
        channel.consume(&format!("q{shard}"), "c");
        client
    });
    assert!(world.find_queue("v", "q1").is_some());
    world.request(Request::DeleteVhost { name: "v".into() }).unwrap();
    for client in clients {
        client.expect_closed(ReplyCode::CONNECTION_FORCED);
    }
    assert_eq!(world.find_queue("v", "q1"), None);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn the_close_of_a_connection_names_the_method_at_fault() {
    let world = World::new(1);
    let raw = wire::tuned(&world, 0);
    raw.send_bytes(&wire::tune_ok(10, 4096, 0));
    raw.send_bytes(&wire::method(0, connection::Open { virtual_host: "nowhere" }));
    let bytes = raw.take_bytes();
    let (code, text, cause) = wire::close_in(&bytes);
    assert_eq!((code, cause), (530, (10, 40)), "{text}");
    wire::each_method(&bytes, |channel, method| {
        assert!(channel == 0 && matches!(method, Method::ConnectionClose(_)));
    });
}

#[test]
fn a_vhost_may_limit_its_connections() {
    everywhere(|stage| {
        let world = &stage.world;
        world.add_vhost("v");
        world.permit("guest", "v", ".*", ".*", ".*");
        let limits = VhostLimits { connections_max: Some(2), ..VhostLimits::default() };
        let vhost = VhostRef::Name("v".into());
        world.request(Request::SetVhostLimits { vhost, limits }).unwrap();
        let last = world.broker(0, |broker| broker.shard.settings().shards) - 1;
        let connect = |shard| world.connect_with(shard, World::login("guest", "guest", "v"));
        let (one, two) = (connect(0), connect(last));
        assert!(one.is_open() && two.is_open());
        for shard in [0, last] {
            let text = connect(shard).expect_closed(ReplyCode::NOT_ALLOWED);
            assert_eq!(
                text,
                "NOT_ALLOWED - access to vhost 'v' refused for user 'guest': connection limit (2) \
                 is reached"
            );
        }
        assert!(world.connect(last).is_open(), "other vhosts do not count");
        one.close();
        let three = connect(last);
        assert!(three.is_open());
        two.reset();
        assert!(connect(0).is_open());
    });
}

#[test]
fn a_user_may_have_no_more_connections_than_the_limit() {
    everywhere(|stage| {
        let world = &stage.world;
        world.add_user("ann", "secret");
        world.permit("ann", "/", ".*", ".*", ".*");
        let limits = UserLimits { connections_max: Some(1), ..UserLimits::default() };
        world.request(Request::SetUserLimits { name: "ann".into(), limits }).unwrap();
        let last = world.broker(0, |broker| broker.shard.settings().shards) - 1;
        let connect = |shard| world.connect_with(shard, World::login("ann", "secret", "/"));
        let one = connect(last);
        assert!(one.is_open());
        let text = connect(0).expect_closed(ReplyCode::NOT_ALLOWED);
        assert_eq!(
            text,
            "NOT_ALLOWED - connection refused for user 'ann': user connection limit (1) is reached"
        );
        assert!(world.connect(0).is_open());
        one.close();
        assert!(connect(0).is_open());
    });
}

#[test]
fn a_limit_holds_for_connections_that_open_on_all_shards_at_once() {
    for limit in 0..4 {
        let world = World::new(4);
        world.add_user("ann", "secret");
        world.add_vhost("v");
        world.permit("ann", "v", ".*", ".*", ".*");
        let limits = VhostLimits { connections_max: Some(limit), ..VhostLimits::default() };
        let vhost = VhostRef::Name("v".into());
        world.request(Request::SetVhostLimits { vhost, limits }).unwrap();
        let clients: Vec<_> = world.quietly(|| {
            let login = || World::login("ann", "secret", "v");
            (0..12).map(|number| world.connect_with(number % 4, login())).collect()
        });
        world.settle();
        let open = clients.iter().filter(|client| client.is_open()).count();
        assert_eq!(open as i64, limit);
        // Who was too many does not count any more.
        if let Some(client) = clients.iter().find(|client| client.is_open()) {
            client.close();
            for shard in 0..4 {
                let next = world.connect_with(shard, World::login("ann", "secret", "v"));
                assert!(next.is_open());
                next.close();
            }
        }
    }
}

#[test]
fn who_may_come_from_here_only_can_be_set_while_the_broker_runs() {
    let world = World::new(2);
    let is_let_in = |user: &str| {
        let options = World::login(user, user, "/");
        world.connect_from(1, "192.0.2.7:40000", options).is_open()
    };
    let here = world.connect(1);
    assert!(!is_let_in("guest"));
    let set = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        for shard in 0..world.shards() {
            world.ask(shard, Query::Set(Setting::LoopbackUsers(names.clone())));
        }
    };
    set(&[]);
    assert!(is_let_in("guest"));
    set(&["guest", "other"]);
    assert!(!is_let_in("guest"));
    assert!(here.is_open(), "who is logged in stays");
}
