//! The link between each two gateways of a grid job: which of them can call the other, at which
//! port, and what goes over it, measured.
//!
//! Kept true: gateways listen here as those of the job do; one link is measured at a time.

use super::Job;
use super::args::Check;
use crate::commands::doctor::finding::Finding;
use crate::commands::topo::probe::{WORD, token};
use crate::launch::asked::{self, Asked};
use eyrie_control::gateway::Ports;
use eyrie_terminal::Failure;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A link of less than this part of its rate, or more than so many times its latency, is told.
const LEAST_PART: f64 = 0.7;
const MOST_TIMES: f64 = 1.5;
/// Latencies differ by as much by chance.
const SLACK_MS: f64 = 1.0;

/// What was found of a link.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Clusters by their place in the file.
    pub between: [usize; 2],
    /// The one whose gateway calls the other; none: neither can.
    pub caller: Option<usize>,
    /// Where it calls.
    pub at: Option<String>,
    pub latency_ms: Option<f64>,
    /// From the first to the second, and back.
    pub mbit: Option<[f64; 2]>,
    pub said_latency_ms: Option<f64>,
    pub said_mbit: Option<f64>,
}

/// A gateway's host, and where it listens.
struct Gate {
    asked: Asked,
    at: Option<String>,
}

pub fn measure(args: &Check, job: &Job, all: &mut Vec<Finding>) -> Result<Vec<Measured>, Failure> {
    let count = job.grid.clusters.len();
    if count < 2 {
        return Ok(Vec::new());
    }
    let gates = gates(args, job, all)?;
    let mut gates: Vec<Option<Gate>> = gates;
    let mut found = Vec::new();
    for one in 0..count {
        for other in one + 1..count {
            let measured = link(args, job, &mut gates, [one, other]);
            all.extend(judge(job, &measured, &gates));
            found.push(measured);
        }
    }
    Ok(found)
}

/// Has the host of each gateway listen as that would.
fn gates(args: &Check, job: &Job, all: &mut Vec<Finding>) -> Result<Vec<Option<Gate>>, Failure> {
    let listeners = asked::listen(&job.plan)?;
    let token = token()?;
    let end = Instant::now() + Duration::from_millis(args.limit);
    let mut gates = Vec::new();
    for cluster in 0..job.grid.clusters.len() {
        let host = job.gateway_of(cluster);
        let reached = |f: &Finding| {
            f.about != "remote shell"
                || f.remedy.is_none()
                || f.host.as_deref() != Some(&job.plan.list[host].name)
        };
        // It was told of already.
        if !all.iter().all(reached) {
            gates.push(None);
            continue;
        }
        let at = listeners.iter().find(|at| at.ip() == job.plan.list[host].controller);
        let outer = job.plan.list[host].gateway;
        let ports = outer.and_then(|o| o.port).map(|port| Ports { first: port, last: port });
        let beside = job.hosts_of(cluster).into_iter().filter(|other| *other != host);
        let beside: Vec<_> = beside.map(|other| job.plan.list[other].name.clone()).collect();
        let order = json!({
            "token": token,
            "controller": at.map(|at| at.to_string()),
            "gate": {
                "outside": outer.map(|o| o.at.to_string()),
                "ports": ports.or(job.ports).map(|p| [p.first, p.last]),
                "beside": if job.is_near(host) { Vec::new() } else { beside },
            },
        });
        gates.push(gate(job, host, &order, end, all));
    }
    Ok(gates)
}

fn gate(
    job: &Job,
    host: usize,
    order: &Value,
    end: Instant,
    all: &mut Vec<Finding>,
) -> Option<Gate> {
    let said = asked::ask(&job.plan, host, WORD, order).map_err(|error| format!("{error:#}"));
    let said = said.and_then(|mut asked| asked.hear(end).map(|said| (asked, said)));
    let name = &job.plan.list[host].name;
    match said {
        Ok((asked, said)) => {
            let at = said["at"].as_str().map(String::from);
            if at.is_none() {
                let why = said["failed"].as_str().unwrap_or("it does not say where it listens");
                let remedy = "end what listens there, or give other ports: gateway-port = \"P-Q\" \
                              under [run]";
                all.push(Finding::stops("gateway", why, remedy).on(name));
            }
            Some(Gate { asked, at })
        }
        Err(why) => {
            let remedy = "try again with --limit 60";
            all.push(Finding::stops("gateway", why, remedy).on(name));
            None
        }
    }
}

