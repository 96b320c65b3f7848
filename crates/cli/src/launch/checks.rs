//! Options of a job that do not go together, in whichever way it is started.
//!
//! Kept true: `eyrie run` and `eyrie join` refuse the same, with one line, before a rank runs.

use crate::config::defaults::OptionConflict;
use crate::front::parts;
use crate::launch::spec::has_parity;
use crate::options::run::Run;
use eyrie_control::{CheckpointPolicy, Dedup, Fallback, Transport};
use eyrie_terminal::{Failure, USAGE};

/// How a job is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    Run,
    /// In the processes of another launcher.
    Join,
}

/// Options that do not go together.
pub fn conflict(text: impl std::fmt::Display) -> Failure {
    Failure::new(USAGE, OptionConflict::new(text))
}

fn refuse(text: impl Into<String>) -> Result<(), Failure> {
    Err(conflict(text.into()))
}

/// Refuses what is for jobs of another kind.
pub fn refuse_elsewhere(text: String) -> Result<(), Failure> {
    Err(Failure::new(USAGE, OptionConflict { text, elsewhere: true }))
}

/// Refuses routers of a job without nodes.
pub fn routed(routers: u32, nodes: u32) -> Result<(), Failure> {
    if routers > 0 && nodes == 0 {
        return refuse(
            "--ft routed needs nodes for ranks and for routers: give --nodes or --hosts",
        );
    }
    Ok(())
}

/// Refuses what does not go together wherever the ranks are.
pub fn anywhere(run: &Run) -> Result<(), Failure> {
    failures(run)?;
    let sets = run.ft().has_sets();
    if run.node_options.routers.is_some() && !run.ft().is_routed() {
        return refuse("--routers is for --ft routed: give it, too");
    }
    if run.placement.ppn.is_some() && !run.is_sized() && run.ft().is_routed() {
        return refuse("--ppn with --ft routed: give the number of ranks, too (-n)");
    }
    if run.keep && (sets || run.ft().is_routed()) {
        return refuse("--keep is for eyrie replay, which takes the logs of --ft logged");
    }
    if sets && run.checkpoints.ckpt_dedup == Dedup::On {
        return refuse(
            "--ft coordinated, node, cluster: checkpoints share no memory: leave --ckpt-dedup out",
        );
    }
    // Wherever they are.
    if let Some(when) = run.ft().one_turn(1) {
        together(run, when)?;
    }
    without_snapshots(run)?;
    match run.storage.vault {
        Some(vault) if !run.ft().protects() => {
            return refuse(format!(
                "--vault {vault} keeps checkpoints, and with --ft none there are none: leave one \
                 out"
            ));
        }
        _ => {}
    }
    if run.saving.save_every.is_some() && !run.ft().protects() {
        return refuse("--save-every saves checkpoints, and with --ft none there are none");
    }
    if run.saving.save_every.is_some() && run.saving.at_rest.goes_with_nodes() {
        return refuse(
            "--save-every saves what can be read when the nodes are gone, and their keys are gone \
             with them: give --encrypt-at-rest=FILE with a key, or leave one out",
        );
    }
    if run.placement.spawn_room.is_some() && run.placement.rankfile.is_some() {
        return refuse(
            "--spawn-room lays its ranks out itself: give -n, --ppn or --map, and leave out \
             --rankfile",
        );
    }
    let transport = run.network.transport(Transport::Tcp);
    run.network.check(run.network.tls, &transport).or_else(refuse)
}

/// Refuses recovery where the program handles failures itself, and a limit where it does not.
fn failures(run: &Run) -> Result<(), Failure> {
    let reports = run.limits.failures.report().is_some();
    if reports && !run.ft.gives_way() {
        return refuse(
            "--on-failure report: ranks that are lost are not brought back: leave --ft out",
        );
    }
    if run.limits.failures.failure_grace.is_some() && !reports {
        return refuse("--failure-grace is for --on-failure report: give it, too");
    }
    if run.placement.spare_ranks.is_none() {
        return Ok(());
    }
    if !reports {
        return refuse(
            "--spare-ranks take the place of ranks that do not come back: give --on-failure \
             report, too, or --spares, nodes that take lost ranks",
        );
    }
    if run.placement.spares == Some(0) {
        return refuse("--spare-ranks are on spare nodes: leave --spares 0 out");
    }
    if run.placement.rankfile.is_some() {
        return refuse(
            "--spare-ranks are behind all ranks that are laid out: leave --rankfile out",
        );
    }
    let several = parts::parts_of(&run.command).is_some_and(|parts| parts.len() > 1);
    if several {
        return refuse("--spare-ranks run the job's program, and it has several: leave it out");
    }
    Ok(())
}

/// Refuses a number of checkpoints to a snapshot where there are none. (`auto` means: if any.)
fn without_snapshots(run: &Run) -> Result<(), Failure> {
    let Fallback::Every(number) = run.repeat.fallback_every else { return Ok(()) };
    let kept = || run.keep.then_some("with --keep there are no snapshots");
    let Some(why) = run.ft().without_snapshots().or_else(kept) else { return Ok(()) };
    refuse(format!("--fallback-every {number}: {why}; leave it out"))
}

/// Refuses an order of checkpoints where all ranks have one turn.
fn together(run: &Run, when: &str) -> Result<(), Failure> {
    match run.checkpoints.ckpt_policy {
        None | Some(CheckpointPolicy::Auto) => Ok(()),
        Some(_) => refuse(format!(
            "--ckpt-policy sr, br, st order the checkpoints of single ranks, and {when} all are \
             checkpointed together: leave it out"
        )),
    }
}

