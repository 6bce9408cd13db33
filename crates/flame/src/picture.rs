//! Flame graphs as SVG: a pure function from a tree to text.
//!
//! Every function is a box, as wide as its share of the ticks, beside its siblings and on its caller.
//! Nothing is fetched and nothing runs in the picture; the full name, share and ticks of a box show
//! when the pointer rests on it. Boxes have borders, so that they can be told apart in print.

use std::fmt::Write;

use crate::names::tail;
use crate::tree::Tree;

/// Which way the stacks grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Upwards, from the caller below to the functions it called: by accumulated time.
    Up,
    /// Downwards, from what ran to its callers: by own time.
    Down,
}

/// A flame graph.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// What stands above it.
    pub title: &'a str,
    /// The line below the title.
    pub note: &'a str,
    /// Which way it grows.
    pub direction: Direction,
    /// Levels that are drawn; deeper ones are left out.
    pub levels_max: usize,
}

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 18.0;
const HEAD: f64 = 58.0;
const FOOT: f64 = 34.0;
/// Narrower boxes are left out: they could not be seen.
const BOX_MIN: f64 = 0.4;
/// Width of a character of the text in boxes, and of the smallest text that says something.
const CHARACTER: f64 = 6.3;
const TEXT_MIN: f64 = 3.0 * CHARACTER;

/// Names and colours of what functions belong to; the last one takes the rest.
const KINDS: [(&str, &str); 9] = [
    ("phase", "#e3e3e3"),
    ("kernel", "#cdb8e6"),
    ("broker", "#f7b56f"),
    ("amqp", "#fbe183"),
    ("store", "#a5d59a"),
    ("shard, reactor, mesh", "#9ecbee"),
    ("Rust's library", "#d9d2c2"),
    ("other lepus", "#bfe3dd"),
    ("other", "#efb9b0"),
];

fn kind(name: &str) -> usize {
    let name = name.trim_start_matches('<');
    let starts = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    if name.starts_with("[kernel") {
        1
    } else if name.starts_with('[') {
        if name.contains(".so") || name.contains("vdso") { 8 } else { 0 }
    } else if starts(&["lepus_broker::", "lepus_directory::", "lepus_queue::"]) {
        2
    } else if starts(&["lepus_amqp::"]) {
        3
    } else if starts(&["lepus_store::"]) {
        4
    } else if starts(&["lepus_shard::", "lepus_reactor::", "lepus_mesh::", "mio::"]) {
        5
    } else if starts(&["std::", "core::", "alloc::", "hashbrown::"]) {
        6
    } else if starts(&["lepus_"]) {
        7
    } else {
        8
    }
}

/// Where a function stands: shares of the whole width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) level: usize,
    pub(crate) left: f64,
    pub(crate) width: f64,
}

/// The places of all functions down to a level: what a function called stands beside each other from
/// its left edge on, and what is left of its width at the right is its own time.
pub(crate) fn layout(tree: &Tree, levels_max: usize) -> Vec<Place> {
    let whole = tree.total().max(1) as f64;
    let mut places = Vec::new();
    let mut open = vec![Place { node: 0, level: 0, left: 0.0, width: 1.0 }];
    while let Some(place) = open.pop() {
        places.push(place);
        if place.level + 1 >= levels_max {
            continue;
        }
        let mut left = place.left;
        for child in &tree.nodes()[place.node].children {
            let width = tree.nodes()[*child].total as f64 / whole;
            open.push(Place { node: *child, level: place.level + 1, left, width });
            left += width;
        }
    }
    places
}

impl Picture<'_> {
    /// The picture of a tree.
    #[must_use]
    pub fn svg(&self, tree: &Tree) -> String {
        let inner = WIDTH - 2.0 * MARGIN;
        let mut places = layout(tree, self.levels_max);
        places.retain(|place| place.width * inner >= BOX_MIN);
        places.sort_by(|a, b| a.level.cmp(&b.level).then_with(|| a.left.total_cmp(&b.left)));
        let levels = places.iter().map(|place| place.level + 1).max().unwrap_or(1);
        let height = HEAD + levels as f64 * ROW + FOOT;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"{MARGIN}\" y=\"24\" font-size=\"17\">{}</text>\n\
             <text x=\"{MARGIN}\" y=\"43\" fill=\"#444444\">{}</text>\n",
            escape(self.title),
            escape(self.title),
            escape(self.note)
        );
        for place in &places {
            let row = match self.direction {
                Direction::Up => levels - 1 - place.level,
                Direction::Down => place.level,
            };
            let y = HEAD + row as f64 * ROW;
            self.draw(&mut out, tree, place, y);
        }
        let is_shown = |at: usize| {
            let names = places.iter().filter(|place| place.level > 0);
            names.into_iter().any(|place| kind(&tree.nodes()[place.node].name) == at)
        };
        legend(&mut out, height - 12.0, is_shown);
        out.push_str("</svg>\n");
        out
    }

    fn draw(&self, out: &mut String, tree: &Tree, place: &Place, y: f64) {
        let inner = WIDTH - 2.0 * MARGIN;
        let node = &tree.nodes()[place.node];
        let (x, width) = (MARGIN + place.left * inner, place.width * inner);
        let fill = if place.level == 0 { "#f4f4f4" } else { KINDS[kind(&node.name)].1 };
        let share = 100.0 * place.width;
        let own = 100.0 * node.own as f64 / tree.total().max(1) as f64;
        let own = match self.direction {
            Direction::Up => format!(", own {own:.2} %"),
            Direction::Down => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<g><title>{}: {share:.2} %{own}, {} samples</title><rect class=\"bar\" x=\"{x:.2}\" y=\"{y}\" \
             width=\"{width:.2}\" height=\"{ROW}\" fill=\"{fill}\" stroke=\"#ffffff\" \
             stroke-width=\"0.7\"/><rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" \
             height=\"{ROW}\" fill=\"none\" stroke=\"#777777\" stroke-width=\"0.3\"/>{}</g>",
            escape(&node.name),
            node.total,
            text(&node.name, x, y, width)
        );
    }
}

