//! What survives a restart, and which requests may be decided side by side.

use super::*;
use crate::binding::Destination;
use alloc::collections::BTreeSet;
use alloc::format;
use lepus_amqp::table::Value;

/// What a restart has to bring back, as text.
pub(super) fn durable_picture(directory: &Directory) -> String {
    let mut text = format!("{} {}\n", directory.accounts.next_vhost(), directory.next_queue());
    for vhost in directory.accounts().vhosts() {
        text += &format!("{vhost:?}\n");
        for binding in directory.bindings(vhost.id) {
            let is_durable = |name: DestinationRef<'_>| match name {
                DestinationRef::Queue(name) => directory.queue(vhost.id, name).unwrap().durable,
                DestinationRef::Exchange(name) => {
                    directory.exchange(vhost.id, name).unwrap().durable
                }
            };
            let source = directory.exchange(vhost.id, binding.source).unwrap();
            if source.durable && is_durable(binding.destination) {
                text += &format!("{binding:?}\n");
            }
        }
    }
    for exchange in directory.exchanges(None).filter(|info| info.durable) {
        text += &format!("{exchange:?}\n");
    }
    for queue in directory.queues(None).filter(|info| info.durable) {
        text += &format!("{queue:?}\n");
    }
    for user in directory.accounts().users() {
        text += &format!("{user:?}\n");
    }
    for scope in PolicyScope::ALL {
        directory
            .policies(scope, None)
            .for_each(|policy| text += &format!("{scope:?} {policy:?}\n"));
    }
    directory.parameters(None).for_each(|parameter| text += &format!("{parameter:?}\n"));
    directory.global_parameters().for_each(|parameter| text += &format!("{parameter:?}\n"));
    text
}

/// Requests over few names, so that they meet each other: some objects are durable, some delete
/// themselves.
pub(super) fn random_request(rng: &mut Rng, directory: &Directory) -> Request {
    let mut pick = |prefix: &str, count: u64| format!("{prefix}{}", rng.below(count));
    let (exchange, other, queue) = (pick("x", 6), pick("x", 6), pick("q", 8));
    let (key, user) = (pick("", 3), pick("u", 2));
    let to = if rng.chance(1, 3) { other } else { queue.clone() };
    let flag = |rng: &mut Rng| rng.chance(1, 2);
    match rng.below(24) {
        0..=2 => Request::DeclareExchange {
            vhost: "/".into(),
            name: exchange,
            kind: "topic".into(),
            durable: flag(rng),
            auto_delete: flag(rng),
            internal: false,
            arguments: Table::new(),
        },
        3 => delete_exchange(&exchange, flag(rng)),
        4..=6 => {
            let mut request = declare_queue(&queue);
            if let Request::DeclareQueue { durable, exclusive, declared_on, .. } = &mut request {
                *durable = flag(rng);
                *exclusive = rng.chance(1, 4).then_some(ConnectionId(1));
                *declared_on = ShardId(rng.below(4) as u16);
            }
            request
        }
        7 => {
            let found = directory.queue(directory.vhost("/").unwrap(), &queue);
            Request::DeleteQueue { id: found.map_or(QueueId(0), |info| info.id) }
        }
        16 => {
            let found = directory.queue(directory.vhost("/").unwrap(), &queue);
            let id = found.map_or(QueueId(0), |info| info.id);
            Request::MoveQueue { id, to: ShardId(rng.below(5) as u16) }
        }
        8 | 9 => unbind(&exchange, &to, &key),
        10 => Request::PutUser { name: user, password: PasswordHash::none(), tags: vec![] },
        17 => Request::AddUser { name: user, password: PasswordHash::none(), tags: vec![] },
        18 => Request::SetTags { name: user, tags: vec![key.as_str().into()] },
        19 | 20 => {
            let scope = if rng.chance(1, 3) { PolicyScope::Operator } else { PolicyScope::User };
            if rng.chance(1, 3) {
                return Request::ClearPolicy { vhost: "/".into(), scope, name: user };
            }
            Request::SetPolicy {
                vhost: "/".into(),
                scope,
                name: user,
                pattern: if rng.chance(1, 2) { "^q".into() } else { key },
                apply_to: "queues".into(),
                priority: rng.below(3) as i64 - 1,
                definition: Table::new().with("max-length", Value::I64(rng.below(9) as i64)),
            }
        }
        21 if rng.chance(1, 3) => {
            Request::ClearParameter { vhost: "/".into(), component: "c".into(), name: user }
        }
        21 => Request::SetParameter {
            vhost: "/".into(),
            component: "c".into(),
            name: user,
            value: key,
        },
        22 if rng.chance(1, 3) => Request::ClearGlobalParameter { name: user },
        22 => Request::SetGlobalParameter { name: user, value: key },
        11 => Request::SetPermission {
            user,
            vhost: "/".into(),
            configure: ".*".into(),
            write: key,
            read: ".*".into(),
        },
        _ => bind(&exchange, &to, &key),
    }
}

