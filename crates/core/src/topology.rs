//! What a communicator knows of who is next to whom (MPI 5.0 chapter 8).

use std::rc::Rc;

use crate::consts::UNDEFINED;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::topo_cart::{CART, Cart};
use crate::topo_dist_graph::{DIST_GRAPH, DistGraph};
use crate::topo_graph::{GRAPH, Graph};

/// A topology; duplicates of a communicator share a graph.
#[derive(Clone, Debug)]
pub(crate) enum Topology {
    Cart(Cart),
    Graph(Rc<Graph>),
    DistGraph(Rc<DistGraph>),
}

impl Machine {
    /// `CART`, `GRAPH`, `DIST_GRAPH` or `UNDEFINED`.
    pub fn topo_test(&self, comm: Handle) -> Res<i32> {
        Ok(match self.comms.get_ref(comm)?.topology {
            Some(Topology::Cart(_)) => CART,
            Some(Topology::Graph(_)) => GRAPH,
            Some(Topology::DistGraph(_)) => DIST_GRAPH,
            None => UNDEFINED,
        })
    }

    pub(crate) fn topology(&self, comm: Handle) -> Res<&Topology> {
        self.comms.get_ref(comm)?.topology.as_ref().ok_or(class::TOPOLOGY)
    }
}

/// A list of so many zeros; programs and other ranks say how many.
pub(crate) fn zeros<T: Clone + Default>(len: usize) -> Res<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| class::NO_MEM)?;
    list.resize(len, T::default());
    Ok(list)
}

/// A copy of a list that a program gave.
pub(crate) fn copied(from: &[i32]) -> Res<Vec<i32>> {
    let mut list = zeros(from.len())?;
    list.copy_from_slice(from);
    Ok(list)
}
