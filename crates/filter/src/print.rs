//! The normal form: keywords in capitals, one way to write each thing, parentheses only where they change something.

use crate::date;
use crate::number::Number;
use crate::path::{ListPath, Path, Section, Step};
use crate::tree::{Arithmetic, Comparison, Expr, IsKind, Literal, Quantifier, Test};
use crate::word;
use core::fmt::{self, Display, Formatter, Write};

/// How tightly a node binds, from `OR` on.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    Or,
    And,
    Not,
    Predicate,
    Sum,
    Term,
    Unary,
    Primary,
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Literal(literal) => literal.fmt(f),
            Expr::Path(path) => path.fmt(f),
            Expr::Not(inner) => {
                f.write_str("NOT ")?;
                at_least(inner, Level::Not, f)
            }
            Expr::And(list) => joined(list, " AND ", Level::Not, f),
            Expr::Or(list) => joined(list, " OR ", Level::And, f),
            Expr::Compare(comparison, left, right) => {
                at_least(left, Level::Sum, f)?;
                f.write_char(' ')?;
                comparison.fmt(f)?;
                f.write_char(' ')?;
                at_least(right, Level::Sum, f)
            }
            Expr::Arithmetic(operator, left, right) => {
                let (own, tighter) = match operator {
                    Arithmetic::Add | Arithmetic::Subtract => (Level::Sum, Level::Term),
                    _ => (Level::Term, Level::Unary),
                };
                at_least(left, own, f)?;
                write!(f, " {operator} ")?;
                at_least(right, tighter, f)
            }
            Expr::Negate(inner) => signed('-', inner, f),
            Expr::Plus(inner) => signed('+', inner, f),
            Expr::Test(value, test) => {
                at_least(value, Level::Sum, f)?;
                write!(f, " {test}")
            }
            Expr::Quantified(quantifier, path, test) => write!(f, "{quantifier}({path}) {test}"),
            Expr::Is { value, kind, negated } => {
                at_least(value, Level::Sum, f)?;
                write!(f, " IS {}{kind}", if *negated { "NOT " } else { "" })
            }
            Expr::Call(function, arguments) => {
                write!(f, "{}(", function.name())?;
                joined(arguments, ", ", Level::Sum, f)?;
                f.write_char(')')
            }
        }
    }
}

fn level(expr: &Expr) -> Level {
    match expr {
        Expr::Or(_) => Level::Or,
        Expr::And(_) => Level::And,
        Expr::Not(_) => Level::Not,
        Expr::Compare(..) | Expr::Test(..) | Expr::Quantified(..) | Expr::Is { .. } => {
            Level::Predicate
        }
        Expr::Arithmetic(Arithmetic::Add | Arithmetic::Subtract, ..) => Level::Sum,
        Expr::Arithmetic(..) => Level::Term,
        Expr::Negate(_) | Expr::Plus(_) => Level::Unary,
        // A sign before a literal belongs to it, and two signs do not follow each other.
        Expr::Literal(Literal::Number(number)) if is_negative(*number) => Level::Unary,
        Expr::Literal(_) | Expr::Path(_) | Expr::Call(..) => Level::Primary,
    }
}

fn is_negative(number: Number) -> bool {
    match number {
        Number::Signed(value) => value < 0,
        Number::Unsigned(_) => false,
        Number::Float(value) => value.is_sign_negative(),
    }
}

/// The node, in parentheses if it binds less tightly.
fn at_least(expr: &Expr, least: Level, f: &mut Formatter<'_>) -> fmt::Result {
    if level(expr) < least { write!(f, "({expr})") } else { expr.fmt(f) }
}

fn joined(list: &[Expr], between: &str, least: Level, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, expr) in list.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        at_least(expr, least, f)?;
    }
    Ok(())
}

