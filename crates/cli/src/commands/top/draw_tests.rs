//! Screens of made-up jobs, compared with stored ones (`screens/`). To store them anew:
//! `EYRIE_STORE_SCREENS=1 cargo test -p eyrie-cli screens`, and look at what has changed.

use super::*;
use crate::commands::top::model::tests::four;
use crate::commands::top::model::{Key, Watched};
use crate::show::screen::tests::{job, large, rank};
use eyrie_control::JobStatus;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use std::path::Path;

/// What is seen.
fn drawn(model: &Model, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(screen: &Buffer) -> String {
    let width = usize::from(screen.area.width);
    let lines = screen.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_string() + "\n"
    });
    lines.collect()
}

/// Both sizes of a screen are as they are stored.
fn same(name: &str, model: &Model) {
    for (width, height) in [(80, 24), (40, 10)] {
        let got = text(&drawn(model, (width, height)));
        let file = format!("src/commands/top/screens/{name}-{width}x{height}.txt");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        if std::env::var_os("EYRIE_STORE_SCREENS").is_some() {
            std::fs::write(&path, &got).unwrap();
        }
        let want = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(got == want, "{} differs:\n{got}\nstored:\n{want}", path.display());
    }
}

fn watching(status: JobStatus) -> Model {
    let mut model = Model { watched: Some(Watched::of("k7mq")), ..Model::default() };
    let events = (0..40).map(|n| format!("[{:>10.1} ms] rank 2 restored {n}", f64::from(n) * 7.0));
    model.set_job(status, None, events.collect());
    model
}

fn many() -> JobStatus {
    let states = ["running", "waiting", "checkpointing", "replaying", "starting", "finalized"];
    let state = |r: u32| states[(r * 7 % 11) as usize % states.len()];
    let mut status = job((0..4096).map(|r| rank(r, state(r))).collect());
    status.ranks[4000].not_back_reason = Some("no node has room for it".into());
    (status.ranks[7].log_used_bytes, status.log_limit_bytes) = (15 << 20, 16 << 20);
    status.unprotected_reason = Some("the log is \x1b[2Jfull".into());
    status
}

#[test]
fn screens_of_all_jobs() {
    let mut model = Model::default();
    let jobs = (0..30u64).map(|n| {
        let mut status = if n % 5 == 0 { many() } else { four() };
        (status.job, status.uptime_ms) = (format!("k{n:03}"), n * 7_000);
        status.name = (n % 3 == 0).then(|| format!("a-rather-long-name-{n}"));
        status.program = "/x/heat\x1b[31m".into();
        status
    });
    model.set_jobs(jobs.collect());
    (0..12).for_each(|_| drop(model.key(Key::Down)));
    same("jobs", &model);
    model.set_jobs(Vec::new());
    same("no-jobs", &model);
}

#[test]
fn screens_of_a_job() {
    let mut model = watching(four());
    same("job", &model);
    model.key(Key::Char('K'));
    same("question", &model);
    model.key(Key::Esc);
    model.key(Key::Char('?'));
    same("help", &model);
    let mut model = watching(many());
    (0..3).for_each(|_| drop(model.key(Key::Down)));
    same("many", &model);
    let mut ended = four();
    (ended.phase, ended.exit_code) = ("ended".into(), Some(0));
    let mut model = watching(four());
    model.set_job(ended, Some(7), vec!["[  99.0 ms] ended".into()]);
    same("ended", &model);
}

#[test]
fn what_is_bad_is_red_and_the_chosen_line_is_reversed() {
    let screen = drawn(&watching(four()), (80, 24));
    let lines = text(&screen);
    let (at, line) = lines.lines().enumerate().find(|(_, l)| l.contains("recovering")).unwrap();
    let cell = &screen[(line.find("recovering").unwrap() as u16, at as u16)];
    assert_eq!(cell.fg, Color::Red);
    assert!(cell.modifier.contains(Modifier::REVERSED));
    let running = lines.lines().position(|l| l.contains(" running  ")).unwrap();
    assert_ne!(running, at);
    assert!(!lines.contains('\x1b'));
}

#[test]
fn a_large_job_fits_with_the_worst_first_and_says_that_there_is_more() {
    for (size, more) in [((40, 10), "+"), ((80, 24), " more)"), ((200, 60), "EVENTS")] {
        let mut model = watching(large());
        model.set_jobs(vec![large(), four()]);
        let screen = text(&drawn(&model, size));
        let lines: Vec<&str> = screen.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= usize::from(size.0)), "{screen}");
        let head = lines.iter().position(|l| l.starts_with("RANKS")).unwrap();
        // Not back is the worst; of those the first state by its name.
        assert!(lines[head + 1].starts_with("253,"), "{screen}");
        assert!(screen.contains(more), "{screen}");
        // The last line stays that of the keys.
        assert!(lines.last().unwrap().starts_with("q quit"), "{screen}");
    }
}

#[test]
fn any_size_is_drawn() {
    for width in [1, 8, 24, 39, 71, 72, 200] {
        for height in [1, 4, 5, 6, 8, 60] {
            for mut model in
                [watching(four()), watching(many()), watching(large()), Model::default()]
            {
                drawn(&model, (width, height));
                model.help = true;
                drawn(&model, (width, height));
            }
        }
    }
}
