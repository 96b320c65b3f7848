//! The controller that daemons run (`eyrie-controller`'s `Job`) over simulated nodes.
//!
//! Real: the controller with its journal, all of `eyrie-protocol`. Modelled: the nodes' agents
//! (`agent`), programs, segments, disks, links, network, clock and console; a unit of the
//! simulation's time is a millisecond of the controller's. One seed is one run. A run is right if
//! the job ends, each rank's result and what it has printed is that of an undisturbed run, nothing
//! is left behind, and no check in `checks` fails.

pub mod agent;
mod fallback;
mod fate;
mod faults;
mod held;
mod host;
mod images;
mod mutations;
mod sets;
mod sharing;
mod spec;
pub mod steps;
mod turn;
pub mod vault;

use crate::types::{Depends, Mutation};
pub use crate::world::Report;
use crate::world::{Config, World};
use eyrie_protocol::membership::Member;
pub use host::Simulation;
pub use mutations::MUTATIONS;

/// The job's name.
pub const JOB: &str = "sim";
/// Every line of a rank is so long.
pub const LINE_BYTES: u64 = 17;

/// What may break in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Faults {
    None,
    /// Ranks die.
    Ranks,
    /// Nodes die, too.
    Nodes,
    /// Also links, images, connections and the controller.
    All,
}

/// How ranks come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Each alone.
    Logged,
    /// All together.
    Coordinated,
    /// Those that begin on one node together.
    Nodes,
    /// Those that begin in one of two clusters.
    Clusters,
    /// Each alone, with the log at routers.
    Routed,
}

impl Mode {
    /// The mode that a word of the command line says; none: `Logged`.
    pub const WORDS: [(&'static str, Mode); 4] = [
        ("coordinated", Mode::Coordinated),
        ("--units", Mode::Nodes),
        ("--cluster-units", Mode::Clusters),
        ("--routed", Mode::Routed),
    ];

    /// That of these words.
    pub fn of(is: impl Fn(&str) -> bool) -> Mode {
        Mode::WORDS.into_iter().find(|(word, _)| is(word)).map_or(Mode::Logged, |found| found.1)
    }
}

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub seed: u64,
    pub mode: Mode,
    /// Images go to a vault that bears two losses.
    pub vault: bool,
    /// Ranks come back alone; copies are in the other of two clusters, which may be lost whole.
    pub outside: bool,
    pub faults: Faults,
    /// Nodes are asked to leave, or to give their ranks away.
    pub drains: bool,
    /// The job is told to stand still now and then.
    pub suspends: bool,
    /// Nodes cannot have ranks for a while.
    pub unfit: bool,
    /// The network between the nodes is known.
    pub topology: bool,
    /// All ranks, which come back alone, have checkpoints together now and then.
    pub fallback: bool,
    /// Ranks that come back alone become larger units while the job runs.
    pub shares: bool,
    /// Few ranks that do little, which nothing disturbs, as a fault is tried at every step.
    pub small: bool,
    /// What is done wrong on purpose.
    pub mutation: Option<Mutation>,
    pub trace: bool,
}

impl Setup {
    /// With all faults, as these words of the command line say.
    pub fn of(seed: u64, is: impl Fn(&str) -> bool) -> Setup {
        Setup {
            seed,
            mode: Mode::of(&is),
            vault: is("--vault"),
            outside: is("--outside"),
            faults: Faults::All,
            drains: is("--drain"),
            suspends: is("--halts"),
            unfit: is("--unfit"),
            topology: is("--topology"),
            fallback: is("--fallback"),
            shares: is("--shares"),
            small: is("--small"),
            mutation: None,
            trace: false,
        }
    }
}

/// What a node says to the controller, and what nobody in the job knows of it.
#[derive(Debug, Clone)]
pub struct Told {
    pub said: eyrie_control::FromNode,
    pub note: Note,
}

/// What the checks are to know of a message when the controller has taken it for good.
#[derive(Debug, Clone)]
pub enum Note {
    None,
    /// What is printed depends on this.
    Prints(Depends),
    /// So does an image.
    Stored(Depends),
    /// A rank has ended with this result.
    Done(u64, Depends),
}

/// What happens here only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happens {
    /// The controller looks at what is due.
    Look,
    /// It is told, if it is still this one, that nothing of a node is left.
    Cleared {
        node: u32,
        deaths: u64,
    },
    /// The same of its daemon's end.
    Gone {
        node: u32,
        deaths: u64,
    },
    /// A node that was believed to be gone is.
    Perish {
        member: Member,
    },
    Fault,
    /// A node dies.
    Loss,
    /// A new controller goes on.
    Term,
    /// This one does.
    LoseThis {
        member: Member,
    },
    /// A node gives up its part of a checkpoint of all ranks.
    Leave {
        member: Member,
    },
    /// A cluster does, as soon as all is whole, or after so many looks.
    LoseCluster {
        looks: u32,
    },
    /// A rank dies, as a part of a fault: this one, if it is known.
    LoseRank {
        rank: Option<u32>,
    },
    /// A rank is to have memory in common with another one.
    Share,
    /// The controller dies in what it does next.
    LoseController,
    /// A node joins.
    Grow,
    /// A client has the job stand still.
    Hold,
    /// Its connection is over.
    Vanish {
        client: u64,
    },
    /// Nodes and controller tell each other that they are there.
    Beat,
    /// Somebody wants nodes to leave.
    Drain,
    /// Somebody wants this one not to leave after all.
    CallOff {
        node: u32,
    },
    /// The user wants the job to stand still, or to go on.
    Suspend {
        stands: bool,
    },
}

/// A line of output.
pub fn line(of: u64) -> Vec<u8> {
    format!("{of:016x}\n").into_bytes()
}

/// Simulates a seed.
pub fn run(setup: Setup) -> Result<Report, String> {
    Simulation::begin(setup)?.run()
}

impl World {
    /// A job that has not begun, of which the real controller is to be told.
    fn really(setup: Setup) -> (World, Vec<u32>, u32) {
        let words = [("--units", Mode::Nodes), ("--cluster-units", Mode::Clusters)];
        let is = |word: &str| match word {
            "--vault" => setup.vault,
            "--outside" => setup.outside,
            word => words.iter().any(|(w, mode)| *w == word && *mode == setup.mode),
        };
        let config = Config::of(setup.seed, is, setup.mutation);
        let united = !matches!(setup.mode, Mode::Logged | Mode::Routed);
        let long = (united && (setup.drains || setup.vault)) || setup.shares;
        let (trace, small) = (setup.trace, setup.small);
        let config = Config { trace, small, long, ..config };
        let (mut world, map, nodes) = World::blank(config);
        world.fallback = setup.fallback || setup.shares;
        world.shares = setup.shares;
        (world, map, nodes)
    }
}
