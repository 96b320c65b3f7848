//! Streams between nodes: messages of threads that are ranks' ends of their channels.

mod early;
mod jobs;
mod strangers;
mod tls;
