//! A datatype as it lies in a file whose elements have sizes of their own.
//!
//! Kept true: what was said in elements is said in elements of the new size; what was said in bytes
//! (displacements, bounds) stays, as the program has to ask for extents in the file where it needs
//! them (`MPI_File_get_type_extent`).

use std::collections::HashMap;
use std::rc::Rc;

use super::array::Darray;
use super::contents::{Combiner, Form};
use super::predefined::BYTE;
use super::{Datatype, TypeTable};
use crate::error::{Res, class};
use crate::handle::Handle;

/// Nesting that is still accepted.
const DEPTH_MAX: u32 = 1024;

/// What was made of each constituent.
type Made = HashMap<*const Datatype, Handle>;

impl Datatype {
    fn is_leaf(&self) -> bool {
        use Combiner::*;
        matches!(self.made.combiner, Named | F90Real | F90Complex | F90Integer)
    }

    /// The predefined datatypes that it is made of, each once.
    pub(crate) fn leaves(self: &Rc<Datatype>) -> Vec<Rc<Datatype>> {
        let (mut found, mut seen) = (Vec::new(), HashMap::new());
        let mut open = vec![Rc::clone(self)];
        while let Some(t) = open.pop() {
            if seen.insert(Rc::as_ptr(&t), ()).is_some() {
                continue;
            }
            if t.is_leaf() {
                found.push(t);
            } else {
                open.extend(t.made.types.iter().cloned());
            }
        }
        found
    }
}

fn narrow(values: &[i64]) -> Res<Vec<i32>> {
    values.iter().map(|v| i32::try_from(*v).map_err(|_| class::VALUE_TOO_LARGE)).collect()
}

/// The arguments of a constructor, taken one after the other.
struct Args<'a>(&'a [i64]);

impl<'a> Args<'a> {
    fn many(&mut self, n: i64) -> Res<&'a [i64]> {
        let n = usize::try_from(n).map_err(|_| class::INTERN)?;
        let (these, rest) = self.0.split_at_checked(n).ok_or(class::INTERN)?;
        self.0 = rest;
        Ok(these)
    }

    fn one(&mut self) -> Res<i64> {
        Ok(self.many(1)?[0])
    }
}

impl TypeTable {
    /// The same with leaves of these sizes: itself, if those are the sizes in memory.
    pub(crate) fn mapped(
        &mut self,
        t: &Rc<Datatype>,
        leaves: &[(Rc<Datatype>, u64)],
    ) -> Res<Rc<Datatype>> {
        let same = |(leaf, bytes): &(Rc<Datatype>, u64)| {
            leaf.size == *bytes && leaf.extent == i64::try_from(leaf.size).unwrap_or(-1)
        };
        if leaves.iter().all(same) {
            return Ok(Rc::clone(t));
        }
        let mut made = Made::new();
        let mapped = self.map_one(t, leaves, &mut made, 0).and_then(|h| self.get(h));
        for mut handle in made.into_values() {
            self.free(&mut handle)?;
        }
        mapped
    }

    fn map_one(
        &mut self,
        t: &Rc<Datatype>,
        leaves: &[(Rc<Datatype>, u64)],
        made: &mut Made,
        depth: u32,
    ) -> Res<Handle> {
        if let Some(h) = made.get(&Rc::as_ptr(t)) {
            return Ok(*h);
        }
        if depth > DEPTH_MAX {
            return Err(class::OTHER);
        }
        let new = if t.is_leaf() {
            let bytes = leaves.iter().find(|(leaf, _)| Rc::ptr_eq(leaf, t)).ok_or(class::INTERN)?.1;
            self.contiguous(i64::try_from(bytes).map_err(|_| class::VALUE_TOO_LARGE)?, BYTE)?
        } else {
            let mut parts = Vec::with_capacity(t.made.types.len());
            for part in &t.made.types {
                parts.push(self.map_one(part, leaves, made, depth + 1)?);
            }
            self.made_of(t, &parts)?
        };
        made.insert(Rc::as_ptr(t), new);
        Ok(new)
    }

