//! The other nodes of the job, as this one sees them: who they are, where their images are, and the
//! links to them.

use super::{Agent, Msg};
use crate::store::{self, Identity, Members};
use eyrie_control::Meta;
use eyrie_control::node::{Determinants, FromNode, Peer};
use eyrie_ledger::saved;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What a node needs to speak with others.
pub(crate) struct Network {
    pub own: Identity,
    pub members: Members,
}

/// Where a new image goes besides this node.
pub(super) struct Copy {
    pub partner: Option<u32>,
    /// Generations whose files it lacks.
    pub missing: Vec<u32>,
}

/// The log beside an image.
pub(super) fn log_of(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_os_string();
    name.push(".log");
    PathBuf::from(name)
}

/// Names of the files of an image.
fn names(rank: u32, generation: u32) -> [String; 2] {
    let image = format!("rank-{rank}.gen-{generation}");
    let log = format!("{image}.log");
    [image, log]
}

impl Agent {
    /// Tells the controller when everything recorded up to now may be known to others.
    pub(super) fn let_out(&self, message: FromNode) {
        self.say(message);
    }

    pub(super) fn set_members(&mut self, peers: &[Peer]) {
        let Some(network) = &self.network else { return };
        let mut members = network.members.lock().unwrap_or_else(PoisonError::into_inner);
        *members = peers.iter().map(|p| (p.node, p.epoch, p.store)).collect();
    }

    pub(super) fn set_homes(&mut self, homes: &[u32]) {
        for (rank, home) in (0..self.size()).zip(homes) {
            self.segment.rank(rank).home.store(*home, Ordering::Release);
        }
    }

    /// What is held here of the determinants of ranks whose node is gone.
    pub(super) fn tell_held(&self, ask: u64, _ranks: &[u32]) {
        self.say(FromNode::Held { ask, in_step: Vec::new(), held: Vec::new() });
    }

    /// An image is written: it is complete when its partner has it, with the rank's streams.
    pub(super) fn copy_out(
        &mut self,
        rank: u32,
        start: u64,
        generation: u32,
        taken: crate::checkpoint::Taken,
        copy: Copy,
    ) {
        let Some(network) = &self.network else { return };
        let (own, members) = (network.own.clone(), Arc::clone(&network.members));
        let segment = Arc::clone(&self.segment);
        let fd = self.segment_fd.try_clone();
        let (images, path) = (self.place.images.clone(), self.image_file(rank, generation));
        let tell = self.tell.clone();
        self.reading_logs += 1;
        let work = move || {
            let log = log_of(&path);
            let saved = fd.map(File::from).and_then(|fd| {
                let to = File::options().write(true).create(true).truncate(true).open(&log)?;
                saved::save_streams(&fd, &segment, rank, &to)
            });
            let _ = tell.send(Msg::LogsRead);
            let result = saved.map_err(|e| e.to_string()).and_then(|_| {
                let Some(partner) = copy.partner else { return Ok(()) };
                let generations = copy.missing.iter().copied().chain([generation]);
                bring(&own, &members, &images, rank, generations, partner)
                    .map_err(|e| format!("its copy on node {partner}: {e}"))
            });
            let taken = Box::new(taken);
            let _ = tell.send(Msg::Copied { rank, start, generation, taken, result });
        };
        let spawned = std::thread::Builder::new().name("eyrie-copy".into()).spawn(work);
        if let Err(error) = spawned {
            self.reading_logs -= 1;
            self.checkpoint_failed(rank, start, generation, error.to_string());
        }
    }

    /// Copies images that are here to another node.
    pub(super) fn copy_images(&mut self, rank: u32, generations: Vec<u32>, to: u32) {
        let Some(network) = &self.network else { return };
        let (own, members) = (network.own.clone(), Arc::clone(&network.members));
        let (images, out) = (self.place.images.clone(), Arc::clone(&self.out));
        let wanted = generations.clone();
        let work = move || {
            let result = bring(&own, &members, &images, rank, wanted.iter().copied(), to);
            let error = result.err().map(|e| e.to_string());
            out(FromNode::Copied { rank, generations: wanted, to, error });
        };
        if let Err(error) = std::thread::Builder::new().name("eyrie-copy".into()).spawn(work) {
            let error = Some(error.to_string());
            self.say(FromNode::Copied { rank, generations, to, error });
        }
    }

    /// Puts what the rank had sent and what was recorded of it into the segment here.
    pub(super) fn move_in(
        &mut self,
        rank: u32,
        from: &Meta,
        determinants: &Determinants,
    ) -> Result<(), MoveError> {
        let ctl = self.segment.rank(rank);
        for (at, word) in (determinants.first..).zip(&determinants.words) {
            self.segment.det(rank, at).store(*word, Ordering::Relaxed);
        }
        let end = determinants.first + determinants.words.len() as u64;
        ctl.det_trim.store(determinants.first, Ordering::Relaxed);
        ctl.det_tail.store(end.max(from.det_pos), Ordering::Release);
        ctl.incarnation.fetch_max(from.incarnation, Ordering::Relaxed);
        if from.generation == 0 {
            return Ok(());
        }
        if end < from.det_pos || determinants.first > from.det_pos {
            return Err(MoveError::Determinants(end));
        }
        let log = File::open(log_of(&self.image_file(rank, from.generation)))?;
        let loaded = saved::load(&log, &self.place.id)?;
        saved::install(&loaded, &self.segment)?;
        Ok(())
    }
}

/// Why a rank cannot go on here.
#[derive(Debug, thiserror::Error)]
pub(super) enum MoveError {
    #[error("its log: {0}")]
    Io(#[from] io::Error),
    #[error("its log: {0}")]
    Saved(#[from] saved::SavedError),
    #[error("its outcomes are held up to word {0} only")]
    Determinants(u64),
}

/// Brings the files of images to another node.
fn bring(
    own: &Identity,
    members: &Members,
    images: &Path,
    rank: u32,
    generations: impl Iterator<Item = u32>,
    to: u32,
) -> Result<(), store::StoreError> {
    let mut client = store::Client::connect(own, members, to)?;
    for generation in generations {
        for name in names(rank, generation) {
            client.put(images, &name)?;
        }
    }
    Ok(())
}

/// Fetches the files of images that are not here, from whichever of the holders has them. What
/// cannot be had is found missing when it is looked for.
pub(super) fn fetch(
    own: &Identity,
    members: &Members,
    images: &Path,
    rank: u32,
    generations: &[u32],
    holders: &[u32],
) {
    for holder in holders.iter().filter(|h| **h != own.node) {
        let wanted = generations.iter().flat_map(|g| names(rank, *g));
        let wanted: Vec<String> = wanted.filter(|name| !images.join(name).exists()).collect();
        if wanted.is_empty() {
            return;
        }
        let got = store::Client::connect(own, members, *holder)
            .and_then(|mut client| wanted.iter().try_for_each(|name| client.get(images, name)));
        if let Err(error) = got {
            tracing::warn!(rank, holder, %error, "images are not fetched");
        }
    }
}
