//! Graphs that every rank knows as a whole (MPI 5.0 section 8.5.3). Ranks keep their order.

use std::rc::Rc;

use crate::comm::Inherit;
use crate::consts::{COMM_NULL, UNDEFINED};
use crate::error::{Res, class};
use crate::group::Group;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::topology::{Topology, copied};

/// `MPI_GRAPH`
pub const GRAPH: i32 = 212;

/// The graph of a communicator.
#[derive(Debug, PartialEq, Eq)]
pub struct Graph {
    /// Where the neighbours of each node end in `edges`: never decreasing, at last its length.
    index: Vec<i32>,
    /// All of them are nodes.
    edges: Vec<i32>,
}

impl Graph {
    /// A graph and its number of nodes, of which there are at most `most`.
    fn new(index: &[i32], edges: &[i32], most: u32) -> Res<(Graph, i32)> {
        let nodes = i32::try_from(index.len()).map_err(|_| class::ARG)?;
        if i64::from(nodes) > i64::from(most) {
            return Err(class::ARG);
        }
        let last = index.last().copied().unwrap_or(0);
        let rises = index.first().is_none_or(|&end| end >= 0) && index.is_sorted();
        if !rises || usize::try_from(last) != Ok(edges.len()) {
            return Err(class::ARG);
        }
        if edges.iter().any(|edge| !(0..nodes).contains(edge)) {
            return Err(class::RANK);
        }
        Ok((Graph { index: copied(index)?, edges: copied(edges)? }, nodes))
    }

    /// In the order in which the program gave them.
    pub(crate) fn neighbours(&self, rank: i32) -> Res<&[i32]> {
        let at = usize::try_from(rank).ok().filter(|&at| at < self.index.len());
        let at = at.ok_or(class::RANK)?;
        let start = if at == 0 { 0 } else { self.index[at - 1] };
        Ok(&self.edges[start as usize..self.index[at] as usize])
    }
}

impl Machine {
    fn graph(&self, comm: Handle) -> Res<&Graph> {
        match self.topology(comm)? {
            Topology::Graph(graph) => Ok(graph),
            _ => Err(class::TOPOLOGY),
        }
    }

    /// Ranks beyond the graph get `COMM_NULL`.
    pub fn graph_create(&mut self, comm: Handle, index: &[i32], edges: &[i32]) -> Res<Handle> {
        let comm = self.comms.intra(comm)?;
        let (graph, nodes) = Graph::new(index, edges, comm.size())?;
        let ctx = self.agree_context_of(&comm)?;
        if comm.rank as i32 >= nodes {
            return Ok(COMM_NULL);
        }
        let members = comm.group.members()[..nodes as usize].to_vec();
        let group = Rc::new(Group::new(members, comm.group.world(comm.rank)));
        let topology = Some(Topology::Graph(Rc::new(graph)));
        self.comm_install(&comm, ctx, group, Inherit { topology, ..Inherit::default() })
    }

    /// Numbers of nodes and of edges.
    pub fn graphdims_get(&self, comm: Handle) -> Res<(i32, i32)> {
        let graph = self.graph(comm)?;
        Ok((graph.index.len() as i32, graph.edges.len() as i32))
    }

    /// Fills as much as the slices hold.
    pub fn graph_get(&self, comm: Handle, index: &mut [i32], edges: &mut [i32]) -> Res<()> {
        let graph = self.graph(comm)?;
        index.iter_mut().zip(&graph.index).for_each(|(to, &from)| *to = from);
        edges.iter_mut().zip(&graph.edges).for_each(|(to, &from)| *to = from);
        Ok(())
    }

    pub fn graph_neighbors_count(&self, comm: Handle, rank: i32) -> Res<i32> {
        Ok(self.graph(comm)?.neighbours(rank)?.len() as i32)
    }

    /// Fills as much as the slice holds.
    pub fn graph_neighbors(&self, comm: Handle, rank: i32, out: &mut [i32]) -> Res<()> {
        let neighbours = self.graph(comm)?.neighbours(rank)?;
        out.iter_mut().zip(neighbours).for_each(|(to, &from)| *to = from);
        Ok(())
    }

