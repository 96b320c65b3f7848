//! `eyrie share`: jobs that take turns.
//!
//! Kept true: the next job's ranks go on when those of the one before stand, on all its nodes; no
//! job stands longer than this command lives, whatever ends it: jobs stand as long as the
//! connection to them does, and as this command says so again in time; one that takes its time to
//! stand is waited for, the others wait on meanwhile.

use crate::client::{Client, find_running};
use anyhow::{anyhow, bail};
use clap::Args;
use eyrie_control::{ClientMsg, NodeMsg};
use eyrie_state::home::JobEntry;
use eyrie_terminal::units::{self, parse_interval};
use eyrie_terminal::{FAILED, Failure, USAGE, is_json, print, print_line};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie share k7mq wzpd --slice 2s\n\n\
    Each job runs for a slice of time while the others stand still (as with eyrie suspend): all\n\
    ranks of a job go on and stop together, on all nodes. A job that ends leaves the others with\n\
    the rest; when one is left it runs on alone and the command ends. However the command ends,\n\
    all jobs run on: also when it is killed. If it hangs they do after two slices and 10 s.")]
pub struct Share {
    /// Jobs that run: ids, or beginnings of them
    #[arg(required = true, num_args = 2.., value_name = "JOB")]
    pub jobs: Vec<String>,
    /// How long each runs in its turn
    #[arg(long, value_name = "TIME", default_value = "2s")]
    #[arg(value_parser = parse_interval)]
    pub slice: u64,
    /// Tell each turn
    #[arg(short, long)]
    pub verbose: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// How much later than after two slices a job that hears nothing goes on.
const SLACK: Duration = Duration::from_secs(10);

/// One of the jobs.
struct Member {
    job: JobEntry,
    remote: Client,
    lease: Duration,
    /// Answers that are still to come.
    owed: u32,
}

/// What became of a job in its turn.
enum Turn {
    Over,
    Ended,
}

impl Member {
    fn new(name: &str, lease: Duration) -> Result<Member, Failure> {
        let job = find_running(name)?;
        let remote = Client::connect(&job)?;
        Ok(Member { job, remote, lease, owed: 0 })
    }

    /// Says whether it is to run or to stand.
    fn ask(&mut self, runs: bool) -> anyhow::Result<()> {
        let lease_ms = self.lease.as_millis() as u64;
        self.remote.send(&ClientMsg::Turn { runs, lease_ms })?;
        self.owed += 1;
        Ok(())
    }

