//! The hosts of a grid file, and what starts processes there.
//!
//! Kept true: a host is in one cluster; what starts processes on each is part of the job, so that
//! the file may change or go while the job runs.

mod reach;

pub use reach::{REACH, reach};

use crate::batch::slurm;
use crate::hosts::entry::{Entry, parse_entry, parse_gateway};
use anyhow::{Context, anyhow, bail};
use eyrie_config::file::Position;
use eyrie_config::grid::{Cluster, Grid, Launcher};
use eyrie_config::places::absolute;
use eyrie_launcher::remote_node::DEFAULT_SHELL;
use eyrie_process::program;
use eyrie_terminal::{Failure, USAGE};
use reach::Start;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Names the remote shell of clusters that name none.
const RSH_ENV: &str = "EYRIE_RSH";

/// What a grid file comes to.
pub struct GridHosts {
    pub entries: Vec<Entry>,
    /// What starts a process on a host whose name follows.
    pub rsh: Vec<String>,
    /// Where Eyrie is on the hosts, or is to be thought of: `reach` knows.
    pub binary: PathBuf,
    /// Of each cluster what is shown of its launcher.
    pub launchers: Vec<String>,
}

/// What the file that was named comes to.
pub fn of(config: Option<&Path>) -> Result<Option<GridHosts>, Failure> {
    let read = |path: &Path| Grid::read(path).and_then(|grid| hosts(&grid));
    config.map(read).transpose().map_err(|error| Failure::new(USAGE, error))
}

