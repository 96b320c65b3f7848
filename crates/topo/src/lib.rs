//! Networks of nodes as links, and what becomes of a program's messages when a spare node takes the
//! place of a lost one: which links they share, how long they take, which spare costs least.
//!
//! Kept true: pure functions. No files, clocks, threads or randomness: files are handed in as text
//! (`reader`), pictures are handed out as text (`picture`), random patterns come from a seed.
//!
//! The question and the model in `model` are those of Yoshinaga et al., "Evaluation of
//! communication performance with spare nodes" (2014). `flow` answers what that model leaves open.
#![forbid(unsafe_code)]

pub mod choice;
pub mod control;
pub mod flow;
pub mod model;
pub mod network;
pub mod pattern;
pub mod picture;
pub mod probed;
pub mod reader;
pub mod shape;
pub mod sharing;
pub mod situation;
pub mod sliding;
pub mod spares;

pub use network::{Hardware, Lattice, Names, Network};
pub use pattern::{Message, Pattern};
pub use shape::{Link, Node, Shape};
pub use situation::Situation;
