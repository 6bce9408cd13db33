//! Lines over an axis: figures over time, by rate, by percentile.

use super::PlotError;
use super::scale::{Course, Scale, Unit, is_drawable};
use super::style::Look;
use super::svg::{Anchor, Svg, WIDTH, legend_bottom, text_width};
use std::fmt::Write;

const HEIGHT: f64 = 320.0;
const BELOW: f64 = 48.0;
const RIGHT: f64 = 26.0;
/// How far a text under the plot stays from the right edge of the picture.
const EDGE: f64 = 6.0;
/// Lines with more points get a marker on some of them only.
const MARKERS_MAX: usize = 14;

/// One axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What its numbers are of; the unit is added.
    pub label: String,
    /// Their unit.
    pub unit: Unit,
    /// Whether equal ratios take equal room; all values must be above 0 then.
    pub log: bool,
    /// Whether the axis begins at 0 (not for logarithmic ones).
    pub from_zero: bool,
}

impl Axis {
    /// A linear axis from 0.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, log: false, from_zero: true }
    }

    /// The same with equal room for equal ratios.
    #[must_use]
    pub fn log(self) -> Axis {
        Axis { log: true, ..self }
    }

    fn course(&self) -> Course {
        match (self.unit, self.log) {
            (Unit::Quantile, _) => Course::Quantile,
            (_, true) => Course::Log,
            (_, false) => Course::Linear,
        }
    }

    fn title(&self, scale: &Scale) -> (f64, String) {
        let (divisor, name) = self.unit.shown(scale.high());
        match (name, self.course()) {
            ("", _) | (_, Course::Log | Course::Quantile) => (divisor, self.label.clone()),
            (name, _) => (divisor, format!("{} ({name})", self.label)),
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is told apart.
    pub look: Look,
    /// Its points in the order in which they are joined, in the axes' units.
    pub points: Vec<(f64, f64)>,
}

/// Lines over an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct LinePlot {
    /// What is shown.
    pub title: String,
    /// The axis across.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// The lines; those without points are named in the legend as such.
    pub series: Vec<Series>,
}

impl LinePlot {
    /// The plot as SVG.
    ///
    /// # Errors
    /// When a point cannot be drawn.
    pub fn render(&self) -> Result<String, PlotError> {
        for series in &self.series {
            check(series, &self.x, &self.y)?;
        }
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let x = Scale::over(points().map(|point| point.0), self.x.course(), self.x.from_zero);
        let y = Scale::over(points().map(|point| point.1), self.y.course(), self.y.from_zero);
        let entries: Vec<(String, Look)> =
            self.series.iter().map(|series| (legend_name(series), series.look)).collect();
        let top = legend_bottom(entries.iter().map(|(name, _)| name.as_str())) + 8.0;
        let height = top + HEIGHT + BELOW;
        let mut svg = Svg::new(&self.title, height);
        svg.legend(&entries, |svg, x, y, look| {
            svg.raw(&path(&[(x, y), (x + 30.0, y)], look, "key"));
            svg.marker(x + 15.0, y, look, "");
        });
        let frame = frame(&mut svg, top, &self.x, &self.y, &x, &y);
        if points().next().is_none() {
            let middle = (frame.left + frame.right) / 2.0;
            svg.text(middle, (top + frame.bottom) / 2.0, Anchor::Middle, "#555", "no figures");
        }
        for (at, series) in self.series.iter().enumerate() {
            let places: Vec<(f64, f64)> = series
                .points
                .iter()
                .map(|point| frame.place(x.place(point.0), y.place(point.1)))
                .collect();
            svg.raw("<g class=\"series\">");
            if places.len() > 1 {
                svg.raw(&path(&places, series.look, "line"));
            }
            self.mark(&mut svg, at, &places);
            svg.raw("</g>");
        }
        Ok(svg.finish())
    }

    /// Sets markers, on different points for different lines so that they lie beside each other.
    fn mark(&self, svg: &mut Svg, at: usize, places: &[(f64, f64)]) {
        let series = &self.series[at];
        let every = places.len().div_ceil(MARKERS_MAX).max(1);
        let first = at * every.div_ceil(self.series.len().max(1)) % every;
        for (number, place) in places.iter().enumerate().skip(first).step_by(every) {
            let (x, y) = series.points[number];
            let tip =
                format!("{}: {} at {}", series.name, self.y.unit.text(y), self.x.unit.text(x));
            svg.marker(place.0, place.1, series.look, &tip);
        }
    }
}

