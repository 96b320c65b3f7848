//! Members that are driven by hand; `tests/sim` has the kind with failures at any moment.

use super::*;

/// The least of all, and who has failed.
#[derive(Debug, Clone, PartialEq)]
struct Least(u32, Vec<u32>);

impl Value for Least {
    fn merge(&mut self, other: &Least) {
        self.0 = self.0.min(other.0);
    }

    fn without(&mut self, failed: &Members) {
        self.1 = failed.iter().collect();
    }
}

/// Members, and what is on its way: from, to, what.
struct Group {
    all: Vec<Consensus<Least>>,
    dead: Vec<u32>,
    way: Vec<(u32, u32, Message<Least>)>,
}

impl Group {
    fn new(size: u32) -> Group {
        let all = (0..size).map(|m| Consensus::new(m, size)).collect();
        Group { all, dead: Vec::new(), way: Vec::new() }
    }

    fn send(&mut self, from: u32, out: Out<Least>) {
        self.way.extend(out.into_iter().map(|(to, message)| (from, to, message)));
    }

    fn contribute(&mut self, member: u32, value: u32) {
        let out = self.all[member as usize].contribute(Least(value, Vec::new()));
        self.send(member, out);
    }

    /// Delivers what is on its way, one after the other, as long as there is something.
    fn run(&mut self) {
        while !self.way.is_empty() {
            let (from, to, message) = self.way.remove(0);
            if !self.dead.contains(&to) {
                let out = self.all[to as usize].hear(from, message);
                self.send(to, out);
            }
        }
    }

    /// A member fails; what it has on its way is lost, and all hear of it.
    fn kill(&mut self, member: u32) {
        self.dead.push(member);
        self.way.retain(|(from, ..)| *from != member);
        for other in
            (0..self.all.len() as u32).filter(|m| !self.dead.contains(m)).collect::<Vec<_>>()
        {
            let out = self.all[other as usize].fail(member);
            self.send(other, out);
        }
    }

    fn decided(&self, member: u32) -> Option<(u32, Vec<u32>)> {
        self.all[member as usize].decided().map(|v| (v.0, v.1.clone()))
    }
}

#[test]
fn all_decide_when_all_have_called() {
    for size in 1..20 {
        let mut group = Group::new(size);
        for member in (1..size).rev() {
            group.contribute(member, 100 + member);
        }
        group.run();
        assert!((1..size).all(|m| group.decided(m).is_none()), "{size}");
        group.contribute(0, 1000);
        group.run();
        let least = if size == 1 { 1000 } else { 101 };
        for member in 0..size {
            assert_eq!(group.decided(member), Some((least, vec![])), "{member} of {size}");
        }
    }
}

#[test]
fn nobody_waits_for_who_has_failed() {
    for size in 2..12 {
        for dead in 0..size {
            let mut group = Group::new(size);
            for member in (0..size).filter(|m| *m != dead) {
                group.contribute(member, 100 + member);
            }
            group.run();
            assert!((0..size).all(|m| group.decided(m).is_none()));
            group.kill(dead);
            group.run();
            let least = if dead == 0 { 101 } else { 100 };
            for member in (0..size).filter(|m| *m != dead) {
                assert_eq!(
                    group.decided(member),
                    Some((least, vec![dead])),
                    "{member}, {dead} failed"
                );
            }
        }
    }
}

#[test]
fn what_one_has_returned_with_all_decide_though_it_and_the_first_are_dead() {
    let mut group = Group::new(4);
    (0..4).for_each(|m| group.contribute(m, 7 + m));
    // Until the first member has told one other of the decision.
    while group.all[1].decided().is_none() {
        let (from, to, message) = group.way.remove(0);
        let out = group.all[to as usize].hear(from, message);
        group.send(to, out);
    }
    assert!(group.all[3].decided().is_none());
    group.kill(0);
    group.kill(1);
    group.run();
    for member in 0..4 {
        assert_eq!(group.decided(member), Some((7, vec![])), "{member}");
    }
}

fn least(value: u32) -> Least {
    Least(value, Vec::new())
}

#[test]
fn a_lock_for_a_ballot_that_is_over_is_not_taken() {
    let mut third = Consensus::new(2, 4);
    third.contribute(least(9));
    third.hear(1, Message::Lock { ballot: 1, value: least(5) });
    // On its way since before.
    third.hear(0, Message::Lock { ballot: 0, value: least(3) });
    third.fail(1);
    let mut who = Members::none(4);
    who.insert(3);
    let out = third.hear(3, Message::Given { who, value: least(1) });
    let lock = Message::Lock { ballot: 2, value: least(5) };
    assert!(out.iter().any(|(to, message)| *to == 3 && *message == lock), "{out:?}");
}

#[test]
fn who_has_locked_for_an_earlier_ballot_does_not_count() {
    let mut second = Consensus::new(1, 3);
    second.contribute(least(9));
    let mut who = Members::none(3);
    who.insert(2);
    second.hear(2, Message::Given { who: who.clone(), value: least(8) });
    second.fail(0);
    second.hear(2, Message::Locked { ballot: 0, who: who.clone() });
    assert_eq!(second.decided(), None);
    second.hear(2, Message::Locked { ballot: 1, who });
    assert_eq!(second.decided().map(|v| v.0), Some(8));
}

#[test]
fn sets_of_members_are_what_they_are_told() {
    let mut some = Members::none(70);
    [3, 64, 69, 70].into_iter().for_each(|m| some.insert(m));
    assert_eq!(some.iter().collect::<Vec<_>>(), [3, 64, 69, 70]);
    some = Members::of_words(some.words(), 70);
    assert_eq!(some.iter().collect::<Vec<_>>(), [3, 64, 69]);
    assert!(some.are_in(&Members::all(70)) && !Members::all(70).are_in(&some));
    some.remove(3);
    assert_eq!((some.first(), some.contains(64), some.contains(3)), (Some(64), true, false));
    let mut both = Members::all(70);
    both.keep(&some);
    assert_eq!(both, some);
    both.add(&Members::of_words(&[1], 70));
    assert_eq!(both.first(), Some(0));
    assert!(Members::none(70).is_empty() && Members::none(70).first().is_none());
}
