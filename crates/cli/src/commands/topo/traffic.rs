//! `eyrie topo traffic`: how much each rank of a job has sent to each, as a pattern file of the
//! other commands.
//!
//! Kept true: what is not known of a job is said, and no part is taken for all of it.

use super::args::Traffic;
use crate::client::Client;
use crate::jobs::{self, Job};
use anyhow::{anyhow, bail};
use eyrie_control::{ClientMsg, MOST_TARGETS, NodeMsg, Sent};
use eyrie_state::history::Found;
use eyrie_terminal::{FAILED, Failure, print, print_json};
use serde_json::json;

/// What the ranks of a job have sent.
struct Counted {
    job: String,
    /// By rank.
    sent: Vec<Vec<Sent>>,
    /// Ranks that have sent something to more others than are told.
    parts: Vec<u32>,
}

pub fn traffic(args: &Traffic) -> Result<i32, Failure> {
    let counted = match jobs::find(&args.job)? {
        Job::There(job) if job.alive => of_running(&job)?,
        Job::There(job) => {
            let found = eyrie_state::history::of(&eyrie_state::home::home()?, &job.id);
            of_ended(&found.ok_or_else(|| nothing(&job.id))?)?
        }
        Job::Ended(found) => of_ended(&found)?,
    };
    if counted.sent.iter().all(Vec::is_empty) {
        return Err(Failure::new(FAILED, anyhow!("job {} has sent no messages yet", counted.job)));
    }
    match args.json {
        true => print_json(&as_json(&counted))?,
        false => print(&text(&counted)),
    }
    Ok(0)
}

fn nothing(job: &str) -> Failure {
    Failure::new(
        FAILED,
        anyhow!("what job {job} has sent was not counted: it did not end by itself"),
    )
}

fn of_running(job: &eyrie_state::home::JobEntry) -> anyhow::Result<Counted> {
    let mut remote = Client::connect(job)?;
    remote.send(&ClientMsg::Traffic)?;
    let mut counted = Counted { job: job.id.clone(), sent: Vec::new(), parts: Vec::new() };
    loop {
        match remote.next()? {
            NodeMsg::Sent { rank, to, all } => {
                counted.sent.resize(counted.sent.len().max(rank as usize + 1), Vec::new());
                counted.sent[rank as usize] = to;
                counted.parts.extend((!all).then_some(rank));
            }
            NodeMsg::Done => return Ok(counted),
            other => bail!("unexpected answer: {other:?}"),
        }
    }
}

fn of_ended(found: &Found) -> Result<Counted, Failure> {
    let job = found.record.job.clone();
    let Some(all) = found.traffic() else { return Err(nothing(&job)) };
    if all.ranks_a_group > 1 {
        let text = format!(
            "of job {job}, which has ended, what {} ranks sent is counted together: ask while a \
             job runs",
            all.ranks_a_group
        );
        return Err(Failure::new(FAILED, anyhow!(text)));
    }
    let row = |(messages, bytes): (&Vec<u64>, &Vec<u64>)| {
        let both = (0u32..).zip(messages.iter().zip(bytes)).filter(|(_, (count, _))| **count > 0);
        both.map(|(to, (messages, bytes))| Sent { to, messages: *messages, bytes: *bytes })
            .collect::<Vec<Sent>>()
    };
    let sent = all.messages.iter().zip(&all.bytes).map(row).collect();
    Ok(Counted { job, sent, parts: Vec::new() })
}

impl Counted {
    fn pairs(&self) -> impl Iterator<Item = (u32, &Sent)> {
        (0u32..).zip(&self.sent).flat_map(|(from, to)| to.iter().map(move |sent| (from, sent)))
    }
}

fn as_json(counted: &Counted) -> serde_json::Value {
    let pairs = counted.pairs().map(|(from, sent)| {
        json!({ "from": from, "to": sent.to, "messages": sent.messages, "bytes": sent.bytes })
    });
    json!({
        "job": counted.job,
        "ranks": counted.sent.len(),
        "in_part": counted.parts,
        "sent": pairs.collect::<Vec<_>>(),
    })
}

/// Lines of `--traffic`. What that does not take, as messages to oneself, is a comment.
fn text(counted: &Counted) -> String {
    let mut text =
        format!("# job {}, {} ranks: from, to, bytes\n", counted.job, counted.sent.len());
    for rank in &counted.parts {
        text += &format!("# of rank {rank} the {MOST_TARGETS} that it has sent most\n");
    }
    for (from, Sent { to, messages, bytes }) in counted.pairs() {
        let mark = if from == *to || *bytes == 0 { "# " } else { "" };
        text += &format!("{mark}{from} {to} {bytes}  # {messages} messages\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_topo::Pattern;

    #[test]
    fn what_is_told_is_a_pattern() {
        let sent = |to, messages, bytes| Sent { to, messages, bytes };
        let rows = vec![vec![sent(0, 1, 8), sent(1, 2, 64)], vec![sent(0, 3, 0), sent(2, 1, 5)]];
        let counted = Counted { job: "k7mq".into(), sent: rows, parts: vec![1] };
        let text = text(&counted);
        assert!(
            text.starts_with("# job k7mq, 2 ranks: from, to, bytes\n# of rank 1 the 128 "),
            "{text}"
        );
        let pattern = Pattern::read(&text).unwrap();
        let pairs: Vec<_> = pattern.messages.iter().map(|m| (m.from, m.to, m.bytes)).collect();
        assert_eq!(pairs, [(0, 1, 64.0), (1, 2, 5.0)]);
        let said = as_json(&counted);
        assert_eq!((said["sent"].as_array().unwrap().len(), &said["in_part"][0]), (4, &json!(1)));
    }
}
