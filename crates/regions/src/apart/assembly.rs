//! The vault of those members that are there: what each has is told to all, and each does with its
//! own what follows from that, as `Vault::open` does for folders that one process sees.
//!
//! Kept true: whoever wrote there before is fenced off before anything is looked at; what was
//! committed stays; all processes know the same.

use super::mirrored::Storage;
use super::{Apart, share};
use crate::config::Config;
use crate::error::{RegionsError, file, note};
use crate::label::Label;
use crate::parity::TEMPORARY;
use crate::peers::Peers;
use crate::store;
use eyrie_vault::disk::{self, Disk};
use eyrie_vault::files;
use eyrie_vault::layout::{Level, Place, lay_out};
use eyrie_vault::member::{Member, MemberError};
use eyrie_vault::record::{self, Commit, Dropped, Hash, Identity, hash};
use eyrie_vault::recovery::{self, Found, Verdict};
use eyrie_vault::{Scheme, VaultError};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// What a member says of its folder.
#[derive(Clone, Serialize, Deserialize)]
enum Told {
    Empty { domain: String },
    Member { identity: Identity, dropped: Dropped },
    Bad(String),
}

/// What a member says of its generations.
#[derive(Serialize, Deserialize)]
struct Has {
    node: u32,
    committed: Vec<(u64, Hash)>,
    begun: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
}

/// A vault, of which this process has at most one member.
pub struct Assembly<D> {
    pub id: [u8; 16],
    pub scheme: Scheme,
    pub places: Vec<Place>,
    /// The processes through which nodes are reached; those that are missing are not in it.
    pub leaders: BTreeMap<u32, u32>,
    pub commits: BTreeMap<u64, Commit>,
    /// Generations of which too few members are there to know.
    pub unknown: Vec<u64>,
    pub term: u64,
    /// The highest number that a generation ever had.
    pub last: u64,
    pub member: Option<Member<D>>,
}

fn of(node: u32) -> impl Fn(MemberError) -> RegionsError {
    move |error| RegionsError::Vault(VaultError::Member { node, error })
}

fn misfit(why: String) -> RegionsError {
    RegionsError::Use(why)
}

/// Looks at a folder.
fn look_at<D: Disk>(disk: D, path: &Path, domain: &str) -> (Told, Option<D>, Option<Member<D>>) {
    let bad = |why: &dyn std::fmt::Display| Told::Bad(format!("{}: {why}", path.display()));
    match disk.names() {
        Err(error) => (bad(&error), None, None),
        Ok(names) if names.iter().all(|name| TEMPORARY.contains(&name.as_str())) => {
            (Told::Empty { domain: domain.into() }, Some(disk), None)
        }
        Ok(_) => match Member::open(disk) {
            Ok(Some(member)) => {
                let (identity, dropped) = (member.identity.clone(), member.dropped.clone());
                (Told::Member { identity, dropped }, None, Some(member))
            }
            Ok(None) => (bad(&"it is no member of a vault, and not empty"), None, None),
            Err(error) => (bad(&error), None, None),
        },
    }
}

impl<D: Storage> Assembly<D> {
    /// The vault of all folders, for writing (`change`), or only to look into it. `None`: there is
    /// none to look into.
    pub fn open(
        (peers, apart): (&Peers, &Apart),
        config: &Config,
        folder: &Path,
        open: impl Fn(&Path) -> Option<io::Result<D>>,
        change: bool,
    ) -> Result<Option<Assembly<D>>, RegionsError> {
        let path = store::member(folder);
        let disk = if apart.leads(peers.rank) { open(&path) } else { None };
        let (told, disk, member) = match disk {
            None => (None, None, None),
            Some(Err(error)) => {
                (Some(Told::Bad(format!("{}: {error}", path.display()))), None, None)
            }
            Some(Ok(disk)) => {
                let (told, disk, member) = look_at(disk, &path, &apart.domain);
                (Some(told), disk, member)
            }
        };
        let all = share(peers, told.as_ref())?;
        let (disk, member) = match D::REPEATED {
            true => as_told(open(&path), all.iter().find(|(rank, _)| *rank == peers.rank))?,
            false => (disk, member),
        };
        for (rank, told) in &all {
            match told {
                Told::Bad(why) if change => return Err(misfit(why.clone())),
                Told::Bad(why) if *rank == peers.rank => note(peers.rank, why),
                _ => {}
            }
        }
        let mut vault = match (assembled(&all, member, peers.rank, change)?, change) {
            (Some(vault), _) => vault,
            (None, false) => return Ok(None),
            (None, true) => Assembly::create(peers, config, &all)?,
        };
        let missing = vault.missing();
        if change {
            vault.take(peers, config, &all, disk)?;
        }
        vault.recover(peers, &all, missing.len(), change)?;
        Ok(Some(vault))
    }