    /// Made as `t` is, of other constituents.
    fn made_of(&mut self, t: &Rc<Datatype>, parts: &[Handle]) -> Res<Handle> {
        let lists = t.made.list(Form::Small);
        let mut args = Args(&lists.integers);
        let places = &lists.addresses[..];
        if t.made.combiner == Combiner::Struct {
            let n = args.one()?;
            return self.structure(args.many(n)?, places, parts);
        }
        let old = *parts.first().ok_or(class::INTERN)?;
        match t.made.combiner {
            Combiner::Dup => self.dup(old),
            Combiner::Contiguous => self.contiguous(args.one()?, old),
            Combiner::Vector => self.vector(args.one()?, args.one()?, args.one()?, old),
            Combiner::Hvector => {
                let stride = *places.first().ok_or(class::INTERN)?;
                self.hvector(args.one()?, args.one()?, stride, old)
            }
            Combiner::Indexed => {
                let n = args.one()?;
                self.indexed(args.many(n)?, args.many(n)?, old)
            }
            Combiner::Hindexed => {
                let n = args.one()?;
                self.hindexed(args.many(n)?, places, old)
            }
            Combiner::IndexedBlock => {
                let (n, block) = (args.one()?, args.one()?);
                self.indexed_block(block, args.many(n)?, old)
            }
            Combiner::HindexedBlock => {
                let (_, block) = (args.one()?, args.one()?);
                self.hindexed_block(block, places, old)
            }
            Combiner::Subarray => {
                let n = args.one()?;
                let (sizes, parts, starts) = (args.many(n)?, args.many(n)?, args.many(n)?);
                let order = narrow(&[args.one()?])?[0];
                self.subarray(sizes, parts, starts, order, old)
            }
            Combiner::Darray => self.darray_of(&mut args, old),
            Combiner::Resized => match places {
                [lb, extent] => self.resized(old, *lb, *extent),
                _ => Err(class::INTERN),
            },
            _ => Err(class::INTERN),
        }
    }

    fn darray_of(&mut self, args: &mut Args<'_>, old: Handle) -> Res<Handle> {
        let head = narrow(args.many(2)?)?;
        let n = args.one()?;
        let gsizes = args.many(n)?;
        let [distribs, dargs, psizes] =
            [narrow(args.many(n)?)?, narrow(args.many(n)?)?, narrow(args.many(n)?)?];
        let order = narrow(&[args.one()?])?[0];
        let made = Darray {
            size: head[0],
            rank: head[1],
            gsizes,
            distribs: &distribs,
            dargs: &dargs,
            psizes: &psizes,
            order,
        };
        self.darray(made, old)
    }
}

#[cfg(test)]
mod tests {
    use super::super::predefined::{INT, LONG};
    use super::super::{DISTRIBUTE_BLOCK, DISTRIBUTE_DFLT_DARG, ORDER_C};
    use super::*;

    /// With elements of half their size, all that counts elements has half the bytes.
    #[test]
    fn every_constructor_counts_elements_of_the_new_size() {
        let mut t = TypeTable::new();
        let make = |t: &mut TypeTable, of: Handle| -> Vec<Handle> {
            let two = t.contiguous(2, of).unwrap();
            let grid = Darray {
                size: 2,
                rank: 1,
                gsizes: &[6],
                distribs: &[DISTRIBUTE_BLOCK],
                dargs: &[DISTRIBUTE_DFLT_DARG],
                psizes: &[2],
                order: ORDER_C,
            };
            vec![
                t.dup(of).unwrap(),
                two,
                t.vector(3, 2, 4, two).unwrap(),
                t.indexed(&[1, 2], &[0, 3], of).unwrap(),
                t.indexed_block(2, &[5, 1], two).unwrap(),
                t.subarray(&[4, 6], &[2, 3], &[1, 2], ORDER_C, of).unwrap(),
                t.darray(grid, of).unwrap(),
                t.hvector(2, 1, 100, two).unwrap(),
                t.hindexed(&[1, 3], &[0, 64], of).unwrap(),
                t.hindexed_block(1, &[8, 80], of).unwrap(),
                t.structure(&[1, 1], &[0, 40], &[of, two]).unwrap(),
                t.resized(two, -8, 48).unwrap(),
            ]
        };
        let (longs, ints) = (make(&mut t, LONG), make(&mut t, INT));
        let before = t.derived_count();
        for (long, int) in longs.into_iter().zip(ints) {
            let (long, int) = (t.get(long).unwrap(), t.get(int).unwrap());
            let leaves: Vec<_> = long.leaves().into_iter().map(|leaf| (leaf, 4)).collect();
            assert_eq!(leaves.len(), 1);
            let new = t.mapped(&long, &leaves).unwrap();
            let shape = |t: &Datatype| (t.size, t.true_lb, t.true_extent);
            assert_eq!(shape(&new), shape(&int), "{:?}", long.made);
            assert_eq!((new.lb, new.extent), (int.lb, int.extent), "{:?}", long.made);
        }
        assert_eq!(t.derived_count(), before, "nothing is left behind");
    }

    #[test]
    fn with_the_sizes_of_memory_it_is_itself() {
        let mut t = TypeTable::new();
        let shape = t.vector(3, 1, 2, INT).unwrap();
        let shape = t.get(shape).unwrap();
        let same = t.mapped(&shape, &[(t.get(INT).unwrap(), 4)]).unwrap();
        assert!(Rc::ptr_eq(&shape, &same));
    }
}
