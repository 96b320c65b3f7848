//! The sockets of ranks that go back together, on one node (`--ft coordinated`).
//!
//! Kept true: all sockets of all ranks of a set are there before the first rank runs, connected
//! to each other as they were; none of them is held here once its rank has it, or when the ranks
//! go back once more.

use super::Agent;
use eyrie_control::Ft;
use eyrie_image::MadeSockets;
use std::path::{Path, PathBuf};

/// The set whose sockets were made, or why they could not be.
pub(super) type Wired = Option<(u32, Result<(), String>)>;

impl Agent {
    /// The sockets of a rank that goes back to `generation` with all others.
    pub(super) fn sockets_of(&mut self, rank: u32, generation: u32) -> Result<MadeSockets, String> {
        if self.spec.ft != Ft::Coordinated || self.network.is_some() {
            return Ok(MadeSockets::default());
        }
        let wired = self.wired.take().filter(|(of, _)| *of == generation);
        let (_, result) = wired.unwrap_or_else(|| (generation, self.make_sockets(generation)));
        self.wired = Some((generation, result.clone()));
        result.map(|()| std::mem::take(&mut self.rank(rank).sockets))
    }

    fn make_sockets(&mut self, generation: u32) -> Result<(), String> {
        let image = |rank: u32| (rank, self.image_file(rank, generation));
        // One that had ended has none.
        let images: Vec<(u32, PathBuf)> =
            (0..self.size()).map(image).filter(|(_, path)| path.exists()).collect();
        let paths: Vec<&Path> = images.iter().map(|(_, path)| path.as_path()).collect();
        let made = eyrie_image::make_sockets(&paths, &[]).map_err(|e| e.to_string())?;
        for ((rank, _), sockets) in images.into_iter().zip(made) {
            self.rank(rank).sockets = sockets;
        }
        Ok(())
    }
}
