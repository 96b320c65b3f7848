//! Hosts: each is asked through the remote shell, as nodes are started; all at one time.

use crate::commands::doctor::args::Doctor;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::look::{build, now_ms, version};
use crate::commands::doctor::storage::Probe;
use crate::launch::asked::{Asked, Reach, ask, listen, plan};
use eyrie_control::message::Hosts;
use eyrie_state::home;
use eyrie_state::local;
use eyrie_terminal::{Failure, USAGE};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Clocks that are less apart are the same.
const APART_MS: u64 = 2_000;
const ABOUT_SHELL: &str = "remote shell";

pub fn look(args: &Doctor, list: &str) -> Result<Vec<Finding>, Failure> {
    let reach = Reach { rsh: &args.rsh, prefix: &args.prefix, address: &args.address };
    let plan = plan(&reach, list).map_err(|error| Failure::new(USAGE, error))?;
    let limit = Duration::from_millis(args.limit);
    let listeners = listen(&plan)?;
    let word = format!("{}-{}", std::process::id(), now_ms());
    let probe = home::home().ok().and_then(|home| Probe::write(&home, &word).ok());
    let order = |at: Option<SocketAddr>| {
        let variable = |name| std::env::var(name).ok();
        json!({
            "controller": at.map(|at| at.to_string()),
            "home": variable(home::HOME_OF_JOB),
            "local": variable(local::LOCAL_OF_JOB),
            "folder": std::env::current_dir().ok(),
            "probe": probe.as_ref().map(|probe| probe.path.clone()),
            "word": word,
        })
    };
    let mut all = Vec::new();
    let mut asked = Vec::new();
    for (number, host) in plan.list.iter().enumerate() {
        let at = listeners.iter().find(|at| at.ip() == host.controller).copied();
        match ask(&plan, number, "__look", &order(at)) {
            Ok(one) => asked.push(one),
            Err(error) => all.push(stops(&host.name, ABOUT_SHELL, format!("{error:#}"), &plan)),
        }
    }
    let end = Instant::now() + limit;
    let mut answered = Vec::new();
    for mut one in asked {
        match one.hear(end) {
            Ok(report) => {
                all.extend(judge(&one.name, &report, &plan, one.since_ms));
                answered.push((one, report["at"].as_str().map(str::to_string)));
            }
            Err(why) => all.push(stops(&one.name, ABOUT_SHELL, why, &plan)),
        }
    }
    all.extend(among(&mut answered, Instant::now() + limit));
    Ok(all)
}

fn stops(host: &str, about: &str, text: String, plan: &Hosts) -> Finding {
    let binary = String::from_utf8_lossy(&plan.binary);
    let remedy = match () {
        () if text.contains("not found there") || text.contains("cannot be executed") => {
            format!("install Eyrie at {binary} there, or say where it is: --prefix DIR")
        }
        () if text.contains("another release") => {
            format!("install the same release at {binary} there")
        }
        () if text.contains("in time") => {
            format!("try: ssh -o BatchMode=yes {host} true; another shell: --rsh CMD")
        }
        () => {
            format!("ssh-copy-id {host}, until this asks nothing: ssh -o BatchMode=yes {host} true")
        }
    };
    Finding::stops(about, text, remedy).on(host)
}

/// What a host has told that was asked then, but for who reaches whom.
pub fn judge(host: &str, report: &Value, plan: &Hosts, since_ms: u64) -> Vec<Finding> {
    let mut all = vec![Finding::fine(ABOUT_SHELL, "works without a question")];
    let theirs = report["version"].as_str().unwrap_or("unknown");
    let binary = String::from_utf8_lossy(&plan.binary);
    all.push(match theirs == version() {
        true => Finding::fine("version", theirs),
        false => Finding::stops(
            "version",
            format!("Eyrie there is {theirs}, here {}", version()),
            format!("install the same release at {binary} there, for the same architecture"),
        ),
    });
    let builds = (report["build"].as_str(), build());
    if let (Some(theirs), Some(own)) = &builds
        && theirs != own
    {
        all.push(Finding::costs(
            "build",
            format!("another build of Eyrie there ({theirs}, here {own})"),
            "install the same package everywhere: ranks come back only where libraries are the \
             same",
        ));
    }
    // It looked at its clock at some time in between.
    let theirs = report["now_ms"].as_u64().unwrap_or(0);
    let apart = since_ms.saturating_sub(theirs).max(theirs.saturating_sub(now_ms()));
    all.push(match apart > APART_MS {
        false => Finding::fine("clock", "as here"),
        true => Finding::costs(
            "clock",
            format!("{} s apart: times in events and of files mislead", apart / 1000),
            "timedatectl set-ntp true (as root, there and here)",
        ),
    });
    all.push(match report["sees_home"].as_bool() {
        Some(true) => Finding::fine("EYRIE_HOME", "the same folder as here"),
        _ => Finding::costs(
            "shared EYRIE_HOME",
            "does not see that of this machine: what is saved goes over the network to here, and \
             can be restarted from here only",
            "export EYRIE_HOME=FOLDER on a file system that all hosts have",
        ),
    });
    if report["has_folder"].as_bool() != Some(true) {
        all.push(Finding::costs(
            "working folder",
            "is not there: no job starts from here",
            "cd to a folder that all hosts have",
        ));
    }
    if let Some(why) = report["unreached"].as_str() {
        all.push(Finding::stops(
            "way to here",
            format!("does not reach this machine over TCP: {why}"),
            "open all ports between the hosts and this machine (firewall-cmd --zone=trusted \
             --add-source=NETWORK), or name its other address: --address ADDR",
        ));
    }
    let theirs = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.extend(theirs.iter().filter_map(Finding::from_json));
    all.into_iter().map(|finding| finding.on(host)).collect()
}

