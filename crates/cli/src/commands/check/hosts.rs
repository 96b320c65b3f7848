//! Every host of a grid job: reached as the job would, compared with this machine, and those of a
//! cluster with each other.

use super::Job;
use super::args::Check;
use crate::commands::doctor::finding::{Finding, Level};
use crate::commands::doctor::hosts::{among, judge};
use crate::launch::asked::{self, Asked};
use eyrie_terminal::Failure;
use serde_json::json;
use std::time::{Duration, Instant};

/// What costs on a host and is no matter of the grid: `eyrie doctor` tells.
const OF_GRID: [&str; 6] =
    ["remote shell", "version", "build", "clock", "way to here", "way to others"];

/// Asks all hosts at one time.
pub fn look(args: &Check, job: &Job) -> Result<Vec<Finding>, Failure> {
    let limit = Duration::from_millis(args.limit);
    let listeners = asked::listen(&job.plan)?;
    let mut all = Vec::new();
    let mut asked: Vec<(usize, Asked)> = Vec::new();
    for (number, host) in job.plan.list.iter().enumerate() {
        let at = listeners.iter().find(|at| at.ip() == host.controller);
        let at = at.filter(|_| job.is_near(number));
        let order = json!({
            "controller": at.map(|at| at.to_string()),
            "folder": std::env::current_dir().ok(),
            "program": job.grid.program.first(),
        });
        match asked::ask(&job.plan, number, "__look", &order) {
            Ok(one) => asked.push((number, one)),
            Err(error) => all.push(unreached(job, number, &format!("{error:#}"))),
        }
    }
    let end = Instant::now() + limit;
    let mut answered: Vec<(usize, (Asked, Option<String>))> = Vec::new();
    for (number, mut one) in asked {
        match one.hear(end) {
            Ok(report) => {
                let found = judge(&one.name, &report, &job.plan, one.since_ms).into_iter();
                let of_grid =
                    |f: &Finding| f.level != Level::Costs || OF_GRID.contains(&f.about.as_str());
                all.extend(found.filter(of_grid));
                if report["has_folder"].as_bool() != Some(true) {
                    let text = "the folder that this command is in is not there";
                    let remedy = "cd to a folder that all hosts have";
                    all.push(Finding::stops("working folder", text, remedy).on(&one.name));
                }
                if report["has_program"].as_bool() == Some(false) {
                    let program = job.grid.program.first().cloned().unwrap_or_default();
                    let text = format!("{program} is not there, or cannot be executed");
                    let remedy = "put the program there, at the same path";
                    all.push(Finding::stops("program", text, remedy).on(&one.name));
                }
                answered.push((number, (one, place(job, number, &report))));
            }
            Err(why) => all.push(unreached(job, number, &why)),
        }
    }
    for cluster in 0..job.grid.clusters.len() {
        let of = |(number, _): &(usize, _)| job.cluster_of(*number) == cluster;
        let (own, others): (Vec<_>, Vec<_>) = answered.into_iter().partition(of);
        let mut own: Vec<_> = own.into_iter().map(|(_, one)| one).collect();
        all.extend(among(&mut own, Instant::now() + limit));
        answered = others;
    }
    Ok(all)
}

/// Where the others of its cluster call it: at the address that it has on the way here, or by its
/// name, where there is no such way.
fn place(job: &Job, number: usize, report: &serde_json::Value) -> Option<String> {
    let at = report["at"].as_str()?;
    if job.is_near(number) {
        return Some(at.to_string());
    }
    let name = &job.plan.list[number].name;
    let name = name.rsplit('@').next().unwrap_or(name);
    let port = at.rsplit(':').next()?;
    Some(if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") })
}

/// A host that was not asked.
fn unreached(job: &Job, number: usize, why: &str) -> Finding {
    let cluster = job.cluster_of(number);
    let (host, launcher) = (&job.plan.list[number].name, &job.found.launchers[cluster]);
    let name = &job.grid.clusters[cluster].name;
    let remedy = match () {
        () if why.contains("not found there") || why.contains("cannot be executed") => {
            format!("install Eyrie there, or say where it is: prefix under [clusters.{name}]")
        }
        () if why.contains("another release") => String::from("install the same release there"),
        () if why.contains("Permission denied") => {
            format!("key = \"FILE\" under [clusters.{name}], or: ssh-copy-id {host}")
        }
        () => format!("make this work without a question: {launcher} {host} true"),
    };
    Finding::stops("remote shell", format!("{why} ({launcher})"), remedy).on(host)
}
