//! Where messages must go, computed as naively as the rules are written: every binding of every
//! exchange is looked at. It shares no code with the broker.
//!
//! Which queue a consistent hash gives a message is not computed: that it is one of the bound
//! ones, and the same for the same key, is what must hold.

use std::collections::BTreeSet;

use lepus_amqp::table::{Table, Value};
use lepus_base::Rng;

/// Words that routing keys are made of.
const WORDS: [&str; 3] = ["red", "green", "blue"];
/// Names of headers.
const NAMES: [&str; 3] = ["size", "shape", "age"];
/// The header that some exchanges hash.
pub(crate) const HASHED_HEADER: &str = NAMES[0];
/// The longest time that a message is held back, in milliseconds.
pub(crate) const DELAY_MILLIS_MAX: u64 = 60;

/// How an exchange chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Direct,
    Fanout,
    Topic,
    Headers,
    /// By the routing keys, or by a header.
    Hash {
        by_header: bool,
    },
}

impl Rule {
    /// The type to declare it with.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::Direct => "direct",
            Rule::Fanout => "fanout",
            Rule::Topic => "topic",
            Rule::Headers => "headers",
            Rule::Hash { .. } => "x-consistent-hash",
        }
    }
}

/// Where a binding leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Queue(usize),
    Exchange(usize),
}

/// What a header has to be for a binding to take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    There,
    One,
    OneOrMore,
    NotRed,
}

impl Filter {
    /// One of them, for one binding in three. Nothing random is asked for, so that seeds stay what they are.
    fn of(place: usize, to: Destination, key: &str) -> Option<(Filter, &'static str)> {
        let to = match to {
            Destination::Queue(queue) => queue,
            Destination::Exchange(exchange) => exchange + 5,
        };
        let number = 7 * place + 3 * to + key.len();
        let all = [Filter::There, Filter::One, Filter::OneOrMore, Filter::NotRed];
        number.is_multiple_of(3).then(|| (all[number / 3 % 4], NAMES[number / 12 % 3]))
    }

    /// One of them for one consumer in three, by a number that nothing random decides.
    pub(crate) fn of_consumer(number: usize) -> Option<(Filter, &'static str)> {
        let all = [Filter::There, Filter::One, Filter::OneOrMore, Filter::NotRed];
        number.is_multiple_of(3).then(|| (all[number / 3 % 4], NAMES[number / 12 % 3]))
    }

    /// The text of it.
    pub(crate) fn text(self, name: &str) -> String {
        match self {
            Filter::There => format!("{name} IS NOT NULL"),
            Filter::One => format!("{name} = 1"),
            Filter::OneOrMore => format!("{name} >= 1"),
            Filter::NotRed => format!("NOT ({name} = 'red')"),
        }
    }

    /// Whether it is true for a header. Nothing is said of one that is not there.
    pub(crate) fn holds(self, value: Option<&Value>) -> bool {
        let Some(value) = value else { return false };
        let number = match value {
            Value::I32(number) => Some(i64::from(*number)),
            Value::Timestamp(seconds) => Some(*seconds as i64),
            _ => None,
        };
        match self {
            Filter::There => true,
            Filter::One => number == Some(1),
            Filter::OneOrMore => number >= Some(1),
            // Bytes are not text.
            Filter::NotRed => *value != Value::from("red"),
        }
    }
}

/// One binding.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) to: Destination,
    pub(crate) key: String,
    pub(crate) arguments: Table,
    /// What a header has to be besides.
    pub(crate) filter: Option<(Filter, &'static str)>,
}

impl Binding {
    fn passes(&self, headers: &Table) -> bool {
        self.filter.is_none_or(|(filter, name)| filter.holds(headers.get(name)))
    }
}

/// One exchange and its bindings.
#[derive(Clone, Debug)]
pub(crate) struct ExchangePlan {
    pub(crate) name: String,
    pub(crate) rule: Rule,
    /// It holds messages back that say so.
    pub(crate) delays: bool,
    pub(crate) durable: bool,
    pub(crate) bindings: Vec<Binding>,
    /// Where messages go that no binding takes.
    pub(crate) alternate: Option<usize>,
}

/// What a message says of where it wants to go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Address {
    pub(crate) key: String,
    /// Keys of the `CC` header, and of `BCC`, which nobody gets to see.
    pub(crate) copies: Vec<String>,
    pub(crate) hidden: Vec<String>,
    pub(crate) headers: Table,
}

