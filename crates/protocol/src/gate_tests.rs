//! The gate alone and against replicas behind connections that break.

use super::*;
use crate::replicas::Replicas;
use crate::testing::Random;
use std::collections::VecDeque;

const OWN: Member = Member { node: 1, epoch: 3 };

fn member(node: u32) -> Member {
    Member { node, epoch: u64::from(node) + 10 }
}

/// A determinant log in ordinary memory.
#[derive(Default, Clone)]
struct Log {
    trim: u64,
    words: Vec<u64>,
}

#[derive(Default)]
struct Logs(Vec<Log>);

impl DetLogs for Logs {
    fn tail(&self, rank: u32) -> u64 {
        self.0[rank as usize].words.len() as u64
    }
    fn trim(&self, rank: u32) -> u64 {
        self.0[rank as usize].trim
    }
    fn word(&self, rank: u32, at: u64) -> u64 {
        let log = &self.0[rank as usize];
        assert!(at >= log.trim, "a trimmed word is read");
        log.words[at as usize]
    }
}

const RUN: u64 = 1 << 56;

impl Logs {
    fn record(&mut self, rank: u32, word: u64) {
        self.0[rank as usize].words.push(word);
    }

    fn poll_in_vain(&mut self, rank: u32) {
        match self.0[rank as usize].words.last_mut() {
            Some(last) if *last >= RUN => *last += 1,
            _ => self.record(rank, RUN | 1),
        }
    }
}

#[test]
fn without_replicas_nothing_waits() {
    let mut gate = Gate::new(OWN, 1);
    let mut logs = Logs(vec![Log::default()]);
    gate.set_members(&[OWN]);
    gate.attach(0, &logs);
    logs.record(0, 7);
    let ticket = gate.sample(&logs);
    assert!(gate.may_leave(ticket, None) && gate.short_of() == 1);
}

#[test]
fn what_leaves_waits_for_all_replicas_but_not_for_what_comes_later() {
    let mut gate = Gate::new(OWN, 2);
    let mut logs = Logs(vec![Log::default(); 2]);
    gate.set_members(&[OWN, member(0), member(2), member(3)]);
    assert_eq!(gate.replicas().collect::<Vec<_>>(), [member(2), member(3)]);
    gate.attach(0, &logs);
    logs.record(0, 7);
    let ticket = gate.sample(&logs);
    for peer in [member(2), member(3)] {
        assert!(!gate.may_leave(ticket, None));
        gate.connected(peer);
        let frame = gate.next_frame(peer, &logs).unwrap();
        assert_eq!(frame.pieces, [Piece { rank: 0, first: 0, base: true, words: vec![7] }]);
        assert!(!gate.may_leave(ticket, None) && !gate.may_leave(ticket, Some(peer)));
        gate.acked(peer, frame.upto.unwrap());
    }
    assert!(gate.may_leave(ticket, None));
    assert_eq!(gate.sample(&logs), ticket, "nothing new: nothing to wait for");
    logs.poll_in_vain(0);
    let polled = gate.sample(&logs);
    assert!(gate.may_leave(ticket, None) && !gate.may_leave(polled, None));
    logs.poll_in_vain(0);
    assert!(gate.sample(&logs) > polled, "a run that grows in place is news");
}

#[test]
fn the_only_replica_may_be_told_without_a_wait() {
    let mut gate = Gate::new(OWN, 1);
    let mut logs = Logs(vec![Log::default()]);
    gate.set_members(&[OWN, member(2)]);
    gate.attach(0, &logs);
    logs.record(0, 7);
    let ticket = gate.sample(&logs);
    gate.connected(member(2));
    assert!(!gate.may_leave(ticket, Some(member(2))), "not on the connection yet");
    assert!(gate.next_frame(member(2), &logs).is_some());
    assert!(gate.may_leave(ticket, Some(member(2))) && !gate.may_leave(ticket, None));
    gate.disconnected(member(2));
    assert!(!gate.may_leave(ticket, Some(member(2))));
}

#[test]
fn a_newcomer_pushes_nobody_out_and_a_successor_gets_everything() {
    let mut gate = Gate::new(OWN, 1);
    let mut logs = Logs(vec![Log::default()]);
    gate.set_members(&[OWN, member(3)]);
    gate.attach(0, &logs);
    logs.record(0, 7);
    logs.record(0, 8);
    logs.0[0].trim = 1;
    let ticket = gate.sample(&logs);
    gate.connected(member(3));
    let frame = gate.next_frame(member(3), &logs).unwrap();
    gate.acked(member(3), frame.upto.unwrap());
    gate.set_members(&[OWN, member(2), member(3)]);
    assert_eq!(gate.replicas().collect::<Vec<_>>(), [member(3)]);
    assert!(gate.may_leave(ticket, None));
    gate.set_members(&[OWN, member(2)]);
    assert!(!gate.may_leave(ticket, None), "the successor holds nothing yet");
    gate.connected(member(2));
    let frame = gate.next_frame(member(2), &logs).unwrap();
    assert_eq!(frame.pieces, [Piece { rank: 0, first: 1, base: true, words: vec![8] }]);
}

