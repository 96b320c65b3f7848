//! Several MPI programs of a rank at once: who calls `MPI_Init` first is the rank, the others are
//! jobs of their own.
//!
//! Kept true: a job in which chance made that different on two ranks, so that the world of one
//! program has ranks of another, ends and says so. What was so before a rank was started anew does
//! not count.

use crate::Job;
use eyrie_control::node::Beside;

/// Of a rank, most pairs that are kept; those after it are not compared.
const MOST: usize = 256;

impl Job {
    pub(crate) fn found_beside(&mut self, rank: u32, programs: Beside) {
        let crossed = (0u32..).zip(&self.ranks.all).find(|(other, r)| {
            *other != rank && r.coming_back.beside.iter().any(|b| b.is_crossed_by(&programs))
        });
        if let Some((other, _)) = crossed {
            let name = &programs.name;
            self.fatal(format!(
                "rank {rank}: {name} is beside the program that is the rank there, but on rank \
                 {other} {name} is that program: two MPI programs at once, of which now the one \
                 and now the other calls MPI_Init first. Start them one after the other, or each \
                 with ranks of its own (eyrie run -n 2 ./a : -n 2 ./b)"
            ));
            return;
        }
        let known = &mut self.ranks.rank(rank).coming_back.beside;
        if known.len() < MOST && !known.contains(&programs) {
            known.push(programs);
        }
    }
}
