//! The timeline: a row for each rank, or for a few neighbours.
//!
//! Kept true: what is bad is drawn over what is not, and is seen however short it is; what is too
//! near to be told apart is drawn as one, so that a page has 20,000 shapes of a kind at most.

use crate::commands::report::gather::JobReport;
use crate::commands::report::html::escaped;
use crate::commands::report::timeline::{STATES, Span, State};
use eyrie_terminal::units::{bytes, millis};
use std::fmt::Write as _;

/// The width of the drawing, which is stretched to that of the page.
const WIDTH: f64 = 10_000.0;
const ROW: usize = 16;
/// More ranks are put together.
const MOST_ROWS: u32 = 128;
/// Shapes of one kind in all rows.
const MOST_SHAPES: f64 = 20_000.0;
/// What is bad is at least so wide: a pixel of a page.
const SEEN: f64 = 12.0;
const TICKS: usize = 8;

/// Round times, at most so many, up to this one.
pub fn ticks(end_ms: f64, most: usize) -> Vec<f64> {
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
    let seconds = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
    let hours = [2.0, 6.0, 12.0, 24.0, 48.0, 168.0, 720.0, 8760.0];
    let all = steps.into_iter().chain(seconds.map(|s| s * 1e3)).chain(hours.map(|h| h * 3.6e6));
    let step = all.into_iter().find(|step| end_ms / step <= most as f64).unwrap_or(f64::MAX);
    (0..=most).map(|n| n as f64 * step).take_while(|at| *at <= end_ms).collect()
}

/// `0`, `200 ms`, `30 s`, `5 min`, `2 h`.
pub fn tick(ms: f64) -> String {
    let seconds = ms / 1e3;
    if ms == 0.0 {
        String::from("0")
    } else if seconds < 1.0 {
        format!("{ms:.0} ms")
    } else if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.0} h", seconds / 3600.0)
    }
}

/// A shape in a row.
#[derive(Debug, Clone, PartialEq)]
struct Bar {
    from_ms: f64,
    to_ms: f64,
    count: usize,
    title: String,
}

/// Those that are nearer to each other than this, as one.
fn joined(mut bars: Vec<Bar>, gap_ms: f64) -> Vec<Bar> {
    bars.sort_by(|a, b| a.from_ms.total_cmp(&b.from_ms));
    let mut all: Vec<Bar> = Vec::new();
    for bar in bars {
        match all.last_mut() {
            Some(last) if bar.from_ms <= last.to_ms + gap_ms => {
                last.to_ms = last.to_ms.max(bar.to_ms);
                last.count += bar.count;
            }
            _ => all.push(bar),
        }
    }
    all
}

struct Drawing {
    svg: String,
    end_ms: f64,
    gap_ms: f64,
}

impl Drawing {
    fn x(&self, ms: f64) -> f64 {
        (ms / self.end_ms * WIDTH).clamp(0.0, WIDTH)
    }

    fn bars(&mut self, class: &str, bars: Vec<Bar>, (y, height): (usize, usize), least: f64) {
        for bar in joined(bars, self.gap_ms) {
            let x = self.x(bar.from_ms);
            let width = (self.x(bar.to_ms) - x).max(least);
            let title = match bar.count {
                1 => bar.title,
                n => format!("{class}: {n}, {}", between(bar.from_ms, bar.to_ms)),
            };
            let _ = writeln!(
                self.svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" \
                 height=\"{height}\"><title>{}</title></rect>",
                escaped(&title)
            );
        }
    }
}

fn between(from_ms: f64, to_ms: f64) -> String {
    format!("{} to {} ({})", millis(from_ms), millis(to_ms), millis(to_ms - from_ms))
}

fn bar_of(rank: u32, span: &Span) -> Bar {
    let node = span.node.map_or(String::new(), |node| format!(", node {node}"));
    let (from_ms, to_ms) = (span.from_ms, span.to_ms);
    let title = format!("rank {rank}: {}, {}{node}", span.state.name(), between(from_ms, to_ms));
    Bar { from_ms, to_ms, count: 1, title }
}

/// The ranks of each row.
fn groups(size: u32) -> Vec<(u32, u32)> {
    let each = size.div_ceil(MOST_ROWS).max(1);
    let first = (0..size).step_by(each as usize);
    first.map(|first| (first, first.saturating_add(each).min(size))).collect()
}

pub fn timeline(told: &JobReport) -> String {
    let rows = groups(told.size);
    let end_ms = told.timeline.end_ms.max(1.0);
    let gap_ms = end_ms * (rows.len() as f64 / MOST_SHAPES).max(2.0 / WIDTH);
    let mut drawing = Drawing { svg: String::new(), end_ms, gap_ms };
    for (at, group) in rows.iter().enumerate() {
        row(&mut drawing, told, at * ROW, *group);
    }
    marks(&mut drawing, told, rows.len() * ROW);
    let mut html = legend(told);
    html += "<div class=\"time\">\n<div class=\"names\">";
    for (first, end) in &rows {
        let name = match end - first {
            1 => format!("rank {first}"),
            _ => format!("ranks {first}-{}", end - 1),
        };
        let _ = write!(html, "<div>{name}</div>");
    }
    html += "</div>\n<div class=\"scroll\"><div class=\"wide\" id=\"wide\">\n<div class=\"axis\">";
    for at in ticks(end_ms, TICKS) {
        let _ =
            write!(html, "<span style=\"left:{:.2}%\">{}</span>", at / end_ms * 100.0, tick(at));
    }
    let height = rows.len() * ROW;
    let _ = write!(
        html,
        "</div>\n<svg viewBox=\"0 0 {WIDTH} {height}\" height=\"{height}\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"What each rank did when\">\n{}\
         </svg>\n\
         </div></div></div>\n",
        drawing.svg
    );
    if rows.len() < told.size as usize {
        let note = "Neighbouring ranks share a row, which shows the worst of them.";
        let _ = writeln!(html, "<p class=\"note\">{note}</p>");
    }
    html
}

