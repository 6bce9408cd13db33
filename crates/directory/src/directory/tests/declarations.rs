//! Exchanges and queues: equivalence, reserved names, deletion, homes.

use super::*;
use lepus_amqp::table::Value;

/// The request with one attribute changed.
fn exchange_with(name: &str, edit: impl FnOnce(&mut Request)) -> Request {
    let mut request = declare_exchange(name, "direct");
    edit(&mut request);
    request
}

fn queue_with(name: &str, edit: impl FnOnce(&mut Request)) -> Request {
    let mut request = declare_queue(name);
    edit(&mut request);
    request
}

#[test]
fn redeclaring_an_exchange_compares_its_attributes() {
    let mut fixture = Fixture::new();
    fixture.exchange("x", "direct");
    assert_eq!(fixture.ask(&declare_exchange("x", "direct")), Ok(None));
    let wrong = |name: &str, received: &str, current: &str| {
        let text = alloc::format!(
            "inequivalent arg '{name}' for exchange 'x' in vhost '/': received {received} but current is {current}"
        );
        refusal(RefusalKind::PreconditionFailed, &text)
    };
    let durable = exchange_with("x", |request| {
        if let Request::DeclareExchange { durable, .. } = request {
            *durable = true;
        }
    });
    assert_eq!(fixture.ask(&durable), wrong("durable", "'true'", "'false'"));
    let auto_delete = exchange_with("x", |request| {
        if let Request::DeclareExchange { auto_delete, .. } = request {
            *auto_delete = true;
        }
    });
    assert_eq!(fixture.ask(&auto_delete), wrong("auto_delete", "'true'", "'false'"));
    let internal = exchange_with("x", |request| {
        if let Request::DeclareExchange { internal, .. } = request {
            *internal = true;
        }
    });
    assert_eq!(fixture.ask(&internal), wrong("internal", "'true'", "'false'"));
    assert_eq!(
        fixture.ask(&declare_exchange("x", "fanout")),
        wrong("type", "'fanout'", "'direct'")
    );
    let alternate = exchange_with("x", |request| {
        if let Request::DeclareExchange { arguments, .. } = request {
            arguments.insert("alternate-exchange", "other");
        }
    });
    assert_eq!(
        fixture.ask(&alternate),
        wrong("alternate-exchange", "the value 'other' of type 'longstr'", "none")
    );
    let unknown = exchange_with("x", |request| {
        if let Request::DeclareExchange { arguments, .. } = request {
            arguments.insert("x-anything", 1i32);
        }
    });
    assert_eq!(fixture.ask(&unknown), Ok(None));
}

#[test]
fn unknown_exchange_types_and_arguments_of_the_wrong_type_are_refused() {
    let mut fixture = Fixture::new();
    assert_eq!(
        fixture.ask(&declare_exchange("x", "nothing")),
        refusal(RefusalKind::PreconditionFailed, "unknown exchange type 'nothing'")
    );
    assert_eq!(
        fixture.ask(&declare_exchange("amq.direct", "nothing")),
        refusal(RefusalKind::PreconditionFailed, "unknown exchange type 'nothing'")
    );
    let request = exchange_with("x", |request| {
        if let Request::DeclareExchange { arguments, .. } = request {
            arguments.insert("alternate-exchange", 5i32);
        }
    });
    assert_eq!(
        fixture.ask(&request),
        refusal(
            RefusalKind::PreconditionFailed,
            "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
        )
    );
    for kind in ExchangeKind::all() {
        fixture.exchange(&alloc::format!("x-{}", kind.name()), kind.name());
    }
}

#[test]
fn a_delayed_exchange_routes_as_its_inner_type_says() {
    let mut fixture = Fixture::new();
    let delayed = |kind: &str| {
        let mut request = declare_exchange("xd", "x-delayed-message");
        if let Request::DeclareExchange { arguments, .. } = &mut request {
            arguments.insert("x-delayed-type", kind);
        }
        request
    };
    assert!(fixture.ask(&declare_exchange("xd", "x-delayed-message")).is_err());
    assert!(fixture.ask(&delayed("x-delayed-message")).is_err());
    fixture.does(&delayed("topic"));
    assert_eq!(
        fixture.ask(&delayed("direct")).unwrap_err().1,
        "inequivalent arg 'x-delayed-type' for exchange 'xd' in vhost '/': received the value \
         'direct' of type 'longstr' but current is the value 'topic' of type 'longstr'"
    );
    let info = fixture.directory.exchange(fixture.vhost(), "xd").unwrap();
    assert!(info.delayed && info.kind == ExchangeKind::Topic);
    assert_eq!(info.kind_name(), "x-delayed-message");
    fixture.queue("q");
    fixture.bind("xd", "q", "a.*");
    assert_eq!(fixture.reached("xd", "a.b"), ["q"]);
    assert!(!fixture.routes.is_cacheable());
}

