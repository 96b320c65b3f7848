//! The other nodes of the job, as this one sees them: who they are, where their images are, and the
//! links to them.

use super::state::image_copy::{Copy, NotThere, Sent};
use super::{Agent, Msg};
use eyrie_control::node::Choice;
use eyrie_control::node::Determinants;
use eyrie_control::node::DeterminantsHeld;
use eyrie_control::node::FromNode;
use eyrie_control::node::NotCopied;
use eyrie_control::node::Peer;
use eyrie_control::node::Unreached;
use eyrie_control::{Meta, Transport};
use eyrie_exchange::expected_images::Token;
use eyrie_exchange::image_check::check_image;
use eyrie_exchange::image_files::{self, image_path, log_of};
use eyrie_exchange::image_stream::{self};
use eyrie_exchange::lazy_fetch;
use eyrie_exchange::store_client::Client;
use eyrie_exchange::store_protocol::{Identity, Members, StoreError};
use eyrie_ledger::datagram::Wish;
use eyrie_ledger::{acked, saved, windows};
use eyrie_link::{LinkTransport, Links, Provider, Setup};
use eyrie_process::futex;
use eyrie_process::stop_points;
use eyrie_protocol::membership::Member;
use eyrie_protocol::replicas::{Answer, Words};
use eyrie_state::sealing;
use eyrie_state::units;
use std::fs::File;
use std::io::{self, Seek as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError};

/// Between the counts of two nodes.
const DOORBELL_LEAP: u32 = 0x2000_0001;

impl Agent {
    /// Makes the links anew, and tells the controller that this node is ready.
    pub fn join(&mut self) {
        stop_points::reach("join-2");
        let segment = Arc::clone(&self.segment);
        // A router records nothing, so nothing that leaves it waits.
        let log_replicas = match units::routing(&self.spec).is_router(self.segment.node()) {
            true => 0,
            false => self.spec.protection.log_replicas as usize,
        };
        let (routed, neighbours) = (self.spec.placement.routers > 0, units::neighbours(&self.spec));
        let Some(network) = &mut self.network else { return };
        // Of the segment that was.
        network.links = None;
        network.homes.clear();
        let own = &network.own;
        let (job, secret, routes) = (own.job.clone(), own.secret.clone(), own.routes.clone());
        let member = Member { node: own.node, epoch: own.epoch };
        // Datagrams are not encrypted, and would go past the routers.
        let early = if secret.encrypts() || routed { Wish::Never } else { Wish::from_env() };
        // Who wants large messages to go over a fabric, or over several connections, does not want
        // them over one.
        let early = match self.spec.placement.transport {
            Transport::Tcp => early,
            _ => early.without_wires(),
        };
        let way = way(&self.spec.placement.transport, secret.encrypts(), network.here);
        let unreached = tell_unreached(Arc::clone(&self.out), own.epoch);
        let intervals = self.spec.timing.intervals;
        let started = way.and_then(|way| {
            let (own, listener) = (member, TcpListener::bind((network.here, 0))?);
            Links::start(Setup {
                segment,
                job,
                own,
                secret,
                routes,
                listener,
                log_replicas,
                neighbours,
                early,
                transport: way,
                intervals,
                unreached,
            })
        });
        let message = match started {
            Ok(links) => {
                let (link, store) = (links.address(), network.store);
                network.links = Some(links);
                FromNode::Joined { pid: eyrie_image::own_outer_pid(), link, store }
            }
            Err(error) => FromNode::Failed { text: format!("node {}: {error}", member.node) },
        };
        self.say(message);
    }

    pub(super) fn links(&self) -> Option<&Links> {
        self.network.as_ref()?.links.as_ref()
    }

    /// Tells the controller when everything recorded up to now may be known to others.
    pub(super) fn let_out(&self, message: FromNode) {
        let Some(links) = self.links() else { return self.say(message) };
        let out = Arc::clone(&self.out);
        links.leave(move || out(message));
    }

    pub(super) fn set_members(&mut self, peers: &[Peer]) {
        let Some(network) = &self.network else { return };
        let mut members = network.members.lock().unwrap_or_else(PoisonError::into_inner);
        let peers_here = peers.iter().map(|p| (p.node, p.epoch, p.store));
        *members = peers_here.chain(network.archive).collect();
        drop(members);
        let member = |p: &Peer| Member { node: p.node, epoch: p.epoch };
        let linked: Vec<_> = peers.iter().map(|p| (member(p), p.link)).collect();
        let members: Vec<Member> = peers.iter().map(member).collect();
        let archive = network.archive.map(|(node, epoch, _)| (node, epoch));
        let stays = |to| archive == Some(to) || peers.iter().any(|p| (p.node, p.epoch) == to);
        network.own.routes.keep(stays);
        let routers = units::routing(&self.spec).all(self.spec.program.size, &members);
        if let Some(links) = &network.links {
            links.members(&linked);
            links.routers(&routers);
        }
    }