fn row(drawing: &mut Drawing, told: &JobReport, y: usize, (first, end): (u32, u32)) {
    let ranks = told.timeline.ranks.iter().filter(|r| (first..end).contains(&r.rank));
    for state in STATES {
        let of = |span: &&Span| span.state == state;
        let bars = ranks.clone();
        let bars =
            bars.flat_map(|r| r.spans.iter().filter(of).map(|s| bar_of(r.rank, s))).collect();
        let least = if state == State::Computing { 1.0 } else { SEEN };
        drawing.bars(state.name(), bars, (y + 2, ROW - 4), least);
    }
    for (class, failed) in [("checkpoint", false), ("failed", true)] {
        let all = told.timeline.checkpoints.iter();
        let all = all.filter(|c| (first..end).contains(&c.rank) && c.failed.is_some() == failed);
        let bar = |c: &crate::commands::report::timeline::Checkpoint| {
            let (from_ms, to_ms, times) = (c.from_ms, c.to_ms, between(c.from_ms, c.to_ms));
            let what = c.failed.clone().unwrap_or_else(|| bytes(c.bytes));
            let title = format!("rank {}: checkpoint {}, {times}: {what}", c.rank, c.generation);
            Bar { from_ms, to_ms, count: 1, title }
        };
        drawing.bars(class, all.map(bar).collect(), (y + ROW - 6, 4), SEEN);
    }
}

/// What happened to the job, or a node: a line over all rows.
fn marks(drawing: &mut Drawing, told: &JobReport, height: usize) {
    let all = told.timeline.marks.iter().filter(|mark| mark.rank.is_none());
    let bar = |mark: &crate::commands::report::timeline::Mark| {
        let node = mark.node.map_or(String::new(), |node| format!(" node {node}"));
        let (name, at, text) = (mark.event, millis(mark.ms), &mark.text);
        let title = format!("{name}{node} at {at}: {text}");
        Bar { from_ms: mark.ms, to_ms: mark.ms, count: 1, title }
    };
    drawing.bars("mark", all.map(bar).collect(), (0, height), SEEN / 2.0);
}

fn legend(told: &JobReport) -> String {
    let mut html = String::from("<div class=\"legend\">");
    let spans = || told.timeline.ranks.iter().flat_map(|r| &r.spans);
    for state in STATES.into_iter().filter(|state| spans().any(|s| s.state == *state)) {
        let (name, words) = (state.name(), state.words());
        let _ = write!(html, "<span style=\"--of:var(--{name})\">{words}</span>");
    }
    let failed =
        |which: bool| told.timeline.checkpoints.iter().any(|c| c.failed.is_some() == which);
    let more = [
        ("checkpoint", "a checkpoint is taken and stored", failed(false)),
        ("failed", "no checkpoint came about", failed(true)),
        ("ink", "something happened to a node or the job", !told.timeline.marks.is_empty()),
    ];
    for (name, words, _) in more.into_iter().filter(|(_, _, is_there)| *is_there) {
        let _ = write!(html, "<span style=\"--of:var(--{name})\">{words}</span>");
    }
    html += "<span class=\"buttons\">";
    for (zoom, pressed) in [(1, true), (4, false), (16, false), (64, false)] {
        let _ = write!(
            html,
            "<button type=\"button\" data-zoom=\"{zoom}\" aria-pressed=\"{pressed}\">{zoom}&times;\
             </button> "
        );
    }
    html += "</span></div>\n";
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_an_axis_are_round_and_few() {
        assert_eq!(ticks(1000.0, 8), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        assert_eq!(ticks(61_000.0, 8).last(), Some(&60_000.0));
        for end in [0.1, 3.0, 7e5, 8.64e7, 1e12, f64::MAX] {
            let all = ticks(end, 8);
            assert!(!all.is_empty() && all.len() <= 9, "{end}: {all:?}");
        }
        let words = [0.0, 200.0, 30_000.0, 300_000.0, 7_200_000.0].map(tick);
        assert_eq!(words, ["0", "200 ms", "30 s", "5 min", "2 h"]);
    }

    #[test]
    fn rows_are_ranks_or_neighbours() {
        assert_eq!(groups(3), [(0, 1), (1, 2), (2, 3)]);
        let many = groups(1000);
        assert_eq!((many.len(), many[0], many.last()), (125, (0, 8), Some(&(992, 1000))));
        assert!(groups(0).is_empty());
    }

    #[test]
    fn what_cannot_be_told_apart_is_one() {
        let bar = |from_ms, to_ms| Bar { from_ms, to_ms, count: 1, title: String::new() };
        let all = joined(vec![bar(10.0, 11.0), bar(0.0, 1.0), bar(1.5, 2.0), bar(10.2, 10.4)], 1.0);
        let told: Vec<_> = all.iter().map(|b| (b.from_ms, b.to_ms, b.count)).collect();
        assert_eq!(told, [(0.0, 2.0, 2), (10.0, 11.0, 2)]);
    }
}
