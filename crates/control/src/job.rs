//! What to run, where, and how it is protected: a job as its controller and its nodes are told.
//!
//! Kept true: saved jobs and journals hold it, so the order in which its fields are encoded
//! (`encoded`, at the end) stays; a new field goes to the end of that list, whichever part it is
//! in, and the versions of who holds it count on (`state::saved_job`, the journal, `PROTOCOL`).
//! `Older` reads what was saved without the fields that came later, which are the defaults then.

use crate::bind::{Bind, Slot};
use crate::gateway::Clusters;
use crate::ha::Ha;
use crate::message::{
    Appended, AtRest, CheckpointPolicy, Dedup, Fallback, Files, Freeze, Hosts, Orphans, Wtime,
};
use crate::protection::Ft;
use crate::transport::Transport;
use crate::vault::Manner;
use eyrie_protocol::timing::Intervals;
use eyrie_protocol::units::{Extent, LogAt, Units};
use eyrie_vault::Scheme;
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// A job. Working folder and environment are those its daemon was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    pub program: Program,
    pub placement: Placement,
    pub protection: Protection,
    pub storage: Storage,
    pub security: Security,
    pub timing: Timing,
}

/// What runs, and what its user sees of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Resolved path of the program.
    pub path: Vec<u8>,
    /// The name the program is called by, and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Number of ranks.
    pub size: u32,
    /// The job's name, if it has one besides its id.
    pub name: Option<String>,
    /// The console's standard input is a file: it has an end, and is read to it when the job is
    /// saved.
    pub input_is_file: bool,
    /// Tell the console about every event.
    pub verbose: bool,
}

/// Where ranks run, and how nodes reach each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Nodes, each with its own daemon; 0: the controller is the only one.
    pub nodes: u32,
    /// Nodes without ranks: for when one is lost, and routers.
    pub spares: u32,
    /// So many of these, the last ones, are routers: messages between nodes go by them, and they
    /// log them.
    pub routers: u32,
    /// Ranks of each router.
    pub router_share: u32,
    /// Each node in a network namespace of its own.
    pub netns: bool,
    /// Where nodes are; none: here.
    pub hosts: Option<Box<Hosts>>,
    /// Lay ranks out one on each node in turn.
    pub cyclic: bool,
    /// The node of each rank at the start; empty: as many on each.
    pub homes: Vec<u32>,
    pub bind: Bind,
    /// The processors of each rank, instead of that; empty: none are named.
    pub slots: Vec<Vec<Slot>>,
    /// Which nodes form a cluster, and how clusters reach each other.
    pub clusters: Clusters,
    /// What connections between nodes go over.
    pub transport: Transport,
    /// Features of the processor that a node may lack, although a rank that comes to it seems to
    /// use them.
    pub ignore_features: Vec<String>,
    /// The text that describes the network between the nodes (`--topology`); empty: none does.
    pub topology: String,
}

/// How ranks are checkpointed and logged, and what coming back from that does to the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    pub ft: Ft,
    pub checkpoint_policy: CheckpointPolicy,
    /// Store in a checkpoint only what has changed since the one before.
    pub incremental: bool,
    pub freeze: Freeze,
    /// Store once what several ranks have in common.
    pub dedup: Dedup,
    /// Send log of each rank, in bytes.
    pub log_limit_bytes: u64,
    /// Other nodes that hold each determinant.
    pub log_replicas: u32,
    /// Whether what clocks and the C library give is recorded.
    pub clocks: Wtime,
    /// A replay that writes something else has diverged.
    pub strict_output: bool,
    /// What becomes of what a rank appended to files after the checkpoint that it comes back from.
    pub appended: Appended,
    /// What becomes of a checkpoint of a rank that has left processes behind.
    pub orphans: Orphans,
    /// What becomes of files that are not as they were at the checkpoint that a rank comes back
    /// from.
    pub files: Files,
    /// Most bytes stored of a file that a rank writes to; 0: none is noted.
    pub files_limit_bytes: u64,
    /// How often all ranks that are checkpointed alone are checkpointed together.
    pub fallback: Fallback,
}

