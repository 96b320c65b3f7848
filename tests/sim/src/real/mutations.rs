//! What is done wrong on purpose, to show that the checks find it: at the real controller's door
//! (what nodes say, what they are told, what its successor finds), and by what else. Mistakes that
//! nodes make by themselves are where they do what is broken.

use crate::real::host::Simulation;
use crate::types::Mutation;
use eyrie_control::node::Choice;
use eyrie_control::{FromNode, ToNode};
use eyrie_controller::memory::driven::Lacking;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Stage;

/// An order that changes nothing.
const NOTHING: ToNode = ToNode::OutputTaken { bytes: 0 };

/// What is done wrong, and the words of the command line that say in what jobs it is found.
pub const MUTATIONS: [(Mutation, &str); 76] = [
    (Mutation::OpenGate, ""),
    (Mutation::RunsUnnoticed, ""),
    (Mutation::NoWriteBack, ""),
    (Mutation::ShortestAnswer, ""),
    (Mutation::PartForWhole, ""),
    (Mutation::NoGuarantor, ""),
    (Mutation::NoFence, ""),
    (Mutation::TrimByNewest, ""),
    (Mutation::SuppressWithoutRelog, ""),
    (Mutation::NoLogInImage, ""),
    (Mutation::DuplicatesTaken, ""),
    (Mutation::KeptWatermark, ""),
    (Mutation::PrintedAgain, ""),
    (Mutation::DoneForgotten, ""),
    (Mutation::OneCopyCounts, ""),
    (Mutation::NeverTrim, ""),
    (Mutation::EffectsUnwritten, ""),
    (Mutation::OrdersForgotten, ""),
    (Mutation::StartsUntold, ""),
    (Mutation::NotCleared, ""),
    (Mutation::FirstWordUnsaid, ""),
    (Mutation::MembersUntold, ""),
    (Mutation::WordsLost, ""),
    (Mutation::TrimBeforeDurable, "--vault"),
    (Mutation::VaultedEarly, "--vault"),
    (Mutation::LeavesEarly, "--drain"),
    (Mutation::LeavesUnguarded, "--drain"),
    (Mutation::NotHeld, "--drain"),
    (Mutation::NotEmptied, "--drain"),
    (Mutation::OneGoesOn, "--units"),
    (Mutation::InnerNotInSnapshot, "--units"),
    (Mutation::InnerGivenEarly, "--units"),
    (Mutation::OnlyTheDead, "--units"),
    (Mutation::PartCounts, "--units"),
    (Mutation::UnitForgetsOutcomes, "--units"),
    (Mutation::UnitUngated, "--cluster-units"),
    (Mutation::SnapshotsForgotten, "--cluster-units"),
    (Mutation::MatesGoOn, "--cluster-units --drain"),
    (Mutation::RouterForgets, "--routed"),
    (Mutation::SendersForget, "--routed"),
    (Mutation::RouterKeepsAcks, "--routed"),
    (Mutation::StandsUnanswered, "--routed"),
    (Mutation::SendsWhilePaused, "--routed"),
    (Mutation::NeverResumed, "--routed"),
    (Mutation::DeadRouterAwaited, "--routed"),
    (Mutation::OutcomesInRing, "--outside"),
    (Mutation::AnyAnswer, "--halts"),
    (Mutation::NewcomerRuns, "--halts --drain"),
    (Mutation::StartsRunning, "--halts"),
    (Mutation::LeaseForever, "--halts"),
    (Mutation::ClientsRemembered, "--halts"),
    (Mutation::PreferencesForgotten, "--topology"),
    (Mutation::InnerNotInSnapshot, "coordinated"),
    (Mutation::NodeGoesOn, "coordinated"),
    (Mutation::LateLog, "coordinated"),
    (Mutation::GivenToMirror, "coordinated"),
    (Mutation::EffectsUnwritten, "coordinated"),
    (Mutation::SnapshotForgotten, "coordinated"),
    (Mutation::LeavesEarly, "coordinated --drain"),
    (Mutation::VaultedEarly, "coordinated --vault"),
    (Mutation::LeavesGuard, "coordinated --vault --drain"),
    (Mutation::PlaceForImage, "--unfit"),
    (Mutation::LateImages, "--vault"),
    (Mutation::LeftThin, "--vault"),
    (Mutation::StaleNeeds, "--cluster-units"),
    (Mutation::VoidHeld, "--cluster-units --drain"),
    (Mutation::HeldLater, "--cluster-units --drain"),
    (Mutation::ImagesInRing, "--outside"),
    (Mutation::NoFence, "coordinated"),
    (Mutation::DownUnwritten, "coordinated"),
    (Mutation::ReturnForgotten, "coordinated"),
    (Mutation::NotHeld, "coordinated --drain"),
    (Mutation::CollectedEarly, "coordinated --vault"),
    (Mutation::NodeGoesOn, "--cluster-units"),
    (Mutation::UnitsUnwritten, "--shares"),
    (Mutation::StandsBehind, "--shares"),
];

impl Simulation {
    pub(super) fn mutated(&self, mutation: Mutation) -> bool {
        self.world.mutated(mutation)
    }

