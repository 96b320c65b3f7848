//! What goes in and out of the ranks' standard streams, between the nodes and the console.

use super::journal::Played;
use super::{Job, Msg, Shared, verify};
use crate::input::{LATE, Next};
use crate::monitor;
use crate::output::{Difference, HISTORY_BYTES, Tape};
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, Ft, JobSpec, NodeMsg, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long nothing more comes of a line that is forwarded before it ends.
const QUIET: Duration = Duration::from_millis(30);

/// What is known of what ranks print, and of what was said of them.
#[derive(Default)]
pub(super) struct Talk {
    /// Since when nothing has come of unfinished lines, by rank and stream.
    unfinished: BTreeMap<(u32, usize), Instant>,
    /// Where ranks that repeated themselves printed something else.
    pub differences: u64,
    /// Lines of nodes that the user has had.
    once: BTreeSet<String>,
}

/// What is remembered of each stream of a rank of this job.
pub(super) fn tape(spec: &JobSpec) -> Tape {
    match spec.ft {
        Ft::Verify { .. } => Tape::new(verify::HISTORY_BYTES).strict(),
        _ if spec.strict_output => Tape::new(HISTORY_BYTES).strict(),
        _ => Tape::new(HISTORY_BYTES),
    }
}

/// Console bytes for rank 0.
pub fn take_input(job: &Shared, bytes: &[u8]) {
    let mut job = job.borrow_mut();
    let waited = job.input.is_late();
    match job.input.push(bytes) {
        Ok(None) => job.keep_input(bytes),
        Ok(Some(_)) if waited => {}
        Ok(Some(why)) => job.say(format!(
            "standard input cannot be kept ({why}), as it has to be for the case of a fault: no \
             more is read until there is room in the job's folder"
        )),
        Err(error) => return job.not_kept(&error),
    }
    job.pump_input();
    job.end_turn();
}

/// The console's input is over.
pub fn end_input(job: &Shared) {
    let mut job = job.borrow_mut();
    job.input.end();
    job.pump_input();
    job.suspend_when_ready();
    job.end_turn();
}

impl Job {
    fn not_kept(&mut self, error: &std::io::Error) {
        self.fatal(format!("cannot keep standard input (it is needed after a fault): {error}"));
    }

    /// Keeps input that there was no room for, as soon as there is.
    pub(super) fn tend_input(&mut self) {
        match self.input.catch_up() {
            Ok(Some(bytes)) => {
                self.keep_input(&bytes);
                self.say("standard input is kept, and read, again");
                self.pump_input();
                self.suspend_when_ready();
            }
            Ok(None) => {}
            Err(error) => self.not_kept(&error),
        }
    }

    /// How long until it is tried again.
    pub(super) fn next_input(&self) -> Duration {
        if self.input.is_late() { LATE } else { Duration::MAX }
    }

    /// Passes on to rank 0 what there is room for, and tells the console how much more it may send.
    pub(super) fn pump_input(&mut self) {
        while let Some(start) = self.input.reader() {
            match self.input.next() {
                Next::Bytes(bytes) => self.to_home(0, ToNode::Input { start, bytes }),
                Next::Over => self.to_home(0, ToNode::InputOver { start }),
                Next::Wait => break,
            }
        }
        let limit = self.input.limit();
        if limit > self.input_credit && !self.input.is_late() {
            let more = u32::try_from(limit - self.input_credit).unwrap_or(u32::MAX);
            self.input_credit += u64::from(more);
            self.console.send(&NodeMsg::StdinCredit(more));
        }
    }

    pub(super) fn input_fed(&mut self, start: u64, position: u64) {
        self.input.fed(start, position);
        self.pump_input();
    }

    /// Bytes a rank wrote.
    pub(super) fn output(&mut self, rank: u32, start: u64, stream: Stream, bytes: &[u8]) {
        if self.proc(rank, start).is_none_or(|p| p.mute) {
            return;
        }
        self.note_tape(rank, stream, || Played::Feed(bytes.to_vec()));
        let tape = &mut self.ranks[rank as usize].tapes[stream as usize];
        let fed = tape.feed(bytes);
        let unfinished = tape.is_unfinished();
        if let Some(difference) = tape.differed() {
            self.printed_otherwise(rank, stream, &difference);
        }
        self.note_unfinished(rank, stream, unfinished);
        match fed {
            Ok(Some(lines)) => self.forward(rank, stream, &lines),
            Ok(None) => {}
            Err(difference) => {
                self.proc(rank, start).into_iter().for_each(|p| p.mute = true);
                let text = difference.describe(stream);
                if let Some(verify) = &mut self.verify {
                    return verify.output_differs(rank, stream, text);
                }
                self.step(monitor::Input::OutputDiffers { rank, text });
            }
        }
    }

