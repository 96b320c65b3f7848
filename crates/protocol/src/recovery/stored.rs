//! The planner as the controller's journal has it (`docs/formats/journal.md`).
//!
//! Those bytes are older than `Units`: they say with a mark that all ranks are one unit, with a
//! list that they are units of several, and by known clusters that those are the units. Here, and
//! nowhere else, the one is made from the other. Kept true: what is written is read as it was.

use super::preferences::Preferences;
use super::{Answer, Member, Planner, Rank, Rule, leave, unfit};
use crate::membership::Neighbours;
use crate::units::{Extent, LogAt, Units};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// How units have gone back.
#[derive(Serialize, Deserialize)]
struct StoredUnits<'a> {
    /// By rank; empty: each is its own, or all are one.
    of: Cow<'a, [u32]>,
    snapshots: Cow<'a, BTreeMap<u32, u32>>,
    lives: Cow<'a, BTreeMap<u32, u32>>,
    neighbours: Cow<'a, Neighbours>,
}

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    rule: Rule,
    members: Cow<'a, [Member]>,
    spares: Cow<'a, BTreeSet<Member>>,
    ranks: Cow<'a, [Rank]>,
    round: u64,
    awaited: Cow<'a, BTreeSet<Member>>,
    answers: Cow<'a, [Answer]>,
    copying: Cow<'a, BTreeMap<(u32, u32, Member), Member>>,
    rolling_back: bool,
    map: Cow<'a, [u32]>,
    /// All ranks are one unit, and came from this snapshot last.
    coordinated: bool,
    snapshot: u32,
    units: StoredUnits<'a>,
    leaves: Cow<'a, leave::Leaves>,
    unfit: Cow<'a, BTreeMap<u32, unfit::Tried>>,
    routers: Cow<'a, BTreeSet<u32>>,
    preferences: Cow<'a, Preferences>,
}

impl Serialize for Planner {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (extent, none) = (self.units.extent(), BTreeMap::new());
        // Clusters that are known would pass for units.
        debug_assert!(extent != Extent::Node || !self.neighbours.are_known());
        let several = self.units.are_groups();
        let units = StoredUnits {
            of: Cow::Borrowed(if several { self.units.by_rank() } else { &[] }),
            snapshots: Cow::Borrowed(if several { &self.snapshots } else { &none }),
            lives: Cow::Borrowed(&self.lives),
            neighbours: Cow::Borrowed(&self.neighbours),
        };
        let routers = match self.units.log_at() {
            LogAt::Sender => Cow::Owned(BTreeSet::new()),
            LogAt::Routers(nodes) => Cow::Borrowed(nodes),
        };
        let stored = Stored {
            rule: self.rule,
            members: Cow::Borrowed(&self.members),
            spares: Cow::Borrowed(&self.spares),
            ranks: Cow::Borrowed(&self.ranks),
            round: self.round,
            awaited: Cow::Borrowed(&self.awaited),
            answers: Cow::Borrowed(&self.answers),
            copying: Cow::Borrowed(&self.copying),
            rolling_back: self.rolling_back,
            map: Cow::Borrowed(&self.map),
            coordinated: self.units.are_one(),
            snapshot: self.snapshot(),
            units,
            leaves: Cow::Borrowed(&self.leaves),
            unfit: Cow::Borrowed(&self.unfit),
            routers,
            preferences: Cow::Borrowed(&self.preferences),
        };
        stored.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Planner {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(from)?;
        let StoredUnits { of, snapshots, lives, neighbours } = stored.units;
        let (map, neighbours) = (stored.map.into_owned(), neighbours.into_owned());
        let mut snapshots = snapshots.into_owned();
        let alone = if stored.coordinated { Extent::Job } else { Extent::Rank };
        let units = match (of.is_empty(), neighbours.are_known()) {
            (true, _) => Units::new(alone, &map, |node| node),
            (false, true) => Units::in_clusters(of.into_owned()),
            (false, false) => Units::on_nodes(of.into_owned()),
        };
        if units.are_one() {
            snapshots.insert(0, stored.snapshot);
        }
        Ok(Planner {
            rule: stored.rule,
            members: stored.members.into_owned(),
            spares: stored.spares.into_owned(),
            ranks: stored.ranks.into_owned(),
            round: stored.round,
            awaited: stored.awaited.into_owned(),
            answers: stored.answers.into_owned(),
            copying: stored.copying.into_owned(),
            rolling_back: stored.rolling_back,
            map,
            units: units.logged_at(LogAt::routers(stored.routers.into_owned())),
            snapshots,
            lives: lives.into_owned(),
            neighbours,
            leaves: stored.leaves.into_owned(),
            unfit: stored.unfit.into_owned(),
            preferences: stored.preferences.into_owned(),
        })
    }
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
