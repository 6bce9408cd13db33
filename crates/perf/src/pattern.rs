//! Queue names from a pattern: `perf-test-%d` with 1 to 3 gives `perf-test-1`, `perf-test-2`, `perf-test-3`.

/// Most names that one pattern may give.
pub(crate) const NAMES_MAX: u64 = 1_000_000;

/// Expands `pattern` for every number in `from..=to`.
///
/// The pattern is a printf format with exactly one number: `%d`, with a width (`%5d`), zeros (`%03d`) or to the left
/// (`%-5d`); `%x` and `%X` and `%o` as well; `%%` is a percent sign.
///
/// # Errors
/// A text for the user: a pattern that has no or a wrong conversion, an empty or too long range.
pub(crate) fn expand(pattern: &str, from: u64, to: u64) -> Result<Vec<String>, String> {
    if from > to {
        return Err(format!("the range of queue names is empty: {from} to {to}"));
    }
    if to - from >= NAMES_MAX {
        return Err(format!("a pattern gives at most {NAMES_MAX} queue names"));
    }
    let pieces = parse(pattern)?;
    Ok((from..=to)
        .map(|number| pieces.iter().map(|piece| piece.render(number)).collect())
        .collect())
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Number { width: usize, zeros: bool, left: bool, conversion: char },
}

impl Piece {
    fn render(&self, number: u64) -> String {
        match self {
            Piece::Text(text) => text.clone(),
            Piece::Number { width, zeros, left, conversion } => {
                let width = *width;
                let digits = match conversion {
                    'x' => format!("{number:x}"),
                    'X' => format!("{number:X}"),
                    'o' => format!("{number:o}"),
                    _ => number.to_string(),
                };
                match (zeros, left) {
                    (true, _) => format!("{digits:0>width$}"),
                    (_, true) => format!("{digits:<width$}"),
                    _ => format!("{digits:>width$}"),
                }
            }
        }
    }
}

fn parse(pattern: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut numbers = 0;
    let mut rest = pattern.chars().peekable();
    while let Some(next) = rest.next() {
        if next != '%' {
            text.push(next);
            continue;
        }
        if rest.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let (mut zeros, mut left) = (false, false);
        while let Some(flag) = rest.next_if(|c| matches!(c, '0' | '-')) {
            zeros |= flag == '0';
            left |= flag == '-';
        }
        let mut width = 0usize;
        while let Some(digit) = rest.next_if(char::is_ascii_digit) {
            width = width * 10 + digit.to_digit(10).unwrap_or_default() as usize;
            if width > 200 {
                return Err(format!("the width in the pattern '{pattern}' is over 200"));
            }
        }
        let Some(conversion) = rest.next_if(|c| matches!(c, 'd' | 'x' | 'X' | 'o')) else {
            return Err(format!(
                "the pattern '{pattern}' needs %d (or %03d, %x …) after its percent sign; %% is a plain one"
            ));
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Number { width, zeros, left, conversion });
        numbers += 1;
    }
    if numbers != 1 {
        return Err(format!("the pattern '{pattern}' needs exactly one %d, it has {numbers}"));
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_counts_up_inclusively() {
        assert_eq!(
            expand("perf-test-%d", 9, 11).unwrap(),
            ["perf-test-9", "perf-test-10", "perf-test-11"]
        );
        assert_eq!(expand("%d", 3, 3).unwrap(), ["3"]);
    }

    #[test]
    fn widths_and_bases_are_printf_s() {
        assert_eq!(expand("q%03d!", 7, 7).unwrap(), ["q007!"]);
        assert_eq!(expand("q%3d!", 7, 7).unwrap(), ["q  7!"]);
        assert_eq!(expand("q%-3d!", 7, 7).unwrap(), ["q7  !"]);
        assert_eq!(expand("%04x", 255, 255).unwrap(), ["00ff"]);
        assert_eq!(expand("50%%-%d", 1, 1).unwrap(), ["50%-1"]);
        assert_eq!(expand("%02d", 100, 100).unwrap(), ["100"]);
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for pattern in ["queue", "a%d-%d", "%s", "%", "%999999d", "q%"] {
            assert!(expand(pattern, 1, 2).is_err(), "{pattern}");
        }
        assert!(expand("q%d", 2, 1).is_err());
        assert!(expand("q%d", 0, NAMES_MAX).is_err());
        assert!(expand("q%d", 0, u64::MAX).is_err());
    }
}
