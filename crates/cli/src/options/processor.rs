//! What ranks need of the processors that they come to.

use clap::Args;

#[derive(Debug, Clone, Args)]
pub struct ProcessorOptions {
    /// A feature of the processor (as /proc/cpuinfo names it) that a machine to which ranks come
    /// may lack, although they seem to use it (as often as needed)
    #[arg(long, value_name = "NAME")]
    pub ignore_feature: Vec<String>,
}
