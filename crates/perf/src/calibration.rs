//! Measures the tester's ceiling: its load against a sink, producers and consumers one after the other.

use crate::ceiling::Ceiling;
use crate::engine;
use crate::plan::{LinkPlan, Plan, RoleSpec};
use crate::sink;
use crate::to_stderr;
use crate::uri::Uri;
use std::io;
use std::time::Duration;

/// Time of each of the two measurements.
const MEASURED: Duration = Duration::from_secs(2);

/// Measures with `producing`, a plan whose consumers are left out, and `consuming`, one whose producers are.
///
/// # Errors
/// A text for the user.
pub(crate) fn measure(producing: Plan, consuming: Plan) -> Result<Ceiling, String> {
    let body_bytes = consuming.layout.size;
    let fail = |error: io::Error| format!("cannot start the sink: {error}");
    let port = sink::start(0, body_bytes).map_err(fail)?;
    to_stderr(format_args!(
        "measuring the tester's ceiling, {} s for each side",
        MEASURED.as_secs()
    ));
    let uri = Uri::parse(&format!("amqp://127.0.0.1:{port}"))?;
    Ok(Ceiling {
        sent_per_s: side(producing, &uri, true)?,
        received_per_s: side(consuming, &uri, false)?,
    })
}

/// Messages a second of the producers of `plan`, or of its consumers.
fn side(mut plan: Plan, uri: &Uri, producers: bool) -> Result<f64, String> {
    let is_wanted = |role: &RoleSpec| matches!(role, RoleSpec::Producer(_)) == producers;
    plan.links.retain(|link| link.roles.iter().any(is_wanted));
    if plan.links.is_empty() {
        return Ok(0.0);
    }
    for link in &mut plan.links {
        unlimited(link);
    }
    plan.uris = vec![uri.clone()];
    plan.quiet = true;
    plan.check = None;
    plan.expected.clear();
    plan.run.time_max = Some(MEASURED);
    plan.run.idle_max = None;
    plan.run.startup_timeout = None;
    (plan.run.csv, plan.run.json) = (None, None);
    let (sent, received) = engine::measure(plan)?;
    Ok(if producers { sent } else { received })
}

/// Takes away what would slow the load down on purpose or end it.
fn unlimited(link: &mut LinkPlan) {
    link.delay = Duration::ZERO;
    for role in &mut link.roles {
        match role {
            RoleSpec::Producer(producer) => {
                producer.sent_max = None;
                producer.schedule = None;
                producer.start_delay = Duration::ZERO;
            }
            RoleSpec::Consumer(consumer) => {
                consumer.received_max = None;
                consumer.schedule = None;
                consumer.service = None;
                consumer.lanes.clear();
                if let Some((delay, _)) = &mut consumer.deferred {
                    *delay = Duration::ZERO;
                }
            }
            RoleSpec::Roundtrip(_) => {}
        }
    }
}
