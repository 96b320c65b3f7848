//! The way from one node to another: straight, or, to a node of another cluster, through the
//! gateway of one's own.
//!
//! A caller proves to the gateway that it knows the job's key, names where it wants to go, and gets
//! a byte: 0, and from then on speaks with the node there as if it had reached it straight; or why
//! not (`docs/formats/gateway.md`). Kept true: nothing that is to be encrypted is said to the
//! gateway; what both ends say to each other afterwards is for them alone.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::call::{Call, Calls};

/// One end of a way: node and epoch.
pub type End = (u32, u64);

/// The number of the controller, which is no node.
pub const CONTROLLER: u32 = u32::MAX;

/// How the nodes of a job are reached from one of them, and its controller. Clones know the same.
#[derive(Clone, Default)]
pub struct Routes(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// The cluster of each node; empty: there is but one.
    clusters: Vec<u32>,
    /// That of one's own cluster, if it is there.
    gateway: Option<SocketAddr>,
    /// The cluster of the controller, if only gateways lead there.
    home: Option<u32>,
    /// The latest start of a gateway that this node was told of without the controller, and where:
    /// through it the controller is reached.
    door: Option<(u64, SocketAddr)>,
    /// From this node, and not over.
    calls: Calls,
}

impl Known {
    fn of(&self, node: u32) -> Option<u32> {
        match node {
            CONTROLLER => self.home,
            node => self.clusters.get(node as usize).copied(),
        }
    }

    /// The cluster of `to`, if it is another than that of `own`.
    fn abroad(&self, own: u32, to: u32) -> Option<u32> {
        self.of(to).filter(|cluster| self.of(own).is_some_and(|own| own != *cluster))
    }

    /// The gateway through which that is reached.
    fn way(&self, to: u32) -> Option<SocketAddr> {
        let door = self.door.map(|(_, at)| at).filter(|_| to == CONTROLLER);
        door.or(self.gateway)
    }
}

impl Routes {
    /// What the controller says. Returns whether the gateway that there was is so no more: calls to
    /// nodes through that have ended.
    pub fn set(&self, clusters: Vec<u32>, gateway: Option<SocketAddr>) -> bool {
        let known = &mut *self.known();
        let before = std::mem::replace(&mut known.gateway, gateway);
        known.clusters = clusters;
        let gone = before.filter(|before| Some(*before) != gateway);
        if gone.is_some() {
            known.calls.end(|to, through| to.0 != CONTROLLER && through == gone);
        }
        gone.is_some()
    }

    /// The controller is in that cluster, and only gateways lead there.
    pub fn set_home(&self, cluster: u32) {
        self.known().home = Some(cluster);
    }

    /// A gateway of one's own cluster is there: which start of one, and where. Calls of the
    /// controller through one before end.
    pub fn set_gateway(&self, number: u64, at: SocketAddr) {
        let known = &mut *self.known();
        // An earlier one may have taken its time to say so.
        if known.door.is_some_and(|(latest, _)| latest >= number) {
            return;
        }
        known.door = Some((number, at));
        known.calls.end(|to, through| to.0 == CONTROLLER && through.is_some());
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster of `to`, if it is another than that of `own`. The controller is in none if it is
    /// reached straight.
    pub fn abroad(&self, own: u32, to: u32) -> Option<u32> {
        self.known().abroad(own, to)
    }

    /// A call to node `to` from now on: it ends when that is a member no more, or the gateway on
    /// the way is gone.
    pub fn call(&self, own: u32, to: End) -> Call {
        let known = &mut *self.known();
        let through = known.abroad(own, to.0).map(|cluster| (cluster, known.way(to.0)));
        let number = known.calls.note(to, through.and_then(|(_, gateway)| gateway));
        Call { routes: self.clone(), number, through }
    }

    /// Ends calls to nodes that are none of these. The controller is called as long as the node
    /// wants.
    pub fn keep(&self, members: impl Fn(End) -> bool) {
        self.calls(|calls| calls.end(|to, _| to.0 != CONTROLLER && !members(to)));
    }

    /// Does something with the calls that are noted.
    pub(crate) fn calls<R>(&self, with: impl FnOnce(&mut Calls) -> R) -> R {
        with(&mut self.known().calls)
    }
}

/// A socket on which nothing is held back, and nothing waited for longer than `patience`.
///
/// # Errors
/// When the system does not take that.
pub fn prepare(socket: &TcpStream, patience: Duration) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_of_other_clusters_are_abroad() {
        let routes = Routes::default();
        assert_eq!(routes.abroad(0, 1), None);
        routes.set(vec![0, 0, 1], None);
        assert_eq!(routes.abroad(0, 1), None);
        assert_eq!(routes.abroad(0, 2), Some(1));
        assert_eq!(routes.abroad(2, 1), Some(0));
        // The controller, and with it the archive, is in none.
        assert_eq!(routes.abroad(2, CONTROLLER), None);
        assert_eq!(routes.clone().abroad(0, 2), Some(1));
        routes.set_home(0);
        assert_eq!([0, 2].map(|own| routes.abroad(own, CONTROLLER)), [None, Some(0)]);
    }

    #[test]
    fn a_gateway_that_is_no_more_is_told() {
        let [one, two] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let routes = Routes::default();
        let said = [None, Some(one), Some(one), None, None, Some(one), Some(two)];
        let gone = said.map(|gateway| routes.set(vec![0, 1], gateway));
        assert_eq!(gone, [false, false, false, true, false, false, true]);
    }

    #[test]
    fn the_controller_is_reached_through_the_gateway_that_was_heard_of_last() {
        let [one, two, three] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let routes = Routes::default();
        routes.set(vec![0, 1], None);
        assert_eq!(routes.known().way(CONTROLLER), None);
        routes.set_gateway(1, one);
        routes.set_gateway(3, three);
        routes.set_gateway(3, three);
        routes.set_gateway(2, two);
        let ways = || [CONTROLLER, 0].map(|to| routes.known().way(to));
        assert_eq!(ways(), [Some(three), None]);
        // What the controller had said before.
        routes.set(vec![0, 1], Some(two));
        assert_eq!(ways(), [Some(three), Some(two)]);
    }
}
