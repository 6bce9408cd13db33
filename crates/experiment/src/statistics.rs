//! The middle of some runs, and how sure a figure is: intervals of Student's t distribution.
//!
//! Runs of one round are neighbours in time, so settings are compared by the ratios of their rounds: what the machine
//! did meanwhile is in both halves of a pair and falls out. Ratios multiply, so mean and interval are taken of their
//! logarithms. Source: Student, "The Probable Error of a Mean", Biometrika 6 (1908); the quantiles come from the
//! incomplete beta function, by its continued fraction (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.8).

use crate::plot::Bar;

/// How sure an interval is to hold the true value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Confidence {
    /// 19 times in 20.
    P95,
    /// 99 times in 100.
    P99,
    /// All times but this share of them, above 0 and below 1: half of it on either side.
    Risk(f64),
}

/// A mean and the limits that hold the true one with some confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// The lower limit.
    pub low: f64,
    /// The upper limit.
    pub high: f64,
    /// From how many values.
    pub count: usize,
}

/// The two-sided quantile of the t distribution with `degrees` of freedom, the value that its absolute exceeds with the
/// risk; infinite with none.
#[must_use]
pub fn quantile(degrees: usize, confidence: Confidence) -> f64 {
    if degrees == 0 {
        return f64::INFINITY;
    }
    let risk = match confidence {
        Confidence::P95 => 0.05,
        Confidence::P99 => 0.01,
        Confidence::Risk(risk) => risk,
    };
    let (mut low, mut high) = (0.0, 1.0);
    let ln_scale = ln_beta_half(degrees);
    while beyond(high, degrees, ln_scale) > risk && high < 1e12 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        match beyond(middle, degrees, ln_scale) > risk {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Median and range; none of nothing.
#[must_use]
pub fn spread(mut values: Vec<f64>) -> Option<Bar> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let (low, high) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let value = match values.len() % 2 {
        1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    };
    Some(Bar { value, low, high })
}

/// The median; 0 of nothing.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    spread(values.into_iter().collect()).map_or(0.0, |bar| bar.value)
}

/// Halvings of an interval that a quantile is known to be in.
const STEPS: usize = 40;
/// Terms of the continued fraction.
const TERMS: usize = 60;

/// The probability that the absolute of the t distribution exceeds `t`: the incomplete beta function of n / (n + t²) with
/// n/2 and 1/2.
fn beyond(t: f64, degrees: usize, ln_scale: f64) -> f64 {
    let n = degrees as f64;
    let x = n / (n + t * t);
    let (a, b) = (n / 2.0, 0.5);
    let ln_front = a * x.ln() + b * (1.0 - x).ln() - ln_scale;
    // The fraction converges fast on this side; on the other that of the rest does.
    if x < (a + 1.0) / (a + b + 2.0) {
        ln_front.exp() * fraction(x, a, b) / a
    } else {
        1.0 - ln_front.exp() * fraction(1.0 - x, b, a) / b
    }
}

fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let mut value = 1.0;
    for m in (1..=TERMS).rev() {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        value = 1.0 + even / (1.0 + odd / value);
    }
    1.0 / (1.0 - (a + b) * x / ((a + 1.0) * value))
}

/// The logarithm of the beta function of n/2 and 1/2, by B(n/2 + 1, 1/2) = B(n/2, 1/2) · n / (n + 1).
fn ln_beta_half(degrees: usize) -> f64 {
    let (mut ln, mut n) = match degrees % 2 {
        // B(1/2, 1/2) is π, B(1, 1/2) is 2.
        1 => (std::f64::consts::PI.ln(), 1),
        _ => (2f64.ln(), 2),
    };
    while n < degrees {
        ln += (n as f64 / (n as f64 + 1.0)).ln();
        n += 2;
    }
    ln
}

