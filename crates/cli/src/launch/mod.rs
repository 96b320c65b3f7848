//! From options to a running job: its specification, its controller's process, and the console on
//! it.

pub mod asked;
mod background;
pub mod checks;
pub mod console;
pub mod controller;
pub mod grid;
pub mod groups;
pub mod ha;
pub mod hosts;
pub mod lines;
pub mod network;
pub mod program;
pub mod rankfile;
pub mod risks;
pub mod room;
pub mod sender;
pub mod spare_ranks;
pub mod spawn;
pub mod spec;
