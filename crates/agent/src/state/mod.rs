//! What a node keeps from one message to the next, a file a part. Nothing here knows `Agent`, which
//! has all of it; what is done with it is in the file of the part beside this folder.

pub(crate) mod binding;
pub(crate) mod capture;
pub(crate) mod cuts;
pub(crate) mod deposits;
pub(crate) mod ending;
pub(crate) mod failures;
pub(crate) mod image_copy;
pub(crate) mod inspection;
pub(crate) mod launch_error;
pub(crate) mod leaving;
pub(crate) mod logs;
pub(crate) mod network;
pub(crate) mod restart;
pub(crate) mod sockets;
pub(crate) mod standing;
pub(crate) mod streams;
pub(crate) mod together;
pub(crate) mod units;
pub(crate) mod verify;