/// Tries both directions, the one that the job prefers first.
fn link(args: &Check, job: &Job, gates: &mut [Option<Gate>], between: [usize; 2]) -> Measured {
    let said = job.grid.link(between[0], between[1]);
    let mut measured = Measured {
        between,
        said_latency_ms: said.and_then(|link| link.latency_ms),
        said_mbit: said.and_then(|link| link.rate),
        ..Measured::default()
    };
    for (from, to) in [(between[0], between[1]), (between[1], between[0])] {
        let Some(at) = gates[to].as_ref().and_then(|gate| gate.at.clone()) else { continue };
        let Some(gate) = &mut gates[from] else { continue };
        gate.asked.order(&json!({ "to": at, "millis": args.time, "back": true }));
        let end = Instant::now() + Duration::from_millis(2 * args.time + args.limit);
        let Ok(said) = gate.asked.hear(end) else { continue };
        let number = |key: &str| said[key].as_f64();
        let (Some(latency_s), Some(there), Some(back)) =
            (number("latency_s"), number("bytes_per_s"), number("back_bytes_per_s"))
        else {
            continue;
        };
        let mbit = |bytes: f64| bytes * 8.0 / 1e6;
        let ways = [mbit(there), mbit(back)];
        (measured.caller, measured.at) = (Some(from), Some(at));
        measured.latency_ms = Some(latency_s * 1e3);
        measured.mbit = Some(if from == between[0] { ways } else { [ways[1], ways[0]] });
        break;
    }
    measured
}

/// What is to be told of a link.
fn judge(job: &Job, measured: &Measured, gates: &[Option<Gate>]) -> Vec<Finding> {
    let [one, other] = measured.between.map(|cluster| job.grid.clusters[cluster].name.as_str());
    let about = format!("link {one} - {other}");
    if measured.between.iter().any(|cluster| gates[*cluster].is_none()) {
        let text = "is not measured: a gateway's host is not reached";
        return vec![Finding::stops(&about, text, "see above")];
    }
    if measured.caller.is_none() {
        let at = |cluster: usize| {
            let at = gates[cluster].as_ref().and_then(|gate| gate.at.clone());
            at.unwrap_or_else(|| "?".into())
        };
        let [there, here] = [at(measured.between[1]), at(measured.between[0])];
        let remedy = format!(
            "let {one} call {there}, or {other} call {here} (one direction is enough); \
             gateway-address says where a gateway is reached, gateway-port at which ports"
        );
        return vec![Finding::stops(&about, "neither gateway reaches the other over TCP", remedy)];
    }
    slower(&about, measured)
}

/// What is worse than the file says.
fn slower(about: &str, measured: &Measured) -> Vec<Finding> {
    let mut all = Vec::new();
    if let (Some(said), Some(mbit)) = (measured.said_mbit, measured.mbit) {
        let least = mbit[0].min(mbit[1]);
        if least < LEAST_PART * said {
            let text = format!("{least:.0} Mbit/s measured, {said:.0} in the file");
            let remedy = "see whether the link is in use, measure longer (--time 2), raise \
                          net.ipv4.tcp_rmem and tcp_wmem on the gateways, or correct the rate";
            all.push(Finding::costs(about, text, remedy));
        }
    }
    if let (Some(said), Some(latency)) = (measured.said_latency_ms, measured.latency_ms)
        && latency > MOST_TIMES * said + SLACK_MS
    {
        let text = format!("{latency:.1} ms measured one way, {said:.1} ms in the file");
        all.push(Finding::costs(about, text, "see which way packets take, or correct the latency"));
    }
    if all.is_empty() {
        all.push(Finding::fine(about, "as it should be"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::Level;

    #[test]
    fn a_link_that_is_worse_than_the_file_says_is_told() {
        let of = |mbit: f64, latency: f64| {
            let measured = Measured {
                latency_ms: Some(latency),
                mbit: Some([400.0, mbit]),
                said_latency_ms: Some(10.0),
                said_mbit: Some(400.0),
                ..Measured::default()
            };
            slower("link", &measured).iter().map(|f| f.level).collect::<Vec<_>>()
        };
        assert_eq!(of(390.0, 10.4), [Level::Fine]);
        assert_eq!(of(40.0, 10.4), [Level::Costs]);
        assert_eq!(of(40.0, 100.0), [Level::Costs, Level::Costs]);
        assert_eq!(slower("link", &Measured::default())[0].level, Level::Fine);
    }
}
