//! Cartesian topologies (MPI 5.0 chapter 8). Ranks are laid out in row-major order.

use std::rc::Rc;

use crate::comm::Inherit;
use crate::consts::{COMM_NULL, PROC_NULL, UNDEFINED};
use crate::error::{Res, class};
use crate::group::Group;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::topology::Topology;

/// `MPI_CART`
pub const CART: i32 = 211;

/// The grid of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    dims: Vec<i32>,
    periods: Vec<bool>,
}

impl Cart {
    /// A grid and its number of places.
    fn new(dims: &[i32], periods: &[bool]) -> Res<(Cart, i32)> {
        if dims.iter().any(|&d| d <= 0) {
            return Err(class::DIMS);
        }
        let places = dims.iter().try_fold(1i32, |n, &d| n.checked_mul(d)).ok_or(class::DIMS)?;
        Ok((Cart { dims: dims.to_vec(), periods: periods.to_vec() }, places))
    }

    /// `coords` has an entry for each dimension.
    fn rank(&self, coords: &[i32]) -> Res<i32> {
        let mut rank = 0;
        for ((&at, &dim), &periodic) in coords.iter().zip(&self.dims).zip(&self.periods) {
            if !periodic && !(0..dim).contains(&at) {
                return Err(class::ARG);
            }
            rank = rank * dim + at.rem_euclid(dim);
        }
        Ok(rank)
    }

    fn coords(&self, rank: i32) -> Vec<i32> {
        let mut rest = rank;
        let mut coords = vec![0; self.dims.len()];
        for (at, &dim) in coords.iter_mut().zip(&self.dims).rev() {
            *at = rest % dim;
            rest /= dim;
        }
        coords
    }

    /// The rank `disp` places from `coords` along a dimension.
    fn neighbour(&self, coords: &[i32], direction: usize, disp: i64) -> i32 {
        let dim = i64::from(self.dims[direction]);
        let mut at = i64::from(coords[direction]) + disp;
        if self.periods[direction] {
            at = at.rem_euclid(dim);
        } else if !(0..dim).contains(&at) {
            return PROC_NULL;
        }
        let mut there = coords.to_vec();
        there[direction] = at as i32;
        self.rank(&there).unwrap_or(PROC_NULL)
    }

    /// Of each dimension the lower neighbour of `rank`, then the upper one.
    pub(crate) fn neighbours(&self, rank: i32) -> Vec<i32> {
        let own = self.coords(rank);
        let both = |direction| [-1, 1].map(|disp| self.neighbour(&own, direction, disp));
        (0..self.dims.len()).flat_map(both).collect()
    }
}

impl Machine {
    fn cart(&self, comm: Handle) -> Res<&Cart> {
        match self.topology(comm)? {
            Topology::Cart(cart) => Ok(cart),
            _ => Err(class::TOPOLOGY),
        }
    }

    /// Ranks keep their order; those beyond the grid get `COMM_NULL`.
    pub fn cart_create(
        &mut self,
        comm: Handle,
        dims: &[i32],
        periods: &[bool],
        _reorder: bool,
    ) -> Res<Handle> {
        let comm = self.comms.intra(comm)?;
        let (cart, places) = Cart::new(dims, periods)?;
        if places > comm.size() as i32 {
            return Err(class::DIMS);
        }
        let ctx = self.agree_context_of(&comm)?;
        if comm.rank as i32 >= places {
            return Ok(COMM_NULL);
        }
        let members = comm.group.members()[..places as usize].to_vec();
        let group = Rc::new(Group::new(members, comm.group.world(comm.rank)));
        let inherit = Inherit { topology: Some(Topology::Cart(cart)), ..Inherit::default() };
        self.comm_install(&comm, ctx, group, inherit)
    }

    pub fn cartdim_get(&self, comm: Handle) -> Res<i32> {
        Ok(self.cart(comm)?.dims.len() as i32)
    }

    /// Fills as much as the slices (all of length maxdims) hold.
    pub fn cart_get(
        &self,
        comm: Handle,
        dims: &mut [i32],
        periods: &mut [bool],
        coords: &mut [i32],
    ) -> Res<()> {
        let cart = self.cart(comm)?;
        let own = cart.coords(self.comms.get_ref(comm)?.rank as i32);
        dims.iter_mut().zip(&cart.dims).for_each(|(to, &from)| *to = from);
        periods.iter_mut().zip(&cart.periods).for_each(|(to, &from)| *to = from);
        coords.iter_mut().zip(own).for_each(|(to, from)| *to = from);
        Ok(())
    }

