//! Options of `eyrie image`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie image inspect rank-0.gen-3\n  \
    eyrie image verify heat.2.img\n  eyrie image extract heat.2.img -o heat.core")]
pub struct Image {
    #[command(subcommand)]
    pub action: ImageAction,
}

#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// Show what an image holds: memory, threads, files, sizes
    Inspect(ImageInspect),
    /// Say of each part of an image whether it holds
    Verify(ImageVerify),
    /// Write a core file that gdb opens, or the bytes of one region
    Extract(ImageExtract),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie image inspect rank-0.gen-3\n  \
    eyrie image inspect heat.2.img --json | jq '.threads[].ip'\n  \
    eyrie image inspect rank-0.gen-1 --shared rank-1.gen-1 rank-2.gen-1\n\n\
    The image is verified first. PAGES are those stored, CHANGED those stored in this file and\n\
    not in an earlier one that it builds on.")]
pub struct ImageInspect {
    /// The image
    pub file: PathBuf,
    /// Show instead how many pages of each of these images those before it have too
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub shared: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie image verify heat.2.img && echo it holds\n\n\
    Exit code 0: every part holds. 1: one does not.")]
pub struct ImageVerify {
    /// The image
    pub file: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie image extract heat.2.img -o heat.core && gdb ./heat heat.core\n  \
    eyrie image extract heat.2.img --region 0x7ffc20000000 -o stack.bin\n\n\
    Pages of a region that are not stored (zeros, or those of its unchanged file) are zeros in\n\
    what --region writes.")]
pub struct ImageExtract {
    /// The image
    pub file: PathBuf,
    /// Where to write [default: the image's name with .core, or with .ADDR.bin]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only the region that holds this address
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub region: Option<u64>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| format!("'{text}' is no address: write for example 0x7f0012345000"))
}
