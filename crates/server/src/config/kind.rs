//! What a setting may hold: how its text is read, and how the accepted values are described.
//!
//! Every source (file, environment, flag) is reduced to text before it is read here, so that a value
//! means the same wherever it stands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The kind of one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A path; relative ones start at the working directory. Empty means none.
    Path,
    /// Any text.
    Text,
    /// Text that a header of HTTP can hold: letters, digits, signs and spaces of ASCII.
    HeaderText,
    /// Text in the form `x.y.z`, all numbers.
    Version,
    /// `true` or `false`.
    Switch,
    /// A whole number in a range, both ends included.
    Count {
        /// Smallest accepted number.
        min: u64,
        /// Largest accepted number.
        max: u64,
    },
    /// A whole number in a range, or `auto`.
    CountOrAuto {
        /// Smallest accepted number.
        min: u64,
        /// Largest accepted number.
        max: u64,
    },
    /// A size in bytes in a range, both ends included.
    Bytes {
        /// Smallest accepted size; 0 is always refused unless this is 0.
        min: u64,
        /// Largest accepted size.
        max: u64,
        /// Whether 0 is accepted beside the range, as "no limit".
        zero_is_unlimited: bool,
    },
    /// A length of time in whole seconds in a range, both ends included.
    Seconds {
        /// Shortest accepted time in seconds.
        min: u64,
        /// Longest accepted time in seconds.
        max: u64,
    },
    /// A share of the machine's memory or a size in bytes.
    Budget,
    /// Addresses to listen on.
    Addresses,
    /// Where shards are to be, in the words of [`lepus_topology::Policy`].
    Placement,
    /// One word of these.
    Choice(&'static [&'static str]),
}

/// A part of the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Hundredths of the memory that this process may use.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of [`Kind::Text`], [`Kind::HeaderText`], [`Kind::Version`], [`Kind::Placement`] and [`Kind::Choice`].
    Text(String),
    /// Of [`Kind::Path`].
    Path(Option<PathBuf>),
    /// Of [`Kind::Switch`].
    Switch(bool),
    /// Of [`Kind::Count`] and [`Kind::Bytes`].
    Number(u64),
    /// Of [`Kind::CountOrAuto`]; `None` is `auto`.
    Auto(Option<u64>),
    /// Of [`Kind::Seconds`].
    Time(Duration),
    /// Of [`Kind::Budget`].
    Budget(Budget),
    /// Of [`Kind::Addresses`].
    Addresses(Vec<SocketAddr>),
}

impl Kind {
    /// Reads `text`; `None` when it is not accepted.
    #[must_use]
    pub fn read(self, text: &str) -> Option<Value> {
        let text = text.trim();
        match self {
            Kind::Path => Some(Value::Path((!text.is_empty()).then(|| PathBuf::from(text)))),
            Kind::Text => Some(Value::Text(text.to_owned())),
            Kind::HeaderText => {
                let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
                is_plain.then(|| Value::Text(text.to_owned()))
            }
            Kind::Version => is_version(text).then(|| Value::Text(text.to_owned())),
            Kind::Switch => switch(text).map(Value::Switch),
            Kind::Count { min, max } => {
                let number = count(text)?;
                (min..=max).contains(&number).then_some(Value::Number(number))
            }
            Kind::CountOrAuto { .. } if text == "auto" => Some(Value::Auto(None)),
            Kind::CountOrAuto { min, max } => {
                let number = count(text)?;
                (min..=max).contains(&number).then_some(Value::Auto(Some(number)))
            }
            Kind::Bytes { min, max, zero_is_unlimited } => {
                let size = bytes(text)?;
                let accepted = (min..=max).contains(&size) || (size == 0 && zero_is_unlimited);
                accepted.then_some(Value::Number(size))
            }
            Kind::Seconds { min, max } => {
                let seconds = seconds(text)?;
                (min..=max).contains(&seconds).then_some(Value::Time(Duration::from_secs(seconds)))
            }
            Kind::Budget => budget(text).map(Value::Budget),
            Kind::Addresses => addresses(text).map(Value::Addresses),
            Kind::Placement => {
                let policy: lepus_topology::Policy = text.parse().ok()?;
                Some(Value::Text(policy.to_string()))
            }
            Kind::Choice(words) => {
                let lower = text.to_ascii_lowercase();
                words.contains(&lower.as_str()).then_some(Value::Text(lower))
            }
        }
    }

