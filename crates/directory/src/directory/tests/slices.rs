//! Deletions of what has very many bindings.

use super::durable::{durable_picture, random_request};
use super::*;
use alloc::collections::BTreeSet;
use alloc::format;

/// Bindings that go in one step at most.
const SLICE: usize = 64;
const MANY: usize = 3_000;

/// A queue `q` that an exchange of each type leads to by many bindings, and a queue `other` by one
/// each.
fn furnish(fixture: &mut Fixture, kinds: &[&str]) {
    fixture.queue("q");
    fixture.queue("other");
    for kind in kinds {
        let exchange = &format!("x {kind}");
        fixture.exchange(exchange, kind);
        fixture.bind(exchange, "other", "1");
        for number in 0..MANY / kinds.len() {
            let (key, arguments) = if kind.contains("hash") {
                ("9".into(), Table::new().with("number", number as i32))
            } else {
                (format!("key.{number}"), Table::new())
            };
            fixture.does(&bind_with(exchange, "q", &key, arguments));
        }
    }
}

/// Takes the rest out; in how many slices, and the exchanges that were left.
fn clear(fixture: &mut Fixture) -> (usize, Vec<String>) {
    let (mut slices, mut left) = (0, Vec::new());
    while fixture.directory.clearing() > 0 {
        let before = fixture.directory.binding_count();
        let applied = fixture.directory.apply(&Change::Cleared);
        fixture.changes.push(Change::Cleared);
        let gone = before - fixture.directory.binding_count();
        assert!(gone <= SLICE && applied.looks <= fixture.directory.slice_looks(), "{gone}");
        left.extend(applied.exchanges_left.into_iter().map(|(_, name)| String::from(name)));
        slices += 1;
    }
    (slices, left)
}

/// Deletes a queue and looks that few bindings go with it at once.
fn delete_queue(fixture: &mut Fixture, name: &str) -> Applied {
    let id = fixture.directory.queue(fixture.vhost(), name).expect("it is there").id;
    steadily(fixture, &Request::DeleteQueue { id })
}

fn steadily(fixture: &mut Fixture, request: &Request) -> Applied {
    let before = fixture.directory.binding_count();
    let applied = fixture.does(request);
    let gone = before - fixture.directory.binding_count();
    assert!(gone <= SLICE, "{gone} bindings at once");
    applied
}

fn auto_delete(name: &str, kind: &str, durable: bool) -> Request {
    let mut request = declare_exchange(name, kind);
    if let Request::DeclareExchange { auto_delete, durable: is_durable, .. } = &mut request {
        (*auto_delete, *is_durable) = (true, durable);
    }
    request
}

#[test]
fn a_queue_with_many_bindings_is_gone_at_once_and_they_go_in_slices() {
    let mut fixture = Fixture::new();
    let empty = fixture.directory.bytes();
    let kinds = ["direct", "fanout", "topic"];
    furnish(&mut fixture, &kinds);
    let full = fixture.directory.binding_count();
    assert_eq!(full, MANY + 3);
    assert_eq!(fixture.reached("x direct", "key.7"), ["q"]);
    let applied = delete_queue(&mut fixture, "q");
    assert!(applied.goes_in_slices && applied.queues_deleted.len() == 1);
    assert_eq!(fixture.directory.binding_count(), full);
    // Whoever asks finds nothing of it.
    let vhost = fixture.vhost();
    assert_eq!(fixture.directory.queue(vhost, "q"), None);
    assert_eq!(fixture.directory.queues(None).len(), 1);
    assert_eq!(fixture.directory.queue_count(vhost), 1);
    assert_eq!(fixture.directory.bindings(vhost).len(), 1 + 3);
    assert_eq!(fixture.directory.bindings_from(vhost, "x topic").len(), 1);
    assert_eq!(fixture.directory.bindings_to(vhost, DestinationRef::Queue("q")).len(), 0);
    let listed = fixture.directory.bindings_in(vhost, 0, usize::MAX).expect("bindings");
    assert_eq!(listed.count(), 3);
    // Another of the same name has none of its bindings.
    fixture.queue("q");
    fixture.bind("x direct", "q", "new");
    for _ in 0..3 {
        assert_eq!(fixture.reached("x direct", "key.7"), [""; 0]);
        assert_eq!(fixture.reached("x direct", "new"), ["q"]);
        assert_eq!(fixture.reached("x topic", "key.7"), [""; 0]);
        assert_eq!(fixture.reached("x fanout", "any"), ["other"]);
        assert_eq!(fixture.reached("", "q"), ["q"]);
        let _ = fixture.directory.apply(&Change::Cleared);
    }
    let (slices, left) = clear(&mut fixture);
    assert!(slices + 3 >= MANY / SLICE && left.is_empty(), "{slices} slices");
    assert_eq!(fixture.directory.binding_count(), 4);
    assert_eq!(fixture.reached("x direct", "new"), ["q"]);
    for queue in ["q", "other"] {
        delete_queue(&mut fixture, queue);
    }
    for kind in kinds {
        fixture.does(&delete_exchange(&format!("x {kind}"), false));
    }
    assert_eq!(fixture.directory.clearing(), 0);
    assert_eq!(fixture.directory.bytes(), empty);
}

