//! Where ranks run: on which nodes, in which layout, on which cores.

use crate::options::ranks::parse_size;
use clap::Args;
use eyrie_control::Bind;
use eyrie_protocol::placement::Map;
use std::path::PathBuf;

/// Where ranks run.
#[derive(Debug, Args)]
pub struct PlacementOptions {
    /// Spread the ranks over N nodes, each a daemon with storage of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub nodes: Option<u32>,
    /// Run on these machines, a node on each: a list (a,b:4,c) or a file (one a line; `slots=N`,
    /// `cluster=NAME`, `domain=NAME` and `gateway=ADDRESS[:PORT]` behind it, # begins a comment).
    /// Slots, here 4, are the most ranks that a host gets; a domain is what fails together, such as
    /// the hosts of a switch, and of which --vault puts no two into one group if it can; a gateway
    /// of the host's cluster is reached by other clusters at this address [default: in a
    /// batch system's allocation (Slurm, PBS, LSF, Flux, Grid Engine, Kubernetes) its hosts, unless
    /// --nodes is given]
    #[arg(long, value_name = "LIST|FILE")]
    #[arg(conflicts_with_all = ["nodes", "netns"])]
    pub hosts: Option<String>,
    /// A whole grid job in one file: its clusters with their hosts and what starts processes there,
    /// the links between them, the environment, the program, and options of this command; what is
    /// typed goes before it (docs/guides/grid.md; `eyrie check FILE` looks whether it can start)
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["hosts", "nodes", "netns", "clusters", "rsh", "prefix"])]
    pub config: Option<PathBuf>,
    /// How ranks are laid out on the nodes [default: block]
    #[arg(long, value_enum)]
    pub map: Option<Map>,
    /// So many ranks on each node, whatever slots it has: the first N on the first one. -n is N for
    /// each node if it is not given
    #[arg(long, value_name = "N", conflicts_with = "rankfile", value_parser = parse_size)]
    pub ppn: Option<u32>,
    /// Where each rank runs and on which cores: lines `rank N=HOST slot=CORES`, or `rank N=+nK
    /// slot=CORES` for the K-th node (cores as 0-3,7, as SOCKET:CORES, or *; counted among those
    /// that the node may use). Without --hosts and --nodes the hosts are those that it names; -n is
    /// the number of ranks in it if it is not given
    #[arg(long, value_name = "FILE", conflicts_with = "map")]
    pub rankfile: Option<PathBuf>,
    /// What each rank is bound to; nothing where there are more ranks than cores, or where another
    /// job's ranks are bound [default: none, unless the cores are this job's own, see --exclusive]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub bind: Option<Bind>,
    /// The cores that the job may use are its own: ranks are bound to a core each where a node has
    /// as many ranks as cores, to a memory domain where it has fewer. So it is without this
    /// option, too, where a batch system (Slurm, PBS, LSF) gave the job its cores, and where it may
    /// use only a part of the machine's (a cpuset). A rank is let go if others use its core
    #[arg(long, conflicts_with = "bind")]
    pub exclusive: bool,
    /// Nodes without ranks, which take those of nodes that are lost; of hosts, and of the nodes of
    /// another launcher (eyrie join), the last [default: 0]
    #[arg(long, value_name = "S")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
    pub spares: Option<u32>,
    /// The network between the nodes, as a file of eyrie topo describes it or Slurm's
    /// topology.conf: ranks of a node that is lost or leaves go to the spare that costs least over
    /// the rest of the run, by the messages that they have sent. Hosts have the names that the
    /// file gives nodes; with --nodes they are its nodes in order [default: the first free spare]
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// K ranks more, the last of MPI_COMM_WORLD, that take the place of lost ones: the program says
    /// how (--on-failure report). They are on the spare nodes (--spares), or on one more node if
    /// none are named; of hosts on the last. The program knows them by the process set mpi://spares
    /// and by the keys eyrie_spare and eyrie_spare_ranks of MPI_INFO_ENV
    #[arg(long, value_name = "K")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub spare_ranks: Option<u32>,
    /// Room for N ranks that the program starts itself (at a time; MPI_Comm_spawn,
    /// MPI_Comm_spawn_multiple), and for names of ports (0: for these alone) [default: the number
    /// of cores, from 16 to 64, if the program needs these functions, or is a script that has their
    /// names; else none, and MPI_Comm_spawn fails]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub spawn_room: Option<u32>,
}
