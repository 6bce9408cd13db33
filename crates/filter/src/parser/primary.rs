//! Literals, paths, functions and parentheses.

use super::{Node, Parser};
use crate::date;
use crate::error::{FilterError, Reason};
use crate::lexer::Token;
use crate::path::{Field, Path, Section, Step};
use crate::tree::{Expr, Function, IsKind, Literal};
use crate::word;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Weight of a function in the static cost.
const CALL_COST: usize = 4;

impl Parser<'_, '_> {
    pub(super) fn primary(&mut self) -> Result<Node, FilterError> {
        let at = self.at;
        let is_call = matches!(self.token, Token::Word(_)) && self.lexer.is_call();
        let literal = match self.token {
            Token::Sign("(") => {
                self.advance()?;
                let inner = self.deeper(Self::or)?;
                self.require_sign(")", "')'")?;
                return Ok(inner);
            }
            Token::Word(name) if name.eq_ignore_ascii_case("NULL") => Literal::Null,
            Token::Word(name) if name.eq_ignore_ascii_case("TRUE") => Literal::Bool(true),
            Token::Word(name) if name.eq_ignore_ascii_case("FALSE") => Literal::Bool(false),
            Token::Word(name) if !word::is_reserved(name) => {
                self.advance()?;
                return match is_call {
                    true => self.call(name, at),
                    false => {
                        let path = word::field(name);
                        self.name(&path)?;
                        self.node(Expr::Path(path), 0, 1)
                    }
                };
            }
            Token::Path(..) => {
                let Token::Path(section, steps) = self.advance()? else {
                    return Err(self.expected("a value"));
                };
                let path = self.path(section, steps, at)?;
                self.name(&path)?;
                return self.node(Expr::Path(path), 0, 1);
            }
            Token::Text(_) | Token::Number(_) => {
                let literal = match self.advance()? {
                    Token::Text(text) => Literal::Text(text.into()),
                    Token::Number(number) => Literal::Number(number),
                    _ => Literal::Null,
                };
                return self.node(Expr::Literal(literal), 0, 1);
            }
            _ => return Err(self.expected("a value")),
        };
        self.advance()?;
        self.node(Expr::Literal(literal), 0, 1)
    }

    /// The path of a section's steps, which begin at a byte of the text.
    pub(super) fn path(
        &self,
        section: Section,
        steps: Vec<Step>,
        at: usize,
    ) -> Result<Path, FilterError> {
        self.bound(steps.len() <= self.limits.depth_max, "levels", self.limits.depth_max)?;
        if steps.contains(&Step::Every) {
            return Err(self.lexer.error(at, Reason::Every));
        }
        match (section, &steps[..]) {
            (Section::Body, _) => Ok(Path::Body(steps)),
            (Section::Headers, [Step::Name(_), ..]) => Ok(Path::Header(steps)),
            (Section::Headers, _) => {
                let reason =
                    Reason::Literal("the headers table has no indexes: a name comes first");
                Err(self.lexer.error(at, reason))
            }
            (_, [Step::Name(name)]) => Field::of(section, name).map(Path::Field).ok_or_else(|| {
                let reason = Reason::Field { section: section.name(), name: (&**name).into() };
                self.lexer.error(at, reason)
            }),
            _ => Err(self.lexer.error(at, Reason::Literal("this field has no parts"))),
        }
    }

    /// A function, behind its name.
    fn call(&mut self, name: &str, at: usize) -> Result<Node, FilterError> {
        if name.eq_ignore_ascii_case("DATE") {
            return self.date();
        }
        // RabbitMQ's name for it.
        let name = if name.eq_ignore_ascii_case("UTC") { "NOW" } else { name };
        let known = Function::ALL.iter().find(|known| name.eq_ignore_ascii_case(known.name()));
        let Some(&function) = known else {
            return Err(self.lexer.error(at, Reason::Function(name.into())));
        };
        self.advance()?;
        let (least, most, takes) = function.arguments();
        let (mut arguments, mut depth) = (Vec::new(), 0);
        while !self.is_sign(")") {
            if !arguments.is_empty() {
                self.require_sign(",", "',' or ')'")?;
            }
            let argument = self.deeper(Self::sum)?;
            depth = depth.max(argument.depth);
            arguments.push(argument.expr);
        }
        let is_count_right = (least..=most).contains(&arguments.len());
        let takes_path = matches!(function, Function::Size | Function::Exists);
        if !is_count_right || takes_path && !matches!(arguments[..], [Expr::Path(_)]) {
            let reason = Reason::Arguments { function: function.name(), takes };
            return Err(self.lexer.error(at, reason));
        }
        self.advance()?;
        if let (Function::Exists, [Expr::Path(path)]) = (function, &arguments[..]) {
            // A property is there or it is not; elsewhere null is something that is there.
            let kind = match path {
                Path::Field(_) => IsKind::Null,
                _ => IsKind::Missing,
            };
            let value = Box::new(Expr::Path(path.clone()));
            return self.node(Expr::Is { value, kind, negated: true }, depth, CALL_COST);
        }
        self.node(Expr::Call(function, arguments), depth, CALL_COST)
    }

    fn date(&mut self) -> Result<Node, FilterError> {
        self.advance()?;
        let at = self.at;
        if !matches!(self.token, Token::Text(_)) {
            return Err(self.expected("a point of time in quotes"));
        }
        let parsed = match self.advance()? {
            Token::Text(text) => date::parse(&text),
            _ => None,
        };
        let Some(milliseconds) = parsed else {
            let reason =
                Reason::Literal("write a point of time as '2026-01-31T00:00:00Z' or '2026-01-31'");
            return Err(self.lexer.error(at, reason));
        };
        self.require_sign(")", "')'")?;
        self.node(Expr::Literal(Literal::Date(milliseconds)), 0, 1)
    }
}
