//! Numbers, names and commands as text that fits and steers no terminal.
//!
//! Kept true: what fits is counted in columns of a terminal: a letter may take two, or none.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Ranks as ranges: `0-3,7`.
pub fn ranks(all: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in all {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let one = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Without what would steer a terminal, part lines, or have what follows read from right to left.
pub fn plain(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
    };
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

/// How many columns it takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Cut off at so many columns.
pub fn cut(text: &str, most: usize) -> String {
    let text = plain(text);
    if width(&text) <= most {
        return text;
    }
    let (mut used, room) = (0, most.saturating_sub(3));
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    text.chars().take_while(fits).collect::<String>() + "..."
}

/// Filled up to so many columns.
pub fn pad(text: &str, columns: usize) -> String {
    text.to_string() + &" ".repeat(columns.saturating_sub(width(text)))
}

/// The program with its arguments.
pub fn command(program: &str, args: &[String]) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    std::iter::once(name).chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

/// `1 death`, `2 deaths`.
pub fn count(number: u64, one: &str) -> String {
    let many = if number == 1 { "" } else { "s" };
    format!("{number} {one}{many}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_counted_in_columns() {
        assert_eq!((cut("größe", 5), cut("größer", 5)), ("größe".into(), "gr...".into()));
        // Each of them takes two.
        assert_eq!(
            (cut("計算流体", 8), cut("計算流体力", 8)),
            ("計算流体".into(), "計算...".into())
        );
        assert_eq!((pad("計算", 6), pad("ab", 1)), ("計算  ".into(), "ab".into()));
        assert_eq!(width("e\u{301}"), 1);
    }

    #[test]
    fn a_name_steers_no_terminal() {
        for bad in ["\x1b[2J", "\u{9b}2J", "a\u{202e}b", "\u{2066}", "\u{200b}", "a\u{2028}b"] {
            let text = plain(bad);
            assert!(text.contains('?') && text.is_ascii(), "{text:?}");
        }
        assert_eq!(plain("größe 計算"), "größe 計算");
    }
}