#[test]
fn reserved_names_belong_to_the_broker() {
    let mut fixture = Fixture::new();
    let default =
        refusal(RefusalKind::AccessRefused, "operation not permitted on the default exchange");
    assert_eq!(fixture.ask(&declare_exchange("", "direct")), default);
    assert_eq!(fixture.ask(&delete_exchange("", false)), default);
    fixture.queue("q");
    assert_eq!(fixture.ask(&bind("", "q", "k")), default);
    assert_eq!(fixture.ask(&unbind("", "q", "q")), default);
    assert_eq!(
        fixture.ask(&declare_exchange("amq.mine", "direct")),
        refusal(
            RefusalKind::AccessRefused,
            "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
        )
    );
    assert_eq!(
        fixture.ask(&delete_exchange("amq.topic", false)),
        refusal(
            RefusalKind::AccessRefused,
            "deletion of system exchange 'amq.topic' in vhost '/' not allowed"
        )
    );
    assert_eq!(
        fixture.ask(&declare_queue("amq.mine")),
        refusal(
            RefusalKind::AccessRefused,
            "queue name 'amq.mine' contains reserved prefix 'amq.*'"
        )
    );
    let named = queue_with("amq.gen-1", |request| {
        if let Request::DeclareQueue { server_named, .. } = request {
            *server_named = true;
        }
    });
    fixture.does(&named);
    assert_eq!(fixture.ask(&declare_queue("amq.gen-1")), Ok(None));
    let redeclared = exchange_with("amq.fanout", |request| {
        if let Request::DeclareExchange { kind, durable, .. } = request {
            *kind = "fanout".into();
            *durable = true;
        }
    });
    assert_eq!(fixture.ask(&redeclared), Ok(None));
}

#[test]
fn line_ends_are_stripped_from_names() {
    let mut fixture = Fixture::new();
    fixture.exchange("x\r\ny\n", "direct");
    fixture.queue("\nq\r");
    fixture.bind("xy\n", "q\r\n", "k");
    assert_eq!(fixture.reached("xy", "k"), ["q"]);
    assert_eq!(clean_name("a\r\nb"), "ab");
    fixture.does(&delete_exchange("x\ny", false));
    assert!(fixture.directory.exchange(fixture.vhost(), "xy").is_none());
}

#[test]
fn names_longer_than_a_short_string_are_refused() {
    let mut fixture = Fixture::new();
    let long = "q".repeat(256);
    assert_eq!(fixture.ask(&declare_queue(&long)).unwrap_err().0, RefusalKind::PreconditionFailed);
    assert_eq!(
        fixture.ask(&declare_exchange(&long, "fanout")).unwrap_err().0,
        RefusalKind::PreconditionFailed
    );
    assert_eq!(fixture.ask(&declare_queue("")).unwrap_err().0, RefusalKind::PreconditionFailed);
}

#[test]
fn deleting_twice_is_fine_and_if_unused_counts_bindings_as_a_source() {
    let mut fixture = Fixture::new();
    fixture.exchange("x1", "fanout");
    fixture.exchange("x2", "fanout");
    fixture.bind("x1", "x2", "");
    assert_eq!(
        fixture.ask(&delete_exchange("x1", true)),
        refusal(RefusalKind::PreconditionFailed, "exchange 'x1' in vhost '/' in use")
    );
    fixture.does(&delete_exchange("x2", true));
    fixture.does(&delete_exchange("x1", true));
    assert_eq!(fixture.ask(&delete_exchange("x1", false)), Ok(None));
    let id = fixture.queue("q");
    let applied = fixture.does(&Request::DeleteQueue { id });
    assert_eq!(applied.queues_deleted[0].id, id);
    assert_eq!(fixture.ask(&Request::DeleteQueue { id }), Ok(None));
    assert!(fixture.queue("q") > id, "ids are not used again");
}

