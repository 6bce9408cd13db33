//! Ways to find the filters that match a message, and filters that are ready to be asked in one of them.

use super::walk;
use lepus_amqp::PropertiesRef;
use lepus_amqp::properties::EMPTY;
use lepus_base::HashState;
use lepus_compiled::{Comparison, Condition, Constant, Each, Fused, HAS_COMPILER, Operator};
use lepus_filter::path::{Path, Step};
use lepus_filter::tree::{self, Expr, Literal};
use lepus_filter::{
    BodyFormat, Filter, FilterSet, Limits, Match, Message, Meta, Number, Scratch, SetLimits,
};
use lepus_perf::filter_load::{LookAt, Workload, symbol_name};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Bytes of a message.
pub(super) const BODY_BYTES: usize = 250;
/// Steps of merging at once.
const MERGE_STEPS: usize = 1_000_000;
/// Messages whose verdicts are compared before anything is measured.
const COMPARED: usize = 64;
/// What filters ask for, in the order of a message's values.
const FIELDS: [&str; 3] = ["sym", "price", "qty"];
/// Names all fields and never matches: with it the engine reads a message and does little more.
const READER: &str = "b.sym = '' AND b.price < -1 AND b.qty < -1";

/// A way to find the filters that match a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The syntax tree of each filter is walked; the body is read by a general JSON parser.
    Tree,
    /// Each filter is bytecode of the engine, written so that nothing of it can be looked up; the body is read by the engine.
    Bytecode,
    /// Each filter is a function in machine code; the body is read by the engine.
    Each,
    /// All filters of a shape are one function in machine code; the body is read by the engine.
    Fused,
    /// The engine with its index and columns.
    Together,
}

const ALL: [Way; 5] = [Way::Tree, Way::Bytecode, Way::Each, Way::Fused, Way::Together];

impl Way {
    /// Those that this build has.
    pub(super) fn all() -> impl Iterator<Item = Way> {
        ALL.into_iter().filter(|way| HAS_COMPILER || !way.is_compiled())
    }

    /// How it is called, and its place among all ways, which is the same in all plots.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Tree => "tree of each filter",
            Way::Bytecode => "bytecode of each filter",
            Way::Each => "compiled, each filter",
            Way::Fused => "compiled, all of a shape",
            Way::Together => "index and columns",
        }
    }

    pub(super) fn is_compiled(self) -> bool {
        matches!(self, Way::Each | Way::Fused)
    }

    /// The filters as they are written for it.
    pub(super) fn texts(self, workload: &Workload) -> Vec<String> {
        let texts = workload.filters.iter().map(|filter| filter.text(LookAt::Body));
        match self {
            Way::Bytecode => texts.map(unindexed).collect(),
            _ => texts.collect(),
        }
    }
}

/// The same filter in a form that the engine can neither look up nor put into columns.
fn unindexed(text: String) -> String {
    text.replace("b.sym", "STR(b.sym)")
        .replace("b.price", "COALESCE(b.price, NULL)")
        .replace("b.qty", "COALESCE(b.qty, NULL)")
}

/// A message, and the values of its fields for those who do not read.
pub(super) struct Prepared {
    body: Vec<u8>,
    pub(super) values: [lepus_compiled::Value; FIELDS.len()],
}

/// The messages of the load.
pub(super) fn prepare(workload: &Workload) -> Result<Vec<Prepared>, String> {
    let prepared = (0..).zip(&workload.trades).map(|(number, trade)| {
        Some(Prepared {
            body: trade.json(number, BODY_BYTES)?,
            values: [
                lepus_compiled::Value::text(&symbol_name(trade.symbol)),
                lepus_compiled::Value::float(f64::from(trade.price) / 100.0),
                lepus_compiled::Value::float(f64::from(trade.quantity)),
            ],
        })
    });
    prepared.collect::<Option<_>>().ok_or_else(|| "a trade does not fit its message".to_owned())
}

/// A set of the engine with what it needs to be asked.
pub(super) struct Set {
    set: Box<FilterSet>,
    scratch: Box<Scratch>,
    out: Vec<Match>,
}

