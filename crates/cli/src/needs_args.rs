//! The command line of what ranks need of the machines that they come to.

use clap::Args;

#[derive(Debug, Args)]
pub struct Ignored {
    /// A feature of the processor (as /proc/cpuinfo names it) that a machine to which ranks come
    /// may lack, although they seem to use it (as often as needed)
    #[arg(long, value_name = "NAME")]
    pub ignore_feature: Vec<String>,
}
