//! Functions by own and by accumulated time.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::{Profile, Scope};
use lepus_svg::Svg;

/// What one function cost, whoever called it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Ticks in itself.
    pub own: u64,
    /// Ticks in it and in what it called, each counted once however often it is on the stack.
    pub total: u64,
}

/// All functions of a scope, by own time; phases are not among them.
#[must_use]
pub fn functions(profile: &Profile, scope: Scope) -> Vec<Function> {
    let mut costs: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for stack in profile.of(scope) {
        let functions = &stack.frames[1.min(stack.frames.len())..];
        let distinct: BTreeSet<&str> = functions.iter().map(String::as_str).collect();
        for name in distinct {
            costs.entry(name).or_default().1 += stack.ticks;
        }
        if let Some(last) = functions.last() {
            costs.entry(last).or_default().0 += stack.ticks;
        }
    }
    let function = |(name, (own, total)): (&str, _)| Function { name: name.to_owned(), own, total };
    let mut functions: Vec<Function> = costs.into_iter().map(function).collect();
    functions.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| b.total.cmp(&a.total)));
    functions
}

const WIDTH: f64 = 1000.0;
const ROW: f64 = 19.0;
const BARS_LEFT: f64 = 560.0;
const BARS_WIDTH: f64 = 370.0;
/// Functions in each half of the picture.
const ROWS_MAX: usize = 20;

/// Bars of the most expensive functions, by own time above and by accumulated time below, as SVG.
#[must_use]
pub fn bars(title: &str, functions: &[Function], ticks: u64) -> String {
    let mut by_total: Vec<&Function> = functions.iter().collect();
    by_total.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
    let own = functions.iter().filter(|function| function.own > 0).take(ROWS_MAX);
    let own: Vec<(&str, u64)> = own.map(|one| (one.name.as_str(), one.own)).collect();
    let total = by_total.into_iter().take(ROWS_MAX);
    let total: Vec<(&str, u64)> = total.map(|one| (one.name.as_str(), one.total)).collect();
    let height = 110.0 + (own.len() + total.len()) as f64 * ROW;
    let root = format!(
        "width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\""
    );
    let mut svg = Svg::new((WIDTH, height), &root);
    svg.text((10.0, 24.0), "font-size=\"17\"", title);
    let ticks = ticks.max(1) as f64;
    let mut y = 50.0;
    for (head, rows, fill) in [
        ("own time, % of samples", own, "#4477aa"),
        ("accumulated time (with what it called), % of samples", total, "#ccbb44"),
    ] {
        let widest = rows.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1) as f64;
        svg.text((10.0, y), "font-weight=\"bold\"", head);
        y += 8.0;
        for (name, count) in rows {
            let width = BARS_WIDTH * count as f64 / widest;
            svg.begin_group(&format!("{name}: {count} samples"));
            svg.text((BARS_LEFT - 6.0, y + 12.5), "text-anchor=\"end\"", &end_of(name));
            let bar = format!("fill=\"{fill}\" stroke=\"#333333\" stroke-width=\"0.4\"");
            svg.rectangle((BARS_LEFT, y), (width, ROW - 4.0), &bar);
            let share = format!("{:.1}", 100.0 * count as f64 / ticks);
            svg.text((BARS_LEFT + width + 5.0, y + 12.5), "", &share);
            svg.end_group();
            y += ROW;
        }
        y += 26.0;
    }
    svg.finish()
}

/// As much of the end of a name as fits beside the bars.
fn end_of(name: &str) -> String {
    const CHARACTERS_MAX: usize = 86;
    let length = name.chars().count();
    if length <= CHARACTERS_MAX {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length - CHARACTERS_MAX + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::named;

    #[test]
    fn own_and_accumulated_time_are_counted_once() {
        let mut profile = named();
        profile.stacks[0].frames.insert(1, "lepus_broker::router::route".to_owned());
        let functions = functions(&profile, Scope::Shard(0));
        let find = |name: &str| functions.iter().find(|one| one.name == name).unwrap();
        let route = find("lepus_broker::router::route");
        assert_eq!((route.own, route.total), (60, 80), "twice on a stack, counted once");
        assert_eq!((find("memcpy").own, find("memcpy").total), (20, 20));
        let publish = find("lepus_broker::publish::publish");
        assert_eq!((publish.own, publish.total), (0, 80));
        let own: u64 = functions.iter().map(|function| function.own).sum();
        assert_eq!(own, profile.ticks(Scope::Shard(0)));
        assert!(functions.iter().all(|one| one.name != "[handle]"));
    }

    #[test]
    fn bars_show_both_orders_and_long_names_from_their_end() {
        let profile = named();
        let svg = bars("shard 0", &functions(&profile, Scope::Shard(0)), 100);
        let own = svg.find("own time").unwrap();
        let accumulated = svg.find("accumulated time").unwrap();
        let publish = svg.find("publish::publish").unwrap();
        assert!(own < accumulated && accumulated < publish, "no own time: below only");
        assert!(svg.contains(">60.0</text>"), "{svg}");
        assert_eq!(end_of(&"x".repeat(300)).chars().count(), 86);
        assert!(bars("", &[], 0).ends_with("</svg>\n"));
    }
}