impl Set {
    fn new<'a>(texts: impl ExactSizeIterator<Item = &'a str>) -> Result<Set, String> {
        let most = texts.len();
        let limits = SetLimits {
            filters_max: most,
            unindexed_max: most,
            bytes_max: usize::MAX,
            ..SetLimits::default()
        };
        let mut set = Box::new(FilterSet::new(limits, HashState::new(1)));
        for (target, text) in texts.enumerate() {
            let added = set.add(&read(text)?, target as u64);
            added.map_err(|full| format!("the set has no room: {} {}", full.allowed, full.what))?;
        }
        while set.work(MERGE_STEPS) {}
        Ok(Set { set, scratch: Box::default(), out: Vec::new() })
    }

    /// A set that reads all fields, and matches nothing.
    fn reader() -> Result<Set, String> {
        Set::new([READER].into_iter())
    }

    /// Puts the numbers of the filters that match into `found`; how much that took, in the engine's steps.
    pub(super) fn matches(&mut self, body: &[u8], found: &mut Vec<u32>) -> u64 {
        let message = Message {
            properties: PropertiesRef(&EMPTY),
            body,
            format: BodyFormat::Json,
            meta: Meta::default(),
        };
        self.out.clear();
        let report = self.set.matches(&message, u64::MAX, &mut self.scratch, &mut self.out);
        found.extend(self.out.iter().map(|found| found.target as u32));
        report.steps
    }
}

/// Filters ready to be matched.
pub(super) enum Ready {
    Trees(Vec<Expr>),
    Set(Set),
    Each(Set, Each),
    Fused(Set, Fused),
}

impl Ready {
    /// Reads the filters and does what has to be done before the first message, compiling among it.
    pub(super) fn new(way: Way, texts: &[String]) -> Result<Ready, String> {
        Ok(match way {
            Way::Tree => {
                let trees = texts.iter().map(|text| Ok(read(text)?.tree().clone()));
                Ready::Trees(trees.collect::<Result<_, String>>()?)
            }
            Way::Bytecode | Way::Together => {
                Ready::Set(Set::new(texts.iter().map(String::as_str))?)
            }
            Way::Each => Ready::Each(Set::reader()?, Each::compile(&conditions(texts)?)?),
            Way::Fused => Ready::Fused(Set::reader()?, Fused::compile(&conditions(texts)?)?),
        })
    }

    /// Puts the numbers of the filters that match into `found`, ascending.
    pub(super) fn matches(&mut self, message: &Prepared, found: &mut Vec<u32>) {
        found.clear();
        match self {
            Ready::Trees(trees) => {
                let body: Value = serde_json::from_slice(&message.body).unwrap_or_default();
                let numbered = (0u32..).zip(trees.iter());
                let holding = numbered.filter(|(_, tree)| walk::holds(tree, &body) == Some(true));
                found.extend(holding.map(|(number, _)| number));
            }
            Ready::Set(set) => {
                set.matches(&message.body, found);
            }
            Ready::Each(reader, each) => {
                reader.matches(&message.body, found);
                each.matches(&message.values, found);
            }
            Ready::Fused(reader, fused) => {
                reader.matches(&message.body, found);
                fused.matches(&message.values, found);
                // Of several shapes.
                found.sort_unstable();
            }
        }
    }

    /// Bytes for each of the filters that matching looks at, where the engine knows.
    pub(super) fn bytes(&self, way: Way, filters: u32) -> Option<usize> {
        match self {
            Ready::Set(set) if way == Way::Together => {
                Some(set.set.bytes_hot() / filters.max(1) as usize)
            }
            _ => None,
        }
    }

    /// Compares verdicts with those of the load's author.
    pub(super) fn compare(
        &mut self,
        way: Way,
        workload: &Workload,
        messages: &[Prepared],
    ) -> Result<(), String> {
        let mut found = Vec::new();
        for (message, expected) in messages.iter().zip(&workload.matching).take(COMPARED) {
            self.matches(message, &mut found);
            if found != *expected {
                return Err(format!(
                    "{}: the filters {found:?} match {} instead of {expected:?}",
                    way.name(),
                    String::from_utf8_lossy(&message.body)
                ));
            }
        }
        Ok(())
    }
}

fn read(text: &str) -> Result<Filter, String> {
    let parsed = Filter::parse(text, &Limits::default());
    parsed.map_err(|error| format!("`{text}` is refused: {}", error.reply()))
}

/// The filters as what can be compiled.
pub(super) fn conditions(texts: &[String]) -> Result<Vec<Condition>, String> {
    let one = |text: &String| {
        condition(read(text)?.tree()).ok_or_else(|| format!("`{text}` is not what is compiled"))
    };
    texts.iter().map(one).collect()
}

/// Comparisons of fields with constants, joined by AND; `None` for everything else.
fn condition(tree: &Expr) -> Option<Condition> {
    let parts = match tree {
        Expr::And(parts) => &parts[..],
        one => std::slice::from_ref(one),
    };
    parts.iter().map(comparison).collect::<Option<_>>().map(Condition::new)
}

