//! Plots as SVG: pure functions from figures to text.
//!
//! Made to be told apart in print: lines differ by dashes and markers, bars by hatching, as well as by
//! colour (a palette that most colour-blind readers can tell apart). Nothing is fetched: no script, no style sheet,
//! no font beyond the reader's own.

mod bars;
mod lines;
mod scale;
mod style;
mod svg;

pub use bars::{Bar, BarPlot, Group};
pub use lines::{Axis, LinePlot, Series};
pub use scale::{Unit, significant};
pub use style::Look;

use std::fmt;

/// Why figures cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlotError {
    /// A coordinate is not a number, infinite, or beyond 10^300.
    NotFinite {
        /// The line or group.
        name: String,
        /// Its point, from 0.
        at: usize,
    },
    /// A coordinate is 0 or less, and its axis is logarithmic.
    NotPositive {
        /// The line or group.
        name: String,
        /// Its point, from 0.
        at: usize,
    },
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, at, what) = match self {
            PlotError::NotFinite { name, at } => (name, at, "is no number that can be drawn"),
            PlotError::NotPositive { name, at } => {
                (name, at, "is not above 0, as a logarithmic axis needs")
            }
        };
        write!(f, "point {at} of '{name}' {what}")
    }
}

impl std::error::Error for PlotError {}