/// Has each host call all others.
pub fn among(answered: &mut [(Asked, Option<String>)], end: Instant) -> Vec<Finding> {
    let places: Vec<(String, Option<String>)> =
        answered.iter().map(|(one, at)| (one.name.clone(), at.clone())).collect();
    for (one, _) in answered.iter_mut() {
        let others = places.iter().filter(|(host, at)| *host != one.name && at.is_some());
        let others: Vec<Value> =
            others.map(|(host, at)| json!({ "host": host, "at": at })).collect();
        let order = json!({ "others": others });
        one.order(&order);
    }
    let mut all = Vec::new();
    for (one, _) in answered.iter_mut() {
        let about = "way to others";
        let Ok(report) = one.hear(end) else {
            let text = "does not say which other hosts it reaches";
            all.push(Finding::costs(about, text, "try again with --limit 60").on(&one.name));
            continue;
        };
        let missed = report["unreached"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |word: &str, value: &Value| value[word].as_str().unwrap_or("?").to_string();
        let missed: Vec<String> = missed
            .iter()
            .map(|m| format!("{} at {} ({})", text("host", m), text("at", m), text("why", m)))
            .collect();
        let found = match missed.is_empty() {
            true => Finding::fine(about, "reaches all"),
            false => Finding::stops(
                about,
                format!("does not reach {} over TCP", missed.join(", ")),
                "open all ports between the hosts (firewall-cmd --zone=trusted \
                 --add-source=NETWORK)",
            ),
        };
        all.push(found.on(&one.name));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::Level;
    use eyrie_control::message::Host;
    use std::net::IpAddr;

    fn plan() -> Hosts {
        let controller = IpAddr::from([127, 0, 0, 1]);
        Hosts {
            list: vec![Host { name: "b".into(), controller, gateway: None }],
            rsh: vec![b"ssh".to_vec()],
            shell: true,
            binary: b"/opt/eyrie/bin/eyrie".to_vec(),
            join_ms: 1,
            outlive: true,
        }
    }

    #[test]
    fn what_a_host_tells_is_judged() {
        let good = json!({
            "version": version(), "now_ms": now_ms(), "sees_home": true, "has_folder": true,
            "unreached": null, "findings": [],
        });
        let all = judge("b", &good, &plan(), now_ms());
        assert!(all.iter().all(|f| f.level == Level::Fine && f.host.as_deref() == Some("b")));
        let with = |name: &str, value: Value| {
            let mut report = good.clone();
            report[name] = value;
            let all = judge("b", &report, &plan(), now_ms());
            let mut bad = all.into_iter().filter(|f| f.level > Level::Fine);
            let found = bad.next().unwrap();
            assert!(found.remedy.is_some() && bad.next().is_none());
            (found.about, found.level)
        };
        let about = |about: &str, level| (about.to_string(), level);
        assert_eq!(with("version", json!("0")), about("version", Level::Stops));
        assert_eq!(with("now_ms", json!(7)), about("clock", Level::Costs));
        assert_eq!(with("sees_home", json!(false)), about("shared EYRIE_HOME", Level::Costs));
        assert_eq!(with("has_folder", json!(false)), about("working folder", Level::Costs));
        assert_eq!(with("unreached", json!("timed out")), about("way to here", Level::Stops));
        let theirs = Finding::stops("memfd", "none", "x").to_json();
        assert_eq!(with("findings", json!([theirs])), about("memfd", Level::Stops));
    }

    #[test]
    fn each_way_that_a_shell_fails_has_a_remedy_of_its_own() {
        let of = |text: &str| stops("b", ABOUT_SHELL, text.into(), &plan()).remedy.unwrap();
        assert!(of("eyrie was not found there").contains("--prefix"));
        assert!(of("the eyrie there is of another release").contains("/opt/eyrie/bin/eyrie"));
        assert!(of("does not answer in time (--limit)").contains("--rsh"));
        assert!(of("failed with code 255 (Permission denied)").contains("ssh-copy-id b"));
    }
}
