//! `eyrie drain all`: machines leave every job that has nodes there, for who knows machines and not
//! jobs: a maintenance script, the prologue of a reboot.
//!
//! Kept true: a job without nodes there is not asked; all others are asked at the same time, as
//! each takes its while, and one that refuses keeps no other from leaving.

use crate::client::{Client, order};
use crate::commands::drain::args::{ALL, Drain};
use crate::commands::drain::watch::{Watch, follow, number, tell_how_to_cancel, tell_stay};
use anyhow::{anyhow, bail};
use eyrie_control::{ClientMsg, JobStatus, NodeMsg};
use eyrie_state::home::{self, JobEntry};
use eyrie_terminal::{FAILED, Failure, Progress, USAGE, print};

/// Asks all jobs of which these words name something. The exit code is that of the worst.
pub fn drain(args: &Drain) -> Result<i32, Failure> {
    let words = check(&args.nodes)?;
    let mut code = 0;
    let mut asked = Vec::new();
    for job in home::jobs(&home::home()?).into_iter().filter(|job| job.alive || job.resumable) {
        match named(&job, &words) {
            Ok(there) if there.is_empty() => {}
            Ok(there) => asked.push((job, there)),
            // It may be over by now.
            Err(_) if !home::is_alive(&job.path) && !job.resumable => {}
            Err(error) => {
                code = Failure::from(error).tell(crate::messages::NAME, &format!("job {}", job.id));
            }
        }
    }
    if asked.is_empty() && code == 0 {
        if !args.json {
            print(&format!("no job has a node that is named {}\n", words.join(" or ")));
        }
        return Ok(0);
    }
    if !args.cancel {
        tell_how_to_cancel(ALL, &args.nodes)?;
    }
    let ended: Vec<i32> = std::thread::scope(|scope| {
        let ask = |(job, there)| scope.spawn(move || ask(args, &job, there));
        let asked: Vec<_> = asked.into_iter().map(ask).collect();
        asked.into_iter().map(|one| one.join().unwrap_or(FAILED)).collect()
    });
    Ok(ended.into_iter().fold(code, i32::max))
}

/// What is named, one by one, if it means the same in each job.
pub fn check(nodes: &[String]) -> Result<Vec<String>, Failure> {
    words(nodes).map_err(|error| Failure::new(USAGE, error))
}

/// One job: what it has of these.
fn ask(args: &Drain, job: &JobEntry, there: Vec<String>) -> i32 {
    let ended = match args.cancel {
        true => {
            let stay = order(job, &ClientMsg::Stay { nodes: there });
            stay.and_then(|()| tell_stay(args, &job.id)).map(|()| 0).map_err(Failure::from)
        }
        false => {
            let (to, deadline_ms, number) = (args.to.clone(), args.deadline, number());
            let ask = ClientMsg::Drain { nodes: there, to, deadline_ms, number };
            let watch = Watch::of(number, args.json, Progress::none()).told_as(&job.id);
            follow(job, &ask, watch)
        }
    };
    ended.unwrap_or_else(|failure| failure.tell(crate::messages::NAME, &format!("job {}", job.id)))
}

/// What is named, one by one. A number means another machine in each job.
fn words(nodes: &[String]) -> anyhow::Result<Vec<String>> {
    let words: Vec<String> = nodes.iter().flat_map(|w| w.split(',')).map(String::from).collect();
    let counted = |word: &&String| word.chars().all(|c| c.is_ascii_digit() || c == '-');
    match words.iter().find(counted) {
        Some(word) => bail!("'{word}' is another machine in each job: name hosts, or cluster=NAME"),
        None => Ok(words),
    }
}

/// Those of the words that name something of the job.
fn named(job: &JobEntry, words: &[String]) -> anyhow::Result<Vec<String>> {
    if !job.alive {
        bail!("its nodes wait for another controller: eyrie resume {}", job.id);
    }
    let status = match Client::ask(job, &ClientMsg::Status)? {
        NodeMsg::Status(status) => status,
        other => return Err(anyhow!("unexpected answer: {other:?}")),
    };
    Ok(words.iter().filter(|word| is_of(word, &status)).cloned().collect())
}

fn is_of(word: &str, status: &JobStatus) -> bool {
    let live: Vec<_> =
        status.nodes.iter().filter(|n| !["lost", "left"].contains(&n.state.as_str())).collect();
    match word.strip_prefix("cluster=") {
        Some(name) => {
            let of = status.clusters.iter().filter(|c| c.name == name);
            of.flat_map(|c| &c.nodes).any(|node| live.iter().any(|n| n.node == *node))
        }
        None => live.iter().any(|n| n.host.as_deref() == Some(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_named_and_not_counted() {
        let of = |text: &str| words(&text.split(' ').map(String::from).collect::<Vec<_>>());
        assert_eq!(of("node7,b cluster=east").unwrap(), ["node7", "b", "cluster=east"]);
        for counted in ["2", "node7 0-3", "node7,4"] {
            assert!(of(counted).unwrap_err().to_string().contains("name hosts"), "{counted}");
        }
    }
}
