//! Where dead letters came from, as their headers tell.

use lepus_amqp::table::{Table, Value};

/// Which of its deaths a message is sent back behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Death {
    /// The one that brought it where it is.
    #[default]
    Last,
    /// Its first one: to where it was published.
    First,
}

impl Death {
    /// The one of this name.
    pub(crate) fn from_name(name: &str) -> Option<Death> {
        [Death::Last, Death::First].into_iter().find(|death| death.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Death::Last => "last",
            Death::First => "first",
        }
    }
}

/// The exchange and the routing keys that a message had before a death: one key, and perhaps others that it was copied
/// to. `None` where its headers do not tell.
pub(super) fn origin(headers: &Table, death: Death) -> Option<(String, Vec<String>)> {
    let Value::Array(deaths) = headers.get("x-death")? else { return None };
    // The newest is the first of the list.
    let entry = match death {
        Death::Last => deaths.first(),
        Death::First => deaths.last(),
    };
    let Value::Table(entry) = entry? else { return None };
    let exchange = text(entry.get("exchange")?)?;
    let Value::Array(keys) = entry.get("routing-keys")? else { return None };
    let keys: Option<Vec<String>> = keys.iter().map(text).collect();
    let keys = keys.filter(|keys| !keys.is_empty())?;
    let is_short = |name: &String| name.len() <= usize::from(u8::MAX);
    (is_short(&exchange) && keys.iter().all(is_short)).then_some((exchange, keys))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::LongString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(exchange: &str, keys: &[&str]) -> Value {
        let keys: Vec<Value> = keys.iter().map(|key| Value::from(*key)).collect();
        Value::Table(Table::new().with("exchange", exchange).with("routing-keys", keys))
    }

    #[test]
    fn the_newest_death_is_the_first_of_the_list() {
        let deaths = vec![death("new", &["k", "copy"]), death("old", &["o"])];
        let headers = Table::new().with("x-death", deaths);
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let last = origin(&headers, Death::Last);
        assert_eq!(last, Some(("new".to_owned(), keys(&["k", "copy"]))));
        assert_eq!(origin(&headers, Death::First), Some(("old".to_owned(), keys(&["o"]))));
    }

    #[test]
    fn what_no_broker_wrote_tells_nothing() {
        let long = "k".repeat(256);
        let odd = [
            Value::from("text"),
            Value::Array(vec![]),
            Value::Array(vec![Value::from("text")]),
            Value::Array(vec![death("x", &[])]),
            Value::Array(vec![death("x", &["k", &long])]),
            Value::Array(vec![death(&long, &["k"])]),
            Value::Array(vec![Value::Table(Table::new().with("exchange", "x"))]),
        ];
        for value in odd {
            let headers = Table::new().with("x-death", value);
            assert_eq!(origin(&headers, Death::Last), None, "{headers:?}");
        }
        assert_eq!(origin(&Table::new(), Death::First), None);
    }
}
