//! Policies that come and go while queues are at work. For each queue only such are set under which messages go where
//! they may go anyway: to the dead-letter queue, or, of a volatile queue, away.
//!
//! What was answered is there after every end of the process. Whenever everything is quiet every queue has the
//! settings that follow from its arguments and the policies as its shard knows them.

use std::collections::BTreeMap;
use std::sync::mpsc;

use lepus_amqp::table::Table;
use lepus_base::Rng;
use lepus_broker::directory::{Directory, PolicyScope, Request};
use lepus_broker::{Answer, Broker, Query};

use super::trace;
use crate::actor::Verdict;
use crate::plan::{Kind, Plan, QueuePlan};
use crate::shards::Shards;

/// One seed in so many has policies.
const SEEDS_PER_POLICIES: u64 = 4;
/// After so many things that happen, on average, a policy is set or cleared.
const STEPS_PER_POLICY: u64 = 40;

/// Policies by scope and name, with all that they say as text.
type Set = BTreeMap<(PolicyScope, String), String>;

/// See the module.
#[derive(Debug)]
pub(super) struct Policies {
    /// Decides about them, apart from everything else that a seed decides; `None` for a seed without any.
    rng: Option<Rng>,
    /// What is there for certain.
    sure: Set,
    /// How many were set or cleared.
    changed: u64,
    /// What was asked for and not answered yet, or refused because of the disk, and then without an answer to wait for.
    open: Option<(Request, Option<mpsc::Receiver<Answer>>)>,
}

impl Policies {
    /// Those of a seed, if it has any.
    pub(super) fn of(seed: u64) -> Policies {
        let mut rng = Rng::new(seed ^ 0x706f_6c69_6379);
        let has_some = rng.chance(1, SEEDS_PER_POLICIES);
        Policies { rng: has_some.then_some(rng), sure: Set::new(), changed: 0, open: None }
    }

    /// How many were set or cleared.
    pub(super) fn changed(&self) -> u64 {
        self.changed
    }

    /// A change that makes sense for one of the queues.
    fn wish(&mut self, queues: &[QueuePlan]) -> Option<Request> {
        let rng = self.rng.as_mut()?;
        if self.open.is_some() || !rng.chance(1, STEPS_PER_POLICY) {
            return None;
        }
        let queue = &queues[rng.below(queues.len() as u64) as usize];
        let scope = if rng.chance(1, 3) { PolicyScope::Operator } else { PolicyScope::User };
        let name = format!("{}-{}", queue.name, rng.below(2));
        let priority = rng.below(3) as i64 - 1;
        let definition = definition(queue, scope, rng)?;
        if rng.chance(1, 3) && self.sure.contains_key(&(scope, name.clone())) {
            return Some(Request::ClearPolicy { vhost: "/".into(), scope, name });
        }
        // Names have nothing that means something else in a pattern.
        let pattern = match rng.below(3) {
            0 => format!("^{}$", queue.name),
            1 => format!("^(?!amq\\.){}$", queue.name),
            _ => format!("^(?:{})$", queue.name),
        };
        let apply_to = "queues".to_owned();
        Some(Request::SetPolicy {
            vhost: "/".into(),
            scope,
            name,
            pattern,
            apply_to,
            priority,
            definition,
        })
    }

    /// Somebody sets or clears a policy, if it is the time.
    pub(super) fn step(&mut self, plan: &Plan, shards: &Shards) -> Verdict {
        self.hear(plan, shards)?;
        let Some(request) = self.wish(&plan.queues) else { return Ok(()) };
        trace(format!("somebody asks for {request:?}"));
        let answer = shards.ask(0, Query::Change(request.clone()));
        self.open = Some((request, Some(answer)));
        Ok(())
    }

    /// The answer to the last change, if it is there.
    fn hear(&mut self, plan: &Plan, shards: &Shards) -> Verdict {
        let Some((request, answer)) = &mut self.open else { return Ok(()) };
        match answer.as_ref().map(mpsc::Receiver::try_recv) {
            Some(Ok(Answer::Changed(Ok(())))) => {
                self.sure = after(std::mem::take(&mut self.sure), request);
                self.changed += 1;
                self.open = None;
            }
            Some(Ok(Answer::Changed(Err(refusal)))) => {
                let fills = plan.disk.as_ref().is_some_and(|disk| disk.fills);
                if !fills && !shards.definitions_failed() {
                    return Err(format!("{request:?} is refused: {}", refusal.reply()));
                }
                *answer = None;
            }
            Some(Ok(other)) => return Err(format!("{request:?} is answered with {other:?}")),
            Some(Err(mpsc::TryRecvError::Disconnected)) => {
                return Err(format!("{request:?} is dropped without an answer"));
            }
            Some(Err(mpsc::TryRecvError::Empty)) | None => {}
        }
        Ok(())
    }

