//! What is typed: `mpiexec` and `mpirun` in the words of MPICH (hydra) and of Open MPI, and the
//! same words behind `eyrie run`. It is made into the words of `eyrie run`, before these are
//! parsed.
//!
//! Kept true: no option is dropped silently that would have changed what the program does or where
//! it runs: what Eyrie cannot do is refused by name, with what to do instead.

pub mod parts;
mod program_file;
pub mod table;
pub mod walk;

use crate::front::walk::{Asked, Mode};
use eyrie_terminal::{USAGE, say};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What is to be parsed then, or how the command ends without that.
pub enum Typed {
    Words(Vec<OsString>),
    Done(i32),
}

/// Makes what was typed into words of `eyrie`. `name`: how messages begin.
pub fn typed(all: Vec<OsString>, command: &clap::Command) -> (&'static str, Typed) {
    let called = all.first().and_then(|w| Path::new(w).file_name()).and_then(OsStr::to_str);
    let sub = all.get(1).and_then(|w| w.to_str()).unwrap_or("");
    let (name, mode, sub, words) = match called {
        // What Eyrie starts itself may have any words, also where mpiexec is a copy of it.
        _ if sub.starts_with("__") => return ("eyrie", Typed::Words(all)),
        Some("mpiexec") => ("mpiexec", Mode::Mpiexec, "run", &all[1..]),
        Some("mpirun") => ("mpirun", Mode::Mpiexec, "run", &all[1..]),
        _ if sub == "mpiexec" => ("mpiexec", Mode::Mpiexec, "run", &all[2..]),
        _ if sub == "run" => ("eyrie", Mode::Run, "run", &all[2..]),
        _ if ["join", "verify"].contains(&sub) => ("eyrie", Mode::Own, sub, &all[2..]),
        _ => return ("eyrie", others(all)),
    };
    // GridMPI's gridmpirun -restart.
    if mode == Mode::Mpiexec && words.first().is_some_and(|word| word == "-restart") {
        let rest = words[1..].iter().cloned();
        let newest = (words.len() == 1).then(|| OsString::from("last"));
        let all = ["eyrie", "restart"].map(OsString::from).into_iter();
        return (name, Typed::Words(all.chain(rest).chain(newest).collect()));
    }
    let known = walk::Known::of(command, sub);
    match walk::walk(words, &known, mode) {
        Ok(Asked::Help) => {
            eyrie_terminal::print(table::HELP);
            (name, Typed::Done(if words.is_empty() { USAGE } else { 0 }))
        }
        Ok(Asked::Version) => {
            eyrie_terminal::print(&format!("{name} (Eyrie) {}\n", env!("CARGO_PKG_VERSION")));
            (name, Typed::Done(0))
        }
        Ok(Asked::Job(job)) => {
            for note in &job.notes {
                say(name, note);
            }
            let words = job.words(&own_path(&job), sub);
            (name, Typed::Words(words))
        }
        Err(text) => {
            let help = match mode {
                Mode::Mpiexec => format!("{name} --help"),
                _ => format!("eyrie {sub} --help"),
            };
            say(name, &format!("{text} (see `{help}`)"));
            (name, Typed::Done(USAGE))
        }
    }
}

/// The parser takes `-hosts` for `-h` and more, and would show its help.
fn others(all: Vec<OsString>) -> Typed {
    let told = |w: &&OsString| {
        let text = w.to_string_lossy();
        text.starts_with("-h") && text.len() > 2 && text != "-help"
    };
    let options = all.iter().skip(1).take_while(|w| *w != "--");
    match options.clone().find(told) {
        Some(word) => {
            say("eyrie", &format!("unexpected argument '{}' (see `eyrie --help`)", word.display()));
            Typed::Done(USAGE)
        }
        None => Typed::Words(all),
    }
}

/// Where `eyrie` is on the machines that run ranks.
fn own_path(job: &walk::Job) -> OsString {
    if let Some(prefix) = &job.prefix {
        return Path::new(prefix).join("bin/eyrie").into_os_string();
    }
    std::env::current_exe().map_or_else(|_| "eyrie".into(), |path| path.into_os_string())
}
