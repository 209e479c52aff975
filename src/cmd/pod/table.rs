//! Tables for people: columns as wide as what stands in them.

use unicode_width::UnicodeWidthStr as _;

use super::Printer;
use crate::cmd::output::printable;

/// Rows of text under a line of names.
#[derive(Debug)]
pub(super) struct Table {
    /// The names first; all rows have as many cells as there are names.
    rows: Vec<Vec<String>>,
    /// Columns of numbers, which stand at the right.
    right: &'static [usize],
}

impl Table {
    /// A table with these columns; those at the places in `right` hold numbers.
    pub(super) fn new(names: &[&str], right: &'static [usize]) -> Self {
        Self { rows: vec![names.iter().map(|name| (*name).to_owned()).collect()], right }
    }

    /// Adds a row; what came from a guest is made safe for the terminal.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell.replace(['\t', '\n'], " "))).collect());
    }

    /// The lines, cut to `width` characters where one is given.
    pub(super) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().map(|row| row[column].width()).max().unwrap_or_default())
            .collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let space = " ".repeat(widths[column] - cell.width());
                let (before, after) = if self.right.contains(&column) { (&*space, "") } else { ("", &*space) };
                line.extend([before, cell, after, "  "]);
            }
            cut(line.trim_end(), width.unwrap_or(usize::MAX))
        };
        self.rows.iter().map(line).collect()
    }

    /// Prints it, whole: a table that is piped on is not cut.
    pub(super) fn print(&self, printer: Printer, width: Option<usize>) {
        for line in self.lines(width) {
            printer.line(&line);
        }
    }
}

/// As much of a line as fits.
pub(super) fn cut(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut kept = String::new();
    for character in line.chars() {
        kept.push(character);
        if kept.width() >= width {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

/// A number of bytes in three digits or fewer, and its unit.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut whole, mut tenths, mut unit) = (count, 0, 0);
    while whole >= 1024 && unit < UNITS.len() {
        tenths = (whole % 1024) * 10 / 1024;
        whole /= 1024;
        unit += 1;
    }
    if whole < 10 { format!("{whole}.{tenths} {}", UNITS[unit - 1]) } else { format!("{whole} {}", UNITS[unit - 1]) }
}

/// A time span in its two largest units at most.
pub(super) fn span(seconds: u64) -> String {
    match (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{s:02}s"),
        (0, h, m, _) => format!("{h}h{m:02}m"),
        (d, h, ..) => format!("{d}d{h:02}h"),
    }
}

/// How long ago an RFC 3339 time was, by this machine's clock; a dash where it does not read.
pub(super) fn age(time: &str) -> String {
    let Ok(time) = time.parse::<jiff::Timestamp>() else { return "-".to_owned() };
    // the guest's clock may be ahead
    span(u64::try_from(jiff::Timestamp::now().as_second() - time.as_second()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_whatever_their_width() {
        let mut table = Table::new(&["name", "size", "what"], &[1]);
        table.row(["漢字".into(), "7".into(), "x\u{1b}[2J\ny".into()]);
        table.row(["é".into(), "12345".into(), String::new()]);
        assert_eq!(table.lines(None), ["name   size  what", "漢字      7  x\u{fffd}[2J y", "é     12345"]);
        assert_eq!(table.lines(Some(8)), ["name   …", "漢字   …", "é     1…"]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0, 1023, 1024, 1536, 10 << 10, 1 << 20, 3 << 30, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10 KiB", "1.0 MiB", "3.0 GiB", "16383 PiB"]
        );
        assert_eq!([5, 65, 3600, 90061].map(span), ["5s", "1m05s", "1h00m", "1d01h"]);
        assert_eq!(age("no time"), "-");
    }
}
