//! `eyrie rm`: forgets jobs that have ended.

use crate::jobs::{Job, find};
use anyhow::{Context, anyhow};
use clap::Args;
use eyrie_state::history;
use eyrie_state::home;
use eyrie_terminal::{FAILED, Failure, print_json};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie rm k7mq\n  eyrie rm heat-1 wzpd")]
pub struct Rm {
    /// Jobs that have ended: ids, names, or beginnings of ids
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub fn remove(args: &Rm) -> Result<i32, Failure> {
    let (mut code, mut removed) = (0, Vec::new());
    for name in &args.jobs {
        match remove_one(name) {
            Ok(id) => removed.push(id),
            Err(failure) => code = failure.tell(crate::messages::NAME, name),
        }
    }
    if args.json {
        print_json(&json!({ "removed": removed }))?;
    }
    Ok(code)
}

fn remove_one(name: &str) -> Result<String, Failure> {
    let home = home::home()?;
    let fail = |text: String, then: String| Err(Failure::new(FAILED, anyhow!(text)).remedy(then));
    let id = match find(name)? {
        Job::There(job) if job.alive || job.resumable => {
            let then = format!("eyrie abort {} ends it", job.id);
            return fail(format!("job {} is running", job.id), then);
        }
        Job::There(job) if job.saved => {
            let id = job.id;
            return fail(format!("job {id} is saved"), format!("eyrie abort {id} gives that up"));
        }
        Job::There(job) => {
            // Nobody begins with it meanwhile.
            let folder = home::claim(&job)?;
            let gone = home::remove_folder(&folder.path);
            gone.with_context(|| format!("cannot remove {}", folder.path.display()))?;
            job.id
        }
        Job::Ended(found) => found.record.job,
    };
    if let Some(found) = history::of(&home, &id) {
        history::remove(&found.folder)?;
    }
    Ok(id)
}