#[test]
fn redeclaring_a_queue_compares_its_attributes() {
    let mut fixture = Fixture::new();
    let id = fixture.queue("q");
    let again = fixture.directory.check(&declare_queue("q"));
    assert_eq!(again, Ok(Checked::Already(Some(id))));
    let durable = queue_with("q", |request| {
        if let Request::DeclareQueue { durable, .. } = request {
            *durable = true;
        }
    });
    let text = "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'";
    assert_eq!(fixture.ask(&durable), refusal(RefusalKind::PreconditionFailed, text));
    let auto_delete = queue_with("q", |request| {
        if let Request::DeclareQueue { auto_delete, .. } = request {
            *auto_delete = true;
        }
    });
    let text = "inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'";
    assert_eq!(fixture.ask(&auto_delete), refusal(RefusalKind::PreconditionFailed, text));
    let with = |name: &str, value: Value| {
        queue_with("q", |request| {
            if let Request::DeclareQueue { arguments, .. } = request {
                arguments.insert(name, value);
            }
        })
    };
    let text = "inequivalent arg 'x-expires' for queue 'q' in vhost '/': received the value '5' of type 'signedint' but current is none";
    assert_eq!(
        fixture.ask(&with("x-expires", Value::I32(5))),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    assert_eq!(fixture.ask(&with("x-unknown", Value::I32(5))), Ok(None));
    assert_eq!(fixture.ask(&with("x-queue-type", "classic".into())), Ok(None));
    let kind = fixture.ask(&with("x-queue-type", "quorum".into())).unwrap_err().0;
    assert_eq!(kind, RefusalKind::PreconditionFailed);
}

#[test]
fn an_exclusive_queue_is_locked_to_its_connection() {
    let mut fixture = Fixture::new();
    let exclusive = |owner: Option<u64>, durable_flag: bool| {
        queue_with("q", |request| {
            if let Request::DeclareQueue { exclusive, durable, .. } = request {
                *exclusive = owner.map(ConnectionId);
                *durable = durable_flag;
            }
        })
    };
    fixture.does(&exclusive(Some(1), true));
    let vhost = fixture.vhost();
    let info = fixture.directory.queue(vhost, "q").unwrap();
    assert!(!info.durable, "it goes with its connection");
    assert!(fixture.directory.exclusive_queues(ConnectionId(1)).eq([info.id]));
    assert_eq!(fixture.ask(&exclusive(Some(1), true)), Ok(None));
    assert_eq!(fixture.ask(&exclusive(Some(1), false)), Ok(None));
    let text = "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be \
                originally declared on another connection or the exclusive property value does \
                not match that of the original declaration.";
    assert_eq!(fixture.ask(&exclusive(Some(2), false)), refusal(RefusalKind::Locked, text));
    assert_eq!(fixture.ask(&exclusive(None, false)), refusal(RefusalKind::Locked, text));
    let find = |connection| {
        let found = fixture.directory.find_queue(vhost, "q", connection);
        found.map(|info| info.id).map_err(|refusal| refusal.kind)
    };
    assert!(find(ConnectionId(1)).is_ok());
    assert_eq!(find(ConnectionId(2)), Err(RefusalKind::Locked));
    fixture.exchange("x", "fanout");
    let mut request = bind("x", "q", "");
    if let Request::Bind { connection, .. } = &mut request {
        *connection = Some(ConnectionId(2));
    }
    assert_eq!(fixture.ask(&request).unwrap_err().0, RefusalKind::Locked);
    fixture.bind("x", "q", "");
    let id = fixture.directory.exclusive_queues(ConnectionId(1)).next().unwrap();
    fixture.does(&Request::DeleteQueue { id });
    assert_eq!(fixture.directory.exclusive_queues(ConnectionId(1)).count(), 0);
}

#[test]
fn a_shared_queue_cannot_be_redeclared_exclusive() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let request = queue_with("q", |request| {
        if let Request::DeclareQueue { exclusive, .. } = request {
            *exclusive = Some(ConnectionId(1));
        }
    });
    assert_eq!(fixture.ask(&request).unwrap_err().0, RefusalKind::Locked);
}

#[test]
fn missing_things_are_named() {
    let fixture = Fixture::new();
    let vhost = fixture.vhost();
    let queue = fixture.directory.find_queue(vhost, "q", ConnectionId(1));
    assert_eq!(queue.unwrap_err().reply(), "no queue 'q' in vhost '/'");
    let exchange = fixture.directory.find_exchange(vhost, "x").unwrap_err();
    assert_eq!(exchange.kind, RefusalKind::NotFound);
    assert_eq!(exchange.reply(), "no exchange 'x' in vhost '/'");
    assert!(fixture.directory.find_exchange(vhost, "").is_ok());
}