    /// Nodes that are not there.
    pub fn missing(&self) -> Vec<u32> {
        let nodes = self.places.iter().map(|place| place.node);
        nodes.filter(|node| !self.leaders.contains_key(node)).collect()
    }

    /// A vault that is none yet: no node of it is there.
    fn create(
        peers: &Peers,
        config: &Config,
        all: &[(u32, Told)],
    ) -> Result<Assembly<D>, RegionsError> {
        let random = disk::random::<16>().map_err(file("read", Path::new("/dev/urandom")));
        let mut ids = share::<[u8; 16]>(peers, Some(&peers.all(random)?))?;
        let id = ids.swap_remove(0).1;
        let domains = all.iter().filter_map(|(_, told)| match told {
            Told::Empty { domain } => Some(domain.clone()),
            _ => None,
        });
        let place = |(node, cluster): (u32, String)| Place { cluster, ..Place::of(node) };
        let places: Vec<Place> = (0..).zip(domains).map(place).collect();
        let layout = lay_out(config.scheme, &places).map_err(VaultError::Layout)?;
        let domains: BTreeSet<&String> = places.iter().map(|place| &place.cluster).collect();
        if peers.leads() && domains.len() > 1 && layout.survives == Some(Level::Node) {
            note(0, "some machines have more of these folders than may be lost at once");
        }
        Ok(Assembly::empty((id, config.scheme), places, None))
    }

    fn empty(
        (id, scheme): ([u8; 16], Scheme),
        places: Vec<Place>,
        member: Option<Member<D>>,
    ) -> Assembly<D> {
        let (leaders, commits, unknown) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Assembly { id, scheme, places, leaders, commits, unknown, term: 0, last: 0, member }
    }

    /// Empty folders take the places of those that are missing.
    fn take(
        &mut self,
        peers: &Peers,
        config: &Config,
        all: &[(u32, Told)],
        disk: Option<D>,
    ) -> Result<(), RegionsError> {
        let (scheme, places) = (self.scheme, self.places.len());
        if scheme != config.scheme || all.len() > places {
            let (wanted, folders) = (config.scheme, all.len());
            return Err(misfit(format!(
                "the vault in these folders is {scheme} over {places} nodes, and {wanted} over \
                 {folders} is wanted: use other folders, or what is there"
            )));
        }
        let fresh = self.leaders.is_empty();
        let empty = all.iter().filter(|(_, told)| matches!(told, Told::Empty { .. }));
        let mut done = Ok(());
        let mut disk = disk;
        for (node, (rank, _)) in self.missing().into_iter().zip(empty) {
            self.leaders.insert(node, *rank);
            let Some(mut disk) = disk.take_if(|_| *rank == peers.rank) else { continue };
            let places = self.places.clone();
            let identity = Identity { vault: self.id, node, scheme, places };
            disk.becomes(&identity);
            match Member::create(disk, identity) {
                Ok(member) => self.member = Some(member),
                Err(error) => done = Err(of(node)(error)),
            }
            if !fresh {
                note(peers.rank, &format!("its folder is node {node} of the vault now"));
            }
        }
        peers.all(done)
    }

