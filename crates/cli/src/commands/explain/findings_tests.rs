//! Why made-up jobs are as they are.

use super::*;
use crate::show::screen::tests::{job, large, rank};

fn told(job: &JobStatus, about: About) -> String {
    text(&explain(job, about).unwrap())
}

#[test]
fn a_job_in_order_says_so() {
    let fine = job(vec![rank(0, "running"), rank(1, "waiting")]);
    let want = "- nothing is in the way: all ranks run, and can be brought back\n";
    assert_eq!(told(&fine, About::Job), want);
    let text = told(&fine, About::Rank(1));
    assert!(text.starts_with(
        "- rank 1 (pid 1001) waits in an MPI call for others; rank 0 computes\n\
         - checkpoint 3 is 1.2 s old; the next one in 5.0 s\n"
    ));
    assert!(explain(&fine, About::Rank(2)).unwrap_err().contains("no rank 2"));
    assert!(explain(&fine, About::Node(0)).unwrap_err().contains("no nodes"));
}

#[test]
fn what_is_in_the_way_is_told_with_what_helps() {
    let mut bad = job((0..4).map(|r| rank(r, "waiting")).collect());
    let disk = Some(String::from("No space left on device"));
    (bad.ranks[1].no_checkpoint_reason, bad.ranks[2].no_checkpoint_reason) = (disk.clone(), disk);
    bad.ranks[0].checkpoint.as_mut().unwrap().frozen_ms = 4000.0;
    bad.ranks[3].state = "waits-for-log-space".into();
    let text = told(&bad, About::Job);
    assert!(text.contains(
        "- ranks 1-2 are without a newer checkpoint: No space left on device\n  -> make room where"
    ));
    assert!(text.contains("rank 3 cannot send") && text.contains("--log-limit"), "{text}");
    assert!(text.contains("rank 0 stood still for 4.0 s of 30 ms"), "{text}");
    bad.ranks[3].state = "waiting".into();
    assert!(told(&bad, About::Job).contains("all ranks wait in MPI"), "{text}");
    bad.unprotected_reason = Some("the log of rank 1 is full".into());
    let text = told(&bad, About::Rank(0));
    assert!(text.contains("a rank that dies now ends the job: the log of rank 1"), "{text}");
}

#[test]
fn saved_and_ended_jobs_say_how_to_go_on() {
    let mut it = job(vec![rank(0, "dead")]);
    it.phase = "saved".into();
    assert!(told(&it, About::Job).contains("-> eyrie restart k7mq goes on with it"));
    it.phase = "ended".into();
    for (code, want) in [(0, "exit code 0"), (3, "exit code 3"), (139, "signal 11")] {
        it.exit_code = Some(code);
        assert!(told(&it, About::Rank(0)).contains(want), "{code}");
    }
}

#[test]
fn thousands_of_ranks_and_nodes_are_a_page() {
    let text = told(&large(), About::Job);
    assert!(text.lines().count() <= 70, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 300), "{text}");
    assert!(text.contains("nodes 3-11 miss links, too: 1034 in all"), "{text}");
    assert!(text.contains("the same (awaited) holds of nodes "), "{text}");
    assert!(text.contains("-> add a node: eyrie grow k7mq"), "{text}");
    for about in [About::Rank(4095), About::Rank(7), About::Node(0), About::Node(1023)] {
        let text = told(&large(), about);
        assert!(text.lines().all(|line| line.chars().count() <= 300), "{text}");
    }
    let text = told(&large(), About::Node(0));
    assert!(text.contains("node 0 does not reach nodes 4-1023 either"), "{text}");
}
