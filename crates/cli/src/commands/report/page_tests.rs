//! Pages of made-up jobs.

use super::*;
use crate::commands::report::gather::tests::{job, large};
use crate::commands::report::{text, trace};

#[test]
fn a_page_has_all_parts_and_needs_nothing_from_elsewhere() {
    let html = page(&job("/bin/heat"));
    for part in ["timeline", "recoveries", "checkpoints", "log", "traffic", "missing"] {
        assert_eq!(html.matches(&format!("<section id=\"{part}\">")).count(), 1, "{part}");
    }
    assert!(html.contains("id=\"verdict\">nothing was lost</p>"), "{html}");
    for foreign in ["http://", "https://", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("default-src 'none'"));
    let row = "<td class=\"n\">300 ms</td><td>rank 2: died of SIGKILL</td><td>checkpoint 1</td>\
               <td class=\"n\">-</td><td class=\"n\">40 ms</td><td class=\"n\">50 ms (77 events)\
               </td><td class=\"n\">90 ms</td><td>nothing</td>";
    assert!(html.contains(row), "{html}");
    assert_eq!(html.matches("class=\"cell\"").count(), 12);
    for state in ["computing", "down", "repeating", "checkpoint"] {
        assert!(html.contains(&format!("<rect class=\"{state}\"")), "{state}");
    }
}

#[test]
fn what_somebody_named_is_text() {
    let bad = "</title></code><script>alert(1)</script><img src=x onerror='alert(2)'>\u{202e}\"&";
    let mut told = job(bad);
    (told.name, told.args) = (Some(bad.into()), vec![bad.into()]);
    told.timeline.recoveries[0].cause = bad.into();
    told.timeline.marks[0].text = bad.into();
    told.timeline.marks[0].rank = None;
    told.timeline.checkpoints[0].failed = Some(bad.into());
    (told.ft, told.phase, told.exit_code) = (bad.into(), bad.into(), None);
    let html = page(&told);
    assert_eq!(html.matches("<script").count(), 1, "its own");
    for markup in ["<img", "onerror='", "</code><s", "\u{202e}"] {
        assert!(!html.contains(markup), "{markup}");
    }
    assert!(html.matches("&lt;script&gt;alert(1)").count() >= 5, "{html}");
}

#[test]
fn what_there_are_no_data_of_is_not_drawn_but_named() {
    let mut told = job("heat");
    (told.samples, told.traffic) = (Vec::new(), None);
    told.timeline = crate::commands::report::timeline::Timeline::of(0, &[], None);
    (told.size, told.events_left_out) = (0, 12);
    let html = page(&told);
    assert!(!html.contains("id=\"log\"") && !html.contains("id=\"traffic\""), "{html}");
    assert!(html.contains("12 events, most of checkpoints"));
    assert!(html.contains("no samples were kept") && html.contains("not counted of all ranks"));
    assert!(!html.contains("NaN") && !html.contains("\"inf"), "{html}");
}

#[test]
fn thousands_of_ranks_for_days_are_a_page_of_some_megabytes() {
    let mut told = job("heat");
    let span = told.timeline.ranks[2].clone();
    told.size = 1024;
    told.timeline.end_ms = 1e6;
    told.timeline.ranks = (0..1024)
        .map(|rank| {
            let mut many = span.clone();
            many.rank = rank;
            many.spans = (0..300u32)
                .flat_map(|n| {
                    span.spans.iter().map(move |s| {
                        let by = f64::from(n * 3300 + rank);
                        super::super::timeline::Span {
                            from_ms: s.from_ms + by,
                            to_ms: s.to_ms + by,
                            ..s.clone()
                        }
                    })
                })
                .collect();
            many
        })
        .collect();
    let html = page(&told);
    let rects = html.matches("<rect").count();
    assert!(rects < 90_000 && html.len() < 24 << 20, "{rects}, {}", html.len());
    assert!(html.contains("ranks 0-7") && html.contains("share a row"));
}

#[test]
fn a_job_of_4096_ranks_on_1024_nodes_is_told_within_seconds() {
    let told = large();
    let html = page(&told);
    assert!(html.len() < 12 << 20 && html.matches("<rect").count() < 90_000, "{}", html.len());
    assert!(html.contains("ranks 4064-4095") && html.contains("node 7 with ranks 28-31"));
    // The list of all that went back is no page of its own.
    let longest = html.lines().map(str::len).max().unwrap();
    assert!(longest < 20_000, "{longest}");
    let text = text::text(&told);
    assert!(text.lines().all(|line| crate::show::text::width(line) <= 80), "{text}");
    assert!(text.lines().count() <= 40, "{text}");
    let trace: serde_json::Value = serde_json::from_str(&trace::trace(&told)).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 3 * 4096);
}
