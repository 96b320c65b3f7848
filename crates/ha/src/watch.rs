//! How a node finds the controller that its job has, by asking etcd, and whether its ranks may run.
//!
//! Kept true: a node follows the latest term it has heard of; what it may without a controller,
//! and with one that may have been followed, is for `protocol::leader_lease` to say.

use super::{Place, Seen};
use eyrie_process::clock::Moment;
use eyrie_protocol::leader_lease::LeaseWatch;
use eyrie_protocol::leader_lease::StoreView;
use eyrie_protocol::timing::Lease;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// What a node knows.
struct State {
    led: LeaseWatch,
    /// Where the latest controller is that was announced; empty: where the node was told at its
    /// start.
    places: Vec<SocketAddr>,
}

/// A node's view.
pub struct Watch {
    place: Place,
    /// How often it is asked whether another controller leads.
    every: Duration,
    begun: Moment,
    state: Mutex<State>,
}

impl Watch {
    pub fn new(place: Place, lease: Lease) -> Watch {
        let state = State { led: LeaseWatch::new(lease, 0), places: Vec::new() };
        let every = Duration::from_millis(lease.renewed_every_ms());
        Watch { place, every, begun: Moment::now(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, which goes on while this machine sleeps: ranks that run elsewhere do as well.
    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Where the controller is to be called; `first`, if nothing else was announced.
    pub fn places(&self, first: SocketAddr) -> Vec<SocketAddr> {
        let places = self.state().places.clone();
        if places.is_empty() { vec![first] } else { places }
    }

    /// A controller of that term takes this node. False: it is not to.
    pub fn met(&self, term: u64) -> bool {
        let now = self.now_ms();
        self.state().led.met(term, now)
    }

    /// The controller had heard what was said so long ago; and leads for sure, or does not know.
    pub fn beaten(&self, ago: Duration, sure: bool) {
        let stamp_ms = self.now_ms().saturating_sub(ago.as_millis() as u64);
        self.state().led.beaten(stamp_ms, sure);
    }

    /// The connection is over; for so long nothing was known to be heard, and so much is borne.
    pub fn parted(&self, silent: Duration, bears: Duration) {
        let now = self.now_ms();
        let heard = now.saturating_sub(silent.as_millis() as u64);
        self.state().led.parted(heard, bears.as_millis() as u64, now);
    }

    /// How long this node may still look for a controller.
    pub fn left(&self) -> Duration {
        let now = self.now_ms();
        Duration::from_millis(self.state().led.left_ms(now))
    }

    /// Whether it has looked for too long.
    pub fn is_lost(&self) -> bool {
        let now = self.now_ms();
        self.state().led.is_lost(now)
    }

    /// Whether its ranks are to stand.
    pub fn stands(&self) -> bool {
        let now = self.now_ms();
        self.state().led.stands(now)
    }

    /// Asks etcd.
    pub fn ask(&self) {
        let asked_ms = self.now_ms();
        if let Ok(seen) = self.place.look() {
            self.take(asked_ms, &seen);
        }
    }

    fn take(&self, asked_ms: u64, seen: &Seen) {
        let now = self.now_ms();
        let announced = seen.announced.as_ref();
        let told = StoreView {
            leads: seen.leader.is_some(),
            term: seen.term,
            announced: announced.map(|a| a.term),
        };
        let mut state = self.state();
        if let Some(announced) = announced.filter(|_| state.led.answered(asked_ms, told, now)) {
            state.places.clone_from(&announced.addresses);
        }
    }

    /// The term of a controller that has followed the one that this node is with.
    fn later(&self) -> Option<u64> {
        let state = self.state();
        state.led.is_deposed().then(|| state.led.latest())
    }

    /// Has `leave` called, with the term of who leads, whenever that is not the one that this node
    /// is with; as long as somebody else holds this.
    pub fn follow(watch: &Arc<Watch>, leave: impl Fn(u64) + Send + 'static) -> std::io::Result<()> {
        let watch: Weak<Watch> = Arc::downgrade(watch);
        let work = move || {
            while let Some(watch) = watch.upgrade() {
                watch.ask();
                watch.later().into_iter().for_each(&leave);
                let every = watch.every;
                drop(watch);
                std::thread::sleep(every);
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
        Watch::new(Place::new(&ha, "j").unwrap(), Lease::default())
    }

    fn seen(term: u64, announced: u64, leads: bool) -> Seen {
        let addresses = vec![SocketAddr::from(([10, 0, 0, announced as u8], 7))];
        Seen {
            term: Some(term),
            leader: leads.then(|| String::from("x")),
            announced: Some(Announced {
                term: announced,
                addresses,
                hosts: Vec::new(),
                lease_ms: None,
            }),
            ended: None,
        }
    }

    #[test]
    fn a_node_follows_the_latest_controller() {
        let watch = watch();
        let first = SocketAddr::from(([10, 0, 0, 1], 7));
        assert_eq!(watch.places(first), [first]);
        assert!(watch.met(1));
        for (term, leads) in [(1, true), (1, false), (2, true)] {
            // A second one that leads has not said where it is.
            watch.take(watch.now_ms(), &seen(term, 1, leads));
            assert_eq!((watch.places(first), watch.later()), (vec![first], None));
        }
        watch.take(watch.now_ms(), &seen(2, 2, true));
        let second = SocketAddr::from(([10, 0, 0, 2], 7));
        assert_eq!((watch.places(first), watch.later()), (vec![second], Some(2)));
        watch.take(watch.now_ms(), &seen(2, 1, true));
        assert_eq!(watch.places(first), [second]);
        assert!(!watch.met(1) && watch.met(2) && watch.later().is_none());
    }
}
