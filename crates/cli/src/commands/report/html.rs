//! Text in HTML.

use crate::show::text::cut;

/// Most characters of what somebody named.
const MOST_CHARS: usize = 2000;

/// Text, as text.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in cut(text, MOST_CHARS).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // What would turn the direction of what follows.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}
