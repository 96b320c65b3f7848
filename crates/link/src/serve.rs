//! Connections from other nodes: who may speak, and what they send.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use eyrie_control::auth::{AuthError, Hello, Role};
use eyrie_protocol::gate::ToReplica;
use eyrie_protocol::link::wire::{Backward, Forward, WireError};
use eyrie_protocol::membership::{Member, Refusal};
use eyrie_protocol::replicas::Refused;
use eyrie_tls::{Caller, Callers, Stream};

use crate::connection::{Connection, Flushed};
use crate::inbound;
use crate::incoming::{Incoming, Turn};
use crate::shared::Shared;
use crate::transport;

/// Why a connection is not taken or does not go on.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error("it comes from {0}, which is no member any more")]
    Fenced(Member),
    #[error("it is for an earlier incarnation of this node")]
    Misled,
    /// It knows more than this node does yet.
    #[error("it comes from {0}, which is not known yet")]
    Early(Member),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Frame(#[from] inbound::Fault),
    /// Somebody is between the two ends.
    #[error("what comes was not encrypted by the other end: {0}")]
    Forged(std::io::Error),
    #[error("determinants that do not decode")]
    Determinants,
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The accepting thread's work.
pub(crate) fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let callers = Callers::default();
    while !shared.is_over() {
        let Ok((stream, caller)) = callers.next(listener) else { continue };
        let started = shared.spawn("eyrie-link-in", move |shared| receive(shared, stream, caller));
        if let Err(error) = started {
            tracing::warn!("no thread for a connection of another node: {error}");
        }
    }
}

fn receive(shared: &Arc<Shared>, socket: TcpStream, unknown: Caller) {
    let from = socket.peer_addr();
    let Some(number) = shared.enrol(&socket) else { return };
    let outcome = shake(shared, socket).and_then(|(stream, peer)| {
        drop(unknown);
        let carrier = transport::take(shared, &stream, peer)?;
        let (segment, silence) = (Arc::clone(&shared.segment), shared.silence());
        let connection = Connection::new(stream, carrier, peer, segment, silence);
        Ok(Arc::new(connection.map_err(AuthError::Io)?))
    });
    match outcome {
        Ok(connection) => {
            shared.inbound().connected(connection.peer.node, &connection);
            if shared.member(connection.peer.node) == Some(connection.peer)
                && let Err(fault) = serve(shared, &connection)
            {
                report(shared, &fault, &connection.peer.to_string());
            }
            connection.close();
            shared.inbound().ended(&connection);
        }
        Err(fault) => {
            let from = from.map_or_else(|_| String::from("somewhere"), |a| a.to_string());
            report(shared, &fault, &from);
        }
    }
    shared.leave(number);
}

/// Counts and tells why a connection was closed.
fn report(shared: &Shared, fault: &Fault, from: &str) {
    let refusals = &shared.refusals;
    let counter = match fault {
        Fault::Auth(AuthError::Io(_)) | Fault::Early(_) => return,
        Fault::Frame(inbound::Fault::Early(_)) => return,
        Fault::Auth(_) => &refusals.strangers,
        Fault::Fenced(_) | Fault::Misled => &refusals.fenced,
        Fault::Wire(_) | Fault::Frame(_) | Fault::Determinants | Fault::Forged(_) => {
            &refusals.malformed
        }
        Fault::Refused(Refused::Fenced(_)) => &refusals.fenced,
        Fault::Refused(_) => &refusals.malformed,
    };
    counter.fetch_add(1, SeqCst);
    tracing::warn!("a link from {from} was closed: {fault}");
}

fn shake(shared: &Shared, socket: TcpStream) -> Result<(Stream, Member), Fault> {
    eyrie_tls::prepare(&socket, shared.connect_limit()).map_err(AuthError::Io)?;
    let own = (shared.own.node, shared.own.epoch);
    let answer = |caller: &Hello| {
        Hello::new(Role::LinkReceiver, &shared.job, own, (caller.node, caller.epoch))
    };
    let (stream, caller) = shared.secret.answer(socket, &shared.job, Role::LinkSender, answer)?;
    let member = Member { node: caller.node, epoch: caller.epoch };
    let to = Member { node: caller.to.0, epoch: caller.to.1 };
    match shared.admit(to, member) {
        Ok(()) => Ok((stream, member)),
        Err(Refusal::Misled) => Err(Fault::Misled),
        Err(Refusal::Fenced) => Err(Fault::Fenced(member)),
        Err(Refusal::Early) => Err(Fault::Early(member)),
    }
}

/// Reads frames until the connection ends.
fn serve(shared: &Arc<Shared>, connection: &Arc<Connection>) -> Result<(), Fault> {
    let mut incoming = Incoming::default();
    loop {
        let turn = take(shared, connection, &mut incoming)?;
        if connection.pending() > 0 && connection.flush() == Flushed::Blocked {
            connection.await_room(&shared.waker);
        }
        match turn {
            Turn::Next => {}
            // Whoever waits for the lock would hardly get it else.
            Turn::Yield => std::thread::yield_now(),
            Turn::Wait if incoming.wait(connection).map_err(Fault::Forged)? => {}
            Turn::Wait | Turn::Over => return Ok(()),
        }
    }
}

/// Takes what is here.
fn take(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    incoming: &mut Incoming,
) -> Result<Turn, Fault> {
    let mut held = None;
    let (turn, passing);
    {
        let mut inbound = shared.inbound();
        if !inbound.stands(connection) {
            connection.close();
            return Ok(Turn::Over);
        }
        turn = loop {
            while let Some((kind, body)) = incoming.next()? {
                match Forward::decode(kind, body)? {
                    Forward::Dets { bytes } => {
                        // Before anything behind it is taken: what follows may depend on it.
                        let frame: ToReplica =
                            postcard::from_bytes(bytes).map_err(|_| Fault::Determinants)?;
                        let taken = shared.replicas().take(connection.peer, &frame)?;
                        held = taken.or(held);
                    }
                    frame => inbound.take(connection.peer.node, &frame)?,
                }
            }
            match incoming.place(connection, &mut inbound)? {
                Turn::Next => {}
                turn => break turn,
            }
        };
        passing = inbound.is_passing();
    }
    if passing {
        shared.kick();
    }
    if let Some(upto) = held {
        connection.push(|out| Backward::Held { upto }.encode(out));
    }
    Ok(turn)
}
