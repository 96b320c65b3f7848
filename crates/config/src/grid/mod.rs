//! The file of a grid job: its clusters with their hosts and what starts processes there, the links
//! between them, the environment, the program, and options of `eyrie run`.
//!
//! Kept true: every key is known, every mistake is told with its line, and what a name stands for
//! is there. Whether hosts are reached, and options are taken, is left to others.

mod reader;
#[cfg(test)]
mod tests;

use crate::file::{File, Position};
use crate::keys::like;
use anyhow::{anyhow, bail};
use reader::{Fields, Tables};
use std::path::Path;

/// Keys that stand in no table, and the tables.
const TOP: [&str; 6] = ["program", "ranks", "run", "environment", "clusters", "link"];
const CLUSTER: [&str; 12] = [
    "hosts",
    "slots",
    "launcher",
    "rsh",
    "key",
    "user",
    "job",
    "via",
    "prefix",
    "gateway",
    "gateway-address",
    "domain",
];
const LINK: [&str; 3] = ["between", "rate", "latency"];
/// Options of `eyrie run` that the file says otherwise.
const ELSEWHERE: [(&str, &str); 8] = [
    ("np", "write ranks = N at the top of the file"),
    ("hosts", "write hosts = [...] under [clusters.NAME]"),
    ("nodes", "write hosts = [...] under [clusters.NAME]"),
    ("clusters", "write [clusters.NAME] for each"),
    ("netns", "leave it out: the nodes are hosts"),
    ("rsh", "write rsh under [clusters.NAME]"),
    ("prefix", "write prefix under [clusters.NAME]"),
    ("config", "leave it out: it is this file"),
];
/// Most clusters, as of a job.
const MAX_CLUSTERS: usize = 64;
/// Rates (Mbit/s) and latencies (ms) that a link may have.
const MAX_RATE_MBIT: f64 = 30_000.0;
const MAX_LATENCY: f64 = 60_000.0;

/// A whole grid job.
#[derive(Debug)]
pub struct Grid {
    /// The program and its arguments; empty: they are typed.
    pub program: Vec<String>,
    pub ranks: Option<u32>,
    pub environment: Vec<(String, String)>,
    /// In the order of the file.
    pub clusters: Vec<Cluster>,
    pub links: Vec<Link>,
    /// The table of options, and what else comes to one.
    pub run: File,
}

/// A cluster, and how its hosts are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    pub name: String,
    pub place: Position,
    /// As written: `node7`, `node7:4`, `node[1-4]`.
    pub hosts: Vec<String>,
    /// Of hosts that do not say how many they have.
    pub slots: Option<u32>,
    pub launcher: Launcher,
    pub user: Option<String>,
    /// Where Eyrie is there.
    pub prefix: Option<String>,
    /// The host that has the gateway.
    pub gateway: Option<String>,
    /// Where others reach that: an address or name, with a port or without.
    pub gateway_address: Option<String>,
    /// What its hosts fail together with.
    pub domain: Option<String>,
}

/// What starts a process on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// A remote shell, and the file of the key that it shows.
    Shell { rsh: Option<String>, key: Option<String> },
    /// A job of Slurm that is there, and what leads to a machine that has its commands.
    Slurm { job: u64, via: Option<String> },
}

/// What is said of the way between two clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    pub place: Position,
    /// Two clusters, by their place in the file.
    pub between: [usize; 2],
    /// Mbit/s, one way.
    pub rate: Option<f64>,
    /// One way.
    pub latency_ms: Option<f64>,
}

impl Grid {
    /// Reads a file, which has to be there.
    pub fn read(path: &Path) -> anyhow::Result<Grid> {
        let text = File::text(path)?;
        Grid::parse(path, &text.ok_or_else(|| anyhow!("{}: no such file", path.display()))?)
    }

    pub fn parse(path: &Path, text: &str) -> anyhow::Result<Grid> {
        let document = reader::document(path, text)?;
        let tables = Tables::new(path, text);
        let top = tables.top(document.as_table());
        top.known(&TOP)?;
        let mut clusters = Vec::new();
        for fields in top.tables("clusters")? {
            clusters.push(cluster(&fields)?);
        }
        if clusters.is_empty() || clusters.len() > MAX_CLUSTERS {
            bail!(
                "{}: name 1 to {MAX_CLUSTERS} clusters: [clusters.NAME] with hosts = [\"node1\"]",
                path.display()
            );
        }
        let mut links: Vec<Link> = Vec::new();
        for fields in top.array("link")? {
            let link = link(&fields, &clusters)?;
            let same = |other: &&Link| {
                other.between == link.between || other.between == [link.between[1], link.between[0]]
            };
            if let Some(other) = links.iter().find(same) {
                bail!("{}: this link is in line {} already", link.place, other.place.line);
            }
            links.push(link);
        }
        let program = top.words("program")?.unwrap_or_default();
        let ranks = top.number("ranks")?;
        let run = run(&top, &clusters, &links)?;
        Ok(Grid { program, ranks, environment: environment(&top)?, clusters, links, run })
    }

    /// What is said of the way between two clusters.
    pub fn link(&self, one: usize, other: usize) -> Option<&Link> {
        self.links.iter().find(|l| l.between == [one, other] || l.between == [other, one])
    }
}

