//! Pictures as SVG, written part by part: pure functions from figures to text.
//!
//! Nothing is fetched and nothing runs in a picture. Lengths are in the picture's own units and are written to a hundredth.
#![forbid(unsafe_code)]

use std::fmt;

/// A picture that is being written.
#[derive(Clone, Debug)]
pub struct Svg {
    text: String,
}

impl Svg {
    /// Begins a picture on white. `attributes` of its root, such as fonts, are markup already.
    #[must_use]
    pub fn new((width, height): (f64, f64), attributes: &str) -> Svg {
        let (width, height) = (Length(width), Length(height));
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" {attributes}>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        Svg { text }
    }

    /// Adds markup that is right already, as a line.
    pub fn raw(&mut self, markup: &str) {
        self.text.push_str(markup);
        self.text.push('\n');
    }

    /// Adds a rectangle with its upper left corner at `x` and `y`. `attributes` are markup already.
    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), attributes: &str) {
        let (x, y, width, height) = (Length(x), Length(y), Length(width), Length(height));
        self.raw(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {attributes}/>"
        ));
    }

    /// Adds a text whose base line begins at `x` and `y`, escaped. `attributes` are markup already.
    pub fn text(&mut self, (x, y): (f64, f64), attributes: &str, text: &str) {
        let (x, y, text) = (Length(x), Length(y), escape(text));
        self.raw(&format!("<text x=\"{x}\" y=\"{y}\" {attributes}>{text}</text>"));
    }

    /// Begins a group that shows `tip` when the pointer rests on it; [`Svg::end_group`] ends it.
    pub fn begin_group(&mut self, tip: &str) {
        self.raw(&format!("<g><title>{}</title>", escape(tip)));
    }

    /// Ends the group that was begun last.
    pub fn end_group(&mut self) {
        self.raw("</g>");
    }

    /// The whole picture.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// A length as it is written: to a hundredth, without zeros at its end.
struct Length(f64);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (self.0 * 100.0).round() / 100.0)
    }
}

/// Text as it may stand in markup, in attributes, too.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Not allowed in XML in any form, or not seen.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_strange_is_escaped() {
        assert_eq!(escape("a<b>&\"\u{7}\n"), "a&lt;b&gt;&amp;&quot;\u{fffd}\n");
    }

    #[test]
    fn a_picture_is_written_in_its_order() {
        let mut svg = Svg::new((100.0, 50.5), "font-size=\"9\"");
        svg.begin_group("a & b");
        svg.rectangle((1.0, 2.004), (3.333, 4.0), "fill=\"red\"");
        svg.end_group();
        svg.text((0.1 + 0.2, 7.0), "class=\"x\"", "<");
        let expected = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 100 50.5\" font-size=\"9\">\n\
            <rect width=\"100\" height=\"50.5\" fill=\"#ffffff\"/>\n\
            <g><title>a &amp; b</title>\n\
            <rect x=\"1\" y=\"2\" width=\"3.33\" height=\"4\" fill=\"red\"/>\n\
            </g>\n\
            <text x=\"0.3\" y=\"7\" class=\"x\">&lt;</text>\n</svg>\n";
        assert_eq!(svg.finish(), expected);
    }
}
