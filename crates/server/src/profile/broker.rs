//! The broker's side: it samples itself.

use lepus_flame::Recorder;
use lepus_profile::{Sample, Session};
use serde_json::Value;
use std::time::{Duration, Instant};

use super::{RATE_DEFAULT, SECONDS_DEFAULT, SECONDS_MAX};

/// How often samples are taken out; there is room for several hundred.
const DRAIN: Duration = Duration::from_millis(20);

/// Takes a profile of this process and gives its recording. Blocks for as long as it takes, on the
/// thread of whoever asked.
///
/// # Errors
/// Text for the operator: another profile is under way, a limit is passed, the system refuses.
pub fn take(request: &Value) -> Result<Value, String> {
    let seconds = request["seconds"].as_u64().unwrap_or(SECONDS_DEFAULT);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return Err(format!("a profile takes 1 to {SECONDS_MAX} seconds, not {seconds}"));
    }
    let rate = request["rate"].as_u64().unwrap_or(u64::from(RATE_DEFAULT));
    let rate = u32::try_from(rate).map_err(|_| "rate: too large".to_owned())?;
    let failed = |error: std::io::Error| format!("the process cannot read itself: {error}");
    let mut session = Session::start(rate).map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let mut recorder = Recorder::new().map_err(failed)?;
    let end = begun + Duration::from_secs(seconds);
    loop {
        session.drain(|sample: Sample<'_>| recorder.take(&sample));
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(DRAIN));
    }
    let summary = session.finish(|sample| recorder.take(&sample));
    let mut recording = recorder.finish(&summary, rate, begun.elapsed().as_secs_f64());
    env!("CARGO_PKG_VERSION").clone_into(&mut recording.version);
    Ok(recording.to_json())
}
