//! What a dead controller left: its journal, its nodes' daemons, and the lead if that is in etcd.
//!
//! Kept true: nothing is taken over that was not read whole; who cannot read what there is gives
//! the lead back, for another attempt.

use super::begin::BeginError;
use crate::outside::{self, BringError, Reign, telling};
use eyrie_control::ha::Pointer;
use eyrie_control::message::Host;
use eyrie_controller::journal::{self, Found, Head, Known};
use eyrie_controller::{JournalError, Msg, Place};
use eyrie_ha::{self as ha, EtcdError, HaError, Lead};
use eyrie_launcher::node_launcher::{NodeLauncher, Predecessor};
use eyrie_process::reap;
use eyrie_state::home;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long is waited for etcd.
const ETCD_LIMIT: Duration = Duration::from_secs(60);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// What the dead controller left, as its successor begins with it.
pub struct Left {
    pub known: Known,
    pub reign: Option<Reign>,
    pub launcher: NodeLauncher,
}

/// Reads the journal in a job's folder.
fn read(folder: &Path) -> Result<Found, JournalError> {
    let path = folder.join(home::JOURNAL);
    let bytes = eyrie_image::read_plain(&path, journal::MAX_FILE_BYTES);
    let bytes = bytes.map_err(|e| JournalError::Io(path.clone(), e))?;
    journal::read(path, &bytes)
}

/// Takes up what there is of the job in this folder.
pub fn take(
    place: &Place,
    verbose: bool,
    lifeline: OwnedFd,
    tell: &UnboundedSender<Msg>,
) -> Result<Left, BeginError> {
    let folder = &place.folder;
    let (mut known, reign) = match read(folder)? {
        Found::Here(known) => (*known, None),
        Found::Elsewhere(pointer) => {
            let (known, reign) = take_lead(place, &pointer, tell)?;
            (known, Some(reign))
        }
    };
    known.head.reign += 1;
    known.head.spec.program.verbose |= verbose;
    let daemons = known.daemons().filter(|d| reap::born(d.pid) == Some(d.born)).map(|d| d.pid);
    let named = (place.id.as_str(), folder.as_path());
    let vouch = reign.as_ref().map(Reign::vouch);
    let Head { reign: number, spec, key, addresses, .. } = &known.head;
    let before = Predecessor { term: *number, spec, key: *key, addresses };
    let launcher = NodeLauncher::again(&before, daemons, named, lifeline, vouch, &telling(tell));
    let launcher = launcher.map_err(BeginError::Daemon)?;
    known.head.addresses = launcher.addresses.clone();
    Ok(Left { known, reign, launcher })
}

/// Takes the lead of a job whose journal is in etcd.
fn succeed(pointer: &Pointer, job: &str) -> Result<Lead, HaError> {
    let place = Arc::new(ha::Place::new(&pointer.ha, job)?);
    Lead::succeed(place, pointer.token.as_deref(), ETCD_LIMIT)
}

/// The journal that the leader finds, with what else there is brought here.
fn fetch(lead: &Lead, folder: &Path) -> Result<Known, BringError> {
    outside::bring(lead, folder)?;
    Ok(journal::parse(PathBuf::from(&lead.place.name), &lead.place.journal()?)?)
}

/// Takes the lead of a job whose state is in etcd, and brings here what a folder is to have.
fn take_lead(
    place: &Place,
    pointer: &Pointer,
    tell: &UnboundedSender<Msg>,
) -> Result<(Known, Reign), BringError> {
    let lead = succeed(pointer, &place.id)?;
    let reign = Reign::begin(lead, tell).map_err(HaError::Thread)?;
    let lead = reign.lead();
    let end = Instant::now() + ETCD_LIMIT;
    let found = loop {
        match fetch(lead, &place.folder) {
            // It leads meanwhile: nobody else would go on.
            Err(BringError::Ha(HaError::Etcd(EtcdError::Unreachable(why))))
                if Instant::now() < end =>
            {
                tracing::warn!("etcd: {why}");
                std::thread::sleep(PAUSE);
            }
            found => break found,
        }
    };
    match found {
        Err(error) => {
            reign.leave();
            Err(error)
        }
        Ok(mut known) => {
            known.head.reign = lead.term - 1;
            if !pointer.hosts.is_empty() {
                move_here(&mut known.head, &pointer.hosts);
                known.leave_archive_behind();
            }
            Ok((known, reign))
        }
    }
}

/// The controller is on this machine now, which its hosts reach so.
fn move_here(head: &mut Head, reached: &[Host]) {
    let Some(hosts) = &mut head.spec.placement.hosts else { return };
    for host in &mut hosts.list {
        let named = reached.iter().find(|r| r.name == host.name).or(reached.first());
        host.controller = named.map_or(host.controller, |r| r.controller);
    }
    let mut places: Vec<_> = hosts.list.iter().map(|h| h.controller).collect();
    places.sort_unstable();
    places.dedup();
    head.addresses = places.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
}
