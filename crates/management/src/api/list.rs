//! Lists: sorted, a page of them, some columns of each.

use super::context::Context;
use super::failure::Failure;
use super::request::Reply;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

/// Items on a page unless said otherwise, and at most.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 500;
/// Columns that are picked at most; further ones are left out.
const COLUMNS_MAX: usize = 200;
/// Items from which on a list is a long answer, as far as all of them are looked at.
const SHORT_ITEMS_MAX: usize = 4096;
/// Items whose rows are made at a time.
const ROWS_AT_A_TIME: usize = 512;
/// Characters of a pattern at most, and bytes of what it is compiled to.
const PATTERN_CHARS_MAX: usize = 1024;
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Which names are wanted.
enum Filter {
    All,
    /// Those with this text in them, in lower case.
    Containing(String),
    Matching(Box<Regex>),
    None,
}

impl Filter {
    fn fits(&self, name: &str) -> bool {
        match self {
            Filter::All => true,
            Filter::Containing(text) => name.to_lowercase().contains(text),
            Filter::Matching(pattern) => pattern.is_match(name),
            Filter::None => false,
        }
    }
}

/// Which page is wanted.
struct Page {
    page: usize,
    size: usize,
    filter: Filter,
}

impl Page {
    fn read(context: &Context<'_>) -> Result<Option<Page>, Failure> {
        let query = &context.query;
        let Some(page) = query.get("page") else { return Ok(None) };
        // Numbers that do not fit are told as RabbitMQ does.
        let given = query.get("page_size").unwrap_or("undefined");
        let wrong = || {
            let reason =
                format!("Invalid pagination parameters: page number {page}, page size {given}");
            Failure::new(400, "invalid_pagination_parameters", reason)
        };
        let number = |text: &str, most: usize| match text.parse::<usize>() {
            Ok(number) if (1..=most).contains(&number) => Ok(number),
            _ => Err(wrong()),
        };
        let size = query.get("page_size").filter(|text| !text.is_empty());
        let filter = match query.get("name").unwrap_or_default() {
            "" => Filter::All,
            pattern if query.is_true("use_regex") => {
                let is_short = pattern.chars().count() <= PATTERN_CHARS_MAX;
                let mut builder = RegexBuilder::new(pattern);
                let built = builder.case_insensitive(true).size_limit(PATTERN_BYTES_MAX).build();
                built
                    .ok()
                    .filter(|_| is_short)
                    .map_or(Filter::None, |pattern| Filter::Matching(Box::new(pattern)))
            }
            text => Filter::Containing(text.to_lowercase()),
        };
        Ok(Some(Page {
            page: number(page, usize::MAX)?,
            size: size.map_or(Ok(PAGE_DEFAULT), |size| number(size, PAGE_MAX))?,
            filter,
        }))
    }
}

