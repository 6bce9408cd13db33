//! What `lepus perf filters` tells, line by line.

use serde_json::{Value, json};

/// What one run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Messages published a second, each confirmed.
    pub sent: f64,
    /// Deliveries a second.
    pub received: f64,
    /// Microseconds of the broker's CPU by published message.
    pub cpu_micros: f64,
    /// Filters set a second.
    pub set: f64,
    /// Filters taken away a second.
    pub removed: f64,
    /// Deliveries of the check that were as they should be.
    pub checked: u64,
    /// Resident megabytes of the broker at the end of the load.
    pub resident_mb: f64,
}

impl Figures {
    /// The figures by name.
    pub fn json(&self) -> Value {
        json!({
            "sent_per_s": self.sent,
            "received_per_s": self.received,
            "broker_cpu_us_per_message": self.cpu_micros,
            "set_per_s": self.set,
            "removed_per_s": self.removed,
            "deliveries_checked": self.checked,
            "broker_resident_mb": self.resident_mb,
        })
    }
}

/// The lines of a run as far as they say something of filters.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Deliveries that the check found right.
    checked: Option<u64>,
    /// The first wrong verdict, in the tester's words.
    fault: Option<String>,
    load: Option<Figures>,
    /// Deliveries that were due under load and did not come, and those that came and were not due.
    astray: (u64, u64),
}

impl Heard {
    /// Takes a line; what is not of filters is left.
    pub fn hear(&mut self, line: &str) {
        let Ok(told) = serde_json::from_str::<Value>(line) else { return };
        let float = |name: &str| told[name].as_f64().unwrap_or(0.0);
        let whole = |name: &str| told[name].as_u64().unwrap_or(0);
        match told["kind"].as_str() {
            Some("checked") => {
                self.checked = Some(whole("good"));
                self.fault = told["first"].as_str().map(str::to_owned);
            }
            Some("filters") => {
                self.astray = (whole("outstanding"), whole("unexpected"));
                self.load = Some(Figures {
                    sent: float("sent_per_s"),
                    received: float("received_per_s"),
                    cpu_micros: float("broker_cpu_us_per_message"),
                    set: float("set_per_s"),
                    removed: float("removed_per_s"),
                    checked: self.checked.unwrap_or(0),
                    resident_mb: float("broker_resident_bytes") / 1e6,
                });
            }
            _ => {}
        }
    }

    /// What it came to, where every verdict was right and the tester ended well.
    ///
    /// # Errors
    /// Why it counts for nothing.
    pub fn figures(self, ended_well: bool) -> Result<Figures, String> {
        if let Some(fault) = self.fault {
            return Err(format!("its verdicts are wrong: {fault}"));
        }
        match (self.load, self.astray) {
            (None, _) => Err("there was no load".to_owned()),
            (Some(_), (missing, strays)) if missing + strays > 0 => Err(format!(
                "under load {missing} deliveries did not come in time, and {strays} came that should not have"
            )),
            (Some(_), _) if self.checked.is_none_or(|good| good == 0) => {
                Err("no verdict was checked".to_owned())
            }
            (Some(figures), _) if ended_well && figures.sent > 0.0 && figures.cpu_micros > 0.0 => {
                Ok(figures)
            }
            _ => Err("the load did not end well".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKED: &str = r#"{"kind":"checked","messages":500,"good":505,"missing":0,"unexpected":0,"repeated":0,"first":null}"#;
    const LOAD: &str = r#"{"kind":"filters","set_per_s":20000.0,"removed_per_s":30000.0,"sent_per_s":9.0,"received_per_s":8.0,
        "broker_cpu_us_per_message":3.0,"broker_resident_bytes":2000000,"outstanding":0,"unexpected":0}"#;

    fn heard(lines: &[&str]) -> Result<Figures, String> {
        let mut heard = Heard::default();
        lines.iter().for_each(|line| heard.hear(line));
        heard.figures(true)
    }

    #[test]
    fn a_run_whose_verdicts_are_right_has_figures() {
        let expected = Figures {
            sent: 9.0,
            received: 8.0,
            cpu_micros: 3.0,
            set: 20_000.0,
            removed: 30_000.0,
            checked: 505,
            resident_mb: 2.0,
        };
        assert_eq!(heard(&["no JSON", r#"{"kind":"interval"}"#, CHECKED, LOAD]), Ok(expected));
    }

    #[test]
    fn what_was_not_checked_or_is_wrong_counts_for_nothing() {
        let wrong = CHECKED.replace("null", "\"nobody got message 3\"");
        assert!(heard(&[&wrong, LOAD]).unwrap_err().contains("nobody got message 3"));
        assert!(heard(&[LOAD]).unwrap_err().contains("no verdict"));
        assert!(heard(&[CHECKED]).unwrap_err().contains("no load"));
        let lost = LOAD.replace(r#""outstanding":0"#, r#""outstanding":7"#);
        assert!(heard(&[CHECKED, &lost]).unwrap_err().contains("7 deliveries"));
        let mut cut_short = Heard::default();
        [CHECKED, LOAD].iter().for_each(|line| cut_short.hear(line));
        assert!(cut_short.figures(false).is_err());
    }
}