    /// Something else arrives than what a node has said.
    pub(super) fn mistake_said(&self, said: &mut FromNode) {
        match said {
            FromNode::Held(held) => {
                if self.mutated(Mutation::PartForWhole) {
                    held.partly = false;
                }
                if self.mutated(Mutation::PartForWhole) || self.mutated(Mutation::ShortestAnswer) {
                    held.held.iter_mut().for_each(|d| d.words.truncate(d.words.len() / 2));
                }
                if self.mutated(Mutation::NoGuarantor) {
                    held.in_step = self.world.nodes.keys().map(|m| (m.node, m.epoch)).collect();
                    held.in_step.extend((0..10).map(|node| (node, u64::from(node) + 1)));
                }
            }
            FromNode::Halted { turn, .. } if self.mutated(Mutation::AnyAnswer) => {
                *turn = self.world.controller.suspend.order_for_new().unwrap_or(*turn);
            }
            FromNode::Found { rank, choice: Choice::Image(meta), .. }
                if self.mutated(Mutation::PrintedAgain) =>
            {
                meta.output[0] = self.printed[*rank as usize].len() as u64;
            }
            _ => {}
        }
    }

    /// A node is told something else.
    pub(super) fn mistake_order(&mut self, to: Member, order: &mut ToNode) {
        use ToNode as To;
        let back = self.world.controller.is_busy;
        let drops = match order {
            To::Members { .. } => back && self.mutated(Mutation::MembersUntold),
            To::Trim { .. } => self.mutated(Mutation::NeverTrim),
            To::LetGo { .. } => self.mutated(Mutation::VoidHeld),
            To::Resume { .. } => self.mutated(Mutation::NeverResumed),
            To::Halt { turn } => {
                // Who was there is told when all are.
                let told = self.halted.filter(|(known, _)| known == turn);
                let (_, since) = *self.halted.insert(told.unwrap_or((*turn, self.world.now)));
                since < self.world.now && self.mutated(Mutation::NewcomerRuns)
            }
            _ => false,
        };
        if drops {
            *order = NOTHING;
        }
        match order {
            To::Start { moved, .. } if self.mutated(Mutation::WordsLost) => {
                moved.iter_mut().for_each(|m| m.words.truncate(m.words.len() / 2));
            }
            To::Trim { rank, need, det_pos } if self.mutated(Mutation::TrimByNewest) => {
                let newest = self.world.controller.retention[*rank as usize].newest();
                let point = newest.map(|kept| kept.point.clone());
                if let Some(point) = point {
                    (*need, *det_pos) = (point.need, point.det_pos);
                }
            }
            To::CheckpointSet { hold, .. } if self.mutated(Mutation::MatesGoOn) => {
                *hold &= self.world.controller.planner.leaves(&to).is_some();
            }
            _ => {}
        }
    }

    /// Logs are given up as soon as an image is taken, whether it counts or not.
    pub(super) fn mistake_trim(&mut self, said: &FromNode) {
        let FromNode::CheckpointOver { rank, result, .. } = said else { return };
        let eyrie_control::node::CheckpointResult::Taken(taken) = result else { return };
        if self.mutated(Mutation::TrimBeforeDurable) {
            let (need, det_pos) = (taken.meta.need.clone(), taken.meta.det_pos);
            let all: Vec<Member> = self.world.nodes.keys().copied().collect();
            all.into_iter().for_each(|at| self.world.trim(at, *rank, &need, det_pos));
        }
    }

    /// The members have changed, and no checkpoint is told so that waits for a router.
    pub(super) fn mistake_routers(&mut self) {
        if !self.mutated(Mutation::DeadRouterAwaited) {
            return;
        }
        let before = std::mem::take(&mut self.pauses);
        let Some(controller) = &mut self.controller else { return };
        let pauses = controller.pauses();
        let known: Vec<Member> = before.awaited().collect();
        if pauses.awaited().any(|m| !known.contains(&m)) && pauses.awaited().count() == known.len()
        {
            *pauses = before;
        }
        self.pauses = pauses.clone();
    }

    /// What a successor does not find.
    pub(super) fn lacking(&self) -> Lacking {
        match self.world.mutation {
            Some(Mutation::StartsUntold) => Lacking::Starts,
            Some(Mutation::DownUnwritten) => Lacking::AllDown,
            Some(Mutation::PreferencesForgotten) => Lacking::Preferences,
            Some(Mutation::SnapshotsForgotten) => Lacking::UnitSnapshots,
            Some(Mutation::SnapshotForgotten) => Lacking::Snapshot,
            Some(Mutation::ReturnForgotten) => Lacking::Return,
            Some(Mutation::UnitsUnwritten) => Lacking::Units,
            _ => Lacking::Nothing,
        }
    }

    /// A node that leaves goes as soon as its ranks are elsewhere.
    pub(super) fn mistake_leaves(&mut self) {
        if !self.mutated(Mutation::LeavesEarly) {
            return;
        }
        let planner = &self.world.controller.planner;
        let empty = |m: &Member| (0..self.world.ranks()).all(|r| planner.home(r) != Some(*m));
        let moving = |m: &Member| planner.leaves(m) == Some(Stage::Moving);
        let early = planner.leaving().find(|m| moving(m) && empty(m) && planner.placed());
        if let Some(member) = early.filter(|m| self.world.nodes.contains_key(m)) {
            let members = planner.keepers();
            let stay: Vec<Member> = members.into_iter().filter(|m| *m != member).collect();
            let vaults = planner.vaults();
            self.world.check_left_to(member, &stay, vaults);
            self.world.perish(member);
        }
    }
}