    /// What is accepted, as it stands after "expected" in a message and in the documentation.
    #[must_use]
    pub fn accepted(self) -> String {
        match self {
            Kind::Path => "a path".to_owned(),
            Kind::Text => "any text".to_owned(),
            Kind::HeaderText => "text of ASCII without control characters".to_owned(),
            Kind::Version => "a version x.y.z".to_owned(),
            Kind::Switch => "true or false".to_owned(),
            Kind::Count { min, max } => format!("a number from {min} to {max}"),
            Kind::CountOrAuto { min, max } => format!("auto, or a number from {min} to {max}"),
            Kind::Bytes { min, max, zero_is_unlimited } => {
                let unlimited = if zero_is_unlimited { ", or 0 for no limit" } else { "" };
                let (min, max) = (show_bytes(min), show_bytes(max));
                format!("a size from {min} to {max}, such as 65536 or 64KiB{unlimited}")
            }
            Kind::Seconds { min, max } => {
                format!("a time from {min} to {max} seconds, such as 90, 90s or 2m")
            }
            Kind::Budget => {
                "a share from 1% to 95%, or a size of at least 64MiB, such as 4GiB".to_owned()
            }
            Kind::Addresses => {
                "addresses ip:port separated by commas, such as 127.0.0.1:5672,[::1]:5672; \
                 a port alone means all interfaces; none means no listener"
                    .to_owned()
            }
            Kind::Placement => lepus_topology::POLICIES_ACCEPTED.to_owned(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }
}

impl Value {
    /// The value as it is written in a configuration file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        match self {
            Value::Text(text) => quote(text),
            Value::Path(path) => {
                quote(&path.as_deref().unwrap_or("".as_ref()).display().to_string())
            }
            Value::Switch(on) => on.to_string(),
            Value::Number(number) | Value::Auto(Some(number)) => number.to_string(),
            Value::Auto(None) => quote("auto"),
            Value::Time(time) => time.as_secs().to_string(),
            Value::Budget(Budget::Percent(share)) => quote(&format!("{share}%")),
            Value::Budget(Budget::Bytes(size)) => size.to_string(),
            Value::Addresses(list) => {
                let list: Vec<String> = list.iter().map(|one| quote(&one.to_string())).collect();
                format!("[{}]", list.join(", "))
            }
        }
    }
}

/// A TOML basic string.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| count(part).is_some())
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn count(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// Units of a size, longest first so that a suffix is taken whole.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

fn bytes(text: &str) -> Option<u64> {
    for (unit, factor) in SIZE_UNITS {
        let Some(split) = text.len().checked_sub(unit.len()) else {
            continue;
        };
        if text.is_char_boundary(split) && text[split..].eq_ignore_ascii_case(unit) {
            return count(text[..split].trim_end())?.checked_mul(*factor);
        }
    }
    count(text)
}

/// `65536` as `64KiB`: the largest binary unit that divides it.
#[must_use]
pub fn show_bytes(size: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fitting =
        units.iter().find(|(_, shift)| size >= 1 << shift && size.trailing_zeros() >= *shift);
    match fitting {
        Some((unit, shift)) => format!("{}{unit}", size >> shift),
        None => size.to_string(),
    }
}

fn seconds(text: &str) -> Option<u64> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    for (unit, factor) in units {
        if let Some(number) = text.strip_suffix(unit) {
            return count(number.trim_end())?.checked_mul(factor);
        }
    }
    count(text)
}

const BUDGET_BYTES_MIN: u64 = 64 << 20;

fn budget(text: &str) -> Option<Budget> {
    if let Some(share) = text.strip_suffix('%') {
        let share = u8::try_from(count(share.trim_end())?).ok()?;
        return (1..=95).contains(&share).then_some(Budget::Percent(share));
    }
    let size = bytes(text)?;
    (size >= BUDGET_BYTES_MIN).then_some(Budget::Bytes(size))
}

