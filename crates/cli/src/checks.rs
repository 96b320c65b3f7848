//! Options of a job that do not go together, in whichever way it is started.
//!
//! Kept true: `eyrie run` and `eyrie join` refuse the same, with one line, before a rank runs.

use crate::args::{CkptDedup, CkptPolicy, FtMode, Run};
use crate::hosts;
use crate::launch::has_parity;
use eyrie_control::Transport;
use eyrie_terminal::{Failure, USAGE};

/// How a job is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Run,
    /// In the processes of another launcher.
    Join,
}

fn refuse(text: impl Into<String>) -> Result<(), Failure> {
    Err(Failure::new(USAGE, anyhow::Error::msg(text.into())))
}

/// Refuses what does not go together wherever the ranks are.
pub fn anywhere(run: &Run) -> Result<(), Failure> {
    let sets = [FtMode::Coordinated, FtMode::Node, FtMode::Cluster].contains(&run.ft);
    if run.routers.is_some() && run.ft != FtMode::Routed {
        return refuse("--routers is for --ft routed: give it, too");
    }
    if run.keep && (sets || run.ft == FtMode::Routed) {
        return refuse("--keep is for eyrie replay, which takes the logs of --ft logged");
    }
    if sets && run.ckpt_dedup == CkptDedup::On {
        return refuse(
            "--ft coordinated, node, cluster: checkpoints share no memory: leave --ckpt-dedup out",
        );
    }
    if run.ft == FtMode::Coordinated {
        together(run, "with --ft coordinated")?;
    }
    match run.vault {
        Some(vault) if run.ft == FtMode::None => {
            return refuse(format!(
                "--vault {vault} keeps checkpoints, and with --ft none there are none: leave one \
                 out"
            ));
        }
        _ => {}
    }
    if run.save_every.is_some() && run.ft == FtMode::None {
        return refuse("--save-every saves checkpoints, and with --ft none there are none");
    }
    if run.save_every.is_some() && run.at_rest.goes_with_nodes() {
        return refuse(
            "--save-every saves what can be read when the nodes are gone, and their keys are gone \
             with them: give --encrypt-at-rest=FILE with a key, or leave one out",
        );
    }
    let transport = run.guard.transport(Transport::Tcp);
    run.guard.check(run.guard.tls, &transport).or_else(refuse)
}

/// Refuses an order of checkpoints where all ranks have one turn.
fn together(run: &Run, when: &str) -> Result<(), Failure> {
    match run.ckpt_policy {
        None | Some(CkptPolicy::Auto) => Ok(()),
        Some(_) => refuse(format!(
            "--ckpt-policy sr, br, st order the checkpoints of single ranks, and {when} all are \
             checkpointed together: leave it out"
        )),
    }
}

