//! Colours and styles of `eyrie top`.

use crate::show::text::plain;
use eyrie_control::JobStatus;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Narrower screens show fewer columns.
pub const WIDE: u16 = 72;

pub const RED: Style = Style::new().fg(Color::Red);
pub const YELLOW: Style = Style::new().fg(Color::Yellow);
pub const GREEN: Style = Style::new().fg(Color::Green);
pub const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);
pub const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The first of `count` lines that are shown, so that the chosen one is.
pub fn first(count: usize, chosen: usize, room: usize) -> usize {
    let last = count.saturating_sub(room);
    chosen.saturating_sub(room.saturating_sub(1) / 2).min(last)
}

/// A line with a word of it in a style.
pub fn styled(text: &str, word: &str, style: Style) -> Line<'static> {
    let text = plain(text);
    match text.find(word).filter(|_| !word.is_empty()) {
        Some(at) => {
            let (before, rest) = text.split_at(at);
            let (word, after) = rest.split_at(word.len());
            let parts = [
                Span::raw(before.to_string()),
                Span::styled(word.to_string(), style),
                Span::raw(after.to_string()),
            ];
            Line::from(parts.to_vec())
        }
        None => Line::raw(text),
    }
}

/// The state of a job, and how it is coloured.
pub fn state(job: &JobStatus) -> (String, Style) {
    match (job.exit_code, &job.suspended) {
        (Some(code), _) => (format!("ended ({code})"), if code == 0 { GREEN } else { RED }),
        (None, Some(_)) => (String::from("suspended"), YELLOW),
        (None, None) if job.unprotected_reason.is_some() => (format!("{}!", job.phase), RED),
        (None, None) if job.phase == "running" => (job.phase.clone(), GREEN),
        (None, None) => (job.phase.clone(), YELLOW),
    }
}