#[test]
fn the_virtual_hosts_default_type_holds_for_queues_that_can_have_it() {
    let mut fixture = Fixture::new();
    fixture.does(&Request::CreateVhost {
        name: "/".into(),
        metadata: VhostMetadata {
            default_queue_type: Some(lepus_queue::QueueKind::Quorum),
            ..VhostMetadata::default()
        },
    });
    let durable = |name: &str| {
        queue_with(name, |request| {
            if let Request::DeclareQueue { durable, .. } = request {
                *durable = true;
            }
        })
    };
    fixture.does(&durable("d"));
    fixture.queue("t");
    let kind = |fixture: &Fixture, name| {
        let info = fixture.directory.queue(fixture.vhost(), name).unwrap();
        info.kind.name()
    };
    assert_eq!(kind(&fixture, "d"), "quorum");
    assert_eq!(kind(&fixture, "t"), "classic");
    assert_eq!(fixture.ask(&durable("d")), Ok(None));
    let mut typed = durable("d");
    if let Request::DeclareQueue { arguments, .. } = &mut typed {
        arguments.insert("x-queue-type", "quorum");
    }
    assert_eq!(fixture.ask(&typed), Ok(None));
}

#[test]
fn a_queue_lives_where_it_is_declared_unless_that_shard_holds_many_more() {
    let mut fixture = Fixture::with_shards(3);
    let declare = |number: u64, owner: Option<u64>| {
        queue_with(&alloc::format!("q{number}"), |request| {
            if let Request::DeclareQueue { declared_on, exclusive, .. } = request {
                *declared_on = ShardId(1);
                *exclusive = owner.map(ConnectionId);
            }
        })
    };
    let home = |fixture: &Fixture, id: QueueId| fixture.directory.queue_by_id(id).unwrap().home;
    let mut counts = [0; 3];
    for number in 0..60 {
        let id = fixture.does(&declare(number, None)).queues_created[0];
        counts[home(&fixture, id).index()] += 1;
    }
    assert_eq!(counts, [15, 31, 14]);
    for number in 100..140 {
        let id = fixture.does(&declare(number, Some(9))).queues_created[0];
        assert_eq!(home(&fixture, id), ShardId(1), "exclusive queues stay");
    }
}