fn addresses(text: &str) -> Option<Vec<SocketAddr>> {
    if text.is_empty() || text == "none" {
        return Some(Vec::new());
    }
    let mut list = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        if let Ok(address) = part.parse() {
            list.push(address);
        } else if let Some(port) = part.strip_prefix("localhost:") {
            let port = port.parse().ok()?;
            list.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
            list.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port));
        } else {
            let port = part.strip_prefix("*:").unwrap_or(part).parse().ok()?;
            list.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
            list.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
        }
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_and_refuse_what_overflows() {
        let kind = Kind::Bytes { min: 4096, max: u64::MAX, zero_is_unlimited: true };
        assert_eq!(kind.read("4096"), Some(Value::Number(4096)));
        assert_eq!(kind.read("128 KiB"), Some(Value::Number(131_072)));
        assert_eq!(kind.read("2mb"), Some(Value::Number(2_000_000)));
        assert_eq!(kind.read("0"), Some(Value::Number(0)));
        for refused in ["", "KiB", "4095", "-1", "+5000", "5e3", "99999999TiB", "ö", "5 000"] {
            assert_eq!(kind.read(refused), None, "{refused}");
        }
        assert_eq!(show_bytes(131_072), "128KiB");
        assert_eq!(show_bytes(131_073), "131073");
    }

    #[test]
    fn a_budget_is_a_share_or_a_size() {
        assert_eq!(Kind::Budget.read("60%"), Some(Value::Budget(Budget::Percent(60))));
        assert_eq!(Kind::Budget.read("1GiB"), Some(Value::Budget(Budget::Bytes(1 << 30))));
        for refused in ["0%", "96%", "300%", "1MiB", "half"] {
            assert_eq!(Kind::Budget.read(refused), None, "{refused}");
        }
    }

    #[test]
    fn addresses_take_a_port_for_all_interfaces() {
        let read = |text| match Kind::Addresses.read(text) {
            Some(Value::Addresses(list)) => list.iter().map(ToString::to_string).collect(),
            other => vec![format!("{other:?}")],
        };
        assert_eq!(read("5672"), ["0.0.0.0:5672", "[::]:5672"]);
        assert_eq!(read("127.0.0.1:1, [::1]:2"), ["127.0.0.1:1", "[::1]:2"]);
        assert_eq!(read("localhost:3"), ["127.0.0.1:3", "[::1]:3"]);
        assert_eq!(read("none"), Vec::<String>::new());
        for refused in ["host:1", "1.2.3.4", "1.2.3.4:70000", "1:2:3", ","] {
            assert_eq!(Kind::Addresses.read(refused), None, "{refused}");
        }
    }

    #[test]
    fn times_versions_and_switches() {
        let time = Kind::Seconds { min: 0, max: 3600 };
        assert_eq!(time.read("2m"), Some(Value::Time(Duration::from_secs(120))));
        assert_eq!(time.read("2h"), None);
        assert_eq!(time.read("1.5"), None);
        assert!(Kind::Version.read("4.2.1").is_some());
        assert!(Kind::Version.read("4.2").is_none());
        assert!(Kind::Version.read("4.2.x").is_none());
        assert_eq!(Kind::Switch.read("ON"), Some(Value::Switch(true)));
        assert_eq!(Kind::Switch.read("maybe"), None);
        assert!(Kind::HeaderText.read("max-age=60; preload").is_some());
        assert!(["a\nb", "ä"].iter().all(|text| Kind::HeaderText.read(text).is_none()));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (kind, text) in [
            (Kind::Text, "a \"b\" \\ c"),
            (Kind::Budget, "40%"),
            (Kind::CountOrAuto { min: 1, max: 9 }, "auto"),
            (Kind::Addresses, "1234"),
        ] {
            let value = kind.read(text).unwrap();
            let document = format!("key = {}", value.to_toml());
            let table = toml::de::DeTable::parse(&document).unwrap();
            let parsed = table.get_ref().get("key").unwrap().get_ref();
            let again = crate::config::file::text_of(parsed).unwrap();
            assert_eq!(kind.read(&again), Some(value));
        }
    }
}
