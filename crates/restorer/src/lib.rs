//! What the restorer and the one who writes its plan agree on. No code of either is here.

#![no_std]

pub mod plan;
