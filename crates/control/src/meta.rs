//! What a node writes into an image besides the process: where the rank stood in everything
//! outside its own memory.

use serde::{Deserialize, Serialize};

/// Version of `Meta`.
pub const META_FORMAT: u32 = 5;

/// The daemon's part of an image (postcard).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub format: u32,
    pub job: String,
    pub rank: u32,
    pub generation: u32,
    pub incarnation: u32,
    /// `RankCtl::state` and `RankCtl::lib` at the freeze.
    pub state: u32,
    pub lib: u32,
    /// Number of the process that called `MPI_Init`, if that is a child of the rank's first one.
    pub caller: Option<u32>,
    pub det_pos: u64,
    /// The word there, if it is a run of calls that was the last of what was recorded, and the rank
    /// was not repeating itself; else 0.
    pub run: u64,
    pub need: Vec<u64>,
    /// For each source: position up to which the rank had looked.
    pub front: Vec<u64>,
    /// Source and position of synchronous messages between those that it has acknowledged.
    pub acked: Vec<(u32, u64)>,
    /// Bytes written to standard output and standard error.
    pub output: [u64; 2],
    /// Bytes of standard input consumed (rank 0).
    pub input: u64,
    /// Number of the rank's program, and whether it was said that another one is none.
    pub world: u32,
    pub told_alone: u32,
    /// While no program is in MPI, where the next one goes on; else nothing. For each other rank:
    /// position and entries of the stream from it; position, entries, chain and messages of the
    /// stream to it.
    pub next: Vec<[u64; 6]>,
    /// Of each rank to which this one has sent anything: position of that stream, and messages.
    pub sent: Vec<(u32, [u64; 2])>,
}

/// Why an image's meta data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    #[error("its description does not decode: {0}")]
    Malformed(#[from] postcard::Error),
    #[error("its description has format {0}, this release knows {META_FORMAT}")]
    Format(u32),
    #[error("it is an image of {0}")]
    Foreign(String),
}

impl Meta {
    pub fn encode(&self) -> Result<Vec<u8>, MetaError> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// Reads the description of an image that ought to be of this rank.
    pub fn decode(
        bytes: &[u8],
        job: &str,
        rank: u32,
        generation: u32,
        ranks: u32,
    ) -> Result<Meta, MetaError> {
        let meta = Meta::read(bytes)?;
        let own = meta.job == job
            && meta.rank == rank
            && meta.generation == generation
            && meta.need.len() == ranks as usize
            && meta.front.len() == ranks as usize
            && [0, ranks as usize].contains(&meta.next.len());
        if !own {
            let Meta { job, rank, generation, .. } = meta;
            return Err(MetaError::Foreign(format!("job {job} rank {rank} gen {generation}")));
        }
        Ok(meta)
    }

    /// Reads the description of an image of whatever rank.
    pub fn read(bytes: &[u8]) -> Result<Meta, MetaError> {
        let meta: Meta = postcard::from_bytes(bytes)?;
        if meta.format == META_FORMAT { Ok(meta) } else { Err(MetaError::Format(meta.format)) }
    }

    /// The start of a program.
    pub fn start(job: &str, rank: u32, ranks: u32) -> Meta {
        Meta {
            format: META_FORMAT,
            job: job.to_string(),
            rank,
            generation: 0,
            incarnation: 0,
            state: 0,
            lib: 0,
            caller: None,
            det_pos: 0,
            run: 0,
            need: vec![0; ranks as usize],
            front: vec![0; ranks as usize],
            acked: Vec::new(),
            output: [0; 2],
            input: 0,
            world: 0,
            told_alone: 0,
            next: Vec::new(),
            sent: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_another_rank_is_refused() {
        let meta = Meta::start("abcd", 1, 3);
        let bytes = meta.encode().unwrap();
        assert_eq!(Meta::decode(&bytes, "abcd", 1, 0, 3).unwrap(), meta);
        assert!(matches!(Meta::decode(&bytes, "abcd", 2, 0, 3), Err(MetaError::Foreign(_))));
        assert!(matches!(Meta::decode(&bytes, "abcd", 1, 0, 4), Err(MetaError::Foreign(_))));
        assert!(Meta::decode(&bytes[..5], "abcd", 1, 0, 3).is_err());
    }
}
