//! What a filter's text may ask for.

/// Bounds of one filter, checked when it is given and never at a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text.
    pub text_bytes_max: usize,
    /// Tokens, the values of `IN` left out.
    pub tokens_max: usize,
    /// Levels of the expression: parentheses, `NOT`, calls, operators inside each other.
    pub depth_max: usize,
    /// Values of all `IN` together.
    pub in_values_max: usize,
    /// `LIKE` and `ILIKE`.
    pub likes_max: usize,
    /// `REGEXP`.
    pub regexps_max: usize,
    /// Bytes of the text of one regular expression.
    pub regexp_text_bytes_max: usize,
    /// What translating all regular expressions of a filter may take, by what is in them: 1 for a character, 100 for the
    /// class of word characters. 1 is some three microseconds.
    pub regexps_weight_max: usize,
    /// Bytes of one compiled regular expression.
    pub regexp_bytes_max: usize,
    /// Distinct fields.
    pub fields_max: usize,
    /// Sum of the nodes' weights: 1 for a node, more for what looks at every byte of a string, 200 for a `REGEXP`.
    pub cost_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            text_bytes_max: 16 * 1024,
            tokens_max: 2000,
            depth_max: 64,
            in_values_max: 10_000,
            likes_max: 16,
            regexps_max: 4,
            regexp_text_bytes_max: 1024,
            regexps_weight_max: 2000,
            regexp_bytes_max: 64 * 1024,
            fields_max: 64,
            cost_max: 4000,
        }
    }
}

/// Places at which a filter is filed at most: one that wants more is evaluated for each message.
pub(crate) const PLACES_MAX: usize = 64;

/// What a filter is made of, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    /// Nodes of the tree.
    pub(crate) nodes: usize,
    /// Sum of the nodes' weights, see [`Limits::cost_max`].
    pub(crate) cost: usize,
    /// What translating its regular expressions took.
    pub(crate) regexps: usize,
    /// Bytes of what these were compiled to.
    pub(crate) regexp_bytes: usize,
}
