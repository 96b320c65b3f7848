//! The pause of a router around a checkpoint of one of its ranks: the Eagle paper's ten steps.
//!
//!  1. The controller tells the router of the rank to stop (`PauseOrder::Pause`).
//!  2. The router sends what it has begun, and behind it a mark.
//!  3. The rank's node, which takes messages for the rank, answers the mark when it has taken all
//!     before it.
//!  4. The router tells the controller.
//!  5. The controller orders the checkpoint (`PauseOrder::Checkpoint`).
//!  6. The node stops the rank.
//!  7. The rank goes on, and its node lets the router go on.
//!  8. The image is written, and copied.
//!  9. Its node tells the controller.
//! 10. The controller tells the router what it may give up: a floor, as all nodes are told.
//!
//! Pure, both ends. A pause has the number of its checkpoint (`generation`), which is used once.
//!
//! Kept true: a router that was told to stop is told to go on, whatever becomes of the checkpoint
//! (`Pauses::over`, `Pauses::lost`); a checkpoint whose router is lost waits for the next router,
//! or for none; a router never says that it stands before the mark that came behind all it had sent
//! is answered; an order that comes late, or twice, changes nothing.

use crate::membership::Member;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the controller is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseOrder {
    /// Tell the router to stop what goes to the rank.
    Pause { to: Member, rank: u32, generation: u32 },
    /// Nothing is on its way to the rank: have its checkpoint taken. With `hold` it does not go on.
    Checkpoint { rank: u32, generation: u32, hold: bool },
    /// Tell the router that this checkpoint is over.
    Resume { to: Member, rank: u32, generation: u32 },
}

/// A checkpoint of a rank that has a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    generation: u32,
    router: Member,
    hold: bool,
    /// The router stands, and the checkpoint was ordered.
    ordered: bool,
}

/// The controller's end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pauses {
    asked: BTreeMap<u32, Asked>,
}

impl Pauses {
    /// A checkpoint is due. `router`: of the rank, if it has one.
    pub fn begin(
        &mut self,
        rank: u32,
        generation: u32,
        hold: bool,
        router: Option<Member>,
    ) -> PauseOrder {
        let Some(router) = router else { return PauseOrder::Checkpoint { rank, generation, hold } };
        self.asked.insert(rank, Asked { generation, router, hold, ordered: false });
        PauseOrder::Pause { to: router, rank, generation }
    }

    /// A router says that it stands.
    pub fn stands(&mut self, from: Member, rank: u32, generation: u32) -> Option<PauseOrder> {
        let asked = self.asked.get_mut(&rank)?;
        if asked.generation != generation || asked.router != from || asked.ordered {
            return None;
        }
        asked.ordered = true;
        Some(PauseOrder::Checkpoint { rank, generation, hold: asked.hold })
    }

    /// This checkpoint of the rank was taken, or could not be.
    pub fn over(&mut self, rank: u32, generation: u32) -> Option<PauseOrder> {
        let is_it = self.asked.get(&rank).is_some_and(|a| a.generation == generation);
        if is_it { self.lost(rank) } else { None }
    }

    /// The process that was to be checkpointed is gone.
    pub fn lost(&mut self, rank: u32) -> Option<PauseOrder> {
        let Asked { generation, router, .. } = self.asked.remove(&rank)?;
        Some(PauseOrder::Resume { to: router, rank, generation })
    }

    /// The rank need not stand after its checkpoint any more. Of one that was ordered already its
    /// node is to be told.
    pub fn let_go(&mut self, rank: u32) {
        if let Some(asked) = self.asked.get_mut(&rank) {
            asked.hold = false;
        }
    }

    /// Whether a checkpoint of the rank waits for its router. Its node knows nothing of it then.
    pub fn waits(&self, rank: u32) -> bool {
        self.asked.get(&rank).is_some_and(|a| !a.ordered)
    }

    /// Whom checkpoints wait for.
    pub fn awaited(&self) -> impl Iterator<Item = Member> {
        self.asked.values().filter(|a| !a.ordered).map(|a| a.router)
    }

