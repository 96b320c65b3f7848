//! Where a saved job goes on: on its nodes and hosts, or on others.

use crate::batch::allocation;
use crate::commands::restart::args::Restart;
use crate::config::defaults::OptionConflict;
use crate::launch::checks;
use crate::launch::hosts::{self, HostRequest};
use crate::options::clusters;
use anyhow::anyhow;
use eyrie_control::JobSpec;
use eyrie_protocol::placement::Map;
use eyrie_protocol::routing::Routing;
use eyrie_state::local;
use eyrie_terminal::{Failure, USAGE};

/// The job where it goes on, and how it is reached there.
pub fn placed(args: &Restart, saved: &JobSpec) -> Result<JobSpec, Failure> {
    let mut spec = saved.clone();
    place(args, &mut spec)
        .and_then(|named| divide(args, &mut spec, &named))
        .map_err(|error| Failure::new(USAGE, error))?;
    if spec.placement.hosts.is_none() {
        local::check()?;
    }
    spec.storage.keep = spec.storage.keep || args.keep;
    check_kept(args, &spec).map_err(checks::conflict)?;
    spec.security.tls = spec.security.tls || args.network.tls;
    spec.placement.transport = args.network.transport(spec.placement.transport);
    args.network.check(spec.security.tls, &spec.placement.transport).map_err(checks::conflict)?;
    Ok(spec)
}

/// An option that does not go with the rest.
fn conflict(text: impl std::fmt::Display) -> anyhow::Error {
    OptionConflict::new(text).into()
}

/// Refuses to keep logs that are not there, or are of no use to `eyrie replay`. What was taken when
/// the job was started is let be.
fn check_kept(args: &Restart, spec: &JobSpec) -> anyhow::Result<()> {
    let asked = args.keep || args.placement.routers.is_some_and(|share| share > 0);
    if !asked
        || !spec.storage.keep
        || (spec.protection.ft.goes_back_alone() && spec.placement.routers == 0)
    {
        return Ok(());
    }
    let mode = spec.mode();
    let logs = "--keep is for eyrie replay, which takes the logs of --ft logged";
    match args.keep {
        true => Err(anyhow!("{logs}: the job goes on with --ft {mode}")),
        false => Err(anyhow!("{logs}: the job was started with it, so leave --routers out")),
    }
}

/// Puts the nodes into as many clusters as there were, or into those that their hosts are in.
fn divide(args: &Restart, spec: &mut JobSpec, named: &[String]) -> anyhow::Result<()> {
    let count = spec.placement.clusters.count();
    if count == 0 && !named.is_empty() {
        return Err(anyhow!("the job was saved without clusters: leave cluster= out"));
    }
    let all = (spec.placement.nodes + spec.placement.spares) as usize;
    let moved = args.placement.hosts.is_some() || args.placement.nodes.is_some();
    if count == 0 || (!moved && spec.placement.clusters.of.len() == all) {
        return Ok(());
    }
    let (names, of) = match named.is_empty() {
        true => clusters::in_blocks(count, spec.placement.nodes, spec.placement.spares)?,
        false => clusters::by_name(named)?,
    };
    // Of one cluster nothing is to be told apart.
    let one = names.len() < 2;
    (spec.placement.clusters.names, spec.placement.clusters.of) =
        if one { Default::default() } else { (names, of) };
    Ok(())
}

