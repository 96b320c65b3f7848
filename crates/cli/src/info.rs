//! `eyrie info`: what this machine offers, what is made of it, and what its lacks cost.

use crate::args::Info;
use crate::show;
use eyrie_image::{Machine, Offer};
use eyrie_node::home;
use eyrie_node::spawn::Prefix;
use eyrie_terminal::{Failure, print, units};
use serde_json::json;
use std::ffi::CString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub fn info(args: &Info) -> Result<i32, Failure> {
    let mut machine = eyrie_image::machine();
    machine.offers.push(huge_logs());
    let home = home::home()?;
    let binary = std::env::current_exe()?;
    let restorer = Prefix::of(&binary).restorer;
    if args.json {
        let shown = as_json(&machine, &home, restorer.as_ref());
        print(&(serde_json::to_string_pretty(&shown)? + "\n"));
    } else {
        print(&as_text(&machine, &home, restorer.as_ref()));
    }
    Ok(0)
}

/// Whether logs lie in huge pages.
fn huge_logs() -> Offer {
    let tried = eyrie_node::huge_logs().map(|()| String::new());
    let usage = "logs that are used for the first time";
    Offer::new("huge pages of shared memory", tried, usage, "large messages take longer")
}

/// Bytes that may still be written where `path` is or will be.
fn free_bytes(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|p| p.exists())?;
    let name = CString::new(there.as_os_str().as_bytes()).ok()?;
    // SAFETY: statvfs is plain data for which zero is valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name is a C string, the place live.
    let rc = unsafe { libc::statvfs(name.as_ptr(), &mut found) };
    (rc == 0).then(|| found.f_bavail * found.f_frsize)
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
    let restorer =
        restorer.map_or("MISSING: nothing can be restored".into(), |p| p.display().to_string());
    let _ = writeln!(text, "restorer: {restorer}\n");
    let rows: Vec<Vec<String>> =
        decisions(m).iter().map(|(name, what)| vec![format!("{name}:"), (*what).into()]).collect();
    text.push_str(&show::table(&rows));
    let head = ["FEATURE", "HERE", "DETAIL", "USED FOR", "WITHOUT IT"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(m.offers.iter().map(|o| {
        let here = if o.here { "yes" } else { "no" };
        // What it costs matters where it is lacking.
        let without = if o.here { "" } else { o.without };
        [o.name, here, &o.detail, o.usage, without].map(String::from).to_vec()
    }));
    let _ = write!(text, "\n{}", show::table(&rows));
    text
}

fn as_json(m: &Machine, home: &Path, restorer: Option<&PathBuf>) -> serde_json::Value {
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
        "features": m.offers.iter().map(offer).collect::<Vec<_>>(),
    })
}
