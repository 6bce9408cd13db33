//! How fast the tester is by itself: its load against a sink, producers and consumers one after the other.

use crate::engine;
use crate::plan::{LinkPlan, Plan, RoleSpec};
use crate::sink;
use crate::to_stderr;
use crate::uri::Uri;
use std::io;
use std::time::Duration;

/// Time of each of the two measurements.
const MEASURED: Duration = Duration::from_secs(2);
/// From this share of the ceiling on, a result is near it.
const NEAR: f64 = 0.8;

/// Messages a second that the tester sends and receives when nothing else limits it; 0 where the load has no such side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ceiling {
    pub sent_per_s: f64,
    pub received_per_s: f64,
}

impl Ceiling {
    /// Which share of what the tester can do at all these rates are: it has one thread for both sides.
    pub(crate) fn share(&self, sent_per_s: f64, received_per_s: f64) -> f64 {
        let part = |rate: f64, ceiling: f64| if ceiling > 0.0 { rate / ceiling } else { 0.0 };
        part(sent_per_s, self.sent_per_s) + part(received_per_s, self.received_per_s)
    }

    /// Whether the tester rather than the broker may have set these rates.
    pub(crate) fn is_near(&self, sent_per_s: f64, received_per_s: f64) -> bool {
        self.share(sent_per_s, received_per_s) >= NEAR
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_share_one_thread() {
        let ceiling = Ceiling { sent_per_s: 1_000.0, received_per_s: 500.0 };
        assert_eq!(ceiling.share(250.0, 125.0), 0.5);
        assert!(!ceiling.is_near(250.0, 250.0));
        assert!(ceiling.is_near(400.0, 200.0));
        assert!(!Ceiling::default().is_near(1e9, 1e9));
    }
}
