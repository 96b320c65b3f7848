//! Sliding: ranks move by one node each along an axis of the grid, from the lost node to the
//! nearest spare, so that neighbours stay neighbours (Hori et al. 2015, 2020).
//!
//! With one dimension the lost node's line slides. With two all lines of a plane slide that are
//! beside it along another axis, with three all of a space: then nobody's neighbours are further
//! away than one node more. Each line needs a spare at its end.

use crate::network::Lattice;
use crate::shape::Node;
use crate::situation::{Move, NOBODY};

/// How ranks slide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slide {
    /// Along which axis of the grid.
    pub axis: usize,
    pub forward: bool,
    /// Axes, as bits, along which whole lines slide together.
    pub together: u32,
}

impl Slide {
    /// In how many dimensions ranks slide.
    pub fn dimensions(&self) -> u32 {
        1 + self.together.count_ones()
    }

    /// All ways to slide in a grid, in up to three dimensions.
    pub fn all(lattice: &Lattice) -> Vec<Slide> {
        let axes = lattice.dims().len();
        let mut all = Vec::new();
        for together in 0..1u32 << axes {
            for axis in (0..axes).filter(|axis| together & 1 << axis == 0) {
                for forward in [true, false] {
                    all.push(Slide { axis, forward, together });
                }
            }
        }
        let is_wide = |slide: &Slide, axis: usize| {
            lattice.dims()[axis] > 1 || slide.together & 1 << axis == 0
        };
        all.retain(|slide| slide.dimensions() <= 3 && (0..axes).all(|axis| is_wide(slide, axis)));
        all.sort_by_key(|slide| (slide.dimensions(), slide.together, slide.axis, !slide.forward));
        all
    }

    /// The cells from which lines start: the lost one's, and those beside it.
    fn starts(&self, lattice: &Lattice, lost: u32) -> Vec<u32> {
        let mut starts = vec![lost];
        for axis in (0..lattice.dims().len()).filter(|axis| self.together & 1 << axis != 0) {
            let (size, stride) = (lattice.dims()[axis], lattice.stride(axis));
            let first = starts.iter().map(|cell| cell - lattice.coordinate(*cell, axis) * stride);
            starts = first.flat_map(|first| (0..size).map(move |at| first + at * stride)).collect();
        }
        starts
    }

    /// Who moves where. None if a line has no spare at its end, or another lost node in its way.
    ///
    /// `is_spare` and `first_rank`: of each node.
    pub fn moves(
        &self,
        lattice: &Lattice,
        lost: Node,
        is_spare: &[bool],
        first_rank: &[u32],
    ) -> Option<Vec<Move>> {
        let mut moves = Vec::new();
        for start in self.starts(lattice, lattice.cell(lost)) {
            let mut cell = start;
            loop {
                let from = lattice.node(cell);
                // The line ends at a spare; one that starts with a spare has nothing to move.
                if is_spare[from as usize] {
                    break;
                }
                if first_rank[from as usize] == NOBODY && from != lost {
                    return None;
                }
                cell =
                    lattice.beside(cell, self.axis, self.forward).filter(|next| *next != start)?;
                moves.push(Move { from, to: lattice.node(cell) });
            }
        }
        Some(moves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4x3 with the last row spare.
    fn grid() -> (Lattice, Vec<bool>, Vec<u32>) {
        let lattice = Lattice::new(vec![4, 3], vec![false; 2], (0..12).collect());
        let is_spare: Vec<bool> = (0..12).map(|node| node >= 8).collect();
        let first = (0..12).map(|node| if node < 8 { node } else { NOBODY }).collect();
        (lattice, is_spare, first)
    }

    fn pairs(moves: Option<Vec<Move>>) -> Option<Vec<(Node, Node)>> {
        moves.map(|moves| moves.iter().map(|each| (each.from, each.to)).collect())
    }

    #[test]
    fn a_line_slides_to_its_spare() {
        let (lattice, is_spare, first) = grid();
        let slide = |axis, forward, together| {
            pairs(Slide { axis, forward, together }.moves(&lattice, 1, &is_spare, &first))
        };
        assert_eq!(slide(1, true, 0), Some(vec![(1, 5), (5, 9)]));
        // No spare before it, and none along x.
        assert_eq!(slide(1, false, 0), None);
        assert_eq!(slide(0, true, 0), None);
        // In two dimensions all columns slide.
        let all = slide(1, true, 1).unwrap();
        assert_eq!(all.len(), 8);
        assert!(all.contains(&(0, 4)) && all.contains(&(7, 11)));
    }

    #[test]
    fn from_the_row_before_only_that_row_moves() {
        let (lattice, is_spare, first) = grid();
        let slide = Slide { axis: 1, forward: true, together: 1 };
        let moves = pairs(slide.moves(&lattice, 6, &is_spare, &first));
        assert_eq!(moves, Some(vec![(4, 8), (5, 9), (6, 10), (7, 11)]));
    }

    #[test]
    fn a_spare_that_is_taken_is_no_end() {
        let (lattice, mut is_spare, mut first) = grid();
        (is_spare[9], first[9]) = (false, 5);
        let slide = Slide { axis: 1, forward: true, together: 0 };
        assert_eq!(slide.moves(&lattice, 1, &is_spare, &first), None);
        // Neither is a node that was lost before.
        first[9] = NOBODY;
        assert_eq!(slide.moves(&lattice, 1, &is_spare, &first), None);
    }

    #[test]
    fn a_ring_slides_over_its_end() {
        let lattice = Lattice::new(vec![4], vec![true], (0..4).collect());
        let (is_spare, first) = ([true, false, false, false], [NOBODY, 0, 1, 2]);
        let slide = Slide { axis: 0, forward: true, together: 0 };
        let moves = pairs(slide.moves(&lattice, 2, &is_spare, &first));
        assert_eq!(moves, Some(vec![(2, 3), (3, 0)]));
    }

    #[test]
    fn all_ways_to_slide() {
        let (lattice, ..) = grid();
        // Each axis both ways, alone and with the other one.
        assert_eq!(Slide::all(&lattice).len(), 8);
        let space = Lattice::new(vec![2, 2, 2], vec![false; 3], (0..8).collect());
        // Alone 6; in two dimensions 3 * 2 * 2; in three 3 * 2.
        assert_eq!(Slide::all(&space).len(), 24);
    }
}
