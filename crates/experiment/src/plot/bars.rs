//! Bars in groups, each with the range of its runs.

use super::PlotError;
use super::lines::{Axis, upright};
use super::scale::{Course, Scale, Unit, is_drawable};
use super::style::Look;
use super::svg::{Anchor, Svg, TEXT, legend_bottom, text_width};

const HEIGHT: f64 = 320.0;
const BAR_WIDTH_MAX: f64 = 84.0;

/// One bar: the middle of some runs and their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Its height.
    pub value: f64,
    /// The lowest of the runs.
    pub low: f64,
    /// The highest of the runs.
    pub high: f64,
}

/// Bars that stand together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What they have in common; `\n` breaks the line.
    pub label: String,
    /// A bar for each name of the plot, or none where there is no figure.
    pub bars: Vec<Option<Bar>>,
}

/// Bars in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct BarPlot {
    /// What is shown.
    pub title: String,
    /// What the bars' heights are of.
    pub label: String,
    /// In which unit.
    pub unit: Unit,
    /// The names of the bars of each group.
    pub names: Vec<String>,
    /// The groups from left to right.
    pub groups: Vec<Group>,
}

impl BarPlot {
    /// The plot as SVG.
    ///
    /// # Errors
    /// When a height cannot be drawn.
    pub fn render(&self) -> Result<String, PlotError> {
        let bars = || self.groups.iter().flat_map(|group| group.bars.iter().flatten());
        for group in &self.groups {
            for (at, bar) in group.bars.iter().enumerate() {
                let Some(bar) = bar else { continue };
                if ![bar.value, bar.low, bar.high].into_iter().all(is_drawable) {
                    return Err(PlotError::NotFinite { name: group.label.clone(), at });
                }
            }
        }
        let heights = bars().flat_map(|bar| [bar.value, bar.low, bar.high]);
        let scale = Scale::over(heights, Course::Linear, true);
        let entries: Vec<(String, Look)> =
            self.names.iter().enumerate().map(|(at, name)| (name.clone(), Look::nth(at))).collect();
        let top = legend_bottom(self.names.iter().map(String::as_str)) + 12.0;
        let lines = self.groups.iter().map(|group| group.label.split('\n').count()).max();
        let below = 16.0 + lines.unwrap_or(1) as f64 * 17.0;
        let mut svg = Svg::new(&self.title, top + HEIGHT + below);
        let tiles = slug(&self.title);
        hatch(&mut svg, &tiles, self.names.len());
        svg.legend(&entries, |svg, x, y, look| {
            bar(svg, &tiles, look, (x, y - 7.0, 30.0, 14.0), "key", "");
        });
        let axis = Axis::new(self.label.clone(), self.unit);
        let frame = upright(&mut svg, top, &axis, &scale);
        let room = (frame.right - frame.left) / self.groups.len().max(1) as f64;
        let width = (room * 0.8 / self.names.len().max(1) as f64).min(BAR_WIDTH_MAX);
        for (at, group) in self.groups.iter().enumerate() {
            let middle = frame.left + (at as f64 + 0.5) * room;
            let first = middle - width * group.bars.len() as f64 / 2.0;
            for (number, one) in group.bars.iter().enumerate() {
                let left = first + number as f64 * width;
                let name = self.names.get(number).map_or("", String::as_str);
                self.draw(&mut svg, &tiles, one.as_ref(), number, name, (left, width), |value| {
                    frame.place(0.0, scale.place(value)).1
                });
            }
            for (row, line) in group.label.split('\n').enumerate() {
                let y = frame.bottom + 20.0 + row as f64 * 17.0;
                svg.text(middle, y, Anchor::Middle, "#111", line);
            }
        }
        if bars().next().is_none() {
            let middle = (frame.left + frame.right) / 2.0;
            svg.text(middle, top + HEIGHT / 2.0, Anchor::Middle, "#555", "no figures");
        }
        svg.rule((frame.left, frame.bottom), (frame.right, frame.bottom), "#333", 1.2);
        Ok(svg.finish())
    }

