//! Telling the nodes of a cluster where its gateway is: they may have no other way to hear of it,
//! as they reach the controller through it (`--wan-only`).
//!
//! Kept true: each node that the controller names is told until it answers, or is not named any
//! more; nobody waits for one that does not.

use eyrie_control::gateway::StoreAddress;
use eyrie_exchange::store_client;
use eyrie_tls::Secret;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest silence of a node that is told.
const PATIENCE: Duration = Duration::from_secs(2);
/// Before another attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// Those that are to be told.
pub(super) struct Heralds {
    named: Arc<Mutex<BTreeSet<StoreAddress>>>,
    /// This start of the gateway, and where nodes reach it.
    own: (u64, SocketAddr),
    job: String,
    secret: Secret,
}

impl Heralds {
    pub fn new(own: (u64, SocketAddr), job: &str, secret: Secret) -> Heralds {
        Heralds { named: Arc::default(), own, job: job.into(), secret }
    }

    /// These are the nodes now.
    pub fn know(&mut self, nodes: Vec<StoreAddress>) -> io::Result<()> {
        let nodes: BTreeSet<StoreAddress> = nodes.into_iter().collect();
        let before = {
            let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *named, nodes.clone())
        };
        for node in nodes.difference(&before).copied() {
            let (named, own) = (Arc::clone(&self.named), self.own);
            let (job, secret) = (self.job.clone(), self.secret.clone());
            let work = move || {
                let named = || named.lock().unwrap_or_else(PoisonError::into_inner);
                while named().contains(&node) {
                    match store_client::tell_gateway((&job, &secret), &node, own, PATIENCE) {
                        Ok(()) => return,
                        Err(error) => tracing::debug!(%error, node = node.node, "not told"),
                    }
                    std::thread::sleep(PAUSE);
                }
            };
            std::thread::Builder::new().name("eyrie-herald".into()).spawn(work)?;
        }
        Ok(())
    }
}
