//! The syntax tree of a filter.

use crate::number::Number;
use crate::path::{ListPath, Path};
use crate::regexp::Regexp;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A node of the tree. What a filter says is one of these.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A constant.
    Literal(Literal),
    /// A field of the message.
    Path(Path),
    /// `NOT x`.
    Not(Box<Expr>),
    /// `x AND y AND …`, at least two; none of them is itself one.
    And(Vec<Expr>),
    /// `x OR y OR …`, at least two; none of them is itself one.
    Or(Vec<Expr>),
    /// `x = y` and its like.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// `x + y` and its like.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// `-x`; literals are negated by the parser.
    Negate(Box<Expr>),
    /// `+x`: a number as it is, unknown for anything else.
    Plus(Box<Expr>),
    /// A test of one value.
    Test(Box<Expr>, Test),
    /// A test of the elements of an array.
    Quantified(Quantifier, Box<ListPath>, Test),
    /// `x IS …`.
    Is {
        /// What is looked at.
        value: Box<Expr>,
        /// What it may be.
        kind: IsKind,
        /// `IS NOT`.
        negated: bool,
    },
    /// A function with as many arguments as it takes.
    Call(Function, Vec<Expr>),
}

impl Expr {
    /// Appends the fields that it names, as often as it does. As deep as the expression.
    pub(crate) fn add_paths<'e>(&'e self, all: &mut Vec<&'e Path>) {
        match self {
            Expr::Literal(_) => {}
            Expr::Path(path) => all.push(path),
            Expr::Not(inner) | Expr::Negate(inner) | Expr::Plus(inner) => inner.add_paths(all),
            Expr::And(list) | Expr::Or(list) | Expr::Call(_, list) => {
                list.iter().for_each(|part| part.add_paths(all));
            }
            Expr::Compare(_, left, right) | Expr::Arithmetic(_, left, right) => {
                left.add_paths(all);
                right.add_paths(all);
            }
            Expr::Test(value, test) => {
                value.add_paths(all);
                test.add_paths(all);
            }
            Expr::Quantified(_, path, test) => {
                all.push(&path.list);
                test.add_paths(all);
            }
            Expr::Is { value, .. } => value.add_paths(all),
        }
    }
}

impl Test {
    fn add_paths<'e>(&'e self, all: &mut Vec<&'e Path>) {
        match self {
            Test::Compare(_, right) => right.add_paths(all),
            Test::Between { low, high, .. } => {
                low.add_paths(all);
                high.add_paths(all);
            }
            Test::In { list, .. } => list.iter().for_each(|part| part.add_paths(all)),
            Test::Like { .. } | Test::Regexp { .. } => {}
        }
    }
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Literal {
    /// `NULL`.
    Null,
    /// `TRUE` or `FALSE`.
    Bool(bool),
    /// An integer or a finite float.
    Number(Number),
    /// `DATE('…')` in milliseconds since 1970-01-01 UTC: an integer.
    Date(i64),
    /// `'text'`.
    Text(Box<str>),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What is computed of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// What is asked of a value, or of each element of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A comparison; only with a quantifier.
    Compare(Comparison, Box<Expr>),
    /// `BETWEEN low AND high`, the bounds included.
    Between {
        /// The lower bound.
        low: Box<Expr>,
        /// The upper bound.
        high: Box<Expr>,
        /// `NOT BETWEEN`.
        negated: bool,
    },
    /// `IN (…)`, at least one value.
    In {
        /// The values.
        list: Vec<Expr>,
        /// `NOT IN`.
        negated: bool,
    },
    /// `LIKE 'pattern'`, with `ILIKE` where case is folded.
    Like {
        /// The pattern as it was written.
        pattern: Box<str>,
        /// What takes the meaning of `%`, `_` and itself away.
        escape: Option<char>,
        /// Whether case is folded.
        folded: bool,
        /// `NOT LIKE`.
        negated: bool,
    },
    /// `REGEXP 'expression'`: it matches somewhere in the string.
    Regexp {
        /// The expression, compiled.
        regexp: Regexp,
        /// `NOT REGEXP`.
        negated: bool,
    },
}

/// How many elements must pass a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantifier {
    /// At least one.
    Any,
    /// Each one.
    All,
}

/// What `IS` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsKind {
    /// Missing or null.
    Null,
    /// Not there at all.
    Missing,
    /// The boolean TRUE.
    True,
    /// The boolean FALSE.
    False,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $variant:ident $name:literal $least:literal $most:literal $takes:literal),* $(,)?) => {
        /// A function of a filter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Function {$(
            $(#[$doc])*
            $variant,
        )*}

        impl Function {
            /// All functions.
            pub const ALL: &'static [Function] = &[$(Function::$variant),*];

            /// The name, in capitals.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {$(Function::$variant => $name),*}
            }

            /// The least and the largest number of arguments, and that in words.
            #[must_use]
            pub fn arguments(self) -> (usize, usize, &'static str) {
                match self {$(Function::$variant => ($least, $most, $takes)),*}
            }
        }
    };
}

functions! {
    /// The string in small letters.
    Lower "LOWER" 1 1 "one string",
    /// The string in capitals.
    Upper "UPPER" 1 1 "one string",
    /// Code points of a string, bytes of a binary value.
    Length "LENGTH" 1 1 "one string",
    /// The first code points.
    Left "LEFT" 2 2 "a string and a number",
    /// The last code points.
    Right "RIGHT" 2 2 "a string and a number",
    /// Code points from a place on, the first has number 1.
    Substring "SUBSTRING" 2 3 "a string, the first place and how many",
    /// Whether a string begins with another.
    StartsWith "STARTS_WITH" 2 2 "two strings",
    /// Whether a string ends with another.
    EndsWith "ENDS_WITH" 2 2 "two strings",
    /// Whether a string contains another.
    Contains "CONTAINS" 2 2 "two strings",
    /// A number without its sign.
    Abs "ABS" 1 1 "one number",
    /// The nearest whole number, halves away from zero.
    Round "ROUND" 1 1 "one number",
    /// The largest whole number that is not above.
    Floor "FLOOR" 1 1 "one number",
    /// The first argument that is not null.
    Coalesce "COALESCE" 1 16 "one to sixteen values",
    /// A string read as a number.
    Num "NUM" 1 1 "one value",
    /// A number or boolean written as a string.
    Str "STR" 1 1 "one value",
    /// Elements of an array or members of an object.
    Size "SIZE" 1 1 "one path",
    /// Whether a field is there, be it null.
    Exists "EXISTS" 1 1 "one path",
    /// When the message was accepted, in milliseconds since 1970-01-01 UTC.
    Now "NOW" 0 0 "nothing",
}
