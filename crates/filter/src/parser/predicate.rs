//! What is asked of a value: comparisons, `BETWEEN`, `IN`, `LIKE`, `REGEXP`, `IS`, and `ANY` and `ALL` of an array.

use super::{Node, Parser};
use crate::error::{FilterError, Reason};
use crate::lexer::Token;
use crate::like::LikePattern;
use crate::path::{ListPath, Path, Step};
use crate::regexp;
use crate::tree::{Comparison, Expr, IsKind, Quantifier, Test};
use crate::word;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Weight of a `REGEXP` in the static cost.
const REGEXP_COST: usize = 200;
/// Weight of a `LIKE`, which looks at all of a string.
const LIKE_COST: usize = 8;
/// Weight of a quantifier, which looks at all elements.
const QUANTIFIER_COST: usize = 16;

impl Parser<'_, '_> {
    pub(super) fn predicate(&mut self) -> Result<Node, FilterError> {
        let quantifier = match self.token {
            Token::Word(word) if self.lexer.is_call() => match word {
                _ if word.eq_ignore_ascii_case("ANY") => Some(Quantifier::Any),
                _ if word.eq_ignore_ascii_case("ALL") => Some(Quantifier::All),
                _ => None,
            },
            _ => None,
        };
        if let Some(quantifier) = quantifier {
            return self.quantified(quantifier);
        }
        let left = self.sum()?;
        if let Some(comparison) = self.comparison() {
            self.advance()?;
            let right = self.sum()?;
            let depth = left.depth.max(right.depth);
            let expr = Expr::Compare(comparison, Box::new(left.expr), Box::new(right.expr));
            return self.node(expr, depth, 1);
        }
        if self.take_word("IS")? {
            return self.is(left);
        }
        match self.test()? {
            Some((test, depth)) => {
                let depth = depth.max(left.depth);
                self.node(Expr::Test(Box::new(left.expr), test), depth, 1)
            }
            None => Ok(left),
        }
    }

