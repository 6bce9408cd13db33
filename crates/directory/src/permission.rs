//! Who may do what: patterns over the names of queues and exchanges, and over routing keys.

mod expression;
mod look_around;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use look_around::LookAround;
use regex::bytes::{Regex, RegexBuilder};

/// Longest pattern in bytes.
pub const PATTERN_BYTES_MAX: usize = 4096;
/// What the engine for plain expressions may make of one, in bytes: it goes through all of that for each byte of a
/// name at worst, some hundred microseconds for the longest name. What is larger is matched as one that looks around,
/// in a limited number of steps.
const COMPILED_BYTES_MAX: usize = 4 << 10;
/// The engine keeps as much again, and more, for each thread that matches at the same time.
const COMPILED_TIMES: usize = 4;
/// Steps of the one engine, and bytes of a name times bytes of what the other made of an expression, that take as long as
/// one comparison of names, about.
const STEPS_AT_COST: usize = 64;
const COMPILED_AT_COST: usize = 1 << 10;

/// The name under which the default exchange is checked.
pub const DEFAULT_EXCHANGE_NAME: &str = "amq.default";

/// What a client wants to do with a queue or exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Create or delete it.
    Configure,
    /// Put messages into it.
    Write,
    /// Take messages out of it.
    Read,
}

impl Access {
    /// The word that RabbitMQ uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Access::Configure => "configure",
            Access::Write => "write",
            Access::Read => "read",
        }
    }
}

/// A thing that access is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A queue.
    Queue(&'a str),
    /// An exchange; the empty name is the default exchange.
    Exchange(&'a str),
}

impl Resource<'_> {
    /// The name that patterns are matched with.
    #[must_use]
    pub fn name(&self) -> &str {
        match *self {
            Resource::Exchange("") => DEFAULT_EXCHANGE_NAME,
            Resource::Queue(name) | Resource::Exchange(name) => name,
        }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Resource::Queue(_) => "queue",
            Resource::Exchange(_) => "exchange",
        };
        write!(f, "{kind} '{}'", self.name())
    }
}

#[derive(Clone, Debug)]
enum Matcher {
    Nothing,
    Everything,
    /// Names that begin so.
    Prefix(Box<str>),
    /// This name alone.
    Exact(Box<str>),
    Expression(Box<Regex>, usize),
    LookAround(Box<LookAround>),
}

impl Matcher {
    /// The matcher of an expression that needs no engine, as most permissions do.
    fn plain(expression: &str) -> Option<Matcher> {
        match expression {
            "" => return Some(Matcher::Nothing),
            ".*" => return Some(Matcher::Everything),
            _ => {}
        }
        let anchored = expression.strip_prefix('^')?;
        if let Some(text) = anchored.strip_suffix('$') {
            return literal(text).map(Matcher::Exact);
        }
        literal(anchored.strip_suffix(".*").unwrap_or(anchored)).map(Matcher::Prefix)
    }

    /// The matcher of an expression that needs an engine.
    fn compiled(translation: &expression::Translation) -> Result<Matcher, String> {
        let expression = &translation.expression;
        if !translation.looks_around {
            for bytes in [COMPILED_BYTES_MAX / 4, COMPILED_BYTES_MAX] {
                let regex = RegexBuilder::new(expression)
                    .unicode(false)
                    .size_limit(bytes)
                    .nest_limit(100)
                    .build();
                match regex {
                    Ok(regex) => return Ok(Matcher::Expression(Box::new(regex), bytes)),
                    Err(regex::Error::CompiledTooBig(_)) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
        }
        Ok(Matcher::LookAround(Box::new(LookAround::new(expression)?)))
    }
}

/// The text that an expression stands for, if it is nothing but text.
fn literal(expression: &str) -> Option<Box<str>> {
    let mut text = String::with_capacity(expression.len());
    let mut characters = expression.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next()? {
                escaped @ ('.' | '-' | '/') => text.push(escaped),
                _ => return None,
            },
            '_' | '-' | '/' | ':' | '@' | '%' | ',' | ' ' => text.push(character),
            _ if character.is_ascii_alphanumeric() => text.push(character),
            _ => return None,
        }
    }
    Some(text.into_boxed_str())
}

