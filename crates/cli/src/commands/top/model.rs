//! What `eyrie top` shows, and what keys do: no terminal, no job, no clock.
//!
//! Kept true: nothing that ends a process or moves a rank is ordered by one key: its number is
//! typed, or stands there, and Enter confirms it.

use crate::show::screen::{self, rank_order};
use eyrie_control::{JobStatus, NodeStatus, RankStatus};
use std::collections::BTreeMap;

/// Events that are kept.
const MOST_EVENTS: usize = 200;
const MOST_DIGITS: usize = 6;

/// A key, whatever terminal it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Up,
    Down,
    Enter,
    Esc,
    Backspace,
    Other,
}

/// What a job is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    Checkpoint,
    Drain { node: u32 },
    Kill { rank: u32 },
}

/// What a key leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Nothing,
    Quit,
    /// Look at this job, or at none.
    Watch(Option<String>),
    Order {
        job: String,
        order: Order,
    },
}

/// What is asked before something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Drain,
    Kill,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub asks: Asks,
    pub number: String,
}

/// The job that is looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    pub id: String,
    pub status: Option<JobStatus>,
    /// Of how it ended.
    pub ended_unix_ms: Option<u64>,
    /// The newest are the last.
    pub events: Vec<String>,
    pub row: usize,
}

/// A line that can be chosen: ranks, or nodes, in the same state.
pub enum Row<'a> {
    Ranks { order: usize, state: &'a str, all: Vec<&'a RankStatus> },
    Nodes { state: &'a str, all: Vec<&'a NodeStatus> },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    /// Not asked for yet.
    pub jobs: Option<Vec<JobStatus>>,
    pub row: usize,
    pub watched: Option<Watched>,
    pub question: Option<Question>,
    pub help: bool,
    /// What was last said, and whether it is good news.
    pub note: Option<(String, bool)>,
}

/// Its ranks and nodes by their states, the worst first.
pub fn rows(job: &JobStatus) -> Vec<Row<'_>> {
    let mut ranks: BTreeMap<(usize, &str), Vec<&RankStatus>> = BTreeMap::new();
    for rank in &job.ranks {
        ranks.entry((rank_order(rank), &rank.state)).or_default().push(rank);
    }
    let mut nodes: BTreeMap<usize, Vec<&NodeStatus>> = BTreeMap::new();
    for node in &job.nodes {
        nodes.entry(screen::node_order(node)).or_default().push(node);
    }
    let ranks = ranks.into_iter().map(|((order, state), all)| Row::Ranks { order, state, all });
    let nodes = nodes.into_values().map(|all| {
        let state = all.first().map_or("", |n| n.state.as_str());
        Row::Nodes { state, all }
    });
    ranks.chain(nodes).collect()
}

impl Watched {
    pub fn of(id: &str) -> Watched {
        let (id, events) = (id.to_string(), Vec::new());
        Watched { id, status: None, ended_unix_ms: None, events, row: 0 }
    }

    fn count(&self) -> usize {
        self.status.as_ref().map_or(0, |status| rows(status).len())
    }

    /// The first rank, and the first node, of the row that is chosen.
    fn chosen(&self) -> (Option<u32>, Option<u32>) {
        let all = self.status.as_ref().map(rows).unwrap_or_default();
        match all.get(self.row) {
            Some(Row::Ranks { all, .. }) => {
                let first = all.first();
                (first.map(|r| r.rank), first.map(|r| r.node))
            }
            Some(Row::Nodes { all, .. }) => {
                let first = all.first();
                (first.and_then(|n| n.ranks.first().copied()), first.map(|n| n.node))
            }
            None => (None, None),
        }
    }
}

impl Model {
    /// All jobs are as they say.
    pub fn set_jobs(&mut self, jobs: Vec<JobStatus>) {
        let chosen = self.chosen_job();
        let stays = |id: String| jobs.iter().position(|job| job.job == id);
        self.row = chosen.and_then(stays).unwrap_or(self.row).min(jobs.len().saturating_sub(1));
        self.jobs = Some(jobs);
    }

    /// A job says how it is, and what has happened since.
    pub fn set_job(&mut self, status: JobStatus, ended_unix_ms: Option<u64>, events: Vec<String>) {
        let Some(watched) = self.watched.as_mut().filter(|w| w.id == status.job) else { return };
        watched.events.extend(events);
        let surplus = watched.events.len().saturating_sub(MOST_EVENTS);
        watched.events.drain(..surplus);
        (watched.status, watched.ended_unix_ms) = (Some(status), ended_unix_ms);
        watched.row = watched.row.min(watched.count().saturating_sub(1));
    }

    pub fn say(&mut self, text: impl Into<String>, good: bool) {
        self.note = Some((text.into(), good));
    }