impl Context<'_> {
    /// A list in its default order, as the query wants it. `rows` gives the rows of items, in their order: it is asked
    /// for those of one page only, unless the list is sorted by what the rows say.
    ///
    /// # Errors
    /// 400 for a page that is none, and what `rows` fails with.
    pub(crate) fn list<T>(
        &self,
        items: Vec<T>,
        name: impl Fn(&T) -> &str,
        rows: impl Fn(&[T]) -> Result<Vec<Value>, Failure>,
    ) -> Result<Reply, Failure> {
        self.list_with_keys(items, name, rows, |_, _| Ok(None))
    }

    /// The same; `keys` may give what the rows of some items have at a key without making them, for a list that is
    /// sorted by it.
    ///
    /// # Errors
    /// As with [`Context::list`].
    pub(crate) fn list_with_keys<T>(
        &self,
        mut items: Vec<T>,
        name: impl Fn(&T) -> &str,
        rows: impl Fn(&[T]) -> Result<Vec<Value>, Failure>,
        keys: impl Fn(&[T], &str) -> Result<Option<Vec<Option<Value>>>, Failure>,
    ) -> Result<Reply, Failure> {
        let page = Page::read(self)?;
        let total = items.len();
        if let Some(page) = &page {
            items.retain(|item| page.filter.fits(name(item)));
        }
        let filtered = items.len();
        let sort = self.query.get("sort").filter(|key| !key.is_empty());
        let (first, last, count) = match &page {
            None => (0, filtered, 0),
            Some(page) => {
                let count = filtered.div_ceil(page.size);
                if page.page > count.max(1) {
                    let reason = format!(
                        "Page out of range, page: {} page size: {}, len: {filtered}",
                        page.page, page.size
                    );
                    return Err(Failure::new(400, "page_out_of_range", reason));
                }
                let first = (page.page - 1) * page.size;
                (first, filtered.min(first + page.size), count)
            }
        };
        if self.request.method == "HEAD" {
            return Ok(Reply::empty(200));
        }
        // All of them are looked at, or given.
        if sort.is_some() || page.is_none() {
            self.admit(items.len())?;
        }
        if let Some(key) = sort {
            let keys = match keys(&items, key)? {
                Some(keys) => keys,
                None => keys_of(&items, key, &rows)?,
            };
            assert_eq!(keys.len(), items.len(), "a key for each item");
            let mut sorted: Vec<(Option<Value>, T)> = keys.into_iter().zip(items).collect();
            sorted.sort_by(|(a, _), (b, _)| compare(a.as_ref(), b.as_ref()));
            if self.query.is_true("sort_reverse") {
                sorted.reverse();
            }
            items = sorted.into_iter().map(|(_, item)| item).collect();
        }
        let Some(page) = page else { return self.whole(&items, rows) };
        let mut rows = rows(&items[first..last])?;
        self.pick_columns(&mut rows);
        Ok(Reply::json(json!({
            "total_count": total,
            "item_count": rows.len(),
            "filtered_count": filtered,
            "page": page.page,
            "page_size": page.size,
            "page_count": count.max(1),
            "items": rows,
        })))
    }

    /// All items, which may be many: their rows are written while they are made where that is possible.
    fn whole<T>(
        &self,
        items: &[T],
        rows: impl Fn(&[T]) -> Result<Vec<Value>, Failure>,
    ) -> Result<Reply, Failure> {
        let mut all = Vec::new();
        let mut is_first = true;
        for part in items.chunks(ROWS_AT_A_TIME) {
            let mut found = rows(part)?;
            self.pick_columns(&mut found);
            let Some(output) = self.output else {
                all.extend(found);
                continue;
            };
            let mut text = Vec::new();
            for row in &found {
                text.push(if is_first { b'[' } else { b',' });
                is_first = false;
                // Text of a value goes into memory: neither can fail.
                serde_json::to_writer(&mut text, row).expect("a value is text");
            }
            output.write(text)?;
        }
        let Some(output) = self.output else { return Ok(Reply::json(Value::Array(all))) };
        output.write(if is_first { b"[]".to_vec() } else { b"]".to_vec() })?;
        Ok(Reply::empty(200))
    }

    /// Waits for a place among those who make or get long answers, where so many items are one.
    ///
    /// # Errors
    /// 503 where there is none in time.
    pub(crate) fn admit(&self, items: usize) -> Result<(), Failure> {
        match self.output {
            Some(output) if items > SHORT_ITEMS_MAX => output.admit(),
            _ => Ok(()),
        }
    }

    /// A list of rows that are there.
    ///
    /// # Errors
    /// As with [`Context::list`].
    pub(crate) fn list_rows(&self, rows: Vec<Value>) -> Result<Reply, Failure> {
        self.list(rows, |row| row["name"].as_str().unwrap_or_default(), |rows| Ok(rows.to_vec()))
    }

    /// One object with the columns that are asked for.
    pub(crate) fn object(&self, row: Value) -> Reply {
        let mut rows = vec![row];
        self.pick_columns(&mut rows);
        Reply::json(rows.swap_remove(0))
    }

    fn pick_columns(&self, rows: &mut [Value]) {
        let Some(columns) = self.query.get("columns").filter(|columns| !columns.is_empty()) else {
            return;
        };
        let columns = columns.split(',').take(COLUMNS_MAX);
        let columns: Vec<Vec<&str>> = columns.map(|column| column.split('.').collect()).collect();
        for row in rows {
            let mut picked = Map::new();
            for keys in &columns {
                copy(row, keys, &mut picked);
            }
            *row = Value::Object(picked);
        }
    }
}

/// What the rows of items have at `key`. An item that is gone meanwhile has no row.
fn keys_of<T>(
    items: &[T],
    key: &str,
    rows: &impl Fn(&[T]) -> Result<Vec<Value>, Failure>,
) -> Result<Vec<Option<Value>>, Failure> {
    let mut keys = Vec::with_capacity(items.len());
    for part in items.chunks(ROWS_AT_A_TIME) {
        let mut found = rows(part)?;
        if found.len() == part.len() {
            keys.extend(found.iter_mut().map(|row| take(row, key)));
            continue;
        }
        // One of them has no row: each is asked for by itself, so that no key goes to another item.
        for item in part {
            let row = rows(std::slice::from_ref(item))?.pop();
            keys.push(row.and_then(|mut row| take(&mut row, key)));
        }
    }
    Ok(keys)
}

/// Copies what stands at a path of keys to the same place in another object.
fn copy(from: &Value, keys: &[&str], to: &mut Map<String, Value>) {
    let [key, rest @ ..] = keys else { return };
    let Some(found) = from.get(*key) else { return };
    if rest.is_empty() {
        to.insert((*key).to_owned(), found.clone());
        return;
    }
    let inner = to.entry((*key).to_owned()).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(inner) = inner {
        copy(found, rest, inner);
    }
}

/// Takes what stands at a path of keys out of a row.
fn take(row: &mut Value, key: &str) -> Option<Value> {
    key.split('.').try_fold(row, |value, key| value.get_mut(key)).map(Value::take)
}

/// Missing values first, then numbers, texts and the rest.
fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
            a.total_cmp(&b)
        }
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (Some(Value::Bool(a)), Some(Value::Bool(b))) => a.cmp(b),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: Option<&Value>) -> u8 {
    match value {
        None | Some(Value::Null) => 0,
        Some(Value::Number(_)) => 1,
        Some(Value::Bool(_)) => 2,
        Some(Value::String(_)) => 3,
        Some(_) => 4,
    }
}
