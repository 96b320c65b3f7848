//! Groups: ordered sets of processes (MPI 5.0 section 7.3). Purely local.
//!
//! Kept true: no process is in a group twice; an operation that yields the empty group yields the
//! handle `GROUP_EMPTY`, which programs compare with.

use std::rc::Rc;

use crate::consts::{GROUP_EMPTY, GROUP_NULL, IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL};
use crate::error::{Res, class};
use crate::handle::{Handle, Kind, Slab};
use crate::machine::Machine;

/// An ordered set of processes, named by their ranks in COMM_WORLD.
#[derive(Debug)]
pub struct Group {
    members: Vec<u32>,
    /// `(world rank, rank)` sorted; empty when every rank is its world rank.
    by_world: Vec<(u32, u32)>,
    mine: Option<u32>,
}

impl Group {
    /// The group of `members` (distinct world ranks) as process `me` sees it.
    pub fn new(members: Vec<u32>, me: u32) -> Group {
        let mut by_world = Vec::new();
        if members.iter().zip(0..).any(|(&world, rank)| world != rank) {
            by_world = members.iter().copied().zip(0..).collect();
            by_world.sort_unstable();
        }
        let mut group = Group { members, by_world, mine: None };
        group.mine = group.rank_of(me);
        group
    }

    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// This process's rank, if it is a member.
    pub fn rank(&self) -> Option<u32> {
        self.mine
    }

    /// World rank of member `rank`, which is below `size()`.
    pub fn world(&self, rank: u32) -> u32 {
        self.members[rank as usize]
    }

    /// World ranks in rank order.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Rank of a process given by its world rank.
    pub fn rank_of(&self, world: u32) -> Option<u32> {
        if self.by_world.is_empty() {
            return (world < self.size()).then_some(world);
        }
        let at = self.by_world.binary_search_by_key(&world, |&(w, _)| w).ok()?;
        Some(self.by_world[at].1)
    }

    fn contains(&self, world: u32) -> bool {
        self.rank_of(world).is_some()
    }

    /// `IDENT`, `SIMILAR` or `UNEQUAL`.
    pub fn compare(&self, other: &Group) -> i32 {
        if self.members == other.members {
            IDENT
        } else if self.size() == other.size() && self.members.iter().all(|&w| other.contains(w)) {
            SIMILAR
        } else {
            UNEQUAL
        }
    }
}

/// All groups the program holds.
pub struct GroupTable {
    pub(crate) slab: Slab<Rc<Group>>,
    empty: Rc<Group>,
    me: u32,
}

impl GroupTable {
    /// `me`: world rank of this process.
    pub fn new(me: u32) -> Self {
        GroupTable { slab: Slab::new(Kind::Group), empty: Rc::new(Group::new(Vec::new(), me)), me }
    }

    pub fn get(&self, h: Handle) -> Res<Rc<Group>> {
        if h == GROUP_EMPTY {
            return Ok(self.empty.clone());
        }
        self.slab.get(h).cloned().ok_or(class::GROUP)
    }

    /// A handle for `group`.
    pub fn insert(&mut self, group: Rc<Group>) -> Res<Handle> {
        if group.size() == 0 { Ok(GROUP_EMPTY) } else { self.slab.insert(group) }
    }

    fn insert_members(&mut self, members: Vec<u32>) -> Res<Handle> {
        let me = self.me;
        self.insert(Rc::new(Group::new(members, me)))
    }
}

/// Checks that `ranks` are distinct and below `size`; returns which are named.
fn named(size: u32, ranks: impl Iterator<Item = i64>) -> Res<(Vec<u32>, Vec<bool>)> {
    let mut seen = vec![false; size as usize];
    let mut list = Vec::new();
    for rank in ranks {
        let rank = u32::try_from(rank).map_err(|_| class::RANK)?;
        let slot = seen.get_mut(rank as usize).ok_or(class::RANK)?;
        if std::mem::replace(slot, true) {
            return Err(class::RANK);
        }
        list.push(rank);
    }
    Ok((list, seen))
}

/// The ranks that triplets (first, last, stride) name; refuses those outside a group of `size`.
fn expand(size: u32, ranges: &[[i32; 3]]) -> Res<Vec<i64>> {
    let mut all = Vec::new();
    for range in ranges {
        let [first, last, stride] = range.map(i64::from);
        if stride == 0 {
            return Err(class::ARG);
        }
        let steps = (last - first) / stride;
        if (last - first) * stride < 0 {
            return Err(class::ARG);
        }
        let inside = 0..i64::from(size);
        // Both ends inside bounds the loop by the size of the group.
        if !inside.contains(&first) || !inside.contains(&(first + steps * stride)) {
            return Err(class::RANK);
        }
        all.extend((0..=steps).map(|i| first + i * stride));
    }
    Ok(all)
}