#[test]
fn exchanges_that_choose_do_not_choose_what_is_gone() {
    let kinds = ["x-consistent-hash", "x-modulus-hash", "x-random"];
    for kind in kinds {
        let mut fixture = Fixture::new();
        furnish(&mut fixture, &[kind]);
        let exchange = &format!("x {kind}");
        let mut alternate = declare_exchange("x choosing", kind);
        if let Request::DeclareExchange { arguments, .. } = &mut alternate {
            arguments.insert("alternate-exchange", &**exchange);
        }
        fixture.does(&alternate);
        for number in 0..MANY {
            let arguments = Table::new().with("number", number as i32);
            fixture.does(&bind_with("x choosing", "q", "1", arguments));
        }
        delete_queue(&mut fixture, "q");
        let mut slices = 0;
        while fixture.directory.clearing() > 0 {
            for number in 0..20 {
                let key = format!("k{number}");
                assert_eq!(fixture.reached(exchange, &key), ["other"], "{kind}");
                assert_eq!(fixture.reached("x choosing", &key), ["other"], "{kind}");
            }
            let _ = fixture.directory.apply(&Change::Cleared);
            slices += 1;
        }
        assert!(slices > 2 * MANY / SLICE, "{slices} slices");
        assert_eq!(fixture.reached(exchange, "k"), ["other"]);
    }
}

#[test]
fn an_exchange_with_many_bindings_is_gone_at_once_and_they_go_in_slices() {
    let mut fixture = Fixture::new();
    furnish(&mut fixture, &["topic", "headers"]);
    fixture.exchange("x before", "direct");
    let mut other = declare_exchange("x behind", "fanout");
    if let Request::DeclareExchange { arguments, .. } = &mut other {
        arguments.insert("alternate-exchange", "amq.fanout");
    }
    fixture.does(&other);
    fixture.bind("amq.fanout", "other", "");
    for number in 0..MANY {
        fixture.bind("x before", "x topic", &format!("key.{number}"));
        fixture.bind("x behind", "x topic", &format!("{number}"));
    }
    assert_eq!(fixture.reached("x before", "key.7"), ["q"]);
    let applied = steadily(&mut fixture, &delete_exchange("x topic", false));
    assert_eq!(applied.exchanges_deleted.len(), 1);
    fixture.exchange("x topic", "topic");
    fixture.bind("x topic", "other", "#");
    for _ in 0..12 {
        // What leads nowhere any more lets messages go elsewhere.
        assert_eq!(fixture.reached("x before", "key.7"), [""; 0]);
        assert_eq!(fixture.reached("x behind", "key.7"), ["other"]);
        assert_eq!(fixture.reached("x topic", "key.7"), ["other"]);
        let _ = fixture.directory.apply(&Change::Cleared);
    }
    let (slices, left) = clear(&mut fixture);
    assert!(slices + 12 > 5 * MANY / 2 / SLICE && left.is_empty(), "{slices} slices");
    // The other exchange's to the queue, two from the furniture, and the two new ones.
    assert_eq!(fixture.directory.binding_count(), MANY / 2 + 3);
    assert_eq!(fixture.reached("x before", "key.7"), [""; 0]);
    assert!(fixture.directory.exchange(fixture.vhost(), "x before").is_some());
}

#[test]
fn exchanges_that_lose_their_last_binding_by_slices_are_named() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    for number in 0..600 {
        let name = &format!("x {number}");
        fixture.does(&auto_delete(name, "fanout", false));
        fixture.bind(name, "q", "");
    }
    fixture.bind("x 1", "amq.topic", "");
    let applied = delete_queue(&mut fixture, "q");
    assert!(applied.goes_in_slices && applied.exchanges_left.is_empty());
    let (_, left) = clear(&mut fixture);
    assert_eq!(left.len(), 599);
    assert!(!left.contains(&String::from("x 1")));
    assert!(fixture.directory.exchange(fixture.vhost(), "x 0").is_some());
}