/// The mean of some values with its interval; none of fewer than two.
#[must_use]
pub fn mean(values: &[f64], confidence: Confidence) -> Option<Estimate> {
    let count = values.len();
    if count < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let value = values.iter().sum::<f64>() / count as f64;
    let square = |one: &f64| (one - value) * (one - value);
    let variance = values.iter().map(square).sum::<f64>() / (count - 1) as f64;
    let reach = quantile(count - 1, confidence) * (variance / count as f64).sqrt();
    Some(Estimate { value, low: value - reach, high: value + reach, count })
}

/// The mean ratio of pairs (geometric) with its interval; none of fewer than two pairs. Pairs with a figure that is not
/// above 0 tell nothing and are passed over.
#[must_use]
pub fn ratio(pairs: &[(f64, f64)], confidence: Confidence) -> Option<Estimate> {
    let logs: Vec<f64> =
        pairs.iter().map(|(of, by)| (of / by).ln()).filter(|log| log.is_finite()).collect();
    let of_logs = mean(&logs, confidence)?;
    Some(Estimate {
        value: of_logs.value.exp(),
        low: of_logs.low.exp(),
        high: of_logs.high.exp(),
        count: of_logs.count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 5e-4 * expected.abs().max(1.0)
    }

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, p95, p99) in [
            (1, 12.706, 63.657),
            (2, 4.303, 9.925),
            (4, 2.776, 4.604),
            (9, 2.262, 3.250),
            (19, 2.093, 2.861),
            (30, 2.042, 2.750),
            (60, 2.000, 2.660),
            // By numerical integration.
            (50, 2.0086, 2.6778),
            (100, 1.9840, 2.6259),
            (500, 1.9647, 2.5857),
        ] {
            assert!(near(quantile(degrees, Confidence::P95), p95), "{degrees}");
            assert!(near(quantile(degrees, Confidence::P99), p99), "{degrees}");
        }
        assert_eq!(quantile(0, Confidence::P95), f64::INFINITY);
        let falling: Vec<f64> = (1..1000).map(|n| quantile(n, Confidence::P99)).collect();
        assert!(falling.windows(2).all(|pair| pair[0] >= pair[1]));
    }

    #[test]
    fn a_quantile_for_a_small_risk_is_that_of_the_closed_forms() {
        // By the closed forms for one and two degrees of freedom.
        let cauchy = 1.0 / (std::f64::consts::PI * 1e-4 / 2.0).tan();
        assert!(near(quantile(1, Confidence::Risk(1e-4)) / cauchy, 1.0));
        let two = |risk: f64| (2.0 * (1.0 - risk).powi(2) / (1.0 - (1.0 - risk).powi(2))).sqrt();
        assert!(near(quantile(2, Confidence::Risk(1e-5)) / two(1e-5), 1.0));
    }

    #[test]
    fn a_mean_has_the_interval_of_its_textbook() {
        // 10 values, mean 5.5, deviation 3.02765: 5.5 ± 2.262 · 0.95743.
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let mean = mean(&values, Confidence::P95).unwrap();
        assert!(near(mean.value, 5.5) && near(mean.low, 3.3343) && near(mean.high, 7.6657));
        assert_eq!(super::mean(&[1.0], Confidence::P95), None);
        assert_eq!(super::mean(&[1.0, f64::NAN], Confidence::P95), None);
    }

    #[test]
    fn what_both_halves_of_a_pair_have_in_common_falls_out() {
        // The machine is three times as fast in the last round; the ratio is 2 in each.
        let pairs = [(200.0, 100.0), (220.0, 110.0), (600.0, 300.0)];
        let steady = ratio(&pairs, Confidence::P95).unwrap();
        assert!(near(steady.value, 2.0) && near(steady.low, 2.0) && near(steady.high, 2.0));
        // Logs 0 and ln 4: mean ln 2, deviation of the mean ln 2, times 12.706.
        let wide = ratio(&[(1.0, 1.0), (4.0, 1.0)], Confidence::P95).unwrap();
        let reach = 2f64.ln() * 12.706;
        assert!(near(wide.value, 2.0) && near(wide.low.ln(), 2f64.ln() - reach));
        assert_eq!(ratio(&[(1.0, 1.0), (0.0, 1.0)], Confidence::P95), None);
    }
}