fn signed(sign: char, inner: &Expr, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char(sign)?;
    at_least(inner, Level::Primary, f)
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Null => f.write_str("NULL"),
            Literal::Bool(true) => f.write_str("TRUE"),
            Literal::Bool(false) => f.write_str("FALSE"),
            Literal::Number(number) => number.fmt(f),
            Literal::Date(milliseconds) => write!(f, "DATE('{}')", date::print(*milliseconds)),
            Literal::Text(text) => quoted(text, f),
        }
    }
}

/// The shortest digits that are read as the same number; a float has a point or an exponent.
impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Number::Signed(value) => value.fmt(f),
            Number::Unsigned(value) => value.fmt(f),
            Number::Float(value) => write!(f, "{value:?}"),
        }
    }
}

fn quoted(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('\'')?;
    for (index, part) in text.split('\'').enumerate() {
        if index > 0 {
            f.write_str("''")?;
        }
        f.write_str(part)?;
    }
    f.write_char('\'')
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "<>",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        })
    }
}

impl Display for Arithmetic {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arithmetic::Add => "+",
            Arithmetic::Subtract => "-",
            Arithmetic::Multiply => "*",
            Arithmetic::Divide => "/",
            Arithmetic::Remainder => "%",
        })
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            Test::Compare(comparison, right) => {
                write!(f, "{comparison} ")?;
                at_least(right, Level::Sum, f)
            }
            Test::Between { low, high, negated } => {
                write!(f, "{}BETWEEN ", not(negated))?;
                at_least(low, Level::Sum, f)?;
                f.write_str(" AND ")?;
                at_least(high, Level::Sum, f)
            }
            Test::In { list, negated } => {
                write!(f, "{}IN (", not(negated))?;
                joined(list, ", ", Level::Sum, f)?;
                f.write_char(')')
            }
            Test::Like { pattern, escape, folded, negated } => {
                write!(f, "{}{} ", not(negated), if *folded { "ILIKE" } else { "LIKE" })?;
                quoted(pattern, f)?;
                let Some(escape) = escape else { return Ok(()) };
                f.write_str(" ESCAPE ")?;
                quoted(escape.encode_utf8(&mut [0; 4]), f)
            }
            Test::Regexp { regexp, negated } => {
                write!(f, "{}REGEXP ", not(negated))?;
                quoted(regexp.pattern(), f)
            }
        }
    }
}

impl Display for Quantifier {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantifier::Any => "ANY",
            Quantifier::All => "ALL",
        })
    }
}

impl Display for IsKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IsKind::Null => "NULL",
            IsKind::Missing => "MISSING",
            IsKind::True => "TRUE",
            IsKind::False => "FALSE",
        })
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Path::Field(field) => write!(f, "{}{}", field.section().prefix(), field.name()),
            Path::Header(names) => match &names[..] {
                [Step::Name(name)] if word::is_bare(name) => f.write_str(name),
                steps => stepped(Section::Headers.prefix(), steps, f),
            },
            Path::Body(path) => stepped(Section::Body.prefix(), path, f),
        }
    }
}

impl Display for ListPath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.list {
            // A word alone would be a header.
            Path::Header(names) if !self.element.is_empty() => {
                stepped(Section::Headers.prefix(), names, f)?;
            }
            list => list.fmt(f)?,
        }
        let is_root = matches!(&self.list, Path::Body(path) if path.is_empty());
        if is_root || !self.element.is_empty() {
            f.write_str("[*]")?;
        }
        stepped("", &self.element, f)
    }
}

fn stepped(prefix: &str, steps: &[Step], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(prefix)?;
    for step in steps {
        match step {
            Step::Name(name) if word::is_step(name) => {
                f.write_char('.')?;
                f.write_str(name)?;
            }
            Step::Name(name) if !name.is_empty() && !name.contains(['[', ']']) => {
                write!(f, ".[{name}]")?;
            }
            Step::Name(name) => {
                f.write_char('[')?;
                quoted(name, f)?;
                f.write_char(']')?;
            }
            Step::Index(index) => write!(f, "[{index}]")?,
            Step::Every => f.write_str("[*]")?,
        }
    }
    Ok(())
}