fn legend_name(series: &Series) -> String {
    match series.points.is_empty() {
        true => format!("{} (no figures)", series.name),
        false => series.name.clone(),
    }
}

fn check(series: &Series, x: &Axis, y: &Axis) -> Result<(), PlotError> {
    for (at, point) in series.points.iter().enumerate() {
        for (value, axis) in [(point.0, x), (point.1, y)] {
            if !is_drawable(value) {
                return Err(PlotError::NotFinite { name: series.name.clone(), at });
            }
            if axis.course() == Course::Log && value <= 0.0 {
                return Err(PlotError::NotPositive { name: series.name.clone(), at });
            }
        }
    }
    Ok(())
}

/// The rectangle of the plot.
pub(super) struct Frame {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Frame {
    pub(super) fn place(&self, x: f64, y: f64) -> (f64, f64) {
        (self.left + x * (self.right - self.left), self.bottom - y * (self.bottom - self.top))
    }
}

/// Draws the axis upwards with its grid, and says where the plot lies.
pub(super) fn upright(svg: &mut Svg, top: f64, y: &Axis, scale: &Scale) -> Frame {
    let (divisor, title) = y.title(scale);
    let ticks = scale.ticks(y.unit, divisor);
    let widest = ticks.iter().map(|(_, text)| text_width(text)).fold(0.0, f64::max);
    let frame = Frame { left: 44.0 + widest, right: WIDTH - RIGHT, top, bottom: top + HEIGHT };
    for (value, text) in &ticks {
        let (_, at) = frame.place(0.0, scale.place(*value));
        svg.rule((frame.left, at), (frame.right, at), "#dddddd", 1.0);
        svg.text(frame.left - 8.0, at + 4.5, Anchor::End, "#333", text);
    }
    svg.upward_text(20.0, (frame.top + frame.bottom) / 2.0, &title);
    svg.rule((frame.left, frame.top), (frame.left, frame.bottom), "#333", 1.2);
    frame
}

fn frame(svg: &mut Svg, top: f64, x: &Axis, y: &Axis, xs: &Scale, ys: &Scale) -> Frame {
    let frame = upright(svg, top, y, ys);
    let (divisor, title) = x.title(xs);
    let mut free_from = f64::NEG_INFINITY;
    for (value, text) in xs.ticks(x.unit, divisor) {
        let (at, _) = frame.place(xs.place(value), 0.0);
        svg.rule((at, frame.bottom), (at, frame.bottom + 5.0), "#333", 1.2);
        let half = text_width(&text) / 2.0;
        // The last number may be wider than the room right of its tick: it stays inside the picture.
        let at = at.min(WIDTH - EDGE - half);
        // A text that would touch the one before is left out; its tick stays.
        if at - half >= free_from {
            svg.text(at, frame.bottom + 19.0, Anchor::Middle, "#333", &text);
            free_from = at + half + 6.0;
        }
    }
    let middle = (frame.left + frame.right) / 2.0;
    svg.text(middle, frame.bottom + 39.0, Anchor::Middle, "#333", &title);
    svg.rule((frame.left, frame.bottom), (frame.right, frame.bottom), "#333", 1.2);
    frame
}

fn path(places: &[(f64, f64)], look: Look, class: &str) -> String {
    let mut data = String::new();
    for (at, (x, y)) in places.iter().enumerate() {
        let _ = write!(data, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
    }
    let (colour, dashes) = (look.colour(), look.dashes());
    format!(
        "<path class=\"{class}\" d=\"{data}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
         stroke-linejoin=\"round\" stroke-dasharray=\"{}\"/>",
        if dashes.is_empty() { "none" } else { dashes }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(series: &[&[(f64, f64)]]) -> LinePlot {
        let series = series.iter().enumerate().map(|(at, points)| Series {
            name: format!("line {at}"),
            look: Look::nth(at),
            points: points.to_vec(),
        });
        LinePlot {
            title: "a <title> & more".to_owned(),
            x: Axis::new("time", Unit::Seconds),
            y: Axis::new("written", Unit::Bytes),
            series: series.collect(),
        }
    }

    fn count(svg: &str, part: &str) -> usize {
        svg.matches(part).count()
    }

    #[test]
    fn every_line_has_its_path_its_markers_and_its_place_in_the_legend() {
        let svg = plot(&[&[(0.0, 0.0), (1.0, 2e6)], &[(0.0, 1e6), (2.0, 3e6)]]).render().unwrap();
        assert_eq!(count(&svg, "class=\"line\""), 2);
        assert_eq!(count(&svg, "class=\"key\""), 2);
        assert_eq!(count(&svg, "class=\"mark\""), 6, "two in the legend, four on points");
        for text in [">line 0<", ">line 1<", ">written (MB)<", ">time (s)<", ">3.0<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(svg.contains("a &lt;title&gt; &amp; more") && !svg.contains("<title> &"));
        assert_eq!(count(&svg, "<svg"), count(&svg, "</svg>"));
        let dashes: Vec<_> = svg.lines().filter(|line| line.contains("class=\"line\"")).collect();
        assert!(dashes[0].contains("\"none\"/") && dashes[1].contains("\"8 4\""), "{dashes:?}");
    }

    #[test]
    fn points_stand_where_their_values_are() {
        let svg = plot(&[&[(0.0, 0.0), (10.0, 1e6)]]).render().unwrap();
        let line = svg.lines().find(|line| line.contains("class=\"line\"")).unwrap();
        let data = line.split("d=\"M").nth(1).unwrap().split('"').next().unwrap();
        let ends: Vec<Vec<f64>> = data
            .split('L')
            .map(|place| place.split(' ').map(|n| n.parse().unwrap()).collect())
            .collect();
        let width = ends[1][0] - ends[0][0];
        assert!(width > 500.0, "the line spans the plot: {ends:?}");
        assert!((ends[0][1] - ends[1][1] - HEIGHT).abs() < 0.2, "from the bottom to the top");
    }

    #[test]
    fn a_wide_number_under_the_last_tick_stays_inside_the_picture() {
        let mut plot = plot(&[&[(100.0, 0.0), (1e6, 1e6)]]);
        plot.x = Axis::new("offered", Unit::Number).log();
        let svg = plot.render().unwrap();
        let text = svg.lines().find(|line| line.ends_with(">1,000,000</text>")).expect("the tick");
        let x: f64 = text.split('"').nth(1).unwrap().parse().unwrap();
        assert!(x + text_width("1,000,000") / 2.0 <= WIDTH, "{text}");
        assert!(x < WIDTH - RIGHT, "moved to the left of its tick: {text}");
    }

    #[test]
    fn nothing_and_one_point_are_shown_as_what_they_are() {
        let svg = plot(&[]).render().unwrap();
        assert!(svg.contains(">no figures<"));
        let svg = plot(&[&[], &[(1.0, 1.0)]]).render().unwrap();
        assert!(svg.contains(">line 0 (no figures)<"));
        assert_eq!(count(&svg, "class=\"line\""), 0);
        assert_eq!(count(&svg, "class=\"mark\""), 3);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bad in [f64::NAN, f64::INFINITY, 1e301] {
            let error = plot(&[&[(0.0, 0.0)], &[(0.0, 0.0), (1.0, bad)]]).render().unwrap_err();
            assert_eq!(error, PlotError::NotFinite { name: "line 1".to_owned(), at: 1 });
        }
        let mut log = plot(&[&[(1.0, 0.0)]]);
        log.y = log.y.log();
        let error = log.render().unwrap_err();
        assert_eq!(error, PlotError::NotPositive { name: "line 0".to_owned(), at: 0 });
        assert!(error.to_string().contains("point 0 of 'line 0'"));
    }

    #[test]
    fn huge_ranges_and_many_points_are_drawn() {
        let svg = plot(&[&[(-1e300, -1e300), (1e300, 1e300)]]).render().unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let many: Vec<(f64, f64)> = (0..1_000).map(|at| (f64::from(at), f64::from(at))).collect();
        let svg = plot(&[&many]).render().unwrap();
        assert!(count(&svg, "class=\"mark\"") <= MARKERS_MAX + 1);
    }
}
