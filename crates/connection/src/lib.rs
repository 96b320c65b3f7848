//! Connections between the processes of a job: the controller, its nodes, gateways and consoles.
//! Frames over TCP with heartbeats, the session that outlives a connection, what a process is told
//! on its standard input, and what the kernel tells of the other end.
//!
//! Kept true: what is sent arrives in order or not at all; a node that is cut off from its
//! controller knows it in time.

#![allow(unsafe_code)] // options of sockets that only libc has

pub mod controller_connection;
pub mod node_connection;
pub mod node_session;
pub mod send_queue;
pub mod source_address;
pub mod stdin_protocol;
pub mod tcp_info;
