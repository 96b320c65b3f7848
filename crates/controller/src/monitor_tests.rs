//! Tests of the rank life cycle: the rules one by one, then random histories.

use super::Action::{Recover, RecoverLater};
use super::*;
use eyrie_control::signals::{SIGHUP, SIGINT, SIGKILL, SIGSEGV, SIGTERM, SIGXCPU, SIGXFSZ};
use eyrie_protocol::testing::Random;

fn started(size: u32) -> Monitor {
    let mut m = Monitor::new(size, true);
    for rank in 0..size {
        assert_eq!(m.step(Input::Started { rank }), []);
    }
    m
}

fn died(rank: u32, death: Death, said: Said, progress: u64) -> Input {
    Input::Died { rank, death, why: Why::default(), said, progress, protected: true }
}

fn ends(actions: &[Action]) -> Option<i32> {
    actions.iter().find_map(|a| match a {
        Action::End { code } => Some(*code),
        _ => None,
    })
}

fn says(actions: &[Action]) -> String {
    let lines = actions.iter().filter_map(|a| match a {
        Action::Say(text) => Some(text.as_str()),
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn all_exit_well() {
    let mut m = started(2);
    assert_eq!(m.step(died(0, Death::Exit(0), Said::Nothing, 0)), []);
    assert_eq!(m.step(died(1, Death::Exit(0), Said::Nothing, 0)), [Action::End { code: 0 }]);
    assert_eq!(m.phase(), "ended");
}

#[test]
fn a_kill_is_recovered_and_the_rank_alone() {
    let mut m = started(2);
    let todo = m.step(died(1, Death::Signal(SIGKILL), Said::Running, 7));
    assert_eq!(todo, [Action::Recover { rank: 1 }]);
    assert!(m.may_start(1) && !m.may_start(0));
}

#[test]
fn an_exit_code_ends_the_job_with_it() {
    let mut m = started(2);
    let todo = m.step(died(1, Death::Exit(3), Said::Running, 7));
    assert_eq!(says(&todo), "rank 1 exited with code 3");
    assert!(todo.contains(&Action::KillAll) && ends(&todo).is_none());
    let todo = m.step(died(0, Death::Signal(SIGKILL), Said::Running, 1));
    assert_eq!(todo, [Action::End { code: 3 }]);
}

#[test]
fn exit_without_finalize_is_a_failure() {
    let mut m = started(1);
    let todo = m.step(died(0, Death::Exit(0), Said::Running, 7));
    assert_eq!(says(&todo), "rank 0 exited without calling MPI_Finalize");
    assert_eq!(ends(&todo), Some(1));
}

#[test]
fn abort_gives_its_code_and_never_success() {
    for (given, code) in [(5, 5), (0, 1), (256, 1), (259, 3)] {
        let mut m = started(1);
        let said = Said::Aborted { code: given, text: String::new() };
        assert!(m.step(Input::Reported { rank: 0, said }).contains(&Action::KillAll));
        let todo = m.step(died(0, Death::Signal(SIGKILL), Said::Nothing, 0));
        assert_eq!(ends(&todo), Some(code));
    }
}

#[test]
fn a_bug_at_one_point_is_the_programs_own() {
    let mut m = started(1);
    // The last time at another node, if there is one: the fault may be the node's.
    let later = RecoverLater { rank: 0, pause: Duration::ZERO, elsewhere: true };
    for next in [Recover { rank: 0 }, later] {
        let todo = m.step(died(0, Death::Signal(SIGSEGV), Said::Running, 42));
        assert_eq!(todo, [next]);
        m.step(Input::Started { rank: 0 });
    }
    let todo = m.step(died(0, Death::Signal(SIGSEGV), Said::Running, 42));
    assert!(says(&todo).contains("SIGSEGV three times at the same point"));
    assert_eq!(ends(&todo), Some(128 + SIGSEGV));
}

#[test]
fn a_bug_at_different_points_and_kills_at_one_are_recovered() {
    let mut m = started(1);
    for n in 0..50 {
        let todo = m.step(died(0, Death::Signal(SIGSEGV), Said::Running, n));
        assert_eq!(todo, [Action::Recover { rank: 0 }]);
        m.step(Input::Started { rank: 0 });
        let todo = m.step(died(0, Death::Signal(SIGKILL), Said::Running, n));
        assert_eq!(todo, [Action::Recover { rank: 0 }]);
        m.step(Input::Started { rank: 0 });
    }
}

/// Dies again and again as `progress` says; the pauses before each new life, what was said and how
/// it ended.
fn dies_on(
    m: &mut Monitor,
    why: &Why,
    progress: impl Fn(u32) -> u64,
) -> (Vec<Duration>, String, i32) {
    let (mut pauses, mut said) = (Vec::new(), String::new());
    for n in 0..1000 {
        let death = Death::Signal(SIGKILL);
        let (why, progress) = (why.clone(), progress(n));
        let protected = true;
        let todo =
            m.step(Input::Died { rank: 0, death, why, said: Said::Nothing, progress, protected });
        said += &says(&todo);
        if let Some(code) = ends(&todo) {
            return (pauses, said, code);
        }
        pauses.extend(todo.iter().filter_map(|a| match a {
            Action::Recover { .. } => Some(Duration::ZERO),
            Action::RecoverLater { pause, .. } => Some(*pause),
            _ => None,
        }));
        m.step(Input::Started { rank: 0 });
    }
    (pauses, said, 0)
}

#[test]
fn without_any_progress_the_job_is_given_up_after_growing_pauses() {
    // How far it was at its deaths changes, and is at most what it was at the first.
    let (pauses, said, code) = dies_on(&mut started(1), &Why::default(), |n| 10 - u64::from(n % 3));
    assert_eq!((pauses.len() as u32 + 1, code), (FRUITLESS_DEATHS, 137));
    assert!(pauses[0].is_zero() && pauses[1].is_zero() && !pauses[2].is_zero());
    assert!(pauses.windows(2).all(|w| w[0] <= w[1]) && *pauses.last().unwrap() >= PAUSE * 64);
    assert_eq!(said.matches("growing pauses").count(), 1, "{said}");
}

#[test]
fn who_dies_on_one_node_goes_to_another_now_and_then() {
    let mut m = started(1);
    let mut went = Vec::new();
    for n in 1..FRUITLESS_DEATHS {
        let todo = m.step(died(0, Death::Signal(SIGKILL), Said::Running, 7));
        let goes = |a: &Action| matches!(a, RecoverLater { elsewhere: true, .. });
        went.extend(todo.iter().any(goes).then_some(n));
        m.step(Input::Started { rank: 0 });
    }
    assert_eq!(went, [3, 6, 9, 12]);
}

#[test]
fn who_gets_on_is_brought_back_at_once_however_often() {
    let (pauses, said, code) = dies_on(&mut started(1), &Why::default(), u64::from);
    assert!(pauses.len() == 1000 && pauses.iter().all(Duration::is_zero) && code == 0, "{said}");
    // So is one whom the user has killed.
    let meant = Why { meant: true, ..Why::default() };
    assert_eq!(dies_on(&mut started(1), &meant, |_| 0).0.len(), 1000);
    // A newer checkpoint is progress, too.
    let mut m = started(1);
    for place in 0..100 {
        let todo = m.step(died(0, Death::Signal(SIGKILL), Said::Nothing, 0));
        assert_eq!(todo, [Action::Recover { rank: 0 }]);
        m.step(Input::Started { rank: 0 });
        m.step(Input::Reached { rank: 0, place: place + 1 });
    }
}

#[test]
fn that_memory_is_short_is_told_once_and_at_the_end() {
    let cause = Some(String::from("killed for memory: the cgroup allows 150 MB"));
    let (_, said, code) = dies_on(&mut started(1), &Why { cause, ..Why::default() }, |_| 3);
    assert_eq!(said.matches("was killed for memory: the cgroup allows 150 MB").count(), 1);
    assert!(said.ends_with("at last of SIGKILL (killed for memory: the cgroup allows 150 MB)"));
    assert_eq!(code, 137);
}

#[test]
fn limits_are_told_once_and_a_file_that_is_too_long_ends_the_job() {
    let cause = Some(String::from("it used more processor time than its limit, ulimit -t"));
    let todo = started(1).step(Input::Died {
        rank: 0,
        why: Why { cause, ..Why::default() },
        death: Death::Signal(SIGXCPU),
        said: Said::Running,
        progress: 1,
        protected: true,
    });
    assert!(says(&todo).contains("died of SIGXCPU (it used more"), "{todo:?}");
    let mut m = started(1);
    let mut dies = || {
        let todo = m.step(died(0, Death::Signal(SIGXFSZ), Said::Running, 1));
        if ends(&todo).is_none() {
            m.step(Input::Starting { rank: 0 });
            m.step(Input::Started { rank: 0 });
        }
        ends(&todo)
    };
    let codes: Vec<_> = (0..SAME_POINT_DEATHS).map(|_| dies()).collect();
    assert_eq!(codes, [None, None, Some(128 + SIGXFSZ)]);
}

#[test]
fn an_unprotected_job_ends_with_its_rank() {
    let mut m = started(1);
    let todo = m.step(Input::Died {
        rank: 0,
        why: Why::default(),
        death: Death::Signal(SIGKILL),
        said: Said::Running,
        progress: 0,
        protected: false,
    });
    assert_eq!(ends(&todo), Some(137));
}

#[test]
fn a_divergence_rolls_all_back_and_the_second_one_is_the_last() {
    let mut m = started(2);
    let said = Said::Diverged { text: "sent 3, recorded 2".into() };
    let todo = m.step(died(1, Death::Exit(99), said.clone(), 0));
    assert!(says(&todo).contains("sent 3, recorded 2") && todo.contains(&Action::KillAll));
    assert!(!m.may_start(1));
    let todo = m.step(died(0, Death::Signal(SIGKILL), Said::Running, 0));
    assert_eq!(todo, [Action::RestartAll]);
    assert!(m.may_start(0) && m.may_start(1));
    (0..2).for_each(|rank| drop(m.step(Input::Started { rank })));
    let todo = m.step(died(0, Death::Exit(99), said, 0));
    assert!(says(&todo).contains("go back to the beginning"));
    m.step(died(1, Death::Signal(SIGKILL), Said::Running, 0));
    (0..2).for_each(|rank| drop(m.step(Input::Started { rank })));
    // From now on no replay is tried.
    let dies = |m: &mut Monitor| {
        let todo = m.step(died(0, Death::Signal(SIGKILL), Said::Running, 0));
        m.step(died(1, Death::Signal(SIGKILL), Said::Running, 0));
        (0..2).for_each(|rank| drop(m.step(Input::Started { rank })));
        todo
    };
    let todo = dies(&mut m);
    assert!(says(&todo).contains("rank 0 died of SIGKILL\nall ranks go back"), "{todo:?}");
    assert!(todo.contains(&Action::KillAll) && !todo.contains(&Action::Recover { rank: 0 }));
    // Until the job has got further.
    m.step(Input::Reached { rank: 1, place: 9 });
    assert_eq!(dies(&mut m), [Action::Recover { rank: 0 }]);
}

#[test]
fn the_first_signal_asks_and_the_second_kills() {
    let mut m = started(2);
    let todo = m.step(Input::Stop { signal: SIGINT });
    assert_eq!(todo, [Action::SignalAll(SIGINT), Action::ArmGrace]);
    assert_eq!(m.step(died(0, Death::Signal(SIGINT), Said::Running, 0)), []);
    assert!(!m.may_start(0));
    assert_eq!(m.step(Input::Stop { signal: SIGINT }), [Action::KillAll]);
    let todo = m.step(died(1, Death::Signal(SIGKILL), Said::Running, 0));
    assert_eq!(todo, [Action::End { code: 130 }]);
}

#[test]
fn grace_ends_in_a_kill() {
    let mut m = started(1);
    m.step(Input::Stop { signal: SIGTERM });
    assert_eq!(m.step(Input::GraceOver), [Action::KillAll]);
    assert_eq!(m.step(Input::GraceOver), []);
}

#[test]
fn a_stop_while_a_rank_is_recovered_ends_the_job() {
    let mut m = started(1);
    m.step(died(0, Death::Signal(SIGKILL), Said::Running, 0));
    let todo = m.step(Input::Stop { signal: SIGTERM });
    assert_eq!(ends(&todo), Some(143));
    assert!(!m.may_start(0));
}

#[test]
fn verify_recovers_nothing() {
    let mut m = Monitor::new(1, false);
    m.step(Input::Started { rank: 0 });
    let todo = m.step(died(0, Death::Signal(SIGKILL), Said::Running, 0));
    assert_eq!(ends(&todo), Some(137));
}

/// All go back for a loss and begin anew. What is said.
fn back(m: &mut Monitor) -> String {
    let mut todo = m.step(Input::Unrecoverable { why: "no image is left".into() });
    todo.extend(m.step(died(0, Death::Signal(SIGKILL), Said::Nothing, 0)));
    m.step(Input::Started { rank: 0 });
    says(&todo)
}

#[test]
fn all_go_back_to_the_newest_state_that_is_kept() {
    let mut m = started(1);
    assert!(back(&mut m).contains("go back to the beginning"));
    m.step(Input::Kept);
    for _ in 0..FRUITLESS_ROLLBACKS {
        assert!(back(&mut m).contains("go back to what the job's folder has"));
    }
    m.step(Input::Kept);
    assert!(back(&mut m).contains("go back to what the job's folder has"));
}

#[test]
fn all_go_back_as_often_as_the_job_gets_further_in_between() {
    let mut m = started(1);
    for place in 1..500 {
        m.step(Input::Reached { rank: 0, place });
        assert!(back(&mut m).contains("go back to the beginning"), "{place}");
        // The next attempt comes to nothing.
        assert!(back(&mut m).contains("go back to the beginning"), "{place}");
        m.step(Input::Reached { rank: 0, place: place / 2 });
        assert!(back(&mut m).contains("go back to the beginning"), "{place}");
    }
    for _ in 3..FRUITLESS_ROLLBACKS {
        assert!(back(&mut m).contains("go back to the beginning"));
    }
    assert!(back(&mut m).contains("10 times in a row without getting further"));
    assert_eq!(m.phase(), "ended");
}

#[test]
fn a_divergence_that_repeats_gives_up_one_snapshot_after_the_other() {
    let mut m = started(2);
    let diverge = |m: &mut Monitor| {
        let said = Said::Diverged { text: "sent 3, recorded 2".into() };
        let todo = m.step(Input::Reported { rank: 1, said });
        for rank in 0..2 {
            m.step(died(rank, Death::Signal(SIGKILL), Said::Running, 1));
        }
        for rank in 0..2 {
            m.step(Input::Started { rank });
        }
        todo
    };
    let goes_back = |todo: &[Action]| {
        assert!(todo.contains(&Action::KillAll), "{todo:?}");
        todo.contains(&Action::GiveUpSnapshot)
    };
    m.step(Input::Snapshots { count: 2 });
    let reach = |m: &mut Monitor, place| {
        m.step(Input::Reached { rank: 0, place });
    };
    reach(&mut m, 5);
    for _ in 0..RETURNS {
        assert!(!goes_back(&diverge(&mut m)));
        assert_eq!(m.why_back(), "the replay of rank 1 diverged");
        reach(&mut m, 3);
    }
    // It got further meanwhile: as if it were the first time.
    reach(&mut m, 6);
    for _ in 0..RETURNS {
        assert!(!goes_back(&diverge(&mut m)));
    }
    assert!(goes_back(&diverge(&mut m)), "the one before");
    for _ in 1..RETURNS {
        assert!(!goes_back(&diverge(&mut m)));
    }
    let todo = diverge(&mut m);
    assert!(goes_back(&todo));
    assert!(todo.iter().any(|a| matches!(a, Action::Say(t) if t.contains("to the beginning"))));
    for _ in 2 * RETURNS + 1..FRUITLESS_ROLLBACKS {
        assert!(!goes_back(&diverge(&mut m)));
    }
    let todo = diverge(&mut m);
    assert!(todo.iter().any(|a| matches!(a, Action::Say(t) if t.contains("10 times in a row"))));
}

#[test]
fn ranks_that_are_to_be_larger_units_end_once_and_that_is_no_failure() {
    let mut m = started(2);
    let why = String::from("rank 0 shares memory with rank 1");
    assert_eq!(m.step(Input::Regroup { why: why.clone() }), [Action::KillAll]);
    assert_eq!(m.step(Input::Regroup { why: why.clone() }), [], "all are ending");
    assert!(!m.may_start(0));
    m.step(died(0, Death::Signal(SIGKILL), Said::Running, 7));
    let todo = m.step(died(1, Death::Signal(SIGKILL), Said::Running, 7));
    assert_eq!((todo, m.why_back()), (vec![Action::Regroup], &why[..]));
    // The next time all begin anew for another reason.
    (0..2).for_each(|rank| drop(m.step(Input::Started { rank })));
    m.step(Input::Unrecoverable { why });
    m.step(died(0, Death::Signal(SIGKILL), Said::Running, 7));
    let todo = m.step(died(1, Death::Signal(SIGKILL), Said::Running, 7));
    assert_eq!(todo, [Action::RestartAll]);
}

#[test]
fn divergences_that_get_no_further_are_counted() {
    let mut m = started(1);
    let diverge = |m: &mut Monitor| {
        let said = Said::Diverged { text: "sent 3, recorded 2".into() };
        let todo = m.step(died(0, Death::Exit(99), said, 0));
        m.step(Input::Started { rank: 0 });
        says(&todo)
    };
    for place in 1..50 {
        assert!(diverge(&mut m).contains("go back"), "{place}");
        m.step(Input::Reached { rank: 0, place });
    }
    assert!(diverge(&mut m).contains("go back"));
    // A loss in between is no progress.
    back(&mut m);
    m.step(Input::Reached { rank: 0, place: 49 });
    for _ in 2..FRUITLESS_ROLLBACKS {
        assert!(diverge(&mut m).contains("go back"));
    }
    assert!(diverge(&mut m).contains("10 times in a row"));
}

/// Random histories against a tiny world that carries out the actions: the job always ends, once,
/// and with no process left; no rank is started after the end began.
#[test]
fn every_history_ends_once_with_nobody_left() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let size = 1 + random.below(4) as u32;
        let mut m = Monitor::new(size, true);
        let mut alive = vec![false; size as usize];
        let mut to_start: Vec<u32> = (0..size).collect();
        let mut end = None;
        for step in 0..5000u64 {
            let rank = random.below(u64::from(size)) as u32;
            let input = if random.below(3) > 0 && !to_start.is_empty() {
                let rank = to_start.remove(0);
                if !m.may_start(rank) {
                    continue;
                }
                alive[rank as usize] = true;
                Input::Started { rank }
            } else if alive[rank as usize] && random.below(3) == 0 {
                alive[rank as usize] = false;
                let death = match random.below(12) {
                    0..3 => Death::Exit(0),
                    3 => Death::Exit(2),
                    4..9 => Death::Signal(SIGKILL),
                    _ => Death::Signal(SIGSEGV),
                };
                died(rank, death, Said::Nothing, step / 8)
            } else if random.below(60) == 0 {
                Input::Unrecoverable { why: "both images are damaged".into() }
            } else if random.below(100) == 0 {
                Input::Stop { signal: SIGTERM }
            } else {
                Input::GraceOver
            };
            for action in m.step(input) {
                match action {
                    Recover { rank } | RecoverLater { rank, .. } => to_start.push(rank),
                    Action::RestartAll => {
                        assert!(alive.iter().all(|a| !a), "seed {seed}");
                        to_start = (0..size).collect();
                    }
                    Action::KillAll => {
                        let killed: Vec<u32> = (0..size).filter(|r| alive[*r as usize]).collect();
                        alive.fill(false);
                        for rank in killed {
                            let kill = Death::Signal(SIGKILL);
                            for a in m.step(died(rank, kill, Said::Nothing, 0)) {
                                match a {
                                    Action::RestartAll => to_start = (0..size).collect(),
                                    Action::End { code } => {
                                        assert_eq!(end.replace(code), None, "seed {seed}");
                                    }
                                    _ => {}
                                }
                            }
                        }
                    }
                    Action::End { code } => {
                        assert_eq!(end.replace(code), None, "seed {seed}: two ends");
                        assert!(alive.iter().all(|a| !a), "seed {seed}: a process is left");
                    }
                    _ => {}
                }
            }
            if end.is_some() {
                break;
            }
        }
        assert!(end.is_some() && (0..size).all(|r| !m.may_start(r)), "seed {seed}: no end");
    }
}

#[test]
fn a_job_is_saved_when_no_process_is_left() {
    let mut m = started(3);
    assert_eq!(m.step(died(2, Death::Exit(0), Said::Nothing, 0)), []);
    assert_eq!(m.step(Input::Save), [Action::KillAll]);
    assert_eq!(m.phase(), "saving");
    assert_eq!(m.step(died(0, Death::Signal(SIGKILL), Said::Running, 0)), []);
    assert!(says(&m.step(Input::Stop { signal: SIGTERM })).contains("being saved"));
    let killed = died(1, Death::Signal(SIGKILL), Said::Running, 0);
    assert_eq!(m.step(killed.clone()), [Action::Save]);
    let mut other = m.clone();
    assert_eq!(m.step(Input::ConsoleGone), [], "it is ordered once");
    assert_eq!(m.step(Input::Saved { code: 85 }), [Action::End { code: 85 }]);
    let again = [Action::Recover { rank: 0 }, Action::Recover { rank: 1 }];
    assert_eq!(other.step(Input::NotSaved), again);
    assert!(other.may_start(0) && !other.may_start(2));
    other.step(Input::Started { rank: 0 });
    other.step(Input::Started { rank: 1 });
    assert_eq!(other.step(killed), [Action::Recover { rank: 1 }]);
}

#[test]
fn what_ranks_do_by_themselves_while_the_job_is_saved_counts() {
    let mut m = started(2);
    m.step(Input::Save);
    assert_eq!(m.step(died(0, Death::Exit(0), Said::Nothing, 0)), []);
    assert_eq!(m.step(died(1, Death::Exit(0), Said::Nothing, 0)), [Action::End { code: 0 }]);
    let mut m = started(2);
    m.step(Input::Save);
    assert!(says(&m.step(died(0, Death::Exit(3), Said::Running, 0))).contains("code 3"));
    let todo = m.step(died(1, Death::Signal(SIGKILL), Said::Running, 0));
    assert_eq!(todo, [Action::End { code: 3 }]);
}

#[test]
fn all_go_back_together_as_often_as_it_takes() {
    let mut m = started(2);
    for n in 0..5 {
        let killed = m.step(died(1, Death::Signal(SIGKILL), Said::Running, n));
        assert_eq!(killed, [Action::Recover { rank: 1 }]);
        assert_eq!(m.step(Input::Together), [Action::KillAll]);
        let last = m.step(died(0, Death::Signal(SIGKILL), Said::Running, n));
        assert_eq!(last, [Action::RestartAll]);
        m.step(Input::Started { rank: 0 });
        m.step(Input::Started { rank: 1 });
    }
}

#[test]
fn an_own_bug_at_the_same_point_is_found_also_when_all_go_back() {
    let mut m = started(1);
    for death in 1..SAME_POINT_DEATHS {
        let todo = m.step(died(0, Death::Signal(SIGSEGV), Said::Running, 7));
        let elsewhere = death + 1 == SAME_POINT_DEATHS;
        let later = Action::RecoverLater { rank: 0, pause: Duration::ZERO, elsewhere };
        assert_eq!(todo, [if elsewhere { later } else { Action::Recover { rank: 0 } }]);
        assert_eq!(m.step(Input::Together), [Action::KillAll, Action::RestartAll]);
        m.step(Input::Started { rank: 0 });
    }
    let todo = m.step(died(0, Death::Signal(SIGSEGV), Said::Running, 7));
    assert!(says(&todo).contains("own fault"));
}

fn killed(m: &mut Monitor, rank: u32) -> Option<i32> {
    ends(&m.step(died(rank, Death::Signal(SIGKILL), Said::Running, 0)))
}

#[test]
fn what_begins_the_end_decides_whether_anybody_goes_on() {
    // The signals, in this order; whether the console goes then; whether the job is given up.
    let (hup, term, int) = (SIGHUP, SIGTERM, SIGINT);
    let cases: [(&[i32], bool, bool); 8] = [
        (&[hup], false, false),
        (&[hup], true, false),
        (&[hup, term], true, false),
        (&[], true, false),
        (&[term], false, false),
        (&[term, term], true, false),
        (&[int, hup], true, true),
        (&[int, int], false, true),
    ];
    for (signals, gone, given_up) in cases {
        let mut m = started(1);
        signals.iter().for_each(|signal| drop(m.step(Input::Stop { signal: *signal })));
        if gone {
            m.step(Input::ConsoleGone);
        }
        assert!(killed(&mut m, 0).is_some(), "{signals:?}");
        assert_eq!(m.is_given_up(), given_up, "{signals:?} {gone}");
    }
    let mut m = started(1);
    m.step(Input::Abort);
    assert!(killed(&mut m, 0).is_some() && m.is_given_up());
}

#[test]
fn a_job_whose_console_goes_while_all_go_back_is_not_given_up() {
    let mut m = started(2);
    m.step(Input::Together);
    m.step(Input::ConsoleGone);
    assert_eq!((killed(&mut m, 0), killed(&mut m, 1)), (None, Some(128 + SIGHUP)));
    assert!(!m.is_given_up());
}

#[test]
fn only_a_program_that_did_its_work_gives_up_what_is_kept() {
    for (code, given_up) in [(0, true), (3, false)] {
        let mut m = started(1);
        assert_eq!(ends(&m.step(died(0, Death::Exit(code), Said::Nothing, 0))), Some(code));
        assert_eq!(m.is_given_up(), given_up, "code {code}");
    }
    let mut m = started(1);
    m.step(Input::Fatal { text: String::from("no node is left"), code: 1 });
    assert!(killed(&mut m, 0).is_some() && !m.is_given_up());
    let mut m = started(1);
    assert!(ends(&m.step(Input::Lost { rank: 0, protected: false })).is_some());
    assert!(!m.is_given_up());
}

#[test]
fn a_job_that_is_not_saved_and_has_no_console_ends() {
    for failed in [Input::NotSaved, Input::Together] {
        let mut m = started(1);
        m.step(Input::Save);
        assert_eq!(m.step(Input::ConsoleGone), []);
        assert_eq!(killed(&mut m, 0), None);
        assert_eq!(ends(&m.step(failed)), Some(128 + SIGHUP));
        assert!(!m.is_given_up());
    }
    // What it does meanwhile by itself counts.
    let mut m = started(1);
    m.step(Input::Save);
    m.step(Input::ConsoleGone);
    assert_eq!(ends(&m.step(died(0, Death::Exit(0), Said::Nothing, 0))), Some(0));
    assert!(m.is_given_up());
}

#[test]
fn who_has_nothing_to_run_is_started_elsewhere_or_ends_the_job_with_its_code() {
    let ends_with = |m: &mut Monitor, elsewhere| {
        let why = Why { elsewhere, ..Why::default() };
        let (death, said) = (Death::Exit(127), Said::Nothing);
        m.step(Input::Died { rank: 0, death, why, said, progress: 0, protected: true })
    };
    let mut m = started(2);
    let later = Action::RecoverLater { rank: 0, pause: Duration::ZERO, elsewhere: true };
    assert_eq!(ends_with(&mut m, true), [later]);
    assert!(m.may_start(0));
    m.step(Input::Starting { rank: 0 });
    m.step(Input::Started { rank: 0 });
    assert!(says(&ends_with(&mut m, false)).contains("rank 0 exited with code 127"));
    let over = m.step(died(1, Death::Signal(SIGKILL), Said::Running, 0));
    assert_eq!(ends(&over), Some(127));
}

fn reporting(size: u32) -> Monitor {
    let mut m = started(size);
    m.set_reports(true);
    m
}

#[test]
fn a_lost_rank_is_reported_and_the_job_goes_on() {
    let mut m = reporting(3);
    let killed = |rank| died(rank, Death::Signal(SIGKILL), Said::Running, 7);
    let todo = m.step(killed(1));
    assert_eq!(todo[0], Action::Report { rank: 1 });
    assert!(says(&todo).contains("the others are told") && !m.may_start(1), "{todo:?}");
    let todo = m.step(Input::Lost { rank: 2, protected: false });
    assert_eq!(todo[0], Action::Report { rank: 2 });
    assert!(!todo.contains(&Action::KillAll));
    let todo = m.step(died(0, Death::Exit(0), Said::Nothing, 0));
    assert_eq!(todo, [Action::End { code: 0 }]);
}

#[test]
fn when_nobody_is_left_to_be_told_the_job_ends_with_the_signal() {
    let mut m = reporting(2);
    let todo = m.step(died(0, Death::Exit(0), Said::Nothing, 0));
    assert_eq!(todo, []);
    let todo = m.step(died(1, Death::Signal(SIGSEGV), Said::Running, 7));
    assert!(says(&todo).contains("no rank is left"), "{todo:?}");
    assert_eq!(ends(&todo), Some(128 + SIGSEGV));
}

#[test]
fn an_abort_ends_a_job_that_is_told_of_failures() {
    let mut m = reporting(2);
    let said = Said::Aborted { code: 4, text: String::new() };
    assert!(m.step(Input::Reported { rank: 0, said }).contains(&Action::KillAll));
}