    /// What was half done is brought to an end, or undone.
    fn recover(
        &mut self,
        peers: &Peers,
        all: &[(u32, Told)],
        missing: usize,
        change: bool,
    ) -> Result<(), RegionsError> {
        let mut dropped = Dropped { vault: self.id, ..Dropped::default() };
        for (_, told) in all {
            if let Told::Member { dropped: its, .. } = told {
                its.runs.iter().for_each(|(first, last)| dropped.add_run(*first, *last));
                dropped.term = dropped.term.max(its.term);
            }
        }
        if change {
            // Before anything is looked at: what an earlier writer still does comes too late.
            dropped.term = dropped.term.saturating_add(1);
            peers.all(self.own(|member| member.learn(&dropped)).map(|_| ()))?;
        }
        self.term = dropped.term;
        let mut have: BTreeMap<u64, Commit> = BTreeMap::new();
        let found = self.own(|member| {
            let (good, _) = member.commits()?;
            let found = member.found(&good)?;
            let sum = |commit: &Commit| Ok((commit.generation, hash(&encoded(commit)?)));
            let committed = good.iter().map(sum).collect::<Result<Vec<_>, MemberError>>()?;
            have.extend(good.into_iter().map(|commit| (commit.generation, commit)));
            let Found { begun, dropped, .. } = found;
            Ok(Has { node: member.node(), committed, begun, dropped })
        });
        let has: Vec<Has> =
            share(peers, peers.all(found)?.as_ref())?.into_iter().map(|(_, has)| has).collect();
        let all = self.full(peers, &has, &have)?;
        let found: Vec<Found> = has.iter().map(as_found).collect();
        let seen = found.iter().flat_map(|f| f.begun.iter().chain(&f.committed)).copied();
        self.last = seen.chain(dropped.runs.values().copied()).max().unwrap_or(0);
        let mut work = Ok(());
        for (generation, verdict) in recovery::decide(&found, &[missing], self.scheme.tolerates()) {
            let done = match verdict {
                Verdict::Exists => {
                    let Some(commit) = all.get(&generation).cloned() else { continue };
                    let lacks = change && !have.contains_key(&generation);
                    let adopted =
                        if lacks { self.own(|m| m.adopt(&commit)).map(|_| ()) } else { Ok(()) };
                    self.commits.insert(generation, commit);
                    adopted
                }
                Verdict::Dropped if change => {
                    self.own(|member| member.drop_all(&[generation])).map(|_| ())
                }
                Verdict::Dropped => Ok(()),
                Verdict::Unknown => {
                    self.unknown.push(generation);
                    Ok(())
                }
            };
            work = work.and(done);
        }
        peers.all(work)
    }

    /// Does something with this process's member, if it has one.
    pub fn own<T>(
        &mut self,
        work: impl FnOnce(&mut Member<D>) -> Result<T, MemberError>,
    ) -> Result<Option<T>, RegionsError> {
        let Some(member) = &mut self.member else { return Ok(None) };
        let node = member.node();
        work(member).map(Some).map_err(of(node))
    }

    /// All commits that any member has; the first that has one tells it.
    fn full(
        &self,
        peers: &Peers,
        has: &[Has],
        have: &BTreeMap<u64, Commit>,
    ) -> Result<BTreeMap<u64, Commit>, RegionsError> {
        let own = self.member.as_ref().map(Member::node);
        let mut known: BTreeMap<u64, (u32, Hash)> = BTreeMap::new();
        for has in has {
            for (generation, sum) in &has.committed {
                let (_, first) = *known.entry(*generation).or_insert((has.node, *sum));
                if first != *sum {
                    return Err(VaultError::Contradiction(vec![has.node], *generation).into());
                }
            }
        }
        let mine = known.iter().filter(|(_, (node, _))| Some(*node) == own);
        let mine = mine.filter_map(|(generation, _)| have.get(generation).map(encoded));
        let mine: Result<Vec<Vec<u8>>, RegionsError> =
            mine.map(|commit| commit.map_err(of(own.unwrap_or(0)))).collect();
        let mut all = BTreeMap::new();
        for (_, commits) in share::<Vec<Vec<u8>>>(peers, Some(&peers.all(mine)?))? {
            for bytes in commits {
                let commit: Commit = record::decode(&bytes).map_err(VaultError::Record)?;
                all.insert(commit.generation, commit);
            }
        }
        Ok(all)
    }

