//! Connections that are made again: by chance, with each mistake, and cases by hand.

use super::*;
use crate::testing::Random;

/// What a careless controller would do.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// One end is enough.
    OneEnd,
    /// Answers to earlier steps count.
    OldAnswers,
    /// The same end calls in each attempt.
    NoTurns,
}

/// The ends that the nodes have, and in which attempt each was made.
struct World {
    chance: Random,
    mistake: Mistake,
    /// Connections whose first caller has an old one fading, for ever.
    fading: BTreeMap<Link, u32>,
    made: BTreeMap<(u32, Link), u64>,
}

fn place(node: u32, links: &[(Link, u32, u32)]) -> NodeEnds {
    let at = |node: u32, link: Link| {
        SocketAddr::new(IpAddr::from([10, 0, 0, node as u8]), 1000 + link[1] as u16)
    };
    let end = |(link, a, b): &(Link, u32, u32)| {
        let other = if *a == node { b } else { a };
        let (own, peer) = (at(node, *link), at(*other, *link));
        [a, b].contains(&&node).then_some(ImageEnd { link: *link, own, peer, has: true })
    };
    let ends = links.iter().filter_map(end).collect();
    NodeEnds { network: vec![node as u8], here: at(node, [0, 0]).ip(), ends }
}

impl World {
    /// What becomes of the ends of an attempt, by node.
    fn attempt(
        &mut self,
        turn: u64,
        calls: &BTreeMap<u32, Vec<Call>>,
    ) -> BTreeMap<u32, Vec<(Link, String)>> {
        let mut failed: BTreeMap<u32, Vec<(Link, String)>> =
            calls.keys().map(|n| (*n, Vec::new())).collect();
        let mut ends: BTreeMap<Link, Vec<(u32, Call)>> = BTreeMap::new();
        for (node, call) in calls.iter().flat_map(|(n, c)| c.iter().map(|c| (*n, *c))) {
            ends.entry(call.link).or_default().push((node, call));
            self.made.remove(&(node, call.link));
        }
        for (link, both) in ends {
            let [(a, one), (b, other)] = both[..] else { panic!("{both:?}") };
            assert_ne!(one.calls, other.calls, "one calls, and one listens");
            assert_eq!((one.own, one.peer), (other.peer, other.own));
            let mut caller = if one.calls { a } else { b };
            if self.mistake == Mistake::NoTurns {
                caller = a.max(b);
            }
            let fades = self.fading.get(&link) == Some(&caller);
            // Either may be cut off between the call and the last byte, after the other is done.
            let mut lost = || self.chance.below(6) == 0;
            let lost = [lost(), lost()];
            for (node, lost) in [a, b].into_iter().zip(lost) {
                match fades || lost {
                    true => failed.entry(node).or_default().push((link, "cut".into())),
                    false => drop(self.made.insert((node, link), turn)),
                }
            }
        }
        if self.mistake == Mistake::OneEnd {
            // Only what both nodes complain about is known as failed.
            let all: Vec<Link> = failed.values().flatten().map(|f| f.0).collect();
            let twice = |l: &Link| all.iter().filter(|o| *o == l).count() > 1;
            failed.values_mut().for_each(|f| f.retain(|(l, _)| twice(l)));
        }
        failed
    }
}

/// What a node says: of an attempt, what failed.
struct Answer {
    node: u32,
    turn: u64,
    failed: Option<Vec<(Link, String)>>,
}

fn run(seed: u64, mistake: Mistake) -> Result<(), String> {
    let mut chance = Random::new(seed);
    let nodes = 2 + chance.below(4) as u32;
    let mut links = Vec::new();
    for number in 0..chance.below(7) {
        let a = chance.below(u64::from(nodes)) as u32;
        let b = (a + 1 + chance.below(u64::from(nodes) - 1) as u32) % nodes;
        links.push(([0, number + 1], a, b));
    }
    let fading = links.iter().filter(|l| l.1 % 2 == 0).map(|l| (l.0, l.1.max(l.2))).collect();
    let mut world = World { chance, mistake, fading, made: BTreeMap::new() };
    let mut rejoin = SocketRestore::new((0..nodes).collect(), 1);
    let look = |node| Answer { node, turn: 1, failed: None };
    let mut said: Vec<Answer> = (0..nodes).map(look).collect();
    let (mut attempts, mut settling) = (Vec::new(), false);
    while !said.is_empty() {
        let at = world.chance.below(said.len() as u64) as usize;
        let mut answer = said.swap_remove(at);
        if world.chance.below(4) == 0 && !attempts.is_empty() && !settling {
            // What a node said of an attempt comes once more.
            let (node, turn) = attempts[world.chance.below(attempts.len() as u64) as usize];
            said.push(answer);
            let turn = if mistake == Mistake::OldAnswers { rejoin.turn() } else { turn };
            let again = turn < rejoin.turn() || mistake == Mistake::OldAnswers;
            let Some(failed) = again.then(Vec::new) else { continue };
            answer = Answer { node, turn, failed: Some(failed) };
        }
        let Answer { node, turn, failed } = answer;
        let step = match failed {
            Some(failed) => rejoin.joined(node, turn, failed),
            None if settling => rejoin.settled(node, turn),
            None => rejoin.looked(node, turn, place(node, &links)),
        };
        match step {
            Some(Step::Join(calls)) => {
                let turn = rejoin.turn();
                let failed = world.attempt(turn, &calls);
                attempts.extend(failed.keys().map(|node| (*node, turn)));
                let answer = |(node, failed)| Answer { node, turn, failed: Some(failed) };
                said.extend(failed.into_iter().map(answer));
            }
            Some(Step::Settle) => {
                settling = true;
                let turn = rejoin.turn();
                said.extend((0..nodes).map(|node| Answer { node, turn, failed: None }));
            }
            Some(Step::Over) => return over(&world, &links),
            // Chance may have it that none of the attempts succeeds.
            Some(Step::Refused { .. }) if mistake == Mistake::None => return Ok(()),
            Some(step) => return Err(format!("{step:?}")),
            None => {}
        }
    }
    Err("nobody is awaited, and it is not over".into())
}

