//! Who calls a gateway: nodes of its own cluster, and the gateways of others.
//!
//! Kept true: each caller is heard in a thread of its own, for a bounded time; without the job's
//! key it learns nothing and is closed and counted.

use super::relay::Note;
use super::watch::is_own;
use super::{Own, count};
use eyrie_control::auth::{self, AuthError, Hello, Role};
use eyrie_control::gateway::HOME;
use eyrie_gateway::Side;
use eyrie_gateway::frame::{TARGET_BYTES, target};
use eyrie_tls::{Callers, prepare};
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Longest silence while a caller introduces itself.
pub(super) const GREETING: Duration = Duration::from_secs(5);

/// Listens for nodes.
pub(super) fn nodes(listener: TcpListener, own: &Arc<Own>) -> io::Result<()> {
    accept("eyrie-nodes", listener, own, |socket, own| {
        let (socket, node, cluster, target) = passenger(socket, own)?;
        // Who has a way to the controller's cluster always says something there.
        let watched = (cluster == HOME && !is_own(&socket)).then_some(node);
        own.notes.send(Note::Passenger { socket, cluster, target, watched });
        Ok(())
    })
}

/// Listens for other gateways.
pub(super) fn gates(listener: TcpListener, own: &Arc<Own>) -> io::Result<()> {
    accept("eyrie-gates", listener, own, |socket, own| {
        let ends = (own.cluster, own.number);
        let hello = |caller: &Hello| {
            Hello::new(Role::TunnelServer, &own.job, ends, (caller.node, caller.epoch))
        };
        let called = own.secret.answer(socket, &own.job, Role::TunnelCaller, hello);
        let (stream, caller) = called?;
        // One that was told of another incarnation of ours hears of this one soon.
        if caller.to != ends || caller.node >= own.clusters || caller.node == own.cluster {
            return Err(AuthError::Malformed);
        }
        let (peer, stream, hold) = ((caller.node, caller.epoch), Box::new(stream), None);
        own.notes.send(Note::Tunnel { peer, stream, side: Side::Called, hold });
        Ok(())
    })
}

fn accept(
    name: &str,
    listener: TcpListener,
    own: &Arc<Own>,
    welcome: impl Fn(TcpStream, &Own) -> Result<(), AuthError> + Send + Copy + 'static,
) -> io::Result<()> {
    let own = Arc::clone(own);
    let work = move || {
        let callers = Callers::default();
        loop {
            let Ok((socket, caller)) = callers.next(&listener) else { continue };
            let own = Arc::clone(&own);
            let greet = move || {
                let from = socket.peer_addr();
                let prepared = prepare(&socket, GREETING).map_err(AuthError::Io);
                let welcomed = prepared.and_then(|()| welcome(socket, &own));
                drop(caller);
                if let Err(error) = welcomed {
                    let from = from.map_or_else(|_| String::from("somewhere"), |a| a.to_string());
                    tracing::warn!("a caller from {from} is turned away: {error}");
                    // One that hangs up in the middle says nothing about itself.
                    if !matches!(error, AuthError::Io(_)) {
                        count(&own.counts.strangers);
                    }
                }
            };
            let greeted = std::thread::Builder::new().name("eyrie-greet".into()).spawn(greet);
            if let Err(error) = greeted {
                tracing::warn!(%error, "no thread for a caller");
            }
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(work)?;
    Ok(())
}

/// A node proves itself and says where it wants to go: a cluster, and an address there. Returns
/// its number, too.
fn passenger(
    mut socket: TcpStream,
    own: &Own,
) -> Result<(TcpStream, u32, u32, std::net::SocketAddr), AuthError> {
    let hello = |caller: &Hello| {
        let to = (caller.node, caller.epoch);
        Hello::new(Role::Gateway, &own.job, (own.cluster, own.number), to)
    };
    let key = own.secret.key();
    let caller = auth::answer(&mut socket, key, &own.job, Role::Passenger, hello)?;
    let cluster = caller.to.0;
    if cluster >= own.clusters || cluster == own.cluster {
        return Err(AuthError::Malformed);
    }
    let mut wanted = [0; TARGET_BYTES];
    socket.read_exact(&mut wanted)?;
    let to = target(&wanted).ok_or(AuthError::Malformed)?;
    Ok((socket, caller.node, cluster, to))
}