    fn comparison(&self) -> Option<Comparison> {
        Some(match self.token {
            Token::Sign("=") => Comparison::Equal,
            Token::Sign("<>") => Comparison::NotEqual,
            Token::Sign("<") => Comparison::Less,
            Token::Sign("<=") => Comparison::LessOrEqual,
            Token::Sign(">") => Comparison::Greater,
            Token::Sign(">=") => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }

    /// `ANY(path)` or `ALL(path)` and its test.
    fn quantified(&mut self, quantifier: Quantifier) -> Result<Node, FilterError> {
        self.quantifiers += 1;
        self.advance()?;
        self.advance()?;
        let path = self.list_path()?;
        self.require_sign(")", "')'")?;
        let (test, depth) = match self.comparison() {
            Some(comparison) => {
                self.advance()?;
                let right = self.sum()?;
                (Test::Compare(comparison, Box::new(right.expr)), right.depth)
            }
            None => self.test()?.ok_or_else(|| self.expected("a comparison"))?,
        };
        self.node(Expr::Quantified(quantifier, path, test), depth, QUANTIFIER_COST)
    }

    fn list_path(&mut self) -> Result<ListPath, FilterError> {
        let at = self.at;
        match self.advance()? {
            Token::Path(section, mut steps) => {
                let star = steps.iter().position(|step| *step == Step::Every);
                let element = star.map_or_else(Vec::new, |star| steps.split_off(star).split_off(1));
                let list = match steps.is_empty() {
                    // The body itself may be an array.
                    true => Path::Body(Vec::new()),
                    false => self.path(section, steps, at)?,
                };
                self.bound(
                    element.len() <= self.limits.depth_max,
                    "levels",
                    self.limits.depth_max,
                )?;
                self.name(&list)?;
                Ok(ListPath { list, element })
            }
            Token::Word(name) if !word::is_reserved(name) => {
                let list = word::field(name);
                self.name(&list)?;
                Ok(ListPath { list, element: Vec::new() })
            }
            _ => {
                let after = "(".into();
                Err(self.lexer.error(at, Reason::Expected { what: "a path", after }))
            }
        }
    }

    /// A test that begins with a word, and its depth.
    fn test(&mut self) -> Result<Option<(Test, usize)>, FilterError> {
        let negated = self.take_word("NOT")?;
        let found = if self.take_word("BETWEEN")? {
            self.between(negated)?
        } else if self.take_word("IN")? {
            self.values(negated)?
        } else if self.take_word("LIKE")? {
            (self.like(false, negated)?, 0)
        } else if self.take_word("ILIKE")? {
            (self.like(true, negated)?, 0)
        } else if self.take_word("REGEXP")? {
            (self.regexp(negated)?, 0)
        } else if negated {
            return Err(self.expected("BETWEEN, IN, LIKE, ILIKE or REGEXP"));
        } else {
            return Ok(None);
        };
        Ok(Some(found))
    }

    fn between(&mut self, negated: bool) -> Result<(Test, usize), FilterError> {
        let low = self.sum()?;
        if !self.take_word("AND")? {
            return Err(self.expected("AND and the upper bound"));
        }
        let high = self.sum()?;
        let depth = low.depth.max(high.depth);
        Ok((Test::Between { low: Box::new(low.expr), high: Box::new(high.expr), negated }, depth))
    }

    fn values(&mut self, negated: bool) -> Result<(Test, usize), FilterError> {
        self.require_sign("(", "'('")?;
        let (mut list, mut depth) = (Vec::new(), 0);
        loop {
            let before = (self.tokens, self.cost);
            let value = self.sum()?;
            self.in_values += 1;
            let allowed = self.limits.in_values_max;
            self.bound(self.in_values <= allowed, "values of IN", allowed)?;
            depth = depth.max(value.depth);
            let is_literal = matches!(value.expr, Expr::Literal(_));
            list.push(value.expr);
            let goes_on = self.take_sign(",")?;
            if is_literal {
                // They have a bound of their own, and are found by one look-up together.
                self.tokens = before.0;
                self.cost = before.1 + usize::from(list.len() % 64 == 0);
            }
            if !goes_on {
                break;
            }
        }
        self.require_sign(")", "',' or ')'")?;
        Ok((Test::In { list, negated }, depth))
    }

    fn string(&mut self, what: &'static str) -> Result<(String, usize), FilterError> {
        let at = self.at;
        if !matches!(self.token, Token::Text(_)) {
            return Err(self.expected(what));
        }
        match self.advance()? {
            Token::Text(text) => Ok((text, at)),
            _ => Err(self.expected(what)),
        }
    }

    fn like(&mut self, folded: bool, negated: bool) -> Result<Test, FilterError> {
        self.likes += 1;
        self.bound(self.likes <= self.limits.likes_max, "LIKE", self.limits.likes_max)?;
        let (pattern, at) = self.string("a pattern in quotes")?;
        let mut escape = None;
        if self.take_word("ESCAPE")? {
            let (text, at) = self.string("a character in quotes")?;
            let mut characters = text.chars();
            escape = characters.next();
            if escape.is_none() || characters.next().is_some() {
                return Err(self.lexer.error(at, Reason::Literal("ESCAPE takes one character")));
            }
        }
        self.spend(LIKE_COST)?;
        match LikePattern::new(&pattern, escape, folded) {
            Ok(_) => Ok(Test::Like { pattern: pattern.into(), escape, folded, negated }),
            Err(text) => Err(self.lexer.error(at, Reason::Literal(text))),
        }
    }

    fn regexp(&mut self, negated: bool) -> Result<Test, FilterError> {
        self.regexps += 1;
        self.bound(self.regexps <= self.limits.regexps_max, "REGEXP", self.limits.regexps_max)?;
        let (pattern, at) = self.string("a regular expression in quotes")?;
        self.spend(REGEXP_COST)?;
        let allowed = self.limits.regexp_text_bytes_max;
        self.bound(pattern.len() <= allowed, "bytes of a regular expression", allowed)?;
        let refuse = |text| self.lexer.error(at, Reason::Regexp(text));
        let parsed = regexp::parse(&pattern).map_err(refuse)?;
        self.weight.regexps += parsed.weight;
        let allowed = self.limits.regexps_weight_max;
        let what = "units of what regular expressions take to be translated";
        self.bound(self.weight.regexps <= allowed, what, allowed)?;
        let refuse = |text| self.lexer.error(at, Reason::Regexp(text));
        let regexp = regexp::compile(&pattern, &parsed, self.limits.regexp_bytes_max);
        let regexp = regexp.map_err(refuse)?;
        self.weight.regexp_bytes += regexp.bytes();
        Ok(Test::Regexp { regexp, negated })
    }

    fn is(&mut self, left: Node) -> Result<Node, FilterError> {
        let negated = self.take_word("NOT")?;
        let kind = if self.take_word("NULL")? {
            IsKind::Null
        } else if self.take_word("MISSING")? {
            IsKind::Missing
        } else if self.take_word("TRUE")? {
            IsKind::True
        } else if self.take_word("FALSE")? {
            IsKind::False
        } else {
            return Err(self.expected("NULL, MISSING, TRUE or FALSE"));
        };
        self.node(Expr::Is { value: Box::new(left.expr), kind, negated }, left.depth, 1)
    }
}
