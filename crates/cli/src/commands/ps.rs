//! `eyrie ps`: jobs on this machine, for root also those of all users.

use crate::client::job_status;
use crate::messages::say;
use crate::show::tables;
use crate::show::text::plain;
use crate::users::{ANSWER_BYTES, UserHome, user_homes};
use anyhow::{Context, anyhow};
use clap::Args;
use eyrie_control::JobStatus;
use eyrie_state::home;
use eyrie_terminal::{FAILED, Failure, print, print_json};
use serde_json::json;
use std::io::Read;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie ps --json | jq -r '.[].job'\n  \
    sudo eyrie ps --all-users")]
pub struct Ps {
    /// The jobs of all users that have their controllers on this machine (root only)
    #[arg(long)]
    pub all_users: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub fn ps(ps: &Ps) -> Result<i32, Failure> {
    if ps.all_users {
        return ps_of_all_users(ps);
    }
    // A job that ends while we ask is just not listed.
    let all: Vec<JobStatus> =
        home::jobs(&home::home()?).iter().filter_map(|j| job_status(j).ok()).collect();
    if ps.json {
        print_json(&all)?;
    } else {
        print(&tables::jobs(&all));
    }
    Ok(0)
}

/// How long a user's jobs have to say how they are.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How the jobs of a home are.
fn statuses(place: &UserHome) -> anyhow::Result<Vec<JobStatus>> {
    let mut child = place.ask(&["ps".into(), "--json".into()])?;
    let told = place.pass_on(&mut child);
    let out = child.stdout.take().context("pipe")?;
    let (tell, answer) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = out.take(ANSWER_BYTES).read_to_end(&mut text);
        // Who waits no more does not hear it.
        let _ = tell.send(read.map(|_| text));
    });
    let text = answer.recv_timeout(ANSWER_LIMIT);
    // It may be one that goes on for ever.
    let _ = child.kill();
    let _ = child.wait();
    told.into_iter().for_each(|told| drop(told.join()));
    let text = text.map_err(|_| anyhow!("no answer within {} s", ANSWER_LIMIT.as_secs()))??;
    Ok(serde_json::from_slice(&text).unwrap_or_default())
}

/// The jobs of all users.
pub fn ps_of_all_users(args: &Ps) -> Result<i32, Failure> {
    let user_homes = user_homes("ps")?;
    let mut code = 0;
    let answers = thread::scope(|scope| {
        let ask = |place| (place, scope.spawn(move || statuses(place)));
        let asked: Vec<_> = user_homes.iter().map(ask).collect();
        let answer = |(place, asked): (_, thread::ScopedJoinHandle<'_, _>)| (place, asked.join());
        asked.into_iter().map(answer).collect::<Vec<_>>()
    });
    let mut all: Vec<(String, u32, JobStatus)> = Vec::new();
    for (place, answer) in answers {
        let UserHome { user, home } = place;
        match answer.unwrap_or_else(|_| Err(anyhow!("a thread ended"))) {
            // Those that run: what is saved or was kept needs nobody's care.
            Ok(jobs) => {
                let runs = jobs.into_iter().filter(|job| job.exit_code.is_none());
                all.extend(runs.map(|job| (user.clone(), home.uid, job)));
            }
            Err(why) => {
                say(&format!("user {user}: {}", plain(&format!("{why:#}"))));
                code = FAILED;
            }
        }
    }
    all.sort_by_key(|(_, _, job)| job.started_unix_ms);
    if args.json {
        let with_user = |(user, uid, job): &(String, u32, JobStatus)| {
            let mut value = serde_json::to_value(job).unwrap_or_default();
            value["user"] = json!(user);
            value["uid"] = json!(uid);
            value
        };
        print_json(&all.iter().map(with_user).collect::<Vec<_>>())?;
    } else {
        let rows: Vec<_> = all.into_iter().map(|(user, _, job)| (user, job)).collect();
        print(&tables::jobs_of(&rows));
    }
    Ok(code)
}
