//! What the restorer and the one who writes its plan agree on. No code of either is here.

#![allow(unsafe_code)] // no libc, raw system calls
#![no_std]

pub mod plan;
