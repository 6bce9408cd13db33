//! How fast the tester is by itself, and how near to that a result comes.

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
