//! The operator's orders, carried out by the running broker.

mod account;
mod list;

use crate::figures::Figures;
use crate::topology::Standpoint;
use lepus_base::ShardId;
use lepus_broker::directory::{Request, VhostRef};
use lepus_broker::{Answer, Query};
use lepus_management::api::{self, Api};
use lepus_management::status;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a change of the directory may take before the operator is told that it is unsure.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries orders out.
#[derive(Clone, Debug)]
pub struct Operations {
    figures: Arc<Figures>,
    /// Lines of `lepus status` that do not change.
    facts: Vec<(&'static str, Value)>,
    /// What `lepus topology` shows.
    place: Arc<Standpoint>,
    /// What tools of RabbitMQ ask for.
    api: Arc<Api>,
}

impl Operations {
    /// Orders to the broker behind `figures`; `facts` are shown by `lepus status`, `place` by
    /// `lepus topology`.
    #[must_use]
    pub fn new(
        figures: Arc<Figures>,
        facts: Vec<(&'static str, Value)>,
        place: Standpoint,
        api: Arc<Api>,
    ) -> Operations {
        Operations { figures, facts, place: Arc::new(place), api }
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
            "api" => self.ask_api(request),
            "profile" => crate::profile::take(request),
            "list queues" => list::queues(&self.figures, request),
            "list connections" => list::connections(&self.figures, request),
            "list exchanges" => list::exchanges(&self.figures, request),
            "list bindings" => list::bindings(&self.figures, request),
            "list filters" => list::filters(&self.api, request),
            "user list" => list::users(&self.figures, request),
            "vhost list" => list::vhosts(&self.figures, request),
            "permission list" => list::permissions(&self.figures, request),
            "permission list-topic" => list::topic_permissions(&self.figures, request),
            _ => {
                let (user, vhost) = account::names(request);
                let answer = self.figures.ask_one(ShardId(0), Query::Known { user, vhost })?;
                let Answer::Known { user, vhost } = answer else {
                    unreachable!("a question for names is answered with {answer:?}");
                };
                self.carry_out(account::change(account::Known { user, vhost }, request)?)
            }
        }
    }

    /// A request of the management API, as one who may do everything.
    fn ask_api(&self, request: &Value) -> Result<Value, String> {
        let body = match &request["body"] {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let (method, path) = (text(request, "method")?, text(request, "path")?);
        let reply = self.api.answer(&api::Request::of_operator(method, path, body));
        Ok(json!({ "status": reply.status, "body": reply.body }))
    }

    fn status(&self) -> Result<Value, String> {
        Ok(status::answer(&self.facts, &self.figures.collect()?))
    }

    fn carry_out(&self, request: Request) -> Result<Value, String> {
        let answer = self.figures.commands.begin(ShardId(0), Query::Change(request));
        let answer = answer.map_err(|stopped| stopped.to_string())?;
        match answer.recv_timeout(CHANGE_TIMEOUT) {
            Ok(Answer::Changed(Ok(()))) => Ok(Value::Null),
            Ok(Answer::Changed(Err(refusal))) => Err(refusal.to_string()),
            Ok(other) => unreachable!("a change is answered with {other:?}"),
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
