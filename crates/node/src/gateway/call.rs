//! Calling other gateways: of two the one of the cluster with the lower number does, with as many
//! connections as there are to be, again whenever one ends. Where it has no way to the other one,
//! as through a firewall or a NAT, that one calls after a while: one direction is enough.
//!
//! Kept true: who is called does not call; whoever is not listed any more is not called, and nobody
//! waits for its answer.

use super::greet::GREETING;
use super::relay::Note;
use super::{Own, count};
use eyrie_control::auth::{AuthError, Hello, Role};
use eyrie_control::gateway::Gate;
use eyrie_gateway::Side;
use eyrie_tls::{Call, Stream};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// First and longest wait before another attempt.
const BACKOFF: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(640)];

/// The gateway of a cluster with a lower number has this part of the time in which it has to reach
/// another one; then it is called.
const PATIENCE_PART: u32 = 4;

/// Where another cluster's gateway is, as the controller said last.
#[derive(Default)]
struct Board {
    gate: Mutex<Option<Gate>>,
    changed: Condvar,
}

/// The threads that call, by cluster.
#[derive(Default)]
pub(super) struct Callers(BTreeMap<u32, Arc<Board>>);

impl Callers {
    /// All gateways that there are.
    pub fn know(&mut self, gates: &[Gate], own: &Arc<Own>) -> io::Result<()> {
        for (cluster, board) in &self.0 {
            board.tell(gates.iter().find(|g| g.cluster == *cluster).copied());
        }
        let new = |g: &&Gate| g.cluster != own.cluster && !self.0.contains_key(&g.cluster);
        let new: Vec<Gate> = gates.iter().filter(new).copied().collect();
        for gate in new {
            let board = Arc::new(Board::default());
            board.tell(Some(gate));
            self.0.insert(gate.cluster, Arc::clone(&board));
            for _ in 0..own.connections {
                let (board, own) = (Arc::clone(&board), Arc::clone(own));
                let work = move || keep_up(&board, &own);
                std::thread::Builder::new().name("eyrie-call".into()).spawn(work)?;
            }
        }
        own.calls.keep(|to| gates.iter().any(|g| (g.cluster, g.number) == to));
        // Whoever made a connection that is dropped now finds the board as it is to be.
        own.notes.send(Note::Gates(gates.to_vec()));
        Ok(())
    }

    /// Who is called in a cluster.
    #[cfg(test)]
    pub fn called(&self, cluster: u32) -> Option<Gate> {
        self.0.get(&cluster)?.now()
    }
}

impl Board {
    fn tell(&self, gate: Option<Gate>) {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = gate;
        self.changed.notify_all();
    }

    fn now(&self) -> Option<Gate> {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is. Waits for some time, if that does not change meanwhile.
    fn read(&self, pause: Duration, before: Option<Gate>) -> Option<Gate> {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |gate: &mut Option<Gate>| *gate == before;
        let waited = self.changed.wait_timeout_while(gate, pause, same);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The thread's work: one connection.
fn keep_up(board: &Board, own: &Own) {
    let (mut pause, mut known, mut told) = (Duration::ZERO, None, false);
    // Since when it has not called itself.
    let mut alone = Instant::now();
    let patience = Duration::from_millis(own.intervals.limits.gateway_alone_ms) / PATIENCE_PART;
    loop {
        let before = known;
        known = board.read(pause, before);
        let Some(gate) = known else {
            pause = BACKOFF[1];
            continue;
        };
        if before != known {
            (pause, told, alone) = (BACKOFF[0], false, Instant::now());
        }
        if own.called_by(gate.cluster).load(Ordering::Relaxed) > 0 {
            (pause, alone) = (BACKOFF[1], Instant::now());
            continue;
        }
        if gate.cluster < own.cluster && alone.elapsed() < patience {
            pause = BACKOFF[1];
            continue;
        }
        let peer = (gate.cluster, gate.number);
        let noted = own.calls.call(own.cluster, peer);
        // What is heard of from now on ends it.
        if board.now() != known {
            continue;
        }
        let called = call(&gate, &noted, own);
        // The relay drops what is outdated.
        drop(noted);
        match called {
            Ok((stream, ended)) => {
                let (side, hold) = (Side::Caller, Some(ended.0));
                let stream = Box::new(stream);
                own.notes.send(Note::Tunnel { peer, stream, side, hold });
                // Until the relay drops the other end.
                let _ = ended.1.recv();
                (pause, told) = (BACKOFF[0], false);
            }
            Err(error) => {
                if matches!(error, AuthError::Key | AuthError::Malformed | AuthError::Tls(_)) {
                    count(&own.counts.strangers);
                }
                pause = BACKOFF[1].min(pause * 2).max(BACKOFF[0]);
                // A gateway that is just starting or ending refuses; what lasts is told once.
                if pause == BACKOFF[1] && !told {
                    tracing::warn!("no way to the gateway of cluster {}: {error}", gate.cluster);
                    told = true;
                }
            }
        }
    }
}

/// What is held as long as a connection stands.
type Hold = (Sender<()>, Receiver<()>);

fn call(gate: &Gate, noted: &Call, own: &Own) -> Result<(Stream, Hold), AuthError> {
    let socket = noted.reach(gate.at, GREETING)?;
    let (ends, to) = ((own.cluster, own.number), (gate.cluster, gate.number));
    let hello = Hello::new(Role::TunnelCaller, &own.job, ends, to)?;
    let (stream, other) = own.secret.call(socket, &hello, Role::TunnelServer)?;
    if (other.node, other.epoch, other.to) != (to.0, to.1, ends) {
        return Err(AuthError::Malformed);
    }
    Ok((stream, mpsc::channel()))
}
