//! `eyrie doctor`: what will not work here, or costs more than it need, and what to type against
//! it. What `eyrie info` finds out is judged; storage, limits, compilers, other MPIs and hosts are
//! looked at besides.
//!
//! Kept true: looking leaves nothing behind, here and on hosts, but an empty `eyrie-UID` in
//! `EYRIE_LOCAL`.

pub mod args;
pub mod finding;
mod here;
pub mod hosts;
pub mod look;
mod machine;
mod storage;
mod tools;

use crate::commands::doctor::args::Doctor;
use crate::commands::doctor::finding::{Finding, Level, exit_code};
use crate::commands::doctor::here::here;
use crate::config::files;
use clap::Command;
use eyrie_terminal::{Failure, print};
use serde_json::json;

/// `commands`: all commands with their options.
pub fn doctor(args: &Doctor, commands: &Command) -> Result<i32, Failure> {
    let mut all = vec![files(commands)];
    all.extend(here(&std::env::current_exe()?));
    all.extend(tools::others(&std::env::current_exe()?));
    if let Some(hosts) = &args.hosts {
        all.extend(hosts::look(args, hosts)?);
    }
    let code = exit_code(&all);
    if args.json {
        let shown: Vec<_> = all.iter().map(Finding::to_json).collect();
        let whole = json!({ "exit_code": code, "findings": shown });
        print(&(serde_json::to_string_pretty(&whole)? + "\n"));
    } else {
        print(&as_text(&all, args.verbose));
    }
    Ok(code)
}

/// The configuration files, without which nothing else was read.
fn files(commands: &Command) -> Finding {
    let about = "configuration";
    match files::check(commands) {
        Ok(count) => Finding::fine(about, format!("{count} files (eyrie config)")),
        Err(error) => Finding::stops(about, format!("{error:#}"), "eyrie config --help"),
    }
}

fn as_text(all: &[Finding], verbose: bool) -> String {
    let mut text = String::new();
    let mut told: Vec<&Finding> = all.iter().filter(|f| verbose || f.level > Level::Fine).collect();
    // The worst first, else in the order in which it was looked at.
    told.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    for Finding { host, about, level, text: what, remedy } in told {
        let host = host.as_ref().map(|host| format!("{host}: ")).unwrap_or_default();
        text.push_str(&format!("{:<6} {host}{about}: {what}\n", level.name()));
        if let Some(remedy) = remedy {
            text.push_str(&format!("       -> {remedy}\n"));
        }
    }
    let count = |level| all.iter().filter(|f| f.level == level).count();
    let things = |n: usize| if n == 1 { "1 thing".into() } else { format!("{n} things") };
    text.push_str(&match (count(Level::Stops), count(Level::Costs)) {
        (0, 0) => format!("{} looked at, nothing is lacking\n", things(all.len())),
        (0, costs) => format!("jobs run; more than need be costs: {}\n", things(costs)),
        (stops, 0) => format!("jobs cannot run as they should: {}\n", things(stops)),
        (stops, costs) => format!(
            "jobs cannot run as they should: {}; more than need be costs: {}\n",
            things(stops),
            things(costs)
        ),
    });
    text
}