/// As much of the name as fits: the whole, or its end, or the beginning of that.
fn text(name: &str, x: f64, y: f64, width: f64) -> String {
    let room = width - 6.0;
    if room < TEXT_MIN {
        return String::new();
    }
    let fits = (room / CHARACTER) as usize;
    let length = |name: &str| name.chars().count();
    let shown = if length(name) <= fits {
        name.to_owned()
    } else if length(tail(name)) <= fits {
        tail(name).to_owned()
    } else {
        tail(name).chars().take(fits - 1).chain(['…']).collect()
    };
    format!("<text x=\"{:.2}\" y=\"{}\">{}</text>", x + 3.0, y + 12.5, escape(&shown))
}

fn legend(out: &mut String, y: f64, is_shown: impl Fn(usize) -> bool) {
    let mut x = MARGIN;
    for (_, (name, colour)) in KINDS.iter().enumerate().filter(|(at, _)| is_shown(*at)) {
        let _ = writeln!(
            out,
            "<rect class=\"key\" x=\"{x}\" y=\"{}\" width=\"11\" height=\"11\" fill=\"{colour}\" \
             stroke=\"#777777\" stroke-width=\"0.5\"/><text x=\"{}\" y=\"{y}\">{name}</text>",
            y - 9.5,
            x + 16.0
        );
        x += 34.0 + name.chars().count() as f64 * CHARACTER;
    }
}

/// Text as it may stand in SVG.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Scope, tests::named};

    const PICTURE: Picture<'static> = Picture {
        title: "By accumulated time: all threads",
        note: "160 samples",
        direction: Direction::Up,
        levels_max: 60,
    };

    #[test]
    fn widths_add_up_and_boxes_stand_on_their_callers() {
        let tree = named().tree(Scope::Sum);
        let places = layout(&tree, 60);
        assert_eq!(places.len(), tree.nodes().len());
        let place = |node: usize| places.iter().find(|place| place.node == node).unwrap();
        for above in &places {
            let node = &tree.nodes()[above.node];
            let share = node.total as f64 / tree.total() as f64;
            assert!((above.width - share).abs() < 1e-9, "{node:?}");
            let mut left = above.left;
            for child in &node.children {
                let child = place(*child);
                assert_eq!(child.level, above.level + 1);
                assert!((child.left - left).abs() < 1e-9);
                left += child.width;
            }
            assert!(left <= above.left + above.width + 1e-9, "wider than its caller");
        }
        assert!(layout(&tree, 2).iter().all(|place| place.level < 2));
    }

    #[test]
    fn the_picture_is_as_it_was() {
        let tree = named().tree(Scope::Shard(0));
        let svg = PICTURE.svg(&tree);
        let golden = include_str!("picture/golden.svg");
        assert_eq!(svg, golden, "if this is what you want, write it to src/picture/golden.svg");
    }

    #[test]
    fn what_is_narrow_is_left_out_and_what_is_strange_is_escaped() {
        let mut tree = Tree::new("all");
        tree.add(["a<b>&\"\u{7}"], 100_000);
        tree.add(["narrow"], 1);
        let svg = PICTURE.svg(&tree);
        assert!(!svg.contains("narrow"), "{svg}");
        assert!(svg.contains("a&lt;b&gt;&amp;&quot; : 100.00 %"), "{svg}");
        let empty = Picture { direction: Direction::Down, ..PICTURE }.svg(&Tree::new("all"));
        assert!(empty.ends_with("</svg>\n"));
    }

    #[test]
    fn names_are_cut_to_their_box() {
        assert!(text("abcdef", 0.0, 0.0, 20.0).is_empty());
        assert!(text("lepus_broker::queue::Queue::push", 0.0, 0.0, 90.0).contains(">Queue::push<"));
        assert!(text("a_long_name_without_parts", 0.0, 0.0, 70.0).contains(">a_long_na…<"));
    }
}
