//! Links: the streams between ranks of different nodes, over authenticated TCP.

pub mod membership;
