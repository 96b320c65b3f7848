//! What goes in and out of the ranks' standard streams, between the nodes and the console.

use crate::clock::Moment;
use crate::journal::Played;
use crate::monitor;
use crate::outside::ClientHandle;
use crate::{Job, verify};
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, JobSpec, NodeMsg, Stream};
use eyrie_protocol::output::{Difference, HISTORY_BYTES, Tape};
use eyrie_state::stdin_file::{Input, LATE, Next};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long nothing more comes of a line that is forwarded before it ends.
const QUIET: Duration = Duration::from_millis(30);

/// What is known of what ranks print, and of what was said of them.
#[derive(Default)]
pub(crate) struct Talk {
    /// Since when nothing has come of unfinished lines, by rank and stream.
    unfinished: BTreeMap<(u32, usize), Moment>,
    /// Where ranks that repeated themselves printed something else.
    pub differences: u64,
    /// Lines of nodes that the user has had.
    once: BTreeSet<String>,
    /// Signals that the user had passed on to all ranks.
    pub passed: Vec<i32>,
}

/// What is remembered of each stream of a rank of this job.
pub(crate) fn tape(spec: &JobSpec) -> Tape {
    match spec.protection.ft.verifies() {
        true => Tape::new(verify::HISTORY_BYTES).strict(),
        false if spec.protection.strict_output => Tape::new(HISTORY_BYTES).strict(),
        false => Tape::new(HISTORY_BYTES),
    }
}

/// The console, and what goes in and comes out there.
pub(crate) struct Console {
    pub client: ClientHandle,
    pub input: Input,
    /// How much of it the console was given leave for.
    pub credit: u64,
    pub talk: Talk,
}

impl Console {
    pub fn new(client: ClientHandle, input: Input) -> Console {
        Console { client, input, credit: 0, talk: Talk::default() }
    }
}

impl Console {
    /// How long until it is tried again.
    pub fn next_input(&self) -> Duration {
        if self.input.is_late() { LATE } else { Duration::MAX }
    }
}

impl Job {
    /// Console bytes for rank 0.
    pub fn take_input(&mut self, bytes: &[u8]) {
        let waited = self.console.input.is_late();
        match self.console.input.push(bytes, self.clock.now().steady) {
            Ok(None) => self.keep_input(bytes),
            Ok(Some(_)) if waited => {}
            Ok(Some(why)) => self.journal.say(format!(
                "standard input cannot be kept ({why}), as it has to be for the case of a fault: \
                 no more is read until there is room in the job's folder"
            )),
            Err(error) => return self.not_kept(&error),
        }
        self.pump_input();
        self.end_turn();
    }

    /// The console's input is over.
    pub fn end_input(&mut self) {
        self.console.input.end();
        self.pump_input();
        self.save_when_ready();
        self.end_turn();
    }

    fn not_kept(&mut self, error: &std::io::Error) {
        self.fatal(format!("cannot keep standard input (it is needed after a fault): {error}"));
    }

    /// Keeps input that there was no room for, as soon as there is.
    pub(crate) fn tend_input(&mut self) {
        match self.console.input.catch_up(self.clock.now().steady) {
            Ok(Some(bytes)) => {
                self.keep_input(&bytes);
                self.journal.say("standard input is kept, and read, again");
                self.pump_input();
                self.save_when_ready();
            }
            Ok(None) => {}
            Err(error) => self.not_kept(&error),
        }
    }

    /// Passes on to rank 0 what there is room for, and tells the console how much more it may send.
    pub(crate) fn pump_input(&mut self) {
        while let Some(start) = self.console.input.reader() {
            match self.console.input.next_piece() {
                Next::Bytes(bytes) => self.nodes.to_home(0, ToNode::Input { start, bytes }),
                Next::Over => self.nodes.to_home(0, ToNode::InputOver { start }),
                Next::Wait => break,
            }
        }
        let limit = self.console.input.limit();
        if limit > self.console.credit && !self.console.input.is_late() {
            let more = u32::try_from(limit - self.console.credit).unwrap_or(u32::MAX);
            self.console.credit += u64::from(more);
            self.console.client.send(&NodeMsg::StdinCredit(more));
        }
    }

    pub(crate) fn input_fed(&mut self, start: u64, position: u64) {
        self.console.input.fed(start, position);
        self.pump_input();
    }

