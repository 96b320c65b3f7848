//! `eyrie restart`: goes on with a job that was saved as a whole, where it was or elsewhere.

use crate::args::{Cli, Command, MapMode, Restart, Run};
use crate::hosts;
use crate::launch;
use anyhow::{Context, anyhow};
use clap::Parser;
use eyrie_control::{ClientMsg, JobSpec};
use eyrie_node::home;
use eyrie_node::placement::Map;
use eyrie_node::saved::SavedJob;
use eyrie_node::spawn::Prefix;
use eyrie_terminal::{FAILED, Failure, USAGE};
use std::ffi::OsString;

pub fn restart(args: &Restart) -> Result<i32, Failure> {
    let job = home::resolve(&home::home()?, &args.job)?;
    if !job.alive && !job.saved {
        let text = "was not saved (SIGQUIT to `eyrie run`, or eyrie checkpoint JOB --end)";
        return Err(Failure::new(FAILED, anyhow!("job {} has ended and {text}", job.id)));
    }
    let folder = home::claim(&job)?;
    let saved = SavedJob::read(&folder.path)?;
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    if Prefix::of(&binary).restorer.is_none() {
        let text = "the program eyrie-restorer is missing beside eyrie and in ../libexec";
        return Err(Failure::new(FAILED, anyhow!(text)));
    }
    let mut spec = saved.spec.clone();
    place(args, &mut spec).map_err(|error| Failure::new(USAGE, error))?;
    spec.verbose = args.verbose;
    spec.keep = spec.keep || args.keep;
    spec.input_is_file = launch::input_is_file();
    let order = ClientMsg::Restart(Box::new(spec));
    launch::start_in(&folder, &binary, &order, Some(&saved), args.label)
}

/// Says where the job goes on.
fn place(args: &Restart, spec: &mut JobSpec) -> anyhow::Result<()> {
    if spec.nodes == 0 {
        return match options(args).first() {
            Some(option) => Err(anyhow!(
                "--{option}: a job that was saved without --nodes or --hosts goes on without"
            )),
            None => Ok(()),
        };
    }
    if args.map.is_some() {
        spec.cyclic = args.map == Some(MapMode::Cyclic);
    }
    let allocated = spec.hosts.as_ref().is_some_and(|h| !h.shell) && args.nodes.is_none();
    if args.hosts.is_some() || allocated {
        let run = as_run(args, spec.size)?;
        let map = if spec.cyclic { Map::Cyclic } else { Map::Block };
        let plan = hosts::plan(&run, map, None)?.ok_or_else(|| {
            anyhow!(
                "the job ran in an allocation of Slurm: go on in one, or give --nodes or --hosts"
            )
        })?;
        (spec.nodes, spec.homes, spec.netns) = (plan.nodes, plan.homes, false);
        spec.spares = args.spares.unwrap_or(0);
        spec.hosts = Some(Box::new(plan.hosts));
        // Those of a rank file were of the hosts that were.
        spec.slots = Vec::new();
        return Ok(());
    }
    let elsewhere = ["prefix", "address", "join-limit", "oversubscribe"];
    if let Some(option) = options(args).into_iter().find(|o| elsewhere.contains(o)) {
        return Err(anyhow!("--{option} is for other hosts: give --hosts, too"));
    }
    if let Some(nodes) = args.nodes {
        (spec.nodes, spec.hosts, spec.homes) = (nodes, None, Vec::new());
        spec.slots = Vec::new();
        spec.spares = args.spares.unwrap_or(0);
    } else if spec.hosts.is_some() && (args.map.is_some() || args.spares.is_some()) {
        return Err(anyhow!("--map and --spares: give --hosts or --nodes, too"));
    }
    spec.spares = args.spares.unwrap_or(spec.spares);
    Ok(())
}

/// Names of the options given that say where.
fn options(args: &Restart) -> Vec<&'static str> {
    let all = [
        ("nodes", args.nodes.is_some()),
        ("hosts", args.hosts.is_some()),
        ("map", args.map.is_some()),
        ("spares", args.spares.is_some()),
        ("prefix", args.prefix.is_some()),
        ("address", args.address.is_some()),
        ("join-limit", args.join_limit.is_some()),
        ("oversubscribe", args.oversubscribe),
    ];
    all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}

/// What `eyrie run` would be told of these hosts, read as it reads it.
fn as_run(args: &Restart, size: u32) -> anyhow::Result<Run> {
    let mut words: Vec<OsString> = vec!["eyrie".into(), "run".into()];
    let mut give = |option: &str, value: Option<OsString>| {
        let mut word = OsString::from(format!("--{option}="));
        words.extend(value.map(|v| {
            word.push(v);
            word
        }));
    };
    give("np", Some(size.to_string().into()));
    give("hosts", args.hosts.clone().map(OsString::from));
    give("rsh", args.rsh.clone().map(OsString::from));
    give("prefix", args.prefix.clone().map(OsString::from));
    give("address", args.address.clone().map(OsString::from));
    give("join-limit", args.join_limit.map(|ms| format!("{ms}ms").into()));
    give("spares", args.spares.map(|s| s.to_string().into()));
    if args.oversubscribe {
        words.push("--oversubscribe".into());
    }
    // What runs is known.
    words.extend(["--".into(), "program".into()]);
    match Cli::try_parse_from(words)?.command {
        Command::Run(run) => Ok(run),
        _ => Err(anyhow!("the options for hosts cannot be read")),
    }
}