/// A regular expression that is searched for anywhere in the bytes of a name. The empty one matches
/// nothing. Classes such as `\d` and `\w` know ASCII only.
///
/// A pattern that looks around, or is large, is searched for in a bounded number of steps, some hundred microseconds; a
/// name that takes more is not matched. Back references, which need unbounded time, are refused.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    matcher: Matcher,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it, in words: too long, too large when compiled, or not an expression.
    pub fn new(text: &str) -> Result<Pattern, String> {
        Pattern::expanded(text, Cow::Borrowed(text))
    }

    /// A pattern that stands as `text` and is matched as `expression`.
    fn expanded(text: &str, expression: Cow<'_, str>) -> Result<Pattern, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let matcher = match Matcher::plain(&expression) {
            Some(matcher) => matcher,
            None => Matcher::compiled(&expression::translate(&expression)?)?,
        };
        Ok(Pattern { text: text.into(), matcher })
    }

    /// A pattern of that text that matches nothing.
    pub(crate) fn nothing(text: &str) -> Pattern {
        Pattern { text: text.into(), matcher: Matcher::Nothing }
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern is found in `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.find(name, &mut 0)
    }

    /// As [`Pattern::matches`]; adds what that cost, in comparisons of names, about.
    pub(crate) fn find(&self, name: &str, cost: &mut usize) -> bool {
        *cost += 1;
        match &self.matcher {
            Matcher::Nothing => false,
            Matcher::Everything => true,
            Matcher::Prefix(prefix) => name.starts_with(&**prefix),
            Matcher::Exact(exact) => name == &**exact,
            Matcher::Expression(regex, bytes) => {
                *cost += bytes * name.len() / COMPILED_AT_COST;
                regex.is_match(name.as_bytes())
            }
            Matcher::LookAround(expression) => {
                let (is_found, steps) = expression.find(name.as_bytes());
                *cost += steps / STEPS_AT_COST;
                is_found
            }
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let compiled = match &self.matcher {
            Matcher::Expression(_, bytes) => COMPILED_TIMES * bytes,
            Matcher::LookAround(expression) => expression.bytes(),
            Matcher::Prefix(text) | Matcher::Exact(text) => text.len(),
            Matcher::Nothing | Matcher::Everything => 0,
        };
        self.text.len() + compiled
    }
}

/// A user's rights in one virtual host.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    /// Names that may be created and deleted.
    pub configure: Pattern,
    /// Names that may be written to.
    pub write: Pattern,
    /// Names that may be read from.
    pub read: Pattern,
}

impl Permission {
    /// Compiles the three patterns.
    ///
    /// # Errors
    /// The first pattern that does not compile, in words.
    pub fn new(configure: &str, write: &str, read: &str) -> Result<Permission, String> {
        Ok(Permission {
            configure: named("configure", configure)?,
            write: named("write", write)?,
            read: named("read", read)?,
        })
    }

    /// As [`Permission::new`]; where a pattern does not compile, no access is given.
    pub(crate) fn recovered(configure: &str, write: &str, read: &str) -> Permission {
        Permission::new(configure, write, read).unwrap_or_else(|_| Permission {
            configure: Pattern::nothing(configure),
            write: Pattern::nothing(write),
            read: Pattern::nothing(read),
        })
    }

    /// Whether the access is given. `resource` as in [`Resource::name`].
    #[must_use]
    pub fn allows(&self, access: Access, resource: &str) -> bool {
        match access {
            Access::Configure => self.configure.matches(resource),
            Access::Write => self.write.matches(resource),
            Access::Read => self.read.matches(resource),
        }
    }
}

/// A user's rights over the routing keys of one topic exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicPermission {
    /// Routing keys that may be published with.
    pub write: Pattern,
    /// Routing keys that may be bound with.
    pub read: Pattern,
}

impl TopicPermission {
    /// Compiles the two patterns. `{username}` and `{vhost}` in them stand for these names.
    ///
    /// # Errors
    /// The first pattern that does not compile, in words.
    pub fn new(
        write: &str,
        read: &str,
        user: &str,
        vhost: &str,
    ) -> Result<TopicPermission, String> {
        let compile = |kind: &str, text: &str| {
            let expression = expand(text, user, vhost);
            Pattern::expanded(text, expression).map_err(|error| wrong(kind, text, &error))
        };
        Ok(TopicPermission { write: compile("write", write)?, read: compile("read", read)? })
    }

    /// As [`TopicPermission::new`]; where a pattern does not compile, no routing key is allowed.
    pub(crate) fn recovered(write: &str, read: &str, user: &str, vhost: &str) -> TopicPermission {
        TopicPermission::new(write, read, user, vhost).unwrap_or_else(|_| TopicPermission {
            write: Pattern::nothing(write),
            read: Pattern::nothing(read),
        })
    }

    /// Whether the routing key may be written or read with; there is nothing to configure.
    #[must_use]
    pub fn allows(&self, access: Access, routing_key: &str) -> bool {
        match access {
            Access::Configure => true,
            Access::Write => self.write.matches(routing_key),
            Access::Read => self.read.matches(routing_key),
        }
    }
}

fn expand<'a>(text: &'a str, user: &str, vhost: &str) -> Cow<'a, str> {
    if !text.contains('{') {
        return Cow::Borrowed(text);
    }
    let text = text.replace("{username}", &regex::escape(user));
    Cow::Owned(text.replace("{vhost}", &regex::escape(vhost)))
}

fn named(kind: &str, text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| wrong(kind, text, &error))
}

fn wrong(kind: &str, text: &str, error: &str) -> String {
    let shown: String = text.chars().take(100).collect();
    format!("invalid {kind} pattern '{shown}': {error}")
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn patterns_are_searched_for_anywhere() {
        let pattern = Pattern::new("b.d").unwrap();
        assert!(pattern.matches("abcde") && !pattern.matches("abde"));
        let anchored = Pattern::new("^(a|amq\\.).*$").unwrap();
        assert!(anchored.matches("amq.default") && !anchored.matches("ba"));
    }

    #[test]
    fn the_empty_pattern_matches_nothing() {
        let pattern = Pattern::new("").unwrap();
        assert!(!pattern.matches("") && !pattern.matches("a"));
        let nothing = Pattern::new("^$").unwrap();
        assert!(!nothing.matches(Resource::Exchange("").name()));
    }

    #[test]
    fn plain_patterns_match_as_the_engine_would() {
        let names = ["", "a", "ab", "a.b", "axb", "a-b", "ba", "a\nb", "a.b.c", "*", "a*"];
        for text in [
            "^", "^$", "^a", "^a$", "^a.*", "^a.*$", "^a\\.b", "^a\\.b$", "^a\\.b.*", "^a.b$",
            "^a-b$", "^ab*", "^a\\.", "^a+", "a$", "^a|b", "^a\\*$", "^.*", "^.*$", "^a\\w$",
        ] {
            let pattern = Pattern::new(text).unwrap();
            let engine = Regex::new(text).unwrap();
            for name in names {
                let found = engine.is_match(name.as_bytes());
                assert_eq!(pattern.matches(name), found, "{text} on {name:?}");
            }
        }
        let is_plain =
            |text| !matches!(Pattern::new(text).unwrap().matcher, Matcher::Expression(..));
        assert!(is_plain("^ann-.*") && is_plain("^amq\\.default$") && !is_plain("^a|b"));
    }

    #[test]
    fn patterns_that_cost_too_much_are_refused() {
        for text in ["(", "\\1", "(\\w{100}){1000}", "(?!(\\w{100}){1000})"] {
            assert!(Pattern::new(text).is_err(), "{text}");
        }
        assert!(Pattern::new(&"a".repeat(PATTERN_BYTES_MAX)).is_ok());
        assert!(Pattern::new(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
        assert!(Pattern::new(&"(".repeat(2000)).is_err());
    }

    #[test]
    fn patterns_may_look_around() {
        let cases: [(&str, &[&str], &[&str]); 16] = [
            ("^(?!amq\\.).*", &["orders", "", "a.amq.b"], &["amq.gen-1", "amq."]),
            ("^(?!amq\\.)(?!.*\\.dlq$).+", &["orders"], &["amq.x", "orders.dlq", ""]),
            ("^(?!(?:amq|sys)\\.).*$", &["a"], &["amq.a", "sys.a"]),
            ("^((?!dlq).)*$", &["orders", ""], &["a.dlq", "dlq", "a dlq b"]),
            ("^(?=.*eu)(?=.*v2).*$", &["eu.v2", "v2.eu"], &["eu", "v2"]),
            ("^.*(?<!\\.dlq)$", &["orders", "dlq"], &["orders.dlq"]),
            ("(?<=a)b", &["ab"], &["b", "cb"]),
            ("(?!amq)", &["amq", ""], &[]),
            ("(?i)^(?!AMQ\\.).*", &["b"], &["amq.x", "Amq.x"]),
            ("^(a|(?!b)).$", &["ac", "c"], &["b", "bc"]),
            ("^(?!a(?!b)).*", &["abc", "b"], &["ac", "a"]),
            ("^(?!\\w+$).*", &["a b"], &["ab"]),
            // What RabbitMQ may take for a letter is one where that rules a match out, and no other where it does not.
            ("^(?!\\w)..$", &["--"], &["\u{e4}"]),
            ("^(?!x$).*", &["xy"], &["x", "x\n"]),
            ("^(?!x\\Z).*", &["xy"], &["x", "x\n"]),
            ("^(?![^\\W]).*", &["-"], &["a", "\u{e4}"]),
        ];
        for (text, taken, refused) in cases {
            let pattern = Pattern::new(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(matches!(pattern.matcher, Matcher::LookAround(_)), "{text}");
            taken.iter().for_each(|name| assert!(pattern.matches(name), "{text} on {name:?}"));
            refused.iter().for_each(|name| assert!(!pattern.matches(name), "{text} on {name:?}"));
        }
    }

    #[test]
    fn what_is_refused_is_named() {
        let refusal = |text: &str| Pattern::new(text).unwrap_err();
        assert_eq!(refusal("(?>a)"), "atomic groups (?>…) are not supported");
        assert_eq!(refusal("(?(1)a)"), "conditions (?(…)…) are not supported");
        assert_eq!(refusal("(?!a)b++"), "possessive repetitions are not supported");
        assert_eq!(refusal("(a)\\1"), "\\1 is not supported");
        assert_eq!(refusal("(?x)(?!a)"), "look-around together with the flag x is not supported");
    }

    #[test]
    fn each_access_has_its_own_pattern() {
        let permission = Permission::new("^c", "^w", ".*").unwrap();
        assert!(
            permission.allows(Access::Configure, "c") && !permission.allows(Access::Write, "c")
        );
        assert!(permission.allows(Access::Write, "w") && permission.allows(Access::Read, "x"));
        let error = Permission::new("a", "(", "b").unwrap_err();
        assert!(error.starts_with("invalid write pattern '('"), "{error}");
    }

    #[test]
    fn a_pattern_that_was_taken_once_and_is_not_any_more_allows_nothing() {
        let permission = Permission::recovered("a++", ".*", ".*");
        assert!(!permission.allows(Access::Configure, "a"));
        assert!(!permission.allows(Access::Write, "a") && !permission.allows(Access::Read, "a"));
        assert_eq!((permission.configure.text(), permission.read.text()), ("a++", ".*"));
        let topic = TopicPermission::recovered("a++", ".*", "ann", "/");
        assert!(!topic.allows(Access::Write, "a") && !topic.allows(Access::Read, "a"));
        assert!(Permission::recovered("", "^w", "").allows(Access::Write, "w"));
    }

    #[test]
    fn names_in_topic_patterns_are_taken_literally() {
        let permission = TopicPermission::new("^{username}-{vhost}$", ".*", "a.b", "/").unwrap();
        assert!(permission.allows(Access::Write, "a.b-/"));
        assert!(!permission.allows(Access::Write, "axb-/"));
        let other = TopicPermission::new("^{client_id}$", "^a{$", "a.b", "/").unwrap();
        assert!(other.allows(Access::Write, "{client_id}") && other.allows(Access::Read, "a{"));
        assert!(!other.allows(Access::Write, "client_id"));
        assert_eq!(permission.write.text(), "^{username}-{vhost}$");
    }

    /// Those of which one match took very long.
    fn dear() -> Vec<String> {
        let bytes: String = (0..128).map(|n| format!("\\x{:02x}", 2 * n)).collect();
        let mut patterns = vec![
            "(?=(?:(?:[0BDF]?){30}){60}b)x".into(),
            "(?!(?=.*([a-c]?){90}z))".into(),
            format!("{}b", "(?:a?){1000}".repeat(2)),
            format!("(?=(?:[{bytes}]?){{1000}}b)x"),
            format!("{}b", "a?".repeat(2_000)),
            format!("{}b", "(?:a*b?)*".repeat(100)),
            format!("(?:{})*b", "a?|".repeat(300)),
            format!("(?=(?:{})*b)", "(?=a*)".repeat(100)),
        ];
        patterns.extend((1..12).map(|n| format!("{}b", "[aA]?".repeat(n * 8))));
        patterns
    }

    #[test]
    fn one_match_costs_little_whatever_the_pattern() {
        let name = "a".repeat(255);
        for text in dear() {
            // It may be refused, too.
            let Ok(pattern) = Pattern::new(&text) else { continue };
            let mut cost = 0;
            let start = std::time::Instant::now();
            _ = pattern.find(&name, &mut cost);
            let took = start.elapsed();
            assert!(cost <= 2_000, "{text}: {cost}");
            // This is far more than it takes where it is optimized.
            assert!(took.as_millis() < 200, "{text}: {took:?} for {cost}");
        }
    }

    #[test]
    fn what_is_large_is_refused_or_counted() {
        let text = Pattern::new("(\\w{100}){1000}").unwrap_err();
        assert_eq!(text, "more than 4000 parts, counted as often as they are repeated");
        let names: Vec<String> = (0..200).map(|number| format!("queue-{number}")).collect();
        let many = Pattern::new(&format!("^({})$", names.join("|"))).unwrap();
        assert!(many.matches("queue-199") && !many.matches("queue-1999"));
        assert!(many.bytes() > 10_000, "{}", many.bytes());
        assert!(Pattern::new("^a|b").unwrap().bytes() > COMPILED_BYTES_MAX / 2);
        let recovered = Permission::recovered("(\\w{100}){1000}", ".*", ".*");
        assert!(!recovered.allows(Access::Configure, &"a".repeat(100_000)));
        assert_eq!(recovered.configure.text(), "(\\w{100}){1000}");
    }
}
