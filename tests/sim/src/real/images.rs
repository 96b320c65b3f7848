//! What is checked of images after each turn of the real controller: none is given up that is good,
//! none counts of a process that has a successor, none counts as guarded by nodes that are gone, or
//! as in the vault when it is not there; those of a set fit each other.

use crate::program;
use crate::real::host::Simulation;
use crate::types::{Image, Time};
use crate::world::World;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::VAULT;
use eyrie_protocol::replicas::Words;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A round of which the controller knows that it is over is so for all of its nodes after so long.
const ROUND_OVER: Time = 1_500;

impl Simulation {
    /// The images that are kept, and who has them as far as the controller knows.
    fn holders_now(&self) -> BTreeMap<(u32, u32), BTreeSet<Member>> {
        let controller = &self.world.controller;
        let kept = (0u32..).zip(&controller.retention).flat_map(|(rank, retention)| {
            retention.newest_first().map(move |kept| (rank, kept.generation))
        });
        let holders = |(rank, generation)| {
            let all = controller.planner.holders(rank, generation);
            ((rank, generation), all.filter(|m| *m != VAULT).collect())
        };
        kept.filter(|image| image.1 > 0).map(holders).collect()
    }

    /// A copy that is good, of an image that is kept, is not given up.
    pub(super) fn check_given_up(&mut self) {
        let now = self.holders_now();
        let before = std::mem::replace(&mut self.holders, now);
        let members = self.world.controller.planner.members();
        let mut wrong = None;
        for (image, holders) in &self.holders {
            let gone = before.get(image).into_iter().flatten().filter(|m| !holders.contains(m));
            for member in gone.filter(|m| members.contains(m)) {
                let copy = self.world.nodes.get(member).and_then(|n| n.disk.get(image));
                if copy.is_some_and(|stored| !stored.bad && !stored.replaced) {
                    wrong = Some((*image, *member));
                }
            }
        }
        if let Some(((rank, generation), member)) = wrong {
            let what = format!("the good image {generation} of rank {rank} on {member}");
            self.world.fail(format!("{what} is given up"));
        }
    }

    /// What counts as brought into the vault is there.
    pub(super) fn check_vaulted(&mut self) {
        let controller = &self.world.controller;
        let kept = (0u32..).zip(&controller.retention).flat_map(|(rank, retention)| {
            retention.newest_first().map(move |kept| (rank, kept.generation))
        });
        let is_vaulted = |image: &(u32, u32)| {
            controller.planner.holders(image.0, image.1).any(|member| member == VAULT)
        };
        let lacks = |image: &(u32, u32)| !self.world.vault.contains_key(image);
        let lacking = kept.filter(is_vaulted).find(lacks);
        if let Some((rank, generation)) = lacking {
            let what = format!("image {generation} of rank {rank}");
            self.world.fail(format!("{what} counts as in the vault, and is not there"));
        }
    }

    /// An image that could be brought into the vault anew is guarded by nodes that are all there,
    /// if the controller takes it to be.
    pub(super) fn check_guards(&mut self) {
        let planner = &self.world.controller.planner;
        if !planner.vaults() || !planner.placed() {
            return self.thin.clear();
        }
        let (keepers, unguarded) = (planner.keepers(), planner.unguarded());
        let known = |image: &(u32, u32)| unguarded.iter().all(|u| (u.0, u.1) != *image);
        let is_thin = |image: &(u32, u32)| {
            let vaulted = self.world.vault.get(image);
            vaulted.is_some_and(|(_, members)| members.iter().any(|m| !keepers.contains(m)))
        };
        let all = self.holders.iter().filter(|(_, at)| at.iter().any(|m| keepers.contains(m)));
        let thin = all.map(|(image, _)| *image).filter(|image| known(image) && is_thin(image));
        let now = self.world.now;
        let thin: BTreeMap<(u32, u32), Time> =
            thin.map(|image| (image, self.thin.get(&image).copied().unwrap_or(now))).collect();
        self.thin = thin;
        let late = self.thin.iter().find(|(_, since)| *since + ROUND_OVER < now);
        if let Some(((rank, generation), _)) = late {
            let what = format!("image {generation} of rank {rank}");
            self.world.fail(format!("{what} counts as guarded by nodes that are gone"));
        }
    }
}

impl World {
    /// An image, wherever it is: of several of that number the last one.
    fn image_known(&self, key: (u32, u32)) -> Option<Rc<Image>> {
        let on_disk = self.nodes.values().filter_map(|n| n.disk.get(&key)).map(|s| &s.image);
        let vaulted = self.vault.get(&key).map(|(image, _)| image);
        on_disk.chain(vaulted).max_by_key(|image| image.incarnation).cloned()
    }

    /// What is recorded of a rank that comes back from this image: where nothing is held, the run
    /// that was the last of it, which the image has.
    pub(super) fn with_own_run(&self, mut words: Words, key: (u32, u32)) -> Words {
        let Some(image) = self.image_known(key) else { return words };
        let least = image.point().det_pos;
        if let (Some((at, made)), true) =
            (image.run, words.words.is_empty() && words.first <= least)
            && at == least
        {
            words = Words { first: least, words: vec![crate::segment::RUN | made] };
        }
        words
    }

    /// Images that begin to count together are a consistent cut: what one has received the other
    /// has sent.
    pub(super) fn check_cut(&mut self, rank: u32, generation: u32) {
        let own = self.image_known((rank, generation)).filter(|_| !self.units.is_empty());
        let mates = self.ranks_of(self.slot(rank)).into_iter().filter(|mate| *mate != rank);
        let other = |mate| Some((mate, self.image_known((mate, generation))?));
        let others: Vec<(u32, Rc<Image>)> = mates.filter_map(other).collect();
        let Some(own) = own else { return };
        for (mate, other) in others {
            for (from, sender, to, receiver) in
                [(rank, &own, mate, &other), (mate, &other, rank, &own)]
            {
                let early = |kind: &u8| {
                    let sent = sender.state.sent[program::slot(to, *kind)];
                    receiver.state.next(from, *kind) > sent
                };
                if (0..2).any(|kind| early(&kind)) {
                    let what = format!("image {generation} of rank {to} has received");
                    return self.fail(format!("{what} what that of rank {from} has not sent"));
                }
            }
        }
    }

    /// An image that begins to count is of the last process of its rank that was started.
    pub(super) fn check_incarnation(&mut self, rank: u32, generation: u32) {
        let key = (rank, generation);
        let stored = self.nodes.values().find_map(|n| n.disk.get(&key)).map(|s| &s.image);
        let image = stored.or_else(|| self.vault.get(&key).map(|(image, _)| image));
        let of = image.map(|image| image.incarnation);
        if let Some(of) = of.filter(|of| self.truth.is_succeeded(rank, *of)) {
            self.fail(format!(
                "image {generation} of rank {rank} counts, and is of its start {of}"
            ));
        }
    }
}