fn cluster(fields: &Fields) -> anyhow::Result<Cluster> {
    fields.known(&CLUSTER)?;
    let hosts = fields.words("hosts")?.unwrap_or_default();
    if hosts.is_empty() {
        bail!("{}: [{}] has no hosts: write hosts = [\"node1\"]", fields.place, fields.path);
    }
    let text = |key| fields.word(key);
    let (gateway, gateway_address) = (text("gateway")?, text("gateway-address")?);
    if gateway_address.is_some() && gateway.is_none() {
        let at = fields.at("gateway-address");
        bail!(
            "{at}: gateway-address: write gateway, too: the host of {} that it leads to",
            fields.path
        );
    }
    Ok(Cluster {
        name: fields.name()?,
        place: fields.place.clone(),
        hosts,
        slots: fields.number("slots")?,
        launcher: launcher(fields)?,
        user: text("user")?,
        prefix: text("prefix")?,
        gateway,
        gateway_address,
        domain: text("domain")?,
    })
}

fn launcher(fields: &Fields) -> anyhow::Result<Launcher> {
    let name = fields.word("launcher")?;
    let only = |keys: &[&str], of: &str| match keys.iter().find(|key| fields.has(key)) {
        Some(key) => Err(anyhow!("{}: {key} is for launcher = \"{of}\"", fields.at(key))),
        None => Ok(()),
    };
    match name.as_deref().unwrap_or("ssh") {
        "ssh" => {
            only(&["job", "via"], "slurm")?;
            let (rsh, key) = (fields.word("rsh")?, fields.word("key")?);
            Ok(Launcher::Shell { rsh, key })
        }
        "slurm" => {
            only(&["rsh", "key", "user"], "ssh")?;
            let Some(job) = fields.number("job")? else {
                let at = fields.at("launcher");
                bail!(
                    "{at}: launcher = \"slurm\" takes job = N: the allocation that its hosts are in"
                );
            };
            Ok(Launcher::Slurm { job: job.into(), via: fields.word("via")? })
        }
        "pmix" | "pmi" | "pmi2" => bail!(
            "{}: a launcher that speaks {} starts Eyrie, and not the other way round: \
             mpiexec -n N eyrie join PROGRAM; that job is one cluster",
            fields.at("launcher"),
            name.unwrap_or_default()
        ),
        other => {
            let hint = match like(other, ["ssh", "slurm"].into_iter()) {
                Some(like) => format!("is it {like}?"),
                None => String::from("there are ssh (and others like it, with rsh) and slurm"),
            };
            bail!("{}: launcher = \"{other}\": {hint}", fields.at("launcher"))
        }
    }
}

fn link(fields: &Fields, clusters: &[Cluster]) -> anyhow::Result<Link> {
    fields.known(&LINK)?;
    let names = fields.words("between")?.unwrap_or_default();
    let [one, other] = &names[..] else {
        bail!("{}: a link is between two clusters: between = [\"east\", \"west\"]", fields.place);
    };
    let find = |name: &String| {
        let place = fields.at("between");
        clusters.iter().position(|c| c.name == *name).ok_or_else(|| {
            match like(name, clusters.iter().map(|c| c.name.as_str())) {
                Some(like) => anyhow!("{place}: there is no cluster {name}; is it {like}?"),
                None => anyhow!("{place}: there is no cluster {name}"),
            }
        })
    };
    let between = [find(one)?, find(other)?];
    if between[0] == between[1] {
        bail!("{}: a link is between two different clusters", fields.at("between"));
    }
    let rate = fields.real("rate")?;
    if rate.is_some_and(|rate| !(rate > 0.0 && rate <= MAX_RATE_MBIT)) {
        bail!("{}: rate: Mbit/s, from 0.001 to {MAX_RATE_MBIT}", fields.at("rate"));
    }
    let latency_ms = fields.millis("latency")?;
    if latency_ms.is_some_and(|ms| ms > MAX_LATENCY) {
        bail!("{}: latency: a minute at most", fields.at("latency"));
    }
    Ok(Link { place: fields.place.clone(), between, rate, latency_ms })
}

fn environment(top: &Fields) -> anyhow::Result<Vec<(String, String)>> {
    let Some(fields) = top.table("environment")? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for key in fields.keys() {
        if key.is_empty() || key.contains(['=', '\0']) {
            bail!("{}: '{key}' is no name of a variable", fields.at(&key));
        }
        let value = fields.word(&key)?.unwrap_or_default();
        if value.contains('\0') {
            bail!("{}: {key}: a value has no zero byte", fields.at(&key));
        }
        all.push((key, value));
    }
    Ok(all)
}

/// The options of `eyrie run`: the table, the number of ranks, and what links and clusters come to
/// where the table says nothing.
fn run(top: &Fields, clusters: &[Cluster], links: &[Link]) -> anyhow::Result<File> {
    let mut file = top.file("run")?;
    for entry in &file.entries {
        if let Some((key, remedy)) = ELSEWHERE.iter().find(|(key, _)| *key == entry.key) {
            bail!("{}: [run] {key}: {remedy}", entry.place);
        }
    }
    let has = |file: &File, key: &str| file.entries.iter().any(|entry| entry.key == key);
    if let Some(ranks) = top.number("ranks")? {
        file.put("run", "np", ranks.to_string(), top.at("ranks"));
    }
    let several = clusters.len() > 1;
    let all = links.len() == clusters.len() * (clusters.len() - 1) / 2;
    let slowest = links.iter().filter_map(|l| l.rate).reduce(f64::min);
    let paced = links.iter().all(|link| link.rate.is_some());
    if let Some(rate) = slowest.filter(|_| several && all && paced && !has(&file, "wan-rate")) {
        // A whole number is what the option takes.
        let rate = (rate.floor() as u32).max(1);
        file.put("run", "wan-rate", rate.to_string(), links[0].place.clone());
    }
    if several && !has(&file, "wan-only") && !has(&file, "ha") {
        file.put_flag("run", "wan-only", clusters[0].place.clone());
    }
    Ok(file)
}
