//! Machines: how they are written, and at which addresses they and this one are reached.

pub mod address;
pub mod entry;