    /// The process ends: what it has not answered it never will.
    pub(super) fn lose_answers(&mut self, plan: &Plan, shards: &Shards) -> Verdict {
        self.hear(plan, shards)?;
        if let Some((_, answer)) = &mut self.open {
            *answer = None;
        }
        Ok(())
    }

    /// Everything is quiet and the disk is well: the last change is answered, and every shard is done with it.
    pub(super) fn check_done(&mut self, plan: &Plan, shards: &Shards) -> Verdict {
        self.hear(plan, shards)?;
        if let Some((request, Some(_))) = &self.open {
            return Err(format!("{request:?} is not answered, though everything is quiet"));
        }
        let lags =
            |broker: &&Broker| broker.homes.policies_done() != broker.directory.policy_epoch();
        match shards.brokers().find(lags) {
            Some(broker) => Err(format!(
                "shard {} follows the policies of epoch {} and knows those of {}",
                broker.shard.id,
                broker.homes.policies_done(),
                broker.directory.policy_epoch()
            )),
            None => Ok(()),
        }
    }

    /// What was answered is there on every shard, and nothing else.
    pub(super) fn check(&mut self, plan: &Plan, shards: &Shards) -> Verdict {
        self.hear(plan, shards)?;
        let mut expected = vec![self.sure.clone()];
        if let Some((request, _)) = &self.open {
            expected.push(after(self.sure.clone(), request));
        }
        for broker in shards.brokers() {
            let found = found(&broker.directory);
            if !expected.contains(&found) {
                return Err(format!("the policies {found:?} are there, {expected:?} were to be"));
            }
        }
        Ok(())
    }

    /// A new process has started: whatever is there counts from now on.
    pub(super) fn begin_life(&mut self, plan: &Plan, shards: &Shards) -> Verdict {
        self.check(plan, shards)?;
        self.open = None;
        self.sure = found(&shards.broker(0).directory);
        check_settings(shards)
    }
}

/// What a policy may say of a queue; nothing of one that must keep all it has.
fn definition(queue: &QueuePlan, scope: PolicyScope, rng: &mut Rng) -> Option<Table> {
    let length = Table::new().with("max-length", 1 + rng.below(20) as i64);
    let time = Table::new().with("message-ttl", 1 + rng.below(2_000) as i64);
    let choice = rng.below(4);
    match queue.kind {
        // It refuses what is too much, and has no excuse but its own limit.
        _ if queue.must_arrive => None,
        Kind::Refusing(_) => Some(match choice {
            0 => length.with("overflow", "drop-head"),
            _ => length,
        }),
        Kind::Volatile(_) => Some(match (choice, scope) {
            (0, PolicyScope::User) => length.with("dead-letter-exchange", "nowhere"),
            (0 | 1, _) => time,
            (2, _) => length.with("message-ttl", 500),
            _ => length,
        }),
        _ if queue.dead_letters() => Some(match choice {
            0 => time,
            // Others tell how often a message came back only where there is such a limit.
            1 if matches!(queue.kind, Kind::Quorum(_)) => {
                Table::new().with("delivery-limit", rng.below(4) as i64)
            }
            2 => length.with("message-ttl", 500),
            _ => length,
        }),
        _ => None,
    }
}

/// The policies of a directory.
fn found(directory: &Directory) -> Set {
    let mut found = Set::new();
    for scope in PolicyScope::ALL {
        for (_, policy) in directory.policies(scope, None) {
            let text = format!(
                "{} {} {} {:?}",
                policy.pattern(),
                policy.apply_to().name(),
                policy.priority(),
                policy.definition().to_owned()
            );
            found.insert((scope, policy.name().to_owned()), text);
        }
    }
    found
}

/// What is there once a request is fulfilled.
fn after(mut set: Set, request: &Request) -> Set {
    match request.clone() {
        Request::SetPolicy { scope, name, pattern, apply_to, priority, definition, .. } => {
            set.insert((scope, name), format!("{pattern} {apply_to} {priority} {definition:?}"));
        }
        Request::ClearPolicy { scope, name, .. } => {
            set.remove(&(scope, name));
        }
        other => unreachable!("no policy: {other:?}"),
    }
    set
}

/// The queues of a shard that do not have the settings that follow from what the shard knows.
fn differing(broker: &Broker) -> Option<String> {
    broker.homes.policy_settings().find_map(|(id, settings)| {
        let info = broker.directory.queue_by_id(id)?;
        let expected = broker.directory.settings_of(info);
        let settings = settings.unwrap_or_else(|| info.settings());
        (*settings != *expected).then(|| {
            format!("queue {} has the settings {settings:?}, not {expected:?}", info.name())
        })
    })
}

/// While nothing is to be done every queue follows its policies.
pub(super) fn check_settings(shards: &Shards) -> Verdict {
    shards.brokers().find_map(differing).map_or(Ok(()), Err)
}
