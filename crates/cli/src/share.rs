//! `eyrie suspend`, `eyrie resume` of a job that runs, and `eyrie share`: jobs that take turns.
//!
//! Kept true: the next job's ranks go on when those of the one before stand, on all its nodes; no
//! job stands longer than this command lives, whatever ends it: jobs stand as long as the
//! connection to them does, and as this command says so again in time.

use crate::remote::{Remote, find_running};
use crate::share_args::{Share, Suspend};
use anyhow::{anyhow, bail};
use eyrie_control::{ClientMsg, NodeMsg};
use eyrie_node::home::JobEntry;
use eyrie_terminal::{FAILED, Failure, USAGE, print, units};
use std::time::{Duration, Instant};

/// How much later than after two slices a job that hears nothing goes on.
const SLACK: Duration = Duration::from_secs(10);

pub fn suspend(args: &Suspend) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    done(Remote::connect(&job)?.patient(&ClientMsg::Suspend { swap: args.swap })?)?;
    Ok(0)
}

/// A job that has a controller goes on.
pub fn go_on(job: &JobEntry) -> Result<(), Failure> {
    Ok(done(Remote::connect(job)?.patient(&ClientMsg::Continue)?)?)
}

fn done(mut remote: Remote) -> anyhow::Result<()> {
    match remote.next()? {
        NodeMsg::Done => Ok(()),
        other => bail!("unexpected answer: {other:?}"),
    }
}

/// One of the jobs.
struct Member {
    job: JobEntry,
    remote: Remote,
    lease: Duration,
}

/// What became of a job in its turn.
enum Turn {
    Over,
    Ended,
}

impl Member {
    fn new(name: &str, lease: Duration) -> Result<Member, Failure> {
        let job = find_running(name)?;
        let remote = Remote::connect(&job)?;
        Ok(Member { job, remote, lease })
    }

    /// Lets it go on or stand, and waits until that is so.
    fn turn(&mut self, runs: bool) -> anyhow::Result<()> {
        let lease_ms = self.lease.as_millis() as u64;
        self.remote.limit(self.lease)?;
        self.remote.send(&ClientMsg::Turn { runs, lease_ms })?;
        match self.remote.next()? {
            NodeMsg::Done => Ok(()),
            other => bail!("unexpected answer: {other:?}"),
        }
    }

    /// The same, also of the next controller if there is one. False: it has ended.
    fn turns(&mut self, runs: bool) -> bool {
        let Err(error) = self.turn(runs) else { return true };
        if self.remote.is_over()
            && let Ok(remote) = Remote::connect(&self.job)
        {
            self.remote = remote;
            if self.turn(runs).is_ok() {
                return true;
            }
        }
        let why = if self.remote.is_over() { "it has ended".into() } else { format!("{error:#}") };
        print(&format!("job {} takes no more turns: {why}\n", self.job.id));
        false
    }

    /// Its slice.
    fn runs_for(&mut self, slice: Duration) -> Turn {
        let end = Instant::now() + slice;
        if !self.turns(true) {
            return Turn::Ended;
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.remote.ends_within(left) && !self.turns(true) {
                return Turn::Ended;
            }
        }
        if self.turns(false) { Turn::Over } else { Turn::Ended }
    }
}

/// Lets jobs take turns until one is left.
pub fn share(args: &Share) -> Result<i32, Failure> {
    let slice = Duration::from_millis(args.slice);
    let lease = 2 * slice + SLACK;
    let mut members: Vec<Member> = Vec::new();
    for name in &args.jobs {
        let member = Member::new(name, lease)?;
        if members.iter().any(|m| m.job.id == member.job.id) {
            let text = anyhow!("job {} is named twice", member.job.id);
            return Err(Failure::new(USAGE, text));
        }
        members.push(member);
    }
    if members.len() < 2 {
        return Err(Failure::new(FAILED, anyhow!("name two jobs at least")));
    }
    members.retain_mut(|m| m.turns(false));
    let mut next = 0;
    while members.len() > 1 {
        next %= members.len();
        let begin = Instant::now();
        let turn = members[next].runs_for(slice);
        if args.verbose {
            let ms = begin.elapsed().as_secs_f64() * 1e3;
            print(&format!("job {} ran for {}\n", members[next].job.id, units::millis(ms)));
        }
        let own = members[next].job.id.clone();
        match turn {
            Turn::Over => next += 1,
            Turn::Ended => drop(members.remove(next)),
        }
        // The others go on waiting.
        members.retain_mut(|m| m.job.id == own || m.turns(false));
    }
    if let Some(mut last) = members.pop()
        && last.turns(true)
    {
        print(&format!("job {} is left, and runs on alone\n", last.job.id));
    }
    Ok(0)
}