    /// The members have changed: `router` says who routes for a rank now.
    pub fn exchange(&mut self, router: impl Fn(u32) -> Option<Member>) -> Vec<PauseOrder> {
        let mut orders = Vec::new();
        for (&rank, asked) in self.asked.iter_mut().filter(|(_, a)| !a.ordered) {
            let (generation, hold) = (asked.generation, asked.hold);
            match router(rank) {
                Some(now) if now == asked.router => {}
                Some(to) => {
                    asked.router = to;
                    orders.push(PauseOrder::Pause { to, rank, generation });
                }
                None => {
                    asked.ordered = true;
                    orders.push(PauseOrder::Checkpoint { rank, generation, hold });
                }
            }
        }
        orders
    }

    /// All ranks go back to the beginning: no router knows of anything.
    pub fn clear(&mut self) {
        self.asked.clear();
    }
}

/// What a router has been told of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Paused {
    generation: u32,
    /// The mark is on the connection that stands.
    marked: bool,
    /// It was answered.
    settled: bool,
}

/// The router's end.
#[derive(Debug, Clone, Default)]
pub struct RouterPauses {
    held: BTreeMap<u32, Paused>,
    /// The last checkpoint of each rank that is over.
    over: BTreeMap<u32, u32>,
}

impl RouterPauses {
    /// Nothing more goes to the rank. False: that is over already, or known.
    pub fn pause(&mut self, rank: u32, generation: u32) -> bool {
        let late = self.over.get(&rank).is_some_and(|over| *over >= generation);
        let known = self.held.get(&rank).is_some_and(|h| h.generation >= generation);
        if !late && !known {
            self.held.insert(rank, Paused { generation, marked: false, settled: false });
        }
        !late && !known
    }

    /// Whether nothing may go to the rank.
    pub fn holds(&self, rank: u32) -> bool {
        self.held.contains_key(&rank)
    }

    /// Ranks to which a mark is to be sent. A connection to their nodes is wanted.
    pub fn unmarked(&self) -> impl Iterator<Item = u32> {
        self.held.iter().filter(|(_, h)| !h.marked && !h.settled).map(|(rank, _)| *rank)
    }

    /// The mark of a rank goes on its node's connection now. Returns its number.
    pub fn mark(&mut self, rank: u32) -> Option<u32> {
        let held = self.held.get_mut(&rank).filter(|h| !h.marked && !h.settled)?;
        held.marked = true;
        Some(held.generation)
    }

    /// The connection to the node of these ranks is another one: marks on the old one are lost.
    pub fn reconnected(&mut self, there: impl Fn(u32) -> bool) {
        self.held.iter_mut().filter(|(rank, _)| there(**rank)).for_each(|(_, h)| h.marked = false);
    }

    /// The mark was answered on the connection that stands. True: the controller is to be told.
    pub fn answered(&mut self, rank: u32, generation: u32) -> bool {
        let held = self.held.get_mut(&rank);
        let Some(held) = held.filter(|h| h.generation == generation && h.marked && !h.settled)
        else {
            return false;
        };
        held.settled = true;
        true
    }

    /// The rank goes on, or its checkpoint is over. True: messages go to it again.
    pub fn resume(&mut self, rank: u32, generation: u32) -> bool {
        let over = self.over.entry(rank).or_default();
        *over = (*over).max(generation);
        let paused = self.held.get(&rank).is_some_and(|h| h.generation <= generation);
        if paused {
            self.held.remove(&rank);
        }
        paused
    }

    /// This node does not route for the rank any more, or the rank is elsewhere: its process is
    /// another one, or will be. It may be asked again.
    pub fn forget(&mut self, rank: u32) -> bool {
        self.held.remove(&rank).is_some()
    }

    /// Whether it stands, and all that was sent to the rank is there: its mark was answered.
    pub fn is_settled(&self, rank: u32) -> bool {
        self.held.get(&rank).is_some_and(|h| h.settled)
    }

