//! Whom a rank exchanges with in a neighbourhood collective (MPI 5.0 section 8.7).
//!
//! Kept true: lists and their order follow from the topology alone, so all ranks that talk to each
//! other know in which order they do, also in a replay.

use crate::comm::Comm;
use crate::error::{Res, class};
use crate::topology::Topology;

/// Ranks of the communicator; `None` is `MPI_PROC_NULL`.
pub(crate) type Ranks = Vec<Option<u32>>;

/// Sources and destinations, in the order of the blocks of a neighbourhood collective.
pub(crate) fn neighbours(comm: &Comm) -> Res<(Ranks, Ranks)> {
    let me = comm.rank as i32;
    let both = match comm.topology.as_ref().ok_or(class::TOPOLOGY)? {
        Topology::Cart(cart) => ranks(&cart.neighbours(me)),
        Topology::Graph(graph) => ranks(graph.neighbours(me)?),
        Topology::DistGraph(graph) => {
            return Ok((ranks(&graph.sources.ranks), ranks(&graph.destinations.ranks)));
        }
    };
    Ok((both.clone(), both))
}

/// Negative is `MPI_PROC_NULL`.
fn ranks(from: &[i32]) -> Ranks {
    from.iter().map(|&rank| u32::try_from(rank).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consts::{COMM_NULL, COMM_SELF, COMM_WORLD, INFO_NULL};
    use crate::testing;
    use crate::topo_dist_graph::{Adjacent, Weights};

    #[test]
    fn in_a_grid_the_lower_one_comes_first() {
        testing::run(7, |m| {
            let me = m.world().0;
            let world = m.comms.get(COMM_WORLD).unwrap();
            assert_eq!(neighbours(&world), Err(class::TOPOLOGY));
            let grid = m.cart_create(COMM_WORLD, &[2, 3], &[false, true], false).unwrap();
            if grid == COMM_NULL {
                return;
            }
            let row = me / 3 * 3;
            let above = (me >= 3).then(|| me - 3);
            let below = (me < 3).then(|| me + 3);
            let (left, right) = (row + (me + 2) % 3, row + (me + 1) % 3);
            let expect = vec![above, below, Some(left), Some(right)];
            let comm = m.comms.get(grid).unwrap();
            assert_eq!(neighbours(&comm), Ok((expect.clone(), expect)));
            // A dimension of one place: oneself twice, or nobody twice.
            let line = m.cart_create(COMM_SELF, &[1, 1], &[true, false], false).unwrap();
            let expect = vec![Some(0), Some(0), None, None];
            let comm = m.comms.get(line).unwrap();
            assert_eq!(neighbours(&comm), Ok((expect.clone(), expect)));
        });
    }

    #[test]
    fn in_a_graph_they_come_as_the_program_gave_them() {
        testing::run(3, |m| {
            let me = m.world().0;
            let graph = m.graph_create(COMM_WORLD, &[2, 2, 4], &[2, 1, 2, 2]).unwrap();
            let expect = match me {
                0 => vec![Some(2), Some(1)],
                1 => vec![],
                _ => vec![Some(2), Some(2)],
            };
            let comm = m.comms.get(graph).unwrap();
            assert_eq!(neighbours(&comm), Ok((expect.clone(), expect)));
            let adjacent = |ranks| Adjacent { ranks, weights: Weights::Without };
            let given = Ok([adjacent(&[2, 0, 1]), adjacent(&[])]);
            let graph = m.dist_graph_create_adjacent(COMM_WORLD, given, INFO_NULL).unwrap();
            let comm = m.comms.get(graph).unwrap();
            assert_eq!(neighbours(&comm), Ok((vec![Some(2), Some(0), Some(1)], vec![])));
        });
    }
}