fn comparison(part: &Expr) -> Option<Comparison> {
    let Expr::Compare(comparison, field, constant) = part else { return None };
    let Expr::Path(Path::Body(steps)) = &**field else { return None };
    let [Step::Name(name)] = &steps[..] else { return None };
    let slot = FIELDS.iter().position(|field| *field == &**name)?;
    let Expr::Literal(literal) = &**constant else { return None };
    let constant = match literal {
        Literal::Number(Number::Signed(number)) => Constant::integer(*number)?,
        Literal::Number(Number::Float(number)) => Constant::number(*number),
        Literal::Text(text) => Constant::text(text)?,
        _ => return None,
    };
    let operator = match comparison {
        tree::Comparison::Equal => Operator::Equal,
        tree::Comparison::NotEqual => Operator::NotEqual,
        tree::Comparison::Less => Operator::Less,
        tree::Comparison::LessOrEqual => Operator::LessOrEqual,
        tree::Comparison::Greater => Operator::Greater,
        tree::Comparison::GreaterOrEqual => Operator::GreaterOrEqual,
    };
    Comparison::new(slot as u32, operator, constant)
}

/// Messages a second, over so long, where `ask` is asked with one after the other.
pub(super) fn rate<T>(messages: &[T], time: Duration, mut ask: impl FnMut(&T)) -> f64 {
    let (mut count, mut batch) = (0_usize, 1);
    let begun = Instant::now();
    loop {
        for _ in 0..batch {
            ask(&messages[count % messages.len()]);
            count += 1;
        }
        let passed = begun.elapsed();
        if passed >= time {
            return count as f64 / passed.as_secs_f64();
        }
        // The clock is looked at about a hundred times.
        if passed < time / 100 {
            batch *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MIXES, draw};
    use super::*;

    #[test]
    fn all_ways_give_the_verdicts_of_the_load_s_author() {
        for mix in MIXES {
            for filters in [1, 15, 400] {
                let workload = draw(mix, filters);
                let messages = prepare(&workload).unwrap();
                for way in Way::all() {
                    let mut ready = Ready::new(way, &way.texts(&workload)).unwrap();
                    ready.compare(way, &workload, &messages).unwrap();
                }
                let mut wrong = workload.clone();
                wrong.matching[3].push(filters);
                let way = Way::Together;
                let mut ready = Ready::new(way, &way.texts(&workload)).unwrap();
                let error = ready.compare(way, &wrong, &messages).unwrap_err();
                assert!(error.contains("instead of"), "{error}");
            }
        }
    }

    #[test]
    fn conditions_say_what_the_filters_say() {
        for mix in MIXES {
            let workload = draw(mix, 200);
            let conditions = conditions(&Way::Each.texts(&workload)).unwrap();
            let messages = prepare(&workload).unwrap();
            for (message, expected) in messages.iter().zip(&workload.matching) {
                let holding = (0..).zip(&conditions).filter(|(_, one)| one.holds(&message.values));
                assert_eq!(&holding.map(|(number, _)| number).collect::<Vec<u32>>(), expected);
            }
        }
        for other in ["b.sym LIKE 'S%'", "b.sym = 'S' OR b.qty < 1", "b.side = 'buy'", "sym = 'S'"]
        {
            assert!(conditions(&[other.to_owned()]).is_err(), "{other}");
        }
    }

    #[test]
    fn the_reader_reads_all_fields_and_matches_nothing() {
        let workload = draw(MIXES[0], 10);
        let mut reader = Set::reader().unwrap();
        let mut found = Vec::new();
        for message in prepare(&workload).unwrap() {
            reader.matches(&message.body, &mut found);
        }
        assert!(found.is_empty());
        assert_eq!(reader.set.fields(), FIELDS.len());
    }

    #[test]
    fn what_must_be_evaluated_one_by_one_is_not_looked_up() {
        // As many steps more as there are filters more, where all of them are asked.
        let steps = |way: Way, filters: u32| {
            let workload = draw(MIXES[0], filters);
            let message = &prepare(&workload).unwrap()[0];
            match Ready::new(way, &way.texts(&workload)).unwrap() {
                Ready::Set(mut set) => set.matches(&message.body, &mut Vec::new()),
                _ => 0,
            }
        };
        assert!(steps(Way::Bytecode, 4_000) > steps(Way::Bytecode, 1_000) + 3_000);
        assert!(steps(Way::Together, 4_000) < steps(Way::Together, 1_000) + 3_000);
    }
}
