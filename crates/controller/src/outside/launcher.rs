//! Daemons of nodes, gateways of clusters, and the lines to them.
//!
//! Kept true: what is told to who is gone is lost; that it is gone is told (`Msg::Gone`,
//! `Msg::HungUp`, `Msg::GatewayGone`).

use eyrie_control::auth::Key;
use eyrie_control::gateway::{Silence, ToGateway};
use eyrie_control::message::{Host, Hosts};
use eyrie_control::node::DaemonRecord;
use eyrie_control::{Death, Protection, Stored, ToNode};
use eyrie_protocol::failure_detector::Patience;
use eyrie_protocol::session::Numbered;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A node's daemon, as it was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Of its process; of one on another host, of the remote shell.
    pub pid: i32,
    pub epoch: u64,
    /// When the process started, as the kernel counts.
    pub born: u64,
    /// The host that it is on, if that is another.
    pub host: Option<String>,
    /// Another controller had a remote shell there, which is gone: nothing but its own connection
    /// leads to it.
    pub left: bool,
}

impl Daemon {
    /// What it takes to adopt it, if that can be.
    pub fn record(&self, node: u32) -> DaemonRecord {
        DaemonRecord { node, pid: self.pid, born: self.born, epoch: self.epoch }
    }
}

/// A gateway, as it was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Of the process, or of the remote shell that it is under.
    pub pid: i32,
    pub host: Option<String>,
}

/// Where a gateway is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewaySite {
    /// On the host of this node; none: on this machine.
    pub node: Option<u32>,
    /// The port at which the one before it listened there for nodes.
    pub inside: Option<u16>,
}

/// Who starts a job's daemons and gateways, and where they call.
pub trait Launcher {
    /// Starts the daemon of a node, which may reach the controller through a gateway: which start
    /// of that, and where. Its end is told.
    fn start_daemon(
        &self,
        node: u32,
        epoch: u64,
        gateway: Option<(u64, SocketAddr)>,
    ) -> io::Result<Daemon>;
    /// The daemon of a node that another controller started.
    fn adopt_daemon(&self, record: &DaemonRecord) -> io::Result<Daemon>;
    /// Has the end of an adopted one told.
    fn watch_adopted(&self, node: u32, epoch: u64) -> io::Result<()>;
    fn kill_daemon(&self, node: u32);
    /// How a daemon of this machine has ended, if it has.
    fn daemon_ended(&self, node: u32) -> Option<Death>;
    /// What the remote shell of a node has written last.
    fn last_words(&self, node: u32) -> Option<String>;
    /// Ends what is left of a node and removes its storage (`Msg::Cleared`). `others` are processes
    /// that go on, `cut_off` the time after which one that cannot be reached has ended by itself.
    fn clear(&self, node: u32, others: Vec<i32>, cut_off: Duration) -> io::Result<()>;

    /// Starts the gateway of a cluster. What it says, and its end, are told.
    fn start_gateway(
        &self,
        cluster: u32,
        number: u64,
        site: GatewaySite,
        silence: Silence,
    ) -> io::Result<Gateway>;
    fn tell_gateway(&self, cluster: u32, order: ToGateway);
    fn kill_gateway(&self, cluster: u32);
    /// How it ended, for people. It is gone afterwards.
    fn bury_gateway(&self, cluster: u32) -> String;
    /// Ends the gateway of a cluster, if there is one, at once if it is to be killed
    /// (`Msg::GatewayEnded`).
    fn end_gateway(&self, cluster: u32, kill: bool);

    /// What the job's members know each other by.
    fn key(&self) -> [u8; 32];
    /// Where the controller listens.
    fn addresses(&self) -> Vec<SocketAddr>;
    /// The hosts that nodes are on, also of those that joined.
    fn hosts(&self) -> Option<Box<Hosts>>;
    /// The next node, `node`, is to be on this host.
    fn welcome_host(&self, node: u32, host: Host) -> io::Result<()>;
    /// The cluster of each node, also of such as are to join.
    fn place(&self, of: Vec<u32>);
    /// What each node fails together with, also such as are to join.
    fn set_domains(&self, names: Vec<String>);
    /// How ranks come back, also of nodes that are to join; `homes`: what units are counted by.
    fn set_mode(&self, protection: Protection, homes: Vec<u32>);
    /// This machine's address as a node reaches it.
    fn reached_at(&self, node: u32) -> Option<IpAddr>;
    /// Whether nodes encrypt with what this controller does not know.
    fn lacks_at_rest(&self) -> bool;
    fn learn_at_rest(&self, key: Key);
    /// How many callers were turned away.
    fn turned_away(&self) -> u64;

    /// Lets nodes bring images to the job's folder, and fetch them, at each address of the
    /// controller; returns where, of those that are not in `places` already.
    fn open_archive(&self, places: &[SocketAddr]) -> io::Result<Vec<SocketAddr>>;
    /// The same at one place.
    fn serve_archive(&self, place: SocketAddr) -> io::Result<()>;
    /// Who may: nodes, their epochs, and where they are.
    fn set_members(&self, members: Vec<(u32, u64, SocketAddr)>);
    /// Who asks for one of these files is told that it is in an object store. `key`: the file with
    /// what that is encrypted with.
    fn redirect(&self, stored: Option<&Stored>, key: Option<&str>);
}

/// A connection to a node. How long silence is borne on it is its own affair; times are in
/// milliseconds.
pub trait NodeLine: Send {
    /// Its number among all of this controller's.
    fn number(&self) -> u64;
    fn send(&self, frame: Numbered<ToNode>);
    fn hang_up(&self);
    /// What was taken of the node is durable, up to this number.
    fn confirm(&self, heard: u64);
    /// The node is one that this controller wants: its stamps come back.
    fn take(&self);
    /// How long the node is waited for.
    fn set_patience(&self, patience: Patience);
    /// The longest grant that the node may hold, or would be given now, rounded up to what is
    /// written down.
    fn rounded_most(&self) -> u64;
    /// Whether nothing was heard for longer than a heartbeat or so.
    fn is_quiet(&self) -> bool;
    /// The longest that may be said.
    fn allowed(&self) -> u64;
    /// Grants up to this are written down, and may be said.
    fn allow(&self, granted: u64);
    /// How long after this end hangs up now nothing of the node is left, which may have been
    /// granted so much. `before`: how long ago it gave its last stamp on an earlier connection.
    fn clear_after(&self, granted: u64, before: Option<u64>) -> u64;
    /// For how long nothing was heard when it was looked at last.
    fn quiet(&self) -> u64;
    /// For how long nothing was heard.
    fn silent(&self) -> u64;
    /// How long ago the last stamp was heard.
    fn stamped_ago(&self) -> Option<u64>;
}