    /// Whether all is so that was asked, within half of a lease: then that is to be said again.
    fn is_so(&mut self) -> anyhow::Result<bool> {
        let end = Instant::now() + self.lease / 2;
        while self.owed > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            match self.remote.next_within(left)? {
                Some(NodeMsg::Done) => self.owed -= 1,
                Some(other) => bail!("unexpected answer: {other:?}"),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The jobs that take turns.
struct Members(Vec<Member>);

impl Members {
    /// Lets one go on or stand, and waits until that is so.
    fn turn(&mut self, at: usize, runs: bool) -> anyhow::Result<()> {
        // Who is told to go on calls off what it was asked before.
        self.wait(at, false)?;
        self.0[at].ask(runs)?;
        self.wait(at, runs)
    }

    /// Waits until all is so that one was asked, and says it again as long as it takes; the others
    /// stand meanwhile.
    fn wait(&mut self, at: usize, runs: bool) -> anyhow::Result<()> {
        while !self.0[at].is_so()? {
            self.0[at].ask(runs)?;
            for (_, other) in self.0.iter_mut().enumerate().filter(|(n, _)| *n != at) {
                // One that has ended is found in its turn.
                let _ = other.ask(false);
            }
        }
        Ok(())
    }

    /// The same, also of the next controller if there is one. False: it has ended.
    fn turns(&mut self, at: usize, runs: bool) -> bool {
        let Err(error) = self.turn(at, runs) else { return true };
        let member = &mut self.0[at];
        if member.remote.is_over()
            && let Ok(remote) = Client::connect(&member.job)
        {
            (member.remote, member.owed) = (remote, 0);
            if self.turn(at, runs).is_ok() {
                return true;
            }
        }
        let member = &self.0[at];
        let over = member.remote.is_over();
        let why = if over { "it has ended".into() } else { format!("{error:#}") };
        let id = &member.job.id;
        tell(
            json!({ "job": id, "turn": "none", "why": why }),
            &format!("job {id} takes no more turns: {why}\n"),
        );
        false
    }

    /// Has all stand but this one, if it is given. Those that have ended are left out.
    fn suspend_others(&mut self, but: Option<&str>) {
        let mut at = 0;
        while at < self.0.len() {
            if but == Some(&*self.0[at].job.id) || self.turns(at, false) {
                at += 1;
            } else {
                self.0.remove(at);
            }
        }
    }

    /// The slice of one.
    fn runs_for(&mut self, at: usize, slice: Duration) -> Turn {
        let end = Instant::now() + slice;
        if !self.turns(at, true) {
            return Turn::Ended;
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.0[at].remote.ends_within(left) && !self.turns(at, true) {
                return Turn::Ended;
            }
        }
        if self.turns(at, false) { Turn::Over } else { Turn::Ended }
    }
}

fn tell(value: Value, text: &str) {
    let told = match is_json() {
        true => print_line(&value),
        false => {
            print(text);
            Ok(())
        }
    };
    debug_assert!(told.is_ok());
}

/// Lets jobs take turns until one is left.
pub fn share(args: &Share) -> Result<i32, Failure> {
    let slice = Duration::from_millis(args.slice);
    let lease = 2 * slice + SLACK;
    let mut members = Members(Vec::new());
    for name in &args.jobs {
        let member = Member::new(name, lease)?;
        if members.0.iter().any(|m| m.job.id == member.job.id) {
            let text = anyhow!("job {} is named twice", member.job.id);
            return Err(Failure::new(USAGE, text));
        }
        members.0.push(member);
    }
    if members.0.len() < 2 {
        return Err(Failure::new(FAILED, anyhow!("name two jobs at least")));
    }
    members.suspend_others(None);
    let mut next = 0;
    while members.0.len() > 1 {
        next %= members.0.len();
        let begin = Instant::now();
        let turn = members.runs_for(next, slice);
        let own = members.0[next].job.id.clone();
        if args.verbose {
            let ms = begin.elapsed().as_secs_f64() * 1e3;
            let text = format!("job {own} ran for {}\n", units::millis(ms));
            tell(json!({ "job": own, "turn": "over", "ran_ms": ms }), &text);
        }
        match turn {
            Turn::Over => next += 1,
            Turn::Ended => drop(members.0.remove(next)),
        }
        // The others go on waiting.
        members.suspend_others(Some(&own));
    }
    if !members.0.is_empty() && members.turns(0, true) {
        let id = &members.0[0].job.id;
        tell(
            json!({ "job": id, "turn": "last" }),
            &format!("job {id} is left, and runs on alone\n"),
        );
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::{Decoder, encode};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::SystemTime;

    /// Of its lease half is waited before it is asked again.
    const LEASE: Duration = Duration::from_millis(60);

    /// A job, and what it is asked for; it answers when it is told to.
    fn member(id: &str) -> (Member, Receiver<bool>, Sender<NodeMsg>) {
        let (near, far) = UnixStream::pair().unwrap();
        let (asks, asked) = mpsc::channel();
        let (answers, answer): (Sender<NodeMsg>, Receiver<NodeMsg>) = mpsc::channel();
        let mut heard = far.try_clone().unwrap();
        std::thread::spawn(move || {
            let (mut decoder, mut buffer) = (Decoder::new(), [0; 1024]);
            while let Ok(count @ 1..) = heard.read(&mut buffer) {
                decoder.push(&buffer[..count]);
                while let Ok(Some(message)) = decoder.next_message() {
                    let ClientMsg::Turn { runs, .. } = message else { panic!("{message:?}") };
                    let _ = asks.send(runs);
                }
            }
        });
        std::thread::spawn(move || {
            let mut far = far;
            answer.iter().for_each(|a| drop(far.write_all(&encode(&a).unwrap())));
        });
        let (path, created) = (PathBuf::new(), SystemTime::UNIX_EPOCH);
        let (ended, saved, resumable) = (false, false, false);
        let job = JobEntry { id: id.into(), path, alive: true, ended, saved, resumable, created };
        (Member { job, remote: Client::to(near), lease: LEASE, owed: 0 }, asked, answers)
    }

    #[test]
    fn a_job_that_takes_its_time_to_stand_is_waited_for_and_the_others_wait_on() {
        let (one, one_asked, one_answers) = member("one");
        let (two, two_asked, _) = member("two");
        let plays = std::thread::spawn(move || {
            for _ in 0..3 {
                assert!(!one_asked.recv().unwrap());
            }
            // By then its lease was renewed twice, and so is that of the other one.
            for _ in 0..2 {
                assert!(!two_asked.recv().unwrap());
            }
            let done = || one_answers.send(NodeMsg::Done).unwrap();
            (0..3).for_each(|_| done());
            // More may have been asked since.
            one_asked.iter().for_each(|_| done());
        });
        let mut members = Members(vec![one, two]);
        assert!(members.turns(0, false));
        assert!(members.0[0].owed == 0 && members.0[1].owed >= 2);
        drop(members);
        plays.join().unwrap();
    }

    #[test]
    fn a_job_that_refuses_takes_no_more_turns() {
        let (one, asked, answers) = member("one");
        let mut members = Members(vec![one]);
        answers.send(NodeMsg::Error(String::from("it is being saved"))).unwrap();
        members.suspend_others(None);
        assert!(members.0.is_empty() && asked.recv() == Ok(false));
    }
}