#[test]
fn few_exchanges_that_delete_themselves_still_go_at_once() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    for number in 0..50 {
        let name = &format!("x {number}");
        fixture.does(&auto_delete(name, "fanout", false));
        fixture.bind(name, if number == 0 { "q" } else { "x 0" }, "");
    }
    let applied = delete_queue(&mut fixture, "q");
    assert!(!applied.goes_in_slices && applied.exchanges_left.is_empty());
    assert_eq!(applied.exchanges_deleted.len(), 50);
    assert_eq!(fixture.directory.binding_count(), 0);
}

#[test]
fn an_exchange_with_many_bindings_before_it_deletes_itself_by_a_request() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.does(&auto_delete("x", "fanout", false));
    fixture.bind("x", "q", "");
    for number in 0..MANY {
        fixture.bind("amq.direct", "x", &format!("{number}"));
    }
    let applied = steadily(&mut fixture, &unbind("x", "q", ""));
    assert_eq!(applied.exchanges_left.len(), 1);
    assert!(!applied.goes_in_slices);
    let applied = steadily(&mut fixture, &delete_exchange("x", true));
    assert!(applied.goes_in_slices);
    assert_eq!(fixture.directory.exchange(fixture.vhost(), "x"), None);
    clear(&mut fixture);
    assert_eq!(fixture.directory.binding_count(), 0);
}

#[test]
fn a_copy_that_applies_the_same_changes_is_the_same_at_every_step() {
    let mut fixture = Fixture::new();
    furnish(&mut fixture, &["direct", "x-consistent-hash"]);
    fixture.does(&auto_delete("x auto", "topic", false));
    for number in 0..MANY {
        fixture.bind("x auto", "q", &format!("{number}"));
    }
    delete_queue(&mut fixture, "q");
    fixture.queue("q");
    steadily(&mut fixture, &delete_exchange("x direct", false));
    fixture.bind("x auto", "q", "late");
    let mut copy = Directory::new(HashState::new(8), 1);
    for change in &fixture.changes {
        let _ = copy.apply(change);
    }
    while fixture.directory.clearing() > 0 {
        assert_eq!(copy.snapshot(Extent::All), fixture.directory.snapshot(Extent::All));
        assert_eq!(copy.bytes(), fixture.directory.bytes());
        let own = fixture.directory.apply(&Change::Cleared);
        assert_eq!(copy.apply(&Change::Cleared), own);
    }
    assert_eq!((copy.clearing(), copy.bytes()), (0, fixture.directory.bytes()));
}

#[test]
fn a_virtual_host_takes_along_what_was_on_its_way_out() {
    let mut fixture = Fixture::new();
    let empty = fixture.directory.bytes();
    fixture.does(&Request::CreateVhost { name: "v".into(), metadata: VhostMetadata::default() });
    furnish(&mut fixture, &["direct"]);
    delete_queue(&mut fixture, "q");
    steadily(&mut fixture, &delete_exchange("x direct", false));
    fixture.does(&Request::DeleteVhost { name: "/".into() });
    assert_eq!(fixture.directory.clearing(), 3);
    clear(&mut fixture);
    assert_eq!(fixture.directory.binding_count(), 0);
    assert_eq!(fixture.directory.bytes(), empty);
}

/// The directory as a log makes it that has got all changes, the last one's parts included or not.
fn read_again(recorded: &[Change]) -> Directory {
    let mut bytes = Vec::new();
    recorded.iter().for_each(|change| codec::encode(change, &mut bytes));
    let mut directory = Directory::new(HashState::new(9), 1);
    for change in codec::decode_each(&bytes, 1) {
        directory.replay(&change.expect("it was written so"));
    }
    directory
}

