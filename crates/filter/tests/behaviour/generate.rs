//! Random filters and messages from a small vocabulary, so that they meet.

use crate::sample::Sample;
use lepus_amqp::{Properties, Table, Value};
use lepus_base::Rng;
use lepus_filter::BodyFormat;

pub struct Generator {
    rng: Rng,
}

const TEXTS: [&str; 14] =
    ["", "a", "A", "ab", "abc", "aBc", "b", "é", "É", "ab é", "5", "-1.5", "it's", "a%b_"];
const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "-1",
    "-5",
    "100",
    "1.0",
    "2.5",
    "-1.5",
    "0.1",
    "1e3",
    "9007199254740993",
    "9007199254740992.0",
    "9223372036854775807",
    "18446744073709551615",
    "1e300",
];
const PATTERNS: [&str; 12] =
    ["a%", "%b", "_", "%", "a_c", "%b%", "a!%%", "", "abc", "é%", "%_b%_", "__%"];
const REGEXPS: [&str; 4] = ["^a", "b+$", "[a-c]{2}", "(?i)É"];
const PATHS: [&str; 32] = [
    "b.x",
    "b.y",
    "b.s",
    "b.t",
    "b.o.k",
    "b.o.l",
    "b.list[0]",
    "b.list[1]",
    "b.o",
    "b.list",
    "b.rows[0].k",
    "b.55",
    "b.44",
    "h1",
    "h2",
    "a.t.k",
    "a.arr[0]",
    "h3",
    "p.type",
    "p.message_id",
    "p.timestamp",
    "h.priority",
    "h.durable",
    "h.ttl",
    "m.exchange",
    "m.routing_key",
    "m.size",
    "m.time",
    "JMSDeliveryMode",
    "JMSTimestamp",
    "b.[odd name]",
    "m.offset",
];
const LISTS: [&str; 12] = [
    "b.list",
    "b.rows[*].k",
    "b.x",
    "b.o",
    "b.55",
    "b.448",
    "a.arr",
    "a.rows[*].k",
    "h1",
    "b.rows[*].in[*]",
    "b.rows",
    "b.nest[*][*]",
];

