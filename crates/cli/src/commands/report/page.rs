//! The report as one HTML page.
//!
//! Kept true: all that comes from a job goes through `escaped`; the page's own policy forbids it to
//! load anything, and to run any script but its own, which is marked by a number made up for it.

use crate::commands::report::gather::JobReport;
use crate::commands::report::html::escaped;
use crate::commands::report::recovery::Recovery;
use crate::commands::report::text::{deaths, from, who};
use crate::commands::report::{charts, rows};
use crate::show::text::{command, count, cut};
use eyrie_state::wall_clock;
use eyrie_terminal::units::{bytes, millis};
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Most rows of a table.
const MOST_ROWS: usize = 500;

pub fn page(told: &JobReport) -> String {
    let number = || RandomState::new().hash_one(0u8);
    let nonce = format!("{:016x}{:016x}", number(), number());
    let policy =
        format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'");
    let title = told.name.as_ref().unwrap_or(&told.job);
    let title = escaped(&cut(title, 80));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} - Eyrie report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    head(&mut html, told, &title);
    html += "<section id=\"timeline\">\n<h2>Timeline</h2>\n";
    html += &rows::timeline(told);
    html += "</section>\n";
    recoveries(&mut html, told);
    checkpoints(&mut html, told);
    log(&mut html, told);
    traffic(&mut html, told);
    missing(&mut html, told);
    let _ = write!(
        html,
        "<footer>Written {} by eyrie report. Times are those of the job, from its beginning.\
         </footer>\n</main>\n<script nonce=\"{nonce}\">\n{SCRIPT}</script>\n</body>\n</html>\n",
        wall_clock::date(wall_clock::now_unix_ms())
    );
    html
}

fn fact(html: &mut String, name: &str, value: &str) {
    let _ = writeln!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(value));
}

fn head(html: &mut String, told: &JobReport, title: &str) {
    let job = escaped(&told.job);
    let well = told.account.lost_nothing() && matches!(told.exit_code, None | Some(0 | 85));
    let class = if well { "good" } else { "bad" };
    let (verdict, deaths) = (escaped(&told.verdict()), escaped(&deaths(told)));
    let program = escaped(&command(&told.program, &told.args));
    let _ = write!(
        html,
        "<header>\n<h1>{title}<small>job {job}</small></h1>\n\
         <p class=\"verdict {class}\" id=\"verdict\">{verdict}</p>\n<p>{deaths}</p>\n<dl>\n\
         <div class=\"whole\"><dt>Program</dt>\
         <dd><code id=\"program\">{program}</code></dd></div>\n"
    );
    fact(html, "Ranks", &told.size.to_string());
    let nodes = match told.nodes {
        0 => String::from("this machine alone"),
        nodes => nodes.to_string(),
    };
    fact(html, "Nodes", &nodes);
    fact(html, "Protection", &told.ft);
    fact(html, "Begun", &wall_clock::date(told.begun_unix_ms));
    if let Some(at) = told.ended_unix_ms {
        fact(html, "Ended", &wall_clock::date(at));
    }
    fact(html, if told.runs() { "Runs for" } else { "Took" }, &millis(told.took_ms as f64));
    let code = match told.exit_code {
        Some(85) => String::from("85 (saved)"),
        Some(code) => code.to_string(),
        None => told.phase.clone(),
    };
    fact(html, "Exit code", &code);
    if told.account.recovery_ms > 0.0 {
        fact(html, "In recoveries", &millis(told.account.recovery_ms));
    }
    let it = &told.account;
    fact(html, "Checkpoints", &format!("{}, {}", it.checkpoints, bytes(it.checkpoint_bytes)));
    let stood = it.stood_ms / f64::from(told.size.max(1));
    fact(html, "Each rank stood still for them", &millis(stood));
    let messages = format!("{}, {}", count(told.messages, "message"), bytes(told.message_bytes));
    fact(html, if told.logged { "Logged" } else { "Sent" }, &messages);
    html.push_str("</dl>\n</header>\n");
}

fn recoveries(html: &mut String, told: &JobReport) {
    let all = &told.timeline.recoveries;
    html.push_str("<section id=\"recoveries\">\n<h2>Recoveries</h2>\n");
    if all.is_empty() {
        html.push_str("<p>Nothing died.</p>\n</section>\n");
        return;
    }
    html.push_str(
        "<p class=\"note\">All that dies until all is back is one recovery. <i>Noticed</i>: after \
         a death that was caused on purpose. <i>Restored</i>: from then on, until each rank had a \
         process again. <i>Repeated</i>: from then on, until each had repeated what was recorded.\
         </p>\n<table>\n<tr><th class=\"n\">At</th><th>Who, and of what</th><th>Back from</th>\
         <th class=\"n\">Noticed</th><th class=\"n\">Restored</th><th class=\"n\">Repeated</th>\
         <th class=\"n\">Back after</th><th>Lost</th></tr>\n",
    );
    all.iter().take(MOST_ROWS).for_each(|it| recovery(html, it));
    html.push_str("</table>\n");
    more(html, all.len(), "recoveries");
    html.push_str("</section>\n");
}

