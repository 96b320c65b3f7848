//! Streams between nodes: messages of threads that are ranks' ends of their channels.

mod jobs;
mod strangers;
