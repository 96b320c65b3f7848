//! Graphs of which each rank knows its own edges (MPI 5.0 section 8.5.4). Ranks keep their order.
//!
//! Kept true: the lists of a rank have an order that follows from the arguments alone, by the rank
//! that gave an edge, then by the order in which it did, so a rank that is restored has them again.
//! A wrong argument on one rank is an error on all of them: none waits for one that gave up.

use std::rc::Rc;

use crate::coll::Ints;
use crate::comm::{Comm, Inherit};
use crate::datatype::predefined::{BYTE, INT32_T, INT64_T};
use crate::error::{Class, Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::topology::{Topology, copied, zeros};

/// `MPI_DIST_GRAPH`
pub const DIST_GRAPH: i32 = 213;

/// The weights that a program gave with edges.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a> {
    /// `MPI_UNWEIGHTED`
    Without,
    /// One for each edge; none for `MPI_WEIGHTS_EMPTY`.
    With(&'a [i32]),
    /// An array with no edges, which does not tell whether others have weights.
    Unknown,
}

/// What one rank knows of all: nothing, or one of these, or both, which is an error.
const WITHOUT: i32 = 1;
const WITH: i32 = 2;

impl Weights<'_> {
    fn votes(self) -> i32 {
        match self {
            Weights::Without => WITHOUT,
            Weights::With(_) => WITH,
            Weights::Unknown => 0,
        }
    }

    /// Those of `edges` edges.
    fn check(self, edges: usize) -> Res<i32> {
        match self {
            Weights::With(list) if list.len() != edges || list.iter().any(|&w| w < 0) => {
                Err(class::ARG)
            }
            Weights::Unknown if edges > 0 => Err(class::ARG),
            _ => Ok(self.votes()),
        }
    }
}

/// The edges at one rank in one direction, as a program gave them.
#[derive(Clone, Copy, Debug)]
pub struct Adjacent<'a> {
    pub ranks: &'a [i32],
    pub weights: Weights<'a>,
}

impl Adjacent<'_> {
    fn check(&self, size: u32) -> Res<i32> {
        check_ranks(self.ranks, size)?;
        self.weights.check(self.ranks.len())
    }

    fn side(&self) -> Res<Side> {
        let weights = match self.weights {
            Weights::With(list) => copied(list)?,
            _ => Vec::new(),
        };
        Ok(Side { ranks: copied(self.ranks)?, weights })
    }
}

/// Any edges of the graph, as a program gave them: `degrees[i]` from `sources[i]`.
#[derive(Clone, Copy, Debug)]
pub struct Edges<'a> {
    pub sources: &'a [i32],
    pub degrees: &'a [i32],
    pub destinations: &'a [i32],
    pub weights: Weights<'a>,
}

/// Source, destination, weight.
type Edge = [i32; EDGE_WORDS];
const EDGE_WORDS: usize = 3;

impl Edges<'_> {
    /// The number of destinations that belong to `degrees`.
    pub fn total(degrees: &[i32]) -> Res<usize> {
        let add = |sum: usize, &degree: &i32| sum.checked_add(usize::try_from(degree).ok()?);
        let total = degrees.iter().try_fold(0, add);
        total.filter(|&n| n < isize::MAX as usize / size_of::<Edge>() / 2).ok_or(class::ARG)
    }

    fn check(&self, size: u32) -> Res<i32> {
        let total = Edges::total(self.degrees)?;
        if self.sources.len() != self.degrees.len() || self.destinations.len() != total {
            return Err(class::ARG);
        }
        check_ranks(self.sources, size)?;
        check_ranks(self.destinations, size)?;
        self.weights.check(total)
    }

    /// In the order in which they were given; checked before.
    fn each(&self) -> impl Iterator<Item = Edge> {
        let repeat = |(&source, &degree): (&i32, &i32)| (0..degree).map(move |_| source);
        let sources = self.sources.iter().zip(self.degrees).flat_map(repeat);
        let weights = if let Weights::With(list) = self.weights { list } else { &[] };
        sources.zip(self.destinations).enumerate().map(|(i, (source, &destination))| {
            [source, destination, weights.get(i).copied().unwrap_or(0)]
        })
    }

    /// The ranks that an edge is told to.
    fn ends([source, destination, _]: Edge) -> impl Iterator<Item = usize> {
        let other = (destination != source).then_some(destination);
        [source].into_iter().chain(other).map(|rank| rank as usize)
    }

    /// The edges at each rank as words, rank by rank, and how many words there are for each.
    fn by_rank(&self, size: u32) -> Res<(Vec<i32>, Vec<i64>)> {
        let mut counts: Vec<i64> = zeros(size as usize)?;
        for end in self.each().flat_map(Edges::ends) {
            counts[end] += EDGE_WORDS as i64;
        }
        let (mut next, total) = starts(&counts)?;
        let mut words = room(total)?;
        for edge in self.each() {
            for end in Edges::ends(edge) {
                let at = next[end] as usize;
                words[at..at + EDGE_WORDS].copy_from_slice(&edge);
                next[end] += EDGE_WORDS as i64;
            }
        }
        Ok((words, counts))
    }
}

