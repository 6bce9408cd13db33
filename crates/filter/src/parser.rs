//! From tokens to the tree: recursive descent, as deep as the limits allow.

mod predicate;
mod primary;

use crate::error::{FilterError, Reason};
use crate::lexer::{Lexer, Named, Sign, Token};
use crate::limits::{Limits, Weight};
use crate::path::Path;
use crate::tree::{Arithmetic, Expr, Literal};
use crate::word::Keyword;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Reads a filter.
///
/// # Errors
/// Where and why it is none, or which limit it passes.
pub(crate) fn parse(text: &str, limits: &Limits) -> Result<Parsed, FilterError> {
    let lexer = Lexer::new(text);
    if text.len() > limits.text_bytes_max {
        let allowed = limits.text_bytes_max;
        return Err(lexer.error(text.len(), Reason::Limit { what: "bytes", allowed }));
    }
    let mut parser = Parser {
        lexer,
        text,
        limits,
        token: Token::End,
        at: 0,
        end: 0,
        previous: (0, 0),
        depth: 0,
        tokens: 0,
        in_values: 0,
        likes: 0,
        regexps: 0,
        quantifiers: 0,
        weight: Weight::default(),
        fields: Vec::new(),
        cost: 0,
    };
    parser.advance()?;
    let tree = parser.or()?;
    match parser.token {
        Token::End => Ok(Parsed {
            tree: tree.expr,
            fields: parser.fields.len(),
            steps: parser.fields.iter().map(Named::len).sum(),
            quantifiers: parser.quantifiers,
            weight: Weight { cost: parser.cost, ..parser.weight },
        }),
        _ => Err(parser.expected("AND, OR or the end")),
    }
}

/// A filter that was read.
pub(crate) struct Parsed {
    pub(crate) tree: Expr,
    /// Distinct fields that it names, and the steps of these.
    pub(crate) fields: usize,
    pub(crate) steps: usize,
    /// How many `ANY` and `ALL` it has.
    pub(crate) quantifiers: usize,
    pub(crate) weight: Weight,
}

/// A part of the tree and how many levels it has.
struct Node {
    expr: Expr,
    depth: usize,
}

struct Parser<'t, 'l> {
    lexer: Lexer<'t>,
    text: &'t str,
    limits: &'l Limits,
    /// The next token, its first byte and the one behind it.
    token: Token<'t>,
    at: usize,
    end: usize,
    /// First byte of the token before, and the one behind it.
    previous: (usize, usize),
    /// Levels of rules that are open.
    depth: usize,
    tokens: usize,
    in_values: usize,
    likes: usize,
    regexps: usize,
    quantifiers: usize,
    weight: Weight,
    /// Those that it names, each once.
    fields: Vec<Named<'t>>,
    cost: usize,
}

