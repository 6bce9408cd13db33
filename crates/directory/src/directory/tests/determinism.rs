//! The same changes give the same directory, and the directory stays true to a plain model.

use super::*;
use crate::binding::Destination;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;

/// Everything that tools and routing can see, as text.
fn picture(directory: &Directory) -> String {
    let mut text = format!("{}\n", directory.version());
    for vhost in directory.accounts().vhosts() {
        text += &format!("{vhost:?}\n");
        for binding in directory.bindings(vhost.id) {
            text += &format!("{binding:?}\n");
        }
    }
    for exchange in directory.exchanges(None) {
        text += &format!("{exchange:?}\n");
    }
    for queue in directory.queues(None) {
        text += &format!("{queue:?}\n");
    }
    for user in directory.accounts().users() {
        text += &format!("{user:?}\n");
    }
    text
}

fn random_request(rng: &mut Rng, directory: &Directory) -> Request {
    let mut pick = |prefix: &str, count: u64| format!("{prefix}{}", rng.below(count));
    let (exchange, other, queue) = (pick("x", 6), pick("x", 6), pick("q", 8));
    let key = pick("", 3);
    let to = if rng.chance(1, 3) { other } else { queue.clone() };
    match rng.below(13) {
        0 | 1 => {
            let kinds = ["direct", "fanout", "topic"];
            let kind = kinds[rng.below(3) as usize];
            let mut request = declare_exchange(&exchange, kind);
            if let Request::DeclareExchange { auto_delete, .. } = &mut request {
                *auto_delete = rng.chance(1, 2);
            }
            request
        }
        2 => delete_exchange(&exchange, rng.chance(1, 2)),
        3 | 4 => {
            let mut request = declare_queue(&queue);
            if let Request::DeclareQueue { declared_on, .. } = &mut request {
                *declared_on = ShardId(rng.below(4) as u16);
            }
            request
        }
        5 => {
            let found = directory.queue(directory.vhost("/").unwrap(), &queue);
            let id = found.map_or(QueueId(0), |info| info.id);
            Request::DeleteQueue { id }
        }
        12 => {
            let found = directory.queue(directory.vhost("/").unwrap(), &queue);
            let id = found.map_or(QueueId(0), |info| info.id);
            Request::MoveQueue { id, to: ShardId(rng.below(5) as u16) }
        }
        6 | 7 => unbind(&exchange, &to, &key),
        _ => bind(&exchange, &to, &key),
    }
}

#[test]
fn two_directories_fed_the_same_changes_are_equal() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut fixture = Fixture::with_shards(4);
        for _ in 0..400 {
            let request = random_request(&mut rng, &fixture.directory);
            let _ = fixture.ask(&request);
        }
        // Another key for the hash maps: nothing may depend on it.
        let mut copy = Directory::new(HashState::new(1000 + seed), 4);
        let mut applied = Vec::new();
        for change in &fixture.changes {
            applied.push(copy.apply(change));
        }
        assert_eq!(picture(&copy), picture(&fixture.directory));
        let mut third = Directory::new(HashState::new(3), 4);
        for (change, applied) in fixture.changes.iter().zip(&applied) {
            assert_eq!(third.apply(change), *applied);
        }
    }
}

/// The rules in the plainest form: names and sets.
#[derive(Default)]
struct Model {
    exchanges: BTreeMap<String, bool>,
    queues: BTreeSet<String>,
    bindings: BTreeSet<(String, String, String)>,
}

impl Model {
    fn exists(&self, name: &str) -> bool {
        self.exchanges.contains_key(name) || self.queues.contains(name)
    }

    /// Removes the bindings that `goes` names, and the exchanges that go with them.
    fn unbind(&mut self, goes: impl Fn(&(String, String, String)) -> bool) {
        let gone: Vec<_> = self.bindings.iter().filter(|b| goes(b)).cloned().collect();
        for binding in gone {
            self.bindings.remove(&binding);
            let source = &binding.0;
            let is_empty = !self.bindings.iter().any(|(other, ..)| other == source);
            if is_empty && self.exchanges.get(source) == Some(&true) {
                self.delete(source);
            }
        }
    }

    fn delete(&mut self, name: &str) {
        if self.exchanges.remove(name).is_some() || self.queues.remove(name) {
            self.unbind(|(source, to, _)| source == name || to == name);
        }
    }

    fn apply(&mut self, request: &Request, directory: &Directory) {
        let name_of = |destination: &Destination| match destination {
            Destination::Queue(name) | Destination::Exchange(name) => name.clone(),
        };
        match request {
            Request::DeclareExchange { name, auto_delete, .. } => {
                self.exchanges.entry(name.clone()).or_insert(*auto_delete);
            }
            Request::DeclareQueue { name, .. } => {
                self.queues.insert(name.clone());
            }
            Request::DeleteExchange { name, if_unused, .. } => {
                let used = self.bindings.iter().any(|(source, ..)| source == name);
                if !if_unused || !used {
                    self.delete(name);
                }
            }
            Request::DeleteQueue { id } => {
                if let Some(info) = directory.queue_by_id(*id) {
                    self.delete(info.name());
                }
            }
            Request::Bind { source, destination, routing_key, .. } => {
                let to = name_of(destination);
                if self.exchanges.contains_key(source) && self.exists(&to) {
                    let binding = (source.clone(), to, routing_key.clone());
                    self.bindings.insert(binding);
                }
            }
            Request::Unbind { source, destination, routing_key, .. } => {
                let binding = (source.clone(), name_of(destination), routing_key.clone());
                self.unbind(|other| *other == binding);
            }
            _ => {}
        }
    }
}

#[test]
fn the_directory_agrees_with_a_plain_model() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut fixture = Fixture::new();
        let mut model = Model::default();
        for step in 0..300 {
            let request = random_request(&mut rng, &fixture.directory);
            model.apply(&request, &fixture.directory);
            let _ = fixture.ask(&request);
            let directory = &fixture.directory;
            let vhost = fixture.vhost();
            let bindings: BTreeSet<_> = directory
                .bindings(vhost)
                .filter(|info| !info.source.is_empty())
                .map(|info| {
                    let to = info.destination.name();
                    (info.source.into(), to.into(), info.routing_key.into())
                })
                .collect();
            assert_eq!(bindings, model.bindings, "seed {seed}, step {step}, {request:?}");
            let exchanges = directory.exchanges(Some(vhost));
            let own = exchanges.filter(|info| info.name.starts_with('x'));
            let own: Vec<&str> = own.map(|info| &*info.name).collect();
            assert!(own.iter().eq(model.exchanges.keys()), "seed {seed}, step {step}");
            let queues = directory.queues(Some(vhost)).map(|info| info.name());
            assert!(queues.eq(model.queues.iter().map(String::as_str)));
        }
    }
}
