//! Why the ranks of a node went to another one, where the network between the nodes is known
//! (`--topology`): what was said of that when it was chosen.

use super::findings::{Finding, finding};
use crate::client;
use crate::commands::events;
use crate::jobs::Job;
use eyrie_control::{Event, EventKind};
use eyrie_state::home;
use eyrie_terminal::units::millis;

/// Most choices that are told of a node: the last ones.
const MOST: usize = 3;

/// The events of a job that are left; what cannot be read is left out.
pub fn events(job: &Job) -> Vec<Event> {
    match job {
        Job::There(job) if job.alive => client::events_from(job, 0).unwrap_or_default(),
        Job::There(job) => events::kept(&job.path.join(home::EVENTS)),
        Job::Ended(found) => found.events().unwrap_or_default(),
    }
}

/// Choices for a node's ranks, and of this node for others'.
pub fn findings(events: &[Event], node: u32) -> Vec<Finding> {
    let chosen = events.iter().filter(|event| event.event == EventKind::Placed);
    let about: Vec<Finding> = chosen.filter_map(|event| told(event, node)).collect();
    about[about.len().saturating_sub(MOST)..].to_vec()
}

fn told(event: &Event, node: u32) -> Option<Finding> {
    let (from, to) = (event.node?, event.count?);
    let ranks = event.rank.map_or_else(|| String::from("ranks"), |rank| format!("rank {rank}"));
    let at = millis(event.ms);
    let what = if from == node {
        format!("after {at} node {to} was chosen for its {ranks} by the network")
    } else if to == u64::from(node) {
        format!("after {at} it was chosen for the {ranks} of node {from} by the network")
    } else {
        return None;
    };
    Some(finding(format!("{what}\n{}", event.text.replace("; ", "\n")), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_nodes_of_a_choice_tell_of_it() {
        let mut event = Event::new(1500.0, EventKind::Placed);
        (event.node, event.count) = (Some(7), Some(12));
        event.text = String::from("node 12 costs 1 s; node 13 costs 2 s");
        let all = [Event::new(0.0, EventKind::NodeLost), event];
        let what = |node| findings(&all, node).into_iter().map(|f| f.what).collect::<Vec<_>>();
        let lines = what(7);
        let lines: Vec<&str> = lines[0].lines().collect();
        assert!(lines[0].contains("node 12 was chosen for its ranks"), "{lines:?}");
        assert_eq!(lines[1..], ["node 12 costs 1 s", "node 13 costs 2 s"]);
        assert!(what(12)[0].contains("it was chosen for the ranks of node 7"));
        assert!(what(13).is_empty());
    }
}
