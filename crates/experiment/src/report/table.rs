//! A table, for the page and for a terminal.

/// A head and rows below it, each with as many cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The head.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new<const N: usize>(head: [&str; N]) -> Table {
        Table { head: head.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    /// The same without columns in which no row has anything but a dash.
    #[must_use]
    pub fn without_empty_columns(mut self) -> Table {
        let has_text =
            |at: &usize| self.rows.iter().any(|row| row.get(*at).is_some_and(|cell| cell != "-"));
        let kept: Vec<usize> = (0..self.head.len()).filter(has_text).collect();
        for cells in std::iter::once(&mut self.head).chain(&mut self.rows) {
            *cells = kept.iter().filter_map(|at| cells.get(*at).cloned()).collect();
        }
        self
    }

    /// The table for a terminal: figures stand below each other by their ends, words by their beginnings.
    #[must_use]
    pub fn text(&self) -> String {
        let cells = |at: usize| self.rows.iter().filter_map(move |row| row.get(at));
        let width = |at: usize| {
            let widths = cells(at).chain(self.head.get(at)).map(|cell| cell.chars().count());
            widths.max().unwrap_or(0)
        };
        let is_word = |cell: &String| cell.starts_with(|first: char| first.is_alphabetic());
        let columns: Vec<(usize, bool)> =
            (0..self.head.len()).map(|at| (width(at), cells(at).any(is_word))).collect();
        let mut out = String::new();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let cells = row.iter().zip(&columns).map(|(cell, (width, is_words))| match is_words {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            });
            out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_at_the_right_and_words_at_the_left() {
        let mut table = Table::new(["who", "µs", "note"]);
        table.rows.push(vec!["lepus".to_owned(), "1.5".to_owned(), String::new()]);
        table.rows.push(vec!["x".to_owned(), "10.25".to_owned(), "late".to_owned()]);
        let text = "who       µs  note\nlepus    1.5\nx      10.25  late\n";
        assert_eq!(table.text(), text);
    }

    #[test]
    fn a_column_of_dashes_is_left_out() {
        let mut table = Table::new(["who", "a", "b"]);
        table.rows.push(vec!["x".to_owned(), "-".to_owned(), "1".to_owned()]);
        table.rows.push(vec!["y".to_owned(), "-".to_owned(), "-".to_owned()]);
        assert_eq!(table.without_empty_columns().text(), "who  b\nx    1\ny    -\n");
    }
}
