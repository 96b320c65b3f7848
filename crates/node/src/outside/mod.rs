//! What the controller acts through, as it is: the job's folder, etcd, daemons and gateways, the
//! object store, this process (`eyrie_controller::outside`).
//!
//! Kept true: nothing here decides. Tasks and threads tell the controller by messages what came of
//! what it asked for.

mod client;
mod etcd;
mod files;
mod launcher;
mod machine;
mod store;

pub(crate) use client::client;
pub(crate) use etcd::{BringError, Etcd, Reign, bring};
pub(crate) use files::Folder;
pub use files::point;
pub(crate) use launcher::{Daemons, telling};
pub(crate) use store::Store;

use crate::outside::machine::Here;
use eyrie_connection::send_queue;
use eyrie_control::JobSpec;
use eyrie_controller::outside::Outside;
use eyrie_controller::{Msg, Place};
use eyrie_launcher::node_launcher::NodeLauncher;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

/// What is held of it by who drives the controller.
#[derive(Clone)]
pub(crate) struct Hands {
    pub outside: Outside,
    pub daemons: Rc<Daemons>,
    pub store: Rc<Store>,
    /// If the journal is in etcd.
    pub etcd: Option<Rc<Etcd>>,
    /// Notified once when the job is over.
    pub over: Rc<Notify>,
}

impl Hands {
    /// Of a job in this place. `crew`: over nodes, who starts their daemons.
    pub fn new(
        place: &Place,
        spec: &JobSpec,
        crew: Option<NodeLauncher>,
        console: &send_queue::SendQueue,
        tell: &UnboundedSender<Msg>,
    ) -> Hands {
        let over = Rc::new(Notify::new());
        let machine = Rc::new(Here::new(console.clone(), Rc::clone(&over), tell.clone()));
        let daemons = Rc::new(Daemons::new(place, crew, tell.clone()));
        let store = Rc::new(Store::new(place, spec, Rc::clone(&daemons), tell.clone()));
        let outside = Outside {
            files: Rc::new(Folder::new(&place.folder, tell.clone())),
            launcher: Rc::clone(&daemons) as _,
            store: Rc::clone(&store) as _,
            machine,
            console: client(console.clone()),
        };
        Hands { outside, daemons, store, etcd: None, over }
    }
}