    /// The checkpoint that it stands for.
    pub fn stands_for(&self, rank: u32) -> Option<u32> {
        self.held.get(&rank).map(|h| h.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTERS: [Member; 2] = [Member { node: 4, epoch: 5 }, Member { node: 5, epoch: 6 }];

    #[test]
    fn a_checkpoint_waits_for_its_router_and_for_no_other() {
        let mut pauses = Pauses::default();
        let [router, other] = ROUTERS;
        let pause = PauseOrder::Pause { to: router, rank: 1, generation: 7 };
        assert_eq!(pauses.begin(1, 7, true, Some(router)), pause);
        assert!(pauses.waits(1));
        assert_eq!(pauses.stands(other, 1, 7), None);
        assert_eq!(pauses.stands(router, 1, 6), None);
        let taken = Some(PauseOrder::Checkpoint { rank: 1, generation: 7, hold: true });
        assert_eq!(pauses.stands(router, 1, 7), taken);
        assert_eq!(pauses.stands(router, 1, 7), None);
        assert!(!pauses.waits(1));
        let resume = Some(PauseOrder::Resume { to: router, rank: 1, generation: 7 });
        assert_eq!(pauses.over(1, 6), None);
        assert_eq!((pauses.over(1, 7), pauses.lost(1)), (resume, None));
    }

    #[test]
    fn a_rank_that_is_let_go_while_its_router_is_waited_for_does_not_stand() {
        let mut pauses = Pauses::default();
        let [router, other] = ROUTERS;
        pauses.begin(1, 7, true, Some(router));
        pauses.begin(2, 3, true, Some(router));
        pauses.let_go(1);
        pauses.let_go(5);
        let taken = |rank, generation, hold| PauseOrder::Checkpoint { rank, generation, hold };
        assert_eq!(pauses.stands(router, 1, 7), Some(taken(1, 7, false)));
        pauses.let_go(2);
        pauses.exchange(|_| Some(other));
        assert_eq!(pauses.exchange(|_| None), [taken(2, 3, false)]);
    }

    #[test]
    fn the_next_router_is_asked_when_one_is_lost_and_without_any_nobody() {
        let mut pauses = Pauses::default();
        let [router, other] = ROUTERS;
        pauses.begin(1, 7, true, Some(router));
        assert_eq!(pauses.exchange(|_| Some(router)), []);
        let pause = PauseOrder::Pause { to: other, rank: 1, generation: 7 };
        assert_eq!(pauses.exchange(|_| Some(other)), [pause]);
        assert_eq!(pauses.stands(router, 1, 7), None);
        let taken = PauseOrder::Checkpoint { rank: 1, generation: 7, hold: true };
        assert_eq!(pauses.exchange(|_| None), [taken]);
        assert_eq!(pauses.exchange(|_| Some(other)), []);
        let taken = PauseOrder::Checkpoint { rank: 2, generation: 3, hold: false };
        assert_eq!(pauses.begin(2, 3, false, None), taken);
    }

    #[test]
    fn a_router_stands_when_its_last_mark_is_answered() {
        let mut standing = RouterPauses::default();
        assert!(standing.pause(1, 7) && !standing.pause(1, 7) && standing.holds(1));
        assert!(!standing.answered(1, 7));
        assert_eq!((standing.mark(1), standing.mark(1)), (Some(7), None));
        // The connection breaks: another mark.
        standing.reconnected(|rank| rank == 1);
        assert!(!standing.answered(1, 7));
        assert_eq!(standing.unmarked().collect::<Vec<_>>(), [1]);
        assert_eq!((standing.mark(1), standing.is_settled(1)), (Some(7), false));
        assert!(standing.answered(1, 7) && !standing.answered(1, 7));
        // What is settled stays so.
        standing.reconnected(|_| true);
        assert_eq!((standing.unmarked().count(), standing.is_settled(1)), (0, true));
        assert!(standing.resume(1, 7) && !standing.resume(1, 7) && !standing.holds(1));
    }

    #[test]
    fn late_orders_change_nothing() {
        let mut standing = RouterPauses::default();
        assert!(!standing.resume(1, 7));
        assert!(!standing.pause(1, 7) && !standing.holds(1));
        assert!(standing.pause(1, 8) && !standing.resume(1, 7) && standing.holds(1));
        // Who routes again for a rank is asked again.
        assert!(standing.forget(1) && !standing.forget(1) && standing.pause(1, 8));
        assert_eq!(standing.stands_for(1), Some(8));
    }
}
