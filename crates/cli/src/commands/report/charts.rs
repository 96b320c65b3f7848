//! Charts of the page: dots and curves over the job's time, and who sent how much to whom.
//!
//! Kept true: a chart has some 1,000 shapes at most, whatever there was; where dots lie on each
//! other the highest one is drawn.

use crate::commands::report::html::escaped;
use crate::commands::report::rows::{tick, ticks};
use eyrie_state::samples::Traffic;
use eyrie_terminal::units::bytes;
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 170.0;
/// Where the drawing begins: on the left stand the values, below the times.
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 148.0;
const TOP: f64 = 10.0;
const BINS: usize = 900;
const TICKS: usize = 10;
/// Around a matrix.
const MARGIN: usize = 46;

/// A value as its axis says it.
type Unit<'a> = &'a dyn Fn(f64) -> String;

struct Chart {
    svg: String,
    end_ms: f64,
    most: f64,
}

impl Chart {
    fn new(title: &str, end_ms: f64, most: f64, unit: Unit) -> Chart {
        let (end_ms, most) = (end_ms.max(1.0), if most > 0.0 { most } else { 1.0 });
        let mut svg = format!(
            "<figure>\n<h3>{}</h3>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{}\">\n",
            escaped(title),
            escaped(title)
        );
        for part in [0.0, 0.5, 1.0] {
            let y = BOTTOM - part * (BOTTOM - TOP);
            let text = if part > 0.0 { unit(most * part) } else { String::from("0") };
            let x = LEFT - 8.0;
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{x}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                y + 4.0,
                escaped(&text)
            );
        }
        let mut chart = Chart { svg, end_ms, most };
        for at in ticks(end_ms, TICKS) {
            let x = chart.x(at);
            let anchor = if x > WIDTH - 30.0 { "end" } else { "middle" };
            let _ = writeln!(
                chart.svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                HEIGHT - 4.0,
                tick(at)
            );
        }
        chart
    }

    fn x(&self, ms: f64) -> f64 {
        LEFT + (ms / self.end_ms).clamp(0.0, 1.0) * (WIDTH - LEFT - 8.0)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (value / self.most).clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn end(self) -> String {
        self.svg + "</svg>\n</figure>\n"
    }
}

/// A dot for each: when, how much, and what it is.
pub fn dots(title: &str, points: Vec<(f64, f64, String)>, end_ms: f64, unit: Unit) -> String {
    let most = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let mut chart = Chart::new(title, end_ms, most, unit);
    let mut bins: Vec<Option<(f64, f64, String)>> = vec![None; BINS + 1];
    for point in points {
        let bin = ((point.0 / chart.end_ms).clamp(0.0, 1.0) * BINS as f64) as usize;
        if bins[bin].as_ref().is_none_or(|known| known.1 < point.1) {
            bins[bin] = Some(point);
        }
    }
    for (at, value, what) in bins.into_iter().flatten() {
        let (x, y) = (chart.x(at), chart.y(value));
        let _ = writeln!(
            chart.svg,
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}</title></circle>",
            escaped(&what)
        );
    }
    chart.end()
}

