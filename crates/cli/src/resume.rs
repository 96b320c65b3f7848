//! `eyrie resume`: goes on with a job of which only the nodes are left, or lets one go on that is
//! suspended.

use crate::args::Resume;
use crate::launch;
use crate::share;
use anyhow::{Context, anyhow};
use eyrie_control::ClientMsg;
use eyrie_node::home;
use eyrie_terminal::{FAILED, Failure};

pub fn resume(args: &Resume) -> Result<i32, Failure> {
    let home = home::home()?;
    let mut job = home::resolve(&home, &args.job)?;
    if job.alive {
        let Err(failure) = share::go_on(&job) else { return Ok(0) };
        // It may have been about to die.
        job = match home::resolve(&home, &job.id) {
            Ok(now) if !now.alive => now,
            _ => return Err(failure),
        };
    }
    if !job.resumable {
        let text = "has no nodes that wait for a controller; one that was saved goes on by";
        return Err(Failure::new(FAILED, anyhow!("job {} {text} eyrie restart", job.id)));
    }
    let folder = home::claim(&job)?;
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let order = ClientMsg::Resume { verbose: args.verbose };
    launch::start_in(&folder, &binary, &order, None, args.label)
}