    /// A rank that repeats itself wrote something else, which is left out.
    fn printed_otherwise(&mut self, rank: u32, stream: Stream, difference: &Difference) {
        let text = difference.describe(stream);
        if self.talk.differences == 0 {
            self.say(format!(
                "rank {rank} repeats itself, but its {text}\nwhat was printed stays, and the lines \
                 that ranks repeat are left out; --strict-output makes this an error (not said \
                 again in this job)"
            ));
        }
        self.talk.differences += 1;
        let mut event = self.event(EventKind::OutputDiffers);
        (event.rank, event.text) = (Some(rank), text);
        self.log_event(event);
    }

    /// A rank has a checkpoint that stands there in its streams.
    pub(super) fn mark_output(&mut self, rank: u32, output: [u64; 2]) {
        for (stream, position) in [Stream::Stdout, Stream::Stderr].into_iter().zip(output) {
            self.note_tape(rank, stream, || Played::Mark(position));
            self.rank(rank).tapes[stream as usize].mark(position);
        }
    }

    /// What a rank writes from here on may be another course than what it wrote before.
    pub(super) fn give_up_output(&mut self, rank: u32) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.note_tape(rank, stream, || Played::GiveUp);
            self.rank(rank).tapes[stream as usize].give_up();
        }
    }

    fn forward(&self, rank: u32, stream: Stream, bytes: &[u8]) {
        if self.verify.as_ref().is_some_and(|v| v.forcing()) {
            return;
        }
        for part in bytes.chunks(MAX_DATA_BYTES) {
            self.tell_console(NodeMsg::Output { rank, stream, bytes: part.to_vec() });
        }
    }

    /// Tells a node that its output was taken, as soon as the console takes more.
    pub(super) fn output_taken(&mut self, node: u32, bytes: u64) {
        let waits = self.nodes.iter().any(|n| n.taken > 0);
        self.nodes[node as usize].taken += bytes;
        if self.console.has_room() {
            self.grant_output();
        } else if !waits {
            let (console, tell) = (self.console.clone(), self.tell.clone());
            tokio::task::spawn_local(async move {
                console.room().await;
                let _ = tell.send(Msg::Room);
            });
        }
    }

    /// The console takes output again.
    pub(super) fn grant_output(&mut self) {
        for node in &mut self.nodes {
            let bytes = std::mem::take(&mut node.taken);
            if bytes > 0 {
                node.send(ToNode::OutputTaken { bytes });
            }
        }
    }

    /// A node knows something that the user is to know.
    pub(super) fn say_once(&mut self, text: String) {
        if self.talk.once.insert(text.clone()) {
            self.say(text);
        }
    }

    fn note_unfinished(&mut self, rank: u32, stream: Stream, is: bool) {
        let key = (rank, stream as usize);
        match is {
            true => drop(self.talk.unfinished.insert(key, Instant::now())),
            false => drop(self.talk.unfinished.remove(&key)),
        }
    }

    /// How long until an unfinished line is forwarded, as nothing more of it comes.
    pub(super) fn next_unfinished(&self) -> Duration {
        let left = |since: &Instant| QUIET.saturating_sub(since.elapsed());
        self.talk.unfinished.values().map(left).min().unwrap_or(Duration::MAX)
    }

    /// Forwards unfinished lines of which nothing more has come for a moment: prompts.
    pub(super) fn forward_unfinished(&mut self) {
        let quiet: Vec<u32> = self
            .talk
            .unfinished
            .iter()
            .filter(|(_, since)| since.elapsed() >= QUIET)
            .map(|((rank, _), _)| *rank)
            .collect();
        for rank in quiet {
            self.flush_output(rank);
        }
    }

    /// The unfinished last lines of a rank.
    pub(super) fn flush_output(&mut self, rank: u32) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.talk.unfinished.remove(&(rank, stream as usize));
            if let Some(rest) = self.ranks[rank as usize].tapes[stream as usize].flush() {
                self.note_tape(rank, stream, || Played::Flush);
                self.forward(rank, stream, &rest);
            }
        }
    }
}

impl Difference {
    fn describe(&self, stream: Stream) -> String {
        let name = match stream {
            Stream::Stdout => "standard output",
            Stream::Stderr => "standard error",
        };
        format!(
            "{name} differs at byte {}: it was {:?}, now it is {:?}",
            self.position, self.before, self.now
        )
    }
}