/// A curve for each list of values; all but the first are dashed.
pub fn curves(title: &str, all: &[Vec<(f64, f64)>], end_ms: f64, unit: Unit) -> String {
    let most = all.iter().flatten().map(|p| p.1).fold(0.0, f64::max);
    let mut chart = Chart::new(title, end_ms, most, unit);
    for (at, points) in all.iter().enumerate() {
        let class = if at == 0 { "curve" } else { "curve second" };
        let points: Vec<String> = points
            .iter()
            .map(|(ms, value)| format!("{:.1},{:.1}", chart.x(*ms), chart.y(*value)))
            .collect();
        let _ =
            writeln!(chart.svg, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }
    chart.end()
}

/// The ranks of a group.
fn group(at: usize, each: u32, size: u32) -> String {
    let first = at as u32 * each;
    let last = first.saturating_add(each).min(size).saturating_sub(1);
    if first >= last { format!("rank {first}") } else { format!("ranks {first}-{last}") }
}

/// How large a cell is, of so many in a row: a page has room for some 700 pixels.
fn cell(groups: usize) -> usize {
    match groups {
        0..=16 => 30,
        17..=32 => 18,
        _ => 10,
    }
}

/// The ranks along both sides.
fn sides(svg: &mut String, traffic: &Traffic, groups: usize) {
    let cell = cell(groups);
    for at in (0..groups).step_by(groups.div_ceil(16).max(1)) {
        let (rank, middle) = (at as u32 * traffic.ranks_a_group, MARGIN + at * cell + cell / 2);
        let (near, below) = (MARGIN - 6, middle + 4);
        let _ = writeln!(
            svg,
            "<text x=\"{near}\" y=\"{below}\" text-anchor=\"end\">{rank}</text>\
             <text x=\"{middle}\" y=\"{near}\" text-anchor=\"middle\">{rank}</text>"
        );
    }
    let _ = writeln!(
        svg,
        "<rect class=\"frame\" x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{0}\" height=\"{0}\"/>",
        groups * cell
    );
}

/// Who has sent how much to whom.
pub fn matrix(traffic: &Traffic, size: u32) -> String {
    let groups = traffic.messages.len();
    let most = traffic.messages.iter().flatten().copied().max().unwrap_or(0);
    let (cell, each) = (cell(groups), traffic.ranks_a_group);
    let side = MARGIN + groups * cell + 2;
    let mut svg = format!(
        "<figure class=\"matrix\">\n<svg viewBox=\"0 0 {side} {side}\" \
         style=\"max-width:{side}px\" role=\"img\" \
         aria-label=\"Messages from each rank to each\">\n"
    );
    sides(&mut svg, traffic, groups);
    for (from, row) in traffic.messages.iter().enumerate() {
        for (to, messages) in row.iter().enumerate().filter(|(_, n)| **n > 0) {
            let sent = traffic.bytes.get(from).and_then(|row| row.get(to)).copied().unwrap_or(0);
            // From one message to all that there are, each as much more.
            let depth = 0.12 + 0.88 * (*messages as f64).ln_1p() / (most as f64).ln_1p();
            let (x, y, sent) = (MARGIN + to * cell, MARGIN + from * cell, bytes(sent));
            let (from, to) = (group(from, each, size), group(to, each, size));
            let _ = writeln!(
                svg,
                "<rect class=\"cell\" x=\"{x}\" y=\"{y}\" width=\"{cell}\" height=\"{cell}\" \
                 fill-opacity=\"{depth:.2}\">\
                 <title>{from} to {to}: {messages} messages, {sent}</title></rect>"
            );
        }
    }
    let _ = write!(
        svg,
        "</svg>\n<figcaption>Messages from the rank of the row to that of the column; the \
         darkest: {most}. Those within a node and between nodes count alike, also the parts of \
         which collective operations are made. Of a rank that was moved to another node bytes \
         count from there on, and messages to those with which it has spoken since.</figcaption>\n\
         </figure>\n"
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_dots_are_the_highest_ones() {
        let many = (0..100_000).map(|n| (f64::from(n), f64::from(n % 7), format!("<{n}>")));
        let html = dots("a < b", many.collect(), 1e5, &|v| format!("{v}"));
        let drawn = html.matches("<circle").count();
        assert!((BINS - 1..=BINS + 1).contains(&drawn), "{drawn}");
        assert!(!html.contains("<6>") && html.contains("&lt;6&gt;") && html.contains("a &lt; b"));
        assert!(html.contains(">6</text>"), "{}", &html[..900]);
        let none = dots("x", Vec::new(), 0.0, &|v| format!("{v}"));
        assert!(!none.contains("NaN"), "{none}");
    }

    #[test]
    fn a_matrix_names_who_sent_to_whom() {
        let traffic = Traffic {
            ranks_a_group: 2,
            messages: vec![vec![0, 9], vec![1, 0]],
            bytes: vec![vec![0, 900], vec![1, 0]],
        };
        let html = matrix(&traffic, 3);
        assert_eq!(html.matches("class=\"cell\"").count(), 2);
        assert!(html.contains("ranks 0-1 to rank 2: 9 messages, 900 B"), "{html}");
    }
}
