//! Several nodes in one process: a segment each, joined by real connections over loopback.
//!
//! Whatever fails here fails the test that uses it.

#![allow(clippy::expect_used)] // it fails the test that uses it

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use eyrie_control::auth::Key;
use eyrie_ledger::datagram::Wish;
use eyrie_ledger::segment::{Geometry, Segment};
use eyrie_protocol::membership::{Member, Neighbours};
use eyrie_protocol::replicas::{Words, longest};
use eyrie_protocol::timing::Intervals;
use eyrie_tls::{Routes, Secret};

use crate::dial::Unreached;
use crate::links::{Links, Setup};
use crate::shared::lock;
use crate::transport::LinkTransport;

/// One node.
pub struct Node {
    pub segment: Arc<Segment>,
    pub links: Links,
    pub member: Member,
    /// How it reaches others: straight, as long as nothing else is said.
    pub routes: Routes,
}

impl Node {
    /// The segment for ranks, which keep theirs for ever.
    pub fn leak(&self) -> &'static Segment {
        Box::leak(Box::new(Arc::clone(&self.segment)))
    }
}

/// What all nodes have in common.
pub struct Cluster {
    pub nodes: Vec<Option<Node>>,
    /// Node of each rank.
    pub homes: Vec<u32>,
    pub key: Key,
    secret: Secret,
    /// What nodes that come from now on go over.
    pub transport: LinkTransport,
    early: Wish,
    geometry: Geometry,
    ft: u32,
    log_replicas: usize,
    epochs: u64,
    /// What nodes say of links that they miss.
    pub unreached: Arc<Mutex<Vec<Said>>>,
}

/// A node, and whom it does not reach.
pub type Said = (u32, Unreached);

/// Name of the job.
pub const JOB: &str = "test";

impl Cluster {
    /// `nodes` nodes, on which the ranks are dealt like cards. No rank is attached.
    ///
    /// # Panics
    /// When the system has no sockets or memory left.
    pub fn new(nodes: u32, geometry: Geometry, ft: u32, log_replicas: usize) -> Cluster {
        let key = Key::new().expect("random numbers");
        Cluster::of(nodes, geometry, ft, log_replicas, Secret::plain(key))
    }

    /// The same with this secret. What is encrypted is not sent as a datagram.
    ///
    /// # Panics
    /// When the system has no sockets or memory left.
    pub fn of(
        nodes: u32,
        geometry: Geometry,
        ft: u32,
        log_replicas: usize,
        secret: Secret,
    ) -> Cluster {
        let early = if secret.encrypts() { Wish::Never } else { Wish::Always };
        Cluster::with(nodes, geometry, ft, log_replicas, (secret, LinkTransport::Tcp, early))
    }

    /// The same over this, with messages sent as a datagram or not.
    ///
    /// # Panics
    /// When the system has no sockets or memory left.
    pub fn over(
        nodes: u32,
        geometry: Geometry,
        ft: u32,
        log_replicas: usize,
        (transport, early): (LinkTransport, Wish),
    ) -> Cluster {
        let secret = Secret::plain(Key::new().expect("random numbers"));
        Cluster::with(nodes, geometry, ft, log_replicas, (secret, transport, early))
    }

    /// All of that.
    ///
    /// # Panics
    /// When the system has no sockets or memory left, or these do not go together.
    pub fn with(
        nodes: u32,
        geometry: Geometry,
        ft: u32,
        log_replicas: usize,
        (secret, transport, early): (Secret, LinkTransport, Wish),
    ) -> Cluster {
        let homes = (0..geometry.ranks).map(|r| r % nodes).collect();
        let key = secret.key().clone();
        let (made, epochs) = (Vec::new(), 0);
        let mut cluster = Cluster {
            nodes: made,
            homes,
            key,
            secret,
            transport,
            early,
            geometry,
            ft,
            log_replicas,
            epochs,
            unreached: Arc::default(),
        };
        for node in 0..nodes {
            let made = cluster.make(node);
            cluster.nodes.push(Some(made));
        }
        cluster.announce();
        for node in cluster.nodes.iter().flatten() {
            for (rank, home) in (0..).zip(&cluster.homes) {
                node.links.home(rank, *home);
            }
        }
        cluster
    }