#[test]
fn a_log_that_ends_within_a_deletion_still_says_what_deletes_itself() {
    let mut fixture = Fixture::new();
    let mut recorded = fixture.changes.clone();
    let mut durable = declare_queue("q");
    if let Request::DeclareQueue { durable, .. } = &mut durable {
        *durable = true;
    }
    let mut requests = [durable].to_vec();
    for name in ["x kept", "x gone", "x again"] {
        requests.push(auto_delete(name, "direct", true));
    }
    for number in 0..MANY {
        let source = ["x kept", "x gone", "x again"][number % 3];
        requests.push(bind(source, "q", &format!("{number}")));
    }
    requests.push(bind("x kept", "amq.topic", "stays"));
    for request in requests {
        let Ok(Checked::Change(change)) = fixture.directory.check(&request) else {
            panic!("{request:?}")
        };
        recorded.extend(fixture.directory.durable_part(&change));
        let _ = fixture.directory.apply(&change);
    }
    let id = fixture.directory.queue(fixture.vhost(), "q").expect("it is there").id;
    let change = Change::QueueDeleted { id };
    let part = fixture.directory.durable_part(&change);
    assert_eq!(part, [Change::InParts, change]);
    recorded.extend(part);
    let mut read = read_again(&recorded);
    assert_eq!((read.clearing(), read.binding_count()), (0, 1));
    let vhost = fixture.vhost();
    let deleted = |name: &str| Change::ExchangeDeleted { vhost, name: name.into() };
    assert_eq!(read.next_left_behind(), Some(deleted("x again")));
    assert_eq!(read.next_left_behind(), Some(deleted("x gone")));
    assert_eq!(read.next_left_behind(), None);
    // One that the log has the end of may come again.
    recorded.push(deleted("x again"));
    let Ok(Checked::Change(again)) =
        read_again(&recorded).check(&auto_delete("x again", "direct", true))
    else {
        panic!("it is gone")
    };
    recorded.push(again);
    let mut read = read_again(&recorded);
    assert_eq!(read.next_left_behind(), Some(deleted("x gone")));
    assert_eq!(read.next_left_behind(), None);
}

/// A directory whose deletions go in slices of two bindings, the hand that orders its changes, and
/// their log.
struct Ordered {
    directory: Directory,
    log: Vec<Change>,
    changes: Vec<Change>,
}

impl Ordered {
    fn new() -> Ordered {
        let mut directory = Directory::new(HashState::new(7), 4);
        directory.set_slice(2);
        let mut ordered = Ordered { directory, log: Vec::new(), changes: Vec::new() };
        for change in Directory::preset("guest", b"guest", [1, 2, 3, 4], "/") {
            ordered.carry_out(change);
        }
        ordered
    }

    fn carry_out(&mut self, change: Change) {
        self.log.extend(self.directory.durable_part(&change));
        self.apply(change);
    }

    fn apply(&mut self, change: Change) {
        let before = self.directory.binding_count();
        let applied = self.directory.apply(&change);
        assert!(before <= self.directory.binding_count() + 2, "{change:?}");
        self.changes.push(change);
        for (vhost, name) in applied.exchanges_left {
            let name = name.into();
            let request =
                Request::DeleteExchange { vhost: VhostRef::from(vhost), name, if_unused: true };
            self.ask(&request);
        }
    }

    fn ask(&mut self, request: &Request) {
        if let Ok(Checked::Change(change)) = self.directory.check(request) {
            self.carry_out(change);
        }
    }

    fn finish(&mut self) {
        while self.directory.clearing() > 0 {
            self.apply(Change::Cleared);
        }
    }
}

/// What is durable, without exchanges that delete themselves and have no durable binding any more.
fn lasting(directory: &Directory) -> BTreeSet<String> {
    let all = durable_picture(directory);
    let is_idle = |line: &&str| {
        let is_auto = line.starts_with("ExchangeInfo") && line.contains("auto_delete: true");
        let name = line.split(['"']).nth(1).unwrap_or_default();
        let source = format!("BindingInfo {{ source: \"{name}\"");
        is_auto && !all.contains(&source)
    };
    all.lines().filter(|line| !is_idle(line)).map(String::from).collect()
}

#[test]
fn whenever_the_log_ends_a_start_completes_what_was_deleted() {
    let mut interrupted = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut ordered = Ordered::new();
        for step in 0..200 {
            let request = random_request(&mut rng, &ordered.directory);
            ordered.ask(&request);
            if ordered.directory.clearing() > 0 && rng.chance(1, 3) {
                ordered.apply(Change::Cleared);
            }
            if step % 20 != 0 && ordered.directory.clearing() == 0 {
                continue;
            }
            // What was durable and is complete.
            let mut expected = Ordered::new();
            expected.changes.clear();
            for change in ordered.changes.iter().skip(3) {
                let _ = expected.directory.apply(change);
            }
            interrupted += usize::from(expected.directory.clearing() > 0);
            expected.finish();
            let mut copy = Directory::new(HashState::new(5), 4);
            ordered.log.iter().for_each(|change| copy.replay(change));
            while let Some(change) = copy.next_left_behind() {
                copy.apply_whole(&change);
            }
            let ids = Change::IdsUsed {
                vhosts: expected.directory.accounts.next_vhost(),
                queues: expected.directory.next_queue(),
            };
            copy.replay(&ids);
            let (found, expected) = (lasting(&copy), lasting(&expected.directory));
            let difference: Vec<_> = found.symmetric_difference(&expected).collect();
            assert!(difference.is_empty(), "seed {seed}, step {step}: {difference:?}");
        }
    }
    assert!(interrupted > 100, "{interrupted}");
}

