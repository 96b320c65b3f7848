//! Groups of options that commands share, with how they are read. They know no command.

pub mod checking;
pub mod checkpoints;
pub mod clusters;
pub mod failures;
pub mod ha;
pub mod hosts;
pub mod key_file;
pub mod limits;
pub mod local;
pub mod metrics;
pub mod name;
pub mod network;
pub mod nodes;
pub mod output;
pub mod placement;
pub mod processor;
pub mod ranks;
pub mod repeat;
pub mod run;
pub mod saving;
pub mod storage;
pub mod vault;