    /// Which cluster each node is in, also such as are to join, and where the gateway of this one
    /// is, if it is there.
    pub(super) fn set_clusters(&mut self, of: Vec<u32>, gateway: Option<SocketAddr>) {
        let Some(network) = &self.network else { return };
        if network.own.routes.set(of.clone(), gateway) {
            network.links.iter().for_each(Links::leave_gateway);
        }
        network.links.iter().for_each(|links| links.places(of.clone()));
        self.spec.placement.clusters.of = of;
    }

    /// What each node fails together with, also such as are to join.
    pub(super) fn set_domains(&mut self, names: Vec<String>) {
        self.spec.storage.manner.domains = names;
        if let Some(links) = self.links() {
            links.domains(units::domains(&self.spec));
        }
    }

    pub(super) fn set_homes(&mut self, homes: &[u32]) {
        let Some(network) = &mut self.network else { return };
        let before = std::mem::replace(&mut network.homes, homes.to_vec());
        for (rank, home) in (0u32..).zip(homes) {
            let was = before.get(rank as usize);
            // One that comes here from elsewhere is at home when what it needs is here.
            let comes = was.is_some() && *home == network.own.node;
            if was != Some(home) && !comes {
                network.links.iter().for_each(|l| l.home(rank, *home));
            }
        }
    }

    /// What is held here of the determinants of ranks whose node is gone.
    pub(super) fn tell_held(&self, ask: u64, ranks: &[u32]) {
        let Some(links) = self.links() else { return };
        let mut answer = links.replicas(|r| r.answer(ranks));
        self.answer_for_own(ranks, &mut answer);
        for Answer { held, in_step, partly } in answer.parts() {
            let in_step = in_step.iter().map(|m| (m.node, m.epoch)).collect();
            let words =
                |(rank, w): (u32, Words)| Determinants { rank, first: w.first, words: w.words };
            let held = held.into_iter().map(words).collect();
            self.say(FromNode::Held(DeterminantsHeld { ask, in_step, held, partly }));
        }
    }

    /// An image is written: it is complete when its partner has it, with the rank's streams.
    pub(super) fn copy_out(
        &mut self,
        rank: u32,
        start: u64,
        generation: u32,
        taken: crate::checkpoint::Taken,
        copy: Copy,
    ) {
        let Some(network) = &self.network else { return };
        let (own, members) = (network.own.clone(), Arc::clone(&network.members));
        let segment = Arc::clone(&self.segment);
        let fd = self.segment_file.fd.try_clone();
        let (images, path) = (self.place.images.clone(), self.image_file(rank, generation));
        let tell = self.tell.clone();
        self.logs.begin_read();
        let work = move || {
            let log = log_of(&path);
            let saved = fd.map(File::from).and_then(|fd| {
                // Of a rank that moves it need not outlive this machine.
                let lasting = copy.key.is_none();
                sealing::create(&log, lasting, |mut to| match copy.log {
                    None => saved::save_streams(&fd, &segment, rank, to, lasting),
                    Some(Sent::Inner(held)) => saved::save_held(&fd, &segment, rank, held, to),
                    Some(Sent::All(mut sent)) => {
                        sent.rewind()?;
                        let bytes = io::copy(&mut sent, &mut to)?;
                        if lasting {
                            to.sync_data()?;
                        }
                        Ok(bytes)
                    }
                })
            });
            let _ = tell.send(Msg::LogsRead);
            let result = saved.map_err(NotThere::once).and_then(|_| {
                let Some(partner) = copy.partner else { return Ok(()) };
                let poured = std::mem::take(
                    &mut *copy.poured.lock().unwrap_or_else(PoisonError::into_inner),
                );
                if let Some(why) = poured.unfit {
                    return Err(unfit(partner, &why));
                }
                // What is kept and not here lies in the vault; this image needs nothing of it.
                let here = |g: &u32| image_path(&images, rank, *g).exists();
                let wanted = |g: &u32| !copy.known.contains(g) && here(g);
                let missing = copy.missing.iter().copied().filter(wanted);
                let generations = missing.chain([generation]);
                if let (Some(client), Some(key)) = (poured.client, copy.key) {
                    let all = generations.clone();
                    match bring_rest(client, &images, rank, all, key) {
                        Ok(None) => return Ok(()),
                        Ok(Some(why)) => return Err(unfit(partner, &why)),
                        Err(error) => tracing::warn!(rank, %error, "what poured is brought again"),
                    }
                }
                Client::connect(&own, &members, partner)
                    .and_then(|mut client| put_all(&mut client, &images, rank, generations))
                    .map_err(|error| NotThere::of(partner, &error))
            });
            let taken = Box::new(taken);
            let _ = tell.send(Msg::Copied { rank, start, generation, taken, result });
        };
        let spawned = std::thread::Builder::new().name("eyrie-copy".into()).spawn(work);
        if let Err(error) = spawned {
            self.logs.end_read();
            self.checkpoint_failed(rank, start, generation, NotThere::once(error));
        }
    }

