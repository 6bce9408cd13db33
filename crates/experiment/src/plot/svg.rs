//! What all plots have: a title, a legend, axes' texts and lines.

use super::style::Look;
use lepus_svg::escape;

/// Width of every plot in its own units; the page scales it.
pub(super) const WIDTH: f64 = 760.0;
/// Size of most text.
pub(super) const TEXT: f64 = 13.0;
const TITLE: f64 = 15.0;
const FONTS: &str = "system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif";
/// Width of a letter in text sizes, on the safe side for the fonts above.
const LETTER: f64 = 0.56;
const LEGEND_ROW: f64 = 20.0;
const SWATCH: f64 = 38.0;

/// Where text is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// A plot that is being written.
pub(super) struct Svg {
    svg: lepus_svg::Svg,
}

impl Svg {
    /// Begins a picture with its title.
    pub(super) fn new(title: &str, height: f64) -> Svg {
        let root = format!(
            "role=\"img\" aria-label=\"{}\" font-family=\"{FONTS}\" font-size=\"{TEXT}\"",
            escape(title)
        );
        let mut svg = lepus_svg::Svg::new((WIDTH, height.round()), &root);
        let head = format!("font-size=\"{TITLE}\" font-weight=\"600\" fill=\"#111\"");
        svg.text((12.0, 22.0), &head, title);
        Svg { svg }
    }

    /// Adds markup that is right already.
    pub(super) fn raw(&mut self, markup: &str) {
        self.svg.raw(markup);
    }

    /// Adds a text.
    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, colour: &str, text: &str) {
        let look = format!("text-anchor=\"{}\" fill=\"{colour}\"", anchor.name());
        self.svg.text((x, y), &look, text);
    }

    /// Adds a text that runs upwards beside an axis.
    pub(super) fn upward_text(&mut self, x: f64, y: f64, text: &str) {
        let text = escape(text);
        self.raw(&format!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\" \
             fill=\"#333\">{text}</text>"
        ));
    }

    /// Adds a straight line.
    pub(super) fn rule(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        self.raw(&format!(
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\" fill=\"none\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// Adds a line's marker.
    pub(super) fn marker(&mut self, x: f64, y: f64, look: Look, tip: &str) {
        let ((path, filled), colour) = (look.marker(), look.colour());
        let fill = if filled { colour } else { "#fff" };
        let tip = match tip {
            "" => String::new(),
            tip => format!("<title>{}</title>", escape(tip)),
        };
        self.raw(&format!(
            "<path class=\"mark\" transform=\"translate({x:.1} {y:.1})\" d=\"{path}\" fill=\"{fill}\" \
             stroke=\"{colour}\" stroke-width=\"1.6\">{tip}</path>"
        ));
    }

    /// Adds the legend below the title and returns how far down it reaches.
    pub(super) fn legend(
        &mut self,
        entries: &[(String, Look)],
        swatch: impl Fn(&mut Svg, f64, f64, Look),
    ) -> f64 {
        for (x, y, at) in legend_places(entries.iter().map(|(name, _)| name.as_str())) {
            let (name, look) = &entries[at];
            swatch(self, x, y, *look);
            self.text(x + SWATCH, y + 4.5, Anchor::Start, "#111", name);
        }
        legend_bottom(entries.iter().map(|(name, _)| name.as_str()))
    }

    /// The whole picture.
    pub(super) fn finish(self) -> String {
        self.svg.finish()
    }
}

/// How far down a legend with these names reaches.
pub(super) fn legend_bottom<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    legend_places(names).last().map_or(32.0, |(_, y, _)| y + LEGEND_ROW * 0.6)
}

fn legend_places<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(f64, f64, usize)> {
    let names: Vec<&str> = names.collect();
    let longest = names.iter().map(|name| text_width(name)).fold(0.0, f64::max);
    let room = WIDTH - 24.0;
    // Columns where several fit, so that names stand below each other.
    let columns = ((room / (longest + SWATCH + 22.0)).floor() as usize).clamp(1, 4);
    let column = room / columns as f64;
    let place = |at: usize| {
        let (row, column_at) = (at / columns, at % columns);
        (12.0 + column_at as f64 * column, 44.0 + row as f64 * LEGEND_ROW, at)
    };
    (0..names.len()).map(place).collect()
}

/// About how wide a text is.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT * LETTER
}
