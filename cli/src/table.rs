//! Tables on stdout.

use super::output;
use cohop::Result;

/// Rows of cells under a head, aligned: the first `n_left` columns to the left, the others, which hold numbers, to the
/// right.
pub(super) struct Table {
    n_left: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(n_left: usize, head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Table { n_left, rows: vec![head.into_iter().map(Into::into).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The lines of the table.
    pub(super) fn lines(&self) -> Vec<String> {
        let n_columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..n_columns).map(|column| width(column).unwrap_or(0)).collect();
        let line = |row: &Vec<String>| {
            let cell = |(column, cell): (usize, &String)| {
                let width = widths[column];
                if column < self.n_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            };
            row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }

    pub(super) fn print(&self) -> Result<()> {
        self.lines().into_iter().try_for_each(output::line)
    }
}

/// A count with separators; a small mean of counts with one decimal.
pub(super) fn count(mean: f64) -> String {
    if mean < 100.0 && mean.fract() != 0.0 {
        format!("{mean:.1}")
    } else {
        indicatif::HumanCount(mean.round() as u64).to_string()
    }
}

/// Bytes in units of powers of 1024.
pub(super) fn bytes(mean: f64) -> String {
    indicatif::BinaryBytes(mean.round() as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(1, ["name", "n"]);
        table.row(["a", "1,000"]);
        table.row(["long name", "7"]);
        assert_eq!(table.lines(), ["name           n", "a          1,000", "long name      7"]);
        assert_eq!((count(3.25), count(1234.6), count(7.0)), ("3.2".into(), "1,235".into(), "7".into()));
    }
}