fn more(html: &mut String, count: usize, what: &str) {
    if count > MOST_ROWS {
        let more = count - MOST_ROWS;
        let _ = writeln!(html, "<p class=\"note\">... and {more} more {what} (--json)</p>");
    }
}

fn recovery(html: &mut String, it: &Recovery) {
    let time = |ms: Option<f64>| ms.map_or(String::from("-"), millis);
    let lost = match (it.together, it.again_ms, it.with_unit.is_empty()) {
        (true, Some(ms), _) => format!("{} of work done again", millis(ms)),
        (true, None, _) => String::from("what came after it is done again"),
        (false, _, false) => String::from("work of its unit is done again"),
        (false, _, true) => String::from("nothing"),
    };
    let repeated = match it.reproduced {
        0 => time(it.repeated_ms),
        events => format!("{} ({})", time(it.repeated_ms), count(events, "event")),
    };
    let back = it.back_ms.map_or(String::from("not back"), millis);
    let _ = writeln!(
        html,
        "<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{repeated}</td><td class=\"n\">{back}</td>\
         <td>{lost}</td></tr>",
        millis(it.from_ms),
        escaped(&who(it)),
        escaped(&from(it)),
        time(it.noticed_ms),
        time(it.restored_ms),
    );
}

fn checkpoints(html: &mut String, told: &JobReport) {
    html.push_str("<section id=\"checkpoints\">\n<h2>Checkpoints</h2>\n");
    let done = told.timeline.checkpoints.iter().filter(|c| c.failed.is_none());
    let sizes = done.clone().map(|c| (c.to_ms, c.bytes as f64, named(c)));
    let stood = done.clone().filter_map(|c| Some((c.to_ms, c.stood_ms?, named(c))));
    let end = told.timeline.end_ms;
    if done.clone().next().is_none() {
        html.push_str("<p>There are none.</p>\n");
    } else {
        let size = |v: f64| bytes(v as u64);
        *html += &charts::dots("Size of each checkpoint", sizes.collect(), end, &size);
        *html +=
            &charts::dots("How long the rank stood still for it", stood.collect(), end, &millis);
    }
    let failed: Vec<_> = told.timeline.checkpoints.iter().filter(|c| c.failed.is_some()).collect();
    if !failed.is_empty() {
        html.push_str("<h3>Checkpoints that did not come about</h3>\n<ul>\n");
        for it in failed.iter().take(MOST_ROWS) {
            let (at, why) = (millis(it.to_ms), it.failed.as_deref().unwrap_or_default());
            let _ = writeln!(html, "<li>{at}, rank {}: {}</li>", it.rank, escaped(why));
        }
        html.push_str("</ul>\n");
        more(html, failed.len(), "of them");
    }
    html.push_str("</section>\n");
}

fn named(it: &crate::commands::report::timeline::Checkpoint) -> String {
    let stood = it.stood_ms.map_or(String::new(), |ms| format!(", stood still {}", millis(ms)));
    let (size, at) = (bytes(it.bytes), millis(it.to_ms));
    format!("rank {}, checkpoint {}: {size}{stood}, at {at}", it.rank, it.generation)
}

fn log(html: &mut String, told: &JobReport) {
    if told.samples.len() < 2 || !told.samples.iter().any(|s| s.log_bytes > 0) {
        return;
    }
    html.push_str("<section id=\"log\">\n<h2>Log</h2>\n");
    let all: Vec<(f64, f64)> = told.samples.iter().map(|s| (s.ms, s.log_bytes as f64)).collect();
    let most = told.samples.iter().map(|s| (s.ms, s.most_bytes as f64)).collect();
    let size = |v: f64| bytes(v as u64);
    let title = "Logged messages that are kept: of all ranks, and of the fullest (dashed)";
    *html += &charts::curves(title, &[all, most], told.timeline.end_ms, &size);
    let limit = bytes(told.log_limit_bytes);
    let _ =
        writeln!(html, "<p class=\"note\">A rank may keep {limit} (--log-limit).</p>\n</section>");
}

fn traffic(html: &mut String, told: &JobReport) {
    if let Some(traffic) = &told.traffic {
        html.push_str("<section id=\"traffic\">\n<h2>Communication</h2>\n");
        *html += &charts::matrix(traffic, told.size);
        html.push_str("</section>\n");
    }
}

/// What there are no data of is named.
fn missing(html: &mut String, told: &JobReport) {
    let mut all = vec![String::from(
        "When a rank waits for another one, and how much time logging takes: no event tells it.",
    )];
    if told.events_left_out > 0 {
        let left_out = count(told.events_left_out, "event");
        all.push(format!("{left_out}, most of checkpoints: the record holds 4 MiB."));
    }
    if told.samples.len() < 2 {
        all.push(String::from("How the log grew: no samples were kept, or too few."));
    }
    if told.traffic.is_none() {
        let why = match told.runs() {
            true => "that is counted when ranks end.",
            false => "it was not counted of all ranks.",
        };
        all.push(format!("Who sent how much to whom: {why}"));
    }
    html.push_str("<section id=\"missing\">\n<h2>What is not here</h2>\n<ul>\n");
    for line in all {
        let _ = writeln!(html, "<li>{}</li>", escaped(&line));
    }
    html.push_str("</ul>\n</section>\n");
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