    /// New rank or `UNDEFINED`.
    pub fn graph_map(&self, comm: Handle, index: &[i32], edges: &[i32]) -> Res<i32> {
        let comm = self.comms.get_ref(comm)?;
        let (_, nodes) = Graph::new(index, edges, comm.size())?;
        let rank = comm.rank as i32;
        Ok(if rank < nodes { rank } else { UNDEFINED })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consts::{COMM_WORLD, CONGRUENT};
    use crate::testing;

    /// The example of the standard.
    const INDEX: [i32; 4] = [2, 3, 4, 6];
    const EDGES: [i32; 6] = [1, 3, 0, 3, 0, 2];

    #[test]
    fn the_standards_example() {
        let (graph, nodes) = Graph::new(&INDEX, &EDGES, 4).unwrap();
        assert_eq!(nodes, 4);
        let of = |rank| graph.neighbours(rank).map(<[i32]>::to_vec);
        assert_eq!(of(0), Ok(vec![1, 3]));
        assert_eq!(of(1), Ok(vec![0]));
        assert_eq!(of(3), Ok(vec![0, 2]));
        assert_eq!((of(4), of(-1)), (Err(class::RANK), Err(class::RANK)));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let new = |index: &[i32], edges: &[i32]| Graph::new(index, edges, 4).map(|_| ());
        assert_eq!(new(&[], &[]), Ok(()));
        assert_eq!(new(&[0, 0, 3], &[2, 2, 2]), Ok(()));
        assert_eq!(new(&[0; 5], &[]), Err(class::ARG));
        assert_eq!(new(&[2, 1], &[0]), Err(class::ARG));
        assert_eq!(new(&[-1, 0], &[]), Err(class::ARG));
        assert_eq!(new(&[-2], &[]), Err(class::ARG));
        assert_eq!(new(&[1, 3], &[0, 0]), Err(class::ARG));
        assert_eq!(new(&[1, 2], &[0, 2]), Err(class::RANK));
        assert_eq!(new(&[1, 2], &[-1, 0]), Err(class::RANK));
    }

    #[test]
    fn a_graph_and_its_copy() {
        testing::run(6, |m| {
            let me = m.world().0 as i32;
            assert_eq!(m.graph_create(COMM_WORLD, &[0; 7], &[]), Err(class::ARG));
            assert_eq!(m.graph_create(COMM_WORLD, &[], &[]), Ok(COMM_NULL));
            let map = m.graph_map(COMM_WORLD, &INDEX, &EDGES);
            assert_eq!(map, Ok(if me < 4 { me } else { UNDEFINED }));
            let comm = m.graph_create(COMM_WORLD, &INDEX, &EDGES).unwrap();
            if me >= 4 {
                assert_eq!(comm, COMM_NULL);
                return;
            }
            let dup = m.comm_dup(comm).unwrap();
            assert_eq!(m.comm_compare(comm, dup), Ok(CONGRUENT));
            for comm in [comm, dup] {
                assert_eq!(m.topo_test(comm), Ok(GRAPH));
                assert_eq!((m.comm_rank(comm), m.comm_size(comm)), (Ok(me), Ok(4)));
                assert_eq!(m.graphdims_get(comm), Ok((4, 6)));
                let (mut index, mut edges) = ([-9; 3], [-9; 8]);
                m.graph_get(comm, &mut index, &mut edges).unwrap();
                assert_eq!((index, edges), ([2, 3, 4], [1, 3, 0, 3, 0, 2, -9, -9]));
                assert_eq!(m.graph_neighbors_count(comm, 3), Ok(2));
                let mut one = [-9];
                m.graph_neighbors(comm, 3, &mut one).unwrap();
                assert_eq!(one, [0]);
                assert_eq!(m.graph_neighbors_count(comm, 4), Err(class::RANK));
                assert_eq!(m.cartdim_get(comm), Err(class::TOPOLOGY));
                assert_eq!(m.dist_graph_neighbors_count(comm), Err(class::TOPOLOGY));
            }
            assert_eq!(m.graphdims_get(COMM_WORLD), Err(class::TOPOLOGY));
            assert_eq!(m.graphdims_get(COMM_NULL), Err(class::COMM));
        });
    }
}
