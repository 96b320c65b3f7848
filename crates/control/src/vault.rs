//! What the controller of a job and its nodes say to each other of the vault.
//!
//! Kept true: what concerns a generation bears its number, so that what is late is known as such.

use crate::node::Fetch;
use eyrie_vault::layout::Place;
use eyrie_vault::record::{Commit, Summary};
use eyrie_vault::vault::Mended;
use eyrie_vault::{Encoder, Scheme};
use serde::{Deserialize, Serialize};

/// How a job's vault is to work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// None: what the model says.
    pub encoder: Option<Encoder>,
    /// Most bytes a second that a node sends for it; 0: no limit.
    pub rate: u64,
    /// The same for rounds that bring back what lost nodes guarded; None: half of what the slowest
    /// link was measured to carry.
    pub rebuild: Option<u64>,
    /// What each node fails together with, such as a switch; empty: that was not said.
    pub domains: Vec<String>,
    /// From one pass over all that nodes have of it to the next; 0: there are none unasked.
    pub scrub_every_ms: u64,
}

impl Manner {
    /// The domain of a node; those of which nothing was said are one.
    pub fn domain(&self, node: u32) -> &str {
        self.domains.get(node as usize).map_or("", String::as_str)
    }
}

/// From the controller to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VaultOrder {
    /// Begin a generation with these files of images (rank and generation), which `images` consist
    /// of. The vault is that of these nodes, each of which sends at most so many bytes a second
    /// (0: any). Answered by `Offered`; if `measure`, also by how fast it reaches the next one of
    /// these, which the round does not wait for.
    Begin {
        vault: [u8; 16],
        scheme: Scheme,
        places: Vec<Place>,
        generation: u64,
        term: u64,
        rate: u64,
        measure: bool,
        images: Vec<(u32, u32)>,
        files: Vec<(u32, u32)>,
    },
    /// Make the parity, with the other nodes of the group. Answered by `Prepared`.
    Encode { generation: u64, group: Vec<u32>, payloads: Vec<u64>, encoder: Encoder },
    /// The generation exists. Answered by `Committed`.
    Commit(Box<Commit>),
    /// It does not.
    Abort { generation: u64 },
    /// These are needed no more; controllers of earlier terms are not obeyed any more.
    Drop { generations: Vec<u64>, term: u64 },
    /// Read all that is here of a generation, at most so many bytes a second (0: any), and make
    /// anew what is damaged if `write`. Answered by `Scrubbed`, unless a later pass is ordered.
    Scrub { pass: u64, commit: Box<Commit>, write: bool, rate: u64 },
}

/// From a node to the controller: how it stands with a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VaultStep {
    /// In microseconds: how long it took to write the payload.
    Offered {
        summary: Summary,
        us: u64,
    },
    Prepared {
        summary: Summary,
        spent: Spent,
    },
    Committed,
    Failed(String),

    /// This image cannot be used, and was removed.
    Damaged {
        rank: u32,
        generation: u32,
        why: String,
    },
    /// It has sent so many bytes of its parts of sums, so far.
    Underway {
        sent: u64,
    },
    /// What a pass found here, and did; or why it could not.
    Scrubbed {
        pass: u64,
        result: Result<Mended, String>,
    },
    /// What was to be measured. It may come when the round is over.
    Measured(Link),
}

/// What a node measured of its way to another one, and of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Bytes a second.
    pub rate: u64,
    /// One way, in nanoseconds.
    pub latency_ns: u64,
    /// Bytes a second that it checks, multiplies and adds.
    pub coding: u64,
}

/// What a node's part of the parity took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// From the order to the last sum, and until all was durable; in microseconds.
    pub encode_us: u64,
    pub durable_us: u64,
    /// That it sent.
    pub bytes: u64,
}

/// Where the vault has a file of an image: the file's generation, the node whose object it is, and
/// the vault's generation, of whose groups only that node's is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vaulted {
    pub file: u32,
    pub node: u32,
    pub commit: Box<Commit>,
}

/// A generation of a running job's vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub commit: Box<Commit>,
    /// Of its nodes those that are lost, or were and came back without it.
    pub lost: Vec<u32>,
    /// The files of images that are needed of it: rank, generation, and the node that stored it.
    pub files: Vec<(u32, u32, u32)>,
}

/// An image that a node is to look into, and where another copy is. Where the vault has it stands
/// in `vaulted`: the files, the nodes whose objects they are, and which of `Inspection::commits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspect {
    pub rank: u32,
    pub generation: u32,
    pub fetch: Fetch,
    pub vaulted: Vec<(u32, u32, u32)>,
}

/// Read the files of these images, at most so many bytes a second (0: any), and fetch anew what is
/// damaged if `write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    pub pass: u64,
    pub images: Vec<Inspect>,
    /// Each once, however many images are in it: they are long.
    pub commits: Vec<Commit>,
    pub write: bool,
    pub rate: u64,
}

impl Inspection {
    /// An order without images yet.
    pub fn new(pass: u64, write: bool, rate: u64) -> Inspection {
        Inspection { pass, images: Vec::new(), commits: Vec::new(), write, rate }
    }

    /// Adds an image.
    pub fn add(&mut self, rank: u32, generation: u32, mut fetch: Fetch) {
        let mut vaulted = Vec::new();
        for of in std::mem::take(&mut fetch.vault) {
            let known = self.commits.iter().position(|commit| *commit == *of.commit);
            let number = known.unwrap_or_else(|| {
                self.commits.push(*of.commit);
                self.commits.len() - 1
            });
            vaulted.push((of.file, of.node, number as u32));
        }
        self.images.push(Inspect { rank, generation, fetch, vaulted });
    }
}

impl Inspect {
    /// What is needed to fetch it.
    pub fn fetch(&self, commits: &[Commit]) -> Fetch {
        let of = |(file, node, number): &(u32, u32, u32)| {
            let commit = Box::new(commits.get(*number as usize)?.clone());
            Some(Vaulted { file: *file, node: *node, commit })
        };
        Fetch { vault: self.vaulted.iter().filter_map(of).collect(), ..self.fetch.clone() }
    }
}

/// How a pass found the files of an image, or left them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    Sound,
    /// It was damaged, as this says, and was fetched anew.
    Repaired(String),
    /// It is damaged, as this says; if that was to be repaired, no other copy was of help.
    Damaged(String),
    /// It could not be read now.
    Unread(String),
}

/// The same as a node tells it of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub pass: u64,
    pub rank: u32,
    pub generation: u32,
    /// It was to be repaired.
    pub write: bool,
    /// The generations whose files it needs, as the order said.
    pub needs: Vec<u32>,
    /// Of what could not be repaired: the generations whose files are damaged, ...
    pub files: Vec<u32>,
    /// ... and images that need one of these and were found sound all the same, which stays for
    /// them; the others are not here any more.
    pub sound: Vec<u32>,
    pub condition: Condition,
}

/// What a pass found of one image on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspected {
    pub node: u32,
    pub rank: u32,
    pub generation: u32,
    pub condition: Condition,
}

/// What a pass found of one generation on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    pub generation: u64,
    pub node: u32,
    /// Or why it was not checked.
    pub result: Result<Mended, String>,
}
