//! The machine that the controller is on, and what drives it.

use std::ffi::OsString;
use std::io;

/// What a controller asks of its surroundings.
pub trait Machine {
    /// A key that nobody else knows.
    fn key(&self) -> io::Result<[u8; 32]>;
    /// A fault point is passed.
    fn reach(&self, point: &'static str);
    /// The job is over, or another controller has it.
    fn over(&self);
    /// Has it told when the console takes output again (`Msg::Room`).
    fn await_room(&self);
    /// Variables that the job was started with.
    fn environment(&self) -> Vec<(OsString, OsString)>;
    /// The folder that it was started in.
    fn working_folder(&self) -> io::Result<OsString>;
    /// Number of the controller's process.
    fn pid(&self) -> u32;
    /// Whether it is in a job of a batch system. `hosts`: its own job is over hosts.
    fn in_batch(&self, hosts: bool) -> bool;
}
