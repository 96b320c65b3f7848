//! A node with one rank, whose threads' messages come in the order that a test wants.

use super::*;
use eyrie_control::Freeze;
use eyrie_control::node::{CheckpointOrder, CheckpointResult, SetPart};
use eyrie_state::saved_job::testing::spec;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const START: u64 = 3;

struct Bench {
    agent: Shared,
    told: mpsc::UnboundedReceiver<Msg>,
    said: mpsc::UnboundedReceiver<FromNode>,
    /// Messages of this kind come later.
    is_late: fn(&Msg) -> bool,
    late: Vec<Msg>,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// The rank sleeps.
    fn start(name: &str) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        let prefix = Prefix { lib: None, restorer: None };
        let id = format!("{name}-{}", std::process::id());
        let place = Place { id: id.clone(), images, saved: None, prefix, segment: None };
        let mut spec = spec();
        spec.program.path = b"/bin/sleep".to_vec();
        spec.program.argv = vec![b"sleep".to_vec(), b"600".to_vec()];
        spec.protection.freeze = Freeze::Copy;
        spec.protection.log_limit_bytes = 1 << 20;
        let ((tell, told), (say, said)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let out = Arc::new(move |message| drop(say.send(message)));
        let agent = Agent::begin(place, spec, tell, out, None).unwrap();
        let bench = Bench { agent, told, said, is_late: |_| false, late: Vec::new(), _dir: dir };
        let from = Box::new(Meta::start(&id, 0, 1));
        bench.obey(ToNode::Start { rank: 0, start: START, from, moved: None });
        bench
    }

    fn obey(&self, order: ToNode) {
        self.agent.borrow_mut().obey(order);
    }

    fn pid(&self) -> libc::pid_t {
        self.agent.borrow().ranks[0].proc.as_ref().unwrap().pid
    }

    fn find(&self) {
        self.obey(ToNode::Find { rank: 0, attempt: 1, generations: vec![0], fetch: None });
    }

    /// Whether it has said that, without anything that comes.
    fn has_said(&mut self, wanted: fn(&FromNode) -> bool) -> bool {
        std::iter::from_fn(|| self.said.try_recv().ok()).any(|said| wanted(&said))
    }

    fn take(&mut self, message: Msg) {
        match (self.is_late)(&message) {
            true => self.late.push(message),
            false => self.agent.borrow_mut().take(message),
        }
    }

    async fn until(&mut self, wanted: fn(&FromNode) -> bool) -> FromNode {
        let wait = async {
            loop {
                tokio::select! {
                    said = self.said.recv() => match said.unwrap() {
                        said if wanted(&said) => return said,
                        _ => {}
                    },
                    message = self.told.recv() => self.take(message.unwrap()),
                }
            }
        };
        tokio::time::timeout(LIMIT, wait).await.expect("it is never said")
    }

    async fn until_late(&mut self) {
        while self.late.is_empty() {
            let message = tokio::time::timeout(LIMIT, self.told.recv()).await;
            self.take(message.expect("nothing comes").unwrap());
        }
    }

    /// What comes late comes now.
    fn catch_up(&mut self) {
        self.is_late = |_| false;
        for message in std::mem::take(&mut self.late) {
            self.take(message);
        }
    }

    /// The rank is looked for, but what is found is told only when the late message has come.
    async fn found_late(&mut self) {
        self.find();
        assert!(!self.has_said(found), "its process may still be held");
        if self.late.is_empty() {
            self.until_late().await;
        }
        self.catch_up();
        self.until(found).await;
    }

    async fn halt(&mut self) {
        self.obey(ToNode::Halt { turn: 1 });
        let halted = self.until(|s| matches!(s, FromNode::Halted { .. })).await;
        assert!(matches!(halted, FromNode::Halted { restless, .. } if restless.is_empty()));
    }

