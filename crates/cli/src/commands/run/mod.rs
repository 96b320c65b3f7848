//! `eyrie run`: a program as one job, here or over nodes and hosts.

mod continued;

use crate::commands::restart;
use crate::config::folders;
use crate::launch::checks::{self, StartedBy};
use crate::launch::console::ConsoleOptions;
use crate::launch::controller::start;
use crate::launch::hosts::{self, HostRequest, PerNode};
use crate::launch::program::{checked_program, program_elsewhere};
use crate::launch::rankfile::RankFile;
use crate::launch::spec::{describe, router_share};
use crate::launch::{grid, ha, network, risks, room, spare_ranks};
use crate::messages;
use crate::options::run::Run;
use eyrie_control::Placement;
use eyrie_core::dynamic::{APPNUM_VARIABLE, ROOM_VARIABLE, UNIVERSE_VARIABLE};
use eyrie_image::OwnPids;
use eyrie_protocol::placement::Map;
use eyrie_protocol::routing::Routing;
use eyrie_terminal::{Failure, USAGE};

pub fn run(run: &Run) -> Result<i32, Failure> {
    choose_own_pids(run.repeat.own_pids.as_deref());
    folders::choose_local(run.storage.local.local.as_deref())?;
    run.checking.choose();
    run.repeat.choose_order();
    grid::put_environment(run.placement.config.as_deref())?;
    if let Some(before) = continued::saved(run)? {
        return restart::restart(&before);
    }
    match begin(run) {
        // Nothing has begun then.
        Err(failure) => self::run(&run.defaults.retreat(failure)?),
        ended => ended,
    }
}

fn begin(run: &Run) -> Result<i32, Failure> {
    let map = run.placement.map.unwrap_or_default();
    let file = RankFile::of(run).map_err(|e| Failure::new(USAGE, e))?;
    checks::anywhere(run)?;
    let ranks = file.as_ref().map_or_else(|| run.ranks(), |f| f.ranks.len() as u32);
    let ppn = run.placement.ppn.map(|ranks| PerNode { ranks, of_all: run.is_sized() });
    // Each cluster has one at least.
    let clusters = run.cluster_options.clusters.unwrap_or(1);
    let count = |share| Routing::count(ranks, share).max(clusters);
    let routers = router_share(run).map_or(0, count);
    let spares = spare_ranks::nodes(run) + routers;
    let grid = grid::of(run.placement.config.as_deref())?;
    let wish = HostRequest {
        hosts: run.placement.hosts.as_deref(),
        grid: grid.as_ref(),
        here: run.placement.nodes.is_some(),
        host_options: &run.host_options,
        ranks: run.ranks(),
        ppn,
        spares,
        map,
        file: file.as_ref(),
    };
    let elsewhere = hosts::plan(&wish).map_err(|e| Failure::new(USAGE, e))?;
    let nodes = elsewhere.as_ref().map_or(run.placement.nodes.unwrap_or(0), |plan| plan.nodes);
    let all = nodes.saturating_add(if nodes > 0 { routers } else { 0 });
    checks::over(run, all, StartedBy::Run)?;
    let program = match elsewhere {
        Some(_) => program_elsewhere(&run.command)?,
        None => checked_program(&run.command)?,
    };
    let said = elsewhere.as_ref().map(|p| (p.clusters.clone(), p.domains.clone()));
    let (named, domains) = said.unwrap_or_default();
    let (nodes, homes, hosts) = match elsewhere {
        Some(plan) => (plan.nodes, plan.homes, Some(Box::new(plan.hosts))),
        None => {
            let homes = homes_here(run, file.as_ref(), ppn, map);
            (run.placement.nodes.unwrap_or(0), homes.map_err(|e| Failure::new(USAGE, e))?, None)
        }
    };
    let ranks = if ppn.is_some() { homes.len() as u32 } else { ranks };
    let homes = if nodes == 0 { Vec::new() } else { homes };
    let clusters = run.cluster_options.plan(nodes, spares, &named).map_err(checks::conflict)?;
    let together = hosts.is_none() && !run.node_options.netns;
    run.cluster_options.check(run.ft(), &clusters, together).map_err(checks::conflict)?;
    checks::routed(routers, nodes)?;
    let ha = ha::wanted(run, hosts.as_ref().is_some_and(|h| h.shell))?;
    without_rooms_around();
    spare_ranks::tell(run);
    let mut spec = describe(run, ranks, &program, run.saving.at_rest.spec()?)?;
    spec.protection.ft = run.mode(nodes);
    spec.placement = Placement {
        nodes,
        spares: if nodes > 0 { spares } else { 0 },
        routers,
        router_share: router_share(run).unwrap_or(1),
        hosts,
        homes,
        cyclic: map == Map::Cyclic,
        slots: file.map(|f| f.slots()).unwrap_or_default(),
        clusters,
        ..spec.placement
    };
    let rooms = room::wanted(run, ranks).is_some();
    let spare_nodes = spare_ranks::make(run, map, rooms, &mut spec)?;
    room::make(run, map, spare_nodes, &mut spec);
    network::choose(run, &mut spec).map_err(|e| Failure::new(USAGE, e))?;
    spec.storage.ha = ha;
    spec.storage.manner = run.storage.vault_options.manner(domains);
    for text in risks::domain_is_a_risk(&spec).into_iter().chain(risks::cluster_is_a_risk(&spec)) {
        messages::say(&text);
    }
    let metrics = run.metrics.open(run.output.quiet)?;
    start(spec, ConsoleOptions { label: run.output.label, quiet: run.output.quiet, metrics })
}

/// The homes of ranks on nodes of this machine, or on none but itself; empty: as the map says.
fn homes_here(
    run: &Run,
    file: Option<&RankFile>,
    ppn: Option<PerNode>,
    map: Map,
) -> anyhow::Result<Vec<u32>> {
    let nodes = run.placement.nodes.unwrap_or(0);
    if let Some(ppn) = ppn {
        // On this machine alone there is room for any number.
        let over = run.host_options.oversubscribe || nodes == 0;
        return ppn.homes(run.ranks(), nodes.max(1), map, over);
    }
    let homes = file.map(|f| f.homes(&[], nodes.max(1))).transpose()?;
    Ok(homes.filter(|_| nodes > 0).unwrap_or_default())
}

/// A job that a rank of another one starts has nothing of that one's room.
fn without_rooms_around() {
    for name in [ROOM_VARIABLE, UNIVERSE_VARIABLE, APPNUM_VARIABLE] {
        // SAFETY: this process has one thread.
        unsafe { std::env::remove_var(name) };
    }
}

/// For all daemons that this command starts, here and elsewhere. Nothing is chosen without a word.
fn choose_own_pids(when: Option<&str>) {
    if let Some(when) = when {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(OwnPids::VARIABLE, when) };
    }
}
