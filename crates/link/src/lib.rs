//! Links: the streams between ranks of different nodes, over authenticated TCP.
//!
//! The rules are pure (`eyrie_protocol::link`, `gate`, `replicas`); this carries them out between
//! the node's segment and sockets, in threads of its own. The library in a rank knows nothing of it:
//! it marks a stream and rings a bell.