    async fn kill(&mut self) {
        self.obey(ToNode::Kill { ranks: vec![0] });
        self.until(|s| matches!(s, FromNode::Ended { .. })).await;
    }

    fn checkpoint(&self, hold: bool) {
        self.obey(ToNode::Checkpoint(CheckpointOrder {
            rank: 0,
            start: START,
            generation: 1,
            incremental: false,
            partner: None,
            missing: Vec::new(),
            hold,
            key: None,
        }));
    }

    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }
}

impl Bench {
    /// The rank is killed; as its end is marked it is told to have ended, though it is not gone.
    async fn ends(&mut self) {
        self.is_late = |m| matches!(m, Msg::Exited { .. } | Msg::Gone { .. });
        let pid = self.pid();
        self.obey(ToNode::Kill { ranks: vec![0] });
        while reap::killed(pid).is_err() {
            std::thread::yield_now();
        }
        let word = &self.agent.borrow().segment.clone();
        let word = &word.rank(0).alive;
        word.fetch_or(libc::FUTEX_OWNER_DIED, Ordering::SeqCst);
        eyrie_ledger::futex::wake(word);
        let ended = self.until(|s| matches!(s, FromNode::Ended { .. })).await;
        let FromNode::Ended { death, .. } = ended else { unreachable!() };
        assert_eq!(death, eyrie_control::Death::Signal(libc::SIGKILL));
        while !self.late.iter().any(|m| matches!(m, Msg::Gone { .. })) {
            let message = tokio::time::timeout(LIMIT, self.told.recv()).await;
            self.take(message.expect("nothing comes").unwrap());
        }
    }
}

fn started(said: &FromNode) -> bool {
    matches!(said, FromNode::Started { .. })
}

