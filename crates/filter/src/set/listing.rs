//! The filters of a set as operators see them.

use super::{Entry, FilterSet, Subscription};
use crate::set::Match;

/// How a set comes to ask a filter; later ones cost more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// It is found by a value of a field, or by what one begins with: other messages do not come to it.
    LookedUp,
    /// A part of it is not, but is compared for each message, many at a time.
    Compared,
    /// A part of it is evaluated for each message.
    Evaluated,
}

impl Way {
    /// Its name for operators.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::LookedUp => "looked_up",
            Way::Compared => "compared",
            Way::Evaluated => "evaluated",
        }
    }
}

/// A distinct filter of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// What it says, in normal form.
    pub normal: &'a str,
    /// How the set comes to ask it.
    pub way: Way,
    /// What evaluating it takes, see [`Filter::cost`](crate::Filter::cost).
    pub cost: u32,
    /// Its uses, at least one, in the order in which they were made.
    pub uses: &'a [Match],
}

impl<'a> Listed<'a> {
    fn of(entry: &'a Entry) -> Listed<'a> {
        let Entry { normal, way, cost, uses, .. } = entry;
        Listed { normal, way: *way, cost: *cost, uses }
    }
}

impl FilterSet {
    /// How many of the distinct filters come to be asked in a way.
    #[must_use]
    pub fn len_of(&self, way: Way) -> usize {
        match way {
            Way::LookedUp => self.looked_up,
            Way::Compared => self.len() - self.looked_up - self.unindexed,
            Way::Evaluated => self.unindexed,
        }
    }

    /// Places of distinct filters, free ones included.
    #[must_use]
    pub fn places(&self) -> usize {
        self.filters.len()
    }

    /// The distinct filter at a place, if there is one.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<Listed<'_>> {
        self.filters.get(place)?.as_ref().map(Listed::of)
    }

    /// The filter of a use.
    #[must_use]
    pub fn listed(&self, subscription: Subscription) -> Option<Listed<'_>> {
        self.at(subscription.filter as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, Limits, SetLimits};
    use alloc::borrow::ToOwned;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;
    use lepus_base::HashState;

    fn filter(text: &str) -> Filter {
        Filter::parse(text, &Limits::default()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    fn values(from: usize, count: usize) -> String {
        let all: Vec<String> = (from..from + count).map(|value| format!("{value}")).collect();
        all.join(", ")
    }

    #[test]
    fn a_filter_is_paid_by_how_it_is_filed() {
        let all = [
            ("a = 1".to_owned(), Way::LookedUp),
            ("urgent AND LENGTH(a) > 1".to_owned(), Way::LookedUp),
            ("a > 1 AND b = 'x'".to_owned(), Way::LookedUp),
            ("a LIKE 'x%'".to_owned(), Way::LookedUp),
            ("a = 1 OR b LIKE 'xyz%' AND c > 1".to_owned(), Way::LookedUp),
            (format!("a IN ({})", values(0, 64)), Way::LookedUp),
            (format!("a IN ({}) AND b = 1", values(0, 65)), Way::LookedUp),
            ("a > 1".to_owned(), Way::Compared),
            ("a = 1 OR b BETWEEN 1 AND 2".to_owned(), Way::Compared),
            ("a > 1 AND LENGTH(b) > 1".to_owned(), Way::Compared),
            ("a <> 1".to_owned(), Way::Compared),
            ("NOT a = 1".to_owned(), Way::Compared),
            ("a + b > 1".to_owned(), Way::Evaluated),
            ("a LIKE '%x'".to_owned(), Way::Evaluated),
            ("a > 1 OR a REGEXP 'x'".to_owned(), Way::Evaluated),
            (format!("a IN ({})", values(0, 65)), Way::Evaluated),
            (format!("a IN ({}) OR a IN ({})", values(0, 40), values(50, 40)), Way::Evaluated),
        ];
        let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
        let mut made = Vec::new();
        for (text, way) in &all {
            let filter = filter(text);
            assert_eq!(filter.is_looked_up(), *way == Way::LookedUp, "{text}");
            assert!(!set.contains(&filter));
            let subscription = set.add(&filter, 7).unwrap();
            let listed = set.listed(subscription).unwrap();
            assert_eq!((listed.way, listed.normal), (*way, filter.normal()), "{text}");
            assert!(listed.cost > 0 && set.contains(&filter), "{text}");
            made.push(subscription);
        }
        let counts = |set: &FilterSet| {
            [Way::LookedUp, Way::Compared, Way::Evaluated].map(|way| set.len_of(way))
        };
        assert_eq!(counts(&set), [7, 5, 5]);
        assert!(filter("a REGEXP 'x'").cost() > filter("a LIKE '%x'").cost() + 100);
        made.drain(..).step_by(2).for_each(|subscription| assert!(set.remove(subscription)));
        let living = (0..set.places()).filter_map(|place| set.at(place));
        let mut found = [0; 3];
        living.for_each(|one| found[one.way as usize] += one.uses.len());
        assert_eq!(counts(&set), found);
        assert_eq!(found.iter().sum::<usize>(), 8);
    }
}
