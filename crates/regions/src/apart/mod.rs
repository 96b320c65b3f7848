//! Nodes that do not see each other's folders: the processes of a program hold one vault together.
//!
//! Of each folder one process is the member, the lowest of those that see it; all steps are taken
//! by all processes together, and what members have for each other goes through the program's MPI.
//! What a member does is `eyrie_vault`'s, as in jobs over nodes; every process runs the same
//! coordinator over the same events, so none of them leads.
//!
//! - `packet`: what processes say to one another; `reach`: reading another one's folder
//! - `assembly`: the vault of those members that are there; `round`: a generation
//! - `probe`: how fast members reach each other
//! - `mirrored`, `parts`: what a process needs to do all that again when it is restored alone
//! - `found`: what of a checkpoint is where
mod assembly;
mod found;
mod mirrored;
mod packet;
mod parts;
mod probe;
mod reach;
mod round;

pub use found::{Found, look};
pub use probe::measure;
pub use reach::Exchange;
pub use round::{Makers, protect};

use crate::error::{RegionsError, file};
use crate::peers::Peers;
use crate::store;
use assembly::Assembly;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What the files are called by which processes find out who sees the same folder.
const MARK: &str = "here.";

/// Why a job of `eyrie run` that brings single ranks back cannot have parity of all nodes with
/// another MPI library than Eyrie's.
pub const NOT_REPEATED: &str = "nodes that do not see each other's folders make parity together, \
     and a rank that `eyrie run` restores by itself has to do that again, for which this MPI \
     library records nothing: use Eyrie's, or --ft none or coordinated, or folders that all nodes \
     see, or vault=local";

/// Which processes see the same folder, and which of them are members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// Those that see this process's folder; the first is its member.
    pub here: Vec<u32>,
    /// The first ones of all folders.
    pub leaders: Vec<u32>,
    /// What fails together with this node.
    pub domain: String,
}

impl Apart {
    /// Whether this process is its folder's member.
    pub fn leads(&self, rank: u32) -> bool {
        self.here.first() == Some(&rank)
    }

    /// Processes that do not see this folder, and may have before they were on other nodes: for its
    /// member, which clears away what they left.
    pub fn gone(&self, peers: &Peers) -> Vec<u32> {
        let others = (0..peers.ranks).filter(|rank| !self.here.contains(rank));
        if self.leads(peers.rank) { others.collect() } else { Vec::new() }
    }

    /// The process through which this one's folder is read.
    pub fn leader(&self) -> u32 {
        self.here.first().copied().unwrap_or(0)
    }
}

/// What all processes have to say, of those that have.
pub(crate) fn share<T: Serialize + DeserializeOwned>(
    peers: &Peers,
    own: Option<&T>,
) -> Result<Vec<(u32, T)>, RegionsError> {
    let bad = |_| RegionsError::Use("the processes do not understand each other".into());
    let own = own.map_or(Ok(Vec::new()), postcard::to_allocvec);
    let all = peers.gather(&peers.all(own.map_err(bad))?)?;
    let told = (0..).zip(&all).filter(|(_, bytes)| !bytes.is_empty());
    told.map(|(rank, bytes)| Ok((rank, postcard::from_bytes(bytes).map_err(bad)?))).collect()
}

fn marks(folder: &Path, token: &str) -> Result<Vec<u32>, RegionsError> {
    let names = store::names(&store::files(folder))?;
    let rank = |name: &String| name.strip_prefix(token)?.parse().ok();
    let mut ranks: Vec<u32> = names.iter().filter_map(rank).collect();
    ranks.sort_unstable();
    Ok(ranks)
}

/// Finds out who sees which folder, and whether process 0 sees all of these. All processes call it
/// together. `run`: a number that no other run has.
pub fn survey(
    peers: &Peers,
    folder: &Path,
    folders: &[impl AsRef<Path>],
    (run, domain): (i64, String),
) -> Result<(Apart, bool), RegionsError> {
    let token = format!("{MARK}{run:016x}.");
    let place = store::files(folder);
    let mark = place.join(format!("{token}{}", peers.rank));
    let marked = store::make(&place).and_then(|()| {
        peers.undisturbed(|| fs::write(&mark, b"").map_err(file("write into", &place)))
    });
    // Where a process repeats itself its mark is not needed any more.
    peers.all(marked.or_else(|error| if peers.repeats() { Ok(()) } else { Err(error) }))?;
    let looked = peers.undisturbed(|| {
        let seen: usize =
            folders.iter().map(|f| marks(f.as_ref(), &token).map_or(0, |m| m.len())).sum();
        Ok((marks(folder, &token), seen))
    });
    let (here, seen) = looked.unwrap_or_else(|error| (Err(error), 0));
    // What is seen is told before others may change it; nobody removes its mark before all have
    // looked.
    let own = (here.as_ref().ok().and_then(|here| here.first().copied()), seen);
    let (first, seen) = peers.settled(own)?;
    peers.all(here)?;
    // Where a process repeats itself the others may be further.
    let tidies = first == Some(peers.rank) && !peers.repeats();
    let removed = peers.undisturbed(|| {
        store::remove(&mark)?;
        if tidies { tidy(&place, &token) } else { Ok(()) }
    });
    let first = first.map_or(peers.rank, |first| first.min(peers.rank));
    let firsts: Vec<u32> =
        share(peers, Some(&first))?.into_iter().map(|(_, first)| first).collect();
    let (here, leaders) = together(&firsts, peers.rank);
    let sees = i64::from(peers.leads() && seen == peers.ranks as usize);
    let mut all = [sees];
    peers.most(&mut all)?;
    peers.all(removed.or_else(|error| if peers.repeats() { Ok(()) } else { Err(error) }))?;
    Ok((Apart { here, leaders, domain }, all == [1]))
}

/// Of the first process that each has seen in its folder, none above itself: those that are in this
/// one's folder, and the first ones of all folders. What one has seen goes on for those whom it has
/// seen, too: a process may have come to another node after others had looked.
fn together(firsts: &[u32], rank: u32) -> (Vec<u32>, Vec<u32>) {
    let mut leader: Vec<u32> = Vec::with_capacity(firsts.len());
    for (own, first) in (0..).zip(firsts) {
        let known = leader.get(*first as usize).copied();
        leader.push(known.unwrap_or(own));
    }
    let of = |rank: u32| leader.get(rank as usize).copied();
    let here = (0..).zip(&leader).filter(|(_, l)| Some(**l) == of(rank)).map(|(r, _)| r).collect();
    let leaders: BTreeSet<u32> = leader.iter().copied().collect();
    (here, leaders.into_iter().collect())
}

/// Removes marks of runs that ended while they looked.
fn tidy(place: &Path, token: &str) -> Result<(), RegionsError> {
    let left = |name: &&String| name.starts_with(MARK) && !name.starts_with(token);
    let names = store::names(place)?;
    names.iter().filter(left).try_for_each(|name| store::remove(&place.join(name)))
}

/// The name of this machine: what fails as a whole, if nothing else is said.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::together;

    #[test]
    fn all_find_the_same_of_who_is_where() {
        assert_eq!(together(&[0, 0, 2, 3, 2], 4), (vec![2, 4], vec![0, 2, 3]));
        assert_eq!(together(&[0, 0, 2, 3, 2], 1), (vec![0, 1], vec![0, 2, 3]));
        // Process 2 has seen 1, which has seen 0.
        assert_eq!(together(&[0, 0, 1], 2), (vec![0, 1, 2], vec![0]));
    }
}
