//! How lines and bars are told apart.

/// Colours after Okabe and Ito, darkest first where it helps print.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#8a4f7d", "#b8860b", "#000000", "#3a9bd1"];
const DASHES: [&str; 6] = ["", "8 4", "2 3", "10 3 2 3", "14 5", "5 2 1 2 1 2"];

/// Which colour and which pattern a line or bar has; numbers beyond what there is begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The colour, for one thing at a time: the broker, say.
    pub colour: usize,
    /// Dashes and marker of a line, hatching of a bar: the run, say.
    pub pattern: usize,
}

impl Look {
    /// The same number for both.
    #[must_use]
    pub fn nth(number: usize) -> Look {
        Look { colour: number, pattern: number }
    }

    pub(super) fn colour(self) -> &'static str {
        COLOURS[self.colour % COLOURS.len()]
    }

    pub(super) fn dashes(self) -> &'static str {
        DASHES[self.pattern % DASHES.len()]
    }

    /// A marker as a path around (0, 0), and whether it is filled.
    pub(super) fn marker(self) -> (&'static str, bool) {
        match self.pattern % 6 {
            0 => ("M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z", true),
            1 => ("M-3.4-3.4h6.8v6.8h-6.8z", false),
            2 => ("M0-4.4L4.2 3.2H-4.2z", true),
            3 => ("M0-4.8L4.8 0L0 4.8L-4.8 0z", false),
            4 => ("M-3.6-3.6L3.6 3.6M-3.6 3.6L3.6-3.6", false),
            _ => ("M0-4.6V4.6M-4.6 0H4.6", false),
        }
    }

    /// What is drawn over a bar's light fill, as a path in a tile of 8 × 8.
    pub(super) fn hatching(self) -> &'static str {
        match self.pattern % 5 {
            0 => "",
            1 => "M-2 2l4-4M0 8l8-8M6 10l4-4",
            2 => "M0 4h8",
            3 => "M4 0v8M0 4h8",
            _ => "M-2 6l4 4M0 0l8 8M6-2l4 4",
        }
    }
}