#[test]
fn a_long_log_goes_in_several_frames() {
    let mut gate = Gate::new(OWN, 1);
    let mut logs = Logs(vec![Log::default(); 3]);
    gate.set_members(&[OWN, member(2)]);
    for rank in 0..3 {
        gate.attach(rank, &logs);
        logs.0[rank as usize].words = (0..FRAME_WORDS as u64 + 5).collect();
    }
    let ticket = gate.sample(&logs);
    gate.connected(member(2));
    let mut held = Replicas::default();
    let mut frames = 0;
    while let Some(frame) = gate.next_frame(member(2), &logs) {
        frames += 1;
        assert!(frame.pieces.iter().map(|p| p.words.len()).sum::<usize>() <= FRAME_WORDS);
        assert_eq!(gate.may_leave(ticket, Some(member(2))), frame.upto.is_some());
        if let Some(upto) = held.take(OWN, &frame).unwrap() {
            gate.acked(member(2), upto);
        }
    }
    assert!(frames == 4 && gate.may_leave(ticket, None));
    for rank in 0..3 {
        assert_eq!(held.answer(&[rank]).held[&rank].words, logs.0[rank as usize].words);
    }
}

/// A replica on the other end of a connection that may be cut.
struct Far {
    member: Member,
    held: Replicas,
    /// Frames on their way there, acknowledgements on their way back.
    there: VecDeque<ToReplica>,
    back: VecDeque<u64>,
    connected: bool,
}

/// Cuts, deaths, newcomers, polls, trims in random order: whatever may leave is held by every live
/// node that was ever in step.
#[test]
fn what_may_leave_is_held_by_all_who_are_in_step() {
    for seed in 0..1500u64 {
        let mut random = Random::new(seed);
        let (mut gate, mut logs) = (Gate::new(OWN, 1 + random.below(2) as usize), Logs::default());
        logs.0 = vec![Log::default(); 2];
        (0..2).for_each(|rank| gate.attach(rank, &logs));
        let mut next = 20;
        let mut far: Vec<Far> = Vec::new();
        let mut waiting: Vec<(Ticket, Vec<Vec<u64>>)> = Vec::new();
        for _ in 0..150 {
            turn(&mut random, &mut gate, &mut logs, &mut far, &mut next);
            let ticket = gate.sample(&logs);
            waiting.push((ticket, logs.0.iter().map(|l| l.words.clone()).collect()));
            for (ticket, then) in &waiting {
                if gate.may_leave(*ticket, None) && gate.replicas().count() > 0 {
                    check(seed, &far, &logs, then);
                }
            }
            waiting.retain(|(ticket, _)| !gate.may_leave(*ticket, None));
        }
    }
}

fn check(seed: u64, far: &[Far], logs: &Logs, then: &[Vec<u64>]) {
    let in_step: Vec<_> =
        far.iter().map(|f| f.held.answer(&[0, 1])).filter(|a| a.in_step.contains(&OWN)).collect();
    assert!(!in_step.is_empty(), "seed {seed}: nobody holds what left");
    for answer in in_step {
        for (rank, words) in (0u32..).zip(then) {
            let held = answer.held.get(&rank).cloned().unwrap_or_default();
            for at in logs.trim(rank)..words.len() as u64 {
                assert!(held.first <= at && at < held.end(), "seed {seed}: lost");
                let word = held.words[(at - held.first) as usize];
                assert!(word >= words[at as usize], "seed {seed}: older");
            }
        }
    }
}

fn turn(random: &mut Random, gate: &mut Gate, logs: &mut Logs, far: &mut Vec<Far>, next: &mut u32) {
    let rank = random.below(2) as u32;
    let one = random.below(8) as usize;
    match random.below(12) {
        0..=2 => logs.record(rank, random.below(1000)),
        3 => logs.poll_in_vain(rank),
        4 => {
            let log = &mut logs.0[rank as usize];
            log.trim = (log.trim + random.below(3)).min(log.words.len() as u64);
            let (trim, rank) = (log.trim, rank);
            far.iter_mut().for_each(|f| f.held.trim(rank, trim));
        }
        5 => {
            if random.below(3) == 0 && !far.is_empty() {
                far.remove(one % far.len());
            } else if far.len() < 4 {
                *next = 20 + (*next + 7) % 13;
                let member = Member { node: *next, epoch: random.below(1 << 40) };
                let (there, back) = Default::default();
                far.push(Far { member, held: Replicas::default(), there, back, connected: false });
            }
            let members: Vec<Member> = far.iter().map(|f| f.member).collect();
            gate.set_members(&members);
        }
        6 => {
            if let Some(f) = far.get_mut(one) {
                f.there.clear();
                f.back.clear();
                f.connected = !f.connected;
                let tell = if f.connected { Gate::connected } else { Gate::disconnected };
                tell(gate, f.member);
            }
        }
        _ => {
            let Some(f) = far.get_mut(one) else { return };
            if f.connected
                && let Some(frame) = gate.next_frame(f.member, logs)
            {
                f.there.push_back(frame);
            }
            if random.below(2) == 0
                && let Some(frame) = f.there.pop_front()
            {
                let ack = f.held.take(OWN, &frame).unwrap();
                f.back.extend(ack);
            }
            if random.below(2) == 0
                && let Some(ack) = f.back.pop_front()
            {
                gate.acked(f.member, ack);
            }
        }
    }
}