fn included(group: &Group, ranks: impl Iterator<Item = i64>) -> Res<Vec<u32>> {
    let (list, _) = named(group.size(), ranks)?;
    Ok(list.into_iter().map(|r| group.world(r)).collect())
}

fn excluded(group: &Group, ranks: impl Iterator<Item = i64>) -> Res<Vec<u32>> {
    let (_, seen) = named(group.size(), ranks)?;
    let kept = group.members.iter().zip(seen).filter(|(_, gone)| !gone);
    Ok(kept.map(|(&world, _)| world).collect())
}

fn union(a: &Group, b: &Group) -> Vec<u32> {
    let new = b.members.iter().filter(|&&w| !a.contains(w));
    a.members.iter().chain(new).copied().collect()
}

fn intersection(a: &Group, b: &Group) -> Vec<u32> {
    a.members.iter().copied().filter(|&w| b.contains(w)).collect()
}

fn difference(a: &Group, b: &Group) -> Vec<u32> {
    a.members.iter().copied().filter(|&w| !b.contains(w)).collect()
}

impl Machine {
    pub fn group_size(&self, group: Handle) -> Res<i32> {
        Ok(self.groups.get(group)?.size() as i32)
    }

    /// This process's rank or `UNDEFINED`.
    pub fn group_rank(&self, group: Handle) -> Res<i32> {
        Ok(self.groups.get(group)?.rank().map_or(UNDEFINED, |r| r as i32))
    }

    /// `out` is as long as `ranks`.
    pub fn group_translate_ranks(
        &self,
        from: Handle,
        ranks: &[i32],
        to: Handle,
        out: &mut [i32],
    ) -> Res<()> {
        let (from, to) = (self.groups.get(from)?, self.groups.get(to)?);
        for (&rank, out) in ranks.iter().zip(out) {
            if rank == PROC_NULL {
                *out = PROC_NULL;
                continue;
            }
            let rank = u32::try_from(rank).map_err(|_| class::RANK)?;
            let world = *from.members.get(rank as usize).ok_or(class::RANK)?;
            *out = to.rank_of(world).map_or(UNDEFINED, |r| r as i32);
        }
        Ok(())
    }

    /// `IDENT`, `SIMILAR` or `UNEQUAL`.
    pub fn group_compare(&self, a: Handle, b: Handle) -> Res<i32> {
        Ok(self.groups.get(a)?.compare(&*self.groups.get(b)?))
    }

    pub fn group_union(&mut self, a: Handle, b: Handle) -> Res<Handle> {
        let members = union(&*self.groups.get(a)?, &*self.groups.get(b)?);
        self.groups.insert_members(members)
    }

    pub fn group_intersection(&mut self, a: Handle, b: Handle) -> Res<Handle> {
        let members = intersection(&*self.groups.get(a)?, &*self.groups.get(b)?);
        self.groups.insert_members(members)
    }

    pub fn group_difference(&mut self, a: Handle, b: Handle) -> Res<Handle> {
        let members = difference(&*self.groups.get(a)?, &*self.groups.get(b)?);
        self.groups.insert_members(members)
    }

    pub fn group_incl(&mut self, group: Handle, ranks: &[i32]) -> Res<Handle> {
        let group = self.groups.get(group)?;
        let members = included(&group, ranks.iter().map(|&r| r.into()))?;
        self.groups.insert_members(members)
    }

    pub fn group_excl(&mut self, group: Handle, ranks: &[i32]) -> Res<Handle> {
        let group = self.groups.get(group)?;
        let members = excluded(&group, ranks.iter().map(|&r| r.into()))?;
        self.groups.insert_members(members)
    }

    /// Triplets (first, last, stride).
    pub fn group_range_incl(&mut self, group: Handle, ranges: &[[i32; 3]]) -> Res<Handle> {
        let group = self.groups.get(group)?;
        let members = included(&group, expand(group.size(), ranges)?.into_iter())?;
        self.groups.insert_members(members)
    }

