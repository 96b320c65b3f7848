//! What commands show of jobs.

pub mod recoveries;
pub mod screen;
pub mod tables;
pub mod text;
