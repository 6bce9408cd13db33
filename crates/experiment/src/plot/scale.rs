//! From figures to places on an axis: ranges, ticks and their texts.

/// Beyond this, differences of coordinates would overflow.
const MAGNITUDE_MAX: f64 = 1e300;
/// Most powers of ten on an axis that get a tick of their own.
const DECADES_MAX: i32 = 8;

/// What the numbers of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers of something that the axis' label names.
    Number,
    /// Seconds.
    Seconds,
    /// Microseconds, shown as µs, ms or s.
    Micros,
    /// Bytes, shown as kB, MB or GB (powers of 1000).
    Bytes,
    /// Shares from 0 to 1, shown in percent.
    Share,
    /// Quantiles from 0 to 1, drawn so that each nine takes the same room.
    Quantile,
}

impl Unit {
    /// The divisor and the name for an axis whose largest value is `largest`: it shows at least 2.
    pub(super) fn shown(self, largest: f64) -> (f64, &'static str) {
        self.fitting(largest / 2.0)
    }

    fn fitting(self, value: f64) -> (f64, &'static str) {
        let steps: &[(f64, &str)] = match self {
            Unit::Number | Unit::Quantile => &[(1.0, "")],
            Unit::Seconds => &[(1.0, "s")],
            Unit::Micros => &[(1.0, "µs"), (1e3, "ms"), (1e6, "s")],
            Unit::Bytes => &[(1.0, "bytes"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")],
            Unit::Share => &[(0.01, "%")],
        };
        let fitting = steps.iter().rev().find(|(divisor, _)| value >= divisor * 0.9999);
        *fitting.unwrap_or(&steps[0])
    }

    /// The value with its unit, for tables and tooltips.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        if self == Unit::Quantile {
            return quantile_text(value);
        }
        let (divisor, name) = self.fitting(value.abs());
        self.joined(&significant(value / divisor), name)
    }

    /// The value of a tick: as [`Unit::text`], without zeros that say nothing.
    fn tick_text(self, value: f64) -> String {
        let (divisor, name) = self.fitting(value.abs());
        let number = significant(value / divisor);
        let number = match number.contains('.') {
            true => number.trim_end_matches('0').trim_end_matches('.'),
            false => &number,
        };
        self.joined(number, name)
    }

    fn joined(self, number: &str, name: &str) -> String {
        match name {
            "" => number.to_owned(),
            name => format!("{number} {name}"),
        }
    }
}

/// A number with about three significant digits and thousands apart.
#[must_use]
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "?".to_owned() };
    }
    let decimals = 2 - value.abs().log10().floor() as i32;
    fixed(value, decimals.clamp(0, 12) as usize)
}

/// A number with so many decimals, thousands apart; beyond 10^15 by its power of ten.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    if value.abs() >= 1e15 {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.decimals$}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("−", rest),
        None => ("", text.as_str()),
    };
    let (whole, rest) = digits.split_once('.').map_or((digits, ""), |(whole, rest)| (whole, rest));
    let mut out = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    out
}

/// How an axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// By differences.
    Linear,
    /// By ratios.
    Log,
    /// By nines.
    Quantile,
}

/// A range, and where a value stands in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    course: Course,
}

impl Scale {
    /// The range that holds `values` (all fit to be drawn), widened to round numbers; from 0 where `from_zero`.
    pub(super) fn over(
        values: impl Iterator<Item = f64>,
        course: Course,
        from_zero: bool,
    ) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            let value = if course == Course::Quantile { nines(value) } else { value };
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if course == Course::Linear { (0.0, 1.0) } else { (1.0, 10.0) };
        }
        match course {
            Course::Linear => Scale::linear(low, high, from_zero),
            Course::Log => Scale::log(low, high),
            Course::Quantile => Scale { low: low.min(nines(0.5)), high: high.max(1.0), course },
        }
    }

    fn linear(mut low: f64, mut high: f64, from_zero: bool) -> Scale {
        if from_zero {
            low = low.min(0.0);
            high = high.max(0.0);
        }
        // One value, or values that floats cannot tell apart on a picture.
        let room = (low.abs().max(high.abs()) * 1e-9).max(f64::MIN_POSITIVE * 1e9);
        if high - low <= room {
            let half = if high == 0.0 { 1.0 } else { high.abs() * 0.5 };
            (low, high) = if from_zero { (low, high + half) } else { (low - half, high + half) };
        }
        let step = step_over(high - low);
        low = (low / step).floor() * step;
        high = (high / step).ceil() * step;
        Scale { low, high, course: Course::Linear }
    }

    fn log(low: f64, high: f64) -> Scale {
        let (mut from, mut to) = (round_down(low), round_up(high));
        if to <= from {
            (from, to) = (from / 10.0, to * 10.0);
        }
        if from <= 0.0 || !to.is_finite() {
            (from, to) = (low.max(f64::MIN_POSITIVE), high);
        }
        Scale { low: from, high: to, course: Course::Log }
    }

    /// The largest value.
    pub(super) fn high(&self) -> f64 {
        self.high
    }

    /// The place of `value`: 0 at the low end, 1 at the high end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self.course {
            Course::Linear => (value - self.low) / (self.high - self.low),
            Course::Log => {
                (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
            }
            Course::Quantile => (nines(value) - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    /// Values for ticks, ascending, with their texts for `unit` shown by `divisor`.
    pub(super) fn ticks(&self, unit: Unit, divisor: f64) -> Vec<(f64, String)> {
        match self.course {
            Course::Linear => {
                let step = step_over(self.high - self.low);
                let decimals = (-(step / divisor).log10().floor()).clamp(0.0, 12.0) as usize;
                let count = ((self.high - self.low) / step).round().min(20.0) as usize;
                let tick = |at: usize| self.low + at as f64 * step;
                (0..=count).map(|at| (tick(at), fixed(tick(at) / divisor, decimals))).collect()
            }
            Course::Log => {
                let values = log_ticks(self.low, self.high).into_iter();
                values.map(|value| (value, unit.tick_text(value))).collect()
            }
            Course::Quantile => {
                let known = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.999_99, 0.999_999];
                let within = known.into_iter().filter(|value| nines(*value) <= self.high + 1e-9);
                within.map(|value| (value, quantile_text(value))).collect()
            }
        }
    }
}