fn empty() -> Directory {
    Directory::new(HashState::new(5), 4)
}

#[test]
fn the_durable_parts_make_the_durable_directory() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut fixture = Fixture::with_shards(4);
        let mut log: Vec<Change> = fixture.changes.clone();
        for step in 0..200 {
            let request = random_request(&mut rng, &fixture.directory);
            let Ok(Checked::Change(change)) = fixture.directory.check(&request) else { continue };
            let part = fixture.directory.durable_part(&change);
            let before = durable_picture(&fixture.directory);
            let applied = fixture.directory.apply(&change);
            log.extend(part.iter().cloned());
            // The log names exactly the durable exchanges that went.
            let gone: BTreeSet<_> = applied.exchanges_deleted.iter().cloned().collect();
            for deleted in &part {
                if let Change::ExchangeDeleted { vhost, name } = deleted {
                    assert!(gone.contains(&(*vhost, name.clone())), "seed {seed}, step {step}");
                }
            }
            let ids = Change::IdsUsed {
                vhosts: fixture.directory.accounts.next_vhost(),
                queues: fixture.directory.next_queue(),
            };
            if part.is_empty() {
                let line = |text: &str| text.split_once('\n').map(|(_, rest)| rest.into());
                let rest: Option<String> = line(&durable_picture(&fixture.directory));
                assert_eq!(rest, line(&before), "seed {seed}, step {step}: {change:?}");
            }
            if step % 20 == 0 {
                let mut copy = empty();
                log.iter().chain([&ids]).for_each(|change| copy.replay(change));
                let expected = durable_picture(&fixture.directory);
                assert_eq!(durable_picture(&copy), expected, "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn a_snapshot_makes_the_same_directory() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut fixture = Fixture::with_shards(4);
        for _ in 0..200 {
            let request = random_request(&mut rng, &fixture.directory);
            let _ = fixture.ask(&request);
        }
        let directory = &fixture.directory;
        let mut whole = empty();
        for change in directory.snapshot(Extent::All) {
            let applied = whole.apply(&change);
            assert!(applied.queues_deleted.is_empty() && applied.exchanges_deleted.is_empty());
        }
        assert_eq!(whole.snapshot(Extent::All).len(), directory.snapshot(Extent::All).len());
        assert_eq!(durable_picture(&whole), durable_picture(directory), "seed {seed}");
        assert_eq!(whole.queues(None).len(), directory.queues(None).len());
        let mut durable = empty();
        let changes = directory.snapshot(Extent::Durable);
        assert!(changes.iter().all(Change::is_durable));
        changes.iter().for_each(|change| durable.replay(change));
        assert_eq!(durable_picture(&durable), durable_picture(directory), "seed {seed}");
        assert!(durable.queues(None).all(|info| info.durable));
    }
}

#[test]
fn a_walk_in_small_steps_finds_the_same() {
    let mut fixture = Fixture::new();
    fixture.exchange("x1", "topic");
    for name in ["q1", "q2", "q3"] {
        fixture.queue(name);
        fixture.bind("x1", name, "k");
    }
    let whole = fixture.directory.snapshot(Extent::All);
    let (mut walk, mut steps) = (Snapshot::new(Extent::All), Vec::new());
    while walk.next(&fixture.directory, 1, &mut steps) {}
    assert_eq!(steps, whole);
    let bound: Vec<&str> = whole
        .iter()
        .filter_map(|change| match change {
            Change::Bound(binding) => match &binding.destination {
                Destination::Queue(name) => Some(name.as_str()),
                Destination::Exchange(_) => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(bound, ["q1", "q2", "q3"], "bindings keep their order");
}

#[test]
fn policies_parameters_and_permissions_come_in_slices_by_their_bytes_too() {
    let mut fixture = Fixture::new();
    for vhost in ["v1", "v2", "v3"] {
        fixture.does(&Request::CreateVhost { name: vhost.into(), metadata: Default::default() });
        for number in 0..40 {
            for scope in PolicyScope::ALL {
                fixture.does(&Request::SetPolicy {
                    vhost: vhost.into(),
                    scope,
                    name: format!("p{number}"),
                    pattern: "a".repeat(1_000),
                    apply_to: "queues".into(),
                    priority: number % 3,
                    definition: Table::new().with("max-length", 1),
                });
            }
            fixture.does(&Request::SetParameter {
                vhost: vhost.into(),
                component: format!("c{}", number % 2),
                name: format!("n{number}"),
                value: format!("\"{}\"", "v".repeat(2_000)),
            });
            fixture.does(&Request::SetGlobalParameter {
                name: format!("{vhost}-{number}"),
                value: format!("\"{}\"", "g".repeat(2_000)),
            });
        }
    }
    let directory = &fixture.directory;
    let whole = directory.snapshot(Extent::Durable);
    let (mut walk, mut slices) = (Snapshot::new(Extent::Durable), 0);
    let (mut all, mut slice) = (Vec::new(), Vec::new());
    loop {
        let more = walk.next(directory, 512, &mut slice);
        let bytes: usize = slice.iter().map(|change| bytes_of(change).len()).sum();
        assert!(bytes < 80 << 10, "a slice has {bytes} bytes");
        all.append(&mut slice);
        slices += 1;
        if !more {
            break;
        }
    }
    assert!(slices > 8, "{slices}");
    assert_eq!(all, whole);
    let mut copy = empty();
    whole.iter().for_each(|change| copy.replay(change));
    for scope in PolicyScope::ALL {
        let found: Vec<_> = copy.policies(scope, None).map(|(_, policy)| policy).collect();
        let expected = directory.policies(scope, None).map(|(_, policy)| policy);
        assert!(found.len() == 120 && expected.eq(found.iter().copied()));
    }
    assert!(
        copy.parameters(None)
            .map(|(_, it)| it.name)
            .eq(directory.parameters(None).map(|(_, it)| it.name))
    );
    assert!(copy.global_parameters().eq(directory.global_parameters()));
    // Each step is one of them.
    let (mut walk, mut steps) = (Snapshot::new(Extent::Durable), Vec::new());
    while walk.next(directory, 1, &mut steps) {}
    assert_eq!(steps, whole);
}

fn bytes_of(change: &Change) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::codec::encode(change, &mut bytes);
    bytes
}

#[test]
fn ids_that_were_used_are_not_used_again() {
    let mut fixture = Fixture::new();
    let first = fixture.queue("q1");
    fixture.does(&Request::DeleteQueue { id: first });
    let mut copy = empty();
    fixture.directory.snapshot(Extent::Durable).iter().for_each(|change| copy.replay(change));
    fixture.directory = copy;
    assert!(fixture.queue("q1") > first);
}

/// Decides requests in batches as far as the footprint allows, as a log does that is slow, and one
/// by one: both have to come to the same.
#[test]
fn requests_decided_side_by_side_come_to_the_same_as_one_by_one() {
    let (mut shared, mut alone) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut one_by_one = Fixture::with_shards(4);
        let mut batched = Fixture::with_shards(4);
        let mut touched = Footprint::new(HashState::new(seed));
        let mut batch: Vec<Change> = Vec::new();
        for step in 0..300 {
            let request = random_request(&mut rng, &one_by_one.directory);
            if rng.chance(1, 8) || !touched.add(&batched.directory, &request) {
                shared += batch.len().saturating_sub(1);
                alone += usize::from(batch.len() == 1);
                for change in batch.drain(..) {
                    batched.directory.release(&change);
                    batched.directory.apply(&change);
                }
                touched.clear();
                assert!(touched.add(&batched.directory, &request), "it is the first");
            }
            let expected = one_by_one.directory.check(&request);
            let found = batched.directory.check(&request);
            assert_eq!(found, expected, "seed {seed}, step {step}: {request:?}");
            if let Ok(Checked::Change(change)) = expected {
                let part = one_by_one.directory.durable_part(&change);
                assert_eq!(batched.directory.durable_part(&change), part, "{change:?}");
                one_by_one.directory.apply(&change);
                batched.directory.reserve(&change);
                batch.push(change);
            }
        }
        for change in batch.drain(..) {
            batched.directory.release(&change);
            batched.directory.apply(&change);
        }
        assert_eq!(durable_picture(&batched.directory), durable_picture(&one_by_one.directory));
        let spread = |fixture: &Fixture| {
            let (counts, held) = fixture.directory.topology.queues().spread();
            (counts.clone(), held.to_vec())
        };
        assert_eq!(spread(&batched), spread(&one_by_one));
    }
    assert!(shared > 1000, "{shared} shared a batch, {alone} were alone");
}
