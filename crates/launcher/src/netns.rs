//! Networks of their own for nodes (`eyrie run --netns`): the controller's network namespace holds
//! a bridge, and each node's is joined to it by a pair of veth devices. Of several clusters each
//! has a bridge of its own, which its gateway's is joined to, too; gateways are joined to one more.
//! There is no route from one bridge to another.
//!
//! Kept true: the namespaces have no names, they are held by processes alone: those in them, and
//! the daemons of the nodes, which have the controller's open, so that it outlives the controller.
//! So with the last process of the job they vanish with bridge and pairs, however it ended; and
//! nothing of it ever is in the namespace that the job was started from.

use eyrie_process::reap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Addresses of a job, 10.77.0.0/16: the controller has the first, nodes the next. No two jobs
/// meet, as each has namespaces of its own.
/// Of several clusters the first has 10.78.0.0/16, the next the next; gateways have 10.77.0.0/16
/// among themselves.
const NETWORK: [u8; 4] = [10, 77, 0, 0];
const PREFIX: u32 = 16;
/// From one network to the next.
const STRIDE: u32 = 1 << (32 - PREFIX);
/// The device of a node, or of a gateway towards its nodes, as it is called there.
const INNER: &str = "eth0";
/// That of a gateway towards others.
const OUTER: &str = "wan0";
/// A gateway's number in its cluster's network.
const GATEWAY: u32 = 0xff01;

/// The address of a bridge's own device. Without one it has that of one of its ports, which others
/// remember for a while when the port is gone.
const BRIDGE: &str = "02:65:79:72:69:65";

/// Where the tool may be besides the search path, which often lacks these.
const SYSTEM_PATHS: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// The bridge of a job. The calling thread, and those it starts later, are in its namespace.
pub struct Bridge {
    job: String,
    /// How many clusters; 0: there are none to tell apart.
    clusters: u32,
    tool: PathBuf,
    /// The namespace.
    space: File,
}

fn host(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::from(NETWORK).to_bits() + number)
}

/// The same in the network of a cluster.
fn host_in(cluster: u32, number: u32) -> Ipv4Addr {
    host((cluster + 1) * STRIDE + number)
}