/// Where the part of each rank begins, and the length of all.
fn starts(counts: &[i64]) -> Res<(Vec<i64>, usize)> {
    let mut starts = zeros(counts.len())?;
    let mut total = 0i64;
    for (start, &count) in starts.iter_mut().zip(counts) {
        *start = total;
        total = total.checked_add(count).ok_or(class::NO_MEM)?;
    }
    Ok((starts, usize::try_from(total).map_err(|_| class::NO_MEM)?))
}

/// Words to send or to receive: never none, so that their address is no special one.
fn room(words: usize) -> Res<Vec<i32>> {
    zeros(words.max(1))
}

fn check_ranks(ranks: &[i32], size: u32) -> Res<()> {
    let is_rank = |&rank: &i32| u32::try_from(rank).is_ok_and(|rank| rank < size);
    if ranks.iter().all(is_rank) { Ok(()) } else { Err(class::RANK) }
}

/// The edges at this rank in one direction.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) ranks: Vec<i32>,
    /// One for each, or none.
    weights: Vec<i32>,
}

impl Side {
    fn add(&mut self, rank: i32, weight: Option<i32>) -> Res<()> {
        self.ranks.try_reserve(1).map_err(|_| class::NO_MEM)?;
        self.weights.try_reserve(1).map_err(|_| class::NO_MEM)?;
        self.ranks.push(rank);
        self.weights.extend(weight);
        Ok(())
    }

    fn degree(&self) -> Res<i32> {
        i32::try_from(self.ranks.len()).map_err(|_| class::ARG)
    }

    fn copy_to(&self, ranks: &mut [i32], weights: &mut [i32]) {
        ranks.iter_mut().zip(&self.ranks).for_each(|(to, &from)| *to = from);
        weights.iter_mut().zip(&self.weights).for_each(|(to, &from)| *to = from);
    }
}

/// What this rank knows of the graph of a communicator.
#[derive(Debug, PartialEq, Eq)]
pub struct DistGraph {
    pub(crate) sources: Side,
    pub(crate) destinations: Side,
    weighted: bool,
}

impl DistGraph {
    /// Of the edges at rank `me`.
    fn of(me: u32, words: &[i32], weighted: bool) -> Res<DistGraph> {
        let (mut sources, mut destinations) = (Side::default(), Side::default());
        let mine = |rank: i32| u32::try_from(rank) == Ok(me);
        for edge in words.chunks_exact(EDGE_WORDS) {
            let weight = weighted.then_some(edge[2]);
            if mine(edge[0]) {
                destinations.add(edge[1], weight)?;
            }
            if mine(edge[1]) {
                sources.add(edge[0], weight)?;
            }
        }
        Ok(DistGraph { sources, destinations, weighted })
    }
}

impl Machine {
    fn dist_graph(&self, comm: Handle) -> Res<&DistGraph> {
        match self.topology(comm)? {
            Topology::DistGraph(graph) => Ok(graph),
            _ => Err(class::TOPOLOGY),
        }
    }

    /// `given`: sources and destinations of this rank, or why they could not be read.
    pub fn dist_graph_create_adjacent(
        &mut self,
        comm: Handle,
        given: Res<[Adjacent; 2]>,
        info: Handle,
    ) -> Res<Handle> {
        let comm = self.comms.intra(comm)?;
        let votes = given.and_then(|[sources, destinations]| {
            self.infos.get_optional(info)?;
            Ok(sources.check(comm.size())? | destinations.check(comm.size())?)
        });
        let weighted = self.agree_on_weights(&comm, votes)?;
        let [sources, destinations] = given?;
        let (sources, destinations) = (sources.side()?, destinations.side()?);
        self.install_dist_graph(&comm, DistGraph { sources, destinations, weighted })
    }

