//! The journal of a job in etcd (`--ha`), and the lead that goes with it.

use crate::outside::point;
use eyrie_control::JobSpec;
use eyrie_control::ha::{Announced, Pointer};
use eyrie_controller::outside::{JournalStore, Lead};
use eyrie_controller::{JournalError, Msg};
use eyrie_ha::{self as ha, HaError, Health, Vouch, Writer};
use eyrie_state::home;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// The lead, and the threads that keep it.
pub(crate) struct Reign {
    lead: ha::Lead,
    health: Arc<Health>,
}

impl Reign {
    /// Has the lease kept from now on.
    pub fn begin(lead: ha::Lead, tell: &UnboundedSender<Msg>) -> io::Result<Reign> {
        let tell = tell.clone();
        let health = Health::new(&lead, move |news| drop(tell.send(Msg::Ha(news))));
        ha::keep(&lead, &health)?;
        Ok(Reign { lead, health })
    }

    pub fn lead(&self) -> &ha::Lead {
        &self.lead
    }

    /// Whether it leads for sure.
    pub fn vouch(&self) -> Arc<Vouch> {
        Arc::clone(&self.health.vouch)
    }

    /// The job does not begin: nothing of it stays in etcd.
    pub fn remove(self) {
        self.health.end();
        self.lead.remove();
    }

    /// The job goes on elsewhere, or with another attempt.
    pub fn leave(self) {
        self.health.end();
    }
}

/// A job whose state is in etcd from now on.
pub(crate) struct Etcd {
    place: String,
    reign: u64,
    health: Arc<Health>,
    journal: Rc<Journal>,
}

/// The thread that writes, until it is not wanted any more.
struct Journal(RefCell<Option<Writer>>);

impl Etcd {
    /// The job's folder leads there.
    pub fn begin(reign: Reign, folder: &Path, spec: &JobSpec) -> io::Result<Rc<Etcd>> {
        let Reign { lead, health } = reign;
        if let Some(ha) = spec.storage.ha.as_deref() {
            let token = Some(lead.token.clone());
            point(folder, &Pointer { ha: ha.clone(), token, hosts: Vec::new() })?;
        }
        let writer = Writer::new(&lead, folder, &health)?;
        let journal = Rc::new(Journal(RefCell::new(Some(writer))));
        let (place, reign) = (lead.place.name.clone(), lead.term);
        Ok(Rc::new(Etcd { place, reign, health, journal }))
    }

    /// The job is over: of its state nothing stays there. Calls `done` when that is so.
    pub fn end(&self, code: i32, done: impl FnOnce() + Send + 'static) {
        match &*self.journal.0.borrow() {
            Some(writer) => writer.end(code, done),
            None => done(),
        }
    }
}

impl Lead for Etcd {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn reign(&self) -> u64 {
        self.reign
    }

    fn journal(&self) -> Rc<dyn JournalStore> {
        Rc::clone(&self.journal) as _
    }

    fn keep_input(&self, at: u64, bytes: &[u8]) {
        self.journal.0.borrow().iter().for_each(|writer| writer.input(at, bytes));
    }

    fn announce(&self, announced: Announced) {
        let text = serde_json::to_string(&announced).unwrap_or_default();
        self.journal.0.borrow().iter().for_each(|writer| writer.announce(text.clone()));
    }

    fn holds(&self) -> bool {
        self.health.vouch.holds()
    }

    fn forsake(&self) {
        self.health.end();
        self.health.vouch.forsake();
        self.journal.give_up();
    }
}

impl Journal {
    fn write(&self, write: impl FnOnce(&mut Writer) -> u64) -> io::Result<u64> {
        let mut writer = self.0.borrow_mut();
        writer.as_mut().map(write).ok_or_else(|| io::Error::other("etcd is not written to"))
    }
}

impl JournalStore for Journal {
    fn replace(&self, bytes: Vec<u8>) -> io::Result<u64> {
        self.write(|writer| writer.renew(bytes))
    }

    fn append(&self, bytes: Vec<u8>) -> io::Result<u64> {
        self.write(|writer| writer.append(bytes))
    }

    fn is_long(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(Writer::is_long)
    }

    fn give_up(&self) {
        drop(self.0.take());
    }
}

/// Why what a controller on another machine left is not brought here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BringError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Ha(#[from] HaError),
}

/// What a controller on another machine finds of a job: brings it to the job's folder.
pub(crate) fn bring(lead: &ha::Lead, folder: &Path) -> Result<(), BringError> {
    let name = |name| folder.join(name);
    let files =
        [(name(home::STDIN), lead.place.input()?), (name(home::PRINTED), lead.place.printed()?)];
    for (path, bytes) in files {
        // The console has made one of them already, and is going to look at it.
        if std::fs::metadata(&path).map_or(0, |m| m.len()) == 0 {
            let written = eyrie_image::write_private(&path, &bytes);
            written.map_err(|e| JournalError::Io(path.clone(), e))?;
        }
    }
    Ok(())
}