    /// Copies images that are here to another node.
    pub(super) fn copy_images(&mut self, rank: u32, generations: Vec<u32>, to: u32) {
        let Some(network) = &self.network else { return };
        let (own, members) = (network.own.clone(), Arc::clone(&network.members));
        let (images, out) = (self.place.images.clone(), Arc::clone(&self.out));
        let (wanted, job, size) = (generations.clone(), self.place.id.clone(), self.size());
        let work = move || {
            let newest = wanted.last().copied().unwrap_or(0);
            lazy_fetch::settle(&images, rank, &wanted);
            let error = match check_image(&images, &job, rank, newest, size) {
                // It must not be taken for good where it came from, either.
                Choice::Refused { why, .. } => {
                    image_files::remove(&images, rank, &[newest]);
                    Some(NotCopied { damaged: true, text: why })
                }
                Choice::Unfit(text) => Some(NotCopied { damaged: false, text }),
                _ => bring(&own, &members, &images, rank, wanted.iter().copied(), to)
                    .err()
                    .map(|e| NotCopied { damaged: false, text: e.to_string() }),
            };
            out(FromNode::Copied { rank, generations: wanted, to, error });
        };
        if let Err(error) = std::thread::Builder::new().name("eyrie-copy".into()).spawn(work) {
            let error = Some(NotCopied { damaged: false, text: error.to_string() });
            self.say(FromNode::Copied { rank, generations, to, error });
        }
    }

    /// Puts what the rank had sent and what was recorded of it into the segment here.
    pub(super) fn move_in(
        &mut self,
        rank: u32,
        from: &Meta,
        determinants: &Determinants,
    ) -> Result<(), MoveError> {
        let ctl = self.segment.rank(rank);
        for (at, word) in (determinants.first..).zip(&determinants.words) {
            self.segment.det(rank, at).store(*word, Ordering::Relaxed);
        }
        // Where nothing is held, nothing was recorded that anything depends on.
        let nothing = determinants.words.is_empty();
        let first = determinants.first.max(if nothing { from.det_pos } else { 0 });
        let end = first + determinants.words.len() as u64;
        ctl.det_trim.store(first, Ordering::Relaxed);
        ctl.det_tail.store(end.max(from.det_pos), Ordering::Release);
        ctl.incarnation.fetch_max(from.incarnation, Ordering::Relaxed);
        // A rank that was frozen asleep must not find the value it slept on.
        ctl.doorbell.fetch_add(DOORBELL_LEAP, Ordering::Relaxed);
        if let Some(links) = self.links() {
            links.home(rank, self.segment.node());
        }
        eyrie_ledger::mirror::empty_pool(&self.segment, rank);
        if from.generation > 0 && (end < from.det_pos || first > from.det_pos) {
            return Err(MoveError::Determinants(end));
        }
        self.bring_log(rank, from, |_| true)
    }

    /// Puts what the rank had sent to these others by the time of its image into its log.
    pub(super) fn bring_log(
        &mut self,
        rank: u32,
        from: &Meta,
        to: impl Fn(u32) -> bool,
    ) -> Result<(), MoveError> {
        if from.generation == 0 {
            return Ok(());
        }
        let log = sealing::open(&log_of(&self.image_file(rank, from.generation)))?;
        let loaded = saved::load(&log, &self.place.id)?;
        let installed = saved::install(&loaded, &self.segment, &to);
        // The first of a unit brings what all its windows here hold, as it may store there at once.
        let here = File::from(self.segment_file.fd.try_clone()?);
        let from = File::from(loaded.fd);
        windows::bring(&from, &here, self.segment.geometry(), &mut self.segment_file.windows)?;
        // Ranks here may wait for it, and nobody sends it again, also if it is never started here.
        fence(Ordering::SeqCst);
        (0..self.size()).for_each(|dst| self.segment.rank(dst).wake());
        installed?;
        for dst in (0..self.size()).filter(|dst| to(*dst)) {
            let need = self.segment.channel(rank, dst).need.load(Ordering::Acquire);
            acked::pass(&self.segment, rank, dst, need);
        }
        Ok(())
    }

