//! Daemons and gateways that are only asked for.

use super::{Asked, Memory};
use crate::outside::{Daemon, Gateway, GatewaySite, Launcher};
use eyrie_control::auth::Key;
use eyrie_control::gateway::{Silence, ToGateway};
use eyrie_control::message::{Host, Hosts};
use eyrie_control::node::DaemonRecord;
use eyrie_control::{Death, Protection, Stored};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What was told to the launcher.
#[derive(Default)]
pub(super) struct Known {
    hosts: Option<Box<Hosts>>,
}

/// Where the controller listens, and its archive.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CONTROLLER: u16 = 1;
const ARCHIVE: u16 = 2;

impl Memory {
    /// The job is over these hosts.
    pub fn set_hosts(&self, hosts: Hosts) {
        self.0.borrow_mut().launcher.hosts = Some(Box::new(hosts));
    }
}

impl Launcher for Memory {
    fn start_daemon(
        &self,
        node: u32,
        epoch: u64,
        gateway: Option<(u64, SocketAddr)>,
    ) -> io::Result<Daemon> {
        self.0.borrow_mut().ended.remove(&node);
        self.ask(Asked::StartDaemon { node, epoch, gateway });
        Ok(self.new_daemon(epoch))
    }

    fn adopt_daemon(&self, record: &DaemonRecord) -> io::Result<Daemon> {
        let DaemonRecord { pid, born, epoch, .. } = *record;
        Ok(Daemon { pid, epoch, born, host: None, left: false })
    }

    fn watch_adopted(&self, node: u32, epoch: u64) -> io::Result<()> {
        self.ask(Asked::WatchAdopted { node, epoch });
        Ok(())
    }

    fn kill_daemon(&self, node: u32) {
        self.ask(Asked::KillDaemon { node });
    }

    fn daemon_ended(&self, node: u32) -> Option<Death> {
        self.0.borrow().ended.get(&node).copied()
    }

    fn last_words(&self, _: u32) -> Option<String> {
        None
    }

    fn clear(&self, node: u32, others: Vec<i32>, cut_off: Duration) -> io::Result<()> {
        self.ask(Asked::Clear { node, others, cut_off });
        Ok(())
    }

    fn start_gateway(
        &self,
        cluster: u32,
        number: u64,
        site: GatewaySite,
        silence: Silence,
    ) -> io::Result<Gateway> {
        self.ask(Asked::StartGateway { cluster, number, site, silence });
        Ok(Gateway { pid: self.new_daemon(0).pid, host: None })
    }

    fn tell_gateway(&self, cluster: u32, order: ToGateway) {
        self.ask(Asked::TellGateway { cluster, order });
    }

    fn kill_gateway(&self, cluster: u32) {
        self.ask(Asked::KillGateway { cluster });
    }

    fn bury_gateway(&self, cluster: u32) -> String {
        self.ask(Asked::BuryGateway { cluster });
        String::from("it ended")
    }

    fn end_gateway(&self, cluster: u32, kill: bool) {
        self.ask(Asked::EndGateway { cluster, kill });
    }

    fn key(&self) -> [u8; 32] {
        [7; 32]
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![SocketAddr::new(HERE, CONTROLLER)]
    }

    fn hosts(&self) -> Option<Box<Hosts>> {
        self.0.borrow().launcher.hosts.clone()
    }

    fn welcome_host(&self, node: u32, host: Host) -> io::Result<()> {
        let mut content = self.0.borrow_mut();
        let hosts = content.launcher.hosts.as_mut();
        let list = hosts.map(|h| &mut h.list).ok_or_else(|| io::Error::other("it has no hosts"))?;
        match list.get_mut(node as usize) {
            Some(place) => *place = host,
            None => list.push(host),
        }
        Ok(())
    }

    fn place(&self, _: Vec<u32>) {}

    fn set_domains(&self, _: Vec<String>) {}

    fn set_mode(&self, _: Protection, _: Vec<u32>) {}

    fn reached_at(&self, _: u32) -> Option<IpAddr> {
        Some(HERE)
    }

    fn lacks_at_rest(&self) -> bool {
        false
    }

    fn learn_at_rest(&self, _: Key) {}

    fn turned_away(&self) -> u64 {
        0
    }

    fn open_archive(&self, places: &[SocketAddr]) -> io::Result<Vec<SocketAddr>> {
        self.room()?;
        Ok(if places.is_empty() { vec![SocketAddr::new(HERE, ARCHIVE)] } else { Vec::new() })
    }

    fn serve_archive(&self, _: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    fn set_members(&self, _: Vec<(u32, u64, SocketAddr)>) {}

    fn redirect(&self, _: Option<&Stored>, _: Option<&str>) {}
}
