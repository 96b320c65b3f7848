//! `eyrie restart`: goes on with a job that was saved as a whole.

use crate::args::Restart;
use crate::launch;
use anyhow::{Context, anyhow};
use eyrie_control::ClientMsg;
use eyrie_node::home;
use eyrie_node::saved::SavedJob;
use eyrie_node::spawn::Prefix;
use eyrie_terminal::{FAILED, Failure, USAGE};

pub fn restart(args: &Restart) -> Result<i32, Failure> {
    let job = home::resolve(&home::home()?, &args.job)?;
    if !job.alive && !job.saved {
        let text = "was not saved (SIGQUIT to `eyrie run`, or eyrie checkpoint JOB --end)";
        return Err(Failure::new(FAILED, anyhow!("job {} has ended and {text}", job.id)));
    }
    if args.nodes.is_some() {
        let text = "--nodes: a saved job goes on on one node only, so far; leave it out";
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    let folder = home::claim(&job)?;
    let saved = SavedJob::read(&folder.path)?;
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    if Prefix::of(&binary).restorer.is_none() {
        let text = "the program eyrie-restorer is missing beside eyrie and in ../libexec";
        return Err(Failure::new(FAILED, anyhow!(text)));
    }
    let mut spec = saved.spec.clone();
    spec.verbose = args.verbose;
    spec.keep = spec.keep || args.keep;
    spec.input_is_file = launch::input_is_file();
    let order = ClientMsg::Restart(Box::new(spec));
    launch::start_in(&folder, &binary, &order, Some(&saved), args.label)
}
