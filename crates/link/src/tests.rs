//! Streams between nodes: messages of threads that are ranks' ends of their channels.

mod early;
mod gateway;
mod jobs;
mod piped;
mod placing;
mod routed;
mod strangers;
mod tls;
mod units;
mod unreached;
mod wires;