/// Where images and states of the job are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// How images are protected against the loss of nodes.
    pub vault: Scheme,
    /// How that vault works.
    pub manner: Manner,
    /// Keep the job's folder when it is over.
    pub keep: bool,
    /// Where states of the job are brought besides its folder: `s3://BUCKET/PREFIX` or the like.
    pub save_to: Option<String>,
    /// With so many bytes a second at most; 0: as fast as can be.
    pub save_rate_bytes: u64,
    /// The controller's state is kept there, too, so that one on another machine can go on.
    pub ha: Option<Box<Ha>>,
}

/// What others can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// Connections between nodes, and to the controller, are encrypted.
    pub tls: bool,
    /// Who can read what nodes store.
    pub at_rest: AtRest,
    /// What is brought to `Storage::save_to` is encrypted with the key in this file.
    pub save_key: Option<String>,
}

/// When checkpoints are taken and states saved, by default never; and how long all parts of the job
/// wait for each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timing {
    /// Time between two checkpoints of a rank; 0: only on request.
    pub checkpoint_every_ms: u64,
    /// When all ranks have been checkpointed once, if that is sooner.
    pub checkpoint_first_ms: u64,
    /// How often, at most, the newest set of a job over nodes is brought to the job's folder while
    /// it runs; 0: never.
    pub save_every_ms: u64,
    /// The same whenever all ranks have so many newer checkpoints; 0: never.
    pub save_every_generations: u32,
    /// How long nodes go on without a controller; 0: not at all.
    pub controller_limit_ms: u64,
    /// How long a node has that is told to end; 0: none, it goes at once.
    pub grace_ms: u64,
    /// Heartbeats, leases, graces, retries and limits.
    pub intervals: Intervals,
}

impl Default for Placement {
    /// This machine alone.
    fn default() -> Placement {
        Placement {
            nodes: 0,
            spares: 0,
            routers: 0,
            router_share: 1,
            netns: false,
            hosts: None,
            cyclic: false,
            homes: Vec::new(),
            bind: Bind::Auto,
            slots: Vec::new(),
            clusters: Clusters::default(),
            transport: Transport::Tcp,
            ignore_features: Vec::new(),
            topology: String::new(),
        }
    }
}

impl Default for Storage {
    /// Copies on other nodes, as long as the job runs.
    fn default() -> Storage {
        Storage {
            vault: Scheme::Partner,
            manner: Manner::default(),
            keep: false,
            save_to: None,
            save_rate_bytes: 0,
            ha: None,
        }
    }
}

impl Default for Security {
    /// Nothing is encrypted.
    fn default() -> Security {
        Security { tls: false, at_rest: AtRest::Plain, save_key: None }
    }
}

/// What nodes are told as a signal when ranks of a job with room have ended: a set of `GONE_*` of
/// its segments. No process gets it.
pub fn gone_signal(gone: u32) -> i32 {
    -(gone as i32)
}

/// The set that `gone_signal` was given; nothing for what is a signal.
pub fn gone_of(signal: i32) -> Option<u32> {
    (signal < 0).then_some(signal.unsigned_abs())
}

impl Program {
    /// How many of the ranks, the last ones, are there for programs that others start
    /// (`--spawn-room`): the command ends with what these run.
    pub fn room(&self) -> u32 {
        let [.., name, count, _, _, what] = &self.argv[..] else { return 0 };
        let found = (name == b"EYRIE_ROOM" && what == b"__room").then_some(count);
        let count = found.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
        count.filter(|count| *count < self.size).unwrap_or(0)
    }
}

impl JobSpec {
    /// Whether images are kept in a vault, with parity on other nodes.
    pub fn is_vaulted(&self) -> bool {
        let parity = matches!(self.storage.vault, Scheme::Rs { .. } | Scheme::Xor { .. });
        self.placement.nodes > 0 && parity
    }

    /// The recovery units of ranks that begin on these nodes. Of ranks that are not protected each
    /// is its own, and nobody comes back.
    pub fn units(&self, homes: &[u32]) -> Units {
        let extent = self.protection.ft.extent().unwrap_or(Extent::Rank);
        let units = Units::new(extent, homes, |node| self.placement.clusters.of(node));
        units.logged_at(LogAt::routers(self.router_nodes()))
    }

