//! The page: one file that fetches nothing.

use super::{Report, Table};
use lepus_svg::escape;

/// A part of the page.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A plot as SVG.
    Plot(String),
    /// A table.
    Table(Table),
}

/// What an experiment has to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// What was seen, in sentences.
    pub seen: Vec<String>,
    /// The parts of the page, in their order.
    pub blocks: Vec<Block>,
}

impl Content {
    /// The plots in their order.
    pub fn plots(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Plot(svg) => Some(svg.as_str()),
            _ => None,
        })
    }
}

const STYLE: &str = "
body { font: 16px/1.5 system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif; color: #111; background: #fff;
  max-width: 860px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin-bottom: .4rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.asked { color: #444; } .seen li { margin: .35rem 0; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
th { font-weight: 600; border-bottom-color: #888; } td { font-variant-numeric: tabular-nums; }
.about th { border-bottom-color: #ddd; white-space: nowrap; } .about td { overflow-wrap: anywhere; }
.fault { border-left: 4px solid #d55e00; padding-left: .8rem; }
@media print { body { max-width: none; margin: 0; font-size: 11pt; } figure, tr { break-inside: avoid; } }
";

impl Report<'_> {
    /// The page.
    #[must_use]
    pub(super) fn page(&self) -> String {
        let Report { asks, who, content, about, .. } = self;
        let title = escape(self.title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p class=\"asked\">{}</p>\n<h2>What was seen</h2>\n<ul class=\"seen\">\n",
            escape(asks)
        );
        for line in &content.seen {
            out.push_str(&format!("<li>{}</li>\n", escape(line)));
        }
        out.push_str("</ul>\n");
        if self.stopped {
            out.push_str(
                "<p class=\"fault\">Ended early: what was measured until then stands here.</p>\n",
            );
        }
        for fault in self.faults {
            out.push_str(&format!("<p class=\"fault\">Not measured: {}</p>\n", escape(fault)));
        }
        for block in who.iter().chain(&content.blocks) {
            match block {
                Block::Heading(text) => out.push_str(&format!("<h2>{}</h2>\n", escape(text))),
                Block::Text(text) => out.push_str(&format!("<p>{}</p>\n", escape(text))),
                Block::Plot(svg) => out.push_str(&format!("<figure>\n{svg}</figure>\n")),
                Block::Table(table) => write_table(&mut out, table),
            }
        }
        out.push_str("<h2>How it came about</h2>\n<div class=\"scroll\"><table class=\"about\">\n");
        for (name, value) in *about {
            let (name, value) = (escape(name), escape(value));
            out.push_str(&format!("<tr><th>{name}</th><td>{value}</td></tr>\n"));
        }
        out.push_str("</table></div>\n</body>\n</html>\n");
        out
    }
}

fn write_table(out: &mut String, table: &Table) {
    out.push_str("<div class=\"scroll\"><table>\n<tr>");
    for cell in &table.head {
        out.push_str(&format!("<th>{}</th>", escape(cell)));
    }
    out.push_str("</tr>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for cell in row {
            out.push_str(&format!("<td>{}</td>", escape(cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_everything_and_fetches_nothing() {
        let content = Content {
            seen: vec!["a < b".to_owned()],
            blocks: vec![
                Block::Heading("h".to_owned()),
                Block::Plot("<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>".to_owned()),
                Block::Table(Table {
                    head: vec!["x".to_owned()],
                    rows: vec![vec!["1 & 2".to_owned()]],
                }),
            ],
        };
        let about = [("command".to_owned(), "lepus experiment x".to_owned())];
        let report = Report {
            title: "t",
            asks: "why?",
            who: &[Block::Text("me".to_owned())],
            content: &content,
            about: &about,
            faults: &["<b>".to_owned()],
            stopped: true,
            result: serde_json::Value::Null,
        };
        let html = report.page();
        for part in [
            "<li>a &lt; b</li>",
            "<p>me</p>",
            "<svg",
            "<td>1 &amp; 2</td>",
            "Not measured: &lt;b&gt;",
            "Ended early",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let names = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!names.contains("http") && !names.contains("src=") && !names.contains("<script"));
        assert_eq!(content.plots().count(), 1);
    }
}
