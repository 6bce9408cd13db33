//! Lists: what is asked of the API, page by page, and what becomes of it.

use super::Call;
use super::column::Column;
use crate::api::path;
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Rows};
use serde_json::Value;

/// Things on one page, the most that the API gives.
const PAGE: usize = 500;
/// Pages at most: what is listed may grow meanwhile, and this must end.
const PAGES_MAX: usize = 100_000;

/// The columns that were asked for, or the usual ones.
///
/// # Errors
/// When there is none of that name.
fn chosen(call: &Call<'_>) -> Result<Vec<&'static Column>, Failure> {
    let asked = if call.command.words.1 == super::MANY { &call.words[..] } else { &[] };
    let words: Vec<String> = asked
        .iter()
        .flat_map(|word| word.split([',', ' ']))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let columns = call.command.columns;
    let find = |name: &str| columns.iter().find(|column| column.name == name);
    if words.is_empty() {
        return Ok(call.command.defaults.iter().filter_map(|name| find(name)).collect());
    }
    let mut unknown: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| find(word).is_none()).collect();
    if !unknown.is_empty() {
        unknown.sort_unstable();
        let text = format!("Info key(s) {} are not supported", unknown.join(","));
        return Err(Failure::argument(USAGE, text));
    }
    if call.command.sorts_columns {
        let is_asked = |column: &&Column| words.iter().any(|word| word == column.name);
        return Ok(columns.iter().filter(is_asked).collect());
    }
    Ok(words.iter().filter_map(|word| find(word)).collect())
}

/// Refuses columns that do not exist, before anything is printed.
///
/// # Errors
/// When there is none of a name.
pub fn check_columns(call: &Call<'_>) -> Result<(), Failure> {
    if call.command.columns.is_empty() || call.command.words.1 != super::MANY {
        return Ok(());
    }
    chosen(call).map(|_| ())
}

/// The table of the things in the collection at `segments`. A virtual host that is not there has none of them.
///
/// # Errors
/// When the API does not answer, or refuses.
pub fn listing(call: &mut Call<'_>, segments: &[&str]) -> Result<Output, Failure> {
    let columns = chosen(call)?;
    let mut keys: Vec<&str> = vec!["name", "vhost", "node", "arguments"];
    for column in &columns {
        let key = column.at.split('.').next().unwrap_or(column.at);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let items = all_pages(call, segments, &format!("&columns={}", keys.join(",")))?;
    Ok(table_of(&columns, &items))
}

/// The table of things that are known already.
///
/// # Errors
/// When a column is asked for that does not exist.
pub fn listing_of(call: &Call<'_>, items: &[Value]) -> Result<Output, Failure> {
    Ok(table_of(&chosen(call)?, items))
}

fn table_of(columns: &[&'static Column], items: &[Value]) -> Output {
    let row = |item: &Value| columns.iter().map(|column| column.of(item)).collect();
    Output::Rows(Rows {
        columns: columns.iter().map(|column| column.name.to_owned()).collect(),
        rows: items.iter().map(row).collect(),
        ..Rows::default()
    })
}

/// All things of a collection, page by page; none where there is no such collection.
///
/// # Errors
/// When the API does not answer, or refuses.
pub fn all_pages(
    call: &mut Call<'_>,
    segments: &[&str],
    query: &str,
) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for page in 1..=PAGES_MAX {
        let asked = format!("{}?page={page}&page_size={PAGE}{query}", path(segments));
        let mut reply = call.ask("GET", &asked, None)?;
        match (reply.status, reply.body.get_mut("items").map(Value::take)) {
            // It shrank while it was read.
            (400, _) if page > 1 => break,
            (404, _) => break,
            (200, Some(Value::Array(items))) => {
                all.extend(items);
                let pages = reply.body["page_count"].as_u64().unwrap_or(1);
                if page as u64 >= pages {
                    break;
                }
            }
            (200, _) => {
                if let Value::Array(items) = reply.body {
                    all.extend(items);
                }
                break;
            }
            _ => return Err(call.refusal(&reply)),
        }
    }
    Ok(all)
}