impl Address {
    /// Something that may match a binding.
    pub(crate) fn random(rng: &mut Rng) -> Address {
        let mut address = Address { key: random_key(rng), ..Address::default() };
        if rng.chance(1, 6) {
            address.copies.push(random_key(rng));
        }
        if rng.chance(1, 12) {
            address.hidden.push(random_key(rng));
        }
        for name in NAMES {
            if rng.chance(1, 3) {
                address.headers.insert(name, random_value(rng));
            }
        }
        address
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        [&self.key].into_iter().chain(&self.copies).chain(&self.hidden).map(String::as_str)
    }

    /// The headers as its publisher sends them, and as everybody gets them.
    pub(crate) fn tables(&self) -> [Table; 2] {
        let list = |keys: &[String]| -> Vec<Value> {
            keys.iter().map(|key| Value::from(key.clone())).collect()
        };
        let mut seen = self.headers.clone();
        if !self.copies.is_empty() {
            seen.insert("CC", list(&self.copies));
        }
        let mut sent = seen.clone();
        if !self.hidden.is_empty() {
            sent.insert("BCC", list(&self.hidden));
        }
        [sent, seen]
    }
}

/// One of several queues, the same for the same exchange and word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) exchange: usize,
    pub(crate) word: String,
    pub(crate) among: BTreeSet<usize>,
}

/// Where a message must go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    pub(crate) certain: BTreeSet<usize>,
    pub(crate) choices: Vec<Choice>,
}

/// All queues that a message published to an exchange reaches.
pub(crate) fn route(exchanges: &[ExchangePlan], first: usize, address: &Address) -> Routes {
    let mut routes = Routes::default();
    let mut seen = BTreeSet::from([first]);
    let mut open = vec![first];
    while let Some(place) = open.pop() {
        let exchange = &exchanges[place];
        if let Rule::Hash { by_header } = exchange.rule {
            let among: BTreeSet<usize> = exchange.bindings.iter().filter_map(queue_of).collect();
            let word = match by_header {
                true => format!("{:?}", address.headers.get(NAMES[0])),
                false => format!("{:?}", address.keys().collect::<Vec<_>>()),
            };
            if !among.is_empty() {
                routes.choices.push(Choice { exchange: place, word, among });
                continue;
            }
        }
        let taken: Vec<Destination> = (exchange.bindings.iter())
            .filter(|binding| takes(exchange.rule, binding, address))
            .filter(|binding| binding.passes(&address.headers))
            .map(|binding| binding.to)
            .collect();
        let others = exchange.alternate.filter(|_| taken.is_empty()).map(Destination::Exchange);
        for destination in taken.into_iter().chain(others) {
            match destination {
                Destination::Queue(queue) => {
                    routes.certain.insert(queue);
                }
                Destination::Exchange(next) if seen.insert(next) => open.push(next),
                Destination::Exchange(_) => {}
            }
        }
    }
    routes
}

fn queue_of(binding: &Binding) -> Option<usize> {
    match binding.to {
        Destination::Queue(queue) => Some(queue),
        Destination::Exchange(_) => None,
    }
}

fn takes(rule: Rule, binding: &Binding, address: &Address) -> bool {
    match rule {
        Rule::Direct => address.keys().any(|key| key == binding.key),
        Rule::Fanout => true,
        Rule::Topic => address.keys().any(|key| {
            let pattern: Vec<&str> = words(&binding.key);
            matches(&pattern, &words(key))
        }),
        Rule::Headers => fits(&binding.arguments, &address.headers),
        Rule::Hash { .. } => false,
    }
}

fn words(key: &str) -> Vec<&str> {
    if key.is_empty() { Vec::new() } else { key.split('.').collect() }
}

fn matches(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), _) => {
            (0..=key.len()).any(|count| matches(rest, key.get(count..).unwrap_or_default()))
        }
        (Some((&"*", rest)), Some((_, others))) => matches(rest, others),
        (Some((word, rest)), Some((first, others))) => word == first && matches(rest, others),
        _ => false,
    }
}

fn fits(arguments: &Table, headers: &Table) -> bool {
    let wants_all = arguments.get("x-match").is_none_or(|value| *value == Value::from("all"));
    let mut conditions = arguments.iter().filter(|(name, _)| !name.starts_with("x-"));
    let holds = |(name, value): (&str, &Value)| {
        headers.get(name).is_some_and(|found| *value == Value::Void || is_equal(found, value))
    };
    if wants_all { conditions.all(holds) } else { conditions.any(holds) }
}

/// Whether a header has the value that a binding asks for, whatever their types.
fn is_equal(found: &Value, wanted: &Value) -> bool {
    fn plain(value: &Value) -> Value {
        match value {
            Value::Binary(bytes) => Value::LongString(bytes.clone()),
            Value::Timestamp(seconds) => Value::I32(*seconds as i32 * 1000),
            value => value.clone(),
        }
    }
    plain(found) == plain(wanted)
}