    #[allow(clippy::too_many_arguments)]
    fn draw(
        &self,
        svg: &mut Svg,
        tiles: &str,
        one: Option<&Bar>,
        number: usize,
        name: &str,
        (left, width): (f64, f64),
        height: impl Fn(f64) -> f64,
    ) {
        let middle = left + width / 2.0;
        let Some(one) = one else {
            svg.text(middle, height(0.0) - 6.0, Anchor::Middle, "#555", "–");
            return;
        };
        let (top, bottom) = (height(one.value.max(0.0)), height(one.value.min(0.0)));
        let text = self.unit.text(one.value);
        let tip =
            format!("{name}: {text} ({} to {})", self.unit.text(one.low), self.unit.text(one.high));
        let inner = (left + width * 0.06, top, width * 0.88, (bottom - top).max(0.5));
        bar(svg, tiles, Look::nth(number), inner, "bar", &tip);
        if one.low < one.high {
            let (low, high) = (height(one.low), height(one.high));
            svg.rule((middle, low), (middle, high), "#111", 1.4);
            for end in [low, high] {
                svg.rule((middle - 5.0, end), (middle + 5.0, end), "#111", 1.4);
            }
        }
        let above = height(one.high.max(one.value)) - 6.0;
        // A number wider than its bar would run into its neighbour's.
        if text_width(&text) <= width + TEXT {
            svg.text(middle, above, Anchor::Middle, "#111", &text);
        }
    }
}

/// Defines the hatchings; a page may hold several plots, so their names carry the plot's.
fn hatch(svg: &mut Svg, tiles: &str, count: usize) {
    svg.raw("<defs>");
    for at in 0..count {
        let look = Look::nth(at);
        let (colour, path) = (look.colour(), look.hatching());
        let base = if path.is_empty() { 1.0 } else { 0.25 };
        svg.raw(&format!(
            "<pattern id=\"{tiles}-{at}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
             <rect width=\"8\" height=\"8\" fill=\"#fff\"/>\
             <rect width=\"8\" height=\"8\" fill=\"{colour}\" fill-opacity=\"{base}\"/>\
             <path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"2\"/></pattern>"
        ));
    }
    svg.raw("</defs>");
}

fn bar(
    svg: &mut Svg,
    tiles: &str,
    look: Look,
    (x, y, width, height): (f64, f64, f64, f64),
    class: &str,
    tip: &str,
) {
    let (at, colour) = (look.pattern, look.colour());
    let tip = match tip {
        "" => String::new(),
        tip => format!("<title>{}</title>", lepus_svg::escape(tip)),
    };
    svg.raw(&format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"url(#{tiles}-{at})\" stroke=\"{colour}\" stroke-width=\"1.4\">{tip}</rect>"
    ));
}

/// A name for markup made of a title.
fn slug(title: &str) -> String {
    let letters = title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    format!("t-{}", letters.collect::<String>().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(groups: Vec<Group>) -> BarPlot {
        BarPlot {
            title: "rate".to_owned(),
            label: "messages per second".to_owned(),
            unit: Unit::Number,
            names: vec!["a".to_owned(), "b".to_owned()],
            groups,
        }
    }

    fn bar_of(value: f64) -> Option<Bar> {
        Some(Bar { value, low: value * 0.9, high: value * 1.1 })
    }

    #[test]
    fn every_bar_has_its_height_its_range_and_its_number() {
        let group = |label: &str, bars| Group { label: label.to_owned(), bars };
        let svg = plot(vec![
            group("1 core", vec![bar_of(50_000.0), bar_of(100_000.0)]),
            group("2 cores\nshared", vec![bar_of(75_000.0), None]),
        ])
        .render()
        .unwrap();
        assert_eq!(svg.matches("class=\"bar\"").count(), 3);
        assert_eq!(svg.matches("<pattern").count(), 2);
        for text in [">100,000<", ">50,000<", ">1 core<", ">2 cores<", ">shared<", ">–<", ">b<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(svg.contains("b: 100,000 (90,000 to 110,000)"), "{svg}");
        let heights: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("class=\"bar\""))
            .map(|line| line.split("height=\"").nth(1).unwrap().split('"').next().unwrap())
            .map(|height| height.parse().unwrap())
            .collect();
        assert!((heights[1] / heights[0] - 2.0).abs() < 0.01, "{heights:?}");
    }

    #[test]
    fn nothing_is_drawn_as_nothing_and_no_number_is_refused() {
        let svg = plot(Vec::new()).render().unwrap();
        assert!(svg.contains(">no figures<"));
        let group = Group { label: "g".to_owned(), bars: vec![None, bar_of(f64::NAN)] };
        let error = plot(vec![group]).render().unwrap_err();
        assert_eq!(error, PlotError::NotFinite { name: "g".to_owned(), at: 1 });
    }
}
