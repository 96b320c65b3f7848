//! The control variables: one table, from which the reference page is made, too
//! (`scripts/reference`).
//!
//! A variable that is named like one of the environment is that one. What only tells a process of
//! its job where its segment lies (`EYRIE_SEGMENT_FD`, `EYRIE_NODE_PID`) is no setting, changes
//! with the node, and is not here.

use eyrie_channel::counters::Gauge;

use super::about::About;
use super::choices::{self, Choices};
use crate::repr::tools::{Scope, Verbosity};

/// Room for a text, terminator included.
pub const TEXT_BYTES: usize = 1024;

/// What a variable holds.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `MPI_CHAR`, `TEXT_BYTES` of them.
    Text,
    /// `MPI_INT`.
    Number,
    /// `MPI_UNSIGNED_LONG_LONG`.
    Bytes,
    /// `MPI_INT` with an enumeration.
    Choice(&'static Choices),
}

/// Where its value comes from.
#[derive(Clone, Copy)]
pub enum From {
    /// The variable of the environment that has its name; a number that is not there is -1.
    Environment,
    /// The job's segment; before MPI_Init 0.
    Job(Gauge),
    /// Its `--ft`.
    Protection,
    /// How calls are checked, or will be.
    Check,
}

/// A control variable.
pub struct Cvar {
    pub name: &'static str,
    pub description: &'static str,
    pub kind: Kind,
    pub from: From,
    pub scope: Scope,
    pub verbosity: Verbosity,
    pub category: About,
}

impl Cvar {
    const fn environment(name: &'static str, description: &'static str, category: About) -> Cvar {
        let (kind, from, scope) = (Kind::Text, From::Environment, Scope::Local);
        let verbosity = Verbosity::UserBasic;
        Cvar { name, description, kind, from, scope, verbosity, category }
    }

    const fn job(name: &'static str, description: &'static str, kind: Kind, gauge: Gauge) -> Cvar {
        let (from, scope, category) = (From::Job(gauge), Scope::ReadOnly, About::Job);
        Cvar { name, description, kind, from, scope, verbosity: Verbosity::TunerBasic, category }
    }

    const fn constant(self, kind: Kind) -> Cvar {
        Cvar { kind, scope: Scope::Constant, ..self }
    }

    const fn of(self, category: About) -> Cvar {
        Cvar { category, ..self }
    }
}

const fn regions(name: &'static str, description: &'static str) -> Cvar {
    Cvar::environment(name, description, About::Regions)
}

/// All control variables, by index.
pub static CVARS: [Cvar; 21] = [
    Cvar::environment("EYRIE_RANK", "Number of this rank; -1 outside of jobs", About::Job)
        .constant(Kind::Number),
    Cvar::environment("EYRIE_SIZE", "Number of ranks; -1 outside of jobs", About::Job)
        .constant(Kind::Number),
    Cvar::environment("EYRIE_JOB", "Id of the job", About::Job).constant(Kind::Text),
    Cvar::environment(
        "EYRIE_ALONE",
        "1: each process of another launcher is a job of one rank; read by MPI_Init",
        About::Job,
    ),
    Cvar {
        kind: Kind::Choice(&choices::CHECK),
        from: From::Check,
        ..Cvar::environment(
            "EYRIE_CHECK",
            "How calls are checked (--check); read by MPI_Init, the same on all ranks",
            About::Job,
        )
    },
    Cvar {
        from: From::Protection,
        ..Cvar::job(
            "EYRIE_FT",
            "How the job is protected (--ft): logged stands for all modes that record",
            Kind::Choice(&choices::PROTECTION),
            Gauge::Rank,
        )
    },
    Cvar::job(
        "EYRIE_CORES",
        "Cores that the ranks of this node share; with fewer than ranks they spin less",
        Kind::Number,
        Gauge::Cores,
    ),
    Cvar::job(
        "EYRIE_EARLY",
        "What ranks send to other nodes ahead of the links, as eyrie run was told",
        Kind::Choice(&choices::EARLY),
        Gauge::EarlyWish,
    )
    .of(About::Messages),
    Cvar::job(
        "EYRIE_LOG_SIZE",
        "Bytes that the message log of a rank may take on a node (--log-limit)",
        Kind::Bytes,
        Gauge::LogSizeBytes,
    )
    .of(About::Log),
    Cvar::job(
        "EYRIE_LOG_CHUNK",
        "Bytes of a chunk, by which logs are filled and released",
        Kind::Bytes,
        Gauge::ChunkBytes,
    )
    .of(About::Log),
    regions("EYRIE_VAULT_FOLDERS", "Folders of the vault that regions are saved to"),
    regions("EYRIE_VAULT", "How the vault survives the loss of folders, as in rs:4+2"),
    regions("EYRIE_REGIONS_KEEP", "How many checkpoints of regions are kept"),
    regions("EYRIE_REGIONS_PERSISTENT", "Second level of checkpoints of regions: an address"),
    regions("EYRIE_REGIONS_EVERY", "Each so many checkpoints of regions go to the second level"),
    regions("EYRIE_REGIONS_MODE", "Whether checkpoints of regions are waited for"),
    regions("EYRIE_REGIONS_NODE", "What stands for the node of this process"),
    regions("EYRIE_REGIONS_PARITY", "Who makes parity of regions"),
    regions("EYRIE_REGIONS_DOMAIN", "What fails together with this node"),
    regions("EYRIE_REGIONS_KEY", "File with the key that parts of regions are encrypted with"),
    Cvar::environment(
        "EYRIE_REPEATS",
        "1 where ranks may be restored by themselves",
        About::Recovery,
    )
    .constant(Kind::Number),
];