    /// `given`: edges between any ranks, or why they could not be read.
    pub fn dist_graph_create(
        &mut self,
        comm: Handle,
        given: Res<Edges>,
        info: Handle,
    ) -> Res<Handle> {
        let parent = self.comms.intra(comm)?;
        let votes = given.and_then(|edges| {
            self.infos.get_optional(info)?;
            edges.check(parent.size())
        });
        let weighted = self.agree_on_weights(&parent, votes)?;
        let words = self.exchange_edges(comm, &parent, &given?)?;
        let graph = DistGraph::of(parent.rank, &words, weighted)?;
        self.install_dist_graph(&parent, graph)
    }

    fn install_dist_graph(&mut self, comm: &Rc<Comm>, graph: DistGraph) -> Res<Handle> {
        let ctx = self.agree_context_of(comm)?;
        let topology = Some(Topology::DistGraph(Rc::new(graph)));
        let inherit = Inherit { topology, ..Inherit::default() };
        self.comm_install(comm, ctx, comm.group.clone(), inherit)
    }

    /// Whether the edges of all ranks have weights, by the `votes` of each. An error of a rank is
    /// one of all of them: its own where it has one, else that of the first.
    fn agree_on_weights(&mut self, comm: &Rc<Comm>, votes: Res<i32>) -> Res<bool> {
        let own = votes.unwrap_or_else(|error| -error.0);
        let mut all: Vec<i32> = zeros(comm.size() as usize)?;
        let byte = self.types.get(BYTE)?;
        // SAFETY: a word, and a word for each rank.
        unsafe {
            let (from, to) = ((&raw const own).cast(), all.as_mut_ptr().cast());
            self.allgather_bytes(comm, &byte, from, to, size_of::<i32>())?;
        }
        votes?;
        if let Some(error) = all.iter().find(|&&word| word < 0) {
            return Err(Class(-error));
        }
        match all.iter().fold(0, |sum, votes| sum | votes) {
            WITHOUT => Ok(false),
            // Where nobody knows, all have given arrays.
            0 | WITH => Ok(true),
            _ => Err(class::ARG),
        }
    }

    /// The edges at this rank, as words, in the order of the ranks that gave them.
    fn exchange_edges(&mut self, handle: Handle, comm: &Comm, edges: &Edges) -> Res<Vec<i32>> {
        let (out, given) = edges.by_rank(comm.size())?;
        let (from, _) = starts(&given)?;
        let mut taken: Vec<i64> = zeros(given.len())?;
        let (counts, room_for) = (given.as_ptr(), taken.as_mut_ptr());
        // SAFETY: both lists have a number for each rank.
        unsafe {
            let (counts, room_for) = (counts.cast(), room_for.cast());
            self.alltoall(counts, 1, INT64_T, room_for, 1, INT64_T, handle)?;
        }
        let (to, total) = starts(&taken)?;
        let mut inn = room(total)?;
        let ints = |list: &[i64]| Ints::I64(list.as_ptr());
        // SAFETY: the parts of all ranks lie in the buffers, one behind the other.
        unsafe {
            self.alltoallv(
                out.as_ptr().cast(),
                ints(&given),
                ints(&from),
                INT32_T,
                inn.as_mut_ptr().cast(),
                ints(&taken),
                ints(&to),
                INT32_T,
                handle,
            )?;
        }
        inn.truncate(total);
        Ok(inn)
    }

    /// Numbers of sources and of destinations, and whether edges have weights.
    pub fn dist_graph_neighbors_count(&self, comm: Handle) -> Res<(i32, i32, bool)> {
        let graph = self.dist_graph(comm)?;
        Ok((graph.sources.degree()?, graph.destinations.degree()?, graph.weighted))
    }

    /// Fills as much as the slices hold, ranks and weights of sources, then of destinations.
    /// Without weights those slices stay as they are.
    pub fn dist_graph_neighbors(
        &self,
        comm: Handle,
        (sources, source_weights): (&mut [i32], &mut [i32]),
        (destinations, destination_weights): (&mut [i32], &mut [i32]),
    ) -> Res<()> {
        let graph = self.dist_graph(comm)?;
        graph.sources.copy_to(sources, source_weights);
        graph.destinations.copy_to(destinations, destination_weights);
        Ok(())
    }
}

#[cfg(test)]
#[path = "topo_dist_graph_tests.rs"]
mod tests;
