//! The way from one node to another: straight, or, to a node of another cluster, through the
//! gateway of one's own.
//!
//! A caller proves to the gateway that it knows the job's key, names where it wants to go, and gets
//! a byte: 0, and from then on speaks with the node there as if it had reached it straight; or why
//! not (`docs/formats/gateway.md`). Kept true: nothing that is to be encrypted is said to the
//! gateway; what both ends say to each other afterwards is for them alone.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eyrie_control::auth::{self, AuthError, Hello, Role};
use eyrie_gateway::Reason;
use eyrie_gateway::frame::put_target;

use crate::Secret;

/// One end of a way: node and epoch.
pub type End = (u32, u64);

/// How the nodes of a job are reached from one of them. Clones know the same.
#[derive(Clone, Default)]
pub struct Routes(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// The cluster of each node; empty: there is but one.
    clusters: Vec<u32>,
    /// That of one's own cluster, if it is there.
    gateway: Option<SocketAddr>,
}

impl Known {
    fn of(&self, node: u32) -> Option<u32> {
        self.clusters.get(node as usize).copied()
    }
}

impl Routes {
    /// What the controller says.
    pub fn set(&self, clusters: Vec<u32>, gateway: Option<SocketAddr>) {
        *self.known() = Known { clusters, gateway };
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster of `to`, if it is another than that of `own`. Who is no node, as the controller,
    /// is in none.
    pub fn abroad(&self, own: u32, to: u32) -> Option<u32> {
        let known = self.known();
        known.of(to).filter(|cluster| known.of(own).is_some_and(|own| own != *cluster))
    }

    /// Makes a connection to an address of node `to`. Its timeouts are `patience`.
    ///
    /// # Errors
    /// When there is no way just now.
    pub fn connect(
        &self,
        secret: &Secret,
        job: &str,
        (own, to): (End, End),
        address: SocketAddr,
        patience: Duration,
    ) -> Result<TcpStream, AuthError> {
        let abroad = self.abroad(own.0, to.0);
        let gateway = self.known().gateway;
        let first = match abroad {
            None => address,
            Some(_) => gateway.ok_or_else(|| refused(Reason::NoWay))?,
        };
        let mut socket = TcpStream::connect_timeout(&first, patience)?;
        prepare(&socket, patience)?;
        if let Some(cluster) = abroad {
            let hello = Hello::new(Role::Passenger, job, own, (cluster, 0))?;
            auth::call(&mut socket, secret.key(), &hello, Role::Gateway)?;
            socket.write_all(&put_target(&address))?;
            let mut answer = [0];
            socket.read_exact(&mut answer)?;
            if answer != [0] {
                return Err(Reason::of(answer[0]).map_or(AuthError::Malformed, refused));
            }
        }
        Ok(socket)
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

fn refused(reason: Reason) -> AuthError {
    AuthError::Io(io::Error::new(io::ErrorKind::HostUnreachable, reason.to_string()))
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
        // The archive is no node of any.
        assert_eq!(routes.abroad(2, 70_000), None);
        assert_eq!(routes.clone().abroad(0, 2), Some(1));
    }
}