/// Refuses what so many nodes do not do, without spares; 0: there is this one, and no other.
pub fn over(run: &Run, nodes: u32, way: StartedBy) -> Result<(), Failure> {
    if nodes > 0 && run.checkpoints.ckpt_dedup == Dedup::On {
        return refuse("--ckpt-dedup on works within one node only: leave it out");
    }
    if let Some(when) = run.ft().one_turn(nodes) {
        together(run, when)?;
    }
    let pointless = pointless(run, way == StartedBy::Join).filter(|_| nodes == 0);
    match (pointless, way) {
        (None, _) => {}
        (Some(option), StartedBy::Run) => {
            return refuse_elsewhere(format!(
                "{option} is for jobs over nodes: give --nodes or --hosts, too"
            ));
        }
        (Some(option), StartedBy::Join) => {
            return refuse_elsewhere(format!(
                "{option} is for jobs over nodes, and the launcher has put all processes on one"
            ));
        }
    }
    let parity = run.storage.vault.filter(|vault| has_parity(*vault));
    run.storage.vault_options.check(parity.is_some(), nodes).map_err(conflict)?;
    let there = nodes.saturating_add(run.placement.spares.unwrap_or(0)) as usize;
    match parity.filter(|vault| there < vault.least()) {
        Some(vault) => {
            let least = vault.least();
            refuse(format!("--vault {vault} needs {least} nodes at least, and there are {there}"))
        }
        None => Ok(()),
    }
}

/// An option that says something of nodes, where there is but one. `joins`: of its processes
/// some may be reached, though.
pub fn pointless(run: &Run, joins: bool) -> Option<&'static str> {
    let options = [
        ("--spares", run.placement.spares.is_some()),
        ("--log-replicas", run.storage.log_replicas.is_some()),
        ("--vault", run.storage.vault.is_some()),
        ("--rsh", !joins && run.host_options.rsh.is_some()),
        ("--prefix", run.host_options.prefix.is_some()),
        ("--address", !joins && run.host_options.address.is_some()),
        ("--join-limit", !joins && run.host_options.join_limit.is_some()),
        ("--save-every", run.saving.save_every.is_some()),
        ("--encrypt-at-rest", run.saving.at_rest.encrypt_at_rest.is_some()),
        ("--controller-limit", run.limits.controller_limit.is_some()),
        ("--ha", run.ha.ha.is_some()),
    ];
    let given = options.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
    given.or_else(|| run.storage.vault_options.given()).or_else(|| run.cluster_options.given())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        run: Run,
    }

    /// What is said of these options, however the job is started.
    fn told(check: impl Fn(&Run, StartedBy) -> Result<(), Failure>, words: &[&str]) -> [String; 2] {
        [StartedBy::Run, StartedBy::Join].map(|way| {
            let all = ["eyrie"].into_iter().chain(words.iter().copied()).chain(["program"]);
            let run = Line::try_parse_from(all).unwrap().run;
            check(&run, way).map_or_else(|failure| format!("{failure:?}"), |()| String::new())
        })
    }

    fn refused(check: impl Fn(&Run, StartedBy) -> Result<(), Failure>, words: &[&str], why: &str) {
        for text in told(check, words) {
            assert!(text.contains(why), "{words:?}: {text:?} has not {why:?}");
        }
    }

    #[test]
    fn what_never_goes_together_is_refused_however_a_job_is_started() {
        let check = |run: &Run, _| anywhere(run);
        let libfabric = ["--tls", "--transport", "libfabric"];
        refused(check, &libfabric, "leave one of --tls and --transport out");
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
        for ft in ["coordinated", "node", "cluster", "routed"] {
            refused(check, &["--ft", ft, "--on-failure", "report"], "leave --ft out");
        }
        let report = ["--on-failure", "report"];
        assert_eq!(told(check, &report), ["", ""]);
        assert_eq!(told(check, &["--on-failure", "report", "--ft", "none"]), ["", ""]);
        refused(check, &[&report[..], &["--vault", "rs:4+2"]].concat(), "leave one out");
        refused(check, &["--failure-grace", "9"], "--failure-grace is for --on-failure report");
        refused(check, &["--spare-ranks", "2"], "give --on-failure report, too");
        let spare = [&report[..], &["--spare-ranks", "2"]].concat();
        assert_eq!(told(check, &spare), ["", ""]);
        refused(check, &[&spare[..], &["--spares", "0"]].concat(), "leave --spares 0 out");
        refused(check, &[&spare[..], &["--rankfile", "f"]].concat(), "leave --rankfile out");
        refused(check, &["--routers", "2"], "--routers is for --ft routed");
        for ft in ["none", "coordinated", "node", "cluster", "routed"] {
            let every = |number| ["--ft", ft, "--fallback-every", number];
            refused(check, &every("3"), "--fallback-every 3: with --ft ");
            assert_eq!(told(check, &every("auto")), ["", ""], "{ft}");
            assert_eq!(told(check, &every("off")), ["", ""], "{ft}");
        }
        refused(check, &["--keep", "--fallback-every", "3"], "with --keep there are no snapshots");
        assert_eq!(told(check, &["--fallback-every", "3"]), ["", ""]);
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
        let snapshots = |vault| ["--vault", vault, "--fallback-every", "3"];
        assert_eq!(told(on(9), &snapshots("rs:4+2")), ["", ""]);
        assert_eq!(told(on(3), &snapshots("partner")), ["", ""]);
        assert_eq!(told(on(9), &["--vault", "rs:4+2", "--fallback-every", "auto"]), ["", ""]);
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
