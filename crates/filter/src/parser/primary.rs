//! Literals, paths, functions and parentheses.

use super::{Node, Parser};
use crate::date;
use crate::error::{FilterError, Reason};
use crate::lexer::{self, Named, Sign, Token, Written, WrittenStep};
use crate::path::{Field, Path, Section};
use crate::tree::{Expr, Function, IsKind, Literal};
use crate::word::Keyword;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Weight of a function in the static cost.
const CALL_COST: usize = 4;

impl<'t> Parser<'t, '_> {
    pub(super) fn primary(&mut self) -> Result<Node, FilterError> {
        let at = self.at;
        // What does not begin a value is looked at where it stands: the error names what is before it.
        match self.token {
            Token::Sign(Sign::Open) => {
                self.advance()?;
                let inner = self.deeper(Self::or)?;
                self.require_sign(Sign::Close, "')'")?;
                return Ok(inner);
            }
            Token::Sign(_) | Token::End => return Err(self.expected("a value")),
            Token::Word(name, keyword) => return self.word(name, keyword, at),
            Token::Path(..) | Token::Text(_) | Token::Number(_) => {}
        }
        let expr = match self.advance()? {
            Token::Path(section, written) => {
                let named = self.named(section, written, at)?;
                Expr::Path(self.name(named)?)
            }
            Token::Text(text) => Expr::Literal(Literal::Text((*text).into())),
            Token::Number(number) => Expr::Literal(Literal::Number(number)),
            _ => return Err(self.expected("a value")),
        };
        self.node(expr, 0, 1)
    }

    /// A literal, a function or a header, which begins with a word.
    fn word(&mut self, name: &'t str, keyword: Keyword, at: usize) -> Result<Node, FilterError> {
        let literal = match keyword {
            Keyword::Null => Some(Literal::Null),
            Keyword::True => Some(Literal::Bool(true)),
            Keyword::False => Some(Literal::Bool(false)),
            _ if keyword.is_reserved() => return Err(self.expected("a value")),
            _ => None,
        };
        let is_call = self.lexer.is_call();
        self.advance()?;
        let expr = match literal {
            Some(literal) => Expr::Literal(literal),
            None if is_call => return self.call(name, at),
            None => Expr::Path(self.name(lexer::named(name))?),
        };
        self.node(expr, 0, 1)
    }

    /// The field that a section's steps name, which begin at a byte of the text.
    pub(super) fn named(
        &self,
        section: Section,
        written: Written<'t>,
        at: usize,
    ) -> Result<Named<'t>, FilterError> {
        self.bound(written.len() <= self.limits.depth_max, "levels", self.limits.depth_max)?;
        if written.iter().any(|step| *step == WrittenStep::Every) {
            return Err(self.lexer.error(at, Reason::Every));
        }
        match (section, &written.first, &written.more[..]) {
            (Section::Body, ..) => Ok(Named::Body(Some(written))),
            (Section::Headers, WrittenStep::Name(_), _) => Ok(Named::Header(written)),
            (Section::Headers, ..) => {
                let reason =
                    Reason::Literal("the headers table has no indexes: a name comes first");
                Err(self.lexer.error(at, reason))
            }
            (_, WrittenStep::Name(name), []) => {
                Field::of(section, name).map(Named::Field).ok_or_else(|| {
                    let reason = Reason::Field { section: section.name(), name: (&**name).into() };
                    self.lexer.error(at, reason)
                })
            }
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
        while !self.is_sign(Sign::Close) {
            if !arguments.is_empty() {
                self.require_sign(Sign::Comma, "',' or ')'")?;
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
        self.require_sign(Sign::Close, "')'")?;
        self.node(Expr::Literal(Literal::Date(milliseconds)), 0, 1)
    }
}