fn random_key(rng: &mut Rng) -> String {
    let count = 1 + rng.below(8) / 5 + rng.below(8) / 6;
    let words: Vec<&str> = (0..count).map(|_| WORDS[rng.below(3) as usize]).collect();
    words.join(".")
}

fn random_value(rng: &mut Rng) -> Value {
    match rng.below(6) {
        0 => Value::from(WORDS[rng.below(2) as usize]),
        1 => Value::Binary(WORDS[rng.below(2) as usize].into()),
        2 => Value::Timestamp(1),
        3 => Value::from(1000),
        _ => Value::from(rng.below(2) as i32),
    }
}

/// A binding that fits an exchange.
fn random_binding(rng: &mut Rng, rule: Rule, to: Destination) -> Binding {
    let mut binding = Binding { to, key: random_key(rng), arguments: Table::new(), filter: None };
    match rule {
        Rule::Topic => {
            let mut words: Vec<&str> = binding.key.split('.').collect();
            for word in &mut words {
                *word = ["*", "#", *word, *word][rng.below(4) as usize];
            }
            if rng.chance(1, 3) {
                words.push("#");
            }
            binding.key = words.join(".");
        }
        Rule::Headers => {
            let mode = ["all", "any"][rng.below(2) as usize];
            binding.arguments.insert("x-match", mode);
            let first = rng.below(3) as usize;
            for count in 0..1 + rng.below(2) as usize {
                let value = if rng.chance(1, 5) { Value::Void } else { random_value(rng) };
                binding.arguments.insert(NAMES[(first + count) % NAMES.len()], value);
            }
        }
        Rule::Hash { .. } => binding.key = (1 + rng.below(3)).to_string(),
        Rule::Direct | Rule::Fanout => {}
    }
    binding
}

/// Exchanges between which and to whose queues `roots` are bound. The first takes a message for all
/// of them when there are very many. `lasting` are the queues that outlive the process.
pub(crate) fn exchanges(
    rng: &mut Rng,
    roots: &[usize],
    lasting: &BTreeSet<usize>,
    is_wide: bool,
) -> Vec<ExchangePlan> {
    let mut exchanges: Vec<ExchangePlan> = Vec::new();
    for index in 0..rng.below(5) as usize + usize::from(is_wide) {
        let takes_all = is_wide && index == 0;
        let by_header = rng.chance(1, 2);
        let all = [
            Rule::Direct,
            Rule::Fanout,
            Rule::Topic,
            Rule::Topic,
            Rule::Headers,
            Rule::Hash { by_header },
        ];
        let rule = if takes_all { Rule::Fanout } else { all[rng.below(6) as usize] };
        let is_hash = matches!(rule, Rule::Hash { .. });
        let delays = !takes_all && !is_hash && rng.chance(1, 6);
        let mut bindings = Vec::new();
        let share = if is_wide { 1 + rng.below(4) } else { 2 };
        for &root in roots.iter().filter(|root| !delays || lasting.contains(root)) {
            if takes_all || rng.chance(1, share) {
                bindings.push(random_binding(rng, rule, Destination::Queue(root)));
            }
            if !takes_all && !is_hash && rng.chance(1, 6) {
                bindings.push(random_binding(rng, rule, Destination::Queue(root)));
            }
        }
        for next in (0..index).filter(|_| !is_hash && !delays) {
            if !exchanges[next].delays && rng.chance(1, 6) {
                bindings.push(random_binding(rng, rule, Destination::Exchange(next)));
            }
        }
        if !takes_all && !is_hash {
            for binding in &mut bindings {
                binding.filter = Filter::of(index, binding.to, &binding.key);
                if let Some((filter, name)) = binding.filter {
                    binding.arguments.insert("x-filter", filter.text(name));
                }
            }
        }
        let other = (index > 0).then(|| rng.below(index as u64) as usize);
        let may_pass_on = |next: &usize| !delays && !exchanges[*next].delays;
        exchanges.push(ExchangePlan {
            name: format!("x{index}"),
            rule,
            delays,
            durable: delays || rng.chance(2, 3),
            bindings,
            alternate: other.filter(may_pass_on).filter(|_| rng.chance(1, 3)),
        });
    }
    exchanges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_word_by_word() {
        for (pattern, key, holds) in [
            ("red.*", "red.blue", true),
            ("red.*", "red", false),
            ("#", "", true),
            ("red.#.blue", "red.blue", true),
            ("red.#.blue", "red.green.green.blue", true),
            ("#.blue", "blue.red", false),
        ] {
            assert_eq!(matches(&words(pattern), &words(key)), holds, "{pattern} {key}");
        }
    }
}
