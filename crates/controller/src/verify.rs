//! `eyrie verify`: one run recorded, runs forced to the same outcomes, and the comparison.
//!
//! Kept true: the verdict is 'deterministic' only if every channel has the same count, size and
//! hash chain, every recorded outcome was used and no new one appeared (which the node looks at),
//! and standard output is the same byte for byte, in each forced run. In each of them messages
//! are delayed and hastened on purpose, in another way. What is broken off has no verdict.

use crate::Job;
use crate::monitor::Monitor;
use eyrie_control::node::{Judgement, ToNode};
use eyrie_control::{NodeMsg, Stream};

/// Output compared, each stream.
pub(crate) const HISTORY_BYTES: usize = 64 << 20;

/// Exit code of a verification without verdict.
const NO_VERDICT: i32 = 3;

/// The state of a verification.
pub(crate) struct Verify {
    /// By which messages are delayed and hastened in the next run, and how many runs are left.
    seed: u32,
    left: u32,
    /// The program, the user or a limit has ended it.
    broken_off: Option<String>,
    /// Bytes of standard output of each rank in the recorded run.
    recorded: Option<Vec<u64>>,
    /// Exit code of the forced run, which is being judged.
    code: i32,
    /// Why the forced run differs, found while it ran.
    found: Option<String>,
}

impl Verify {
    /// `verification`: the seed, and how many there are.
    pub fn new(verification: (u32, u32)) -> Verify {
        let (seed, seeds) = verification;
        let (recorded, found, broken_off) = (None, None, None);
        Verify { seed, left: seeds.max(1), broken_off, recorded, code: 0, found }
    }

    /// Whether the second run is on.
    pub fn forcing(&self) -> bool {
        self.recorded.is_some()
    }

    /// Standard output differs from the recorded run's; standard error may.
    pub fn output_differs(&mut self, rank: u32, stream: Stream, text: String) {
        if stream == Stream::Stdout {
            self.found.get_or_insert(format!("rank {rank}: {text}"));
        }
    }
}

impl Job {
    /// All processes of a run are gone. `None`: the node prepares or judges the next one.
    pub(crate) fn verify_next(&mut self, code: i32) -> Option<i32> {
        let Some(verify) = &mut self.verify else { return Some(code) };
        if let Some(why) = verify.broken_off.take() {
            return self.no_verdict(&why);
        }
        if verify.forcing() {
            verify.code = code;
            self.nodes.to_all(&ToNode::Judge);
            return None;
        }
        if code != 0 {
            return self.no_verdict(&format!("the program ended with code {code} when recorded"));
        }
        let seed = verify.seed;
        self.nodes.to_all(&ToNode::Force { seed });
        None
    }

    /// It ends without a verdict, if nothing was found before.
    pub(crate) fn break_verify_off(&mut self, why: impl FnOnce() -> String) {
        if let Some(verify) = self.verify.as_mut().filter(|v| v.found.is_none()) {
            verify.broken_off.get_or_insert_with(why);
        }
    }

    fn no_verdict(&self, why: &str) -> Option<i32> {
        let text = format!("no verdict: {why}");
        self.journal.tell_console(NodeMsg::Verdict { ok: None, text });
        Some(NO_VERDICT)
    }

    fn verdict(&self, ok: bool, text: String) {
        self.journal.tell_console(NodeMsg::Verdict { ok: Some(ok), text });
    }

    /// The node is ready for the next run under the first one's outcomes.
    pub(crate) fn forced(&mut self, error: Option<String>) {
        if let Some(error) = error {
            let code = self.no_verdict(&format!("cannot start the second run: {error}"));
            return self.ended(code.unwrap_or(NO_VERDICT));
        }
        self.recovery.monitor = Monitor::new(self.spec.program.size, false);
        let recorded = self.ranks.all.iter().map(|r| r.tapes[0].received()).collect();
        for r in &mut self.ranks.all {
            r.gone = false;
            r.deaths.count = 0;
            // Standard error may differ; it is dropped unseen.
            r.tapes[1].give_up();
        }
        if let Some(verify) = &mut self.verify {
            (verify.recorded, verify.found) = (Some(recorded), None);
        }
        self.start_all();
    }

    pub(crate) fn stuck(&mut self, text: String) {
        if let Some(verify) = &mut self.verify {
            verify.found = Some(text.clone());
        }
        self.fatal(text);
    }

    /// The node has compared the two runs.
    pub(crate) fn judged(&mut self, node: &Judgement) {
        let Some(verify) = &mut self.verify else { return };
        let (Some(recorded), code) = (verify.recorded.take(), verify.code) else { return };
        let found = verify.found.take();
        let output = self.ranks.all.iter().enumerate().find_map(|(rank, r)| {
            let short = r.tapes[0].check_complete().err();
            let longer = r.tapes[0].received() > recorded[rank];
            let more = longer.then(|| format!("rank {rank} wrote more when forced"));
            short.map(|d| format!("rank {rank} ended its output before {:?}", d.before)).or(more)
        });
        let failed = (code != 0).then(|| format!("the forced run ended with code {code}"));
        let courses = node.difference.clone();
        // A difference of messages explains one of output, not the other way round.
        let difference = match code {
            0 => courses.or(node.unused.clone()).or(found),
            _ => found.or(failed),
        };
        let (seed, left) = (verify.seed, verify.left - 1);
        (verify.seed, verify.left) = (seed.wrapping_add(1).max(1), left);
        if let Some(text) = difference.or(output) {
            let again = format!("(again: eyrie verify --seed {seed} --seeds 1)");
            self.verdict(false, format!("{text} {again}"));
            return self.ended(1);
        }
        if left > 0 {
            let seed = verify.seed;
            return self.nodes.to_all(&ToNode::Force { seed });
        }
        let Judgement { messages, channels, events, .. } = node;
        let text = format!(
            "deterministic under replay: {messages} messages on {channels} channels, \
             {events} events forced"
        );
        self.verdict(true, text);
        self.ended(0);
    }
}