#[test]
fn the_copy_that_a_shard_gets_of_what_a_log_made_is_what_its_snapshot_makes() {
    let mut seen = 0;
    let vhosts = ["/", "v", "w"];
    for seed in 0..60 {
        let mut rng = Rng::new(1000 + seed);
        let mut ordered = Ordered::new();
        for step in 0..300 {
            let mut request = random_request(&mut rng, &ordered.directory);
            if rng.chance(1, 12) {
                let name = vhosts[rng.below(3) as usize];
                request = match rng.below(3) {
                    0 | 1 => {
                        Request::CreateVhost { name: name.into(), metadata: Default::default() }
                    }
                    _ if name != "/" => Request::DeleteVhost { name: name.into() },
                    _ => continue,
                };
            } else {
                let name: VhostRef = vhosts[rng.below(3) as usize].into();
                match &mut request {
                    Request::DeclareExchange { vhost, .. }
                    | Request::DeleteExchange { vhost, .. }
                    | Request::DeclareQueue { vhost, .. }
                    | Request::Bind { vhost, .. }
                    | Request::Unbind { vhost, .. } => *vhost = name,
                    _ => {}
                }
            }
            ordered.ask(&request);
            if ordered.directory.clearing() > 0 && rng.chance(1, 3) {
                ordered.apply(Change::Cleared);
            }
            if step % 10 != 9 {
                continue;
            }
            let mut bytes = Vec::new();
            ordered.log.iter().for_each(|change| codec::encode(change, &mut bytes));
            let mut draft = Directory::new(HashState::new(5), 3);
            for change in codec::decode_each(&bytes, 3) {
                draft.replay(&change.expect("written so"));
            }
            while let Some(change) = draft.next_left_behind() {
                draft.apply_whole(&change);
            }
            let mut applied = Directory::new(HashState::new(5), 3);
            for change in draft.snapshot(Extent::All) {
                let _ = applied.apply(&change);
            }
            let mut copy = draft.clone();
            copy.settle(Capacity::default(), 2);
            applied.settle(Capacity::default(), 2);
            seen += usize::from(copy.queue_places() > copy.topology.queues().len());
            for directory in [&copy, &applied] {
                assert!(!directory.is_in_parts);
                assert!(directory.left_behind.is_empty());
            }
            let sums = |d: &Directory| {
                let vhosts: Vec<_> =
                    d.accounts.vhosts().map(|info| (info.id, &info.name)).collect();
                let next = d.accounts.next_vhost();
                alloc::format!("{} {next} {vhosts:?} {:?}", d.topology.sums(), d.budget)
            };
            assert_eq!(sums(&copy), sums(&applied), "seed {seed} step {step}");
            assert_eq!(durable_picture(&copy), durable_picture(&applied));
            // They go on alike.
            let mut other = rng.clone();
            for _ in 0..30 {
                let request = random_request(&mut other, &copy);
                let (a, b) = (copy.check(&request), applied.check(&request));
                assert_eq!(a.is_ok(), b.is_ok());
                if let Ok(Checked::Change(change)) = a {
                    copy.apply_whole(&change);
                    applied.apply_whole(&change);
                }
            }
            assert_eq!(sums(&copy), sums(&applied));
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn a_start_keeps_no_places_for_what_is_gone() {
    let mut ordered = Ordered::new();
    ordered.ask(&Request::CreateVhost { name: "v".into(), metadata: Default::default() });
    for number in 0..6000 {
        let mut request = declare_queue(&format!("q{number}"));
        if let Request::DeclareQueue { vhost, durable, .. } = &mut request {
            (*vhost, *durable) = ("v".into(), true);
        }
        ordered.ask(&request);
    }
    ordered.ask(&Request::DeleteVhost { name: "v".into() });
    let mut draft = Directory::new(HashState::new(5), 3);
    ordered.log.iter().for_each(|change| draft.replay(change));
    assert_eq!((draft.topology.queues().len(), draft.queue_places()), (0, 6000));
    let (next, kept) = (draft.next_queue(), durable_picture(&draft));
    let draft = draft.without_gaps();
    assert_eq!((draft.queue_places(), draft.next_queue()), (0, next));
    assert_eq!((durable_picture(&draft), draft.topology.queues().route_room()), (kept, 0));
}
