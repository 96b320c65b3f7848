//! Whether the machines of nodes on the way to the controller give signs, as this gateway's kernel
//! sees it (`protocol::machine`): the controller's own sees no further than the next gateway.
//!
//! Kept true: what most of them lack is this machine's trouble, and nobody is missed for it; the
//! controller's cluster counts as one of them, and a node of this machine as none, as its sign says
//! nothing of the network; time in which nobody looked hardly counts.

use eyrie_control::gateway::Missed;
use eyrie_process::clock::Moment;
use eyrie_protocol::machine::{Company, Machine, Seat, Sign};
use eyrie_protocol::timing::Detector;
use std::collections::BTreeMap;
use std::net::TcpStream;

/// Whose machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// The gateway of the controller's cluster.
    Home,
    Node(u32),
}

/// What this kernel told of each, by all connections to it; none: it does not tell.
pub(super) type Signs = BTreeMap<Whose, Option<Sign>>;

/// Notes a sign of one more connection.
pub(super) fn note(signs: &mut Signs, whose: Whose, sign: Option<Sign>) {
    let known = signs.entry(whose).or_insert(sign);
    *known = match (*known, sign) {
        (Some(one), Some(other)) => Some(one.or(other)),
        (one, other) => one.or(other),
    };
}

/// Whether both ends of a connection are on one machine.
pub(super) fn is_own(socket: &TcpStream) -> bool {
    let ends = (socket.local_addr(), socket.peer_addr());
    matches!(ends, (Ok(here), Ok(there)) if here.ip() == there.ip())
}

/// All that are connected.
pub(super) struct Watch {
    detector: Detector,
    begun: Moment,
    company: Company,
    machines: BTreeMap<Whose, (Machine, Seat)>,
}

impl Watch {
    pub fn new(detector: Detector) -> Watch {
        let (company, machines) = (Company::default(), BTreeMap::new());
        Watch { detector, begun: Moment::now(), company, machines }
    }

    /// A look at those that there are now. Returns who is missed.
    pub fn look(&mut self, signs: &Signs) -> Vec<Missed> {
        self.look_at(signs, self.begun.elapsed().as_millis() as u64)
    }

    fn look_at(&mut self, signs: &Signs, now_ms: u64) -> Vec<Missed> {
        let Watch { detector, company, machines, .. } = self;
        machines.retain(|whose, (_, seat)| {
            let stays = signs.contains_key(whose);
            if !stays {
                company.leaves(*seat);
            }
            stays
        });
        for (whose, sign) in signs {
            let new = || (Machine::new(*detector, now_ms), company.joins());
            let (machine, _) = machines.entry(*whose).or_insert_with(new);
            if machine.wants_look(now_ms) {
                machine.look(*sign, now_ms);
            }
        }
        // After all are known that are quiet.
        let looked = |(machine, seat): &mut (Machine, Seat)| company.looked(seat, machine, now_ms);
        let first: Vec<bool> = machines.values_mut().map(looked).collect();
        let mut missed = Vec::new();
        for ((whose, (machine, seat)), gone) in machines.iter_mut().zip(first) {
            let gone = company.looked(seat, machine, now_ms) && gone;
            if let Whose::Node(node) = *whose
                && gone
            {
                missed.push(Missed { node, silent_ms: machine.silent_ms() });
            }
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST_MS: u64 = Detector::DEFAULT.silence_least_ms;

    const WELL: Option<Sign> = Some(Sign { due: true, age_ms: 20 });
    const NONE: Option<Sign> = Some(Sign { due: true, age_ms: u64::MAX });
    const NOBODY: [u32; 0] = [];

    fn signs(home: Option<Sign>, nodes: &[Option<Sign>]) -> Signs {
        let nodes = (0..).zip(nodes).map(|(node, sign)| (Whose::Node(node), *sign));
        std::iter::once((Whose::Home, home)).chain(nodes).collect()
    }

    /// Who is missed in this time.
    fn missed(watch: &mut Watch, signs: &Signs, from_ms: u64, to_ms: u64) -> Vec<u32> {
        let times = (from_ms..to_ms).step_by(100);
        let mut all: Vec<u32> =
            times.flat_map(|now| watch.look_at(signs, now)).map(|m| m.node).collect();
        all.dedup();
        all
    }

    #[test]
    fn a_machine_without_a_sign_is_missed_and_not_those_of_a_gateway_that_is_cut_off() {
        for (home, nodes, expected) in [
            (WELL, vec![NONE], vec![0]),
            (WELL, vec![WELL, NONE, WELL], vec![1]),
            (NONE, vec![NONE], vec![]),
            (NONE, vec![NONE, NONE, WELL], vec![]),
            // What is beyond is well, and no node is: it is the gateway's way to them.
            (WELL, vec![NONE, NONE], vec![]),
            (WELL, vec![WELL, None], vec![]),
        ] {
            let mut watch = Watch::new(Detector::DEFAULT);
            assert_eq!(
                missed(&mut watch, &signs(WELL, &vec![WELL; nodes.len()]), 0, 2_000),
                NOBODY
            );
            let found = missed(&mut watch, &signs(home, &nodes), 2_000, 4_000);
            assert_eq!(found, expected, "{home:?} {nodes:?}");
        }
    }

    #[test]
    fn who_is_not_connected_any_more_does_not_count() {
        let mut watch = Watch::new(Detector::DEFAULT);
        missed(&mut watch, &signs(NONE, &[NONE, WELL]), 0, 1_000);
        assert_eq!(missed(&mut watch, &signs(WELL, &[WELL]), 1_000, 1_000 + LEAST_MS), NOBODY);
        assert_eq!(watch.machines.len(), 2);
        let from = 1_100 + LEAST_MS;
        assert_eq!(missed(&mut watch, &signs(WELL, &[NONE]), from, from + 3_000), [0]);
    }

    #[test]
    fn of_several_connections_the_best_sign_counts() {
        let mut signs = Signs::new();
        let old = Some(Sign { due: true, age_ms: 9_000 });
        for sign in [None, old, Some(Sign { due: false, age_ms: 40 }), None] {
            note(&mut signs, Whose::Node(3), sign);
        }
        assert_eq!(signs[&Whose::Node(3)], Some(Sign { due: true, age_ms: 40 }));
    }
}