impl<'t> Parser<'t, '_> {
    /// Goes to the next token and returns the one that was next.
    fn advance(&mut self) -> Result<Token<'t>, FilterError> {
        self.previous = (self.at, self.end);
        let (token, at) = self.lexer.next()?;
        (self.at, self.end) = (at, self.lexer.place());
        self.tokens += 1;
        // One for the end.
        self.bound(self.tokens <= self.limits.tokens_max + 1, "tokens", self.limits.tokens_max)?;
        Ok(core::mem::replace(&mut self.token, token))
    }

    fn error(&self, reason: Reason) -> FilterError {
        self.lexer.error(self.at, reason)
    }

    fn expected(&self, what: &'static str) -> FilterError {
        let after = self.text.get(self.previous.0..self.previous.1).unwrap_or_default();
        self.error(Reason::Expected { what, after: after.chars().take(40).collect() })
    }

    fn bound(&self, holds: bool, what: &'static str, allowed: usize) -> Result<(), FilterError> {
        if holds { Ok(()) } else { Err(self.error(Reason::Limit { what, allowed })) }
    }

    fn spend(&mut self, weight: usize) -> Result<(), FilterError> {
        self.cost += weight;
        self.bound(self.cost <= self.limits.cost_max, "units of cost", self.limits.cost_max)
    }

    /// Notes that a field is named.
    fn name(&mut self, named: Named<'t>) -> Result<Path, FilterError> {
        let path = named.path();
        if !self.fields.contains(&named) {
            self.fields.push(named);
        }
        let allowed = self.limits.fields_max;
        self.bound(self.fields.len() <= allowed, "fields", allowed)?;
        Ok(path)
    }

    #[inline]
    fn is_sign(&self, sign: Sign) -> bool {
        matches!(self.token, Token::Sign(found) if found == sign)
    }

    #[inline]
    fn is_word(&self, word: Keyword) -> bool {
        matches!(self.token, Token::Word(_, found) if found == word)
    }

    /// Goes on if this sign is next.
    #[inline]
    fn take_sign(&mut self, sign: Sign) -> Result<bool, FilterError> {
        let is_next = self.is_sign(sign);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    /// Goes on if this word is next.
    #[inline]
    fn take_word(&mut self, word: Keyword) -> Result<bool, FilterError> {
        let is_next = self.is_word(word);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn require_sign(&mut self, sign: Sign, what: &'static str) -> Result<(), FilterError> {
        if self.take_sign(sign)? { Ok(()) } else { Err(self.expected(what)) }
    }

    /// A node above others, the deepest of which has so many levels.
    fn node(&mut self, expr: Expr, below: usize, weight: usize) -> Result<Node, FilterError> {
        self.spend(weight)?;
        self.weight.nodes += 1;
        let depth = below + 1;
        self.bound(depth <= self.limits.depth_max, "levels", self.limits.depth_max)?;
        Ok(Node { expr, depth })
    }

    /// Runs a rule one level deeper.
    fn deeper(
        &mut self,
        rule: impl FnOnce(&mut Self) -> Result<Node, FilterError>,
    ) -> Result<Node, FilterError> {
        self.depth += 1;
        self.bound(self.depth <= self.limits.depth_max, "levels", self.limits.depth_max)?;
        let node = rule(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn or(&mut self) -> Result<Node, FilterError> {
        let first = self.and()?;
        if !self.is_word(Keyword::Or) {
            return Ok(first);
        }
        let mut depth = first.depth;
        let mut list = Vec::new();
        let mut push = |node: Node| {
            depth = depth.max(node.depth);
            match node.expr {
                // Parentheses around one of them change nothing.
                Expr::Or(inner) => list.extend(inner),
                other => list.push(other),
            }
        };
        push(first);
        while self.take_word(Keyword::Or)? {
            push(self.and()?);
        }
        self.node(Expr::Or(list), depth, 1)
    }

    fn and(&mut self) -> Result<Node, FilterError> {
        let first = self.not()?;
        if !self.is_word(Keyword::And) {
            return Ok(first);
        }
        let mut depth = first.depth;
        let mut list = Vec::new();
        let mut push = |node: Node| {
            depth = depth.max(node.depth);
            match node.expr {
                Expr::And(inner) => list.extend(inner),
                other => list.push(other),
            }
        };
        push(first);
        while self.take_word(Keyword::And)? {
            push(self.not()?);
        }
        self.node(Expr::And(list), depth, 1)
    }

    fn not(&mut self) -> Result<Node, FilterError> {
        if !self.take_word(Keyword::Not)? {
            return self.predicate();
        }
        let inner = self.deeper(Self::not)?;
        self.node(Expr::Not(Box::new(inner.expr)), inner.depth, 1)
    }

    fn sum(&mut self) -> Result<Node, FilterError> {
        let first = self.unary()?;
        match self.token {
            Token::Sign(sign) if sign.is_arithmetic() => self.terms(first),
            // Mostly it is a value alone.
            _ => Ok(first),
        }
    }

    /// What is added to a sum, whose first value was read.
    fn terms(&mut self, first: Node) -> Result<Node, FilterError> {
        let mut left = self.factors(first)?;
        loop {
            let operator = match self.token {
                Token::Sign(Sign::Plus) => Arithmetic::Add,
                Token::Sign(Sign::Minus) => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.advance()?;
            let first = self.unary()?;
            let right = self.factors(first)?;
            left = self.arithmetic(operator, left, right)?;
        }
    }

    /// What a value is multiplied with, which was read.
    fn factors(&mut self, first: Node) -> Result<Node, FilterError> {
        let mut left = first;
        loop {
            let operator = match self.token {
                Token::Sign(Sign::Times) => Arithmetic::Multiply,
                Token::Sign(Sign::Over) => Arithmetic::Divide,
                Token::Sign(Sign::Percent) => Arithmetic::Remainder,
                _ => return Ok(left),
            };
            self.advance()?;
            let right = self.unary()?;
            left = self.arithmetic(operator, left, right)?;
        }
    }

    fn arithmetic(
        &mut self,
        operator: Arithmetic,
        left: Node,
        right: Node,
    ) -> Result<Node, FilterError> {
        let depth = left.depth.max(right.depth);
        let expr = Expr::Arithmetic(operator, Box::new(left.expr), Box::new(right.expr));
        self.node(expr, depth, 1)
    }

    #[inline]
    fn unary(&mut self) -> Result<Node, FilterError> {
        match self.token {
            Token::Sign(Sign::Minus) => self.signed(true),
            Token::Sign(Sign::Plus) => self.signed(false),
            _ => self.primary(),
        }
    }

    /// A value behind its sign, which is next.
    fn signed(&mut self, is_minus: bool) -> Result<Node, FilterError> {
        self.advance()?;
        let inner = self.primary()?;
        // A literal with a sign is a literal, unless it leaves the range.
        if let Expr::Literal(Literal::Number(number)) = inner.expr
            && let Some(signed) = if is_minus { number.checked_neg() } else { Some(number) }
        {
            return Ok(Node { expr: Expr::Literal(Literal::Number(signed)), depth: inner.depth });
        }
        let depth = inner.depth;
        let inner = Box::new(inner.expr);
        self.node(if is_minus { Expr::Negate(inner) } else { Expr::Plus(inner) }, depth, 1)
    }
}
