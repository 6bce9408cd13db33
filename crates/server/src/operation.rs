//! The operator's orders, carried out by the running broker.

mod account;
mod list;

use crate::figures::Figures;
use crate::topology::Standpoint;
use account::List;
use lepus_base::ShardId;
use lepus_broker::directory::{Directory, Request, User, VhostRef};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long a change of the directory may take before the operator is told that it is unsure.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Users that shard 0 looks at in one step.
const USERS_STEP: usize = 64;
/// Rows after which an answer about users ends.
const ROWS_MAX: usize = 2_000;

/// Carries orders out.
#[derive(Clone, Debug)]
pub struct Operations {
    figures: Arc<Figures>,
    /// Lines of `lepus status` that do not change.
    facts: Vec<(&'static str, Value)>,
    /// What `lepus topology` shows.
    place: Arc<Standpoint>,
}

impl Operations {
    /// Orders to the broker behind `figures`; `facts` are shown by `lepus status`, `place` by
    /// `lepus topology`.
    #[must_use]
    pub fn new(
        figures: Arc<Figures>,
        facts: Vec<(&'static str, Value)>,
        place: Standpoint,
    ) -> Operations {
        Operations { figures, facts, place: Arc::new(place) }
    }

    /// Answers one request of the control socket.
    ///
    /// # Errors
    /// Text for the operator.
    pub fn answer(&self, request: &Value) -> Result<Value, String> {
        let words = text(request, "order")?;
        match words {
            "status" => self.status(),
            "topology" => self.place.answer(),
            "profile" => crate::profile::take(request),
            "list queues" => list::queues(&self.figures, request),
            "list connections" => list::connections(&self.figures, request),
            "list exchanges" => list::exchanges(&self.figures, request),
            "list bindings" => list::bindings(&self.figures, request),
            "user list" => self.list_users(request, &account::USERS),
            "vhost list" => self.read(account::vhosts),
            "permission list" => self.list_users(request, &account::PERMISSIONS),
            "permission list-topic" => self.list_users(request, &account::TOPIC_PERMISSIONS),
            _ => {
                let request = request.clone();
                let change = self.read(move |directory| account::change(directory, &request))??;
                self.carry_out(change)
            }
        }
    }

    fn status(&self) -> Result<Value, String> {
        let snapshot = self.figures.collect()?;
        let held = |part: fn(&lepus_management::metrics::Holdings) -> u64| {
            snapshot.shards.iter().map(|shard| part(&shard.holdings)).sum::<u64>()
        };
        let mut status = serde_json::Map::new();
        for (key, value) in &self.facts {
            status.insert((*key).to_owned(), value.clone());
        }
        let figures = [
            ("uptime_seconds", json!(snapshot.uptime_seconds)),
            ("shards", json!(snapshot.shards.len())),
            ("connections", json!(held(|h| h.connections))),
            ("channels", json!(held(|h| h.channels))),
            ("queues", json!(held(|h| h.queues))),
            ("consumers", json!(held(|h| h.consumers))),
            ("messages_ready", json!(held(|h| h.ready))),
            ("messages_unacked", json!(held(|h| h.unacked))),
            ("memory_used_bytes", json!(held(|h| h.memory_bytes))),
            ("memory_budget_bytes", json!(snapshot.node.memory_budget_bytes)),
            ("memory_alarm", json!(snapshot.memory_alarm())),
            ("disk_alarm", json!(snapshot.disk_alarm())),
            ("resident_bytes", json!(snapshot.own.resident_bytes)),
        ];
        for (key, value) in figures {
            status.insert(key.to_owned(), value);
        }
        Ok(status.into())
    }

    /// One part of a list by user, made in steps between which the shard serves others; the next part
    /// begins behind a user.
    fn list_users(&self, request: &Value, list: &'static List) -> Result<Value, String> {
        let mut behind = request["from"].as_str().map(str::to_owned);
        let mut rows: Vec<Value> = Vec::new();
        let mut is_complete = false;
        while !is_complete && rows.len() < ROWS_MAX {
            let last = behind.take();
            let step = move |directory: &Directory| {
                let users: Vec<&User> =
                    directory.accounts().users_behind(last.as_deref()).take(USERS_STEP).collect();
                let rows: Vec<Value> =
                    users.iter().flat_map(|user| (list.rows)(directory, user)).collect();
                (rows, users.last().map(|user| user.name.to_string()))
            };
            let found;
            (found, behind) = self.read(step)?;
            rows.extend(found);
            is_complete = behind.is_none();
        }
        Ok(json!({"columns": list.columns, "rows": rows, "next": behind}))
    }

    /// Reads the directory as it stands on the shard that orders its changes.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Directory) -> T + Send + 'static,
    ) -> Result<T, String> {
        let answer =
            self.figures.commands.ask(ShardId(0), move |broker, _, _| read(&broker.directory));
        answer.map_err(|stopped| stopped.to_string())
    }

    fn carry_out(&self, request: Request) -> Result<Value, String> {
        let (sender, receiver) = sync_channel(1);
        let asked = self.figures.commands.question(
            ShardId(0),
            move |broker, now, number, out| broker.request(now, number, &request, out),
            move |answer| {
                // Whoever asked may have given up.
                let _ = sender.try_send(answer);
            },
        );
        asked.map_err(|stopped| stopped.to_string())?;
        match receiver.recv_timeout(CHANGE_TIMEOUT) {
            Ok(Ok(())) => Ok(Value::Null),
            Ok(Err(refusal)) => Err(refusal.text),
            Err(_) => Err("no answer came; the order may still be carried out".to_owned()),
        }
    }
}

/// A text of the request that must be there.
fn text<'a>(request: &'a Value, key: &str) -> Result<&'a str, String> {
    request[key].as_str().ok_or_else(|| format!("{key} is missing"))
}

/// The virtual host of the request; / where it names none.
fn vhost_name(request: &Value) -> String {
    request["vhost"].as_str().unwrap_or("/").to_owned()
}

fn vhost_ref(request: &Value) -> VhostRef {
    VhostRef::from(vhost_name(request).as_str())
}
