//! `eyrie topo probe`: what hosts get of each other, measured, and the network that this is.
//!
//! Kept true: nothing else that is measured is under way at the same time, but for the pairs of two
//! groups, which are to share what is between those.

use super::args::Probe;
use crate::launch::asked::{self, Asked, Reach};
use anyhow::{anyhow, bail};
use eyrie_control::message::Hosts;
use eyrie_terminal::{FAILED, Failure, USAGE, print, print_json};
use eyrie_topo::probed::{Measured, Trunk, Way, at_once};
use serde_json::{Value, json};
use std::io::Read;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The hidden command that does it on a host.
pub const WORD: &str = "__measure";
/// Bytes of what callers must know, as text of twice that.
const TOKEN_BYTES: usize = 16;

pub fn probe(args: &Probe) -> Result<i32, Failure> {
    let reach = Reach { rsh: &args.rsh, prefix: &args.prefix, address: &args.address };
    let plan = asked::plan(&reach, &args.hosts).map_err(|error| Failure::new(USAGE, error))?;
    if plan.list.len() < 2 {
        return Err(Failure::new(USAGE, anyhow!("--hosts names one host: there is no pair")));
    }
    let mut hosts = Probed::start(args, &plan).map_err(|error| Failure::new(FAILED, error))?;
    let measured = hosts.alone().map_err(|error| Failure::new(FAILED, error))?;
    let groups = measured.groups();
    let trunks = hosts.between(&groups).map_err(|error| Failure::new(FAILED, error))?;
    let text = measured.describe(&groups, &trunks);
    match args.json {
        true => print_json(&as_json(&measured, &groups, &trunks, &text))?,
        false => print(&text),
    }
    Ok(0)
}

fn as_json(measured: &Measured, groups: &[Vec<usize>], trunks: &[Trunk], text: &str) -> Value {
    let names = &measured.names;
    let mut pairs = Vec::new();
    for (from, ways) in names.iter().zip(&measured.ways) {
        for (to, way) in names.iter().zip(ways) {
            let Some(Way { latency_s, bytes_per_s }) = way else { continue };
            pairs.push(json!({
                "from": from,
                "to": to,
                "latency_us": latency_s * 1e6,
                "bytes_per_second": bytes_per_s,
            }));
        }
    }
    let named = |group: &Vec<usize>| group.iter().map(|host| names[*host].clone()).collect();
    let between = |trunk: &Trunk| {
        let (one, other) = trunk.groups;
        json!({ "groups": [one, other], "bytes_per_second": trunk.bytes_per_s })
    };
    json!({
        "hosts": names,
        "pairs": pairs,
        "groups": groups.iter().map(named).collect::<Vec<Vec<String>>>(),
        "between": trunks.iter().map(between).collect::<Vec<_>>(),
        "topology": text,
    })
}

/// Hosts that wait to be told whom to send to.
struct Probed {
    hosts: Vec<Asked>,
    /// Where each listens.
    at: Vec<String>,
    time_ms: u64,
    limit: Duration,
}

impl Probed {
    fn start(args: &Probe, plan: &Hosts) -> anyhow::Result<Probed> {
        let listeners = asked::listen(plan)?;
        let (token, limit) = (token()?, Duration::from_millis(args.limit));
        let end = Instant::now() + limit;
        let mut hosts = Vec::new();
        for (number, host) in plan.list.iter().enumerate() {
            let at: Option<&SocketAddr> = listeners.iter().find(|at| at.ip() == host.controller);
            let order = json!({ "controller": at.map(|at| at.to_string()), "token": token });
            hosts.push(asked::ask(plan, number, WORD, &order)?);
        }
        let mut at = Vec::new();
        for host in &mut hosts {
            let said = host.hear(end).map_err(|why| anyhow!("{}: {why}", host.name))?;
            match said["at"].as_str() {
                Some(address) => at.push(address.to_string()),
                None => {
                    let why = said["failed"].as_str().unwrap_or("does not say where it listens");
                    bail!("{}: {why}", host.name);
                }
            }
        }
        Ok(Probed { hosts, at, time_ms: args.time, limit })
    }

    fn send(&mut self, from: usize, to: usize) {
        let order = json!({ "to": self.at[to], "millis": self.time_ms });
        self.hosts[from].order(&order);
    }

    fn hear(&mut self, from: usize, to: usize) -> anyhow::Result<Way> {
        let end = Instant::now() + Duration::from_millis(self.time_ms) + self.limit;
        let (one, other) = (self.hosts[from].name.clone(), self.hosts[to].name.clone());
        let said = self.hosts[from].hear(end).map_err(|why| anyhow!("{one}: {why}"))?;
        match (said["latency_s"].as_f64(), said["bytes_per_s"].as_f64()) {
            (Some(latency_s), Some(bytes_per_s)) => Ok(Way { latency_s, bytes_per_s }),
            _ => bail!("{one} to {other}: {}", said["failed"].as_str().unwrap_or("nothing said")),
        }
    }

    /// Each pair with nothing else under way.
    fn alone(&mut self) -> anyhow::Result<Measured> {
        let count = self.hosts.len();
        let mut all = Measured::new(self.hosts.iter().map(|host| host.name.clone()).collect());
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                self.send(from, to);
                all.ways[from][to] = Some(self.hear(from, to)?);
            }
        }
        Ok(all)
    }

    /// What is between each two groups.
    fn between(&mut self, groups: &[Vec<usize>]) -> anyhow::Result<Vec<Trunk>> {
        let mut trunks = Vec::new();
        for one in 0..groups.len() {
            for other in one + 1..groups.len() {
                let pairs = at_once(&groups[one], &groups[other]);
                pairs.iter().for_each(|(from, to)| self.send(*from, *to));
                let mut bytes_per_s = 0.0;
                for (from, to) in pairs {
                    bytes_per_s += self.hear(from, to)?.bytes_per_s;
                }
                trunks.push(Trunk { groups: (one, other), bytes_per_s });
            }
        }
        Ok(trunks)
    }
}

/// What a caller has to say, so that nobody else is served.
pub fn token() -> std::io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