#[test]
fn the_brokers_limits_hold_whatever_declares() {
    let mut fixture = Fixture::new();
    let exchanges_max = fixture.directory.exchanges(None).len() as u64 + 1;
    fixture.directory.set_capacity(Capacity {
        queues_max: 2,
        exchanges_max,
        bindings_max: 1,
        ..Capacity::default()
    });
    let id = fixture.queue("q1");
    fixture.queue("q2");
    let text = "cannot declare queue 'q3': queue limit of the broker (2) is reached";
    assert_eq!(fixture.ask(&declare_queue("q3")), refusal(RefusalKind::PreconditionFailed, text));
    assert_eq!(fixture.ask(&declare_queue("q1")), Ok(None), "what is there is no further one");
    fixture.exchange("x", "direct");
    let text = alloc::format!(
        "cannot declare exchange 'y': exchange limit of the broker ({exchanges_max}) is reached"
    );
    assert_eq!(
        fixture.ask(&declare_exchange("y", "direct")),
        refusal(RefusalKind::PreconditionFailed, &text)
    );
    fixture.does(&bind("x", "q1", "one"));
    let text = "cannot bind to exchange 'x': binding limit of the broker (1) is reached";
    assert_eq!(
        fixture.ask(&bind("x", "q2", "two")),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    fixture.does(&Request::DeleteQueue { id });
    fixture.does(&bind("x", "q2", "two"));
    fixture.queue("q3");
}

#[test]
fn a_virtual_host_that_takes_what_there_is_leaves_the_others_their_shares() {
    let mut fixture = Fixture::new();
    for name in ["crowded", "late"] {
        let metadata = VhostMetadata::default();
        fixture.does(&Request::CreateVhost { name: name.into(), metadata });
    }
    fixture.directory.set_capacity(Capacity { queues_max: 60, ..Capacity::default() });
    let declare = |vhost: &str, number: u32| {
        let mut request = declare_queue(&alloc::format!("q{number}"));
        if let Request::DeclareQueue { vhost: other, .. } = &mut request {
            *other = vhost.into();
        }
        request
    };
    let fill = |fixture: &mut Fixture, vhost: &str| {
        let mut count = 0;
        while fixture.ask(&declare(vhost, count)).is_ok() {
            count += 1;
        }
        count
    };
    // A tenth of 60 is divided by three.
    assert_eq!(fill(&mut fixture, "crowded"), 56);
    let text = "cannot declare queue 'q99': what is left of the queue limit of the broker (60) is \
                kept for other virtual hosts";
    assert_eq!(
        fixture.ask(&declare("crowded", 99)),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    assert_eq!(fill(&mut fixture, "/"), 2);
    assert_eq!(fill(&mut fixture, "late"), 2);
    let text = "cannot declare queue 'q99': queue limit of the broker (60) is reached";
    assert_eq!(fixture.ask(&declare("late", 99)), refusal(RefusalKind::PreconditionFailed, text));
    // Alone, one may take all.
    fixture.does(&Request::DeleteVhost { name: "crowded".into() });
    fixture.does(&Request::DeleteVhost { name: "late".into() });
    while fixture.directory.clearing() > 0 {
        let _ = fixture.directory.apply(&Change::Cleared);
    }
    assert_eq!(fill(&mut fixture, "/"), 60);
}

#[test]
fn what_is_decided_and_not_applied_yet_counts_for_the_limits() {
    let mut fixture = Fixture::new();
    fixture.directory.set_capacity(Capacity { queues_max: 1, ..Capacity::default() });
    let Ok(Checked::Change(change)) = fixture.directory.check(&declare_queue("q1")) else {
        panic!()
    };
    fixture.directory.reserve(&change);
    let text = "cannot declare queue 'q2': queue limit of the broker (1) is reached";
    assert_eq!(fixture.ask(&declare_queue("q2")), refusal(RefusalKind::PreconditionFailed, text));
    // Who lists what there is does not meet it.
    let vhost = fixture.vhost();
    assert_eq!(fixture.directory.queue_count(vhost), 0);
    fixture.directory.release(&change);
    fixture.queue("q2");
    assert_eq!(fixture.directory.queue_count(vhost), 1);
}

#[test]
fn a_virtual_hosts_limit_of_queues_holds() {
    let mut fixture = Fixture::new();
    fixture.does(&Request::SetVhostLimits {
        vhost: "/".into(),
        limits: VhostLimits { connections_max: None, queues_max: Some(1) },
    });
    let id = fixture.queue("q1");
    let text = "cannot declare queue 'q2' in vhost '/': queue limit in vhost '/' (1) is reached";
    assert_eq!(fixture.ask(&declare_queue("q2")), refusal(RefusalKind::PreconditionFailed, text));
    assert_eq!(fixture.ask(&declare_queue("q1")), Ok(None));
    fixture.does(&Request::DeleteQueue { id });
    fixture.queue("q2");
}

#[test]
fn a_queue_that_moves_keeps_its_name_and_bindings_and_gets_another_id() {
    let mut fixture = Fixture::with_shards(3);
    let vhost = fixture.vhost();
    let id = fixture.queue("q");
    fixture.exchange("x", "topic");
    fixture.bind("x", "q", "a.#");
    let request = Request::MoveQueue { id, to: ShardId(2) };
    let applied = fixture.does(&request);
    let after = fixture.directory.queue(vhost, "q").unwrap().clone();
    assert_eq!(applied.queue_moved.map(|(info, id)| (info.id, id)), Some((id, after.id)));
    assert_eq!((after.home, after.log), (ShardId(2), 2));
    assert!(after.id > id);
    assert_eq!(fixture.reached("x", "a.b"), ["q"]);
    let directory = &fixture.directory;
    assert_eq!((directory.id_now(id), directory.queue_by_id(id)), (after.id, None));
    // Where it is already, where no shard is, and by the name of what was there before.
    let again = |to| Request::MoveQueue { id: after.id, to: ShardId(to) };
    assert_eq!(fixture.ask(&again(2)), Ok(None));
    assert!(fixture.ask(&again(3)).is_err());
    assert!(fixture.ask(&request).is_err());
    // Who asks for its end does not know yet that it moved.
    fixture.does(&Request::DeleteQueue { id });
    assert!(fixture.directory.queue(vhost, "q").is_none());
    assert_eq!(fixture.reached("x", "a.b"), [""; 0]);
}