    /// Bytes a rank wrote.
    pub(crate) fn output(&mut self, rank: u32, start: u64, stream: Stream, bytes: &[u8]) {
        if self.ranks.proc(rank, start).is_none_or(|p| p.mute) {
            return;
        }
        self.journal.note_tape(rank, stream, || Played::Feed(bytes.to_vec()));
        let tape = &mut self.ranks.all[rank as usize].tapes[stream as usize];
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
                self.ranks.proc(rank, start).into_iter().for_each(|p| p.mute = true);
                let text = describe(&difference, stream);
                if let Some(verify) = &mut self.verify {
                    return verify.output_differs(rank, stream, text);
                }
                self.step(monitor::Input::OutputDiffers { rank, text });
            }
        }
    }

    /// A rank that repeats itself wrote something else, which is left out.
    fn printed_otherwise(&mut self, rank: u32, stream: Stream, difference: &Difference) {
        let text = describe(difference, stream);
        if self.console.talk.differences == 0 {
            self.journal.say(format!(
                "rank {rank} repeats itself, but its {text}\nwhat was printed stays, and the lines \
                 that ranks repeat are left out; --strict-output makes this an error (not said \
                 again in this job)"
            ));
        }
        self.console.talk.differences += 1;
        let mut event = self.clock.event(EventKind::OutputDiffers);
        (event.rank, event.text) = (Some(rank), text);
        self.journal.log_event(event);
    }

    /// A rank has a checkpoint that stands there in its streams.
    pub(crate) fn mark_output(&mut self, rank: u32, output: [u64; 2]) {
        for (stream, position) in [Stream::Stdout, Stream::Stderr].into_iter().zip(output) {
            self.journal.note_tape(rank, stream, || Played::Mark(position));
            self.ranks.rank(rank).tapes[stream as usize].mark(position);
        }
    }

    /// What a rank writes from here on may be another course than what it wrote before.
    pub(crate) fn give_up_output(&mut self, rank: u32) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.journal.note_tape(rank, stream, || Played::GiveUp);
            self.ranks.rank(rank).tapes[stream as usize].give_up();
        }
    }

    fn forward(&self, rank: u32, stream: Stream, bytes: &[u8]) {
        if self.verify.as_ref().is_some_and(|v| v.forcing()) {
            return;
        }
        for part in bytes.chunks(MAX_DATA_BYTES) {
            self.journal.tell_console(NodeMsg::Output { rank, stream, bytes: part.to_vec() });
        }
    }

    /// Tells a node that its output was taken, as soon as the console takes more.
    pub(crate) fn output_taken(&mut self, node: u32, bytes: u64) {
        let waits = self.nodes.all.iter().any(|n| n.taken > 0);
        self.nodes.all[node as usize].taken += bytes;
        if self.console.client.has_room() {
            self.nodes.grant_output();
        } else if !waits {
            self.outside.machine.await_room();
        }
    }

    /// A node knows something that the user is to know.
    pub(crate) fn say_once(&mut self, text: String) {
        if self.console.talk.once.insert(text.clone()) {
            self.journal.say(text);
        }
    }

    fn note_unfinished(&mut self, rank: u32, stream: Stream, is: bool) {
        let clock = self.clock.now();
        let key = (rank, stream as usize);
        match is {
            true => drop(self.console.talk.unfinished.insert(key, clock.moment())),
            false => drop(self.console.talk.unfinished.remove(&key)),
        }
    }

    /// How long until an unfinished line is forwarded, as nothing more of it comes.
    pub(crate) fn next_unfinished(&self) -> Duration {
        let clock = self.clock.now();
        let left = |since: &Moment| QUIET.saturating_sub(since.elapsed(clock));
        self.console.talk.unfinished.values().map(left).min().unwrap_or(Duration::MAX)
    }

    /// Forwards unfinished lines of which nothing more has come for a moment: prompts.
    pub(crate) fn forward_unfinished(&mut self) {
        let clock = self.clock.now();
        let quiet: Vec<u32> = self
            .console
            .talk
            .unfinished
            .iter()
            .filter(|(_, since)| since.elapsed(clock) >= QUIET)
            .map(|((rank, _), _)| *rank)
            .collect();
        for rank in quiet {
            self.flush_output(rank);
        }
    }

    /// The unfinished last lines of a rank.
    pub(crate) fn flush_output(&mut self, rank: u32) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.console.talk.unfinished.remove(&(rank, stream as usize));
            if let Some(rest) = self.ranks.all[rank as usize].tapes[stream as usize].flush() {
                self.journal.note_tape(rank, stream, || Played::Flush);
                self.forward(rank, stream, &rest);
            }
        }
    }
}

fn describe(difference: &Difference, stream: Stream) -> String {
    let name = match stream {
        Stream::Stdout => "standard output",
        Stream::Stderr => "standard error",
    };
    let Difference { position, before, now } = difference;
    format!("{name} differs at byte {position}: it was {before:?}, now it is {now:?}")
}
