//! Lines of ranks on one output: which of them are shown before they end, and how they are parted.
//!
//! Kept true: no two ranks share a line, unless it is longer than what is kept of it; where a line
//! is shown before its end (a prompt) and another rank's comes, it is ended for that. All bytes of
//! a rank come out in their order.

use eyrie_control::Stream;
use std::collections::BTreeMap;

/// A line longer than this is shown in parts.
const MOST_BYTES: usize = 128 << 10;

/// What is to be written, and how many bytes of the rank's that are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub text: Vec<u8>,
    pub bytes: usize,
}

/// The lines of all ranks.
pub struct Lines {
    label: bool,
    /// Standard output and standard error are one terminal.
    together: bool,
    /// What has come of lines that are not shown yet.
    kept: BTreeMap<(u32, u8), Vec<u8>>,
    /// Whose line is shown, and has not ended, on either output.
    open: [Option<(u32, u8)>; 2],
}

impl Lines {
    pub fn new(label: bool, together: bool) -> Lines {
        Lines { label, together, kept: BTreeMap::new(), open: [None; 2] }
    }

    /// Where a line may be open.
    fn open(&mut self, stream: u8) -> &mut Option<(u32, u8)> {
        &mut self.open[if self.together { 0 } else { usize::from(stream) }]
    }

    /// A rank has written this. An unfinished line is kept, or shown `at_once`.
    pub fn take(&mut self, rank: u32, stream: Stream, bytes: &[u8], at_once: bool) -> Shown {
        let key = (rank, stream as u8);
        let mut all = self.kept.remove(&key).unwrap_or_default();
        all.extend_from_slice(bytes);
        let end = all.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if all.len() > end && !at_once && all.len() - end < MOST_BYTES {
            self.kept.insert(key, all.split_off(end));
        }
        self.show(key, &all)
    }

    fn show(&mut self, key: (u32, u8), bytes: &[u8]) -> Shown {
        let (label, open) = (self.label, self.open(key.1));
        let mut shown = Shown { text: Vec::with_capacity(bytes.len() + 64), bytes: bytes.len() };
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            if *open != Some(key) {
                if open.is_some() {
                    shown.text.push(b'\n');
                }
                if label {
                    shown.text.extend_from_slice(format!("[{}] ", key.0).as_bytes());
                }
            }
            shown.text.extend_from_slice(line);
            *open = (!line.ends_with(b"\n")).then_some(key);
        }
        shown
    }

    /// Whether a line is open where something else is to be written, which then is taken to end it.
    pub fn ends(&mut self, stream: Stream) -> bool {
        self.open(stream as u8).take().is_some()
    }

    /// Nothing more comes: what was kept, by rank and stream.
    pub fn rest(&mut self) -> Vec<(u32, Stream, Shown)> {
        let mut all = Vec::new();
        for (key, bytes) in std::mem::take(&mut self.kept) {
            let stream =
                if key.1 == Stream::Stdout as u8 { Stream::Stdout } else { Stream::Stderr };
            let mut shown = self.show(key, &bytes);
            if self.label {
                shown.text.push(b'\n');
                *self.open(key.1) = None;
            }
            all.push((key.0, stream, shown));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Stderr, Stdout};

    fn text(shown: &Shown) -> &str {
        std::str::from_utf8(&shown.text).unwrap()
    }

    #[test]
    fn a_prompt_is_shown_and_its_line_goes_on() {
        let mut lines = Lines::new(true, false);
        assert_eq!(text(&lines.take(0, Stdout, b"one\nName: ", true)), "[0] one\n[0] Name: ");
        assert_eq!(text(&lines.take(0, Stdout, b"again\n", true)), "again\n");
        assert_eq!(text(&lines.take(1, Stdout, b"two\n", true)), "[1] two\n");
    }

    #[test]
    fn another_ranks_line_begins_its_own() {
        for (label, want) in [(false, "\nb\n"), (true, "\n[1] b\n")] {
            let mut lines = Lines::new(label, false);
            lines.take(0, Stdout, b"a", true);
            assert_eq!(text(&lines.take(1, Stdout, b"b\n", true)), want);
            let shown = lines.take(0, Stdout, b"c\n", true);
            assert_eq!((text(&shown), shown.bytes), (if label { "[0] c\n" } else { "c\n" }, 2));
        }
    }

    #[test]
    fn what_is_not_shown_is_kept_until_its_line_ends() {
        let mut lines = Lines::new(false, false);
        assert_eq!(lines.take(2, Stdout, b"a", false), Shown::default());
        assert_eq!(text(&lines.take(1, Stdout, b"whole\n", false)), "whole\n");
        let shown = lines.take(2, Stdout, b"b\nc", false);
        assert_eq!((text(&shown), shown.bytes), ("ab\n", 3));
        let rest = lines.rest();
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].0, text(&rest[0].2), rest[0].2.bytes), (2, "c", 1));
        assert!(lines.rest().is_empty());
    }

    #[test]
    fn on_one_terminal_both_streams_share_the_lines() {
        let mut lines = Lines::new(false, true);
        lines.take(0, Stdout, b"Name: ", true);
        assert_eq!(text(&lines.take(0, Stderr, b"warning\n", true)), "\nwarning\n");
        lines.take(0, Stdout, b"Name: ", true);
        assert!(lines.ends(Stderr) && !lines.ends(Stdout));
        let mut apart = Lines::new(false, false);
        apart.take(0, Stdout, b"Name: ", true);
        assert_eq!(text(&apart.take(0, Stderr, b"warning\n", true)), "warning\n");
    }

    #[test]
    fn a_line_that_is_too_long_is_shown_in_parts() {
        let mut lines = Lines::new(false, false);
        let long = vec![b'x'; MOST_BYTES];
        assert_eq!(lines.take(0, Stdout, &long, false).bytes, MOST_BYTES);
        assert_eq!(lines.take(0, Stdout, b"y", false).bytes, 0);
    }
}
