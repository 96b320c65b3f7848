//! The job that a name means, whether it runs or has ended, and how it is.

use crate::client;
use crate::show::{tables, text};
use anyhow::anyhow;
use eyrie_control::{Event, JobStatus};
use eyrie_state::history::{self, Found, Record};
use eyrie_state::home::{self, HomeError, JobEntry};
use eyrie_state::wall_clock;
use eyrie_terminal::{FAILED, Failure};

/// A job that was asked for.
pub enum Job {
    /// It has a folder: it runs, is saved or was kept.
    There(JobEntry),
    Ended(Box<Found>),
}

/// The job called `name`. One that is there comes before one that has ended, but for one whose id
/// or name it is exactly.
pub fn find(name: &str) -> Result<Job, Failure> {
    let home = home::home()?;
    let there = home::resolve(&home, name);
    let exact =
        |found: &Found| found.record.job == name || found.record.name.as_deref() == Some(name);
    match (there, history::find(&home, name)) {
        (Ok(job), Ok(ended)) if name != "last" && exact(&ended) && job.id != ended.record.job => {
            let named = history::of(&home, &job.id).is_some_and(|of| exact(&of));
            Ok(if named || job.id == name { Job::There(job) } else { Job::Ended(Box::new(ended)) })
        }
        (Ok(job), _) => Ok(Job::There(job)),
        (Err(HomeError::Ended(_) | HomeError::NoJob(_)), Ok(ended)) => {
            Ok(Job::Ended(Box::new(ended)))
        }
        (Err(HomeError::NoJob(_)), Err(why)) => Err(why.into()),
        (Err(why), _) => Err(why.into()),
    }
}

/// How it is, or was when it ended, and since when it has.
pub fn status_of(job: &Job) -> Result<(JobStatus, Option<u64>), Failure> {
    match job {
        Job::There(entry) => {
            let status = client::job_status(entry)?;
            let over = status.exit_code.is_some();
            let ended = home::home().ok().and_then(|home| history::of(&home, &entry.id));
            Ok((status, ended.and_then(|it| it.record.ended_unix_ms).filter(|_| over)))
        }
        Job::Ended(found) => {
            let record = &found.record;
            let ended = record.ended_unix_ms.ok_or_else(|| gone(record))?;
            let mut status = found.status()?;
            if status.phase == "saved" || record.exit_code == Some(85) {
                status.phase = String::from("ended");
            }
            Ok((status, Some(ended)))
        }
    }
}

/// Of a job that has left nothing but that it began.
pub fn gone(record: &Record) -> Failure {
    let (id, begun) = (&record.job, wall_clock::date(record.begun_unix_ms));
    let text = format!(
        "job {id}, begun {begun}, is gone without a word: its controller was killed, or its \
         machine ended"
    );
    Failure::new(FAILED, anyhow!(text))
}

/// One event as a line.
pub fn line(event: &Event, json: bool, record: Option<&Record>) -> anyhow::Result<String> {
    if json {
        return Ok(serde_json::to_string(event)? + "\n");
    }
    let at = record.map_or_else(String::new, |it| wall_clock::date(it.unix_ms(event.ms)) + " ");
    Ok(at + &text::plain(&tables::event_line(event)) + "\n")
}
