//! What the controller acts through: the job's folder, daemons and gateways, the object store, the
//! machine it is on. The daemon crate has the real ones, `memory` has one for tests and simulators.
//!
//! Kept true: nothing here decides; nothing here calls the controller back: what is set going is
//! told later, by a message (`Msg`), but for what a turn cannot do without: whether a file was
//! written, whether a process was started.

mod files;
mod launcher;
mod machine;
mod store;

use eyrie_control::NodeMsg;
pub use files::{Files, JournalStore, Lead, Needed};
pub use launcher::{Daemon, Gateway, GatewaySite, Launcher, NodeLine};
pub use machine::Machine;
use std::rc::Rc;
pub use store::{Brought, ObjectStore};

/// Somebody who is told something: the console, or a client.
pub trait Client {
    fn send(&self, message: &NodeMsg);
    /// Whether the other side went away.
    fn is_closed(&self) -> bool;
    /// Whether it takes output of ranks.
    fn has_room(&self) -> bool;
}

/// Where messages to one client go.
#[derive(Clone)]
pub struct ClientHandle(Rc<dyn Client>);

impl ClientHandle {
    pub fn new(client: impl Client + 'static) -> ClientHandle {
        ClientHandle(Rc::new(client))
    }

    pub fn send(&self, message: &NodeMsg) {
        self.0.send(message);
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub fn has_room(&self) -> bool {
        self.0.has_room()
    }
}

/// All of it.
#[derive(Clone)]
pub struct Outside {
    pub files: Rc<dyn Files>,
    pub launcher: Rc<dyn Launcher>,
    pub store: Rc<dyn ObjectStore>,
    pub machine: Rc<dyn Machine>,
    pub console: ClientHandle,
}

impl Outside {
    /// A numbered fault point is passed (`docs/internals/fault-points.md`).
    pub fn reach(&self, point: &'static str) {
        self.machine.reach(point);
    }
}
