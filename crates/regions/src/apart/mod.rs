//! Nodes that do not see each other's folders: the processes of a program hold one vault together.
//!
//! Of each folder one process is the member, the lowest of those that see it; all steps are taken
//! by all processes together, and what members have for each other goes through the program's MPI.
//! What a member does is `eyrie_vault`'s, as in jobs over nodes; every process runs the same
//! coordinator over the same events, so none of them leads.
//!
//! - `packet`: what processes say to one another; `reach`: reading another one's folder
//! - `assembly`: the vault of those members that are there; `round`: a generation
//! - `found`: what of a checkpoint is where
mod assembly;
mod found;
mod packet;
mod reach;
mod round;

pub use found::{Found, look};
pub use reach::Exchange;
pub use round::protect;

use crate::error::{RegionsError, file};
use crate::peers::Peers;
use crate::store;
use assembly::Assembly;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;

/// What the files are called by which processes find out who sees the same folder.
const MARK: &str = "here.";

/// Why parity of all nodes cannot be had in a job of `eyrie run` that brings single ranks back.
pub const NOT_REPEATED: &str = "nodes that do not see each other's folders make parity together, \
     and a rank that `eyrie run` restores by itself cannot do that again: use --ft none or \
     coordinated, or folders that all nodes see, or vault=local";

/// Whether this process may be restored by itself and repeat what it did, by what `eyrie run` says.
pub fn is_repeated() -> bool {
    std::env::var("EYRIE_REPEATS").is_ok_and(|repeats| repeats == "1")
}

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
    let marked = store::make(&place)
        .and_then(|()| fs::write(&mark, b"").map_err(file("write into", &place)));
    peers.all(marked)?;
    let here = marks(folder, &token);
    let seen: usize =
        folders.iter().map(|f| marks(f.as_ref(), &token).map_or(0, |m| m.len())).sum();
    // Nobody removes its mark before all have looked.
    let here = peers.all(here);
    let here = here?;
    let mut removed = store::remove(&mark);
    if here.first() == Some(&peers.rank) {
        removed = removed.and_then(|()| tidy(&place, &token));
    }
    let first = here.first().copied().unwrap_or(peers.rank);
    let mut leaders: Vec<u32> = share(peers, Some(&first))?.into_iter().map(|(_, l)| l).collect();
    leaders.sort_unstable();
    leaders.dedup();
    let sees = i64::from(peers.leads() && seen == peers.ranks as usize);
    let mut all = [sees];
    peers.most(&mut all)?;
    peers.all(removed)?;
    Ok((Apart { here, leaders, domain }, all == [1]))
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