    /// A rank is about to start from an image. What it had acknowledged before stands in logs that
    /// may be lost, or are not written again yet.
    pub(super) fn acknowledge_again(&mut self, rank: u32, from: &Meta) {
        self.logs.owe_nothing_to(|receiver| receiver == rank);
        if self.network.is_none() || from.generation == 0 {
            return;
        }
        // Senders store what they send and then look at this rank's need.
        fence(Ordering::SeqCst);
        for (source, need) in (0..self.size()).zip(&from.need) {
            acked::pass(&self.segment, source, rank, *need);
        }
        self.logs.owe(from.acked.iter().map(|(source, at)| (*source, rank, *at)));
        self.mark_early();
        (0..self.size()).for_each(|r| futex::ring(&self.segment.rank(r).doorbell));
    }
}

/// Tells the controller which others this node, in this incarnation, does not reach.
fn tell_unreached(
    out: Arc<dyn Fn(FromNode) + Send + Sync>,
    epoch: u64,
) -> Box<dyn Fn(eyrie_link::Unreached) + Send + Sync> {
    Box::new(move |said| {
        let eyrie_link::Unreached { member, address, lasts, why } = said;
        let (to, for_ms) = ((member.node, member.epoch), lasts.map(|l| l.as_millis() as u64));
        out(FromNode::Unreached(Unreached { epoch, to, address, for_ms, why }));
    })
}

/// What the connections of a node at this address go over.
fn way(wish: &Transport, encrypted: bool, here: IpAddr) -> io::Result<LinkTransport> {
    Ok(match wish {
        Transport::Tcp => LinkTransport::Tcp,
        // What goes over libfabric is not encrypted.
        Transport::Auto(_) if encrypted => LinkTransport::Tcp,
        Transport::Lanes(_) if encrypted => {
            return Err(io::Error::other("the job is encrypted, and several connections are not"));
        }
        Transport::Lanes(count) => LinkTransport::Lanes(*count),
        // Nobody should have taken such a job; what it sends is not to be read for that.
        Transport::Fabric(_) if encrypted => {
            return Err(io::Error::other("the job is encrypted, and libfabric does not do that"));
        }
        Transport::Auto(None) => LinkTransport::Either(Provider::better_than_tcp(here)),
        Transport::Auto(name) => LinkTransport::Either(Provider::find(name.as_deref(), here).ok()),
        Transport::Fabric(name) => LinkTransport::Fabric(Provider::find(name.as_deref(), here)?),
    })
}

/// Why a rank cannot go on here.
#[derive(Debug, thiserror::Error)]
pub(super) enum MoveError {
    #[error("its log: {0}")]
    Io(#[from] io::Error),
    #[error("its log: {0}")]
    Saved(#[from] saved::SavedError),
    #[error("its outcomes are held up to word {0} only")]
    Determinants(u64),
}

/// Its processes cannot run there.
fn unfit(partner: u32, why: &str) -> NotThere {
    let text = format!("it cannot move to node {partner}: {why}");
    NotThere { text, lasting: true, lost: false }
}

/// Brings the files of images to another node.
pub(super) fn bring(
    own: &Identity,
    members: &Members,
    images: &Path,
    rank: u32,
    generations: impl Iterator<Item = u32>,
    to: u32,
) -> Result<(), StoreError> {
    let mut client = Client::connect(own, members, to)?;
    put_all(&mut client, images, rank, generations)
}

/// Brings the rest of images of which the last went there while it was written. Returns why that
/// cannot run there, if so.
fn bring_rest(
    mut client: Client,
    images: &Path,
    rank: u32,
    generations: impl Iterator<Item = u32> + Clone,
    key: Token,
) -> Result<Option<String>, StoreError> {
    if let Some(newest) = generations.clone().last()
        && let Some(why) = image_stream::send_children(&mut client, images, rank, newest, key)?
    {
        return Ok(Some(why));
    }
    put_all(&mut client, images, rank, generations).map(|()| None)
}

/// Brings what is not there of the files of images, in a conversation with another node.
fn put_all(
    client: &mut Client,
    images: &Path,
    rank: u32,
    mut generations: impl Iterator<Item = u32>,
) -> Result<(), StoreError> {
    generations.try_for_each(|generation| {
        lazy_fetch::settle(images, rank, &[generation]);
        let all = image_files::all(images, rank, generation)?;
        all.iter().try_for_each(|name| client.put(images, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn nothing_that_is_encrypted_goes_over_a_fabric() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for name in [None, Some(String::from("tcp"))] {
            assert!(matches!(
                way(&Transport::Auto(name.clone()), true, here),
                Ok(LinkTransport::Tcp)
            ));
            let refused = way(&Transport::Fabric(name), true, here);
            let why = refused.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(why.contains("encrypted"), "{why}");
        }
        assert!(matches!(way(&Transport::Tcp, true, here), Ok(LinkTransport::Tcp)));
    }
}