    /// The mode as the user knows it.
    pub fn mode(&self) -> &'static str {
        if self.placement.routers > 0 { "routed" } else { self.protection.ft.name() }
    }

    /// Whether states of it are saved while it runs.
    pub fn saves(&self) -> bool {
        self.timing.save_every_ms > 0 || self.timing.save_every_generations > 0
    }

    /// Numbers of the nodes that are routers.
    pub fn router_nodes(&self) -> std::ops::Range<u32> {
        let all = self.placement.nodes + self.placement.spares;
        all.saturating_sub(self.placement.routers)..all
    }

    /// Whether the controller keeps a journal, so that its death does not end the job.
    pub fn is_journaled(&self) -> bool {
        let outlive = self.placement.hosts.as_ref().is_none_or(|h| h.outlive);
        let goes_on = self.placement.nodes > 0 && !self.protection.ft.verifies();
        goes_on && outlive && self.timing.controller_limit_ms > 0
    }

    /// How long nodes go on without a controller.
    pub fn controller_limit(&self) -> Duration {
        let limit_ms = if self.is_journaled() { self.timing.controller_limit_ms } else { 0 };
        Duration::from_millis(limit_ms)
    }
}

/// Encodes a struct of structs as one struct of all their fields, in an order of its own: the
/// parts can be cut anew, and the bytes stay. A field that is missing in the order, or in a part,
/// does not compile. Behind `later` are those that what was encoded before may lack.
macro_rules! encoded {
    ($whole:ident $parts:tt; $($field:ident),+; later $($late:ident),+ $(,)?) => {
        impl $whole {
            const FIELDS: &'static [&'static str] =
                &[$(stringify!($field),)+ $(stringify!($late)),+];
            const FIRST: &'static [&'static str] = &[$(stringify!($field)),+];
        }

        impl Serialize for $whole {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $whole $parts = self;
                let count = $whole::FIELDS.len();
                let mut fields = serializer.serialize_struct(stringify!($whole), count)?;
                $(fields.serialize_field(stringify!($field), $field)?;)+
                $(fields.serialize_field(stringify!($late), $late)?;)+
                fields.end()
            }
        }

        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = $whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!("the fields of a ", stringify!($whole)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<$whole, A::Error> {
                $(
                    let next = all.next_element()?;
                    let $field = next.ok_or_else(|| A::Error::missing_field(stringify!($field)))?;
                )+
                $(let $late = all.next_element()?.unwrap_or_default();)+
                Ok($whole $parts)
            }
        }

        impl<'de> Deserialize<'de> for $whole {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_struct(stringify!($whole), $whole::FIELDS, InOrder)
            }
        }

        /// One that was encoded before there were the later fields.
        pub struct Older(pub $whole);

        impl<'de> Deserialize<'de> for Older {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = stringify!($whole);
                deserializer.deserialize_struct(name, $whole::FIRST, InOrder).map(Older)
            }
        }
    };
}

encoded! {
    JobSpec {
        program: Program { path, argv, size, name, input_is_file, verbose },
        placement: Placement {
            nodes,
            spares,
            routers,
            router_share,
            netns,
            hosts,
            cyclic,
            homes,
            bind,
            slots,
            clusters,
            transport,
            ignore_features,
            topology,
        },
        protection: Protection {
            ft,
            checkpoint_policy,
            incremental,
            freeze,
            dedup,
            log_limit_bytes,
            log_replicas,
            clocks,
            strict_output,
            appended,
            orphans,
            files,
            files_limit_bytes,
            fallback,
        },
        storage: Storage { vault, manner, keep, save_to, save_rate_bytes, ha },
        security: Security { tls, at_rest, save_key },
        timing: Timing {
            checkpoint_every_ms,
            checkpoint_first_ms,
            save_every_ms,
            save_every_generations,
            controller_limit_ms,
            grace_ms,
            intervals,
        },
    };
    size,
    ft,
    checkpoint_every_ms,
    checkpoint_first_ms,
    checkpoint_policy,
    incremental,
    freeze,
    dedup,
    log_limit_bytes,
    name,
    keep,
    verbose,
    nodes,
    spares,
    routers,
    router_share,
    netns,
    hosts,
    cyclic,
    homes,
    bind,
    slots,
    log_replicas,
    clocks,
    strict_output,
    vault,
    manner,
    path,
    argv,
    input_is_file,
    controller_limit_ms,
    tls,
    transport,
    save_every_ms,
    save_every_generations,
    clusters,
    grace_ms,
    save_to,
    save_rate_bytes,
    save_key,
    at_rest,
    ignore_features,
    ha,
    appended,
    orphans,
    files,
    files_limit_bytes,
    fallback,
    intervals;
    later topology,
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
