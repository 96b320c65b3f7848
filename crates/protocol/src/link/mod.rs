//! Links: streams between ranks of different nodes. What is said on a connection (`wire`), and the
//! rules of its two ends (`sender`, `receiver`); `eyrie-link` carries them out.

pub mod receiver;
pub mod sender;
pub mod wire;