impl Generator {
    pub fn new(rng: Rng) -> Generator {
        Generator { rng }
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.below(list.len() as u64) as usize]
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.chance(percent, 100)
    }

    /// A filter: mostly of the kind that people write, sometimes anything at all.
    pub fn filter(&mut self) -> String {
        match self.rng.below(10) {
            0..5 => self.plain(),
            5..7 => {
                let count = 2 + self.rng.below(3);
                let list: Vec<String> = (0..count).map(|_| self.plain()).collect();
                list.join(" OR ")
            }
            _ => self.condition(4),
        }
    }

    /// A few predicates that all must hold.
    fn plain(&mut self) -> String {
        let count = 1 + self.rng.below(3);
        let list: Vec<String> = (0..count).map(|_| self.simple()).collect();
        list.join(" AND ")
    }

    /// A field against constants.
    fn simple(&mut self) -> String {
        let path = self.pick(&PATHS);
        match self.rng.below(8) {
            0..3 => format!("{path} = {}", self.literal()),
            3..5 => {
                let operator = self.pick(&["<", "<=", ">", ">=", "<>"]);
                format!("{path} {operator} {}", self.literal())
            }
            5 => format!("{path} BETWEEN {} AND {}", self.literal(), self.literal()),
            6 => format!("{path} IN ({}, {}, {})", self.literal(), self.literal(), self.literal()),
            _ => format!("{path} LIKE '{}'", self.pick(&PATTERNS)),
        }
    }

    fn literal(&mut self) -> String {
        match self.rng.below(16) {
            0..7 => self.pick(&NUMBERS).to_owned(),
            7..14 => format!("'{}'", self.pick(&TEXTS).replace('\'', "''")),
            14 => self.pick(&["TRUE", "FALSE"]).to_owned(),
            _ => self.pick(&["NULL", "DATE('1970-01-01T00:00:01Z')", "NOW()"]).to_owned(),
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.predicate(0);
        }
        match self.rng.below(8) {
            0..2 => format!("{} AND {}", self.condition(depth - 1), self.condition(depth - 1)),
            2..4 => format!("{} OR {}", self.condition(depth - 1), self.condition(depth - 1)),
            4 => format!("NOT {}", self.predicate(depth - 1)),
            5 => format!("({})", self.condition(depth - 1)),
            6 => format!("NOT ({})", self.condition(depth - 1)),
            _ => self.predicate(depth - 1),
        }
    }

    fn predicate(&mut self, depth: u32) -> String {
        let not = if self.chance(30) { "NOT " } else { "" };
        match self.rng.below(12) {
            0..4 => format!("{} {}", self.sum(depth), self.comparison()),
            4 => {
                format!("{} {not}BETWEEN {} AND {}", self.sum(depth), self.sum(0), self.sum(depth))
            }
            5 => {
                let count = 1 + self.rng.below(4);
                let list: Vec<String> = (0..count).map(|_| self.sum(depth.min(1))).collect();
                format!("{} {not}IN ({})", self.sum(depth), list.join(","))
            }
            6 => {
                let like = self.pick(&["LIKE", "ILIKE"]);
                let pattern = self.pick(&PATTERNS);
                format!("{} {not}{like} '{pattern}' ESCAPE '!'", self.sum(depth))
            }
            7 => {
                let kind = self.pick(&["NULL", "MISSING", "TRUE", "FALSE"]);
                format!("{} IS {not}{kind}", self.sum(depth))
            }
            8 | 9 => {
                let quantifier = self.pick(&["ANY", "ALL"]);
                let list = self.pick(&LISTS);
                let test = match self.rng.below(4) {
                    0 => format!("{not}IN ({}, {})", self.sum(0), self.sum(0)),
                    1 => format!("{not}LIKE '{}'", self.pick(&PATTERNS)),
                    2 => format!("{not}BETWEEN {} AND {}", self.sum(0), self.sum(0)),
                    _ => self.comparison(),
                };
                format!("{quantifier}({list}) {test}")
            }
            10 if self.chance(20) => {
                format!("{} {not}REGEXP '{}'", self.sum(0), self.pick(&REGEXPS))
            }
            _ => self.sum(depth),
        }
    }

    fn comparison(&mut self) -> String {
        let operator = self.pick(&["=", "=", "=", "<>", "<", "<=", ">", ">="]);
        format!("{operator} {}", self.sum(1))
    }

    fn sum(&mut self, depth: u32) -> String {
        let half = depth / 2;
        match self.rng.below(10) {
            0 if depth > 0 => {
                let operator = self.pick(&["+", "-", "*", "/", "%"]);
                format!("{} {operator} {}", self.sum(half), self.sum(half))
            }
            1 if depth > 0 => format!("-({})", self.sum(half)),
            2 if depth > 0 => format!("({})", self.condition(half)),
            3 if depth > 0 => format!("+{}", self.pick(&PATHS)),
            4 | 5 if depth > 0 => self.call(half),
            6..8 => self.literal(),
            _ => self.pick(&PATHS).to_owned(),
        }
    }

    fn call(&mut self, depth: u32) -> String {
        let one = self.pick(&["LOWER", "UPPER", "LENGTH", "ABS", "ROUND", "FLOOR", "NUM", "STR"]);
        let two =
            self.pick(&["LEFT", "RIGHT", "SUBSTRING", "STARTS_WITH", "ENDS_WITH", "CONTAINS"]);
        match self.rng.below(6) {
            0..2 => format!("{one}({})", self.sum(depth)),
            2 => format!("{two}({}, {})", self.sum(depth), self.sum(depth)),
            3 => format!("SUBSTRING({}, {}, {})", self.sum(depth), self.sum(0), self.sum(0)),
            4 => format!("COALESCE({}, {})", self.sum(depth), self.sum(depth)),
            _ => {
                let function = self.pick(&["SIZE", "EXISTS"]);
                format!("{function}({})", self.pick(&PATHS))
            }
        }
    }

    /// A message whose fields are the filters'.
    pub fn message(&mut self) -> Sample {
        let mut properties = Properties::default();
        let text = |generator: &mut Generator| {
            generator.chance(40).then(|| generator.pick(&TEXTS).to_owned())
        };
        properties.message_type = text(self);
        properties.message_id = text(self);
        properties.expiration = text(self);
        properties.delivery_mode = self.chance(50).then(|| self.pick(&[1, 2]));
        properties.priority = self.chance(50).then(|| self.pick(&[0, 1, 5]));
        properties.timestamp = self.chance(50).then(|| self.pick(&[0, 1, 5, u64::MAX]));
        properties.headers = self.chance(70).then(|| self.table(2));
        let content_type =
            ["application/json", "application/x+json", "text/plain", "application/fix"];
        properties.content_type = self.chance(20).then(|| self.pick(&content_type).to_owned());
        properties.content_encoding =
            self.chance(5).then(|| self.pick(&["utf-8", "gzip"]).to_owned());
        let (body, format) = match self.rng.below(10) {
            0 => (self.fix('\x01', "8=FIX.4.4\x01"), BodyFormat::Auto),
            1 => (self.fix('|', ""), BodyFormat::Nvfix),
            2 => ("nothing".to_owned(), BodyFormat::Auto),
            3 => (self.object(2) + "x", BodyFormat::Auto),
            4 => (format!("[{}, {}]", self.json(2), self.json(2)), BodyFormat::Json),
            _ => (self.object(3), BodyFormat::Auto),
        };
        Sample {
            format,
            exchange: self.chance(50).then(|| self.pick(&TEXTS).into()),
            routing_key: self.chance(50).then(|| self.pick(&TEXTS).into()),
            time: self.chance(50).then(|| self.pick(&[0, 1000, u64::MAX])),
            offset: self.chance(50).then(|| self.pick(&[0, 5])),
            ..Sample::new(&properties, &body)
        }
    }

    fn object(&mut self, depth: u32) -> String {
        let keys = [
            "x", "y", "s", "t", "o", "list", "rows", "k", "l", "odd name", "in", "nest", "55", "x",
        ];
        let mut members = Vec::new();
        for key in keys {
            if !self.chance(60) {
                continue;
            }
            let value = match key {
                "o" if depth > 0 => self.object(depth - 1),
                "rows" | "list" | "nest" | "in" if depth > 0 => {
                    self.array(depth - 1, key == "rows")
                }
                _ => self.json(depth.saturating_sub(1)),
            };
            let key = if self.chance(5) {
                format!("\\u{:04x}{}", key.as_bytes()[0], &key[1..])
            } else {
                key.to_owned()
            };
            let space = self.pick(&["", "", " ", "\n"]);
            members.push(format!("{space}\"{key}\"{space}:{space}{value}"));
        }
        format!("{{{}}}", members.join(","))
    }

    fn array(&mut self, depth: u32, of_objects: bool) -> String {
        let count = self.rng.below(4);
        let list: Vec<String> =
            (0..count)
                .map(|_| {
                    if of_objects && self.chance(80) {
                        self.object(depth)
                    } else {
                        self.json(depth)
                    }
                })
                .collect();
        format!("[{}]", list.join(", "))
    }

    fn json(&mut self, depth: u32) -> String {
        match self.rng.below(14) {
            0..5 => self.pick(&NUMBERS).to_owned(),
            5..10 => {
                let text = self.pick(&TEXTS);
                let escaped = |character| format!("\\u{:04X}", character as u32);
                match self.rng.below(4) {
                    0 => format!("\"{}\"", text.chars().map(escaped).collect::<String>()),
                    _ => format!("\"{text}\""),
                }
            }
            10 => self.pick(&["true", "false"]).to_owned(),
            11 => "null".to_owned(),
            12 if depth > 0 => self.array(depth - 1, false),
            13 if depth > 0 => self.object(depth - 1),
            _ => "1".to_owned(),
        }
    }

    fn fix(&mut self, separator: char, begin: &str) -> String {
        let mut text = begin.to_owned();
        for _ in 0..self.rng.below(8) {
            let tag = self.pick(&["55", "44", "448", "55", "x", "y", "s"]);
            let value = if self.chance(50) {
                self.pick(&TEXTS).to_owned()
            } else {
                self.pick(&NUMBERS).to_owned()
            };
            text.push_str(&format!("{tag}={value}{separator}"));
        }
        text
    }

    fn table(&mut self, depth: u32) -> Table {
        let mut table = Table::new();
        for name in ["h1", "h2", "h3", "t", "arr", "rows", "k"] {
            if self.chance(60) {
                let value = match name {
                    "t" if depth > 0 => self.table(depth - 1).into(),
                    "rows" if depth > 0 => {
                        let rows: Vec<Value> =
                            (0..self.rng.below(3)).map(|_| self.table(0).into()).collect();
                        rows.into()
                    }
                    _ => self.header(depth.saturating_sub(1)),
                };
                table.insert(name, value);
            }
        }
        table
    }

    fn header(&mut self, depth: u32) -> Value {
        let small = self.pick(&[0_i8, 1, 2, 5, -1]);
        match self.rng.below(20) {
            0 => Value::I8(small),
            1 => Value::U8(small.unsigned_abs()),
            2 => Value::I16(small.into()),
            3 => Value::U16(small.unsigned_abs().into()),
            4 => Value::I32(small.into()),
            5 => Value::U32(small.unsigned_abs().into()),
            6 => Value::I64(small.into()),
            7 => Value::U64(self.pick(&[5, u64::MAX, 1 << 63])),
            8 => Value::F32(self.pick(&[1.0, 2.5, 0.1])),
            9 => Value::F64(self.pick(&[
                1.0,
                2.5,
                0.1,
                f64::NAN,
                f64::INFINITY,
                9_007_199_254_740_992.0,
            ])),
            10 => {
                Value::Decimal { scale: self.pick(&[0, 1, 3, 30]), value: self.pick(&[1, 25, 5]) }
            }
            11 => Value::Bool(self.chance(50)),
            12 => Value::Void,
            13 => Value::Binary(self.pick(&["", "a", "ab"]).into()),
            14 => Value::Timestamp(self.pick(&[0, 5, u64::MAX])),
            15 => Value::LongString(self.pick::<&[u8]>(&[b"a\xff", b"\xe2\x82"]).into()),
            16 if depth > 0 => {
                let list: Vec<Value> =
                    (0..self.rng.below(3)).map(|_| self.header(depth - 1)).collect();
                list.into()
            }
            _ => self.pick(&TEXTS).into(),
        }
    }
}