    fn make(&mut self, node: u32) -> Node {
        self.epochs += 1;
        let member = Member { node, epoch: self.epochs };
        let (_, segment) =
            Segment::create_on(JOB, self.geometry, self.ft, 1, node).expect("segment");
        let segment = Arc::new(segment);
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("listener");
        let routes = Routes::default();
        let told = Arc::clone(&self.unreached);
        let links = Links::start(Setup {
            segment: Arc::clone(&segment),
            job: JOB.into(),
            own: member,
            secret: self.secret.clone(),
            routes: routes.clone(),
            listener,
            log_replicas: self.log_replicas,
            neighbours: Neighbours::default(),
            early: self.early,
            transport: self.transport.clone(),
            intervals: Intervals::default(),
            unreached: Box::new(move |said| lock(&told).push((node, said))),
        });
        Node { segment, links: links.expect("links"), member, routes }
    }

    pub fn members(&self) -> Vec<(Member, SocketAddr)> {
        self.nodes.iter().flatten().map(|n| (n.member, n.links.address())).collect()
    }

    /// Tells every node who the members are.
    pub fn announce(&self) {
        let members = self.members();
        self.nodes.iter().flatten().for_each(|n| n.links.members(&members));
    }

    /// # Panics
    /// When the node is gone.
    pub fn node(&self, node: u32) -> &Node {
        self.nodes[node as usize].as_ref().expect("a live node")
    }

    /// The node that `rank` has its home on.
    pub fn home(&self, rank: u32) -> &Node {
        self.node(self.homes[rank as usize])
    }

    /// Gets the place of `rank` ready: it reads from `need` on.
    pub fn attach(&self, rank: u32, need: &[u64]) -> &'static Segment {
        let home = self.home(rank);
        home.links.attach(rank, need, need);
        home.leak()
    }

    /// Node `node` dies with everything on it.
    pub fn kill(&mut self, node: u32) {
        self.nodes[node as usize] = None;
        self.announce();
    }

    /// The node of `rank` dies. Returns what the others hold of the rank's determinants.
    pub fn lose(&mut self, rank: u32) -> Words {
        let node = self.homes[rank as usize];
        let dead = self.node(node).member;
        self.kill(node);
        let answers = self.nodes.iter().flatten().map(|n| {
            n.links.replicas(|r| {
                r.fence(dead);
                r.answer(&[rank]).held.remove(&rank)
            })
        });
        longest(answers.flatten()).unwrap_or_default()
    }

    /// Writes determinants into the (empty) log of `rank` and waits until others hold them.
    ///
    /// # Panics
    /// When the node is gone.
    pub fn restore_determinants(&self, rank: u32, known: Words) {
        let home = self.home(rank);
        for (at, word) in (known.first..).zip(&known.words) {
            home.segment.det(rank, at).store(*word, Relaxed);
        }
        home.segment.rank(rank).det_trim.store(known.first, Relaxed);
        home.segment.rank(rank).det_tail.store(known.end(), Release);
        let (tell, hear) = mpsc::channel();
        home.links.leave(move || {
            let _ = tell.send(());
        });
        hear.recv().expect("the links live");
    }

    /// An empty node takes its number. Its ranks are to be attached again.
    pub fn revive(&mut self, node: u32) {
        let made = self.make(node);
        for (rank, home) in (0..).zip(&self.homes) {
            made.links.home(rank, *home);
        }
        self.nodes[node as usize] = Some(made);
        self.announce();
    }

    /// `rank`, which does not run, gets its home on `node`.
    pub fn move_to(&mut self, rank: u32, node: u32) {
        self.homes[rank as usize] = node;
        self.nodes.iter().flatten().for_each(|n| n.links.home(rank, node));
    }
}
