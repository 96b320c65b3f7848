//! How `eyrie top` looks: a pure function of its model.
//!
//! Kept true: it fits any size, and says where there is more; what somebody named cannot steer the
//! terminal.

use crate::commands::top::job;
use crate::commands::top::model::{Asks, Model};
use crate::commands::top::style::{CHOSEN, GREEN, HEAD, RED, WIDE, YELLOW, first, state, styled};
use crate::show::text::{command, count, cut, pad};
use eyrie_terminal::units::millis;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

/// Below that nothing can be read.
const LEAST_WIDTH: u16 = 24;
const LEAST_HEIGHT: u16 = 5;

const HELP: [&str; 12] = [
    "eyrie top: jobs as they are",
    "",
    "  arrows, j k   choose",
    "  Enter         go into the job",
    "  Esc           back",
    "  c             take checkpoints now",
    "  d             drain a node (asks)",
    "  K             kill a rank, to try out",
    "                what happens (asks)",
    "  q, Ctrl-C     quit",
    "",
    "  any key goes on",
];

pub fn draw(frame: &mut Frame, model: &Model) {
    let area = frame.area();
    if area.width < LEAST_WIDTH || area.height < LEAST_HEIGHT {
        return frame.render_widget(Paragraph::new("too small"), area);
    }
    let body = Rect { y: 1, height: area.height - 2, ..area };
    let (title, lines) = match (&model.watched, model.help) {
        (_, true) => (String::from("help"), HELP.iter().map(|l| Line::raw(*l)).collect()),
        (Some(watched), _) => job::screen(watched, body.width, body.height as usize),
        (None, _) => jobs(model, body.width, body.height as usize),
    };
    let title = format!(" eyrie top  {title}");
    let bar = Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let width = usize::from(area.width);
    let bar = Line::styled(format!("{:<width$}", cut(&title, width)), bar);
    frame.render_widget(Paragraph::new(bar), Rect { height: 1, ..area });
    frame.render_widget(Paragraph::new(lines), body);
    let last = Rect { y: area.height - 1, height: 1, ..area };
    frame.render_widget(Paragraph::new(foot(model, width)), last);
}

/// What can be done, what is asked, or what was said.
fn foot(model: &Model, width: usize) -> Line<'static> {
    if let Some(question) = &model.question {
        let (what, does) = match question.asks {
            Asks::Kill => ("kill rank", "kills"),
            Asks::Drain => ("drain node", "drains"),
        };
        let text = format!("{what}: {}_  (Enter {does}, Esc does not)", question.number);
        return Line::styled(cut(&text, width), YELLOW.add_modifier(Modifier::BOLD));
    }
    if let Some((text, good)) = &model.note {
        let text = text.lines().next().unwrap_or_default();
        return Line::styled(cut(text, width), if *good { GREEN } else { RED });
    }
    let keys = match (&model.watched, width < usize::from(WIDE)) {
        (Some(_), false) => "q quit  Esc back  jk choose  c checkpoint  d drain  K kill  ? help",
        (None, false) => "q quit  jk choose  Enter into the job  c checkpoint  ? help",
        (Some(_), true) => "q quit  Esc back  c  d  K  ? help",
        (None, true) => "q quit  jk choose  Enter  ? help",
    };
    Line::styled(cut(keys, width), Style::new().add_modifier(Modifier::DIM))
}

fn jobs(model: &Model, width: u16, height: usize) -> (String, Vec<Line<'static>>) {
    let Some(jobs) = &model.jobs else {
        return (String::from("all jobs"), vec![Line::raw("asking...")]);
    };
    let title = count(jobs.len() as u64, "job");
    if jobs.is_empty() {
        let text = "no job runs here (eyrie history: those that have ended)";
        return (title, vec![Line::raw(cut(text, usize::from(width)))]);
    }
    let wide = width >= WIDE;
    let head = match wide {
        true => format!(
            "{:<6}{:<14}{:<15}{:>6}{:>6}  {:<8}{:>5}  PROGRAM",
            "JOB", "NAME", "STATE", "RANKS", "NODES", "UP", "BACK"
        ),
        false => format!("{:<6}{:<14}{:>6}  {:<8}", "JOB", "STATE", "RANKS", "UP"),
    };
    let mut lines = vec![Line::styled(head, HEAD)];
    let room = height.saturating_sub(1).max(1);
    let first = first(jobs.len(), model.row, room);
    for (at, job) in jobs.iter().enumerate().skip(first).take(room) {
        let (state, colour) = state(job);
        let (up, id, size) = (millis(job.uptime_ms as f64), cut(&job.job, 5), job.size);
        let text = match wide {
            true => {
                let name = pad(&job.name.as_ref().map_or(String::from("-"), |n| cut(n, 13)), 14);
                let nodes = job.nodes.iter().filter(|n| n.state != "lost" && n.state != "left");
                let program = command(&job.program, &job.args);
                let (back, nodes) = (job.recoveries + job.rollbacks, nodes.count().max(1));
                format!("{id:<6}{name}{state:<15}{size:>6}{nodes:>6}  {up:<8}{back:>5}  {program}")
            }
            false => format!("{id:<6}{state:<14}{size:>6}  {up:<8}"),
        };
        let line = styled(&cut(&text, usize::from(width)), &state, colour);
        lines.push(if at == model.row { line.style(CHOSEN) } else { line });
    }
    (title, lines)
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