    pub fn group_range_excl(&mut self, group: Handle, ranges: &[[i32; 3]]) -> Res<Handle> {
        let group = self.groups.get(group)?;
        let members = excluded(&group, expand(group.size(), ranges)?.into_iter())?;
        self.groups.insert_members(members)
    }

    /// Sets `group` to `GROUP_NULL`. `GROUP_EMPTY` itself lives on.
    pub fn group_free(&mut self, group: &mut Handle) -> Res<()> {
        if *group != GROUP_EMPTY {
            self.groups.slab.remove(*group).ok_or(class::GROUP)?;
        }
        *group = GROUP_NULL;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn distinct() -> impl Strategy<Value = Vec<u32>> {
        proptest::sample::subsequence((0..24u32).collect::<Vec<_>>(), 0..=24).prop_shuffle()
    }

    proptest! {
        #[test]
        fn set_algebra(a in distinct(), b in distinct(), me in 0..24u32) {
            let (ga, gb) = (Group::new(a.clone(), me), Group::new(b.clone(), me));
            let (u, i, d) = (union(&ga, &gb), intersection(&ga, &gb), difference(&ga, &gb));
            // Order of the first group first, then of the second.
            let expect: Vec<u32> =
                a.iter().chain(b.iter().filter(|w| !a.contains(w))).copied().collect();
            prop_assert_eq!(&u, &expect);
            prop_assert!(i.iter().all(|w| a.contains(w) && b.contains(w)));
            prop_assert!(d.iter().all(|w| a.contains(w) && !b.contains(w)));
            prop_assert_eq!(i.len() + d.len(), a.len());
            let mut sorted = a.clone();
            sorted.sort_unstable();
            let same_set = Group::new(sorted.clone(), me);
            let expect = if sorted == a { IDENT } else { SIMILAR };
            prop_assert_eq!(ga.compare(&same_set), expect);
            prop_assert_eq!(ga.rank().map(|r| ga.world(r)), a.contains(&me).then_some(me));
        }

        #[test]
        fn incl_and_excl_partition(members in distinct(), picks in any::<u32>()) {
            let group = Group::new(members.clone(), 0);
            let ranks: Vec<i64> =
                (0..members.len() as i64).filter(|r| picks >> r & 1 == 1).collect();
            let inside = included(&group, ranks.iter().copied()).unwrap();
            let outside = excluded(&group, ranks.iter().copied()).unwrap();
            prop_assert_eq!(inside.len() + outside.len(), members.len());
            for (rank, world) in (0..).zip(&members) {
                prop_assert_eq!(inside.contains(world), ranks.contains(&rank));
                prop_assert_eq!(outside.contains(world), !ranks.contains(&rank));
                prop_assert_eq!(group.rank_of(*world), Some(rank as u32));
            }
        }

        #[test]
        fn ranges_name_what_a_loop_names(size in 1..20u32, f in -2..22i32, l in -2..22i32,
                                         s in -4..5i32) {
            let got = expand(size, &[[f, l, s]]);
            if s == 0 || (l - f).signum() * s.signum() < 0 {
                prop_assert_eq!(got, Err(class::ARG));
                return Ok(());
            }
            let mut expect = Vec::new();
            let mut at = f;
            while if s > 0 { at <= l } else { at >= l } {
                expect.push(i64::from(at));
                at += s;
            }
            if expect.iter().all(|r| (0..i64::from(size)).contains(r)) {
                prop_assert_eq!(got, Ok(expect));
            } else {
                prop_assert_eq!(got, Err(class::RANK));
            }
        }
    }

    #[test]
    fn doubled_and_foreign_ranks_are_refused() {
        let group = Group::new(vec![3, 1, 2], 0);
        assert_eq!(included(&group, [0, 0].into_iter()), Err(class::RANK));
        assert_eq!(included(&group, [3].into_iter()), Err(class::RANK));
        assert_eq!(excluded(&group, [-1].into_iter()), Err(class::RANK));
        assert_eq!(expand(3, &[[0, i32::MAX, 1]]), Err(class::RANK));
        assert_eq!(expand(3, &[[i32::MIN, i32::MAX, 1]]), Err(class::RANK));
    }

    #[test]
    fn the_empty_group_keeps_its_handle() {
        let mut table = GroupTable::new(0);
        assert_eq!(table.insert_members(Vec::new()), Ok(GROUP_EMPTY));
        assert_eq!(table.get(GROUP_EMPTY).map(|g| g.size()), Ok(0));
        assert_eq!(table.get(GROUP_NULL).map(|g| g.size()), Err(class::GROUP));
    }
}
