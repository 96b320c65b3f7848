//! `eyrie info`: this machine, and what holds for all jobs that begin on it.

use crate::config::{folders, timing};
use crate::file_system;
use crate::show::tables;
use clap::Args;
use eyrie_image::{Machine, Offer};
use eyrie_process::spawn::Prefix;
use eyrie_protocol::timing::{Intervals, seconds};
use eyrie_state::home;
use eyrie_state::local;
use eyrie_terminal::{Failure, USAGE, print, units};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie info\n  \
    eyrie info --json | jq .decisions.tracking\n  \
    eyrie info --json | jq .timing_ms.heartbeat")]
pub struct Info {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub fn info(args: &Info) -> Result<i32, Failure> {
    let machine = machine();
    let home = home::home()?;
    let binary = std::env::current_exe()?;
    let restorer = Prefix::of(&binary).restorer;
    let intervals = timing::read().map_err(|error| Failure::new(USAGE, error))?;
    if args.json {
        let shown = as_json(&machine, &home, restorer.as_ref(), &intervals);
        print(&(serde_json::to_string_pretty(&shown)? + "\n"));
    } else {
        let text = as_text(&machine, &home, restorer.as_ref());
        print(&format!("{text}\n{}", durations(&intervals)));
    }
    Ok(0)
}

/// What is known of this machine.
pub fn machine() -> Machine {
    let mut machine = eyrie_image::machine();
    machine.offers.push(huge_logs());
    machine
}

/// Whether logs lie in huge pages.
fn huge_logs() -> Offer {
    let tried = eyrie_process::memory::huge_logs().map(|()| String::new());
    let usage = "logs that are used for the first time";
    Offer::new("huge pages of shared memory", tried, usage, "large messages take longer")
}

/// Bytes that may still be written where `path` is or will be.
fn free_bytes(path: &Path) -> Option<u64> {
    file_system::space(path).map(|space| space.free)
}

fn decisions(m: &Machine) -> [(&'static str, &str); 7] {
    let d = &m.decisions;
    [
        ("changed pages", &d.tracking),
        ("finding pages", &d.page_search),
        ("process numbers", &d.process_number),
        ("can checkpoint", &d.reach),
        ("freeze", &d.freeze),
        ("lazy restore", &d.lazy_restore),
        ("compression", &d.compression),
    ]
}

fn as_text(m: &Machine, home: &Path, restorer: Option<&PathBuf>) -> String {
    let user = if m.root { "root" } else { "not root" };
    let mut text = format!("Linux {}, {}, {} cores, {user}\n", m.kernel, m.processor, m.cores);
    let [all, left] = m.memory.map(units::bytes);
    let _ = writeln!(text, "memory: {all}, {left} available");
    let free = free_bytes(home).map_or("?".into(), units::bytes);
    let _ = writeln!(text, "state: {} ({free} free)", home.display());
    let _ = writeln!(text, "nodes store in: {}", folders::local_shown(home));
    let restorer =
        restorer.map_or("MISSING: nothing can be restored".into(), |p| p.display().to_string());
    let _ = writeln!(text, "restorer: {restorer}\n");
    let rows: Vec<Vec<String>> =
        decisions(m).iter().map(|(name, what)| vec![format!("{name}:"), (*what).into()]).collect();
    text.push_str(&tables::table(&rows));
    let head = ["FEATURE", "HERE", "DETAIL", "USED FOR", "WITHOUT IT"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(m.offers.iter().map(|o| {
        let here = if o.here { "yes" } else { "no" };
        // What it costs matters where it is lacking.
        let without = if o.here { "" } else { o.without };
        [o.name, here, &o.detail, o.usage, without].map(String::from).to_vec()
    }));
    let _ = write!(text, "\n{}", tables::table(&rows));
    text
}

/// How long the parts of a job wait for each other.
fn durations(intervals: &Intervals) -> String {
    let head = ["TIMING", "SECONDS", "DEFAULT", "WHAT IT IS"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(intervals.shown().map(|(setting, ms)| {
        let default = seconds(setting.default_ms);
        vec![setting.key.into(), seconds(ms), default, setting.about.into()]
    }));
    tables::table(&rows)
}

fn as_json(
    m: &Machine,
    home: &Path,
    restorer: Option<&PathBuf>,
    intervals: &Intervals,
) -> serde_json::Value {
    let offer = |o: &Offer| {
        json!({
            "name": o.name, "here": o.here, "detail": o.detail, "used_for": o.usage,
            "without": o.without,
        })
    };
    json!({
        "kernel": m.kernel,
        "processor": m.processor,
        "cores": m.cores,
        "memory_bytes": m.memory[0],
        "available_bytes": m.memory[1],
        "root": m.root,
        "home": home,
        "home_free_bytes": free_bytes(home),
        "local": local::wanted().map(|wish| wish.folder),
        "restorer": restorer,
        "decisions": {
            "tracking": m.decisions.tracking,
            "page_search": m.decisions.page_search,
            "process_number": m.decisions.process_number,
            "reach": m.decisions.reach,
            "freeze": m.decisions.freeze,
            "lazy_restore": m.decisions.lazy_restore,
            "compression": m.decisions.compression,
        },
        "timing_ms": intervals
            .shown()
            .map(|(setting, ms)| (setting.key.to_string(), ms.into()))
            .collect::<serde_json::Map<_, _>>(),
        "features": m.offers.iter().map(offer).collect::<Vec<_>>(),
    })
}