/// Whether the value can be drawn at all.
pub(super) fn is_drawable(value: f64) -> bool {
    value.is_finite() && value.abs() <= MAGNITUDE_MAX
}

/// How many nines a quantile has: 0.9 one, 0.99 two. Seven at most, which 1 gets.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile.clamp(0.0, 1.0)).max(1e-7).log10()
}

fn quantile_text(quantile: f64) -> String {
    let percent = format!("{:.5}", quantile * 100.0);
    format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// 1, 2 or 5 times a power of ten, so that five to ten of it make `span`.
fn step_over(span: f64) -> f64 {
    let raw = span / 6.0;
    let power = 10_f64.powf(raw.log10().floor());
    let factor = match raw / power {
        factor if factor <= 1.0 => 1.0,
        factor if factor <= 2.0 => 2.0,
        factor if factor <= 5.0 => 5.0,
        _ => 10.0,
    };
    factor * power
}

fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factors = [5.0, 2.0, 1.0];
    let fitting = factors.iter().find(|factor| **factor * power <= value * (1.0 + 1e-12));
    fitting.unwrap_or(&1.0) * power
}

fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factors = [1.0, 2.0, 5.0];
    let fitting = factors.iter().find(|factor| **factor * power >= value * (1.0 - 1e-12));
    fitting.unwrap_or(&10.0) * power
}

fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let every = (to - from).div_euclid(DECADES_MAX) + 1;
    let factors: &[f64] = match to - from {
        ..=3 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let mut ticks = Vec::new();
    for power in (from..=to).filter(|power| (power - from) % every == 0) {
        for factor in factors {
            let value = factor * 10_f64.powi(power);
            if value >= low * (1.0 - 1e-9) && value <= high * (1.0 + 1e-9) {
                ticks.push(value);
            }
        }
    }
    if ticks.is_empty() {
        // So close to the smallest float that no power of ten is left.
        ticks.extend([low, high]);
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale, unit: Unit) -> Vec<String> {
        let (divisor, _) = unit.shown(scale.high());
        scale.ticks(unit, divisor).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers_that_span_the_values() {
        let scale = Scale::over([3.0, 97.0].into_iter(), Course::Linear, true);
        assert_eq!(texts(&scale, Unit::Number), ["0", "20", "40", "60", "80", "100"]);
        let scale = Scale::over([0.0, 2_400_000_000.0].into_iter(), Course::Linear, true);
        assert_eq!(texts(&scale, Unit::Bytes), ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]);
        let scale = Scale::over([12_000.0].into_iter(), Course::Linear, true);
        assert_eq!(texts(&scale, Unit::Number).last().unwrap(), "12,000");
    }

    #[test]
    fn logarithmic_ticks_name_their_units() {
        let scale = Scale::over([30.0, 40_000.0].into_iter(), Course::Log, false);
        assert_eq!(texts(&scale, Unit::Micros), ["100 µs", "1 ms", "10 ms"]);
        let scale = Scale::over([3.0, 40.0].into_iter(), Course::Log, false);
        assert_eq!(texts(&scale, Unit::Number), ["2", "5", "10", "20", "50"]);
        assert!((scale.place(2.0), scale.place(50.0)) == (0.0, 1.0));
    }

    #[test]
    fn each_nine_takes_the_same_room() {
        let scale = Scale::over([0.5, 0.9999].into_iter(), Course::Quantile, false);
        assert_eq!(texts(&scale, Unit::Quantile), ["50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
        let steps = [scale.place(0.99) - scale.place(0.9), scale.place(0.999) - scale.place(0.99)];
        assert!((steps[0] - steps[1]).abs() < 1e-9, "{steps:?}");
    }

    #[test]
    fn huge_and_tiny_ranges_have_few_ticks() {
        for values in [
            vec![-1e300, 1e300],
            vec![1e9, 1e9 + 1e-7],
            vec![0.0],
            vec![-5.0],
            vec![],
            vec![5e-324, 1e-320],
        ] {
            let scale = Scale::over(values.iter().copied(), Course::Linear, false);
            let ticks = scale.ticks(Unit::Number, 1.0);
            assert!((2..=21).contains(&ticks.len()), "{values:?}: {ticks:?}");
            for value in values {
                assert!((0.0..=1.0).contains(&scale.place(value)));
            }
        }
        for values in [vec![1e-300, 1e300], vec![1e-9, 1e18], vec![7.0], vec![5e-324, 1e-320]] {
            let scale = Scale::over(values.iter().copied(), Course::Log, false);
            let ticks = scale.ticks(Unit::Number, 1.0);
            assert!((1..=21).contains(&ticks.len()), "{values:?}: {ticks:?}");
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(Unit::Micros.text(2_194.0), "2.19 ms");
        assert_eq!(Unit::Bytes.text(1_024_000_000.0), "1.02 GB");
        assert_eq!(Unit::Share.text(0.995), "99.5 %");
        assert_eq!(significant(1_234_567.0), "1,234,567");
        assert_eq!(significant(0.012_345), "0.0123");
        assert_eq!(significant(f64::NAN), "?");
        assert_eq!(fixed(-1_234.5, 1), "−1,234.5");
    }
}