    fn chosen_job(&self) -> Option<String> {
        self.jobs.as_ref()?.get(self.row).map(|job| job.job.clone())
    }

    /// A key was pressed.
    pub fn key(&mut self, key: Key) -> Act {
        if self.help {
            self.help = false;
            return if key == Key::Char('q') { Act::Quit } else { Act::Nothing };
        }
        if self.question.is_some() {
            return self.answer(key);
        }
        self.note = None;
        match key {
            Key::Char('q') => return Act::Quit,
            Key::Char('?' | 'h') => self.help = true,
            Key::Up | Key::Char('k') => self.choose(false),
            Key::Down | Key::Char('j') => self.choose(true),
            Key::Enter => return self.enter(),
            Key::Esc | Key::Backspace => return self.back(),
            Key::Char('c') => return self.checkpoint(),
            Key::Char('d') => self.ask(Asks::Drain),
            Key::Char('K') => self.ask(Asks::Kill),
            Key::Char(_) | Key::Other => {}
        }
        Act::Nothing
    }

    fn choose(&mut self, down: bool) {
        let (row, count) = match &mut self.watched {
            Some(watched) => {
                let count = watched.count();
                (&mut watched.row, count)
            }
            None => (&mut self.row, self.jobs.as_ref().map_or(0, Vec::len)),
        };
        *row = if down { (*row + 1).min(count.saturating_sub(1)) } else { row.saturating_sub(1) };
    }

    fn enter(&mut self) -> Act {
        match self.chosen_job().filter(|_| self.watched.is_none()) {
            Some(id) => {
                self.watched = Some(Watched::of(&id));
                Act::Watch(Some(id))
            }
            None => Act::Nothing,
        }
    }

    fn back(&mut self) -> Act {
        match self.watched.take() {
            Some(_) => Act::Watch(None),
            None => Act::Nothing,
        }
    }

    /// The job that an order is for, if it runs.
    fn job(&mut self) -> Option<String> {
        let id = match &self.watched {
            Some(watched) if watched.ended_unix_ms.is_none() => Some(watched.id.clone()),
            Some(_) => None,
            None => self.chosen_job(),
        };
        if id.is_none() {
            self.say("there is no running job to do that to", false);
        }
        id
    }

    fn checkpoint(&mut self) -> Act {
        let Some(job) = self.job() else { return Act::Nothing };
        self.say(format!("job {job}: checkpoints are being taken"), true);
        Act::Order { job, order: Order::Checkpoint }
    }

    fn ask(&mut self, asks: Asks) {
        let Some(watched) = &self.watched else {
            return self.say("go into a job first (Enter)", false);
        };
        let (rank, node) = watched.chosen();
        let nodes = watched.status.as_ref().is_some_and(|status| !status.nodes.is_empty());
        if asks == Asks::Drain && !nodes {
            return self.say("the job has no nodes of its own (--nodes, --hosts)", false);
        }
        let number = if asks == Asks::Drain { node } else { rank };
        if self.job().is_some() {
            let number = number.map_or(String::new(), |n| n.to_string());
            self.question = Some(Question { asks, number });
        }
    }

    /// A key while something is asked.
    fn answer(&mut self, key: Key) -> Act {
        let Some(question) = &mut self.question else { return Act::Nothing };
        match key {
            Key::Char(digit @ '0'..='9') if question.number.len() < MOST_DIGITS => {
                question.number.push(digit);
            }
            Key::Backspace => drop(question.number.pop()),
            Key::Enter => return self.confirm(),
            Key::Esc | Key::Char('q' | 'n') => {
                self.question = None;
                self.say("nothing was done", true);
            }
            _ => {}
        }
        Act::Nothing
    }

    fn confirm(&mut self) -> Act {
        let (Some(question), Some(watched)) = (self.question.take(), &self.watched) else {
            return Act::Nothing;
        };
        let (job, status) = (watched.id.clone(), watched.status.as_ref());
        let number = question.number.parse::<u32>().ok();
        let known = |n: &u32| match question.asks {
            Asks::Kill => status.is_some_and(|s| s.ranks.iter().any(|r| r.rank == *n)),
            Asks::Drain => status.is_some_and(|s| s.nodes.iter().any(|o| o.node == *n)),
        };
        match (question.asks, number.filter(known)) {
            (Asks::Kill, Some(rank)) => Act::Order { job, order: Order::Kill { rank } },
            (Asks::Drain, Some(node)) => {
                self.say(format!("node {node} is to leave"), true);
                Act::Order { job, order: Order::Drain { node } }
            }
            (asks, None) => {
                let what = if asks == Asks::Kill { "rank" } else { "node" };
                self.say(format!("there is no {what} '{}'", question.number), false);
                Act::Nothing
            }
        }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
pub(super) mod tests;
