//! Graph topologies (MPI 5.0 chapter 8).

use std::ffi::c_int;

use eyrie_core::error::{Res, class};
use eyrie_core::topo_dist_graph::{Adjacent, Edges, Weights};

use crate::arg::{array, array_mut, len, put};
use crate::repr::*;
use crate::shim::shims;

/// The lists of a graph: where each node's edges end, and the edges.
///
/// # Safety
/// `index` is null or points to `n` ints, `edges` to as many as the last of them says.
unsafe fn graph<'a>(
    n: c_int,
    index: *const c_int,
    edges: *const c_int,
) -> Res<(&'a [c_int], &'a [c_int])> {
    // SAFETY: by the caller's word.
    unsafe {
        let index = array(index, len(n)?)?;
        let all = len(index.last().copied().unwrap_or(0))?;
        Ok((index, array(edges, all)?))
    }
}

/// Weights of `n` edges.
///
/// # Safety
/// `at` is null, special, or points to `n` ints.
unsafe fn weights<'a>(at: *const c_int, n: usize) -> Res<Weights<'a>> {
    if is_unweighted(at) {
        return Ok(Weights::Without);
    }
    match (n, is_weights_empty(at)) {
        (0, true) => Ok(Weights::With(&[])),
        (0, false) => Ok(Weights::Unknown),
        (_, true) => Err(class::ARG),
        // SAFETY: by the caller's word.
        _ => Ok(Weights::With(unsafe { array(at, n) }?)),
    }
}

/// # Safety
/// `ranks` is null or points to `n` ints; `of` as for `weights`.
unsafe fn adjacent<'a>(n: c_int, ranks: *const c_int, of: *const c_int) -> Res<Adjacent<'a>> {
    let n = len(n)?;
    // SAFETY: by the caller's word.
    unsafe { Ok(Adjacent { ranks: array(ranks, n)?, weights: weights(of, n)? }) }
}

/// # Safety
/// `sources` and `degrees` are null or point to `n` ints, `destinations` to as many as `degrees`
/// says in all; `of` as for `weights`.
unsafe fn edges<'a>(
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    of: *const c_int,
) -> Res<Edges<'a>> {
    // SAFETY: by the caller's word.
    unsafe {
        let (sources, degrees) = (array(sources, len(n)?)?, array(degrees, len(n)?)?);
        let all = Edges::total(degrees)?;
        let destinations = array(destinations, all)?;
        Ok(Edges { sources, degrees, destinations, weights: weights(of, all)? })
    }
}

/// Room for weights, if the graph has some and the program wants them.
///
/// # Safety
/// `at` is null, special, or points to `n` ints to which nothing else refers.
unsafe fn weights_out<'a>(at: *mut c_int, n: usize, weighted: bool) -> Res<&'a mut [c_int]> {
    let unwanted = !weighted || is_unweighted(at) || is_weights_empty(at);
    // SAFETY: by the caller's word.
    unsafe { array_mut(at, if unwanted { 0 } else { n }) }
}

shims! {
    fn PMPI_Graph_create (comm: Comm, n: c_int, index: *const c_int, edges: *const c_int,
                          _reorder: c_int, new: *mut Comm) makes new of comm; |m| {
        let (index, edges) = graph(n, index, edges)?;
        m.graph_create(comm.core(), index, edges)?
    }
    fn PMPI_Graph_map (comm: Comm, n: c_int, index: *const c_int, edges: *const c_int,
                       rank: *mut c_int) on comm; |m| {
        let (index, edges) = graph(n, index, edges)?;
        put(rank, rank_out(m.graph_map(comm.core(), index, edges)?))?;
    }
    fn PMPI_Graphdims_get (comm: Comm, nodes: *mut c_int, edges: *mut c_int) on comm; |m| {
        let known = m.graphdims_get(comm.core())?;
        put(nodes, known.0)?;
        put(edges, known.1)?;
    }
    fn PMPI_Graph_get (comm: Comm, max_index: c_int, max_edges: c_int, index: *mut c_int,
                       edges: *mut c_int) on comm; |m| {
        let index = array_mut(index, len(max_index)?)?;
        m.graph_get(comm.core(), index, array_mut(edges, len(max_edges)?)?)?;
    }
    fn PMPI_Graph_neighbors_count (comm: Comm, rank: c_int, n: *mut c_int) on comm; |m| {
        put(n, m.graph_neighbors_count(comm.core(), rank_in(rank))?)?;
    }
    fn PMPI_Graph_neighbors (comm: Comm, rank: c_int, max: c_int, out: *mut c_int) on comm; |m| {
        m.graph_neighbors(comm.core(), rank_in(rank), array_mut(out, len(max)?)?)?;
    }
    fn PMPI_Dist_graph_create_adjacent (
        comm: Comm, n_sources: c_int, sources: *const c_int, source_weights: *const c_int,
        n_dests: c_int, dests: *const c_int, dest_weights: *const c_int, info: Info,
        _reorder: c_int, new: *mut Comm) makes new of comm;
    |m| {
        // What is wrong here the other ranks learn, too: the machine tells them.
        let sources = adjacent(n_sources, sources, source_weights);
        let dests = adjacent(n_dests, dests, dest_weights);
        let given = sources.and_then(|sources| Ok([sources, dests?]));
        m.dist_graph_create_adjacent(comm.core(), given, info.core())?
    }
    fn PMPI_Dist_graph_create (
        comm: Comm, n: c_int, sources: *const c_int, degrees: *const c_int, dests: *const c_int,
        weights: *const c_int, info: Info, _reorder: c_int, new: *mut Comm) makes new of comm;
    |m| {
        let given = edges(n, sources, degrees, dests, weights);
        m.dist_graph_create(comm.core(), given, info.core())?
    }
    fn PMPI_Dist_graph_neighbors_count (comm: Comm, n_sources: *mut c_int, n_dests: *mut c_int,
                                        weighted: *mut c_int) on comm; |m| {
        let known = m.dist_graph_neighbors_count(comm.core())?;
        put(n_sources, known.0)?;
        put(n_dests, known.1)?;
        put(weighted, known.2.into())?;
    }
    fn PMPI_Dist_graph_neighbors (
        comm: Comm, max_sources: c_int, sources: *mut c_int, source_weights: *mut c_int,
        max_dests: c_int, dests: *mut c_int, dest_weights: *mut c_int) on comm;
    |m| {
        let (_, _, weighted) = m.dist_graph_neighbors_count(comm.core())?;
        let (n, k) = (len(max_sources)?, len(max_dests)?);
        let from = (array_mut(sources, n)?, weights_out(source_weights, n, weighted)?);
        let to = (array_mut(dests, k)?, weights_out(dest_weights, k, weighted)?);
        m.dist_graph_neighbors(comm.core(), from, to)?;
    }
}