fn found(said: &FromNode) -> bool {
    matches!(said, FromNode::Found { choice: Choice::Beginning, .. })
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn a_rank_that_dies_while_it_is_let_go_for_a_checkpoint_is_looked_for() {
    run(async {
        let mut bench = Bench::start("let-go");
        bench.halt().await;
        bench.is_late = |m| matches!(m, Msg::WentOn { .. });
        bench.checkpoint(false);
        bench.kill().await;
        bench.found_late().await;
    });
}

#[test]
fn who_held_a_rank_is_waited_for_also_when_all_ranks_are_forgotten() {
    run(async {
        let mut bench = Bench::start("forgotten");
        bench.halt().await;
        bench.is_late = |m| matches!(m, Msg::WentOn { .. });
        bench.kill().await;
        bench.obey(ToNode::Renew { epoch: 2, all: true });
        bench.found_late().await;
    });
}

#[test]
fn all_stand_for_a_moment_when_nobody_holds_them_any_more() {
    run(async {
        let mut bench = Bench::start("stand");
        bench.halt().await;
        bench.is_late = |m| matches!(m, Msg::WentOn { .. });
        bench.obey(ToNode::EndHalt);
        bench.obey(ToNode::Cut { attempt: 5, ranks: vec![(0, START)] });
        bench.until_late().await;
        assert!(!bench.agent.borrow().cuts.is_taken());
        bench.catch_up();
        let cut = bench.until(|s| matches!(s, FromNode::Cut { .. })).await;
        assert!(
            matches!(cut, FromNode::Cut { attempt: 5, result: Ok(_), partly: false }),
            "{cut:?}"
        );
        bench.obey(ToNode::CutOver { attempt: 5 });
        bench.until(|s| matches!(s, FromNode::CutOver { whole: true, .. })).await;
    });
}

#[test]
fn a_moment_that_is_called_off_before_is_told() {
    run(async {
        let mut bench = Bench::start("off");
        bench.halt().await;
        bench.obey(ToNode::Cut { attempt: 5, ranks: vec![(0, START)] });
        bench.obey(ToNode::CutOver { attempt: 5 });
        bench.until(|s| matches!(s, FromNode::Cut { result: Err(_), .. })).await;
        bench.until(|s| matches!(s, FromNode::CutOver { whole: false, .. })).await;
    });
}

#[test]
fn a_rank_that_dies_while_all_stand_is_looked_for_when_they_go_on() {
    run(async {
        let mut bench = Bench::start("dies");
        bench.obey(ToNode::Cut { attempt: 5, ranks: vec![(0, START)] });
        bench.until(|s| matches!(s, FromNode::Cut { result: Ok(_), .. })).await;
        bench.is_late = |m| matches!(m, Msg::CutOver { .. });
        bench.kill().await;
        bench.found_late().await;
    });
}

#[test]
fn a_rank_whose_stop_is_called_off_meanwhile_goes_on() {
    run(async {
        let mut bench = Bench::start("called-off");
        bench.is_late = |m| matches!(m, Msg::Checkpoint { .. });
        bench.checkpoint(true);
        // It stands for its image, and is not stopped yet.
        bench.until_late().await;
        bench.obey(ToNode::LetGo { rank: 0 });
        bench.catch_up();
        bench.until(|s| matches!(s, FromNode::CheckpointOver { .. })).await;
        assert_ne!(bench.state(), 'T');
    });
}

#[test]
fn a_rank_stays_stopped_until_it_is_let_go() {
    run(async {
        let mut bench = Bench::start("stopped");
        bench.checkpoint(true);
        bench.until(|s| matches!(s, FromNode::CheckpointOver { .. })).await;
        let comes_to = |stops: bool| {
            let end = std::time::Instant::now() + LIMIT;
            while (bench.state() == 'T') != stops {
                assert!(std::time::Instant::now() < end, "{}", bench.state());
                std::thread::yield_now();
            }
        };
        comes_to(true);
        bench.obey(ToNode::LetGo { rank: 0 });
        comes_to(false);
    });
}

/// The rank stands for a checkpoint of ranks on several nodes, or is about to.
fn checkpoint_set(bench: &Bench) {
    let part = SetPart { rank: 0, start: START, partner: None, missing: Vec::new(), key: None };
    let (parts, generation) = (vec![part], 1);
    bench.obey(ToNode::CheckpointSet { parts, generation, incremental: false, hold: false });
}

#[test]
fn a_node_that_gives_up_its_part_of_a_checkpoint_of_several_says_so() {
    run(async {
        let mut bench = Bench::start("part");
        bench.is_late = |m| matches!(m, Msg::Checkpoint { .. });
        checkpoint_set(&bench);
        // It stands, and this node has not heard of that.
        bench.until_late().await;
        bench.agent.borrow_mut().leave_together("nobody leads");
        let stands = bench.until(|s| matches!(s, FromNode::Stands { .. })).await;
        let FromNode::Stands { generation: 1, result: Err(why), .. } = stands else {
            panic!("{stands:?}");
        };
        assert_eq!(why, "nobody leads");
        // Others would wait for it for ever: its image is of this rank alone.
        bench.catch_up();
        let over = bench.until(|s| matches!(s, FromNode::CheckpointOver { .. })).await;
        let FromNode::CheckpointOver { result, .. } = over else { unreachable!() };
        assert!(matches!(result, CheckpointResult::Taken(_)), "{result:?}");
    });
}

/// Another controller may lead by now, or it is known again that none does.
fn lead_is_known(bench: &Bench, known: bool) {
    let mut agent = bench.agent.borrow_mut();
    agent.suspension.leaderless_since = (!known).then(std::time::Instant::now);
    agent.tend_all_standing();
}

#[test]
fn a_rank_that_may_run_elsewhere_soon_stands_and_has_its_checkpoint_afterwards() {
    run(async {
        let mut bench = Bench::start("leaderless");
        bench.is_late = |m| matches!(m, Msg::Stopped { .. });
        lead_is_known(&bench, false);
        bench.until_late().await;
        bench.catch_up();
        checkpoint_set(&bench);
        // Nobody waits for it, and it does not run on its way to its image.
        let stands = bench.until(|s| matches!(s, FromNode::Stands { .. })).await;
        assert!(matches!(stands, FromNode::Stands { result: Err(_), .. }), "{stands:?}");
        let all_stand = |bench: &Bench| {
            bench.agent.borrow().ranks[0].stand.standing.as_ref().is_some_and(|s| s.stands())
        };
        assert!(all_stand(&bench));
        lead_is_known(&bench, false);
        assert!(all_stand(&bench) && bench.agent.borrow().ranks[0].capture.freezing.is_none());
        lead_is_known(&bench, true);
        let over = bench.until(|s| matches!(s, FromNode::CheckpointOver { .. })).await;
        let FromNode::CheckpointOver { result, .. } = over else { unreachable!() };
        assert!(matches!(result, CheckpointResult::Taken(_)), "{result:?}");
    });
}

#[test]
fn a_checkpoint_that_was_put_off_is_told_of_when_its_rank_has_died() {
    run(async {
        let mut bench = Bench::start("put-off");
        bench.is_late = |m| matches!(m, Msg::Stopped { .. });
        lead_is_known(&bench, false);
        bench.until_late().await;
        bench.catch_up();
        bench.checkpoint(false);
        bench.kill().await;
        let over = bench.until(|s| matches!(s, FromNode::CheckpointOver { .. })).await;
        let FromNode::CheckpointOver { result, .. } = over else { unreachable!() };
        assert_eq!(result, CheckpointResult::Died);
    });
}

#[test]
fn nothing_is_given_up_of_a_new_segment_by_what_was_kept_of_the_old_one() {
    run(async {
        let bench = Bench::start("segment");
        bench.agent.borrow_mut().logs.begin_read();
        bench.obey(ToNode::Trim { rank: 0, need: vec![4096], det_pos: 7 });
        bench.obey(ToNode::Renew { epoch: 2, all: true });
        bench.agent.borrow_mut().take(Msg::LogsRead);
        let agent = bench.agent.borrow();
        assert_eq!(agent.segment.channel(0, 0).trim.load(Ordering::Acquire), 0);
        assert_eq!(agent.segment.rank(0).det_trim.load(Ordering::Acquire), 0);
    });
}

#[test]
fn a_rank_that_ends_is_told_at_once_and_looked_for_and_started_when_it_is_gone() {
    run(async {
        let mut bench = Bench::start("ends");
        bench.until(started).await;
        bench.ends().await;
        bench.find();
        let from = Box::new(Meta::start("", 0, 1));
        bench.obey(ToNode::Start { rank: 0, start: START + 1, from, moved: None });
        assert!(!bench.has_said(|said| found(said) || started(said)), "it is not gone");
        bench.catch_up();
        bench.until(started).await;
    });
}

#[test]
fn a_node_ends_when_its_rank_is_gone() {
    run(async {
        let mut bench = Bench::start("end");
        bench.until(started).await;
        bench.ends().await;
        bench.obey(ToNode::Finish);
        assert!(!bench.agent.borrow().finished(), "its rank is not gone");
        bench.catch_up();
        bench.until(|s| matches!(s, FromNode::Finished { left: 0 })).await;
    });
}

#[test]
fn a_thread_that_ends_is_not_taken_for_its_process() {
    run(async {
        let mut bench = Bench::start("thread");
        bench.until(started).await;
        let segment = bench.agent.borrow().segment.clone();
        segment.rank(0).alive.store(libc::FUTEX_OWNER_DIED, Ordering::SeqCst);
        eyrie_ledger::futex::wake(&segment.rank(0).alive);
        bench.is_late = |m| matches!(m, Msg::Ending { .. });
        bench.until_late().await;
        bench.catch_up();
        assert!(bench.agent.borrow().ranks[0].proc.is_some());
        bench.kill().await;
    });
}
