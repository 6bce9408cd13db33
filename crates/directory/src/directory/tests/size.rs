//! What the directory counts of itself, and how much of arguments it takes.

use super::*;

fn large(bytes: usize) -> Table {
    Table::new().with("a", "x".repeat(bytes - 7))
}

fn declare_queue_with(name: &str, wanted: Table) -> Request {
    let mut request = declare_queue(name);
    if let Request::DeclareQueue { arguments, .. } = &mut request {
        *arguments = wanted;
    }
    request
}

fn declare_exchange_with(name: &str, wanted: Table) -> Request {
    let mut request = declare_exchange(name, "headers");
    if let Request::DeclareExchange { arguments, .. } = &mut request {
        *arguments = wanted;
    }
    request
}

#[test]
fn what_comes_is_counted_and_what_goes_is_not_any_more() {
    let mut fixture = Fixture::new();
    let empty = fixture.directory.bytes();
    for kind in ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-random"] {
        let exchange = alloc::format!("x {kind}");
        fixture.exchange(&exchange, kind);
        for number in 1..20 {
            let queue = alloc::format!("queue {number}");
            if fixture.directory.queue(fixture.vhost(), &queue).is_none() {
                fixture.does(&declare_queue_with(&queue, large(100 + number)));
            }
            let key = alloc::format!("{number}");
            fixture.does(&bind_with(&exchange, &queue, &key, large(10 * number)));
        }
        fixture.does(&bind(&exchange, "amq.topic", "1"));
    }
    let full = fixture.directory.bytes();
    assert!(full > empty + 6 * 19 * 100, "{empty} to {full}");
    let ids: Vec<QueueId> = (1..20)
        .filter_map(|number| {
            let name = alloc::format!("queue {number}");
            Some(fixture.directory.queue(fixture.vhost(), &name)?.id)
        })
        .collect();
    for id in ids {
        fixture.does(&Request::DeleteQueue { id });
    }
    for kind in ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-random"] {
        fixture.does(&delete_exchange(&alloc::format!("x {kind}"), false));
    }
    assert_eq!(fixture.directory.bytes(), empty);
}

#[test]
fn a_weight_takes_no_memory() {
    let grows_by = |weight: &str| {
        let mut fixture = Fixture::new();
        fixture.queue("q");
        fixture.exchange("x", "x-consistent-hash");
        let before = fixture.directory.bytes();
        fixture.bind("x", "q", weight);
        fixture.directory.bytes() - before
    };
    assert_eq!(grows_by("1"), grows_by("65535"));
}

#[test]
fn arguments_are_limited_one_by_one_and_by_virtual_host() {
    let mut fixture = Fixture::new();
    fixture.directory.set_capacity(Capacity {
        arguments_bytes_max: 100,
        vhost_arguments_bytes_max: 250,
        binding_arguments_max: 3,
        ..Capacity::default()
    });
    fixture.queue("q");
    let text = "cannot declare queue 'r': its arguments take 101 bytes, and 100 is the limit";
    assert_eq!(
        fixture.ask(&declare_queue_with("r", large(101))),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    let text = "cannot declare exchange 'x': its arguments take 101 bytes, and 100 is the limit";
    assert_eq!(
        fixture.ask(&declare_exchange_with("x", large(101))),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    fixture.does(&declare_exchange_with("x", large(100)));
    let text = "cannot bind to exchange 'x': its arguments take 101 bytes, and 100 is the limit";
    assert_eq!(
        fixture.ask(&bind_with("x", "q", "", large(101))),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    let four: Table = ["a", "b", "c", "d"].into_iter().map(|name| (name, true)).collect();
    let text = "cannot bind to exchange 'x': the binding has 4 arguments, and 3 is the limit";
    assert_eq!(
        fixture.ask(&bind_with("x", "q", "", four)),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    fixture.does(&declare_queue_with("r", large(100)));

    // What is decided counts before it is applied.
    let Ok(Checked::Change(change)) = fixture.directory.check(&bind_with("x", "q", "", large(50)))
    else {
        panic!()
    };
    fixture.directory.reserve(&change);
    let text = "cannot bind to exchange 'x': arguments in vhost '/' take 250 bytes at most";
    assert_eq!(
        fixture.ask(&bind_with("x", "q", "", large(8))),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    fixture.directory.release(&change);
    fixture.does(&bind_with("x", "q", "", large(50)));
    assert_eq!(
        fixture.ask(&bind_with("x", "q", "", large(8))),
        refusal(RefusalKind::PreconditionFailed, text)
    );
    fixture.bind("x", "q", "none are fine");
    fixture.does(&unbind_with("x", "q", "", large(50)));
    fixture.does(&bind_with("x", "q", "", large(8)));
}