    /// `coords` has at least `cartdim_get` entries.
    pub fn cart_rank(&self, comm: Handle, coords: &[i32]) -> Res<i32> {
        let cart = self.cart(comm)?;
        cart.rank(coords.get(..cart.dims.len()).ok_or(class::ARG)?)
    }

    /// Fills as much as the slice holds.
    pub fn cart_coords(&self, comm: Handle, rank: i32, coords: &mut [i32]) -> Res<()> {
        let cart = self.cart(comm)?;
        if !(0..self.comms.get_ref(comm)?.size() as i32).contains(&rank) {
            return Err(class::RANK);
        }
        coords.iter_mut().zip(cart.coords(rank)).for_each(|(to, from)| *to = from);
        Ok(())
    }

    /// (source, destination)
    pub fn cart_shift(&self, comm: Handle, direction: i32, disp: i32) -> Res<(i32, i32)> {
        let cart = self.cart(comm)?;
        let direction = usize::try_from(direction).map_err(|_| class::ARG)?;
        if direction >= cart.dims.len() {
            return Err(class::ARG);
        }
        let own = cart.coords(self.comms.get_ref(comm)?.rank as i32);
        let at = |disp| cart.neighbour(&own, direction, disp);
        Ok((at(-i64::from(disp)), at(i64::from(disp))))
    }

    /// `remain` has at least `cartdim_get` entries. Where no dimension remains rank 0 has a grid of
    /// its own and the others have `COMM_NULL`, as in MPICH and with `cart_create`.
    pub fn cart_sub(&mut self, comm: Handle, remain: &[bool]) -> Res<Handle> {
        let cart = self.cart(comm)?;
        if remain.len() < cart.dims.len() {
            return Err(class::ARG);
        }
        if !remain[..cart.dims.len()].contains(&true) {
            return self.cart_create(comm, &[], &[], false);
        }
        let own = cart.coords(self.comms.get_ref(comm)?.rank as i32);
        let mut sub = Cart { dims: Vec::new(), periods: Vec::new() };
        // Number the subgrids, and the places within one, in row-major order.
        let (mut color, mut key) = (0, 0);
        for (i, &at) in own.iter().enumerate() {
            if remain[i] {
                key = key * cart.dims[i] + at;
                sub.dims.push(cart.dims[i]);
                sub.periods.push(cart.periods[i]);
            } else {
                color = color * cart.dims[i] + at;
            }
        }
        let inherit = Inherit { topology: Some(Topology::Cart(sub)), ..Inherit::default() };
        self.split_with(comm, color, key, inherit)
    }

    /// New rank or `UNDEFINED`.
    pub fn cart_map(&self, comm: Handle, dims: &[i32], periods: &[bool]) -> Res<i32> {
        let comm = self.comms.get_ref(comm)?;
        let (_, places) = Cart::new(dims, periods)?;
        if places > comm.size() as i32 {
            return Err(class::DIMS);
        }
        let rank = comm.rank as i32;
        Ok(if rank < places { rank } else { UNDEFINED })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn coordinates_and_ranks_are_inverse(dims in proptest::collection::vec(1..5i32, 0..4),
                                             shift in -9..9i32) {
            let periods = vec![true; dims.len()];
            let (cart, places) = Cart::new(&dims, &periods).unwrap();
            for rank in 0..places {
                let coords = cart.coords(rank);
                prop_assert_eq!(cart.rank(&coords), Ok(rank));
                for d in 0..dims.len() {
                    let there = cart.neighbour(&coords, d, shift.into());
                    let back = cart.neighbour(&cart.coords(there), d, i64::from(-shift));
                    prop_assert_eq!(back, rank);
                }
            }
        }
    }

    #[test]
    fn wrong_grids_are_refused() {
        assert_eq!(Cart::new(&[2, 0], &[false; 2]), Err(class::DIMS));
        assert_eq!(Cart::new(&[1 << 20, 1 << 20], &[false; 2]), Err(class::DIMS));
    }

    #[test]
    fn a_grid_without_periods_ends() {
        let (cart, _) = Cart::new(&[2, 3], &[false, true]).unwrap();
        assert_eq!(cart.neighbour(&[0, 1], 0, -1), PROC_NULL);
        assert_eq!(cart.neighbour(&[0, 1], 0, 1), 4);
        assert_eq!(cart.neighbour(&[0, 2], 1, 1), 0);
        assert_eq!(cart.rank(&[2, 0]), Err(class::ARG));
        assert_eq!(cart.rank(&[1, -1]), Ok(5));
    }
}
