//! How calls of MPI are checked.

use clap::{Args, ValueEnum};

/// The variable by which ranks are told.
const VARIABLE: &str = "EYRIE_CHECK";

/// How calls of MPI are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Checking {
    /// Only what the library needs itself
    Off,
    /// Arguments; a message names function, argument and value
    On,
    /// Also whether all ranks call the same collectives, and what is never freed; with file and
    /// line where the program was compiled with -g. Collectives wait for each other then
    Full,
}

#[derive(Debug, Args)]
pub struct CheckingOptions {
    /// How calls of MPI are checked [default: on]
    #[arg(long, value_enum, value_name = "HOW", env = "EYRIE_CHECK")]
    pub check: Option<Checking>,
}

impl CheckingOptions {
    /// Has ranks told, which are started with our environment.
    pub fn choose(&self) {
        let Some(check) = self.check else { return };
        let how = match check {
            Checking::Off => "off",
            Checking::On => "on",
            Checking::Full => "full",
        };
        // SAFETY: no other thread is there yet.
        unsafe { std::env::set_var(VARIABLE, how) };
    }
}