/// Refuses what so many nodes do not do, without spares; 0: there is this one, and no other.
pub fn over(run: &Run, nodes: u32, way: Way) -> Result<(), Failure> {
    if nodes > 0 && run.ckpt_dedup == CkptDedup::On {
        return refuse("--ckpt-dedup on works within one node only: leave it out");
    }
    if nodes == 0 && run.ft == FtMode::Node {
        together(run, "with --ft node and one node")?;
    }
    let pointless = hosts::pointless(run, way == Way::Join).filter(|_| nodes == 0);
    match (pointless, way) {
        (None, _) => {}
        (Some(option), Way::Run) => {
            return refuse(format!(
                "{option} is for jobs over nodes: give --nodes or --hosts, too"
            ));
        }
        (Some(option), Way::Join) => {
            return refuse(format!(
                "{option} is for jobs over nodes, and the launcher has put all processes on one"
            ));
        }
    }
    let parity = run.vault.filter(|vault| has_parity(*vault));
    run.keeping.check(parity.is_some(), nodes).map_err(|e| Failure::new(USAGE, e))?;
    let there = nodes.saturating_add(run.spares.unwrap_or(0)) as usize;
    match parity.filter(|vault| there < vault.least()) {
        Some(vault) => {
            let least = vault.least();
            refuse(format!("--vault {vault} needs {least} nodes at least, and there are {there}"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    /// What is said of these options, however the job is started.
    fn told(check: impl Fn(&Run, Way) -> Result<(), Failure>, words: &[&str]) -> [String; 2] {
        [("run", Way::Run), ("join", Way::Join)].map(|(name, way)| {
            let all = ["eyrie", name].into_iter().chain(words.iter().copied()).chain(["program"]);
            let run = match Cli::try_parse_from(all).map(|cli| cli.command) {
                Ok(Command::Run(run) | Command::Join(run)) => run,
                other => panic!("{other:?}"),
            };
            check(&run, way).map_or_else(|failure| format!("{failure:?}"), |()| String::new())
        })
    }

    fn refused(check: impl Fn(&Run, Way) -> Result<(), Failure>, words: &[&str], why: &str) {
        for text in told(check, words) {
            assert!(text.contains(why), "{words:?}: {text:?} has not {why:?}");
        }
    }

    #[test]
    fn what_never_goes_together_is_refused_however_a_job_is_started() {
        let check = |run: &Run, _| anywhere(run);
        let libfabric = ["--tls", "--transport", "libfabric"];
        refused(check, &libfabric, "leave one of --tls and --transport libfabric out");
        refused(check, &["--tls", "--transport", "libfabric:verbs"], "is not encrypted");
        for ft in ["coordinated", "node", "cluster", "routed"] {
            refused(check, &["--ft", ft, "--keep"], "takes the logs of --ft logged");
        }
        for ft in ["coordinated", "node", "cluster"] {
            refused(check, &["--ft", ft, "--ckpt-dedup", "on"], "leave --ckpt-dedup out");
        }
        refused(check, &["--ft", "none", "--vault", "rs:4+2"], "leave one out");
        refused(check, &["--ft", "none", "--save-every", "9"], "there are none");
        for policy in ["sr", "br", "st"] {
            let options = ["--ft", "coordinated", "--ckpt-policy", policy];
            refused(check, &options, "all are checkpointed together: leave it out");
        }
        refused(check, &["--routers", "2"], "--routers is for --ft routed");
        let together = ["--ft", "coordinated", "--ckpt-policy", "auto"];
        let units = ["--ft", "node", "--ckpt-policy", "sr"];
        let alone = [&["--tls", "--transport", "auto"][..], &["--keep"], &["--ckpt-dedup", "on"]];
        for fine in alone.into_iter().chain([&together[..], &units]) {
            assert_eq!(told(check, fine), ["", ""], "{fine:?}");
        }
    }

    #[test]
    fn what_so_many_nodes_do_not_do_is_refused_however_a_job_is_started() {
        let on = |nodes| move |run: &Run, way| over(run, nodes, way);
        refused(on(2), &["--ckpt-dedup", "on"], "within one node only");
        refused(on(2), &["--vault", "rs:4+2"], "rs:4+2 needs 3 nodes at least, and there are 2");
        refused(on(2), &["--encoder", "fanin"], "--encoder is for a vault with parity");
        let policy = ["--ft", "node", "--ckpt-policy", "st"];
        refused(on(0), &policy, "with --ft node and one node all are checkpointed together");
        assert_eq!(told(on(2), &policy), ["", ""]);
        for option in [["--vault", "rs:4+2"], ["--save-every", "9"], ["--encoder", "fanin"]] {
            refused(on(0), &option, "is for jobs over nodes");
        }
        assert_eq!(told(on(3), &["--vault", "rs:4+2", "--encoder", "fanin"]), ["", ""]);
        assert_eq!(told(on(2), &["--vault", "rs:4+2", "--spares", "1"]), ["", ""]);
        assert_eq!(told(on(0), &["--ckpt-dedup", "on"]), ["", ""]);
        // Where others reach a process of a launcher is for one machine with containers, too.
        let [run, join] = told(on(0), &["--join-limit", "9", "--address", "::1"]);
        assert!(run.contains("--address") && join.is_empty(), "{run} {join}");
    }
}