/// All connections are there at both ends, each of one attempt.
fn over(world: &World, links: &[(Link, u32, u32)]) -> Result<(), String> {
    for (link, a, b) in links {
        let made = [a, b].map(|node| world.made.get(&(*node, *link)));
        if made[0].is_none() || made[0] != made[1] {
            return Err(format!("{link:?} is not one connection: {made:?}"));
        }
    }
    Ok(())
}

#[test]
fn ranks_run_when_both_ends_of_every_connection_are_of_one_attempt() {
    for seed in 1..3000 {
        assert_eq!(run(seed, Mistake::None), Ok(()), "seed {seed}");
    }
}

#[test]
fn each_mistake_is_found() {
    for mistake in [Mistake::OneEnd, Mistake::OldAnswers, Mistake::NoTurns] {
        let found = (1..3000).any(|seed| run(seed, mistake).is_err());
        assert!(found);
    }
}

fn two(own: [&str; 2], networks: [u8; 2], has: bool) -> BTreeMap<u32, Vec<Call>> {
    let mut rejoin = SocketRestore::new(BTreeSet::from([0, 1]), 1);
    let [a, b]: [SocketAddr; 2] = own.map(|a| a.parse().unwrap());
    let place = |node: usize, own, peer| NodeEnds {
        network: vec![networks[node]],
        here: IpAddr::from([10, 0, 0, node as u8 + 1]),
        ends: vec![ImageEnd { link: [0, 1], own, peer, has }],
    };
    assert_eq!(rejoin.looked(0, 1, place(0, a, b)), None);
    match rejoin.looked(1, 1, place(1, b, a)) {
        Some(Step::Join(calls)) => calls,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_end_keeps_its_address_where_that_means_the_same() {
    let own = |calls: &BTreeMap<u32, Vec<Call>>| [0, 1].map(|n| calls[&n][0].own.to_string());
    let near = ["127.0.0.1:5", "127.0.0.1:7"];
    assert_eq!(own(&two(near, [1, 1], true)), near);
    assert_eq!(own(&two(near, [1, 2], true)), ["10.0.0.1:5", "10.0.0.2:7"]);
    let far = ["10.9.0.1:5", "10.9.0.2:7"];
    assert_eq!(own(&two(far, [1, 2], true)), far);
    assert_eq!(own(&two(far, [1, 2], false)), ["10.0.0.1:5", "10.0.0.2:7"]);
}

#[test]
fn an_end_without_another_one_is_refused() {
    let mut rejoin = SocketRestore::new(BTreeSet::from([3]), 1);
    let links = [([0, 1], 3, 4)];
    assert!(matches!(rejoin.looked(3, 1, place(3, &links)), Some(Step::Refused { node: 3, .. })));
}

#[test]
fn what_fails_again_and_again_is_given_up() {
    let mut rejoin = SocketRestore::new(BTreeSet::from([0, 1]), 1);
    let links = [([0, 1], 0, 1)];
    rejoin.looked(0, 1, place(0, &links));
    let mut step = rejoin.looked(1, 1, place(1, &links));
    let mut attempts = 0;
    while let Some(Step::Join(_)) = step {
        attempts += 1;
        let turn = rejoin.turn();
        rejoin.joined(0, turn, vec![([0, 1], "in use".into())]);
        step = rejoin.joined(1, turn, vec![]);
    }
    assert_eq!(step, Some(Step::Refused { node: 0, why: "in use".into() }));
    assert_eq!(attempts, MAX_ATTEMPTS);
}