/// Has the variables of the file in the environment that the job begins with.
pub fn put_environment(config: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = config else { return Ok(()) };
    let grid = Grid::read(path).map_err(|error| Failure::new(USAGE, error))?;
    for (name, value) in grid.environment {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

pub fn hosts(grid: &Grid) -> anyhow::Result<GridHosts> {
    let own = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let (mut entries, mut starts, mut launchers) = (Vec::new(), Vec::new(), Vec::new());
    for cluster in &grid.clusters {
        let at = |error: anyhow::Error| error.context(cluster.place.to_string());
        let hosts = of_cluster(cluster).map_err(at)?;
        let start = start(cluster, &own, &hosts).map_err(at)?;
        launchers.push(start.shown());
        entries.extend(hosts);
        starts.push(start);
    }
    for (at, entry) in entries.iter().enumerate() {
        if entries[..at].iter().any(|earlier: &Entry| earlier.name == entry.name) {
            bail!("host {} is named twice: each is in one cluster, once", entry.name);
        }
    }
    let same = |start: &Start| start.like(&starts[0]);
    let (rsh, binary) = match starts[0].is_plain() && starts.iter().all(same) {
        true => (starts[0].words.clone(), PathBuf::from(&starts[0].binary)),
        false => {
            let own = own.to_str().ok_or_else(|| anyhow!("{}: no UTF-8", own.display()))?;
            let table = serde_json::to_string(&starts)?;
            (vec![own.to_string(), REACH.to_string(), table], PathBuf::from(own))
        }
    };
    Ok(GridHosts { entries, rsh, binary, launchers })
}

/// The hosts of a cluster, as those of a host file.
fn of_cluster(cluster: &Cluster) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for word in &cluster.hosts {
        let (names, slots) = match word.rsplit_once("]:") {
            Some((names, slots)) if names.contains('[') && !names.starts_with('[') => {
                (format!("{names}]"), format!(":{slots}"))
            }
            _ => (word.clone(), String::new()),
        };
        let several = names.contains('[') && !names.starts_with('[');
        let names = if several { slurm::expand(&names)? } else { vec![names] };
        for name in names {
            let mut entry = parse_entry(&format!("{name}{slots}"))?;
            if let Some(user) = &cluster.user {
                entry.name = format!("{user}@{}", entry.name);
            }
            entry.slots = entry.slots.or(cluster.slots);
            entry.cluster = Some(cluster.name.clone());
            entry.domain.clone_from(&cluster.domain);
            entries.push(entry);
        }
    }
    if let Some(gateway) = &cluster.gateway {
        let bare = |name: &str| name.rsplit('@').next().unwrap_or(name).to_string();
        let Some(entry) = entries.iter_mut().find(|entry| bare(&entry.name) == *gateway) else {
            bail!(
                "gateway = \"{gateway}\" is no host of cluster {}: name one of them",
                cluster.name
            );
        };
        let address = cluster.gateway_address.as_ref().unwrap_or(gateway);
        entry.gateway = Some(parse_gateway(address)?);
    }
    Ok(entries)
}

/// What starts a process on hosts of a cluster.
fn start(cluster: &Cluster, own: &Path, hosts: &[Entry]) -> anyhow::Result<Start> {
    let binary = match &cluster.prefix {
        Some(prefix) => home_of(prefix, &cluster.place)?.join("bin/eyrie"),
        None => own.to_path_buf(),
    };
    let binary = binary.into_os_string().into_string();
    let binary = binary.map_err(|path| anyhow!("{}: no UTF-8", path.display()))?;
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    let (start, via, shell) = match &cluster.launcher {
        Launcher::Shell { rsh, key } => {
            let named = std::env::var(RSH_ENV).ok().filter(|rsh| !rsh.is_empty());
            let mut all = words(&rsh.clone().or(named).unwrap_or_else(|| DEFAULT_SHELL.into()));
            if let Some(key) = key {
                let file = home_of(key, &cluster.place)?;
                if !file.is_file() {
                    bail!("key = \"{key}\": there is no such file");
                }
                let file = file.to_string_lossy().into_owned();
                all.extend([String::from("-i"), file, "-o".into(), "IdentitiesOnly=yes".into()]);
            }
            (all, Vec::new(), true)
        }
        Launcher::Slurm { job, via } => {
            let srun = slurm::SRUN.replacen("srun", &format!("srun --jobid={job}"), 1);
            (words(&srun), via.as_deref().map(words).unwrap_or_default(), false)
        }
    };
    let first = via.first().or(start.first()).map_or("", String::as_str);
    let here = shell && start == words(DEFAULT_SHELL);
    let here = here && hosts.iter().all(|h| eyrie_launcher::remote_node::is_here(&h.name));
    if !here {
        program::find(OsStr::new(first))
            .with_context(|| format!("what starts {}", cluster.name))?;
    }
    let hosts = hosts.iter().map(|entry| entry.name.clone()).collect();
    Ok(Start { hosts, words: start, via, shell, binary })
}

/// `~/` is the user's home; others are from here.
fn home_of(path: &str, place: &Position) -> anyhow::Result<PathBuf> {
    match path.starts_with("~/") {
        true => absolute(path, place, "prefix"),
        false => std::path::absolute(path).context("the current folder"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> anyhow::Result<GridHosts> {
        hosts(&Grid::parse(Path::new("g.toml"), text)?)
    }

    #[test]
    fn hosts_have_clusters_slots_and_gateways() {
        let text = "[clusters.a]\nhosts = ['n[1-2]:4', 'x', '[::1]:3']\nslots = 2\nrsh = 'sh'\n\
                    gateway = 'n2'\ngateway-address = '203.0.113.7:7400'\n\
                    [clusters.b]\nhosts = 'y'\nuser = 'me'\nrsh = 'sh'\ngateway = 'y'\n";
        let found = of(text).unwrap();
        let names: Vec<_> = found.entries.iter().map(|e| (e.name.as_str(), e.slots)).collect();
        let four = Some(4);
        assert_eq!(
            names,
            [("n1", four), ("n2", four), ("x", Some(2)), ("::1", Some(3)), ("me@y", None)]
        );
        assert_eq!(found.entries[1].gateway, Some(("203.0.113.7".into(), Some(7400))));
        assert_eq!(found.entries[4].gateway, Some(("y".into(), None)));
        assert_eq!(found.entries[4].cluster.as_deref(), Some("b"));
        // One remote shell for all is called as it is.
        assert_eq!(found.rsh, ["sh"]);
    }

    #[test]
    fn clusters_that_are_reached_in_different_ways_are_told_apart() {
        let text = "[clusters.a]\nhosts = 'x'\nrsh = 'sh -e'\n[clusters.b]\nhosts = 'y'\n\
                    rsh = 'sh'\nprefix = '/opt/eyrie'\n";
        let found = of(text).unwrap();
        let [_, word, table] = &found.rsh[..] else { panic!("{:?}", found.rsh) };
        assert!(word == REACH && table.contains("/opt/eyrie/bin/eyrie"), "{table}");
        assert_eq!(found.launchers, ["sh -e", "sh"]);
    }

    #[test]
    fn what_names_no_host_is_told_with_its_place() {
        for (text, told) in [
            ("[clusters.a]\nhosts = ['x', 'x']\nrsh = 'sh'", "host x is named twice"),
            ("[clusters.a]\nhosts = ['x']\ngateway = 'y'", "line 1: gateway = \"y\" is no host"),
            ("[clusters.a]\nhosts = ['-x']", "line 1: '-x' is no host"),
            ("[clusters.a]\nhosts = ['n[3-1]']", "line 1: '3-1' is no range"),
            ("[clusters.a]\nhosts = ['x']\nrsh = '/no/such'", "line 1: what starts a"),
            ("[clusters.a]\nhosts = ['x']\nkey = '/no/such'", "there is no such file"),
        ] {
            let error = of(text).err().expect(text);
            assert!(format!("{error:#}").contains(told), "{text}: {error:#}");
        }
    }
}
