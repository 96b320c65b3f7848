//! The arguments of `eyrie report`.

use clap::Args;

/// What stands for standard output.
pub const STDOUT: &str = "-";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie report last                          the summary, as text\n  \
    eyrie report last -o                       one page for a browser, JOB.html\n  \
    eyrie report heat-1 -o report.html         the same by another name (-: standard output)\n  \
    eyrie report k7mq --trace heat.json        for Perfetto, or chrome://tracing\n\n\
    Of a job that runs it tells what there is so far. The page needs nothing from elsewhere. What\n\
    it shows, and what it does not: docs/guides/watching.md.")]
pub struct Report {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// Write one HTML page with all of it (without FILE: JOB.html; -: to standard output)
    #[arg(short, long, value_name = "FILE", num_args = 0..=1, default_missing_value = "")]
    pub output: Option<String>,
    /// Write the timeline as Chrome trace events, for Perfetto (-: to standard output)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<String>,
    /// As JSON
    #[arg(long, conflicts_with_all = ["output", "trace"])]
    pub json: bool,
}
