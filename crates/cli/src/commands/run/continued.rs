//! `eyrie run --continue`: one command that starts a job, and goes on with it when it was saved. So
//! a batch script needs no note of what it has started before.
//!
//! Kept true: a job is never started beside one of the same name that runs or waits, and never goes
//! on as another program or with another number of ranks than it was saved with.

use crate::client;
use crate::commands::restart::args::{Restart, RestartPlacement};
use crate::config::defaults::FileDefaults;
use crate::launch::room::{self, Room};
use crate::options::run::Run;
use crate::options::saving::AtRestChoice;
use anyhow::anyhow;
use eyrie_control::JobSpec;
use eyrie_state::home::{self, JobEntry};
use eyrie_state::saved_job::SavedJob;
use eyrie_terminal::{FAILED, Failure, USAGE};
use std::os::unix::ffi::OsStrExt;

/// How the saved job of this name goes on; none: there is none, so it begins.
pub fn saved(run: &Run) -> Result<Option<Restart>, Failure> {
    let Some(name) = run.naming.name.as_deref().filter(|_| run.naming.go_on) else {
        return Ok(None);
    };
    let mut newest = None;
    for job in home::jobs(&home::home()?) {
        if job.ended && !job.saved && !job.alive {
            continue;
        }
        if is_called(&job, name) {
            refuse_if_busy(&job, name)?;
            newest = Some(job);
        }
    }
    let Some(job) = newest else { return Ok(None) };
    let saved = SavedJob::read(&job.path)?;
    same(run, &saved.spec).map_err(|text| {
        let id = &job.id;
        let remedy = format!("eyrie restart {id} goes on with it, eyrie abort {id} gives it up");
        Failure::new(USAGE, anyhow!("job {id}, called {name}, {text}: {remedy}"))
    })?;
    Ok(Some(as_before(run, job.id, &saved.spec)))
}

/// A job that does not answer is left alone: what it is called cannot be known.
fn is_called(job: &JobEntry, name: &str) -> bool {
    client::job_status(job).is_ok_and(|status| status.name.as_deref() == Some(name))
}

fn refuse_if_busy(job: &JobEntry, name: &str) -> Result<(), Failure> {
    let id = &job.id;
    let text = match (job.alive, job.resumable) {
        (true, _) => format!("runs: eyrie status {id} shows it"),
        (false, true) => format!("has nodes that wait: eyrie resume {id} goes on with it"),
        (false, false) => return Ok(()),
    };
    Err(Failure::new(FAILED, anyhow!("job {id}, called {name}, {text}")))
}

/// Whether the command line means the job that was saved.
fn same(run: &Run, saved: &JobSpec) -> Result<(), String> {
    let room = Room::of(saved);
    let ranks = saved.program.size - room.map_or(0, |room| room.ranks);
    if run.size.is_some_and(|size| size != ranks) {
        return Err(format!("was saved with {ranks} ranks"));
    }
    let command = room::command(run, ranks, room);
    let argv = command.iter().map(|word| word.as_bytes());
    if !argv.eq(saved.program.argv.iter().map(Vec::as_slice)) {
        let words = saved.program.argv.iter().map(|word| String::from_utf8_lossy(word));
        let words: Vec<_> = words.collect();
        return Err(format!("was saved with another command ({})", words.join(" ")));
    }
    Ok(())
}

/// `eyrie restart` with what the command line says of where and how. Nodes of this machine stay
/// the same ones unless another number is asked for.
fn as_before(run: &Run, job: String, saved: &JobSpec) -> Restart {
    let nodes = run.placement.nodes.filter(|nodes| *nodes != saved.placement.nodes);
    let elsewhere = nodes.is_some() || run.placement.hosts.is_some();
    Restart {
        job,
        placement: RestartPlacement {
            nodes,
            hosts: run.placement.hosts.clone(),
            map: run.placement.map.filter(|_| elsewhere),
            spares: run.placement.spares.filter(|_| elsewhere),
            routers: run.node_options.routers.filter(|_| elsewhere),
        },
        save_key: run.saving.save_key.clone(),
        encrypt_at_rest: match &run.saving.at_rest.encrypt_at_rest {
            Some(AtRestChoice::Keyed(file)) => Some(file.clone()),
            _ => None,
        },
        processor: run.processor.clone(),
        appended: None,
        orphans: None,
        files: None,
        files_limit: None,
        host_options: run.host_options.clone(),
        network: run.network.clone(),
        metrics: run.metrics.clone(),
        output: run.output.clone(),
        keep: run.keep,
        local: run.storage.local.clone(),
        defaults: FileDefaults::default(),
    }
}