    /// The parts that this process's member has, as far as its own files tell, each with its
    /// generation; and the generations of which it has no sound table.
    pub fn labels(&self) -> (Vec<(u64, Label)>, Vec<u64>) {
        let (mut labels, mut lacks) = (Vec::new(), Vec::new());
        let Some(member) = &self.member else { return (labels, lacks) };
        for (generation, commit) in &self.commits {
            let Some((group, number)) = commit.place(member.node()) else { continue };
            let Some(geometry) = commit.geometry(group) else { continue };
            let summary = &commit.groups[group][number];
            let tables = files::tables(&member.disk, *generation, summary, &geometry, number);
            match tables.manifest {
                Some((manifest, _)) => labels.extend(
                    manifest
                        .objects
                        .iter()
                        .filter_map(|o| Some((*generation, Label::parse(&o.name)?))),
                ),
                None => lacks.push(*generation),
            }
        }
        (labels, lacks)
    }
}

/// Storage, and the member in it, as this process told of it, or did when it was looked at first.
fn as_told<D: Storage>(
    disk: Option<io::Result<D>>,
    told: Option<&(u32, Told)>,
) -> Result<(Option<D>, Option<Member<D>>), RegionsError> {
    let Some(Ok(mut disk)) = disk else { return Ok((None, None)) };
    let used = |error: io::Error| misfit(format!("the vault's folder cannot be used: {error}"));
    match told {
        Some((_, Told::Empty { .. })) => {
            disk.tell(None).map_err(used)?;
            Ok((Some(disk), None))
        }
        Some((_, Told::Member { identity, dropped })) => {
            disk.tell(Some((identity, dropped))).map_err(used)?;
            Ok((None, Member::open(disk).map_err(of(identity.node))?))
        }
        _ => Ok((None, None)),
    }
}

fn encoded(commit: &Commit) -> Result<Vec<u8>, MemberError> {
    record::encode(commit).map_err(MemberError::Encode)
}

fn as_found(has: &Has) -> Found {
    let committed = has.committed.iter().map(|(generation, _)| *generation).collect();
    Found { committed, begun: has.begun.clone(), dropped: has.dropped.clone() }
}

/// The vault of which these are members; `None`: none is.
///
/// One that was away while another took its place, and is back, is none any more: whoever opens for
/// writing gives those that are there a later term.
fn assembled<D: Storage>(
    all: &[(u32, Told)],
    member: Option<Member<D>>,
    own_rank: u32,
    change: bool,
) -> Result<Option<Assembly<D>>, RegionsError> {
    let mut vault: Option<Assembly<D>> = None;
    let mut terms: BTreeMap<u32, u64> = BTreeMap::new();
    for (rank, told) in all {
        let Told::Member { identity, dropped } = told else { continue };
        let Identity { vault: id, node, scheme, places } = identity;
        let known =
            vault.get_or_insert_with(|| Assembly::empty((*id, *scheme), places.clone(), None));
        if (known.id, known.scheme, &known.places) != (*id, *scheme, places) {
            return Err(VaultError::Other(*node).into());
        }
        if let (Some(other), Some(term)) = (known.leaders.get(node), terms.get(node)) {
            let both = format!(
                "the folders of processes {other} and {rank} are both node {node} of the vault"
            );
            let stale = match term.cmp(&dropped.term) {
                Ordering::Equal => return Err(misfit(format!("{both}: remove one of them"))),
                Ordering::Less => other,
                Ordering::Greater => rank,
            };
            if change {
                return Err(misfit(format!(
                    "{both}: remove that of process {stale}, in whose place the other came"
                )));
            }
            if stale == rank {
                continue;
            }
        }
        known.leaders.insert(*node, *rank);
        terms.insert(*node, dropped.term);
    }
    if let Some(vault) = &mut vault {
        vault.member = member.filter(|m| vault.leaders.get(&m.node()) == Some(&own_rank));
    }
    Ok(vault)
}
