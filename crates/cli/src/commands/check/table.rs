//! What `eyrie check` prints for people.

use super::Job;
use super::args::Check;
use super::links::Measured;
use crate::commands::doctor::finding::{Finding, Level};
use crate::show::text::count;
use std::fmt::Write as _;

pub fn text(args: &Check, job: &Job, measured: &[Measured], all: &[Finding]) -> String {
    let mut text = String::new();
    let (clusters, hosts) = (job.grid.clusters.len() as u64, job.found.entries.len() as u64);
    let ranks = job.grid.ranks.map(|ranks| format!(", {}", count(ranks.into(), "rank")));
    let _ = writeln!(
        text,
        "{}: {}, {}{}\n",
        args.config.display(),
        count(clusters, "cluster"),
        count(hosts, "host"),
        ranks.unwrap_or_default()
    );
    text.push_str(&aligned(&hosts_of(job, all)));
    if !measured.is_empty() {
        text.push('\n');
        text.push_str(&aligned(&links_of(job, measured)));
        text.push_str(&ports(job, measured));
    }
    text.push('\n');
    let mut told: Vec<&Finding> = all.iter().filter(|f| f.level > Level::Fine).collect();
    told.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    for Finding { host, about, level, text: what, remedy } in told {
        let host = host.as_ref().map(|host| format!("{host}: ")).unwrap_or_default();
        let _ = writeln!(text, "{:<6} {host}{about}: {what}", level.name());
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "       -> {remedy}");
        }
    }
    let worst = all.iter().map(|f| f.level).max().unwrap_or(Level::Fine);
    text.push_str(match worst {
        Level::Fine => "the job can start: eyrie run --config ",
        Level::Costs => "the job can start, and something costs: eyrie run --config ",
        Level::Stops => "the job cannot start: mend what stops it, then: eyrie check ",
    });
    let _ = writeln!(text, "{}", args.config.display());
    text
}

fn hosts_of(job: &Job, all: &[Finding]) -> Vec<Vec<String>> {
    let mut rows =
        vec![["cluster", "host", "launcher", "version", "state"].map(String::from).into()];
    for (number, entry) in job.found.entries.iter().enumerate() {
        let own = || all.iter().filter(|f| f.host.as_deref() == Some(&entry.name));
        let version = own().find(|f| f.about == "version").map(|f| f.text.clone());
        let worst = own().map(|f| f.level).max().unwrap_or(Level::Fine);
        let cluster = job.cluster_of(number);
        let state = match worst {
            Level::Fine => "ok",
            other => other.name(),
        };
        let several = job.grid.clusters.len() > 1;
        let gateway = several && job.gateway_of(cluster) == number;
        rows.push(vec![
            job.grid.clusters[cluster].name.clone(),
            entry.name.clone(),
            job.found.launchers[cluster].clone(),
            version.unwrap_or_else(|| "-".into()),
            format!("{state}{}", if gateway { ", gateway" } else { "" }),
        ]);
    }
    rows
}

fn links_of(job: &Job, measured: &[Measured]) -> Vec<Vec<String>> {
    let titles = ["link", "latency", "there", "back", "in the file"];
    let mut rows: Vec<Vec<String>> = vec![titles.map(String::from).into()];
    let number = |value: Option<f64>, unit: &str| match value {
        Some(value) if value < 10.0 => format!("{value:.2} {unit}"),
        Some(value) => format!("{value:.0} {unit}"),
        None => String::from("-"),
    };
    for one in measured {
        let names = one.between.map(|cluster| job.grid.clusters[cluster].name.as_str());
        let said = [
            one.said_latency_ms.map(|ms| number(Some(ms), "ms")),
            one.said_mbit.map(|mbit| number(Some(mbit), "Mbit/s")),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        rows.push(vec![
            names.join(" - "),
            number(one.latency_ms, "ms"),
            number(one.mbit.map(|m| m[0]), "Mbit/s"),
            number(one.mbit.map(|m| m[1]), "Mbit/s"),
            if said.is_empty() { "-".into() } else { said.join(", ") },
        ]);
    }
    rows
}

/// Which ports have to be open, in which direction.
fn ports(job: &Job, measured: &[Measured]) -> String {
    let mut text = String::from("\nports that have to be open, in this direction only:\n");
    for one in measured {
        let (Some(caller), Some(at)) = (one.caller, &one.at) else { continue };
        let called = if caller == one.between[0] { one.between[1] } else { one.between[0] };
        let host = &job.plan.list[job.gateway_of(called)];
        let given = host.gateway.and_then(|outer| outer.port).map(|port| port.to_string());
        let given = given.or(job.ports.map(|ports| ports.to_string()));
        let port = given.unwrap_or_else(|| "any (gateway-port under [run] names some)".into());
        let place = at.rsplit_once(':').map_or(at.as_str(), |(place, _)| place);
        let _ = writeln!(
            text,
            "  from {} ({}) to {} ({place}): TCP, port {port}",
            job.grid.clusters[caller].name,
            job.found.entries[job.gateway_of(caller)].name,
            job.grid.clusters[called].name,
        );
    }
    text
}

/// Columns with two blanks between.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let wide = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let cells: Vec<String> = cells.collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
