//! How a node finds the controller that its job has, by asking etcd.
//!
//! Kept true: a node follows the latest reign it has heard of; without a controller it goes on only
//! as long as etcd says that nobody leads, or soon after somebody began to.

use super::{Place, Seen};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often it is asked whether another controller leads.
const EVERY: Duration = Duration::from_secs(1);

/// What a node knows.
#[derive(Debug, Default)]
struct State {
    /// Of the latest controller that was announced, or called.
    reign: u64,
    /// Where it is; empty: where the node was told at its start.
    places: Vec<SocketAddr>,
}

/// What an answer of etcd's means for a node that has no controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Nobody leads, or somebody new does: it is right to wait.
    Wait,
    /// The one that leads is the one that does not answer here.
    Same,
}

/// A node's view.
pub struct Watch {
    place: Place,
    state: Mutex<State>,
}

impl Watch {
    pub fn new(place: Place) -> Watch {
        Watch { place, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the controller is to be called; `first`, if nothing else was announced.
    pub fn places(&self, first: SocketAddr) -> Vec<SocketAddr> {
        let places = self.state().places.clone();
        if places.is_empty() { vec![first] } else { places }
    }

    /// A controller of that reign is there.
    pub fn met(&self, reign: u64) {
        let mut state = self.state();
        state.reign = state.reign.max(reign);
    }

    /// Asks etcd. None: it does not answer.
    pub fn ask(&self) -> Option<Sign> {
        Some(self.take(&self.place.look().ok()?))
    }

    fn take(&self, seen: &Seen) -> Sign {
        let mut state = self.state();
        let later = seen.announced.as_ref().filter(|a| a.reign > state.reign);
        if let Some(announced) = later {
            state.reign = announced.reign;
            state.places = announced.addresses.clone();
            return Sign::Wait;
        }
        // One that leads and is not announced yet is about to be.
        match seen.leader.is_none() || seen.reign.is_some_and(|r| r > state.reign) {
            true => Sign::Wait,
            false => Sign::Same,
        }
    }

    /// Has `hang_up` called, with the latest reign, again and again; as long as somebody else
    /// holds this.
    pub fn follow(
        watch: &Arc<Watch>,
        hang_up: impl Fn(u64) + Send + 'static,
    ) -> std::io::Result<()> {
        let watch: Weak<Watch> = Arc::downgrade(watch);
        let work = move || {
            while let Some(watch) = watch.upgrade() {
                watch.ask();
                let reign = watch.state().reign;
                hang_up(reign);
                drop(watch);
                std::thread::sleep(EVERY);
            }
        };
        std::thread::Builder::new().name("eyrie-watch".into()).spawn(work)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Announced;
    use super::*;
    use eyrie_control::Ha;

    fn watch() -> Watch {
        let (ha, _) = Ha::parse("etcd://localhost:1/x").unwrap();
        Watch::new(Place::new(&ha, "j").unwrap())
    }

    fn seen(reign: u64, announced: u64, leads: bool) -> Seen {
        let addresses = vec![SocketAddr::from(([10, 0, 0, announced as u8], 7))];
        Seen {
            reign: Some(reign),
            leader: leads.then(|| String::from("x")),
            announced: Some(Announced { reign: announced, addresses, hosts: Vec::new() }),
            ended: None,
        }
    }

    #[test]
    fn a_node_follows_the_latest_controller() {
        let watch = watch();
        let first = SocketAddr::from(([10, 0, 0, 1], 7));
        watch.met(1);
        assert_eq!(watch.take(&seen(1, 1, true)), Sign::Same);
        assert_eq!(watch.places(first), [first]);
        assert_eq!(watch.take(&seen(1, 1, false)), Sign::Wait);
        // It leads, and has not said where it is.
        assert_eq!(watch.take(&seen(2, 1, true)), Sign::Wait);
        assert_eq!(watch.take(&seen(2, 2, true)), Sign::Wait);
        let second = SocketAddr::from(([10, 0, 0, 2], 7));
        assert_eq!(watch.places(first), [second]);
        // From then on it has to be found.
        assert_eq!(watch.take(&seen(2, 2, true)), Sign::Same);
        assert_eq!(watch.take(&seen(2, 1, true)), Sign::Same);
        assert_eq!(watch.places(first), [second]);
    }
}
