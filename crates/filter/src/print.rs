//! The normal form: keywords in capitals, one way to write each thing, parentheses only where they change something.

use crate::date;
use crate::number::{self, Number};
use crate::path::{ListPath, Path, Section, Step};
use crate::tree::{Arithmetic, Comparison, Expr, IsKind, Literal, Quantifier, Test};
use crate::word;
use alloc::string::String;
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

/// Appends the normal form of an expression.
pub(crate) fn write(expr: &Expr, out: &mut String) {
    // There is always room in a string.
    let _ = write_expr(expr, out);
}

macro_rules! displayed {
    ($($type:ty: $write:ident),* $(,)?) => {$(
        impl Display for $type {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                $write(self, f)
            }
        }
    )*};
}

displayed! {
    Expr: write_expr,
    Literal: write_literal,
    Number: write_number,
    Path: write_path,
    ListPath: write_list_path,
}

/// As deep as the expression.
fn write_expr<W: Write>(expr: &Expr, out: &mut W) -> fmt::Result {
    match expr {
        Expr::Literal(literal) => write_literal(literal, out),
        Expr::Path(path) => write_path(path, out),
        Expr::Not(inner) => {
            out.write_str("NOT ")?;
            at_least(inner, Level::Not, out)
        }
        Expr::And(list) => joined(list, " AND ", Level::Not, out),
        Expr::Or(list) => joined(list, " OR ", Level::And, out),
        Expr::Compare(comparison, left, right) => {
            at_least(left, Level::Sum, out)?;
            out.write_char(' ')?;
            out.write_str(sign(*comparison))?;
            out.write_char(' ')?;
            at_least(right, Level::Sum, out)
        }
        Expr::Arithmetic(operator, left, right) => {
            let (own, tighter) = match operator {
                Arithmetic::Add | Arithmetic::Subtract => (Level::Sum, Level::Term),
                _ => (Level::Term, Level::Unary),
            };
            at_least(left, own, out)?;
            out.write_str(match operator {
                Arithmetic::Add => " + ",
                Arithmetic::Subtract => " - ",
                Arithmetic::Multiply => " * ",
                Arithmetic::Divide => " / ",
                Arithmetic::Remainder => " % ",
            })?;
            at_least(right, tighter, out)
        }
        Expr::Negate(inner) => signed('-', inner, out),
        Expr::Plus(inner) => signed('+', inner, out),
        Expr::Test(value, test) => {
            at_least(value, Level::Sum, out)?;
            out.write_char(' ')?;
            write_test(test, out)
        }
        Expr::Quantified(quantifier, path, test) => {
            out.write_str(match quantifier {
                Quantifier::Any => "ANY(",
                Quantifier::All => "ALL(",
            })?;
            write_list_path(path, out)?;
            out.write_str(") ")?;
            write_test(test, out)
        }
        Expr::Is { value, kind, negated } => {
            at_least(value, Level::Sum, out)?;
            out.write_str(if *negated { " IS NOT " } else { " IS " })?;
            out.write_str(match kind {
                IsKind::Null => "NULL",
                IsKind::Missing => "MISSING",
                IsKind::True => "TRUE",
                IsKind::False => "FALSE",
            })
        }
        Expr::Call(function, arguments) => {
            out.write_str(function.name())?;
            out.write_char('(')?;
            joined(arguments, ", ", Level::Sum, out)?;
            out.write_char(')')
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
fn at_least<W: Write>(expr: &Expr, least: Level, out: &mut W) -> fmt::Result {
    if level(expr) >= least {
        return write_expr(expr, out);
    }
    out.write_char('(')?;
    write_expr(expr, out)?;
    out.write_char(')')
}

fn joined<W: Write>(list: &[Expr], between: &str, least: Level, out: &mut W) -> fmt::Result {
    for (index, expr) in list.iter().enumerate() {
        if index > 0 {
            out.write_str(between)?;
        }
        at_least(expr, least, out)?;
    }
    Ok(())
}

fn signed<W: Write>(sign: char, inner: &Expr, out: &mut W) -> fmt::Result {
    out.write_char(sign)?;
    at_least(inner, Level::Primary, out)
}

fn write_literal<W: Write>(literal: &Literal, out: &mut W) -> fmt::Result {
    match literal {
        Literal::Null => out.write_str("NULL"),
        Literal::Bool(true) => out.write_str("TRUE"),
        Literal::Bool(false) => out.write_str("FALSE"),
        Literal::Number(number) => write_number(number, out),
        Literal::Date(milliseconds) => write!(out, "DATE('{}')", date::print(*milliseconds)),
        Literal::Text(text) => quoted(text, out),
    }
}

/// The shortest digits that are read as the same number; a float has a point or an exponent.
fn write_number<W: Write>(number: &Number, out: &mut W) -> fmt::Result {
    match *number {
        Number::Signed(value) => write_digits(value.unsigned_abs(), value < 0, 0, out),
        Number::Unsigned(value) => write_digits(value, false, 0, out),
        Number::Float(value) => match number::digits(value) {
            Some((whole, 0)) => {
                write_digits(whole, value.is_sign_negative(), 0, out)?;
                out.write_str(".0")
            }
            Some((digits, scale)) => write_digits(digits, value.is_sign_negative(), scale, out),
            None => write!(out, "{value:?}"),
        },
    }
}

/// Digits of which so many stand behind a point.
fn write_digits<W: Write>(
    mut digits: u64,
    is_negative: bool,
    scale: usize,
    out: &mut W,
) -> fmt::Result {
    // 20 digits, a sign and a point.
    let mut buffer = [0; 22];
    let mut at = buffer.len();
    let mut put = |byte: u8| {
        at -= 1;
        buffer[at] = byte;
    };
    let mut count = 0;
    while digits > 0 || count <= scale {
        if count == scale && scale > 0 {
            put(b'.');
        }
        put(b'0' + (digits % 10) as u8);
        (digits, count) = (digits / 10, count + 1);
    }
    if is_negative {
        put(b'-');
    }
    out.write_str(core::str::from_utf8(&buffer[at..]).unwrap_or_default())
}

fn quoted<W: Write>(text: &str, out: &mut W) -> fmt::Result {
    out.write_char('\'')?;
    for (index, part) in text.split('\'').enumerate() {
        if index > 0 {
            out.write_str("''")?;
        }
        out.write_str(part)?;
    }
    out.write_char('\'')
}

fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

fn write_test<W: Write>(test: &Test, out: &mut W) -> fmt::Result {
    let not = |negated: bool, word: &str, out: &mut W| {
        if negated {
            out.write_str("NOT ")?;
        }
        out.write_str(word)
    };
    match test {
        Test::Compare(comparison, right) => {
            out.write_str(sign(*comparison))?;
            out.write_char(' ')?;
            at_least(right, Level::Sum, out)
        }
        Test::Between { low, high, negated } => {
            not(*negated, "BETWEEN ", out)?;
            at_least(low, Level::Sum, out)?;
            out.write_str(" AND ")?;
            at_least(high, Level::Sum, out)
        }
        Test::In { list, negated } => {
            not(*negated, "IN (", out)?;
            joined(list, ", ", Level::Sum, out)?;
            out.write_char(')')
        }
        Test::Like { pattern, escape, folded, negated } => {
            not(*negated, if *folded { "ILIKE " } else { "LIKE " }, out)?;
            quoted(pattern, out)?;
            let Some(escape) = escape else { return Ok(()) };
            out.write_str(" ESCAPE ")?;
            quoted(escape.encode_utf8(&mut [0; 4]), out)
        }
        Test::Regexp { regexp, negated } => {
            not(*negated, "REGEXP ", out)?;
            quoted(regexp.pattern(), out)
        }
    }
}

fn write_path<W: Write>(path: &Path, out: &mut W) -> fmt::Result {
    match path {
        Path::Field(field) => {
            out.write_str(field.section().prefix())?;
            out.write_str(field.name())
        }
        Path::Header(names) => match &names[..] {
            [Step::Name(name)] if word::is_bare(name) => out.write_str(name),
            steps => stepped(Section::Headers.prefix(), steps, out),
        },
        Path::Body(path) => stepped(Section::Body.prefix(), path, out),
    }
}

fn write_list_path<W: Write>(path: &ListPath, out: &mut W) -> fmt::Result {
    match &path.list {
        // A word alone would be a header.
        Path::Header(names) if !path.element.is_empty() => {
            stepped(Section::Headers.prefix(), names, out)?;
        }
        list => write_path(list, out)?,
    }
    let is_root = matches!(&path.list, Path::Body(path) if path.is_empty());
    if is_root || !path.element.is_empty() {
        out.write_str("[*]")?;
    }
    stepped("", &path.element, out)
}

fn stepped<W: Write>(prefix: &str, steps: &[Step], out: &mut W) -> fmt::Result {
    out.write_str(prefix)?;
    for step in steps {
        match step {
            Step::Name(name) if word::is_step(name) => {
                out.write_char('.')?;
                out.write_str(name)?;
            }
            Step::Name(name) if !name.is_empty() && !name.contains(['[', ']']) => {
                write!(out, ".[{name}]")?;
            }
            Step::Name(name) => {
                out.write_char('[')?;
                quoted(name, out)?;
                out.write_char(']')?;
            }
            Step::Index(index) => write!(out, "[{index}]")?,
            Step::Every => out.write_str("[*]")?,
        }
    }
    Ok(())
}