/// Says where the job goes on. Returns the clusters that are named there.
fn place(args: &Restart, spec: &mut JobSpec) -> anyhow::Result<Vec<String>> {
    if spec.placement.nodes == 0 {
        return match options(args).first() {
            Some(option) => Err(conflict(format!(
                "--{option}: a job that was saved without --nodes or --hosts goes on without"
            ))),
            None => Ok(Vec::new()),
        };
    }
    if args.placement.map.is_some() {
        spec.placement.cyclic = args.placement.map == Some(Map::Cyclic);
    }
    let routers = routers(args, spec)?;
    // The hosts of an allocation are another's in the next one, whatever leads there.
    let of_batch =
        spec.placement.hosts.as_ref().is_some_and(|h| !h.shell || allocation::gives_hosts());
    let allocated = of_batch && args.placement.nodes.is_none();
    if args.placement.hosts.is_some() || allocated {
        let wish = HostRequest {
            hosts: args.placement.hosts.as_deref(),
            grid: None,
            here: false,
            host_options: &args.host_options,
            ranks: spec.program.size,
            ppn: None,
            spares: args.placement.spares.unwrap_or(0) + routers,
            map: if spec.placement.cyclic { Map::Cyclic } else { Map::Block },
            file: None,
        };
        let Some(plan) = hosts::plan(&wish)? else {
            here_alone(spec, args.placement.spares.unwrap_or(0), routers)?;
            return Ok(Vec::new());
        };
        (spec.placement.nodes, spec.placement.homes, spec.placement.netns) =
            (plan.nodes, plan.homes, false);
        spec.storage.manner.domains = plan.domains;
        (spec.placement.spares, spec.placement.routers) =
            (args.placement.spares.unwrap_or(0) + routers, routers);
        spec.placement.hosts = Some(Box::new(plan.hosts));
        // Those of a rank file were of the hosts that were.
        spec.placement.slots = Vec::new();
        return Ok(plan.clusters);
    }
    let elsewhere = ["rsh", "prefix", "address", "join-limit", "oversubscribe"];
    if let Some(option) = options(args).into_iter().find(|o| elsewhere.contains(o)) {
        return Err(conflict(format!("--{option} is for other hosts: give --hosts, too")));
    }
    if let Some(nodes) = args.placement.nodes {
        (spec.placement.nodes, spec.placement.hosts, spec.placement.homes) =
            (nodes, None, Vec::new());
        spec.storage.manner.domains = Vec::new();
        spec.placement.slots = Vec::new();
        (spec.placement.spares, spec.placement.routers) =
            (args.placement.spares.unwrap_or(0) + routers, routers);
    } else if spec.placement.hosts.is_some()
        && (args.placement.map.is_some() || args.placement.spares.is_some())
    {
        return Err(conflict("--map and --spares: give --hosts or --nodes, too"));
    } else if args.placement.routers.is_some() {
        return Err(conflict("--routers: give --hosts or --nodes, too"));
    }
    spec.placement.spares = args
        .placement
        .spares
        .map_or(spec.placement.spares, |spares| spares + spec.placement.routers);
    Ok(Vec::new())
}

/// A job over hosts goes on in an allocation that has but this one: as one node of this machine.
fn here_alone(spec: &mut JobSpec, spares: u32, routers: u32) -> anyhow::Result<()> {
    if !allocation::gives_hosts() {
        return Err(anyhow!(
            "the job ran in an allocation of a batch system: go on in one, or give --nodes or \
             --hosts"
        ));
    }
    (spec.placement.nodes, spec.placement.hosts, spec.placement.homes, spec.placement.netns) =
        (1, None, Vec::new(), false);
    (spec.placement.spares, spec.placement.routers) = (spares + routers, routers);
    spec.storage.manner.domains = Vec::new();
    spec.placement.slots = Vec::new();
    Ok(())
}

/// How many routers there are where the job goes on, if that is elsewhere.
fn routers(args: &Restart, spec: &mut JobSpec) -> anyhow::Result<u32> {
    match args.placement.routers {
        Some(0) => return Ok(0),
        Some(_) if !spec.protection.ft.goes_back_alone() => {
            let mode = spec.mode();
            return Err(conflict(format!(
                "--routers: the job runs with --ft {mode}, which has none"
            )));
        }
        Some(share) => spec.placement.router_share = share,
        None if spec.placement.routers == 0 => return Ok(0),
        None => {}
    }
    Ok(Routing::count(spec.program.size, spec.placement.router_share)
        .max(spec.placement.clusters.count()))
}

/// Names of the options given that say where.
fn options(args: &Restart) -> Vec<&'static str> {
    let all = [
        ("nodes", args.placement.nodes.is_some()),
        ("hosts", args.placement.hosts.is_some()),
        ("map", args.placement.map.is_some()),
        ("spares", args.placement.spares.is_some()),
        ("routers", args.placement.routers.is_some()),
        ("rsh", args.host_options.rsh.is_some()),
        ("prefix", args.host_options.prefix.is_some()),
        ("address", args.host_options.address.is_some()),
        ("join-limit", args.host_options.join_limit.is_some()),
        ("oversubscribe", args.host_options.oversubscribe),
    ];
    all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}
