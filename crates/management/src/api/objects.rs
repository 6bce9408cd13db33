//! What the paths of the API answer, by kind of object.

pub(crate) mod attempts;
pub(crate) mod audit;
pub(crate) mod bindings;
pub(crate) mod channels;
pub(crate) mod connections;
pub(crate) mod consumers;
pub(crate) mod ctl;
pub(crate) mod definitions;
pub(crate) mod exchanges;
pub(crate) mod features;
pub(crate) mod filters;
pub(crate) mod health;
pub(crate) mod limits;
pub(crate) mod messages;
pub(crate) mod moves;
pub(crate) mod node;
pub(crate) mod overview;
pub(crate) mod parameters;
pub(crate) mod permissions;
pub(crate) mod policies;
pub(crate) mod queues;
pub(crate) mod route_test;
pub(crate) mod sessions;
pub(crate) mod shovels;
pub(crate) mod users;
pub(crate) mod vhosts;

use serde_json::{Map, Value, json};

/// A time in seconds since 1970 as `2026-01-31 10:00:00`.
pub(crate) fn time_text(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The fields of an object that is built.
fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => unreachable!("{other} is no object"),
    }
}

/// Adds values under their names, each with its `_details`; where there are none, it is not sampled.
fn add_values(
    fields: &mut Map<String, Value>,
    names: &[&str],
    values: &[u64],
    details: impl IntoIterator<Item = Option<Value>>,
) {
    for ((name, value), details) in names.iter().zip(values).zip(details) {
        let details = details.unwrap_or_else(|| json!({"rate": 0.0, "sampled": false}));
        fields.insert((*name).to_owned(), json!(value));
        fields.insert(format!("{name}_details"), details);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_by_the_calendar() {
        assert_eq!(time_text(0), "1970-01-01 00:00:00");
        assert_eq!(time_text(951_782_400 + 86_399), "2000-02-29 23:59:59");
        assert_eq!(time_text(1_772_323_200), "2026-03-01 00:00:00");
    }
}
