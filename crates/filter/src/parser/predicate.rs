//! What is asked of a value: comparisons, `BETWEEN`, `IN`, `LIKE`, `REGEXP`, `IS`, and `ANY` and `ALL` of an array.

use super::{Node, Parser};
use crate::error::{FilterError, Reason};
use crate::lexer::{self, Named, Sign, Token, Written, WrittenStep};
use crate::like::LikePattern;
use crate::path::{ListPath, Section, Step};
use crate::regexp;
use crate::tree::{Comparison, Expr, IsKind, Quantifier, Test};
use crate::word::Keyword;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Weight of a `REGEXP` in the static cost.
const REGEXP_COST: usize = 200;
/// Weight of a `LIKE`, which looks at all of a string.
const LIKE_COST: usize = 8;
/// Weight of a quantifier, which looks at all elements.
const QUANTIFIER_COST: usize = 16;

impl<'t> Parser<'t, '_> {
    pub(super) fn predicate(&mut self) -> Result<Node, FilterError> {
        let quantifier = match self.token {
            Token::Word(_, Keyword::Any) if self.lexer.is_call() => Some(Quantifier::Any),
            Token::Word(_, Keyword::All) if self.lexer.is_call() => Some(Quantifier::All),
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
        // Mostly it is none of those that begin with a word.
        if !matches!(self.token, Token::Word(..)) {
            return Ok(left);
        }
        if self.take_word(Keyword::Is)? {
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
            Token::Sign(Sign::Equal) => Comparison::Equal,
            Token::Sign(Sign::NotEqual) => Comparison::NotEqual,
            Token::Sign(Sign::Less) => Comparison::Less,
            Token::Sign(Sign::LessOrEqual) => Comparison::LessOrEqual,
            Token::Sign(Sign::Greater) => Comparison::Greater,
            Token::Sign(Sign::GreaterOrEqual) => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }

    /// `ANY(path)` or `ALL(path)` and its test.
    fn quantified(&mut self, quantifier: Quantifier) -> Result<Node, FilterError> {
        self.quantifiers += 1;
        self.advance()?;
        self.advance()?;
        let path = self.list_path()?;
        self.require_sign(Sign::Close, "')'")?;
        let (test, depth) = match self.comparison() {
            Some(comparison) => {
                self.advance()?;
                let right = self.sum()?;
                (Test::Compare(comparison, Box::new(right.expr)), right.depth)
            }
            None => self.test()?.ok_or_else(|| self.expected("a comparison"))?,
        };
        self.node(Expr::Quantified(quantifier, Box::new(path), test), depth, QUANTIFIER_COST)
    }

    fn list_path(&mut self) -> Result<ListPath, FilterError> {
        let at = self.at;
        match self.advance()? {
            Token::Path(section, written) => {
                let (list, element) = before_every(written);
                let list = match (list, section) {
                    // The body itself may be an array.
                    (None, Section::Body) => Named::Body(None),
                    (None, Section::Headers) => {
                        let reason = Reason::Literal(
                            "the headers table has no elements: a name comes first",
                        );
                        return Err(self.lexer.error(at, reason));
                    }
                    (None, _) => return Err(self.lexer.error(at, Reason::Every)),
                    (Some(list), _) => self.named(section, list, at)?,
                };
                self.bound(
                    element.len() <= self.limits.depth_max,
                    "levels",
                    self.limits.depth_max,
                )?;
                Ok(ListPath { list: self.name(list)?, element })
            }
            Token::Word(name, keyword) if !keyword.is_reserved() => {
                let list = self.name(lexer::named(name))?;
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
        let negated = self.take_word(Keyword::Not)?;
        let found = if self.take_word(Keyword::Between)? {
            self.between(negated)?
        } else if self.take_word(Keyword::In)? {
            self.values(negated)?
        } else if self.take_word(Keyword::Like)? {
            (self.like(false, negated)?, 0)
        } else if self.take_word(Keyword::Ilike)? {
            (self.like(true, negated)?, 0)
        } else if self.take_word(Keyword::Regexp)? {
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
        if !self.take_word(Keyword::And)? {
            return Err(self.expected("AND and the upper bound"));
        }
        let high = self.sum()?;
        let depth = low.depth.max(high.depth);
        Ok((Test::Between { low: Box::new(low.expr), high: Box::new(high.expr), negated }, depth))
    }

    fn values(&mut self, negated: bool) -> Result<(Test, usize), FilterError> {
        self.require_sign(Sign::Open, "'('")?;
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
            let goes_on = self.take_sign(Sign::Comma)?;
            if is_literal {
                // They have a bound of their own, and are found by one look-up together.
                self.tokens = before.0;
                self.cost = before.1 + usize::from(list.len() % 64 == 0);
            }
            if !goes_on {
                break;
            }
        }
        self.require_sign(Sign::Close, "',' or ')'")?;
        Ok((Test::In { list, negated }, depth))
    }

    fn string(&mut self, what: &'static str) -> Result<(Cow<'t, str>, usize), FilterError> {
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
        if self.take_word(Keyword::Escape)? {
            let (text, at) = self.string("a character in quotes")?;
            let mut characters = text.chars();
            escape = characters.next();
            if escape.is_none() || characters.next().is_some() {
                return Err(self.lexer.error(at, Reason::Literal("ESCAPE takes one character")));
            }
        }
        self.spend(LIKE_COST)?;
        match LikePattern::new(&pattern, escape, folded) {
            Ok(_) => Ok(Test::Like { pattern: (*pattern).into(), escape, folded, negated }),
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
        let negated = self.take_word(Keyword::Not)?;
        let kind = if self.take_word(Keyword::Null)? {
            IsKind::Null
        } else if self.take_word(Keyword::Missing)? {
            IsKind::Missing
        } else if self.take_word(Keyword::True)? {
            IsKind::True
        } else if self.take_word(Keyword::False)? {
            IsKind::False
        } else {
            return Err(self.expected("NULL, MISSING, TRUE or FALSE"));
        };
        self.node(Expr::Is { value: Box::new(left.expr), kind, negated }, left.depth, 1)
    }
}

/// What stands before the first `[*]` of a path, if anything does, and the steps behind it.
fn before_every(written: Written<'_>) -> (Option<Written<'_>>, Vec<Step>) {
    let star = written.iter().position(|step| *step == WrittenStep::Every);
    let element = match star {
        None => Vec::new(),
        Some(star) => written.iter().skip(star + 1).map(WrittenStep::step).collect(),
    };
    let Written { first, mut more } = written;
    match star {
        Some(0) => return (None, element),
        Some(star) => more.truncate(star - 1),
        None => {}
    }
    (Some(Written { first, more }), element)
}
