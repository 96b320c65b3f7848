//! Streams between nodes: messages of threads that are ranks' ends of their channels.

mod datagrams;
mod direct_connections;
mod gateway;
mod jobs;
mod piped;
mod placing;
mod routed;
mod strangers;
mod tls;
mod units;
mod unreached;
