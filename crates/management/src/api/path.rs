//! Paths and queries as they come: split first, decoded after, so that names may hold any character.

use super::failure::Failure;

/// The parts of a path below `/api`. A slash at the end, and an empty part there, mean nothing; empty parts in
/// between are names.
///
/// # Errors
/// 400 for an escape that is none and for bytes that are not UTF-8.
pub(crate) fn parts(path: &str) -> Result<Vec<String>, Failure> {
    let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    while parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    parts.into_iter().map(decode).collect()
}

/// Takes the escapes of a part of a path out, once; a plus is a plus.
pub(crate) fn decode(text: &str) -> Result<String, Failure> {
    let wrong = || Failure::bad_request(format!("the path has an escape that is none: {text:?}"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| (byte as char).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(wrong()),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Escapes a text so that it is one part of a path, and one value of a query.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What stands behind the question mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads it; a plus is a space there.
    ///
    /// # Errors
    /// As with [`parts`].
    pub(crate) fn read(query: &str) -> Result<Parameters, Failure> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let read = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
        });
        read.collect::<Result<_, Failure>>().map(Parameters)
    }

    /// The value of this name; the last one where there are several.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All values of this name.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let found = self.0.iter().filter(|(found, _)| found == name);
        found.map(|(_, value)| value.clone()).collect()
    }

    /// Whether it says `true`.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_it_is_decoded() {
        let parts = |path| parts(path).unwrap();
        assert_eq!(parts("/queues/%2F/a%2fb%3Fc%23d%25"), ["queues", "/", "a/b?c#d%"]);
        assert_eq!(parts("/queues//"), ["queues"]);
        assert_eq!(parts("/queues/%2F/"), ["queues", "/"]);
        assert_eq!(
            parts("/exchanges/v//bindings/source"),
            ["exchanges", "v", "", "bindings", "source"]
        );
        assert_eq!(parts("/a+b"), ["a+b"]);
        assert_eq!(parts(""), [""; 0]);
    }

    #[test]
    fn broken_escapes_are_refused() {
        for path in ["/%", "/%4", "/%zz", "/%ff"] {
            assert_eq!(super::parts(path).unwrap_err().status, 400, "{path}");
        }
    }

    #[test]
    fn what_is_encoded_is_one_part_again() {
        let name = "a/b?c#d%e ~+ü";
        assert_eq!(decode(&encode(name)).unwrap(), name);
        assert!(encode("~").eq("%7E"));
    }

    #[test]
    fn a_query_has_pluses_for_spaces() {
        let query = Parameters::read("name=a+b&use_regex=true&x&name=%5Eq").unwrap();
        assert_eq!(
            (query.get("name"), query.get("x"), query.get("y")),
            (Some("^q"), Some(""), None)
        );
        assert!(query.is_true("use_regex") && !query.is_true("x"));
    }
}
