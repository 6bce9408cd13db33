//! Flame graphs as SVG: a pure function from a tree to text.
//!
//! Every function is a box, as wide as its share of the ticks, beside its siblings and on its caller.
//! Nothing is fetched and nothing runs in the picture; the full name, share and ticks of a box show
//! when the pointer rests on it. Boxes have borders, so that they can be told apart in print.

use crate::names::tail;
use crate::tree::Tree;
use lepus_svg::{Svg, escape};

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
        let root = format!(
            "width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"sans-serif\" font-size=\"11\"",
            escape(self.title)
        );
        let mut svg = Svg::new((WIDTH, height), &root);
        svg.text((MARGIN, 24.0), "font-size=\"17\"", self.title);
        svg.text((MARGIN, 43.0), "fill=\"#444444\"", self.note);
        for place in &places {
            let row = match self.direction {
                Direction::Up => levels - 1 - place.level,
                Direction::Down => place.level,
            };
            let y = HEAD + row as f64 * ROW;
            self.draw(&mut svg, tree, place, y);
        }
        let is_shown = |at: usize| {
            let names = places.iter().filter(|place| place.level > 0);
            names.into_iter().any(|place| kind(&tree.nodes()[place.node].name) == at)
        };
        legend(&mut svg, height - 12.0, is_shown);
        svg.finish()
    }

    fn draw(&self, svg: &mut Svg, tree: &Tree, place: &Place, y: f64) {
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
        svg.begin_group(&format!("{}: {share:.2} %{own}, {} samples", node.name, node.total));
        let (corner, size) = ((x, y), (width, ROW));
        let bar = format!("class=\"bar\" fill=\"{fill}\" stroke=\"#ffffff\" stroke-width=\"0.7\"");
        svg.rectangle(corner, size, &bar);
        svg.rectangle(corner, size, "fill=\"none\" stroke=\"#777777\" stroke-width=\"0.3\"");
        if let Some(shown) = shown(&node.name, width) {
            svg.text((x + 3.0, y + 12.5), "", &shown);
        }
        svg.end_group();
    }
}

/// As much of the name as fits: the whole, or its end, or the beginning of that.
fn shown(name: &str, width: f64) -> Option<String> {
    let room = width - 6.0;
    let fits = (room / CHARACTER) as usize;
    let length = |name: &str| name.chars().count();
    if room < TEXT_MIN {
        None
    } else if length(name) <= fits {
        Some(name.to_owned())
    } else if length(tail(name)) <= fits {
        Some(tail(name).to_owned())
    } else {
        Some(tail(name).chars().take(fits - 1).chain(['…']).collect())
    }
}

fn legend(svg: &mut Svg, y: f64, is_shown: impl Fn(usize) -> bool) {
    let mut x = MARGIN;
    for (_, (name, colour)) in KINDS.iter().enumerate().filter(|(at, _)| is_shown(*at)) {
        let key =
            format!("class=\"key\" fill=\"{colour}\" stroke=\"#777777\" stroke-width=\"0.5\"");
        svg.rectangle((x, y - 9.5), (11.0, 11.0), &key);
        svg.text((x + 16.0, y), "", name);
        x += 34.0 + name.chars().count() as f64 * CHARACTER;
    }
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
        assert!(svg.contains("a&lt;b&gt;&amp;&quot;\u{fffd}: 100.00 %"), "{svg}");
        let empty = Picture { direction: Direction::Down, ..PICTURE }.svg(&Tree::new("all"));
        assert!(empty.ends_with("</svg>\n"));
    }

    #[test]
    fn names_are_cut_to_their_box() {
        assert_eq!(shown("abcdef", 20.0), None);
        let name = |name, width| shown(name, width).unwrap();
        assert_eq!(name("lepus_broker::queue::Queue::push", 90.0), "Queue::push");
        assert_eq!(name("a_long_name_without_parts", 70.0), "a_long_na…");
    }
}