/// Puts the calling process, which has one thread, into a network namespace of its own.
/// Async-signal-safe.
pub fn leave() -> io::Result<()> {
    // SAFETY: plain system call.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The network namespace that a process has open and is not in.
fn held_by(pid: libc::pid_t) -> Option<File> {
    let own = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is_held = |path: &PathBuf| {
        let link = std::fs::read_link(path).unwrap_or_default();
        link != own && link.as_os_str().as_encoded_bytes().starts_with(b"net:[")
    };
    let held = all.flatten().map(|entry| entry.path()).find(is_held)?;
    File::open(held).ok()
}

/// The device with an address has always the same hardware address: the next gateway of a cluster
/// has the addresses of the last one, of which others remember the hardware address for a while.
fn hardware(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:65:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

fn find_tool() -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        std::env::split_paths(&path).chain(std::env::split_paths(OsStr::new(SYSTEM_PATHS)));
    let mut found = places.map(|place| place.join("ip")).filter(|tool| tool.is_file());
    found.next().ok_or_else(|| {
        io::Error::other("--netns needs the program 'ip': install the package iproute2")
    })
}

impl Bridge {
    /// Leaves the network namespace for a new one, and makes the bridge there.
    pub fn make(job: &str, clusters: u32) -> io::Result<Bridge> {
        let tool = find_tool()?;
        leave().map_err(|error| {
            io::Error::other(format!(
                "--netns needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), as it makes network \
                 namespaces: {error}"
            ))
        })?;
        let space = File::open("/proc/thread-self/ns/net")?;
        let bridge = Bridge { job: job.to_string(), clusters, tool, space };
        bridge.configure(None, "link set lo up\n")?;
        for cluster in bridge.all() {
            let (name, address) = (bridge.name_of(cluster), bridge.address(cluster));
            bridge.configure(
                None,
                &format!(
                    "link add {name} address {BRIDGE} type bridge\n\
                     address add {address}/{PREFIX} dev {name}\nlink set {name} up\n"
                ),
            )?;
        }
        if clusters > 0 {
            let wide = format!("{}-w", bridge.name());
            let between = format!("link add {wide} type bridge\nlink set {wide} up\n");
            bridge.configure(None, &between)?;
        }
        Ok(bridge)
    }

    /// The cluster of each bridge of nodes, if there are several to tell apart.
    fn all(&self) -> Vec<Option<u32>> {
        if self.clusters == 0 { vec![None] } else { (0..self.clusters).map(Some).collect() }
    }

    /// Goes into the namespace of the job's dead controller, which these daemons hold.
    pub fn again(
        job: &str,
        clusters: u32,
        daemons: impl Iterator<Item = libc::pid_t>,
    ) -> io::Result<Bridge> {
        let (mut daemons, tool) = (daemons, find_tool()?);
        let space = daemons.find_map(held_by).ok_or_else(|| {
            io::Error::other("the job's network is gone with its nodes, or is not to be entered")
        })?;
        // SAFETY: plain system call on a descriptor that is open.
        if unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Bridge { job: job.to_string(), clusters, tool, space })
    }

    /// The namespace, for daemons to hold.
    pub fn space(&self) -> RawFd {
        self.space.as_raw_fd()
    }

    /// The controller's address, as a cluster reaches it.
    pub fn address(&self, cluster: Option<u32>) -> Ipv4Addr {
        cluster.map_or(host(1), |cluster| host_in(cluster, 1))
    }

    /// All of them.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.all().into_iter().map(|cluster| self.address(cluster)).collect()
    }

    fn name(&self) -> String {
        format!("eyr-{}", self.job)
    }

    fn name_of(&self, cluster: Option<u32>) -> String {
        cluster.map_or_else(|| self.name(), |cluster| format!("{}-c{cluster}", self.name()))
    }

    /// Joins the namespace of a node's daemon, which has just left for it, to the bridge, of its
    /// cluster if there are several.
    pub fn join(&self, node: u32, cluster: Option<u32>, daemon: libc::pid_t) -> io::Result<()> {
        let number = node + 2;
        let address = cluster.map_or(host(number), |cluster| host_in(cluster, number));
        let outer = format!("{}-{node}", self.name());
        self.plug(&outer, INNER, &self.name_of(cluster), daemon, address)
    }

    /// Joins the namespace of a cluster's gateway to those of its nodes and of other gateways.
    /// Returns its address there.
    pub fn join_gateway(&self, cluster: u32, process: libc::pid_t) -> io::Result<Ipv4Addr> {
        let (name, outside) = (self.name(), host(cluster + 2));
        let [near, far] = ["g", "w"].map(|end| format!("{name}-{end}{cluster}"));
        for old in [&near, &far] {
            // The kernel takes its time over the namespace of a gateway that has died.
            let _ = self.configure(None, &format!("link delete {old}\n"));
        }
        let inside = host_in(cluster, GATEWAY);
        self.plug(&near, INNER, &self.name_of(Some(cluster)), process, inside)?;
        self.plug(&far, OUTER, &format!("{name}-w"), process, outside)?;
        Ok(outside)
    }

    /// A pair of devices: one end at a bridge, the other in the namespace of a process.
    fn plug(
        &self,
        outer: &str,
        inner: &str,
        bridge: &str,
        process: libc::pid_t,
        address: Ipv4Addr,
    ) -> io::Result<()> {
        let hardware = hardware(address);
        self.configure(
            None,
            &format!(
                "link add {outer} type veth peer name {inner} address {hardware} netns {process}\n\
                 link set {outer} master {bridge} up\n"
            ),
        )?;
        self.configure(
            Some(process),
            &format!(
                "link set lo up\naddress add {address}/{PREFIX} dev {inner}\n\
                 link set {inner} up\n"
            ),
        )
    }

    /// Carries out commands of `ip`, in the namespace of a process if one is given.
    fn configure(&self, process: Option<libc::pid_t>, commands: &str) -> io::Result<()> {
        let space = process.map(|p| File::open(format!("/proc/{p}/ns/net"))).transpose()?;
        let mut command = Command::new(&self.tool);
        command.args(["-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(space) = space {
            // SAFETY: one async-signal-safe system call between fork and exec; the descriptor is
            // open as long as the closure lives.
            unsafe {
                command.pre_exec(move || {
                    match libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) {
                        0 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    }
                });
            }
        }
        let mut child = reap::start(&mut command)?;
        let pid = child.id() as libc::pid_t;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(commands.as_bytes())?;
        }
        let done = child.wait_with_output();
        reap::forget(pid);
        let done = done?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let said = said.lines().next().unwrap_or_default();
        Err(io::Error::other(format!(
            "--netns needs bridges and veth devices of the kernel; {} ended with {}: {said}",
            self.tool.display(),
            done.status
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_addresses_of_their_own_in_one_network() {
        assert_eq!(host(1), Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(host(2 + 511), Ipv4Addr::new(10, 77, 2, 1));
        assert_eq!(host_in(0, 2), Ipv4Addr::new(10, 78, 0, 2));
        assert_eq!(host_in(63, GATEWAY), Ipv4Addr::new(10, 141, 255, 1));
        assert_eq!(hardware(host_in(63, GATEWAY)), "02:65:0a:8d:ff:01");
    }

    #[test]
    fn names_fit_what_the_kernel_takes() {
        let space = File::open("/proc/self/ns/net").unwrap();
        let bridge = Bridge { job: "abcd".into(), clusters: 64, tool: PathBuf::new(), space };
        // IFNAMSIZ is 16 with the final zero.
        assert!(format!("{}-511", bridge.name()).len() < 16);
        assert!(bridge.name_of(Some(63)).len() < 16);
    }
}
