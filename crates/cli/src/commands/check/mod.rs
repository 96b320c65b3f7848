//! `eyrie check`: whether a grid job can start: its file, every host, every link between clusters.
//!
//! Kept true: nothing of the job is started, and hosts are reached as the job would reach them.

pub mod args;
mod hosts;
mod links;
mod table;

use crate::commands::check::args::Check;
use crate::commands::check::links::Measured;
use crate::commands::doctor::finding::{Finding, exit_code};
use crate::config::options;
use crate::launch::asked;
use crate::launch::grid::{self, GridHosts};
use anyhow::anyhow;
use clap::Command;
use eyrie_config::grid::Grid;
use eyrie_config::typed::refusal;
use eyrie_control::message::Hosts;
use eyrie_terminal::{Failure, USAGE, print, print_json};
use serde_json::{Value, json};

/// What is known of a grid job before anything is asked.
struct Job {
    grid: Grid,
    found: GridHosts,
    plan: Hosts,
    /// Hosts of other clusters than the first reach this machine through gateways only.
    wan_only: bool,
    ports: Option<eyrie_control::gateway::Ports>,
}

/// `commands`: all commands with their options.
pub fn check(args: &Check, commands: &Command) -> Result<i32, Failure> {
    let job = read(args, commands).map_err(|error| Failure::new(USAGE, error))?;
    let mut all: Vec<Finding> = room(&job).into_iter().collect();
    all.extend(hosts::look(args, &job)?);
    let measured = links::measure(args, &job, &mut all)?;
    let code = exit_code(&all);
    match args.json {
        true => print_json(&as_json(args, &job, &measured, &all, code))?,
        false => print(&table::text(args, &job, &measured, &all)),
    }
    Ok(code)
}

/// Reads the file, and all that it needs of this machine.
fn read(args: &Check, commands: &Command) -> anyhow::Result<Job> {
    let grid = Grid::read(&args.config)?;
    options::check(commands, &grid.run)?;
    if let Some(refusal) = grid.run.entries.iter().find_map(|entry| refusal(commands, entry)) {
        return Err(refusal);
    }
    let found = grid::hosts(&grid)?;
    let plan = asked::plan_grid(&found, args.address.as_deref())?;
    let said = |key: &str| {
        let found = grid.run.entries.iter().find(|entry| entry.key == key);
        found.map(|entry| entry.value.to_string())
    };
    let wan_only = said("wan-only").as_deref() == Some("true");
    let ports = said("gateway-port").map(|text| crate::options::clusters::parse_ports(&text));
    let ports = ports.transpose().map_err(|why| anyhow!("gateway-port: {why}"))?;
    Ok(Job { grid, found, plan, wan_only, ports })
}

/// Whether the hosts have room for the ranks.
fn room(job: &Job) -> Option<Finding> {
    let ranks = job.grid.ranks?;
    let slots = job.found.entries.iter().map(|entry| entry.slots);
    let slots = slots.sum::<Option<u32>>()?;
    let over = job.grid.run.entries.iter().any(|entry| entry.key == "oversubscribe");
    (ranks > slots && !over).then(|| {
        let text = format!("{ranks} ranks, and the hosts have {slots} slots");
        Finding::stops("room", text, "add hosts or slots, or oversubscribe = true under [run]")
    })
}

impl Job {
    /// The cluster of a host, by the number of both.
    fn cluster_of(&self, host: usize) -> usize {
        let name = self.found.entries[host].cluster.as_deref();
        self.grid.clusters.iter().position(|c| Some(c.name.as_str()) == name).unwrap_or(0)
    }

    /// The hosts of a cluster.
    fn hosts_of(&self, cluster: usize) -> Vec<usize> {
        (0..self.found.entries.len()).filter(|host| self.cluster_of(*host) == cluster).collect()
    }

    /// The host that has a cluster's gateway at first.
    fn gateway_of(&self, cluster: usize) -> usize {
        let hosts = self.hosts_of(cluster);
        let door = hosts.iter().find(|host| self.found.entries[**host].gateway.is_some());
        *door.or(hosts.first()).unwrap_or(&0)
    }

    /// Whether a host has a way to this machine but through gateways.
    fn is_near(&self, host: usize) -> bool {
        !self.wan_only || self.cluster_of(host) == 0
    }
}

fn as_json(args: &Check, job: &Job, measured: &[Measured], all: &[Finding], code: i32) -> Value {
    let name = |cluster: usize| job.grid.clusters[cluster].name.clone();
    let clusters = (0..job.grid.clusters.len()).map(|number| {
        let hosts = job.hosts_of(number).into_iter();
        json!({
            "name": name(number),
            "launcher": job.found.launchers[number],
            "hosts": hosts.map(|h| job.found.entries[h].name.clone()).collect::<Vec<_>>(),
            "gateway": job.found.entries[job.gateway_of(number)].name,
        })
    });
    let links = measured.iter().map(|one| {
        json!({
            "between": one.between.map(name),
            "caller": one.caller.map(name),
            "at": one.at,
            "latency_ms": one.latency_ms,
            "mbit": one.mbit.map(|mbit| mbit.to_vec()),
            "said_latency_ms": one.said_latency_ms,
            "said_mbit": one.said_mbit,
        })
    });
    json!({
        "exit_code": code,
        "file": args.config.display().to_string(),
        "ranks": job.grid.ranks,
        "clusters": clusters.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
        "findings": all.iter().map(Finding::to_json).collect::<Vec<_>>(),
    })
}
